/* The cycle model: an in-order core with caches and a branch predictor. */
#include "model.h"

#include <stdlib.h>
#include <string.h>

#define LINE_BITS 6
#define L1_SETS 64
#define L1_WAYS 8
#define L2_SETS 1024
#define L2_WAYS 16
#define L2_CYCLES 12
#define MEMORY_CYCLES 120
#define STORE_SHARE 4 /* a store waits for 1 / this of a load's time */
#define MISS_CYCLES 14
#define HISTORY_BITS 14
#define TARGETS 4096
#define RETURNS 16

static const uint32_t extra_cycles[X86_KINDS] = {
    [X86_MULTIPLY] = 2, [X86_FLOAT] = 2, [X86_DIVIDE] = 20, [X86_FLOAT_DIVIDE] = 12,
};

struct model {
    uint64_t counters[MODEL_COUNTERS];
    uint64_t l1i[L1_SETS][L1_WAYS], l1d[L1_SETS][L1_WAYS], l2[L2_SETS][L2_WAYS]; /* most recent first */
    uint64_t code_line, data_line;
    uint8_t direction[1 << HISTORY_BITS]; /* 2 and 3 say taken */
    uint32_t history;
    uint64_t target[TARGETS];
    uint64_t returns[RETURNS];
    unsigned depth;
    const struct model_block *before; /* the block that executed last */
};

struct model *model_new(void) {
    struct model *model = calloc(1, sizeof *model);
    if (model == NULL)
        return NULL;
    memset(model->l1i, 0xff, sizeof model->l1i);
    memset(model->l1d, 0xff, sizeof model->l1d);
    memset(model->l2, 0xff, sizeof model->l2);
    memset(model->direction, 1, sizeof model->direction);
    model->code_line = model->data_line = ~0ull;
    return model;
}

void model_free(struct model *model) {
    free(model);
}

const uint64_t *model_counters(const struct model *model) {
    return model->counters;
}

void model_block_add(struct model_block *block, uint64_t pc, struct x86_insn insn) {
    if (block->instructions == 0)
        block->pc = pc;
    block->instructions++;
    block->issue_cycles += 1 + extra_cycles[insn.kind];
    block->multiplies += insn.kind == X86_MULTIPLY;
    block->divides += insn.kind == X86_DIVIDE;
    block->floats += insn.kind == X86_FLOAT || insn.kind == X86_FLOAT_DIVIDE;
    block->calls += insn.kind == X86_CALL || insn.kind == X86_CALL_INDIRECT;
    block->loads += insn.kind == X86_RETURN;
    block->stores += insn.kind == X86_CALL || insn.kind == X86_CALL_INDIRECT;
    block->last = insn.kind;
    block->last_pc = pc;
    block->fallthrough = pc + insn.length;
}

/* Whether the line is there; it is the most recent one of its set afterwards. */
static int touch(uint64_t *set, unsigned ways, uint64_t line) {
    unsigned way;
    uint64_t carried = line;
    for (way = 0; way < ways; way++) {
        uint64_t here = set[way];
        set[way] = carried;
        if (here == line)
            return 1;
        carried = here;
    }
    return 0;
}

/* Cycles that a miss of a first-level cache takes. */
static uint64_t fill(struct model *model, uint64_t line) {
    if (touch(model->l2[line % L2_SETS], L2_WAYS, line))
        return L2_CYCLES;
    model->counters[COUNT_L2_MISSES]++;
    return MEMORY_CYCLES;
}

static void fetch(struct model *model, const struct model_block *block) {
    uint64_t line = block->pc >> LINE_BITS, last = (block->fallthrough - 1) >> LINE_BITS;
    for (; line <= last; line++) {
        if (line == model->code_line)
            continue;
        model->code_line = line;
        if (!touch(model->l1i[line % L1_SETS], L1_WAYS, line)) {
            model->counters[COUNT_L1I_MISSES]++;
            model->counters[COUNT_CYCLES] += fill(model, line);
        }
    }
}

static int guess_direction(struct model *model, uint64_t pc, int taken) {
    uint8_t *counter = &model->direction[(pc ^ model->history) & ((1 << HISTORY_BITS) - 1)];
    int right = (*counter >= 2) == taken;
    if (taken && *counter < 3)
        ++*counter;
    if (!taken && *counter > 0)
        --*counter;
    model->history = (model->history << 1) | (unsigned)taken;
    return right;
}

static int guess_target(struct model *model, uint64_t pc, uint64_t target) {
    uint64_t *known = &model->target[(pc ^ model->history) % TARGETS];
    int right = *known == target;
    *known = target;
    return right;
}

/* Settle the branch at the end of the block before, now that its target is known. */
static void settle(struct model *model, uint64_t target) {
    const struct model_block *block = model->before;
    int right = 1;
    if (block == NULL)
        return;
    switch (block->last) {
    case X86_BRANCH:
        right = guess_direction(model, block->last_pc, target != block->fallthrough);
        break;
    case X86_CALL_INDIRECT:
        right = guess_target(model, block->last_pc, target);
        /* fall through */
    case X86_CALL:
        model->returns[model->depth++ % RETURNS] = block->fallthrough;
        break;
    case X86_JUMP_INDIRECT:
        right = guess_target(model, block->last_pc, target);
        break;
    case X86_RETURN:
        right = model->returns[--model->depth % RETURNS] == target;
        break;
    case X86_JUMP:
        break;
    default:
        return;
    }
    model->counters[COUNT_BRANCHES]++;
    if (!right) {
        model->counters[COUNT_BRANCH_MISSES]++;
        model->counters[COUNT_CYCLES] += MISS_CYCLES;
    }
}

int model_continues(const struct model_block *before, const struct model_block *block) {
    return before != NULL && before->last == X86_REPEAT && before->last_pc == block->pc;
}

void model_execute(struct model *model, const struct model_block *block) {
    uint64_t *counters = model->counters;
    /* a translator comes back to a repeated string instruction once an element: that is one instruction */
    if (model_continues(model->before, block)) {
        model->before = block;
        return;
    }
    settle(model, block->pc);
    fetch(model, block);
    counters[COUNT_CYCLES] += block->issue_cycles;
    counters[COUNT_INSTRUCTIONS] += block->instructions;
    counters[COUNT_MULTIPLIES] += block->multiplies;
    counters[COUNT_DIVIDES] += block->divides;
    counters[COUNT_FLOATS] += block->floats;
    counters[COUNT_CALLS] += block->calls;
    counters[COUNT_LOADS] += block->loads;
    counters[COUNT_STORES] += block->stores;
    model->before = block;
}

void model_interrupt(struct model *model) {
    model->before = NULL;
    model->code_line = ~0ull;
}

void model_access(struct model *model, uint64_t address, uint64_t size, int is_store) {
    uint64_t line = address >> LINE_BITS, last = (address + size - 1) >> LINE_BITS;
    model->counters[is_store ? COUNT_STORES : COUNT_LOADS]++;
    for (; line <= last; line++) {
        uint64_t cycles;
        if (line == model->data_line)
            continue;
        model->data_line = line;
        if (touch(model->l1d[line % L1_SETS], L1_WAYS, line))
            continue;
        model->counters[COUNT_L1D_MISSES]++;
        cycles = fill(model, line);
        model->counters[COUNT_CYCLES] += is_store ? cycles / STORE_SHARE : cycles;
    }
}
