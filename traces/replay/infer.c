#include "traces/replay/infer.h"

#include <string.h>

#include "models/schedule/schedule.h"
#include "sim/base/text.h"
#include "traces/replay/infer_private.h"
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

/* ---- votes ---- */

void infer_vote(struct infer *x, enum dtp_infer_field field, int64_t value, double weight,
                const char *format, ...) {
    va_list args;
    x->vote = dtp_arena_room(x->a, x->vote, sizeof *x->vote, x->nvotes, &x->capacity);
    va_start(args, format);
    const char *evidence = dtp_arena_vprintf(x->a, format, args);
    va_end(args);
    for (size_t i = 0; i < x->nvotes; i++) /* the same sight on several ranks is one */
        if (x->vote[i].field == field && x->vote[i].value == value &&
            strcmp(x->vote[i].evidence, evidence) == 0)
            return;
    x->vote[x->nvotes++] = (struct infer_vote){field, value, weight, evidence};
}

/* Confidence of a value before the others are weighed: 1 - prod(1 - weight). */
static double support(const struct infer *x, enum dtp_infer_field field, int64_t value) {
    double doubt = 1;
    for (size_t i = 0; i < x->nvotes; i++)
        if (x->vote[i].field == field && x->vote[i].value == value)
            doubt *= 1 - x->vote[i].weight;
    return 1 - doubt;
}

const struct dtp_guess *infer_decide(struct infer *x, enum dtp_infer_field field) {
    struct dtp_guess *g = &x->out->at[field];
    double all = 0, best = 0;
    *g = (struct dtp_guess){.evidence = ""};
    for (size_t i = 0; i < x->nvotes; i++) {
        if (x->vote[i].field != field)
            continue;
        double s = support(x, field, x->vote[i].value);
        all += x->vote[i].weight;
        if (s > best) {
            best = s;
            g->known = true;
            g->value = x->vote[i].value;
        }
    }
    double agreeing = 0;
    struct dtp_str s = {.a = x->a};
    for (size_t i = 0; i < x->nvotes; i++) {
        const struct infer_vote *v = &x->vote[i];
        if (v->field != field || v->value != g->value)
            continue;
        agreeing += v->weight;
        dtp_str_printf(&s, "%s%s", s.n ? "; " : "", v->evidence);
    }
    for (size_t i = 0; i < x->nvotes; i++) {
        const struct infer_vote *v = &x->vote[i];
        if (v->field == field && v->value != g->value)
            dtp_str_printf(&s, "; but %lld by %s", (long long)v->value, v->evidence);
    }
    g->confidence = all > 0 ? best * agreeing / all : 0;
    g->evidence = s.at ? s.at : "";
    return g;
}

int64_t infer_value(const struct infer *x, enum dtp_infer_field field) {
    return x->out->at[field].known ? x->out->at[field].value : 0;
}

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
        infer_vote_order(&x);
        infer_vote_collectives(&x);
        infer_vote_operators(&x);
        infer_vote_kernels(&x);
        infer_find_framework(&x);
    }
    for (int f = 0; f < DTP_NINFERRED; f++)
        infer_decide(&x, (enum dtp_infer_field)f);
    derive(&x);
}

/* The order of a stage's F and B is this text. Attention has no part in weight gradients. */
static bool is_order(const struct dtp_schedule *s, int stage, const char *at) {
    for (uint32_t k = s->begin[stage]; k < s->begin[stage + 1]; k++) {
        if (s->action[k].kind == DTP_A_W)
            continue;
        if (*at++ != (s->action[k].kind == DTP_A_F ? 'F' : 'B'))
            return false;
    }
    return *at == '\0';
}

int infer_schedule_of(struct dtp_arena *a, const char *const *order, int pp, int vpp, int m) {
    for (int kind = 0; kind < DTP_NSCHEDULES; kind++) {
        struct dtp_schedule s;
        if (dtp_schedule_make(a, kind, pp, vpp, m, &s, NULL) != DTP_OK)
            continue;
        bool same = true;
        for (int stage = 0; stage < pp && same; stage++)
            same = !order[stage] || is_order(&s, stage, order[stage]);
        if (same)
            return kind;
    }
    return -1;
}
