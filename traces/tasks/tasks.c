#include "traces/tasks/tasks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/text.h"

const char *const dtp_task_class_names[] = {"compute", "communication", "memory", "host", NULL};

struct dtp_tasks *dtp_tasks_create(struct dtp_arena *a, const char *from, const char *title) {
    struct dtp_tasks *t = DTP_NEW(a, struct dtp_tasks, 1);
    t->a = a;
    t->from = from;
    t->title = title;
    return t;
}

void dtp_tasks_rank(struct dtp_tasks *t, int rank, const char *name) {
    t->rank = dtp_arena_room(t->a, t->rank, sizeof *t->rank, t->nranks, &t->ranks_capacity);
    t->rank[t->nranks++] = (struct dtp_tasks_rank){.rank = rank, .name = name};
}

uint32_t dtp_tasks_add(struct dtp_tasks *t, const struct dtp_tasks_task *task) {
    t->task = dtp_arena_room(t->a, t->task, sizeof *t->task, t->ntasks, &t->tasks_capacity);
    struct dtp_tasks_task *to = &t->task[t->ntasks];
    *to = *task;
    to->first_dep = t->ndeps;
    to->ndeps = 0;
    return t->ntasks++;
}

void dtp_tasks_after(struct dtp_tasks *t, uint32_t before) {
    t->dep = dtp_arena_room(t->a, t->dep, sizeof *t->dep, t->ndeps, &t->deps_capacity);
    t->dep[t->ndeps++] = before;
    t->task[t->ntasks - 1].ndeps++;
}

void dtp_tasks_step(struct dtp_tasks *t, int rank, const char *name, double start_s, double end_s) {
    t->step = dtp_arena_room(t->a, t->step, sizeof *t->step, t->nsteps, &t->steps_capacity);
    t->step[t->nsteps++] = (struct dtp_tasks_step){rank, name, start_s, end_s};
}

void dtp_tasks_count(struct dtp_tasks *t, int rank, const char *name, double at_s, double value) {
    t->count = dtp_arena_room(t->a, t->count, sizeof *t->count, t->ncounts, &t->counts_capacity);
    t->count[t->ncounts++] = (struct dtp_tasks_count){rank, name, at_s, value};
}

void dtp_tasks_append(struct dtp_tasks *t, const struct dtp_tasks *more, int rank_shift) {
    uint32_t first = t->ntasks;
    for (uint32_t i = 0; i < more->ntasks; i++) {
        struct dtp_tasks_task k = more->task[i];
        uint32_t first_dep = k.first_dep, ndeps = k.ndeps;
        k.rank += rank_shift;
        k.peer += k.peer >= 0 ? rank_shift : 0;
        k.group_first += rank_shift;
        dtp_tasks_add(t, &k);
        for (uint32_t d = 0; d < ndeps; d++)
            dtp_tasks_after(t, first + more->dep[first_dep + d]);
    }
    for (size_t i = 0; i < more->ncounts; i++)
        dtp_tasks_count(t, more->count[i].rank + rank_shift, more->count[i].name,
                        more->count[i].at_s, more->count[i].value);
}

double dtp_tasks_end_s(const struct dtp_tasks *t) {
    double end_s = 0;
    for (uint32_t i = 0; i < t->ntasks; i++)
        end_s = t->task[i].end_s > end_s ? t->task[i].end_s : end_s;
    return end_s;
}

void dtp_tasks_explain(struct dtp_tasks *t) {
    for (uint32_t i = 0; i < t->ntasks; i++) {
        struct dtp_tasks_task *k = &t->task[i];
        uint32_t n = 0;
        double ready_s = -INFINITY;
        for (uint32_t d = 0; d < k->ndeps; d++) {
            uint32_t before = t->dep[k->first_dep + d];
            if (t->task[before].end_s > k->end_s)
                continue;
            t->dep[k->first_dep + n++] = before;
            if (t->task[before].end_s <= k->start_s && t->task[before].end_s > ready_s)
                ready_s = t->task[before].end_s;
        }
        k->ndeps = n;
        k->gap_s = isfinite(ready_s) ? k->start_s - ready_s : 0;
    }
}

/* ---- filters ---- */

/* A list that cannot be read has been refused before. */
bool dtp_tasks_in_list(const char *list, long v) {
    for (const char *at = list; *at;) {
        char *end;
        long low = strtol(at, &end, 10), high = low;
        if (strncmp(end, "..", 2) == 0)
            high = strtol(end + 2, &end, 10);
        if (v >= low && v <= high)
            return true;
        at = *end == ',' ? end + 1 : end;
        if (*end && *end != ',')
            return false;
    }
    return false;
}

static enum dtp_status check_list(const char *option, const char *list, struct dtp_err *err) {
    const char *at = list;
    while (at && *at) {
        size_t digits = strspn(at, "0123456789");
        bool good = digits > 0;
        at += digits;
        if (strncmp(at, "..", 2) == 0) {
            digits = strspn(at + 2, "0123456789");
            good = good && digits > 0;
            at += 2 + digits;
        }
        if (!good || (*at && *at != ',') || (*at == ',' && !at[1]))
            return dtp_fail(err, DTP_EUSAGE, "%s: found \"%s\", expected numbers like 0,4..7",
                            option, list);
        at += *at == ',';
    }
    return DTP_OK;
}

static bool has_name(const char *list, const char *name) {
    size_t n = strlen(name);
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == n && strncmp(at, name, n) == 0)
            return true;
    return false;
}

static bool keeps(const struct dtp_tasks_filter *f, const struct dtp_tasks_task *k) {
    return (!f->ranks || dtp_tasks_in_list(f->ranks, k->rank)) &&
           (!f->steps || dtp_tasks_in_list(f->steps, k->step)) &&
           (!f->streams || has_name(f->streams, k->stream));
}

static void keep_tasks(struct dtp_arena *a, const struct dtp_tasks *t,
                       const struct dtp_tasks_filter *f, struct dtp_tasks *out) {
    uint32_t *index = DTP_NEW(a, uint32_t, (size_t)t->ntasks + 1);
    for (uint32_t i = 0, n = 0; i < t->ntasks; i++)
        index[i] = keeps(f, &t->task[i]) ? n++ : DTP_TRACE_NONE;
    for (uint32_t i = 0; i < t->ntasks; i++) {
        const struct dtp_tasks_task *k = &t->task[i];
        if (index[i] == DTP_TRACE_NONE)
            continue;
        dtp_tasks_add(out, k);
        double ready_s = -INFINITY;
        for (uint32_t d = 0; d < k->ndeps; d++) {
            uint32_t before = t->dep[k->first_dep + d];
            if (index[before] == DTP_TRACE_NONE)
                continue;
            dtp_tasks_after(out, index[before]);
            ready_s = t->task[before].end_s > ready_s ? t->task[before].end_s : ready_s;
        }
        struct dtp_tasks_task *kept = &out->task[out->ntasks - 1];
        if (kept->ndeps < k->ndeps)
            kept->gap_s = kept->ndeps > 0 ? k->start_s - ready_s : 0;
    }
}

enum dtp_status dtp_tasks_select(struct dtp_arena *a, const struct dtp_tasks *t,
                                 const struct dtp_tasks_filter *filter, struct dtp_tasks **out,
                                 struct dtp_err *err) {
    DTP_TRY(check_list("--timeline-ranks", filter->ranks, err));
    DTP_TRY(check_list("--timeline-steps", filter->steps, err));
    struct dtp_tasks *to = dtp_tasks_create(a, t->from, t->title);
    to->explained_pct = t->explained_pct;
    for (size_t i = 0; i < t->nranks; i++)
        if (!filter->ranks || dtp_tasks_in_list(filter->ranks, t->rank[i].rank))
            dtp_tasks_rank(to, t->rank[i].rank, t->rank[i].name);
    keep_tasks(a, t, filter, to);
    for (size_t i = 0; i < t->nsteps; i++)
        dtp_tasks_step(to, t->step[i].rank, t->step[i].name, t->step[i].start_s, t->step[i].end_s);
    for (size_t i = 0; i < t->ncounts; i++)
        if (!filter->ranks || dtp_tasks_in_list(filter->ranks, t->count[i].rank))
            dtp_tasks_count(to, t->count[i].rank, t->count[i].name, t->count[i].at_s,
                            t->count[i].value);
    if (t->ntasks > 0 && to->ntasks == 0)
        return dtp_fail(err, DTP_EUSAGE,
                        "the timeline has no task of these ranks, steps and "
                        "streams (its first stream is \"%s\" of rank %d)",
                        t->task[0].stream, t->task[0].rank);
    *out = to;
    return DTP_OK;
}
