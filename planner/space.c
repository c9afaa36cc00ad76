#include "planner/space.h"

#include "models/schedule/schedule.h"

int dtp_divisors(int n, int *out) {
    int count = 0;
    for (int d = 1; (long)d * d <= n; d++)
        if (n % d == 0)
            out[count++] = d;
    int small = count;
    for (int i = small - 1; i >= 0; i--)
        if (out[i] != n / out[i])
            out[count++] = n / out[i];
    return count;
}

static bool wants(const struct dtp_space *s, enum dtp_limit limit, int value) {
    return dtp_select_has(&s->limits.field[limit], value);
}

/* Divisors of n that the limits let through. */
static int choices(const struct dtp_space *s, enum dtp_limit limit, int n, int *out) {
    int count = dtp_divisors(n, out), kept = 0;
    for (int i = 0; i < count; i++)
        if (wants(s, limit, out[i]))
            out[kept++] = out[i];
    return kept;
}

struct builder {
    struct dtp_arena *a;
    struct dtp_space *space;
    size_t capacity;
    int cached_dp, nmicrobatch; /* microbatch sizes of the last dp */
    const int *microbatch;
    int cached_tp, cached_replicas, nzero; /* ZeRO of the last tp, dp x cp and whole experts */
    bool cached_whole;
    struct dtp_zero *zero;
    int cached_layers, nrecompute; /* recomputation of the last largest chunk */
    const struct dtp_recomputed *recompute;
    double head_layers; /* FLOPs of the head in those of a layer */
};

static void find_microbatches(struct builder *b, int dp) {
    if (b->cached_dp == dp)
        return;
    int divisors[DTP_MOST_DIVISORS], n;
    int batch = b->space->problem->global_batch;
    if (batch % dp == 0) {
        n = choices(b->space, DTP_LIMIT_MICROBATCH, batch / dp, divisors);
    } else { /* one candidate stands for all that cannot be */
        const struct dtp_select *wanted = &b->space->limits.field[DTP_LIMIT_MICROBATCH];
        divisors[0] = wanted->n ? wanted->lo[0] : 1;
        n = 1;
    }
    int *copy = DTP_NEW(b->a, int, (size_t)n + 1);
    for (int i = 0; i < n; i++)
        copy[i] = divisors[i];
    b->microbatch = copy;
    b->nmicrobatch = n;
    b->cached_dp = dp;
}

/* Replicas that share one copy of the state when all do not, into out. */
static int find_groups(const struct dtp_space *s, int tp, int replicas, int *out) {
    const struct dtp_select *wanted = &s->limits.field[DTP_LIMIT_ZERO_GROUP];
    int n = 0, per_node = s->problem->cluster->node.gpus / tp;
    if (wanted->n > 0) {
        n = choices(s, DTP_LIMIT_ZERO_GROUP, replicas, out);
        if (n == 0 && !wants(s, DTP_LIMIT_ZERO_GROUP, 0))
            out[n++] = wanted->lo[0]; /* one candidate stands for all that cannot be */
        return n;
    }
    for (int group = per_node > 1 ? per_node : 2; group <= replicas / 2; group *= 2)
        if (replicas % group == 0)
            out[n++] = group;
    return n;
}

static void find_zero(struct builder *b, int tp, int replicas, bool whole) {
    const struct dtp_space *s = b->space;
    bool given = s->limits.field[DTP_LIMIT_ZERO_GROUP].n > 0;
    bool hybrid = s->problem->framework->can.hybrid_shard && whole;
    int group[DTP_MOST_DIVISORS];
    if (b->cached_tp == tp && b->cached_replicas == replicas && b->nzero > 0 &&
        b->cached_whole == whole)
        return;
    int n = given || hybrid ? find_groups(s, tp, replicas, group) : 0;
    b->zero = DTP_NEW(b->a, struct dtp_zero, 4 * ((size_t)n + 1));
    b->nzero = 0;
    for (int stage = 0; stage <= 3; stage++) {
        if (!wants(s, DTP_LIMIT_ZERO, stage))
            continue;
        if (wants(s, DTP_LIMIT_ZERO_GROUP, 0))
            b->zero[b->nzero++] = (struct dtp_zero){stage, 0};
        for (int i = 0; (given || stage == 3) && i < n; i++)
            b->zero[b->nzero++] = (struct dtp_zero){stage, group[i]};
    }
    b->cached_tp = tp;
    b->cached_replicas = replicas;
    b->cached_whole = whole;
}

/* Modes and layers of chunks of which the largest has `layers`. */
static void find_recompute(struct builder *b, int layers) {
    const struct dtp_space *s = b->space;
    bool given = s->limits.field[DTP_LIMIT_RECOMPUTE_LAYERS].n > 0;
    const struct dtp_problem *p = s->problem;
    int cheap =
        s->limits.fixed.recompute_modules
            ? 0
            : DTP_CHEAP_MODULES & p->framework->can.recompute_modules & dtp_model_modules(p->model);
    if (b->cached_layers == layers && b->recompute)
        return;
    struct dtp_recomputed *out =
        DTP_NEW(b->a, struct dtp_recomputed, 5 + (given && layers > 0 ? (size_t)layers : 0));
    int n = 0;
    for (int mode = DTP_RECOMPUTE_NONE; mode <= DTP_RECOMPUTE_FULL; mode++) {
        bool full = mode == DTP_RECOMPUTE_FULL;
        if (!wants(s, DTP_LIMIT_RECOMPUTE, mode))
            continue;
        for (int k = 0; k <= (full && given ? layers : 0); k++)
            if (wants(s, DTP_LIMIT_RECOMPUTE_LAYERS, k))
                out[n++] = (struct dtp_recomputed){(enum dtp_recompute)mode, k, 0};
        if (mode == DTP_RECOMPUTE_SELECTIVE && cheap && wants(s, DTP_LIMIT_RECOMPUTE_LAYERS, 0))
            out[n++] = (struct dtp_recomputed){DTP_RECOMPUTE_SELECTIVE, 0, cheap};
        if (full && !given && layers > 1 && p->framework->can.recompute_layers != DTP_RECOMPUTE_ALL)
            out[n++] = (struct dtp_recomputed){DTP_RECOMPUTE_FULL, DTP_FEWEST_LAYERS, 0};
    }
    b->recompute = out;
    b->nrecompute = n;
    b->cached_layers = layers;
}

static int most_layers(const struct dtp_space *s, const struct dtp_shape *shape) {
    struct dtp_plan p = s->limits.fixed;
    p.pp = shape->pp;
    p.vpp = shape->vpp;
    p.account_for_ends = shape->ends;
    p.last_stage_less = shape->last_less;
    return dtp_plan_most_layers(&p, s->problem->model);
}

static void add_shape(struct builder *b, const struct dtp_shape *like) {
    struct dtp_space *s = b->space;
    struct dtp_shape shape = *like;
    find_recompute(b, most_layers(s, &shape));
    shape.recompute = b->recompute;
    shape.nrecompute = b->nrecompute;
    find_microbatches(b, shape.dp);
    shape.microbatch = b->microbatch;
    shape.nmicrobatch = b->nmicrobatch;
    find_zero(b, shape.tp, shape.dp * shape.cp, shape.ep == 1 && shape.etp == 0);
    shape.zero = b->zero;
    shape.nzero = b->nzero;
    shape.nsp = 0;
    for (int on = 0; on <= (shape.tp > 1); on++)
        if (wants(s, DTP_LIMIT_SP, on))
            shape.sp[shape.nsp++] = on;
    shape.first = s->ncandidates;
    s->shape = dtp_arena_room(b->a, s->shape, sizeof *s->shape, s->nshapes, &b->capacity);
    s->shape[s->nshapes] = shape;
    uint64_t size = dtp_space_shape_size(s, s->nshapes);
    if (size == 0)
        return;
    s->nshapes++;
    s->ncandidates += size;
}

/* If the virtual stages divide L + 2, dividing the layers alone as evenly as possible gives the same division: the
 * first and the last stage have one layer less. */
static bool is_same_without_ends(const struct dtp_space *s, const struct dtp_shape *shape) {
    const struct dtp_problem *p = s->problem;
    const struct dtp_framework *f = p->framework;
    int layers = p->model->layers, n = shape->pp * shape->vpp;
    bool uneven = shape->vpp == 1 ? f->can.uneven_stages : f->can.uneven_chunks;
    return wants(s, DTP_LIMIT_ENDS, false) && p->model->mtp_layers == 0 && n <= layers &&
           (uneven || layers % n == 0);
}

/* The schedules that were asked for, else those of the framework. A plan without a pipeline has the usual one; so has
 * a number of chunks that was asked for and that no schedule of the framework takes: it is refused with a reason. */
static bool is_candidate(const struct dtp_space *s, const struct dtp_shape *shape, int schedule) {
    if (dtp_schedule_kinds[schedule].chunked != (shape->vpp > 1))
        return false;
    if (s->limits.field[DTP_LIMIT_SCHEDULE].n > 0)
        return wants(s, DTP_LIMIT_SCHEDULE, schedule);
    bool usual = schedule == dtp_schedule_usual(shape->vpp);
    if (shape->pp > 1 && dtp_framework_has_schedule(s->problem->framework, schedule))
        return true;
    return usual && (s->limits.field[DTP_LIMIT_VPP].n > 0 || (shape->pp == 1 && shape->vpp == 1));
}

static void add_schedules(struct builder *b, struct dtp_shape *shape) {
    const struct dtp_limits *l = &b->space->limits;
    size_t given = l->fixed.layers_per_stage.n;
    int per_chunk = b->space->problem->model->layers / shape->pp / shape->vpp;
    if ((given > 0 && given != (size_t)(shape->pp * shape->vpp)) ||
        (shape->last_less > 0 && shape->last_less >= per_chunk) ||
        (shape->ep_overlap && shape->pp > 1 && shape->vpp == 1 &&
         l->field[DTP_LIMIT_EP_OVERLAP].n == 0) ||
        (shape->ends && is_same_without_ends(b->space, shape)))
        return;
    for (int k = 0; dtp_schedule_kinds[k].name; k++) {
        if (!is_candidate(b->space, shape, k))
            continue;
        shape->schedule = k;
        add_shape(b, shape);
    }
}

/* Numbers of chunks that divide a stage's layers; where chunks may be uneven, any. */
static void add_chunks(struct builder *b, struct dtp_shape *shape, int per_stage) {
    const struct dtp_space *s = b->space;
    int vpp[DTP_MOST_DIVISORS];
    if (!shape->ends && s->problem->framework->can.uneven_chunks) {
        for (shape->vpp = 1; shape->vpp <= per_stage; shape->vpp++)
            if (wants(s, DTP_LIMIT_VPP, shape->vpp))
                add_schedules(b, shape);
        return;
    }
    int n = choices(b->space, DTP_LIMIT_VPP, per_stage, vpp);
    for (int i = 0; i < n; i++) {
        shape->vpp = vpp[i];
        add_schedules(b, shape);
    }
}

/* The time of the head is that of its product and of what runs over the logits, so that it may be worth more
 * layers than its FLOPs. */
static int most_less(const struct builder *b, int pp, int per_stage) {
    static const double head_time = 1.5; /* its time over that of layers with equal FLOPs */
    const struct dtp_space *s = b->space;
    const struct dtp_problem *p = s->problem;
    if (pp == 1 || s->limits.fixed.layers_per_stage.n > 0)
        return 0;
    if (s->limits.field[DTP_LIMIT_LAST_LESS].n > 0)
        return per_stage - 1;
    if (!dtp_framework_takes_layers(p->framework) || p->model->mtp_layers > 0)
        return 0;
    double most = head_time * b->head_layers;
    return most < per_stage - 1 ? (int)most : per_stage - 1;
}

static void add_splits(struct builder *b, struct dtp_shape *shape, bool ends, int per_stage) {
    const struct dtp_space *s = b->space;
    int most = ends ? 0 : most_less(b, shape->pp, per_stage);
    shape->ends = ends;
    for (int less = 0; less <= most && wants(s, DTP_LIMIT_ENDS, ends); less++) {
        shape->last_less = less;
        if (wants(s, DTP_LIMIT_LAST_LESS, less))
            add_chunks(b, shape, per_stage);
    }
}

static void add_stages(struct builder *b, struct dtp_shape *shape) {
    const struct dtp_problem *p = b->space->problem;
    int per_stage = p->model->layers / shape->pp, with_ends = p->model->layers + 2;
    add_splits(b, shape, false, shape->pp == 1 || per_stage < 1 ? 1 : per_stage);
    if (p->framework->can.accounts_for_ends && shape->pp > 1 && with_ends % shape->pp == 0 &&
        b->space->limits.fixed.layers_per_stage.n == 0)
        add_splits(b, shape, true, with_ends / shape->pp);
}

/* Adds the ways in which the rows of experts travel. A group whose ranks fill nodes or parts of them stays inside, and
 * sending once per node changes nothing there. */
static void add_dispatch(struct builder *b, struct dtp_shape *shape, int etp) {
    const struct dtp_space *s = b->space;
    const struct dtp_framework *f = s->problem->framework;
    bool leaves = s->problem->cluster->node.gpus % ((int64_t)etp * shape->ep) != 0;
    bool once = shape->ep > 1 && f->can.has_ep_per_node && leaves;
    bool hides = shape->ep > 1 && f->can.has_ep_overlap;
    once |= s->limits.field[DTP_LIMIT_EP_PER_NODE].n > 0;
    hides |= s->limits.field[DTP_LIMIT_EP_OVERLAP].n > 0;
    for (int overlap = 0; overlap <= hides; overlap++)
        for (int per_node = 0; per_node <= once; per_node++) {
            shape->ep_per_node = per_node;
            shape->ep_overlap = overlap;
            if (wants(s, DTP_LIMIT_EP_PER_NODE, per_node) &&
                wants(s, DTP_LIMIT_EP_OVERLAP, overlap))
                add_stages(b, shape);
        }
}

static void add_experts(struct builder *b, struct dtp_shape *shape, int etp) {
    int ep[DTP_MOST_DIVISORS];
    int experts = b->space->problem->model->moe.experts, ranks = shape->tp * shape->cp * shape->dp;
    int n = choices(b->space, DTP_LIMIT_EP, experts > 0 ? ranks / etp : 1, ep);
    shape->etp = etp == shape->tp ? 0 : etp;
    for (int i = 0; i < n; i++) {
        if (ep[i] > 1 && ep[i] > experts)
            break;
        if (experts > 0 && experts % ep[i] != 0 && b->space->limits.field[DTP_LIMIT_EP].n == 0)
            continue;
        shape->ep = ep[i];
        add_dispatch(b, shape, etp);
    }
}

/* Experts divided as the layer is, or not at all: ep costs less than etp (Liu 2025, section 4.4), and of ten
 * models none was best with what lies between, which is tried only when asked for. */
static void add_expert_degrees(struct builder *b, struct dtp_shape *shape) {
    const struct dtp_problem *p = b->space->problem;
    int etp[DTP_MOST_DIVISORS], n = 0;
    bool any = p->framework->can.expert_tp == DTP_EXPERT_TP_ANY,
         asked = any && b->space->limits.field[DTP_LIMIT_ETP].n > 0;
    if (p->model->moe.experts > 0 && p->framework->can.expert_tp != DTP_EXPERT_TP_SAME)
        n = choices(b->space, DTP_LIMIT_ETP, asked ? shape->tp * shape->cp * shape->dp : shape->tp,
                    etp);
    else if (wants(b->space, DTP_LIMIT_ETP, shape->tp))
        etp[n++] = shape->tp;
    for (int i = 0; i < n; i++)
        if (asked || etp[i] == 1 || etp[i] == shape->tp)
            add_experts(b, shape, etp[i]);
}

static void add_contexts(struct builder *b, struct dtp_shape *shape, int gpus) {
    int cp[DTP_MOST_DIVISORS];
    const struct dtp_problem *p = b->space->problem;
    bool given = b->space->limits.field[DTP_LIMIT_CP].n > 0;
    bool has = p->framework->can.has_cp && p->model->nconvs == 0;
    int n = choices(b->space, DTP_LIMIT_CP, given || has ? gpus : 1, cp);
    for (int i = 0; i < n; i++) {
        if (!given && cp[i] > 1 && p->seq % (2 * (int64_t)cp[i]) != 0)
            continue;
        shape->cp = cp[i];
        shape->dp = gpus / cp[i];
        if (wants(b->space, DTP_LIMIT_DP, shape->dp))
            add_expert_degrees(b, shape);
    }
}

/* Returns how many layers the head is worth, by the parameters that a token uses. */
static double head_layers(const struct dtp_model *m) {
    struct dtp_param_counts count;
    dtp_model_params(m, m->vocab, &count);
    double ends = (double)(count.embedding + count.head), head = (double)m->vocab * m->hidden;
    double layers = (double)count.active - ends;
    return layers > 0 && m->classes == 0 ? head * m->layers / layers : 0;
}

void dtp_space_init(struct dtp_arena *a, const struct dtp_problem *problem,
                    const struct dtp_limits *limits, struct dtp_space *out) {
    *out = (struct dtp_space){.problem = problem, .limits = limits ? *limits : dtp_limits_none()};
    struct builder b = {.a = a, .space = out, .head_layers = head_layers(problem->model)};
    int tp[DTP_MOST_DIVISORS], pp[DTP_MOST_DIVISORS];
    int ntp = choices(out, DTP_LIMIT_TP, problem->gpus, tp);
    for (int i = 0; i < ntp; i++) {
        int npp = choices(out, DTP_LIMIT_PP, problem->gpus / tp[i], pp);
        for (int j = 0; j < npp; j++) {
            struct dtp_shape shape = {.tp = tp[i], .pp = pp[j]};
            add_contexts(&b, &shape, problem->gpus / tp[i] / pp[j]);
        }
    }
}

uint64_t dtp_space_shape_size(const struct dtp_space *s, size_t shape) {
    const struct dtp_shape *h = &s->shape[shape];
    return (uint64_t)h->nmicrobatch * (uint64_t)h->nzero * (uint64_t)h->nsp *
           (uint64_t)h->nrecompute;
}

void dtp_space_plan(const struct dtp_space *s, size_t shape, uint64_t i, struct dtp_plan *out) {
    const struct dtp_shape *h = &s->shape[shape];
    *out = s->limits.fixed;
    out->tp = h->tp;
    out->pp = h->pp;
    out->cp = h->cp;
    out->dp = h->dp;
    out->ep = h->ep;
    out->etp = h->etp;
    out->ep_overlap = h->ep_overlap;
    out->ep_per_node = h->ep_per_node;
    out->vpp = h->vpp;
    out->schedule = h->schedule;
    out->account_for_ends = h->ends;
    out->last_stage_less = h->last_less;
    out->global_batch_size = s->problem->global_batch;
    uint64_t nrecompute = (uint64_t)h->nrecompute, nsp = (uint64_t)h->nsp;
    uint64_t nzero = (uint64_t)h->nzero;
    out->recompute = h->recompute[i % nrecompute].mode;
    out->recompute_layers = h->recompute[i % nrecompute].layers;
    if (h->recompute[i % nrecompute].modules)
        out->recompute_modules = h->recompute[i % nrecompute].modules;
    i /= nrecompute;
    out->sequence_parallel = h->sp[i % nsp] != 0;
    i /= nsp;
    out->zero_stage = h->zero[i % nzero].stage;
    out->zero_group = h->zero[i % nzero].group;
    out->microbatch_size = h->microbatch[i / nzero];
}

void dtp_space_candidate(const struct dtp_space *s, uint64_t candidate, struct dtp_plan *out) {
    size_t lo = 0, hi = s->nshapes; /* shape[lo].first <= candidate < shape[hi].first */
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (s->shape[mid].first <= candidate)
            lo = mid;
        else
            hi = mid;
    }
    dtp_space_plan(s, lo, candidate - s->shape[lo].first, out);
}
