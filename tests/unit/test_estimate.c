/* The longest path by hand: text-book bubbles, transfers, reductions, ZeRO-3 units, the tail. */
#include <CUnit/Basic.h>
#include <math.h>

#include "models/evaluate/evaluate.h"
#include "models/lower/lower_layout.h"
#include "tests/costs_case.h"
#include "tests/near.h"
#include "tests/suites.h"

static struct dtp_arena *arena;
static const double tolerance = 1e-12;

static void near(double got, double want) {
    expect_near(got, want, tolerance);
}

static double step_of(const struct dtp_costs *c, int kind) {
    struct dtp_schedule s = case_schedule(arena, kind, c->pp, c->vpp, c->m);
    struct dtp_path path;
    dtp_estimate(arena, c, &s, &path);
    return path.step_s;
}

/* GPipe and 1F1B: (m + p - 1)(F + B); interleaved: (m + (p - 1)/v)(F + B); ZB-H1:
 * m (F + I + W) + (p - 1)(F + I - W). */
static void test_textbook(void) {
    static const int shapes[][2] = {{4, 4}, {2, 8}, {8, 32}, {16, 192}, {1, 5}, {3, 7}};
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        int p = shapes[k][0], m = shapes[k][1];
        struct dtp_costs c = case_costs(arena, p, 1, m, (struct case_times){1, 1, 1});
        near(step_of(&c, DTP_SCHED_GPIPE), (m + p - 1) * 3.0);
        near(step_of(&c, DTP_SCHED_1F1B), (m + p - 1) * 3.0);
        if (p > 1 && m >= p)
            near(step_of(&c, DTP_SCHED_ZB_H1), m * 3.0 + (p - 1) * 1.0);
    }
    for (int v = 2; v <= 4; v++) {
        struct dtp_costs c =
            case_costs(arena, 4, v, 16, (struct case_times){1.0 / v, 1.0 / v, 1.0 / v});
        near(step_of(&c, DTP_SCHED_INTERLEAVED), (16 + 3.0 / v) * 3.0);
    }
}

static struct dtp_bubble bubble_of(const struct dtp_costs *c, int kind) {
    struct dtp_schedule s = case_schedule(arena, kind, c->pp, c->vpp, c->m);
    struct dtp_path path;
    struct dtp_bubble bubble;
    dtp_estimate_free(arena, c, &s, &path);
    dtp_bubble_fill(&path, &bubble);
    return bubble;
}

/* over ideal (p - 1)/m and (p - 1)/(v m); p = m = 4: fraction 3/7; transfers change neither. */
static void test_bubble(void) {
    struct dtp_costs c = case_costs(arena, 4, 1, 4, (struct case_times){1, 1, 1});
    case_sends(&c, 0, 0.25, 0);
    struct dtp_bubble b = bubble_of(&c, DTP_SCHED_GPIPE);
    near(b.fraction, 3.0 / 7);
    near(b.over_ideal, 3.0 / 4);
    near(b.warmup + b.drain + b.imbalance, b.fraction);
    b = bubble_of(&c, DTP_SCHED_1F1B);
    near(b.over_ideal, 3.0 / 4);
    c = case_costs(arena, 4, 2, 8, (struct case_times){0.5, 0.5, 0.5});
    b = bubble_of(&c, DTP_SCHED_INTERLEAVED);
    near(b.over_ideal, 3.0 / (2 * 8));
    CU_ASSERT(b.imbalance < 1e-12);
    /* a last stage of twice the work: the other idles 8 x 3 s for it, of 2 x (2 x 24 + 3) s */
    c = case_costs(arena, 2, 1, 8, (struct case_times){1, 1, 1});
    c.stage[1].f.total_s = c.stage[1].i.total_s = c.stage[1].w.total_s = 2;
    b = bubble_of(&c, DTP_SCHED_1F1B);
    near(b.imbalance, 24.0 / (2 * 51));
    near(b.warmup + b.drain + b.imbalance, b.fraction);
}

/* p = 2, m = 2, F = B = 1, transfers t = 0.5. GPipe, asynchronous: F0 at rank 1 starts at 1.5 and the
 * rest follows: 4 actions, then B1 goes down: 1.5 + 4 + 0.5 + 1 = 7. Blocking: rank 0's F1 starts
 * after the send (1.5), ends 2.5; rank 1's F1 starts at max(2.5, 2.5) + 0.5 = 3, ends 4, B0 ends 5,
 * its send holds B1 until 5.5, which ends 6.5; + 0.5 + 1 = 8. */
static void test_transfers(void) {
    struct dtp_costs c = case_costs(arena, 2, 1, 2, (struct case_times){1, 0.5, 0.5});
    case_sends(&c, 0, 0.5, 0);
    near(step_of(&c, DTP_SCHED_GPIPE), 7);
    c.p2p_blocking = true;
    near(step_of(&c, DTP_SCHED_GPIPE), 8);
    /* 1F1B, blocking, in the steady state: F, exchange, B, exchange: 2 (1 + t) a microbatch */
    double step_s[2];
    for (int k = 0; k < 2; k++) {
        c = case_costs(arena, 4, 1, 64 + k, (struct case_times){1, 0.5, 0.5});
        case_sends(&c, 0, 0.5, 0);
        c.p2p_blocking = true;
        step_s[k] = step_of(&c, DTP_SCHED_1F1B);
    }
    near(step_s[1] - step_s[0], 3);
    /* the same hop as in the schedules' own test: 0.1 F, p = 8, m = 32: 123.8 */
    c = case_costs(arena, 8, 1, 32, (struct case_times){1, 1, 1});
    case_sends(&c, 0, 0.1, 0);
    near(step_of(&c, DTP_SCHED_1F1B), 123.8);
}

/* One rank, F = 1, B = 2 in two parts that end at 2 and 3. A unit that starts during the second part waits
 * 0.5 for room; the one that starts after it does not. */
static void test_wait(void) {
    struct dtp_costs c = case_costs(arena, 1, 1, 1, (struct case_times){1, 1, 1});
    c.reduce_overlap = true;
    for (int k = 0; k < 2; k++) {
        c.stage[0].nreduce = 2;
        c.stage[0].reduce = case_comm(DTP_ALL_REDUCE, DTP_AXIS_DP_CP, 0, k ? 1 : 0.25, 0);
        near(step_of(&c, DTP_SCHED_1F1B), k ? 4 : 3.25);
        c.stage[0].reduce.wait_s = 0.5;
        near(step_of(&c, DTP_SCHED_1F1B), k ? 4.5 : 3.25);
    }
}

/* In the same case the transfer during the second part takes half as long again; its latency does not. */
static void test_stretch(void) {
    struct dtp_costs c = case_costs(arena, 1, 1, 1, (struct case_times){1, 1, 1});
    c.reduce_overlap = true;
    for (int k = 0; k < 2; k++) {
        c.stage[0].nreduce = 2;
        c.stage[0].reduce = case_comm(DTP_ALL_REDUCE, DTP_AXIS_DP_CP, 1, 1, k ? 0.5 : 0);
        c.stage[0].reduce.stretch = 0.5;
        near(step_of(&c, DTP_SCHED_1F1B), k ? 4.25 : 4.5);
    }
}

/* The same; the first unit, 0.5 long, takes 0.2 of the second part's rate: 0.1 more, and the second unit follows.
 * With three microbatches and reductions of all units after the first two they overlap F and B: 4 x 0.1.
 * ZeRO-3, units of 0.25 a pass gathered one ahead: that of the first F comes before all compute. */
static void test_slowed(void) {
    struct dtp_costs c = case_costs(arena, 1, 1, 1, (struct case_times){1, 1, 1});
    c.reduce_overlap = true;
    for (int m = 1; m <= 3; m += 2) {
        c.m = m;
        c.reduce_per_microbatch = true;
        c.stage[0].nreduce = 2;
        c.stage[0].reduce = case_comm(DTP_ALL_REDUCE, DTP_AXIS_DP_CP, 1, 0.5, 0);
        near(step_of(&c, DTP_SCHED_1F1B), 3 * m + 0.5);
        c.stage[0].reduce.device_share = 0.2;
        near(step_of(&c, DTP_SCHED_1F1B), 3 * m + (2 * m - 1) * 0.1 + 0.5);
        c.late.total_s = 2; /* the last unit overlaps it */
        near(step_of(&c, DTP_SCHED_1F1B), 3 * m + 2 * m * 0.1 + 2);
        c.late.total_s = 0;
    }
    c = case_costs(arena, 1, 1, 4, (struct case_times){1, 1, 1});
    c.zero_stage = 3;
    c.prefetch = c.prefetch_forward = 1;
    c.regather_backward = true;
    c.stage[0].nunshard = 1;
    c.stage[0].unshard = case_comm(DTP_ALL_GATHER, DTP_AXIS_DP_CP, 1, 0.25, 0);
    near(step_of(&c, DTP_SCHED_1F1B), 12.25);
    c.stage[0].unshard.device_share = 0.4;
    near(step_of(&c, DTP_SCHED_1F1B), 12.25 + 7 * 0.1);
    c.prefetch_forward = 0; /* stops each forward; the backward's start overlaps a forward */
    near(step_of(&c, DTP_SCHED_1F1B), 12 + 4 * 0.25 + 3 * 0.1);
}

/* Rows of experts hide behind another microbatch: F = 1, B = 2, half a second more each where there is none.
 * One rank: F0, B0 with F1, B1. In a pipeline all forwards before the first backward and as many backwards at the
 * end are alone. */
static void test_paired(void) {
    struct dtp_costs c = case_costs(arena, 1, 1, 2, (struct case_times){1, 1, 1});
    c.stage[0].f.hidden_s = c.stage[0].i.hidden_s = 0.5;
    near(step_of(&c, DTP_SCHED_1F1B), 6 + 2 * 0.5);
    near(step_of(&c, DTP_SCHED_GPIPE), 6 + 4 * 0.5);
    for (int pp = 2; pp <= 8; pp *= 2)
        for (int vpp = 2; vpp <= 4; vpp++) {
            const int m = 4 * pp;
            struct dtp_schedule s = case_schedule(arena, DTP_SCHED_INTERLEAVED, pp, vpp, m);
            for (int r = 0; r < pp; r++) {
                struct dtp_paired x = dtp_schedule_paired(&s, r);
                int n[2] = {0}; /* alone: forwards, backwards */
                for (uint32_t k = s.begin[r]; k < s.begin[r + 1]; k++)
                    n[s.action[k].kind != DTP_A_F] += k < x.from || k >= x.to;
                /* num_warmup_microbatches of Megatron-Core, and one more if forwards overlap backwards */
                int warmup = 2 * (pp - r - 1) + (vpp - 1) * pp + 1;
                CU_ASSERT(n[0] == warmup && n[1] == warmup);
            }
        }
}

/* Time slots, F = 1, B = 2, t = 0.25, against the list of slots walked by hand (a program of ten lines).
 * p = 2, v = 2, m = 4: rank 0 F F F F . . F B F B F B F B . B . B . B . B, rank 1 . F F . F B F B ...: 32;
 * the sender alone waiting: 30.25. What an action needs always arrives in an earlier slot. */
static void test_slots(void) {
    static const int shapes[][3] = {{2, 2, 4}, {2, 2, 2}, {4, 3, 8}};
    static const double want_s[] = {32, 18, 95};
    for (int i = 0; i < 3; i++) {
        const int *n = shapes[i];
        struct dtp_costs c = case_costs(arena, n[0], n[1], n[2], (struct case_times){1, 1, 1});
        case_sends(&c, 0, 0.25, 0);
        c.p2p_blocking = true;
        if (i == 0)
            near(step_of(&c, DTP_SCHED_INTERLEAVED), 30.25);
        c.p2p_slots = true;
        near(step_of(&c, DTP_SCHED_INTERLEAVED), want_s[i]);
    }
    for (int pp = 2; pp <= 8; pp++)
        for (int vpp = 2; vpp <= 4; vpp++)
            for (int m = pp; m <= 4 * pp; m += pp) {
                struct dtp_costs c = case_costs(arena, pp, vpp, m, (struct case_times){1, 1, 1});
                c.p2p_blocking = c.p2p_slots = true;
                struct dtp_schedule s = case_schedule(arena, DTP_SCHED_INTERLEAVED, pp, vpp, m);
                struct dtp_layout l;
                dtp_layout_init(arena, &c, &s, false, &l);
                uint32_t *sent = DTP_NEW(arena, uint32_t, 2 * (size_t)(l.nstages * m));
                for (int pass = 0; pass < 2; pass++)
                    for (int r = 0; r < pp; r++)
                        for (uint32_t k = s.begin[r]; k < s.begin[r + 1]; k++) {
                            struct dtp_action x = s.action[k];
                            int vs = l.stage_of[r * vpp + x.chunk];
                            int64_t out = dtp_slot_out(&l, x.kind, vs, x.microbatch),
                                    in = dtp_slot_in(&l, x.kind, vs, x.microbatch);
                            if (pass == 0 && out >= 0)
                                sent[out] = l.slot[k];
                            CU_ASSERT(pass == 0 || in < 0 || sent[in] < l.slot[k]);
                            CU_ASSERT(k == s.begin[r] || l.slot[k - 1] < l.slot[k]);
                        }
            }
}

static void set_reduce(struct dtp_costs *c, int n, double time_s) {
    for (int s = 0; s < c->nstages; s++) {
        c->stage[s].nreduce = n;
        c->stage[s].reduce = case_comm(DTP_ALL_REDUCE, DTP_AXIS_DP_CP, 0, time_s, 0);
    }
}

/* One rank, m = 3, F = 1, B = 2. Not overlapped: all 4 units after 9. Overlapped: parts of B end every
 * 0.5 from 7.5; units of 0.25 hide but for the last; units of 1 queue from 7.5. */
static void test_reduce(void) {
    struct dtp_costs c = case_costs(arena, 1, 1, 3, (struct case_times){1, 1, 1});
    set_reduce(&c, 4, 0.25);
    near(step_of(&c, DTP_SCHED_1F1B), 9 + 4 * 0.25);
    c.reduce_overlap = true;
    near(step_of(&c, DTP_SCHED_1F1B), 9 + 0.25);
    set_reduce(&c, 4, 1);
    near(step_of(&c, DTP_SCHED_1F1B), 7.5 + 4);
    /* per microbatch, blocking: 4 after each of the three; during compute: the last queues behind */
    c.reduce_overlap = false;
    c.reduce_per_microbatch = true;
    near(step_of(&c, DTP_SCHED_1F1B), 9 + 3 * 4);
    c.reduce_overlap = true;
    near(step_of(&c, DTP_SCHED_1F1B), 3 + 3 * 4);
}

/* Gathers overlap the first forward: unit k waits until (k + 1) g. */
static void test_gather(void) {
    struct dtp_costs c = case_costs(arena, 1, 1, 2, (struct case_times){1, 1, 1});
    c.stage[0].nreduce = 2;
    c.stage[0].gather = case_comm(DTP_ALL_GATHER, DTP_AXIS_DP_CP, 0, 0.25, 0);
    near(step_of(&c, DTP_SCHED_1F1B), 6 + 2 * 0.25);
    c.gather_overlap = true;
    near(step_of(&c, DTP_SCHED_1F1B), 6 + 0.25);
    c.stage[0].gather.time_s = 2;
    near(step_of(&c, DTP_SCHED_1F1B), 4 + 0.5 + 5);
}

/* ZeRO-3, one rank, m = 1, F = 1 and B = 2 in two units. Prefetch 0: each unshard is exposed. Prefetch 1:
 * unit k + 1's overlaps unit k. */
static void test_unshard(void) {
    struct dtp_costs c = case_costs(arena, 1, 1, 1, (struct case_times){1, 1, 1});
    c.zero_stage = 3;
    c.regather_backward = true;
    c.stage[0].nunshard = 2;
    c.stage[0].unshard = case_comm(DTP_ALL_GATHER, DTP_AXIS_DP_CP, 0, 0.25, 0);
    near(step_of(&c, DTP_SCHED_1F1B), 3 + 4 * 0.25);
    c.prefetch = c.prefetch_forward = 1;
    near(step_of(&c, DTP_SCHED_1F1B), 3 + 0.25);
    c.stage[0].unshard.time_s = 0.75; /* longer than F's unit: 0.75, 1.5, 2.25, then hidden */
    near(step_of(&c, DTP_SCHED_1F1B), 0.75 * 3 + 2);
    c.regather_backward = false;
    near(step_of(&c, DTP_SCHED_1F1B), 0.75 * 2 + 0.5 + 2);
}

/* p = 2: all ends at (m + 1)(F + B) on rank 0, 2 (F + B)... on rank 1; the embedding waits for both,
 * the norm for all; each rank's own optimizer follows. */
static void test_tail(void) {
    struct dtp_costs c = case_costs(arena, 2, 1, 2, (struct case_times){1, 1, 1});
    c.optimizer_s[0] = 0.5;
    c.optimizer_s[1] = 2;
    near(step_of(&c, DTP_SCHED_1F1B), 9.5); /* rank 1 ends at 7 and 9 */
    c.embedding_all_reduce = case_comm(DTP_ALL_REDUCE, DTP_AXIS_PP, 0, 0.25, 0);
    near(step_of(&c, DTP_SCHED_1F1B), 9 + 0.25 + 2);
    c.norm_all_reduce = case_comm(DTP_ALL_REDUCE, DTP_AXIS_PP, 0, 0.125, 0);
    near(step_of(&c, DTP_SCHED_1F1B), 9 + 0.25 + 0.125 + 2);
    c.step_host_s = 1;
    c.offload_s = 3;
    near(step_of(&c, DTP_SCHED_1F1B), 1 + 9 + 0.25 + 0.125 + 2 + 3);
}

static void test_breakdown(void) {
    struct dtp_costs c = case_costs(arena, 4, 1, 8, (struct case_times){1, 0.5, 0.5});
    struct dtp_schedule s = case_schedule(arena, DTP_SCHED_1F1B, 4, 1, 8);
    struct dtp_path path, free_path;
    struct dtp_breakdown b;
    case_sends(&c, 0, 0.25, 0);
    set_reduce(&c, 3, 0.5);
    c.stage[0].f.tp_s = 0.25;
    c.stage[0].f.compute_s = 0.75;
    dtp_estimate(arena, &c, &s, &path);
    dtp_estimate_free(arena, &c, &s, &free_path);
    dtp_breakdown_fill(&c, &s, &path, &free_path, &b);
    CU_ASSERT(path.last_rank == 0);
    near(b.compute_s, 8 * 1.75);
    near(b.tp_exposed_s, 8 * 0.25);
    near(b.dp_exposed_s, 1.5);
    near(b.pp_bubble_s, 6);
    near(b.pp_exposed_s, path.step_s - 16 - 1.5 - 6);
    CU_ASSERT(dtp_breakdown_sum_s(&b) == path.step_s);
}

/* A user's order that cannot run ends at infinity, not in a loop. */
static void test_deadlock(void) {
    struct dtp_schedule s;
    struct dtp_err err;
    struct dtp_path path;
    struct dtp_costs c = case_costs(arena, 2, 1, 1, (struct case_times){1, 1, 1});
    CU_ASSERT_FATAL(dtp_schedule_parse(arena, "test", "0: 0B0 0F0\n1: 0F0 0B0\n", 1, &s, &err) ==
                    DTP_OK);
    dtp_estimate(arena, &c, &s, &path);
    CU_ASSERT(isinf(path.step_s));
}

/* Equal stages reach the steady state at once: most of 512 microbatches are jumped over, and the sums
 * of eighths stay exact. Units in every action are walked. */
static void test_jump(void) {
    struct dtp_path jumped, plain;
    static const int kinds[] = {DTP_SCHED_1F1B, DTP_SCHED_INTERLEAVED, DTP_SCHED_ZB_H1,
                                DTP_SCHED_GPIPE};
    for (int k = 0; k < 4; k++)
        for (int blocking = 0; blocking < 2; blocking++) {
            int v = k == 1 ? 2 : 1;
            struct dtp_costs c = case_costs(arena, 8, v, 512, (struct case_times){1, 0.5, 0.5});
            struct dtp_schedule s = case_schedule(arena, kinds[k], 8, v, 512);
            case_sends(&c, 0, 0.125, 0);
            c.p2p_blocking = blocking;
            dtp_estimate(arena, &c, &s, &jumped);
            dtp_estimate_plain(arena, &c, &s, &plain);
            CU_ASSERT(jumped.step_s == plain.step_s);
            CU_ASSERT(plain.nactions == s.begin[8] && jumped.nactions < plain.nactions / 3);
            c.zero_stage = 3;
            set_reduce(&c, 2, 0.125);
            for (int vs = 0; vs < c.nstages; vs++) {
                c.stage[vs].nunshard = 2;
                c.stage[vs].unshard = c.stage[vs].reduce;
            }
            dtp_estimate(arena, &c, &s, &jumped);
            CU_ASSERT(jumped.nactions == plain.nactions);
        }
}

int main(void) {
    CU_TestInfo tests[] = {{"text-book step times", test_textbook},
                           {"text-book bubbles", test_bubble},
                           {"transfers", test_transfers},
                           {"gradient reduction", test_reduce},
                           {"parameter gather", test_gather},
                           {"time slots", test_slots},
                           {"waiting for room beside compute", test_wait},
                           {"collectives beside compute take longer", test_stretch},
                           {"compute beside collectives takes longer", test_slowed},
                           {"forwards beside backwards of other microbatches", test_paired},
                           {"ZeRO-3 unshards", test_unshard},
                           {"tail of a rank", test_tail},
                           {"breakdown", test_breakdown},
                           {"deadlock", test_deadlock},
                           {"jump over the steady state", test_jump},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"estimate", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
