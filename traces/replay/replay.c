#include "traces/replay/replay.h"

#include "sim/engine.h"
#include "traces/replay/replay_private.h"

static void find_span(struct replay_rank *q) {
    q->first_ns = INT64_MAX;
    q->last_ns = INT64_MIN;
    for (uint32_t i = 0; i < q->ncalls; i++) {
        q->first_ns = q->call[i].start_ns < q->first_ns ? q->call[i].start_ns : q->first_ns;
        q->last_ns = q->call[i].end_ns > q->last_ns ? q->call[i].end_ns : q->last_ns;
    }
    for (uint32_t i = 0; i < q->nwork; i++) {
        q->first_ns = q->work[i].start_ns < q->first_ns ? q->work[i].start_ns : q->first_ns;
        q->last_ns = q->work[i].end_ns > q->last_ns ? q->work[i].end_ns : q->last_ns;
    }
    if (q->first_ns == INT64_MAX)
        q->first_ns = q->last_ns = 0;
}

static void recover(struct replay_state *s) {
    for (size_t r = 0; r < s->t->nranks; r++) {
        struct replay_rank *q = &s->rank[r];
        q->r = &s->t->rank[r];
        q->index = r;
        q->m = s->m;
        replay_find_calls(s->a, q);
        replay_find_work(s->a, q);
    }
    replay_find_edits(s->a, s->rank, s->t->nranks);
    for (size_t r = 0; r < s->t->nranks; r++) {
        struct replay_rank *q = &s->rank[r];
        replay_find_previous(q);
        replay_find_issues(s->a, q);
        replay_find_handovers(q);
        replay_find_waits(s->a, q);
        replay_find_latencies(s->a, q);
        find_span(q);
    }
}

enum dtp_status dtp_replay(struct dtp_arena *a, struct dtp_trace *t,
                           const struct dtp_replay_options *options, struct dtp_replay *out,
                           struct dtp_err *err) {
    struct replay_state s = {.a = a, .t = t, .options = options, .m = &out->matches};
    struct dtp_platform platform;
    struct dtp_timeline line;
    if (t->tasks)
        return dtp_replay_tasks(a, t, options, out, err);
    *out = (struct dtp_replay){.nranks = t->nranks};
    dtp_trace_match(a, t, options->align, s.m);
    s.rank = DTP_NEW(a, struct replay_rank, t->nranks);
    dtp_graph_init(&s.graph, a);
    dtp_platform_init(&platform, a);
    recover(&s);
    replay_build(&s);
    if (dtp_graph_freeze(&s.graph, err) != DTP_OK)
        return options->bucket_bytes > 0
                   ? dtp_fail(err, DTP_EUNSUPPORTED,
                              "--bucket: work between two reductions needs the first and is needed "
                              "by the second, so that they cannot go together; try smaller buckets")
                   : DTP_EINPUT;
    DTP_TRY(dtp_engine_run(a, &platform, &s.graph, &line, err));
    out->ntasks = s.graph.ntasks;
    out->rank = DTP_NEW(a, struct dtp_replayed_rank, t->nranks);
    double span_s = 0, unexplained_s = 0;
    for (size_t r = 0; r < t->nranks; r++) {
        replay_take_rank(&s, r, &line, &out->rank[r]);
        span_s += out->rank[r].span_s;
        unexplained_s += out->rank[r].unexplained_s;
    }
    out->explained_pct = span_s > 0 ? 100 * (1 - unexplained_s / span_s) : 100;
    dtp_critical_path(a, &line, replay_describe, &s, &out->critical);
    if (options->out_tasks)
        *options->out_tasks =
            replay_export(a, &(struct replay_export_input){s.rank, t->nranks, s.m, &line, out->rank,
                                                           out->explained_pct});
    return DTP_OK;
}
