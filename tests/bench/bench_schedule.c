/* bench_schedule.c: actions per second of each schedule generator and of the checker, plans per second
 * of the legality test; processor time, best of seven. Fails when a generator is below 200 M actions/s
 * or legality takes 100 ns. */
#include <math.h>
#include <stdio.h>
#include <time.h>

#include "models/schedule/schedule.h"
#include "sim/base/units.h"
#include "tests/plan_world.h"

enum { REPEATS = 7, PP = 16, M = 4096, NPLANS = 1000000 };

static const double BAR_ACTIONS_PER_S = 200 * DTP_MEGA, BAR_LEGALITY_S = 100 * DTP_NANO;

static double cpu_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + DTP_NANO * (double)t.tv_nsec;
}

static int bench_kind(struct dtp_arena *a, int kind) {
    int vpp = dtp_schedule_kinds[kind].chunked ? 2 : 1;
    double make_s = INFINITY, check_s = INFINITY;
    struct dtp_schedule s = {0};
    struct dtp_err err;
    for (int r = 0; r < REPEATS; r++) {
        dtp_arena_reset(a);
        double t0 = cpu_s();
        if (dtp_schedule_make(a, kind, PP, vpp, M, &s, &err) != DTP_OK) {
            fprintf(stderr, "%s\n", err.msg);
            return 1;
        }
        double t1 = cpu_s();
        if (dtp_schedule_check(a, &s, &err) != DTP_OK) {
            fprintf(stderr, "%s\n", err.msg);
            return 1;
        }
        double t2 = cpu_s();
        make_s = t1 - t0 < make_s ? t1 - t0 : make_s;
        check_s = t2 - t1 < check_s ? t2 - t1 : check_s;
    }
    double n = s.begin[PP];
    printf("generate %-12s %6.0f M actions/s    check %6.0f M actions/s\n",
           dtp_schedule_names[kind], n / make_s / DTP_MEGA, n / check_s / DTP_MEGA);
    return n / make_s < BAR_ACTIONS_PER_S;
}

/* Legal plans, which pass every check; microbatch sizes differ so that nothing folds away. */
static int bench_legality(void) {
    struct world w;
    struct dtp_plan p = base_plan();
    double best_s = INFINITY;
    int legal = 0;
    world_init(&w);
    for (int r = 0; r < REPEATS; r++) {
        double t0 = cpu_s();
        for (int i = 0; i < NPLANS; i++) {
            p.microbatch_size = 1 << (i & 3);
            legal += dtp_plan_check(&w.problem, &p) == DTP_LEGAL;
        }
        double t = cpu_s() - t0;
        best_s = t < best_s ? t : best_s;
    }
    printf("legality of a legal plan  %.1f ns (%d of %d legal)\n", best_s / NPLANS / DTP_NANO,
           legal, REPEATS * NPLANS);
    return best_s / NPLANS > BAR_LEGALITY_S;
}

int main(void) {
    struct dtp_arena *a = dtp_arena_create("bench");
    int failures = 0;
    for (int kind = 0; kind < DTP_NSCHEDULES; kind++)
        failures += bench_kind(a, kind);
    failures += bench_legality();
    dtp_arena_destroy(a);
    return failures ? 1 : 0;
}
