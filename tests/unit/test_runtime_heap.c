/* The heap: live bytes, the high-water mark and its parts, merging, running out. */
#include "runtime/device/tensor_heap.h"

#include <CUnit/Basic.h>
#include <string.h>

#include "sim/base/rng.h"
#include "tests/suites.h"

enum { UNIT = DTP_HEAP_ALIGN_BYTES, SIZE = 64 * UNIT };

static struct dtp_arena *arena;
static char base[SIZE];

static struct dtp_heap_stats stats_of(const struct dtp_heap *h) {
    struct dtp_heap_stats s;
    dtp_heap_stats(h, &s);
    return s;
}

/* a 2 units, b 3 units, a released, c 1 unit: live 2, 5, 3, 4; peak 5 = 2 weights + 3 logits. */
static void test_peak_and_its_parts(void) {
    struct dtp_heap *h = dtp_heap_create(arena, base, SIZE, 16);
    void *a = dtp_heap_alloc(h, DTP_MEM_WEIGHTS, "a", UNIT + 1);
    void *b = dtp_heap_alloc(h, DTP_MEM_LOGITS, "b", 3 * UNIT);
    dtp_heap_release(h, a);
    void *c = dtp_heap_alloc(h, DTP_MEM_BUFFERS, "c", 0);
    struct dtp_heap_stats s = stats_of(h);
    CU_ASSERT_PTR_NOT_NULL(b);
    CU_ASSERT_PTR_EQUAL(c, base); /* best fit: the gap that a left */
    CU_ASSERT_EQUAL(s.live_bytes, 4 * UNIT);
    CU_ASSERT_EQUAL(s.peak_bytes, 5 * UNIT);
    CU_ASSERT_EQUAL(s.at_peak[DTP_MEM_WEIGHTS], 2 * UNIT);
    CU_ASSERT_EQUAL(s.at_peak[DTP_MEM_LOGITS], 3 * UNIT);
    CU_ASSERT_EQUAL(s.at_peak[DTP_MEM_BUFFERS], 0);
    dtp_heap_reset_peak(h);
    CU_ASSERT_EQUAL(stats_of(h).peak_bytes, 4 * UNIT);
}

static void test_running_out_names_the_tensor(void) {
    struct dtp_heap *h = dtp_heap_create(arena, base, SIZE, 16);
    struct dtp_err err = {0};
    CU_ASSERT_PTR_NOT_NULL(dtp_heap_alloc(h, DTP_MEM_OPTIMIZER, "moments", 60 * UNIT));
    CU_ASSERT_PTR_NULL(dtp_heap_alloc(h, DTP_MEM_ACTIVATIONS, "qkv", 5 * UNIT));
    CU_ASSERT_EQUAL(dtp_heap_fail(h, "qkv", 5 * UNIT, &err), DTP_ENOMEM);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, "qkv"));
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, "optimizer"));
    CU_ASSERT_PTR_NOT_NULL(dtp_heap_alloc(h, DTP_MEM_ACTIVATIONS, "qkv", 4 * UNIT));
}

/* Whatever the order of releases, all is one free block in the end; tensors never overlap. */
static void test_random_use_merges_back(void) {
    enum { LIVE = 12, ROUNDS = 4000 };
    struct dtp_heap *h = dtp_heap_create(arena, base, SIZE, LIVE + 1);
    struct dtp_rng rng = dtp_rng_stream(5, 0);
    char *live[LIVE] = {NULL};
    uint64_t bytes[LIVE] = {0}, sum = 0;
    for (int i = 0; i < ROUNDS; i++) {
        size_t k = (size_t)dtp_rng_below(&rng, LIVE);
        if (live[k]) {
            CU_ASSERT_EQUAL(live[k][0], (char)k);
            CU_ASSERT_EQUAL(live[k][bytes[k] - 1], (char)k);
            dtp_heap_release(h, live[k]);
            sum -= bytes[k];
            live[k] = NULL;
            continue;
        }
        bytes[k] = (1 + dtp_rng_below(&rng, 10)) * UNIT;
        live[k] = dtp_heap_alloc(h, DTP_MEM_ACTIVATIONS, "x", bytes[k]);
        if (!live[k])
            continue;
        sum += bytes[k];
        live[k][0] = live[k][bytes[k] - 1] = (char)k;
        CU_ASSERT_EQUAL(stats_of(h).live_bytes, sum);
    }
    for (int k = 0; k < LIVE; k++)
        dtp_heap_release(h, live[k]);
    CU_ASSERT_EQUAL(stats_of(h).live_bytes, 0);
    CU_ASSERT_PTR_NOT_NULL(dtp_heap_alloc(h, DTP_MEM_WEIGHTS, "all", SIZE));
}

int main(void) {
    CU_TestInfo tests[] = {{"peak and its parts", test_peak_and_its_parts},
                           {"running out", test_running_out_names_the_tensor},
                           {"random use", test_random_use_merges_back},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"heap", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
