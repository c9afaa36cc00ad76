/* Gradients of whole models against central differences of the loss.
 *
 * One rank in this process; with a learning rate of 0 a step leaves the weights as they are and the
 * gradients in the units. d loss / d w = (loss(w + e) - loss(w - e)) / 2e + O(e^2): in fp32 a loss of
 * about 4 is good to 5e-7, so with e = 0.01 a slope is good to about 5e-5, and the curvature adds
 * about as much. */
#include <CUnit/Basic.h>
#include <math.h>
#include <stdio.h>

#include "runtime/rank.h"
#include "tests/runtime_cases.h"
#include "tests/suites.h"

struct bench {
    struct dtp_arena *a;
    struct dtp_model model;
    struct dtp_run_options o;
    struct dtp_rank *r;
    struct dtp_comm_config config;
    void *shared;
    struct dtp_err err;
    double step_size, tolerance; /* absolute, of slopes up to about 0.3 */
};

static void open_bench(struct bench *b, struct dtp_model model) {
    struct dtp_schedule s;
    *b = (struct bench){.a = dtp_arena_create("bench"), .model = model};
    b->o = tiny_options(&b->model);
    b->o.lr = b->o.min_lr = 0;
    b->o.seq = 5;
    b->o.pin = false;
    b->o.plan.microbatch_size = b->o.plan.global_batch_size = 3;
    CU_ASSERT_EQUAL_FATAL(dtp_run_schedule(b->a, &b->o.plan, &s, &b->err), DTP_OK);
    b->config = dtp_rank_comm_config(&b->o, &s);
    CU_ASSERT_EQUAL_FATAL(dtp_comm_shm_map(&b->config, &b->shared, &b->err), DTP_OK);
    b->r = DTP_NEW(b->a, struct dtp_rank, 1);
    *b->r = (struct dtp_rank){.arena = b->a, .o = &b->o, .err = &b->err};
    CU_ASSERT_EQUAL_FATAL(dtp_rank_open(b->r, b->shared, NULL), DTP_OK);
}

static void close_bench(struct bench *b) {
    dtp_rank_close(b->r);
    dtp_comm_shm_unmap(&b->config, b->shared);
    dtp_arena_destroy(b->a);
}

static double loss_of(struct bench *b) {
    double loss, step_s;
    CU_ASSERT_EQUAL_FATAL(dtp_rank_step(b->r, &loss, &step_s), DTP_OK);
    return loss;
}

/* The element of the parameter whose gradient is largest, and one from the middle. */
static int64_t largest(const float *g, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        best = fabsf(g[i]) > fabsf(g[best]) ? i : best;
    return best;
}

static void check_element(struct bench *b, float *w, double gradient, const char *name) {
    float was = *w;
    *w = (float)((double)was + b->step_size);
    double above = loss_of(b);
    *w = (float)((double)was - b->step_size);
    double below = loss_of(b);
    *w = was;
    double slope = (above - below) / (2 * b->step_size);
    if (!(fabs(slope - gradient) < b->tolerance + 0.01 * fabs(gradient)))
        printf("\n    %s: gradient %.6f, slope %.6f\n", name, gradient, slope);
    CU_ASSERT(fabs(slope - gradient) < b->tolerance + 0.01 * fabs(gradient));
}

static void check_unit(struct bench *b, struct dtp_unit *u, const float *grads) {
    for (int id = 0; id < DTP_NLAYER_PARAMS; id++) {
        const struct dtp_param *p = &u->param[id];
        if (!p->name)
            continue;
        float *w = (float *)u->weights + p->at;
        const float *g = grads + p->at;
        int64_t most = largest(g, p->n), middle = p->n / 2;
        check_element(b, w + most, (double)g[most], p->name);
        check_element(b, w + middle, (double)g[middle], p->name);
    }
}

static void check_model(struct dtp_model model, double step_size, double tolerance,
                        double dropout) {
    struct bench b;
    open_bench(&b, model);
    b.o.dropout = dropout; /* the mask is that of a step, which stays the same */
    b.o.attention_dropout = dropout;
    b.step_size = step_size;
    b.tolerance = tolerance;
    (void)loss_of(&b);
    int n = b.r->nunits;
    float **grads = DTP_NEW(b.a, float *, (size_t)n);
    for (int i = 0; i < n; i++) { /* later steps overwrite them */
        size_t bytes = (size_t)b.r->unit[i]->n * sizeof(float);
        grads[i] = dtp_arena_alloc(b.a, 1, bytes);
        memcpy(grads[i], b.r->unit[i]->grads, bytes);
    }
    for (int i = 0; i < n; i++)
        check_unit(&b, b.r->unit[i], grads[i]);
    close_bench(&b);
}

static struct dtp_model small(const char *family) {
    struct dtp_model m = tiny_model(family);
    m.layers = 2;
    m.hidden = 16;
    m.head_dim = 4;
    m.ffn = 24;
    m.vocab = 13;
    return m;
}

static void test_gpt(void) {
    check_model(small("gpt"), 0.01, 4e-4, 0);
}

static void test_llama(void) {
    check_model(small("llama"), 0.01, 4e-4, 0);
}

/* What is kept is larger, and so is the curvature: half the step. */
static void test_dropout(void) {
    check_model(small("gpt"), 0.005, 4e-4, 0.2);
    check_model(small("llama"), 0.005, 4e-4, 0.2);
}

static void test_relu_without_biases_untied(void) {
    struct dtp_model m = small("gpt");
    m.activation = DTP_ACT_RELU;
    m.attention_bias = m.qkv_bias = m.mlp_bias = m.norm_bias = false;
    m.tied_embeddings = false;
    check_model(m, 0.002, 2e-3, 0); /* a kink at 0 is crossed now and then */
}

int main(void) {
    CU_TestInfo tests[] = {{"GPT: LayerNorm, GELU, biases, positions, tied", test_gpt},
                           {"Llama: RMSNorm, RoPE, SwiGLU, grouped queries", test_llama},
                           {"both with dropout", test_dropout},
                           {"ReLU, no biases, untied", test_relu_without_biases_untied},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"gradients", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
