/* infer_kernels.c: what the kernels of a rank are, and what their grids tell. */
#include <stdlib.h>
#include <string.h>

#include "traces/replay/analyse.h"
#include "traces/replay/infer_private.h"

/* Parts of kernels' names, of PyTorch 1.13 to 2.9, cuDNN, FlashAttention, CK, Triton and vLLM. The first
 * that matches counts. */
static const struct {
    const char *part;
    enum infer_role role;
} roles[] = {{"dot_do_o", ROLE_ATTENTION_DOT},
             {"flash_fprop", ROLE_ATTENTION},
             {"flash_fwd", ROLE_ATTENTION},
             {"fmha_fwd", ROLE_ATTENTION},
             {"fmha_cutlassF", ROLE_ATTENTION},
             {"fmhaSm", ROLE_ATTENTION},
             {"attn_fwd", ROLE_ATTENTION},
             {"flash_bprop", ROLE_ATTENTION_BACKWARD},
             {"flash_bwd_dq_dk_dv", ROLE_ATTENTION_BACKWARD},
             {"fmha_cutlassB", ROLE_ATTENTION_BACKWARD},
             {"attn_bwd", ROLE_ATTENTION_BACKWARD},
             {"vectorized_gather_kernel", ROLE_GATHER},
             {"indexSelect", ROLE_GATHER},
             {"layer_norm_kernel", ROLE_NORM},
             {"rms_norm", ROLE_RMS},
             {"rsqrt_kernel", ROLE_RMS},
             {"mean_mul_pow_rsqrt", ROLE_RMS},
             {"silu_backward", ROLE_NONE},
             {"silu", ROLE_SILU},
             {"GeluBackward", ROLE_NONE},
             {"GeluCUDAKernel", ROLE_GELU},
             {"tanh_backward", ROLE_NONE},
             {"tanh_kernel", ROLE_TANH},
             {"LogSoftMaxForward", ROLE_LOSS_SOFTMAX},
             {"nll_loss_forward", ROLE_LOSS},
             {"vectorized_elementwise_kernel", ROLE_ADD},
             {"unrolled_elementwise_kernel", ROLE_CAST},
             {"cos_kernel", ROLE_ROPE},
             {"rotary", ROLE_ROPE},
             {"FusedAdam", ROLE_ADAM}};

static enum infer_role role_of(const char *name) {
    if (strstr(name, "nccl"))
        return ROLE_NONE;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (!strstr(name, roles[i].part))
            continue;
        bool add = roles[i].role == ROLE_ADD, cast = roles[i].role == ROLE_CAST;
        if (add && !strstr(name, "CUDAFunctor_add<c10::") && !strstr(name, "CUDAFunctor_add<c10"))
            continue;
        if (cast && !strstr(name, "direct_copy"))
            continue;
        return roles[i].role;
    }
    return ROLE_NONE;
}

/* "[16,1,1][64,1,1]" */
static void parse_shape(const char *text, struct infer_kernel *k) {
    char *at = (char *)(uintptr_t)text;
    for (int i = 0; i < 6; i++) {
        at += strspn(at, "[],");
        int64_t v = strtoll(at, &at, 10);
        if (i < 3)
            k->grid[i] = v;
        else
            k->block[i - 3] = v;
    }
}

static int by_kernel(const void *x, const void *y) {
    const struct dtp_trace_event *p = *(const struct dtp_trace_event *const *)x,
                                 *q = *(const struct dtp_trace_event *const *)y;
    if (p->name != q->name)
        return p->name < q->name ? -1 : 1;
    return p->shape < q->shape ? -1 : p->shape > q->shape;
}

static void count_kernels(struct infer *x, struct infer_rank *q) {
    const struct dtp_trace_rank *r = q->r;
    const struct dtp_trace_event **v =
        DTP_NEW(x->a, const struct dtp_trace_event *, r->nevents + 1);
    size_t n = 0;
    for (size_t i = 0; i < r->nevents; i++)
        if (dtp_trace_event(r, i)->kind == DTP_TRACE_KERNEL)
            v[n++] = dtp_trace_event(r, i);
    if (n > 1)
        qsort(v, n, sizeof *v, by_kernel);
    q->kernel = DTP_NEW(x->a, struct infer_kernel, n + 1);
    for (size_t i = 0, j; i < n; i = j) {
        struct infer_kernel *k = &q->kernel[q->nkernels++];
        for (j = i; j < n && by_kernel(&v[i], &v[j]) == 0; j++)
            k->n++;
        k->name = dtp_trace_name(r, v[i]->name);
        k->role = i > 0 && v[i]->name == v[i - 1]->name ? k[-1].role : role_of(k->name);
        if (v[i]->shape != DTP_TRACE_NONE)
            parse_shape(dtp_trace_name(r, v[i]->shape), k);
        q->count[k->role] += k->n;
    }
}

/* ---- the order of forwards and backwards ---- */

struct mark {
    int64_t start_ns;
    char what;
};
static int by_start(const void *x, const void *y) {
    const struct mark *p = x, *q = y;
    return p->start_ns < q->start_ns ? -1 : p->start_ns > q->start_ns;
}

static void find_order(struct infer *x, struct infer_rank *q) {
    const struct dtp_trace_rank *r = q->r;
    const struct dtp_trace_step *step;
    dtp_trace_steps(x->a, r, &step, &q->nsteps);
    q->nsteps = q->nsteps > 0 ? q->nsteps : 1;
    unsigned char *role = DTP_NEW(x->a, unsigned char, dtp_trace_nnames(r) + 1);
    struct mark *v = DTP_NEW(x->a, struct mark,
                             q->count[ROLE_ATTENTION] + q->count[ROLE_ATTENTION_BACKWARD] + 1);
    size_t n = 0;
    for (size_t i = 0; i < r->nevents; i++) {
        const struct dtp_trace_event *e = dtp_trace_event(r, i);
        if (e->kind != DTP_TRACE_KERNEL)
            continue;
        if (role[e->name] == 0)
            role[e->name] = (unsigned char)(1 + role_of(dtp_trace_name(r, e->name)));
        int what = role[e->name] - 1;
        if (what == ROLE_ATTENTION || what == ROLE_ATTENTION_BACKWARD)
            v[n++] = (struct mark){e->start_ns, what == ROLE_ATTENTION ? 'F' : 'B'};
    }
    qsort(v, n, sizeof *v, by_start);
    n /= q->nsteps; /* the steps are alike; the first is taken */
    char *order = DTP_NEW(x->a, char, n + 1);
    for (size_t i = 0; i < n; i++)
        order[i] = v[i].what;
    q->order = order;
}

/* ---- attention ---- */

/* "..._64x128x128_4x1x1..." of cuDNN: the last of the three is the head dimension; "traits<64," of
 * FlashAttention: the first; "H64" of TensorRT-LLM's. */
static int64_t head_dim_of(const char *name) {
    const char *at = strstr(name, "kernel_traits<");
    if (at)
        return strtoll(at + strlen("kernel_traits<"), NULL, 10);
    at = strstr(name, "OBfloat16H");
    if (at)
        return strtoll(at + strlen("OBfloat16H"), NULL, 10);
    at = strstr(name, "knob_");
    at = at ? strchr(at + strlen("knob_"), '_') : NULL;
    if (!at)
        return 0;
    char *end;
    int64_t dim = 0;
    strtoll(at + 1, &end, 10);
    for (int i = 0; i < 2 && *end == 'x'; i++)
        dim = strtoll(end + 1, &end, 10);
    return *end == '_' ? dim : 0;
}

static void look_at_attention(struct infer_rank *q) {
    for (size_t i = 0; i < q->nkernels; i++) {
        const struct infer_kernel *k = &q->kernel[i];
        int64_t dim = k->role == ROLE_ATTENTION ? head_dim_of(k->name) : 0;
        if (dim > 0)
            q->head_dim = dim;
        if (k->role == ROLE_ATTENTION_DOT && k->grid[1] > 0) {
            bool cudnn = strstr(k->name, "compute_dot_do_o") != NULL;
            q->batch = k->grid[1];
            q->heads = k->grid[2];
            q->seq =
                cudnn ? k->grid[0] * 8 : 0; /* 8 queries a block; FlashAttention rounds to 128 */
        } else if (k->role == ROLE_ATTENTION && q->heads == 0 && k->grid[2] > 1 &&
                   strstr(k->name, "flash_fwd")) {
            q->batch = k->grid[1];
            q->heads = k->grid[2];
        }
    }
}

/* Rows that norms, the gather of token embeddings and the loss have in common. */
static void look_at_tokens(struct infer_rank *q) {
    for (size_t i = 0; i < q->nkernels; i++) {
        const struct infer_kernel *k = &q->kernel[i];
        bool rows = k->role == ROLE_LOSS_SOFTMAX || k->role == ROLE_NORM ||
                    (k->role == ROLE_GATHER && strstr(k->name, "vectorized_gather")) ||
                    (k->role == ROLE_RMS && strstr(k->name, "rms_norm"));
        if (rows && k->grid[0] > q->tokens)
            q->tokens = k->grid[0];
    }
}

void infer_look_at_kernels(struct infer *x) {
    x->rank = DTP_NEW(x->a, struct infer_rank, x->trace->nranks + 1);
    for (size_t r = 0; r < x->trace->nranks; r++) {
        struct infer_rank *q = &x->rank[r];
        q->r = &x->trace->rank[r];
        count_kernels(x, q);
        find_order(x, q);
        look_at_attention(q);
        look_at_tokens(q);
    }
}
