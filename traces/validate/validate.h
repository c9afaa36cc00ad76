/* validate.h: predictions are compared with measurements, for the runs of measured.h.
 *
 * error = predicted / measured - 1. Each set of runs has a MAPE = mean |error|, the median and 90th percentile of
 * |error|, and a bias = mean error. A set is a file, a framework, a GPU, or all. Rows whose framework or GPU is
 * unknown are counted as unsupported; rows beyond the calibration are predicted and reported apart.
 *
 * Layouts are ranked by time per sequence in each cell of (file, model, GPU, number of GPUs, sequence) that has
 * five of them or more. The report gives Spearman's rank correlation and Kendall's tau of predicted and measured
 * step time; top-1 regret = measured time of the predicted best over the measured best - 1; top-5 regret takes the
 * best measured among the predicted best five instead. A layout that is declared not to fit ranks after all that do.
 */
#ifndef DTP_TRACES_VALIDATE_VALIDATE_H
#define DTP_TRACES_VALIDATE_VALIDATE_H

#include "traces/validate/measured.h"

struct dtp_validated {
    const struct dtp_run *run;
    const char *framework; /* entry of models/frameworks that it was predicted with */
    const char *gpu_family;
    const char *fitted; /* its constants fitted to steps on this family, in a list with blanks */
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

/* Reads and predicts every row; a row that cannot be predicted is no failure. DTP_EINPUT means that one of the given
 * files, or of the data files, is wrong. */
enum dtp_status dtp_validate(struct dtp_arena *a, const char *const *paths, size_t npaths,
                             const struct dtp_validate_options *options, struct dtp_validation *out,
                             struct dtp_err *err);

/* Computes statistics over the rows for which keep(ctx, row) is true: of the peak if memory is set, else of steps. */
typedef bool dtp_row_filter(const void *ctx, const struct dtp_validated *row);
struct dtp_error_stats dtp_validation_stats(struct dtp_arena *a, const struct dtp_validation *v,
                                            bool memory, dtp_row_filter *keep, const void *ctx);

struct dtp_validation_report {
    int worst;   /* rows with the largest error, listed */
    bool detail; /* also by number of GPUs, tp, pp, dp, cp, ZeRO stage and recomputation */
};
/* Prints the tables of `dtplan validate`. */
void dtp_validation_print(struct dtp_arena *a, FILE *f, const struct dtp_validation *v,
                          const struct dtp_validation_report *report);
extern const struct dtp_form dtp_validation_form;
void dtp_validation_write_json(struct dtp_arena *a, FILE *f, const struct dtp_validation *v);
/* Writes the columns id, framework, gpu, gpus, model, measured_s, predicted_s, error_pct, measured_peak_bytes,
 * predicted_peak_bytes, memory_error_pct, fits, note. */
void dtp_validation_write_rows(FILE *f, const struct dtp_validation *v);

#endif
