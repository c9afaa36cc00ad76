#include "traces/formats/scalars.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/stats.h"
#include "sim/base/units.h"

#define PERCENT 1e-2
#define WARMUP_SHARE 20 /* one of so many values */

const char *const dtp_quantity_name[DTP_NQUANTITIES] = {"step_s",
                                                        "forward_s",
                                                        "backward_s",
                                                        "optimizer_s",
                                                        "tokens_per_s",
                                                        "tokens_per_s_per_gpu",
                                                        "sequences_per_s",
                                                        "flops_per_s_per_gpu",
                                                        "hardware_flops_per_s_per_gpu",
                                                        "mfu",
                                                        "loss",
                                                        "gradient_norm",
                                                        "learning_rate",
                                                        "sequences",
                                                        "tokens",
                                                        "peak_bytes",
                                                        "reserved_bytes",
                                                        "allocated_bytes",
                                                        "skipped_steps",
                                                        "nan_steps",
                                                        "other"};

/* What tags of the frameworks mean: Megatron's log and TensorBoard, nanotron, torchtitan's console and
 * TensorBoard, DeepSpeed. */
static const struct {
    const char *tag;
    enum dtp_quantity quantity;
    double unit;
} meanings[] = {
    {"elapsed time per iteration (ms)", DTP_QUANTITY_STEP_S, DTP_MILLI},
    {"elapsed_time_per_iteration_ms", DTP_QUANTITY_STEP_S, DTP_MILLI},
    {"iteration-time", DTP_QUANTITY_STEP_S, 1},
    {"time_metrics/end_to_end(s)", DTP_QUANTITY_STEP_S, 1},
    {"step time from timestamps (s)", DTP_QUANTITY_STEP_S, 1},
    {"fwd", DTP_QUANTITY_FORWARD_S, DTP_MILLI},
    {"bwd", DTP_QUANTITY_BACKWARD_S, DTP_MILLI},
    {"step", DTP_QUANTITY_OPTIMIZER_S, DTP_MILLI},
    {"fwd + bwd + step (ms)", DTP_QUANTITY_STEP_S, DTP_MILLI},
    {"tokens_per_sec", DTP_QUANTITY_TOKENS_PER_S, 1},
    {"tokens_per_sec_per_gpu", DTP_QUANTITY_TOKENS_PER_S_PER_GPU, 1},
    {"throughput(tps)", DTP_QUANTITY_TOKENS_PER_S_PER_GPU, 1},
    {"tps", DTP_QUANTITY_TOKENS_PER_S_PER_GPU, 1},
    {"wps", DTP_QUANTITY_TOKENS_PER_S_PER_GPU, 1},
    {"CurrSamplesPerSec", DTP_QUANTITY_SEQUENCES_PER_S, 1},
    {"throughput per GPU (TFLOP/s/GPU)", DTP_QUANTITY_FLOPS_PER_GPU, DTP_TERA},
    {"throughput", DTP_QUANTITY_FLOPS_PER_GPU, DTP_TERA},
    {"model_tflops_per_gpu", DTP_QUANTITY_FLOPS_PER_GPU, DTP_TERA},
    {"tflops", DTP_QUANTITY_FLOPS_PER_GPU, DTP_TERA},
    {"hardware_tflops_per_gpu", DTP_QUANTITY_HARDWARE_FLOPS_PER_GPU, DTP_TERA},
    {"mfu", DTP_QUANTITY_MFU, PERCENT},
    {"mfu(%)", DTP_QUANTITY_MFU, PERCENT},
    {"lm loss", DTP_QUANTITY_LOSS, 1},
    {"lm_loss", DTP_QUANTITY_LOSS, 1},
    {"loss", DTP_QUANTITY_LOSS, 1},
    {"loss_metrics/global_avg_loss", DTP_QUANTITY_LOSS, 1},
    {"Train/Samples/train_loss", DTP_QUANTITY_LOSS, 1},
    {"grad norm", DTP_QUANTITY_GRADIENT_NORM, 1},
    {"grad-norm", DTP_QUANTITY_GRADIENT_NORM, 1},
    {"grad_norm", DTP_QUANTITY_GRADIENT_NORM, 1},
    {"learning rate", DTP_QUANTITY_LEARNING_RATE, 1},
    {"learning-rate", DTP_QUANTITY_LEARNING_RATE, 1},
    {"lr", DTP_QUANTITY_LEARNING_RATE, 1},
    {"global batch size", DTP_QUANTITY_SEQUENCES, 1},
    {"batch-size", DTP_QUANTITY_SEQUENCES, 1},
    {"global_batch_size", DTP_QUANTITY_TOKENS, 1}, /* nanotron counts tokens */
    {"mem-max-allocated-bytes", DTP_QUANTITY_PEAK_BYTES, 1},
    {"memory/max_active(GiB)", DTP_QUANTITY_PEAK_BYTES, DTP_GIB},
    {"MaxMemAllocated", DTP_QUANTITY_PEAK_BYTES, DTP_GIB}, /* called GB, divided by 2^30 */
    {"memory/max_reserved(GiB)", DTP_QUANTITY_RESERVED_BYTES, DTP_GIB},
    {"memory", DTP_QUANTITY_RESERVED_BYTES, DTP_GIB},
    {"mem-allocated-bytes", DTP_QUANTITY_ALLOCATED_BYTES, 1},
    {"MemAllocated", DTP_QUANTITY_ALLOCATED_BYTES, DTP_GIB},
    {"number of skipped iterations", DTP_QUANTITY_SKIPPED, 1},
    {"number of nan iterations", DTP_QUANTITY_NAN_STEPS, 1}};

void dtp_scalars_init(struct dtp_arena *a, struct dtp_scalars *out) {
    *out = (struct dtp_scalars){.a = a, .tags = dtp_intern_create(a)};
}

/* Writers that clean tags put _ for what is no letter: "end_to_end(s)" becomes "end_to_end_s_". */
static bool same_tag(const char *meaning, const char *tag) {
    for (; *meaning && *tag; meaning++, tag++)
        if (*meaning != *tag && !(*tag == '_' && strchr("()% ", *meaning)))
            return false;
    return *meaning == *tag;
}

static struct dtp_series *series_of(struct dtp_scalars *s, const char *tag) {
    uint32_t before = s->tags->n, id = dtp_intern_add(s->tags, tag, strlen(tag));
    if (id < before)
        return &s->series[id];
    if (s->n == s->capacity) {
        size_t more = s->capacity * 2 + 16;
        s->series = dtp_arena_grow(s->a, s->series, sizeof *s->series, s->capacity, more);
        s->capacity = more;
    }
    struct dtp_series *series = &s->series[s->n++];
    *series =
        (struct dtp_series){.tag = s->tags->at[id], .quantity = DTP_QUANTITY_OTHER, .unit = 1};
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++)
        if (same_tag(meanings[i].tag, tag)) {
            series->quantity = meanings[i].quantity;
            series->unit = meanings[i].unit;
        }
    return series;
}

void dtp_scalars_add(struct dtp_scalars *s, const char *tag, int64_t step, double value) {
    struct dtp_series *series = series_of(s, tag);
    if (series->n == series->capacity) {
        size_t more = series->capacity * 2 + 64;
        series->at = dtp_arena_grow(s->a, series->at, sizeof *series->at, series->capacity, more);
        series->capacity = more;
    }
    series->at[series->n++] = (struct dtp_point){step, value * series->unit};
    series->nan += isnan(value) ? 1 : 0;
}

const struct dtp_series *dtp_scalars_find(const struct dtp_scalars *s, enum dtp_quantity q) {
    const struct dtp_series *best = NULL;
    for (size_t i = 0; i < s->n; i++)
        if (s->series[i].quantity == q && (!best || s->series[i].n > best->n))
            best = &s->series[i];
    return best;
}

const struct dtp_series *dtp_scalars_tag(const struct dtp_scalars *s, const char *tag) {
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->series[i].tag, tag) == 0)
            return &s->series[i];
    return NULL;
}

void dtp_series_stats(const struct dtp_series *series, struct dtp_series_stats *out) {
    struct dtp_arena *a = dtp_arena_create("a series");
    double *v = DTP_NEW(a, double, series->n + 1);
    *out = (struct dtp_series_stats){0};
    for (size_t i = 0; i < series->n; i++)
        if (isfinite(series->at[i].value))
            v[out->n++] = series->at[i].value;
    if (out->n > 0) {
        out->first = v[0];
        out->last = v[out->n - 1];
        out->warmup = out->n / WARMUP_SHARE > 1 ? out->n / WARMUP_SHARE : 1;
        if (out->warmup >= out->n)
            out->warmup = 0;
        size_t n = out->n - out->warmup;
        v += out->warmup;
        for (size_t i = 0; i < n; i++)
            out->mean += v[i] / (double)n;
        out->median = dtp_median(v, n);
        out->min = v[0];
        out->max = v[n - 1];
    }
    dtp_arena_destroy(a);
}
