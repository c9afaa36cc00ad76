/* dtplan calibrate: fits sweeps in files, or measures the machine at hand. */
#include <string.h>

#include "hw/calibrate.h"
#include "planner/cli/calibrate_cuda.h"
#include "planner/cli/calibrate_trace.h"
#include "planner/cli/calibration.h"
#include "planner/cli/own_times.h"
#include "planner/cli/verbs.h"
#include "sim/base/text.h"
#include "sim/base/units.h"

struct own {
    const char *backend, *gpu, *out, *framework;
    int ranks, rounds, largest;
    bool from, from_trace;
};

#define AT(field) offsetof(struct own, field)
static const char *const backends[] = {"cpu", "cuda", NULL};
static const struct dtp_option options[] = {
    {"from", DTP_OPT_FLAG, 0, AT(from), .help = "fit the sweeps in FILE... (JSON or CSV)"},
    {"from-trace", DTP_OPT_FLAG, 0, AT(from_trace),
     .help = "fit a framework file to the traces of a job: host time per launch and per layer"},
    {"gpu", DTP_OPT_STRING, 0, AT(gpu), .value = "NAME",
     .help = "with --from or --backend cuda: GPU file to start from: nominal figures, old "
             "constants; with --from-trace: a cluster of that GPU"},
    {"framework", DTP_OPT_STRING, 0, AT(framework), .value = "NAME|FILE",
     .complete = DTP_COMPLETE_FRAMEWORKS,
     .help =
         "with --from-trace: what to start from (default: what the trace shows); with --backend "
         "cuda: dtplan, the kernels and collectives of our own runtime on all GPUs, in a "
         "minute, as a file of hw/runtime"},
    {"backend", DTP_OPT_STRING, 0, AT(backend), .value = "NAME", .names = backends,
     .help = "without --from: what to measure, cpu or cuda"},
    {"ranks", DTP_OPT_INT, 'n', AT(ranks), .value = "N", .min = 1, .max = 64,
     .help = "largest group of the collectives (default 8, or all GPUs)"},
    {"rounds", DTP_OPT_INT, 0, AT(rounds), .value = "N", .min = 1, .max = 1000,
     .help = "sweeps over all kernels; the least time counts (default 5)"},
    {"largest", DTP_OPT_INT, 0, AT(largest), .value = "N", .min = 64, .max = 4096,
     .help = "largest m, n, k of the grid of matrix products (default 2048)"},
    {"out", DTP_OPT_STRING, 'o', AT(out), .value = "FILE", .complete = DTP_COMPLETE_FILE,
     .help = "the file to write: with --from a GPU file (- is standard output), else a cluster "
             "file (default cpu.json)"},
    {0}};

static void defaults(void *own) {
    *(struct own *)own = (struct own){.backend = "cpu", .rounds = 5, .largest = 2048};
}

enum { DEFAULT_RANKS = 8 };

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

static void report(FILE *f, const struct dtp_measured *m, const char *path) {
    fprintf(f, "%d cores, %.1f s; copy %.1f GB/s, one kernel %.2f us beside its work\n", m->ncores,
            m->seconds, m->copy_bytes_per_s / DTP_GIGA, m->gap_s / DTP_MICRO);
    fprintf(f, "collective       ranks   latency   bandwidth   error of the fit\n");
    for (int i = 0; i < m->ncurves; i++) {
        const struct dtp_curve *c = &m->curve[i];
        fprintf(f, "%-16s %5d %6.1f us %6.2f GB/s %8.1f %%\n", dtp_collective_names[c->collective],
                c->gpus, c->a_s / DTP_MICRO,
                c->c_s_per_byte > 0 ? 1 / c->c_s_per_byte / DTP_GIGA : 0.0, 100 * c->mean_error);
    }
    fprintf(f,
            "Not covered: ReLU (taken as GELU), shapes beyond the grid (taken in proportion).\n");
    fprintf(f, "Wrote %s: --cluster %s\n", path, path);
}

static enum dtp_status own_runtime(struct dtp_cli *cli, struct dtp_measure_options *o,
                                   struct dtp_err *err) {
    const struct own *own = cli->own;
    const char *path = own->out;
    struct dtp_measured m;
    DTP_TRY(dtp_own_times_make(cli->a, o, &path, &m, err));
    dtp_own_times_report(cli->out.file, &m, path);
    return DTP_OK;
}

static enum dtp_status run(struct dtp_cli *cli, struct dtp_err *err) {
    const struct own *own = cli->own;
    struct dtp_measure_options o = dtp_measure_default();
    struct dtp_measured m;
    const char *out = own->out ? own->out : "cpu.json";
    bool cuda = !strcmp(own->backend, "cuda");
    if (dtp_name_index(backends, own->backend) < 0)
        return dtp_unknown_name(err, DTP_EUSAGE, "backend", own->backend, backends, 2, NULL);
    if (own->from_trace)
        return dtp_cli_calibrate_trace(cli,
                                       &(struct dtp_calibrate_trace){.framework = own->framework,
                                                                     .cluster = own->gpu,
                                                                     .out = own->out},
                                       err);
    if (own->from || (own->gpu && !cuda))
        return from_files(cli, err);
    if (cli->nargs > 0)
        return dtp_fail(err, DTP_EUSAGE, "unexpected \"%s\": files are for --from", cli->arg[0]);
    if (own->framework && !cuda)
        return dtp_fail(err, DTP_EUSAGE, "--framework goes with --backend cuda");
    if (own->framework && strcmp(own->framework, "dtplan") != 0)
        return dtp_fail(err, DTP_EUSAGE,
                        "--framework: found \"%s\", expected dtplan with --backend cuda",
                        own->framework);
    if (cuda && !own->framework)
        return dtp_calibrate_cuda(cli, own->gpu, own->out, err);
    o.backend = own->backend;
    o.nranks = own->ranks > 0 || cuda ? own->ranks : DEFAULT_RANKS;
    o.rounds = own->rounds;
    o.largest = own->largest;
    if (cli->progress) {
        o.progress = dtp_cli_measuring;
        o.context = stderr;
    }
    if (cuda)
        return own_runtime(cli, &o, err);
    DTP_TRY(dtp_calibration_make(cli->a, &o, out, &m, err));
    report(cli->out.file, &m, out);
    return DTP_OK;
}

const struct dtp_verb dtp_verb_calibrate = {
    .name = "calibrate",
    .summary = "measure this machine, or fit a GPU file to measured kernels",
    .synopsis = "calibrate [--backend cpu|cuda] [--ranks N] [--out FILE] | --from FILE... --gpu "
                "NAME [--out FILE] | --from-trace TRACE... [--framework NAME] [--out FILE]",
    .description =
        "Times the runtime's own kernels (matrix products forward and backward over a grid of "
        "shapes, attention, norm, activation, cross-entropy, optimizer, copies) and collectives "
        "and transfers by size, each alone, never a training step, and writes a cluster file that "
        "--cluster and `dtplan check --calibration` take. The machine should be idle meanwhile. "
        "With --backend cuda it runs dtplan-calibrate-cuda on the first GPU for three to four "
        "minutes, "
        "keeps its sweep and fits the GPU file to it; with --framework dtplan it times the kernels "
        "and collectives of our own runtime instead, which `dtplan check --backend cuda` and "
        "--framework dtplan on GPUs need. With --from it fits the "
        "constants of a GPU file to sweeps of kernels (hw/README.md has the formats) and prints "
        "the errors of rows left out of the fit in turn. With --from-trace it takes host time per "
        "launch "
        "and per layer from the Kineto traces of a job, whose model and plan it infers, writes a "
        "framework file with source and errors, and prints the step as measured and as predicted.",
    .options = options,
    .own_size = sizeof(struct own),
    .defaults = defaults,
    .max_args = -1,
    .run = run};
