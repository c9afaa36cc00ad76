/* Arenas: zeroed, aligned, disjoint, reset without giving memory back, one way out of memory. */
#include <CUnit/Basic.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>

#include "sim/base/rng.h"
#include "tests/arena_bytes.h"
#include "tests/suites.h"

static void test_blocks_are_zeroed_aligned_and_disjoint(void) {
    enum { N = 2000 };
    static unsigned char *at[N];
    static size_t size[N];
    struct dtp_arena *a = dtp_arena_create("test");
    struct dtp_rng r = dtp_rng_stream(1, 0);
    for (int i = 0; i < N; i++) {
        size[i] = (size_t)dtp_rng_below(&r, 5000);
        at[i] = dtp_arena_alloc(a, 1, size[i]);
        CU_ASSERT_EQUAL((uintptr_t)at[i] % 16, 0);
        for (size_t k = 0; k < size[i]; k++)
            if (at[i][k] != 0)
                CU_FAIL("a block is not zeroed");
        memset(at[i], i % 255 + 1, size[i]);
    }
    for (int i = 0; i < N; i++)
        for (size_t k = 0; k < size[i]; k++)
            if (at[i][k] != i % 255 + 1)
                CU_FAIL("blocks overlap");
    dtp_arena_destroy(a);
}

static void test_reset_reuses_and_zeroes(void) {
    struct dtp_arena *a = dtp_arena_create("test");
    unsigned char *first = dtp_arena_alloc(a, 1, 1000);
    memset(first, 0xff, 1000);
    for (int i = 0; i < 100; i++)
        memset(dtp_arena_alloc(a, 1, 10000), 0xff, 10000);
    CU_ASSERT(arena_used_bytes(a) >= 1001000);
    dtp_arena_reset(a);
    CU_ASSERT_EQUAL(arena_used_bytes(a), 0);
    unsigned char *again = dtp_arena_alloc(a, 1, 1000);
    CU_ASSERT_PTR_EQUAL(again, first);
    CU_ASSERT_EQUAL(again[0], 0);
    CU_ASSERT_EQUAL(again[999], 0);
    /* blocks larger than any kept one, then small ones: the kept ones are still found */
    dtp_arena_alloc(a, 1, 20000000);
    unsigned char *small = dtp_arena_alloc(a, 1, 9000);
    CU_ASSERT_EQUAL(small[0] | small[8999], 0);
    dtp_arena_destroy(a);
}

static void test_grow_keeps_content(void) {
    struct dtp_arena *a = dtp_arena_create("test");
    int *list = NULL;
    size_t capacity = 0;
    for (int i = 0; i < 5000; i++) {
        list = dtp_arena_room(a, list, sizeof *list, (size_t)i, &capacity);
        CU_ASSERT(capacity > (size_t)i && capacity <= 64 + 2 * (size_t)i);
        CU_ASSERT_EQUAL(list[i], 0);
        list[i] = i;
        if (i % 7 == 0) /* so that the array is not always the last block */
            dtp_arena_alloc(a, 1, 1);
    }
    for (int i = 0; i < 5000; i++)
        CU_ASSERT_EQUAL(list[i], i);
    CU_ASSERT_PTR_EQUAL(dtp_arena_grow(a, list, sizeof *list, capacity, 3), list);
    dtp_arena_destroy(a);
}

static void test_last_block_grows_in_place(void) {
    struct dtp_arena *a = dtp_arena_create("test");
    char *p = dtp_arena_alloc(a, 1, 16);
    CU_ASSERT_PTR_EQUAL(dtp_arena_grow(a, p, 1, 16, 64), p);
    char *other = dtp_arena_alloc(a, 1, 16);
    CU_ASSERT_PTR_EQUAL(other, p + 64);
    CU_ASSERT_PTR_NOT_EQUAL(dtp_arena_grow(a, p, 1, 64, 128), p);
    dtp_arena_destroy(a);
}

static void test_strings(void) {
    struct dtp_arena *a = dtp_arena_create("test");
    CU_ASSERT_STRING_EQUAL(dtp_arena_strdup(a, "abc"), "abc");
    CU_ASSERT_STRING_EQUAL(dtp_arena_strndup(a, "abcdef", 2), "ab");
    CU_ASSERT_STRING_EQUAL(dtp_arena_printf(a, "%d-%s", 42, "x"), "42-x");
    CU_ASSERT_EQUAL(strlen(dtp_arena_printf(a, "%5000d", 1)), 5000);
    dtp_arena_destroy(a);
}

static void test_zero_sizes_give_addresses(void) {
    struct dtp_arena *a = dtp_arena_create("test");
    CU_ASSERT_PTR_NOT_NULL(dtp_arena_alloc(a, 0, 10));
    CU_ASSERT_PTR_NOT_NULL(dtp_arena_alloc(a, 10, 0));
    CU_ASSERT_PTR_NOT_EQUAL(dtp_arena_alloc(a, 0, 0), dtp_arena_alloc(a, 0, 0));
    dtp_arena_destroy(a);
    dtp_arena_destroy(NULL);
}

/* The sanitizer build sees what is not given back. */
static void test_children_end_with_their_parent(void) {
    struct dtp_arena *a = dtp_arena_create("parent");
    struct dtp_arena *child[3];
    for (int i = 0; i < 3; i++) {
        child[i] = dtp_arena_create_in(a, "child");
        dtp_arena_alloc(child[i], 1, 100000);
        dtp_arena_alloc(dtp_arena_create_in(child[i], "grandchild"), 1, 10);
    }
    CU_ASSERT(arena_used_bytes(a) < 100000);
    dtp_arena_destroy(child[1]); /* before its parent, out of order */
    dtp_arena_reset(a);          /* ends the other two */
    dtp_arena_alloc(dtp_arena_create_in(a, "child"), 1, 10);
    dtp_arena_destroy(a);
}

/* The next arena in the same parent has the memory of one that ended; what a reset ends counts as well. */
static void test_children_hand_on_their_memory(void) {
    enum { BYTES = 100000 };
    struct dtp_arena *a = dtp_arena_create("parent");
    struct dtp_arena *first = dtp_arena_create_in(a, "first");
    unsigned char *p = dtp_arena_alloc(first, 1, BYTES);
    memset(p, 7, BYTES);
    dtp_arena_destroy(first);
    unsigned char *q = dtp_arena_alloc(dtp_arena_create_in(a, "second"), 1, BYTES);
    CU_ASSERT_PTR_EQUAL(q, p);
    CU_ASSERT(q[0] == 0 && q[BYTES - 1] == 0);
    dtp_arena_reset(a);
    struct dtp_arena *third = dtp_arena_create_in(a, "third");
    CU_ASSERT_PTR_NOT_EQUAL(dtp_arena_alloc(third, 1, 10), p); /* much too large for it */
    CU_ASSERT_PTR_EQUAL(dtp_arena_alloc(third, 1, BYTES), p);
    CU_ASSERT_PTR_NOT_EQUAL(dtp_arena_alloc(third, 1, 2 * BYTES), p);
    dtp_arena_destroy(a);
}

static jmp_buf back;
static const char *oom_arena;
static size_t oom_bytes;

static void jump_back(const char *arena, size_t bytes) {
    oom_arena = arena;
    oom_bytes = bytes;
    longjmp(back, 1);
}

static void test_out_of_memory_calls_the_handler(void) {
    struct dtp_arena *a = dtp_arena_create("greedy");
    dtp_arena_set_oom(jump_back);
    oom_arena = NULL;
    if (setjmp(back) == 0) {
        dtp_arena_alloc(a, SIZE_MAX / 2, 3); /* the product overflows */
        CU_FAIL("allocated more than there is");
    }
    CU_ASSERT_STRING_EQUAL(oom_arena, "greedy");
    CU_ASSERT_EQUAL(oom_bytes, SIZE_MAX);
    oom_arena = NULL;
    if (setjmp(back) == 0) {
        dtp_arena_alloc(a, SIZE_MAX / 4, 1); /* no overflow, but no system has it */
        CU_FAIL("allocated more than there is");
    }
    CU_ASSERT_STRING_EQUAL(oom_arena, "greedy");
    dtp_arena_set_oom(NULL);
    CU_ASSERT_PTR_NOT_NULL(dtp_arena_alloc(a, 1, 1)); /* still usable */
    dtp_arena_destroy(a);
}

static CU_TestInfo tests[] = {
    {"zeroed, aligned, disjoint", test_blocks_are_zeroed_aligned_and_disjoint},
    {"reset", test_reset_reuses_and_zeroes},
    {"grow keeps content", test_grow_keeps_content},
    {"the last block grows in place", test_last_block_grows_in_place},
    {"strings", test_strings},
    {"zero sizes", test_zero_sizes_give_addresses},
    {"children", test_children_end_with_their_parent},
    {"children's memory", test_children_hand_on_their_memory},
    {"out of memory", test_out_of_memory_calls_the_handler},
    CU_TEST_INFO_NULL,
};

int main(void) {
    CU_SuiteInfo suites[] = {{"arena", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
