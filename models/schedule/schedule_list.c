#include "models/schedule/schedule.h"

#include <assert.h>
#include <ctype.h>
#include <string.h>

/* A list of actions is completed from its compute actions, checked, printed and read. */

const char *const dtp_action_names[] = {
    [DTP_A_F] = "F",       [DTP_A_B] = "B",       [DTP_A_I] = "I",
    [DTP_A_W] = "W",       [DTP_A_SEND_F] = "SF", [DTP_A_RECV_F] = "RF",
    [DTP_A_SEND_B] = "SB", [DTP_A_RECV_B] = "RB", [DTP_A_RECOMPUTE] = "C",
    [DTP_A_UNSHARD] = "U", [DTP_A_RESHARD] = "R", [DTP_A_REDUCE_GRAD] = "G",
    [DTP_A_OFFLOAD] = "D", [DTP_A_FETCH] = "H",   [DTP_A_OPTIM] = "O",
    [DTP_NACTIONS] = NULL,
};

/* ---- the complete list ---- */

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

/* Frees gathered parameters after an action that used them. */
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

/* Adds a reduction after B or W, when the gradients of the microbatch are complete. */
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

int dtp_schedule_complete_one(const struct dtp_schedule *shape, int rank,
                              const struct dtp_schedule_passes *passes, struct dtp_action x,
                              struct dtp_action out[DTP_SCHEDULE_MOST_AROUND]) {
    struct dtp_chunk_links links = chunk_links(shape->kind, shape->pp, shape->vpp, rank, x.chunk);
    int unfinished = x.kind == DTP_A_F ? 0 : 1, backward = 1;
    bool unsharded = false;
    struct list l = {passes, &links, &unfinished, &backward, &unsharded, out, 0};
    x.chunk = 0;
    return add_action(&l, x, NULL) == DTP_OK ? (int)l.n : 0;
}

/* ---- checking ---- */

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

/* Each action exactly once. */

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

/* Parameters are there when they are used, and the optimizer follows the gradients. */

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

/* The order is run to see that it never deadlocks. */

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

/* "deadlock: rank 0 at 0RB0 waits for 0SB0 of rank 1; rank 1 at ..." until a rank appears a second time. */
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

/* ---- text ---- */

void dtp_schedule_print(FILE *f, const struct dtp_schedule *s) {
    fprintf(f, "# %s pp %d vpp %d m %d\n", dtp_schedule_kinds[s->kind].name, s->pp, s->vpp, s->m);
    for (int rank = 0; rank < s->pp; rank++) {
        fprintf(f, "%d:", rank);
        for (uint32_t i = s->begin[rank]; i < s->begin[rank + 1]; i++) {
            struct dtp_action x = s->action[i];
            fprintf(f, " %u%s%u", (unsigned)x.chunk, dtp_action_names[x.kind],
                    (unsigned)x.microbatch);
        }
        fputc('\n', f);
    }
}

struct reader {
    const char *name, *at;
    int line;
    int most_chunk, most_microbatch;
    struct dtp_err *err;
};

enum { MOST_MICROBATCH = 1 << 24 };

static size_t token_length(const char *s) {
    return strcspn(s, " \t\r\n");
}

static enum dtp_status bad_token(const struct reader *r, const char *what) {
    return dtp_fail(r->err, DTP_EINPUT, "%s:%d: found \"%.*s\", expected %s", r->name, r->line,
                    (int)token_length(r->at), r->at, what);
}

/* Digits at *s, at most `most`; -1 when there are none or too many. */
static int read_number(const char **s, int most) {
    const char *p = *s;
    int v = 0;
    if (!isdigit((unsigned char)*p))
        return -1;
    for (; isdigit((unsigned char)*p); p++) {
        v = v * 10 + (*p - '0');
        if (v > most)
            return -1;
    }
    *s = p;
    return v;
}

static enum dtp_status read_action(struct reader *r, struct dtp_action *out) {
    static const char what[] = "CHUNK KIND MICROBATCH such as 0F3, KIND one of F B I W SF RF SB RB "
                               "C U R G D H O";
    const char *p = r->at;
    int chunk = read_number(&p, DTP_SCHEDULE_MAX_VPP - 1);
    size_t letters = 0;
    while (isalpha((unsigned char)p[letters]))
        letters++;
    int kind = 0;
    while (kind < DTP_NACTIONS && (strlen(dtp_action_names[kind]) != letters ||
                                   strncmp(dtp_action_names[kind], p, letters) != 0))
        kind++;
    p += letters;
    int microbatch = read_number(&p, MOST_MICROBATCH - 1);
    if (chunk < 0 || kind == DTP_NACTIONS || microbatch < 0 || token_length(p) != 0)
        return bad_token(r, what);
    *out = (struct dtp_action){(uint8_t)kind, (uint16_t)chunk, (uint32_t)microbatch};
    r->most_chunk = chunk > r->most_chunk ? chunk : r->most_chunk;
    r->most_microbatch = microbatch > r->most_microbatch ? microbatch : r->most_microbatch;
    r->at = p;
    return DTP_OK;
}

static void skip_blanks(struct reader *r) {
    r->at += strspn(r->at, " \t\r");
    if (*r->at == '#')
        r->at += strcspn(r->at, "\n");
}

/* "RANK: action action ..." up to the end of the line. */
static enum dtp_status read_rank(struct reader *r, struct dtp_schedule *s) {
    const char *p = r->at;
    int rank = read_number(&p, DTP_SCHEDULE_MAX_PP - 1);
    if (rank != s->pp || *p != ':')
        return dtp_fail(r->err, DTP_EINPUT, "%s:%d: expected \"%d:\" and the actions of rank %d",
                        r->name, r->line, s->pp, s->pp);
    r->at = p + 1;
    uint32_t n = s->begin[rank];
    for (skip_blanks(r); *r->at && *r->at != '\n'; skip_blanks(r), n++) {
        DTP_TRY(read_action(r, &s->action[n]));
        s->split = s->split || s->action[n].kind == DTP_A_I;
    }
    s->begin[++s->pp] = n;
    return DTP_OK;
}

/* The kind that a leading comment "# zb-h1 ..." names, else a user's order. */
static int named_kind(const char *text) {
    char word[64];
    size_t n = strspn(text, "# \t");
    if (*text != '#')
        return DTP_SCHED_USER;
    size_t length = token_length(text + n);
    if (length >= sizeof word)
        return DTP_SCHED_USER;
    memcpy(word, text + n, length);
    word[length] = '\0';
    int kind = dtp_schedule_find(word);
    return kind < 0 ? DTP_SCHED_USER : kind;
}

/* Upper bounds of lines and of actions, for two allocations. */
static void count_text(const char *text, size_t *lines, size_t *tokens) {
    *lines = 1;
    *tokens = 0;
    for (const char *p = text; *p;) {
        size_t n = token_length(p);
        *tokens += n > 0;
        p += n;
        *lines += *p == '\n';
        p += *p != '\0';
    }
}

enum dtp_status dtp_schedule_parse(struct dtp_arena *a, const char *name, const char *text, int vpp,
                                   struct dtp_schedule *out, struct dtp_err *err) {
    struct reader r = {.name = name, .at = text, .line = 1, .most_microbatch = -1, .err = err};
    struct dtp_schedule s = {.kind = named_kind(text)};
    size_t lines, tokens;
    count_text(text, &lines, &tokens);
    s.begin = DTP_NEW(a, uint32_t, lines + 1);
    s.action = DTP_NEW(a, struct dtp_action, tokens);
    for (; *r.at; r.line++, r.at += *r.at == '\n') {
        skip_blanks(&r);
        if (*r.at && *r.at != '\n')
            DTP_TRY(read_rank(&r, &s));
    }
    if (s.pp == 0 || r.most_microbatch < 0)
        return dtp_fail(err, DTP_EINPUT, "%s: no actions, expected lines such as \"0: 0F0 0B0\"",
                        name);
    if (vpp > 0 && r.most_chunk >= vpp)
        return dtp_fail(err, DTP_EINPUT, "%s: chunk %d occurs, expected chunks below %d", name,
                        r.most_chunk, vpp);
    s.vpp = vpp > 0 ? vpp : r.most_chunk + 1;
    s.m = r.most_microbatch + 1;
    const char *why =
        s.kind == DTP_SCHED_USER ? NULL : dtp_schedule_applies(s.kind, s.pp, s.vpp, s.m);
    if (why)
        return dtp_fail(err, DTP_EINPUT, "%s: named %s, with pp %d, vpp %d, %d microbatches: %s",
                        name, dtp_schedule_names[s.kind], s.pp, s.vpp, s.m, why);
    *out = s;
    return DTP_OK;
}
