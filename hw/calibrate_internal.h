/* calibrate_internal.h: what the files of the calibration share: rows of sweeps, and the fits to them. */
#ifndef DTP_HW_CALIBRATE_INTERNAL_H
#define DTP_HW_CALIBRATE_INTERNAL_H

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
    enum dtp_cal_part part;               /* pass of attention and kernels */
    struct dtp_gemm gemm;                 /* GEMM, BMM */
    struct dtp_attention_shape attention; /* ATTENTION */
    enum dtp_kernel kernel;               /* KERNEL; BOTH: its backward is backward_kernel */
    enum dtp_kernel backward_kernel;
    double bytes, backward_bytes, elements;
    double time_s;
    double accumulate_bytes; /* GEMM: size of the buffer it adds to */
    bool loaded;             /* GEMM of a chip under load */
    int source;              /* index into sources */
    bool same_chip;          /* from another part: gives shape constants only */
};

enum { DTP_CAL_MAX_SOURCES = 16 };

struct dtp_cal_rows {
    struct dtp_cal_row *at;
    size_t n, capacity;
    const char *sources[DTP_CAL_MAX_SOURCES];
    size_t nsources;
    size_t other_gpu, biased; /* rows that were read but not used */
};

/* The names of one GPU in sweeps, as NULL-terminated lists. */
struct dtp_cal_names {
    const char *const *own, *const *same_chip;
};

/* Adds the rows of a file (*.json or *.csv). */
enum dtp_status dtp_calibrate_read(struct dtp_arena *a, const char *path,
                                   const struct dtp_cal_names *names, struct dtp_cal_rows *rows,
                                   struct dtp_err *err);

/* The error of one class of rows, each of which is predicted by a fit that did not see it. */
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
    /* The caller sets these. */
    bool keep_sustained; /* do not fit it, and the rows are of a chip under load */
    bool rows_unloaded;  /* if keep_sustained: the rows are not of a chip under load */
    bool keep_rate;      /* keep R of the 16-bit GEMM */
    bool keep_fp8;
    bool keep_shape; /* keep its other constants, which host time in the sweep would hide */
};

/* Each function fits its constants of g and adds its classes to the result. */
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
