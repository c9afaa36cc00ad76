/* Training on GPUs against the serial run on the CPU: the same seed and data give the same losses.
 * Stated tolerance on the mean loss of each of the first 20 steps: fp32 1e-3; bf16 (weights rounded to
 * 8 bits, fp32 master copies) 2e-2, where an untrained model has a loss of ln 512 = 6.2. Two and four ranks
 * share GPUs where there are fewer. Without a GPU it says so and skips. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda_runs.h"

static const double *gpt_loss, *llama_loss, *drop_loss; /* serial, on the CPU; GPT with dropout */
static const double dropout = 0.1;

static const double *serial_losses(const struct dtp_model *m, double p) {
    struct dtp_run_options o = options(m, "cpu", DTP_FP32);
    struct dtp_run_result r;
    struct dtp_err err = {0};
    o.dropout = o.attention_dropout = p;
    if (dtp_run(arena, &o, &r, &err) != DTP_OK)
        printf("%s\n", err.msg);
    return r.loss;
}

/* Runs of one dtype, in the same processes, with what their losses may differ by. */
enum { MOST_RUNS = 32 };
struct batch {
    struct dtp_run_options o[MOST_RUNS];
    const char *name[MOST_RUNS];
    size_t n;
    double most;
};

static void add(struct batch *b, const char *name, const struct dtp_run_options *o) {
    b->name[b->n] = name;
    b->o[b->n++] = *o;
}

static void compare(void *context, size_t i, const struct dtp_run_result *r,
                    const struct dtp_err *failure) {
    const struct batch *b = context;
    const double *expected = b->o[i].dropout > 0     ? drop_loss
                             : b->o[i].model == &gpt ? gpt_loss
                                                     : llama_loss;
    const char *dtype = dtp_dtype_names[b->o[i].plan.dtype];
    double worst = 0;
    if (failure && cannot_share(failure)) {
        printf("     %s %-30s skipped: %s\n", dtype, b->name[i], failure->msg);
        return;
    }
    for (int k = 0; k < STEPS && r; k++)
        worst = fmax(worst, fabs(r->loss[k] - expected[k]));
    bool good = r && worst <= b->most;
    printf("%s %s %-30s losses within %.2e, step %.2f ms %s\n", good ? "    " : "FAIL", dtype,
           b->name[i], worst, r ? r->step_s * 1e3 : 0, failure ? failure->msg : "");
    fflush(stdout);
    CU_ASSERT(good);
}

static void run_batch(struct batch *b) {
    const struct dtp_run_series s = {.options = b->o, .n = b->n, .done = compare, .context = b};
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL(dtp_run_series(arena, &s, &err), DTP_OK);
}

static const enum dtp_dtype dtypes[] = {DTP_BF16, DTP_FP32};
static const double within[] = {2e-2, 1e-3};

static void test_one_gpu(void) {
    const struct dtp_model *const models[] = {&gpt, &llama};
    for (int d = 0; d < 2; d++) {
        struct batch b = {.most = within[d]};
        for (int i = 0; i < 2; i++)
            for (int again = DTP_RECOMPUTE_NONE; again <= DTP_RECOMPUTE_FULL; again++) {
                struct dtp_run_options o = options(models[i], "cuda", dtypes[d]);
                o.plan.recompute = (enum dtp_recompute)again;
                add(&b, dtp_recompute_names[again], &o);
                o.dropout = o.attention_dropout = dropout;
                if (models[i] == &gpt)
                    add(&b, "with dropout", &o);
            }
        run_batch(&b);
    }
}

struct layout {
    const char *name;
    int tp, pp, dp, vpp, zero_stage;
    bool sequence_parallel;
    int schedule, recompute;
    bool drops; /* GPT */
};

static void run_layouts(const struct layout *cases, size_t n) {
    for (int d = 0; d < 2; d++) {
        struct batch b = {.most = within[d]};
        for (size_t i = 0; i < n; i++) {
            struct dtp_run_options o =
                options(i % 2 && !cases[i].drops ? &llama : &gpt, "cuda", dtypes[d]);
            o.dropout = o.attention_dropout = cases[i].drops ? dropout : 0;
            o.plan.tp = cases[i].tp;
            o.plan.pp = cases[i].pp;
            o.plan.dp = cases[i].dp;
            o.plan.vpp = cases[i].vpp;
            o.plan.zero_stage = cases[i].zero_stage;
            o.plan.sequence_parallel = cases[i].sequence_parallel;
            o.plan.schedule = cases[i].schedule;
            o.plan.recompute = (enum dtp_recompute)cases[i].recompute;
            add(&b, cases[i].name, &o);
        }
        run_batch(&b);
    }
}

static void test_two_ranks(void) {
    static const struct layout cases[] = {
        {"tp 2", 2, 1, 1, 1, 0, false, DTP_SCHED_1F1B, 0},
        {"tp 2 sequence parallel", 2, 1, 1, 1, 0, true, DTP_SCHED_1F1B, 0},
        {"tp 2 sp, selective", 2, 1, 1, 1, 0, true, DTP_SCHED_1F1B, 1},
        {"tp 2 sp, full", 2, 1, 1, 1, 0, true, DTP_SCHED_1F1B, 2},
        {"pp 2 1f1b", 1, 2, 1, 1, 0, false, DTP_SCHED_1F1B, 0},
        {"pp 2 gpipe", 1, 2, 1, 1, 0, false, DTP_SCHED_GPIPE, 0},
        {"pp 2 interleaved", 1, 2, 1, 2, 0, false, DTP_SCHED_INTERLEAVED, 0},
        {"pp 2 interleaved, full", 1, 2, 1, 2, 0, false, DTP_SCHED_INTERLEAVED, 2},
        {"pp 2 zb-h1", 1, 2, 1, 1, 0, false, DTP_SCHED_ZB_H1, 0},
        {"pp 2 zb-v", 1, 2, 1, 2, 0, false, DTP_SCHED_ZB_V, 0},
        {"dp 2", 1, 1, 2, 1, 0, false, DTP_SCHED_1F1B, 0},
        {"dp 2 zero 1", 1, 1, 2, 1, 1, false, DTP_SCHED_1F1B, 0},
        {"dp 2 zero 2", 1, 1, 2, 1, 2, false, DTP_SCHED_1F1B, 1},
        {"dp 2 zero 3", 1, 1, 2, 1, 3, false, DTP_SCHED_1F1B, 0},
        {"dp 2 zero 3, full", 1, 1, 2, 1, 3, false, DTP_SCHED_1F1B, 2},
        {"tp 2, dropout", 2, 1, 1, 1, 0, false, DTP_SCHED_1F1B, 1, true},
        {"tp 2 sp, dropout", 2, 1, 1, 1, 0, true, DTP_SCHED_1F1B, 0, true},
        {"pp 2 zb-h1, dropout", 1, 2, 1, 1, 0, false, DTP_SCHED_ZB_H1, 0, true},
        {"dp 2 zero 3, full, dropout", 1, 1, 2, 1, 3, false, DTP_SCHED_1F1B, 2, true},
    };
    share_gpus(2);
    run_layouts(cases, sizeof cases / sizeof cases[0]);
}

/* Two or three kinds of parallelism at once, and pipelines whose stages have two neighbours. */
static void test_four_ranks(void) {
    static const struct layout cases[] = {
        {"pp 4 1f1b", 1, 4, 1, 1, 0, false, DTP_SCHED_1F1B, 0},
        {"pp 4 gpipe, full", 1, 4, 1, 1, 0, false, DTP_SCHED_GPIPE, 2},
        {"pp 4 zb-h1", 1, 4, 1, 1, 0, false, DTP_SCHED_ZB_H1, 0},
        {"pp 2 dp 2 interleaved, zero 1", 1, 2, 2, 2, 1, false, DTP_SCHED_INTERLEAVED, 0},
        {"pp 2 dp 2 zb-h1", 1, 2, 2, 1, 0, false, DTP_SCHED_ZB_H1, 0},
        {"tp 2 sp pp 2", 2, 2, 1, 1, 0, true, DTP_SCHED_1F1B, 0},
        {"tp 2 pp 2 interleaved", 2, 2, 1, 2, 0, false, DTP_SCHED_INTERLEAVED, 1},
        {"tp 2 dp 2 zero 3", 2, 1, 2, 1, 3, false, DTP_SCHED_1F1B, 0},
        {"tp 2 sp dp 2 zero 1, full", 2, 1, 2, 1, 1, true, DTP_SCHED_1F1B, 2},
        {"dp 4 zero 2", 1, 1, 4, 1, 2, false, DTP_SCHED_1F1B, 0},
        {"dp 4 zero 3", 1, 1, 4, 1, 3, false, DTP_SCHED_1F1B, 0},
        {"tp 2 sp pp 2, dropout", 2, 2, 1, 1, 0, true, DTP_SCHED_1F1B, 0, true},
    };
    share_gpus(4);
    run_layouts(cases, sizeof cases / sizeof cases[0]);
}

int main(void) {
    CU_TestInfo tests[] = {{"one GPU", test_one_gpu},
                           {"two ranks", test_two_ranks},
                           {"four ranks", test_four_ranks},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"training on cuda", NULL, NULL, NULL, NULL, tests},
                             CU_SUITE_INFO_NULL};
    struct dtp_err err = {0};
    if (read_models(&err) != DTP_OK) {
        printf("%s\n", err.msg);
        return 1;
    }
    if (no_cuda()) {
        dtp_arena_destroy(arena);
        return SKIP;
    }
    gpt_loss = serial_losses(&gpt, 0);
    llama_loss = serial_losses(&llama, 0);
    drop_loss = serial_losses(&gpt, dropout);
    if (!gpt_loss || !llama_loss || !drop_loss)
        return 1;
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
