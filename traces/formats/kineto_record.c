/* kineto_record.c: one record of the list of events, before its kind is known. */
#include <string.h>

#include "traces/formats/kineto_private.h"

static void copy_id(const struct dtp_text *t, char *to) {
    size_t n = t->n < KINETO_ID_BYTES - 1 ? t->n : KINETO_ID_BYTES - 1;
    memcpy(to, t->at, n);
    to[n] = '\0';
}

static void copy_name(struct kineto_reader *k, const struct dtp_text *t) {
    struct kineto_copy *to = &k->rec.name;
    if (to->capacity < t->n + 1) {
        to->capacity = t->n * 2 + 256;
        to->at = DTP_NEW(k->scratch, char, to->capacity);
    }
    if (t->n > 0)
        memcpy(to->at, t->at, t->n);
    to->at[t->n] = '\0';
    to->n = t->n;
    k->rec.has_name = true;
}

enum field { F_PH, F_CAT, F_NAME, F_PID, F_TID, F_TS, F_DUR, F_ID, F_ARGS, F_OTHER };

static enum field field_of(const struct dtp_text *key) {
    static const char *const names[] = {"ph", "cat", "name", "pid", "tid",
                                        "ts", "dur", "id",   "args"};
    for (int i = 0; i < F_OTHER; i++)
        if (dtp_text_is(key, names[i]))
            return (enum field)i;
    return F_OTHER;
}

static void take_time(struct kineto_reader *k, const struct dtp_text *t, int64_t *out) {
    if (!dtp_text_us_to_ns(t, out))
        k->rec.bad_time = true;
    if (t->n > 15 && !memchr(t->at, '.', t->n) && *out / 1000 > ((int64_t)1 << 53))
        dtp_trace_warn(k->r, DTP_WARN_BIG_INTEGER, dtp_pull_offset(&k->pull));
}

static void take_field(struct kineto_reader *k, enum field f, const struct dtp_text *t) {
    struct kineto_record *rec = &k->rec;
    switch (f) {
    case F_PH:
        rec->phase = t->n > 0 ? (char)(t->at[0] & 0x7f) : '\0';
        break;
    case F_CAT:
        rec->category = dtp_trace_intern_category(k->r, t->at, t->n);
        rec->has_category = true;
        break;
    case F_NAME:
        copy_name(k, t);
        break;
    case F_PID:
        copy_id(t, rec->pid);
        break;
    case F_TID:
        copy_id(t, rec->tid);
        break;
    case F_TS:
        rec->has_ts = true;
        take_time(k, t, &rec->ts_ns);
        k->r->decimal_us = k->r->decimal_us || memchr(t->at, '.', t->n);
        break;
    case F_DUR:
        take_time(k, t, &rec->dur_ns);
        break;
    case F_ID:
        rec->has_id = dtp_text_u64(t, &rec->id);
        break;
    case F_ARGS:
    case F_OTHER:
        break;
    }
}

static void begin_record(struct kineto_reader *k) {
    struct kineto_record *rec = &k->rec;
    struct kineto_copy name = rec->name;
    name.n = 0;
    rec->phase = '\0';
    rec->pid[0] = rec->tid[0] = '\0';
    rec->name = name;
    rec->category = 0;
    rec->has_category = rec->has_ts = rec->bad_time = rec->has_name = rec->has_id = false;
    rec->ts_ns = rec->dur_ns = 0;
    struct kineto_args *args = &rec->args;
    args->has_stream = args->has_device = args->has_comm = args->big_correlation = false;
    args->correlation = args->bytes = 0;
    args->ninputs = args->ntypes = 0;
    args->nshape = 0;
    args->shape_cut = false;
    memset(args->grid, 0, sizeof args->grid);
    memset(args->block, 0, sizeof args->block);
}

enum dtp_status kineto_read_record(struct kineto_reader *k, struct dtp_err *err) {
    struct dtp_pull *p = &k->pull;
    struct dtp_text t;
    unsigned seen = 0;
    enum dtp_status status;
    begin_record(k);
    DTP_TRY(dtp_pull_open(p, '{', err));
    while (dtp_pull_member(p, &t, &status, err)) {
        enum field f = field_of(&t);
        if (f != F_OTHER && seen & 1u << f)
            dtp_trace_warn(k->r, DTP_WARN_DUPLICATE_KEY, dtp_pull_offset(p));
        seen |= 1u << f;
        if (f == F_ARGS) {
            DTP_TRY(kineto_read_args(k, err));
        } else if (f == F_OTHER) {
            DTP_TRY(dtp_pull_skip(p, err));
        } else {
            DTP_TRY(dtp_pull_text(p, &t, err));
            take_field(k, f, &t);
        }
    }
    return status;
}
