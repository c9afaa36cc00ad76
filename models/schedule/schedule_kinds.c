#include "models/schedule/schedule_kinds.h"

#include <stddef.h>

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

static int one_f_one_b(int pp, int vpp, int m, int rank, struct dtp_action *out) {
    (void)vpp;
    int warmup = pp - 1 - rank < m ? pp - 1 - rank : m;
    struct dtp_action *at = out;
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

static int interleaved(int pp, int vpp, int m, int rank, struct dtp_action *out) {
    int total = m * vpp;
    int warmup = 2 * (pp - rank - 1) + (vpp - 1) * pp; /* Megatron-LM, core/pipeline_parallel */
    warmup = warmup < total ? warmup : total;
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

/* ZB-H1 (Qi 2023, section 2.1, figure 3): 1F1B with B split, and W of rank r kept back by r
 * microbatches. Each rank then holds min(p, m) activations, what the first rank of 1F1B holds, and
 * the W kept back fill the drain: I of the last microbatch climbs from rank p-1 to 0 while they
 * run. p = 3, m = 3, W in angles: 0: 0 1 2 [0] <0> [1] <1> [2] <2> 1: 0 1 [0] 2 [1] <0> [2] <1> <2>
 *   2: 0 [0] 1 [1] 2 [2] <0> <1> <2>
 */
static int zb_h1(int pp, int vpp, int m, int rank, struct dtp_action *out) {
    (void)vpp;
    int warmup = pp - 1 - rank < m ? pp - 1 - rank : m;
    int w = 0;
    struct dtp_action *at = out;
    for (int i = 0; i < warmup; i++)
        put(at++, DTP_A_F, 0, i);
    for (int i = 0; i < m; i++) {
        if (warmup + i < m)
            put(at++, DTP_A_F, 0, warmup + i);
        put(at++, DTP_A_I, 0, i);
        if (i >= rank)
            put(at++, DTP_A_W, 0, w++);
    }
    while (w < m)
        put(at++, DTP_A_W, 0, w++);
    return (int)(at - out);
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

const char *const dtp_schedule_names[] = {"gpipe",         "1f1b", "interleaved", "zb-h1",
                                          "breadth-first", "zb-v", NULL};

const struct dtp_schedule_kind dtp_schedule_kinds[] = {
    [DTP_SCHED_GPIPE] = {.name = "gpipe",
                         .title = "all forwards, then all backwards",
                         .source = "Huang 2019 (GPipe), section 2.3",
                         .phases = true,
                         .stage = loop_stage,
                         .generate = gpipe},
    [DTP_SCHED_1F1B] = {.name = "1f1b",
                        .title = "one forward, one backward: at most pp microbatches in flight",
                        .source = "Narayanan 2021, section 2.2.1 (PipeDream-flush)",
                        .stage = loop_stage,
                        .generate = one_f_one_b},
    [DTP_SCHED_INTERLEAVED] = {.name = "interleaved",
                               .title =
                                   "1F1B over vpp chunks per rank: bubble / vpp, transfers x vpp",
                               .source = "Narayanan 2021, section 2.2.2; Megatron-LM",
                               .chunked = true,
                               .whole_groups = true,
                               .stage = loop_stage,
                               .generate = interleaved},
    [DTP_SCHED_ZB_H1] = {.name = "zb-h1",
                         .title = "1F1B with weight gradients put off into the drain",
                         .source = "Qi 2023 (Zero Bubble), section 2.1",
                         .split_backward = true,
                         .stage = loop_stage,
                         .generate = zb_h1},
    [DTP_SCHED_BREADTH_FIRST] = {.name = "breadth-first",
                                 .title = "all forwards chunk by chunk, then all backwards",
                                 .source = "Lamy-Poirier 2022 (Breadth-First), section 3",
                                 .chunked = true,
                                 .stage = loop_stage,
                                 .generate = breadth_first},
    [DTP_SCHED_ZB_V] =
        {.name = "zb-v",
         .title =
             "two chunks in a V, weight gradients in the gaps; bubble (p-1) F / 2 if F = I = W",
         .source = "Qi 2023 (Zero Bubble), section 6",
         .split_backward = true,
         .chunked = true,
         .fills_twice = true,
         .most_vpp = 2,
         .stage = v_stage,
         .generate = zb_v},
    [DTP_NSCHEDULES] = {.name = NULL},
    [DTP_SCHED_USER] = {.name = "user",
                        .title = "read from a text",
                        .source = "the user",
                        .stage = loop_stage},
};

const struct dtp_schedule_alias dtp_schedule_aliases[] = {
    {"interleaved1f1b", DTP_SCHED_INTERLEAVED},
    {"1f1binterleaved", DTP_SCHED_INTERLEAVED},
    {"interleaving", DTP_SCHED_INTERLEAVED},
    {"virtualpipeline", DTP_SCHED_INTERLEAVED},
    {"vpp", DTP_SCHED_INTERLEAVED},
    {"pipedreamflush", DTP_SCHED_1F1B},
    {"oneforwardonebackward", DTP_SCHED_1F1B},
    {"afab", DTP_SCHED_GPIPE},
    {"fillanddrain", DTP_SCHED_GPIPE},
    {"filldrain", DTP_SCHED_GPIPE},
    {"zerobubble", DTP_SCHED_ZB_H1},
    {"bfs", DTP_SCHED_BREADTH_FIRST},
    {"loopedbfs", DTP_SCHED_BREADTH_FIRST},
    {"zbvzerobubble", DTP_SCHED_ZB_V},
    {NULL, -1},
};
