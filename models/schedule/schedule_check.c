#include "models/schedule/schedule.h"

#include <string.h>

#include "models/schedule/schedule_kinds.h"

/* State of the check: which actions are listed and which have run, one bit a kind, per (virtual
 * stage, microbatch). */
struct check {
    const struct dtp_schedule *s;
    struct dtp_chunk_links *links; /* [pp * vpp] by rank, chunk */
    uint16_t *listed, *done;       /* [stages * m] */
    uint32_t *at;                  /* [pp] next action of each rank */
    bool transfers;                /* some SEND or RECV stands in the list */
    struct dtp_err *err;
};

#define BIT(kind) (1U << (kind))
#define BACKWARD (BIT(DTP_A_B) | BIT(DTP_A_I))
#define TRANSFERS (BIT(DTP_A_SEND_F) | BIT(DTP_A_RECV_F) | BIT(DTP_A_SEND_B) | BIT(DTP_A_RECV_B))
/* Kinds that stand at most once per chunk and microbatch. */
#define ONCE                                                                                       \
    (BIT(DTP_A_F) | BACKWARD | BIT(DTP_A_W) | TRANSFERS | BIT(DTP_A_RECOMPUTE) |                   \
     BIT(DTP_A_REDUCE_GRAD))

static const struct dtp_chunk_links *links_of(const struct check *c, int rank, unsigned chunk) {
    return &c->links[(size_t)rank * (size_t)c->s->vpp + chunk];
}

static size_t cell(const struct check *c, int stage, uint32_t microbatch) {
    return (size_t)stage * (size_t)c->s->m + microbatch;
}

static enum dtp_status complain(const struct check *c, int rank, struct dtp_action x,
                                const char *what) {
    return dtp_fail(c->err, DTP_EINPUT, "rank %d: %u%s%u %s", rank, (unsigned)x.chunk,
                    dtp_action_names[x.kind], (unsigned)x.microbatch, what);
}

/* ---- each action exactly once ---- */

static enum dtp_status list_action(struct check *c, int rank, struct dtp_action x) {
    if (x.kind >= DTP_NACTIONS)
        return dtp_fail(c->err, DTP_EINPUT, "rank %d: action of unknown kind %u", rank,
                        (unsigned)x.kind);
    if (x.chunk >= c->s->vpp || x.microbatch >= (uint32_t)c->s->m)
        return complain(c, rank, x, "is outside of the chunks and microbatches of the schedule");
    uint16_t bit = (uint16_t)BIT(x.kind);
    uint16_t *listed = &c->listed[cell(c, links_of(c, rank, x.chunk)->stage, x.microbatch)];
    if ((bit & ONCE) && (*listed & bit))
        return complain(c, rank, x, "stands twice");
    *listed |= bit;
    c->transfers |= (bit & TRANSFERS) != 0;
    return DTP_OK;
}

/* The transfers that a cell needs, as bits. */
static unsigned transfers_due(const struct dtp_chunk_links *x) {
    unsigned due = 0;
    if (x->far_before)
        due |= BIT(DTP_A_RECV_F) | BIT(DTP_A_SEND_B);
    if (x->far_after)
        due |= BIT(DTP_A_SEND_F) | BIT(DTP_A_RECV_B);
    return due;
}

static enum dtp_status complete_cell(const struct check *c, int rank, unsigned chunk,
                                     uint32_t microbatch) {
    const struct dtp_chunk_links *x = links_of(c, rank, chunk);
    unsigned listed = c->listed[cell(c, x->stage, microbatch)];
    struct dtp_action a = {DTP_A_F, (uint16_t)chunk, microbatch};
    if (!(listed & BIT(DTP_A_F)))
        return complain(c, rank, a, "is missing");
    unsigned backward = listed & (BACKWARD | BIT(DTP_A_W));
    a.kind = DTP_A_B;
    if (backward != BIT(DTP_A_B) && backward != (BIT(DTP_A_I) | BIT(DTP_A_W)))
        return complain(c, rank, a, "must stand once: as B, or as I and W");
    unsigned due = c->transfers ? transfers_due(x) : 0;
    for (unsigned kind = DTP_A_SEND_F; kind <= DTP_A_RECV_B; kind++) {
        a.kind = (uint8_t)kind;
        if ((due & ~listed) & BIT(kind))
            return complain(c, rank, a, "is missing: its neighbour is another rank");
        if ((listed & ~due) & BIT(kind))
            return complain(c, rank, a, "has no other rank to go to or come from");
    }
    return DTP_OK;
}

static enum dtp_status check_listed(struct check *c) {
    const struct dtp_schedule *s = c->s;
    for (int rank = 0; rank < s->pp; rank++)
        for (uint32_t i = s->begin[rank]; i < s->begin[rank + 1]; i++)
            DTP_TRY(list_action(c, rank, s->action[i]));
    for (int rank = 0; rank < s->pp; rank++)
        for (unsigned chunk = 0; chunk < (unsigned)s->vpp; chunk++)
            for (uint32_t i = 0; i < (uint32_t)s->m; i++)
                DTP_TRY(complete_cell(c, rank, chunk, i));
    return DTP_OK;
}

/* ---- parameters there when used; the optimizer after the gradients ---- */

static bool uses_parameters(unsigned kind) {
    return (BIT(kind) & (BIT(DTP_A_F) | BACKWARD | BIT(DTP_A_RECOMPUTE))) != 0;
}

/* The list of a rank that shards a chunk's parameters at all gathers them before each use. */
static enum dtp_status check_sharding(const struct check *c, int rank, unsigned chunk) {
    const struct dtp_schedule *s = c->s;
    bool sharded = false, gathered = false;
    for (uint32_t i = s->begin[rank]; i < s->begin[rank + 1]; i++)
        sharded |= s->action[i].kind == DTP_A_UNSHARD && s->action[i].chunk == chunk;
    for (uint32_t i = s->begin[rank]; i < s->begin[rank + 1]; i++) {
        struct dtp_action x = s->action[i];
        if (x.chunk != chunk)
            continue;
        if (x.kind == DTP_A_UNSHARD && gathered)
            return complain(c, rank, x, "gathers parameters that are there already");
        if (x.kind == DTP_A_RESHARD && !gathered)
            return complain(c, rank, x, "frees parameters that are not gathered");
        if (sharded && !gathered && uses_parameters(x.kind))
            return complain(c, rank, x, "uses parameters that are not gathered");
        gathered = x.kind == DTP_A_UNSHARD || (gathered && x.kind != DTP_A_RESHARD);
    }
    return DTP_OK;
}

static enum dtp_status check_optimizer(const struct check *c, int rank) {
    const struct dtp_schedule *s = c->s;
    bool ran = false;
    for (uint32_t i = s->begin[rank]; i < s->begin[rank + 1]; i++) {
        struct dtp_action x = s->action[i];
        if (x.kind == DTP_A_OPTIM && ran)
            return complain(c, rank, x, "stands twice");
        if (ran && x.kind != DTP_A_OFFLOAD)
            return complain(c, rank, x, "stands after the optimizer");
        ran |= x.kind == DTP_A_OPTIM;
    }
    return DTP_OK;
}

/* ---- no deadlock: run it ---- */

/* What an action needs: a bit of a cell, and the rank that sets it. bit 0: nothing. */
struct need {
    unsigned bits;
    size_t cell;
    int rank;
};

static struct need first_need(const struct check *c, int rank, struct dtp_action x) {
    const struct dtp_chunk_links *l = links_of(c, rank, x.chunk);
    size_t here = cell(c, l->stage, x.microbatch);
    size_t before = l->before >= 0 ? here - (size_t)c->s->m : here;
    size_t after = l->after >= 0 ? here + (size_t)c->s->m : here;
    bool far_f = c->transfers && l->far_before, far_b = c->transfers && l->far_after;
    switch ((enum dtp_action_kind)x.kind) {
    case DTP_A_F:
        if (far_f)
            return (struct need){BIT(DTP_A_RECV_F), here, rank};
        return (struct need){l->before >= 0 ? BIT(DTP_A_F) : 0, before, l->before};
    case DTP_A_B:
    case DTP_A_I:
        if (far_b)
            return (struct need){BIT(DTP_A_RECV_B), here, rank};
        return (struct need){l->after >= 0 ? BACKWARD : 0, after, l->after};
    case DTP_A_RECV_F:
        return (struct need){BIT(DTP_A_SEND_F), before, l->before};
    case DTP_A_RECV_B:
        return (struct need){BIT(DTP_A_SEND_B), after, l->after};
    case DTP_A_W:
        return (struct need){BIT(DTP_A_I), here, rank};
    case DTP_A_SEND_F:
    case DTP_A_RECOMPUTE:
        return (struct need){BIT(DTP_A_F), here, rank};
    case DTP_A_SEND_B:
        return (struct need){BACKWARD, here, rank};
    case DTP_A_REDUCE_GRAD:
        return (struct need){BIT(DTP_A_B) | BIT(DTP_A_W), here, rank};
    case DTP_A_UNSHARD:
    case DTP_A_RESHARD:
    case DTP_A_OFFLOAD:
    case DTP_A_FETCH:
    case DTP_A_OPTIM:
    case DTP_NACTIONS:
        break;
    }
    return (struct need){0, here, rank};
}

/* The need of x that is not met; bits 0 when x can run. Backwards also need their own forward. */
static struct need unmet(const struct check *c, int rank, struct dtp_action x) {
    struct need n = first_need(c, rank, x);
    if (n.bits && !(c->done[n.cell] & n.bits))
        return n;
    size_t here = cell(c, links_of(c, rank, x.chunk)->stage, x.microbatch);
    if ((BIT(x.kind) & BACKWARD) && !(c->done[here] & BIT(DTP_A_F)))
        return (struct need){BIT(DTP_A_F), here, rank};
    return (struct need){0, here, rank};
}

static bool advance(struct check *c, int rank) {
    bool moved = false;
    for (; c->at[rank] < c->s->begin[rank + 1]; c->at[rank]++, moved = true) {
        struct dtp_action x = c->s->action[c->at[rank]];
        struct need n = unmet(c, rank, x);
        if (n.bits)
            return moved;
        size_t here = cell(c, links_of(c, rank, x.chunk)->stage, x.microbatch);
        c->done[here] |= (uint16_t)BIT(x.kind);
    }
    return moved;
}

static const char *need_name(const struct need *n) {
    for (unsigned kind = 0; kind < DTP_NACTIONS; kind++)
        if (n->bits & BIT(kind))
            return dtp_action_names[kind];
    return "?";
}

/* "deadlock: rank 0 at 0RB0 waits for 0SB0 of rank 1; rank 1 at ..." until a rank comes again. */
static enum dtp_status describe_deadlock(const struct check *c, int rank) {
    enum { MOST_HOPS = 6 };
    char text[768] = "";
    size_t n = 0;
    int seen[MOST_HOPS];
    for (int hop = 0; hop < MOST_HOPS; hop++) {
        struct dtp_action x = c->s->action[c->at[rank]];
        struct need need = unmet(c, rank, x);
        int stage = (int)(need.cell / (size_t)c->s->m), holder, chunk;
        dtp_schedule_holder(c->s->kind, c->s->pp, c->s->vpp, stage, &holder, &chunk);
        n += (size_t)snprintf(text + n, sizeof text - n, "%srank %d at %u%s%u waits for %d%s%u %s",
                              hop ? "; " : "", rank, (unsigned)x.chunk, dtp_action_names[x.kind],
                              (unsigned)x.microbatch, chunk, need_name(&need),
                              (unsigned)x.microbatch,
                              holder == rank ? "of its own, which comes later" : "of rank");
        if (holder != rank)
            n += (size_t)snprintf(text + n, sizeof text - n, " %d", holder);
        seen[hop] = rank;
        rank = holder;
        bool again = false;
        for (int i = 0; i <= hop; i++)
            again |= seen[i] == rank;
        if (again)
            break;
    }
    return dtp_fail(c->err, DTP_EINPUT, "deadlock: %s", text);
}

static enum dtp_status check_runs(struct check *c) {
    const struct dtp_schedule *s = c->s;
    for (int rank = 0; rank < s->pp; rank++)
        c->at[rank] = s->begin[rank];
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < s->pp; rank++)
            moved |= advance(c, rank);
        for (int rank = s->pp - 1; rank >= 0; rank--) /* backwards flow the other way */
            moved |= advance(c, rank);
    }
    for (int rank = 0; rank < s->pp; rank++)
        if (c->at[rank] < s->begin[rank + 1])
            return describe_deadlock(c, rank);
    return DTP_OK;
}

enum dtp_status dtp_schedule_check(struct dtp_arena *a, const struct dtp_schedule *s,
                                   struct dtp_err *err) {
    size_t chunks = (size_t)s->pp * (size_t)s->vpp, cells = chunks * (size_t)s->m;
    if (cells > s->begin[s->pp]) /* also bounds what is allocated for a hostile text */
        return dtp_fail(
            err, DTP_EINPUT,
            "%u actions cannot hold the forwards and backwards of %d microbatches on %d "
            "ranks with %d chunks",
            s->begin[s->pp], s->m, s->pp, s->vpp);
    struct check c = {.s = s,
                      .links = DTP_NEW(a, struct dtp_chunk_links, chunks),
                      .listed = DTP_NEW(a, uint16_t, cells),
                      .done = DTP_NEW(a, uint16_t, cells),
                      .at = DTP_NEW(a, uint32_t, (size_t)s->pp),
                      .err = err};
    for (int rank = 0; rank < s->pp; rank++)
        dtp_schedule_links(s, rank, c.links + (size_t)rank * (size_t)s->vpp);
    DTP_TRY(check_listed(&c));
    for (int rank = 0; rank < s->pp; rank++) {
        for (unsigned chunk = 0; chunk < (unsigned)s->vpp; chunk++)
            DTP_TRY(check_sharding(&c, rank, chunk));
        DTP_TRY(check_optimizer(&c, rank));
    }
    return check_runs(&c);
}
