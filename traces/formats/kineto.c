#include "traces/formats/kineto.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "traces/formats/pull.h"
#include "traces/formats/trace.h"

enum { KINETO_ID_BYTES = 48, KINETO_INPUTS = 64, KINETO_SHAPE_BYTES = 256 };

/* A name or id of the record: copied, since the window moves. */
struct kineto_copy {
    char *at;
    size_t n, capacity;
};

struct kineto_args {
    bool has_stream, has_device, has_comm;
    int64_t stream, device;
    uint64_t correlation, bytes;
    bool big_correlation;
    struct dtp_trace_comm comm;
    uint64_t input_elements[KINETO_INPUTS], input_bytes[KINETO_INPUTS];
    int ninputs, ntypes;
    char shape[KINETO_SHAPE_BYTES]; /* text of arrays; what does not fit is left out whole */
    size_t nshape;
    bool shape_cut;
    int64_t grid[3], block[3];
};

struct kineto_record {
    char phase;
    char pid[KINETO_ID_BYTES], tid[KINETO_ID_BYTES];
    struct kineto_copy name;
    uint8_t category;
    bool has_category, has_ts, bad_time, has_name;
    int64_t ts_ns, dur_ns;
    uint64_t id;
    bool has_id;
    struct kineto_args args;
};

/* The reader remembers what the categories seen so far mean, by their number. */
struct kineto_reader {
    struct dtp_pull pull;
    struct dtp_trace_rank *r;
    const struct dtp_trace_options *options;
    struct kineto_record rec;
    unsigned char meaning[256]; /* 0: not looked up yet, else enum kineto_meaning + 1 */
    struct kineto_flow *flow;
    size_t nflows, flows_capacity;
    struct dtp_arena *scratch;
    uint64_t next_progress;
};

struct kineto_flow {
    uint64_t id;
    int64_t ts_ns;
    uint8_t category, end, on_device;
};

/* ---- arguments of a record ---- */

/* Element types as PyTorch spells them: ScalarType words and C++ names. */
static const struct {
    const char *word;
    int bytes;
} types[] = {{"float", 4},
             {"Float", 4},
             {"c10::BFloat16", 2},
             {"BFloat16", 2},
             {"c10::Half", 2},
             {"Half", 2},
             {"double", 8},
             {"Double", 8},
             {"long int", 8},
             {"long", 8},
             {"Long", 8},
             {"int", 4},
             {"Int", 4},
             {"short", 2},
             {"Short", 2},
             {"short int", 2},
             {"char", 1},
             {"Char", 1},
             {"signed char", 1},
             {"unsigned char", 1},
             {"Byte", 1},
             {"bool", 1},
             {"Bool", 1},
             {"Float8_e4m3fn", 1},
             {"Float8_e5m2", 1},
             {"c10::Float8_e4m3fn", 1},
             {"c10::Float8_e5m2", 1}};

static const char *keep(struct kineto_reader *k, const struct dtp_text *t) {
    return dtp_trace_name(k->r, dtp_trace_intern(k->r, t->at, t->n));
}

int dtp_kineto_type_bytes(const struct dtp_text *t) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (dtp_text_is(t, types[i].word))
            return types[i].bytes;
    return 0;
}

static void add_shape(struct kineto_args *args, const char *text, size_t n) {
    args->shape_cut = args->shape_cut || args->nshape + n > sizeof args->shape;
    if (args->shape_cut)
        return;
    memcpy(args->shape + args->nshape, text, n);
    args->nshape += n;
}

/* Product of an array of numbers; *out_flat is false where it holds arrays (a list of tensors), whose
 * products are added. An empty array is no tensor: 0. */
static enum dtp_status read_shape(struct kineto_reader *k, uint64_t *out, struct dtp_err *err) {
    struct dtp_pull *p = &k->pull;
    uint64_t product = 1, sum = 0, v;
    bool any = false;
    enum dtp_status status;
    DTP_TRY(dtp_pull_open(p, '[', err));
    add_shape(&k->rec.args, "[", 1);
    for (bool first = true; dtp_pull_element(p, &status, err); first = false) {
        if (!first)
            add_shape(&k->rec.args, ",", 1);
        char c;
        DTP_TRY(dtp_pull_peek(p, &c, err));
        if (c == '[') {
            DTP_TRY(read_shape(k, &v, err));
            sum += v;
            continue;
        }
        struct dtp_text t;
        DTP_TRY(dtp_pull_text(p, &t, err));
        any = true;
        add_shape(&k->rec.args, t.at, t.n);
        product = dtp_text_u64(&t, &v) ? product * v : 0;
    }
    DTP_TRY(status);
    add_shape(&k->rec.args, "]", 1);
    *out = any ? product : sum;
    return DTP_OK;
}

static enum dtp_status read_dims(struct kineto_reader *k, struct dtp_err *err) {
    struct kineto_args *args = &k->rec.args;
    bool open;
    enum dtp_status status;
    char c;
    DTP_TRY(dtp_pull_open_or_skip(&k->pull, '[', &open, err));
    if (!open)
        return DTP_OK;
    args->ninputs = 0;
    args->nshape = 0;
    add_shape(args, "[", 1);
    for (bool first = true; dtp_pull_element(&k->pull, &status, err); first = false) {
        if (!first)
            add_shape(args, ",", 1);
        uint64_t n = 0;
        DTP_TRY(dtp_pull_peek(&k->pull, &c, err));
        if (c == '[')
            DTP_TRY(read_shape(k, &n, err));
        else
            DTP_TRY(dtp_pull_skip(&k->pull, err));
        if (args->ninputs < KINETO_INPUTS)
            args->input_elements[args->ninputs++] = n;
    }
    DTP_TRY(status);
    add_shape(args, "]", 1);
    return DTP_OK;
}

/* "grid" and "block": three numbers. */
static enum dtp_status read_three(struct kineto_reader *k, int64_t *out, struct dtp_err *err) {
    struct dtp_pull *p = &k->pull;
    bool open;
    enum dtp_status status;
    char c;
    DTP_TRY(dtp_pull_open_or_skip(p, '[', &open, err));
    if (!open)
        return DTP_OK;
    for (int i = 0; dtp_pull_element(p, &status, err); i++) {
        struct dtp_text t;
        DTP_TRY(dtp_pull_peek(p, &c, err));
        if (c == '[' || c == '{' || i >= 3) {
            DTP_TRY(dtp_pull_skip(p, err));
            continue;
        }
        DTP_TRY(dtp_pull_text(p, &t, err));
        if (!dtp_text_i64(&t, &out[i]))
            out[i] = 0;
    }
    return status;
}

static enum dtp_status read_types(struct kineto_reader *k, struct dtp_err *err) {
    struct kineto_args *args = &k->rec.args;
    bool open;
    enum dtp_status status;
    DTP_TRY(dtp_pull_open_or_skip(&k->pull, '[', &open, err));
    if (!open)
        return DTP_OK;
    args->ntypes = 0;
    while (dtp_pull_element(&k->pull, &status, err)) {
        struct dtp_text t;
        DTP_TRY(dtp_pull_text(&k->pull, &t, err));
        if (args->ntypes < KINETO_INPUTS)
            args->input_bytes[args->ntypes++] = (uint64_t)dtp_kineto_type_bytes(&t);
    }
    return status;
}

enum arg {
    A_STREAM,
    A_DEVICE,
    A_CORRELATION,
    A_BYTES,
    A_DIMS,
    A_GRID,
    A_BLOCK,
    A_TYPES,
    A_COLLECTIVE,
    A_IN,
    A_OUT,
    A_GROUP_SIZE,
    A_DTYPE,
    A_GROUP,
    A_GROUP_DESCRIPTION,
    A_GROUP_RANKS,
    A_SRC,
    A_DST,
    A_SEQ,
    A_OTHER
};

static enum arg arg_of(const struct dtp_text *key) {
    static const char *const names[] = {"stream",
                                        "device",
                                        "correlation",
                                        "bytes",
                                        "Input Dims",
                                        "grid",
                                        "block",
                                        "Input type",
                                        "Collective name",
                                        "In msg nelems",
                                        "Out msg nelems",
                                        "Group size",
                                        "dtype",
                                        "Process Group Name",
                                        "Process Group Description",
                                        "Process Group Ranks",
                                        "Src Rank",
                                        "Dst Rank",
                                        "Seq"};
    for (int i = 0; i < A_OTHER; i++)
        if (names[i][0] == key->at[0] && dtp_text_is(key, names[i]))
            return (enum arg)i;
    return A_OTHER;
}

static void take_number(struct kineto_reader *k, enum arg arg, const struct dtp_text *t) {
    struct kineto_args *args = &k->rec.args;
    struct dtp_trace_comm *comm = &args->comm;
    int64_t v = 0;
    bool whole = dtp_text_i64(t, &v);
    if (arg == A_STREAM || arg == A_DEVICE) {
        *(arg == A_STREAM ? &args->has_stream : &args->has_device) = whole;
        *(arg == A_STREAM ? &args->stream : &args->device) = v;
    } else if (arg == A_CORRELATION) {
        args->big_correlation = !dtp_text_u64(t, &args->correlation) && t->n > 18;
    } else if (arg == A_BYTES) {
        args->bytes = whole && v > 0 ? (uint64_t)v : 0;
    } else if (arg == A_IN) {
        comm->in_elements = whole && v > 0 ? (uint64_t)v : 0;
    } else if (arg == A_OUT) {
        comm->out_elements = whole && v > 0 ? (uint64_t)v : 0;
    } else if (arg == A_GROUP_SIZE) {
        comm->group_size = whole && v > 0 && v < INT32_MAX ? (int)v : 0;
    } else if (arg == A_SEQ) {
        comm->seq = whole ? v : -1;
    } else if (whole) {
        comm->peer = v;
    }
}

static void take_arg(struct kineto_reader *k, enum arg arg, const struct dtp_text *t) {
    struct dtp_trace_comm *comm = &k->rec.args.comm;
    if (arg == A_COLLECTIVE) {
        k->rec.args.has_comm = true;
        comm->collective = keep(k, t);
    } else if (arg == A_DTYPE) {
        comm->element_bytes = (uint64_t)dtp_kineto_type_bytes(t);
    } else if (arg == A_GROUP) {
        comm->group = keep(k, t);
    } else if (arg == A_GROUP_DESCRIPTION) {
        comm->group_description = keep(k, t);
    } else if (arg == A_GROUP_RANKS) {
        comm->group_ranks = keep(k, t);
    } else {
        take_number(k, arg, t);
    }
}

static void sum_inputs(struct kineto_args *args) {
    uint64_t elements = 0, bytes = 0;
    for (int i = 0; i < args->ninputs && i < args->ntypes; i++) {
        elements += args->input_elements[i];
        bytes += args->input_elements[i] * args->input_bytes[i];
    }
    if (!args->has_comm) {
        args->comm.in_elements = elements;
        args->comm.in_bytes = bytes;
    } else {
        args->comm.in_bytes = args->comm.in_elements * args->comm.element_bytes;
    }
}

static enum dtp_status read_args(struct kineto_reader *k, struct dtp_err *err) {
    struct dtp_pull *p = &k->pull;
    struct kineto_args *args = &k->rec.args;
    struct dtp_text t;
    bool open;
    enum dtp_status status;
    char c;
    args->comm = (struct dtp_trace_comm){.collective = "",
                                         .group = "",
                                         .group_description = "",
                                         .group_ranks = "",
                                         .seq = -1,
                                         .peer = -1};
    DTP_TRY(dtp_pull_open_or_skip(p, '{', &open, err));
    if (!open)
        return DTP_OK;
    while (dtp_pull_member(p, &t, &status, err)) {
        enum arg arg = t.n > 0 ? arg_of(&t) : A_OTHER;
        DTP_TRY(dtp_pull_peek(p, &c, err));
        if (arg == A_DIMS) {
            DTP_TRY(read_dims(k, err));
        } else if (arg == A_GRID || arg == A_BLOCK) {
            DTP_TRY(read_three(k, arg == A_GRID ? args->grid : args->block, err));
        } else if (arg == A_TYPES) {
            DTP_TRY(read_types(k, err));
        } else if (arg == A_OTHER || c == '{' || c == '[') {
            DTP_TRY(dtp_pull_skip(p, err));
        } else {
            DTP_TRY(dtp_pull_text(p, &t, err));
            take_arg(k, arg, &t);
        }
    }
    DTP_TRY(status);
    sum_inputs(args);
    return DTP_OK;
}

/* ---- metadata of the file ---- */

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
            g->name = keep(k, &t);
        } else if (dtp_text_is(&t, "pg_desc")) {
            DTP_TRY(dtp_pull_text(p, &t, err));
            g->description = keep(k, &t);
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
            k->r->backend = keep(k, &t);
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

/* Name and memory of the first device; the rest is passed over. */
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
            k->r->device = keep(k, &t);
        } else if (dtp_text_is(&t, "totalGlobalMem") && k->r->device_bytes == 0) {
            DTP_TRY(dtp_pull_text(p, &t, err));
            if (!dtp_text_u64(&t, &k->r->device_bytes))
                k->r->device_bytes = 0;
        } else {
            DTP_TRY(dtp_pull_skip(p, err));
        }
    }
    return status;
}

static enum dtp_status read_metadata(struct kineto_reader *k, const struct dtp_text *key,
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
        k->r->time_unit = keep(k, &t);
    return DTP_OK;
}

/* ---- a record ---- */

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

static enum dtp_status read_record(struct kineto_reader *k, struct dtp_err *err) {
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
            DTP_TRY(read_args(k, err));
        } else if (f == F_OTHER) {
            DTP_TRY(dtp_pull_skip(p, err));
        } else {
            DTP_TRY(dtp_pull_text(p, &t, err));
            take_field(k, f, &t);
        }
    }
    return status;
}

/* ---- events ---- */

enum { PROGRESS_BYTES = 1 << 23 };

enum kineto_meaning { MEANS_EVENT, MEANS_FLOW = DTP_TRACE_OTHER + 1, MEANS_NOTHING };

static const struct {
    const char *category;
    int meaning;
} meanings[] = {{"kernel", DTP_TRACE_KERNEL},
                {"Kernel", DTP_TRACE_KERNEL},
                {"mtia_ccp_events", DTP_TRACE_KERNEL},
                {"gpu_memcpy", DTP_TRACE_MEMCPY},
                {"Memcpy", DTP_TRACE_MEMCPY},
                {"gpu_memset", DTP_TRACE_MEMSET},
                {"Memset", DTP_TRACE_MEMSET},
                {"cuda_runtime", DTP_TRACE_CALL},
                {"cuda_driver", DTP_TRACE_CALL},
                {"Runtime", DTP_TRACE_CALL},
                {"runtime", DTP_TRACE_CALL},
                {"mtia_runtime", DTP_TRACE_CALL},
                {"xpu_runtime", DTP_TRACE_CALL},
                {"cpu_op", DTP_TRACE_OP},
                {"Operator", DTP_TRACE_OP},
                {"user_annotation", DTP_TRACE_ANNOTATION},
                {"gpu_user_annotation", DTP_TRACE_GPU_ANNOTATION},
                {"cuda_sync", DTP_TRACE_SYNC},
                {"python_function", MEANS_NOTHING},
                {"ac2g", MEANS_FLOW},
                {"async_gpu", MEANS_FLOW},
                {"async_cpu_to_gpu", MEANS_FLOW},
                {"fwdbwd", MEANS_FLOW}};

static int meaning_of(struct kineto_reader *k, uint8_t category) {
    if (k->meaning[category])
        return k->meaning[category] - 1;
    const char *name = dtp_trace_category(k->r, category);
    int found = DTP_TRACE_OTHER;
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++)
        if (strcmp(meanings[i].category, name) == 0)
            found = meanings[i].meaning;
    k->meaning[category] = (unsigned char)(found + 1);
    return found;
}

/* "stream 7" or "7", for files whose args lack the stream. */
static int64_t trailing_number(const char *s) {
    const char *digits = s + strcspn(s, "0123456789");
    int64_t v = 0;
    return dtp_text_i64(&(struct dtp_text){digits, strlen(digits), DTP_TOKEN_STRING}, &v) ? v : 0;
}

static uint32_t lane_of(struct kineto_reader *k, bool on_device) {
    const struct kineto_record *rec = &k->rec;
    const struct kineto_args *args = &rec->args;
    if (!on_device)
        return dtp_trace_host_lane(k->r, rec->pid, rec->tid);
    return dtp_trace_device_lane(k->r, args->has_device ? args->device : trailing_number(rec->pid),
                                 args->has_stream ? args->stream : trailing_number(rec->tid));
}

static void add_step(struct dtp_trace_rank *r, const struct dtp_trace_event *e) {
    static const char prefix[] = "ProfilerStep#";
    const char *name = dtp_trace_name(r, e->name), *number = name + sizeof prefix - 1;
    int64_t n;
    if (strncmp(name, prefix, sizeof prefix - 1) != 0 ||
        !dtp_text_i64(&(struct dtp_text){number, strlen(number), DTP_TOKEN_STRING}, &n))
        return;
    dtp_trace_add_step(r, n, e);
}

static uint32_t shape_of(struct kineto_reader *k, int kind) {
    const struct kineto_args *args = &k->rec.args;
    char text[160];
    if (kind == DTP_TRACE_KERNEL && args->grid[0] > 0) {
        int n =
            snprintf(text, sizeof text,
                     "[%" PRId64 ",%" PRId64 ",%" PRId64 "][%" PRId64 ",%" PRId64 ",%" PRId64 "]",
                     args->grid[0], args->grid[1], args->grid[2], args->block[0], args->block[1],
                     args->block[2]);
        return dtp_trace_intern(k->r, text, (size_t)n);
    }
    if (kind != DTP_TRACE_OP || args->nshape == 0 || args->shape_cut)
        return DTP_TRACE_NONE;
    return dtp_trace_intern(k->r, args->shape, args->nshape);
}

/* A whole event that passed: keeps it. */
static void keep_event(struct kineto_reader *k, int kind) {
    struct dtp_trace_rank *r = k->r;
    struct kineto_record *rec = &k->rec;
    bool on_device =
        kind <= DTP_TRACE_MEMSET || kind == DTP_TRACE_GPU_ANNOTATION || kind == DTP_TRACE_SYNC;
    struct dtp_trace_event *e = dtp_trace_add(r);
    e->start_ns = rec->ts_ns;
    e->dur_ns = rec->dur_ns;
    e->kind = (uint8_t)kind;
    e->category = rec->category;
    e->link = rec->args.correlation;
    e->on_stream = rec->args.has_stream && rec->args.stream >= 0;
    e->name = dtp_trace_intern(r, rec->name.at ? rec->name.at : "", rec->name.n);
    e->lane = lane_of(k, on_device);
    e->shape = shape_of(k, kind);
    if (rec->args.big_correlation)
        dtp_trace_warn(r, DTP_WARN_BIG_ID, dtp_pull_offset(&k->pull));
    if (rec->args.has_comm || rec->args.ntypes > 0) {
        const char *name = dtp_trace_name(r, e->name);
        bool of_interest = rec->args.has_comm || strncmp(name, "nccl:", 5) == 0 ||
                           strncmp(name, "gloo:", 5) == 0 || strncmp(name, "c10d::", 6) == 0;
        if (of_interest)
            e->comm = dtp_trace_add_comm(r, &rec->args.comm);
    }
    if (kind == DTP_TRACE_ANNOTATION || kind == DTP_TRACE_OP)
        add_step(r, e);
}

static void take_event(struct kineto_reader *k, int kind) {
    struct kineto_record *rec = &k->rec;
    uint64_t byte = dtp_pull_offset(&k->pull);
    if (rec->bad_time || !rec->has_ts) {
        dtp_trace_warn(k->r, DTP_WARN_BAD_TIME, byte);
        return;
    }
    if (kind <= DTP_TRACE_MEMSET && rec->ts_ns == 0 && !k->r->has_base) {
        dtp_trace_warn(k->r, DTP_WARN_ZERO_TIME, byte);
        return;
    }
    if (rec->dur_ns < 0) {
        dtp_trace_warn(k->r, DTP_WARN_NEGATIVE_DURATION, byte);
        rec->dur_ns = 0;
    }
    if (INT64_MAX - rec->dur_ns < rec->ts_ns) {
        dtp_trace_warn(k->r, DTP_WARN_BAD_TIME, byte);
        return;
    }
    keep_event(k, kind);
}

static void take_flow(struct kineto_reader *k) {
    const struct kineto_record *rec = &k->rec;
    k->flow = dtp_arena_room(k->scratch, k->flow, sizeof *k->flow, k->nflows, &k->flows_capacity);
    k->flow[k->nflows++] = (struct kineto_flow){rec->id, rec->ts_ns, rec->category,
                                                rec->phase == 'f', strlen(rec->pid) < 4};
}

static void take_record(struct kineto_reader *k) {
    struct kineto_record *rec = &k->rec;
    k->r->nrecords++;
    k->r->phase_count[(unsigned char)rec->phase]++;
    if (!rec->has_category)
        rec->category = dtp_trace_intern_category(k->r, "None", 4);
    k->r->category_count[rec->category]++;
    int meaning = meaning_of(k, rec->category);
    if (rec->phase == 's' || rec->phase == 'f') {
        if (rec->has_id)
            take_flow(k);
        return;
    }
    if (rec->phase == 'X' && meaning <= DTP_TRACE_OTHER)
        take_event(k, meaning);
}

/* ---- flows ---- */

static int by_flow(const void *x, const void *y) {
    const struct kineto_flow *p = x, *q = y;
    if (p->category != q->category)
        return p->category < q->category ? -1 : 1;
    if (p->id != q->id)
        return p->id < q->id ? -1 : 1;
    return (int)p->end - (int)q->end;
}

static void count_flows(struct kineto_reader *k) {
    struct dtp_trace_rank *r = k->r;
    if (k->nflows > 1)
        qsort(k->flow, k->nflows, sizeof *k->flow, by_flow);
    for (size_t i = 0, j; i < k->nflows; i = j) {
        bool start = false, end = false, device = false;
        for (j = i; j < k->nflows && k->flow[j].category == k->flow[i].category &&
                    k->flow[j].id == k->flow[i].id;
             j++) {
            start |= !k->flow[j].end;
            end |= k->flow[j].end;
            device |= k->flow[j].end && k->flow[j].on_device;
        }
        r->nflows++;
        r->nflows_paired += start && end;
        r->nflows_start_only += start && !end;
        r->nflows_end_only += end && !start;
        if (end && !start && device)
            dtp_trace_warn(r, DTP_WARN_ORPHAN_FLOW, 0);
    }
}

/* ---- the document ---- */

/* A bare array may stay open: the file may end after an event, with or without a comma. */
static enum dtp_status at_open_end(struct dtp_pull *p, bool *out_end, struct dtp_err *err) {
    char c;
    DTP_TRY(dtp_pull_peek(p, &c, err));
    if (!p->opened && c == ',') {
        p->at++;
        p->opened = true;
        DTP_TRY(dtp_pull_peek(p, &c, err));
    }
    *out_end = c == '\0';
    return DTP_OK;
}

static enum dtp_status read_events(struct kineto_reader *k, bool may_stay_open,
                                   struct dtp_err *err) {
    struct dtp_pull *p = &k->pull;
    bool end = false;
    enum dtp_status status = DTP_OK;
    DTP_TRY(dtp_pull_open(p, '[', err));
    for (;;) {
        if (may_stay_open)
            DTP_TRY(at_open_end(p, &end, err));
        if (end || !dtp_pull_element(p, &status, err))
            return status;
        DTP_TRY(read_record(k, err));
        take_record(k);
        if (k->options && k->options->progress && dtp_pull_offset(p) >= k->next_progress) {
            k->next_progress = dtp_pull_offset(p) + PROGRESS_BYTES;
            k->options->progress(k->options->progress_ctx, k->r->file, dtp_pull_offset(p));
        }
    }
}

static bool is_first_key(struct dtp_trace_rank *r, const struct dtp_text *key) {
    for (size_t i = 0; i < r->ntop_keys; i++)
        if (dtp_text_is(key, r->top_key[i]))
            return false;
    r->top_key =
        dtp_arena_grow(r->a, r->top_key, sizeof *r->top_key, r->ntop_keys, r->ntop_keys + 1);
    r->top_key[r->ntop_keys++] = dtp_arena_strndup(r->a, key->at, key->n);
    return true;
}

static enum dtp_status read_object(struct kineto_reader *k, struct dtp_err *err) {
    struct dtp_pull *p = &k->pull;
    struct dtp_text key;
    bool any = false;
    enum dtp_status status;
    DTP_TRY(dtp_pull_open(p, '{', err));
    while (dtp_pull_member(p, &key, &status, err)) {
        if (!is_first_key(k->r, &key))
            dtp_trace_warn(k->r, DTP_WARN_DUPLICATE_KEY, dtp_pull_offset(p));
        if (dtp_text_is(&key, "traceEvents")) {
            any = true;
            DTP_TRY(read_events(k, false, err));
        } else {
            DTP_TRY(read_metadata(k, &key, err));
        }
    }
    DTP_TRY(status);
    if (!any)
        return dtp_pull_fail(p, err, "an object without traceEvents: not a Kineto trace");
    char c;
    DTP_TRY(dtp_pull_peek(p, &c, err));
    return c == '\0' ? DTP_OK : dtp_pull_fail(p, err, "text after the end of the document");
}

static enum dtp_status read_document(struct kineto_reader *k, struct dtp_err *err) {
    char c;
    DTP_TRY(dtp_pull_peek(&k->pull, &c, err));
    if (c == '\0')
        return dtp_pull_fail(&k->pull, err, "an empty file");
    if (c == '[')
        return read_events(k, true, err);
    return read_object(k, err);
}

static void count_repairs(struct kineto_reader *k) {
    const struct dtp_pull *p = &k->pull;
    k->r->warned[DTP_WARN_NOT_FINITE].count += p->not_finite;
    k->r->warned[DTP_WARN_BAD_ESCAPE].count += p->bad_escapes;
    k->r->warned[DTP_WARN_BAD_NAME].count += p->bad_utf8 + p->raw_controls;
}

enum dtp_status dtp_kineto_read(struct dtp_source *source, const struct dtp_trace_options *options,
                                struct dtp_trace_rank *r, struct dtp_err *err) {
    struct dtp_arena *scratch = dtp_arena_create("reading a trace");
    struct kineto_reader *k = DTP_NEW(scratch, struct kineto_reader, 1);
    k->r = r;
    k->options = options;
    k->scratch = scratch;
    dtp_pull_init(&k->pull, scratch, source);
    enum dtp_status status = read_document(k, err);
    if (status == DTP_OK) {
        r->raw_bytes = dtp_pull_offset(&k->pull);
        count_repairs(k);
        count_flows(k);
        dtp_trace_finish(r);
    }
    dtp_arena_destroy(scratch);
    return status;
}
