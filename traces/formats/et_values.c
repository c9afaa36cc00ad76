/* et_values.c: inputs and attributes of nodes. A tensor is [tensor id, storage id, offset, elements,
 * bytes of one, device]; lists of tensors, and lists of those, nest. */
#include <string.h>

#include "traces/formats/et_private.h"
#include "traces/formats/kineto_private.h"

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

enum dtp_status et_take_values(struct et_reader *r, struct et_values *out, struct dtp_err *err) {
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
        c->element_bytes = (uint64_t)kineto_type_bytes(t);
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

enum dtp_status et_take_attrs(struct et_reader *r, struct dtp_err *err) {
    enum dtp_status status;
    DTP_TRY(dtp_pull_open(&r->p, '[', err));
    while (dtp_pull_element(&r->p, &status, err))
        DTP_TRY(take_attr(r, err));
    return status;
}
