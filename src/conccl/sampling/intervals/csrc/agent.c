/* The counting agent: preloaded into a program, it counts the executions of direct calls and loop jumps.
 *
 * Before main it finds every function through .eh_frame_hdr, decodes it from end to end, and points each
 * direct call and each backward jump of 32 bits at a thunk of its own that increments a counter in a shared
 * file and jumps on to where the instruction led. Only the four bytes of the displacement change, so nothing
 * is relocated, return addresses stay what they were, and a call costs two instructions more. The flags are
 * dead at a call (System V ABI); at a jump the thunk keeps them.
 *
 * At the end of each slice of time (or of instructions, where the machine counts them) a signal makes the
 * program note its counters in a ring, so that slices end where they should however busy the machine is.
 *
 * With a table of triggers, only the sites named there are patched: they count down, and at the wanted
 * execution the program calls the follower that has been attached to it.
 */
#include "agent_parts.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define BYTES_PER_SITE 32 /* of code; seen: 40 to 60 */

struct agent_header *shared;
EXPORT struct agent_header **const conccl_agent_header = &shared; /* where the follower finds it */
struct agent_module *modules;
struct agent_site *sites;
struct agent_trigger *triggers;
const uint64_t *counters;
uint64_t counters_offset;
uint64_t *ring;
int shared_file = -1;
static uint64_t inode; /* of the shared file */

void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(shared->failure, sizeof shared->failure, format, arguments);
    va_end(arguments);
    shared->state = AGENT_FAILED;
}

/* One function in how many is counted. Counters that another core reads travel between caches, so a program
 * of tens of megabytes must not have a million of them. */
static uint64_t stride_of_functions(void) {
    uint64_t bytes = 0;
    for (unsigned m = 0; m < object_count; m++)
        for (unsigned i = 0; i < objects[m].texts; i++)
            bytes += objects[m].text[i].high - objects[m].text[i].low;
    return 1 + bytes / (BYTES_PER_SITE * shared->capacity);
}

static void count_all(void) {
    uint64_t next = 0, stride = stride_of_functions();
    for (unsigned m = 0; m < object_count; m++) {
        struct places places = {0};
        const struct object *object = &objects[m];
        snprintf(modules[m].path, sizeof modules[m].path, "%s", object->path);
        shared->modules = m + 1;
        scan_object(object, stride, &places);
        if (next + places.count > shared->capacity) {
            fail("%s has more calls and loops than there is room for (%lu)", object->path, (unsigned long)shared->capacity);
            return;
        }
        for (uint64_t i = 0; i < places.count; i++)
            sites[next + i] = (struct agent_site){places.at[i].at - object->bias, m, places.at[i].kind};
        if (places.count > 0 && !patch_object(object, places.at, places.count, next))
            return;
        next += (places.count + 511) / 512 * 512; /* counters of an object begin on a page */
        shared->sites = next;
        if (places.room)
            munmap(places.at, places.room * sizeof *places.at);
    }
}

/* A child of fork counts into memory of its own. */
static void leave_counting_to_parent(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    if (maps == NULL)
        return;
    while (fgets(line, sizeof line, maps)) {
        unsigned long low, high, mapped = 0;
        if (sscanf(line, "%lx-%lx %*s %*s %*s %lu", &low, &high, &mapped) != 3 || mapped != inode)
            continue;
        if ((low <= (unsigned long)shared && (unsigned long)shared < high) ||
            mmap((void *)low, high - low, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
            continue;
        _exit(127); /* better no child than a wrong count */
    }
    fclose(maps);
}

static void note_fork(void) {
    __atomic_add_fetch(&shared->forks, 1, __ATOMIC_RELAXED);
}

/* Seen by everything that the loader binds after us. */
EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *), void *argument) {
    typedef int create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    create *next = (create *)dlsym(RTLD_NEXT, "pthread_create");
    if (shared != NULL)
        __atomic_add_fetch(&shared->threads, 1, __ATOMIC_RELAXED);
    return next(thread, attributes, function, argument);
}

static int open_shared(const char *path) {
    struct stat status;
    uint8_t *base;
    shared_file = open(path, O_RDWR | O_CLOEXEC);
    if (shared_file < 0 || fstat(shared_file, &status) != 0)
        return 0;
    base = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, shared_file, 0);
    if (base == MAP_FAILED)
        return 0;
    shared = (struct agent_header *)base;
    if (shared->magic != AGENT_MAGIC || shared->pid != 0)
        return 0;
    modules = (struct agent_module *)(shared + 1);
    sites = (struct agent_site *)(modules + AGENT_MODULES);
    triggers = (struct agent_trigger *)(sites + shared->capacity);
    counters_offset = (uint64_t)((uint8_t *)(triggers + AGENT_TRIGGERS) - base);
    counters_offset = (counters_offset + AGENT_PAGE - 1) & ~(uint64_t)(AGENT_PAGE - 1);
    counters = (const uint64_t *)(base + counters_offset);
    ring = (uint64_t *)(base + counters_offset) + (shared->capacity + 511) / 512 * 512;
    shared->pid = (uint64_t)getpid();
    inode = status.st_ino;
    return 1;
}

/* The program and its children see the environment that the user gave. */
static void restore_environment(void) {
    const char *original = getenv("CONCCL_AGENT_PRELOAD");
    if (original != NULL && *original)
        setenv("LD_PRELOAD", original, 1);
    else
        unsetenv("LD_PRELOAD");
    unsetenv("CONCCL_AGENT_PRELOAD");
    unsetenv("CONCCL_AGENT");
}

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("CONCCL_AGENT");
    if (path == NULL || !open_shared(path))
        return;
    restore_environment();
    pthread_atfork(NULL, note_fork, leave_counting_to_parent);
    find_objects();
    if (shared->mode == AGENT_COUNT)
        count_all();
    else
        arm_all();
    close(shared_file); /* the program finds the descriptors that it would have had */
    if (shared->state != AGENT_STARTING)
        return;
    shared->state = AGENT_READY;
    if (shared->mode == AGENT_COUNT)
        start_slices();
    else
        act_at_start();
}
