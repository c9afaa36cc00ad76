/* device.h: describes a type of GPU (or CPU core) and times one kernel of a given shape on it.
 *
 * hw/gpu/NAME.json holds nominal figures and ONE calibration, which hw/calibrate makes from kernel
 * sweeps and which serves every framework. Frameworks choose kernels; devices time them.
 *
 * GEMM, C[m,n] += A[m,k] B[k,n], `batch` times:
 *   t = min over tiles (tm x tn, split) of
 *         waves x (2 tm tn k / split / R + c_tile),  w = tiles x split x batch / SMs,
 *         waves = 1 for w <= 1, else floor(w) + tail + (1 - tail) frac(w) (whole for whole w)
 *   but at least 2 (mk + kn + mn) batch / HBM for 16 bit, times `sustained`. It contains no launch: the
 *   caller adds gaps between kernels and host time (kernel_gap_s below). R = FLOP/s of one
 *   SM with a tile of 256 x 128 or more; smaller ones reload operands more often and are slower by
 *   1 + small_tile x (sqrt(256 x 128 / (tm tn)) - 1). WGRAD has its own factor (K = tokens).
 * Batched GEMM of unfused attention: bytes / HBM + FLOPs / R + c_tile, less `tail` times the shorter of the
 *   first two: `tail` is 0 on A100, where they add up, and nearly 1 on H100, whose copies overlap the product.
 * Memory-bound kernel of a class: t = max(bytes / B_class, elements / E_class) + latency_class.
 * Fused attention: t = FLOPs / R_impl x (1 + s_half / s) + tail_blocks x (one block of 128 queries on
 *   its SM), with head_dim padded to the multiple that the kernel uses (flash: 32, else 64), half the FLOPs
 *   and twice s_half if causal (half of each diagonal block is wasted). The backward has 2.5 x the FLOPs,
 *   and its rate and s_half differ from the forward's. Dropout of the probabilities draws random numbers between the
 *   two products, on units that softmax keeps busy, and overlaps neither (Ma 2024, 2410.07531): it is a factor.
 * Each JSON file quotes the sources of these forms.
 */
#ifndef DTP_HW_DEVICE_H
#define DTP_HW_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/json.h"

/* The classes of memory-bound kernels: each has an achieved bandwidth in the GPU file and may have a
 * table of times. This list makes the enum, the JSON keys and the tables. */
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
 *                  above the grid it grows from the nearest point's time in proportion to each
 *                  coordinate, and below the grid it falls in proportion likewise
 *
 * With `relative` the linear quantity is not the time but its ratio to a formula for the same shape
 * (the tile model of a GEMM, the FLOPs of an attention), also beyond the grid. A GPU's times jump with
 * waves of tiles, and the formula gives these jumps between the points.
 *
 * A class of memory-bound kernels ("norm", "reduce", ...) has rows, columns and 1 as axes.
 *
 * JSON, in a GPU file's calibration: "tables": [{"kernel": "gemm_forward", "dtype": "fp32",
 * "x": [32, 64], "y": [...], "z": [...], "time_s": [x-major], "clock": [x-major]}]. Axes of gemm_*: m, n, k; of
 * attention_*: sequence, head_dim, and of a relative table the heads x sequences that are timed, else
 * the query heads per key head, with the time of one query head (that of the last point beyond it).
 * attention_dropout_* drops probabilities.
 */
enum dtp_table {
    DTP_TABLE_GEMM_FORWARD, /* the order is that of enum dtp_gemm_pass */
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
    /* [as time_s] share of the highest clock that a product ran at, alone after a rest; time_s is at the highest clock.
     * n = 0: not known */
    struct dtp_doubles clock;
};

/* These fields describe one member of "tables", for the reader and for the manual. */
extern const struct dtp_field dtp_time_table_fields[];

double dtp_table_time_s(const struct dtp_time_table *t, const double at[3]);
/* Returns the clock at a point, linear between the grid's points; 1: not known. */
double dtp_table_clock(const struct dtp_time_table *t, const double at[3]);
/* Reads the list into tables[DTP_NTABLES]. */
enum dtp_status dtp_tables_read(struct dtp_arena *a, const struct dtp_json *j,
                                struct dtp_time_table *tables, struct dtp_err *err);
void dtp_table_write(struct dtp_json_out *w, enum dtp_table which, const struct dtp_time_table *t);

/* ---- a GPU ---- */

enum dtp_dtype { DTP_FP32, DTP_TF32, DTP_FP16, DTP_BF16, DTP_FP8, DTP_FP4, DTP_NDTYPES };
/* Whether only products use the type; tensors between products are then in 16 bit. */
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
    bool gelu;        /* our runtime: FORWARD ends with bias and GELU, DGRAD with GELU's slope */
};

struct dtp_attention_shape {
    enum dtp_dtype dtype;
    enum dtp_attention impl;
    bool causal, backward;
    int64_t batch, heads, kv_heads, seq_q, seq_kv, head_dim;
    int64_t window; /* keys that a query sees, itself and those before it; 0: all */
    bool dropout;   /* drops attention probabilities */
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
    /* activations: SwiGLU's time over GELU's for as many outputs; 0: timed by bytes */
    double gated_factor;
    double latency_s; /* added to both: start, last wave, reductions over blocks */
    double power_w;   /* above idle, while it runs; see struct dtp_power_cal */
};
struct dtp_attention_cal {
    double flops_per_s;        /* forward, long sequences, head_dim 128; 0: not available */
    double half_seq;           /* sequence at which half of it is reached */
    double backward_factor;    /* rate of the backward over that of the forward */
    double head_dim_factor_64; /* rate at head_dim <= 64 over that at 128 */
    double causal_factor;      /* rate with a causal mask over that without */
    double tail_blocks;        /* blocks of 128 queries that run after the SMs are no longer full */
    double half_seq_backward;  /* the backward's; 0: half_seq */
    double dropout_factor;     /* time with dropout of the probabilities over that without; 0: 1 */
    double dropout_backward_factor;
};

/* A chip may draw at most power_w: it lowers its clock until the mean power over the last memory_s fits, and
 * lowers it at once if a burst would draw more than burst_w. At x times the highest clock products take 1/x
 * times as long, and their joules beyond idle are
 *     x^exponent j_per_flop FLOPs + j_per_byte bytes
 * because voltage follows the clock and energy grows with its square; bytes go to and from memory, whose clock is
 * fixed. Other kernels wait for memory and keep their time. Tables of products hold times at the highest clock, and
 * the clock that each product reaches even on a rested chip: on H200 bf16 products reach 0.92 of the highest clock at
 * 250 TFLOP/s, 0.85 at 950. With idle_w 0 power is not modelled, and only `sustained` is known. */
struct dtp_power_cal {
    double idle_w; /* the clocks run, but no kernel does */
    double gemm_j_per_flop, attention_j_per_flop, attention_backward_j_per_flop;
    /* the same if probabilities have dropout, including its random numbers; 0: as without dropout */
    double attention_dropout_j_per_flop, attention_dropout_backward_j_per_flop;
    double j_per_byte; /* a byte that a product reads or writes in memory */
    double exponent;
    double comm_w; /* above idle, while a collective runs */
    double burst_w, memory_s;
    double fp8_energy, fp4_energy; /* energy of a FLOP over that in 16 bit; 0: the same */
};
/* A stretch of kernels in seconds at the highest clock and joules beyond idle; product_j depends on the clock. */
struct dtp_load_mix {
    double product_s, product_j, other_s, other_j;
    double rest; /* idle time after each stretch over the stretch's time */
};

struct dtp_gpu {
    const char *name, *title, *arch; /* "a100-80", "NVIDIA A100 SXM 80 GB", "sm_80" */
    const char *family;              /* name in measured data: "A100" */
    const char *like_family;         /* family of the GPU whose calibration it has; NULL: its own */
    int num_sms;
    uint64_t memory_bytes; /* usable: the total that the driver reports */
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
    double comm_slowdown; /* share of a compute kernel's rate that a collective takes */
    /* a collective that starts while a kernel runs waits for room on the SMs: this many durations of
     * that kernel, at most comm_wait_s */
    double comm_wait_kernels, comm_wait_s;
    /* share of its bandwidth that a collective inside a node keeps while memory-bound kernels run, 0: all; share of
     * the kernel's rate that is lost meanwhile, 0: comm_slowdown */
    double comm_memory_rate, comm_memory_slowdown;
    /* strided elements that take as long as one added by atomics (PyTorch's index_add_, scatter_add_) */
    double index_add_elements, scatter_add_elements;
    double offload_bytes_per_s;               /* pinned host memory, achieved */
    struct dtp_time_table table[DTP_NTABLES]; /* if it has the dtype, it gives the time */
    bool other_memory;                        /* its memory size is in no file: dtp_gpu_find() */
    bool not_calibrated;     /* scaled from another GPU: predictions are outside the calibration */
    const char *calibration; /* one line: from what, by what, cross-validated error */
};

/* A GPU file has these keys:
 *   {"name", "title", "arch", "family", "aliases": [...], "memory_gb": 80, "usual": true, "num_sms",
 *    ..., "peak_flops_per_s": {"fp16": ...}, "source": {...},
 *    "calibration": {"like": "a100-80", "summary", "gemm": {"fp16": {...}}, "kernel": {...}, ...}}
 * `like` starts from the calibration of another file, with every memory bandwidth scaled by
 * the nominal one and every rate by the nominal peak; the other keys override it. A 16-bit type without constants takes
 * those of the other 16-bit type; TF32 and FP8 stay unsupported. memory_gb and usual serve dtp_gpu_find().
 */

/* Loads a GPU by name: an entry of hw/gpu or an alias in one ("a100" is a100-80), compared by dtp_same_name(). */
enum dtp_status dtp_gpu_load(struct dtp_arena *a, const char *name, struct dtp_gpu *out,
                             struct dtp_err *err);
/* Reads a parsed file; `like` is looked up as dtp_gpu_load() does. */
enum dtp_status dtp_gpu_read(struct dtp_arena *a, const struct dtp_json *j, struct dtp_gpu *out,
                             struct dtp_err *err);
/* Finds the GPU file of a measured row ("A100", 80), or returns DTP_EUNSUPPORTED. memory_gb 0 gives the usual file; a
 * size that no file has (A100 with 64 GB, H100 with 94) gives the family's nearest file, with that much memory. */
enum dtp_status dtp_gpu_find(struct dtp_arena *a, const char *family, double memory_gb,
                             struct dtp_gpu *out, struct dtp_err *err);

/* Finds the name of the GPU file that has `card` among its sweep_names; card may be NULL. */
enum dtp_status dtp_gpu_of_card(struct dtp_arena *a, const char *card, const char **out,
                                struct dtp_err *err);

/* Lists all GPU files, sorted by name. */
enum dtp_status dtp_gpu_list(struct dtp_arena *a, const char *const **out_names, size_t *out_n,
                             struct dtp_err *err);

/* Reads an object like "calibration", without "like"; its values override those of *g. */
enum dtp_status dtp_gpu_calibrate(struct dtp_arena *a, const struct dtp_json *calibration,
                                  struct dtp_gpu *g, struct dtp_err *err);

/* These fields describe the "calibration" object and its "power", for the reader and for the writers: hw/calibrate
 * and the calibration of our runtime's kernels. */
extern const struct dtp_field dtp_gpu_calibration_fields[], dtp_power_fields[];
/* These describe the other keys of "calibration" in a file, and the file itself, for the reader and for the manual. */
extern const struct dtp_field dtp_gpu_calibration_file_fields[], dtp_gpu_fields[];

/* These return seconds of one kernel, alone, at the highest clock and under load (`sustained`), by the formulas above;
 * an empty one takes 0. Its dtype, or attention kernel, must be calibrated. A product is timed by its table, if any. */
double dtp_device_gemm_s(const struct dtp_gpu *g, const struct dtp_gemm *s);
/* Times the batched products of unfused attention. */
double dtp_device_bmm_s(const struct dtp_gpu *g, const struct dtp_gemm *s);
/* Returns the wanted kernel, or the nearest one that the GPU has. */
enum dtp_attention dtp_device_attention(const struct dtp_gpu *g, enum dtp_attention wanted);
/* Times fused attention, forward or backward, for all its heads and sequences. */
double dtp_device_attention_s(const struct dtp_gpu *g, const struct dtp_attention_shape *s);
/* Returns the share of the highest clock that the product reaches, alone and on a rested chip; 1: not known. */
double dtp_device_gemm_clock(const struct dtp_gpu *g, const struct dtp_gemm *s);
double dtp_device_attention_clock(const struct dtp_gpu *g, const struct dtp_attention_shape *s);
/* Times a memory-bound kernel of a class by the bytes that it reads and writes and by its elements. */
double dtp_device_kernel_s(const struct dtp_gpu *g, enum dtp_kernel k, double bytes,
                           double elements);
/* Times the same kernel by its table; 0: it has none. */
double dtp_device_rows_s(const struct dtp_gpu *g, enum dtp_kernel k, double rows, double cols);
/* Returns whether products that end with GELU have separate times. */
bool dtp_device_knows_gelu(const struct dtp_gpu *g);
/* Returns the time of products on the slowest of n chips over that on the slowest of a node of eight, on which the
 * rates of the files are based: 1 + chip_spread (E(n) - E(8)). E(n) is the expected largest of n draws from the
 * standard normal distribution. Ranks of a synchronous step wait for the slowest. */
double dtp_device_slowest(const struct dtp_gpu *g, int n);
/* Returns the time of the mix's products over that at the highest clock, >= 1. */
double dtp_power_slowdown(const struct dtp_gpu *g, const struct dtp_load_mix *m);
/* Returns false when clocks are not known: products then run at the highest clock. */
bool dtp_device_has_clock(const struct dtp_gpu *g, enum dtp_dtype dtype);
/* Returns false when the calibration does not cover the product (dtype, size). */
bool dtp_device_gemm_covered(const struct dtp_gpu *g, const struct dtp_gemm *s);
double dtp_attention_flops(const struct dtp_attention_shape *s);

#endif
