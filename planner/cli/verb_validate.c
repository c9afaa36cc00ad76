#include <string.h>

#include "planner/cli/cli.h"
#include "traces/validate/accuracy.h"
#include "traces/tasks/plot.h"

struct own {
    const char *rows, *accuracy, *scatter, *histogram;
    int worst, fidelity;
    bool detail;
};

static const char *const fidelity_names[] = {"bound", "estimate", "simulate", NULL};

static const struct dtp_option own_options[] = {
    {"rows", .kind = DTP_OPT_STRING, .offset = offsetof(struct own, rows), .value = "FILE",
     .complete = DTP_COMPLETE_FILE, .help = "write one line a run to FILE as CSV"},
    {"accuracy", .kind = DTP_OPT_STRING, .offset = offsetof(struct own, accuracy), .value = "FILE",
     .complete = DTP_COMPLETE_FILE,
     .help = "write the error of each stack to FILE: what `doctor` takes as the expected range"},
    {"scatter", .kind = DTP_OPT_STRING, .offset = offsetof(struct own, scatter), .value = "FILE",
     .complete = DTP_COMPLETE_FILE, .help = "picture of predicted against measured step, SVG"},
    {"histogram", .kind = DTP_OPT_STRING, .offset = offsetof(struct own, histogram),
     .value = "FILE", .complete = DTP_COMPLETE_FILE, .help = "picture of the errors, SVG"},
    {"by-plan", .kind = DTP_OPT_FLAG, .offset = offsetof(struct own, detail),
     .help = "errors also by GPUs, tp, pp, dp, cp, ZeRO stage and recomputation (--json has them)"},
    {"worst", .kind = DTP_OPT_INT, .offset = offsetof(struct own, worst), .value = "N", .min = 0,
     .max = 1000, .help = "list the N runs with the largest error (10)"},
    {"fidelity", .kind = DTP_OPT_CHOICE, .offset = offsetof(struct own, fidelity), .value = "NAME",
     .names = fidelity_names, .help = "bound, estimate or simulate (simulate)"},
    {0}};

static void defaults(void *own) {
    *(struct own *)own = (struct own){.worst = 10, .fidelity = DTP_SIMULATE};
}

static void show_progress(void *ctx, size_t done, size_t n) {
    (void)ctx;
    if (done < n)
        dtp_cli_progress("  %zu of %zu runs", done, n);
    else
        dtp_cli_progress(NULL);
}

/* The steps of the runs as points, by file. */
static struct dtp_plot plot_of(struct dtp_arena *a, const struct dtp_validation *v) {
    struct dtp_plot_point *point = DTP_NEW(a, struct dtp_plot_point, v->runs.n + 1);
    const char **group = DTP_NEW(a, const char *, v->runs.n + 1);
    struct dtp_plot plot = {.axis = "step time, s", .point = point, .groups = group};
    for (size_t i = 0; i < v->runs.n; i++) {
        const struct dtp_run *run = v->row[i].run;
        int g = 0;
        while (g < plot.ngroups && strcmp(group[g], run->file) != 0)
            g++;
        if (!v->row[i].supported || !(run->step_s > 0))
            continue;
        if (g == plot.ngroups)
            group[plot.ngroups++] = run->file;
        point[plot.npoints++] =
            (struct dtp_plot_point){run->step_s, v->row[i].predicted_s, g, run->id};
    }
    return plot;
}

static void write_scatter(struct dtp_arena *a, FILE *f, const struct dtp_validation *v) {
    struct dtp_plot plot = plot_of(a, v);
    plot.title = dtp_arena_printf(a, "%zu measured runs", plot.npoints);
    dtp_plot_scatter(f, &plot);
}

static void write_histogram(struct dtp_arena *a, FILE *f, const struct dtp_validation *v) {
    struct dtp_plot plot = plot_of(a, v);
    plot.title = dtp_arena_printf(a, "error of the step time, %zu measured runs", plot.npoints);
    dtp_plot_errors(f, &plot);
}

typedef void write_fn(struct dtp_arena *a, FILE *f, const struct dtp_validation *v);

static void write_rows(struct dtp_arena *a, FILE *f, const struct dtp_validation *v) {
    (void)a;
    dtp_validation_write_rows(f, v);
}

struct output {
    struct dtp_arena *a;
    write_fn *write;
    const struct dtp_validation *v;
};

static void write_output(FILE *f, const void *what) {
    const struct output *o = what;
    o->write(o->a, f, o->v);
}

static enum dtp_status run(struct dtp_cli *cli, struct dtp_err *err) {
    const struct own *own = cli->own;
    struct dtp_validate_options options = {.jobs = cli->args.jobs,
                                           .fidelity = (enum dtp_fidelity)own->fidelity,
                                           .progress = cli->progress ? show_progress : NULL};
    struct dtp_validation v;
    DTP_TRY(dtp_validate(cli->a, cli->arg, (size_t)cli->nargs, &options, &v, err));
    const struct {
        const char *path;
        write_fn *write;
    } outputs[] = {{own->rows, write_rows},
                   {own->accuracy, dtp_accuracy_write},
                   {own->scatter, write_scatter},
                   {own->histogram, write_histogram}};
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
        if (outputs[i].path)
            DTP_TRY(dtp_file_write(cli->a, outputs[i].path, write_output,
                                   &(struct output){cli->a, outputs[i].write, &v}, err));
    if (cli->args.json)
        dtp_validation_write_json(cli->a, cli->out.file, &v);
    else
        dtp_validation_print(cli->a, cli->out.file, &v,
                             &(struct dtp_validation_report){own->worst, own->detail});
    return DTP_OK;
}

static const struct dtp_form *const documents[] = {&dtp_validation_form, NULL};

const struct dtp_verb dtp_verb_validate = {
    .name = "validate",
    .summary = "predict measured runs and report the errors",
    .synopsis = "validate FILE... [--rows OUT.csv] [--scatter OUT.svg] [--worst N] [--json]",
    .description =
        "Reads CSV files of measured runs (traces/README.md has the columns), predicts each and "
        "prints the errors by file, framework and GPU: MAPE, median, 90th percentile, bias, worst; "
        "the same for the memory; verdicts on memory; and how well layouts of one model and number "
        "of GPUs are ranked (Spearman, regret). Runs of a framework or GPU that is not known are "
        "counted as unsupported. A file without step_s holds runs that failed.",
    .groups = DTP_GROUP_OUTPUT | DTP_GROUP_SEARCH,
    .documents = documents,
    .options = own_options,
    .own_size = sizeof(struct own),
    .defaults = defaults,
    .min_args = 1,
    .max_args = -1,
    .run = run};
