/* dtplan calibrate: measures the machine at hand. */
#include <string.h>

#include "planner/cli/calibration.h"
#include "planner/cli/verbs.h"
#include "sim/base/units.h"

struct own {
    const char *backend, *out;
    int ranks, rounds, largest;
};

#define AT(field) offsetof(struct own, field)
static const struct dtp_option options[] = {
    {"backend", DTP_OPT_STRING, 0, AT(backend), .value = "NAME", .help = "cpu"},
    {"ranks", DTP_OPT_INT, 'n', AT(ranks), .value = "N", .min = 1, .max = 64,
     .help = "largest group of the collectives (default 8)"},
    {"rounds", DTP_OPT_INT, 0, AT(rounds), .value = "N", .min = 1, .max = 1000,
     .help = "sweeps over all kernels; the least time counts (default 5)"},
    {"largest", DTP_OPT_INT, 0, AT(largest), .value = "N", .min = 64, .max = 4096,
     .help = "largest m, n, k of the grid of matrix products (default 2048)"},
    {"out", DTP_OPT_STRING, 'o', AT(out), .value = "FILE", .complete = DTP_COMPLETE_FILE,
     .help = "the cluster file to write (default cpu.json)"},
    {0}};

static void defaults(void *own) {
    *(struct own *)own = (struct own){
        .backend = "cpu", .out = "cpu.json", .ranks = 8, .rounds = 5, .largest = 2048};
}

static void progress(void *context, const char *what) {
    fprintf(context, "measuring %s\n", what);
}

static void report(FILE *f, const struct dtp_measured *m, const char *path) {
    fprintf(f, "%d cores, %.1f s; copy %.1f GB/s, one kernel %.2f us beside its work\n", m->ncores,
            m->seconds, m->copy_bytes_per_s / DTP_GIGA, m->gap_s / DTP_MICRO);
    fprintf(f, "collective       ranks   latency   bandwidth   error of the fit\n");
    for (int i = 0; i < m->ncurves; i++) {
        const struct dtp_curve *c = &m->curve[i];
        fprintf(f, "%-16s %5d %6.1f us %6.2f GB/s %8.1f %%\n",
                dtp_collective_names[c->collective], c->gpus, c->a_s / DTP_MICRO,
                c->c_s_per_byte > 0 ? 1 / c->c_s_per_byte / DTP_GIGA : 0.0, 100 * c->mean_error);
    }
    fprintf(f, "Not covered: activations but GELU, shapes beyond the grid (taken in proportion).\n");
    fprintf(f, "Wrote %s: --cluster %s\n", path, path);
}

static enum dtp_status run(struct dtp_cli *cli, struct dtp_err *err) {
    const struct own *own = cli->own;
    struct dtp_measure_options o = dtp_measure_default();
    struct dtp_measured m;
    o.backend = own->backend;
    o.nranks = own->ranks;
    o.rounds = own->rounds;
    o.largest = own->largest;
    if (cli->progress) {
        o.progress = progress;
        o.context = stderr;
    }
    DTP_TRY(dtp_calibration_make(cli->a, &o, own->out, &m, err));
    report(cli->out.file, &m, own->out);
    return DTP_OK;
}

const struct dtp_verb dtp_verb_calibrate = {
    .name = "calibrate",
    .summary = "measure kernels and collectives of this machine into a cluster file",
    .synopsis = "calibrate [--backend cpu] [--ranks N] [--out FILE]",
    .description =
        "Times the runtime's own kernels (matrix products forward and backward over a grid of "
        "shapes, attention, norm, activation, cross-entropy, optimizer, copies) and collectives "
        "and transfers by size, each alone, never a training step, and writes a cluster file that "
        "--cluster and `dtplan check --calibration` take. The machine should be idle meanwhile.",
    .options = options,
    .own_size = sizeof(struct own),
    .defaults = defaults,
    .run = run};
