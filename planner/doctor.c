#include "planner/doctor.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/text.h"
#include "sim/base/units.h"
#include "traces/formats/logs.h"

/* ---- suspects --------------------------------------------------------------------------------------- */

/* A copy of the configuration that a suspect may change. */
struct variant {
    struct dtp_problem problem;
    struct dtp_cluster cluster;
    struct dtp_framework framework;
    struct dtp_plan plan;
};

static bool zero_stage(struct variant *v, int stage) {
    bool changes = v->plan.zero_stage != stage;
    v->plan.zero_stage = stage;
    v->plan.zero_group = 0;
    return changes;
}
static bool zero_0(struct variant *v) {
    return zero_stage(v, 0);
}
static bool zero_1(struct variant *v) {
    return zero_stage(v, 1);
}
static bool zero_2(struct variant *v) {
    return zero_stage(v, 2);
}
static bool zero_3(struct variant *v) {
    return zero_stage(v, 3);
}

static bool full_recompute(struct variant *v) {
    bool changes = v->plan.recompute != DTP_RECOMPUTE_FULL;
    v->plan.recompute = DTP_RECOMPUTE_FULL;
    v->plan.recompute_layers = v->plan.recompute_modules = 0;
    return changes;
}

static bool no_recompute(struct variant *v) {
    bool changes = v->plan.recompute != DTP_RECOMPUTE_NONE;
    v->plan.recompute = DTP_RECOMPUTE_NONE;
    v->plan.recompute_layers = v->plan.recompute_modules = 0;
    return changes;
}

/* Recomputes the parts that cost little to recompute. */
static bool some_modules(struct variant *v) {
    int has = DTP_CHEAP_MODULES & v->framework.can.recompute_modules &
              dtp_model_modules(v->problem.model);
    bool changes = v->plan.recompute != DTP_RECOMPUTE_SELECTIVE || v->plan.recompute_modules != has;
    v->plan.recompute = DTP_RECOMPUTE_SELECTIVE;
    v->plan.recompute_modules = has;
    v->plan.recompute_layers = 0;
    return has != 0 && changes;
}

static bool set_sequence_parallel(struct variant *v, bool on) {
    bool changes = v->plan.sequence_parallel != on && v->plan.tp > 1;
    v->plan.sequence_parallel = on;
    return changes;
}
static bool sequence_parallel(struct variant *v) {
    return set_sequence_parallel(v, true);
}
static bool no_sequence_parallel(struct variant *v) {
    return set_sequence_parallel(v, false);
}

static bool unfused_attention(struct variant *v) {
    int now =
        v->problem.attention >= 0 ? v->problem.attention : (int)v->framework.kernels.attention;
    v->problem.attention = DTP_ATTN_UNFUSED;
    return now != DTP_ATTN_UNFUSED && v->problem.model->nconvs == 0;
}

static bool one_nic(struct variant *v) {
    bool across = v->problem.gpus > v->cluster.node.gpus && v->cluster.node.nics > 1;
    v->cluster.node.nics = 1;
    memset(v->cluster.node.nic_of_gpu, 0, sizeof v->cluster.node.nic_of_gpu);
    v->cluster.ncurves = 0; /* the measured curves are those of all NICs */
    return across;
}

static bool half_network(struct variant *v) {
    v->cluster.node.nic_bytes_per_s /= 2;
    v->cluster.ncurves = 0;
    return v->problem.gpus > v->cluster.node.gpus;
}

static bool no_overlap(struct variant *v) {
    bool changes = v->framework.wire.dp_overlap || v->framework.wire.tp_overlap;
    v->plan.tp_overlap = v->plan.dp_overlap = v->plan.p2p_overlap = 0;
    v->framework.wire.tp_overlap_forward = v->framework.wire.param_gather_overlap = false;
    return changes && v->problem.gpus > 1;
}

static bool smaller_microbatch(struct variant *v) {
    bool can = v->plan.microbatch_size % 2 == 0;
    v->plan.microbatch_size /= 2;
    return can;
}

static bool no_interleaving(struct variant *v) {
    bool can = v->plan.vpp > 1;
    v->plan.vpp = 1;
    v->plan.schedule = dtp_schedule_usual(1);
    return can;
}

static bool slow_host(struct variant *v) {
    double launch_s = v->framework.host.launch_s > 0 ? v->framework.host.launch_s : 5 * DTP_MICRO;
    v->framework.host.launch_s = 8 * launch_s;
    return true;
}

static bool unfused_kernels(struct variant *v) {
    bool changes = v->framework.kernels.fused_bias_activation || v->framework.kernels.fused_norm;
    v->framework.kernels.fused_bias_activation = v->framework.kernels.fused_bias_dropout_add =
        false;
    v->framework.kernels.fused_norm = v->framework.kernels.fused_softmax =
        v->framework.kernels.fused_rope = false;
    v->framework.kernels.fused_linear_bias = false;
    return changes;
}

static bool low_clocks(struct variant *v) {
    v->cluster.gpu.sustained *= 1.25;
    return true;
}

static bool sixteen_bit(struct variant *v) {
    bool changes = dtp_dtype_narrow(v->plan.dtype);
    v->plan.dtype = v->problem.dtype = DTP_BF16;
    return changes;
}

static bool full_precision(struct variant *v) {
    bool has = v->cluster.gpu.gemm[DTP_TF32].sm_flops_per_s > 0 && v->plan.dtype != DTP_TF32;
    v->plan.dtype = v->problem.dtype = DTP_TF32;
    return has;
}

static const struct {
    const char *what;
    bool (*apply)(struct variant *v); /* false: does not apply here */
} suspects[] = {
    {"full recomputation is on", full_recompute},
    {"recomputation is off", no_recompute},
    {"norms, the experts' activations and queries, keys and values of latents are recomputed "
     "(--recompute-modules)",
     some_modules},
    {"norms and dropout divide the sequence by tp (sequence parallelism)", sequence_parallel},
    {"norms and dropout are whole on each tp rank (no sequence parallelism)", no_sequence_parallel},
    {"nothing is divided over the dp ranks (ZeRO 0, no distributed optimizer)", zero_0},
    {"the optimizer state is divided over the dp ranks (ZeRO 1, distributed optimizer)", zero_1},
    {"optimizer state and gradients are divided over the dp ranks (ZeRO 2)", zero_2},
    {"weights too are divided over the dp ranks (ZeRO 3, FSDP)", zero_3},
    {"attention is not fused", unfused_attention},
    {"norms, activations and residuals are not fused", unfused_kernels},
    {"one NIC of the node carries all traffic (GPUDirect off, wrong interface)", one_nic},
    {"the network gives half of its bandwidth", half_network},
    {"communication does not overlap with compute", no_overlap},
    {"the microbatch is half as large", smaller_microbatch},
    {"virtual stages (interleaving) are off", no_interleaving},
    {"the host launches kernels 8 times slower (profiler, busy or slow CPU, data loading)",
     slow_host},
    {"the GPUs run at 0.8 of their clock (power cap, heat)", low_clocks},
    {"matrix products run in 16 bit, not FP8 or FP4", sixteen_bit},
    {"matrix products run in TF32, not 16 bit", full_precision},
};

static double explained(double measured, double expected, double suspect) {
    double gap = fabs(measured - expected);
    return measured > 0 && gap > 0 ? 1 - fabs(measured - suspect) / gap : 0;
}

static int by_explained(const void *x, const void *y) {
    const struct dtp_suspect *a = x, *b = y;
    if (a->fits != b->fits)
        return a->fits ? -1 : 1;
    if (a->explained != b->explained)
        return a->explained > b->explained ? -1 : 1;
    return strcmp(a->what, b->what);
}

static bool fits(const struct dtp_setup *setup, const struct dtp_diagnosis *d, double bytes) {
    return bytes / (1 + d->accuracy.memory_p90) <= (double)setup->cluster.gpu.memory_bytes;
}

static void try_suspect(const struct dtp_setup *setup, const struct dtp_plan *plan, size_t i,
                        const struct dtp_measured *measured, struct dtp_diagnosis *out) {
    struct dtp_arena *a = dtp_arena_create("suspect");
    struct variant *v = DTP_NEW(a, struct variant, 1);
    struct dtp_result r;
    v->problem = setup->problem;
    v->cluster = setup->cluster;
    v->framework = setup->framework;
    v->plan = *plan;
    v->problem.cluster = &v->cluster;
    v->problem.framework = &v->framework;
    bool was_legal = dtp_plan_check(&setup->problem, plan) == DTP_LEGAL;
    bool applies = suspects[i].apply(v);
    if (applies && (!was_legal || dtp_plan_check(&v->problem, &v->plan) == DTP_LEGAL)) {
        struct dtp_evaluator *ev = dtp_evaluator_create(a, &v->problem);
        if (dtp_evaluate(a, ev, &v->plan, DTP_SIMULATE, NULL, &r, NULL) == DTP_OK) {
            struct dtp_suspect *s = &out->suspect[out->n++];
            *s = (struct dtp_suspect){
                .what = suspects[i].what, .step_s = r.step_s, .peak_bytes = (double)r.device_bytes};
            s->fits = fits(setup, out, s->peak_bytes);
            s->explained = measured->step_s > 0
                               ? explained(measured->step_s, out->expected.step_s, r.step_s)
                               : explained(measured->peak_bytes, (double)out->expected.device_bytes,
                                           (double)r.device_bytes);
        }
        dtp_evaluator_destroy(ev);
    }
    dtp_arena_destroy(a);
}

/* What would help against, or explain, a run that ended out of memory. */
static int by_memory(const void *x, const void *y) {
    const struct dtp_suspect *a = x, *b = y;
    if (a->explained != b->explained)
        return a->explained > b->explained ? -1 : 1;
    if (a->step_s != b->step_s)
        return a->step_s < b->step_s ? -1 : 1;
    return strcmp(a->what, b->what);
}

static void rank_by_memory(struct dtp_diagnosis *d, double has_bytes) {
    double expected = (double)d->expected.device_bytes;
    bool wanted = expected > has_bytes;
    int n = 0;
    for (int i = 0; i < d->n; i++) {
        struct dtp_suspect s = d->suspect[i];
        s.explained = (s.peak_bytes <= has_bytes) == wanted;
        if (wanted ? s.peak_bytes < expected : s.peak_bytes > expected)
            d->suspect[n++] = s;
    }
    d->n = n;
    qsort(d->suspect, (size_t)d->n, sizeof d->suspect[0], by_memory);
}

static bool in_range(double x, double low, double high) {
    return x >= low && x <= high;
}

/* A way to read a number that would make it normal, or NULL. */
static const char *reading(const struct dtp_problem *p, const struct dtp_measured *m,
                           const struct dtp_diagnosis *d) {
    double allocated = (double)d->expected.peak_bytes,
           reserved = (double)d->expected.reserved_bytes;
    double spread = d->accuracy.memory_p90;
    if (!d->step_normal && m->tokens && in_range(m->step_s / p->gpus, d->low_s, d->high_s))
        return "as tokens/s of each GPU it would be normal (write tok/s/GPU)";
    if (!d->step_normal && m->mfu && in_range(m->step_s / 2, d->low_s, d->high_s))
        return "it would be normal if taken against the peak with sparsity, which is twice the "
               "dense";
    if (d->peak_normal || m->out_of_memory)
        return NULL;
    if (in_range(m->peak_bytes, allocated / (1 + spread), allocated * (1 + spread)))
        return "it would be normal as what the framework has allocated, without its reserve and "
               "the "
               "CUDA context";
    if (in_range(m->peak_bytes, reserved / (1 + spread), reserved * (1 + spread)))
        return "it would be normal as what the framework has reserved, without the CUDA context";
    return NULL;
}

enum dtp_status dtp_doctor(struct dtp_arena *a, const struct dtp_setup *setup,
                           const struct dtp_plan *plan, const struct dtp_measured *measured,
                           struct dtp_diagnosis *out, struct dtp_err *err) {
    memset(out, 0, sizeof *out);
    DTP_TRY(dtp_accuracy_of(a, setup->framework.name, setup->cluster.gpu.family,
                            setup->problem.model->moe.experts > 0, &out->accuracy, err));
    struct dtp_evaluator *ev = dtp_evaluator_create(a, &setup->problem);
    DTP_TRY(dtp_evaluate(a, ev, plan, DTP_SIMULATE, NULL, &out->expected, err));
    double spread = out->accuracy.p90, memory_spread = out->accuracy.memory_p90;
    double peak_bytes = (double)out->expected.device_bytes;
    out->low_s = out->expected.step_s / (1 + spread);
    out->high_s = out->expected.step_s * (1 + spread);
    double has_bytes = (double)setup->cluster.gpu.memory_bytes;
    out->fits = fits(setup, out, peak_bytes);
    out->low_bytes = peak_bytes / (1 + memory_spread);
    out->high_bytes = peak_bytes * (1 + memory_spread);
    if (out->fits && out->high_bytes > has_bytes)
        out->high_bytes = has_bytes;
    out->step_normal = !(measured->step_s > 0) ||
                       (measured->step_s >= out->low_s && measured->step_s <= out->high_s);
    out->peak_normal = !(measured->peak_bytes > 0) || (measured->peak_bytes >= out->low_bytes &&
                                                       measured->peak_bytes <= out->high_bytes);
    out->may_run_out = peak_bytes * (1 + memory_spread) > has_bytes;
    if (measured->out_of_memory)
        out->peak_normal = out->may_run_out;
    double peak_flops_per_s = setup->problem.cluster->gpu.peak_flops_per_s[setup->problem.dtype];
    out->above_peak = measured->step_s > 0 &&
                      dtp_step_flops(&setup->problem) / (measured->step_s * setup->problem.gpus) >
                          peak_flops_per_s;
    out->reading = reading(&setup->problem, measured, out);
    for (size_t i = 0; i < sizeof suspects / sizeof suspects[0]; i++)
        try_suspect(setup, plan, i, measured, out);
    if (measured->out_of_memory)
        rank_by_memory(out, has_bytes);
    else
        qsort(out->suspect, (size_t)out->n, sizeof out->suspect[0], by_explained);
    return DTP_OK;
}

/* ---- what people say that they measured, as seconds of a step and bytes ---- */

double dtp_step_flops(const struct dtp_problem *p) {
    return 3 * dtp_model_forward_flops(p->model, p->seq) * p->global_batch;
}

/* A rate is a part of a step per second: step = work / rate. The measures are in order of trust, the time of a
 * step first, because FLOPs are counted in several ways. */
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

#define LEAST_STEP_S DTP_MICRO
#define MOST_STEP_S DTP_GIGA

static bool set_step(const struct measure *m, double v, struct dtp_measured *out) {
    double step_s = m->work > 0 ? m->work / v : v;
    if (!(v > 0) || !(step_s >= LEAST_STEP_S && step_s <= MOST_STEP_S))
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
            if (set_step(&m[i], r.value, out))
                return DTP_OK;
            return dtp_fail(
                err, DTP_EUSAGE,
                "--measured: found \"%.*s\", that is a step of %.3g s; no step takes less "
                "than 1 us or more than 30 years",
                (int)n, given, m[i].work > 0 ? m[i].work / r.value : r.value);
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
