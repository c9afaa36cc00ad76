/* The pool: each item runs once, whatever the number of threads, and results go to their slots. */
#include "sim/base/pool.h"

#include <CUnit/Basic.h>
#include <stdatomic.h>
#include <stdint.h>

#include "sim/base/rng.h"
#include "tests/suites.h"

enum { N = 5000, MOST = 16 };

struct run {
    atomic_int times[N];
    uint64_t slot[N];
    size_t per_thread[MOST]; /* plain: only its own thread writes it */
    atomic_int bad_thread;
};

static void item(void *ctx, size_t i, int thread) {
    struct run *run = ctx;
    if (thread < 0 || thread >= MOST) {
        atomic_fetch_add(&run->bad_thread, 1);
        return;
    }
    run->per_thread[thread]++;
    atomic_fetch_add(&run->times[i], 1);
    struct dtp_rng r = dtp_rng_stream(9, i);
    run->slot[i] = dtp_rng_next(&r);
}

static void check_run(int nthreads) {
    static struct run run;
    run = (struct run){0};
    dtp_pool_run(nthreads, N, item, &run);
    size_t total = 0;
    for (int t = 0; t < MOST; t++)
        total += run.per_thread[t];
    CU_ASSERT_EQUAL(total, N);
    CU_ASSERT_EQUAL(run.bad_thread, 0);
    for (size_t i = 0; i < N; i++) {
        struct dtp_rng r = dtp_rng_stream(9, i);
        CU_ASSERT_EQUAL(run.times[i], 1);
        CU_ASSERT_EQUAL(run.slot[i], dtp_rng_next(&r));
    }
}

static void test_every_item_once(void) {
    for (int nthreads = 1; nthreads <= MOST; nthreads *= 2)
        check_run(nthreads);
}

static void test_one_thread_is_the_caller(void) {
    static struct run run;
    run = (struct run){0};
    dtp_pool_run(1, 10, item, &run);
    CU_ASSERT_EQUAL(run.per_thread[0], 10);
}

static void test_no_items(void) {
    static struct run run;
    run = (struct run){0};
    dtp_pool_run(8, 0, item, &run);
    CU_ASSERT_EQUAL(run.times[0], 0);
}

static void test_fewer_items_than_threads(void) {
    static struct run run;
    run = (struct run){0};
    dtp_pool_run(8, 3, item, &run);
    CU_ASSERT_EQUAL(run.times[0] + run.times[1] + run.times[2], 3);
    for (int t = 3; t < MOST; t++)
        CU_ASSERT_EQUAL(run.per_thread[t], 0);
}

static void test_default_is_positive(void) {
    CU_ASSERT(dtp_pool_default_threads() >= 1);
    CU_ASSERT(dtp_pool_default_threads() <= 256);
}

static CU_TestInfo tests[] = {
    {"every item once", test_every_item_once},
    {"one thread is the caller", test_one_thread_is_the_caller},
    {"no items", test_no_items},
    {"fewer items than threads", test_fewer_items_than_threads},
    {"default", test_default_is_positive},
    CU_TEST_INFO_NULL,
};

int main(void) {
    CU_SuiteInfo suites[] = {{"pool", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
