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
 * kernel, fitted together with the constants and discarded, because some sweeps hold launch time.
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

#include "sim/base/arena.h"
#include "sim/base/status.h"

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

#endif
