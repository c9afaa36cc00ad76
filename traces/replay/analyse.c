/* Measures busy, idle and overlapping times of each rank's device. It also sums over the events of one name. */
#include "traces/replay/analyse.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int by_sum(const void *x, const void *y) {
    const struct dtp_trace_by_name *p = x, *q = y;
    if (p->sum_ns != q->sum_ns)
        return p->sum_ns > q->sum_ns ? -1 : 1;
    return strcmp(p->name, q->name);
}

void dtp_trace_kernels(struct dtp_arena *a, const struct dtp_trace_rank *r,
                       const struct dtp_trace_by_name **out, size_t *out_n) {
    size_t n = 0;
    struct dtp_trace_by_name *v = DTP_NEW(a, struct dtp_trace_by_name, dtp_trace_nnames(r) + 1);
    for (size_t i = 0; i < r->nevents; i++) {
        const struct dtp_trace_event *e = dtp_trace_event(r, i);
        if (!dtp_trace_is_work(e))
            continue;
        v[e->name].count++;
        v[e->name].sum_ns += e->dur_ns;
    }
    for (uint32_t i = 0; i < dtp_trace_nnames(r); i++)
        if (v[i].count > 0) {
            v[n] = v[i];
            v[n++].name = dtp_trace_name(r, i);
        }
    qsort(v, n, sizeof *v, by_sum);
    *out = v;
    *out_n = n;
}

struct interval {
    int64_t start_ns, end_ns;
    int class;
    uint32_t event;
};

enum { BUSY_ONLY = -1 }; /* counts as busy time, but of no class */

struct window {
    bool by_launch, as_hta;
    int64_t from_ns, to_ns;
};

static int by_start(const void *x, const void *y) {
    const struct interval *p = x, *q = y;
    if (p->start_ns != q->start_ns)
        return p->start_ns < q->start_ns ? -1 : 1;
    return p->end_ns < q->end_ns ? -1 : p->end_ns > q->end_ns;
}

/* Returns microseconds as HTA holds them: the nearest double, whose spacing at absolute times is 0.25. */
static double us_of(int64_t ns) {
    return (double)(ns / 1000) + (double)(ns % 1000) / 1000;
}

/* Treats an event as HTA does: all that names a stream is work of the device, and starts and ends are rounded. */
static void take_as_hta(const struct dtp_trace_rank *r, const struct dtp_trace_event *e,
                        struct interval *out) {
    if (e->kind == DTP_TRACE_SYNC)
        out->class = BUSY_ONLY;
    if (!r->decimal_us)
        return;
    double start_us = us_of(e->start_ns), end_us = start_us + us_of(e->dur_ns);
    out->start_ns = (int64_t)ceil(start_us) * 1000;
    out->end_ns = (int64_t)floor(end_us) * 1000;
}

static bool in_window(const struct dtp_trace_rank *r, const struct dtp_trace_event *e,
                      const struct window *w) {
    if (!w->by_launch)
        return true;
    if (e->launch == DTP_TRACE_NONE && !r->unlaunched)
        return false;
    int64_t at_ns =
        e->launch == DTP_TRACE_NONE ? e->start_ns : dtp_trace_event(r, e->launch)->start_ns;
    return at_ns >= w->from_ns && at_ns < w->to_ns;
}

static bool counts(const struct dtp_trace_event *e, const struct window *w) {
    return dtp_trace_is_work(e) || (w->as_hta && e->on_stream && e->kind != DTP_TRACE_CALL);
}

static struct interval *gather(struct dtp_arena *a, const struct dtp_trace_rank *r,
                               const struct window *w, size_t *out_n) {
    size_t n = 0;
    for (size_t i = 0; i < r->nevents; i++)
        n += counts(dtp_trace_event(r, i), w);
    struct interval *v = DTP_NEW(a, struct interval, n + 1);
    n = 0;
    for (size_t i = 0; i < r->nevents; i++) {
        const struct dtp_trace_event *e = dtp_trace_event(r, i);
        if (!counts(e, w) || !in_window(r, e, w))
            continue;
        v[n] = (struct interval){e->start_ns, dtp_trace_end_ns(e), e->class, (uint32_t)i};
        if (w->as_hta)
            take_as_hta(r, e, &v[n]);
        n++;
    }
    qsort(v, n, sizeof *v, by_start);
    *out_n = n;
    return v;
}

/* A cover is a union of intervals, which are added in order of their starts. */
struct cover {
    int64_t end_ns, length_ns;
};

static void extend(struct cover *c, const struct interval *i) {
    int64_t from_ns = i->start_ns > c->end_ns ? i->start_ns : c->end_ns;
    if (i->end_ns > from_ns) {
        c->length_ns += i->end_ns - from_ns;
        c->end_ns = i->end_ns;
    }
}

static void measure(const struct dtp_trace_rank *r, const struct window *w,
                    struct dtp_trace_times *out) {
    struct dtp_arena *a = dtp_arena_create("times of a trace");
    size_t n;
    const struct interval *v = gather(a, r, w, &n);
    struct cover class[DTP_NCLASSES], useful, all;
    useful = all = (struct cover){INT64_MIN, 0};
    *out = (struct dtp_trace_times){0};
    for (int c = 0; c < DTP_NCLASSES; c++)
        class[c] = (struct cover){INT64_MIN, 0};
    for (size_t i = 0; i < n; i++) {
        extend(&all, &v[i]);
        if (v[i].class == BUSY_ONLY)
            continue;
        extend(&class[v[i].class], &v[i]);
        if (v[i].class != DTP_CLASS_MEMORY)
            extend(&useful, &v[i]);
        out->sum_ns[v[i].class] += v[i].end_ns - v[i].start_ns;
        out->n[v[i].class]++;
    }
    if (n > 0 && all.end_ns > v[0].start_ns)
        out->span_ns = all.end_ns - v[0].start_ns;
    out->busy_ns = all.length_ns;
    out->idle_ns = out->span_ns - out->busy_ns;
    out->compute_ns = class[DTP_CLASS_COMPUTE].length_ns;
    out->comm_ns = class[DTP_CLASS_COMM].length_ns;
    out->memory_ns = class[DTP_CLASS_MEMORY].length_ns;
    out->overlap_ns = out->compute_ns + out->comm_ns - useful.length_ns;
    dtp_arena_destroy(a);
}

void dtp_trace_times_all(const struct dtp_trace_rank *r, struct dtp_trace_times *out) {
    measure(r, &(struct window){0}, out);
}

void dtp_trace_times_launched(const struct dtp_trace_rank *r, int64_t from_ns, int64_t to_ns,
                              struct dtp_trace_times *out) {
    measure(r, &(struct window){.by_launch = true, .from_ns = from_ns, .to_ns = to_ns}, out);
}

void dtp_trace_times_hta(const struct dtp_trace_rank *r, struct dtp_trace_times *out) {
    struct window w = {.as_hta = true};
    if (r->nsteps > 1) {
        w.by_launch = true;
        w.from_ns = r->step[0].start_ns;
        w.to_ns = r->step[r->nsteps - 1].start_ns;
    }
    measure(r, &w, out);
}

double dtp_trace_overlap_pct(const struct dtp_trace_times *t) {
    return t->comm_ns > 0 ? 100 * (double)t->overlap_ns / (double)t->comm_ns : 0;
}

int64_t dtp_trace_first_ns(const struct dtp_trace_rank *r) {
    int64_t first_ns = INT64_MAX;
    for (size_t i = 0; i < r->nevents; i++)
        if (dtp_trace_event(r, i)->start_ns < first_ns)
            first_ns = dtp_trace_event(r, i)->start_ns;
    return r->nevents > 0 ? first_ns : 0;
}

int64_t dtp_trace_span_ns(const struct dtp_trace_rank *r) {
    int64_t first_ns = INT64_MAX, last_ns = INT64_MIN;
    for (size_t i = 0; i < r->nevents; i++) {
        const struct dtp_trace_event *e = dtp_trace_event(r, i);
        first_ns = e->start_ns < first_ns ? e->start_ns : first_ns;
        last_ns = dtp_trace_end_ns(e) > last_ns ? dtp_trace_end_ns(e) : last_ns;
    }
    return r->nevents > 0 ? last_ns - first_ns : 0;
}

static int by_idle(const void *x, const void *y) {
    const struct dtp_trace_stretch *p = x, *q = y;
    if (p->idle_ns != q->idle_ns)
        return p->idle_ns > q->idle_ns ? -1 : 1;
    return p->start_ns < q->start_ns ? -1 : p->start_ns > q->start_ns;
}

void dtp_trace_launch_bound(struct dtp_arena *a, const struct dtp_trace_rank *r,
                            struct dtp_trace_stretch **out, size_t *out_n) {
    size_t n, nstretches = 0;
    const struct interval *v = gather(a, r, &(struct window){0}, &n);
    struct dtp_trace_stretch *s = DTP_NEW(a, struct dtp_trace_stretch, n + 1);
    int64_t end_ns = n > 0 ? v[0].start_ns : 0;
    bool open = false;
    for (size_t i = 0; i < n; i++) {
        uint32_t launch = dtp_trace_event(r, v[i].event)->launch;
        bool late = v[i].start_ns > end_ns && launch != DTP_TRACE_NONE &&
                    dtp_trace_event(r, launch)->start_ns >= end_ns;
        if (late && !open)
            s[nstretches++] = (struct dtp_trace_stretch){.start_ns = end_ns};
        open = late;
        if (late) {
            s[nstretches - 1].idle_ns += v[i].start_ns - end_ns;
            s[nstretches - 1].end_ns = v[i].end_ns;
            s[nstretches - 1].nwork++;
        }
        end_ns = v[i].end_ns > end_ns ? v[i].end_ns : end_ns;
    }
    if (nstretches > 1)
        qsort(s, nstretches, sizeof *s, by_idle);
    *out = s;
    *out_n = nstretches;
}

int64_t dtp_trace_launch_bound_ns(const struct dtp_trace_rank *r) {
    struct dtp_arena *a = dtp_arena_create("launch-bound time");
    struct dtp_trace_stretch *s;
    size_t n;
    int64_t bound_ns = 0;
    dtp_trace_launch_bound(a, r, &s, &n);
    for (size_t i = 0; i < n; i++)
        bound_ns += s[i].idle_ns;
    dtp_arena_destroy(a);
    return bound_ns;
}

/* ---- steps ---- */

static int by_step(const void *x, const void *y) {
    const struct dtp_trace_step *p = x, *q = y;
    return p->start_ns < q->start_ns ? -1 : p->start_ns > q->start_ns;
}

static int64_t first_call_ns(const struct dtp_trace_rank *r) {
    int64_t first_ns = INT64_MAX;
    for (size_t i = 0; i < r->nevents; i++) {
        const struct dtp_trace_event *e = dtp_trace_event(r, i);
        if ((e->kind == DTP_TRACE_CALL || e->kind == DTP_TRACE_OP) && e->start_ns < first_ns)
            first_ns = e->start_ns;
    }
    return first_ns;
}

/* A step lasts from the end of one optimizer step to the end of the next. */
static size_t steps_of_optimizer(struct dtp_arena *a, const struct dtp_trace_rank *r,
                                 struct dtp_trace_step **out) {
    size_t n = 0, capacity = 0;
    struct dtp_trace_step *step = NULL;
    for (size_t i = 0; i < r->nevents; i++) {
        const struct dtp_trace_event *e = dtp_trace_event(r, i);
        if (e->kind != DTP_TRACE_ANNOTATION ||
            strncmp(dtp_trace_name(r, e->name), "Optimizer.step#", 15) != 0)
            continue;
        if (n == capacity) {
            step = dtp_arena_grow(a, step, sizeof *step, capacity, capacity * 2 + 8);
            capacity = capacity * 2 + 8;
        }
        step[n++] = (struct dtp_trace_step){0, dtp_trace_end_ns(e), 0, ""};
    }
    if (n > 1)
        qsort(step, n, sizeof *step, by_step);
    int64_t from_ns = first_call_ns(r);
    for (size_t i = 0; i < n; i++) {
        int64_t to_ns = step[i].start_ns;
        step[i] = (struct dtp_trace_step){(int64_t)i, from_ns, to_ns - from_ns,
                                          dtp_arena_printf(a, "optimizer step %zu", i)};
        from_ns = to_ns;
    }
    *out = step;
    return n;
}

void dtp_trace_steps(struct dtp_arena *a, const struct dtp_trace_rank *r,
                     const struct dtp_trace_step **out, size_t *out_n) {
    struct dtp_trace_step *step;
    *out = r->step;
    *out_n = r->nsteps;
    if (r->nsteps > 0)
        return;
    *out_n = steps_of_optimizer(a, r, &step);
    if (*out_n == 0 && r->nevents > 0) {
        int64_t first_ns = INT64_MAX;
        for (size_t i = 0; i < r->nevents; i++)
            if (dtp_trace_event(r, i)->start_ns < first_ns)
                first_ns = dtp_trace_event(r, i)->start_ns;
        step = DTP_NEW(a, struct dtp_trace_step, 1);
        *step = (struct dtp_trace_step){0, first_ns, dtp_trace_span_ns(r), "trace"};
        *out_n = 1;
    }
    *out = step;
}
