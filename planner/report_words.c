/* A plan and a problem in words, and as options. */
#include <string.h>

#include "models/schedule/schedule.h"
#include "planner/document.h"
#include "planner/report.h"
#include "sim/base/text.h"
#include "sim/base/units.h"

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
