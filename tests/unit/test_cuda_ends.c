/* Training on GPUs: losses with CUDA graphs are those without; and how runs end that fail. Two ranks share a
 * GPU where there is one, and NCCL lets them. Without a GPU it says so and skips. */
#include <stdlib.h>
#include <string.h>

#include "tests/cuda_runs.h"

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
            if (!on)
                setenv("DTPLAN_CUDA_GRAPHS", "0", 1);
            status = dtp_run(arena, &o, &r[on], &err);
            unsetenv("DTPLAN_CUDA_GRAPHS");
        }
        if (cannot_share(&err))
            continue;
        bool same =
            status == DTP_OK && memcmp(r[0].loss, r[1].loss, STEPS * sizeof *r[0].loss) == 0;
        printf("%s %-30s", same ? "    " : "FAIL", cases[i].name);
        if (status == DTP_OK)
            printf(" %d graphs, %.2f of the operations; step %.2f ms, without %.2f ms", r[1].graphs,
                   r[1].graph_share, r[1].best_step_s * 1e3, r[0].best_step_s * 1e3);
        printf(" %s\n", err.msg);
        CU_ASSERT(same);
        CU_ASSERT(status != DTP_OK || (r[1].graph_share > 0.9 && r[0].graphs == 0));
    }
    unsetenv("DTPLAN_CUDA_ATTENTION");
    unsetenv("DTPLAN_CUDA_TUNE");
}

/* A rank that dies, one that hangs, a GPU that fails: the job ends, and names rank and action, also where
 * the host is at another action when it learns of it, and where the others wait within a graph. */
static void expect_failure(enum dtp_fault fault, int tp, const char *says) {
    struct dtp_run_options o = options(&gpt, "cuda", DTP_BF16);
    struct dtp_run_result r;
    struct dtp_err err = {0};
    o.plan.tp = tp;
    o.plan.dp = 2 / tp;
    o.fault = fault;
    o.fault_rank = 1;
    o.fault_step = 4;
    o.timeout_s = 6;
    enum dtp_status status = dtp_run(arena, &o, &r, &err);
    if (cannot_share(&err))
        return;
    printf("     tp %d: %s\n", tp, err.msg);
    fflush(stdout);
    CU_ASSERT_NOT_EQUAL(status, DTP_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, says));
}

static void test_faults(void) {
    for (int tp = 2; tp >= 1; tp--) {
        expect_failure(DTP_FAULT_HANG, tp, "rank 1 hangs in 0F0 of step 4");
        /* whichever call learns of it */
        expect_failure(DTP_FAULT_ADDRESS, tp, "rank 1 in 0F0 of step 4: ");
        expect_failure(DTP_FAULT_KILL, tp, "rank 1 died in 0F0 of step 4");
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

/* Without being asked to, no two ranks share a GPU. */
static void test_too_few_gpus(void) {
    struct dtp_run_options o = options(&gpt, "cuda", DTP_FP32);
    struct dtp_run_result r;
    struct dtp_err err = {0};
    const char *each = getenv("DTPLAN_CUDA_RANKS_PER_GPU");
    if (!each || strcmp(each, "1") == 0)
        return; /* there are two */
    unsetenv("DTPLAN_CUDA_RANKS_PER_GPU");
    o.plan.dp = 2;
    CU_ASSERT_EQUAL(dtp_run(arena, &o, &r, &err), DTP_EUNSUPPORTED);
    printf("     %s\n", err.msg);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, "needs a GPU for each rank: this host has 1"));
    setenv("DTPLAN_CUDA_RANKS_PER_GPU", "many", 1);
    CU_ASSERT_EQUAL(dtp_run(arena, &o, &r, &err), DTP_EINPUT);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, "DTPLAN_CUDA_RANKS_PER_GPU is many, expected 1"));
    share_gpus(2);
}

int main(void) {
    CU_TestInfo tests[] = {{"faults", test_faults},
                           {"too few GPUs", test_too_few_gpus},
                           {"out of memory", test_out_of_memory_names_tensor_and_action},
                           {"graphs", test_graphs},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"graphs and failures on cuda", NULL, NULL, NULL, NULL, tests},
                             CU_SUITE_INFO_NULL};
    struct dtp_err err = {0};
    if (read_models(&err) != DTP_OK) {
        printf("%s\n", err.msg);
        return 1;
    }
    bool none = no_cuda();
    if (!none)
        share_gpus(2);
    int status = none ? SKIP : run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
