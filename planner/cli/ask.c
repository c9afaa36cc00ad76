/* From parsed options to a problem, limits, a plan. */
#include <string.h>

#include "models/schedule/schedule.h"
#include "planner/cli/cli.h"
#include "sim/base/text.h"

enum dtp_status dtp_cli_setup(struct dtp_cli *cli, struct dtp_setup *out, struct dtp_err *err) {
    return dtp_setup_init(cli->a, &cli->args.ask, out, err);
}

static const struct dtp_field *field_of(const struct dtp_option *o) {
    const struct dtp_field *f = dtp_plan_fields;
    while (!dtp_same_name(f->name, o->name))
        f++;
    return f;
}

enum dtp_status dtp_cli_fixed(struct dtp_cli *cli, struct dtp_plan *plan, struct dtp_err *err) {
    for (const struct dtp_option *o = dtp_fixed_options; o->name; o++) {
        const void *at = (const char *)&cli->args + o->offset;
        const char *text = *(const char *const *)at;
        char place[64];
        snprintf(place, sizeof place, "--%s", o->name);
        if (!text)
            continue;
        const struct dtp_field *field = field_of(o);
        const char *layers =
            field->kind == DTP_FIELD_INTS ? dtp_plan_layers_of_layout(cli->a, text) : NULL;
        DTP_TRY(dtp_field_parse(cli->a, field, layers ? layers : text, place, plan, err));
    }
    return DTP_OK;
}

/* What a layer without experts has anyhow, as rows of tables say. */
static bool etp_is_tp(const struct dtp_limits *limits) {
    const struct dtp_select *tp = &limits->field[DTP_LIMIT_TP],
                            *etp = &limits->field[DTP_LIMIT_ETP];
    return tp->n == 1 && etp->n == 1 && tp->lo[0] == tp->hi[0] && etp->lo[0] == tp->lo[0] &&
           etp->hi[0] == tp->lo[0];
}

/* Options of experts that would do nothing; --ep 1 says that there are none. */
static enum dtp_status check_experts(const struct dtp_limits *limits,
                                     const struct dtp_problem *problem, struct dtp_err *err) {
    const struct dtp_framework *f = problem->framework;
    const struct {
        const char *option;
        bool given, known;
    } of[] = {{"ep", !dtp_select_has(&limits->field[DTP_LIMIT_EP], 1), true},
              {"etp", limits->field[DTP_LIMIT_ETP].n > 0 && !etp_is_tp(limits), true},
              {"ep-overlap", limits->fixed.ep_overlap > 0, f->can.has_ep_overlap},
              {"ep-per-node", limits->fixed.ep_per_node > 0, f->can.has_ep_per_node}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        if (of[i].given && problem->model->moe.experts == 0)
            return dtp_fail(err, DTP_EUSAGE, "--%s: %s has no experts", of[i].option,
                            problem->model->name);
        if (of[i].given && !of[i].known)
            return dtp_fail(err, DTP_EUSAGE, "--%s: %s does not have it", of[i].option, f->name);
    }
    return DTP_OK;
}

/* Parts of a layer to recompute that the stack cannot choose or no layer has. */
static enum dtp_status check_modules(const struct dtp_plan *plan, const struct dtp_problem *problem,
                                     struct dtp_err *err) {
    int asked = plan->recompute_modules, known = problem->framework->can.recompute_modules;
    char names[128];
    if (asked & ~known)
        return dtp_fail(err, DTP_EUSAGE, "--recompute-modules: %s has %s%s",
                        problem->framework->name, known ? "no " : "none to choose",
                        known ? dtp_set_text(dtp_module_names, asked & ~known, names, sizeof names)
                              : "");
    for (int i = 0; i < DTP_NMODULES; i++)
        if (asked & ~dtp_model_modules(problem->model) & 1 << i)
            return dtp_fail(err, DTP_EUSAGE,
                            "--recompute-modules: %s is %s in layers with %s, of which %s has none",
                            dtp_module_names[i], dtp_module_texts[i].again,
                            dtp_module_texts[i].where, problem->model->name);
    return DTP_OK;
}

/* Modules go with one mode of recomputation, layers with another. */
static enum dtp_status check_recompute(bool modules_without, bool layers_without,
                                       struct dtp_err *err) {
    if (modules_without)
        return dtp_fail(err, DTP_EUSAGE, "--recompute-modules goes with --recompute selective");
    if (layers_without)
        return dtp_fail(err, DTP_EUSAGE, "--recompute-layers goes with --recompute full");
    return DTP_OK;
}

enum dtp_status dtp_cli_check_limits(const struct dtp_limits *limits,
                                     const struct dtp_problem *problem, struct dtp_err *err) {
    const struct dtp_select *modes = &limits->field[DTP_LIMIT_RECOMPUTE];
    DTP_TRY(check_recompute(limits->fixed.recompute_modules &&
                                !dtp_select_has(modes, DTP_RECOMPUTE_SELECTIVE),
                            !dtp_select_has(&limits->field[DTP_LIMIT_RECOMPUTE_LAYERS], 0) &&
                                !dtp_select_has(modes, DTP_RECOMPUTE_FULL),
                            err));
    DTP_TRY(check_experts(limits, problem, err));
    DTP_TRY(check_modules(&limits->fixed, problem, err));
    if (limits->fixed.layers_per_stage.n == 0)
        return DTP_OK;
    const struct dtp_ints *layers = &limits->fixed.layers_per_stage;
    long sum = 0;
    for (size_t i = 0; i < layers->n; i++)
        sum += layers->at[i];
    if (sum == problem->model->layers)
        return DTP_OK;
    return dtp_fail(err, DTP_EUSAGE,
                    "--layers-per-stage: %zu stages with %ld layers in all, %s has %d", layers->n,
                    sum, problem->model->name, problem->model->layers);
}

enum dtp_status dtp_cli_limits(struct dtp_cli *cli, const struct dtp_problem *problem,
                               struct dtp_limits *out, struct dtp_err *err) {
    *out = dtp_limits_none();
    out->fixed.dtype = problem->dtype;
    out->fixed.global_batch_size = problem->global_batch;
    for (int i = 0; i < DTP_NLIMITS; i++) {
        if (!cli->args.limit[i])
            continue;
        char place[64];
        snprintf(place, sizeof place, "--%s", dtp_limit_fields[i].option);
        DTP_TRY(
            dtp_select_parse((enum dtp_limit)i, cli->args.limit[i], place, &out->field[i], err));
    }
    DTP_TRY(dtp_cli_fixed(cli, &out->fixed, err));
    return dtp_cli_check_limits(out, problem, err);
}

enum dtp_status dtp_cli_single(struct dtp_cli *cli, const struct dtp_limits *limits,
                               struct dtp_plan *out, struct dtp_err *err) {
    *out = limits->fixed;
    for (int i = 0; i < DTP_NLIMITS; i++) {
        const struct dtp_select *s = &limits->field[i];
        if (s->n > 1 || (s->n == 1 && s->lo[0] != s->hi[0]))
            return dtp_fail(err, DTP_EUSAGE, "--%s: one plan is wanted here, found \"%s\"",
                            dtp_limit_fields[i].option, cli->args.limit[i]);
        if (s->n == 1)
            dtp_limit_set(out, (enum dtp_limit)i, s->lo[0]);
    }
    return DTP_OK;
}

/* A plan whose options all do something. */
static enum dtp_status require(const struct dtp_problem *problem, const struct dtp_plan *plan,
                               struct dtp_err *err) {
    if (plan->ep == 1 && (plan->ep_overlap > 0 || plan->ep_per_node > 0))
        return dtp_fail(err, DTP_EUSAGE, "--%s: no rows of experts travel with --ep 1",
                        plan->ep_overlap > 0 ? "ep-overlap" : "ep-per-node");
    DTP_TRY(check_recompute(plan->recompute_modules && plan->recompute != DTP_RECOMPUTE_SELECTIVE,
                            plan->recompute_layers > 0 && plan->recompute != DTP_RECOMPUTE_FULL,
                            err));
    return dtp_plan_require(problem, plan, err);
}

/* FSDP and its like divide at least something: the most that they can with tp and pp. */
static int usual_zero(const struct dtp_framework *f, const struct dtp_plan *p) {
    int has = f->can.zero_stages & (p->pp > 1 ? f->can.zero_stages_pp : ~0) &
              (p->tp > 1 ? f->can.zero_stages_tp : ~0);
    int stage = 0;
    for (int s = 1; s <= 3 && !(f->can.zero_stages & 1); s++)
        stage = has >> s & 1 ? s : stage;
    return stage;
}

/* The one plan that the options name. */
static enum dtp_status single_plan(struct dtp_cli *cli, const struct dtp_problem *problem,
                                   struct dtp_plan *out, struct dtp_err *err) {
    struct dtp_limits limits;
    DTP_TRY(dtp_cli_limits(cli, problem, &limits, err));
    DTP_TRY(dtp_cli_single(cli, &limits, out, err));
    long model_parallel = (long)out->tp * out->cp * out->pp;
    if (limits.field[DTP_LIMIT_DP].n == 0)
        out->dp = model_parallel <= problem->gpus ? (int)(problem->gpus / model_parallel) : 1;
    if (limits.field[DTP_LIMIT_ZERO].n == 0)
        out->zero_stage = usual_zero(problem->framework, out);
    int stages = (int)out->layers_per_stage.n;
    if (limits.field[DTP_LIMIT_VPP].n == 0 && out->pp > 1 && stages > out->pp &&
        stages % out->pp == 0)
        out->vpp = stages / out->pp;
    if (limits.field[DTP_LIMIT_SCHEDULE].n == 0 && out->vpp > 1)
        out->schedule = dtp_schedule_usual(out->vpp);
    if (limits.field[DTP_LIMIT_VPP].n == 0 && dtp_schedule_kinds[out->schedule].most_vpp > 0)
        out->vpp = dtp_schedule_kinds[out->schedule].most_vpp; /* the one that it takes */
    return require(problem, out, err);
}

enum dtp_status dtp_cli_plan_alone(struct dtp_cli *cli, struct dtp_err *err) {
    const struct dtp_ask *ask = &cli->args.ask;
    if (ask->model || ask->gpus || ask->batch)
        return dtp_fail(err, DTP_EUSAGE, "--plan names model, gpus and batch: leave %s out",
                        ask->model  ? "--model"
                        : ask->gpus ? "--gpus"
                                    : "--batch");
    for (int i = 0; i < DTP_NLIMITS; i++)
        if (cli->args.limit[i])
            return dtp_fail(err, DTP_EUSAGE, "--plan names the layout: leave --%s out",
                            dtp_limit_fields[i].option);
    return DTP_OK;
}

/* What is not a part of the layout may differ from the document's. */
static enum dtp_status change_plan(struct dtp_cli *cli, const struct dtp_problem *problem,
                                   struct dtp_plan *plan, struct dtp_err *err) {
    struct dtp_limits limits = dtp_limits_none();
    if (cli->args.ask.dtype >= 0)
        plan->dtype = problem->dtype;
    DTP_TRY(dtp_cli_fixed(cli, plan, err));
    if (cli->args.layers_per_stage) { /* instead of how the plan divides them */
        plan->account_for_ends = false;
        plan->last_stage_less = 0;
    }
    limits.fixed = *plan;
    DTP_TRY(dtp_cli_check_limits(&limits, problem, err));
    return require(problem, plan, err);
}

enum dtp_status dtp_cli_plan(struct dtp_cli *cli, struct dtp_setup *out, struct dtp_plan *out_plan,
                             struct dtp_err *err) {
    if (!cli->args.plan) {
        DTP_TRY(dtp_cli_setup(cli, out, err));
        return single_plan(cli, &out->problem, out_plan, err);
    }
    struct dtp_document d;
    DTP_TRY(dtp_document_read(cli->a, cli->args.plan, &d, err));
    DTP_TRY(dtp_cli_plan_alone(cli, err));
    const struct dtp_ask *ask = &cli->args.ask;
    /* the same plan on other hardware or software is a question worth asking */
    if (ask->cluster) {
        d.ask.cluster = ask->cluster;
        d.ask.cluster_json = NULL;
        d.ask.nic = NULL;
    }
    if (ask->framework) {
        d.ask.framework = ask->framework;
        d.ask.framework_json = NULL;
    }
    if (ask->nic)
        d.ask.nic = ask->nic;
    if (ask->seq)
        d.ask.seq = ask->seq;
    if (ask->dtype >= 0)
        d.ask.dtype = ask->dtype;
    if (ask->attention >= 0)
        d.ask.attention = ask->attention;
    if (ask->dropout)
        d.ask.dropout = ask->dropout;
    if (ask->memory_limit_bytes)
        d.ask.memory_limit_bytes = ask->memory_limit_bytes;
    DTP_TRY(dtp_setup_init(cli->a, &d.ask, out, err));
    DTP_TRY(dtp_document_plan(cli->a, &d, &out->problem, out_plan, err));
    return change_plan(cli, &out->problem, out_plan, err);
}
