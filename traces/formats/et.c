/* et_values.c: inputs and attributes of nodes. A tensor is [tensor id, storage id, offset, elements,
 * bytes of one, device]; lists of tensors, and lists of those, nest. */
#include "traces/formats/et.h"

#include <stdlib.h>
#include <string.h>

#include "traces/formats/kineto.h"
#include "traces/formats/pull.h"
#include "traces/formats/format.h"
#include "traces/catalog.h"

/* The inputs (or outputs) of a node say this of a collective. */
struct et_values {
    uint64_t elements, bytes, element_bytes; /* sizes of the tensors in the first value */
    const char *text;                        /* the first string, or "" */
    const int64_t *split[2];                 /* the lists of integers after it */
    size_t nsplit[2], nsplits;
};

struct et_reader {
    struct dtp_pull p;
    struct dtp_arena *a, *scratch;
    struct dtp_et *et;
    int64_t *ints; /* a stack: numbers of the lists that are open */
    size_t nints, ints_capacity;
    /* the node being read */
    struct dtp_et_node node;
    struct dtp_et_comm comm;
    struct et_values in, out;
    bool has_id, has_name, is_comm, stated;
    /* the attribute being read */
    char key[64];
    char *value;
    size_t value_capacity;
};

enum { TENSOR_FIELDS = 6, TENSOR_ELEMENTS = 3, TENSOR_ITEM = 4 };

static void push_int(struct et_reader *r, int64_t v) {
    r->ints = dtp_arena_room(r->scratch, r->ints, sizeof *r->ints, r->nints, &r->ints_capacity);
    r->ints[r->nints++] = v;
}

/* A list: sums of the tensors in it; only_ints: nothing but integers, which stay on the stack. */
struct list {
    uint64_t elements, bytes, element_bytes;
    size_t n, nstrings;
    bool only_ints;
};

static uint64_t capped_product(uint64_t x, uint64_t y) {
    return y > 0 && x > UINT64_MAX / y ? UINT64_MAX : x * y;
}

static void add_tensor(struct list *l, uint64_t elements, uint64_t item) {
    uint64_t bytes = capped_product(elements, item);
    l->elements = elements > UINT64_MAX - l->elements ? UINT64_MAX : l->elements + elements;
    l->bytes = bytes > UINT64_MAX - l->bytes ? UINT64_MAX : l->bytes + bytes;
    l->element_bytes = item;
}

static enum dtp_status take_list(struct et_reader *r, struct list *out, struct dtp_err *err);

static enum dtp_status take_element(struct et_reader *r, struct list *out, struct dtp_err *err) {
    char c;
    struct dtp_text t;
    int64_t v;
    DTP_TRY(dtp_pull_peek(&r->p, &c, err));
    out->n++;
    if (c == '[') {
        struct list inner;
        size_t base = r->nints;
        DTP_TRY(take_list(r, &inner, err));
        r->nints = base;
        out->only_ints = false;
        if (inner.element_bytes > 0) {
            add_tensor(out, inner.elements, 1);
            out->bytes = out->bytes - inner.elements + inner.bytes;
            out->element_bytes = inner.element_bytes;
        }
        return DTP_OK;
    }
    if (c == '{') {
        out->only_ints = false;
        return dtp_pull_skip(&r->p, err);
    }
    DTP_TRY(dtp_pull_text(&r->p, &t, err));
    out->nstrings += t.token == DTP_TOKEN_STRING;
    if (t.token == DTP_TOKEN_NUMBER && dtp_text_i64(&t, &v))
        push_int(r, v);
    else
        out->only_ints = false;
    return DTP_OK;
}

static enum dtp_status take_list(struct et_reader *r, struct list *out, struct dtp_err *err) {
    size_t base = r->nints;
    enum dtp_status status;
    *out = (struct list){.only_ints = true};
    DTP_TRY(dtp_pull_open(&r->p, '[', err));
    while (dtp_pull_element(&r->p, &status, err))
        DTP_TRY(take_element(r, out, err));
    DTP_TRY(status);
    if (out->n == TENSOR_FIELDS && out->nstrings == 1 && r->nints - base == TENSOR_FIELDS - 1) {
        int64_t elements = r->ints[base + TENSOR_ELEMENTS], item = r->ints[base + TENSOR_ITEM];
        if (elements >= 0 && item > 0)
            add_tensor(out, (uint64_t)elements, (uint64_t)item);
    }
    return DTP_OK;
}

static void keep_split(struct et_reader *r, size_t base, struct et_values *out) {
    size_t n = r->nints - base;
    if (out->nsplits >= 2)
        return;
    int64_t *kept = DTP_NEW(r->a, int64_t, n + 1);
    if (n > 0)
        memcpy(kept, r->ints + base, n * sizeof *kept);
    out->split[out->nsplits] = kept;
    out->nsplit[out->nsplits++] = n;
}

static enum dtp_status take_value(struct et_reader *r, size_t i, struct et_values *out,
                                  struct dtp_err *err) {
    char c;
    struct dtp_text t;
    DTP_TRY(dtp_pull_peek(&r->p, &c, err));
    if (c == '[') {
        struct list l;
        size_t base = r->nints;
        DTP_TRY(take_list(r, &l, err));
        if (i == 0) {
            out->elements = l.elements;
            out->bytes = l.bytes;
            out->element_bytes = l.element_bytes;
        } else if (l.only_ints && *out->text && l.n == r->nints - base) {
            keep_split(r, base, out);
        }
        r->nints = base;
        return DTP_OK;
    }
    if (c != '"' || *out->text)
        return dtp_pull_skip(&r->p, err);
    DTP_TRY(dtp_pull_text(&r->p, &t, err));
    out->text = dtp_arena_strndup(r->a, t.at, t.n);
    return DTP_OK;
}

static enum dtp_status take_values(struct et_reader *r, struct et_values *out,
                                   struct dtp_err *err) {
    bool wanted = !r->has_name || r->is_comm;
    enum dtp_status status;
    *out = (struct et_values){.text = ""};
    if (!wanted)
        return dtp_pull_skip(&r->p, err);
    DTP_TRY(dtp_pull_open(&r->p, '[', err));
    for (size_t i = 0; dtp_pull_element(&r->p, &status, err); i++)
        DTP_TRY(take_value(r, i, out, err));
    return status;
}

/* ---- attributes ---- */

/* "[96, 224]" as numbers. */
static void take_split_text(struct et_reader *r, const struct dtp_text *t, const int64_t **out,
                            size_t *out_n) {
    size_t base = r->nints;
    for (size_t i = 0; i < t->n;) {
        size_t n = 0;
        int64_t v;
        while (i + n < t->n &&
               (t->at[i + n] == '-' || (t->at[i + n] >= '0' && t->at[i + n] <= '9')))
            n++;
        if (n > 0 && dtp_text_i64(&(struct dtp_text){t->at + i, n, DTP_TOKEN_NUMBER}, &v))
            push_int(r, v);
        i += n + 1;
    }
    *out_n = r->nints - base;
    int64_t *kept = DTP_NEW(r->a, int64_t, *out_n + 1);
    if (*out_n > 0)
        memcpy(kept, r->ints + base, *out_n * sizeof *kept);
    *out = kept;
    r->nints = base;
}

static void set_text(struct et_reader *r, const struct dtp_text *t) {
    struct dtp_et_comm *c = &r->comm;
    struct {
        const char *key;
        const char **to;
    } fields[] = {{"collective_name", &c->collective},
                  {"pg_name", &c->group},
                  {"pg_desc", &c->group_description}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (strcmp(r->key, fields[i].key) == 0) {
            *fields[i].to =
                dtp_intern_text(r->et->names, dtp_arena_strndup(r->scratch, t->at, t->n));
            r->stated |= i == 0;
        }
    if (strcmp(r->key, "dtype") == 0)
        c->element_bytes = (uint64_t)dtp_kineto_type_bytes(t);
    else if (strcmp(r->key, "in_split_size") == 0)
        take_split_text(r, t, &c->in_split, &c->nin_split);
    else if (strcmp(r->key, "out_split_size") == 0)
        take_split_text(r, t, &c->out_split, &c->nout_split);
}

static void set_number(struct et_reader *r, int64_t v) {
    struct dtp_et_comm *c = &r->comm;
    uint64_t positive = v > 0 ? (uint64_t)v : 0;
    if (strcmp(r->key, "pg_size") == 0)
        c->group_size = v;
    else if (strcmp(r->key, "in_msg_nelems") == 0)
        c->in_elements = positive;
    else if (strcmp(r->key, "out_msg_nelems") == 0)
        c->out_elements = positive;
    else if (strcmp(r->key, "rf_id") == 0)
        r->node.rf_id = positive;
    else if (strcmp(r->key, "tid") == 0)
        r->node.thread = (uint32_t)positive;
}

static enum dtp_status take_attr_member(struct et_reader *r, const struct dtp_text *key,
                                        struct dtp_text *value, struct dtp_err *err) {
    struct dtp_text t;
    char c;
    bool is_name = dtp_text_is(key, "name"), is_value = dtp_text_is(key, "value");
    DTP_TRY(dtp_pull_peek(&r->p, &c, err));
    if ((!is_name && !is_value) || c == '[' || c == '{')
        return dtp_pull_skip(&r->p, err);
    DTP_TRY(dtp_pull_text(&r->p, &t, err));
    if (is_name) {
        size_t n = t.n < sizeof r->key - 1 ? t.n : sizeof r->key - 1;
        memcpy(r->key, t.at, n);
        r->key[n] = '\0';
        return DTP_OK;
    }
    if (t.n > r->value_capacity) { /* the text is gone with the next token */
        r->value = dtp_arena_grow(r->scratch, r->value, 1, r->value_capacity, t.n * 2);
        r->value_capacity = t.n * 2;
    }
    if (t.n > 0)
        memcpy(r->value, t.at, t.n);
    *value = (struct dtp_text){r->value, t.n, t.token};
    return DTP_OK;
}

static enum dtp_status take_attr(struct et_reader *r, struct dtp_err *err) {
    struct dtp_text key, value = {.at = ""};
    enum dtp_status status;
    int64_t v;
    r->key[0] = '\0';
    value.token = DTP_TOKEN_WORD;
    DTP_TRY(dtp_pull_open(&r->p, '{', err));
    while (dtp_pull_member(&r->p, &key, &status, err))
        DTP_TRY(take_attr_member(r, &key, &value, err));
    DTP_TRY(status);
    if (value.token == DTP_TOKEN_STRING && (r->is_comm || !r->has_name))
        set_text(r, &value);
    else if (value.token == DTP_TOKEN_NUMBER && dtp_text_i64(&value, &v))
        set_number(r, v);
    return DTP_OK;
}

static enum dtp_status take_attrs(struct et_reader *r, struct dtp_err *err) {
    enum dtp_status status;
    DTP_TRY(dtp_pull_open(&r->p, '[', err));
    while (dtp_pull_element(&r->p, &status, err))
        DTP_TRY(take_attr(r, err));
    return status;
}

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
        return take_values(r, out, err);
    DTP_TRY(dtp_pull_open(&r->p, '{', err));
    while (dtp_pull_member(&r->p, &key, &status, err)) {
        if (dtp_text_is(&key, "values"))
            DTP_TRY(take_values(r, out, err));
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
        return take_attrs(r, err);
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

/* ---- the row of the format ---- */

static bool is_et(const struct dtp_format_head *h) {
    return dtp_head_json(h) == '{' &&
           (dtp_head_has_key(h, 1, "nodes") || dtp_head_has_key(h, 1, "start_ts")) &&
           (dtp_head_has_key(h, 1, "schema") || dtp_head_has_key(h, 1, "pid"));
}

static enum dtp_status read_item(struct dtp_arena *a, const struct dtp_visited *v,
                                 const struct dtp_format_options *o, void **content,
                                 struct dtp_err *err) {
    (void)o;
    struct dtp_et *et = *content = DTP_NEW(a, struct dtp_et, 1);
    return dtp_et_read(a, v->source, et, err);
}

static const struct dtp_traffic *traffic_of(struct dtp_arena *a, const struct dtp_et *et) {
    struct dtp_traffic *t = DTP_NEW(a, struct dtp_traffic, 1);
    t->a = a;
    for (uint32_t i = 0; i < et->ncomms; i++)
        dtp_traffic_add(t, et->comm[i].collective, et->comm[i].group, 1,
                        (double)et->comm[i].in_bytes);
    return t;
}

static void print_item(struct dtp_arena *a, FILE *f, const struct dtp_item *item,
                       const struct dtp_format_options *o) {
    (void)o;
    enum { MOST_PRINTED = 12 };
    const struct dtp_et *et = item->content;
    const struct dtp_et_count *ops;
    size_t n;
    fprintf(f, "  schema %s, %s, process %lld: %u nodes", et->schema, et->time, (long long)et->pid,
            et->nnodes);
    if (et->duplicate_ids + et->missing_parents > 0)
        fprintf(f, " (%llu ids twice, %llu parents missing)", (unsigned long long)et->duplicate_ids,
                (unsigned long long)et->missing_parents);
    fprintf(f, "; it has no times: those are in the Kineto trace of the run\n");
    dtp_et_ops(a, et, &ops, &n);
    for (size_t i = 0; i < n && i < MOST_PRINTED; i++)
        fprintf(f, "    %-50.50s x%llu\n", ops[i].name, (unsigned long long)ops[i].count);
    dtp_traffic_print(f, traffic_of(a, et));
}

static void write_item(struct dtp_arena *a, struct dtp_json_out *w, const struct dtp_item *item,
                       const struct dtp_format_options *o) {
    (void)o;
    const struct dtp_et *et = item->content;
    dtp_json_kv_string(w, "schema", et->schema);
    dtp_json_kv_u64(w, "nodes", et->nnodes);
    dtp_traffic_json(w, traffic_of(a, et));
}

const struct dtp_format dtp_format_pytorch_et = {.name = "pytorch-et",
                                                 .title = "PyTorch execution trace, JSON",
                                                 .told = "keys schema, pid, nodes",
                                                 .kind = DTP_KIND_OPS,
                                                 .detect = is_et,
                                                 .read = read_item,
                                                 .print = print_item,
                                                 .json = write_item};
