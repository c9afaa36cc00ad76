#include "hw/own_times.h"

#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "hw/cluster_parts.h"
#include "sim/base/text.h"

#define IN(member) offsetof(struct dtp_own_times, member)
static const struct dtp_field fields[] = {
    {"gpu", DTP_FIELD_STRING, IN(gpu), .required = true, .help = "an entry of hw/gpu"},
    {"title", DTP_FIELD_STRING, IN(title), .help = "one line"},
    {"machine", DTP_FIELD_STRING, IN(machine), .help = "card"},
    {"versions", DTP_FIELD_STRING, IN(versions), .help = "of driver and libraries"},
    {"source", DTP_FIELD_STRING, IN(source), .required = true, .help = "by what, when"},
    {"launch_s", DTP_FIELD_DOUBLE, IN(launch_s), .min = 0, .max = 1, .required = true,
     .help = "host time of one kernel"},
    {"calibration", DTP_FIELD_JSON, IN(calibration), .required = true, .help = "of kernels"},
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
    return dtp_fields_read(a, j, fields, out, err);
}

enum dtp_status dtp_own_times_apply(struct dtp_arena *a, const struct dtp_own_times *t,
                                    struct dtp_cluster *c, struct dtp_err *err) {
    if (strcmp(t->gpu, c->gpu.name) != 0)
        return dtp_fail(err, DTP_EINPUT, "times of the runtime on %s, but %s has %s", t->gpu,
                        c->name, c->gpu.name);
    DTP_TRY(dtp_gpu_calibrate(a, t->calibration, &c->gpu, err));
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
