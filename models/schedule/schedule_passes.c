#include "models/schedule/schedule.h"

#include <assert.h>

#include "models/schedule/schedule_kinds.h"

/* One rank's list while it is written; with out NULL it only counts. */
struct list {
    const struct dtp_schedule_passes *passes;
    const struct dtp_chunk_links *links; /* [vpp] */
    int *unfinished; /* [vpp] microbatches whose F stands and whose B or I does not yet */
    int *backward;   /* [vpp] B or W still to come */
    bool *unsharded; /* [vpp] */
    struct dtp_action *out;
    uint32_t n;
};

static struct dtp_chunk_links chunk_links(int kind, int pp, int vpp, int rank, int c) {
    int chunk;
    struct dtp_chunk_links x = {dtp_schedule_kinds[kind].stage(pp, vpp, rank, c), -1, -1, false,
                                false};
    if (x.stage > 0)
        dtp_schedule_holder(kind, pp, vpp, x.stage - 1, &x.before, &chunk);
    if (x.stage < pp * vpp - 1)
        dtp_schedule_holder(kind, pp, vpp, x.stage + 1, &x.after, &chunk);
    x.far_before = x.before >= 0 && x.before != rank;
    x.far_after = x.after >= 0 && x.after != rank;
    return x;
}

void dtp_schedule_links(const struct dtp_schedule *s, int rank, struct dtp_chunk_links *links) {
    for (int c = 0; c < s->vpp; c++)
        links[c] = chunk_links(s->kind, s->pp, s->vpp, rank, c);
}

static void add(struct list *l, enum dtp_action_kind kind, struct dtp_action like) {
    if (l->out) {
        like.kind = (uint8_t)kind;
        l->out[l->n] = like;
    }
    l->n++;
}

static void unshard(struct list *l, struct dtp_action x) {
    if (l->passes->zero_stage < 3 || l->unsharded[x.chunk])
        return;
    add(l, DTP_A_UNSHARD, x);
    l->unsharded[x.chunk] = true;
}

/* After an action that used the parameters. */
static void reshard(struct list *l, struct dtp_action x) {
    if (!l->unsharded[x.chunk])
        return;
    if (!l->passes->regather_backward && l->unfinished[x.chunk] > 0)
        return;
    add(l, DTP_A_RESHARD, x);
    l->unsharded[x.chunk] = false;
}

static void add_forward(struct list *l, struct dtp_action x) {
    const struct dtp_chunk_links *link = &l->links[x.chunk];
    if (l->passes->p2p && link->far_before)
        add(l, DTP_A_RECV_F, x);
    unshard(l, x);
    add(l, DTP_A_F, x);
    if (l->passes->p2p && link->far_after)
        add(l, DTP_A_SEND_F, x);
    l->unfinished[x.chunk]++;
    reshard(l, x);
}

/* B or I: what needs the parameters and the gradient from behind. */
static void add_backward(struct list *l, struct dtp_action x) {
    const struct dtp_chunk_links *link = &l->links[x.chunk];
    if (l->passes->p2p && link->far_after)
        add(l, DTP_A_RECV_B, x);
    unshard(l, x);
    if (l->passes->recompute)
        add(l, DTP_A_RECOMPUTE, x);
    add(l, (enum dtp_action_kind)x.kind, x);
    if (l->passes->p2p && link->far_before)
        add(l, DTP_A_SEND_B, x);
    l->unfinished[x.chunk]--;
    reshard(l, x);
}

/* After B or W: the microbatch's gradients are complete. */
static void add_reduce(struct list *l, struct dtp_action x) {
    bool last = --l->backward[x.chunk] == 0;
    if (l->passes->reduce && (last || l->passes->reduce_per_microbatch))
        add(l, DTP_A_REDUCE_GRAD, x);
}

static void add_end_of_step(struct list *l, int vpp) {
    for (int c = 0; l->passes->offload && c < vpp; c++)
        add(l, DTP_A_FETCH, (struct dtp_action){.chunk = (uint16_t)c});
    if (l->passes->optim)
        add(l, DTP_A_OPTIM, (struct dtp_action){0});
    for (int c = 0; l->passes->offload && c < vpp; c++)
        add(l, DTP_A_OFFLOAD, (struct dtp_action){.chunk = (uint16_t)c});
}

static enum dtp_status add_action(struct list *l, struct dtp_action x, struct dtp_err *err) {
    switch ((enum dtp_action_kind)x.kind) {
    case DTP_A_F:
        add_forward(l, x);
        return DTP_OK;
    case DTP_A_B:
        add_backward(l, x);
        add_reduce(l, x);
        return DTP_OK;
    case DTP_A_I:
        add_backward(l, x);
        return DTP_OK;
    case DTP_A_W:
        add(l, DTP_A_W, x);
        add_reduce(l, x);
        return DTP_OK;
    case DTP_A_SEND_F:
    case DTP_A_RECV_F:
    case DTP_A_SEND_B:
    case DTP_A_RECV_B:
    case DTP_A_RECOMPUTE:
    case DTP_A_UNSHARD:
    case DTP_A_RESHARD:
    case DTP_A_REDUCE_GRAD:
    case DTP_A_OFFLOAD:
    case DTP_A_FETCH:
    case DTP_A_OPTIM:
    case DTP_NACTIONS:
        break;
    }
    return dtp_fail(err, DTP_EINPUT, "%u%s%u: a schedule to be completed holds F, B, I and W only",
                    (unsigned)x.chunk, dtp_action_names[x.kind], (unsigned)x.microbatch);
}

/* The rank's whole list into l->out, or only its length. */
static enum dtp_status add_rank(struct list *l, const struct dtp_schedule *s, int rank,
                                struct dtp_err *err) {
    for (int c = 0; c < s->vpp; c++) {
        l->unfinished[c] = 0;
        l->backward[c] = s->m;
        l->unsharded[c] = false;
    }
    l->n = 0;
    for (uint32_t i = s->begin[rank]; i < s->begin[rank + 1]; i++)
        DTP_TRY(add_action(l, s->action[i], err));
    add_end_of_step(l, s->vpp);
    return DTP_OK;
}

enum dtp_status dtp_schedule_complete(struct dtp_arena *a, const struct dtp_schedule *compute,
                                      const struct dtp_schedule_passes *passes,
                                      struct dtp_schedule *out, struct dtp_err *err) {
    size_t vpp = (size_t)compute->vpp;
    struct dtp_chunk_links *links = DTP_NEW(a, struct dtp_chunk_links, vpp);
    struct list l = {.passes = passes,
                     .links = links,
                     .unfinished = DTP_NEW(a, int, vpp),
                     .backward = DTP_NEW(a, int, vpp),
                     .unsharded = DTP_NEW(a, bool, vpp)};
    struct dtp_schedule full = *compute;
    full.begin = DTP_NEW(a, uint32_t, (size_t)compute->pp + 1);
    for (int rank = 0; rank < compute->pp; rank++) {
        dtp_schedule_links(compute, rank, links);
        DTP_TRY(add_rank(&l, compute, rank, err));
        full.begin[rank + 1] = full.begin[rank] + l.n;
    }
    full.action = DTP_NEW(a, struct dtp_action, full.begin[compute->pp]);
    for (int rank = 0; rank < compute->pp; rank++) {
        l.out = full.action + full.begin[rank];
        dtp_schedule_links(compute, rank, links);
        DTP_TRY(add_rank(&l, compute, rank, err));
        assert(l.n == full.begin[rank + 1] - full.begin[rank]);
    }
    *out = full;
    return DTP_OK;
}

int dtp_schedule_complete_one(const struct dtp_schedule *of, int rank,
                              const struct dtp_schedule_passes *passes, struct dtp_action x,
                              struct dtp_action out[DTP_SCHED_MOST_AROUND]) {
    struct dtp_chunk_links links = chunk_links(of->kind, of->pp, of->vpp, rank, x.chunk);
    int unfinished = x.kind == DTP_A_F ? 0 : 1, backward = 1;
    bool unsharded = false;
    struct list l = {passes, &links, &unfinished, &backward, &unsharded, out, 0};
    x.chunk = 0;
    return add_action(&l, x, NULL) == DTP_OK ? (int)l.n : 0;
}
