/* The shared file through which the counting agent and the process that started it talk.
 *
 * Layout: struct agent_header | AGENT_MODULES x struct agent_module | capacity x struct agent_site |
 * AGENT_TRIGGERS x struct agent_trigger | (page) capacity x uint64_t counters | ring of AGENT_RING words.
 * The Python side (agent.py) reads and writes the same layout.
 */
#ifndef CONCCL_AGENT_H
#define CONCCL_AGENT_H

#include <stdint.h>

#define AGENT_MAGIC 0x31746e6567614343ull
#define AGENT_MODULES 64
#define AGENT_TRIGGERS 4096
#define AGENT_PAGE 4096
#define AGENT_RING (1ull << 22) /* words */
#define AGENT_EVENTS 8
#define AGENT_AT_START UINT64_MAX

enum agent_mode { AGENT_COUNT = 0, AGENT_TRIGGER = 1 };
enum agent_state { AGENT_STARTING = 0, AGENT_READY = 1, AGENT_FAILED = 2 };
enum agent_kind { AGENT_CALL = 0, AGENT_JUMP = 1, AGENT_BRANCH = 2 };
enum agent_action { AGENT_MARK = 0, AGENT_FOLLOW = 1, AGENT_UNFOLLOW = 2 };

struct agent_header {
    uint64_t magic;
    uint64_t mode;     /* in: enum agent_mode */
    uint64_t capacity; /* in: sites that fit */
    uint64_t state;    /* out: enum agent_state */
    uint64_t pid;      /* out: the one process that counts */
    uint64_t forks;    /* out: children made by fork */
    uint64_t threads;  /* out: threads made by pthread_create */
    uint64_t modules;  /* out when counting, in when triggering */
    uint64_t sites;    /* out when counting, in when triggering */
    uint64_t refused;  /* out: functions that were not decoded from end to end, and so not touched */
    uint64_t triggers; /* in: entries of the trigger table */
    uint64_t reached;  /* out: triggers that fired */
    uint64_t waiting;  /* out: 1 while the program waits at a trigger for the follower */
    uint64_t follow;   /* in: function called in the program at AGENT_FOLLOW; it waits until this is set */
    uint64_t unfollow; /* in: the same for AGENT_UNFOLLOW */
    uint64_t events;   /* in: performance events; the first one ends slices, all are noted in records */
    struct {
        uint64_t type, config; /* as in perf_event_attr */
    } event[AGENT_EVENTS];
    uint64_t period;   /* in: of the first event, the length of a slice */
    uint64_t head;     /* out: words written into the ring, ever */
    uint64_t tail;     /* in: words read from the ring, ever */
    uint64_t cursor;   /* out: address, in the program, behind the last word of the trace */
    uint64_t trace;    /* out: address of the trace in the program */
    uint64_t half_words; /* in: room for one segment of the trace; 0 where nobody follows */
    uint64_t begun;    /* out: segments of the trace that were begun; segment n lies in half n % 2 */
    uint64_t ended;    /* out: segments that are complete */
    uint64_t end[2];   /* out: words in the segment of each half, once it is complete */
    uint64_t read;     /* in: segments that have been read */
    uint64_t table_full; /* out: 1 where code was met for which the table of blocks had no room */
    uint64_t own_low, own_high; /* out: code of the agent */
    char trace_path[256]; /* in: the file for it */
    char failure[256]; /* out: why state is AGENT_FAILED */
};

struct agent_module {
    uint64_t thunks_low, thunks_high; /* out: code that stands in for its jumps */
    char path[496];
};

struct agent_site {
    uint64_t pc;     /* address of the instruction in the file */
    uint32_t module; /* index */
    uint32_t kind;   /* enum agent_kind; a conditional branch counts where it is taken */
};

struct agent_trigger {
    uint64_t site;  /* AGENT_AT_START: before the program's first instruction */
    uint64_t count; /* fires when the site executes for this time, before its effect */
    uint64_t action;
};

/* A record of the ring: words in all, program counter, one value for each event, then a word for each counter
 * that has changed since the record before: site << 32 | increase. */

#endif
