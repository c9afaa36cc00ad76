/* validate.h: predicted against measured, on the runs of measured.h.
 *
 * error = predicted / measured - 1. Per set: MAPE = mean |error|, median and 90th percentile of
 * |error|, bias = mean error. A set is a file, a framework, a GPU, or all. Rows whose framework or GPU is
 * unknown are counted as unsupported; rows beyond the calibration are predicted and reported apart.
 *
 * Ranking, per cell of (file, model, GPU, number of GPUs, sequence) with five layouts or more, times per sequence: Spearman's rank
 * correlation and Kendall's tau of predicted and measured step time; top-1 regret = measured time of
 * the predicted best over the measured best - 1; top-5 regret = the best measured among the predicted
 * best five. A layout that is declared not to fit is picked after all that do.
 */
#ifndef DTP_TRACES_VALIDATE_VALIDATE_H
#define DTP_TRACES_VALIDATE_VALIDATE_H

#include "traces/validate/measured.h"

struct dtp_validated {
    const struct dtp_run *run;
    const char *framework; /* entry of models/frameworks that it was predicted with */
    const char *gpu_family;
    const char *fitted; /* its constants that were fitted to steps on this family, with blanks */
    int nfitted;
    bool supported, extrapolated, fits, experts;
    double predicted_s, error; /* error: not set without a measured step */
    double measured_peak_bytes, predicted_peak_bytes, memory_error; /* peak 0: not measured */
    const char *peak_meaning;
    const char *note;             /* what was assumed, or why unsupported */
    const char *unknown_schedule; /* NULL, or what was made of it */
    struct dtp_breakdown breakdown;
};

struct dtp_error_stats {
    int rows;
    double mape, median, p90, bias, worst;
};

struct dtp_cell {
    const char *file, *model;
    int gpus, rows;
    double spearman, kendall, regret_top1, regret_top5;
};

struct dtp_validation {
    struct dtp_runs runs;
    struct dtp_validated *row; /* [runs.n] in the order of the files */
    struct dtp_cell *cell;
    size_t ncells;
};

struct dtp_validate_options {
    int jobs;
    enum dtp_fidelity fidelity;
    void (*progress)(void *ctx, size_t done, size_t n); /* may be NULL; called from one thread */
    void *progress_ctx;
};

/* Reads and predicts every row; a row that cannot be predicted is no failure. DTP_EINPUT: a file, or the data files. */
enum dtp_status dtp_validate(struct dtp_arena *a, const char *const *paths, size_t npaths,
                             const struct dtp_validate_options *options, struct dtp_validation *out,
                             struct dtp_err *err);

/* Statistics over the rows for which keep(ctx, row) is true. memory: of the peak, else of the step. */
typedef bool dtp_row_filter(const void *ctx, const struct dtp_validated *row);
struct dtp_error_stats dtp_validation_stats(struct dtp_arena *a, const struct dtp_validation *v,
                                            bool memory, dtp_row_filter *keep, const void *ctx);

struct dtp_validation_report {
    int worst;   /* rows with the largest error, listed */
    bool detail; /* also by number of GPUs, tp, pp, dp, cp, ZeRO stage and recomputation */
};
/* The tables of `dtplan validate`. */
void dtp_validation_print(struct dtp_arena *a, FILE *f, const struct dtp_validation *v,
                          const struct dtp_validation_report *report);
extern const struct dtp_form dtp_validation_form;
void dtp_validation_write_json(struct dtp_arena *a, FILE *f, const struct dtp_validation *v);
/* Columns: id, framework, gpu, gpus, model, measured_s, predicted_s, error_pct, measured_peak_bytes,
 * predicted_peak_bytes, memory_error_pct, fits, note. */
void dtp_validation_write_rows(FILE *f, const struct dtp_validation *v);

#endif
