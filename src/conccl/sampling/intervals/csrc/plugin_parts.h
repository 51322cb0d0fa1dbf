/* What the parts of the QEMU plugin share. */
#ifndef CONCCL_PLUGIN_PARTS_H
#define CONCCL_PLUGIN_PARTS_H

#include "model.h"
#include "qemu_api.h"

#include <stdio.h>

/* A file that code was mapped from. */
struct mapping {
    uint64_t low, high, offset;
    char path[512];
    struct mapping *next;
};

struct block {
    struct model_block model;
    struct block *next; /* in its bucket */
    uint64_t id, offset, executed;
    uint64_t counts[2]; /* executions in the current interval of each stream */
    const struct mapping *mapping;
    uint32_t size;
    uint8_t *starts; /* of the instructions, from the first byte */
};

/* Basic-block vectors of one way to cut the run into intervals. */
enum { FIXED, MARKED, STREAMS };

_Noreturn void stop(const char *what);
void *grown(void *memory, uint64_t *room, uint64_t need, size_t item);

/* plugin_blocks.c */
extern struct block **blocks; /* by id, from 1 */
extern uint64_t block_count;
struct block *block_of(struct qemu_plugin_tb *tb);
uint64_t executions_of(uint64_t pc);

/* plugin_output.c */
FILE *create(const char *suffix);
void open_stream(unsigned which, const char *suffix);
void count_in(unsigned which, struct block *block);
void write_vector(unsigned which);
void close_streams(void);
void write_blocks(void);
extern char out[512]; /* the beginning of the names of all files */

#endif
