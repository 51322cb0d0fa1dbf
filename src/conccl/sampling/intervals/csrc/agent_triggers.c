/* Part of the counting agent: at chosen executions of chosen sites the program calls the follower. */
#include "agent_parts.h"
#include "trace.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

volatile uint64_t **trigger_counters;
static uint64_t *next_count; /* by site: the execution at which its counter reaches zero */

static void arm(uint64_t site) {
    uint64_t now = next_count[site], next = ~0ull >> 1;
    for (uint64_t i = 0; i < shared->triggers; i++)
        if (triggers[i].site == site && triggers[i].count > now && triggers[i].count < next)
            next = triggers[i].count;
    next_count[site] = next;
    *trigger_counters[site] = next - now;
}

static int trigger_object(const struct object *object, uint64_t module) {
    uint64_t first = 0, count = 0;
    struct place places[512];
    while (first < shared->sites && sites[first].module != module)
        first++;
    for (uint64_t i = first; i < shared->sites && sites[i].module == module && sites[i].pc && count < 512; i++, count++) {
        struct place *place = &places[count];
        place->at = object->bias + sites[i].pc;
        if (!in_text(object, place->at) || !countable(object, 0, place, x86_decode((const uint8_t *)place->at, 15)) ||
            place->kind != sites[i].kind) {
            fail("%s has nothing to count at %#lx; is it still the same file?", object->path, (unsigned long)sites[i].pc);
            return 0;
        }
    }
    return count == 0 || patch_object(object, places, count, first);
}

static uint64_t half(uint64_t segment) {
    return shared->trace + 8 * (TRACE_TABLE + segment % 2 * shared->half_words);
}

static int map_trace(void) {
    int trace = (int)syscall(SYS_open, shared->trace_path, O_RDWR | O_CLOEXEC, 0);
    size_t size = 8 * (TRACE_TABLE + 2 * shared->half_words);
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, trace, 0);
    syscall(SYS_close, trace);
    if (at == MAP_FAILED) {
        fail("the trace cannot be mapped: %s", strerror(errno));
        return 0;
    }
    shared->trace = (uint64_t)at;
    shared->cursor = half(0);
    return 1;
}

void arm_all(void) {
    if (shared->half_words > 0 && !map_trace())
        return;
    size_t size = (shared->sites + 1) * sizeof *next_count;
    next_count = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    trigger_counters = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (uint64_t m = 0; m < shared->modules; m++) {
        unsigned o = 0;
        while (o < object_count && strcmp(objects[o].path, modules[m].path) != 0)
            o++;
        if (o == object_count) {
            fail("%s is not loaded in this run", modules[m].path);
            return;
        }
        if (!trigger_object(&objects[o], m))
            return;
    }
    for (uint64_t s = 0; s < shared->sites; s++)
        if (trigger_counters[s] != NULL)
            arm(s);
}

static void pause_briefly(void) {
    struct timespec pause = {0, 200000};
    syscall(SYS_nanosleep, &pause, NULL);
}

/* Wait until the follower is attached and has read what the half held before. */
static void begin_segment(void) {
    const volatile uint64_t *follow = &shared->follow, *read = &shared->read;
    shared->waiting = 1;
    while (*follow == 0 || shared->begun - *read >= 2)
        pause_briefly();
    shared->waiting = 0;
    shared->cursor = half(shared->begun);
    __atomic_store_n(&shared->begun, shared->begun + 1, __ATOMIC_RELEASE);
}

static void end_segment(void) {
    shared->end[shared->ended % 2] = (shared->cursor - half(shared->ended)) / 8;
    __atomic_store_n(&shared->ended, shared->ended + 1, __ATOMIC_RELEASE);
}

static void write_mark(uint64_t word) {
    *(uint64_t *)shared->cursor = TRACE_MARK | word;
    shared->cursor += 8;
}

static void act(uint64_t index) {
    static int following;
    uint64_t action = triggers[index].action, word = action << 32 | index;
    shared->reached++;
    if (shared->trace == 0 || following != (action != AGENT_FOLLOW))
        return; /* in a run that is not like the one before, triggers may come in another order */
    following = action != AGENT_UNFOLLOW;
    if (action == AGENT_UNFOLLOW)
        write_mark(word);
    if (action != AGENT_FOLLOW)
        end_segment();
    if (action != AGENT_UNFOLLOW) {
        begin_segment();
        write_mark(word);
    }
    if (action == AGENT_FOLLOW)
        ((void (*)(void))shared->follow)();
    if (action == AGENT_UNFOLLOW)
        ((void (*)(void))shared->unfollow)();
}

void act_at_start(void) {
    for (uint64_t i = 0; i < shared->triggers; i++)
        if (triggers[i].site == AGENT_AT_START)
            act(i);
}

/* Called by the stub when a site's counter has reached zero. */
__attribute__((used)) void agent_triggered(uint64_t site) {
    uint64_t now = next_count[site];
    arm(site);
    for (uint64_t i = 0; i < shared->triggers; i++)
        if (triggers[i].site == site && triggers[i].count == now)
            act(i);
}

/* Saves what a callee may change (x87, SSE, AVX and AVX-512 state, the caller-saved registers), since the
 * program is between a call and its callee. */
__attribute__((used, aligned(64))) static uint8_t agent_state[16384];

__asm__(".text\n"
        ".globl agent_stub\n"
        ".hidden agent_stub\n"
        "agent_stub:\n"
        "  push %rbp\n"
        "  mov %rsp, %rbp\n"
        "  push %rax\n  push %rcx\n  push %rdx\n  push %rsi\n  push %rdi\n"
        "  push %r8\n  push %r9\n  push %r10\n  push %r11\n"
        "  and $-64, %rsp\n"
        "  mov $0xe7, %eax\n  xor %edx, %edx\n"
        "  lea agent_state(%rip), %rcx\n"
        "  xsave64 (%rcx)\n"
        "  mov 16(%rbp), %rdi\n"
        "  call agent_triggered\n"
        "  mov $0xe7, %eax\n  xor %edx, %edx\n"
        "  lea agent_state(%rip), %rcx\n"
        "  xrstor64 (%rcx)\n"
        "  lea -72(%rbp), %rsp\n"
        "  pop %r11\n  pop %r10\n  pop %r9\n  pop %r8\n"
        "  pop %rdi\n  pop %rsi\n  pop %rdx\n  pop %rcx\n  pop %rax\n"
        "  pop %rbp\n"
        "  ret\n");

