/* Runs as a whole: the order of actions, failures, data, learning rate. */
#include <CUnit/Basic.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "runtime/rank.h"
#include "tests/runtime_cases.h"
#include "tests/suites.h"

static struct dtp_arena *arena;
static struct dtp_model model;

/* ---- order ---- */

/* The actions of the measured trace, without the collectives inside them, are the schedule's. */
static void check_order(const struct dtp_plan *plan) {
    struct dtp_run_options o = tiny_options(&model);
    struct dtp_run_result r;
    struct dtp_schedule s;
    struct dtp_err err = {0};
    o.plan = *plan;
    o.steps = 2;
    CU_ASSERT_EQUAL_FATAL(dtp_run(arena, &o, &r, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(dtp_run_schedule(arena, plan, &s, &err), DTP_OK);
    size_t at = 0;
    for (int rank = 0; rank < r.nranks; rank++) {
        int stage = rank / (plan->tp * plan->dp);
        double end_s = 0;
        for (uint32_t i = s.begin[stage]; i < s.begin[stage + 1]; i++, at++) {
            char name[28];
            snprintf(name, sizeof name, "%u%s%u", (unsigned)s.action[i].chunk,
                     dtp_action_names[s.action[i].kind], (unsigned)s.action[i].microbatch);
            while (at < r.nevents && strchr(r.event[at].name, ' '))
                at++; /* "tp all_reduce", "0C1 layer 3" */
            CU_ASSERT_FATAL(at < r.nevents);
            CU_ASSERT_EQUAL(r.event[at].rank, rank);
            CU_ASSERT_STRING_EQUAL(r.event[at].name, name);
            CU_ASSERT(r.event[at].dur_s >= 0 && r.event[at].start_s >= end_s);
            end_s = r.event[at].start_s + r.event[at].dur_s;
        }
        while (at < r.nevents && r.event[at].rank == rank)
            at++;
        CU_ASSERT(end_s <= r.step_s_each[1] * 1.001 + 1e-4);
    }
    CU_ASSERT_EQUAL(at, r.nevents);
}

static void test_order_is_the_schedule(void) {
    struct dtp_plan p = tiny_options(&model).plan;
    check_order(&p);
    p = with_degrees(p, 2, 2, 1);
    p.schedule = DTP_SCHED_ZB_H1;
    check_order(&p);
    p = with_degrees(p, 1, 2, 2);
    p.schedule = DTP_SCHED_INTERLEAVED;
    p.vpp = 2;
    p.zero_stage = 3;
    p.recompute = DTP_RECOMPUTE_FULL;
    check_order(&p);
}

/* The same run twice, bit by bit. */
static void test_runs_repeat(void) {
    struct dtp_run_options o = tiny_options(&model);
    struct dtp_run_result r[2];
    struct dtp_err err = {0};
    o.plan = with_degrees(o.plan, 2, 1, 2);
    o.steps = 5;
    for (int i = 0; i < 2; i++)
        CU_ASSERT_EQUAL_FATAL(dtp_run(arena, &o, &r[i], &err), DTP_OK);
    CU_ASSERT_EQUAL(memcmp(r[0].loss, r[1].loss, 5 * sizeof *r[0].loss), 0);
    CU_ASSERT_EQUAL(memcmp(r[0].peak_bytes, r[1].peak_bytes, 4 * sizeof *r[0].peak_bytes), 0);
    for (int rank = 0; rank < 4; rank++) {
        uint64_t sum = 0;
        for (int k = 0; k < DTP_NMEM; k++)
            sum += r[0].peak_by_class[rank][k];
        CU_ASSERT_EQUAL(sum, r[0].peak_bytes[rank]);
    }
}

/* ---- failures ---- */

static void test_a_killed_rank_ends_the_job(void) {
    struct dtp_run_options o = tiny_options(&model);
    o.plan = with_degrees(o.plan, 2, 2, 1);
    o.timeout_s = 600;
    o.fault = DTP_FAULT_KILL;
    o.fault_rank = 3;
    o.fault_step = 2;
    o.fault_action = 4;
    check_failure(arena, &o, DTP_ENO, "rank 3 died in 0RF1 of step 2: signal 9", 15);
}

static void test_a_hanging_rank_ends_the_job(void) {
    struct dtp_run_options o = tiny_options(&model);
    o.plan = with_degrees(o.plan, 1, 2, 2);
    o.timeout_s = 4;
    o.fault = DTP_FAULT_HANG;
    o.fault_rank = 1;
    o.fault_step = 1;
    o.fault_action = 0;
    check_failure(arena, &o, DTP_ENO, "rank 1 hangs in 0F0 of step 1", 20);
}

/* An error that is found three actions later is told with the action that the device did not end. */
static void test_a_late_error_names_its_action(void) {
    struct dtp_run_options o = tiny_options(&model);
    take_fake_module();
    setenv("DTPLAN_FAKE_FAULT", "5", 1);
    o.backend = "cuda";
    check_failure(arena, &o, DTP_ENO, "rank 0 in 0B2 of step 2: CUDA: an illegal address", 20);
    setenv("DTPLAN_FAKE_FAULT", "16",
           1); /* the optimizer, the last: found at the end of the step */
    check_failure(arena, &o, DTP_ENO, "rank 0 in 0O0 of step 2: CUDA: an illegal address", 20);
    o.plan = with_degrees(o.plan, 1, 1, 2);
    setenv("DTPLAN_FAKE_FAULT", "7", 1); /* found by the optimizer's collective, which fails */
    check_failure(arena, &o, DTP_ENO, " in 0B3 of step 2: CUDA: an illegal address", 20);
    unsetenv("DTPLAN_FAKE_FAULT");
}

static void test_out_of_memory_names_tensor_and_action(void) {
    struct dtp_run_options o = tiny_options(&model);
    struct dtp_run_result r;
    struct dtp_err err = {0};
    o.steps = 1;
    o.plan = with_degrees(o.plan, 1, 2, 1);
    o.plan.schedule = DTP_SCHED_GPIPE;
    CU_ASSERT_EQUAL_FATAL(dtp_run(arena, &o, &r, &err), DTP_OK);
    o.timeout_s = 600;
    o.memory_bytes = r.peak_bytes[1] - 4096;
    check_failure(arena, &o, DTP_ENOMEM, "in 0F7 of step 0: out of memory: ", 15);
    o.memory_bytes = 100000;
    check_failure(arena, &o, DTP_ENOMEM, "in its start: out of memory: ", 15);
}

static void test_what_the_runtime_lacks(void) {
    struct dtp_run_options o = tiny_options(&model);
    o.plan.dtype = DTP_BF16;
    check_failure(arena, &o, DTP_EUNSUPPORTED, "fp32", 5);
    o = tiny_options(&model);
    o.plan.cp = 2;
    check_failure(arena, &o, DTP_EUNSUPPORTED, "context", 5);
    o = tiny_options(&model);
    o.plan.recompute = DTP_RECOMPUTE_SELECTIVE;
    o.plan.recompute_modules = DTP_BIT_MLP;
    check_failure(arena, &o, DTP_EUNSUPPORTED, "recompute_modules", 5);
    o = tiny_options(&model);
    o.plan.tp = 3;
    check_failure(arena, &o, DTP_EINPUT, "heads", 5);
    o = tiny_options(&model);
    o.seq = 17;
    check_failure(arena, &o, DTP_EINPUT, "positions", 5);
    o = tiny_options(&model);
    o.plan.schedule = DTP_SCHED_BREADTH_FIRST;
    o.plan.pp = o.plan.vpp = 2;
    o.plan.global_batch_size = 2 * DTP_MOST_SENT + 2;
    check_failure(arena, &o, DTP_EUNSUPPORTED, "holds 1025 sent tensors with 2050 microbatches", 5);
    o = tiny_options(&model);
    o.backend = "cuda";
    struct dtp_err err = {0};
    const struct dtp_dev_ops *ops;
    if (dtp_dev_find("cuda", &ops, &err) != DTP_OK)
        check_failure(arena, &o, DTP_EUNSUPPORTED, "cuda", 5);
}

/* It ends the job, by the name of the first rank that has one, but where losses mean nothing. */
static void test_a_loss_that_is_no_number(void) {
    for (int pp = 1; pp <= 2; pp++) {
        struct dtp_run_options o = tiny_options(&model);
        struct dtp_run_result r;
        struct dtp_err err = {0};
        char says[64];
        o.plan = with_degrees(o.plan, 1, pp, 2 / pp);
        o.lr = 1e30;
        o.warmup_steps = 0;
        CU_ASSERT_EQUAL(dtp_run(arena, &o, &r, &err), DTP_ENO);
        snprintf(says, sizeof says, "rank %d: the loss of step 2 is not a number", pp - 1);
        CU_ASSERT_EQUAL(strncmp(err.msg, says, strlen(says)), 0);
        printf("     %s\n", err.msg);
        o.rough_weights = true;
        CU_ASSERT_EQUAL(dtp_run(arena, &o, &r, &err), DTP_OK);
    }
}

/* ---- data and learning rate ---- */

static void test_text_is_learned_and_layouts_see_the_same(void) {
    struct dtp_model bytes = model;
    bytes.vocab = 256;
    struct dtp_run_options o = tiny_options(&bytes);
    struct dtp_run_result a, b;
    struct dtp_err err = {0};
    o.data = DTP_SOURCE_DIR "/LICENSE";
    o.steps = 12;
    CU_ASSERT_EQUAL_FATAL(dtp_run(arena, &o, &a, &err), DTP_OK);
    o.plan = with_degrees(o.plan, 1, 1, 4);
    o.plan.microbatch_size = 2;
    CU_ASSERT_EQUAL_FATAL(dtp_run(arena, &o, &b, &err), DTP_OK);
    for (int i = 0; i < 12; i++)
        CU_ASSERT(fabs(a.loss[i] - b.loss[i]) < 5e-6);
    CU_ASSERT(a.loss[11] < a.loss[0] - 1);
    o.data = "/dev/null/text";
    check_failure(arena, &o, DTP_EINPUT, "/dev/null/text", 10);
}

static void test_sequences_depend_on_seed_and_index(void) {
    const struct dtp_data d = {.seed = 3, .vocab = 67, .seq = 9},
                          other = {.seed = 4, .vocab = 67, .seq = 9};
    int32_t a[10], b[10], c[10], e[10];
    dtp_data_sequence(&d, 12, a);
    dtp_data_sequence(&d, 12, b);
    dtp_data_sequence(&d, 13, c);
    dtp_data_sequence(&other, 12, e);
    for (int i = 0; i < 10; i++)
        CU_ASSERT(a[i] >= 0 && a[i] < 67 && a[i] == b[i]);
    CU_ASSERT(memcmp(a, c, sizeof a) != 0 && memcmp(a, e, sizeof a) != 0);
}

/* Warm-up 1/4, 2/4, 3/4, 4/4, then half a cosine from lr to min_lr. */
static void test_learning_rate(void) {
    struct dtp_run_options o = dtp_run_options_default();
    o.lr = 1;
    o.min_lr = 0.2;
    o.warmup_steps = 4;
    o.decay_steps = 14;
    CU_ASSERT_DOUBLE_EQUAL(dtp_learning_rate(&o, 0), 0.25, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(dtp_learning_rate(&o, 3), 1, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(dtp_learning_rate(&o, 4), 1, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(dtp_learning_rate(&o, 9), 0.6, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(dtp_learning_rate(&o, 14), 0.2, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(dtp_learning_rate(&o, 99), 0.2, 1e-12);
}

int main(void) {
    CU_TestInfo runs[] = {{"order = schedule", test_order_is_the_schedule},
                          {"runs repeat", test_runs_repeat},
                          {"text", test_text_is_learned_and_layouts_see_the_same},
                          {"sequences", test_sequences_depend_on_seed_and_index},
                          {"learning rate", test_learning_rate},
                          CU_TEST_INFO_NULL};
    CU_TestInfo failures[] = {{"killed", test_a_killed_rank_ends_the_job},
                              {"hanging", test_a_hanging_rank_ends_the_job},
                              {"late error", test_a_late_error_names_its_action},
                              {"out of memory", test_out_of_memory_names_tensor_and_action},
                              {"unsupported", test_what_the_runtime_lacks},
                              {"a loss that is no number", test_a_loss_that_is_no_number},
                              CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"runs", NULL, NULL, NULL, NULL, runs},
                             {"failures", NULL, NULL, NULL, NULL, failures},
                             CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    model = tiny_model("gpt");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
