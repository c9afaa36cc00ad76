/* analyse_names.c: sums over the events of one name. */
#include <stdlib.h>
#include <string.h>

#include "traces/replay/analyse.h"

static int by_sum(const void *x, const void *y) {
    const struct dtp_trace_by_name *p = x, *q = y;
    if (p->sum_ns != q->sum_ns)
        return p->sum_ns > q->sum_ns ? -1 : 1;
    return strcmp(p->name, q->name);
}

void dtp_trace_kernels(struct dtp_arena *a, const struct dtp_trace_rank *r,
                       const struct dtp_trace_by_name **out, size_t *out_n) {
    size_t n = 0;
    struct dtp_trace_by_name *v = DTP_NEW(a, struct dtp_trace_by_name, dtp_trace_nnames(r) + 1);
    for (size_t i = 0; i < r->nevents; i++) {
        const struct dtp_trace_event *e = dtp_trace_event(r, i);
        if (!dtp_trace_is_work(e))
            continue;
        v[e->name].count++;
        v[e->name].sum_ns += e->dur_ns;
    }
    for (uint32_t i = 0; i < dtp_trace_nnames(r); i++)
        if (v[i].count > 0) {
            v[n] = v[i];
            v[n++].name = dtp_trace_name(r, i);
        }
    qsort(v, n, sizeof *v, by_sum);
    *out = v;
    *out_n = n;
}
