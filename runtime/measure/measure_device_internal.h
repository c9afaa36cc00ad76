/* measure_device_internal.h: private to measure_device*.c: a device being timed. */
#ifndef DTP_RUNTIME_MEASURE_DEVICE_INTERNAL_H
#define DTP_RUNTIME_MEASURE_DEVICE_INTERNAL_H

#include "runtime/measure/measure.h"
#include "sim/base/units.h"

enum { NPOOLS = 3, POOL_C = 2, KIB = (int)DTP_KIB, MIB = (int)DTP_MIB };

struct dtp_bench {
    const struct dtp_measure_grid *grid;
    const struct dtp_dev_ops *ops;
    struct dtp_dev *dev;
    char *pool[NPOOLS];
    uint64_t pool_bytes[NPOOLS];
    float *saved, *workspace, *rows;
    int32_t *ids; /* below their number */
    int nids;
    double *time_s, *clock; /* arrays of the board */
    int n, capacity;
    /* before the last round of what is timed next: a chip that has worked has a lower clock */
    double rest_s;
    double clock_hz; /* while what dtp_bench_measured_s() returned last was timed; 0: not known */
    struct dtp_dev_load limits;
    struct dtp_measured_load *load; /* likewise */
    int nloads;
};

typedef void dtp_bench_fn(void *context, int i);

/* Returns the seconds of one of n calls, the first of them a while after the host began to enqueue them. */
double dtp_bench_batch_s(struct dtp_bench *b, dtp_bench_fn *run, void *context, int n,
                         double lead_s);
/* Returns the seconds of one call, kernels only: run(context, i) launches the i-th. */
double dtp_bench_measured_s(struct dtp_bench *b, dtp_bench_fn *run, void *context);
/* Measures a kernel whose time depends on the clock of the SMs, and returns its time at the highest clock. */
double dtp_bench_product_s(struct dtp_bench *b, dtp_bench_fn *run, void *context);
/* The next time of the board, and the clock of a product. */
void dtp_bench_note(struct dtp_bench *b, double time_s, double clock);
/* Share of the highest clock that what was timed last had. */
double dtp_bench_clock(const struct dtp_bench *b);
/* The i-th of the places that a tensor of so many bytes has in a pool. */
void *dtp_bench_part(const struct dtp_bench *b, int pool, int64_t bytes, int i);
int64_t dtp_bench_element_bytes(const struct dtp_bench *b);

struct dtp_bench_gemm {
    struct dtp_bench *b;
    struct dtp_gemm_args g;
    bool gelu; /* at its end, or its slope */
};
struct dtp_bench_gemm dtp_bench_gemm_of(struct dtp_bench *b, enum dtp_gemm_pass pass,
                                        const int64_t mnk[3]);
void dtp_bench_run_gemm(void *context, int i);
void dtp_bench_gemms(struct dtp_bench *b);
void dtp_bench_gelus(struct dtp_bench *b);

struct dtp_bench_attention {
    struct dtp_bench *b;
    struct dtp_attention_args x;
    bool backward;
};
/* One of the upper part of the grid, which fills the device, of the largest head_dim. */
struct dtp_bench_attention dtp_bench_attention_of(struct dtp_bench *b, bool backward,
                                                  double dropout);
double dtp_bench_attention_flops(const struct dtp_bench_attention *x);
void dtp_bench_run_attention(void *context, int i);
void dtp_bench_attentions(struct dtp_bench *b, bool backward, double dropout);
/* The most that any shape keeps, or works in. */
uint64_t dtp_bench_attention_bytes(const struct dtp_bench *b, bool workspace);

/* Classes of memory-bound kernels by rows and columns, at two sizes for a rate, then the host's time of a
 * launch. */
enum { NCLASSES = 13, NTABLED = NCLASSES - 1 };
struct dtp_bench_class {
    enum dtp_kernel kernel;
    dtp_bench_fn *run;
};
extern const struct dtp_bench_class dtp_bench_class_rows[NCLASSES]; /* the last has no table */
void dtp_bench_classes(struct dtp_bench *b);
struct dtp_measure_grid dtp_bench_small_grid(const struct dtp_measure_grid *g);

/* Power and clock under long load; nothing where the device has no sensors. */
void dtp_bench_loads(struct dtp_bench *b);

#endif
