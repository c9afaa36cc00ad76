#include "planner/report.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "models/schedule/schedule.h"
#include "planner/document.h"
#include "sim/base/text.h"
#include "sim/base/units.h"

/* ---- a plan and a problem in words, and as options ---- */

static const char *layers_text(struct dtp_arena *a, int n) {
    return dtp_arena_printf(a, "%d layer%s", n, n == 1 ? "" : "s");
}

const char *dtp_plan_words(struct dtp_arena *a, const struct dtp_plan *p) {
    struct dtp_str s = {.a = a};
    dtp_str_printf(&s, "tp %d", p->tp);
    dtp_str_printf(&s, " x pp %d", p->pp);
    if (p->cp > 1)
        dtp_str_printf(&s, " x cp %d", p->cp);
    dtp_str_printf(&s, " x dp %d", p->dp);
    if (p->ep > 1)
        dtp_str_printf(&s, ", ep %d", p->ep);
    if (dtp_plan_etp(p) != p->tp)
        dtp_str_printf(&s, ", etp %d", p->etp);
    if (dtp_plan_hides_experts(p))
        dtp_str_add(&s, ", rows of experts hidden");
    if (p->ep_per_node > 0)
        dtp_str_add(&s, ", sent once a node");
    if (p->pp > 1)
        dtp_str_printf(&s, ", %s", dtp_schedule_kinds[p->schedule].name);
    if (p->vpp > 1)
        dtp_str_printf(&s, " vpp %d", p->vpp);
    dtp_str_printf(&s, ", microbatch %d (%d a step)", p->microbatch_size,
                   dtp_plan_num_microbatches(p));
    if (p->sequence_parallel)
        dtp_str_add(&s, ", sequence parallel");
    char modules[128];
    if (p->recompute_modules)
        dtp_str_printf(
            &s, ", recomputation of %s",
            dtp_set_text(dtp_module_names, p->recompute_modules, modules, sizeof modules));
    else
        dtp_str_printf(&s, ", %s recomputation",
                       p->recompute == DTP_RECOMPUTE_NONE ? "no"
                                                          : dtp_recompute_names[p->recompute]);
    if (p->recompute_layers > 0)
        dtp_str_printf(&s, " of %s%s", layers_text(a, p->recompute_layers),
                       p->vpp > 1  ? " a chunk"
                       : p->pp > 1 ? " a stage"
                                   : "");
    dtp_str_printf(&s, ", ZeRO %d", p->zero_stage);
    if (p->zero_group > 0)
        dtp_str_printf(&s, " in groups of %d", p->zero_group);
    if (p->account_for_ends)
        dtp_str_add(&s, ", embedding and head as layers");
    if (p->last_stage_less > 0)
        dtp_str_printf(&s, ", %s less in the last stage", layers_text(a, p->last_stage_less));
    if (p->offload != DTP_OFFLOAD_NONE)
        dtp_str_printf(&s, ", %s offloaded", dtp_offload_names[p->offload]);
    if (p->layers_per_stage.n > 0)
        dtp_str_add(&s, ", given layers per stage");
    return s.at;
}

const char *dtp_uneven_layers(struct dtp_arena *a, const struct dtp_model *m,
                              const struct dtp_plan *p) {
    struct dtp_str s = {.a = a};
    int n = p->pp * p->vpp, runs = 0;
    for (int vs = 0, run = 0; vs < n; vs += run, runs++) {
        int layers = dtp_plan_layers(p, m, vs);
        for (run = 1; vs + run < n && dtp_plan_layers(p, m, vs + run) == layers; run++)
            ;
        dtp_str_printf(&s, "%s%d", vs > 0 ? ", " : "", layers);
        if (run > 1)
            dtp_str_printf(&s, " x %d", run);
    }
    return runs > 1 ? s.at : NULL;
}

static void add_limit(struct dtp_str *s, uint64_t bytes) {
    double gib = (double)bytes / DTP_GIB;
    uint64_t whole = (uint64_t)gib;
    if ((double)whole == gib)
        dtp_str_printf(s, " --memory-limit %lluGiB", (unsigned long long)whole);
    else
        dtp_str_printf(s, " --memory-limit %llu", (unsigned long long)bytes);
}

static void add_option(struct dtp_str *s, const char *option, const char *value) {
    dtp_str_printf(s, "%s%s ", s->n ? " " : "", option);
    dtp_str_add_word(s, value);
}

const char *dtp_report_flags(struct dtp_arena *a, const struct dtp_setup *setup,
                             const struct dtp_plan *p) {
    const struct dtp_ask *ask = &setup->ask;
    struct dtp_str s = {.a = a};
    add_option(&s, "--model", ask->model ? ask->model : "-"); /* read from standard input */
    dtp_str_printf(&s, " --gpus %d", setup->problem.gpus);
    if (ask->cluster)
        add_option(&s, "--cluster", ask->cluster);
    if (ask->nic)
        add_option(&s, "--nic", ask->nic);
    if (ask->framework)
        add_option(&s, "--framework", ask->framework);
    if (ask->seq > 0)
        dtp_str_printf(&s, " --seq %d", ask->seq);
    if (ask->attention >= 0)
        dtp_str_printf(&s, " --attention %s", dtp_attention_names[ask->attention]);
    if (ask->dropout)
        add_option(&s, "--dropout", ask->dropout);
    if (ask->optimizer)
        add_option(&s, "--optimizer", ask->optimizer);
    if (ask->memory_limit_bytes > 0)
        add_limit(&s, ask->memory_limit_bytes);
    if (ask->dtype >= 0)
        dtp_str_printf(&s, " --dtype %s", dtp_dtype_names[ask->dtype]);
    struct dtp_plan shown = *p;
    shown.dtype = dtp_plan_default().dtype; /* said above where it was asked for */
    dtp_str_printf(&s, " %s", dtp_plan_flags(a, &shown));
    return s.at;
}

const char *dtp_recompute_text(const struct dtp_plan *p, char *buf, size_t size) {
    if (p->recompute_modules)
        snprintf(buf, size, "modules");
    else if (p->recompute_layers > 0)
        snprintf(buf, size, "%s %d", dtp_recompute_names[p->recompute], p->recompute_layers);
    else
        snprintf(buf, size, "%s", dtp_recompute_names[p->recompute]);
    return buf;
}

const char *dtp_unusual_words(struct dtp_arena *a, const struct dtp_report *r,
                              const struct dtp_result *best) {
    const struct dtp_plan *p = &best->plan;
    const struct dtp_search *search = r->search;
    struct dtp_str s = {.a = a};
    char text[32];
    if (!search || dtp_plan_is_usual(p))
        return NULL;
    if (p->last_stage_less > 0)
        dtp_str_printf(&s, "%s of the last stage left to the others, for its head",
                       layers_text(a, p->last_stage_less));
    if (p->recompute_layers > 0)
        dtp_str_printf(&s, "%s%d of %d layers%s recomputed", s.n ? "; " : "", p->recompute_layers,
                       dtp_plan_most_layers(p, r->setup->problem.model),
                       p->vpp > 1  ? " of a chunk"
                       : p->pp > 1 ? " of a stage"
                                   : "");
    if (search->usual)
        dtp_str_printf(&s, ". Without (%s%s%s): %s, %+.1f %%",
                       p->last_stage_less > 0 ? "--last-stage-less 0" : "",
                       p->last_stage_less > 0 && p->recompute_layers > 0 ? " " : "",
                       p->recompute_layers > 0 ? "--recompute-layers 0" : "",
                       dtp_fmt_time(search->usual->step_s, text, sizeof text),
                       100 * (search->usual->step_s / best->step_s - 1));
    return s.at;
}

const char *dtp_problem_words(struct dtp_arena *a, const struct dtp_report *r) {
    const struct dtp_setup *s = r->setup;
    const struct dtp_problem *p = &s->problem;
    const struct dtp_ask *ask = &s->ask;
    const struct dtp_gpu *gpu = &s->cluster.gpu;
    struct dtp_str line = {.a = a};
    char text[32], limit[32];
    struct dtp_param_counts count;
    dtp_model_params(p->model, p->model->vocab, &count);
    dtp_str_printf(&line, "%s (%s parameters", ask->model ? ask->model : p->model->name,
                   dtp_fmt_count((double)count.total, text, sizeof text));
    if (count.active < count.total)
        dtp_str_printf(&line, ", %s active",
                       dtp_fmt_count((double)count.active, text, sizeof text));
    dtp_str_printf(&line, ") on %s GPU%s of %s", dtp_fmt_count(p->gpus, text, sizeof text),
                   p->gpus == 1 ? "" : "s", s->cluster.name);
    dtp_str_printf(&line, " (%d x %s", s->cluster.node.gpus, gpu->name);
    if (s->cluster.node.nics > 0)
        dtp_str_printf(&line, ", %d x %.0f Gb/s", s->cluster.node.nics,
                       s->cluster.node.nic_bytes_per_s * DTP_BITS_PER_BYTE / DTP_GIGA);
    dtp_str_printf(&line, " a node), framework %s, seq %d, batch %d, %s, memory limit %s of %s",
                   s->framework.name, p->seq, p->global_batch, dtp_dtype_names[p->dtype],
                   dtp_fmt_bytes_gib((double)p->memory_limit_bytes, limit, sizeof limit),
                   dtp_fmt_bytes_gib((double)gpu->memory_bytes, text, sizeof text));
    if (p->attention >= 0)
        dtp_str_printf(&line, ", %s attention", dtp_attention_names[p->attention]);
    if (s->ask.optimizer)
        dtp_str_printf(&line, ", optimizer %s", s->ask.optimizer);
    return line.at;
}

const char *const *dtp_report_warnings(struct dtp_arena *a, const struct dtp_problem *p,
                                       const struct dtp_result *result) {
    const char **out = DTP_NEW(a, const char *, 5);
    double gap = dtp_model_published_gap(p->model);
    char text[32];
    size_t n = 0;
    const char *calibration = p->cluster->gpu.calibration, *none = "not calibrated";
    if (result->extrapolated)
        out[n++] = dtp_arena_printf(
            a, "%s is %s", p->cluster->gpu.name,
            calibration && strncmp(calibration, none, strlen(none)) == 0 ? calibration : none);
    if (p->memory_limit_bytes > p->cluster->gpu.memory_bytes)
        out[n++] = "the memory limit is above what the device has";
    if (p->model->moe.experts > 0)
        out[n++] = "models with experts: checked by runs of megatron-core on H100 alone";
    if (gap < 0 || gap > 0)
        out[n++] = dtp_arena_printf(
            a, "%+.0f %% parameters beside the %s that the model file says are published",
            gap * 100, dtp_fmt_count(p->model->published_params, text, sizeof text));
    out[n] = NULL;
    return out;
}

/* A run of which less than this trains never ends. */
static const double NO_PROGRESS = 1e-3;

struct dtp_training dtp_report_training(const struct dtp_report *r, const struct dtp_result *best) {
    const struct dtp_problem *p = &r->setup->problem;
    struct dtp_training t = {.tokens = r->tokens > 0 ? r->tokens : p->model->train_tokens};
    if (t.tokens <= 0 || best->tokens_per_s <= 0)
        return (struct dtp_training){0};
    t.days = t.days_with_failures = t.tokens / best->tokens_per_s / DTP_S_PER_DAY;
    if (r->failures.gpu_hours_per_failure <= 0)
        return t;
    struct dtp_param_counts c;
    dtp_model_params(p->model, p->model->vocab, &c);
    t.goodput = dtp_goodput(&r->failures, (double)c.total, p->gpus);
    if (t.days * DTP_S_PER_DAY >= t.goodput.failure_s)
        t.days_with_failures = t.goodput.fraction > NO_PROGRESS ? t.days / t.goodput.fraction : 0;
    return t;
}

void dtp_report_header(struct dtp_arena *a, const struct dtp_term *t, const struct dtp_report *r) {
    const struct dtp_setup *s = r->setup;
    const struct dtp_problem *p = &s->problem;
    const struct dtp_ask *ask = &s->ask;
    dtp_term_wrap(t, DTP_BOLD, 0, 2, dtp_problem_words(a, r));
    struct dtp_str defaults = {.a = a};
    const struct {
        bool is_default;
        const char *name;
    } fields[] = {{!ask->cluster && !ask->cluster_json, "--cluster"},
                  {!ask->framework && !ask->framework_json, "--framework"},
                  {ask->seq == 0, "--seq"},
                  {ask->batch == 0, "--batch"},
                  {ask->dtype < 0, "--dtype"},
                  {ask->memory_limit_bytes == 0, "--memory-limit"}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (fields[i].is_default)
            dtp_str_printf(&defaults, "%s%s", defaults.n ? " " : "", fields[i].name);
    if (defaults.n > 0)
        dtp_term_print(t, DTP_DIM, "  by default: %s\n", defaults.at);
    if (s->without_mtp)
        dtp_term_print(t, DTP_YELLOW, "  without multi-token prediction, which %s does not train\n",
                       s->framework.name);
    if (s->learned_positions > 0)
        dtp_term_print(t, DTP_YELLOW,
                       "  seq %d is more than the %d positions that the model has learned\n",
                       p->seq, s->learned_positions);
}

/* ---- why a plan lost: the terms in which its step differs from the best one ---- */

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

/* ---- JSON ---- */

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

/* Sorts plans that fit before those that do not; timed ones by time, the rest by bound. */
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
