/* lower_layout.h: a schedule and its costs as flat arrays. What ESTIMATE (models/evaluate) and the lowering must
 * agree on is decided here, once:
 *
 *   durations   F = f, B = i + w + r, I = i + r, W = w, each concurrent with another microbatch (if the plan
 *               hides rows of experts) or, in fill and drain of the pipeline, hidden_s longer without
 *   slots       one per transfer: vs * m + microbatch for what F(vs) sends on, and nstages * m more
 *               for what B(vs) or I(vs) sends back
 *   parts       equal pieces of an action: as many as the larger of its unshard and its overlapped
 *               reduction or gather units; unit k of n waits for (or waits on) part
 *               dtp_part_first(k, n, parts) .. dtp_part_last(k, n, parts)
 *   tail        deferred weight gradients of the head, reductions of chunks 0 .. vpp-1, embedding, norm, optimizer,
 *               gathers, offload and host
 */
#ifndef DTP_MODELS_LOWER_LAYOUT_H
#define DTP_MODELS_LOWER_LAYOUT_H

#include "models/lower/lower.h"

enum dtp_p2p_mode {
    DTP_P2P_ASYNC,      /* no stream waits but the consumer */
    DTP_P2P_SENDER,     /* the sender's next action waits too */
    DTP_P2P_RENDEZVOUS, /* both ends must have come; lower.h */
    DTP_P2P_SLOTS       /* in time slots, each with one batch of transfers; lower.h */
};

/* The rows of durations are F, B, I, W, then the same without a concurrent action of another microbatch. */
enum { DTP_LAYOUT_KINDS = DTP_A_W + 1, DTP_LAYOUT_ROWS = 2 * DTP_LAYOUT_KINDS };

/* The actions of a rank that run concurrently with one of another microbatch: from <= index < to. */
struct dtp_paired {
    uint32_t from, to;
};

struct dtp_layout {
    const struct dtp_costs *costs;
    const struct dtp_schedule *schedule;
    int pp, vpp, m, nstages;
    bool split;
    bool parts;     /* some action may be cut or reduce per microbatch: see dtp_layout_parts() */
    bool unsharded; /* ZeRO-3 units in F */
    bool unsharded_b;
    enum dtp_p2p_mode p2p;
    int *rank_of;              /* [nstages] */
    int *stage_of;             /* [pp * vpp], by rank * vpp + chunk */
    double *dur_s;             /* [DTP_LAYOUT_ROWS * nstages], by row * nstages + vs */
    struct dtp_paired *paired; /* [pp]; NULL: no action takes longer without a concurrent one */
    double *send_s;            /* [2 * nstages] forward, then backward; -1 where nothing is sent */
    uint32_t *first;           /* [nstages] index in the schedule of the chunk's first F */
    uint32_t *last;            /* [nstages] of its last B or W */
    uint32_t *slot;  /* DTP_P2P_SLOTS: time slot of each action of the schedule; else NULL */
    uint32_t nslots; /* time slots in all */
};

/* What one action does besides computing; 0 units: nothing of that kind. */
struct dtp_action_parts {
    int nparts;
    int nunshard, ngather, nreduce; /* units; nreduce: overlapped, by part */
    int prefetch;                   /* units that are prefetched */
    bool reduce_whole;              /* one reduction of all units at the action's end */
};

void dtp_layout_init(struct dtp_arena *a, const struct dtp_costs *costs,
                     const struct dtp_schedule *schedule, bool free_p2p, struct dtp_layout *out);
/* From the first backward on each backward runs concurrently with the next forward, up to the last forward: one more
 * forward runs before them (Megatron-Core, combined_1f1b.py; get_pp_rank_microbatches() in schedules.py). */
struct dtp_paired dtp_schedule_paired(const struct dtp_schedule *schedule, int rank);
/* Row of durations of an action of rank r, index in the schedule. */
static inline int dtp_layout_row(const struct dtp_layout *l, int r, uint32_t index) {
    int kind = l->schedule->action[index].kind;
    bool alone = l->paired && (index < l->paired[r].from || index >= l->paired[r].to);
    return alone ? DTP_LAYOUT_KINDS + kind : kind;
}
/* index: position of the action in the schedule. */
struct dtp_action_parts dtp_layout_parts(const struct dtp_layout *l, int vs, int kind,
                                         uint32_t index);
/* Slots of the transfer that the action waits for and that it starts, or -1. */
static inline int64_t dtp_slot_in(const struct dtp_layout *l, int kind, int vs, uint32_t mb) {
    if (kind == DTP_A_F)
        return vs > 0 ? (int64_t)(vs - 1) * l->m + mb : -1;
    if (kind == DTP_A_W || vs + 1 == l->nstages)
        return -1;
    return (int64_t)(l->nstages + vs + 1) * l->m + mb;
}
static inline int64_t dtp_slot_out(const struct dtp_layout *l, int kind, int vs, uint32_t mb) {
    if (kind == DTP_A_F)
        return vs + 1 < l->nstages ? (int64_t)vs * l->m + mb : -1;
    if (kind == DTP_A_W || vs == 0)
        return -1;
    return (int64_t)(l->nstages + vs) * l->m + mb;
}
/* Returns the index into send_s, which is that of the sending virtual stage in each direction. */
static inline int dtp_slot_sender(const struct dtp_layout *l, int64_t slot) {
    return (int)(slot / l->m);
}
/* Returns the rank that receives the slot. */
static inline int dtp_slot_receiver(const struct dtp_layout *l, int64_t slot) {
    int from = dtp_slot_sender(l, slot);
    return l->rank_of[from < l->nstages ? from + 1 : from - l->nstages - 1];
}
/* Whether reductions follow all actions; otherwise each follows the action whose gradients it reduces. */
static inline bool dtp_reduces_last(const struct dtp_costs *c) {
    return !c->reduce_overlap && !c->reduce_per_microbatch;
}
static inline int dtp_part_first(int unit, int nunits, int nparts) {
    return (int)((int64_t)unit * nparts / nunits);
}
static inline int dtp_part_last(int unit, int nunits, int nparts) {
    return (int)((int64_t)(unit + 1) * nparts / nunits) - 1;
}
static inline bool dtp_has_embedding(const struct dtp_layout *l, int rank) {
    int a = l->rank_of[0], b = l->rank_of[l->nstages - 1];
    return l->costs->embedding_all_reduce.time_s > 0 && a != b && (rank == a || rank == b);
}

#endif
