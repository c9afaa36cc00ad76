/* bench_trace FILE...: seconds and peak memory to read and analyse a trace (bar: 1 GB of Kineto in
 * 15 s and 600 MB). */
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>

#include "sim/base/units.h"
#include "traces/replay/analyse.h"

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * DTP_NANO;
}

int main(int argc, char **argv) {
    struct dtp_arena *a = dtp_arena_create("bench");
    struct dtp_trace t;
    struct dtp_err err = {0};
    double from_s = now_s();
    if (dtp_trace_load(a, (const char *const *)(argv + 1), (size_t)(argc - 1), NULL, &t, &err) !=
        DTP_OK) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    double read_s = now_s() - from_s;
    for (size_t i = 0; i < t.nranks; i++) {
        const struct dtp_trace_rank *r = &t.rank[i];
        struct dtp_trace_times times;
        const struct dtp_trace_by_name *kernel;
        size_t n;
        dtp_trace_times_all(r, &times);
        dtp_trace_kernels(a, r, &kernel, &n);
        printf("rank %d: %llu bytes, %zu events kept, %zu kernels by name, busy %.3f s\n", r->rank,
               (unsigned long long)r->raw_bytes, r->nevents, n, (double)times.busy_ns * DTP_NANO);
    }
    double all_s = now_s() - from_s;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("read %.2f s, analysed %.2f s, peak %.0f MB\n", read_s, all_s - read_s,
           (double)usage.ru_maxrss * DTP_KIB / DTP_MEGA);
    dtp_arena_destroy(a);
    return 0;
}
