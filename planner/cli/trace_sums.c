/* trace_sums.c: collectives of graphs, operators and workloads by kind and group. */
#include <string.h>

#include "planner/cli/trace.h"

struct sums {
    struct dtp_arena *a;
    struct dtp_trace_sum *at;
    size_t n, capacity;
};

static void add(struct sums *s, const char *kind, const char *group, uint64_t count, double bytes) {
    size_t i = 0;
    while (i < s->n && (strcmp(s->at[i].kind, kind) != 0 || strcmp(s->at[i].group, group) != 0))
        i++;
    if (i == s->n) {
        s->at = dtp_arena_room(s->a, s->at, sizeof *s->at, s->n, &s->capacity);
        s->at[s->n++] = (struct dtp_trace_sum){.kind = kind, .group = group};
    }
    s->at[i].count += count;
    s->at[i].bytes += bytes;
}

static void of_graph(struct sums *s, const struct dtp_chakra *g) {
    for (uint32_t i = 0; i < g->nnodes; i++) {
        const struct dtp_chakra_node *n = &g->node[i];
        bool named = n->comm_type >= 0 && n->comm_type < DTP_NCHAKRA_COMMS;
        if (n->type == DTP_CHAKRA_COLL && n->comm_type < 0)
            continue; /* the host's call around a collective: no traffic of its own */
        if (n->type >= DTP_CHAKRA_SEND)
            add(s,
                n->type == DTP_CHAKRA_COLL && named ? dtp_chakra_comm_name[n->comm_type]
                                                    : dtp_chakra_type_name[n->type],
                n->group, 1, (double)n->comm_bytes);
    }
}

static const char *const phases[DTP_NPHASES] = {"forward", "input gradient", "weight gradient"};

size_t dtp_trace_sums(struct dtp_arena *a, const struct dtp_trace_item *item,
                      struct dtp_trace_sum **out) {
    struct sums s = {.a = a};
    if (item->graph)
        of_graph(&s, item->graph);
    for (uint32_t i = 0; item->et && i < item->et->ncomms; i++)
        add(&s, item->et->comm[i].collective, item->et->comm[i].group, 1,
            (double)item->et->comm[i].in_bytes);
    for (size_t i = 0; item->workload && i < item->workload->nlayers; i++)
        for (int p = 0; p < DTP_NPHASES; p++)
            if (strcmp(item->workload->layer[i].phase[p].collective, "NONE") != 0)
                add(&s, item->workload->layer[i].phase[p].collective, phases[p], 1,
                    (double)item->workload->layer[i].phase[p].bytes);
    for (size_t i = 0; item->aicb && i < item->aicb->n; i++)
        add(&s, item->aicb->row[i].type, item->aicb->row[i].group, item->aicb->row[i].count,
            (double)item->aicb->row[i].bytes * (double)item->aicb->row[i].count);
    *out = s.at;
    return s.n;
}
