/* Builds graphs of operations for cuDNN's backend API, their execution plans, and causal attention as such graphs. */
#include "runtime/cuda/attention_cudnn.h"

#include <dlfcn.h>
#include <math.h>
#include <string.h>

#include "sim/base/mix.h"

/* A tensor with id 0 is virtual: it exists within the graph only. by_value marks one number, which the host gives. */
struct tensor {
    int64_t id;
    cudnnDataType_t type;
    int64_t dims[4], strides[4];
    bool by_value;
};

/* A pointwise operation computes y = mode(x, b), or t ? x : b; b or t is NULL if it is not used. GEN_INDEX counts
 * along axis. */
struct pointwise {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t math;
    int64_t axis;
    cudnnBackendDescriptor_t x, b, t, y;
};

/* One run of a plan names its tensors by id. A number of the host is given by address, which must stay valid as long
 * as the plan. Each run of a plan has the same ids. */
struct run {
    const int64_t *ids;
    void *const *pointers;
    int n; /* DTP_CUDNN_POINTERS at most */
    void *workspace;
};

enum { ALIGN_BYTES = 16, FIRST_VIRTUAL_ID = 1000, MAX_CONFIGS = 16, MAX_NOTES = 16 };

enum dtp_status dtp_cudnn_load(struct dtp_cudnn_api *api, struct dtp_err *err) {
    enum { OLDEST = 90800 }; /* it makes plans from device properties */
    void *library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return dtp_fail(err, DTP_EUNSUPPORTED, "%s", dlerror());
#define LOAD(f)                                                                                    \
    {                                                                                              \
        void *found = dlsym(library, #f);                                                          \
        if (!found)                                                                                \
            return dtp_fail(err, DTP_EUNSUPPORTED, "cuDNN lacks " #f);                             \
        memcpy(&api->f, &found, sizeof found);                                                     \
    }
    DTP_CUDNN_FUNCTIONS(LOAD)
    if (api->cudnnGetVersion() < OLDEST)
        return dtp_fail(err, DTP_EUNSUPPORTED, "cuDNN %zu is older than 9.8",
                        api->cudnnGetVersion());
    return DTP_OK;
}

enum dtp_status dtp_cudnn_device(struct dtp_cudnn_api *api, int index, const char *json,
                                 struct dtp_err *err) {
    int32_t id = index;
    cudnnBackendDescriptor_t d = NULL;
    cudnnStatus_t s = api->cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &d);
    if (s == CUDNN_STATUS_SUCCESS && json)
        s = api->cudnnBackendSetAttribute(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                          CUDNN_TYPE_CHAR, (int64_t)strlen(json), json);
    else if (s == CUDNN_STATUS_SUCCESS)
        s = api->cudnnBackendSetAttribute(d, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, 1,
                                          &id);
    if (s == CUDNN_STATUS_SUCCESS)
        s = api->cudnnBackendFinalize(d);
    if (s != CUDNN_STATUS_SUCCESS && d)
        (void)api->cudnnBackendDestroyDescriptor(d);
    if (s != CUDNN_STATUS_SUCCESS)
        return dtp_fail(err, DTP_EUNSUPPORTED, "cuDNN, properties of the device: status %d",
                        (int)s);
    api->device = d;
    return DTP_OK;
}

void dtp_cudnn_unload(struct dtp_cudnn_api *api) {
    if (api->device)
        (void)api->cudnnBackendDestroyDescriptor(api->device);
    api->device = NULL;
}

/* ---- descriptors ---- */

static void start_graph(struct dtp_cudnn_graph *g, const struct dtp_cudnn_api *api) {
    *g = (struct dtp_cudnn_graph){.api = api, .next_id = FIRST_VIRTUAL_ID, .good = true};
}

static cudnnBackendDescriptor_t create(struct dtp_cudnn_graph *g,
                                       cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t d = NULL;
    g->good = g->good && g->nmade < DTP_CUDNN_DESCRIPTORS &&
              g->api->cudnnBackendCreateDescriptor(type, &d) == CUDNN_STATUS_SUCCESS;
    if (!g->good)
        return NULL;
    g->made[g->nmade++] = d;
    return d;
}

struct attribute {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t n;
    const void *value; /* NULL: not set */
};

static void set_all(struct dtp_cudnn_graph *g, cudnnBackendDescriptor_t d,
                    const struct attribute *a, size_t n) {
    for (size_t i = 0; i < n && g->good; i++)
        g->good = !a[i].value ||
                  g->api->cudnnBackendSetAttribute(d, a[i].name, a[i].type, a[i].n, a[i].value) ==
                      CUDNN_STATUS_SUCCESS;
    g->good = g->good && g->api->cudnnBackendFinalize(d) == CUDNN_STATUS_SUCCESS;
}
#define SET(g, d, ...)                                                                             \
    set_all((g), (d), (const struct attribute[]){__VA_ARGS__},                                     \
            sizeof((const struct attribute[]){__VA_ARGS__}) / sizeof(struct attribute))
#define DESCRIPTOR(name, d)                                                                        \
    { CUDNN_ATTR_##name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, (d) ? &(d) : NULL }

static cudnnBackendDescriptor_t add_tensor(struct dtp_cudnn_graph *g, const struct tensor *t) {
    const int64_t align = ALIGN_BYTES, id = t->id ? t->id : g->next_id++;
    const bool is_virtual = t->id == 0;
    cudnnBackendDescriptor_t d = create(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    SET(g, d, {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &t->type},
        {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, t->dims},
        {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, t->strides},
        {CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id},
        {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align},
        {CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual},
        {CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &t->by_value});
    return d;
}

static cudnnBackendDescriptor_t operation(struct dtp_cudnn_graph *g,
                                          cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t d = create(g, type);
    g->good = g->good && g->noperations < DTP_CUDNN_OPERATIONS;
    if (g->good)
        g->operation[g->noperations++] = d;
    return d;
}

static const cudnnDataType_t in_floats = CUDNN_DATA_FLOAT;

static void add_matmul(struct dtp_cudnn_graph *g, cudnnBackendDescriptor_t a,
                       cudnnBackendDescriptor_t b, cudnnBackendDescriptor_t c) {
    cudnnBackendDescriptor_t kind = create(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    SET(g, kind, {CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &in_floats});
    cudnnBackendDescriptor_t op = operation(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    SET(g, op, DESCRIPTOR(OPERATION_MATMUL_ADESC, a), DESCRIPTOR(OPERATION_MATMUL_BDESC, b),
        DESCRIPTOR(OPERATION_MATMUL_CDESC, c), DESCRIPTOR(OPERATION_MATMUL_DESC, kind));
}

static void add_pointwise(struct dtp_cudnn_graph *g, const struct pointwise *p) {
    cudnnBackendDescriptor_t kind = create(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    bool indices = p->mode == CUDNN_POINTWISE_GEN_INDEX;
    SET(g, kind, {CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &p->mode},
        {CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &p->math},
        {CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, indices ? &p->axis : NULL});
    cudnnBackendDescriptor_t op = operation(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    SET(g, op, DESCRIPTOR(OPERATION_POINTWISE_PW_DESCRIPTOR, kind),
        DESCRIPTOR(OPERATION_POINTWISE_XDESC, p->x), DESCRIPTOR(OPERATION_POINTWISE_BDESC, p->b),
        DESCRIPTOR(OPERATION_POINTWISE_TDESC, p->t), DESCRIPTOR(OPERATION_POINTWISE_YDESC, p->y));
}

static void add_reduce(struct dtp_cudnn_graph *g, cudnnReduceTensorOp_t op,
                       cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t y) {
    cudnnBackendDescriptor_t kind = create(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    SET(g, kind, {CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &op},
        {CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &in_floats});
    cudnnBackendDescriptor_t o = operation(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    SET(g, o, DESCRIPTOR(OPERATION_REDUCTION_XDESC, x), DESCRIPTOR(OPERATION_REDUCTION_YDESC, y),
        DESCRIPTOR(OPERATION_REDUCTION_DESC, kind));
}

static void add_reshape(struct dtp_cudnn_graph *g, cudnnBackendDescriptor_t x,
                        cudnnBackendDescriptor_t y) {
    cudnnBackendDescriptor_t op = operation(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    SET(g, op, DESCRIPTOR(OPERATION_RESHAPE_XDESC, x), DESCRIPTOR(OPERATION_RESHAPE_YDESC, y));
}

/* ---- plans ---- */

/* Returns true if cuDNN says that the kernel's sums are the same in each run. */
static bool repeats(const struct dtp_cudnn_api *api, cudnnBackendDescriptor_t config) {
    cudnnBackendNumericalNote_t note[MAX_NOTES];
    cudnnBackendDescriptor_t engine = NULL;
    int64_t n = 0;
    if (api->cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) !=
        CUDNN_STATUS_SUCCESS)
        return false;
    bool known = api->cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                               CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                                               &engine) == CUDNN_STATUS_SUCCESS &&
                 api->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                               CUDNN_TYPE_NUMERICAL_NOTE, MAX_NOTES, &n,
                                               note) == CUDNN_STATUS_SUCCESS;
    for (int64_t i = 0; known && i < n && i < MAX_NOTES; i++)
        known = note[i] != CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    (void)api->cudnnBackendDestroyDescriptor(engine);
    return known;
}

/* Returns true if the configuration became p->plan. */
static bool take_config(struct dtp_cudnn_plan *p, cudnnBackendDescriptor_t config) {
    struct dtp_cudnn_graph attempt = p->graph; /* a failure spoils the copy only */
    const struct dtp_cudnn_api *api = attempt.api;
    int64_t n;
    attempt.nmade = 0;
    cudnnBackendDescriptor_t plan = create(&attempt, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    SET(&attempt, plan, DESCRIPTOR(EXECUTION_PLAN_ENGINE_CONFIG, config),
        DESCRIPTOR(EXECUTION_PLAN_DEVICEPROP, api->device));
    if (attempt.good && api->cudnnBackendGetAttribute(
                            plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n,
                            &p->workspace_bytes) == CUDNN_STATUS_SUCCESS) {
        p->plan = plan;
        p->deterministic = repeats(api, config);
        return true;
    }
    if (plan)
        (void)api->cudnnBackendDestroyDescriptor(plan);
    return false;
}

static bool build_plan(struct dtp_cudnn_plan *p, bool deterministic) {
    struct dtp_cudnn_graph *g = &p->graph;
    const struct dtp_cudnn_api *api = g->api;
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    cudnnBackendDescriptor_t graph = create(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    SET(g, graph,
        {CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->noperations,
         g->operation});
    cudnnBackendDescriptor_t heuristic = create(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    SET(g, heuristic, DESCRIPTOR(ENGINEHEUR_OPERATION_GRAPH, graph),
        {CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode},
        DESCRIPTOR(ENGINEHEUR_DEVICEPROP, api->device));
    cudnnBackendDescriptor_t config[MAX_CONFIGS];
    int64_t n = 0;
    for (int i = 0; i < MAX_CONFIGS; i++)
        config[i] = create(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (!g->good || api->cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                  CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_CONFIGS, &n,
                                                  config) != CUDNN_STATUS_SUCCESS)
        return false;
    p->nconfigs = n;
    for (int64_t i = 0; i < n && i < MAX_CONFIGS && !p->plan; i++)
        if (!deterministic || repeats(api, config[i]))
            (void)take_config(p, config[i]);
    return p->plan != NULL;
}

void dtp_cudnn_destroy(struct dtp_cudnn_plan *p) {
    const struct dtp_cudnn_api *api = p->graph.api;
    for (int i = 0; i < DTP_CUDNN_PACKS; i++)
        if (p->pack[i].made)
            (void)api->cudnnBackendDestroyDescriptor(p->pack[i].made);
    if (p->plan)
        (void)api->cudnnBackendDestroyDescriptor(p->plan);
    while (p->graph.nmade > 0)
        (void)api->cudnnBackendDestroyDescriptor(p->graph.made[--p->graph.nmade]);
    *p = (struct dtp_cudnn_plan){.plan = NULL};
}

static bool make_pack(const struct dtp_cudnn_api *api, const struct run *run,
                      struct dtp_cudnn_pack *pack) {
    struct dtp_cudnn_graph g;
    start_graph(&g, api);
    if (pack->made)
        (void)api->cudnnBackendDestroyDescriptor(pack->made);
    pack->made = create(&g, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    SET(&g, pack->made,
        {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, run->n, run->pointers},
        {CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, run->n, run->ids},
        {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &run->workspace});
    if (!g.good && pack->made)
        (void)api->cudnnBackendDestroyDescriptor(pack->made);
    if (!g.good)
        pack->made = NULL;
    memcpy(pack->pointers, run->pointers, (size_t)run->n * sizeof *run->pointers);
    pack->workspace = run->workspace;
    return g.good;
}

static bool execute_plan(struct dtp_cudnn_plan *p, cudnnHandle_t handle, const struct run *run) {
    const struct dtp_cudnn_api *api = p->graph.api;
    size_t bytes = (size_t)run->n * sizeof *run->pointers;
    uint64_t h = DTP_FNV_START;
    for (int i = 0; i < run->n; i++)
        h = dtp_fnv(h, (uintptr_t)run->pointers[i]);
    struct dtp_cudnn_pack *pack = &p->pack[(h >> 32) % DTP_CUDNN_PACKS];
    bool same = pack->made && pack->workspace == run->workspace &&
                memcmp(pack->pointers, run->pointers, bytes) == 0;
    return (same || make_pack(api, run, pack)) &&
           api->cudnnBackendExecute(handle, p->plan, pack->made) == CUDNN_STATUS_SUCCESS;
}

/* ---- causal attention ---- */

#define FLOATS CUDNN_DATA_FLOAT

/* These are the tensors that a caller has; 0 is a virtual one. */
enum { Q = 1, K, V, O, STATS, DO, DQ, DK, DV, DQ_SUM, DELTA, SCALE, MASKED, ONE, NIDS };

typedef cudnnBackendDescriptor_t tensor;

/* A builder holds the shapes of one attention, and the graph that it builds. */
struct builder {
    struct dtp_cudnn_graph *g;
    int64_t b, h, kv, s, d; /* sequences, query and key heads, positions, head_dim */
    int64_t in, out;        /* elements between rows of q, k, v; of out */
    cudnnDataType_t type;
};

/* Describes [b, heads, s, d] in rows of position * b + sequence; transposed, the same elements are [b, heads, d, s]. */
static tensor rows(struct builder *x, int64_t id, int64_t heads, bool transposed) {
    bool query_like = id == O || id == DO;
    int64_t stride = query_like ? x->out : x->in;
    struct tensor t = {.id = id,
                       .type = x->type,
                       .dims = {x->b, heads, x->s, x->d},
                       .strides = {stride, x->d, x->b * stride, 1}};
    if (transposed) {
        t.dims[2] = x->d;
        t.dims[3] = x->s;
        t.strides[2] = 1;
        t.strides[3] = x->b * stride;
    }
    return add_tensor(x->g, &t);
}

/* Describes a contiguous tensor, which is virtual if id is 0. */
static tensor dense(struct builder *x, int64_t id, cudnnDataType_t type, int64_t n, int64_t m) {
    const struct tensor t = {
        .id = id, .type = type, .dims = {x->b, x->h, n, m}, .strides = {x->h * n * m, n * m, m, 1}};
    return add_tensor(x->g, &t);
}

static tensor scores(struct builder *x, cudnnDataType_t type) {
    return dense(x, 0, type, x->s, x->s);
}

static tensor per_row(struct builder *x, int64_t id) {
    return dense(x, id, FLOATS, x->s, 1);
}

static tensor number(struct builder *x, int64_t id) {
    const struct tensor t = {
        .id = id, .type = FLOATS, .dims = {1, 1, 1, 1}, .strides = {1, 1, 1, 1}, .by_value = true};
    return add_tensor(x->g, &t);
}

static tensor point(struct builder *x, cudnnPointwiseMode_t mode, tensor a, tensor b, tensor y) {
    add_pointwise(x->g, &(struct pointwise){mode, FLOATS, 0, a, b, NULL, y});
    return y;
}

static tensor index_of(struct builder *x, tensor like, int64_t axis) {
    tensor y = scores(x, CUDNN_DATA_INT32);
    add_pointwise(
        x->g, &(struct pointwise){CUDNN_POINTWISE_GEN_INDEX, FLOATS, axis, like, NULL, NULL, y});
    return y;
}

/* Returns s if the key is not after the query, else -infinity. */
static tensor causal(struct builder *x, tensor s) {
    tensor row = index_of(x, s, 2), column = index_of(x, s, 3);
    tensor seen = scores(x, CUDNN_DATA_BOOLEAN), y = scores(x, FLOATS);
    add_pointwise(x->g, &(struct pointwise){CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, 0, row,
                                            column, NULL, seen});
    add_pointwise(x->g, &(struct pointwise){CUDNN_POINTWISE_BINARY_SELECT, FLOATS, 0, s,
                                            number(x, MASKED), seen, y});
    return y;
}

static tensor scaled_scores(struct builder *x, tensor q, tensor kt, tensor scale) {
    tensor s = scores(x, FLOATS);
    add_matmul(x->g, q, kt, s);
    return point(x, CUDNN_POINTWISE_MUL, s, scale, scores(x, FLOATS));
}

static void forward(struct builder *x) {
    tensor q = rows(x, Q, x->h, false), kt = rows(x, K, x->kv, true);
    tensor s = causal(x, scaled_scores(x, q, kt, number(x, SCALE)));
    tensor most = per_row(x, 0), sum = per_row(x, 0);
    add_reduce(x->g, CUDNN_REDUCE_TENSOR_MAX, s, most);
    tensor shifted = point(x, CUDNN_POINTWISE_SUB, s, most, scores(x, FLOATS));
    tensor e = point(x, CUDNN_POINTWISE_EXP, shifted, NULL, scores(x, FLOATS));
    add_reduce(x->g, CUDNN_REDUCE_TENSOR_ADD, e, sum);
    tensor log_sum = point(x, CUDNN_POINTWISE_LOG, sum, NULL, per_row(x, 0));
    (void)point(x, CUDNN_POINTWISE_ADD, most, log_sum, per_row(x, STATS));
    tensor p = point(x, CUDNN_POINTWISE_DIV, e, sum, scores(x, x->type));
    add_matmul(x->g, p, rows(x, V, x->kv, false), rows(x, O, x->h, false));
}

/* Computes dy = left^T right, summed over the query heads of a group. */
static void key_gradient(struct builder *x, tensor left, tensor right, int64_t id) {
    const struct tensor turned = {.type = x->type,
                                  .dims = {x->b, x->h, x->s, x->s},
                                  .strides = {x->h * x->s * x->s, x->s * x->s, 1, x->s}};
    tensor lt = add_tensor(x->g, &turned), dy = rows(x, id, x->kv, false);
    add_reshape(x->g, left, lt);
    if (x->h == x->kv) {
        add_matmul(x->g, lt, right, dy);
        return;
    }
    tensor each = dense(x, 0, x->type, x->s, x->d);
    add_matmul(x->g, lt, right, each);
    add_reduce(x->g, CUDNN_REDUCE_TENSOR_ADD, each, dy);
}

/* Computes rowsum(dO O). */
static tensor row_sums(struct builder *x, tensor d_o) {
    const struct tensor product = {.type = FLOATS,
                                   .dims = {x->b, x->h, x->s, x->d},
                                   .strides = {x->h * x->s * x->d, x->s * x->d, x->h * x->d, 1}};
    tensor both =
        point(x, CUDNN_POINTWISE_MUL, d_o, rows(x, O, x->h, false), add_tensor(x->g, &product));
    tensor sum = per_row(x, 0);
    add_reduce(x->g, CUDNN_REDUCE_TENSOR_ADD, both, sum);
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
    add_matmul(x->g, d_o, rows(x, V, x->kv, true), dp);
    dp = point(x, CUDNN_POINTWISE_SUB, dp, delta, scores(x, FLOATS));
    dp = point(x, CUDNN_POINTWISE_MUL, dp, p, scores(x, FLOATS));
    dp = point(x, CUDNN_POINTWISE_MUL, dp, scale, scores(x, FLOATS));
    key_gradient(x, dp, q, DK);
    add_reshape(x->g, kt, k);
    tensor dq = rows(x, DQ, x->h, false);
    if (exact) {
        add_matmul(x->g, dp, k, dq);
        return;
    }
    tensor sum = dense(x, DQ_SUM, FLOATS, x->s, x->d);
    add_matmul(x->g, dp, k, sum);
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
    start_graph(&p->graph, api);
    if (pass == DTP_ATTENTION_FORWARD)
        forward(&b);
    else
        backward(&b, pass == DTP_ATTENTION_BACKWARD_EXACT);
    return p->graph.good && build_plan(p, pass == DTP_ATTENTION_BACKWARD_EXACT);
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
    struct run run = {.ids = ids, .pointers = pointers, .workspace = space + a.plan};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].used) {
            ids[run.n] = all[i].id;
            pointers[run.n++] = (void *)(uintptr_t)all[i].at; /* cuDNN's API has no const inputs */
        }
    return execute_plan(p, handle, &run);
}
