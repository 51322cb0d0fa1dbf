/* Part of the counting agent: at the end of each slice the program notes its counters in the ring. */
#include "agent_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static uint64_t *noted; /* the counters as they were at the last record */
static int event_files[AGENT_EVENTS];

static void write_word(uint64_t at, uint64_t word) {
    ring[at % AGENT_RING] = word;
}

static void note_counters(uint64_t pc) {
    struct timespec pause = {0, 200000};
    uint64_t at = shared->head, first = at;
    while (at + shared->sites + AGENT_EVENTS + 2 > *(volatile uint64_t *)&shared->tail + AGENT_RING)
        syscall(SYS_nanosleep, &pause, NULL); /* the reader is behind */
    at++;
    write_word(at++, pc);
    for (uint64_t e = 0; e < shared->events; e++) {
        uint64_t value = 0;
        if (syscall(SYS_read, event_files[e], &value, sizeof value) != sizeof value)
            value = 0;
        write_word(at++, value);
    }
    for (uint64_t site = 0; site < shared->sites; site++) {
        uint64_t increase = counters[site] - noted[site];
        if (increase == 0)
            continue;
        noted[site] += increase;
        write_word(at++, site << 32 | (increase > UINT32_MAX ? UINT32_MAX : increase));
    }
    write_word(first, at - first);
    __atomic_store_n(&shared->head, at, __ATOMIC_RELEASE);
}

static void end_slice(int signal, siginfo_t *info, void *context) {
    int kept = errno;
    (void)signal, (void)info;
    note_counters((uint64_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP]);
    errno = kept;
}

static int open_event(uint64_t type, uint64_t config, uint64_t period) {
    struct perf_event_attr attributes = {.type = (uint32_t)type, .size = sizeof attributes, .config = config,
                                         .sample_period = period, .exclude_kernel = 1, .exclude_hv = 1,
                                         .disabled = 1, .wakeup_events = 1};
    int events = (int)syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC), high;
    if (events < 0)
        return -1;
    high = fcntl(events, F_DUPFD_CLOEXEC, 900); /* out of the way of the program's own */
    if (high >= 0) {
        close(events);
        events = high;
    }
    return events;
}

void start_slices(void) {
    /* SIGURG, since it is ignored where nobody handles it */
    struct sigaction action = {.sa_sigaction = end_slice, .sa_flags = SA_SIGINFO | SA_RESTART};
    struct f_owner_ex owner = {F_OWNER_TID, (pid_t)syscall(SYS_gettid)};
    noted = mmap(NULL, shared->sites * 8 + 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (uint64_t e = 0; e < shared->events; e++) {
        event_files[e] = open_event(shared->event[e].type, shared->event[e].config, e == 0 ? shared->period : 0);
        if (event_files[e] < 0) {
            fail("performance event %lu:%lu cannot be opened: %s", (unsigned long)shared->event[e].type,
                 (unsigned long)shared->event[e].config, strerror(errno));
            return;
        }
    }
    if (shared->events == 0)
        return;
    sigaction(SIGURG, &action, NULL);
    fcntl(event_files[0], F_SETFL, O_RDWR | O_NONBLOCK | O_ASYNC);
    fcntl(event_files[0], F_SETSIG, SIGURG);
    fcntl(event_files[0], F_SETOWN_EX, &owner);
    for (uint64_t e = shared->events; e-- > 0;)
        ioctl(event_files[e], PERF_EVENT_IOC_ENABLE, 0);
}

