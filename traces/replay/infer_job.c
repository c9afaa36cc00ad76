/* infer_job.c: what kind of job a trace is of: training or inference, a transformer decoder or not. */
#include <stdlib.h>
#include <string.h>

#include "traces/replay/infer_internal.h"

static bool has_any(const char *name, const char *const *part, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strstr(name, part[i]))
            return true;
    return false;
}
#define HAS(name, parts) has_any(name, parts, sizeof parts / sizeof *parts)

/* ---- training or inference ---- */

struct signs {
    const char *optimizer, *autograd, *kernel; /* a name that says it, or NULL */
    const char *replicas;                      /* a wrapper that only training has */
    bool operators, work;                      /* recorded at all */
};

static void look_for_signs(const struct infer_rank *q, struct signs *s) {
    static const char *const optimizers[] = {"Optimizer.step#", "FusedAdam", "multi_tensor_adam"};
    static const char *const autograd[] = {"autograd::engine::evaluate_function", "AccumulateGrad"};
    static const char *const backward[] = {"backward", "Backward", "_bwd",  "bprop",   "dgrad",
                                           "wgrad",    "bn_bw",    "bw_1C", "dot_do_o"};
    static const char *const wrappers[] = {"DistributedDataParallel", "FullyShardedDataParallel",
                                           "FSDP::"};
    const struct dtp_trace_rank *r = q->r;
    for (size_t i = 0; i < r->nevents; i++) {
        const struct dtp_trace_event *e = dtp_trace_event(r, i);
        const char *name = dtp_trace_name(r, e->name);
        bool host = e->kind == DTP_TRACE_OP || e->kind == DTP_TRACE_ANNOTATION;
        s->operators = s->operators || e->kind == DTP_TRACE_OP;
        s->work = s->work || e->kind == DTP_TRACE_KERNEL;
        if ((host || e->kind == DTP_TRACE_KERNEL) && !s->optimizer && HAS(name, optimizers))
            s->optimizer = name;
        if (host && !s->autograd && HAS(name, autograd))
            s->autograd = name;
        if (host && !s->replicas && HAS(name, wrappers))
            s->replicas = name;
        if (e->kind == DTP_TRACE_KERNEL && !s->kernel && HAS(name, backward))
            s->kernel = name;
    }
}

void infer_vote_training(struct infer *x) {
    struct signs s = {0};
    for (size_t r = 0; r < x->trace->nranks; r++)
        look_for_signs(&x->rank[r], &s);
    if (s.optimizer)
        infer_vote(x, DTP_INFER_TRAINS, 1, 0.95, "an optimizer's step, %.40s", s.optimizer);
    if (s.autograd)
        infer_vote(x, DTP_INFER_TRAINS, 1, 0.95, "operators of autograd, %.40s", s.autograd);
    if (s.kernel)
        infer_vote(x, DTP_INFER_TRAINS, 1, 0.9, "kernels of a backward pass, %.60s", s.kernel);
    if (s.optimizer || s.autograd || s.kernel)
        return;
    if (s.replicas)
        infer_vote(x, DTP_INFER_TRAINS, 1, 0.7, "%.40s", s.replicas);
    else if (s.work)
        infer_vote(x, DTP_INFER_TRAINS, 0, s.operators ? 0.9 : 0.6,
                   "no optimizer, no autograd, no kernel of a backward pass");
}

/* ---- a transformer decoder or not ---- */

struct shape_of_job {
    uint64_t attentions, convolutions, events;
    uint64_t softmaxes, scores,
        others;            /* unknown shape; over [.., queries, keys]; fewer dimensions */
    int64_t queries, keys; /* lengths in an attention in which they differ */
};

/* The first tensors of "[[8,16,1024,64],[8,16,77,64]]"; out_n: dimensions of the first. */
static void parse_two(const char *shape, int64_t dim[2][4], int *out_n) {
    char *at = (char *)(uintptr_t)shape;
    *out_n = 0;
    for (int t = 0; t < 2; t++) {
        at += strspn(at, "[, ");
        for (int i = 0; i < 4 && *at >= '0' && *at <= '9'; i++) {
            dim[t][i] = strtoll(at, &at, 10);
            at += strspn(at, ", ");
            *out_n += t == 0;
        }
        at += *at == ']';
    }
}

static void look_at_shape(const struct dtp_trace_rank *r, const struct dtp_trace_event *e,
                          bool softmax, struct shape_of_job *out) {
    int64_t dim[2][4] = {{0}};
    int n;
    parse_two(dtp_trace_name(r, e->shape), dim, &n);
    if (softmax)
        *(n >= 3 ? &out->scores : &out->others) += 1;
    if (strcmp(dtp_trace_name(r, e->name), "aten::scaled_dot_product_attention") == 0 &&
        dim[0][2] > 1 && dim[1][2] > 0 && dim[0][2] != dim[1][2]) {
        out->queries = dim[0][2];
        out->keys = dim[1][2];
    }
}

static void count_event(const struct dtp_trace_rank *r, const struct dtp_trace_event *e,
                        struct shape_of_job *out) {
    static const char *const attention[] = {"attention", "attn",        "fmha",
                                            "flash_fwd", "flash_fprop", "mha_"};
    static const char *const softmaxes[] = {"softmax", "SoftMax"};
    static const char *const convolution[] = {"aten::convolution", "implicit_gemm", "winograd",
                                              "igemm_fwd",         "convolve",      "nchwToNhwc"};
    const char *name = dtp_trace_name(r, e->name);
    bool softmax = HAS(name, softmaxes);
    out->events++;
    out->attentions += HAS(name, attention);
    out->softmaxes += softmax;
    out->convolutions += HAS(name, convolution);
    if (e->kind == DTP_TRACE_OP && e->shape != DTP_TRACE_NONE)
        look_at_shape(r, e, softmax, out);
}

void infer_look_for_decoder(struct infer *x) {
    enum { FEW = 3 }; /* images are cut into patches by one */
    struct shape_of_job s = {0};
    for (size_t r = 0; r < x->trace->nranks; r++)
        for (size_t i = 0; i < x->rank[r].r->nevents; i++) {
            const struct dtp_trace_event *e = dtp_trace_event(x->rank[r].r, i);
            if ((e->kind == DTP_TRACE_OP || e->kind == DTP_TRACE_KERNEL) &&
                infer_in_step(&x->rank[r], e))
                count_event(x->rank[r].r, e, &s);
        }
    if (s.events == 0)
        return;
    if (s.convolutions >= FEW)
        x->out->no_decoder = dtp_arena_printf(x->a, "%llu convolutions in a step",
                                              (unsigned long long)s.convolutions);
    else if (s.attentions == 0 && (s.scores + s.others > 0 ? s.scores : s.softmaxes) == 0)
        x->out->no_decoder = "no attention in a step";
    else if (s.queries > 0)
        x->out->no_decoder =
            dtp_arena_printf(x->a, "attention of %lld queries to %lld keys is cross-attention",
                             (long long)s.queries, (long long)s.keys);
    if (!x->out->no_decoder)
        return;
    for (int f = DTP_INFER_LAYERS; f <= DTP_INFER_MICROBATCHES; f++)
        x->out->at[f] = (struct dtp_guess){.evidence = ""};
    static const enum dtp_infer_field others[] = {DTP_INFER_RECOMPUTE, DTP_INFER_SCHEDULE,
                                                  DTP_INFER_VPP};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        x->out->at[others[i]] = (struct dtp_guess){.evidence = ""};
}
