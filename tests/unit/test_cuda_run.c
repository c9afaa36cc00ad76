/* Training on GPUs against the serial run on the CPU: the same seed and data give the same losses.
 * Stated tolerance on the mean loss of each of the first 20 steps: fp32 1e-3; bf16 (weights rounded to
 * 8 bits, fp32 master copies) 2e-2, where an untrained model has a loss of ln 512 = 6.2. Layouts of
 * several ranks run where there are as many GPUs. Ranks are forked, so this program makes no CUDA call
 * itself. Without a GPU it says so and skips. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <CUnit/Basic.h>

#include "runtime/run.h"
#include "tests/suites.h"

enum { SKIP = 77, STEPS = 20, SEQ = 128 };

static struct dtp_arena *arena;
static struct dtp_model gpt, llama;
static const double *gpt_loss, *llama_loss, *drop_loss; /* serial, on the CPU; GPT with dropout */
static const double dropout = 0.1;

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
    if (failure && strstr(failure->msg, "needs a GPU for each rank")) {
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

static void test_two_gpus(void) {
    static const struct {
        const char *name;
        int tp, pp, dp, vpp, zero_stage;
        bool sequence_parallel;
        int schedule, recompute;
        bool drops; /* GPT */
    } cases[] = {
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
    for (int d = 0; d < 2; d++) {
        struct batch b = {.most = within[d]};
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
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

/* Losses with CUDA graphs are those without, bit by bit, where the attention's backward has an order. */
static void test_graphs(void) {
    static const struct {
        const char *name;
        int tp, pp, dp, zero_stage;
        bool sequence_parallel;
    } cases[] = {{"one GPU", 1, 1, 1, 0, false},
                 {"tp 2", 2, 1, 1, 0, false},
                 {"tp 2 sequence parallel", 2, 1, 1, 0, true},
                 {"pp 2", 1, 2, 1, 0, false},
                 {"dp 2 zero 1", 1, 1, 2, 1, false},
                 {"dp 2 zero 3", 1, 1, 2, 3, false}};
    setenv("DTPLAN_CUDA_ATTENTION", "exact", 1);
    setenv("DTPLAN_CUDA_TUNE", "0",
           1); /* the kernels of a product may not differ from run to run */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dtp_run_options o = options(i % 2 ? &llama : &gpt, "cuda", DTP_BF16);
        struct dtp_run_result r[2];
        struct dtp_err err = {0};
        enum dtp_status status = DTP_OK;
        o.plan.tp = cases[i].tp;
        o.plan.pp = cases[i].pp;
        o.plan.dp = cases[i].dp;
        o.plan.zero_stage = cases[i].zero_stage;
        o.plan.sequence_parallel = cases[i].sequence_parallel;
        for (int on = 0; status == DTP_OK && on < 2; on++) {
            setenv("DTPLAN_CUDA_GRAPHS", on ? "1" : "0", 1);
            status = dtp_run(arena, &o, &r[on], &err);
        }
        unsetenv("DTPLAN_CUDA_GRAPHS");
        if (strstr(err.msg, "needs a GPU for each rank"))
            continue;
        bool same =
            status == DTP_OK && memcmp(r[0].loss, r[1].loss, STEPS * sizeof *r[0].loss) == 0;
        printf("%s %-30s", same ? "    " : "FAIL", cases[i].name);
        if (status == DTP_OK)
            printf(" %d graphs, %.2f of the operations; step %.2f ms, without %.2f ms", r[1].graphs,
                   r[1].graph_share, r[1].best_step_s * 1e3, r[0].best_step_s * 1e3);
        printf(" %s\n", err.msg);
        CU_ASSERT(same);
        CU_ASSERT(status != DTP_OK || (r[1].graph_share > 0.3 && r[0].graphs == 0));
    }
    unsetenv("DTPLAN_CUDA_ATTENTION");
    unsetenv("DTPLAN_CUDA_TUNE");
}

/* A rank that dies, one that hangs, a GPU that fails: the job ends, and names rank and action, also where
 * the host is at another action when it learns of it. */
static void test_faults(void) {
    static const struct {
        enum dtp_fault fault;
        const char *says;
    } cases[] = {{DTP_FAULT_KILL, "rank 1 died in 0F0 of step 2"},
                 {DTP_FAULT_HANG, "rank 1 hangs in 0F0 of step 2"},
                 {DTP_FAULT_ADDRESS, "rank 1 in 0F0 of step 2: CUDA: "}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dtp_run_options o = options(&gpt, "cuda", DTP_BF16);
        struct dtp_run_result r;
        struct dtp_err err = {0};
        o.plan.dp = 2;
        o.fault = cases[i].fault;
        o.fault_rank = 1;
        o.fault_step = 2;
        o.timeout_s = 6;
        enum dtp_status status = dtp_run(arena, &o, &r, &err);
        if (strstr(err.msg, "needs a GPU for each rank"))
            return;
        printf("     %s\n", err.msg);
        CU_ASSERT_NOT_EQUAL(status, DTP_OK);
        CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, cases[i].says));
    }
}

static void test_out_of_memory_names_tensor_and_action(void) {
    struct dtp_run_options o = options(&gpt, "cuda", DTP_BF16);
    struct dtp_run_result r;
    struct dtp_err err = {0};
    o.memory_bytes = UINT64_C(60) << 20; /* room for weights and optimizer, not for activations */
    CU_ASSERT_EQUAL(dtp_run(arena, &o, &r, &err), DTP_ENOMEM);
    printf("     %s\n", err.msg);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, "out of memory"));
}

int main(void) {
    CU_TestInfo tests[] = {{"one GPU", test_one_gpu},
                           {"two GPUs", test_two_gpus},
                           {"graphs", test_graphs},
                           {"faults", test_faults},
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
    gpt_loss = serial_losses(&gpt, 0);
    llama_loss = serial_losses(&llama, 0);
    drop_loss = serial_losses(&gpt, dropout);
    if (!gpt_loss || !llama_loss || !drop_loss)
        return 1;
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
