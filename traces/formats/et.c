#include "traces/formats/et.h"

#include <stdlib.h>
#include <string.h>

#include "traces/formats/et_private.h"

/* ---- nodes ---- */

static void set_name(struct et_reader *r, const struct dtp_text *t) {
    r->node.name = dtp_intern_add(r->et->names, t->at, t->n);
    r->has_name = true;
    r->is_comm = dtp_text_is(t, "record_param_comms");
}

/* {"values": [...], "shapes": ..., "types": ...} of the schemas after 1.0.1. */
static enum dtp_status take_inputs(struct et_reader *r, struct et_values *out,
                                   struct dtp_err *err) {
    struct dtp_text key;
    enum dtp_status status;
    char c;
    DTP_TRY(dtp_pull_peek(&r->p, &c, err));
    if (c == '[')
        return et_take_values(r, out, err);
    DTP_TRY(dtp_pull_open(&r->p, '{', err));
    while (dtp_pull_member(&r->p, &key, &status, err)) {
        if (dtp_text_is(&key, "values"))
            DTP_TRY(et_take_values(r, out, err));
        else
            DTP_TRY(dtp_pull_skip(&r->p, err));
    }
    return status;
}

static enum dtp_status take_thread(struct et_reader *r, struct dtp_err *err) {
    uint64_t thread;
    DTP_TRY(dtp_pull_u64(&r->p, &thread, err));
    r->node.thread = (uint32_t)thread;
    return DTP_OK;
}

static enum dtp_status take_member(struct et_reader *r, const struct dtp_text *key,
                                   struct dtp_err *err) {
    struct dtp_text name;
    if (dtp_text_is(key, "id")) {
        r->has_id = true;
        return dtp_pull_u64(&r->p, &r->node.id, err);
    }
    if (dtp_text_is(key, "parent")) {
        r->et->flat = true;
        return dtp_pull_u64(&r->p, &r->node.parent, err);
    }
    if (dtp_text_is(key, "ctrl_deps"))
        return dtp_pull_u64(&r->p, &r->node.parent, err);
    if (dtp_text_is(key, "rf_id"))
        return dtp_pull_u64(&r->p, &r->node.rf_id, err);
    if (dtp_text_is(key, "tid"))
        return take_thread(r, err);
    if (dtp_text_is(key, "inputs"))
        return take_inputs(r, &r->in, err);
    if (dtp_text_is(key, "outputs"))
        return take_inputs(r, &r->out, err);
    if (dtp_text_is(key, "attrs"))
        return et_take_attrs(r, err);
    if (!dtp_text_is(key, "name"))
        return dtp_pull_skip(&r->p, err);
    DTP_TRY(dtp_pull_text(&r->p, &name, err));
    set_name(r, &name);
    return DTP_OK;
}

/* Attributes say more exactly what moves; where there are none, the first input does. */
static void add_comm(struct et_reader *r) {
    struct dtp_et *et = r->et;
    struct dtp_et_comm *c = &r->comm;
    c->node = r->node.id;
    c->stated = r->stated;
    if (!r->stated) {
        c->collective = dtp_intern_text(et->names, r->in.text);
        c->in_elements = r->in.elements;
        c->out_elements = r->out.elements;
        c->element_bytes = r->in.element_bytes;
        c->in_bytes = r->in.bytes;
        c->in_split = r->in.split[0];
        c->nin_split = r->in.nsplit[0];
        c->out_split = r->in.split[1];
        c->nout_split = r->in.nsplit[1];
    } else {
        uint64_t item = c->element_bytes;
        c->in_bytes =
            item > 0 && c->in_elements > UINT64_MAX / item ? UINT64_MAX : c->in_elements * item;
    }
    et->comm = dtp_arena_room(r->a, et->comm, sizeof *et->comm, et->ncomms, &et->comms_capacity);
    et->comm[et->ncomms++] = *c;
}

static void add_node(struct et_reader *r) {
    struct dtp_et *et = r->et;
    et->node = dtp_arena_room(r->a, et->node, sizeof *et->node, et->nnodes, &et->nodes_capacity);
    et->node[et->nnodes++] = r->node;
    if (r->is_comm)
        add_comm(r);
}

static enum dtp_status take_node(struct et_reader *r, struct dtp_err *err) {
    struct dtp_text key;
    enum dtp_status status;
    r->node = (struct dtp_et_node){.name = dtp_intern_add(r->et->names, "", 0)};
    r->comm = (struct dtp_et_comm){.collective = "", .group = "", .group_description = ""};
    r->in = r->out = (struct et_values){.text = ""};
    r->has_id = r->has_name = r->is_comm = r->stated = false;
    r->nints = 0;
    DTP_TRY(dtp_pull_open(&r->p, '{', err));
    while (dtp_pull_member(&r->p, &key, &status, err))
        DTP_TRY(take_member(r, &key, err));
    DTP_TRY(status);
    if (!r->has_id)
        return dtp_pull_fail(&r->p, err, "found a node without an id");
    add_node(r);
    return DTP_OK;
}

static enum dtp_status take_nodes(struct et_reader *r, struct dtp_err *err) {
    enum dtp_status status;
    DTP_TRY(dtp_pull_open(&r->p, '[', err));
    while (dtp_pull_element(&r->p, &status, err))
        DTP_TRY(take_node(r, err));
    return status;
}

/* ---- the whole ---- */

static int by_id(const void *x, const void *y) {
    uint64_t p = *(const uint64_t *)x, q = *(const uint64_t *)y;
    return p < q ? -1 : p > q;
}

static int by_node(const void *x, const void *y) {
    const struct dtp_et_comm *p = x, *q = y;
    return p->node < q->node ? -1 : p->node > q->node;
}

static void check_tree(struct et_reader *r) {
    struct dtp_et *et = r->et;
    uint64_t *id = DTP_NEW(r->scratch, uint64_t, et->nnodes + 1);
    for (uint32_t i = 0; i < et->nnodes; i++)
        id[i] = et->node[i].id;
    qsort(id, et->nnodes, sizeof *id, by_id);
    for (uint32_t i = 1; i < et->nnodes; i++)
        et->duplicate_ids += id[i] == id[i - 1];
    for (uint32_t i = 0; i < et->nnodes; i++) {
        uint64_t parent = et->node[i].parent;
        et->self_parents += parent == et->node[i].id;
        et->missing_parents += !bsearch(&parent, id, et->nnodes, sizeof *id, by_id);
    }
    if (et->ncomms > 0)
        qsort(et->comm, et->ncomms, sizeof *et->comm, by_node);
}

static enum dtp_status take_top(struct et_reader *r, const struct dtp_text *key, bool *nodes,
                                struct dtp_err *err) {
    struct dtp_text t;
    struct {
        const char *key;
        int64_t *to;
    } numbers[] = {
        {"pid", &r->et->pid}, {"start_ts", &r->et->start_ts}, {"finish_ts", &r->et->finish_ts}};
    if (dtp_text_is(key, "nodes")) {
        *nodes = true;
        return take_nodes(r, err);
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (dtp_text_is(key, numbers[i].key))
            return dtp_pull_i64(&r->p, numbers[i].to, err);
    bool schema = dtp_text_is(key, "schema"), time = dtp_text_is(key, "time");
    if (!schema && !time)
        return dtp_pull_skip(&r->p, err);
    DTP_TRY(dtp_pull_text(&r->p, &t, err));
    *(schema ? &r->et->schema : &r->et->time) = dtp_arena_strndup(r->a, t.at, t.n);
    return DTP_OK;
}

static enum dtp_status read_all(struct et_reader *r, struct dtp_source *source,
                                struct dtp_err *err) {
    struct dtp_text key;
    bool nodes = false;
    enum dtp_status status;
    char c;
    dtp_pull_init(&r->p, r->scratch, source);
    DTP_TRY(dtp_pull_open(&r->p, '{', err));
    while (dtp_pull_member(&r->p, &key, &status, err))
        DTP_TRY(take_top(r, &key, &nodes, err));
    DTP_TRY(status);
    DTP_TRY(dtp_pull_peek(&r->p, &c, err));
    if (c)
        return dtp_pull_fail(&r->p, err, "found text after the object");
    if (!nodes)
        return dtp_fail(err, DTP_EINPUT, "%s: no nodes in it", dtp_source_name(source));
    check_tree(r);
    return DTP_OK;
}

enum dtp_status dtp_et_read(struct dtp_arena *a, struct dtp_source *source, struct dtp_et *out,
                            struct dtp_err *err) {
    struct et_reader r = {.a = a, .et = out};
    *out = (struct dtp_et){.schema = "", .time = ""};
    out->names = dtp_intern_create(a);
    r.scratch = dtp_arena_create("reading an execution trace");
    enum dtp_status status = read_all(&r, source, err);
    dtp_arena_destroy(r.scratch);
    return status;
}

static int by_count(const void *x, const void *y) {
    const struct dtp_et_count *p = x, *q = y;
    if (p->count != q->count)
        return p->count > q->count ? -1 : 1;
    return strcmp(p->name, q->name);
}

void dtp_et_ops(struct dtp_arena *a, const struct dtp_et *et, const struct dtp_et_count **out,
                size_t *out_n) {
    struct dtp_et_count *v = DTP_NEW(a, struct dtp_et_count, et->names->n + 1);
    size_t n = 0;
    for (uint32_t i = 0; i < et->names->n; i++)
        v[i].name = et->names->at[i];
    for (uint32_t i = 0; i < et->nnodes; i++)
        v[et->node[i].name].count++;
    qsort(v, et->names->n, sizeof *v, by_count);
    while (n < et->names->n && v[n].count > 0)
        n++;
    *out = v;
    *out_n = n;
}
