/* Options on interruptions, over what traces/measured/failures.json says. */
#include "planner/cli/cli.h"
#include "sim/base/text.h"
#include "sim/base/units.h"

static enum dtp_status take_time(const char *text, const char *place, double *out_s,
                                 struct dtp_err *err) {
    if (!text)
        return DTP_OK;
    DTP_TRY(dtp_parse_time(text, place, out_s, err));
    if (*out_s > DTP_GIGA)
        return dtp_fail(err, DTP_EUSAGE, "%s: found %s, expected at most 1e9 s", place, text);
    return DTP_OK;
}

/* Without interruptions nothing follows from what they cost. */
static enum dtp_status refuse_others(const struct dtp_args *args, struct dtp_err *err) {
    const char *other = args->gpu_hours_per_failure ? "--gpu-hours-per-failure"
                        : args->restart             ? "--restart"
                        : args->checkpoint          ? "--checkpoint"
                        : args->checkpoint_write    ? "--checkpoint-write"
                                                    : NULL;
    return other ? dtp_fail(err, DTP_EUSAGE, "--no-failures: leave %s out", other) : DTP_OK;
}

enum dtp_status dtp_cli_failures(struct dtp_cli *cli, bool best, struct dtp_failures *out,
                                 struct dtp_err *err) {
    const struct dtp_args *args = &cli->args;
    *out = (struct dtp_failures){0};
    if (args->no_failures)
        return refuse_others(args, err);
    DTP_TRY(dtp_failures_load(cli->a, out, err));
    if (best)
        out->checkpoint_s = 0;
    DTP_TRY(take_time(args->restart, "--restart", &out->restart_s, err));
    DTP_TRY(take_time(args->checkpoint, "--checkpoint", &out->checkpoint_s, err));
    if (best && args->checkpoint && !(out->checkpoint_s > 0))
        return dtp_fail(err, DTP_EUSAGE, "--checkpoint: found %s, expected more than 0",
                        args->checkpoint);
    DTP_TRY(take_time(args->checkpoint_write, "--checkpoint-write", &out->write_s, err));
    const char *hours = args->gpu_hours_per_failure;
    if (!hours)
        return DTP_OK;
    DTP_TRY(dtp_parse_double(hours, "--gpu-hours-per-failure", &out->gpu_hours_per_failure, err));
    if (out->gpu_hours_per_failure < DTP_MILLI || out->gpu_hours_per_failure > DTP_TERA)
        return dtp_fail(err, DTP_EUSAGE,
                        "--gpu-hours-per-failure: found %s, expected 0.001 to 1e12 (or "
                        "--no-failures)",
                        hours);
    return DTP_OK;
}
