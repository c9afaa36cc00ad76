#include <string.h>

#include "hw/calibrate.h"
#include "planner/cli/verbs.h"

struct own {
    const char *gpu, *out;
    bool from;
};

static const struct dtp_option own_options[] = {
    {"from", .kind = DTP_OPT_FLAG, .offset = offsetof(struct own, from),
     .help = "fit the sweeps in FILE... (JSON or CSV)"},
    {"gpu", .kind = DTP_OPT_STRING, .offset = offsetof(struct own, gpu), .value = "NAME",
     .help = "GPU file to start from: nominal figures, old constants"},
    {"out", .kind = DTP_OPT_STRING, .offset = offsetof(struct own, out), .value = "FILE",
     .complete = DTP_COMPLETE_FILE, .help = "write the new GPU file; - is standard output"},
    {0}};

static enum dtp_status from_files(struct dtp_cli *cli, struct dtp_err *err) {
    const struct own *own = cli->own;
    bool to_stdout = own->out && !strcmp(own->out, "-");
    struct dtp_calibrate_args args = {.paths = cli->arg,
                                      .npaths = (size_t)cli->nargs,
                                      .gpu = own->gpu,
                                      .out_path = own->out,
                                      .report = to_stdout ? stderr : cli->out.file};

    if (!own->gpu)
        return dtp_fail(err, DTP_EUSAGE, "--gpu NAME is needed: which GPU are the sweeps of?");
    if (!cli->nargs)
        return dtp_fail(err, DTP_EUSAGE, "--from needs at least one FILE");
    return dtp_calibrate_from_files(cli->a, &args, err);
}

static enum dtp_status run(struct dtp_cli *cli, struct dtp_err *err) {
    return from_files(cli, err);
}

const struct dtp_verb dtp_verb_calibrate = {
    .name = "calibrate",
    .summary = "fit a GPU file to measured kernels",
    .synopsis = "calibrate --from FILE... --gpu NAME [--out FILE]",
    .description =
        "Fits the constants of a GPU file to sweeps of kernels (hw/README.md has the formats) and "
        "prints the errors of rows left out of the fit in turn.",
    .options = own_options,
    .own_size = sizeof(struct own),
    .min_args = 0,
    .max_args = -1,
    .run = run};
