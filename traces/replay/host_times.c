#include "traces/replay/host_times.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/order.h"
#include "sim/base/stats.h"
#include "sim/base/units.h"
#include "traces/replay/analyse.h"

struct launch {
    int64_t start_ns, end_ns;
    uint32_t lane;
    bool optimizer;
};

struct times {
    double *at;
    size_t n, capacity;
};

struct look {
    struct dtp_arena *a;
    const struct dtp_trace_rank *r;
    struct launch *launch; /* by start */
    size_t nlaunches;
    bool *autograd;                  /* [lanes] its operators are those of the backward */
    struct launch *sync, *optimizer; /* calls that synchronise; optimizer's annotations; by start */
    size_t nsyncs, noptimizers;
    int64_t usual_ns; /* median length of a call */
};

static int by_start(const void *x, const void *y) {
    const struct launch *p = x, *q = y;
    if (p->start_ns != q->start_ns)
        return p->start_ns < q->start_ns ? -1 : 1;
    return p->lane < q->lane ? -1 : p->lane > q->lane;
}

static void add_time(struct dtp_arena *a, struct times *t, double v) {
    if (t->n == t->capacity) {
        t->at = dtp_arena_grow(a, t->at, sizeof *t->at, t->capacity, 2 * t->capacity + 1024);
        t->capacity = 2 * t->capacity + 1024;
    }
    t->at[t->n++] = v;
}

/* Tells whether v, in order of starts, has a launch that starts in (from, to). */
static bool starts_between(const struct launch *v, size_t n, int64_t from_ns, int64_t to_ns) {
    size_t i = dtp_rows_until(v, n, sizeof *v, offsetof(struct launch, start_ns), from_ns);
    return i < n && v[i].start_ns < to_ns;
}

static bool is_inside(const struct launch *v, size_t n, int64_t at_ns) {
    for (size_t i = 0; i < n; i++)
        if (at_ns >= v[i].start_ns && at_ns < v[i].end_ns)
            return true;
    return false;
}

static void collect(struct look *l) {
    const struct dtp_trace_rank *r = l->r;
    bool *launches = DTP_NEW(l->a, bool, r->nevents + 1);
    l->autograd = DTP_NEW(l->a, bool, (size_t)r->nlanes + 1);
    for (size_t i = 0; i < r->nevents; i++) {
        const struct dtp_trace_event *e = dtp_trace_event(r, i);
        if (dtp_trace_is_work(e) && e->launch != DTP_TRACE_NONE)
            launches[e->launch] = true;
        if (e->kind == DTP_TRACE_OP && !strncmp(dtp_trace_name(r, e->name), "autograd::engine", 16))
            l->autograd[e->lane] = true;
    }
    l->launch = DTP_NEW(l->a, struct launch, r->nevents + 1);
    l->sync = DTP_NEW(l->a, struct launch, r->nevents + 1);
    l->optimizer = DTP_NEW(l->a, struct launch, r->nevents + 1);
    for (size_t i = 0; i < r->nevents; i++) {
        const struct dtp_trace_event *e = dtp_trace_event(r, i);
        const char *name = dtp_trace_name(r, e->name);
        struct launch x = {e->start_ns, dtp_trace_end_ns(e), e->lane, false};
        if (launches[i])
            l->launch[l->nlaunches++] = x;
        else if (e->kind == DTP_TRACE_CALL && strstr(name, "Synchronize"))
            l->sync[l->nsyncs++] = x;
        else if (e->kind == DTP_TRACE_ANNOTATION && !strncmp(name, "Optimizer.step", 14))
            l->optimizer[l->noptimizers++] = x;
    }
    qsort(l->launch, l->nlaunches, sizeof *l->launch, by_start);
    qsort(l->sync, l->nsyncs, sizeof *l->sync, by_start);
    qsort(l->optimizer, l->noptimizers, sizeof *l->optimizer, by_start);
    int64_t *length_ns = DTP_NEW(l->a, int64_t, l->nlaunches + 1);
    for (size_t i = 0; i < l->nlaunches; i++) {
        l->launch[i].optimizer = is_inside(l->optimizer, l->noptimizers, l->launch[i].start_ns);
        length_ns[i] = l->launch[i].end_ns - l->launch[i].start_ns;
    }
    l->usual_ns = dtp_median_high_i64(length_ns, l->nlaunches);
}

/* Time of each launch up to the next on its thread; the launch in between must not be another's. */
static void take_gaps(struct look *l, struct times *direction) {
    for (size_t i = 0; i + 1 < l->nlaunches; i++) {
        const struct launch *x = &l->launch[i], *y = &l->launch[i + 1];
        if (x->lane != y->lane || x->optimizer || y->optimizer ||
            starts_between(l->sync, l->nsyncs, x->start_ns, y->start_ns))
            continue;
        int64_t gap_ns = y->start_ns - x->start_ns, own_ns = x->end_ns - x->start_ns;
        bool held = own_ns > 10 * l->usual_ns; /* the queue was full */
        gap_ns -= held ? own_ns - l->usual_ns : 0;
        add_time(l->a, &direction[l->autograd[x->lane]], (double)gap_ns * DTP_NANO);
    }
}

/* Returns the mean of the shorter 9 of 10. */
static double usual_s(struct times *t) {
    size_t n = t->n - t->n / 10;
    double sum_s = 0;
    if (t->n > 1)
        qsort(t->at, t->n, sizeof *t->at, dtp_order_double);
    for (size_t i = 0; i < n; i++)
        sum_s += t->at[i];
    return n > 0 ? sum_s / (double)n : 0;
}

static void take_collectives(const struct look *l, struct dtp_host_times *out, double *sum_s) {
    const struct dtp_trace_rank *r = l->r;
    for (size_t i = 0; i < r->nevents; i++) {
        const struct dtp_trace_event *e = dtp_trace_event(r, i);
        if (e->kind != DTP_TRACE_OP || strncmp(dtp_trace_name(r, e->name), "c10d::", 6) != 0)
            continue;
        *sum_s += (double)(e->dur_ns - l->usual_ns) * DTP_NANO;
        out->ncollectives++;
    }
}

/* Kernels that start within some microseconds after the one before on their stream. */
static void take_kernel_gaps(const struct look *l, struct times *out) {
    enum { NEAR_NS = 5000 };
    const struct dtp_trace_rank *r = l->r;
    int64_t *end_ns = DTP_NEW(l->a, int64_t, (size_t)r->nlanes + 1);
    struct launch *v = DTP_NEW(l->a, struct launch, r->nevents + 1);
    size_t n = 0;
    for (size_t i = 0; i < r->nevents; i++) {
        const struct dtp_trace_event *e = dtp_trace_event(r, i);
        if (e->kind == DTP_TRACE_KERNEL)
            v[n++] = (struct launch){e->start_ns, dtp_trace_end_ns(e), e->lane, false};
    }
    qsort(v, n, sizeof *v, by_start);
    for (size_t i = 0; i < n; i++) {
        int64_t gap_ns = v[i].start_ns - end_ns[v[i].lane];
        if (end_ns[v[i].lane] > 0 && gap_ns >= 0 && gap_ns < NEAR_NS)
            add_time(l->a, out, (double)gap_ns * DTP_NANO);
        end_ns[v[i].lane] = v[i].end_ns;
    }
}

static void finish(struct times *t, const double *of_rank, size_t nranks,
                   struct dtp_launch_times *out) {
    double least_s = 0, most_s = 0;
    *out = (struct dtp_launch_times){.n = t->n, .launch_s = usual_s(t)};
    for (size_t i = 0; i < t->n; i++)
        out->sum_s += t->at[i];
    out->rest_s = out->sum_s - (double)t->n * out->launch_s;
    for (size_t i = 0; i < nranks; i++) {
        least_s = least_s == 0 || (of_rank[i] > 0 && of_rank[i] < least_s) ? of_rank[i] : least_s;
        most_s = of_rank[i] > most_s ? of_rank[i] : most_s;
    }
    out->spread = out->launch_s > 0 ? (most_s - least_s) / out->launch_s : 0;
}

enum dtp_status dtp_host_times_of(struct dtp_arena *a, const struct dtp_trace *t,
                                  struct dtp_host_times *out, struct dtp_err *err) {
    struct times all[DTP_NDIRECTIONS] = {{0}}, kernels = {0};
    double *of_rank[DTP_NDIRECTIONS], collective_s = 0;
    *out = (struct dtp_host_times){.nranks = t->nranks};
    for (int d = 0; d < DTP_NDIRECTIONS; d++)
        of_rank[d] = DTP_NEW(a, double, t->nranks + 1);
    for (size_t i = 0; i < t->nranks; i++) {
        struct look l = {.a = a, .r = &t->rank[i]};
        struct times own[DTP_NDIRECTIONS] = {{0}};
        const struct dtp_trace_step *step;
        size_t nsteps;
        dtp_trace_steps(a, l.r, &step, &nsteps);
        out->nsteps += nsteps;
        collect(&l);
        take_gaps(&l, own);
        take_collectives(&l, out, &collective_s);
        take_kernel_gaps(&l, &kernels);
        for (size_t k = 0; k < l.noptimizers; k++)
            out->optimizer_s +=
                (double)(l.optimizer[k].end_ns - l.optimizer[k].start_ns) * DTP_NANO;
        for (int d = 0; d < DTP_NDIRECTIONS; d++) {
            of_rank[d][i] = usual_s(&own[d]);
            for (size_t k = 0; k < own[d].n; k++)
                add_time(a, &all[d], own[d].at[k]);
        }
    }
    if (all[DTP_FORWARD_LAUNCHES].n + all[DTP_BACKWARD_LAUNCHES].n == 0)
        return dtp_fail(err, DTP_ENO, "no rank of the trace has launches of kernels");
    for (int d = 0; d < DTP_NDIRECTIONS; d++)
        finish(&all[d], of_rank[d], t->nranks, &out->direction[d]);
    out->optimizer_s /= out->nsteps > 0 ? (double)out->nsteps : 1;
    out->collective_s = out->ncollectives > 0 ? collective_s / (double)out->ncollectives : 0;
    out->gap_s = usual_s(&kernels);
    return DTP_OK;
}
