/* device.h: a GPU (or CPU core) type and the time of one kernel of a given shape on it.
 *
 * Data: hw/gpu/NAME.json: nominal figures and ONE calibration, made by hw/calibrate from kernel
 * sweeps, used for every framework. Frameworks choose kernels; devices time them.
 *
 * GEMM, C[m,n] += A[m,k] B[k,n], `batch` times:
 *   t = min over tiles (tm x tn, split) of
 *         waves x (2 tm tn k / split / R + c_tile),  w = tiles x split x batch / SMs,
 *         waves = 1 for w <= 1, else floor(w) + tail + (1 - tail) frac(w) (whole for whole w)
 *   but at least 2 (mk + kn + mn) batch / HBM for 16 bit, times `sustained`, plus nothing for launch:
 *   gaps between kernels and host time belong to the caller (kernel_gap_s below). R = FLOP/s of one
 *   SM with a tile of 256 x 128 or more; smaller ones reload operands more often and are slower by
 *   1 + small_tile x (sqrt(256 x 128 / (tm tn)) - 1). WGRAD has its own factor (K = tokens).
 * Batched GEMM of unfused attention: bytes / HBM + FLOPs / R + c_tile, less `tail` of the shorter of the
 *   first two: 0 on A100, where they add up, nearly 1 on H100, whose copies run beside the product.
 * Memory-bound kernel of a class: t = max(bytes / B_class, elements / E_class) + latency_class.
 * Fused attention: t = FLOPs / R_impl x (1 + s_half / s) + tail_blocks x (one block of 128 queries on
 *   its SM), head_dim padded to the multiple that the kernel uses (32 of flash, else 64), halved FLOPs
 *   and twice the s_half when causal (the diagonal blocks are half wasted); backward 2.5 x the FLOPs at
 *   its own rate and with its own s_half. Dropout of the probabilities draws its random numbers between the
 *   two products, on units that softmax keeps busy, and hides behind neither (Ma 2024, 2410.07531): a factor.
 * Sources of the forms: PHYSICS figures of the calibration, quoted in each JSON file.
 */
#ifndef DTP_HW_DEVICE_H
#define DTP_HW_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/json.h"

/* Classes of memory-bound kernels; each has an achieved bandwidth in the GPU file, and may have a
 * table of times. One list makes the enum, the JSON keys and the tables. */
#define DTP_KERNELS(X)                                                                             \
    X(ELEMENTWISE, "elementwise") /* vectorised: add, residual, scale, fused bias+activation */    \
    X(STRIDED, "strided")         /* broadcast, transpose, non-vectorised elementwise */           \
    X(COPY, "copy")               /* contiguous copy, cast */                                      \
    X(CAT, "cat")                                                                                  \
    X(REDUCE, "reduce") /* column sums such as a bias gradient */                                  \
    X(NORM, "norm")     /* layer or RMS norm, forward */                                           \
    X(NORM_BACKWARD, "norm_backward")                                                              \
    X(SOFTMAX, "softmax")                                                                          \
    X(SOFTMAX_BACKWARD, "softmax_backward")                                                        \
    X(DROPOUT, "dropout")       /* also limited by the random numbers: elements/s */               \
    X(ACTIVATION, "activation") /* GELU, SwiGLU, forward */                                        \
    X(ACTIVATION_BACKWARD, "activation_backward")                                                  \
    X(ROPE, "rope")                                                                                \
    X(CROSS_ENTROPY, "cross_entropy")                                                              \
    X(EMBEDDING, "embedding") /* gather and scatter-add of rows */                                 \
    X(OPTIMIZER, "optimizer")

enum dtp_kernel {
#define DTP_KERNEL_ENUM(name, key) DTP_K_##name,
    DTP_KERNELS(DTP_KERNEL_ENUM)
#undef DTP_KERNEL_ENUM
        DTP_NKERNELS
};
extern const char *const dtp_kernel_names[]; /* the JSON keys, NULL-terminated */

/* ---- times on grids ---- */

/* Measured times of a kernel at the points of a grid, for devices whose times follow
 * no simple form (a CPU's BLAS switches its kernels and packings by size).
 *
 *     t(x, y, z) = linear in each coordinate between grid points (2 m n k / R is exactly that);
 *                  beyond the grid the nearest point's time, times |x| / |nearest x| per coordinate
 *                  above it; below it the time of the first point falls in proportion likewise
 *
 * With `relative` it is not the time that is linear but its ratio to what a formula gives for the same
 * shape (the tile model of a GEMM, the FLOPs of an attention), also beyond the grid: a GPU's
 * times go in waves of tiles, of which a formula knows between the points.
 *
 * A class of memory-bound kernels ("norm", "reduce", ...) has rows, columns and 1 as axes.
 *
 * JSON, in a GPU file's calibration: "tables": [{"kernel": "gemm_forward", "dtype": "fp32",
 * "x": [32, 64], "y": [...], "z": [...], "time_s": [x-major], "clock": [x-major]}]. Axes of gemm_*: m, n, k; of
 * attention_*: sequence, head_dim, and of a relative table heads x sequences that the time is of, else
 * query heads for each of the keys, the time being of one (beyond the last as there);
 * attention_dropout_*: with dropout of the probabilities.
 */
enum dtp_table {
    DTP_TABLE_GEMM_FORWARD, /* in the order of enum dtp_gemm_pass */
    DTP_TABLE_GEMM_DGRAD,
    DTP_TABLE_GEMM_WGRAD,
    DTP_TABLE_ATTENTION_FORWARD,
    DTP_TABLE_ATTENTION_BACKWARD,
    DTP_TABLE_ATTENTION_DROPOUT_FORWARD,
    DTP_TABLE_ATTENTION_DROPOUT_BACKWARD,
    DTP_TABLE_GEMM_FORWARD_GELU, /* with bias and GELU; with GELU's slope */
    DTP_TABLE_GEMM_DGRAD_GELU,
    DTP_TABLE_KERNEL, /* the first of the classes, in the order of enum dtp_kernel */
    DTP_NTABLES = DTP_TABLE_KERNEL + DTP_NKERNELS
};
extern const char *const dtp_table_names[]; /* NULL-terminated */

struct dtp_time_table {
    int dtype; /* enum dtp_dtype */
    bool relative;
    struct dtp_doubles axis[3]; /* ascending; n = 0: no table */
    struct dtp_doubles time_s;  /* [axis 0][axis 1][axis 2] */
    /* likewise: share of the highest clock that a product had, alone after a rest; its time is that at the highest.
     * n = 0: not known */
    struct dtp_doubles clock;
};

/* The table of one of "tables": for the reader and for the manual. */
extern const struct dtp_field dtp_time_table_fields[];

/* Inside the grid. */
bool dtp_table_covers(const struct dtp_time_table *t, const double at[3]);
double dtp_table_time_s(const struct dtp_time_table *t, const double at[3]);
/* The clock there, linear between the points; 1 where it is not known. */
double dtp_table_clock(const struct dtp_time_table *t, const double at[3]);
/* Of a relative table: by what to multiply the formula's time at `at`. formula_s: its time at a point. */
double dtp_table_ratio(const struct dtp_time_table *t, const double at[3],
                       double (*formula_s)(const void *context, const double point[3]),
                       const void *context);
/* Reads the list into tables[DTP_NTABLES]. */
enum dtp_status dtp_tables_read(struct dtp_arena *a, const struct dtp_json *j,
                                struct dtp_time_table *tables, struct dtp_err *err);
void dtp_table_write(struct dtp_json_out *w, enum dtp_table which, const struct dtp_time_table *t);

/* ---- a GPU ---- */

enum dtp_dtype { DTP_FP32, DTP_TF32, DTP_FP16, DTP_BF16, DTP_FP8, DTP_FP4, DTP_NDTYPES };
/* Products of narrow types; what lies between them is in 16 bit. */
static inline bool dtp_dtype_narrow(enum dtp_dtype dtype) {
    return dtype == DTP_FP8 || dtype == DTP_FP4;
}
extern const char *const dtp_dtype_names[]; /* "fp32", ..., NULL */
int dtp_dtype_bytes(enum dtp_dtype dtype);

enum dtp_gemm_pass { DTP_GEMM_FORWARD, DTP_GEMM_DGRAD, DTP_GEMM_WGRAD };

enum dtp_attention {
    DTP_ATTN_UNFUSED, /* scores in memory: batched GEMMs and softmax; not timed by dtp_device_attention_s */
    DTP_ATTN_FLASH1,
    DTP_ATTN_FLASH2,
    DTP_ATTN_FLASH3,
    DTP_ATTN_CUDNN,
    DTP_ATTN_CUDNN_9_3, /* cuDNN before 9.4 */
    DTP_ATTN_TRITON,
    DTP_ATTN_HEADS, /* one head at a time, scores in memory (the CPU of runtime/) */
    DTP_ATTN_OWN,   /* the fused kernels of runtime/cuda */
    DTP_NATTN
};
extern const char *const dtp_attention_names[]; /* "unfused", "flash1", ... NULL */

struct dtp_gemm {
    enum dtp_dtype dtype;
    enum dtp_gemm_pass pass;
    int64_t m, n, k, batch;
    bool whole_waves; /* the library fills whole waves of tiles (cuBLAS before 12): tail = 1 */
    bool unaligned;   /* rows are no multiple of 16 bytes: kernels without vector loads */
    bool gelu; /* FORWARD ends with bias and GELU, DGRAD with GELU's slope: our own runtime's */
};

struct dtp_attention_shape {
    enum dtp_dtype dtype;
    enum dtp_attention impl;
    bool causal, backward;
    int64_t batch, heads, kv_heads, seq_q, seq_kv, head_dim;
    int64_t window; /* keys that a query sees, itself and those before it; 0: all */
    bool dropout;   /* of the probabilities */
};

struct dtp_gemm_cal {
    double sm_flops_per_s; /* R: one SM at full efficiency; 0: dtype not supported */
    double tile_s;         /* c_tile: per wave */
    double tail;           /* share of a wave that its first tile costs, after the first wave */
    double small_tile;     /* slowness of small tiles, see above */
    double wgrad_factor;   /* >= 1 */
    double dgrad_factor;
    double unaligned_factor;     /* time of unaligned operands over that of aligned ones, >= 1 */
    double min_flops, max_flops; /* 2mnk of the smallest and largest GEMM measured; 0, 0: none */
};
struct dtp_kernel_cal {
    double bytes_per_s;
    double elements_per_s; /* 0: no such limit */
    /* of an activation: SwiGLU's time over GELU's of as many outputs; 0: by bytes */
    double gated_factor;
    double latency_s; /* beside both: start, last wave, reductions over blocks */
    double power_w;   /* above idle, while it runs; see struct dtp_power_cal */
};
struct dtp_attention_cal {
    double flops_per_s;        /* forward, long sequences, head_dim 128; 0: not available */
    double half_seq;           /* sequence at which half of it is reached */
    double backward_factor;    /* rate of the backward over that of the forward */
    double head_dim_factor_64; /* rate at head_dim <= 64 over that at 128 */
    double causal_factor;      /* rate with a causal mask over that without */
    double tail_blocks;        /* blocks of 128 queries that run after the SMs are no longer full */
    double half_seq_backward;  /* of the backward; 0: half_seq */
    double dropout_factor;     /* time with dropout of the probabilities over that without; 0: 1 */
    double dropout_backward_factor;
};

/* Power, of which a chip has power_w and no more: it lowers its clock until the mean over the last memory_s
 * fits, and at once where a burst would take more than burst_w. At x times the highest clock products take
 * 1/x times as long, and their joules beyond idle are
 *     x^exponent j_per_flop FLOPs + j_per_byte bytes
 * where voltage follows the clock, and energy goes with its square; bytes are those to and from memory, whose clock
 * is fixed. Other kernels wait for memory and stay as they are. Tables of products hold times
 * at the highest clock, and the clock that each has however rested the chip is: of bf16 products on H200 0.92 of
 * the highest at 250 TFLOP/s, 0.85 at 950. idle_w 0: not modelled; then `sustained` is all that is known. */
struct dtp_power_cal {
    double idle_w; /* clocks run, no kernel does anything */
    double gemm_j_per_flop, attention_j_per_flop, attention_backward_j_per_flop;
    /* with dropout of the probabilities, random numbers included; 0: as without */
    double attention_dropout_j_per_flop, attention_dropout_backward_j_per_flop;
    double j_per_byte; /* that a product reads from memory or writes */
    double exponent;
    double comm_w; /* above idle, while a collective runs */
    double burst_w, memory_s;
    double fp8_energy, fp4_energy; /* of a FLOP over one of 16 bit; 0: the same */
};
/* A stretch of kernels: seconds at the highest clock, joules beyond idle; product_j: those that go with the clock. */
struct dtp_load_mix {
    double product_s, product_j, other_s, other_j;
    double rest; /* of the GPU after each stretch, over the stretch's time */
};

struct dtp_gpu {
    const char *name, *title, *arch; /* "a100-80", "NVIDIA A100 SXM 80 GB", "sm_80" */
    const char *family;              /* name in measured data: "A100" */
    const char *like_family;         /* of the GPU whose calibration this one has; NULL: its own */
    int num_sms;
    uint64_t memory_bytes; /* usable: what the driver reports in all */
    uint64_t l2_bytes;
    double hbm_bytes_per_s;               /* nominal */
    double peak_flops_per_s[DTP_NDTYPES]; /* dense, data sheet; the MFU denominator; 0: none */
    double pcie_bytes_per_s;              /* per direction, nominal */
    double power_w;
    /* calibration */
    double stream_bytes_per_s; /* achieved, large contiguous kernel */
    struct dtp_gemm_cal gemm[DTP_NDTYPES];
    struct dtp_gemm_cal bmm[DTP_NDTYPES]; /* batched GEMM of unfused attention */
    struct dtp_kernel_cal kernel[DTP_NKERNELS];
    struct dtp_attention_cal attention[DTP_NATTN];
    struct dtp_power_cal power;
    double sustained;     /* time factor under long load (clocks at the power limit), >= 1 */
    double chip_spread;   /* standard deviation of the time of products among chips of the type */
    double kernel_gap_s;  /* between dependent kernels on a busy stream */
    double comm_slowdown; /* share of a compute kernel's rate lost beside a collective */
    /* a collective that starts beside compute waits for room on the SMs: so many durations of the
     * kernel there, at most so long */
    double comm_wait_kernels, comm_wait_s;
    /* beside memory-bound kernels: bandwidth that a collective inside a node keeps, 0: all of it; share of the
     * kernel's rate that is lost, 0: comm_slowdown */
    double comm_memory_rate, comm_memory_slowdown;
    /* strided elements that one is worth which atomics add to another (index_add_, scatter_add_ of PyTorch) */
    double index_add_elements, scatter_add_elements;
    double offload_bytes_per_s;               /* pinned host memory, achieved */
    struct dtp_time_table table[DTP_NTABLES]; /* where there is one of the dtype it is the time */
    bool other_memory;                        /* of a size that no file has: dtp_gpu_find() */
    bool not_calibrated;     /* scaled from another GPU: predictions are outside the calibration */
    const char *calibration; /* one line: from what, by what, cross-validated error */
};

/* A GPU file:
 *   {"name", "title", "arch", "family", "aliases": [...], "memory_gb": 80, "usual": true, "num_sms",
 *    ..., "peak_flops_per_s": {"fp16": ...}, "source": {...},
 *    "calibration": {"like": "a100-80", "summary", "gemm": {"fp16": {...}}, "kernel": {...}, ...}}
 * `like` starts from the calibration of another file, with every memory bandwidth scaled by the
 * nominal one and every rate by the nominal peak; keys beside it override. A 16-bit type without its own constants takes those of the
 * other, TF32 and FP8 stay unsupported. memory_gb and usual serve dtp_gpu_find().
 */

/* name: an entry of hw/gpu, or an alias in it ("a100" is a100-80), as dtp_same_name() compares. */
enum dtp_status dtp_gpu_load(struct dtp_arena *a, const char *name, struct dtp_gpu *out,
                             struct dtp_err *err);
/* From a parsed file; `like` is looked up as dtp_gpu_load() does. */
enum dtp_status dtp_gpu_read(struct dtp_arena *a, const struct dtp_json *j, struct dtp_gpu *out,
                             struct dtp_err *err);
/* The GPU file of a measured row ("A100", 80), or DTP_EUNSUPPORTED. memory_gb 0: the usual one; of a size that
 * no file has (A100 of 64 GB, H100 of 94): the family's nearest, with that much memory. */
enum dtp_status dtp_gpu_find(struct dtp_arena *a, const char *family, double memory_gb,
                             struct dtp_gpu *out, struct dtp_err *err);

/* Name of the GPU file that has this among its sweep_names; card may be NULL. */
enum dtp_status dtp_gpu_of_card(struct dtp_arena *a, const char *card, const char **out,
                                struct dtp_err *err);

/* All GPU files, sorted by name. */
enum dtp_status dtp_gpu_list(struct dtp_arena *a, const char *const **out_names, size_t *out_n,
                             struct dtp_err *err);

/* An object like "calibration", without "like": what it holds goes over what *g has. */
enum dtp_status dtp_gpu_calibrate(struct dtp_arena *a, const struct dtp_json *calibration,
                                  struct dtp_gpu *g, struct dtp_err *err);

/* The tables of the "calibration" object and of its "power", for the reader and for what writes them:
 * hw/calibrate, the calibration of our own kernels. */
extern const struct dtp_field dtp_gpu_calibration_fields[], dtp_power_fields[];
/* What else stands in it in a file, and the table of a file: for the reader and for the manual. */
extern const struct dtp_field dtp_gpu_calibration_file_fields[], dtp_gpu_fields[];

/* Seconds of one kernel, alone, at the highest clock and under load (`sustained`), by the formulas above; 0 of
 * nothing. Its dtype, or kernel of attention, must be calibrated. A product, by its table where there is one. */
double dtp_device_gemm_s(const struct dtp_gpu *g, const struct dtp_gemm *s);
/* Batched products of unfused attention. */
double dtp_device_bmm_s(const struct dtp_gpu *g, const struct dtp_gemm *s);
/* The kernel, or where the GPU does not have it the nearest that it has. */
enum dtp_attention dtp_device_attention(const struct dtp_gpu *g, enum dtp_attention wanted);
/* Fused attention, forward or backward, of all its heads and sequences. */
double dtp_device_attention_s(const struct dtp_gpu *g, const struct dtp_attention_shape *s);
/* Share of the highest clock that such a product has, alone and however rested the chip is; 1: not known. */
double dtp_device_gemm_clock(const struct dtp_gpu *g, const struct dtp_gemm *s);
double dtp_device_attention_clock(const struct dtp_gpu *g, const struct dtp_attention_shape *s);
/* A memory-bound kernel of a class that reads and writes so many bytes, of so many elements. */
double dtp_device_kernel_s(const struct dtp_gpu *g, enum dtp_kernel k, double bytes,
                           double elements);
/* The same by its table; 0: there is none. */
double dtp_device_rows_s(const struct dtp_gpu *g, enum dtp_kernel k, double rows, double cols);
/* Products that end with GELU have times of their own. */
bool dtp_device_knows_gelu(const struct dtp_gpu *g);
/* Time of products on the slowest of n chips over that on the slowest of a node of eight, whose runs the
 * rates of the files agree with: 1 + chip_spread (E(n) - E(8)), where E(n) is the expected largest of n
 * draws of the standard normal distribution. Ranks of a synchronous step wait for the slowest. */
double dtp_device_slowest(const struct dtp_gpu *g, int n);
/* How much longer products of the mix take than at the highest clock, >= 1. */
double dtp_power_slowdown(const struct dtp_gpu *g, const struct dtp_load_mix *m);
/* False when that is not known: products run at the highest clock. */
bool dtp_device_has_clock(const struct dtp_gpu *g, enum dtp_dtype dtype);
/* False when the product is outside what the calibration covers (dtype, size). */
bool dtp_device_gemm_covered(const struct dtp_gpu *g, const struct dtp_gemm *s);
double dtp_attention_flops(const struct dtp_attention_shape *s);

#endif
