#include "planner/cli/timeline.h"

#include "traces/chrome.h"

enum dtp_status dtp_cli_simulate(struct dtp_cli *cli, struct dtp_evaluator *ev,
                                 const struct dtp_plan *plan, const char *path,
                                 struct dtp_result *out, struct dtp_err *err) {
    struct dtp_lowered *lowered = NULL;
    struct dtp_timeline *timeline = NULL;
    struct dtp_simulate_options options = {.no_fold = cli->args.no_fold,
                                           .detail = (enum dtp_detail)cli->args.detail,
                                           .out_lowered = path ? &lowered : NULL,
                                           .out_timeline = path ? &timeline : NULL};
    DTP_TRY(dtp_evaluate(cli->a, ev, plan, DTP_SIMULATE, &options, out, err));
    if (!path)
        return DTP_OK;
    return dtp_chrome_write(cli->a, dtp_evaluator_problem(ev), lowered, timeline, path, err);
}
