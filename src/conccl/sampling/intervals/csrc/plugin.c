/* The QEMU plugin: basic-block vectors, markers, and the cycle model over the run or its chosen intervals.
 *
 * `-plugin plugin.so,config=FILE`, one setting a line:
 *   out PREFIX         what is written: PREFIX.bb, .marked.bb, .rows, .blocks, .status
 *   interval N         instructions of an interval; 0 where only markers bound intervals
 *   profile 0|1        basic-block vectors and block counts over the whole run
 *   count 0|1          instructions over the whole run
 *   model 0|1          the cycle model over the whole run; else only between FOLLOW and UNFOLLOW
 *   site KIND OFFSET TARGET PATH   an instruction by its place in a file, and where it leads (hexadecimal)
 *   event SITE COUNT ACTION   as in agent.h; the site - is the start of the program
 * A row is ROW unsigned 64-bit numbers: stream (0 intervals, 1 events), event, instructions, block and count
 * of the marker (stream 0), and the counters of the model.
 */
#define _GNU_SOURCE
#include "plugin_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define ROW (5 + MODEL_COUNTERS)

EXPORT int qemu_plugin_version = 1;

static qemu_plugin_id_t plugin;
static uint64_t instructions, boundary;
static int modelling;
static struct model *model;
static struct block *before;
static uint64_t threads, forks;
static FILE *rows;
static pid_t owner;

static void translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb);

_Noreturn void stop(const char *what) {
    fprintf(stderr, "conccl plugin: %s\n", what);
    _exit(125);
}

void *grown(void *memory, uint64_t *room, uint64_t need, size_t item) {
    uint64_t before_room = *room;
    if (need <= before_room)
        return memory;
    *room = need > 2 * before_room ? need + 1024 : 2 * before_room;
    memory = realloc(memory, *room * item);
    if (memory == NULL)
        stop("out of memory");
    memset((char *)memory + before_room * item, 0, (*room - before_room) * item);
    return memory;
}

static void write_row(uint64_t stream, uint64_t event, uint64_t block, uint64_t count) {
    uint64_t row[ROW] = {stream, event, instructions, block, count};
    memcpy(row + 5, model_counters(model), MODEL_COUNTERS * sizeof *row);
    if (fwrite(row, sizeof row, 1, rows) != 1)
        stop("cannot write the counters");
}

/* Children of fork run on under the plugin, but are not part of the run. */
int is_child(void) {
    return getpid() != owner;
}

static void finish(qemu_plugin_id_t id, void *unused) {
    FILE *file;
    (void)id, (void)unused;
    if (is_child())
        return;
    write_row(0, 0, 0, 0);
    write_row(1, event_count, 0, 0);
    close_streams();
    fclose(rows);
    write_blocks();
    file = create(".status");
    fprintf(file, "instructions %" PRIu64 "\nthreads %" PRIu64 "\nforks %" PRIu64 "\n", instructions, threads, forks);
    for (uint64_t s = 0; s < site_count; s++)
        fprintf(file, "site %" PRIu64 "\n", sites[s].executed);
    fclose(file);
}

static void end_interval(struct block *next) {
    write_row(0, 0, next->id, executions_of(next->model.pc) + 1);
    write_vector(FIXED);
    boundary += settings.interval;
}

/* A repeated string instruction by itself executes once an element, of which only the first begins anything: a
 * marker there would be counted differently by those who count instructions. */
static int may_bound(const struct block *block) {
    return block->model.instructions > 1 || block->model.last != X86_REPEAT;
}

static void execute(unsigned vcpu, void *data) {
    struct block *block = data;
    int goes_on = before != NULL && model_continues(&before->model, &block->model);
    (void)vcpu;
    if (settings.profile && instructions >= boundary && !goes_on && may_bound(block))
        end_interval(block);
    if (!goes_on) {
        instructions += block->model.instructions;
        if (settings.profile) {
            block->executed++;
            count_in(FIXED, block);
            if (event_count > 0)
                count_in(MARKED, block);
        }
    }
    before = block;
    if (modelling)
        model_execute(model, &block->model);
}

static void access_memory(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *unused) {
    (void)vcpu, (void)unused;
    model_access(model, address, 1ull << qemu_plugin_mem_size_shift(info), qemu_plugin_mem_is_store(info));
}

static void note_thread(qemu_plugin_id_t id, unsigned vcpu) {
    (void)id, (void)vcpu;
    threads++;
}

static void note_syscall(qemu_plugin_id_t id, unsigned vcpu, int64_t number, uint64_t flags, uint64_t b, uint64_t c,
                         uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h) {
    const uint64_t clone_thread = 0x10000;
    (void)id, (void)vcpu, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h;
    if (!is_child() && ((number == 56 && !(flags & clone_thread)) || number == 57 || number == 58))
        forks++; /* clone, fork, vfork on x86-64 */
}

static void watch(qemu_plugin_id_t id) {
    plugin = id;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
    qemu_plugin_register_vcpu_init_cb(id, note_thread);
    qemu_plugin_register_vcpu_syscall_cb(id, note_syscall);
    qemu_plugin_register_atexit_cb(id, finish, NULL);
}

/* Translate anew, with or without the model. */
static void set_modelling(int on) {
    if (settings.model || modelling == on)
        return;
    modelling = on;
    before = NULL;
    model_interrupt(model);
    qemu_plugin_reset(plugin, watch);
}

void reach_event(uint64_t event) {
    write_row(1, event, 0, 0);
    write_vector(MARKED);
    if (events[event].action != AGENT_MARK)
        set_modelling(events[event].action == AGENT_FOLLOW);
}

/* Instructions where nothing else counts them; the next elements of a repeated instruction are not new ones. */
static void count_inline(struct qemu_plugin_tb *tb, const struct block *block) {
    if (block->model.last != X86_REPEAT || block->model.instructions > 1)
        qemu_plugin_register_vcpu_tb_exec_inline(tb, QEMU_INLINE_ADD, &instructions, block->model.instructions);
}

/* QEMU before 8.0 forgets to take back what is registered for an instruction that leaves its block, and would
 * go on to call it even behind a reset that has freed it. So nothing is registered for the last instruction of
 * a block and for what may leave one from within; the model knows of calls and returns by itself. */
static int may_watch(enum x86_kind kind, int is_last) {
    return !is_last && kind != X86_SYSTEM && kind != X86_STATE && kind != X86_REPEAT;
}

static void watch_memory(struct qemu_plugin_tb *tb, size_t instructions) {
    for (size_t i = 0; i < instructions; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        struct x86_insn decoded = x86_decode(qemu_plugin_insn_data(insn), qemu_plugin_insn_size(insn));
        if (may_watch(decoded.kind, i + 1 == instructions))
            qemu_plugin_register_vcpu_mem_cb(insn, access_memory, QEMU_NO_REGISTERS, QEMU_READS_AND_WRITES, NULL);
    }
}

static void translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb) {
    struct block *block = block_of(tb);
    (void)id;
    if (block->mapping != NULL)
        hook_sites(tb, block); /* first, so that an event comes before the block that it begins with */
    if (settings.profile || modelling)
        qemu_plugin_register_vcpu_tb_exec_cb(tb, execute, QEMU_NO_REGISTERS, block);
    else if (settings.count)
        count_inline(tb, block);
    if (modelling)
        watch_memory(tb, block->model.instructions);
}

static void begin_with(uint64_t event) {
    write_row(1, event, 0, 0);
    if (events[event].action == AGENT_FOLLOW)
        modelling = 1;
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info *info, int argc, char **argv) {
    if (argc != 1 || strncmp(argv[0], "config=", 7) != 0 || strcmp(info->target_name, "x86_64") != 0)
        return -1;
    owner = getpid();
    read_settings(argv[0] + 7);
    model = model_new();
    if (model == NULL)
        stop("out of memory");
    modelling = settings.model;
    boundary = settings.interval ? settings.interval : ~0ull;
    rows = create(".rows");
    if (settings.profile)
        open_stream(FIXED, ".bb");
    if (settings.profile && event_count > 0)
        open_stream(MARKED, ".marked.bb");
    for (uint64_t s = 0; s < site_count; s++)
        find_next_event(&sites[s]);
    for (uint64_t i = 0; i < event_count; i++)
        if (events[i].site == AGENT_AT_START)
            begin_with(i);
    watch(id);
    return 0;
}
