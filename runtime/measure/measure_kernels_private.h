/* measure_kernels_private.h: private to measure_kernels*.c: one process of the sweep. */
#ifndef DTP_RUNTIME_MEASURE_KERNELS_PRIVATE_H
#define DTP_RUNTIME_MEASURE_KERNELS_PRIVATE_H

#include "runtime/measure/measure.h"

enum {
    POOL_FLOATS = 1 << 21, /* operands move through 8 MiB */
    HEAP_BYTES = 1 << 28,
    ROWS = 128, /* of the classes' tensors */
    COLS = 512,
    LARGE_FLOATS = 1 << 19
};
static const double sweep_target_s = 0.4e-3; /* of one entry and round */

struct dtp_sweep {
    const struct dtp_measure_options *o;
    const struct dtp_dev_ops *ops;
    struct dtp_dev *dev;
    float *pool, *other; /* [POOL_FLOATS] each */
    float *rows, *saved, *workspace, *large;
    int32_t *ids;
    double *time_s; /* of the board */
    bool writes;
    int n; /* entries so far */
};

/* The i-th of the places that n floats have in a pool. */
float *dtp_sweep_part(float *pool, int64_t n, int i);
/* The next time of the board, if it is the least so far. */
void dtp_sweep_note(struct dtp_sweep *s, double time_s);

/* Classes of memory-bound kernels, then a large copy, the gap between kernels, SwiGLU forward, backward. */
enum { NCLASSES = 13, NGATED = 2 };
struct dtp_sweep_class {
    enum dtp_kernel kernel;
    void (*run)(void *context, int i);
    int64_t rows, cols;
};
extern const struct dtp_sweep_class dtp_sweep_class_rows[NCLASSES];
void dtp_sweep_classes(struct dtp_sweep *s);

#endif
