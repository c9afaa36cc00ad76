/* Training on GPUs against the serial run on the CPU: the same seed and data give the same losses.
 * Stated tolerance on the mean loss of each of the first 20 steps: fp32 1e-3; bf16 (weights rounded to
 * 8 bits, fp32 master copies) 2e-2, where an untrained model has a loss of ln 512 = 6.2. Layouts of
 * several ranks run where there are as many GPUs. Ranks are forked, so this program makes no CUDA call
 * itself. Without a GPU it says so and skips. */
#include <math.h>
#include <string.h>

#include <CUnit/Basic.h>

#include "runtime/run.h"
#include "tests/suites.h"

enum { SKIP = 77, STEPS = 20, SEQ = 128 };

static struct dtp_arena *arena;
static struct dtp_model gpt, llama;
static const double *gpt_loss, *llama_loss; /* serial, on the CPU */

static const char gpt_json[] =
    "{\"family\": \"gpt\", \"source\": \"a test\", \"layers\": 4, \"hidden\": 256, \"heads\": 4,"
    " \"vocab\": 512, \"seq\": 128, \"global_batch\": 8}";
static const char llama_json[] =
    "{\"family\": \"llama\", \"source\": \"a test\", \"layers\": 4, \"hidden\": 256, \"heads\": 4,"
    " \"kv_heads\": 2, \"ffn\": 512, \"vocab\": 512, \"seq\": 128, \"global_batch\": 8}";

static enum dtp_status read_model(const char *text, struct dtp_model *out, struct dtp_err *err) {
    const struct dtp_json *j;
    DTP_TRY(dtp_json_parse(arena, "test", text, strlen(text), &j, err));
    return dtp_model_read(arena, j, out, err);
}

static struct dtp_run_options options(const struct dtp_model *m, const char *backend,
                                      enum dtp_dtype dtype) {
    struct dtp_run_options o = dtp_run_options_default();
    o.model = m;
    o.backend = backend;
    o.seq = SEQ;
    o.steps = STEPS;
    o.memory_bytes = UINT64_C(1) << 30;
    o.plan.dtype = dtype;
    o.plan.global_batch_size = 8;
    o.plan.microbatch_size = 2;
    return o;
}

static const double *serial_losses(const struct dtp_model *m) {
    struct dtp_run_options o = options(m, "cpu", DTP_FP32);
    struct dtp_run_result r;
    struct dtp_err err = {0};
    if (dtp_run(arena, &o, &r, &err) != DTP_OK)
        printf("%s\n", err.msg);
    return r.loss;
}

static void run_and_compare(const char *name, const struct dtp_run_options *o, double most) {
    struct dtp_run_result r;
    struct dtp_err err = {0};
    const double *expected = o->model == &gpt ? gpt_loss : llama_loss;
    enum dtp_status status = dtp_run(arena, o, &r, &err);
    if (status == DTP_EUNSUPPORTED && strstr(err.msg, "needs a GPU for each rank")) {
        printf("     %-32s skipped: %s\n", name, err.msg);
        return;
    }
    double worst = status == DTP_OK ? 0 : (double)NAN;
    for (int i = 0; i < STEPS && status == DTP_OK; i++)
        worst = fmax(worst, fabs(r.loss[i] - expected[i]));
    printf("%s %-32s losses within %.2e, last %.4f, step %.2f ms %s\n",
           worst <= most ? "    " : "FAIL", name, worst, status == DTP_OK ? r.loss[STEPS - 1] : 0,
           status == DTP_OK ? r.step_s * 1e3 : 0, err.msg);
    CU_ASSERT(worst <= most);
}

static const double fp32_within = 1e-3, bf16_within = 2e-2;

static void test_one_gpu(void) {
    const struct dtp_model *const models[] = {&gpt, &llama};
    for (int i = 0; i < 2; i++) {
        struct dtp_run_options o = options(models[i], "cuda", DTP_FP32);
        run_and_compare(i ? "llama fp32" : "gpt fp32", &o, fp32_within);
        o = options(models[i], "cuda", DTP_BF16);
        run_and_compare(i ? "llama bf16" : "gpt bf16", &o, bf16_within);
        o.plan.recompute = DTP_RECOMPUTE_SELECTIVE;
        run_and_compare(i ? "llama bf16 selective" : "gpt bf16 selective", &o, bf16_within);
        o.plan.recompute = DTP_RECOMPUTE_FULL;
        run_and_compare(i ? "llama bf16 full" : "gpt bf16 full", &o, bf16_within);
    }
}

static void test_two_gpus(void) {
    static const struct {
        const char *name;
        int tp, pp, dp, vpp, zero_stage;
        bool sequence_parallel;
        int schedule;
    } cases[] = {
        {"tp 2", 2, 1, 1, 1, 0, false, DTP_SCHED_1F1B},
        {"tp 2 sequence parallel", 2, 1, 1, 1, 0, true, DTP_SCHED_1F1B},
        {"pp 2 1f1b", 1, 2, 1, 1, 0, false, DTP_SCHED_1F1B},
        {"pp 2 gpipe", 1, 2, 1, 1, 0, false, DTP_SCHED_GPIPE},
        {"pp 2 interleaved", 1, 2, 1, 2, 0, false, DTP_SCHED_INTERLEAVED},
        {"pp 2 zb-h1", 1, 2, 1, 1, 0, false, DTP_SCHED_ZB_H1},
        {"dp 2", 1, 1, 2, 1, 0, false, DTP_SCHED_1F1B},
        {"dp 2 zero 1", 1, 1, 2, 1, 1, false, DTP_SCHED_1F1B},
        {"dp 2 zero 2", 1, 1, 2, 1, 2, false, DTP_SCHED_1F1B},
        {"dp 2 zero 3", 1, 1, 2, 1, 3, false, DTP_SCHED_1F1B},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dtp_run_options o = options(i % 2 ? &llama : &gpt, "cuda", DTP_BF16);
        o.plan.tp = cases[i].tp;
        o.plan.pp = cases[i].pp;
        o.plan.dp = cases[i].dp;
        o.plan.vpp = cases[i].vpp;
        o.plan.zero_stage = cases[i].zero_stage;
        o.plan.sequence_parallel = cases[i].sequence_parallel;
        o.plan.schedule = cases[i].schedule;
        run_and_compare(cases[i].name, &o, bf16_within);
        o.plan.dtype = DTP_FP32;
        run_and_compare(cases[i].name, &o, fp32_within);
    }
}

static void test_out_of_memory_names_tensor_and_action(void) {
    struct dtp_run_options o = options(&gpt, "cuda", DTP_BF16);
    struct dtp_run_result r;
    struct dtp_err err = {0};
    o.memory_bytes = UINT64_C(72) << 20; /* room for weights and optimizer, not for activations */
    CU_ASSERT_EQUAL(dtp_run(arena, &o, &r, &err), DTP_ENOMEM);
    printf("     %s\n", err.msg);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, "out of memory"));
}

int main(void) {
    CU_TestInfo tests[] = {{"one GPU", test_one_gpu},
                           {"two GPUs", test_two_gpus},
                           {"out of memory", test_out_of_memory_names_tensor_and_action},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"training on cuda", NULL, NULL, NULL, NULL, tests},
                             CU_SUITE_INFO_NULL};
    struct dtp_err err = {0};
    struct dtp_run_result r;
    arena = dtp_arena_create("test");
    if (read_model(gpt_json, &gpt, &err) != DTP_OK ||
        read_model(llama_json, &llama, &err) != DTP_OK) {
        printf("%s\n", err.msg);
        return 1;
    }
    struct dtp_run_options o = options(&gpt, "cuda", DTP_BF16);
    o.steps = 1;
    if (dtp_run(arena, &o, &r, &err) == DTP_EUNSUPPORTED) {
        printf("skipped: %s\n", err.msg);
        dtp_arena_destroy(arena);
        return SKIP;
    }
    gpt_loss = serial_losses(&gpt);
    llama_loss = serial_losses(&llama);
    if (!gpt_loss || !llama_loss)
        return 1;
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
