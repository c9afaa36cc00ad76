/* Weights, gradients and optimizer state where ZeRO wants them (Rajbhandari 2020, section 5), and the end of a step:
 * what is left to reduce, the global norm, clipping, AdamW, the new weights.
 *
 *   stage  weights          gradients                          optimizer state
 *   0      n                n                                  n
 *   1      n                n, reduce-scattered in place       n / dp
 *   2      n                n / dp + one unit being computed   n / dp
 *   3      n / dp + units   n / dp + one unit                  n / dp
 * With stages 2 and 3 the gradients of a unit are reduced in each microbatch, when the unit is done. */
#include "runtime/rank.h"
#include "runtime/weights.h"

#include <math.h>
#include <stdio.h>

static enum dtp_status take_grads(struct dtp_rank *r, const char *name, enum dtp_mem class,
                                  int64_t n, void **out) {
    uint64_t bytes = (uint64_t)n * (uint64_t)dtp_dtype_bytes(r->dev->grad_dtype);
    *out = dtp_heap_alloc(r->dev->heap, class, name, bytes);
    return *out ? DTP_OK : dtp_heap_fail(r->dev->heap, name, bytes, r->err);
}

static void zero_grads(struct dtp_rank *r, void *p, int64_t n) {
    r->ops->zero(r->dev, p, (uint64_t)n * (uint64_t)dtp_dtype_bytes(r->dev->grad_dtype));
}

/* ---- creation ---- */

/* Values of elements begin .. end - 1 of the unit. */
static enum dtp_status initial_values(struct dtp_rank *r, const struct dtp_weights *w,
                                      const struct dtp_unit *u, int64_t begin, int64_t end,
                                      float *out) {
    for (int64_t i = begin; i < end; i++)
        out[i - begin] = 0; /* the padding */
    for (int id = 0; id < DTP_NLAYER_PARAMS; id++) {
        const struct dtp_param *p = &u->param[id];
        int64_t from = p->at > begin ? p->at : begin;
        int64_t to = p->at + p->n < end ? p->at + p->n : end;
        if (!p->name || from >= to)
            continue;
        if (w)
            DTP_TRY(dtp_weights_read(w, p, from - p->at, to - from, out + (from - begin), r->err));
        else
            dtp_param_init(p, r->o->seed, from - p->at, to - from, out + (from - begin));
    }
    return DTP_OK;
}

/* Host fp32 values into the weights (or shard) and the master copy that holds them. */
enum dtp_status dtp_unit_set(struct dtp_rank *r, struct dtp_unit *u, const float *values) {
    int zero = r->plan->zero_stage;
    int64_t n = zero >= 3 ? u->shard_n : u->n;
    void *to = zero >= 3 ? u->weight_shard : u->weights;
    if (r->dev->dtype == DTP_FP32) {
        r->ops->copy_in(r->dev, to, values, (uint64_t)n * sizeof *values);
        return DTP_OK;
    }
    float *staged;
    int64_t begin = zero == 1 || zero == 2 ? r->layout.dp_rank * u->shard_n : 0;
    int64_t owned = zero > 0 ? u->shard_n : u->n;
    DTP_TRY(dtp_take_floats(r, DTP_MEM_BUFFERS, "initial weights", n, &staged));
    r->ops->copy_in(r->dev, staged, values, (uint64_t)n * sizeof *values);
    r->ops->cast(r->dev, to, r->dev->dtype, staged, DTP_FP32, n);
    r->ops->copy(r->dev, u->master, staged + begin, (uint64_t)owned * sizeof *values);
    r->ops->sync(r->dev);
    dtp_give(r, staged);
    return DTP_OK;
}

static enum dtp_status create_unit(struct dtp_rank *r, struct dtp_unit *u) {
    int zero = r->plan->zero_stage;
    int64_t owned = zero > 0 ? u->shard_n : u->n;
    if (zero < 3)
        DTP_TRY(dtp_take(r, DTP_MEM_WEIGHTS, "weights", u->n, &u->weights));
    else
        DTP_TRY(dtp_take(r, DTP_MEM_WEIGHTS, "weights", u->shard_n, &u->weight_shard));
    if (zero < 2)
        DTP_TRY(take_grads(r, "gradients", DTP_MEM_GRADIENTS, u->n, &u->grads));
    else
        DTP_TRY(take_grads(r, "gradients", DTP_MEM_GRADIENTS, u->shard_n, &u->grad_shard));
    if (r->dev->dtype != DTP_FP32)
        DTP_TRY(dtp_take_floats(r, DTP_MEM_OPTIMIZER, "master weights", owned, &u->master));
    DTP_TRY(dtp_take_floats(r, DTP_MEM_OPTIMIZER, "first moment", owned, &u->m));
    DTP_TRY(dtp_take_floats(r, DTP_MEM_OPTIMIZER, "second moment", owned, &u->v));
    r->ops->zero(r->dev, u->m, (uint64_t)owned * sizeof(float));
    r->ops->zero(r->dev, u->v, (uint64_t)owned * sizeof(float));
    return DTP_OK;
}

static void fill_unit(struct dtp_rank *r, struct dtp_unit *u) {
    int zero = r->plan->zero_stage;
    uint64_t word = sizeof(float), n = (uint64_t)(zero >= 3 ? u->shard_n : u->n);
    uint64_t bytes = n * (uint64_t)dtp_dtype_bytes(r->dev->dtype);
    r->ops->fill(r->dev, zero >= 3 ? u->weight_shard : u->weights,
                 (bytes + word - 1) / word * word);
    if (u->master)
        r->ops->fill(r->dev, u->master, (uint64_t)(zero > 0 ? u->shard_n : u->n) * word);
}

enum dtp_status dtp_units_create(struct dtp_rank *r) {
    struct dtp_arena *values = dtp_arena_create("initial weights");
    struct dtp_arena *names = dtp_arena_create("weights");
    struct dtp_weights *w = NULL;
    enum dtp_status status =
        r->o->weights ? dtp_weights_open(names, r->o->weights, r->model, r->o->seq, &w, r->err)
                      : DTP_OK;
    DTP_EACH_UNIT(r, u) {
        int64_t begin = r->plan->zero_stage >= 3 ? r->layout.dp_rank * u->shard_n : 0;
        int64_t n = r->plan->zero_stage >= 3 ? u->shard_n : u->n;
        if (status == DTP_OK)
            status = create_unit(r, u);
        if (r->o->shadow_cluster) /* any numbers that the memory holds are good enough */
            continue;
        if (status == DTP_OK && r->o->rough_weights)
            fill_unit(r, u);
        if (r->o->rough_weights)
            continue;
        float *v = DTP_NEW(values, float, (size_t)n);
        if (status == DTP_OK)
            status = initial_values(r, w, u, begin, begin + n, v);
        if (status == DTP_OK)
            status = dtp_unit_set(r, u, v);
        dtp_arena_reset(values);
    }
    dtp_weights_close(w);
    dtp_arena_destroy(names);
    dtp_arena_destroy(values);
    return status;
}

enum dtp_status dtp_units_begin_step(struct dtp_rank *r) {
    DTP_EACH_UNIT(r, u) {
        u->reduced = false;
        if (r->plan->zero_stage < 2)
            zero_grads(r, u->grads, u->n);
        else
            zero_grads(r, u->grad_shard, u->shard_n);
    }
    return DTP_OK;
}

/* ---- weights of ZeRO-3 ---- */

static enum dtp_status gather(struct dtp_rank *r, struct dtp_unit *u) {
    char name[28];
    if (u->weights)
        return DTP_OK;
    DTP_TRY(dtp_take(r, DTP_MEM_BUFFERS, "gathered weights", u->n, &u->weights));
    snprintf(name, sizeof name, "dp all_gather %d.%d", u->chunk, u->index);
    dtp_order(r, DTP_STREAM_DP, DTP_STREAM_COMPUTE); /* the memory may have been another tensor's */
    int event = dtp_trace_begin(r, DTP_STREAM_DP, name);
    DTP_TRY(r->cops->all_gather(r->dp, DTP_STREAM_DP, u->weights, u->weight_shard, u->shard_n,
                                r->dev->dtype, r->err));
    dtp_trace_end(r, event);
    u->gathered_event = dtp_record(r, DTP_STREAM_DP);
    return DTP_OK;
}

/* Units after u in this direction; backwards only layers have a use. */
static struct dtp_unit *next_unit(const struct dtp_rank *r, const struct dtp_unit *u,
                                  int direction) {
    const struct dtp_chunk *c = &r->layout.chunk[u->chunk];
    int next = u->index + direction;
    if (next < 0 || next >= c->nunits)
        return NULL;
    struct dtp_unit *x = &c->unit[next];
    return direction > 0 || x->kind == DTP_UNIT_LAYER ? x : NULL;
}

enum dtp_status dtp_unit_need(struct dtp_rank *r, struct dtp_unit *u, int direction) {
    if (r->plan->zero_stage < 3)
        return DTP_OK;
    DTP_TRY(gather(r, u));
    r->ops->event_wait(r->dev, DTP_STREAM_COMPUTE, u->gathered_event);
    struct dtp_unit *next = next_unit(r, u, direction);
    for (int i = 0; next && i < r->o->prefetch_units; i++) {
        DTP_TRY(gather(r, next));
        next = next_unit(r, next, direction);
    }
    return DTP_OK;
}

void dtp_unit_used(struct dtp_rank *r, struct dtp_unit *u) {
    if (r->plan->zero_stage >= 3)
        DTP_DROP(r, u->weights);
}

void dtp_chunk_reshard(struct dtp_rank *r, struct dtp_chunk *c) {
    for (int i = 0; i < c->nunits; i++)
        dtp_unit_used(r, &c->unit[i]);
}

/* ---- gradients ---- */

enum dtp_status dtp_unit_grads(struct dtp_rank *r, struct dtp_unit *u) {
    if (u->grads)
        return DTP_OK;
    DTP_TRY(take_grads(r, "gradients of a unit", DTP_MEM_BUFFERS, u->n, &u->grads));
    zero_grads(r, u->grads, u->n);
    return DTP_OK;
}

/* Sums over tp what each tp rank has only a part of: neighbours in memory go together. */
static enum dtp_status reduce_partial(struct dtp_rank *r, struct dtp_unit *u, bool heads) {
    struct dtp_comm_group *g = heads ? r->kv : r->tp;
    int64_t begin = 0, n = 0;
    for (int id = 0; g && id <= DTP_NLAYER_PARAMS; id++) {
        const struct dtp_param *p = id < DTP_NLAYER_PARAMS ? &u->param[id] : NULL;
        bool partial = p && p->name && (heads ? p->head_partial : p->sequence_partial && r->sp);
        if (partial && n > 0 && p->at == begin + n) {
            n += p->n;
            continue;
        }
        if (n > 0 && (partial || !p)) {
            DTP_TRY(dtp_tp_all_reduce(r, g, dtp_element(r, u->grads, begin, true), n,
                                      r->dev->grad_dtype, DTP_REDUCE_SUM));
        }
        begin = partial ? p->at : begin;
        n = partial ? p->n : p ? n : 0;
    }
    return DTP_OK;
}

static int trace_reduce(struct dtp_rank *r, const struct dtp_unit *u, const char *what) {
    char name[28];
    snprintf(name, sizeof name, "dp %s %d.%d", what, u->chunk, u->index);
    return dtp_trace_begin(r, DTP_STREAM_DP, name);
}

/* ZeRO-0 and -1: the whole step's gradients. */
static enum dtp_status reduce_whole(struct dtp_rank *r, struct dtp_unit *u) {
    u->reduced = true;
    DTP_TRY(reduce_partial(r, u, false));
    DTP_TRY(reduce_partial(r, u, true));
    if (!r->dp)
        return DTP_OK;
    bool shard = r->plan->zero_stage == 1;
    dtp_order(r, DTP_STREAM_DP, DTP_STREAM_COMPUTE);
    int event = trace_reduce(r, u, shard ? "reduce_scatter" : "all_reduce");
    if (shard)
        DTP_TRY(r->cops->reduce_scatter(
            r->dp, DTP_STREAM_DP, dtp_element(r, u->grads, r->layout.dp_rank * u->shard_n, true),
            u->grads, u->shard_n, r->dev->grad_dtype, r->err));
    else
        DTP_TRY(r->cops->all_reduce(r->dp, DTP_STREAM_DP, u->grads, u->n, r->dev->grad_dtype,
                                    DTP_REDUCE_SUM, r->err));
    dtp_trace_end(r, event);
    return DTP_OK;
}

/* ZeRO-2 and -3: a microbatch's gradients of one unit, into the shard. */
static enum dtp_status reduce_unit(struct dtp_rank *r, struct dtp_unit *u) {
    void *sum;
    if (!u->grads) /* split backward: they went with the microbatch before */
        return DTP_OK;
    DTP_TRY(reduce_partial(r, u, false));
    DTP_TRY(reduce_partial(r, u, true));
    DTP_TRY(take_grads(r, "reduced gradients", DTP_MEM_BUFFERS, u->shard_n, &sum));
    dtp_order(r, DTP_STREAM_DP, DTP_STREAM_COMPUTE);
    int event = trace_reduce(r, u, "reduce_scatter");
    DTP_TRY(r->cops->reduce_scatter(r->dp, DTP_STREAM_DP, sum, u->grads, u->shard_n,
                                    r->dev->grad_dtype, r->err));
    dtp_trace_end(r, event);
    dtp_order(r, DTP_STREAM_COMPUTE, DTP_STREAM_DP);
    r->ops->add(r->dev, u->grad_shard, sum, u->shard_n, true);
    dtp_give(r, sum);
    DTP_DROP(r, u->grads);
    return DTP_OK;
}

enum dtp_status dtp_unit_done(struct dtp_rank *r, struct dtp_unit *u, bool last) {
    if (r->plan->zero_stage >= 2) {
        DTP_TRY(reduce_unit(r, u));
        u->reduced = last;
        return DTP_OK;
    }
    return last && r->plan->dp_overlap != 0 ? reduce_whole(r, u) : DTP_OK;
}

enum dtp_status dtp_chunk_reduce(struct dtp_rank *r, struct dtp_chunk *c) {
    for (int i = c->nunits - 1; i >= 0; i--) /* in the order of the backward */
        if (r->plan->zero_stage < 2 && !c->unit[i].reduced)
            DTP_TRY(reduce_whole(r, &c->unit[i]));
    dtp_order(r, DTP_STREAM_COMPUTE, DTP_STREAM_DP);
    return DTP_OK;
}

/* ---- the end of a step ---- */

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

/* Adds a run, or extends the last one: those of a unit are contiguous. */
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
