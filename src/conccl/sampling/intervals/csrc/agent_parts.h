/* What the parts of the counting agent share. */
#ifndef CONCCL_AGENT_PARTS_H
#define CONCCL_AGENT_PARTS_H

#define _GNU_SOURCE
#include "agent.h"
#include "x86.h"

#include <stddef.h>
#include <stdint.h>

#define HIDDEN __attribute__((visibility("hidden")))

struct text {
    uint64_t low, high;
};

/* An executable or library in memory. */
struct object {
    const char *path;
    uint64_t bias, low, high; /* the span of its segments */
    struct text text[4];
    unsigned texts;
    const uint8_t *unwind; /* .eh_frame_hdr */
};

/* An instruction that can be counted. */
struct place {
    uint64_t at, target;
    enum agent_kind kind;
};

struct places {
    struct place *at;
    uint64_t count, room;
};

/* agent.c: the shared file */
HIDDEN extern struct agent_header *shared;
HIDDEN extern struct agent_module *modules;
HIDDEN extern struct agent_site *sites;
HIDDEN extern struct agent_trigger *triggers;
HIDDEN extern const uint64_t *counters;
HIDDEN extern uint64_t counters_offset; /* in the file */
HIDDEN extern uint64_t *ring;
HIDDEN extern int shared_file;
HIDDEN void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* agent_code.c: which code there is, and what can be counted in it */
HIDDEN extern struct object objects[AGENT_MODULES];
HIDDEN extern unsigned object_count;
HIDDEN void find_objects(void);
HIDDEN int in_text(const struct object *object, uint64_t address);
HIDDEN int countable(const struct object *object, uint64_t low, struct place *place, struct x86_insn insn);
HIDDEN void scan_object(const struct object *object, uint64_t stride, struct places *places);

/* agent_thunks.c: pointing instructions at code that counts them */
HIDDEN int patch_object(const struct object *object, const struct place *places, uint64_t count, uint64_t first);

/* agent_slices.c */
HIDDEN void start_slices(void);

/* agent_triggers.c */
HIDDEN extern volatile uint64_t **trigger_counters; /* by site, where sites are triggers */
HIDDEN void agent_stub(void);
HIDDEN void arm_all(void);
HIDDEN void act_at_start(void);

#endif
