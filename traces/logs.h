/* logs.h: what benchmarks and trainers print: nccl-tests tables, Megatron's iteration lines.
 *
 * nccl-tests: columns size count type redop root time algbw busbw #wrong, the last four twice (out of
 * place, in place); older versions have no root and call #wrong error; launchers put "0:" or
 * "[1,0]<stdout>:" before each line; a cell may be N/A. Times are in us, bandwidths in GB/s.
 *
 * Megatron: " iteration  N/ M | ... | elapsed time per iteration (ms): X | ... |"; X is the mean since the
 * line before. Lines that are neither are passed over.
 */
#ifndef DTP_TRACES_LOGS_H
#define DTP_TRACES_LOGS_H

#include "sim/base/text.h"

struct dtp_nccl_row {
    uint64_t bytes, count;
    const char *type, *redop;
    double time_s[2], algbw_bytes_per_s[2],
        busbw_bytes_per_s[2]; /* out of place, in place; -1: N/A */
};
struct dtp_nccl_log {
    struct dtp_nccl_row *row;
    size_t n;
    double stated_average_bytes_per_s; /* "Avg bus bandwidth", or -1 */
};
enum dtp_status dtp_nccl_log_parse(struct dtp_arena *a, const char *name, const char *text,
                                   struct dtp_nccl_log *out, struct dtp_err *err);
/* Mean of all busbw cells, as nccl-tests takes it (rows of 0 bytes count). */
double dtp_nccl_log_average_bytes_per_s(const struct dtp_nccl_log *log);

struct dtp_train_row {
    long iteration, of;
    double step_s;
    double tflops_per_gpu, loss, grad_norm, global_batch; /* -1: not printed */
    long skipped, nan;
};
struct dtp_train_log {
    struct dtp_train_row *row;
    size_t n;
};
enum dtp_status dtp_train_log_parse(struct dtp_arena *a, const char *name, const char *text,
                                    struct dtp_train_log *out, struct dtp_err *err);
/* Median step after the first `warmup` lines. */
double dtp_train_log_median_s(struct dtp_arena *a, const struct dtp_train_log *log, size_t warmup);

#endif
