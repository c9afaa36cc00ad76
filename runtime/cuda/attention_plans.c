/* The device opens cuDNN's attention if it is found, and keeps one plan per shape and pass. Without cuDNN's
 * headers at build time there is none. */
#include <stdlib.h>
#include <string.h>

#include "runtime/cuda/cuda.h"

/* These are the values of DTPLAN_CUDA_ATTENTION. */
static const struct {
    const char *name;
    enum dtp_cuda_attention kind;
} kinds[] = {{"cudnn", DTP_CUDA_ATTENTION_CUDNN},
             {"exact", DTP_CUDA_ATTENTION_EXACT},
             {"own", DTP_CUDA_ATTENTION_OWN},
             {"simple", DTP_CUDA_ATTENTION_SIMPLE}};

static enum dtp_status choose(struct dtp_cuda *c, struct dtp_err *err) {
    const char *name = getenv("DTPLAN_CUDA_ATTENTION");
    c->attention = DTP_CUDA_ATTENTION_AUTO;
    for (size_t i = 0; name && i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(name, kinds[i].name) == 0)
            c->attention = kinds[i].kind;
    if (name && c->attention == DTP_CUDA_ATTENTION_AUTO)
        return dtp_fail(err, DTP_EUSAGE,
                        "DTPLAN_CUDA_ATTENTION=%s: expected cudnn, exact, own or simple", name);
    return DTP_OK;
}

#ifdef DTP_WITH_CUDNN

#include "runtime/cuda/attention_cudnn.h"

struct shape {
    int64_t batch, seq, heads, kv_heads, head_dim, qkv_stride, out_stride;
};

struct plan {
    struct plan *next;
    struct shape shape;
    enum dtp_attention_pass pass;
    bool valid;
    struct dtp_cudnn_plan cudnn;
};

struct dtp_cuda_fused {
    struct dtp_cudnn_api api;
    cudnnHandle_t handle;
    enum dtp_attention_pass backward;
    struct dtp_arena *arena;
    struct plan *plans; /* newest first; a calibration asks for hundreds */
};

static enum dtp_status open_cudnn(struct dtp_cuda *c, struct dtp_cuda_fused *f,
                                  struct dtp_err *err) {
    DTP_TRY(dtp_cudnn_load(&f->api, err));
    DTP_TRY(dtp_cudnn_device(&f->api, c->index, NULL, err));
    cudnnStatus_t s = f->api.cudnnCreate(&f->handle);
    if (s == CUDNN_STATUS_SUCCESS)
        s = f->api.cudnnSetStream(f->handle, dtp_cuda_compute(c));
    return s == CUDNN_STATUS_SUCCESS
               ? DTP_OK
               : dtp_fail(err, DTP_EUNSUPPORTED, "cuDNN does not open: status %d", (int)s);
}

enum dtp_status dtp_cuda_fused_open(struct dtp_arena *a, struct dtp_cuda *c, struct dtp_err *err) {
    DTP_TRY(choose(c, err));
    bool wanted =
        c->attention == DTP_CUDA_ATTENTION_CUDNN || c->attention == DTP_CUDA_ATTENTION_EXACT;
    bool half = c->dev.dtype == DTP_BF16 || c->dev.dtype == DTP_FP16;
    if (!half || (!wanted && c->attention != DTP_CUDA_ATTENTION_AUTO))
        return DTP_OK;
    struct dtp_cuda_fused *f = DTP_NEW(a, struct dtp_cuda_fused, 1);
    struct dtp_err why = {0};
    f->arena = a;
    f->backward = c->attention == DTP_CUDA_ATTENTION_EXACT ? DTP_ATTENTION_BACKWARD_EXACT
                                                           : DTP_ATTENTION_BACKWARD;
    if (open_cudnn(c, f, &why) == DTP_OK)
        c->fused = f;
    else if (wanted)
        return dtp_fail(err, DTP_EUNSUPPORTED, "attention of cuDNN: %s", why.msg);
    return DTP_OK;
}

void dtp_cuda_fused_close(struct dtp_cuda *c) {
    struct dtp_cuda_fused *f = c->fused;
    if (!f)
        return;
    for (struct plan *p = f->plans; p; p = p->next)
        dtp_cudnn_destroy(&p->cudnn);
    (void)f->api.cudnnDestroy(f->handle);
    dtp_cudnn_unload(&f->api);
    c->fused = NULL;
}

/* Returns the plan of a shape, made at its first use; NULL: there is none. */
static struct dtp_cudnn_plan *plan_of(struct dtp_cuda *c, const struct dtp_attention_args *x,
                                      enum dtp_attention_pass pass) {
    struct dtp_cuda_fused *f = c->fused;
    const struct shape s = {x->batch,    x->seq,        x->heads,     x->kv_heads,
                            x->head_dim, x->qkv_stride, x->out_stride};
    struct plan *p = f->plans;
    while (p && (p->pass != pass || memcmp(&p->shape, &s, sizeof s) != 0))
        p = p->next;
    if (!p) {
        p = DTP_NEW(f->arena, struct plan, 1);
        *p = (struct plan){.next = f->plans, .shape = s, .pass = pass};
        p->valid = dtp_attention_plan(&p->cudnn, &f->api, x, c->dev.dtype, pass);
        f->plans = p;
    }
    return p->valid ? &p->cudnn : NULL;
}

static bool aligned(const void *p) {
    enum { BYTES = 16 };
    return (uintptr_t)p % BYTES == 0;
}

uint64_t dtp_cuda_fused_workspace_bytes(struct dtp_cuda *c, const struct dtp_attention_args *x) {
    const enum dtp_attention_pass pass[] = {DTP_ATTENTION_FORWARD,
                                            c->fused ? c->fused->backward : DTP_ATTENTION_FORWARD};
    uint64_t most = 0;
    for (int i = 0; c->fused && i < 2; i++) {
        const struct dtp_cudnn_plan *p = plan_of(c, x, pass[i]);
        uint64_t bytes = p ? dtp_attention_space(p, x, pass[i]).bytes : 0;
        most = bytes > most ? bytes : most;
    }
    return most;
}

static bool run(struct dtp_cuda *c, const struct dtp_attention_args *x,
                enum dtp_attention_pass pass) {
    struct dtp_cudnn_plan *p = plan_of(c, x, pass);
    if (!p)
        return false;
    if (!dtp_attention_run(p, c->fused->handle, x, pass))
        dtp_cuda_fail(c, "cuDNN's attention fails to start: %s",
                      cudaGetErrorString(cudaPeekAtLastError()));
    return true;
}

bool dtp_cuda_fused_forward(struct dtp_cuda *c, const struct dtp_attention_args *x) {
    return c->fused && aligned(x->q) && aligned(x->k) && aligned(x->v) && aligned(x->out) &&
           run(c, x, DTP_ATTENTION_FORWARD);
}

bool dtp_cuda_fused_backward(struct dtp_cuda *c, const struct dtp_attention_args *x) {
    return c->fused && aligned(x->q) && aligned(x->k) && aligned(x->v) && aligned(x->out) &&
           aligned(x->dout) && aligned(x->dq) && aligned(x->dk) && aligned(x->dv) &&
           run(c, x, c->fused->backward);
}

#else

enum dtp_status dtp_cuda_fused_open(struct dtp_arena *a, struct dtp_cuda *c, struct dtp_err *err) {
    (void)a;
    DTP_TRY(choose(c, err));
    if (c->attention == DTP_CUDA_ATTENTION_CUDNN || c->attention == DTP_CUDA_ATTENTION_EXACT)
        return dtp_fail(err, DTP_EUNSUPPORTED,
                        "this CUDA module was built without cuDNN's headers");
    return DTP_OK;
}
void dtp_cuda_fused_close(struct dtp_cuda *c) {
    (void)c;
}
uint64_t dtp_cuda_fused_workspace_bytes(struct dtp_cuda *c, const struct dtp_attention_args *x) {
    (void)c;
    (void)x;
    return 0;
}
bool dtp_cuda_fused_forward(struct dtp_cuda *c, const struct dtp_attention_args *x) {
    (void)c;
    (void)x;
    return false;
}
bool dtp_cuda_fused_backward(struct dtp_cuda *c, const struct dtp_attention_args *x) {
    (void)c;
    (void)x;
    return false;
}

#endif
