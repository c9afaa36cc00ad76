#include "hw/own_times.h"

#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "hw/cluster_internal.h"
#include "sim/base/text.h"

#define IN(member) offsetof(struct dtp_own_times, member)
static const struct dtp_field fields[] = {
    {"gpu", DTP_FIELD_STRING, IN(gpu), .required = true, .help = "an entry of hw/gpu"},
    {"like", DTP_FIELD_STRING, IN(like), .help = "another GPU's file, scaled"},
    {"title", DTP_FIELD_STRING, IN(title), .help = "one line"},
    {"machine", DTP_FIELD_STRING, IN(machine), .help = "card"},
    {"versions", DTP_FIELD_STRING, IN(versions), .help = "of driver and libraries"},
    {"source", DTP_FIELD_STRING, IN(source), .required = true, .help = "by what, when"},
    {"launch_s", DTP_FIELD_DOUBLE, IN(launch_s), .min = 0, .max = 1,
     .help = "host time of one kernel"},
    {"stream_hop_s", DTP_FIELD_DOUBLE, IN(stream_hop_s), .min = 0, .max = 1,
     .help = "of two waits of one stream for another, around a collective"},
    {"peer_gap_s", DTP_FIELD_DOUBLE, IN(peer_gap_s), .min = 0, .max = 1,
     .help = "between kernels beside kernel_gap_s, with communicators"},
    {"calibration", DTP_FIELD_JSON, IN(calibration), .help = "of kernels"},
    {"power_limit_w", DTP_FIELD_DOUBLE, IN(power_limit_w), .min = 0, .max = 1e5,
     .help = "of the card"},
    {"most_clock_hz", DTP_FIELD_DOUBLE, IN(most_clock_hz), .min = 0, .max = 1e11,
     .help = "of the SMs; tables of products hold times at it"},
    {"loads", DTP_FIELD_JSON, IN(loads), .help = "kernels under long load: clock and power"},
    {"curves", DTP_FIELD_JSON, IN(curves), .help = "of collectives in a node"},
    {0}};

const char *dtp_own_times_path(struct dtp_arena *a, const char *gpu) {
    const char *path = dtp_data_path(a, dtp_arena_printf(a, "hw/runtime/%s.json", gpu));
    return access(path, R_OK) == 0 ? path : NULL;
}

enum dtp_status dtp_own_times_read(struct dtp_arena *a, const char *path, struct dtp_own_times *out,
                                   struct dtp_err *err) {
    const struct dtp_json *j;
    *out = (struct dtp_own_times){0};
    DTP_TRY(dtp_json_read_file(a, path, &j, err));
    DTP_TRY(dtp_fields_read(a, j, fields, out, err));
    if (!out->like == !out->calibration)
        return dtp_json_expected(j, "either calibration or like", err);
    if (!out->like)
        return DTP_OK;
    const char *other = dtp_own_times_path(a, out->like);
    struct dtp_own_times from;
    if (!other || strcmp(out->like, out->gpu) == 0)
        return dtp_json_expected(dtp_json_get(j, "like"), "another GPU of hw/runtime", err);
    DTP_TRY(dtp_json_read_file(a, other, &j, err));
    from = (struct dtp_own_times){0};
    DTP_TRY(dtp_fields_read(a, j, fields, &from, err));
    if (!from.calibration)
        return dtp_json_expected(j, "a calibration, since another file is like this one", err);
    out->calibration = from.calibration;
    out->launch_s = from.launch_s;
    out->stream_hop_s = from.stream_hop_s;
    out->peer_gap_s = from.peer_gap_s;
    return DTP_OK;
}

static void scale_table(struct dtp_arena *a, struct dtp_time_table *t, double factor) {
    const double *from = t->time_s.at;
    t->time_s.at = DTP_NEW(a, double, t->time_s.n);
    for (size_t i = 0; i < t->time_s.n; i++)
        t->time_s.at[i] = from[i] * factor;
}

/* Scales the classes of kernels that the calibration lists by the ratio of the two GPUs' memory bandwidths. */
static enum dtp_status scale(struct dtp_arena *a, const struct dtp_own_times *t, struct dtp_gpu *g,
                             struct dtp_err *err) {
    const struct dtp_json *kernels = dtp_json_get(t->calibration, "kernel");
    struct dtp_gpu from;
    DTP_TRY(dtp_gpu_load(a, t->like, &from, err));
    double faster = g->hbm_bytes_per_s / from.hbm_bytes_per_s;
    for (int k = 0; kernels && k < DTP_NKERNELS; k++)
        if (dtp_json_get(kernels, dtp_kernel_names[k])) {
            g->kernel[k].bytes_per_s *= faster;
            scale_table(a, &g->table[DTP_TABLE_KERNEL + k], 1 / faster);
        }
    g->not_calibrated = true;
    return DTP_OK;
}

enum dtp_status dtp_own_times_apply(struct dtp_arena *a, const struct dtp_own_times *t,
                                    struct dtp_cluster *c, struct dtp_err *err) {
    if (strcmp(t->gpu, c->gpu.name) != 0)
        return dtp_fail(err, DTP_EINPUT, "times of the runtime on %s, but %s has %s", t->gpu,
                        c->name, c->gpu.name);
    DTP_TRY(dtp_gpu_calibrate(a, t->calibration, &c->gpu, err));
    if (t->like)
        DTP_TRY(scale(a, t, &c->gpu, err));
    if (!t->curves)
        return DTP_OK;
    const struct dtp_curve *others = c->curve;
    size_t nothers = (size_t)c->ncurves;
    c->curve = NULL;
    c->ncurves = 0;
    DTP_TRY(dtp_cluster_load_curves(a, t->curves, c, c, err));
    size_t own = (size_t)c->ncurves;
    c->curve = dtp_arena_grow(a, c->curve, sizeof *c->curve, own, own + nothers);
    if (nothers > 0)
        memcpy(c->curve + own, others, nothers * sizeof *others);
    c->ncurves = (int)(own + nothers);
    return DTP_OK;
}
