/* How large a graph becomes, before it is built. */
#include "models/lower_build.h"
#include "sim/base/text.h"

/* Bytes of a task with what it waits for: struct dtp_graph 72, the engine's node 32, struct dtp_timeline 20; the
 * rest are dependencies, uses, ids of the lowering and what growing arrays leave behind, in all as measured on
 * Llama 405B on 2,048 GPUs (2.4 million tasks, 580 MB). */
static const double task_bytes = 250;

static int ntasks_of(struct dtp_lowering *w, int stage, uint32_t k) {
    const struct dtp_layout *l = &w->l;
    struct dtp_action act = l->schedule->action[k];
    int vs = l->stage_of[stage * l->vpp + act.chunk];
    struct dtp_action_parts parts = {.nparts = 1};
    const struct dtp_op_time *ops;
    if (l->parts)
        parts = dtp_layout_parts(l, vs, act.kind, k);
    if (w->options->detail == DTP_DETAIL_OP && parts.nparts == 1)
        return dtp_detail_ops(w, vs, act.kind, l->dur_s[act.kind * l->nstages + vs], &ops);
    return parts.nparts + parts.nunshard + parts.nreduce;
}

enum dtp_status dtp_lowering_count(struct dtp_lowering *w, uint32_t *out, struct dtp_err *err) {
    char tasks[32], needs[32], has[32];
    double n = (double)w->nslots;
    for (int stage = 0; stage < w->l.pp; stage++)
        for (uint32_t k = w->l.schedule->begin[stage]; k < w->l.schedule->begin[stage + 1]; k++)
            n += ntasks_of(w, stage, k);
    n *= w->replicas;
    double ids = UINT32_MAX / 8, most_bytes = w->options->most_bytes;
    if (most_bytes <= 0)
        most_bytes = (double)dtp_memory_available_bytes();
    most_bytes = most_bytes < ids * task_bytes ? most_bytes : ids * task_bytes;
    *out = n <= ids ? (uint32_t)n : 0;
    if (n * task_bytes <= most_bytes)
        return DTP_OK;
    return dtp_fail(err, DTP_EUNSUPPORTED,
                    "%s tasks of %d ranks take about %s of memory, there are %s: %sfewer GPUs or "
                    "microbatches take less",
                    dtp_fmt_count(n, tasks, sizeof tasks), w->replicas * w->l.pp,
                    dtp_fmt_bytes_gib(n * task_bytes, needs, sizeof needs),
                    dtp_fmt_bytes_gib(most_bytes, has, sizeof has),
                    w->out->folded ? "" : "leave --no-fold out, or ");
}
