/* Keys of three words that differ in one bit each, put while the table grows: each finds its own value. */
#include "sim/base/memo.h"

#include <CUnit/Basic.h>

#include "tests/suites.h"

enum { WORDS = 3, BITS = 64, KEYS = WORDS * BITS };

static void key_of(int i, uint64_t key[WORDS]) {
    for (int w = 0; w < WORDS; w++)
        key[w] = w == i / BITS ? UINT64_C(1) << i % BITS : 0;
}

static void test_keys(void) {
    struct dtp_arena *a = dtp_arena_create("memo");
    struct dtp_memo memo;
    int value[KEYS];
    uint64_t key[WORDS];
    dtp_memo_init(&memo, a, WORDS * sizeof(uint64_t));
    for (int i = 0; i < KEYS; i++) {
        key_of(i, key);
        CU_ASSERT_PTR_NULL(dtp_memo_find(&memo, key));
        dtp_memo_put(&memo, key, &value[i]);
        for (int j = 0; j <= i; j++) {
            key_of(j, key);
            CU_ASSERT_PTR_EQUAL(dtp_memo_find(&memo, key), &value[j]);
        }
    }
    CU_ASSERT_EQUAL(memo.n, KEYS);
    CU_ASSERT(2 * memo.n <= memo.capacity); /* a search always meets a free entry */
    dtp_arena_destroy(a);
}

int main(void) {
    CU_TestInfo tests[] = {{"one bit apart", test_keys}, CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"memo", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
