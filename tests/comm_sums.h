/* comm_sums.h: sums over the collectives of a trace, as facts.json of ../shared/traces has them. */
#ifndef DTP_TESTS_COMM_SUMS_H
#define DTP_TESTS_COMM_SUMS_H

#include <string.h>

#include "traces/formats/trace.h"

/* Collective records by what they call themselves: kernels by their "Collective name" or, without
 * one, as "kernel:Name"; host records by their name (nccl:all_reduce). */
struct comm_sum {
    const char *key, *group; /* group: "name|description|size", "" of a host record */
    uint64_t count, in_elements, in_bytes, out_bytes;
    int64_t dur_ns;
};

/* "ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)" -> "kernel:AllReduce". */
static inline const char *kernel_key(struct dtp_arena *a, const char *name) {
    const char *at = strchr(name, '_');
    at = at ? at + 1 : name;
    return dtp_arena_printf(a, "kernel:%.*s", (int)strcspn(at, "_("), at);
}

static inline bool host_record(const char *name) {
    return strncmp(name, "nccl:", 5) == 0 || strncmp(name, "gloo:", 5) == 0 ||
           strncmp(name, "c10d::", 6) == 0;
}

static inline const char *group_key(struct dtp_arena *a, const struct dtp_trace_comm *c) {
    if (!c || !c->group[0])
        return "";
    return dtp_arena_printf(a, "%s|%s|%d", c->group, c->group_description, c->group_size);
}

static inline void comm_add(struct comm_sum *s, const struct dtp_trace_event *e,
                            const struct dtp_trace_comm *c) {
    s->count++;
    s->dur_ns += e->dur_ns;
    if (!c)
        return;
    s->in_elements += c->in_elements;
    s->in_bytes += c->in_bytes;
    s->out_bytes += c->out_elements * c->element_bytes;
}

static inline void comm_sums(struct dtp_arena *a, const struct dtp_trace_rank *r, bool host,
                             const struct comm_sum **out, size_t *out_n) {
    struct comm_sum *v = NULL;
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
            v[n++] = (struct comm_sum){.key = key, .group = group};
        }
        comm_add(&v[at], e, c);
    }
    *out = v;
    *out_n = n;
}

#endif
