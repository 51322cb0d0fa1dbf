/* The cycle model: an in-order core with caches and a branch predictor.
 *
 * It makes no claim to be a given processor; it is what a projection is checked against, and what the chosen
 * intervals are costed with, so that both sides see the same machine:
 *   issue        one instruction a cycle; multiplication and floating point 2 more, division 20 more,
 *                floating-point division and square root 12 more (no dependences are tracked)
 *   L1I, L1D     32 KiB each, 8 ways, 64-byte lines, LRU, hits free
 *   L2           1 MiB, 16 ways, LRU, shared by code and data: 12 cycles
 *   memory       120 cycles; a store waits for a quarter of either (write buffer). What calls, returns and
 *                indirect jumps load and store always hits; repeated string instructions load and store nothing
 *   branches     gshare, 14 bits of history, 2-bit counters; targets of indirect jumps and calls by a table of
 *                4096 entries indexed by address and history; a return stack of 16; 14 cycles a wrong guess
 */
#ifndef CONCCL_MODEL_H
#define CONCCL_MODEL_H

#include <stdint.h>

#include "x86.h"

enum model_counter {
    COUNT_CYCLES,
    COUNT_INSTRUCTIONS,
    COUNT_LOADS,
    COUNT_STORES,
    COUNT_L1I_MISSES,
    COUNT_L1D_MISSES,
    COUNT_L2_MISSES,
    COUNT_BRANCHES,
    COUNT_BRANCH_MISSES,
    COUNT_MULTIPLIES,
    COUNT_DIVIDES,
    COUNT_FLOATS,
    COUNT_CALLS,
    MODEL_COUNTERS
};

struct model_block {
    uint64_t pc, fallthrough; /* first byte, and first byte behind it */
    uint32_t instructions, issue_cycles;
    uint32_t multiplies, divides, floats, calls, loads, stores;
    enum x86_kind last; /* kind of its last instruction */
    uint64_t last_pc;
};

struct model;

struct model *model_new(void);
void model_free(struct model *model);

/* Add one instruction to a block that is being described. */
void model_block_add(struct model_block *block, uint64_t pc, struct x86_insn insn);

/* Whether the block is the next element of the repeated string instruction that ended the block before. */
int model_continues(const struct model_block *before, const struct model_block *block);

/* The block begins to execute; what the one before it did with its branch is known now. The block must stay
 * where it is. */
void model_execute(struct model *model, const struct model_block *block);

/* What executes next does not follow what executed last. */
void model_interrupt(struct model *model);

/* The executing block reads or writes `size` bytes of memory. */
void model_access(struct model *model, uint64_t address, uint64_t size, int is_store);

const uint64_t *model_counters(const struct model *model);

#endif
