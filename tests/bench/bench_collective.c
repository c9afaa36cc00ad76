/* bench_collective: collective costs against the measured sweeps, and the time of one cost.
 *     bench_collective [DATA]             report; DATA: folder of the sweeps, ../shared/hw
 *     bench_collective DATA --fit FOLDER  writes the curves first (hw/curves)
 * in-sample: with the curve of the group; held out: without it, from the other groups of the machine
 * or, where there are none, from NCCL's model. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tests/bench/sweeps.h"
#include "sim/base/text.h"
#include "sim/base/units.h"

enum { CLASSES = 4, SPANS = 4 };
static const char *const class_names[CLASSES] = {"< 64 KiB", "64 KiB-1 MiB", "1-64 MiB",
                                                 ">= 64 MiB"};
static const char *const span_names[SPANS] = {"1 node", "2-8 nodes", "16-512 nodes",
                                              "2-540, libfabric"};

struct sum {
    double error, bias;
    int n;
};
struct table {
    struct sum at[SPANS][CLASSES];
};

static int class_of(double bytes) {
    return bytes < 64 * DTP_KIB ? 0 : bytes < DTP_MIB ? 1 : bytes < 64 * DTP_MIB ? 2 : 3;
}

static int span_of(const struct dtp_cluster *c, int nodes) {
    return nodes < 2 ? 0 : c->simple_only ? 3 : nodes < 16 ? 1 : 2;
}

static void add(struct sum *s, double ratio) {
    s->error += fabs(ratio - 1);
    s->bias += ratio - 1;
    s->n++;
}

static struct dtp_group_shape shape_of(const struct dtp_cluster *c, const struct dtp_sweep *s) {
    int p = s->gpus / s->nodes, nics = c->node.nics;
    return (struct dtp_group_shape){.size = s->gpus,
                                    .nodes = s->nodes,
                                    .per_node = p,
                                    .siblings = 1,
                                    .tier = s->nodes > 1 ? 0 : -1,
                                    .nics = s->nodes < 2 ? 0
                                            : p < nics   ? p
                                                         : nics};
}

/* One point for each octave: the geometric middle of what was measured would need logs; the mean. */
static size_t octave_means(const struct dtp_point *p, size_t n, struct dtp_point *out) {
    size_t m = 0;
    for (size_t i = 0; i < n;) {
        size_t k = i;
        double time_s = 0, bytes = 0;
        while (k < n && p[k].bytes <= p[i].bytes) {
            time_s += p[k].time_s;
            bytes += p[k].bytes;
            k++;
        }
        double count = (double)(k - i), last = m ? out[m - 1].bytes : 0;
        if (bytes / count >= 1.9 * last)
            out[m++] = (struct dtp_point){bytes / count, time_s / count};
        i = k;
    }
    return m;
}

static bool gathers(int kind) {
    return kind == DTP_ALL_GATHER || kind == DTP_REDUCE_SCATTER;
}

/* The cluster without the curves of the sweep's group; all_gather and reduce_scatter count as one. */
static struct dtp_cluster held_out(struct dtp_arena *a, const struct dtp_cluster *c,
                                   const struct dtp_sweep *s) {
    struct dtp_cluster out = *c;
    out.curve = DTP_NEW(a, struct dtp_curve, (size_t)c->ncurves + 1);
    out.ncurves = 0;
    for (int i = 0; i < c->ncurves; i++) {
        const struct dtp_curve *k = &c->curve[i];
        bool kin = k->collective == (int)s->collective ||
                   (gathers(k->collective) && gathers((int)s->collective));
        if (!kin || k->gpus != s->gpus || k->nodes != s->nodes)
            out.curve[out.ncurves++] = *k;
    }
    return out;
}

static enum dtp_status report_sweep(struct dtp_arena *a, const char *data,
                                    const struct dtp_sweep *s, const struct dtp_cluster *c,
                                    struct table tables[2], struct dtp_err *err) {
    struct dtp_point *point = NULL, mean[128];
    size_t n = 0;
    struct dtp_group_shape shape = shape_of(c, s);
    struct dtp_cluster without = held_out(a, c, s);
    struct sum all[2] = {{0}};
    const char *source = "";
    DTP_TRY(dtp_sweep_read(a, data, s, &point, &n, err));
    n = octave_means(point, n, mean);
    for (size_t i = 0; i < n; i++) {
        struct dtp_coll_cost cost[2];
        dtp_coll_cost(c, s->collective, DTP_ALGO_AUTO, &shape, mean[i].bytes, &cost[0]);
        dtp_coll_cost(&without, s->collective, DTP_ALGO_AUTO, &shape, mean[i].bytes, &cost[1]);
        for (int k = 0; k < 2; k++) {
            double ratio = cost[k].time_s / mean[i].time_s;
            add(&all[k], ratio);
            add(&tables[k].at[span_of(c, s->nodes)][class_of(mean[i].bytes)], ratio);
        }
        source = cost[1].source;
    }
    printf("%-13s %-14s %5d %4d %4zu  %5.1f %%  %5.1f %% (%+5.1f)  %s\n", s->cluster,
           dtp_collective_names[s->collective], s->gpus, s->nodes, n, 100 * all[0].error / all[0].n,
           100 * all[1].error / all[1].n, 100 * all[1].bias / all[1].n, source);
    return DTP_OK;
}

static void print_table(const char *title, const struct table *t) {
    printf("\n%-22s", title);
    for (int k = 0; k < CLASSES; k++)
        printf("  %22s", class_names[k]);
    printf("\n");
    for (int i = 0; i < SPANS; i++) {
        printf("%-22s", span_names[i]);
        for (int k = 0; k < CLASSES; k++) {
            const struct sum *s = &t->at[i][k];
            if (s->n)
                printf("  %6.1f %% (%+6.1f) n=%-3d", 100 * s->error / s->n, 100 * s->bias / s->n,
                       s->n);
            else
                printf("  %22s", "-");
        }
        printf("\n");
    }
}

static enum dtp_status report(struct dtp_arena *a, const char *data, struct dtp_err *err) {
    size_t n = 0;
    const struct dtp_sweep *s = dtp_sweeps(&n);
    struct table tables[2] = {{{{{0}}}}};
    struct dtp_cluster c = {0};
    printf("cluster       collective      GPUs nodes  n  in-sample  held out (bias)  from\n");
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || strcmp(s[i].cluster, s[i - 1].cluster) != 0)
            DTP_TRY(dtp_cluster_load(a, s[i].cluster, &c, err));
        DTP_TRY(report_sweep(a, data, &s[i], &c, tables, err));
    }
    print_table("in-sample", &tables[0]);
    print_table("held out", &tables[1]);
    return DTP_OK;
}

static enum dtp_status speed(struct dtp_arena *a, struct dtp_err *err) {
    struct dtp_cluster c;
    struct timespec from, to;
    double sum = 0;
    enum { CALLS = 1000000 };
    DTP_TRY(dtp_cluster_load(a, "a100", &c, err));
    struct dtp_group_shape shapes[3] = {
        {.size = 8, .nodes = 1, .per_node = 8, .siblings = 1, .tier = -1},
        {.size = 16, .nodes = 16, .per_node = 1, .nics = 1, .siblings = 1, .tier = 0},
        {.size = 64, .nodes = 8, .per_node = 8, .nics = 8, .siblings = 1, .tier = 0}};
    for (int k = 0; k < 3; k++) {
        clock_gettime(CLOCK_MONOTONIC, &from);
        for (int i = 0; i < CALLS; i++) {
            struct dtp_coll_cost cost;
            dtp_coll_cost(&c, DTP_ALL_REDUCE, DTP_ALGO_AUTO, &shapes[k], 1e6 + i, &cost);
            sum += cost.time_s;
        }
        clock_gettime(CLOCK_MONOTONIC, &to);
        double t_s =
            (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) * DTP_NANO;
        printf("dtp_coll_cost, %2d GPUs on %2d nodes: %.0f ns (check %.6g)\n", shapes[k].size,
               shapes[k].nodes, t_s / CALLS / DTP_NANO, sum);
    }
    return DTP_OK;
}

int main(int argc, char **argv) {
    struct dtp_arena *a = dtp_arena_create("bench");
    struct dtp_err err = {0};
    struct dtp_nccl_correction k[DTP_NCORRECTIONS];
    const char *data = argc > 1 ? argv[1] : "../shared/hw";
    enum dtp_status status = DTP_OK;
    if (argc > 3 && strcmp(argv[2], "--fit") == 0) {
        status = dtp_fit_curves(a, data, argv[3], stdout, &err);
        if (status == DTP_OK)
            status = dtp_fit_correction(a, k, &err);
        for (int i = 0; status == DTP_OK && i < DTP_NCORRECTIONS; i++)
            printf("correction %d: latency %.3g mixed %.3g bandwidth %.3g, error %.3f\n", i,
                   k[i].latency, k[i].mixed, k[i].bandwidth, k[i].mean_error);
    }
    if (status == DTP_OK)
        status = speed(a, &err);
    if (status == DTP_OK)
        status = report(a, data, &err);
    if (status != DTP_OK)
        fprintf(stderr, "bench_collective: %s\n", err.msg);
    dtp_arena_destroy(a);
    return (int)status;
}
