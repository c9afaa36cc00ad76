#include "planner/cli/check_setup.h"

#include "hw/own_times.h"
#include "planner/cli/calibration.h"
#include "planner/cli/own_times.h"
#include "runtime/launch.h"
#include "runtime/os_linux.h"
#include "sim/base/text.h"

double dtp_check_now_s(void) {
    return (double)dtp_os_now_ns() / (double)DTP_NS_PER_S;
}

/* A quick calibration beside the predictions; its name goes to the report. */
static enum dtp_status calibrate(struct dtp_cli *cli, int ranks, struct dtp_check *c,
                                 const char **out, struct dtp_err *err) {
    const struct dtp_check_own *own = cli->own;
    struct dtp_measure_options o = dtp_measure_default();
    struct dtp_measured m;
    o.backend = own->backend;
    o.nranks = ranks;
    o.together = true;
    o.largest = 512;
    if (cli->progress) {
        o.progress = dtp_cli_measuring;
        o.context = stderr;
    }
    *out = dtp_arena_printf(cli->a, "%s.calibration.json", own->predictions);
    DTP_TRY(dtp_calibration_make(cli->a, &o, *out, &m, err));
    c->calibrate_s = m.seconds;
    return DTP_OK;
}

/* A cluster with this GPU: an HGX board's, else the first. */
static enum dtp_status find_cluster(struct dtp_arena *a, const char *gpu, const char **out,
                                    struct dtp_err *err) {
    const char *const *names;
    size_t n;
    *out = NULL;
    DTP_TRY(dtp_cluster_list(a, &names, &n, err));
    for (size_t i = 0; i < n; i++) {
        struct dtp_cluster c;
        DTP_TRY(dtp_cluster_load(a, names[i], &c, err));
        if (strcmp(c.gpu.name, gpu) == 0 && (!*out || strncmp(names[i], "hgx-", 4) == 0))
            *out = names[i];
    }
    return *out ? DTP_OK : dtp_fail(err, DTP_EUNSUPPORTED, "no cluster has the GPU %s", gpu);
}

/* The cluster of the GPUs at hand, and the times of our own kernels on them. */
static enum dtp_status set_up_gpus(struct dtp_cli *cli, struct dtp_ask *ask, struct dtp_check *c,
                                   struct dtp_err *err) {
    const struct dtp_check_own *own = cli->own;
    struct dtp_measure_options o = {.backend = own->backend};
    struct dtp_dev_about *about = DTP_NEW(cli->a, struct dtp_dev_about, 1);
    const char *gpu;
    DTP_TRY(dtp_measure_about(own->backend, about, err));
    DTP_TRY(dtp_gpu_of_card(cli->a, about->card, &gpu, err));
    c->machine = about->card;
    c->versions = about->versions;
    if (ask->gpus < 1)
        ask->gpus = about->ndevices;
    if (!ask->cluster)
        DTP_TRY(find_cluster(cli->a, gpu, &ask->cluster, err));
    ask->own_times = own->calibration;
    if (own->calibration || dtp_own_times_path(cli->a, gpu))
        return DTP_OK;
    struct dtp_measured m;
    const char *path = dtp_arena_printf(cli->a, "%s.calibration.json", own->predictions);
    DTP_TRY(dtp_own_times_make(cli->a, &o, &path, &m, err));
    ask->own_times = path;
    c->calibrate_s = m.seconds;
    return DTP_OK;
}

enum dtp_status dtp_check_set_up(struct dtp_cli *cli, struct dtp_ask ask, struct dtp_check *c,
                                 struct dtp_setup *setup, struct dtp_err *err) {
    enum { DEFAULT_RANKS = 4, MOST_RANKS = 4096 };
    const struct dtp_check_own *own = cli->own;
    ask.attention = -1;
    ask.nic = NULL;
    ask.framework_json = NULL;
    ask.framework = "dtplan";
    if (dtp_check_on_gpus(own)) {
        DTP_TRY(set_up_gpus(cli, &ask, c, err));
        return dtp_setup_init(cli->a, &ask, setup, err);
    }
    ask.gpus = ask.gpus > 0 ? ask.gpus : DEFAULT_RANKS;
    if (ask.gpus > MOST_RANKS &&
        !own->shadow) /* each is a process or thread of this machine, as in dtplan run */
        return dtp_fail(err, DTP_EUSAGE, "--gpus: found %d, expected at most %d ranks on CPUs",
                        ask.gpus, (int)MOST_RANKS);
    ask.dtype = DTP_FP32;
    ask.cluster_json = NULL;
    ask.memory_limit_bytes = 0;
    ask.cluster = own->calibration;
    if (!ask.cluster)
        DTP_TRY(calibrate(cli, ask.gpus, c, &ask.cluster, err));
    return dtp_setup_init(cli->a, &ask, setup, err);
}

struct dtp_plan dtp_check_resolved(const struct dtp_plan *p, const struct dtp_framework *f) {
    struct dtp_plan x = *p;
    x.dp_overlap = f->wire.dp_overlap;
    x.tp_overlap = f->wire.tp_overlap;
    x.p2p_overlap = !f->wire.p2p_blocking;
    return x;
}
