/* costs_case.h: struct dtp_costs by hand, for tests of the estimate, the lowering and the bench. */
#ifndef DTP_TESTS_COSTS_CASE_H
#define DTP_TESTS_COSTS_CASE_H

#include "models/lower/lower.h"

/* Every virtual stage takes f, i, w seconds; no communication, no optimizer. */
struct case_times {
    double f_s, i_s, w_s;
};
static inline struct dtp_costs case_costs(struct dtp_arena *a, int pp, int vpp, int m,
                                          struct case_times t) {
    struct dtp_costs c = {.pp = pp, .vpp = vpp, .m = m, .nstages = pp * vpp};
    c.stage = DTP_NEW(a, struct dtp_stage_cost, (size_t)c.nstages);
    c.optimizer_s = DTP_NEW(a, double, (size_t)pp);
    for (int s = 0; s < c.nstages; s++) {
        c.stage[s].f = (struct dtp_phase){.total_s = t.f_s, .compute_s = t.f_s};
        c.stage[s].i = (struct dtp_phase){.total_s = t.i_s, .compute_s = t.i_s};
        c.stage[s].w = (struct dtp_phase){.total_s = t.w_s, .compute_s = t.w_s};
    }
    return c;
}

static inline struct dtp_comm case_comm(enum dtp_collective kind, enum dtp_axis axis, double bytes,
                                        double time_s, double latency_s) {
    return (struct dtp_comm){.kind = kind,
                             .axis = axis,
                             .algo = DTP_ALGO_RING,
                             .bytes = bytes,
                             .time_s = time_s,
                             .latency_s = latency_s};
}

/* Every transfer between virtual stages takes time_s. */
static inline void case_sends(struct dtp_costs *c, double bytes, double time_s, double latency_s) {
    struct dtp_comm x = case_comm(DTP_SEND_RECV, DTP_AXIS_PP, bytes, time_s, latency_s);
    for (int s = 0; s < c->nstages; s++) {
        if (s + 1 < c->nstages)
            c->stage[s].send_f = x;
        if (s > 0)
            c->stage[s].send_b = x;
    }
}

static inline struct dtp_schedule case_schedule(struct dtp_arena *a, int kind, int pp, int vpp,
                                                int m) {
    struct dtp_schedule s = {0};
    struct dtp_err err = {0};
    if (dtp_schedule_make(a, kind, pp, vpp, m, &s, &err) != DTP_OK)
        fprintf(stderr, "%s\n", err.msg);
    return s;
}

#endif
