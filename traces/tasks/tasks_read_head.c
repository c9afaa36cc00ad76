/* tasks_read_head.c: values of a timeline, and its head. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "traces/tasks/tasks_read_private.h"

/* Text that lives as long as the tasks; equal texts are one. */
static const char *keep(struct tasks_reader *r, const struct dtp_text *t) {
    return dtp_trace_name(&r->names, dtp_trace_intern(&r->names, t->at, t->n));
}

enum dtp_status tasks_read_double(struct tasks_reader *r, double *out, struct dtp_err *err) {
    struct dtp_text t;
    char buf[64], *end;
    DTP_TRY(dtp_pull_text(&r->p, &t, err));
    if (t.n == 0 || t.n >= sizeof buf || t.token != DTP_TOKEN_NUMBER)
        return dtp_pull_fail(&r->p, err, "expected a number");
    memcpy(buf, t.at, t.n);
    buf[t.n] = '\0';
    *out = strtod(buf, &end);
    if (*end || !isfinite(*out))
        return dtp_pull_fail(&r->p, err, "expected a finite number");
    return DTP_OK;
}

enum dtp_status tasks_read_whole(struct tasks_reader *r, int64_t least, int64_t most, int64_t *out,
                                 struct dtp_err *err) {
    struct dtp_text t;
    DTP_TRY(dtp_pull_text(&r->p, &t, err));
    if (!dtp_text_i64(&t, out) || *out < least || *out > most)
        return dtp_pull_fail(&r->p, err, "expected a whole number in range");
    return DTP_OK;
}

enum dtp_status tasks_read_int(struct tasks_reader *r, int *out, struct dtp_err *err) {
    int64_t v;
    DTP_TRY(tasks_read_whole(r, -1, INT32_MAX, &v, err));
    *out = (int)v;
    return DTP_OK;
}

enum dtp_status tasks_read_string(struct tasks_reader *r, const char **out, struct dtp_err *err) {
    struct dtp_text t;
    DTP_TRY(dtp_pull_text(&r->p, &t, err));
    *out = keep(r, &t);
    return DTP_OK;
}

/* ---- the head ---- */

struct head_item {
    int rank;
    const char *name;
    double start_s, end_s;
};

static enum dtp_status read_item(struct tasks_reader *r, struct head_item *out,
                                 struct dtp_err *err) {
    struct dtp_text key;
    enum dtp_status status;
    *out = (struct head_item){.name = ""};
    DTP_TRY(dtp_pull_open(&r->p, '{', err));
    while (dtp_pull_member(&r->p, &key, &status, err)) {
        if (dtp_text_is(&key, "rank"))
            DTP_TRY(tasks_read_int(r, &out->rank, err));
        else if (dtp_text_is(&key, "name"))
            DTP_TRY(tasks_read_string(r, &out->name, err));
        else if (dtp_text_is(&key, "start_s") || dtp_text_is(&key, "end_s"))
            DTP_TRY(tasks_read_double(r, key.at[0] == 's' ? &out->start_s : &out->end_s, err));
        else
            DTP_TRY(dtp_pull_skip(&r->p, err));
    }
    return status;
}

enum list { LIST_RANKS, LIST_LANES, LIST_STEPS };

static enum dtp_status read_list(struct tasks_reader *r, enum list list, struct dtp_err *err) {
    enum dtp_status status;
    DTP_TRY(dtp_pull_open(&r->p, '[', err));
    while (dtp_pull_element(&r->p, &status, err)) {
        struct head_item x;
        if (list == LIST_LANES) {
            const char *name;
            DTP_TRY(tasks_read_string(r, &name, err));
            r->lane = dtp_arena_room(r->a, r->lane, sizeof *r->lane, r->nlanes, &r->lanes_capacity);
            r->lane[r->nlanes++] = name;
            continue;
        }
        DTP_TRY(read_item(r, &x, err));
        if (x.rank > MOST_RANKS || !tasks_in_time(x.start_s) || !tasks_in_time(x.end_s))
            return dtp_pull_fail(&r->p, err, "a rank or a step out of range");
        if (list == LIST_RANKS)
            dtp_tasks_rank(r->t, x.rank, x.name);
        else
            dtp_tasks_step(r->t, x.rank, x.name, x.start_s, x.end_s);
    }
    return status;
}

enum dtp_status tasks_read_head(struct tasks_reader *r, struct dtp_err *err) {
    struct dtp_text key;
    enum dtp_status status;
    int64_t version;
    DTP_TRY(dtp_pull_open(&r->p, '{', err));
    while (dtp_pull_member(&r->p, &key, &status, err)) {
        if (dtp_text_is(&key, "from"))
            DTP_TRY(tasks_read_string(r, &r->t->from, err));
        else if (dtp_text_is(&key, "explained_pct"))
            DTP_TRY(tasks_read_double(r, &r->t->explained_pct, err));
        else if (dtp_text_is(&key, "title"))
            DTP_TRY(tasks_read_string(r, &r->t->title, err));
        else if (dtp_text_is(&key, "schema_version"))
            DTP_TRY(tasks_read_whole(r, 1, 1, &version, err));
        else if (dtp_text_is(&key, "tasks"))
            DTP_TRY(tasks_read_whole(r, 0, MOST_TASKS, &r->declared, err));
        else if (dtp_text_is(&key, "ranks"))
            DTP_TRY(read_list(r, LIST_RANKS, err));
        else if (dtp_text_is(&key, "lanes"))
            DTP_TRY(read_list(r, LIST_LANES, err));
        else if (dtp_text_is(&key, "steps"))
            DTP_TRY(read_list(r, LIST_STEPS, err));
        else
            DTP_TRY(dtp_pull_skip(&r->p, err));
    }
    return status;
}
