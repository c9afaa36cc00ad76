/* --why-not: what became of the plans that have given fields. */
#include "planner/advise.h"

#include "sim/base/text.h"

enum { MOST_VALUES = 64, MOST_REASONS_SHOWN = 6 };

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
        dtp_frameworks_that(q->a, here->problem.framework, dtp_legal_there, &asked);
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
    int n = dtp_space_values(&space, limit, values, MOST_VALUES);
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
