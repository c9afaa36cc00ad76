/* replay_json.c: a replay as JSON. */
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "traces/replay/replay_report.h"
#include "traces/replay/streams.h"

void dtp_replay_times(const struct dtp_replay_report *report, const struct dtp_trace_rank *r,
                      struct dtp_trace_times *out) {
    if (report->hta_compat)
        dtp_trace_times_hta(r, out);
    else
        dtp_trace_times_all(r, out);
}

static void json_steps(struct dtp_json_out *w, const struct dtp_replay_report *report,
                       size_t rank) {
    const struct dtp_replayed_rank *r = &report->replay->rank[rank];
    dtp_json_put_key(w, "steps");
    dtp_json_array(w);
    for (size_t i = 0; i < r->nsteps; i++) {
        dtp_json_object(w);
        dtp_json_kv_string(w, "name", r->step[i].name);
        dtp_json_kv_double(w, "measured_s", r->step[i].measured_s);
        dtp_json_kv_double(w, "replayed_s", report->measured->rank[rank].step[i].replayed_s);
        if (report->what_if)
            dtp_json_kv_double(w, "what_if_s", r->step[i].replayed_s);
        dtp_json_end(w);
    }
    dtp_json_end(w);
}

static void json_comms(struct dtp_json_out *w, const struct dtp_replay_report *report,
                       size_t rank) {
    const struct dtp_replayed_rank *r = &report->measured->rank[rank];
    dtp_json_put_key(w, "collectives");
    dtp_json_array(w);
    for (size_t i = 0; i < r->ncomms; i++) {
        const struct dtp_replayed_comm *c = &r->comm[i];
        dtp_json_object(w);
        dtp_json_kv_string(w, "kind", dtp_comm_op_name[c->op]);
        dtp_json_kv_int(w, "group_size", c->group_size);
        dtp_json_kv_u64(w, "bytes", c->bytes);
        dtp_json_kv_double(w, "start_s", c->start_s);
        dtp_json_kv_double(w, "end_s", c->end_s);
        dtp_json_kv_double(w, "replayed_end_s", c->replayed_end_s);
        if (report->what_if)
            dtp_json_kv_double(w, "what_if_end_s",
                               report->replay->rank[rank].comm[i].replayed_end_s);
        dtp_json_kv_double(w, "transfer_s", c->transfer_s);
        dtp_json_kv_double(w, "waiting_s", c->waiting_s);
        dtp_json_end(w);
    }
    dtp_json_end(w);
}

static void json_streams(struct dtp_arena *a, struct dtp_json_out *w,
                         const struct dtp_trace_rank *r) {
    struct dtp_trace_stream *s;
    size_t n;
    dtp_trace_streams(a, r, &s, &n);
    dtp_json_put_key(w, "streams");
    dtp_json_array(w);
    for (size_t i = 0; i < n; i++) {
        dtp_json_object(w);
        dtp_json_kv_int(w, "stream", (long long)s[i].stream);
        dtp_json_kv_u64(w, "pieces", s[i].nwork);
        dtp_json_kv_double(w, "busy_s", (double)s[i].busy_ns * DTP_NANO);
        dtp_json_kv_double(w, "compute_s", (double)s[i].class_ns[DTP_CLASS_COMPUTE] * DTP_NANO);
        dtp_json_kv_double(w, "communication_s", (double)s[i].class_ns[DTP_CLASS_COMM] * DTP_NANO);
        dtp_json_kv_double(w, "memory_s", (double)s[i].class_ns[DTP_CLASS_MEMORY] * DTP_NANO);
        dtp_json_end(w);
    }
    dtp_json_end(w);
}

static void json_launch_bound(struct dtp_arena *a, struct dtp_json_out *w,
                              const struct dtp_trace_rank *r) {
    enum { STRETCHES = 20 };
    struct dtp_trace_stretch *s;
    size_t n;
    dtp_trace_launch_bound(a, r, &s, &n);
    dtp_json_kv_u64(w, "launch_bound_stretches", n);
    dtp_json_put_key(w, "launch_bound");
    dtp_json_array(w);
    for (size_t i = 0; i < n && i < STRETCHES; i++) {
        dtp_json_object(w);
        dtp_json_kv_double(w, "start_s",
                           (double)(s[i].start_ns - dtp_trace_first_ns(r)) * DTP_NANO);
        dtp_json_kv_double(w, "length_s", (double)(s[i].end_ns - s[i].start_ns) * DTP_NANO);
        dtp_json_kv_double(w, "idle_s", (double)s[i].idle_ns * DTP_NANO);
        dtp_json_kv_u64(w, "pieces", s[i].nwork);
        dtp_json_end(w);
    }
    dtp_json_end(w);
}

static void json_rank(struct dtp_arena *a, struct dtp_json_out *w,
                      const struct dtp_replay_report *report, size_t rank) {
    const struct dtp_replayed_rank *r = &report->replay->rank[rank];
    struct dtp_trace_times t;
    dtp_replay_times(report, r->rank, &t);
    dtp_json_object(w);
    dtp_json_kv_int(w, "rank", r->rank->rank);
    dtp_json_kv_string(w, "file", r->rank->file);
    json_steps(w, report, rank);
    dtp_json_kv_double(w, "span_s", (double)t.span_ns * DTP_NANO);
    dtp_json_kv_double(w, "compute_s", (double)t.compute_ns * DTP_NANO);
    dtp_json_kv_double(w, "communication_s", (double)t.comm_ns * DTP_NANO);
    dtp_json_kv_double(w, "memory_s", (double)t.memory_ns * DTP_NANO);
    dtp_json_kv_double(w, "idle_s", (double)t.idle_ns * DTP_NANO);
    dtp_json_kv_double(w, "overlap_pct", dtp_trace_overlap_pct(&t));
    dtp_json_kv_double(w, "launch_bound_s", (double)dtp_trace_launch_bound_ns(r->rank) * DTP_NANO);
    json_launch_bound(a, w, r->rank);
    dtp_json_kv_double(w, "replayed_end_s", report->measured->rank[rank].replayed_end_s);
    if (report->what_if)
        dtp_json_kv_double(w, "what_if_end_s", r->replayed_end_s);
    dtp_json_kv_double(w, "measured_end_s", r->measured_end_s);
    json_comms(w, report, rank);
    json_streams(a, w, r->rank);
    dtp_json_end(w);
}

static void json_critical(struct dtp_json_out *w, const char *key, const struct dtp_critical *c) {
    dtp_json_put_key(w, key);
    dtp_json_object(w);
    dtp_json_kv_double(w, "span_s", c->span_s);
    for (int k = 0; k < DTP_NCRITICAL; k++)
        dtp_json_kv_double(w, dtp_critical_names[k], c->class_s[k]);
    dtp_json_kv_u64(w, "changes_of_rank", c->nhops);
    dtp_json_kv_int(w, "last_rank", c->last_rank);
    dtp_json_put_key(w, "longest");
    dtp_json_array(w);
    for (size_t i = 0; i < c->nitems && i < 20; i++) {
        dtp_json_object(w);
        dtp_json_kv_string(w, "name", c->item[i].name);
        dtp_json_kv_string(w, "kind", dtp_critical_names[c->item[i].class]);
        dtp_json_kv_u64(w, "count", c->item[i].count);
        dtp_json_kv_double(w, "sum_s", c->item[i].sum_s);
        dtp_json_end(w);
    }
    dtp_json_end(w);
    dtp_json_end(w);
}

static void json_bubbles(struct dtp_arena *a, struct dtp_json_out *w,
                         const struct dtp_replay_report *report) {
    dtp_json_put_key(w, "pipeline");
    dtp_json_array(w);
    for (size_t i = 0;
         report->trace && report->replay->nranks > 0 && i < report->replay->rank[0].nsteps; i++) {
        struct dtp_trace_bubble b;
        dtp_trace_pipeline_bubble(a, report->trace, &report->measured->matches, i, &b);
        if (!b.found)
            continue;
        dtp_json_object(w);
        dtp_json_kv_string(w, "step", report->replay->rank[0].step[i].name);
        dtp_json_kv_double(w, "window_s", b.window_s);
        dtp_json_kv_double(w, "bubble_fraction", b.fraction);
        dtp_json_kv_double(w, "waiting_fraction", b.waiting_fraction);
        dtp_json_end(w);
    }
    dtp_json_end(w);
}

static void json_warnings(struct dtp_arena *a, struct dtp_json_out *w,
                          const struct dtp_replay *replay) {
    dtp_json_put_key(w, "warnings");
    dtp_json_array(w);
    for (size_t i = 0; i < replay->nranks; i++) {
        const struct dtp_trace_rank *r = replay->rank[i].rank;
        for (int k = 0; k < DTP_NTRACE_WARNINGS; k++)
            if (r->warned[k].count > 0)
                dtp_json_put_string(w, dtp_arena_printf(a, "rank %d: %llu %s", r->rank,
                                                        (unsigned long long)r->warned[k].count,
                                                        dtp_trace_warning_text[k]));
    }
    dtp_json_end(w);
}

void dtp_replay_write_json(struct dtp_arena *a, FILE *f, const struct dtp_replay_report *report) {
    struct dtp_json_out w;
    dtp_json_begin(&w, f, 1);
    dtp_json_object(&w);
    dtp_json_kv_int(&w, "schema_version", 1);
    dtp_json_kv_string(&w, "source", "read from the traces; replayed by the event engine");
    dtp_json_put_key(&w, "ranks");
    dtp_json_array(&w);
    for (size_t i = 0; i < report->replay->nranks; i++)
        json_rank(a, &w, report, i);
    dtp_json_end(&w);
    json_critical(&w, "critical_path", &report->measured->critical);
    if (report->what_if)
        json_critical(&w, "what_if_critical_path", &report->replay->critical);
    json_bubbles(a, &w, report);
    dtp_json_kv_double(&w, "explained_pct", report->measured->explained_pct);
    json_warnings(a, &w, report->replay);
    dtp_json_kv_string(&w, "definitions", dtp_replay_definitions);
    dtp_json_end(&w);
}
