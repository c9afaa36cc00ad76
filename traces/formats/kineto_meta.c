/* kineto_meta.c: what the metadata of a file says: devices, process groups, ranks. */
#include <stdlib.h>
#include <string.h>

#include "traces/formats/kineto_private.h"

static enum dtp_status read_ranks(struct kineto_reader *k, struct dtp_trace_group *g,
                                  struct dtp_err *err) {
    struct dtp_text t;
    bool more;
    size_t capacity = 0;
    int *ranks = NULL;
    DTP_TRY(dtp_pull_open_or_skip(&k->pull, '[', &more, err));
    if (!more)
        return DTP_OK;
    for (bool first = true;; first = false) {
        int64_t v;
        DTP_TRY(dtp_pull_next(&k->pull, ']', first, &more, err));
        if (!more)
            break;
        DTP_TRY(dtp_pull_text(&k->pull, &t, err));
        if (!dtp_text_i64(&t, &v) || v < 0 || v > INT32_MAX)
            continue;
        if (g->nranks == capacity) {
            ranks = dtp_arena_grow(k->r->a, ranks, sizeof *ranks, capacity, capacity * 2 + 8);
            capacity = capacity * 2 + 8;
        }
        ranks[g->nranks++] = (int)v;
    }
    g->rank = ranks;
    return DTP_OK;
}

static enum dtp_status read_group(struct kineto_reader *k, struct dtp_trace_group *g,
                                  struct dtp_err *err) {
    struct dtp_pull *p = &k->pull;
    struct dtp_text t;
    bool more;
    *g = (struct dtp_trace_group){.name = "", .description = ""};
    DTP_TRY(dtp_pull_open_or_skip(p, '{', &more, err));
    if (!more)
        return DTP_OK;
    for (bool first = true;; first = false) {
        int64_t v;
        DTP_TRY(dtp_pull_member(p, first, &t, &more, err));
        if (!more)
            return DTP_OK;
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
}

static enum dtp_status read_groups(struct kineto_reader *k, struct dtp_err *err) {
    bool more;
    DTP_TRY(dtp_pull_open_or_skip(&k->pull, '[', &more, err));
    if (!more)
        return DTP_OK;
    k->r->ngroups = 0;
    for (bool first = true;; first = false) {
        DTP_TRY(dtp_pull_next(&k->pull, ']', first, &more, err));
        if (!more)
            return DTP_OK;
        struct dtp_trace_group g;
        DTP_TRY(read_group(k, &g, err));
        k->r->group =
            dtp_arena_grow(k->r->a, k->r->group, sizeof g, k->r->ngroups, k->r->ngroups + 1);
        k->r->group[k->r->ngroups++] = g;
    }
}

static enum dtp_status read_distributed(struct kineto_reader *k, struct dtp_err *err) {
    struct dtp_pull *p = &k->pull;
    struct dtp_text t;
    bool more;
    DTP_TRY(dtp_pull_open_or_skip(p, '{', &more, err));
    if (!more)
        return DTP_OK;
    for (bool first = true;; first = false) {
        int64_t v;
        DTP_TRY(dtp_pull_member(p, first, &t, &more, err));
        if (!more)
            return DTP_OK;
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
}

/* The name of the first device; the rest is passed over. */
static enum dtp_status read_devices(struct kineto_reader *k, struct dtp_err *err) {
    struct dtp_pull *p = &k->pull;
    struct dtp_text t;
    bool more;
    char c;
    DTP_TRY(dtp_pull_peek(p, &c, err));
    if (c == '[') {
        DTP_TRY(dtp_pull_open(p, '[', err));
        for (bool first = true;; first = false) {
            DTP_TRY(dtp_pull_next(p, ']', first, &more, err));
            if (!more)
                return DTP_OK;
            DTP_TRY(read_devices(k, err));
        }
    }
    DTP_TRY(dtp_pull_open_or_skip(p, '{', &more, err));
    if (!more)
        return DTP_OK;
    for (bool first = true;; first = false) {
        DTP_TRY(dtp_pull_member(p, first, &t, &more, err));
        if (!more)
            return DTP_OK;
        if (dtp_text_is(&t, "name") && !k->r->device[0]) {
            DTP_TRY(dtp_pull_text(p, &t, err));
            k->r->device = kineto_keep(k, &t);
        } else {
            DTP_TRY(dtp_pull_skip(p, err));
        }
    }
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
