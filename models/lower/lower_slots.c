#include "models/lower/lower_build.h"

#include <string.h>

/* Time slots. `come`: what must end before the rank takes part in the transfers of the slot. */
struct slots {
    dtp_id *come, *gate; /* [pp] */
    dtp_id *end;         /* [pp] end of this slot's transfers so far */
    uint32_t *pos;       /* [pp] next action */
    int64_t *out;        /* [pp] transfer that the rank starts in this slot, or -1 */
};

static void slot_actions(struct dtp_lowering *w, int replica, uint32_t slot, struct slots *x) {
    const struct dtp_schedule *s = w->l.schedule;
    for (int r = 0; r < w->l.pp; r++) {
        uint32_t k = x->pos[r];
        x->out[r] = -1;
        x->end[r] = DTP_NONE;
        if (k == s->begin[r + 1] || w->l.slot[k] != slot)
            continue;
        struct dtp_action act = s->action[k];
        size_t at = (size_t)replica * w->nactions + k;
        w->gate[at] = x->gate[r];
        x->come[r] = w->last_task[at];
        x->out[r] =
            dtp_slot_out(&w->l, act.kind, w->l.stage_of[r * w->l.vpp + act.chunk], act.microbatch);
        x->pos[r]++;
    }
}

/* The rank waits for one more transfer of the slot. */
static void slot_end(struct dtp_lowering *w, struct slots *x, int r, dtp_id transfer) {
    if (x->end[r] == DTP_NONE) {
        x->end[r] = transfer;
        return;
    }
    dtp_id both = dtp_graph_add(w->g, &(struct dtp_task){.rate_cap = 1,
                                                         .device = DTP_NONE,
                                                         .stream = DTP_NONE,
                                                         .tag = w->g->tag[transfer]});
    dtp_graph_dep(w->g, x->end[r], both);
    dtp_graph_dep(w->g, transfer, both);
    x->end[r] = both;
}

static void slot_transfers(struct dtp_lowering *w, int replica, struct slots *x) {
    for (int r = 0; r < w->l.pp; r++) {
        dtp_id transfer =
            x->out[r] < 0 ? DTP_NONE : w->transfer[(size_t)replica * w->nslots + (size_t)x->out[r]];
        if (transfer == DTP_NONE)
            continue;
        int to = dtp_slot_receiver(&w->l, x->out[r]);
        if (x->come[to] != DTP_NONE)
            dtp_graph_dep(w->g, x->come[to], transfer);
        slot_end(w, x, r, transfer);
        slot_end(w, x, to, transfer);
    }
    for (int r = 0; r < w->l.pp; r++)
        if (x->end[r] != DTP_NONE)
            x->come[r] = x->gate[r] = x->end[r];
}

void dtp_lower_slots(struct dtp_lowering *w) {
    size_t n = (size_t)w->l.pp;
    struct slots x = {.pos = DTP_NEW(w->a, uint32_t, n), .out = DTP_NEW(w->a, int64_t, n)};
    w->gate = dtp_new_ids(w->a, (size_t)w->replicas * w->nactions);
    for (int q = 0; q < w->replicas; q++) {
        x.come = dtp_new_ids(w->a, n);
        x.gate = dtp_new_ids(w->a, n);
        x.end = dtp_new_ids(w->a, n);
        for (int r = 0; r < w->l.pp; r++) {
            x.pos[r] = w->l.schedule->begin[r];
            x.come[r] = w->host[dtp_lowering_index(w, r, q)];
        }
        for (uint32_t slot = 0; slot < w->l.nslots; slot++) {
            slot_actions(w, q, slot, &x);
            slot_transfers(w, q, &x);
        }
    }
}
