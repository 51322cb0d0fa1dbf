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
#include "agent.h"
#include "plugin_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define BRANCH_BYTES 6 /* of a conditional branch with a displacement of 4 */
#define ROW (5 + MODEL_COUNTERS)

EXPORT int qemu_plugin_version = 1;

struct site {
    uint64_t kind, offset, executed, next; /* `next`: the count of its next event */
    uint64_t target; /* of a conditional branch, which counts where it is taken */
    int decided;     /* the branch has executed, and where it led is not known yet */
    char path[512];
};

static qemu_plugin_id_t plugin;
static uint64_t interval, instructions, boundary;
static int profile, count, model_all, modelling;
static struct model *model;
static struct block *before;
static struct site *sites;
static struct agent_trigger *events;
static uint64_t site_count, event_count, threads, forks, reached;
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

/* ---- what is written ---- */

static void write_row(uint64_t stream, uint64_t event, uint64_t block, uint64_t count) {
    uint64_t row[ROW] = {stream, event, instructions, block, count};
    memcpy(row + 5, model_counters(model), MODEL_COUNTERS * sizeof *row);
    if (fwrite(row, sizeof row, 1, rows) != 1)
        stop("cannot write the counters");
}

static void finish(qemu_plugin_id_t id, void *unused) {
    FILE *file;
    (void)id, (void)unused;
    if (getpid() != owner)
        return; /* a child made by fork */
    write_row(0, 0, 0, 0);
    write_row(1, event_count, 0, 0);
    close_streams();
    fclose(rows);
    write_blocks();
    file = create(".status");
    fprintf(file, "instructions %" PRIu64 "\nthreads %" PRIu64 "\nforks %" PRIu64 "\nreached %" PRIu64 "\n", instructions, threads, forks, reached);
    for (uint64_t s = 0; s < site_count; s++)
        fprintf(file, "site %" PRIu64 "\n", sites[s].executed);
    fclose(file);
}

/* ---- what happens while the program runs ---- */

static void end_interval(struct block *next) {
    write_row(0, 0, next->id, executions_of(next->model.pc) + 1);
    write_vector(FIXED);
    boundary += interval;
}

static void execute(unsigned vcpu, void *data) {
    struct block *block = data;
    int goes_on = before != NULL && model_continues(&before->model, &block->model);
    (void)vcpu;
    if (profile && instructions >= boundary && !goes_on)
        end_interval(block);
    if (!goes_on) {
        instructions += block->model.instructions;
        if (profile) {
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
    if (getpid() == owner && ((number == 56 && !(flags & clone_thread)) || number == 57 || number == 58))
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
    if (model_all || modelling == on)
        return;
    modelling = on;
    before = NULL;
    model_interrupt(model);
    qemu_plugin_reset(plugin, watch);
}

static int belongs(uint64_t event, const struct site *site) {
    return events[event].site == (uint64_t)(site - sites);
}

static void find_next_event(struct site *site) {
    site->next = ~0ull;
    for (uint64_t i = 0; i < event_count; i++)
        if (belongs(i, site) && events[i].count > site->executed && events[i].count < site->next)
            site->next = events[i].count;
}

static void reach_site(struct site *site) {
    if (++site->executed < site->next || getpid() != owner)
        return;
    for (uint64_t i = 0; i < event_count; i++) {
        if (!belongs(i, site) || events[i].count != site->executed)
            continue;
        reached++;
        write_row(1, i, 0, 0);
        write_vector(MARKED);
        if (events[i].action != AGENT_MARK)
            set_modelling(events[i].action == AGENT_FOLLOW);
    }
    find_next_event(site);
}

static void execute_site(unsigned vcpu, void *data) {
    struct site *site = data;
    (void)vcpu;
    if (site->kind == AGENT_BRANCH)
        site->decided = 1;
    else
        reach_site(site);
}

/* The block that a counted branch leads to begins; it may be entered from elsewhere. */
static void enter_target(unsigned vcpu, void *data) {
    struct site *site = data;
    (void)vcpu;
    if (site->decided)
        reach_site(site);
    site->decided = 0;
}

static void pass_by(unsigned vcpu, void *data) {
    (void)vcpu;
    ((struct site *)data)->decided = 0;
}

static void hook_branch(struct qemu_plugin_tb *tb, const struct block *block, struct site *site, uint64_t bias) {
    if (site->target != 0 && block->model.pc == site->target + bias)
        qemu_plugin_register_vcpu_tb_exec_cb(tb, enter_target, QEMU_NO_REGISTERS, site);
    else if (block->model.pc == site->offset + BRANCH_BYTES + bias)
        qemu_plugin_register_vcpu_tb_exec_cb(tb, pass_by, QEMU_NO_REGISTERS, site);
}

/* Instructions where nothing else counts them; the next elements of a repeated instruction are not new ones. */
static void count_inline(struct qemu_plugin_tb *tb, const struct block *block) {
    if (block->model.last != X86_REPEAT || block->model.instructions > 1)
        qemu_plugin_register_vcpu_tb_exec_inline(tb, QEMU_INLINE_ADD, &instructions, block->model.instructions);
}

static void hook_sites(struct qemu_plugin_tb *tb, const struct block *block) {
    for (uint64_t s = 0; s < site_count; s++) {
        struct site *site = &sites[s];
        uint64_t inside = site->offset - block->offset;
        if (strcmp(site->path, block->mapping->path) != 0)
            continue;
        if (site->kind == AGENT_BRANCH)
            hook_branch(tb, block, site, block->model.pc - block->offset);
        for (uint32_t i = 0; inside < block->size && i < block->model.instructions; i++)
            if (block->starts[i] == inside)
                qemu_plugin_register_vcpu_insn_exec_cb(qemu_plugin_tb_get_insn(tb, i), execute_site, QEMU_NO_REGISTERS, site);
    }
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
    if (profile || modelling)
        qemu_plugin_register_vcpu_tb_exec_cb(tb, execute, QEMU_NO_REGISTERS, block);
    else if (count)
        count_inline(tb, block);
    if (modelling)
        watch_memory(tb, block->model.instructions);
}

/* ---- settings ---- */

static void begin_with(uint64_t event) {
    reached++;
    write_row(1, event, 0, 0);
    if (events[event].action == AGENT_FOLLOW)
        modelling = 1;
}

static void read_site(const char *line) {
    static uint64_t room;
    int at = 0;
    struct site site = {0};
    if (sscanf(line, "site %" SCNu64 " %" SCNx64 " %" SCNx64 " %n", &site.kind, &site.offset, &site.target, &at) != 3 || at == 0)
        stop("a site is not KIND OFFSET TARGET PATH");
    snprintf(site.path, sizeof site.path, "%s", line + at);
    sites = grown(sites, &room, site_count + 1, sizeof *sites);
    sites[site_count++] = site;
}

static void read_event(const char *line) {
    static uint64_t room;
    struct agent_trigger event = {.site = AGENT_AT_START};
    if (sscanf(line, "event - %" SCNu64 " %" SCNu64, &event.count, &event.action) != 2 &&
        (sscanf(line, "event %" SCNu64 " %" SCNu64 " %" SCNu64, &event.site, &event.count, &event.action) != 3 ||
         event.site >= site_count))
        stop("an event is not SITE COUNT ACTION");
    events = grown(events, &room, event_count + 1, sizeof *events);
    events[event_count++] = event;
}

static void read_settings(const char *path) {
    FILE *file = fopen(path, "r");
    char line[1024];
    if (file == NULL)
        stop("cannot read its settings");
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "out ", 4) == 0)
            snprintf(out, sizeof out, "%.500s", line + 4);
        else if (strncmp(line, "interval ", 9) == 0)
            interval = strtoull(line + 9, NULL, 10);
        else if (strncmp(line, "profile ", 8) == 0)
            profile = line[8] == '1';
        else if (strncmp(line, "count ", 6) == 0)
            count = line[6] == '1';
        else if (strncmp(line, "model ", 6) == 0)
            model_all = line[6] == '1';
        else if (strncmp(line, "site ", 5) == 0)
            read_site(line);
        else if (strncmp(line, "event ", 6) == 0)
            read_event(line);
        else
            stop("a setting is not known");
    }
    fclose(file);
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info *info, int argc, char **argv) {
    if (argc != 1 || strncmp(argv[0], "config=", 7) != 0 || strcmp(info->target_name, "x86_64") != 0)
        return -1;
    owner = getpid();
    read_settings(argv[0] + 7);
    model = model_new();
    if (model == NULL)
        stop("out of memory");
    modelling = model_all;
    boundary = interval ? interval : ~0ull;
    rows = create(".rows");
    if (profile)
        open_stream(FIXED, ".bb");
    if (profile && event_count > 0)
        open_stream(MARKED, ".marked.bb");
    for (uint64_t s = 0; s < site_count; s++)
        find_next_event(&sites[s]);
    for (uint64_t i = 0; i < event_count; i++)
        if (events[i].site == AGENT_AT_START)
            begin_with(i);
    watch(id);
    return 0;
}
