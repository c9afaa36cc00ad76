/* chakra_json.c: Chakra graphs as JSON. Keys have another case than in the protobuf, and lists of
 * dependencies may be missing. */
#include <string.h>

#include "traces/formats/chakra_private.h"
#include "traces/formats/pull.h"

struct reader {
    struct dtp_pull p;
    struct dtp_arena *a;
    struct dtp_chakra *g;
};

/* Dependencies of one node, kept apart by kind until the node ends: the list wants control first. */
struct ids {
    uint64_t *at;
    uint32_t n, capacity;
};

static enum dtp_status take_ids(struct reader *r, struct ids *out, struct dtp_err *err) {
    enum dtp_status status;
    out->n = 0;
    DTP_TRY(dtp_pull_open(&r->p, '[', err));
    while (dtp_pull_element(&r->p, &status, err)) {
        uint64_t id;
        DTP_TRY(dtp_pull_u64(&r->p, &id, err));
        if (out->n == out->capacity) {
            uint32_t size = out->capacity * 2 + 16;
            out->at = dtp_arena_grow(r->a, out->at, sizeof *out->at, out->capacity, size);
            out->capacity = size;
        }
        out->at[out->n++] = id;
    }
    return status;
}

static enum dtp_status take_string(struct reader *r, const char **out, struct dtp_err *err) {
    struct dtp_text t;
    DTP_TRY(dtp_pull_text(&r->p, &t, err));
    *out = dtp_arena_strndup(r->a, t.at, t.n);
    return DTP_OK;
}

struct taken {
    struct dtp_chakra_node node;
    bool has_id;
};

static enum dtp_status take_number(struct reader *r, const struct dtp_text *key, struct taken *t,
                                   bool *out_known, struct dtp_err *err) {
    struct dtp_chakra_node *n = &t->node;
    struct {
        const char *key;
        int64_t *to;
    } fields[] = {{"comm_type", &n->comm_type},
                  {"comm_src", &n->comm_src},
                  {"comm_dst", &n->comm_dst},
                  {"comm_tag", &n->comm_tag}};
    *out_known = true;
    if (dtp_text_is(key, "Id")) {
        t->has_id = true;
        return dtp_pull_u64(&r->p, &n->id, err);
    }
    if (dtp_text_is(key, "runtime"))
        return dtp_pull_u64(&r->p, &n->dur_us, err);
    if (dtp_text_is(key, "comm_size"))
        return dtp_pull_u64(&r->p, &n->comm_bytes, err);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (dtp_text_is(key, fields[i].key))
            return dtp_pull_i64(&r->p, fields[i].to, err);
    *out_known = false;
    return DTP_OK;
}

static enum dtp_status take_member(struct reader *r, const struct dtp_text *key, struct taken *t,
                                   struct ids *control, struct ids *data, struct dtp_err *err) {
    struct dtp_text text;
    bool known;
    int64_t type;
    if (dtp_text_is(key, "data_deps"))
        return take_ids(r, data, err);
    if (dtp_text_is(key, "ctrlDeps"))
        return take_ids(r, control, err);
    if (dtp_text_is(key, "Name"))
        return take_string(r, &t->node.name, err);
    if (dtp_text_is(key, "pg_name"))
        return take_string(r, &t->node.group, err);
    if (dtp_text_is(key, "NodeType")) {
        DTP_TRY(dtp_pull_i64(&r->p, &type, err));
        bool valid = type > DTP_CHAKRA_INVALID && type < DTP_NCHAKRA_TYPES;
        t->node.type = valid ? (int)type : DTP_CHAKRA_INVALID;
        return DTP_OK;
    }
    if (dtp_text_is(key, "is_cpu_op")) {
        DTP_TRY(dtp_pull_text(&r->p, &text, err));
        t->node.is_cpu_op = dtp_text_is(&text, "true") || dtp_text_is(&text, "1");
        return DTP_OK;
    }
    DTP_TRY(take_number(r, key, t, &known, err));
    return known ? DTP_OK : dtp_pull_skip(&r->p, err);
}

static enum dtp_status take_node(struct reader *r, struct ids *control, struct ids *data,
                                 struct dtp_err *err) {
    struct taken t = {.node = dtp_chakra_node_init(r->g)};
    struct dtp_text key;
    enum dtp_status status;
    control->n = data->n = 0;
    DTP_TRY(dtp_pull_open(&r->p, '{', err));
    while (dtp_pull_member(&r->p, &key, &status, err))
        DTP_TRY(take_member(r, &key, &t, control, data, err));
    DTP_TRY(status);
    if (!t.has_id)
        return dtp_pull_fail(&r->p, err, "found a node without an Id");
    for (uint32_t i = 0; i < control->n; i++)
        dtp_chakra_add_dep(r->a, r->g, control->at[i]);
    for (uint32_t i = 0; i < data->n; i++)
        dtp_chakra_add_dep(r->a, r->g, data->at[i]);
    t.node.nctrl = control->n;
    t.node.ndata = data->n;
    dtp_chakra_add_node(r->a, r->g, &t.node);
    return DTP_OK;
}

static enum dtp_status take_graph(struct reader *r, struct dtp_err *err) {
    struct ids control = {0}, data = {0};
    enum dtp_status status;
    DTP_TRY(dtp_pull_open(&r->p, '[', err));
    while (dtp_pull_element(&r->p, &status, err))
        DTP_TRY(take_node(r, &control, &data, err));
    return status;
}

enum dtp_status dtp_chakra_read_json(struct dtp_arena *a, struct dtp_source *source,
                                     struct dtp_chakra *out, struct dtp_err *err) {
    struct reader r = {.a = a, .g = out};
    struct dtp_text key;
    bool graph = false;
    enum dtp_status status;
    char c;
    *out = (struct dtp_chakra){.version = "", .workload = "", .soc = ""};
    dtp_pull_init(&r.p, a, source);
    DTP_TRY(dtp_pull_open(&r.p, '{', err));
    while (dtp_pull_member(&r.p, &key, &status, err)) {
        bool is_graph = dtp_text_is(&key, "workload_graph");
        graph |= is_graph;
        if (is_graph)
            DTP_TRY(take_graph(&r, err));
        else if (dtp_text_is(&key, "workload_name"))
            DTP_TRY(take_string(&r, &out->workload, err));
        else if (dtp_text_is(&key, "soc"))
            DTP_TRY(take_string(&r, &out->soc, err));
        else if (dtp_text_is(&key, "ngpus"))
            DTP_TRY(dtp_pull_i64(&r.p, &out->ngpus, err));
        else
            DTP_TRY(dtp_pull_skip(&r.p, err));
    }
    DTP_TRY(status);
    DTP_TRY(dtp_pull_peek(&r.p, &c, err));
    if (c)
        return dtp_pull_fail(&r.p, err, "found text after the object");
    if (!graph)
        return dtp_fail(err, DTP_EINPUT, "%s: no workload_graph in it", dtp_source_name(source));
    out->nmessages = out->nnodes;
    return chakra_check(out, dtp_source_name(source), err);
}
