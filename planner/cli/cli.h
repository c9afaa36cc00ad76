/* cli.h: verbs. One row in verb_help.c and one file make a command.
 *
 *     static enum dtp_status run(struct dtp_cli *cli, struct dtp_err *err) { ... }
 *     const struct dtp_verb dtp_verb_mine = {
 *         .name = "mine", .summary = "does it", .synopsis = "mine [FILE...]",
 *         .groups = DTP_GROUP_PROBLEM, .options = own, .own_size = sizeof(struct mine), .run =
 * run};
 *
 * main() finds the verb, parses the common options of its groups into cli->args and its own into
 * cli->own, calls run and prints what err says. The status is the exit code. A run that has printed
 * its own "no" returns DTP_ENO with an empty message. Results go to stdout, notes to stderr.
 */
#ifndef DTP_PLANNER_CLI_CLI_H
#define DTP_PLANNER_CLI_CLI_H

#include "planner/cli/options.h"
#include "planner/document.h"
#include "planner/limits.h"
#include "planner/term.h"
#include "traces/jobs/failures.h"
#include "traces/tasks/tasks.h"

enum dtp_color { DTP_COLOR_AUTO, DTP_COLOR_ALWAYS, DTP_COLOR_NEVER };

/* Common options of all verbs. Text where the meaning depends on other options. */
struct dtp_args {
    struct dtp_ask ask;
    const char *limit[DTP_NLIMITS]; /* searched fields, as typed */
    const char *recompute_modules, *layers_per_stage, *tp_algo, *dp_algo, *tp_overlap, *dp_overlap,
        *p2p_overlap, *offload, *offload_to; /* fixed fields of the plan, as typed */
    const char *plan;                        /* FILE */
    const char *timeline;                    /* FILE to write */
    struct dtp_tasks_filter timeline_filter;
    bool no_fold;
    int detail; /* enum dtp_detail */
    bool json;
    int color; /* enum dtp_color */
    int jobs;  /* 0: as many as there are processors */
    int seed;
    double tokens; /* budget for "days", 0: the model's */
    const char *gpu_hours_per_failure, *restart, *checkpoint, *checkpoint_write; /* as typed */
    bool no_failures;
    bool help, version, man, man_formats;
    const char *completions;
};

enum dtp_option_group {
    DTP_GROUP_TRAINING = 1,   /* --model, --batch, ... */
    DTP_GROUP_LAYOUT = 2,     /* --tp, ... */
    DTP_GROUP_SIMULATE = 4,   /* --no-fold, --detail */
    DTP_GROUP_PLAN = 8,       /* --plan FILE */
    DTP_GROUP_OUTPUT = 16,    /* --json */
    DTP_GROUP_SEARCH = 32,    /* --jobs, --seed */
    DTP_GROUP_GENERAL = 64,   /* --help, --version; every verb has it */
    DTP_GROUP_TIMELINE = 128, /* --timeline and what of it */
    DTP_GROUP_PLACE = 256,    /* --gpus, --cluster, --framework */
    DTP_GROUP_FAILURES = 512, /* --no-failures, --restart, ... */
    DTP_GROUP_PROBLEM = DTP_GROUP_TRAINING | DTP_GROUP_PLACE
};

struct dtp_cli {
    struct dtp_arena *a; /* program lifetime */
    const struct dtp_verb *verb;
    struct dtp_args args;
    void *own;
    const char **arg; /* what is no option, without the verb */
    int nargs;
    struct dtp_term out;
    bool progress; /* stderr is a terminal */
};

struct dtp_verb {
    const char *name, *summary;
    const char *synopsis;                    /* without "dtplan " */
    const char *description;                 /* paragraphs for --help and the manual */
    unsigned groups;                         /* enum dtp_option_group */
    const struct dtp_form *const *documents; /* what --json prints, up to NULL; may be NULL */
    const struct dtp_option *options;        /* own, may be NULL */
    size_t own_size;
    void (*defaults)(void *own); /* may be NULL: zero */
    int min_args, max_args;      /* max_args < 0: any number */
    enum dtp_status (*run)(struct dtp_cli *cli, struct dtp_err *err);
};

/* The rows of the table of verbs, each from the file of its name. */
extern const struct dtp_verb dtp_verb_plan, dtp_verb_simulate, dtp_verb_explain, dtp_verb_compare,
    dtp_verb_models, dtp_verb_clusters, dtp_verb_frameworks, dtp_verb_schedules,
    dtp_verb_collectives, dtp_verb_collective, dtp_verb_validate, dtp_verb_replay, dtp_verb_trace,
    dtp_verb_infer, dtp_verb_jobs, dtp_verb_calibrate, dtp_verb_check, dtp_verb_doctor,
    dtp_verb_run, dtp_verb_sweep, dtp_verb_help;
extern const struct dtp_verb *const dtp_verbs[]; /* NULL-terminated; the first is the default */
const struct dtp_verb *dtp_verb_find(const char *name);

/* Sets of options of a verb, common ones first. Returns how many (at most DTP_MOST_SETS). */
enum { DTP_MOST_SETS = 12 };
size_t dtp_verb_sets(const struct dtp_verb *verb, struct dtp_args *args, void *own,
                     struct dtp_option_set *out);

/* verb_help.c */
void dtp_help_all(FILE *f, int width);
void dtp_help_verb(FILE *f, const struct dtp_verb *verb, int width);
void dtp_help_man(FILE *f);
void dtp_help_man_formats(FILE *f);
enum dtp_status dtp_help_completions(FILE *f, const char *shell, struct dtp_err *err);

/* Prints a line over the one before it if cli->progress is set; NULL clears it. */
void dtp_cli_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));
void dtp_cli_reading(void *context, const char *file, uint64_t bytes);
void dtp_cli_measuring(void *context, const char *what); /* context: FILE, a line each */

/* Name of a cluster whose GPU the device's name has ("NVIDIA H200"), with room for the ranks and the memory that
 * the name ("A100-SXM4-80GB") or the trace says; NULL: none. */
struct dtp_inferred;
const char *dtp_cli_cluster_of(struct dtp_arena *a, const struct dtp_inferred *in);

/* The problem that the options ask for. */
enum dtp_status dtp_cli_setup(struct dtp_cli *cli, struct dtp_setup *out, struct dtp_err *err);
/* Limits that the model cannot have: degrees of experts that it lacks, layers that do not add up; or that do not go
 * together. */
enum dtp_status dtp_cli_check_limits(const struct dtp_limits *limits,
                                     const struct dtp_problem *problem, struct dtp_err *err);
/* Finds what is assumed about interruptions; none with --no-failures. best: takes the interval of checkpoints that
 * loses least if none is given. */
enum dtp_status dtp_cli_failures(struct dtp_cli *cli, bool best, struct dtp_failures *out,
                                 struct dtp_err *err);
/* The limits that --tp and its like set. */
enum dtp_status dtp_cli_limits(struct dtp_cli *cli, const struct dtp_problem *problem,
                               struct dtp_limits *out, struct dtp_err *err);
/* Sets the fields of the plan that are not searched as their options say. */
enum dtp_status dtp_cli_fixed(struct dtp_cli *cli, struct dtp_plan *plan, struct dtp_err *err);
/* The plan of limits that have one value each. */
enum dtp_status dtp_cli_single(struct dtp_cli *cli, const struct dtp_limits *limits,
                               struct dtp_plan *out, struct dtp_err *err);
/* Refuses what a plan document says itself: model, GPUs, batch, layout. */
enum dtp_status dtp_cli_plan_alone(struct dtp_cli *cli, struct dtp_err *err);
/* Setup and one legal plan: from --plan FILE, on the hardware and with the dtype and the fields of dtp_cli_fixed()
 * that are given with it, or from the layout options, each one value (what is
 * not given: 1, or dp from the number of GPUs, or as in dtp_plan_default()). */
enum dtp_status dtp_cli_plan(struct dtp_cli *cli, struct dtp_setup *out, struct dtp_plan *out_plan,
                             struct dtp_err *err);

#endif
