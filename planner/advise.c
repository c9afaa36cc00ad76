#include "planner/advise.h"

#include <limits.h>
#include <stdlib.h>

#include "sim/base/text.h"

enum {
    MOST_VALUES = 64,
    REACH = 64, /* how far from what was asked a working number is looked for */
    MOST_GPUS_TRIED = 1 << 16,
    MOST_STEPS = 64,
    MOST_REASONS_NAMED = 2
};

/* Values of one field over the candidates of a space, sorted. Returns how many, at most `most`. */
static int space_values(const struct dtp_space *space, enum dtp_limit limit, int *out, int most) {
    int n = 0;
    struct dtp_plan p;
    for (size_t s = 0; s < space->nshapes; s++) {
        uint64_t size = dtp_space_shape_size(space, s);
        for (uint64_t i = 0; i < size; i++) {
            dtp_space_plan(space, s, i, &p);
            int v = dtp_limit_get(&p, limit), at = 0;
            while (at < n && out[at] < v)
                at++;
            if (n == most || (at < n && out[at] == v))
                continue;
            for (int k = n++; k > at; k--)
                out[k] = out[k - 1];
            out[at] = v;
        }
    }
    return n;
}

/* ---- limits that leave nothing ---- */

/* Fields that may have any number up to some. */
static bool runs(enum dtp_limit limit) {
    return limit == DTP_LIMIT_VPP || limit == DTP_LIMIT_LAST_LESS ||
           limit == DTP_LIMIT_RECOMPUTE_LAYERS;
}

static bool add_values(struct dtp_arena *a, const struct dtp_report *r, enum dtp_limit limit,
                       struct dtp_str *s) {
    struct dtp_limits relaxed = *r->limits;
    struct dtp_space space;
    int values[MOST_VALUES] = {0};
    char text[32];
    dtp_limits_relax(&relaxed, limit);
    dtp_space_init(a, &r->setup->problem, &relaxed, &space);
    int n = space_values(&space, limit, values, MOST_VALUES);
    for (int i = 0; i < n; i++) {
        int last = i; /* end of a run without a gap */
        while (runs(limit) && last + 1 < n && values[last + 1] == values[last] + 1)
            last++;
        dtp_str_printf(s, "%s%s", i ? ", " : "",
                       dtp_limit_text(limit, values[i], text, sizeof text));
        if (last > i)
            dtp_str_printf(s, "..%s", dtp_limit_text(limit, values[last], text, sizeof text));
        i = last;
    }
    return n > 0;
}

static const char *no_candidate(struct dtp_arena *a, const struct dtp_report *r) {
    struct dtp_str s = {.a = a};
    for (int k = 0; r->limits && k < DTP_NLIMITS; k++) {
        struct dtp_str values = {.a = a};
        if (r->limits->field[k].n == 0 || !add_values(a, r, (enum dtp_limit)k, &values))
            continue;
        dtp_str_printf(&s, "%s--%s leaves no plan for %d GPUs; values that do: %s",
                       s.n ? "; or " : "", dtp_limit_fields[k].option, r->setup->problem.gpus,
                       values.at);
    }
    if (s.n > 0)
        return s.at;
    return "the limits on the layout exclude each other: no plan is left; give fewer of them";
}

/* ---- nothing legal, nothing that fits ---- */

static bool works(const struct dtp_report *r, int gpus, int batch) {
    struct dtp_problem p = r->setup->problem;
    struct dtp_plan plan;
    if (gpus < 1 || batch < 1 || (p.cluster->max_gpus > 0 && gpus > p.cluster->max_gpus))
        return false;
    p.gpus = gpus;
    p.global_batch = batch;
    return dtp_search_any(&p, r->limits, &plan);
}

/* Farther than REACH only round numbers are tried: multiples of the divisors of what must divide them or be
 * divided, up to twice as many. */
static int nearest_round(const struct dtp_report *r, bool of_gpus) {
    const struct dtp_problem *p = &r->setup->problem;
    int from = of_gpus ? p->gpus : p->global_batch, other = of_gpus ? p->global_batch : p->gpus;
    int best = 0;
    for (int d = other; d > REACH; d--) {
        if (other % d != 0)
            continue;
        const int near[2] = {from / d * d, (from / d + 1) * d};
        for (int i = 0; i < 2; i++) {
            bool nearer = best == 0 || abs(near[i] - from) < abs(best - from);
            if (nearer && near[i] <= 2 * from &&
                works(r, of_gpus ? near[i] : p->gpus, of_gpus ? p->global_batch : near[i]))
                best = near[i];
        }
    }
    return best;
}

/* A tenth away is near enough for a number that all plans like better than the nearest that one plan can take: 992
 * GPUs split a batch of 1024 of Llama 3 8B by 31 stages alone, which take 3.6 times as long as 1,024 GPUs. */
enum { NEAR = 10 };

/* The multiple of the GPUs nearest to the batch, which every dp divides; 0: none is near. */
static int even_batch(const struct dtp_report *r) {
    int gpus = r->setup->problem.gpus, batch = r->setup->problem.global_batch;
    int even = (batch / gpus + (batch % gpus > gpus / 2 ? 1 : 0)) * gpus;
    return abs(even - batch) <= batch / NEAR && works(r, gpus, even) ? even : 0;
}

/* The nearest number of whole nodes that divides the batch; 0: none is near. */
static int even_gpus(const struct dtp_report *r) {
    const struct dtp_problem *p = &r->setup->problem;
    int node = p->cluster->node.gpus;
    for (int d = 0; d <= p->gpus / NEAR; d++)
        for (int sign = -1; sign <= 1; sign += 2) {
            int gpus = p->gpus + sign * d;
            if (gpus % node == 0 && gpus > 0 && p->global_batch % (gpus / node) == 0 &&
                works(r, gpus, p->global_batch))
                return gpus;
        }
    return 0;
}

/* The number nearest to the one asked for that works, smaller ones first among equals; 0: none found. */
static int nearest(const struct dtp_report *r, bool of_gpus) {
    const struct dtp_problem *p = &r->setup->problem;
    for (int d = 1; d <= REACH; d++)
        for (int sign = -1; sign <= 1; sign += 2) {
            int gpus = of_gpus ? p->gpus + sign * d : p->gpus;
            int batch = of_gpus ? p->global_batch : p->global_batch + sign * d;
            if (works(r, gpus, batch))
                return of_gpus ? gpus : batch;
        }
    return nearest_round(r, of_gpus);
}

/* The reasons by which the framework refuses a field; if a limit asks for such a field, other reasons do not
 * matter. */
static const struct {
    enum dtp_reason reason;
    enum dtp_limit limit;
} of_limit[] = {{DTP_WHY_SCHEDULE, DTP_LIMIT_SCHEDULE},
                {DTP_WHY_ZERO, DTP_LIMIT_ZERO},
                {DTP_WHY_ZERO_PP, DTP_LIMIT_ZERO},
                {DTP_WHY_ZERO_TP, DTP_LIMIT_ZERO},
                {DTP_WHY_ZERO_GROUP, DTP_LIMIT_ZERO_GROUP},
                {DTP_WHY_ENDS, DTP_LIMIT_ENDS},
                {DTP_WHY_LAST_LESS, DTP_LIMIT_LAST_LESS},
                {DTP_WHY_RECOMPUTE, DTP_LIMIT_RECOMPUTE},
                {DTP_WHY_RECOMPUTE, DTP_LIMIT_RECOMPUTE_LAYERS},
                {DTP_WHY_MODULES, DTP_LIMIT_RECOMPUTE},
                {DTP_WHY_SP, DTP_LIMIT_SP},
                {DTP_WHY_CP, DTP_LIMIT_CP},
                {DTP_WHY_EP, DTP_LIMIT_EP},
                {DTP_WHY_ETP, DTP_LIMIT_ETP}};

static bool is_asked_for(const struct dtp_report *r, int reason) {
    bool asked = false;
    for (size_t i = 0; r->limits && i < sizeof of_limit / sizeof *of_limit; i++)
        asked |= (int)of_limit[i].reason == reason && r->limits->field[of_limit[i].limit].n > 0;
    return asked;
}

static void add_reason(struct dtp_str *s, const struct dtp_counts *c, int reason,
                       const char *lead) {
    dtp_str_printf(s, "%s%s (%llu of %llu plans)", lead, dtp_reasons[reason],
                   (unsigned long long)c->reason[reason], (unsigned long long)c->candidates);
}

/* Adds the reasons that concern the limits asked for; if there are none, the most frequent reasons. */
static void add_reasons(struct dtp_str *s, const struct dtp_report *r) {
    const struct dtp_counts *c = &r->search->counts;
    int named = 0;
    for (int k = 0, reason; (reason = dtp_counts_reason(c, k)) >= 0; k++)
        if (is_asked_for(r, reason))
            add_reason(s, c, reason, named++ ? ", and " : "; ");
    for (int k = 0; named == 0 && k < MOST_REASONS_NAMED; k++)
        if (dtp_counts_reason(c, k) >= 0)
            add_reason(s, c, dtp_counts_reason(c, k), k ? ", and " : "; most often ");
}

static bool limited(const struct dtp_report *r) {
    bool any = r->limits && r->limits->fixed.layers_per_stage.n > 0;
    for (int k = 0; r->limits && k < DTP_NLIMITS; k++)
        any |= r->limits->field[k].n > 0;
    return any;
}

/* A plan without the limits on the searched fields, if there is one. */
static const char *without_limits(struct dtp_arena *a, const struct dtp_report *r) {
    struct dtp_limits none = dtp_limits_none();
    struct dtp_plan plan;
    if (!limited(r) || !dtp_search_any(&r->setup->problem, &none, &plan))
        return NULL;
    return dtp_plan_words(a, &plan);
}

/* Whether the framework has a legal plan of the report's problem within its limits; context: the report. */
static bool legal_there(const struct dtp_framework *f, const void *context) {
    const struct dtp_report *r = context;
    struct dtp_problem there = r->setup->problem;
    struct dtp_arena *a = dtp_arena_create("there");
    struct dtp_space space;
    struct dtp_plan plan;
    bool found = false;
    there.framework = f;
    dtp_space_init(a, &there, r->limits, &space);
    for (size_t shape = 0; shape < space.nshapes && !found; shape++)
        for (uint64_t i = 0; i < dtp_space_shape_size(&space, shape) && !found; i++) {
            dtp_space_plan(&space, shape, i, &plan);
            found = dtp_plan_check(&there, &plan) == DTP_LEGAL;
        }
    dtp_arena_destroy(a);
    return found;
}

static const char *nothing_legal(struct dtp_arena *a, const struct dtp_report *r) {
    const struct dtp_problem *p = &r->setup->problem;
    struct dtp_str s = {.a = a};
    char text[32];
    const char *other = without_limits(a, r);
    if (other) {
        dtp_str_printf(&s, "every plan of %s within these limits is refused", p->model->name);
        add_reasons(&s, r);
        const char *frameworks =
            dtp_frameworks_text(a, r->setup->problem.framework, legal_there, r);
        if (frameworks)
            dtp_str_printf(&s, "; frameworks that have such plans: %s", frameworks);
        dtp_str_printf(&s, "; without the limits this works: %s", other);
        return s.at;
    }
    int gpus = even_gpus(r), batch = even_batch(r);
    gpus = gpus ? gpus : nearest(r, true);
    batch = batch ? batch : nearest(r, false);
    dtp_fmt_count(p->gpus, text, sizeof text);
    if (gpus > 0 || batch > 0)
        dtp_str_printf(&s, "no plan of %s splits a batch of %d on %s GPU%s", p->model->name,
                       p->global_batch, text, p->gpus == 1 ? "" : "s");
    else
        dtp_str_printf(&s, "every plan of %s on %s GPUs is refused", p->model->name, text);
    if (gpus > 0 || batch > 0)
        dtp_str_add(&s, "; nearest that works: ");
    if (gpus > 0)
        dtp_str_printf(&s, "%d GPUs", gpus);
    if (batch > 0)
        dtp_str_printf(&s, "%sa batch of %d", gpus > 0 ? ", or " : "", batch);
    add_reasons(&s, r);
    return s.at;
}

/* The least number of GPUs on which something fits, by doubling and then by nodes; 0: none found. */
static int enough_gpus(const struct dtp_report *r, bool *out_exact) {
    const struct dtp_problem *p = &r->setup->problem;
    int per_node = p->cluster->node.gpus, high = p->gpus;
    do {
        high *= 2;
        if (high > MOST_GPUS_TRIED)
            return 0;
    } while (!works(r, high, p->global_batch));
    int low = high / 2, step = high <= per_node ? 1 : per_node;
    while ((high - low) / step > MOST_STEPS)
        step *= 2;
    *out_exact = step == 1 || step == per_node;
    for (int n = low - low % step + step; n < high; n += step)
        if (works(r, n, p->global_batch))
            return n;
    return high;
}

/* The least factor, by doubling, on GPUs and batch together with which something fits; 0: none found. */
static int enough_of_both(const struct dtp_report *r) {
    const struct dtp_problem *p = &r->setup->problem;
    for (int k = 2; p->gpus <= MOST_GPUS_TRIED / k && p->global_batch <= INT_MAX / k; k *= 2)
        if (works(r, k * p->gpus, k * p->global_batch))
            return k;
    return 0;
}

/* ", with --offload optimizer this fits on as many: ...", or "" where none does. */
static const char *with_offload(struct dtp_arena *a, const struct dtp_report *r) {
    struct dtp_limits limits = r->limits ? *r->limits : dtp_limits_none();
    struct dtp_plan plan;
    if (limits.fixed.offload != DTP_OFFLOAD_NONE || !r->setup->framework.can.offload)
        return "";
    for (int what = DTP_OFFLOAD_OPTIMIZER; what <= DTP_OFFLOAD_PARAMETERS; what++) {
        limits.fixed.offload = (enum dtp_offload)what;
        if (dtp_search_any(&r->setup->problem, &limits, &plan))
            return dtp_arena_printf(a, "; with --offload %s this fits: %s", dtp_offload_names[what],
                                    dtp_plan_words(a, &plan));
    }
    return "";
}

static const char *nothing_fits(struct dtp_arena *a, const struct dtp_report *r) {
    const struct dtp_problem *p = &r->setup->problem;
    struct dtp_str s = {.a = a};
    struct dtp_plan leanest;
    char text[32], limit[32];
    bool exact = false;
    dtp_search_plan(r->search, r->search->leanest, &leanest);
    dtp_str_printf(&s, "%s does not fit on %s GPU%s", p->model->name,
                   dtp_fmt_count(p->gpus, text, sizeof text), p->gpus == 1 ? "" : "s");
    dtp_str_printf(&s,
                   ": the leanest of %llu legal plans needs %s of device memory, the limit is %s",
                   (unsigned long long)r->search->counts.over_memory,
                   dtp_fmt_bytes_gib((double)r->search->leanest->device_bytes, text, sizeof text),
                   dtp_fmt_bytes_gib((double)p->memory_limit_bytes, limit, sizeof limit));
    dtp_str_printf(&s, " (%s)", dtp_plan_words(a, &leanest));
    if (r->search->counts.reason[DTP_WHY_MICROBATCHES] > 0)
        dtp_str_printf(&s, "; %llu plans have %s",
                       (unsigned long long)r->search->counts.reason[DTP_WHY_MICROBATCHES],
                       dtp_reasons[DTP_WHY_MICROBATCHES]);
    const char *other = without_limits(a, r);
    if (other) {
        dtp_str_printf(&s, "; without the limits on the layout this fits: %s", other);
        return s.at;
    }
    int gpus = enough_gpus(r, &exact), both = gpus > 0 ? 0 : enough_of_both(r);
    if (gpus > 0)
        dtp_str_printf(&s, "; it %s %d GPUs", exact ? "needs at least" : "fits on", gpus);
    else if (both > 0)
        dtp_str_printf(&s, "; it fits on %d GPUs with a batch of %d, not with %d on any number",
                       both * p->gpus, both * p->global_batch, p->global_batch);
    else
        dtp_str_printf(&s, "; more GPUs do not help%s",
                       limited(r) ? " within these limits on the layout" : "");
    dtp_str_add(&s, with_offload(a, r));
    return s.at;
}

const char *dtp_advise(struct dtp_arena *a, const struct dtp_report *r) {
    const struct dtp_search *s = r->search;
    if (s->counts.candidates == 0)
        return no_candidate(a, r);
    return !s->leanest ? nothing_legal(a, r) : nothing_fits(a, r);
}

/* ---- --why-not: what became of the plans that have given fields ---- */

enum { MOST_REASONS_SHOWN = 6 };

struct question {
    struct dtp_arena *a;
    const struct dtp_term *t;
    const struct dtp_report *r;
    const struct dtp_search_options *options;
};

static const char *fields_text(struct dtp_arena *a, const struct dtp_limits *fields) {
    struct dtp_str s = {.a = a};
    char lo[32], hi[32];
    for (int k = 0; k < DTP_NLIMITS; k++)
        for (int i = 0; i < fields->field[k].n; i++) {
            const struct dtp_select *f = &fields->field[k];
            if (i == 0)
                dtp_str_printf(&s, "%s%s ", s.n ? ", " : "", dtp_limit_fields[k].name);
            dtp_str_printf(&s, "%s%s", i ? "," : "",
                           dtp_limit_text((enum dtp_limit)k, f->lo[i], lo, sizeof lo));
            if (f->hi[i] != f->lo[i])
                dtp_str_printf(&s, "..%s",
                               dtp_limit_text((enum dtp_limit)k, f->hi[i], hi, sizeof hi));
        }
    return s.at ? s.at : "any";
}

static void reasons(const struct question *q, const struct dtp_counts *c) {
    char n[32];
    for (int k = 0; k < MOST_REASONS_SHOWN; k++) {
        int reason = dtp_counts_reason(c, k);
        if (reason >= 0)
            fprintf(q->t->file, "  %9s illegal: %s\n",
                    dtp_fmt_count((double)c->reason[reason], n, sizeof n), dtp_reasons[reason]);
    }
}

static void verdict(const struct question *q, const struct dtp_search *s) {
    const struct dtp_term *t = q->t;
    char n[32], least[32], limit[32];
    if (s->counts.over_memory > 0)
        fprintf(
            t->file, "  %9s over the memory limit of %s; the leanest legal plan needs %s\n",
            dtp_fmt_count((double)s->counts.over_memory, n, sizeof n),
            dtp_fmt_bytes_gib((double)q->r->setup->problem.memory_limit_bytes, limit, sizeof limit),
            dtp_fmt_bytes_gib((double)s->leanest->device_bytes, least, sizeof least));
    uint64_t fit = s->counts.bounded + s->counts.estimated;
    if (fit == 0)
        return;
    fprintf(t->file, "  %9s fit; the best of them:\n", dtp_fmt_count((double)fit, n, sizeof n));
    const struct dtp_result *own = &s->result[0];
    fprintf(t->file, "            ");
    dtp_term_wrap(t, DTP_PLAIN, 12, 12, dtp_plan_words(q->a, &own->plan));
    fprintf(t->file, "            %s", dtp_fmt_time(own->step_s, n, sizeof n));
    const struct dtp_search *all = q->r->search;
    if (all->nresults == 0 || own->step_s <= all->result[0].step_s) {
        fprintf(t->file, ": the best plan of all\n");
        return;
    }
    const struct dtp_result *best = &all->result[0];
    fprintf(t->file, ", %.1f %% slower than the best (%s): %s\n",
            (own->step_s / best->step_s - 1) * 100, dtp_fmt_time(best->step_s, n, sizeof n),
            dtp_report_why(q->a, best, own));
}

/* Stacks that have such plans, each searched for itself. */
static enum dtp_status elsewhere(const struct question *q, const struct dtp_limits *fields,
                                 struct dtp_err *err) {
    const struct dtp_term *t = q->t;
    const struct dtp_setup *here = q->r->setup;
    struct dtp_report asked = *q->r;
    char text[32];
    asked.limits = fields;
    const char *const *name =
        dtp_frameworks_that(q->a, here->problem.framework, legal_there, &asked);
    fprintf(t->file, *name ? "  frameworks that have such plans:\n"
                           : "  no other framework has such a plan\n");
    for (; *name; name++) {
        struct dtp_setup *there = DTP_NEW(q->a, struct dtp_setup, 1);
        struct dtp_ask ask = here->ask;
        struct dtp_search s;
        ask.framework = *name;
        ask.framework_json = NULL;
        if (dtp_setup_init(q->a, &ask, there, NULL) != DTP_OK)
            continue; /* a dtype or an attention kernel that was asked for */
        DTP_TRY(dtp_search(q->a, &there->problem, fields, q->options, &s, err));
        fprintf(t->file, "    --framework %s: ", *name);
        if (s.nresults == 0) {
            fprintf(t->file, "nothing fits, the leanest needs %s\n",
                    s.leanest
                        ? dtp_fmt_bytes_gib((double)s.leanest->device_bytes, text, sizeof text)
                        : "more");
            continue;
        }
        fprintf(t->file, "%s\n            ", dtp_fmt_time(s.result[0].step_s, text, sizeof text));
        dtp_term_wrap(t, DTP_PLAIN, 12, 12, dtp_plan_words(q->a, &s.result[0].plan));
    }
    return DTP_OK;
}

static enum dtp_status judge(const struct question *q, const struct dtp_limits *fields,
                             struct dtp_err *err) {
    struct dtp_search s;
    char n[32];
    DTP_TRY(dtp_search(q->a, &q->r->setup->problem, fields, q->options, &s, err));
    dtp_term_print(q->t, DTP_BOLD, "%s", fields_text(q->a, fields));
    fprintf(q->t->file, ": %s plans\n", dtp_fmt_count((double)s.counts.candidates, n, sizeof n));
    reasons(q, &s.counts);
    verdict(q, &s);
    return !s.leanest ? elsewhere(q, fields, err) : DTP_OK;
}

/* tp 8 x pp 5: the degrees that are given do not divide the GPUs, or are all there are and make others. */
static void say_product(const struct question *q, const struct dtp_limits *fields) {
    static const enum dtp_limit degrees[] = {DTP_LIMIT_TP, DTP_LIMIT_PP, DTP_LIMIT_CP,
                                             DTP_LIMIT_DP};
    struct dtp_str s = {.a = q->a};
    long product = 1;
    int given = 0;
    for (int i = 0; i < 4; i++) {
        const struct dtp_select *f = &fields->field[degrees[i]];
        if (f->n != 1 || f->lo[0] != f->hi[0])
            continue;
        dtp_str_printf(&s, "%s%s %d", s.n ? " x " : "", dtp_limit_fields[degrees[i]].name,
                       f->lo[0]);
        product *= f->lo[0];
        given += degrees[i] != DTP_LIMIT_CP;
    }
    int gpus = q->r->setup->problem.gpus;
    dtp_term_print(q->t, DTP_BOLD, "%s", fields_text(q->a, fields));
    if (s.n > 0 && gpus % product != 0)
        fprintf(q->t->file, ": no such plan: %s = %ld does not divide %d GPUs\n", s.at, product,
                gpus);
    else if (given == 3 && product != gpus)
        fprintf(q->t->file, ": no such plan: %s = %ld of %d GPUs\n", s.at, product, gpus);
    else
        fprintf(q->t->file, ": no such plan in the space\n");
}

/* Puts the values of one given field below and above what was asked in its place. */
static enum dtp_status judge_near(const struct question *q, const struct dtp_limits *fields,
                                  enum dtp_limit limit, bool *out_found, struct dtp_err *err) {
    struct dtp_limits near = *fields;
    struct dtp_space space;
    int values[MOST_VALUES], asked = fields->field[limit].lo[0], below = -1, above = -1;
    dtp_limits_relax(&near, limit);
    dtp_space_init(q->a, &q->r->setup->problem, &near, &space);
    int n = space_values(&space, limit, values, MOST_VALUES);
    *out_found = n > 0;
    for (int i = 0; i < n; i++) {
        if (values[i] < asked)
            below = values[i];
        if (values[i] > asked && above < 0)
            above = values[i];
    }
    const int found[2] = {below, above};
    for (int i = 0; i < 2; i++) {
        if (found[i] < 0)
            continue;
        near.field[limit] = (struct dtp_select){.n = 1, .lo = {found[i]}, .hi = {found[i]}};
        DTP_TRY(judge(q, &near, err));
    }
    return DTP_OK;
}

enum dtp_status dtp_why_not(struct dtp_arena *a, const struct dtp_term *t,
                            const struct dtp_report *r, const struct dtp_limits *fields,
                            const struct dtp_search_options *options, struct dtp_err *err) {
    struct question q = {a, t, r, options};
    struct dtp_space space;
    dtp_space_init(a, &r->setup->problem, fields, &space);
    if (space.ncandidates > 0)
        return judge(&q, fields, err);
    say_product(&q, fields);
    for (int k = DTP_NLIMITS - 1; k >= 0; k--) {
        bool found = false;
        if (fields->field[k].n == 0)
            continue;
        DTP_TRY(judge_near(&q, fields, (enum dtp_limit)k, &found, err));
        if (found)
            return DTP_OK;
    }
    return DTP_OK;
}
