/* What the kernels of a layer move, in bytes by hand: a kernel reads and writes each tensor once. */
#include <string.h>

#include "tests/op_case.h"
#include "tests/suites.h"

/* Bytes of the operations of a name in a pass of the list that was made last, and their number. */
static double moved(const struct fixture *x, const char *name, int pass, int *out_n) {
    double sum = 0;
    int n = 0;
    for (int i = 0; i < x->ops.n; i++)
        if ((int)x->ops.at[i].pass == pass && strcmp(x->ops.at[i].name, name) == 0) {
            sum += x->ops.at[i].bytes;
            n++;
        }
    if (out_n)
        *out_n = n;
    return sum;
}

static void expect(const struct fixture *x, const char *name, int pass, double bytes) {
    double got = moved(x, name, pass, NULL);
    if (!(fabs(got - bytes) <= 1e-9 * bytes))
        printf("\n  %s in %s: %.17g bytes, expected %.17g\n", name, dtp_pass_names[pass], got,
               bytes);
    CU_ASSERT(fabs(got - bytes) <= 1e-9 * bytes);
}

enum { F = DTP_PASS_F, I = DTP_PASS_I, W = DTP_PASS_W };

/* x of z elements of 2 bytes. A norm: x in, y out; back x and dy in, dx out, and for its parameters both again. The
 * residual: sum, block and old in and out, with dropout a mask of one byte. Each twice a layer. */
static void test_norm_and_residual(void) {
    struct fixture *x = op_case("gpt3-1.3b", "megatron-core");
    double z = (double)x->model.seq * x->model.hidden;
    x->framework.kernels.fused_norm = x->framework.kernels.fused_bias_dropout_add =
        x->framework.kernels.dropout = true;
    for (int drops = 0; drops < 2; drops++) {
        x->model.dropout = drops ? 0.1 : 0;
        dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_DENSE, &x->ops);
        expect(x, "norm 1", F, 2 * 2 * z);
        expect(x, "norm 2", I, 3 * 2 * z);
        expect(x, "norm parameters", W, 2 * 2 * 2 * z);
        expect(x, "bias dropout add", F, 2 * (3 * 2 + drops) * z);
        expect(x, "dropout backward", I, drops * 2 * (2 * 2 + 1) * z);
        expect(x, "residual gradient add", I, 2 * 3 * 2 * z);
        expect(x, "bias gradient", W, 2 * 2 * z);
    }
}

/* RMS norm that is no kernel of its own: to fp32 (6 bytes an element), its square (8), and the product with the weight in
 * 16 bit; it keeps x in fp32 and what the weight multiplies. Layer norm is a kernel in any case. */
static void test_operators_of_norm(void) {
    struct fixture *x = op_case("llama3-8b", "megatron-core");
    double z = (double)x->model.seq * x->model.hidden, saved[2];
    for (int fused = 0; fused < 2; fused++) {
        x->framework.kernels.fused_norm = fused;
        dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_DENSE, &x->ops);
        expect(x, "norm 1", F, fused * 4 * z);
        expect(x, "norm to fp32", F, fused ? 0 : 2 * 6 * z);
        expect(x, "norm square", F, fused ? 0 : 2 * 8 * z);
        expect(x, "norm weight", F, fused ? 0 : 2 * 4 * z);
        saved[fused] = 0;
        for (int i = 0; i < x->ops.n; i++)
            saved[fused] += x->ops.at[i].pass == DTP_PASS_F ? x->ops.at[i].saved_bytes : 0;
    }
    near(saved[0] - saved[1], 2 * (6 - 2) * z);
    x = op_case("gpt3-1.3b", "megatron-core");
    x->framework.kernels.fused_norm = false;
    dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_DENSE, &x->ops);
    expect(x, "norm 1", F, 4 * (double)x->model.seq * x->model.hidden);
}

/* Norms whose input is converted first read and write x in fp32; those under a checkpoint of their own are repeated
 * whatever the plan says, and keep x in 16 bit. */
static void test_converted_norm(void) {
    struct fixture *x = op_case("llama2-7b", "internevo");
    double z = (double)x->model.seq * x->model.hidden, kept = 0;
    dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_DENSE, &x->ops);
    expect(x, "norm to fp32", F, 2 * 6 * z);
    expect(x, "norm 1", F, 6 * z);
    expect(x, "norm 1", I, 10 * z);
    expect(x, "norm parameters", W, 2 * 6 * z);
    expect(x, "norm gradient to 16 bit", I, 2 * 6 * z);
    for (int i = 0; i < x->ops.n; i++) {
        const struct dtp_op *op = &x->ops.at[i];
        bool norm = op->pass == DTP_PASS_F && strncmp(op->name, "norm", 4) == 0;
        CU_ASSERT(op->repeated == norm);
        kept += norm ? op->saved_bytes : 0;
    }
    near(kept, 2 * 2 * z);
    x->framework.quirks.fp32_norms.repeats_norms = false;
    dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_DENSE, &x->ops);
    for (int i = 0; i < x->ops.n; i++) {
        CU_ASSERT(!x->ops.at[i].repeated);
        kept -= strncmp(x->ops.at[i].name, "norm", 4) == 0 ? x->ops.at[i].saved_bytes : 0;
    }
    near(kept, -2 * 2 * z);
}

/* f columns on a rank: GELU reads and writes one, back reads two and writes one; SwiGLU reads two and writes one, back
 * three and two; not fused, SiLU of the gate is written and read again: 5 tensors instead of 3. */
static void test_activation(void) {
    struct fixture *x = op_case("gpt3-1.3b", "megatron-core");
    double n = (double)x->model.seq * x->model.ffn / 2;
    x->plan.tp = 2;
    for (int gated = 0; gated < 2; gated++)
        for (int fused = 0; fused < 2; fused++) {
            x->model.gated_ffn = gated;
            x->framework.kernels.fused_bias_activation = fused;
            dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_DENSE, &x->ops);
            double passes = gated && !fused ? 5.0 / 3 : 1;
            expect(x, "activation", F, passes * 2 * (gated ? 3 : 2) * n);
            expect(x, "activation", I, passes * 2 * (gated ? 5 : 3) * n);
        }
}

/* Keys and values of the whole sequence go round once, back with their gradients; 8 heads of 128. */
static void test_ring(void) {
    struct fixture *x = op_case("llama3-8b", "megatron-core");
    double keys = (double)x->model.seq * 8 * 128;
    x->plan.cp = 4;
    x->plan.dp = 2;
    dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_DENSE, &x->ops);
    expect(x, "cp ring KV", F, 2 * 2 * keys);
    expect(x, "cp ring KV dKV", I, 2 * 2 * 2 * keys);
}

/* Documents of an eighth of a sequence: an eighth of the scores. */
static void test_documents(void) {
    struct fixture *x = op_case("llama3-8b", "megatron-core");
    double whole = 0, part = 0;
    for (int packed = 0; packed < 2; packed++) {
        x->problem.document_tokens = packed ? x->model.seq / 8 : 0;
        dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_DENSE, &x->ops);
        for (int i = 0; i < x->ops.n; i++)
            if (x->ops.at[i].kind == DTP_OP_ATTENTION)
                *(packed ? &part : &whole) += dtp_op_flops(&x->ops.at[i]);
    }
    near(part, whole / 8);
}

/* Scores of 6 heads, which are no whole block of 4, go through fp32; of 8 they stay in 16 bit and one kernel. */
static void test_scores(void) {
    struct fixture *x = op_case("gpt3-1.3b", "megatron-2022");
    double s = x->model.seq;
    x->problem.attention = DTP_ATTN_UNFUSED;
    x->framework.kernels.fused_softmax = true;
    x->framework.kernels.fused_softmax_multiple = 4;
    x->model.head_dim = 64;
    for (int heads = 6; heads <= 8; heads += 2) {
        bool wide = heads == 6;
        x->model.heads = x->model.kv_heads = heads;
        dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_DENSE, &x->ops);
        double scores = heads * s * s;
        expect(x, "scores to fp32", F, wide ? 6 * scores : 0);
        expect(x, "scale", F, wide ? 2 * 4 * scores : 0);
        expect(x, "softmax", F, 2 * (wide ? 4 : 2) * scores);
        expect(x, "softmax", I, 3 * (wide ? 4 : 2) * scores);
    }
}

/* DeepSeek-V2-Lite: queries and keys of 128 + 64, values of 128, of 16 heads, are put together: read and written. */
static void test_mla(void) {
    struct fixture *x = op_case("deepseek-v2-lite", "megatron-core");
    const struct dtp_mla *m = &x->model.mla;
    CU_ASSERT_FATAL(m->nope_head_dim == 128 && m->rope_head_dim == 64 && m->v_head_dim == 128);
    dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_DENSE, &x->ops);
    double bytes = 2 * 2.0 * x->problem.seq * 16 * (2 * (128 + 64) + 128);
    expect(x, "rope and concat", F, bytes);
    expect(x, "rope and concat", I, bytes);
}

/* Token rows: read and written; their gradients read, added to what is there. The loss: compiled 2 + 4, 4 + 4 and 4 + 4
 * bytes a logit and two sums over tp, by one kernel 2 + 2 and three; each sum is fp32 of a token. */
static void test_ends(void) {
    struct fixture *x = op_case("gpt3-1.3b", "megatron-core");
    double s = x->model.seq, logits = s * 51200 / 2;
    x->plan.tp = 2;
    x->model.vocab = 51200;
    for (int fused = 0; fused < 2; fused++) {
        int sums = 0;
        x->framework.kernels.cross_entropy = fused ? DTP_LOSS_FUSED : DTP_LOSS_COMPILED;
        dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_HEAD, &x->ops);
        expect(x, "cross-entropy", F, (fused ? 2 + 2 : 6 + 8 + 8) * logits);
        expect(x, "cross-entropy", I, (fused ? 2 + 2 : 8 + 2) * logits);
        near(moved(x, "tp loss", F, &sums), (fused ? 3 : 2) * 4 * s);
        CU_ASSERT(sums == (fused ? 3 : 2));
    }
    dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_EMBEDDING, &x->ops);
    expect(x, "token rows", F, 2 * 2 * s * x->model.hidden);
    expect(x, "row gradients", W, 3 * 2 * s * x->model.hidden);
}

/* Four products of a layer are cast to FP8, inputs and output gradients, on each of two ranks its columns or rows. With
 * sequence parallelism a rank casts half the tokens of what is gathered next: inputs of qkv and fc1, output gradients of
 * projection and fc2, whatever the MLP's width. */
static void test_casts(void) {
    struct fixture *x = op_case("gpt3-1.3b", "megatron-core");
    double s = x->model.seq, h = x->model.hidden;
    x->plan.tp = 2;
    x->plan.dtype = DTP_FP8;
    x->framework.kernels.fp8_cast_bytes = 1;
    for (int width = 1; width <= 4; width++)
        for (int sp = 0; sp < 2; sp++) {
            double part = sp ? 0.5 : 1, f = width * h;
            x->model.ffn = (int)f;
            x->plan.sequence_parallel = sp;
            dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_DENSE, &x->ops);
            expect(x, "fp8 cast", F, s * (part * h + h / 2 + part * h + f / 2));
            expect(x, "fp8 cast", I, s * (3 * h / 2 + part * h + f / 2 + part * h));
        }
}

/* TransformerEngine by tensors, two ranks: norms write a byte for two; what they wrote and what was gathered is transposed on
 * its own on Hopper and sm_120, nothing on sm_100, where casts write one copy. Current scales are of what the norm has written. */
static void test_casts_of_modules(void) {
    struct fixture *x = op_case("gpt3-1.3b", "megatron-core");
    double s = x->model.seq, h = x->model.hidden, f = x->model.ffn, n = s * h, half = n / 2;
    x->plan.tp = 2;
    x->plan.dtype = DTP_FP8;
    x->plan.sequence_parallel = true;
    static const char *const archs[] = {"sm_90", "sm_120", "sm_100"};
    for (int i = 0; i < 3; i++) {
        bool blackwell = i == 2;
        double both = blackwell ? 3 : 4;
        x->cluster.gpu.arch = archs[i];
        x->framework.kernels.fp8_recipe = DTP_FP8_DELAYED;
        dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_DENSE, &x->ops);
        expect(x, "norm 1", F, (2 + 1) * half);
        expect(x, "fp8 cast", F, both * s * (h + f) / 2);
        expect(x, "fp8 cast", I, 2 * 3 * half + both * s * (3 * h + f) / 2);
        expect(x, "fp8 transpose", W, blackwell ? 0 : 2 * 4 * n);
        x->framework.kernels.fp8_recipe = DTP_FP8_CURRENT;
        dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_DENSE, &x->ops);
        expect(x, "norm 1", F, (2 + 2) * half);
        expect(x, "fp8 cast", F, 2 * 5 * half + (2 + both) * s * (h + f) / 2);
    }
    x->framework.kernels.fp8_recipe = DTP_FP8_DELAYED;
    x->cluster.gpu.arch = "sm_90";
    x->plan.sequence_parallel = false; /* nothing is gathered: what norms wrote alone */
    dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_DENSE, &x->ops);
    expect(x, "fp8 transpose", W, 2 * 2 * n);
}

/* Products of several experts: a gradient takes the FLOPs of the forward, of the input and of the weights; where half
 * of the experts are elsewhere, the fullest rank's load grows by the excess over the root of its four. */
static void test_experts(void) {
    struct fixture *x = op_case("mixtral-8x7b", "megatron-core");
    double h = x->model.hidden, n = x->model.seq, topk = x->model.moe.top_k;
    x->plan.ep = x->plan.dp = 2;
    x->framework.kernels.moe_imbalance = 1.5;
    dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_MOE, &x->ops);
    double products[3] = {0};
    for (int i = 0; i < x->ops.n; i++)
        if (x->ops.at[i].kind == DTP_OP_GEMM)
            products[x->ops.at[i].pass] += dtp_op_flops(&x->ops.at[i]);
    near(products[I], products[F]);
    near(products[W], products[F]);
    expect(x, "ep dispatch", F, 2 * n * topk * h * (1 + 0.5 / 2));
}

/* What follows a block by kernels of its own: bias 4 z, dropout with a mask of one byte 5 z, sum 6 z; each twice. */
static void test_parts_of_residual(void) {
    struct fixture *x = op_case("gpt3-1.3b", "megatron-core");
    double z = (double)x->model.seq * x->model.hidden;
    x->framework.kernels.fused_bias_dropout_add = x->framework.kernels.fused_linear_bias = false;
    x->framework.kernels.dropout = true;
    x->model.dropout = 0.1;
    dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_DENSE, &x->ops);
    expect(x, "bias", F, 2 * 4 * z);
    expect(x, "dropout", F, 2 * 5 * z);
    expect(x, "residual add", F, 2 * 6 * z);
    expect(x, "bias dropout add", F, 0);
}

static double dense_params(const struct fixture *x) {
    struct dtp_param_counts n;
    dtp_model_params(&x->model, x->model.vocab, &n);
    return (double)n.dense_layer;
}

/* Gradients of several microbatches: in the product's epilogue the sum is read; by a kernel of its own the new ones
 * in 16 bit are, too, and the sum is written (Narayanan 2021: 6 bytes a parameter in 16 bit). */
static void test_accumulation(void) {
    struct fixture *x = op_case("gpt3-1.3b", "megatron-core");
    double params = dense_params(x);
    for (int fp32 = 0; fp32 < 2; fp32++)
        for (int fused = 0; fused < 2; fused++)
            for (int m = 1; m <= 8; m += 7) {
                x->framework.kernels.fp32_gradient_accumulation = fp32;
                x->framework.kernels.fused_gradient_accumulation = fused;
                x->plan.dp = 8 / m;
                dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_DENSE, &x->ops);
                double sum = fp32 ? 4 : 2;
                expect(x, "gradient add in GEMM", W, fused ? sum * params : 0);
                expect(x, "gradient add", W, fused || m == 1 ? 0 : (2 + 2 * sum) * params);
            }
}

/* ZeRO-3 copies what it gathered, in the forward and, where it gathers again, in the backward, unless a recomputed
 * forward has it; and gradients into the buffer that is reduced. ZeRO-1 copies once a step. */
static void test_zero_copies(void) {
    struct fixture *x = op_case("gpt3-1.3b", "megatron-core");
    double params = dense_params(x);
    x->framework.wire.zero3_copy_out_bytes = 3;
    x->framework.wire.zero3_copy_in_bytes = 5;
    x->framework.quirks.zero_pieces.zero_copy_bytes = 7;
    x->framework.wire.zero3_regather_backward = true;
    x->plan.dp = 2; /* four microbatches */
    x->plan.zero_stage = 3;
    for (int full = 0; full < 2; full++) {
        x->plan.recompute = full ? DTP_RECOMPUTE_FULL : DTP_RECOMPUTE_NONE;
        dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_DENSE, &x->ops);
        expect(x, "unshard copy", F, 3 * params);
        expect(x, "unshard copy", I, full ? 0 : 3 * params);
        expect(x, "reduce copy", W, 5 * params);
    }
    x->plan.zero_stage = 1;
    dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_DENSE, &x->ops);
    expect(x, "unshard copy", F, 0);
    expect(x, "reduce copy", W, 7 * params / 4);
}

/* n tokens of h elements, k experts for each of E: softmax and choice of n E fp32 numbers; rows gathered back, weighed in
 * fp32 and summed, and in the backward the weights' gradient from rows and the gradient of the sum. */
static void test_rows_gathered_back(void) {
    struct fixture *x = op_case("mixtral-8x7b", "torch-fsdp2");
    double own = (double)x->model.seq * x->model.hidden, rows = x->model.moe.top_k * own;
    double scores = (double)x->model.seq * x->model.moe.experts;
    CU_ASSERT(x->framework.kernels.moe_gathers_rows);
    dtp_ops_layer(&x->problem, &x->plan, DTP_LAYER_MOE, &x->ops);
    expect(x, "router softmax and top-k", F, 32 * scores);
    expect(x, "router softmax and top-k", I, 16 * scores);
    expect(x, "weigh rows", F, (2 + 4) * rows);
    expect(x, "sum of rows", F, 4 * rows + 2 * own);
    expect(x, "weigh rows", I, 2 * rows + 4 * own);
    expect(x, "weights' gradient", I, (2 + 4) * rows + 4 * own + 4 * rows);
    expect(x, "unpermute", F, 4 * rows);
    expect(x, "unpermute", I, 4 * rows);
}

int main(void) {
    CU_TestInfo tests[] = {{"norms and residuals", test_norm_and_residual},
                           {"parts of a residual", test_parts_of_residual},
                           {"accumulation", test_accumulation},
                           {"copies of ZeRO", test_zero_copies},
                           {"rows gathered back", test_rows_gathered_back},
                           {"a norm by operators", test_operators_of_norm},
                           {"a norm in fp32", test_converted_norm},
                           {"activations", test_activation},
                           {"keys and values in a ring", test_ring},
                           {"documents", test_documents},
                           {"scores in memory", test_scores},
                           {"latent attention", test_mla},
                           {"embedding and loss", test_ends},
                           {"casts to FP8", test_casts},
                           {"casts of modules with norms", test_casts_of_modules},
                           {"products of experts", test_experts},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"bytes", setup, teardown, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
