/* calibrate.h: from measured kernel times to the calibration of a GPU file.
 *
 * Rows come from two kinds of files; what a row does not say has the default in brackets.
 *
 *   JSON  {"gpu": "NVIDIA H100 80GB HBM3", "rows": [{"op", "time_s", ...}, ...]} with, by op:
 *     gemm_fwd, gemm_dgrad, gemm_wgrad       m n k [batch 1] [dtype bf16]; wgrad has k = tokens
 *     bmm                                    m n k batch [dtype bf16]: attention scores in memory
 *     attn_fwd, attn_bwd, attn_fwd_bwd       backend (flash1|flash2|flash3|cudnn|triton, flash is
 *                                            flash2) b a s hd causal [kv_heads a] [dtype bf16]
 *     copy add gelu silu_mul cast_f32_bf16   bytes: read and written
 *     dropout                                bytes, 5 an element: value in and out, mask
 *     layernorm_fwd, layernorm_fwd_bwd, rmsnorm_fwd, rmsnorm_fwd_bwd   m h: 4 B an element forward,
 *                                            10 backward (gradient, input, output, weight gradient)
 *     softmax_fwd, softmax_fwd_bwd           m h: 4 B and 6 B an element
 *     cross_entropy_f32_fwd_bwd              m V: 24 B a logit
 *     adamw_fused_f32, adamw_fused_bf16      n: 28 B and 14 B a parameter
 *     any name of dtp_kernel_names           bytes [elements]
 *     kernel_gap                             nothing: time between dependent kernels
 *     offload                                bytes, pinned host memory
 *   A gemm_wgrad with "accumulate": "fp32" adds to a buffer: the 4 bytes an element that are read for it,
 *   which models count as a kernel of their own, are taken off. A file with "loaded_clock_mhz" was made
 *   on a busy chip whose clock is known: the 16-bit GEMMs that have "clock_mhz" are brought to that
 *   clock, and all its GEMMs hold `sustained` in full.
 *   The keys "driver", "versions", "torch", "nccl", "world", "clock_mhz", "power_w", "date", "source",
 *   "other" and others that dtplan-calibrate-cuda writes and, in a row, "shape", "tflops", "note" are
 *   allowed and ignored. Ops qkv, proj, fc1, fc2 are gemm_fwd.
 *   CSV   gpu,dtype,m,n,k,layout,time_us,...,source: layout TN forward, NN dgrad, NT+acc wgrad; rows
 *         "best-of-sweep" and "best-of-search" are dropped, since the best of many shapes is biased.
 *         gpu,impl,pass,causal,headdim,seqlen,tflops,source: fused attention at the setting of the
 *         FlashAttention papers, batch x seq = 16384 tokens and heads x headdim = 2048.
 *
 * A row is used when its "gpu" is among "sweep_names" of the GPU file; rows of the names in
 * "same_chip" (the same silicon at another power limit) help to find the shape constants and get a
 * rate factor of their own. Each source (a file, or the column of that name) has a host time per
 * kernel, fitted beside the constants and thrown away, because some sweeps hold launch time.
 *
 * Fit: least squares of log(predicted / measured) over the logarithms of the constants
 * (gsl_multifit_nlinear), repeated with weights 1/|residual| until it is a fit of absolute
 * deviations, so that a few kernels for which the library chose badly do not pull the rest; then a
 * simplex search (gsl_multimin), since derivatives stop at kinks. Each constant has a weak prior at
 * its old value: what no row tells stays as it is. A GEMM runs slower the longer the sweep loads the
 * chip: t x (1 + load x t / (t + t_load)); 1 + load is `sustained`.
 * "fixed" in the calibration of the file keeps "sustained", "gemm_rate", "gemm_shape" or "gemm_fp8" where other
 * evidence beats the sweeps (say which in "source"); with "rows_unloaded": true the sweep is of a
 * cool chip.
 * Memory-bound kernels are fitted on rows larger than the L2 cache only. Errors in the file are those
 * of rows left out (5 folds by row number). Deterministic: same rows, same bytes.
 */
#ifndef DTP_HW_CALIBRATE_H
#define DTP_HW_CALIBRATE_H

#include <stdio.h>

#include "hw/device.h"

enum dtp_cal_kind {
    DTP_CAL_GEMM,
    DTP_CAL_BMM,
    DTP_CAL_ATTENTION,
    DTP_CAL_KERNEL,
    DTP_CAL_GAP,
    DTP_CAL_OFFLOAD
};
enum dtp_cal_part { DTP_CAL_FORWARD, DTP_CAL_BACKWARD, DTP_CAL_BOTH };

struct dtp_cal_row {
    enum dtp_cal_kind kind;
    enum dtp_cal_part part;               /* attention and kernels */
    struct dtp_gemm gemm;                 /* GEMM, BMM */
    struct dtp_attention_shape attention; /* ATTENTION */
    enum dtp_kernel kernel;               /* KERNEL; BOTH: its backward is backward_kernel */
    enum dtp_kernel backward_kernel;
    double bytes, backward_bytes, elements;
    double time_s;
    double accumulate_bytes; /* GEMM: of the buffer that it adds to */
    bool loaded;             /* GEMM of a chip under load */
    int source;              /* index into sources */
    bool same_chip;          /* not this part: gives shape constants only */
};

enum { DTP_CAL_MAX_SOURCES = 16 };

struct dtp_cal_rows {
    struct dtp_cal_row *at;
    size_t n, capacity;
    const char *sources[DTP_CAL_MAX_SOURCES];
    size_t nsources;
    size_t other_gpu, biased; /* rows that were read and not taken */
};

/* Names of one GPU in sweeps; NULL-terminated lists. */
struct dtp_cal_names {
    const char *const *own, *const *same_chip;
};

/* Adds the rows of a file (*.json or *.csv). */
enum dtp_status dtp_calibrate_read(struct dtp_arena *a, const char *path,
                                   const struct dtp_cal_names *names, struct dtp_cal_rows *rows,
                                   struct dtp_err *err);

/* Error of one class of rows, each predicted by a fit that did not see it. */
struct dtp_cal_error {
    const char *name; /* "gemm.bf16", "attention.flash2", "kernel.norm" */
    const char *source;
    size_t rows, used; /* measured, and used for the fit */
    double median, p90, bias;
    double median_layer,
        p90_layer; /* GEMM with m >= 2048 and n, k >= 1024: layers of transformers */
    size_t rows_layer;
};

enum { DTP_CAL_MAX_CLASSES = 32 };

struct dtp_cal_result {
    struct dtp_cal_error classes[DTP_CAL_MAX_CLASSES];
    size_t n;
    /* in */
    bool keep_sustained; /* do not fit it, and the rows are of a chip under load */
    bool rows_unloaded;  /* with keep_sustained: the rows are not of a chip under load */
    bool keep_rate;      /* keep R of the 16-bit GEMM */
    bool keep_fp8;
    bool keep_shape; /* keep its other constants, which host time in the sweep would hide */
};

struct dtp_calibrate_args {
    const char *const *paths;
    size_t npaths;
    const char *gpu;      /* an existing file of hw/gpu: nominal figures, names in sweeps */
    const char *out_path; /* the new GPU file, or "-"; NULL: none */
    FILE *report;         /* a table of errors, or NULL */
};
/* Reads rows, fits what they tell of, writes the file and the report. */
enum dtp_status dtp_calibrate_from_files(struct dtp_arena *a, const struct dtp_calibrate_args *args,
                                         struct dtp_err *err);

/* ---- between the files of this module ---- */

/* Residual i of the model with constants x, log(predicted / measured). */
struct dtp_fit_problem {
    size_t nrows, nparams;
    double (*residual)(const void *ctx, const double *x, size_t i);
    const void *ctx;
    const double *prior, *prior_sd; /* [nparams]; x starts at prior */
    const unsigned char *skip;      /* [nrows] or NULL: rows left out */
};
/* Least squares with a robust loss and priors, from x = prior; x holds the result. */
enum dtp_status dtp_fit_robust(struct dtp_arena *a, const struct dtp_fit_problem *p, double *x,
                               struct dtp_err *err);
/* Cross-validation: r[nrows] is the residual of each row by a fit without the rows of its fold, those whose
 * numbers are equal modulo nfolds; nfolds nrows: without that row alone. */
enum dtp_status dtp_fit_cross(struct dtp_arena *a, const struct dtp_fit_problem *p, size_t nfolds,
                              double *r, struct dtp_err *err);
/* Median, p90 of |r| and mean of r over the n residuals; r is overwritten. */
void dtp_fit_error(double *r, size_t n, struct dtp_cal_error *out);

/* Names of the sources of n rows, joined by "; ". */
const char *dtp_calibrate_sources(struct dtp_arena *a, const struct dtp_cal_rows *rows,
                                  const size_t *index, size_t n);

/* Each fits its constants of g and adds its classes to the result. */
enum dtp_status dtp_calibrate_gemm(struct dtp_arena *a, const struct dtp_cal_rows *rows,
                                   struct dtp_gpu *g, struct dtp_cal_result *result,
                                   struct dtp_err *err);
enum dtp_status dtp_calibrate_attention(struct dtp_arena *a, const struct dtp_cal_rows *rows,
                                        struct dtp_gpu *g, struct dtp_cal_result *result,
                                        struct dtp_err *err);
enum dtp_status dtp_calibrate_kernels(struct dtp_arena *a, const struct dtp_cal_rows *rows,
                                      struct dtp_gpu *g, struct dtp_cal_result *result,
                                      struct dtp_err *err);

#endif
