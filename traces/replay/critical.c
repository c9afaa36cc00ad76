#include "traces/replay/critical.h"

#include <stdlib.h>
#include <string.h>

#include "traces/formats/intern.h"

const char *const dtp_critical_names[] = {"compute", "communication", "memory", "host",
                                          "latency", "unexplained",   NULL};

static int by_sum(const void *x, const void *y) {
    const struct dtp_critical_item *p = x, *q = y;
    if (p->sum_s != q->sum_s)
        return p->sum_s > q->sum_s ? -1 : 1;
    return strcmp(p->name, q->name);
}

void dtp_critical_path(struct dtp_arena *a, const struct dtp_timeline *line,
                       dtp_critical_describe *describe, const void *ctx, struct dtp_critical *out) {
    struct dtp_intern *names = dtp_intern_create(a);
    const dtp_id *path;
    uint32_t n;
    int rank = -1;
    *out = (struct dtp_critical){.last_rank = -1};
    if (line->last == DTP_NONE)
        return;
    dtp_timeline_critical_path(a, line, line->last, &path, &n);
    out->item = DTP_NEW(a, struct dtp_critical_item, (size_t)n + 1);
    for (uint32_t i = 0; i < n; i++) {
        struct dtp_critical_task task = {.name = "", .rank = -1};
        describe(ctx, path[i], &task);
        double own_s = line->end_s[path[i]] - line->start_s[path[i]];
        out->span_s += own_s;
        out->class_s[task.class] += own_s;
        if (task.rank >= 0) {
            out->nhops += rank >= 0 && rank != task.rank;
            rank = task.rank;
        }
        if (own_s <= 0)
            continue;
        uint32_t id = dtp_intern_add(names, task.name, strlen(task.name));
        struct dtp_critical_item *item = &out->item[id];
        out->nitems = names->n;
        item->name = names->at[id];
        item->class = task.class;
        item->count++;
        item->sum_s += own_s;
    }
    out->last_rank = rank;
    if (out->nitems > 1)
        qsort(out->item, out->nitems, sizeof *out->item, by_sum);
}
