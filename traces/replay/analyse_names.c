/* analyse_names.c: sums over the events of one name or kind of collective. */
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

/* "ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)" -> "kernel:AllReduce". */
static const char *kernel_key(struct dtp_arena *a, const char *name) {
    const char *at = strchr(name, '_');
    at = at ? at + 1 : name;
    return dtp_arena_printf(a, "kernel:%.*s", (int)strcspn(at, "_("), at);
}

static bool host_record(const char *name) {
    return strncmp(name, "nccl:", 5) == 0 || strncmp(name, "gloo:", 5) == 0 ||
           strncmp(name, "c10d::", 6) == 0;
}

static const char *group_key(struct dtp_arena *a, const struct dtp_trace_comm *c) {
    if (!c || !c->group[0])
        return "";
    return dtp_arena_printf(a, "%s|%s|%d", c->group, c->group_description, c->group_size);
}

static void add(struct dtp_trace_comm_sum *s, const struct dtp_trace_event *e,
                const struct dtp_trace_comm *c) {
    s->count++;
    s->dur_ns += e->dur_ns;
    if (!c)
        return;
    s->in_elements += c->in_elements;
    s->in_bytes += c->in_bytes;
    s->out_bytes += c->out_elements * c->element_bytes;
}

void dtp_trace_comms(struct dtp_arena *a, const struct dtp_trace_rank *r, bool host,
                     const struct dtp_trace_comm_sum **out, size_t *out_n) {
    struct dtp_trace_comm_sum *v = NULL;
    size_t n = 0, capacity = 0;
    for (size_t i = 0; i < r->nevents; i++) {
        const struct dtp_trace_event *e = dtp_trace_event(r, i);
        const char *name = dtp_trace_name(r, e->name);
        bool wanted =
            host ? (e->kind == DTP_TRACE_OP || e->kind == DTP_TRACE_ANNOTATION) && host_record(name)
                 : dtp_trace_is_work(e) && e->class == DTP_CLASS_COMM;
        if (!wanted)
            continue;
        const struct dtp_trace_comm *c = e->comm == DTP_TRACE_NONE ? NULL : &r->comm[e->comm];
        const char *key = host ? name : c && c->collective[0] ? c->collective : kernel_key(a, name);
        const char *group = host ? "" : group_key(a, c);
        size_t at = 0;
        while (at < n && (strcmp(v[at].key, key) != 0 || strcmp(v[at].group, group) != 0))
            at++;
        if (at == n) {
            if (n == capacity) {
                v = dtp_arena_grow(a, v, sizeof *v, capacity, capacity * 2 + 16);
                capacity = capacity * 2 + 16;
            }
            v[n++] = (struct dtp_trace_comm_sum){.key = key, .group = group};
        }
        add(&v[at], e, c);
    }
    *out = v;
    *out_n = n;
}
