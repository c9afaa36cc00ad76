/* Why a plan lost: the terms in which its step differs from the best one. */
#include <math.h>

#include "planner/report.h"
#include "sim/base/text.h"
#include "sim/base/units.h"

#define X(field, key, words, ...) words,
const char *const dtp_term_words[DTP_NTERMS] = {DTP_BREAKDOWN_LIST(X)};
#undef X

/* The words where a sentence names them. */
#define X(field, key, words, shorter, ...) shorter,
static const char *const short_words[DTP_NTERMS] = {DTP_BREAKDOWN_LIST(X)};
#undef X

double dtp_breakdown_term(const struct dtp_breakdown *b, int term) {
    const double value[DTP_NTERMS] = {
#define X(field, ...) b->field,
        DTP_BREAKDOWN_LIST(X)
#undef X
    };
    return value[term];
}

/* Differences below this part of a step are not worth a word. */
static const double UNSEEN = 0.0005;
/* A second term is named when it is at least this part of the first. */
static const double WORTH_NAMING = 0.25;

struct term {
    int index;
    double delta; /* part of the best step */
};

static struct term most(const struct term *terms, double sign, int but) {
    struct term best = {-1, 0};
    for (int i = 0; i < DTP_NTERMS; i++)
        if (i != but && terms[i].delta * sign > best.delta * sign)
            best = terms[i];
    return best;
}

static void add_term(struct dtp_str *s, const struct term *t) {
    dtp_str_printf(s, "%s%+.1f %% %s", s->n ? ", " : "", t->delta * 100, short_words[t->index]);
}

static void add_memory(struct dtp_str *s, const struct dtp_result *best,
                       const struct dtp_result *other) {
    char text[32];
    double more_bytes = (double)other->device_bytes - (double)best->device_bytes;
    if (fabs(more_bytes) < DTP_GIB / 20)
        return;
    dtp_str_printf(s, ", needs %s %s", dtp_fmt_bytes_gib(fabs(more_bytes), text, sizeof text),
                   more_bytes > 0 ? "more" : "less");
}

const char *dtp_report_why(struct dtp_arena *a, const struct dtp_result *best,
                           const struct dtp_result *other) {
    struct dtp_str s = {.a = a};
    struct term terms[DTP_NTERMS];
    for (int i = 0; i < DTP_NTERMS; i++)
        terms[i] = (struct term){i, (dtp_breakdown_term(&other->breakdown, i) -
                                     dtp_breakdown_term(&best->breakdown, i)) /
                                        best->step_s};
    struct term first = most(terms, 1, -1);
    if (first.delta < UNSEEN) {
        dtp_str_add(&s, other->step_s > best->step_s * (1 + UNSEEN) ? "slower in many small terms"
                                                                    : "as fast");
        add_memory(&s, best, other);
        return s.at;
    }
    struct term second = most(terms, 1, first.index), saved = most(terms, -1, -1);
    add_term(&s, &first);
    if (second.delta >= UNSEEN && second.delta >= WORTH_NAMING * first.delta)
        add_term(&s, &second);
    if (-saved.delta >= UNSEEN && -saved.delta >= WORTH_NAMING * first.delta)
        add_term(&s, &saved);
    return s.at;
}

static const char *over_limit(struct dtp_arena *a, const struct dtp_problem *problem,
                              const struct dtp_result *best, const struct dtp_result *other) {
    char text[32];
    double over_bytes = (double)other->device_bytes - (double)problem->memory_limit_bytes;
    return dtp_arena_printf(a, "would be %.1f %% faster, needs %s more than the limit",
                            (1 - other->step_s / best->step_s) * 100,
                            dtp_fmt_bytes_gib(over_bytes, text, sizeof text));
}

/* The tables have no column for how layers are divided. */
static const char *name_ends(struct dtp_arena *a, const struct dtp_result *best,
                             const struct dtp_result *other, const char *why) {
    const struct dtp_plan *p = &other->plan, *q = &best->plan;
    if (p->account_for_ends == q->account_for_ends && p->last_stage_less == q->last_stage_less)
        return why;
    if (p->last_stage_less > 0)
        return dtp_arena_printf(a, "last stage %d less: %s", p->last_stage_less, why);
    return dtp_arena_printf(
        a, "%s: %s", p->account_for_ends ? "embedding and head as layers" : "layers divided evenly",
        why);
}

void dtp_report_explain(struct dtp_arena *a, const struct dtp_problem *problem,
                        struct dtp_search *search) {
    if (search->nresults == 0)
        return;
    const struct dtp_result *best = &search->result[0];
    for (size_t i = 1; i < search->nresults; i++) {
        struct dtp_result *other = &search->result[i];
        other->why_not = name_ends(a, best, other, dtp_report_why(a, best, other));
    }
    for (int i = 0; i < search->nnear_misses; i++) {
        struct dtp_result *other = &search->near_miss[i];
        other->why_not = name_ends(a, best, other, over_limit(a, problem, best, other));
    }
}
