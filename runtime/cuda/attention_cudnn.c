/* The graphs of attention_cudnn.h. */
#include "runtime/cuda/attention_cudnn.h"

#include <math.h>

#define FLOATS CUDNN_DATA_FLOAT

/* Tensors that a caller has; 0 is a virtual one. */
enum { Q = 1, K, V, O, STATS, DO, DQ, DK, DV, DQ_SUM, DELTA, SCALE, MASKED, ONE, NIDS };

typedef cudnnBackendDescriptor_t tensor;

/* Shapes of one attention, and the graph that is built. */
struct builder {
    struct dtp_cudnn_graph *g;
    int64_t b, h, kv, s, d; /* sequences, query and key heads, positions, head_dim */
    int64_t in, out;        /* elements between rows of q, k, v; of out */
    cudnnDataType_t type;
};

/* [b, heads, s, d] in rows of position * b + sequence; transposed: [b, heads, d, s], the same elements */
static tensor rows(struct builder *x, int64_t id, int64_t heads, bool transposed) {
    bool query_like = id == O || id == DO;
    int64_t stride = query_like ? x->out : x->in;
    struct dtp_cudnn_tensor t = {.id = id,
                                 .type = x->type,
                                 .dims = {x->b, heads, x->s, x->d},
                                 .strides = {stride, x->d, x->b * stride, 1}};
    if (transposed) {
        t.dims[2] = x->d;
        t.dims[3] = x->s;
        t.strides[2] = 1;
        t.strides[3] = x->b * stride;
    }
    return dtp_cudnn_tensor(x->g, &t);
}

/* A contiguous one, virtual when id is 0. */
static tensor dense(struct builder *x, int64_t id, cudnnDataType_t type, int64_t n, int64_t m) {
    const struct dtp_cudnn_tensor t = {
        .id = id, .type = type, .dims = {x->b, x->h, n, m}, .strides = {x->h * n * m, n * m, m, 1}};
    return dtp_cudnn_tensor(x->g, &t);
}

static tensor scores(struct builder *x, cudnnDataType_t type) {
    return dense(x, 0, type, x->s, x->s);
}

static tensor per_row(struct builder *x, int64_t id) {
    return dense(x, id, FLOATS, x->s, 1);
}

static tensor number(struct builder *x, int64_t id) {
    const struct dtp_cudnn_tensor t = {
        .id = id, .type = FLOATS, .dims = {1, 1, 1, 1}, .strides = {1, 1, 1, 1}, .by_value = true};
    return dtp_cudnn_tensor(x->g, &t);
}

static tensor point(struct builder *x, cudnnPointwiseMode_t mode, tensor a, tensor b, tensor y) {
    dtp_cudnn_pointwise(x->g, &(struct dtp_cudnn_pointwise){mode, FLOATS, 0, a, b, NULL, y});
    return y;
}

static tensor index_of(struct builder *x, tensor like, int64_t axis) {
    tensor y = scores(x, CUDNN_DATA_INT32);
    dtp_cudnn_pointwise(x->g, &(struct dtp_cudnn_pointwise){CUDNN_POINTWISE_GEN_INDEX, FLOATS, axis,
                                                            like, NULL, NULL, y});
    return y;
}

/* s where the key is not after the query, else -infinity */
static tensor causal(struct builder *x, tensor s) {
    tensor row = index_of(x, s, 2), column = index_of(x, s, 3);
    tensor seen = scores(x, CUDNN_DATA_BOOLEAN), y = scores(x, FLOATS);
    dtp_cudnn_pointwise(x->g,
                        &(struct dtp_cudnn_pointwise){CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, 0,
                                                      row, column, NULL, seen});
    dtp_cudnn_pointwise(x->g, &(struct dtp_cudnn_pointwise){CUDNN_POINTWISE_BINARY_SELECT, FLOATS,
                                                            0, s, number(x, MASKED), seen, y});
    return y;
}

static tensor scaled_scores(struct builder *x, tensor q, tensor kt, tensor scale) {
    tensor s = scores(x, FLOATS);
    dtp_cudnn_matmul(x->g, q, kt, s);
    return point(x, CUDNN_POINTWISE_MUL, s, scale, scores(x, FLOATS));
}

static void forward(struct builder *x) {
    tensor q = rows(x, Q, x->h, false), kt = rows(x, K, x->kv, true);
    tensor s = causal(x, scaled_scores(x, q, kt, number(x, SCALE)));
    tensor most = per_row(x, 0), sum = per_row(x, 0);
    dtp_cudnn_reduce(x->g, CUDNN_REDUCE_TENSOR_MAX, s, most);
    tensor shifted = point(x, CUDNN_POINTWISE_SUB, s, most, scores(x, FLOATS));
    tensor e = point(x, CUDNN_POINTWISE_EXP, shifted, NULL, scores(x, FLOATS));
    dtp_cudnn_reduce(x->g, CUDNN_REDUCE_TENSOR_ADD, e, sum);
    tensor log_sum = point(x, CUDNN_POINTWISE_LOG, sum, NULL, per_row(x, 0));
    (void)point(x, CUDNN_POINTWISE_ADD, most, log_sum, per_row(x, STATS));
    tensor p = point(x, CUDNN_POINTWISE_DIV, e, sum, scores(x, x->type));
    dtp_cudnn_matmul(x->g, p, rows(x, V, x->kv, false), rows(x, O, x->h, false));
}

/* dy = left^T right, summed over the query heads of a group */
static void key_gradient(struct builder *x, tensor left, tensor right, int64_t id) {
    const struct dtp_cudnn_tensor turned = {.type = x->type,
                                            .dims = {x->b, x->h, x->s, x->s},
                                            .strides = {x->h * x->s * x->s, x->s * x->s, 1, x->s}};
    tensor lt = dtp_cudnn_tensor(x->g, &turned), dy = rows(x, id, x->kv, false);
    dtp_cudnn_reshape(x->g, left, lt);
    if (x->h == x->kv) {
        dtp_cudnn_matmul(x->g, lt, right, dy);
        return;
    }
    tensor each = dense(x, 0, x->type, x->s, x->d);
    dtp_cudnn_matmul(x->g, lt, right, each);
    dtp_cudnn_reduce(x->g, CUDNN_REDUCE_TENSOR_ADD, each, dy);
}

/* rowsum(dO O) */
static tensor row_sums(struct builder *x, tensor d_o) {
    const struct dtp_cudnn_tensor product = {
        .type = FLOATS,
        .dims = {x->b, x->h, x->s, x->d},
        .strides = {x->h * x->s * x->d, x->s * x->d, x->h * x->d, 1}};
    tensor both = point(x, CUDNN_POINTWISE_MUL, d_o, rows(x, O, x->h, false),
                        dtp_cudnn_tensor(x->g, &product));
    tensor sum = per_row(x, 0);
    dtp_cudnn_reduce(x->g, CUDNN_REDUCE_TENSOR_ADD, both, sum);
    return point(x, CUDNN_POINTWISE_MUL, sum, number(x, ONE), per_row(x, DELTA));
}

static void backward(struct builder *x, bool exact) {
    tensor d_o = rows(x, DO, x->h, false), delta = row_sums(x, d_o);
    tensor q = rows(x, Q, x->h, false), kt = rows(x, K, x->kv, true), scale = number(x, SCALE);
    tensor s = scaled_scores(x, q, kt, scale);
    s = point(x, CUDNN_POINTWISE_SUB, s, per_row(x, STATS), scores(x, FLOATS));
    tensor p = point(x, CUDNN_POINTWISE_EXP, causal(x, s), NULL, scores(x, FLOATS));
    key_gradient(x, p, d_o, DV);
    tensor dp = scores(x, FLOATS), k = rows(x, 0, x->kv, false);
    dtp_cudnn_matmul(x->g, d_o, rows(x, V, x->kv, true), dp);
    dp = point(x, CUDNN_POINTWISE_SUB, dp, delta, scores(x, FLOATS));
    dp = point(x, CUDNN_POINTWISE_MUL, dp, p, scores(x, FLOATS));
    dp = point(x, CUDNN_POINTWISE_MUL, dp, scale, scores(x, FLOATS));
    key_gradient(x, dp, q, DK);
    dtp_cudnn_reshape(x->g, kt, k);
    tensor dq = rows(x, DQ, x->h, false);
    if (exact) {
        dtp_cudnn_matmul(x->g, dp, k, dq);
        return;
    }
    tensor sum = dense(x, DQ_SUM, FLOATS, x->s, x->d);
    dtp_cudnn_matmul(x->g, dp, k, sum);
    (void)point(x, CUDNN_POINTWISE_IDENTITY, sum, NULL, dq);
}

bool dtp_attention_plan(struct dtp_cudnn_plan *p, const struct dtp_cudnn_api *api,
                        const struct dtp_attention_args *x, enum dtp_dtype dtype,
                        enum dtp_attention_pass pass) {
    *p = (struct dtp_cudnn_plan){.plan = NULL};
    struct builder b = {.g = &p->graph,
                        .b = x->batch,
                        .h = x->heads,
                        .kv = x->kv_heads,
                        .s = x->seq,
                        .d = x->head_dim,
                        .in = x->qkv_stride,
                        .out = x->out_stride,
                        .type = dtype == DTP_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF};
    dtp_cudnn_graph_start(&p->graph, api);
    if (pass == DTP_ATTENTION_FORWARD)
        forward(&b);
    else
        backward(&b, pass == DTP_ATTENTION_BACKWARD_EXACT);
    return p->graph.good && dtp_cudnn_build(p, pass == DTP_ATTENTION_BACKWARD_EXACT);
}

struct dtp_attention_space dtp_attention_space(const struct dtp_cudnn_plan *p,
                                               const struct dtp_attention_args *x,
                                               enum dtp_attention_pass pass) {
    enum { ALIGN = 256 };
    struct dtp_attention_space a = {0};
    uint64_t rows_bytes = (uint64_t)(x->batch * x->heads * x->seq) * sizeof(float), at = 0;
    if (pass != DTP_ATTENTION_FORWARD)
        at += (rows_bytes + ALIGN - 1) / ALIGN * ALIGN;
    a.dq = at;
    if (pass == DTP_ATTENTION_BACKWARD)
        at += (rows_bytes * (uint64_t)x->head_dim + ALIGN - 1) / ALIGN * ALIGN;
    a.plan = at;
    a.bytes = at + (uint64_t)p->workspace_bytes;
    return a;
}

bool dtp_attention_run(struct dtp_cudnn_plan *p, cudnnHandle_t handle,
                       const struct dtp_attention_args *x, enum dtp_attention_pass pass) {
    struct dtp_attention_space a = dtp_attention_space(p, x, pass);
    char *space = x->workspace;
    static float masked = -INFINITY, one = 1;
    p->number = 1 / sqrtf((float)x->head_dim);
    bool back = pass != DTP_ATTENTION_FORWARD;
    const struct {
        int64_t id;
        const void *at;
        bool used;
    } all[] = {{Q, x->q, true},
               {K, x->k, true},
               {V, x->v, true},
               {O, x->out, true},
               {STATS, x->saved, true},
               {SCALE, &p->number, true},
               {MASKED, &masked, true},
               {ONE, &one, back},
               {DO, x->dout, back},
               {DQ, x->dq, back},
               {DK, x->dk, back},
               {DV, x->dv, back},
               {DELTA, space + a.delta, back},
               {DQ_SUM, space + a.dq, pass == DTP_ATTENTION_BACKWARD}};
    int64_t ids[NIDS];
    void *pointers[NIDS];
    struct dtp_cudnn_run run = {.ids = ids, .pointers = pointers, .workspace = space + a.plan};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].used) {
            ids[run.n] = all[i].id;
            pointers[run.n++] = (void *)(uintptr_t)all[i].at; /* cuDNN takes inputs so */
        }
    return dtp_cudnn_execute(p, handle, &run);
}
