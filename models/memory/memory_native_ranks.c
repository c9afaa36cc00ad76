/* The peak of each rank of our own runtime. A compute action with the transfers and unshards around it
 * is a step; a step of a stage is walked once (memory_native.c) and then only added. */
#include "models/memory/memory.h"
#include "models/memory/memory_native_private.h"

/* What a step adds: by its end, and at its largest moment. */
struct step {
    bool known;
    int64_t sum, peak, items[NITEMS], items_at_peak[NITEMS];
};

/* Stages that hold the same. `held`: an input gradient has made the buffers of ZeRO's gradients that the
 * weight gradient will give back. */
struct stage_class {
    struct chunk chunk;
    int rank, index; /* one of the chunks */
    int64_t params, items[NITEMS];
    struct step step[DTP_A_W + 1][2]; /* by kind of action, held */
};

struct ranks {
    struct dtp_arena *a;
    const struct dtp_problem *problem;
    const struct dtp_plan *plan;
    struct walk start; /* before any parameter */
    struct dtp_schedule shape;
    struct stage_class **class; /* [nclasses] */
    int nclasses;
    struct stage_class **of;       /* [vpp] of the rank that is walked */
    bool *held;                    /* [vpp] */
    struct dtp_chunk_links *links; /* [vpp] */
    int sends_held, sent[2];       /* at most, so far; forward, backward */
    struct dtp_action *action;
    int nactions;
};

/* A rank's sum before its first action and at its peak. */
struct peak {
    int64_t start[NITEMS], bytes;
    int at; /* index of the action, -1: before the first */
};

/* ---- steps ---- */

static struct stage_class *new_class(struct ranks *r, int rank, int index, int vs) {
    struct stage_class *c = DTP_NEW(r->a, struct stage_class, 1);
    struct walk w = r->start;
    dtp_walk_chunk(r->a, r->problem, &w, vs, &c->chunk);
    c->rank = rank;
    c->index = index;
    c->params = dtp_native_stage_params(&c->chunk.s);
    for (int i = 0; i < NITEMS; i++)
        c->items[i] = w.live[i] - r->start.live[i];
    return r->class[r->nclasses++] = c;
}

static struct stage_class *find_class(struct ranks *r, int rank, int index) {
    const struct dtp_plan *p = r->plan;
    int vs = dtp_schedule_kinds[p->schedule].stage(p->pp, p->vpp, rank, index);
    bool first = vs == 0, last = vs == p->pp * p->vpp - 1;
    int layers = dtp_plan_layers(p, r->problem->model, vs);
    for (int i = 0; i < r->nclasses; i++) {
        const struct dtp_native_stage *s = &r->class[i]->chunk.s;
        if (s->first == first && s->last == last && s->layers == layers)
            return r->class[i];
    }
    return new_class(r, rank, index, vs);
}

static void walk_action(const struct ranks *r, struct stage_class *c, enum dtp_action_kind kind,
                        struct walk *w) {
    struct dtp_schedule_passes passes = dtp_walk_passes(r->plan);
    struct dtp_action list[DTP_SCHEDULE_MOST_AROUND],
        x = {.kind = (uint8_t)kind, .chunk = (uint16_t)c->index};
    int n = dtp_schedule_complete_one(&r->shape, c->rank, &passes, x, list);
    *w = r->start;
    for (int i = 0; i < NITEMS; i++)
        w->live[i] = 0;
    w->sum = w->peak = 0;
    for (int i = 0; i < n; i++)
        dtp_walk_act(w, &c->chunk, &list[i], list + n);
}

static void walk_step(const struct ranks *r, struct stage_class *c, enum dtp_action_kind kind,
                      bool held, struct step *out) {
    struct walk w;
    for (int i = 0; i < c->chunk.nunits; i++)
        c->chunk.gathered[i] = c->chunk.grads[i] = false;
    if (held)
        walk_action(r, c, DTP_A_I, &w);
    walk_action(r, c, kind, &w);
    *out = (struct step){.known = true, .sum = w.sum, .peak = w.peak};
    for (int i = 0; i < NITEMS; i++) {
        out->items[i] = w.live[i];
        out->items_at_peak[i] = w.at_peak[i];
    }
}

/* The step of an action, given what the actions before it have left. */
static inline const struct step *next_step(struct ranks *r, const struct dtp_action *x) {
    bool *held = &r->held[x->chunk];
    struct step *step = &r->of[x->chunk]->step[x->kind][*held];
    if (!step->known)
        walk_step(r, r->of[x->chunk], (enum dtp_action_kind)x->kind, *held, step);
    if (x->kind != DTP_A_F)
        *held = x->kind == DTP_A_I && r->plan->zero_stage >= 2;
    return step;
}

/* What an action leaves in memory beside its step, at whose end what it sends is gone: a sent tensor takes the
 * place of an earlier one, but the first ones do not have one. */
static int64_t kept_sent(struct ranks *r, const struct dtp_action *x) {
    int back = x->kind == DTP_A_F ? 0 : 1;
    bool sends = back ? r->links[x->chunk].far_before : r->links[x->chunk].far_after;
    if (x->kind == DTP_A_W || !sends || r->sent[back] == r->sends_held)
        return 0;
    r->sent[back]++;
    return dtp_walk_rounded(r->start.H);
}

/* ---- ranks ---- */

/* Orders are periodic with period pp once all ranks are busy, after (vpp + 1) pp forwards at most: three times pp
 * microbatches have a whole period behind that, and stand for the step where no rank holds more with all of them. */
static int microbatches_walked(const struct dtp_plan *p) {
    int m = dtp_plan_num_microbatches(p), few = 3 * p->pp + m % p->pp;
    bool all = m <= few || dtp_schedule_holds_more(p->schedule, p->pp, p->vpp, m, few);
    return all ? m : few;
}

static void ranks_init(struct dtp_arena *in, struct ranks *r, const struct dtp_problem *problem,
                       const struct dtp_plan *p) {
    struct dtp_arena *a = dtp_arena_create_in(in, "memory walk");
    *r = (struct ranks){
        .a = a,
        .problem = problem,
        .plan = p,
        .shape = {.kind = p->schedule, .pp = p->pp, .vpp = p->vpp, .m = microbatches_walked(p)}};
    dtp_walk_begin(problem, p, &r->start);
    r->class = DTP_NEW(a, struct stage_class *, (size_t)(p->pp * p->vpp));
    r->of = DTP_NEW(a, struct stage_class *, (size_t)p->vpp);
    r->held = DTP_NEW(a, bool, (size_t)p->vpp);
    r->links = DTP_NEW(a, struct dtp_chunk_links, (size_t)p->vpp);
    r->sends_held = dtp_schedule_sends_held(p->schedule, p->pp, dtp_plan_num_microbatches(p));
    r->action = DTP_NEW(a, struct dtp_action, dtp_schedule_max_actions(p->vpp, r->shape.m));
}

static void begin_actions(struct ranks *r) {
    r->sent[0] = r->sent[1] = 0;
    for (int c = 0; c < r->plan->vpp; c++)
        r->held[c] = false;
}

static void take_actions(struct ranks *r, int rank) {
    const struct dtp_schedule *s = &r->shape;
    bool made = !dtp_schedule_applies(s->kind, s->pp, s->vpp, s->m);
    r->nactions =
        made ? dtp_schedule_kinds[s->kind].generate(s->pp, s->vpp, s->m, rank, r->action) : 0;
    dtp_schedule_links(s, rank, r->links);
    begin_actions(r);
}

static struct peak walk_rank(struct ranks *r, int rank) {
    struct peak out = {.at = -1};
    for (int c = 0; c < r->plan->vpp; c++)
        r->of[c] = find_class(r, rank, c);
    for (int i = 0; i < NITEMS; i++) {
        out.start[i] = r->start.live[i];
        for (int c = 0; c < r->plan->vpp; c++)
            out.start[i] += r->of[c]->items[i];
        out.bytes += out.start[i];
    }
    int64_t sum = out.bytes;
    take_actions(r, rank);
    for (int i = 0; i < r->nactions; i++) {
        const struct step *step = next_step(r, &r->action[i]);
        if (sum + step->peak > out.bytes) {
            out.bytes = sum + step->peak;
            out.at = i;
        }
        sum += step->sum + kept_sent(r, &r->action[i]);
    }
    return out;
}

/* The items at the peak of the rank that was walked last. */
static void fill(struct ranks *r, const struct peak *peak, struct dtp_stage_memory *out) {
    int64_t at[NITEMS];
    for (int i = 0; i < NITEMS; i++)
        at[i] = peak->start[i];
    begin_actions(r);
    for (int n = 0; n <= peak->at; n++) {
        const struct step *step = next_step(r, &r->action[n]);
        for (int i = 0; i < NITEMS; i++)
            at[i] += n < peak->at ? step->items[i] : step->items_at_peak[i];
        if (n < peak->at)
            at[ACTIVATIONS] += kept_sent(r, &r->action[n]);
    }
    *out = (struct dtp_stage_memory){.weights_bytes = (uint64_t)at[WEIGHTS],
                                     .gradients_bytes = (uint64_t)at[GRADIENTS],
                                     .optimizer_bytes = (uint64_t)at[OPTIMIZER],
                                     .activations_bytes = (uint64_t)at[ACTIVATIONS],
                                     .logits_bytes = (uint64_t)at[LOGITS],
                                     .buffers_bytes = (uint64_t)at[BUFFERS],
                                     .peak_bytes = (uint64_t)peak->bytes,
                                     .reserved_bytes = (uint64_t)peak->bytes,
                                     .device_bytes = (uint64_t)peak->bytes,
                                     .moment = "largest sum of live tensors"};
    for (int c = 0; c < r->plan->vpp; c++)
        out->params += (uint64_t)r->of[c]->params;
}

void dtp_memory_native(struct dtp_arena *a, const struct dtp_problem *problem,
                       const struct dtp_plan *plan, struct dtp_stage_memory *stages) {
    struct ranks r;
    ranks_init(a, &r, problem, plan);
    for (int rank = 0; rank < plan->pp; rank++) {
        struct peak peak = walk_rank(&r, rank);
        fill(&r, &peak, &stages[rank]);
    }
    dtp_arena_destroy(r.a);
}

uint64_t dtp_memory_native_peak(struct dtp_arena *a, const struct dtp_problem *problem,
                                const struct dtp_plan *plan) {
    struct ranks r;
    int64_t worst_bytes = 0;
    ranks_init(a, &r, problem, plan);
    for (int rank = 0; rank < plan->pp; rank++) {
        struct peak peak = walk_rank(&r, rank);
        worst_bytes = peak.bytes > worst_bytes ? peak.bytes : worst_bytes;
    }
    dtp_arena_destroy(r.a);
    return (uint64_t)worst_bytes;
}
