/* Alignment: by name with one task slower, one missing and one more; by kind between kernels and
 * operations; what is named first and what contributes most. */
#include <CUnit/Basic.h>
#include <stdlib.h>
#include <string.h>

#include "tests/suites.h"
#include "traces/tasks/diff.h"

static struct dtp_arena *arena;

struct one {
    const char *name, *category;
    double start_s, end_s;
    int class, op;
};

static struct dtp_tasks *make(const char *from, const struct one *v, size_t n) {
    struct dtp_tasks *t = dtp_tasks_create(arena, from, "test");
    dtp_tasks_rank(t, 0, "rank 0");
    for (size_t i = 0; i < n; i++) {
        struct dtp_tasks_task k = {.name = v[i].name,
                                   .category = v[i].category,
                                   .stream = "compute",
                                   DTP_TASKS_UNSAID,
                                   .class = v[i].class,
                                   .start_s = v[i].start_s,
                                   .end_s = v[i].end_s};
        k.op = v[i].op;
        dtp_tasks_add(t, &k);
    }
    return t;
}
#define MAKE(from, v) make(from, v, sizeof v / sizeof *v)

static struct dtp_diff diff(const struct dtp_tasks *x, const struct dtp_tasks *y) {
    const struct dtp_tasks *const side[2] = {x, y};
    const int step[2] = {-1, -1};
    struct dtp_diff d;
    struct dtp_err err = {0};
    CU_ASSERT_FATAL(dtp_diff(arena, side, step, &d, &err) == DTP_OK);
    return d;
}

enum { C = DTP_CLASS_COMPUTE, N = DTP_CLASS_COMM, U = DTP_COMM_UNKNOWN };

static void test_names(void) {
    static const struct one a[] = {{"0F0", "F", 0, 1, C, U},
                                   {"0F1", "F", 1, 2, C, U},
                                   {"0B0", "B", 2, 4, C, U},
                                   {"0B1", "B", 4, 6, C, U},
                                   {"optimizer", "optimizer", 6, 7, C, U}};
    static const struct one b[] = {{"0F0", "F", 0, 1, C, U},
                                   {"0B0", "B", 1, 4, C, U},
                                   {"0B1", "B", 4, 6, C, U},
                                   {"0O0", "O", 6, 7, C, U}};
    struct dtp_diff d = diff(MAKE("simulation", a), MAKE("run", b));
    CU_ASSERT(d.mode == DTP_DIFF_NAMES && d.nranks == 1);
    CU_ASSERT(d.npaired == 4 && d.nonly[0] == 1 && d.nonly[1] == 0);
    CU_ASSERT(d.order.found && strcmp(d.order.task[0]->name, "0F1") == 0 && d.order.index == 1);
    CU_ASSERT(d.time.found && strcmp(d.time.task[0]->name, "0B0") == 0);
    CU_ASSERT(d.npairs > 0 && d.pair[0].less_s == 1 && strcmp(d.pair[0].task[1]->name, "0B0") == 0);
    CU_ASSERT(d.nkinds == 3 && d.kind[0].sum_s[0] + d.kind[0].sum_s[1] > 0);
    CU_ASSERT(d.step_s[0] == 7 && d.step_s[1] == 7 && d.idle_s[0] == 0);
    d = diff(MAKE("simulation", a), MAKE("simulation", a));
    CU_ASSERT(d.npaired == 5 && !d.order.found && !d.time.found && d.pair[0].less_s == 0);
}

/* What waits for others or for the host is no cost. */
static void test_waiting(void) {
    static const struct one a[] = {{"0F0", "F", 0, 3, C, U},
                                   {"0 reduce 0", "reduce", 3, 6, N, DTP_COMM_ALL_REDUCE}};
    struct dtp_tasks *x = MAKE("simulation", a), *y = MAKE("run", a);
    x->task[0].wait_s = 1;
    x->task[1].wait_s = 2;
    struct dtp_diff d = diff(x, y);
    CU_ASSERT(d.nkinds == 2 && d.kind[0].sum_s[0] == 1 && d.kind[0].sum_s[1] == 3);
    CU_ASSERT(strcmp(d.kind[0].kind, "all_reduce") == 0 && d.waiting_s[0] == 2);
    CU_ASSERT(d.idle_s[0] == 4 && d.idle_s[1] == 3);
}

static void test_kinds(void) {
    static const struct one kernels[] = {
        {"vectorized_layer_norm_kernel", NULL, 0, 1, C, U},
        {"nvjet_sm90_tst_256x128", NULL, 1, 3, C, U},
        {"flash_fwd_kernel", NULL, 3, 4, C, U},
        {"vectorized_elementwise_kernel", NULL, 4, 5, C, U},
        {"ncclDevKernel_AllReduce", NULL, 5, 6, N, DTP_COMM_ALL_REDUCE},
        {"ampere_bf16_s16816gemm", NULL, 6, 8, C, U}};
    static const struct one operations[] = {
        {"norm 1", "kernel", 0, 1, C, U},
        {"qkv", "gemm", 1, 3, C, U},
        {"attention", "attention", 3, 4, C, U},
        {"tp all-reduce", "collective", 4, 6, N, DTP_COMM_ALL_REDUCE},
        {"fc1", "gemm", 6, 9, C, U}};
    struct dtp_diff d = diff(MAKE("replay", kernels), MAKE("simulation", operations));
    CU_ASSERT(d.mode == DTP_DIFF_KINDS && d.npaired == 4);
    CU_ASSERT(!d.order.found && d.nonly[0] == 0 && d.nonly[1] == 0);
    CU_ASSERT(d.time.found && d.time.task[0]->end_s == 6); /* the all-reduce, then the product */
    static const struct one actions[] = {{"0F0", "F", 0, 6, C, U}};
    d = diff(MAKE("replay", kernels), MAKE("simulation", actions));
    CU_ASSERT(d.mode == DTP_DIFF_COARSE && strcmp(d.kind[0].kind, "all_reduce") == 0);
}

static void test_no_rank(void) {
    static const struct one a[] = {{"0F0", "F", 0, 1, C, U}};
    struct dtp_tasks *x = MAKE("simulation", a), *y = MAKE("run", a);
    const struct dtp_tasks *const side[2] = {x, y};
    const int step[2] = {-1, -1};
    struct dtp_diff d;
    struct dtp_err err = {0};
    y->rank[0].rank = y->task[0].rank = 3;
    CU_ASSERT(dtp_diff(arena, side, step, &d, &err) == DTP_ENO);
}

int main(void) {
    CU_TestInfo tests[] = {{"by name", test_names},
                           {"waiting", test_waiting},
                           {"by kind", test_kinds},
                           {"no rank in common", test_no_rank},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"diff", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
