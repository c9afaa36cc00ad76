#include "sim/heap.h"

#include <CUnit/Basic.h>

#include "sim/base/rng.h"
#include "tests/arena_case.h"
#include "tests/suites.h"

enum { NIDS = 500 };

/* 1,000 events at 50 different times come out by (time, sequence number). */
static void test_events_come_out_by_time_then_sequence(void) {
    struct dtp_heap h = {0};
    struct dtp_rng r = dtp_rng_stream(1, 0);
    for (uint32_t i = 0; i < 1000; i++)
        dtp_heap_push(arena, &h, (struct dtp_event){(double)dtp_rng_below(&r, 50), i, i}, NULL);
    struct dtp_event last = dtp_heap_take(&h, 0, NULL);
    int wrong = 0;
    while (h.n > 0) {
        struct dtp_event e = dtp_heap_take(&h, 0, NULL);
        wrong += !dtp_event_before(last, e);
        last = e;
    }
    CU_ASSERT_EQUAL(wrong, 0);
}

/* The earliest of what is in, by plain search. */
static uint32_t earliest(const struct dtp_event *in, const int *is_in) {
    uint32_t best = NIDS;
    for (uint32_t i = 0; i < NIDS; i++)
        if (is_in[i] && (best == NIDS || dtp_event_before(in[i], in[best])))
            best = i;
    return best;
}

/* Random pushes, moves and removals by id, against plain search. */
static void test_moves_and_removals_by_id_keep_the_order(void) {
    static struct dtp_event in[NIDS];
    static int is_in[NIDS];
    static uint32_t pos[NIDS];
    struct dtp_heap h = {0};
    struct dtp_rng r = dtp_rng_stream(2, 0);
    int wrong = 0;
    for (uint32_t seq = 0; seq < 20000; seq++) {
        uint32_t i = (uint32_t)dtp_rng_below(&r, NIDS);
        struct dtp_event e = {(double)dtp_rng_below(&r, 100), seq, i};
        if (is_in[i] && dtp_rng_below(&r, 2)) {
            wrong += dtp_heap_take(&h, pos[i], pos).id != i;
            is_in[i] = 0;
            continue;
        }
        if (is_in[i])
            dtp_heap_move(&h, pos[i], e, pos);
        else
            dtp_heap_push(arena, &h, e, pos);
        is_in[i] = 1;
        in[i] = e;
        wrong += h.e[0].id != earliest(in, is_in);
    }
    for (uint32_t i; (i = earliest(in, is_in)) < NIDS; is_in[i] = 0)
        wrong += dtp_heap_take(&h, 0, pos).id != i;
    CU_ASSERT_EQUAL(h.n, 0);
    CU_ASSERT_EQUAL(wrong, 0);
}

int main(void) {
    CU_TestInfo tests[] = {
        {"events come out by time, then sequence number",
         test_events_come_out_by_time_then_sequence},
        {"moves and removals by id keep the order", test_moves_and_removals_by_id_keep_the_order},
        CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {
        {.pName = "heap", .pInitFunc = setup, .pCleanupFunc = teardown, .pTests = tests},
        CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
