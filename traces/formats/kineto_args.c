/* kineto_args.c: what the args of a record say. */
#include <stdlib.h>
#include <string.h>

#include "traces/formats/kineto_private.h"

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

int kineto_type_bytes(const struct dtp_text *t) {
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
            args->input_bytes[args->ntypes++] = (uint64_t)kineto_type_bytes(&t);
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
        comm->collective = kineto_keep(k, t);
    } else if (arg == A_DTYPE) {
        comm->element_bytes = (uint64_t)kineto_type_bytes(t);
    } else if (arg == A_GROUP) {
        comm->group = kineto_keep(k, t);
    } else if (arg == A_GROUP_DESCRIPTION) {
        comm->group_description = kineto_keep(k, t);
    } else if (arg == A_GROUP_RANKS) {
        comm->group_ranks = kineto_keep(k, t);
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

enum dtp_status kineto_read_args(struct kineto_reader *k, struct dtp_err *err) {
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
