#include "sim/base/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_THREADS = 256 };

struct pool {
    dtp_pool_fn *fn;
    void *ctx;
    size_t nitems;
    atomic_size_t next;
};

struct seat {
    struct pool *pool;
    int thread;
};

static void *work(void *arg) {
    const struct seat *seat = arg;
    struct pool *p = seat->pool;
    for (;;) {
        size_t item = atomic_fetch_add(&p->next, 1);
        if (item >= p->nitems)
            return NULL;
        p->fn(p->ctx, item, seat->thread);
    }
}

/* Counts the bits that are set in a hexadecimal digit; 0 for any other character. */
static int bits_of_digit(char c) {
    static const char digits[] = "0123456789abcdef";
    const char *at = c ? strchr(digits, c) : NULL;
    int n = 0;
    for (ptrdiff_t v = at ? at - digits : 0; v > 0; v /= 2)
        n += v % 2 == 1;
    return n;
}

/* Counts the processors in this process's affinity mask, from the kernel's text: sched_getaffinity is no
 * POSIX. */
static int allowed_processors(void) {
    FILE *f = fopen("/proc/self/status", "r");
    if (!f)
        return 1;
    char line[4096];
    int n = 0;
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, "Cpus_allowed:", 13) != 0)
            continue;
        for (const char *p = line + 13; *p; p++)
            n += bits_of_digit(*p);
    }
    fclose(f);
    return n > 0 ? n : 1;
}

/* Returns how many processors the control group's quota pays for, or `none` where there is no quota. */
static int quota_processors(int none) {
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "r");
    if (!f)
        return none;
    char line[128];
    bool read = fgets(line, sizeof line, f) != NULL;
    fclose(f);
    char *period_text = line;
    double quota = read ? strtod(line, &period_text) : 0; /* "max" gives 0 */
    double period = quota > 0 ? strtod(period_text, NULL) : 0;
    if (!(quota > 0) || !(period > 0) || quota / period >= none)
        return none;
    return quota < period ? 1 : (int)(quota / period);
}

int dtp_pool_default_threads(void) {
    int n = quota_processors(allowed_processors());
    return n < MOST_THREADS ? n : MOST_THREADS;
}

void dtp_pool_run(int nthreads, size_t nitems, dtp_pool_fn *fn, void *ctx) {
    if (nthreads < 1)
        nthreads = dtp_pool_default_threads();
    if (nthreads > MOST_THREADS)
        nthreads = MOST_THREADS;
    if ((size_t)nthreads > nitems)
        nthreads = (int)nitems;
    struct pool p = {.fn = fn, .ctx = ctx, .nitems = nitems};
    atomic_init(&p.next, 0);
    struct seat seat[MOST_THREADS];
    pthread_t thread[MOST_THREADS];
    bool started[MOST_THREADS] = {false};
    for (int i = 1; i < nthreads; i++) {
        seat[i] = (struct seat){&p, i};
        /* a thread that cannot start leaves its share to the others */
        started[i] = pthread_create(&thread[i], NULL, work, &seat[i]) == 0;
    }
    seat[0] = (struct seat){&p, 0};
    work(&seat[0]);
    for (int i = 1; i < nthreads; i++)
        if (started[i])
            pthread_join(thread[i], NULL);
}
