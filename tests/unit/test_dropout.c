/* Dropout: the generator against published vectors, the mask's statistics, and the two operations that
 * have it against sums in double with the mask written out. */
#include <CUnit/Basic.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/device/backend.h"
#include "sim/base/rng.h"
#include "tests/suites.h"

static const double tolerance = 1e-5; /* fp32 sums of some hundred terms */

/* Salmon 2011's test vectors of philox4x32-10 (Random123, kat_vectors). */
static void test_known_answers(void) {
    static const struct {
        uint32_t counter[4], key[2], result[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        uint32_t c[4];
        memcpy(c, known[i].counter, sizeof c);
        dtp_philox(c, known[i].key);
        CU_ASSERT_EQUAL(memcmp(c, known[i].result, sizeof c), 0);
    }
}

static void test_probability(void) {
    const double p[] = {0, 0.1, 0.5, 0.9999999};
    for (size_t i = 0; i < sizeof p / sizeof p[0]; i++) {
        struct dtp_dropout d = dtp_dropout_of(p[i], 1, 2, 3, 4);
        double rounded = d.drop_below / 65536.0;
        CU_ASSERT(fabs(rounded - p[i]) <= 1.0 / 65536);
        CU_ASSERT_DOUBLE_EQUAL((double)d.scale * (1 - rounded), 1, 1e-6);
    }
    CU_ASSERT_EQUAL(dtp_dropout_of(0, 1, 2, 3, 4).drop_below, 0);
}

/* ---- the mask ---- */

static double hidden(const struct dtp_dropout *d, uint32_t sequence, uint32_t position,
                     uint32_t at) {
    struct dtp_dropout_bits b =
        dtp_dropout_features(d, at / DTP_DROPOUT_BLOCK * DTP_DROPOUT_BLOCK, position, sequence);
    return dtp_dropout_keeps(d, &b, at % DTP_DROPOUT_BLOCK) ? 1 : 0;
}

static double score(const struct dtp_dropout *d, uint32_t sequence, uint32_t query, uint32_t key) {
    struct dtp_dropout_bits b =
        dtp_dropout_scores(d, 5, query / 32 * 32 + query % 8, key / 16 * 16 + key % 8, sequence);
    return dtp_dropout_keeps(d, &b, dtp_dropout_score_slot(query, key)) ? 1 : 0;
}

typedef double mask_fn(const struct dtp_dropout *d, uint32_t sequence, uint32_t row,
                       uint32_t column);

/* Mean of n independent draws with variance p q / n; of their products with a neighbour, about its
 * square: within five standard deviations. */
static void check_mask(mask_fn *mask, double p) {
    enum { ROWS = 128, COLS = 256, N = ROWS * COLS };
    static const struct {
        uint32_t row, column, sequence, site, step, seed;
    } other[] = {{0, 1, 0, 0, 0, 0}, {0, 2, 0, 0, 0, 0}, {0, 8, 0, 0, 0, 0},  {0, 16, 0, 0, 0, 0},
                 {1, 0, 0, 0, 0, 0}, {8, 0, 0, 0, 0, 0}, {32, 0, 0, 0, 0, 0}, {1, 1, 0, 0, 0, 0},
                 {0, 0, 1, 0, 0, 0}, {0, 0, 0, 1, 0, 0}, {0, 0, 0, 4, 0, 0},  {0, 0, 0, 0, 1, 0},
                 {0, 0, 0, 0, 0, 1}};
    struct dtp_dropout d = dtp_dropout_of(p, 77, 3, 9, 11);
    double q = 1 - d.drop_below / 65536.0, sum = 0, deviation = sqrt(q * (1 - q) / N);
    for (uint32_t i = 0; i < N; i++)
        sum += mask(&d, 2, i / COLS, i % COLS);
    CU_ASSERT(fabs(sum / N - q) < 5 * deviation);
    for (size_t k = 0; k < sizeof other / sizeof other[0]; k++) {
        struct dtp_dropout e =
            dtp_dropout_of(p, 77 + other[k].seed, 3 + other[k].step, 9 + other[k].site, 11);
        double both = 0;
        for (uint32_t i = 0; i < N; i++)
            both += (mask(&d, 2, i / COLS, i % COLS) - q) *
                    (mask(&e, 2 + other[k].sequence, i / COLS + other[k].row,
                          i % COLS + other[k].column) -
                     q);
        double correlation = both / N / (q * (1 - q));
        if (!(fabs(correlation) < 5 / sqrt(N)))
            printf("\n    neighbour %zu: correlation %.4f\n", k, correlation);
        CU_ASSERT(fabs(correlation) < 5 / sqrt(N));
    }
}

static void test_statistics(void) {
    check_mask(hidden, 0.1);
    check_mask(hidden, 0.5);
    check_mask(score, 0.1);
    check_mask(score, 0.5);
}

/* Step and sequence by value, or in the device's memory. */
static void test_now(void) {
    const uint32_t now[] = {5, 6};
    struct dtp_dropout a = dtp_dropout_of(0.5, 1, 7, 3, 8), b = dtp_dropout_of(0.5, 1, 2, 3, 2);
    b.now = now;
    for (uint32_t i = 0; i < 256; i++) {
        CU_ASSERT(hidden(&a, 1, i, i) >= hidden(&b, 1, i, i) &&
                  hidden(&a, 1, i, i) <= hidden(&b, 1, i, i));
        CU_ASSERT(score(&a, 1, i, i / 2) >= score(&b, 1, i, i / 2) &&
                  score(&a, 1, i, i / 2) <= score(&b, 1, i, i / 2));
    }
}

/* A microbatch that starts at another sequence of the batch has the same masks of what it shares. */
static void test_sequences_are_of_the_batch(void) {
    struct dtp_dropout a = dtp_dropout_of(0.5, 1, 2, 3, 0), b = dtp_dropout_of(0.5, 1, 2, 3, 6);
    for (uint32_t i = 0; i < 256; i++) {
        CU_ASSERT(hidden(&a, 7, i, i) >= hidden(&b, 1, i, i) &&
                  hidden(&a, 7, i, i) <= hidden(&b, 1, i, i));
        CU_ASSERT(score(&a, 7, i, i / 2) >= score(&b, 1, i, i / 2) &&
                  score(&a, 7, i, i / 2) <= score(&b, 1, i, i / 2));
    }
}

/* ---- operations ---- */

struct cpu {
    struct dtp_arena *a;
    const struct dtp_dev_ops *ops;
    struct dtp_dev *dev;
    struct dtp_rng rng;
};

static void open_cpu(struct cpu *c) {
    const struct dtp_dev_config config = {
        .nlocal = 1, .memory_bytes = 1 << 24, .dtype = DTP_FP32, .grad_dtype = DTP_FP32};
    struct dtp_err err = {0};
    *c = (struct cpu){.a = dtp_arena_create("test"), .rng = dtp_rng_stream(1, 2)};
    CU_ASSERT_EQUAL_FATAL(dtp_dev_find("cpu", &c->ops, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(c->ops->open(c->a, &config, &c->dev, &err), DTP_OK);
}

static void close_cpu(struct cpu *c) {
    c->ops->close(c->dev);
    dtp_arena_destroy(c->a);
}

static float *take(struct cpu *c, int64_t n) {
    float *x = DTP_NEW(c->a, float, (size_t)n);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(2 * dtp_rng_uniform(&c->rng) - 1);
    return x;
}

/* Rows 24 .. 47 of a microbatch of 3 sequences, as a rank of sequence parallelism has them; 13 columns. */
static void test_residual(void) {
    enum { ROWS = 24, COLS = 13, FIRST = 24, BATCH = 3 };
    struct cpu c;
    open_cpu(&c);
    float *x = take(&c, ROWS * COLS), *bias = take(&c, COLS), *r = take(&c, ROWS * COLS);
    float *out = take(&c, ROWS * COLS);
    struct dtp_residual_args args = {.out = out,
                                     .x = x,
                                     .bias = bias,
                                     .residual = r,
                                     .rows = ROWS,
                                     .cols = COLS,
                                     .first_row = FIRST,
                                     .batch = BATCH,
                                     .dropout = dtp_dropout_of(0.3, 5, 6, 7, 8)};
    c.ops->bias_residual(c.dev, &args);
    for (int i = 0; i < ROWS * COLS; i++) {
        uint32_t row = (uint32_t)(FIRST + i / COLS), column = (uint32_t)(i % COLS);
        double m = hidden(&args.dropout, row % BATCH, row / BATCH, column);
        double want =
            ((double)x[i] + (double)bias[column]) * m * (double)args.dropout.scale + (double)r[i];
        CU_ASSERT_DOUBLE_EQUAL((double)out[i], want, tolerance);
    }
    args.bias = args.residual = NULL; /* the backward, in place */
    args.x = args.out = r;
    float *was = take(&c, ROWS * COLS);
    memcpy(was, r, ROWS * COLS * sizeof *r);
    c.ops->bias_residual(c.dev, &args);
    for (int i = 0; i < ROWS * COLS; i++) {
        uint32_t row = (uint32_t)(FIRST + i / COLS), column = (uint32_t)(i % COLS);
        double m = hidden(&args.dropout, row % BATCH, row / BATCH, column);
        CU_ASSERT_DOUBLE_EQUAL((double)r[i], m * (double)args.dropout.scale * (double)was[i],
                               tolerance);
    }
    close_cpu(&c);
}

/* Sizes of the attention under test: two query heads share keys; neither 16 nor 32 divides the positions.
 */
enum { B = 2, S = 45, H = 4, KV = 2, D = 8, WIDTH = (H + 2 * KV) * D };

/* sum of dout * out, in double, and nothing but the formula */
static double objective(const struct dtp_attention_args *x, const float *qkv, const float *dout) {
    double total = 0;
    for (int n = 0; n < B * H * S; n++) {
        int query = n % S, head = n / S % H, b = n / S / H, kv = head / (H / KV);
        const float *q = qkv + (query * B + b) * WIDTH + head * D;
        double sum = 0, weighted = 0;
        for (int key = 0; key <= query; key++) {
            const float *k = qkv + (key * B + b) * WIDTH + (H + kv) * D, *v = k + KV * D;
            double s = 0, o = 0;
            for (int i = 0; i < D; i++) {
                s += (double)q[i] * (double)k[i];
                o += (double)v[i] * (double)dout[(query * B + b) * H * D + head * D + i];
            }
            uint32_t from = (uint32_t)query, to = (uint32_t)key;
            struct dtp_dropout_bits bits =
                dtp_dropout_scores(&x->dropout, (uint32_t)(x->first_head + head),
                                   from / 32 * 32 + from % 8, to / 16 * 16 + to % 8, (uint32_t)b);
            bool kept = dtp_dropout_keeps(&x->dropout, &bits, dtp_dropout_score_slot(from, to));
            double e = exp(s / sqrt(D));
            sum += e;
            weighted += kept ? e * (double)x->dropout.scale * o : 0;
        }
        total += weighted / sum;
    }
    return total;
}

/* Output by the formula; gradients by its central differences, the mask staying as it is. */
static void test_attention(void) {
    struct cpu c;
    open_cpu(&c);
    float *qkv = take(&c, B * S * WIDTH), *dqkv = take(&c, B * S * WIDTH);
    float *out = take(&c, B * S * H * D), *dout = take(&c, B * S * H * D);
    struct dtp_attention_args x = {.batch = B,
                                   .seq = S,
                                   .heads = H,
                                   .kv_heads = KV,
                                   .head_dim = D,
                                   .qkv_stride = WIDTH,
                                   .out_stride = H * D,
                                   .q = qkv,
                                   .k = qkv + H * D,
                                   .v = qkv + (H + KV) * D,
                                   .out = out,
                                   .saved = take(&c, B * H * S * S),
                                   .workspace = take(&c, S * S),
                                   .dout = dout,
                                   .dq = dqkv,
                                   .dk = dqkv + H * D,
                                   .dv = dqkv + (H + KV) * D,
                                   .dropout = dtp_dropout_of(0.4, 1, 2, 3, 4),
                                   .first_head = 4};
    double sum = 0;
    c.ops->attention_forward(c.dev, &x);
    c.ops->attention_backward(c.dev, &x);
    for (int i = 0; i < B * S * H * D; i++)
        sum += (double)out[i] * (double)dout[i];
    CU_ASSERT_DOUBLE_EQUAL(sum, objective(&x, qkv, dout), 1e-4);
    for (int i = 3; i < B * S * WIDTH; i += 97) {
        float was = qkv[i];
        const double step = 1.0 / 1024;
        qkv[i] = was + (float)step;
        double above = objective(&x, qkv, dout);
        qkv[i] = was - (float)step;
        double slope = (above - objective(&x, qkv, dout)) / (2 * step);
        qkv[i] = was;
        CU_ASSERT_DOUBLE_EQUAL((double)dqkv[i], slope, 1e-4);
    }
    float *again = take(&c, B * S * WIDTH); /* the mask is still there */
    memcpy(again, dqkv, B * S * WIDTH * sizeof *again);
    c.ops->attention_backward(c.dev, &x);
    CU_ASSERT_EQUAL(memcmp(again, dqkv, B * S * WIDTH * sizeof *again), 0);
    close_cpu(&c);
}

int main(void) {
    CU_TestInfo tests[] = {{"Philox's known answers", test_known_answers},
                           {"probability and scale", test_probability},
                           {"mean and independence", test_statistics},
                           {"from memory", test_now},
                           {"sequences are those of the batch", test_sequences_are_of_the_batch},
                           {"bias, dropout and residual", test_residual},
                           {"attention", test_attention},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"dropout", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
