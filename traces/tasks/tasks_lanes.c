/* tasks_lanes.c: tasks of a stream as rows in which they nest or follow each other. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "sim/base/text.h"
#include "sim/base/units.h"
#include "traces/tasks/tasks_internal.h"

/* ---- lanes ---- */

int64_t tasks_ns(double t_s) {
    double ns = t_s / DTP_NANO;
    if (!(ns > -9e18 && ns < 9e18))
        return 0;
    return (int64_t)(ns < 0 ? ns - 0.5 : ns + 0.5);
}

int64_t tasks_length_ns(const struct dtp_tasks_task *k) {
    int64_t start_ns = tasks_ns(k->start_s), end_ns = tasks_ns(k->end_s);
    return end_ns > start_ns ? end_ns - start_ns : 0;
}

const char *tasks_category(const struct dtp_tasks_task *k) {
    return k->category ? k->category : dtp_task_class_names[k->class];
}

struct place {
    int rank;
    uint32_t first; /* task that named the stream first */
    const char *stream;
    int64_t start_ns, end_ns;
    uint32_t task;
};

static int by_stream(const void *x, const void *y) {
    const struct place *p = x, *q = y;
    if (p->rank != q->rank)
        return p->rank < q->rank ? -1 : 1;
    int c = strcmp(p->stream, q->stream);
    if (c != 0)
        return c;
    return p->task < q->task ? -1 : p->task > q->task;
}

static int by_first_and_time(const void *x, const void *y) {
    const struct place *p = x, *q = y;
    if (p->rank != q->rank)
        return p->rank < q->rank ? -1 : 1;
    if (p->first != q->first)
        return p->first < q->first ? -1 : 1;
    if (p->start_ns != q->start_ns)
        return p->start_ns < q->start_ns ? -1 : 1;
    if (p->end_ns != q->end_ns)
        return p->end_ns > q->end_ns ? -1 : 1;
    return p->task < q->task ? -1 : p->task > q->task;
}

enum { MOST_DEPTH = 64 };
struct open_lane {
    size_t lane;
    int64_t end_ns[MOST_DEPTH]; /* ends of the tasks under way, innermost last */
    int depth;
};

/* Tells whether the task fits: after what has ended, inside what is under way. */
static bool fits(struct open_lane *l, const struct place *p) {
    while (l->depth > 0 && l->end_ns[l->depth - 1] <= p->start_ns)
        l->depth--;
    return l->depth < MOST_DEPTH && (l->depth == 0 || p->end_ns <= l->end_ns[l->depth - 1]);
}

/* The tasks of one stream, v[0..n), to lanes. */
static void lay_stream(struct dtp_arena *a, const struct place *v, uint32_t n,
                       struct tasks_lanes *out, size_t *capacity) {
    struct open_lane *open = NULL;
    size_t nopen = 0;
    for (uint32_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < nopen && !fits(&open[k], &v[i]))
            k++;
        if (k == nopen) {
            open = dtp_arena_grow(a, open, sizeof *open, nopen, nopen + 1);
            open[nopen++] = (struct open_lane){.lane = out->n};
            if (out->n == *capacity) {
                out->lane =
                    dtp_arena_grow(a, out->lane, sizeof *out->lane, *capacity, *capacity * 2 + 64);
                *capacity = *capacity * 2 + 64;
            }
            out->lane[out->n++] = (struct tasks_lane){v[i].rank, (int)k + 1, v[i].stream};
        }
        out->of[v[i].task] = (uint32_t)open[k].lane;
        out->depth[v[i].task] = (uint32_t)open[k].depth;
        open[k].end_ns[open[k].depth++] = v[i].end_ns;
    }
}

void tasks_lay_out(struct dtp_arena *a, const struct dtp_tasks *t, struct tasks_lanes *out) {
    struct dtp_arena *scratch = dtp_arena_create("laying out a timeline");
    struct place *v = DTP_NEW(scratch, struct place, (size_t)t->ntasks + 1);
    size_t capacity = 0;
    *out = (struct tasks_lanes){.of = DTP_NEW(a, uint32_t, (size_t)t->ntasks + 1),
                                .order = DTP_NEW(a, uint32_t, (size_t)t->ntasks + 1),
                                .depth = DTP_NEW(a, uint32_t, (size_t)t->ntasks + 1)};
    for (uint32_t i = 0; i < t->ntasks; i++) {
        const struct dtp_tasks_task *k = &t->task[i];
        int64_t start_ns = tasks_ns(k->start_s);
        v[i] = (struct place){k->rank, 0, k->stream, start_ns, start_ns + tasks_length_ns(k), i};
    }
    if (t->ntasks > 1)
        qsort(v, t->ntasks, sizeof *v, by_stream);
    for (uint32_t i = 0; i < t->ntasks; i++) {
        bool same = i > 0 && v[i].rank == v[i - 1].rank && !strcmp(v[i].stream, v[i - 1].stream);
        v[i].first = same ? v[i - 1].first : v[i].task;
    }
    if (t->ntasks > 1)
        qsort(v, t->ntasks, sizeof *v, by_first_and_time);
    for (uint32_t i = 0, j; i < t->ntasks; i = j) {
        for (j = i; j < t->ntasks && v[j].rank == v[i].rank && v[j].first == v[i].first; j++)
            ;
        lay_stream(a, v + i, j - i, out, &capacity);
    }
    for (uint32_t i = 0; i < t->ntasks; i++)
        out->order[i] = v[i].task;
    dtp_arena_destroy(scratch);
}
