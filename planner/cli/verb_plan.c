#include <string.h>
#include <unistd.h>

#include "planner/advise.h"
#include "planner/cli/emit.h"
#include "planner/cli/timeline_file.h"
#include "planner/cli/cli.h"
#include "sim/base/text.h"

struct own {
    bool csv;
    const char *html, *why_not;
    int top;
    int emit; /* index into dtp_emit_names */
};

static const struct dtp_option own_options[] = {
    {"csv", DTP_OPT_FLAG, 0, offsetof(struct own, csv),
     .help = "every plan of the space with its verdict, fastest first, on standard output"},
    {"html", DTP_OPT_STRING, 0, offsetof(struct own, html), .value = "OUT.html",
     .complete = DTP_COMPLETE_FILE, .help = "the report as one page with pictures"},
    {"why-not", DTP_OPT_STRING, 0, offsetof(struct own, why_not), .value = "FIELDS",
     .help = "what became of the plans with these fields, such as tp=8,pp=5"},
    {"top", DTP_OPT_INT, 0, offsetof(struct own, top), .value = "N", .min = 1, .max = 1000,
     .help = "simulate at least so many plans (default 16)"},
    {"emit", DTP_OPT_CHOICE, 0, offsetof(struct own, emit), .value = "KIND",
     .names = dtp_emit_names,
     .help = "instead of the report, what trains the best plan: a script (slurm, torchrun) or the "
             "settings of its framework, which is then the default of --framework"},
    {0}};

static void progress(void *ctx, const char *what, double done) {
    (void)ctx;
    if (what)
        dtp_cli_progress("%-12s %3.0f %%", what, done * 100);
    else
        dtp_cli_progress(NULL);
}

struct page {
    struct dtp_arena *a;
    const struct dtp_report *report;
};

static void write_page(FILE *f, const void *what) {
    const struct page *page = what;
    dtp_report_html(page->a, f, page->report);
}

static enum dtp_status why_not(struct dtp_cli *cli, const struct dtp_report *r, const char *text,
                               const struct dtp_search_options *options, struct dtp_err *err) {
    struct dtp_limits fields = *r->limits;
    DTP_TRY(dtp_limits_parse(cli->a, text, "--why-not", &fields, err));
    DTP_TRY(dtp_cli_check_limits(&fields, &r->setup->problem, err));
    dtp_report_header(cli->a, &cli->out, r);
    putc('\n', cli->out.file);
    return dtp_why_not(cli->a, &cli->out, r, &fields, options, err);
}

/* Simulates the best plan a second time, for its timeline. */
static enum dtp_status timeline(struct dtp_cli *cli, const struct dtp_report *r, const char *path,
                                struct dtp_err *err) {
    struct dtp_result result;
    struct dtp_evaluator *ev = dtp_evaluator_create(cli->a, &r->setup->problem);
    return dtp_cli_simulate(cli, ev, &r->search->result[0].plan, path, &result, err);
}

static enum dtp_status run(struct dtp_cli *cli, struct dtp_err *err) {
    const struct own *own = cli->own;
    struct dtp_setup *setup = DTP_NEW(cli->a, struct dtp_setup, 1);
    struct dtp_limits limits;
    struct dtp_search search;
    struct dtp_failures failures;
    if (own->why_not && (own->csv || cli->args.json))
        return dtp_fail(err, DTP_EUSAGE, "--why-not prints text: leave --json and --csv out");
    if (own->csv && cli->args.json)
        return dtp_fail(err, DTP_EUSAGE, "--csv and --json exclude each other");
    if (own->emit != DTP_EMIT_NONE && (own->csv || cli->args.json || own->why_not))
        return dtp_fail(err, DTP_EUSAGE,
                        "--emit prints settings or a script: leave --json, --csv and "
                        "--why-not out");
    if (!cli->args.ask.framework)
        cli->args.ask.framework = dtp_emit_framework(own->emit);
    DTP_TRY(dtp_cli_setup(cli, setup, err));
    DTP_TRY(dtp_cli_limits(cli, &setup->problem, &limits, err));
    DTP_TRY(dtp_cli_failures(cli, true, &failures, err));
    struct dtp_search_options options = {.jobs = cli->args.jobs,
                                         .top = own->top,
                                         .no_fold = cli->args.no_fold,
                                         .every = own->csv,
                                         .detail = (enum dtp_detail)cli->args.detail};
    if (cli->progress)
        options.progress = progress;
    DTP_TRY(dtp_search(cli->a, &setup->problem, &limits, &options, &search, err));
    dtp_report_explain(cli->a, &setup->problem, &search);
    struct dtp_report report = {.setup = setup,
                                .search = &search,
                                .limits = &limits,
                                .tokens = cli->args.tokens,
                                .failures = failures,
                                .seed = cli->args.seed};
    options.progress = NULL;
    if (own->why_not)
        return why_not(cli, &report, own->why_not, &options, err);
    if (own->csv)
        dtp_report_csv(cli->a, cli->out.file, &report);
    else if (cli->args.json)
        dtp_report_json(cli->a, cli->out.file, &report);
    if (search.nresults == 0)
        return dtp_fail(err, DTP_ENO, "%s", dtp_advise(cli->a, &report));
    if (own->emit != DTP_EMIT_NONE)
        DTP_TRY(
            dtp_emit_script(cli->a, cli->out.file, own->emit, setup, &search.result[0].plan, err));
    else if (!own->csv && !cli->args.json)
        dtp_report_text(cli->a, &cli->out, &report);
    if (own->html)
        DTP_TRY(
            dtp_file_write(cli->a, own->html, write_page, &(struct page){cli->a, &report}, err));
    return cli->args.timeline ? timeline(cli, &report, cli->args.timeline, err) : DTP_OK;
}

static const struct dtp_form *const documents[] = {&dtp_answer_form, NULL};

const struct dtp_verb dtp_verb_plan = {
    .name = "plan",
    .summary = "find the fastest layout that fits, and say why (the default)",
    .synopsis = "[plan] --model M --gpus N [--cluster C] [--framework F] [limits] [--json | --csv]",
    .description =
        "Enumerates every layout (tensor, pipeline, context, expert and data parallel degrees, "
        "ZeRO "
        "stage, schedule, microbatch, recomputation), drops those that the framework refuses or "
        "that do not fit, bounds and estimates the rest, and simulates the best event by event. "
        "The "
        "answer is exact: it is the plan that simulating everything would find. Limits on any "
        "field "
        "narrow the search: --tp 8 --pp 4..16 --zero-stage 1,2.",
    .groups = DTP_GROUP_PROBLEM | DTP_GROUP_LAYOUT | DTP_GROUP_OUTPUT | DTP_GROUP_SEARCH |
              DTP_GROUP_SIMULATE | DTP_GROUP_FAILURES | DTP_GROUP_TIMELINE,
    .options = own_options,
    .own_size = sizeof(struct own),
    .documents = documents,
    .run = run};
