/* Part of the QEMU plugin: the blocks that are translated, and the files that they come from. */
#include "plugin_parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TABLE (1u << 20)

struct block **blocks;
uint64_t block_count;
static uint64_t block_room;
static struct block *table[TABLE];
static struct mapping *mappings;

static void read_mappings(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[1024];
    if (maps == NULL)
        return;
    while (fgets(line, sizeof line, maps)) {
        struct mapping m = {0};
        int at = 0;
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64 " %*s %*s %n", &m.low, &m.high, &m.offset, &at) < 3)
            continue;
        if (at == 0 || line[at] != '/')
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(m.path, sizeof m.path, "%s", line + at);
        struct mapping *kept = malloc(sizeof *kept);
        if (kept == NULL)
            stop("out of memory");
        *kept = m;
        kept->next = mappings;
        mappings = kept;
    }
    fclose(maps);
}

static const struct mapping *mapping_of(uint64_t host) {
    static const struct mapping *last;
    static uint64_t missed_page;
    if (last != NULL && host >= last->low && host < last->high)
        return last;
    for (int attempt = 0; attempt < 2; attempt++) {
        for (const struct mapping *m = mappings; m != NULL; m = m->next)
            if (host >= m->low && host < m->high)
                return last = m;
        if (host >> 12 == missed_page)
            break; /* code that no file holds: do not read the table for every block of it */
        read_mappings();
    }
    missed_page = host >> 12;
    return NULL;
}

static struct block *new_block(struct qemu_plugin_tb *tb, uint64_t pc, size_t count) {
    struct block *block = calloc(1, sizeof *block);
    struct qemu_plugin_insn *first = qemu_plugin_tb_get_insn(tb, 0);
    uint64_t host = (uint64_t)qemu_plugin_insn_haddr(first);
    if (block == NULL || (block->starts = malloc(count)) == NULL)
        stop("out of memory");
    for (size_t i = 0; i < count; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        uint64_t at = qemu_plugin_insn_vaddr(insn);
        struct x86_insn decoded = x86_decode(qemu_plugin_insn_data(insn), qemu_plugin_insn_size(insn));
        decoded.length = (unsigned)qemu_plugin_insn_size(insn);
        model_block_add(&block->model, at, decoded);
        block->starts[i] = (uint8_t)(at - pc);
    }
    block->size = (uint32_t)(block->model.fallthrough - pc);
    block->mapping = mapping_of(host);
    block->offset = block->mapping ? host - block->mapping->low + block->mapping->offset : 0;
    block->id = ++block_count;
    blocks = grown(blocks, &block_room, block_count + 1, sizeof *blocks);
    blocks[block->id] = block;
    return block;
}

struct block *block_of(struct qemu_plugin_tb *tb) {
    size_t count = qemu_plugin_tb_n_insns(tb);
    uint64_t pc = qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(tb, 0));
    struct block **bucket = &table[(pc * 0x9e3779b97f4a7c15ull) >> 44];
    for (struct block *b = *bucket; b != NULL; b = b->next)
        if (b->model.pc == pc && b->model.instructions == count)
            return b;
    struct block *block = new_block(tb, pc, count);
    block->next = *bucket;
    return *bucket = block;
}

/* How often an instruction has executed, whichever blocks it lies in. */
uint64_t executions_of(uint64_t pc) {
    uint64_t sum = 0;
    for (uint64_t id = 1; id <= block_count; id++) {
        const struct block *b = blocks[id];
        if (b->executed == 0 || pc < b->model.pc || pc >= b->model.pc + b->size)
            continue;
        for (uint32_t i = 0; i < b->model.instructions; i++)
            if (b->model.pc + b->starts[i] == pc)
                sum += b->executed;
    }
    return sum;
}

