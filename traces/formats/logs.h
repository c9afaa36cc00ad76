/* logs.h: what benchmarks and trainers print, line by line, as a stream.
 *
 * nccl-tests: columns size count type redop root time algbw busbw #wrong, the last four twice (out of
 * place, in place); older versions have no root and call #wrong error; launchers put "0:" or
 * "[1,0]<stdout>:" before each line; a cell may be N/A. Times are in us, bandwidths in GB/s.
 *
 * Trainers, each line into series (scalars.h) under the step it names:
 *     Megatron     " iteration  N/ M | ... | elapsed time per iteration (ms): X | ... |"; X is the mean since
 *                  the line before
 *     nanotron     "iteration: N / M | consumed_tokens: 1.2M | elapsed_time_per_iteration_ms: 431 | ..."
 *     torchtitan   "step:  N  loss: 8.1  grad_norm: 1.2  memory: 20.1GiB(21%)  tps: 1,234  ..."; it prints no
 *                  time: that is taken from the time stamps of the lines, if they have any
 *     DeepSpeed    "time (ms) | fwd: X | bwd: X | ... | step: X" and "... global_step=N, ...
 *                  CurrSamplesPerSec=X, MemAllocated=XGB, ..."
 *     MaxText      "completed step: N, seconds: X, TFLOP/s/device: X, Tokens/s/device: X, ..."
 *     NeMo         "train_step_timing in s: [X, X, ...]": the steps in order
 *     Trainer      Hugging Face's "{'loss': X, ..., 'epoch': X}" and the bar "N/M [..., X s/it]"; ms-swift's with
 *                  'global_step/max_steps'
 *     others       two labels and more of which one says how fast or how full, in the words of labels.h, under
 *                  "step: N", "global_step: N" or "iteration: N", else under their number
 * Lines that are none of these are passed over; colours are removed, with their ESC bytes or without.
 */
#ifndef DTP_TRACES_FORMATS_LOGS_H
#define DTP_TRACES_FORMATS_LOGS_H

#include "traces/formats/format.h"
#include "traces/formats/scalars.h"

enum dtp_log_dialect {
    DTP_LOG_NCCL_TESTS,
    DTP_LOG_MEGATRON,
    DTP_LOG_NANOTRON,
    DTP_LOG_TORCHTITAN,
    DTP_LOG_DEEPSPEED,
    DTP_LOG_OTHER,
    DTP_NLOG_DIALECTS
};

struct dtp_nccl_row {
    uint64_t bytes, count;
    const char *type;
    double time_s[2], busbw_bytes_per_s[2]; /* out of place, in place; -1: N/A */
};
struct dtp_nccl_log {
    struct dtp_nccl_row *row;
    size_t n, capacity;
    const char *collective; /* named by "# Collective test starting" or the program, or "" */
    int ranks;              /* lines "#  Rank", 0: not said */
};
/* Mean of all busbw cells, as nccl-tests takes it (rows of 0 bytes count). */
double dtp_nccl_log_average_bytes_per_s(const struct dtp_nccl_log *log);

struct dtp_log {
    uint64_t lines[DTP_NLOG_DIALECTS]; /* lines of each dialect */
    enum dtp_log_dialect dialect;      /* the one with most */
    struct dtp_nccl_log nccl;
    struct dtp_scalars scalars;
    int64_t steps_of; /* "N / M": M, or 0 */
};
/* DTP_EINPUT where no line is of any dialect. */
enum dtp_status dtp_log_read(struct dtp_arena *a, struct dtp_source *source, struct dtp_log *out,
                             struct dtp_err *err);

/* How the formats that become a log show it: this one, golden values and event files. */
void dtp_log_print(struct dtp_arena *a, FILE *f, const struct dtp_item *item,
                   const struct dtp_format_options *o);
void dtp_log_json(struct dtp_arena *a, struct dtp_json_out *w, const struct dtp_item *item,
                  const struct dtp_format_options *o);

#endif
