#include "models/schedule/schedule.h"

#include <ctype.h>
#include <string.h>

#include "sim/base/machine.h"
#include "sim/base/text.h"

/* ---- orders ---- */

/* Chunk c of rank r is virtual stage c pp + r: the loop placement of Narayanan 2021, figure 4. */
static int loop_stage(int pp, int vpp, int rank, int chunk) {
    (void)vpp;
    return chunk * pp + rank;
}

static inline void put(struct dtp_action *out, enum dtp_action_kind kind, int chunk,
                       int microbatch) {
    *out = (struct dtp_action){(uint8_t)kind, (uint16_t)chunk, (uint32_t)microbatch};
}

/* GPipe, p = 3, m = 3:      1F1B:                     F numbered, B in brackets
 *   0: 0 1 2 [0] [1] [2]      0: 0 1 2 [0] [1] [2]
 *   1: 0 1 2 [0] [1] [2]      1: 0 1 [0] 2 [1] [2]
 *   2: 0 1 2 [0] [1] [2]      2: 0 [0] 1 [1] 2 [2]
 */
static int gpipe(int pp, int vpp, int m, int rank, struct dtp_action *out) {
    (void)pp, (void)vpp, (void)rank;
    for (int i = 0; i < m; i++) {
        put(out + i, DTP_A_F, 0, i);
        put(out + m + i, DTP_A_B, 0, i);
    }
    return 2 * m;
}

static int least(int a, int b) {
    return a < b ? a : b;
}

/* Writes 1F1B after `warmup` forwards. */
static int one_by_one(int m, int warmup, struct dtp_action *out) {
    struct dtp_action *at = out;
    warmup = least(warmup, m);
    for (int i = 0; i < warmup; i++)
        put(at++, DTP_A_F, 0, i);
    for (int i = 0; i < m - warmup; i++) {
        put(at++, DTP_A_F, 0, warmup + i);
        put(at++, DTP_A_B, 0, i);
    }
    for (int i = m - warmup; i < m; i++)
        put(at++, DTP_A_B, 0, i);
    return (int)(at - out);
}

static int one_f_one_b(int pp, int vpp, int m, int rank, struct dtp_action *out) {
    (void)vpp;
    return one_by_one(m, pp - 1 - rank, out);
}

/* Eager 1F1B: 1F1B with twice the forwards before the first backward, so that a rank always has another forward to
 * run while its last output and the gradient that answers it are under way. p = 3, m = 6:
 *   0: 0 1 2 3 4 [0] 5 [1] [2] [3] [4] [5]
 *   1: 0 1 2 [0] 3 [1] 4 [2] 5 [3] [4] [5]
 *   2: 0 [0] 1 [1] 2 [2] 3 [3] 4 [4] 5 [5]
 */
static int eager_1f1b(int pp, int vpp, int m, int rank, struct dtp_action *out) {
    (void)vpp;
    return one_by_one(m, 2 * (pp - 1 - rank), out);
}

/* One microbatch at a time: a single stage computes at any moment. p = 3, m = 2:
 *   0: 0           [0] 1           [1]
 *   1:   0     [0]       1     [1]
 *   2:     0 [0]           1 [1]
 */
static int naive(int pp, int vpp, int m, int rank, struct dtp_action *out) {
    (void)pp, (void)vpp, (void)rank;
    return one_by_one(m, 0, out);
}

/* Walks (chunk, microbatch) as the interleaved schedule does: pp microbatches through chunk 0, the
 * same pp through chunk 1, ..., then the next pp microbatches. No division in the loop. */
struct group_walk {
    int pp, vpp, step; /* step +1: chunks upwards (forward), -1: downwards (backward) */
    int chunk, microbatch, in_group;
};

static inline void group_next(struct group_walk *w) {
    w->microbatch++;
    if (++w->in_group < w->pp)
        return;
    w->in_group = 0;
    w->chunk += w->step;
    if (w->chunk < 0 || w->chunk == w->vpp)
        w->chunk = w->step > 0 ? 0 : w->vpp - 1;
    else
        w->microbatch -= w->pp;
}

/* Returns the forwards before the first backward as in Megatron-LM, core/pipeline_parallel. */
static int interleaved_warmup(int pp, int vpp, int m, int rank) {
    return least(2 * (pp - rank - 1) + (vpp - 1) * pp, m * vpp);
}

static int interleaved(int pp, int vpp, int m, int rank, struct dtp_action *out) {
    int total = m * vpp, warmup = interleaved_warmup(pp, vpp, m, rank);
    struct group_walk f = {.pp = pp, .vpp = vpp, .step = 1};
    struct group_walk b = {.pp = pp, .vpp = vpp, .step = -1, .chunk = vpp - 1};
    struct dtp_action *at = out;
    for (int i = 0; i < warmup; i++, group_next(&f))
        put(at++, DTP_A_F, f.chunk, f.microbatch);
    for (int i = warmup; i < total; i++, group_next(&f), group_next(&b)) {
        put(at++, DTP_A_F, f.chunk, f.microbatch);
        put(at++, DTP_A_B, b.chunk, b.microbatch);
    }
    for (int i = total - warmup; i < total; i++, group_next(&b))
        put(at++, DTP_A_B, b.chunk, b.microbatch);
    return (int)(at - out);
}

/* torch.distributed.pipelining, _get_1f1b_rank_ops(): rank r starts r slots after the first, its first backward
 * comes in slot v p + 2 (p - 1 - r) + 1 after the warm-up, and in the cool-down every second slot is empty. */
static uint32_t interleaved_slot(int pp, int vpp, int m, int rank, uint32_t k) {
    uint32_t warmup = (uint32_t)interleaved_warmup(pp, vpp, m, rank);
    uint32_t pairs = 2 * ((uint32_t)(m * vpp) - warmup);
    uint32_t steady = (uint32_t)(vpp * pp + 2 * (pp - 1 - rank));
    if (k < warmup)
        return (uint32_t)rank + k;
    k -= warmup;
    return k < pairs ? steady + k : steady + pairs + 2 * (k - pairs) + 1;
}

/* ZB-H1 (Qi 2023, section 2.1, figure 3): 1F1B with B split, and W of rank r kept back by r
 * microbatches. Each rank then holds min(p, m) activations, what the first rank of 1F1B holds, and
 * the W kept back fill the drain: I of the last microbatch climbs from rank p-1 to 0 while they
 * run. p = 3, m = 3, W in angles:
 *   0: 0 1 2 [0] <0> [1] <1> [2] <2>
 *   1: 0 1 [0] 2 [1] <0> [2] <1> <2>
 *   2: 0 [0] 1 [1] 2 [2] <0> <1> <2>
 */
static int split_one_by_one(int m, int warmup, int kept_back, struct dtp_action *out) {
    int w = 0;
    struct dtp_action *at = out;
    warmup = least(warmup, m);
    for (int i = 0; i < warmup; i++)
        put(at++, DTP_A_F, 0, i);
    for (int i = 0; i < m; i++) {
        if (warmup + i < m)
            put(at++, DTP_A_F, 0, warmup + i);
        put(at++, DTP_A_I, 0, i);
        if (i >= kept_back)
            put(at++, DTP_A_W, 0, w++);
    }
    while (w < m)
        put(at++, DTP_A_W, 0, w++);
    return (int)(at - out);
}

static int zb_h1(int pp, int vpp, int m, int rank, struct dtp_action *out) {
    (void)vpp;
    return split_one_by_one(m, pp - 1 - rank, rank, out);
}

/* ZB-H2 (Qi 2023, section 2.2): twice the warm-up and twice the W kept back, so that with F = I = W no rank idles
 * between its first and its last action; each holds 2 p - 1 activations. The ranks start one F after another and
 * end so too, hence a step whose ranks wait for each other takes (p - 1) F more than its work. */
static int zb_h2(int pp, int vpp, int m, int rank, struct dtp_action *out) {
    (void)vpp;
    return split_one_by_one(m, 2 * (pp - 1 - rank), 2 * rank, out);
}

/* GPipe over vpp chunks: all microbatches through one chunk, then the next (Lamy-Poirier 2022, section
 * 3): the bubble of interleaving with transfers and unshards spread widest, all activations held. */
static int breadth_first(int pp, int vpp, int m, int rank, struct dtp_action *out) {
    struct dtp_action *at = out;
    (void)pp, (void)rank;
    for (int c = 0; c < vpp; c++)
        for (int i = 0; i < m; i++)
            put(at++, DTP_A_F, c, i);
    for (int c = vpp - 1; c >= 0; c--)
        for (int i = 0; i < m; i++)
            put(at++, DTP_A_B, c, i);
    return (int)(at - out);
}

/* Two chunks a rank, down the ranks and back up: rank 0 holds the first and the last stage. */
static int v_stage(int pp, int vpp, int rank, int chunk) {
    (void)vpp;
    return chunk == 0 ? rank : 2 * pp - 1 - rank;
}

/* Writes the next F, I or W of chunk c, microbatches in order. */
struct v_writer {
    struct dtp_action *at;
    int f[2], i[2], w[2];
};

static void v_forward(struct v_writer *v, int c) {
    put(v->at++, DTP_A_F, c, v->f[c]++);
}
static void v_input(struct v_writer *v, int c) {
    put(v->at++, DTP_A_I, c, v->i[c]++);
}
static void v_weight(struct v_writer *v, int c) {
    put(v->at++, DTP_A_W, c, v->w[c]++);
}

/* ZB-V (Qi 2023, section 6), for m >= 2 p - 1: with F = I = W a step takes (p - 1) F / 2 more than its
 * work, the way of the first microbatch down the ranks; 2 p chunk activations are held, in bytes what
 * the first rank of 1F1B holds. Warm-up: chunk 0 until the microbatch that went down first is back up;
 * the steady state turns F0 I0 W0 F1 I1 W1; the drain leaves W for last where the gradients of other
 * ranks still pass. */
static int zb_v(int pp, int vpp, int m, int rank, struct dtp_action *out) {
    struct v_writer v = {.at = out};
    (void)vpp;
    for (int k = 0; k < 2 * (pp - rank) - 1; k++)
        v_forward(&v, 0);
    for (int k = 0; k < rank; k++) {
        v_forward(&v, 1);
        v_forward(&v, 0);
    }
    for (int k = 0; k < pp - rank; k++) {
        v_forward(&v, 1);
        v_input(&v, 1);
        v_weight(&v, 1);
    }
    while (v.f[1] < m) {
        if (v.f[0] < m)
            v_forward(&v, 0);
        v_input(&v, 0);
        v_weight(&v, 0);
        v_forward(&v, 1);
        v_input(&v, 1);
        v_weight(&v, 1);
    }
    for (int k = 0; k < rank; k++) {
        v_input(&v, 0);
        v_input(&v, 1);
    }
    while (v.i[0] < m) {
        v_input(&v, 0);
        v_weight(&v, 0);
    }
    while (v.w[1] < m)
        v_weight(&v, 1);
    while (v.w[0] < m)
        v_weight(&v, 0);
    return (int)(v.at - out);
}

/* ---- activations in flight, messages held ---- */

static int all_in_flight(int pp, int vpp, int m, int rank) {
    (void)pp, (void)rank;
    return m * vpp;
}

static int naive_in_flight(int pp, int vpp, int m, int rank) {
    (void)pp, (void)vpp, (void)m, (void)rank;
    return 1;
}

static int one_f_one_b_in_flight(int pp, int vpp, int m, int rank) {
    (void)vpp;
    return least(pp - rank, m);
}

static int eager_1f1b_in_flight(int pp, int vpp, int m, int rank) {
    (void)vpp;
    return least(2 * (pp - rank) - 1, m);
}

static int interleaved_in_flight(int pp, int vpp, int m, int rank) {
    return least(interleaved_warmup(pp, vpp, m, rank) + 1, m * vpp);
}

static int zb_h1_in_flight(int pp, int vpp, int m, int rank) {
    (void)vpp, (void)rank;
    return least(pp, m);
}

static int zb_h2_in_flight(int pp, int vpp, int m, int rank) {
    (void)vpp, (void)rank;
    return least(2 * pp - 1, m);
}

static int zb_v_in_flight(int pp, int vpp, int m, int rank) {
    (void)m, (void)rank;
    return pp * vpp;
}

static int breadth_first_held(int pp, int m) {
    return m / pp;
}

static int zb_v_held(int pp, int m) {
    (void)m;
    return pp - 1;
}

/* ---- the table ---- */

#define X(index, name) name,
const char *const dtp_schedule_names[] = {DTP_SCHEDULE_LIST(X) NULL};
#undef X

const struct dtp_schedule_kind dtp_schedule_kinds[] = {
    [DTP_SCHED_GPIPE] = {.name = "gpipe",
                         .title = "all forwards, then all backwards",
                         .source = "Huang 2019 (GPipe), section 2.3",
                         .aliases = "afab fillanddrain filldrain",
                         .torch = "GPipe",
                         .nanotron = "afab",
                         .phases = true,
                         .rendezvous = true,
                         .stage = loop_stage,
                         .generate = gpipe,
                         .in_flight = all_in_flight},
    [DTP_SCHED_1F1B] = {.name = "1f1b",
                        .title = "one forward, one backward: at most pp microbatches in flight",
                        .source = "Narayanan 2021, section 2.2.1 (PipeDream-flush)",
                        .aliases = "pipedreamflush oneforwardonebackward dapple dapplepa",
                        .torch = "1F1B",
                        .nanotron = "1f1b",
                        .usual = true,
                        .rendezvous = true,
                        .stage = loop_stage,
                        .generate = one_f_one_b,
                        .in_flight = one_f_one_b_in_flight},
    [DTP_SCHED_INTERLEAVED] = {.name = "interleaved",
                               .title =
                                   "1F1B over vpp chunks per rank: bubble / vpp, transfers x vpp",
                               .source = "Narayanan 2021, section 2.2.2; Megatron-LM",
                               .aliases = "interleaved1f1b 1f1binterleaved interleaving "
                                          "virtualpipeline vpp",
                               .torch = "Interleaved1F1B",
                               .usual = true,
                               .chunked = true,
                               .whole_groups = true,
                               .stage = loop_stage,
                               .generate = interleaved,
                               .in_flight = interleaved_in_flight,
                               .time_slot = interleaved_slot},
    /* PyTorch's InterleavedZeroBubble wants two stages a rank and more, so it is no ZB-H1. */
    [DTP_SCHED_ZB_H1] = {.name = "zb-h1",
                         .title = "1F1B with weight gradients put off into the drain",
                         .source = "Qi 2023 (Zero Bubble), section 2.1",
                         .aliases = "zerobubble",
                         .split_backward = true,
                         .stage = loop_stage,
                         .generate = zb_h1,
                         .in_flight = zb_h1_in_flight},
    [DTP_SCHED_BREADTH_FIRST] = {.name = "breadth-first",
                                 .title = "all forwards chunk by chunk, then all backwards",
                                 .source = "Lamy-Poirier 2022 (Breadth-First), section 3",
                                 .aliases = "bfs loopedbfs",
                                 .torch = "LoopedBFS",
                                 .chunked = true,
                                 .stage = loop_stage,
                                 .generate = breadth_first,
                                 .in_flight = all_in_flight,
                                 .sends_held = breadth_first_held},
    [DTP_SCHED_ZB_V] =
        {.name = "zb-v",
         .title =
             "two chunks in a V, weight gradients in the gaps; bubble (p-1) F / 2 if F = I = W",
         .source = "Qi 2023 (Zero Bubble), section 6",
         .aliases = "zbvzerobubble",
         .torch = "ZBVZeroBubble",
         .split_backward = true,
         .chunked = true,
         .fills_twice = true,
         .most_vpp = 2,
         .stage = v_stage,
         .generate = zb_v,
         .in_flight = zb_v_in_flight,
         .sends_held = zb_v_held},
    [DTP_SCHED_EAGER_1F1B] = {.name = "eager-1f1b",
                              .title =
                                  "1F1B with twice the warm-up: transfers hide, up to 2 pp - 1 "
                                  "microbatches in flight",
                              .source = "Zhuang 2023 (cross-mesh resharding, eager-1F1B); Fan 2021 "
                                        "(DAPPLE), PB",
                              .aliases = "1f1boverlapfriendly dapplepb",
                              .stage = loop_stage,
                              .generate = eager_1f1b,
                              .in_flight = eager_1f1b_in_flight},
    [DTP_SCHED_ZB_H2] = {.name = "zb-h2",
                         .title =
                             "zb-h1 with twice the warm-up: no rank idles if F = I = W, 2 pp - 1 "
                             "microbatches in flight",
                         .source = "Qi 2023 (Zero Bubble), section 2.2",
                         .aliases = "",
                         .split_backward = true,
                         .fills_twice = true,
                         .stage = loop_stage,
                         .generate = zb_h2,
                         .in_flight = zb_h2_in_flight},
    [DTP_SCHED_NAIVE] = {.name = "naive",
                         .title = "one microbatch at a time through all stages: bubble (p-1) / p",
                         .source = "Huang 2019 (GPipe), figure 2b",
                         .aliases = "naivemodelparallelism modelparallel",
                         .serial = true,
                         .rendezvous = true,
                         .stage = loop_stage,
                         .generate = naive,
                         .in_flight = naive_in_flight},
    [DTP_NSCHEDULES] = {.name = NULL},
    [DTP_SCHED_USER] = {.name = "user",
                        .title = "read from a text",
                        .source = "the user",
                        .stage = loop_stage},
};

/* ---- finding and making ---- */

/* Turns "Interleaved 1F1B (Paddle)" into "interleaved1f1b". */
static void plain_name(const char *name, char *out, size_t size) {
    size_t n = 0;
    for (; *name && *name != '(' && n + 1 < size; name++)
        if (isalnum((unsigned char)*name))
            out[n++] = (char)tolower((unsigned char)*name);
    out[n] = '\0';
}

/* True when one of the words with blanks between them is this one. */
static bool has_word(const char *words, const char *word) {
    size_t n = strlen(word);
    for (const char *p = words; n > 0 && p && *p; p += strspn(p, " ")) {
        size_t length = strcspn(p, " ");
        if (length == n && memcmp(p, word, n) == 0)
            return true;
        p += length;
    }
    return false;
}

int dtp_schedule_find(const char *name) {
    char plain[64], known[64];
    plain_name(name, plain, sizeof plain);
    for (int k = 0; dtp_schedule_names[k]; k++) {
        plain_name(dtp_schedule_names[k], known, sizeof known);
        if (strcmp(plain, known) == 0 || has_word(dtp_schedule_kinds[k].aliases, plain))
            return k;
    }
    return -1;
}

int dtp_schedule_usual(int vpp) {
    int k = 0;
    while (!dtp_schedule_kinds[k].usual || dtp_schedule_kinds[k].chunked != (vpp > 1))
        k++;
    return k;
}

const char *dtp_schedule_applies(int kind, int pp, int vpp, int m) {
    const struct dtp_schedule_kind *k = &dtp_schedule_kinds[kind];
    if (!k->generate)
        return "the order is the user's own and cannot be generated";
    if (pp < 1 || vpp < 1 || m < 1 || pp > DTP_SCHEDULE_MAX_PP || vpp > DTP_SCHEDULE_MAX_VPP)
        return "pp, vpp and the number of microbatches must be 1 or more, pp and vpp within limits";
    if (!k->chunked && vpp > 1)
        return "this schedule has one chunk per rank (vpp = 1)";
    if (k->most_vpp == 2 && vpp != 2)
        return "this schedule needs vpp = 2";
    if (k->chunked && vpp < 2)
        return "this schedule needs vpp > 1";
    if (k->chunked && pp < 2)
        return "this schedule needs pp > 1";
    if (k->most_vpp > 0 && vpp > k->most_vpp)
        return "vpp is over what this schedule places";
    if (k->whole_groups && m % pp != 0)
        return "pp must divide the number of microbatches";
    if (k->fills_twice && m < 2 * pp - 1)
        return "this schedule needs at least 2 pp - 1 microbatches";
    return NULL;
}

size_t dtp_schedule_max_actions(int vpp, int m) {
    return 3 * (size_t)vpp * (size_t)m;
}

void dtp_schedule_holder(int kind, int pp, int vpp, int vs, int *rank, int *chunk) {
    /* Every placement so far keeps chunk c within virtual stages c pp .. c pp + pp - 1. */
    int c = vs / pp, r = vs % pp;
    if (dtp_schedule_kinds[kind].stage(pp, vpp, r, c) != vs)
        r = pp - 1 - r;
    *rank = r;
    *chunk = c;
}

/* An action takes its own bytes and the two times of its transfer that ESTIMATE keeps. A short schedule is not worth
 * asking how much memory there is. */
static enum dtp_status check_room(int64_t nactions, int m, struct dtp_err *err) {
    static const int64_t few = 1 << 24;
    static const double action_bytes = sizeof(struct dtp_action) + 2 * sizeof(double);
    char actions[32], needs[32], has[32];
    double bytes = (double)nactions * action_bytes;
    double free_bytes = nactions > few ? (double)dtp_machine_memory("").free_bytes : bytes;
    if (bytes <= free_bytes && nactions <= UINT32_MAX)
        return DTP_OK;
    return dtp_fail(err, DTP_EUNSUPPORTED,
                    "%s actions of %d microbatches take about %s of memory, there are %s: fewer or "
                    "larger microbatches take less",
                    dtp_fmt_count((double)nactions, actions, sizeof actions), m,
                    dtp_fmt_bytes_gib(bytes, needs, sizeof needs),
                    dtp_fmt_bytes_gib(free_bytes, has, sizeof has));
}

enum dtp_status dtp_schedule_make(struct dtp_arena *a, int kind, int pp, int vpp, int m,
                                  struct dtp_schedule *out, struct dtp_err *err) {
    const struct dtp_schedule_kind *k = &dtp_schedule_kinds[kind];
    const char *why = dtp_schedule_applies(kind, pp, vpp, m);
    if (why)
        return dtp_fail(err, DTP_EINPUT, "schedule %s with pp %d, vpp %d, %d microbatches: %s",
                        k->name, pp, vpp, m, why);
    int64_t per_rank = (int64_t)(k->split_backward ? 3 : 2) * vpp * m;
    DTP_TRY(check_room(per_rank * pp, m, err));
    *out = (struct dtp_schedule){
        .kind = kind, .pp = pp, .vpp = vpp, .m = m, .split = k->split_backward};
    out->begin = DTP_NEW(a, uint32_t, (size_t)pp + 1);
    out->action = DTP_NEW(a, struct dtp_action, (size_t)(per_rank * pp));
    for (int rank = 0; rank < pp; rank++) {
        int n = k->generate(pp, vpp, m, rank, out->action + out->begin[rank]);
        out->begin[rank + 1] = out->begin[rank] + (uint32_t)n;
    }
    return DTP_OK;
}

int dtp_schedule_sends_held(int kind, int pp, int m) {
    const struct dtp_schedule_kind *k = &dtp_schedule_kinds[kind];
    int held = k->sends_held ? k->sends_held(pp, m) : 1;
    return held > 1 ? held : 1;
}

bool dtp_schedule_holds_more(int kind, int pp, int vpp, int m, int fewer) {
    const struct dtp_schedule_kind *k = &dtp_schedule_kinds[kind];
    for (int rank = 0; rank < pp; rank++)
        if (k->in_flight(pp, vpp, m, rank) > k->in_flight(pp, vpp, fewer, rank))
            return true;
    return false;
}

void dtp_schedule_in_flight(const struct dtp_schedule *s, int *in_flight, int *peak,
                            int *peak_chunk) {
    int held[DTP_SCHEDULE_MAX_VPP];
    size_t row_bytes = (size_t)s->vpp * sizeof held[0];
    for (int rank = 0; rank < s->pp; rank++) {
        int sum = 0, most = 0;
        size_t row = (size_t)rank * (size_t)s->vpp;
        memset(held, 0, row_bytes);
        if (in_flight)
            memset(in_flight + row, 0, row_bytes);
        if (peak_chunk)
            memset(peak_chunk + row, 0, row_bytes);
        for (uint32_t i = s->begin[rank]; i < s->begin[rank + 1]; i++) {
            struct dtp_action x = s->action[i];
            if (x.kind == DTP_A_B || x.kind == DTP_A_W) {
                held[x.chunk]--;
                sum--;
            }
            if (x.kind != DTP_A_F)
                continue;
            held[x.chunk]++;
            if (in_flight && held[x.chunk] > in_flight[row + x.chunk])
                in_flight[row + x.chunk] = held[x.chunk];
            if (++sum <= most)
                continue;
            most = sum;
            if (peak_chunk)
                memcpy(peak_chunk + row, held, row_bytes);
        }
        if (peak)
            peak[rank] = most;
    }
}
