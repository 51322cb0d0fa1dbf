/* Runs the cycle model over the trace of a followed program.
 *
 * Built as a shared library for the process that reads the trace (sampling/attach.py).
 */
#include "agent.h"
#include "model.h"
#include "trace.h"

#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define ROW (1 + MODEL_COUNTERS)

struct block {
    struct model_block model;
    const uint64_t *operands;
    uint32_t operand_count;
};

struct replay {
    struct model *model;
    const uint64_t *table;
    struct block **blocks; /* by place in the table */
    const struct block *block;
    uint32_t operand;      /* the next of the block */
    uint64_t stack;        /* pointer when the block began */
    int awaits_stack;
    uint64_t *rows, row_count, row_room;
};

EXPORT void replay_free(struct replay *replay) {
    if (replay == NULL)
        return;
    for (uint64_t i = 0; replay->blocks != NULL && i < TRACE_TABLE; i++)
        free(replay->blocks[i]);
    model_free(replay->model);
    free(replay->blocks);
    free(replay->rows);
    free(replay);
}

EXPORT struct replay *replay_new(const uint64_t *table) {
    struct replay *replay = calloc(1, sizeof *replay);
    if (replay == NULL)
        return NULL;
    replay->model = model_new();
    replay->table = table;
    replay->blocks = calloc(TRACE_TABLE, sizeof *replay->blocks);
    if (replay->model == NULL || replay->blocks == NULL) {
        replay_free(replay);
        return NULL;
    }
    return replay;
}

/* The block that a word names, read from its description when it is first met. */
static const struct block *block_at(struct replay *replay, uint64_t place) {
    struct block *block = replay->blocks[place];
    const uint64_t *words = replay->table + place;
    uint32_t instructions = words[1] & 0xffff, operands = (words[1] >> 16) & 0xffff, bytes = words[1] >> 32, at = 0;
    const uint8_t *lengths = (const uint8_t *)(words + 2 + operands), *code = lengths + instructions;
    if (block != NULL)
        return block;
    block = calloc(1, sizeof *block);
    if (block == NULL)
        return NULL;
    block->operands = words + 2;
    block->operand_count = operands;
    for (uint32_t i = 0; i < instructions && at < bytes; i++) {
        struct x86_insn insn = x86_decode(code + at, bytes - at);
        insn.length = lengths[i];
        model_block_add(&block->model, words[0] + at, insn);
        at += lengths[i];
    }
    return replay->blocks[place] = block;
}

static void execute(struct replay *replay, const struct block *block) {
    model_execute(replay->model, &block->model);
    replay->block = block;
    replay->operand = 0;
    replay->awaits_stack = 1;
}

static void use(struct replay *replay, uint64_t operand, uint64_t address) {
    uint64_t size = (operand >> OPERAND_SIZE) & 0x3f;
    if (operand & OPERAND_READ)
        model_access(replay->model, address, size, 0);
    if (operand & OPERAND_WRITE)
        model_access(replay->model, address, size, 1);
}

/* Operands up to the next whose address must be read from the trace. */
static void use_known(struct replay *replay) {
    const struct block *block = replay->block;
    for (; replay->operand < block->operand_count; replay->operand++) {
        uint64_t operand = block->operands[replay->operand], place = operand & OPERAND_PLACE;
        if (operand & OPERAND_STACK)
            use(replay, operand, replay->stack + place - STACK_ORIGIN);
        else if (operand & OPERAND_FIXED)
            use(replay, operand, place);
        else
            return;
    }
}

static void read_address(struct replay *replay, uint64_t address) {
    if (replay->awaits_stack) {
        replay->awaits_stack = 0;
        replay->stack = address;
    } else if (replay->block != NULL && replay->operand < replay->block->operand_count) {
        use(replay, replay->block->operands[replay->operand++], address);
    } else {
        return;
    }
    use_known(replay);
}

static int mark(struct replay *replay, uint64_t trigger) {
    uint64_t *row;
    if (replay->row_count == replay->row_room) {
        uint64_t room = 2 * replay->row_room + 64;
        uint64_t *rows = realloc(replay->rows, room * ROW * sizeof *rows);
        if (rows == NULL)
            return 0;
        replay->rows = rows;
        replay->row_room = room;
    }
    row = replay->rows + ROW * replay->row_count++;
    row[0] = trigger;
    memcpy(row + 1, model_counters(replay->model), MODEL_COUNTERS * sizeof *row);
    return 1;
}

/* The program runs on its own until the next word. */
static void interrupt(struct replay *replay) {
    model_interrupt(replay->model);
    replay->block = NULL;
}

/* Read on; 0 where there is no memory. */
EXPORT int replay_read(struct replay *replay, const uint64_t *words, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        uint64_t word = words[i];
        if (word & TRACE_BLOCK) {
            const struct block *block = block_at(replay, word & ~TRACE_BLOCK);
            if (block == NULL)
                return 0;
            execute(replay, block);
        } else if (word & TRACE_MARK) {
            if (!mark(replay, word & 0xffffffff))
                return 0;
            if (((word & ~TRACE_MARK) >> 32) == AGENT_UNFOLLOW)
                interrupt(replay);
        } else {
            read_address(replay, word);
        }
    }
    return 1;
}

/* The trace is at its end: a last row, of no trigger. */
EXPORT int replay_end(struct replay *replay) {
    return mark(replay, UINT32_MAX);
}

EXPORT uint64_t replay_rows(const struct replay *replay, const uint64_t **rows) {
    *rows = replay->rows;
    return replay->row_count;
}
