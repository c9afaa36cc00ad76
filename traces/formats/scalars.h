/* scalars.h: what trainers record step by step: series of numbers under a tag, from logs (logs.h), from
 * TensorBoard's event files and from the JSON of Megatron's golden values.
 *
 * Values are SI: a tag whose meaning is known has its unit applied ("elapsed time per iteration (ms)"
 * is kept in seconds), others are kept as they stand. NaN is kept and counted. Warm-up is the first
 * 5 % of the finite values, at least one: the first step of a run holds compilation and allocation.
 *
 *     struct dtp_scalars s;
 *     DTP_TRY(dtp_events_read(a, source, &s, err));
 *     const struct dtp_series *step = dtp_scalars_find(&s, DTP_QUANTITY_STEP_S);
 */
#ifndef DTP_TRACES_FORMATS_SCALARS_H
#define DTP_TRACES_FORMATS_SCALARS_H

#include "traces/formats/intern.h"
#include "traces/formats/labels.h"
#include "traces/formats/source.h"

struct dtp_point {
    int64_t step;
    double value;
};

struct dtp_series {
    const char *tag;
    enum dtp_quantity quantity;
    double unit; /* applied */
    struct dtp_point *at;
    size_t n, capacity;
    uint64_t nan;      /* how many of the n */
    uint64_t negative; /* how many of the nan: times below 0 */
};

struct dtp_scalars {
    struct dtp_arena *a;
    struct dtp_series *series;
    size_t n, capacity;
    struct dtp_intern *tags; /* id: index of the series */
};

void dtp_scalars_init(struct dtp_arena *a, struct dtp_scalars *out);
void dtp_scalars_add(struct dtp_scalars *s, const char *tag, int64_t step, double value);
/* Adds a number whose meaning the reader knows, in SI units. */
void dtp_scalars_put(struct dtp_scalars *s, const char *tag, int64_t step,
                     const struct dtp_reading *value);
/* Returns the longest series of a quantity, or NULL. */
const struct dtp_series *dtp_scalars_find(const struct dtp_scalars *s, enum dtp_quantity q);
const struct dtp_series *dtp_scalars_tag(const struct dtp_scalars *s, const char *tag);

/* Statistics count finite values only: first and last consider all of them, the rest those after the warm-up. */
struct dtp_series_stats {
    size_t n, warmup; /* finite, and how many of them are warm-up */
    double first, last, min, max, median, mean;
};
void dtp_series_stats(const struct dtp_series *series, struct dtp_series_stats *out);

/* ---- readers; *out is initialised ---- */

/* {tag: {"start_step", "end_step", "step_interval", "values": {"1": 12.5, "2": "nan", ...}}} */
enum dtp_status dtp_golden_read(struct dtp_arena *a, struct dtp_source *source,
                                struct dtp_scalars *out, struct dtp_err *err);
/* TensorBoard: records of length, checksum, event, checksum (CRC-32C, masked); a wrong checksum or a
 * record that is cut is DTP_EINPUT with its number. Appends to *out, which must be initialised: a run
 * may have several files. */
enum dtp_status dtp_events_read(struct dtp_arena *a, struct dtp_source *source,
                                struct dtp_scalars *out, struct dtp_err *err);
/* CRC-32C (Castagnoli) as TensorBoard masks it. */
uint32_t dtp_events_checksum(const unsigned char *at, size_t n);

#endif
