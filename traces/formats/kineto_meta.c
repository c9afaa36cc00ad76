/* kineto_meta.c: what the metadata of a file says: devices, process groups, ranks. */
#include <stdlib.h>
#include <string.h>

#include "traces/formats/kineto_private.h"

static enum dtp_status read_ranks(struct kineto_reader *k, struct dtp_trace_group *g,
                                  struct dtp_err *err) {
    struct dtp_text t;
    bool open;
    enum dtp_status status;
    size_t capacity = 0;
    int *ranks = NULL;
    DTP_TRY(dtp_pull_open_or_skip(&k->pull, '[', &open, err));
    if (!open)
        return DTP_OK;
    while (dtp_pull_element(&k->pull, &status, err)) {
        int64_t v;
        DTP_TRY(dtp_pull_text(&k->pull, &t, err));
        if (!dtp_text_i64(&t, &v) || v < 0 || v > INT32_MAX)
            continue;
        if (g->nranks == capacity) {
            ranks = dtp_arena_grow(k->r->a, ranks, sizeof *ranks, capacity, capacity * 2 + 8);
            capacity = capacity * 2 + 8;
        }
        ranks[g->nranks++] = (int)v;
    }
    DTP_TRY(status);
    g->rank = ranks;
    return DTP_OK;
}

static enum dtp_status read_group(struct kineto_reader *k, struct dtp_trace_group *g,
                                  struct dtp_err *err) {
    struct dtp_pull *p = &k->pull;
    struct dtp_text t;
    bool open;
    enum dtp_status status;
    *g = (struct dtp_trace_group){.name = "", .description = ""};
    DTP_TRY(dtp_pull_open_or_skip(p, '{', &open, err));
    if (!open)
        return DTP_OK;
    while (dtp_pull_member(p, &t, &status, err)) {
        int64_t v;
        if (dtp_text_is(&t, "ranks")) {
            DTP_TRY(read_ranks(k, g, err));
        } else if (dtp_text_is(&t, "pg_name")) {
            DTP_TRY(dtp_pull_text(p, &t, err));
            g->name = kineto_keep(k, &t);
        } else if (dtp_text_is(&t, "pg_desc")) {
            DTP_TRY(dtp_pull_text(p, &t, err));
            g->description = kineto_keep(k, &t);
        } else if (dtp_text_is(&t, "pg_size")) {
            DTP_TRY(dtp_pull_text(p, &t, err));
            g->size = dtp_text_i64(&t, &v) && v > 0 && v < INT32_MAX ? (int)v : 0;
        } else {
            DTP_TRY(dtp_pull_skip(p, err));
        }
    }
    return status;
}

static enum dtp_status read_groups(struct kineto_reader *k, struct dtp_err *err) {
    bool open;
    enum dtp_status status;
    DTP_TRY(dtp_pull_open_or_skip(&k->pull, '[', &open, err));
    if (!open)
        return DTP_OK;
    k->r->ngroups = 0;
    while (dtp_pull_element(&k->pull, &status, err)) {
        struct dtp_trace_group g;
        DTP_TRY(read_group(k, &g, err));
        k->r->group =
            dtp_arena_grow(k->r->a, k->r->group, sizeof g, k->r->ngroups, k->r->ngroups + 1);
        k->r->group[k->r->ngroups++] = g;
    }
    return status;
}

static enum dtp_status read_distributed(struct kineto_reader *k, struct dtp_err *err) {
    struct dtp_pull *p = &k->pull;
    struct dtp_text t;
    bool open;
    enum dtp_status status;
    DTP_TRY(dtp_pull_open_or_skip(p, '{', &open, err));
    if (!open)
        return DTP_OK;
    while (dtp_pull_member(p, &t, &status, err)) {
        int64_t v;
        bool is_rank = dtp_text_is(&t, "rank"), is_size = dtp_text_is(&t, "world_size");
        if (dtp_text_is(&t, "pg_config")) {
            DTP_TRY(read_groups(k, err));
        } else if (dtp_text_is(&t, "backend")) {
            DTP_TRY(dtp_pull_text(p, &t, err));
            k->r->backend = kineto_keep(k, &t);
        } else if (is_rank || is_size) {
            DTP_TRY(dtp_pull_text(p, &t, err));
            if (dtp_text_i64(&t, &v) && v >= 0 && v < INT32_MAX)
                *(is_rank ? &k->r->rank : &k->r->world_size) = (int)v;
        } else {
            DTP_TRY(dtp_pull_skip(p, err));
        }
    }
    return status;
}

/* The name of the first device; the rest is passed over. */
static enum dtp_status read_devices(struct kineto_reader *k, struct dtp_err *err) {
    struct dtp_pull *p = &k->pull;
    struct dtp_text t;
    bool open;
    enum dtp_status status;
    char c;
    DTP_TRY(dtp_pull_peek(p, &c, err));
    if (c == '[') {
        DTP_TRY(dtp_pull_open(p, '[', err));
        while (dtp_pull_element(p, &status, err))
            DTP_TRY(read_devices(k, err));
        return status;
    }
    DTP_TRY(dtp_pull_open_or_skip(p, '{', &open, err));
    if (!open)
        return DTP_OK;
    while (dtp_pull_member(p, &t, &status, err)) {
        if (dtp_text_is(&t, "name") && !k->r->device[0]) {
            DTP_TRY(dtp_pull_text(p, &t, err));
            k->r->device = kineto_keep(k, &t);
        } else {
            DTP_TRY(dtp_pull_skip(p, err));
        }
    }
    return status;
}

enum dtp_status kineto_read_metadata(struct kineto_reader *k, const struct dtp_text *key,
                                     struct dtp_err *err) {
    struct dtp_text t;
    if (dtp_text_is(key, "distributedInfo"))
        return read_distributed(k, err);
    if (dtp_text_is(key, "deviceProperties"))
        return read_devices(k, err);
    bool is_base = dtp_text_is(key, "baseTimeNanoseconds");
    if (!is_base && !dtp_text_is(key, "displayTimeUnit"))
        return dtp_pull_skip(&k->pull, err);
    DTP_TRY(dtp_pull_text(&k->pull, &t, err));
    if (is_base)
        k->r->has_base = dtp_text_i64(&t, &k->r->base_ns);
    else
        k->r->time_unit = kineto_keep(k, &t);
    return DTP_OK;
}
