/* A program whose phases are known, for the tests of simulation points: `phases [ROUNDS [HOW]]`. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEPT __attribute__((noinline))
#define ITEMS (1 << 20)

static unsigned items[ITEMS];

/* Loads that miss the caches. */
KEPT static unsigned stream(unsigned from) {
    unsigned sum = 0;
    for (unsigned i = 0; i < 4096; i++)
        sum += items[(from + 16 * i) % ITEMS];
    return sum;
}

/* Divisions. */
KEPT static unsigned divide(unsigned n) {
    unsigned sum = 0;
    for (unsigned i = 1; i < 2048; i++)
        sum += (n + i * 7919u) / (i | 1);
    return sum;
}

/* Branches that nobody can foresee. */
KEPT static unsigned wander(unsigned n) {
    unsigned odd = 0;
    for (unsigned i = 0; i < 2048; i++) {
        n = n * 1103515245u + 12345u;
        if (n & 0x10000)
            odd += n >> 20;
        else
            odd ^= i;
    }
    return odd;
}

static void *nothing(void *argument) {
    return argument;
}

static void behave(const char *how) {
    pthread_t thread;
    if (strcmp(how, "thread") == 0 && pthread_create(&thread, NULL, nothing, NULL) == 0)
        pthread_join(thread, NULL);
    if (strcmp(how, "fork") == 0) {
        if (fork() == 0)
            _exit(0);
        wait(NULL);
    }
    if (strcmp(how, "fail") == 0) {
        fprintf(stderr, "out of luck\n");
        exit(3);
    }
    if (strcmp(how, "kill") == 0)
        raise(SIGKILL);
    if (strcmp(how, "exec") == 0)
        execl("/bin/true", "true", (char *)NULL);
}

int main(int argc, char **argv) {
    unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 2, sum = 0;
    for (unsigned i = 0; i < ITEMS; i++)
        items[i] = i * 2654435761u;
    for (unsigned round = 0; round < rounds; round++) {
        for (unsigned i = 0; i < 700; i++)
            sum += stream(i * 4096);
        for (unsigned i = 0; i < 1200; i++)
            sum += divide(i);
        for (unsigned i = 0; i < 900; i++)
            sum ^= wander(i + round);
    }
    if (argc > 2)
        behave(argv[2]);
    printf("%u\n", sum);
    return 0;
}
