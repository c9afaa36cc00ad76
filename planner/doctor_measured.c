/* What people say that they measured, as seconds of a step and bytes. */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "planner/doctor.h"
#include "sim/base/text.h"
#include "sim/base/units.h"
#include "traces/formats/logs.h"

double dtp_step_flops(const struct dtp_problem *p) {
    return 3 * dtp_model_forward_flops(p->model, p->seq) * p->global_batch;
}

/* A rate is so much of a step a second: step = work / rate. In the order in which they are believed, the time
 * of a step first, for FLOPs are counted in several ways. */
enum { NMEASURES = 8 };
struct measure {
    enum dtp_quantity quantity;
    double work; /* 0: the number is the time */
};
static void measures_of(const struct dtp_problem *p, struct measure out[NMEASURES]) {
    double flops = dtp_step_flops(p), sequences = p->global_batch, tokens = sequences * p->seq,
           peak = p->cluster->gpu.peak_flops_per_s[p->dtype], gpus = p->gpus;
    const struct measure all[NMEASURES] = {
        {DTP_QUANTITY_STEP_S, 0},
        {DTP_QUANTITY_STEPS_PER_S, 1},
        {DTP_QUANTITY_MFU, flops / (peak * gpus)},
        {DTP_QUANTITY_FLOPS_PER_GPU, flops / gpus},
        {DTP_QUANTITY_TOKENS_PER_S, tokens},
        {DTP_QUANTITY_TOKENS_PER_S_PER_GPU, tokens / gpus},
        {DTP_QUANTITY_SEQUENCES_PER_S, sequences},
        {DTP_QUANTITY_SEQUENCES_PER_S_PER_GPU, sequences / gpus}};
    memcpy(out, all, sizeof all);
}

static bool set_step(const struct measure *m, double v, struct dtp_measured *out) {
    double step_s = m->work > 0 ? m->work / v : v;
    if (!(v > 0) || !isfinite(step_s))
        return false;
    out->step_s = step_s;
    out->tokens = m->quantity == DTP_QUANTITY_TOKENS_PER_S;
    out->mfu = m->quantity == DTP_QUANTITY_MFU;
    return true;
}

static enum dtp_status parse_one(const char *given, size_t n, const struct dtp_problem *p,
                                 struct dtp_measured *out, struct dtp_err *err) {
    struct dtp_reading r;
    struct measure m[NMEASURES];
    bool read = dtp_label_read(given, n, &r);
    if (read && !(r.value > 0 && isfinite(r.value)))
        return dtp_fail(err, DTP_EUSAGE, "--measured: found \"%.*s\", expected more than 0", (int)n,
                        given);
    if (read &&
        (r.quantity == DTP_QUANTITY_PEAK_BYTES || r.quantity == DTP_QUANTITY_RESERVED_BYTES)) {
        out->peak_bytes = r.value;
        return DTP_OK;
    }
    /* torchtitan's tps is that of one device (its metrics.py), as in its whole lines */
    if (read && r.quantity == DTP_QUANTITY_TOKENS_PER_S &&
        strchr(":=", given[strspn(given, " tps")]) &&
        strncmp(p->framework->name, "torchtitan", strlen("torchtitan")) == 0)
        r.quantity = DTP_QUANTITY_TOKENS_PER_S_PER_GPU;
    measures_of(p, m);
    for (int i = 0; read && i < NMEASURES; i++)
        if (m[i].quantity == r.quantity) {
            set_step(&m[i], r.value, out);
            return DTP_OK;
        }
    return dtp_fail(err, DTP_EUSAGE,
                    "--measured: found \"%.*s\", expected a step time (3.2s), TFLOP/s per GPU "
                    "(152TF), MFU (45%%), tokens/s (190k tok/s, 3k tok/s/GPU), sequences/s "
                    "(12 seq/s), steps/s (1.2 it/s), memory (61GiB) or OOM",
                    (int)n, given);
}

/* False: the log does not say it. Of a whole log the median, or the most. */
static bool find(const struct dtp_log *log, enum dtp_quantity quantity, bool most, double *out) {
    const struct dtp_series *series = dtp_scalars_find(&log->scalars, quantity);
    struct dtp_series_stats stats;
    if (!series)
        return false;
    dtp_series_stats(series, &stats);
    *out = most ? stats.max : stats.median;
    return stats.n > 0;
}

static bool read_log(struct dtp_arena *a, const char *text, const struct dtp_problem *p,
                     struct dtp_measured *out) {
    struct measure m[NMEASURES];
    struct dtp_source *source = NULL;
    struct dtp_err err = {0};
    struct dtp_log log;
    double v = 0;
    bool timed = false;
    bool read = dtp_source_memory(a, "--measured", text, strlen(text), &source, &err) == DTP_OK &&
                dtp_log_read(a, source, &log, &err) == DTP_OK;
    dtp_source_close(source);
    if (!read)
        return false;
    measures_of(p, m);
    for (int i = 0; i < NMEASURES && !timed; i++)
        timed = find(&log, m[i].quantity, false, &v) && set_step(&m[i], v, out);
    if (find(&log, DTP_QUANTITY_FLOPS_PER_GPU, false, &v) && v > 0 && isfinite(v))
        out->flops_per_gpu = v;
    if ((find(&log, DTP_QUANTITY_PEAK_BYTES, true, &v) ||
         find(&log, DTP_QUANTITY_RESERVED_BYTES, true, &v)) &&
        v > 0 && isfinite(v))
        out->peak_bytes = v;
    if (find(&log, DTP_QUANTITY_SEQUENCES, true, &v) && v > 0 && v <= INT_MAX && v == floor(v))
        out->batch = (int)v;
    return out->step_s > 0 || out->peak_bytes > 0;
}

static bool is_out_of_memory(const char *text) {
    return dtp_same_name(text, "oom") || dtp_text_has(text, "out of memory") ||
           dtp_text_has(text, "outofmemory");
}

enum dtp_status dtp_measured_parse(const char *text, const struct dtp_problem *problem,
                                   struct dtp_measured *out, struct dtp_err *err) {
    struct dtp_arena *a = dtp_arena_create("what was measured");
    *out = (struct dtp_measured){.text = text};
    bool log = read_log(a, text, problem, out);
    dtp_arena_destroy(a);
    if (log)
        return DTP_OK;
    *out = (struct dtp_measured){.text = text, .out_of_memory = is_out_of_memory(text)};
    if (out->out_of_memory)
        return DTP_OK;
    for (const char *at = text; at;) {
        const char *comma = strchr(at, ',');
        while (comma && dtp_groups_thousands(at, comma))
            comma = strchr(comma + 1, ',');
        size_t n = comma ? (size_t)(comma - at) : strlen(at);
        DTP_TRY(parse_one(at, n, problem, out, err));
        at = comma ? comma + 1 : NULL;
    }
    if (!(out->step_s > 0) && !(out->peak_bytes > 0))
        return dtp_fail(err, DTP_EUSAGE, "--measured: found \"%s\", expected more than 0", text);
    return DTP_OK;
}
