#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "models/schedule/schedule.h"
#include "planner/document.h"
#include "planner/report.h"
#include "sim/base/text.h"
#include "sim/base/units.h"

/* The answer of a search, or the part of it that a report on one plan has. */
struct answer {
    const struct dtp_setup *setup;
    int seed;
    const struct dtp_result *best;
    const struct trained *training; /* NULL: no plan */
    const char *unusual;
    struct dtp_list runners_up, near_misses;
    const struct dtp_counts *counts;
};

struct trained {
    struct dtp_training t;
    double gpu_hours;
    const struct dtp_goodput *goodput; /* NULL: without failures */
};

/* null where the tokens to train on are not known. */
static void put_training(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    const struct trained *t = *(const struct trained *const *)at;
    if (t->t.days > 0)
        dtp_put_pointer(w, f, at);
    else
        dtp_json_put_null(w);
}

static void put_reasons(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    const uint64_t *reason = at;
    (void)f;
    dtp_json_object(w);
    for (int i = DTP_LEGAL + 1; i < DTP_NREASONS; i++)
        if (reason[i] > 0)
            dtp_json_kv_u64(w, dtp_reasons[i], reason[i]);
    dtp_json_end(w);
}

/* clang-format off */
#define AT(member) offsetof(struct dtp_goodput, member)
static const struct dtp_field goodput_fields[] = {
    {"training_fraction", DTP_FIELD_DOUBLE, AT(fraction), .help = "share of the time that trains"},
    {"failure_every_s", DTP_FIELD_DOUBLE, AT(failure_s), .help = "mean time between interruptions"},
    {"checkpoint_every_s", DTP_FIELD_DOUBLE, AT(checkpoint_s), .help = "time between checkpoints"},
    {"checkpoint_write_s", DTP_FIELD_DOUBLE, AT(write_s), .help = "time that one takes"},
    {0}};
#undef AT
#define AT(member) offsetof(struct trained, member)
static const struct dtp_field training_fields[] = {
    {"tokens", DTP_FIELD_DOUBLE, AT(t.tokens), .help = "tokens to train on"},
    {"days", DTP_FIELD_DOUBLE, AT(t.days), .help = "days without interruptions"},
    {"days_with_failures", DTP_FIELD_DOUBLE, AT(t.days_with_failures), .help = "days with them and the checkpoints"},
    {"gpu_hours", DTP_FIELD_DOUBLE, AT(gpu_hours), .help = "GPU-hours of these days, on all GPUs"},
    {"goodput", DTP_FIELD_PUT, AT(goodput), .put = dtp_put_part, .flat = true, .fields = goodput_fields},
    {0}};
#undef AT
#define AT(member) offsetof(struct dtp_counts, member)
static const struct dtp_field counts_fields[] = {
    {"candidates", DTP_FIELD_U64, AT(candidates), .help = "plans of the space, the sum of the next four"},
    {"illegal", DTP_FIELD_U64, AT(illegal), .help = "plans that the framework or the model refuses"},
    {"over_memory", DTP_FIELD_U64, AT(over_memory), .help = "plans that do not fit"},
    {"bounded", DTP_FIELD_U64, AT(bounded), .help = "plans that cannot be faster by their bound"},
    {"estimated", DTP_FIELD_U64, AT(estimated), .help = "plans that were estimated"},
    {"simulated", DTP_FIELD_U64, AT(simulated), .help = "estimated plans that were simulated"},
    {"too_large_to_simulate", DTP_FIELD_U64, AT(too_large), .unset = DTP_UNSET_LEFT_OUT,
     .help = "estimated plans for whose events there is no memory (left out where there are none)"},
    {"illegal_reasons", DTP_FIELD_PUT, AT(reason), .put = put_reasons, .inner = ".*",
     .help = "how many plans were refused for it"},
    {"seconds", DTP_FIELD_DOUBLE, AT(seconds), .help = "wall-clock time of the search"},
    {0}};
#undef AT
static const struct dtp_form training_form = {"TRAINING", "Days of training.", training_fields};

#define AT(member) offsetof(struct answer, member)
#define HEAD                                                                                                           \
    DTP_FIELD_SCHEMA_VERSION, DTP_FIELD_VERSION, DTP_FIELD_SOURCE("dtplan: predicted"),                                \
    {"problem", DTP_FIELD_PUT, AT(setup), .put = dtp_put_part, .flat = true, .form = &dtp_problem_form},               \
    {"seed", DTP_FIELD_INT, AT(seed), .help = "seed of random draws"},                                                 \
    {"best", DTP_FIELD_PUT, AT(best), .put = dtp_put_pointer, .form = &dtp_result_form, .help = "the plan"},           \
    {"training", DTP_FIELD_PUT, AT(training), .put = put_training, .form = &training_form,                             \
     .unset = DTP_UNSET_LEFT_OUT, .help = "what the tokens take; null where their number is not known"}
static const struct dtp_field result_fields[] = {HEAD, {0}};
static const struct dtp_field answer_fields[] = {
    HEAD,
    {"unusual", DTP_FIELD_STRING, AT(unusual),
     .help = "what few use of the best plan's settings, and what it gains; absent where nothing is"},
    {"runners_up", DTP_FIELD_PUT, AT(runners_up), .put = dtp_put_list, .form = &dtp_result_form, .help = "the next best"},
    {"near_misses", DTP_FIELD_PUT, AT(near_misses), .put = dtp_put_list, .form = &dtp_result_form,
     .help = "plans over the memory limit that would be faster if they fitted"},
    {"search", DTP_FIELD_PUT, AT(counts), .put = dtp_put_pointer, .fields = counts_fields},
    {0}};
/* clang-format on */
const struct dtp_form dtp_answer_form = {
    "plan", "The best plan and the search; simulate --plan, run --plan and others read it.",
    answer_fields};
const struct dtp_form dtp_one_plan_form = {"simulate", "One plan.", result_fields};

static void train(const struct dtp_report *r, const struct dtp_result *best, struct trained *out) {
    *out = (struct trained){.t = dtp_report_training(r, best)};
    out->gpu_hours =
        out->t.days_with_failures * r->setup->problem.gpus * DTP_S_PER_DAY / DTP_S_PER_HOUR;
    out->goodput = r->failures.gpu_hours_per_failure > 0 ? &out->t.goodput : NULL;
}

void dtp_report_result_json(FILE *f, const struct dtp_report *r, const struct dtp_result *result) {
    struct trained t;
    train(r, result, &t);
    const struct answer x = {.setup = r->setup, .seed = r->seed, .best = result, .training = &t};
    dtp_form_write(f, 2, &dtp_one_plan_form, &x);
}

void dtp_report_json(struct dtp_arena *a, FILE *f, const struct dtp_report *r) {
    const struct dtp_search *s = r->search;
    const struct dtp_result *best = s->nresults > 0 ? &s->result[0] : NULL;
    struct answer x = {.setup = r->setup, .seed = r->seed, .best = best, .counts = &s->counts};
    struct trained t;
    if (best) {
        train(r, best, &t);
        x.training = &t;
        x.unusual = dtp_unusual_words(a, r, best);
        x.runners_up = DTP_LIST(best + 1, s->nresults - 1);
    }
    x.near_misses = DTP_LIST(s->near_miss, s->nnear_misses);
    dtp_form_write(f, 2, &dtp_answer_form, &x);
}

void dtp_plan_csv_head(FILE *f) {
    for (int k = 0; k < DTP_NLIMITS; k++)
        fprintf(f, "%s,", dtp_limit_fields[k].name);
    fputs("recompute_modules,", f);
}

void dtp_plan_csv(FILE *f, const struct dtp_plan *p) {
    char text[128];
    for (int k = 0; k < DTP_NLIMITS; k++)
        fprintf(f, "%s,",
                p ? dtp_limit_text((enum dtp_limit)k, dtp_limit_get(p, (enum dtp_limit)k), text,
                                   sizeof text)
                  : "");
    int modules = p ? p->recompute_modules : 0;
    dtp_csv_put(f, dtp_set_text(dtp_module_names, modules, text, sizeof text), false);
}

/* Those that fit before those that do not; timed ones by time, the rest by bound. */
static int better(const void *x, const void *y) {
    const struct dtp_legal *a = x, *b = y;
    int over = (a->verdict == DTP_VERDICT_OVER_MEMORY) - (b->verdict == DTP_VERDICT_OVER_MEMORY);
    if (over != 0)
        return over;
    if ((a->time_s > 0) != (b->time_s > 0))
        return a->time_s > 0 ? -1 : 1;
    double p = a->time_s > 0 ? a->time_s : a->bound_s, q = b->time_s > 0 ? b->time_s : b->bound_s;
    if (p != q)
        return p < q ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

void dtp_report_csv(struct dtp_arena *a, FILE *f, const struct dtp_report *r) {
    const struct dtp_search *s = r->search;
    struct dtp_legal *legal = DTP_NEW(a, struct dtp_legal, s->nlegal + 1);
    struct dtp_plan p;
    char bound[32], time[32];
    if (s->nlegal > 0)
        memcpy(legal, s->legal, s->nlegal * sizeof *legal);
    qsort(legal, s->nlegal, sizeof *legal, better);
    dtp_plan_csv_head(f);
    fputs("verdict,reason,device_bytes,bound_s,time_s\n", f);
    for (const struct dtp_legal *x = legal; x < legal + s->nlegal; x++) {
        dtp_search_plan(s, x, &p);
        dtp_plan_csv(f, &p);
        dtp_double_text(x->bound_s, bound, sizeof bound);
        dtp_double_text(x->time_s, time, sizeof time);
        fprintf(f, "%s,,%llu,%s,%s\n", dtp_verdict_names[x->verdict],
                (unsigned long long)x->device_bytes, bound, x->time_s > 0 ? time : "");
    }
    for (uint64_t i = 0; i < s->space.ncandidates; i++) {
        if (s->reason[i] == DTP_LEGAL)
            continue;
        dtp_space_candidate(&s->space, i, &p);
        if (p.recompute_layers == DTP_FEWEST_LAYERS)
            p.recompute_layers = 1; /* what was looked at */
        dtp_plan_csv(f, &p);
        fprintf(f, "%s,\"%s\",,,\n", dtp_verdict_names[DTP_VERDICT_ILLEGAL],
                dtp_reasons[s->reason[i]]);
    }
}
