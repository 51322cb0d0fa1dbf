// The script that frida runs in the program: it compiles the follower and says where it can be called.
// The agent calls `follow` and `unfollow` in the program's own thread, when a trigger fires.
'use strict';

const header = Process.getModuleByName(LAYOUT.agent).getExportByName('conccl_agent_header').readPointer().readPointer();
const field = (name) => header.add(LAYOUT[name]);
const word = (name) => field(name).readU64();

const modules = Number(word('modules'));
const hidden = Memory.alloc(16 * (modules + 8));
let ranges = 0;
function hide(low, high) {
  hidden.add(16 * ranges).writePointer(ptr(low.toString()));
  hidden.add(16 * ranges + 8).writePointer(ptr(high.toString()));
  ranges += 1;
}
hide(word('own_low'), word('own_high'));
for (let i = 0; i < modules; i += 1) {
  const module = header.add(LAYOUT.module_paths + i * LAYOUT.module_size);
  hide(module.readU64(), module.add(8).readU64());
}

const follower = new CModule(SOURCE, {
  cursor: field('cursor'),
  table: ptr(word('trace').toString()),
  table_used: Memory.alloc(8),
  table_full: field('table_full'),
  hidden: hidden,
  description: Memory.alloc(1 << 17),
});

const follow = new NativeCallback(() => Stalker.follow({ transform: follower.transform }), 'void', []);
const unfollow = new NativeCallback(() => Stalker.unfollow(), 'void', []);

Stalker.trustThreshold = 0; // the program does not change its code
for (const module of Process.enumerateModules()) {
  if (module.name.startsWith('frida-agent')) {
    Stalker.exclude(module);
    hide(module.base, module.base.add(module.size));
  }
}
for (const callback of [follow, unfollow]) {
  const page = callback.and(ptr(Process.pageSize - 1).not());
  Stalker.exclude({ base: page, size: Process.pageSize });
  hide(page, page.add(Process.pageSize));
}
field('unfollow').writePointer(unfollow);
field('follow').writePointer(follow);
