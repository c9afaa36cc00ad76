/* kernel.h: classes of memory-bound kernels; each has an achieved bandwidth in the GPU file, and may have a
 * table of times. One list makes the enum, the JSON keys and the tables. */
#ifndef DTP_HW_KERNEL_H
#define DTP_HW_KERNEL_H

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

#endif
