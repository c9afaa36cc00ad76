/* Several ranks on a GPU (runtime/cuda/sharing.h): how many, and what each takes of its memory. */
#include <CUnit/Basic.h>

#include "runtime/cuda/sharing.h"
#include "tests/suites.h"

static const uint64_t gib = (uint64_t)DTP_GIB;

static void test_number(void) {
    static const char *const bad[] = {"", "many", "0", "-2", "2x", "65", "99999999999999999999"};
    struct dtp_err err = {0};
    int n = 0;
    CU_ASSERT(dtp_cuda_read_sharers(NULL, &n, &err) == DTP_OK && n == 1);
    CU_ASSERT(dtp_cuda_read_sharers("8", &n, &err) == DTP_OK && n == 8);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CU_ASSERT_EQUAL(dtp_cuda_read_sharers(bad[i], &n, &err), DTP_EINPUT);
    CU_ASSERT_EQUAL(n, 8);
    CU_ASSERT_EQUAL(dtp_cuda_read_sharers("2x", &n, &err), DTP_EINPUT);
    CU_ASSERT_STRING_EQUAL(err.msg, "DTPLAN_CUDA_RANKS_PER_GPU is 2x, expected 1 .. 64");
}

/* Alone: the rest less the margin, or half of what is too little for it. Shared: as much for each rank, whichever
 * comes first, and as much again is left. */
static void test_heap(void) {
    CU_ASSERT_EQUAL(dtp_cuda_heap_bytes(79 * gib, 80 * gib, 1, 1), 78 * gib);
    CU_ASSERT_EQUAL(dtp_cuda_heap_bytes(79 * gib, 80 * gib, 1, 4), 70 * gib);
    CU_ASSERT_EQUAL(dtp_cuda_heap_bytes(gib, 80 * gib, 1, 1), gib / 2);
    for (uint64_t taken = 0; taken < 8; taken++)
        CU_ASSERT_EQUAL(dtp_cuda_heap_bytes((80 - 5 * taken) * gib, 80 * gib, 8, 8), 5 * gib);
}

static void test_beside(void) {
    CU_ASSERT_EQUAL(dtp_cuda_beside_bytes(10 * gib, 80 * gib, 1, 68 * gib), 2 * gib);
    CU_ASSERT_EQUAL(dtp_cuda_beside_bytes(20 * gib, 80 * gib, 4, 10 * gib), 5 * gib);
    CU_ASSERT_EQUAL(dtp_cuda_beside_bytes(80 * gib, 80 * gib, 4, 10 * gib), 0);
}

int main(void) {
    CU_TestInfo tests[] = {{"number of ranks", test_number},
                           {"heap", test_heap},
                           {"beside the heap", test_beside},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"sharing a GPU", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
