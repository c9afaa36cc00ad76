/* bench_engine.c: the engine's speed, one line a case: name, activities, seconds to run and to build
 * (processor time, best of the repeats), both per second, the simulated time.
 *
 *     bench_engine [--quick] [name ...]
 *
 * Cases: chain and fork (pure tasks), and the three of tests/bench/cases.h: (a) 1F1B without network,
 * (b) the rings of an all-reduce, (c) a training step of every rank with p2p flows and dp rings; all pairs at once.
 * tests/bench/compare_simgrid.sh runs the same in SimGrid.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tests/bench/cases.h"

struct bench {
    const char *name;
    void (*build)(struct case_graph *c, const int *arg);
    int arg[6];
    int repeats;
};

static const struct bench BENCHES[] = {
    {"chain_fork", case_chain_fork, {1000, 1000}, 7},
    {"a_m512", case_pipeline, {16, 512}, 21},
    {"a_m8192", case_pipeline, {16, 8192}, 9},
    {"b1024_packed", case_rings, {128, CASE_PACKED, 0}, 15},
    {"b1024_spread", case_rings, {128, CASE_SPREAD, 0}, 15},
    {"b1024_shuffled", case_rings, {128, CASE_SHUFFLED, 0}, 15},
    {"b1024_spread_jitter", case_rings, {128, CASE_SPREAD, 1}, 5},
    {"b1024_shuffled_jitter", case_rings, {128, CASE_SHUFFLED, 1}, 5},
    {"b4096_spread_jitter", case_rings, {512, CASE_SPREAD, 1}, 3},
    {"b4096_shuffled_jitter", case_rings, {512, CASE_SHUFFLED, 1}, 3},
    {"all_to_all_256", case_all_to_all, {32, 0}, 3},
    {"all_to_all_64_jitter", case_all_to_all, {8, 1}, 3},
    {"c1024_spread", case_step, {8, 16, 8, 192, 0, CASE_SPREAD}, 5},
    {"c1024_packed_jitter", case_step, {8, 16, 8, 192, 1, CASE_PACKED}, 5},
    {"c1024_spread_jitter", case_step, {8, 16, 8, 192, 1, CASE_SPREAD}, 5},
    {"c1024_shuffled_jitter", case_step, {8, 16, 8, 192, 1, CASE_SHUFFLED}, 5},
    {"c1024_loads_jitter", case_step_loads, {8, 16, 8, 192, 1, CASE_SPREAD}, 3},
    {"c16_folded", case_step, {1, 16, 1, 192, 0, CASE_SPREAD}, 21},
    {"c4096_spread_jitter", case_step, {8, 16, 32, 192, 1, CASE_SPREAD}, 3},
};

static double cpu_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double least(double x, double y) {
    return x < y ? x : y;
}

static int run_bench(const struct bench *b, int repeats) {
    double build_s = INFINITY, run_s = INFINITY;
    struct dtp_timeline t = {0};
    struct dtp_err err;
    enum dtp_status status = DTP_OK;
    struct dtp_arena *a = dtp_arena_create("bench"), *run = dtp_arena_create("bench run");
    for (int r = 0; r < repeats && status == DTP_OK; r++) {
        struct case_graph c;
        dtp_arena_reset(a);
        dtp_arena_reset(run);
        double t0 = cpu_s();
        case_init(&c, a);
        b->build(&c, b->arg);
        status = dtp_graph_freeze(&c.g, &err);
        double t1 = cpu_s();
        if (status == DTP_OK)
            status = dtp_engine_run(run, &c.p, &c.g, &t, &err);
        run_s = least(run_s, cpu_s() - t1);
        build_s = least(build_s, t1 - t0);
    }
    if (status == DTP_OK)
        printf("%s,%u,%.4f,%.4f,%.0f,%.0f,%.9f\n", b->name, t.ntasks, run_s, build_s,
               t.ntasks / run_s, t.ntasks / build_s, t.makespan_s);
    else
        fprintf(stderr, "%s: %s\n", b->name, err.msg);
    fflush(stdout);
    dtp_arena_destroy(a);
    dtp_arena_destroy(run);
    return status != DTP_OK;
}

static int wanted(const char *name, int argc, char **argv) {
    int named = 0;
    for (int i = 1; i < argc; i++) {
        named |= argv[i][0] != '-';
        if (strcmp(argv[i], name) == 0)
            return 1;
    }
    return !named;
}

int main(int argc, char **argv) {
    int quick = argc > 1 && strcmp(argv[1], "--quick") == 0, failed = 0;
    printf("name,activities,run_s,build_s,activities_per_s,built_per_s,simulated_s\n");
    for (size_t i = 0; i < sizeof BENCHES / sizeof *BENCHES; i++)
        if (wanted(BENCHES[i].name, argc, argv))
            failed |= run_bench(&BENCHES[i], quick ? 1 : BENCHES[i].repeats);
    return failed;
}
