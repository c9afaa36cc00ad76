#include "traces/formats/scalars.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/stats.h"
#include "sim/base/units.h"

#define WARMUP_SHARE 20 /* one of so many values */

const char *const dtp_quantity_name[DTP_NQUANTITIES] = {"step_s",
                                                        "forward_s",
                                                        "backward_s",
                                                        "optimizer_s",
                                                        "tokens_per_s",
                                                        "tokens_per_s_per_gpu",
                                                        "sequences_per_s",
                                                        "sequences_per_s_per_gpu",
                                                        "steps_per_s",
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

void dtp_scalars_init(struct dtp_arena *a, struct dtp_scalars *out) {
    *out = (struct dtp_scalars){.a = a, .tags = dtp_intern_create(a)};
}

static struct dtp_series *series_of(struct dtp_scalars *s, const char *tag,
                                    const struct dtp_meaning *known) {
    uint32_t before = s->tags->n, id = dtp_intern_add(s->tags, tag, strlen(tag));
    if (id < before)
        return &s->series[id];
    s->series = dtp_arena_room(s->a, s->series, sizeof *s->series, s->n, &s->capacity);
    struct dtp_meaning meaning = known ? *known : dtp_label_meaning(tag);
    struct dtp_series *series = &s->series[s->n++];
    *series = (struct dtp_series){
        .tag = s->tags->at[id], .quantity = meaning.quantity, .unit = meaning.unit};
    return series;
}

static void add_point(struct dtp_scalars *s, struct dtp_series *series, int64_t step,
                      double value) {
    series->at = dtp_arena_room(s->a, series->at, sizeof *series->at, series->n, &series->capacity);
    bool time = series->quantity <= DTP_QUANTITY_OPTIMIZER_S;
    series->negative += time && value < 0;
    if (time && value < 0) /* a clock that was set back says nothing */
        value = (double)NAN;
    series->at[series->n++] = (struct dtp_point){step, value};
    series->nan += isnan(value) ? 1 : 0;
}

void dtp_scalars_add(struct dtp_scalars *s, const char *tag, int64_t step, double value) {
    struct dtp_series *series = series_of(s, tag, NULL);
    add_point(s, series, step, value * series->unit);
}

void dtp_scalars_put(struct dtp_scalars *s, const char *tag, int64_t step,
                     const struct dtp_reading *value) {
    const struct dtp_meaning si = {value->quantity, 1};
    add_point(s, series_of(s, tag, &si), step, value->value);
}

const struct dtp_series *dtp_scalars_find(const struct dtp_scalars *s, enum dtp_quantity q) {
    const struct dtp_series *best = NULL;
    for (size_t i = 0; i < s->n; i++)
        if (s->series[i].quantity == q && (!best || s->series[i].n > best->n))
            best = &s->series[i];
    return best;
}

const struct dtp_series *dtp_scalars_tag(const struct dtp_scalars *s, const char *tag) {
    uint32_t id;
    return dtp_intern_find(s->tags, tag, strlen(tag), &id) ? &s->series[id] : NULL;
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
