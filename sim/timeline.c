#include "sim/timeline.h"

/* The tasks of a stream follow one another, so the time under way is a plain sum. */
const double *dtp_timeline_busy_s(struct dtp_arena *a, const struct dtp_timeline *t,
                                  const struct dtp_graph *g) {
    double *busy_s = DTP_NEW(a, double, g->nstreams);
    for (dtp_id i = 0; i < t->ntasks; i++)
        if (g->stream[i] != DTP_NONE)
            busy_s[g->stream[i]] += t->end_s[i] - t->start_s[i];
    return busy_s;
}

void dtp_timeline_critical_path(struct dtp_arena *a, const struct dtp_timeline *t, dtp_id last,
                                const dtp_id **out, uint32_t *out_n) {
    uint32_t n = 0;
    for (dtp_id i = last; i != DTP_NONE; i = t->cause[i])
        n++;
    dtp_id *path = DTP_NEW(a, dtp_id, n);
    *out = path;
    *out_n = n;
    for (dtp_id i = last; i != DTP_NONE; i = t->cause[i])
        path[--n] = i;
}
