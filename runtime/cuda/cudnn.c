/* Graphs and plans of cuDNN's backend API. */
#include "runtime/cuda/cudnn.h"

#include <dlfcn.h>
#include <string.h>

#include "sim/base/mix.h"

enum { ALIGN_BYTES = 16, FIRST_VIRTUAL_ID = 1000, MAX_CONFIGS = 16, MAX_NOTES = 16 };

enum dtp_status dtp_cudnn_load(struct dtp_cudnn_api *api, struct dtp_err *err) {
    enum { OLDEST = 90800 }; /* plans from device properties */
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

void dtp_cudnn_graph_start(struct dtp_cudnn_graph *g, const struct dtp_cudnn_api *api) {
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

cudnnBackendDescriptor_t dtp_cudnn_tensor(struct dtp_cudnn_graph *g,
                                          const struct dtp_cudnn_tensor *t) {
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

void dtp_cudnn_matmul(struct dtp_cudnn_graph *g, cudnnBackendDescriptor_t a,
                      cudnnBackendDescriptor_t b, cudnnBackendDescriptor_t c) {
    cudnnBackendDescriptor_t kind = create(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    SET(g, kind, {CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &in_floats});
    cudnnBackendDescriptor_t op = operation(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    SET(g, op, DESCRIPTOR(OPERATION_MATMUL_ADESC, a), DESCRIPTOR(OPERATION_MATMUL_BDESC, b),
        DESCRIPTOR(OPERATION_MATMUL_CDESC, c), DESCRIPTOR(OPERATION_MATMUL_DESC, kind));
}

void dtp_cudnn_pointwise(struct dtp_cudnn_graph *g, const struct dtp_cudnn_pointwise *p) {
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

void dtp_cudnn_reduce(struct dtp_cudnn_graph *g, cudnnReduceTensorOp_t op,
                      cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t y) {
    cudnnBackendDescriptor_t kind = create(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    SET(g, kind, {CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &op},
        {CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &in_floats});
    cudnnBackendDescriptor_t o = operation(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    SET(g, o, DESCRIPTOR(OPERATION_REDUCTION_XDESC, x), DESCRIPTOR(OPERATION_REDUCTION_YDESC, y),
        DESCRIPTOR(OPERATION_REDUCTION_DESC, kind));
}

void dtp_cudnn_reshape(struct dtp_cudnn_graph *g, cudnnBackendDescriptor_t x,
                       cudnnBackendDescriptor_t y) {
    cudnnBackendDescriptor_t op = operation(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    SET(g, op, DESCRIPTOR(OPERATION_RESHAPE_XDESC, x), DESCRIPTOR(OPERATION_RESHAPE_YDESC, y));
}

/* ---- plans ---- */

/* What cuDNN says of the kernel's sums. */
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

/* True when the configuration became p->plan. */
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

bool dtp_cudnn_build(struct dtp_cudnn_plan *p, bool deterministic) {
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

static bool make_pack(const struct dtp_cudnn_api *api, const struct dtp_cudnn_run *run,
                      struct dtp_cudnn_pack *pack) {
    struct dtp_cudnn_graph g;
    dtp_cudnn_graph_start(&g, api);
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

bool dtp_cudnn_execute(struct dtp_cudnn_plan *p, cudnnHandle_t handle,
                       const struct dtp_cudnn_run *run) {
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
