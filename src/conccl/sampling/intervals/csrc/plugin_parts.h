/* What the parts of the QEMU plugin share. */
#ifndef CONCCL_PLUGIN_PARTS_H
#define CONCCL_PLUGIN_PARTS_H

#include "agent.h"
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

struct site {
    uint64_t kind, offset, executed, next; /* `next`: the count of its next event */
    uint64_t target; /* of a conditional branch, which counts where it is taken */
    int decided;     /* the branch has executed, and where it led is not known yet */
    char path[512];
};

struct settings {
    uint64_t interval;
    int profile, count, model;
};

/* plugin.c */
_Noreturn void stop(const char *what);
void *grown(void *memory, uint64_t *room, uint64_t need, size_t item);

int is_child(void);
void reach_event(uint64_t event);

/* plugin_settings.c */
extern struct settings settings;
extern struct site *sites;
extern struct agent_trigger *events;
extern uint64_t site_count, event_count;
void read_settings(const char *path);

/* plugin_sites.c */
void find_next_event(struct site *site);
void hook_sites(struct qemu_plugin_tb *tb, const struct block *block);

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
