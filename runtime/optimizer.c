/* The end of a step: what is left to reduce, the global norm, clipping, AdamW, the new weights. */
#include "runtime/optimizer.h"

#include <math.h>

double dtp_learning_rate(const struct dtp_run_options *o, int step) {
    const double pi = 3.14159265358979323846;
    if (step < o->warmup_steps)
        return o->lr * (step + 1) / o->warmup_steps;
    int end = o->decay_steps > 0 ? o->decay_steps : o->steps;
    if (step >= end || end <= o->warmup_steps)
        return o->decay_steps > 0 ? o->min_lr : o->lr;
    double progress = (double)(step - o->warmup_steps) / (double)(end - o->warmup_steps);
    return o->min_lr + (o->lr - o->min_lr) * 0.5 * (1 + cos(pi * progress));
}

/* ---- loss scaling ---- */

void dtp_loss_scale_start(const struct dtp_run_options *o, struct dtp_loss_scale *out) {
    const double first = 65536; /* as torch.amp.GradScaler */
    bool half = o->plan.dtype == DTP_FP16;
    *out = (struct dtp_loss_scale){.scale = o->loss_scale > 0 ? o->loss_scale : half ? first : 1};
    /* numbers of a shadow rank or of rough weights mean nothing: its steps must not be skipped */
    out->dynamic = (half || o->loss_scale > 0) && !o->shadow_cluster && !o->rough_weights;
}

enum dtp_status dtp_loss_scale_update(struct dtp_rank *r) {
    enum { CLEAN_STEPS = 1000 };
    const double smallest = 0x1p-20;
    struct dtp_loss_scale *s = &r->loss_scale;
    float norm2 = 0;
    if (s->dynamic)
        r->ops->copy_out(r->dev, &norm2, r->scalars + DTP_SCALAR_NORM2, sizeof norm2);
    if (!isfinite(norm2)) {
        s->scale /= 2;
        s->skipped++;
        s->clean = 0;
    } else {
        s->updates++;
        s->clean++;
    }
    if (s->dynamic && s->clean == CLEAN_STEPS) {
        s->scale *= 2;
        s->clean = 0;
    }
    if (s->scale < smallest)
        return dtp_fail(r->err, DTP_ENO, "gradients are infinite at any loss scale");
    return r->ops->check(r->dev, r->err);
}

struct dtp_owned dtp_unit_owned(const struct dtp_rank *r, struct dtp_unit *u) {
    int zero = r->plan->zero_stage;
    struct dtp_owned x = {.n = zero > 0 ? u->shard_n : u->n};
    x.begin = zero > 0 ? r->layout.dp_rank * u->shard_n : 0;
    x.weights = zero >= 3 ? u->weight_shard : dtp_element(r, u->weights, x.begin, false);
    x.grads = zero >= 2 ? u->grad_shard : dtp_element(r, u->grads, x.begin, true);
    return x;
}

bool dtp_param_owned(const struct dtp_param *p, const struct dtp_owned *o, int64_t *begin,
                     int64_t *n) {
    if (!p->name)
        return false;
    int64_t end = p->at + p->n < o->begin + o->n ? p->at + p->n : o->begin + o->n;
    *begin = p->at > o->begin ? p->at : o->begin;
    *n = end - *begin;
    return *n > 0;
}

/* Both uses of tied embeddings on one rank (schedules that go down and up again): as if by an
 * all-reduce of two. */
static void tie_on_this_rank(struct dtp_rank *r) {
    struct dtp_unit *tokens = NULL, *head = NULL;
    DTP_EACH_UNIT(r, u) {
        tokens = u->kind == DTP_UNIT_TOKENS ? u : tokens;
        head = u->tied_copy ? u : head;
    }
    if (!tokens || !head)
        return;
    struct dtp_owned a = dtp_unit_owned(r, tokens), b = dtp_unit_owned(r, head);
    r->ops->add(r->dev, a.grads, b.grads, a.n, true);
    r->ops->copy(r->dev, b.grads, a.grads,
                 (uint64_t)a.n * (uint64_t)dtp_dtype_bytes(r->dev->grad_dtype));
}

/* Gradients that are not final yet (dp = 1), and tied embeddings: the sum over both of their uses. */
static enum dtp_status finish_gradients(struct dtp_rank *r) {
    for (int c = 0; c < r->layout.nchunks; c++)
        DTP_TRY(dtp_chunk_reduce(r, &r->layout.chunk[c]));
    tie_on_this_rank(r);
    DTP_EACH_UNIT(r, u) {
        if (!r->embedding || (u->kind != DTP_UNIT_TOKENS && !u->tied_copy))
            continue;
        struct dtp_owned x = dtp_unit_owned(r, u);
        dtp_order(r, DTP_STREAM_DP, DTP_STREAM_COMPUTE);
        int event = dtp_trace_begin(r, DTP_STREAM_DP, "embedding all_reduce");
        DTP_TRY(r->cops->all_reduce(r->embedding, DTP_STREAM_DP, x.grads, x.n, r->dev->grad_dtype,
                                    DTP_REDUCE_SUM, r->err));
        dtp_order(r, DTP_STREAM_COMPUTE, DTP_STREAM_DP);
        dtp_trace_end(r, event);
    }
    return DTP_OK;
}

/* One more run, or the last one goes on: those of a unit lie one behind the other. */
static void add_run(struct dtp_rank *r, struct dtp_norm2_args *x, const struct dtp_norm2_run *run) {
    struct dtp_norm2_run *last = x->nruns > 0 ? &x->run[x->nruns - 1] : NULL;
    int64_t word = dtp_dtype_bytes(r->dev->grad_dtype);
    if (last && last->factor == run->factor &&
        (const char *)last->grad + last->n * word == run->grad) {
        last->n += run->n;
        return;
    }
    if (x->nruns == DTP_NORM2_RUNS) {
        r->ops->norm2(r->dev, x);
        *x = (struct dtp_norm2_args){.sum = x->sum};
    }
    x->run[x->nruns++] = *run;
}

static void add_squares(struct dtp_rank *r, float *norm2) {
    double replicas = r->plan->zero_stage > 0 ? 1 : r->plan->dp;
    struct dtp_norm2_args all = {.sum = norm2};
    DTP_EACH_UNIT(r, u) {
        struct dtp_owned x = dtp_unit_owned(r, u);
        int64_t begin, n;
        for (int id = 0; !u->tied_copy && id < DTP_NLAYER_PARAMS; id++) {
            if (!dtp_param_owned(&u->param[id], &x, &begin, &n))
                continue;
            const void *grad = dtp_element(r, x.grads, begin - x.begin, true);
            double copies = replicas * u->param[id].tp_copies;
            add_run(r, &all, &(struct dtp_norm2_run){grad, n, 1 / copies});
        }
    }
    if (all.nruns > 0)
        r->ops->norm2(r->dev, &all);
}

/* The squared norm over all parameters of the model, each counted once however many ranks hold it. */
static enum dtp_status global_norm(struct dtp_rank *r) {
    float *norm2 = r->scalars + DTP_SCALAR_NORM2;
    r->ops->zero(r->dev, norm2, sizeof *norm2);
    add_squares(r, norm2);
    if (r->size == 1)
        return DTP_OK;
    dtp_order(r, DTP_STREAM_DP, DTP_STREAM_COMPUTE);
    int event = dtp_trace_begin(r, DTP_STREAM_DP, "norm all_reduce");
    DTP_TRY(
        r->cops->all_reduce(r->world, DTP_STREAM_DP, norm2, 1, DTP_FP32, DTP_REDUCE_SUM, r->err));
    dtp_order(r, DTP_STREAM_COMPUTE, DTP_STREAM_DP);
    dtp_trace_end(r, event);
    return DTP_OK;
}

static int list_tensors(struct dtp_rank *r) {
    int count = 0;
    DTP_EACH_UNIT(r, u) {
        struct dtp_owned x = dtp_unit_owned(r, u);
        int64_t begin, n;
        for (int id = 0; id < DTP_NLAYER_PARAMS; id++) {
            if (!dtp_param_owned(&u->param[id], &x, &begin, &n))
                continue;
            int64_t at = begin - x.begin;
            r->tensors[count++] =
                (struct dtp_adamw_tensor){.param = dtp_element(r, x.weights, at, false),
                                          .master = u->master ? u->master + at : NULL,
                                          .m = u->m + at,
                                          .v = u->v + at,
                                          .grad = dtp_element(r, x.grads, at, true),
                                          .n = n,
                                          .decay = u->param[id].decay};
        }
    }
    return count;
}

/* ZeRO-1 and -2: everybody gets the new weights. */
static enum dtp_status gather_weights(struct dtp_rank *r) {
    int zero = r->plan->zero_stage;
    if (!r->dp || zero == 0 || zero == 3)
        return DTP_OK;
    dtp_order(r, DTP_STREAM_DP, DTP_STREAM_COMPUTE);
    int event = dtp_trace_begin(r, DTP_STREAM_DP, "dp all_gather weights");
    DTP_EACH_UNIT(r, u) {
        struct dtp_owned x = dtp_unit_owned(r, u);
        DTP_TRY(r->cops->all_gather(r->dp, DTP_STREAM_DP, u->weights, x.weights, u->shard_n,
                                    r->dev->dtype, r->err));
    }
    dtp_order(r, DTP_STREAM_COMPUTE, DTP_STREAM_DP);
    dtp_trace_end(r, event);
    return DTP_OK;
}

enum dtp_status dtp_optimizer_step(struct dtp_rank *r) {
    DTP_TRY(finish_gradients(r));
    DTP_TRY(global_norm(r));
    const struct dtp_run_options *o = r->o;
    float *clip = r->scalars + DTP_SCALAR_CLIP;
    const struct dtp_clip how = {
        .max_norm = o->clip_norm, .loss_scale = r->loss_scale.scale, .skip = r->loss_scale.dynamic};
    r->ops->clip_scale(r->dev, clip, r->scalars + DTP_SCALAR_NORM2, &how);
    const struct dtp_adamw_hyper h = {.lr = dtp_learning_rate(o, r->step),
                                      .beta1 = o->beta1,
                                      .beta2 = o->beta2,
                                      .epsilon = o->epsilon,
                                      .weight_decay = o->weight_decay,
                                      .step = r->loss_scale.updates + 1,
                                      .grad_scale = clip};
    r->ops->adamw(r->dev, &h, r->tensors, list_tensors(r));
    return gather_weights(r);
}
