/* Schedules over many (p, v, m): text-book bubbles, no deadlock, text round trip, channel order. */
#include <CUnit/Basic.h>
#include <math.h>
#include <string.h>

#include "sim/base/rng.h"
#include "tests/costs_case.h"
#include "tests/schedule_path.h"
#include "tests/suites.h"

/* Called for every schedule that applies with p <= 12, v <= 4, m <= 3 p. */
typedef void visit(struct dtp_arena *a, const struct dtp_schedule *s);

static bool visit_one(struct dtp_arena *a, visit *fn, const int at[4]) {
    struct dtp_schedule s;
    if (dtp_schedule_applies(at[0], at[1], at[2], at[3]))
        return false;
    dtp_arena_reset(a);
    if (dtp_schedule_make(a, at[0], at[1], at[2], at[3], &s, NULL) == DTP_OK)
        fn(a, &s);
    else
        CU_FAIL("applies, yet cannot be made");
    return true;
}

static int for_each_schedule(visit *fn) {
    struct dtp_arena *a = dtp_arena_create("test");
    int n = 0;
    for (int kind = 0; kind < DTP_NSCHEDULES; kind++)
        for (int pp = 1; pp <= 12; pp++)
            for (int k = 0; k < 4 * 3 * pp; k++)
                n += visit_one(a, fn, (const int[]){kind, pp, 1 + k % 4, 1 + k / 4});
    dtp_arena_destroy(a);
    return n;
}

static void equal(double got, double want, const char *name, const struct dtp_schedule *s) {
    if (fabs(got - want) <= 1e-12 * fabs(want) + 1e-12) {
        CU_PASS("equal");
        return;
    }
    printf("\n  %s pp %d vpp %d m %d: found %.15g, expected %.15g\n", name, s->pp, s->vpp, s->m,
           got, want);
    CU_FAIL("bubble");
}

/* m (F + I + W) + bubble, chunks taking 1/v of each; -1: the kind has no formula for these. */
static double text_book_s(const struct dtp_schedule *s, double f, double i, double w) {
    double fill = s->pp - 1, v = s->vpp, busy = s->m * (f + i + w);
    bool full = s->m >= s->pp;
    switch (s->kind) {
    case DTP_SCHED_GPIPE:
    case DTP_SCHED_1F1B:
    case DTP_SCHED_INTERLEAVED:
    case DTP_SCHED_EAGER_1F1B:
        return busy + fill * (f + i + w) / v;
    case DTP_SCHED_BREADTH_FIRST: /* a full pipeline */
        return full ? busy + fill * (f + i + w) / v : -1;
    case DTP_SCHED_ZB_H1: /* a full pipeline, and W that fit into the gaps */
        return full ? busy + fill * (f + i - w) : -1;
    case DTP_SCHED_ZB_H2: /* F = I = W: no idle time but the first microbatch's way down */
        return f == i && i == w ? busy + fill * f : -1;
    case DTP_SCHED_NAIVE: /* each microbatch passes all stages alone */
        return s->pp * busy;
    case DTP_SCHED_ZB_V: /* even chunks of F = I = W: the fill of one chunk per rank is left */
        return f == i && i == w ? busy + fill * f / v : -1;
    default:
        CU_FAIL("a kind without its text-book bubble");
        return -1;
    }
}

/* Multiples of 1/4 keep the sums exact. */
static const struct {
    double f, i, w;
} units[] = {{1, 1, 1}, {1, 1.25, 0.75}, {2, 2.5, 1.5}, {0.5, 0.5, 0.25}};
enum { NUNITS = sizeof units / sizeof *units };

static void bubble_of(struct dtp_arena *a, const struct dtp_schedule *s) {
    (void)a;
    for (size_t u = 0; u < NUNITS; u++) {
        double f = units[u].f, i = units[u].i, w = units[u].w, v = s->vpp;
        struct path_times t = {f / v, (i + w) / v, i / v, w / v, 0};
        double want = text_book_s(s, f, i, w);
        if (want >= 0)
            equal(path_step(s, &t), want, dtp_schedule_kinds[s->kind].name, s);
    }
}

static void test_bubbles(void) {
    CU_ASSERT(for_each_schedule(bubble_of) > 400);
}

/* With transfers of h seconds a step takes at least what it takes with free ones, and at most two hops more for each
 * microbatch and chunk and for each stage of the fill, whether nobody waits for a transfer, the sender does, both
 * ends do, or all ranks do in time slots, which add one forward of a chunk where neighbours turn from forwards to
 * pairs in different slots. With one microbatch at a time each pays all hops. test_fidelity.c holds SIMULATE to ESTIMATE. */
static void hops_cost_little(struct dtp_arena *a, const struct dtp_schedule *s) {
    static const double hops[] = {1.0 / 64, 1.0 / 16};
    for (size_t u = 0; u < NUNITS; u++) {
        double f = units[u].f, i = units[u].i, w = units[u].w, v = s->vpp;
        double free_s = text_book_s(s, f, i, w);
        struct dtp_costs c =
            case_costs(a, s->pp, s->vpp, s->m, (struct case_times){f / v, i / v, w / v});
        for (int k = 0; free_s >= 0 && k < 6; k++) {
            double hop_s = hops[k / 3] * f / v;
            bool serial = dtp_schedule_kinds[s->kind].serial;
            double nhops = serial ? s->m * (s->pp - 1.0) : v * s->m + v * s->pp - 1;
            double most_s = 2 * hop_s * nhops;
            bool slots = k % 3 == 2 && dtp_schedule_kinds[s->kind].time_slot;
            struct dtp_path path;
            most_s += slots ? f / v : 0;
            case_sends(&c, 0, hop_s, 0);
            c.p2p_blocking = k % 3 > 0;
            c.p2p_slots = k % 3 > 1;
            dtp_estimate(a, &c, s, &path);
            bool ok = path.step_s >= free_s * (1 - 1e-12) &&
                      path.step_s <= (free_s + most_s) * (1 + 1e-12);
            if (!ok)
                printf("\n  %s pp %d vpp %d m %d, transfers %d: %.6g s, expected %.6g .. %.6g\n",
                       dtp_schedule_kinds[s->kind].name, s->pp, s->vpp, s->m, k, path.step_s,
                       free_s, free_s + most_s);
            CU_ASSERT(ok);
        }
    }
}

static void test_hops(void) {
    CU_ASSERT(for_each_schedule(hops_cost_little) > 400);
}

/* The row's function gives what the order's walk counts. */
static void in_flight_matches(struct dtp_arena *a, const struct dtp_schedule *s) {
    int *peak = DTP_NEW(a, int, (size_t)s->pp);
    dtp_schedule_in_flight(s, NULL, peak, NULL);
    bool same = true;
    for (int r = 0; r < s->pp; r++)
        same &= peak[r] == dtp_schedule_kinds[s->kind].in_flight(s->pp, s->vpp, s->m, r);
    CU_ASSERT(same);
}

static void test_in_flight(void) {
    CU_ASSERT(for_each_schedule(in_flight_matches) > 400);
}

/* ---- checker ---- */

static void complete_is_sound(struct dtp_arena *a, const struct dtp_schedule *s) {
    struct dtp_err err = {0};
    struct dtp_rng rng = dtp_rng_stream(7, (uint64_t)(s->kind + 8 * (s->pp + 64 * s->m)));
    uint64_t r = dtp_rng_next(&rng);
    struct dtp_schedule_passes passes = {.p2p = s->pp > 1,
                                         .recompute = r & 1,
                                         .zero_stage = r & 2 ? 3 : 1,
                                         .regather_backward = r & 4,
                                         .reduce = r & 8,
                                         .reduce_per_microbatch = r & 16,
                                         .offload = r & 32,
                                         .optim = r & 64};
    struct dtp_schedule full;
    CU_ASSERT(dtp_schedule_check(a, s, &err) == DTP_OK);
    CU_ASSERT(dtp_schedule_complete(a, s, &passes, &full, &err) == DTP_OK);
    if (dtp_schedule_check(a, &full, &err) != DTP_OK) {
        printf("\n  %s pp %d vpp %d m %d: %s\n", dtp_schedule_kinds[s->kind].name, s->pp, s->vpp,
               s->m, err.msg);
        CU_FAIL("complete list");
    }
}

static void test_sound(void) {
    CU_ASSERT(for_each_schedule(complete_is_sound) > 400);
}

static bool same(const struct dtp_schedule *x, const struct dtp_schedule *y) {
    if (x->kind != y->kind || x->pp != y->pp || x->vpp != y->vpp || x->m != y->m ||
        memcmp(x->begin, y->begin, ((size_t)x->pp + 1) * sizeof x->begin[0]) != 0)
        return false;
    for (uint32_t i = 0; i < x->begin[x->pp]; i++)
        if (x->action[i].kind != y->action[i].kind || x->action[i].chunk != y->action[i].chunk ||
            x->action[i].microbatch != y->action[i].microbatch)
            return false;
    return true;
}

static void parses_back(struct dtp_arena *a, const struct dtp_schedule *s) {
    struct dtp_schedule_passes passes = {.p2p = true,
                                         .recompute = true,
                                         .zero_stage = 3,
                                         .reduce = true,
                                         .offload = true,
                                         .optim = true};
    struct dtp_schedule full, back;
    char *text = NULL;
    size_t size = 0;
    if (s->m > 2 * s->pp) /* nothing new in longer ones */
        return;
    CU_ASSERT(dtp_schedule_complete(a, s, &passes, &full, NULL) == DTP_OK);
    FILE *f = open_memstream(&text, &size);
    CU_ASSERT_FATAL(f != NULL);
    dtp_schedule_print(f, &full);
    fclose(f);
    CU_ASSERT(dtp_schedule_parse(a, "text", text, 0, &back, NULL) == DTP_OK && same(&full, &back));
    free(text);
}

static void test_round_trip(void) {
    CU_ASSERT(for_each_schedule(parses_back) > 400);
}

/* Per direction and pair of ranks, the k-th send and the k-th receive are of the same message. */
struct channels {
    const struct dtp_schedule *s;
    size_t most;
    uint64_t *queue; /* [2 * pp * pp][most] */
    uint32_t *sent, *received;
    bool ok;
};

static void send_or_receive(struct channels *c, int rank, struct dtp_action x, bool sends) {
    const struct dtp_schedule *s = c->s;
    bool send = x.kind == DTP_A_SEND_F || x.kind == DTP_A_SEND_B;
    bool forward = x.kind == DTP_A_SEND_F || x.kind == DTP_A_RECV_F;
    bool receive = x.kind == DTP_A_RECV_F || x.kind == DTP_A_RECV_B;
    if (sends ? !send : !receive)
        return;
    int vs = dtp_schedule_kinds[s->kind].stage(s->pp, s->vpp, rank, x.chunk), peer, chunk;
    int other = vs + (forward == send ? 1 : -1);
    dtp_schedule_holder(s->kind, s->pp, s->vpp, other, &peer, &chunk);
    int from = send ? rank : peer, to = send ? peer : rank;
    uint64_t message = (uint64_t)(send ? vs : other) << 32 | x.microbatch;
    size_t channel = (size_t)((forward * s->pp + from) * s->pp + to);
    if (send)
        c->queue[channel * c->most + c->sent[channel]++] = message;
    else
        c->ok &= c->queue[channel * c->most + c->received[channel]++] == message;
}

static void channels_in_order(struct dtp_arena *a, const struct dtp_schedule *s) {
    struct dtp_schedule_passes passes = {.p2p = true};
    struct dtp_schedule full;
    CU_ASSERT(dtp_schedule_complete(a, s, &passes, &full, NULL) == DTP_OK);
    size_t n = 2 * (size_t)s->pp * (size_t)s->pp;
    struct channels c = {.s = s, .most = (size_t)s->vpp * (size_t)s->m + 1, .ok = true};
    c.queue = DTP_NEW(a, uint64_t, n * c.most);
    c.sent = DTP_NEW(a, uint32_t, n);
    c.received = DTP_NEW(a, uint32_t, n);
    for (int pass = 0; pass < 2; pass++)
        for (int r = 0; r < s->pp; r++)
            for (uint32_t i = full.begin[r]; i < full.begin[r + 1]; i++)
                send_or_receive(&c, r, full.action[i], pass == 0);
    CU_ASSERT(c.ok && memcmp(c.sent, c.received, n * sizeof c.sent[0]) == 0);
}

static void test_channels(void) {
    CU_ASSERT(for_each_schedule(channels_in_order) > 400);
}

/* ---- sent messages that a rank holds ---- */

/* A run of the order in which a send waits until the one `held` before it, of its rank and direction, was
 * received. */
struct holding {
    const struct dtp_schedule *s;
    bool *sent[2], *received[2]; /* [stages * m], by stage of the receiver: forward, backward */
    size_t *message[2];          /* [pp][vpp * m] of each rank, in order */
    uint32_t *at, *nsent[2];     /* [pp] */
    uint32_t held;
};

static bool can_run(struct holding *h, int rank, struct dtp_action x) {
    const struct dtp_schedule *s = h->s;
    bool send = x.kind == DTP_A_SEND_F || x.kind == DTP_A_SEND_B;
    int back = x.kind == DTP_A_SEND_B || x.kind == DTP_A_RECV_B;
    if (!send && x.kind != DTP_A_RECV_F && x.kind != DTP_A_RECV_B)
        return true;
    int stage = dtp_schedule_kinds[s->kind].stage(s->pp, s->vpp, rank, x.chunk);
    int to = !send ? stage : back ? stage - 1 : stage + 1;
    size_t message = (size_t)to * (size_t)s->m + x.microbatch;
    size_t *mine = h->message[back] + (size_t)rank * (size_t)s->vpp * (size_t)s->m;
    uint32_t *n = &h->nsent[back][rank];
    if (!send)
        return h->received[back][message] = h->sent[back][message];
    if (*n >= h->held && !h->received[back][mine[*n - h->held]])
        return false;
    mine[(*n)++] = message;
    return h->sent[back][message] = true;
}

static bool runs_holding(struct dtp_arena *a, const struct dtp_schedule *s, int held) {
    size_t ranks = (size_t)s->pp, messages = ranks * (size_t)s->vpp * (size_t)s->m;
    struct holding h = {.s = s, .at = DTP_NEW(a, uint32_t, ranks), .held = (uint32_t)held};
    for (int back = 0; back < 2; back++) {
        h.sent[back] = DTP_NEW(a, bool, messages);
        h.received[back] = DTP_NEW(a, bool, messages);
        h.message[back] = DTP_NEW(a, size_t, messages);
        h.nsent[back] = DTP_NEW(a, uint32_t, ranks);
    }
    memcpy(h.at, s->begin, ranks * sizeof *h.at);
    uint32_t left = s->begin[s->pp];
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < s->pp; r++)
            for (; h.at[r] < s->begin[r + 1] && can_run(&h, r, s->action[h.at[r]]);
                 h.at[r]++, left--)
                moved = true;
    }
    return left == 0;
}

/* So many are enough, and fewer are not. */
static void sends_are_held(struct dtp_arena *a, const struct dtp_schedule *s) {
    struct dtp_schedule_passes passes = {.p2p = true};
    struct dtp_schedule full;
    int held = dtp_schedule_sends_held(s->kind, s->pp, s->m);
    CU_ASSERT(dtp_schedule_complete(a, s, &passes, &full, NULL) == DTP_OK);
    CU_ASSERT(runs_holding(a, &full, held));
    CU_ASSERT(held == 1 || !runs_holding(a, &full, held - 1));
}

static void test_sends_held(void) {
    CU_ASSERT(for_each_schedule(sends_are_held) > 400);
}

/* Holder is the inverse of stage. */
static void holders_match(struct dtp_arena *a, const struct dtp_schedule *s) {
    (void)a;
    bool ok = true;
    for (int r = 0; r < s->pp; r++) {
        for (int c = 0; c < s->vpp; c++) {
            int rank, chunk, vs = dtp_schedule_kinds[s->kind].stage(s->pp, s->vpp, r, c);
            dtp_schedule_holder(s->kind, s->pp, s->vpp, vs, &rank, &chunk);
            ok &= rank == r && chunk == c;
        }
    }
    CU_ASSERT(ok);
}

static void test_holders(void) {
    CU_ASSERT(for_each_schedule(holders_match) > 400);
}

static void swap_two(struct dtp_rng *rng, struct dtp_schedule *s) {
    uint32_t r = (uint32_t)dtp_rng_below(rng, (uint64_t)s->pp);
    uint64_t n = s->begin[r + 1] - s->begin[r];
    struct dtp_action *x = s->action + s->begin[r] + dtp_rng_below(rng, n);
    struct dtp_action *y = s->action + s->begin[r] + dtp_rng_below(rng, n), z = *x;
    *x = *y;
    *y = z;
}

/* An order with two swaps is refused exactly when the plain longest path stalls. */
static void test_shuffled(void) {
    struct dtp_arena *a = dtp_arena_create("test");
    struct dtp_rng rng = dtp_rng_stream(11, 0);
    struct path_times unit = {1, 2, 1, 1, 0};
    struct dtp_schedule_passes p2p = {.p2p = true};
    int refused = 0, accepted = 0;
    for (int trial = 0; trial < 3000; trial++) {
        struct dtp_schedule s, full;
        int kind = (int)dtp_rng_below(&rng, DTP_NSCHEDULES), pp = 2 + (int)dtp_rng_below(&rng, 3);
        int vpp = dtp_schedule_kinds[kind].chunked ? 2 : 1;
        dtp_arena_reset(a);
        if (dtp_schedule_make(a, kind, pp, vpp, pp, &s, NULL) != DTP_OK)
            continue;
        swap_two(&rng, &s);
        swap_two(&rng, &s);
        bool runs = path_step(&s, &unit) >= 0;
        bool passes = dtp_schedule_check(a, &s, NULL) == DTP_OK;
        bool full_passes = dtp_schedule_complete(a, &s, &p2p, &full, NULL) == DTP_OK &&
                           dtp_schedule_check(a, &full, NULL) == DTP_OK;
        CU_ASSERT(runs == passes && passes == full_passes);
        refused += !passes;
        accepted += passes;
    }
    CU_ASSERT(refused > 100 && accepted > 100);
    dtp_arena_destroy(a);
}

int main(void) {
    CU_TestInfo tests[] = {{"bubbles are the text-books'", test_bubbles},
                           {"transfers add two hops a microbatch", test_hops},
                           {"activations in flight by formula", test_in_flight},
                           {"checked and never deadlocks", test_sound},
                           {"parses back to itself", test_round_trip},
                           {"sent messages are held", test_sends_held},
                           {"channels keep their order", test_channels},
                           {"holder inverts stage", test_holders},
                           {"shuffled orders", test_shuffled},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"schedule properties", NULL, NULL, NULL, NULL, tests},
                             CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
