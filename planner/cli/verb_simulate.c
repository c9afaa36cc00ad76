#include "planner/cli/timeline_file.h"
#include "planner/cli/cli.h"
#include "planner/report.h"
#include "sim/base/text.h"

static enum dtp_status run(struct dtp_cli *cli, struct dtp_err *err) {
    struct dtp_setup *setup = DTP_NEW(cli->a, struct dtp_setup, 1);
    struct dtp_plan plan;
    struct dtp_result result;
    struct dtp_failures failures;
    DTP_TRY(dtp_cli_plan(cli, setup, &plan, err));
    DTP_TRY(dtp_cli_failures(cli, true, &failures, err));
    struct dtp_evaluator *ev = dtp_evaluator_create(cli->a, &setup->problem);
    DTP_TRY(dtp_cli_simulate(cli, ev, &plan, cli->args.timeline, &result, err));
    if (result.unlike)
        fputs("dtplan: replicas of a stage do not lie alike on the nodes, and the step of the one "
              "that stands for them can be short: --no-fold simulates every rank\n",
              stderr);
    struct dtp_report report = {
        .setup = setup, .tokens = cli->args.tokens, .failures = failures, .seed = cli->args.seed};
    if (cli->args.json) {
        dtp_report_result_json(cli->out.file, &report, &result);
    } else {
        dtp_report_header(cli->a, &cli->out, &report);
        fprintf(cli->out.file, "\n");
        dtp_term_print(&cli->out, DTP_BOLD, "Plan  ");
        dtp_term_wrap(&cli->out, DTP_GREEN, 6, 6, dtp_plan_words(cli->a, &plan));
        fprintf(cli->out.file, "\n");
        dtp_report_result(cli->a, &cli->out, &report, &result);
    }
    if (result.fits)
        return DTP_OK;
    char needs[32], limit[32];
    return dtp_fail(
        err, DTP_ENO, "the plan does not fit: it needs %s, the limit is %s",
        dtp_fmt_bytes_gib((double)result.device_bytes, needs, sizeof needs),
        dtp_fmt_bytes_gib((double)setup->problem.memory_limit_bytes, limit, sizeof limit));
}

static const struct dtp_form *const documents[] = {&dtp_one_plan_form, NULL};

const struct dtp_verb dtp_verb_simulate = {
    .name = "simulate",
    .summary = "simulate one plan: time, breakdown, memory, timeline",
    .synopsis = "simulate --plan FILE | --model M --gpus N --tp T --pp P ... [--timeline FILE]",
    .description = "Simulates one plan event by event. The plan comes from a document or from "
                   "options; degrees "
                   "that are not given are 1, dp is what is left of the GPUs. --cluster, "
                   "--framework, --seq and "
                   "--memory-limit may be given beside --plan: the same plan elsewhere. Exit "
                   "status 1 when the "
                   "plan does not fit into memory.",
    .groups = DTP_GROUP_PROBLEM | DTP_GROUP_PLAN | DTP_GROUP_LAYOUT | DTP_GROUP_SIMULATE |
              DTP_GROUP_FAILURES | DTP_GROUP_TIMELINE | DTP_GROUP_OUTPUT | DTP_GROUP_SEARCH,
    .documents = documents,
    .run = run};
