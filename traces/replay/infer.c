#include "traces/replay/infer.h"

#include <string.h>

#include "models/schedule/schedule.h"
#include "sim/base/text.h"
#include "traces/replay/infer_internal.h"
#include "traces/tasks/tasks.h"

const char *const dtp_infer_keys[] = {
#define X(name, key, words) key,
    DTP_INFER_FIELDS(X)
#undef X
};
const char *const dtp_infer_words[] = {
#define X(name, key, words) words,
    DTP_INFER_FIELDS(X)
#undef X
};

/* ---- all of it ---- */

static void look_at_job(struct infer *x) {
    struct dtp_inferred *out = x->out;
    const struct dtp_trace *t = x->trace;
    out->device = "";
    out->framework = "";
    out->framework_evidence = "";
    out->gpus = (int)t->nranks;
    for (size_t r = 0; r < t->nranks; r++) {
        if (t->rank[r].world_size > out->gpus)
            out->gpus = t->rank[r].world_size;
        if (t->rank[r].device && t->rank[r].device[0])
            out->device = t->rank[r].device;
        if (t->rank[r].device_bytes > 0)
            out->device_bytes = t->rank[r].device_bytes;
    }
}

/* Fields that follow from others where nothing voted for them. */
static void derive(struct infer *x) {
    struct dtp_guess *g = x->out->at;
    int64_t heads = infer_value(x, DTP_INFER_HEADS), dim = infer_value(x, DTP_INFER_HEAD_DIM);
    int64_t hidden = infer_value(x, DTP_INFER_HIDDEN), seq = infer_value(x, DTP_INFER_SEQ);
    int64_t world = x->out->gpus, used = 1;
    if (!g[DTP_INFER_HEAD_DIM].known && heads > 0 && hidden % heads == 0)
        g[DTP_INFER_HEAD_DIM] = (struct dtp_guess){
            true, hidden / heads, 0.5 * g[DTP_INFER_HEADS].confidence, "hidden size / heads"};
    if (!g[DTP_INFER_HEADS].known && dim > 0 && hidden % dim == 0)
        g[DTP_INFER_HEADS] =
            (struct dtp_guess){true, hidden / dim, 0.5 * g[DTP_INFER_HEAD_DIM].confidence,
                               "hidden size / head dimension"};
    (void)seq;
    static const enum dtp_infer_field degrees[] = {DTP_INFER_TP, DTP_INFER_PP, DTP_INFER_DP};
    int unknown = -1, nunknown = 0;
    for (int i = 0; i < 3; i++) {
        if (g[degrees[i]].known && g[degrees[i]].value > 0)
            used *= g[degrees[i]].value;
        else {
            unknown = i;
            nunknown++;
        }
    }
    if (nunknown == 1 && used > 0 && world % used == 0)
        g[degrees[unknown]] =
            (struct dtp_guess){true, world / used, 0.7, "what is left of the ranks"};
}

void dtp_infer(struct dtp_arena *a, struct dtp_trace *trace, struct dtp_inferred *out) {
    struct infer x = {.a = a, .trace = trace, .out = out};
    *out = (struct dtp_inferred){0};
    look_at_job(&x);
    if (trace->tasks && strcmp(trace->tasks->from, "replay") != 0) {
        infer_vote_tasks(&x);
    } else {
        infer_look_at_kernels(&x);
        infer_vote_training(&x);
        infer_vote_order(&x);
        infer_vote_collectives(&x);
        infer_vote_operators(&x);
        infer_vote_kernels(&x);
        infer_find_framework(&x);
    }
    for (int f = 0; f < DTP_NINFERRED; f++)
        infer_decide(&x, (enum dtp_infer_field)f);
    derive(&x);
    if (x.rank)
        infer_look_for_decoder(&x);
}

struct fill {
    struct dtp_arena *a;
    const struct dtp_inferred *in;
    struct dtp_infer_model *out;
};

static void note(struct fill *f, const char *text) {
    f->out->note = dtp_arena_grow(f->a, f->out->note, sizeof *f->out->note, f->out->nnotes,
                                  f->out->nnotes + 1);
    f->out->note[f->out->nnotes++] = text;
}

/* Returns the inferred value, or the default with a note. */
static int take(struct fill *f, enum dtp_infer_field field, int64_t otherwise) {
    const struct dtp_guess *g = &f->in->at[field];
    if (g->known && g->value >= 0 && g->value < INT32_MAX)
        return (int)g->value;
    const char *word = field == DTP_INFER_DTYPE       ? dtp_dtype_names[otherwise]
                       : field == DTP_INFER_RECOMPUTE ? dtp_recompute_names[otherwise]
                       : field == DTP_INFER_SCHEDULE
                           ? dtp_schedule_names[otherwise]
                           : dtp_arena_printf(f->a, "%lld", (long long)otherwise);
    note(f,
         dtp_arena_printf(f->a, "not in the trace: %s, taken as %s", dtp_infer_words[field], word));
    return (int)otherwise;
}

static enum dtp_status fill_model(struct fill *f, struct dtp_err *err) {
    const struct dtp_guess *g = f->in->at;
    struct dtp_model *m = &f->out->model;
    bool llama = (g[DTP_INFER_NORM].known && g[DTP_INFER_NORM].value) ||
                 (g[DTP_INFER_GATED].known && g[DTP_INFER_GATED].value);
    DTP_TRY(dtp_model_family(llama ? "llama" : "gpt", m, err));
    m->name = "inferred";
    m->title = "inferred from a trace";
    m->source = "dtplan infer: kernels and collectives of a trace";
    m->layers = (int)g[DTP_INFER_LAYERS].value;
    m->hidden = (int)g[DTP_INFER_HIDDEN].value;
    m->heads = take(f, DTP_INFER_HEADS, m->hidden % 128 == 0 ? m->hidden / 128 : 1);
    m->kv_heads = take(f, DTP_INFER_KV_HEADS, m->heads);
    m->head_dim = take(f, DTP_INFER_HEAD_DIM, m->heads > 0 ? m->hidden / m->heads : m->hidden);
    m->ffn = take(f, DTP_INFER_FFN, 4 * m->hidden);
    m->gated_ffn = llama && (!g[DTP_INFER_GATED].known || g[DTP_INFER_GATED].value);
    if (g[DTP_INFER_ROPE].known && g[DTP_INFER_ROPE].value)
        m->position = DTP_POS_ROPE;
    m->vocab = take(f, DTP_INFER_VOCAB, 50257);
    m->seq = f->out->seq = take(f, DTP_INFER_SEQ, 2048);
    if (m->position == DTP_POS_LEARNED)
        m->max_positions = m->seq;
    m->global_batch = 1;
    return dtp_model_finish(m, err);
}

static enum dtp_status fill_plan(struct fill *f, struct dtp_err *err) {
    struct dtp_plan *p = &f->out->plan;
    int gpus = f->in->gpus;
    *p = dtp_plan_default();
    p->tp = take(f, DTP_INFER_TP, 1);
    p->pp = take(f, DTP_INFER_PP, 1);
    int rest = p->tp > 0 && p->pp > 0 ? gpus / (p->tp * p->pp) : 1;
    p->dp = take(f, DTP_INFER_DP, rest > 0 ? rest : 1);
    if (p->tp < 1 || p->pp < 1 || p->dp < 1 || p->tp * p->pp * p->dp != gpus)
        return dtp_fail(
            err, DTP_ENO,
            "what was inferred does not fit together: tp %d x pp %d x dp %d on %d ranks", p->tp,
            p->pp, p->dp, gpus);
    p->vpp = f->in->at[DTP_INFER_VPP].known ? (int)f->in->at[DTP_INFER_VPP].value : 1;
    p->zero_stage = p->dp > 1 ? take(f, DTP_INFER_ZERO, 0) : 0;
    p->sequence_parallel = p->tp > 1 && f->in->at[DTP_INFER_SEQUENCE_PARALLEL].value > 0;
    int recompute = take(f, DTP_INFER_RECOMPUTE, DTP_RECOMPUTE_NONE);
    p->recompute = recompute == 2   ? DTP_RECOMPUTE_FULL
                   : recompute == 1 ? DTP_RECOMPUTE_SELECTIVE
                                    : DTP_RECOMPUTE_NONE;
    if (p->pp > 1)
        p->schedule = take(f, DTP_INFER_SCHEDULE, dtp_schedule_usual(1));
    p->microbatch_size = take(f, DTP_INFER_MICROBATCH, 1);
    p->global_batch_size = p->microbatch_size * p->dp * take(f, DTP_INFER_MICROBATCHES, 1);
    int dtype = take(f, DTP_INFER_DTYPE, DTP_BF16);
    p->dtype = dtype == DTP_FP16 ? DTP_FP16 : dtype == DTP_FP32 ? DTP_FP32 : DTP_BF16;
    f->out->model.global_batch = p->global_batch_size;
    return DTP_OK;
}

enum dtp_status dtp_infer_complete(struct dtp_arena *a, const struct dtp_inferred *in,
                                   struct dtp_infer_model *out, struct dtp_err *err) {
    struct fill f = {a, in, out};
    *out = (struct dtp_infer_model){0};
    if (in->no_decoder)
        return dtp_fail(err, DTP_ENO, "not a transformer decoder (%s): no model can be made of it",
                        in->no_decoder);
    if (in->at[DTP_INFER_TRAINS].known && in->at[DTP_INFER_TRAINS].value == 0)
        return dtp_fail(err, DTP_ENO, "inference (%s): no plan of a training can be made of it",
                        in->at[DTP_INFER_TRAINS].evidence);
    static const enum dtp_infer_field needed[] = {DTP_INFER_LAYERS, DTP_INFER_HIDDEN};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!in->at[needed[i]].known || in->at[needed[i]].value < 1 ||
            in->at[needed[i]].value > INT32_MAX / 64)
            return dtp_fail(err, DTP_ENO,
                            "the trace does not tell the %s: no model can be made of it",
                            dtp_infer_words[needed[i]]);
    DTP_TRY(fill_model(&f, err));
    return fill_plan(&f, err);
}
