/* Times of the CUDA table's operations at the shapes of a GPT of 1.3 billion parameters (4 sequences of
 * 2,048, hidden 2,048, 16 heads), in bf16: median of 5 groups of 10 calls, and what that is of the
 * bytes or FLOPs that the operation cannot do without. */
#include "tests/bench/bench_cuda.h"

static void forward_gemm(void) {
    struct dtp_gemm_args g = gemm_args(ROWS, 4L * HIDDEN, HIDDEN);
    g.bias = buffer[3];
    ops->gemm(gpu, &g);
}
static void gelu_gemm(void) {
    struct dtp_gemm_args g = gemm_args(ROWS, 4L * HIDDEN, HIDDEN);
    g.bias = buffer[3];
    g.before = (char *)buffer[3] + UNUSED_BYTES;
    ops->gemm(gpu, &g);
}
static void slope_gemm(void) {
    struct dtp_gemm_args g = gemm_args(ROWS, 4L * HIDDEN, HIDDEN);
    g.tb = false;
    g.ldb = 4L * HIDDEN;
    g.slope_at = buffer[3];
    ops->gemm(gpu, &g);
}
static void plain_slope_gemm(void) {
    struct dtp_gemm_args g = gemm_args(ROWS, 4L * HIDDEN, HIDDEN);
    g.tb = false;
    g.ldb = 4L * HIDDEN;
    ops->gemm(gpu, &g);
}
static void input_gemm(void) {
    struct dtp_gemm_args g = gemm_args(ROWS, HIDDEN, 4L * HIDDEN);
    g.tb = false;
    g.ldb = HIDDEN;
    ops->gemm(gpu, &g);
}
static void weight_gemm(void) {
    struct dtp_gemm_args g = gemm_args(4L * HIDDEN, HIDDEN, ROWS);
    g.ta = g.accumulate = g.c_gradient = true;
    g.tb = false;
    g.lda = 4L * HIDDEN;
    g.ldb = HIDDEN;
    ops->gemm(gpu, &g);
}
static void head_gemm(void) {
    struct dtp_gemm_args g = gemm_args(ROWS, VOCAB, HIDDEN);
    ops->gemm(gpu, &g);
}
static void attention_forward(void) {
    struct dtp_attention_args x = attention_args(HEADS, HEADS);
    ops->attention_forward(gpu, &x);
}
static void attention_backward(void) {
    struct dtp_attention_args x = attention_args(HEADS, HEADS);
    ops->attention_backward(gpu, &x);
}
static void grouped_forward(void) {
    struct dtp_attention_args x = attention_args(2L * HEADS, KV_HEADS);
    ops->attention_forward(gpu, &x);
}
static void grouped_backward(void) {
    struct dtp_attention_args x = attention_args(2L * HEADS, KV_HEADS);
    ops->attention_backward(gpu, &x);
}
static void gelu_forward(void) {
    struct dtp_act_args a = {
        .fn = DTP_ACT_FN_GELU, .rows = tokens, .cols = 4L * HIDDEN, .x = buffer[0], .y = buffer[2]};
    ops->act_forward(gpu, &a);
}
static void gelu_backward(void) {
    struct dtp_act_args a = {.fn = DTP_ACT_FN_GELU,
                             .rows = tokens,
                             .cols = 4L * HIDDEN,
                             .x = buffer[0],
                             .dy = buffer[3],
                             .dx = buffer[2]};
    ops->act_backward(gpu, &a);
}
static void bias_dropout_residual(void) {
    residual(0.1);
}
static void loss(void) {
    struct dtp_loss_args x = {.logits = buffer[0],
                              .rows = ROWS,
                              .cols = VOCAB,
                              .valid = VOCAB,
                              .targets = (const int32_t *)buffer[4],
                              .max = floats,
                              .sum = floats + ROWS,
                              .target = floats + 2L * ROWS,
                              .loss = floats + 3L * ROWS,
                              .scale = 1};
    ops->loss_max(gpu, &x);
    ops->loss_sum(gpu, &x);
    ops->loss_mean(gpu, &x);
    ops->loss_grad(gpu, &x);
}
static void embed_backward(void) {
    struct dtp_embedding_args x = {.ids = (const int32_t *)buffer[4],
                                   .rows = ROWS,
                                   .cols = HIDDEN,
                                   .valid = VOCAB,
                                   .batch = BATCH,
                                   .dout = buffer[0],
                                   .dtable = buffer[2]};
    ops->embed_backward(gpu, &x);
}
static void adamw(void) {
    enum { N = 1 << 26 };
    struct dtp_adamw_tensor t = {.param = buffer[0],
                                 .master = buffer[1],
                                 .m = buffer[2],
                                 .v = buffer[3],
                                 .grad = buffer[4],
                                 .n = N,
                                 .decay = true};
    struct dtp_adamw_hyper h = {.lr = 1e-9, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1, .step = 1};
    ops->adamw(gpu, &h, &t, 1);
}
static void squared_norm(void) {
    const struct dtp_norm2_args x = {.sum = floats, .nruns = 1, .run = {{buffer[3], 1 << 26, 0}}};
    ops->norm2(gpu, &x);
}
static const double row_bytes = 2.0 * ROWS * HIDDEN, big_flops = 8.0 * ROWS * HIDDEN * HIDDEN;
static const double attention_flops = 2.0 * BATCH * SEQ * SEQ * HIDDEN; /* causal, two products */

int main(void) {
    static const struct {
        const char *name;
        void (*call)(void);
        double bytes, flops;
    } rows[] = {
        {"gemm forward + bias", forward_gemm, 0, big_flops},
        {"gemm forward + bias + gelu", gelu_gemm, 0, big_flops},
        {"gemm input gradient", input_gemm, 0, big_flops},
        {"gemm input gradient, wide", plain_slope_gemm, 0, big_flops},
        {"gemm input gradient, gelu's slope", slope_gemm, 0, big_flops},
        {"gemm weight gradient, fp32 +=", weight_gemm, 0, big_flops},
        {"gemm head", head_gemm, 0, 2.0 * ROWS * HIDDEN * VOCAB},
        {"attention forward", attention_forward, 0, attention_flops},
        {"attention backward", attention_backward, 0, 2.5 * attention_flops},
        {"attention forward, 32/4 heads", grouped_forward, 0, attention_flops},
        {"attention backward, 32/4 heads", grouped_backward, 0, 2.5 * attention_flops},
        {"norm forward", norm_forward, 2 * row_bytes, 0},
        {"norm backward", norm_backward, 4 * row_bytes, 0},
        {"gelu forward", gelu_forward, 8 * row_bytes, 0},
        {"gelu backward", gelu_backward, 12 * row_bytes, 0},
        {"bias + residual", bias_residual, 3 * row_bytes, 0},
        {"bias + dropout + residual", bias_dropout_residual, 3 * row_bytes, 0},
        {"bias gradient", bias_backward, 4 * row_bytes, 0},
        {"cross-entropy", loss, 6.0 * ROWS * VOCAB, 0},
        {"embedding gradient", embed_backward, 5 * row_bytes, 0},
        {"norm^2", squared_norm, 4.0 * (1 << 26), 0},
        {"adamw", adamw, 30.0 * (1 << 26), 0},
        {"one empty kernel", nothing, 0, 0},
    };
    struct dtp_arena *a = dtp_arena_create("bench");
    struct dtp_err err = {0};
    if (open_gpu(a, &err) != DTP_OK) {
        printf("skipped: %s\n", err.msg);
        return SKIP;
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double s = seconds_of(rows[i].call);
        printf("%-32s %9.1f us  %7.1f TFLOP/s %7.1f GB/s\n", rows[i].name, s / DTP_MICRO,
               rows[i].flops / s / DTP_TERA, rows[i].bytes / s / DTP_GIGA);
        fflush(stdout);
    }
    enum dtp_status status = ops->check(gpu, &err);
    printf("%s\n", err.msg);
    ops->close(gpu);
    dtp_arena_destroy(a);
    return (int)status;
}
