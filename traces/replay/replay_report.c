#include "traces/replay/replay_report.h"

#include <math.h>
#include <string.h>

#include "sim/base/json.h"
#include "sim/base/text.h"
#include "sim/base/units.h"
#include "traces/replay/streams.h"

static void times_of(const struct dtp_replay_report *report, const struct dtp_trace_rank *r,
                     struct dtp_trace_times *out) {
    if (report->hta_compat)
        dtp_trace_times_hta(r, out);
    else
        dtp_trace_times_all(r, out);
}

/* A step of the job in the two times; where[0]: measured, [1]: replayed. */
static void add_job_step(const struct dtp_replay *r, size_t i, double until_s[2], bool counts,
                         struct dtp_replayed_job *out) {
    double from_s[2] = {INFINITY, INFINITY}, to_s[2] = {0, 0}, host_s[2] = {0, 0};
    for (size_t k = 0; k < r->nranks; k++) {
        const struct dtp_replayed_step *x = &r->rank[k].step[i];
        const double start_s[2] = {x->start_s, x->replayed_start_s},
                     length_s[2] = {x->measured_s, x->replayed_s};
        for (int t = 0; t < 2; t++) {
            from_s[t] = start_s[t] < from_s[t] ? start_s[t] : from_s[t];
            to_s[t] = fmax(to_s[t], start_s[t] + length_s[t]);
        }
        host_s[0] = fmax(host_s[0], x->host_s);
        host_s[1] = fmax(host_s[1], x->replayed_host_s);
    }
    for (int t = 0; t < 2; t++) {
        from_s[t] = fmax(from_s[t], until_s[t]);
        until_s[t] = fmax(to_s[t], from_s[t]);
    }
    if (!counts)
        return;
    out->nsteps++;
    out->measured_s += until_s[0] - from_s[0];
    out->replayed_s += until_s[1] - from_s[1];
    out->host_s += host_s[0];
    out->replayed_host_s += host_s[1];
}

static struct dtp_replayed_job replay_job(const struct dtp_replay *r) {
    enum { FEWEST_TO_WARM_UP = 3 };
    size_t n = r->nranks > 0 ? r->rank[0].nsteps : 0;
    double until_s[2] = {0, 0};
    struct dtp_replayed_job job = {0};
    for (size_t k = 0; k < r->nranks; k++)
        n = r->rank[k].nsteps < n ? r->rank[k].nsteps : n;
    for (size_t i = 0; i < n; i++)
        add_job_step(r, i, until_s, i > 0 || n < FEWEST_TO_WARM_UP, &job);
    if (job.nsteps == 0)
        return job;
    double n_steps = (double)job.nsteps;
    job.measured_s /= n_steps;
    job.replayed_s /= n_steps;
    job.host_s /= n_steps;
    job.replayed_host_s /= n_steps;
    return job;
}

/* By how much the replay ends off the trace: the end of the job, and its mean step. */
static double off_pct(const struct dtp_replay *r) {
    struct dtp_replayed_job job = replay_job(r);
    double end_s[2] = {0, 0};
    for (size_t i = 0; i < r->nranks; i++) {
        end_s[0] = fmax(end_s[0], r->rank[i].measured_end_s);
        end_s[1] = fmax(end_s[1], r->rank[i].replayed_end_s);
    }
    double off = end_s[0] > 0 ? fabs(end_s[1] / end_s[0] - 1) : 0;
    if (job.measured_s > 0)
        off = fmax(off, fabs(job.replayed_s / job.measured_s - 1));
    return 100 * off;
}

const char *dtp_replay_doubt(struct dtp_arena *a, const struct dtp_replay *measured) {
    enum { LEAST_EXPLAINED_PCT = 95, MOST_OFF_PCT = 3 };
    double off = off_pct(measured);
    if (measured->nwork == 0)
        return "the trace has no device work: nothing but the host can be replayed";
    if (measured->explained_pct < LEAST_EXPLAINED_PCT)
        return dtp_arena_printf(
            a,
            "%.1f %% of the spans are waits that nothing in the trace explains: "
            "what-ifs leave them as they are and are a guess",
            100 - measured->explained_pct);
    if (off > MOST_OFF_PCT)
        return dtp_arena_printf(a, "the replay is %.1f %% off the trace: what-ifs are a guess",
                                off);
    return NULL;
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
        if (r->step[i].host_s > 0)
            dtp_json_kv_double(w, "host_s", r->step[i].host_s);
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
    times_of(report, r->rank, &t);
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

static void json_job(struct dtp_json_out *w, const struct dtp_replay_report *report) {
    const struct dtp_replayed_job was = replay_job(report->measured),
                                  is = replay_job(report->replay);
    if (was.nsteps == 0)
        return;
    dtp_json_put_key(w, "job");
    dtp_json_object(w);
    dtp_json_kv_u64(w, "steps", was.nsteps);
    dtp_json_kv_double(w, "measured_s", was.measured_s);
    dtp_json_kv_double(w, "replayed_s", was.replayed_s);
    if (report->what_if)
        dtp_json_kv_double(w, "what_if_s", is.replayed_s);
    dtp_json_kv_double(w, "host_s", was.host_s);
    dtp_json_end(w);
}

static void json_network(struct dtp_json_out *w, const struct dtp_replay *r) {
    dtp_json_put_key(w, "network");
    dtp_json_array(w);
    for (size_t i = 0; i < r->nnetwork; i++) {
        dtp_json_object(w);
        dtp_json_kv_string(w, "kind", dtp_comm_op_name[r->network[i].op]);
        dtp_json_kv_string(w, "group", r->network[i].group);
        dtp_json_kv_int(w, "group_size", r->network[i].group_size);
        dtp_json_kv_double(w, "latency_s", r->network[i].latency_s);
        dtp_json_kv_string(w, "latency_from", r->network[i].from);
        dtp_json_end(w);
    }
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
    const char *doubt = dtp_replay_doubt(a, replay);
    if (doubt)
        dtp_json_put_string(w, doubt);
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
    json_job(&w, report);
    dtp_json_put_key(&w, "ranks");
    dtp_json_array(&w);
    for (size_t i = 0; i < report->replay->nranks; i++)
        json_rank(a, &w, report, i);
    dtp_json_end(&w);
    json_critical(&w, "critical_path", &report->measured->critical);
    if (report->what_if)
        json_critical(&w, "what_if_critical_path", &report->replay->critical);
    if (report->what_if)
        json_network(&w, report->replay);
    json_bubbles(a, &w, report);
    dtp_json_kv_double(&w, "explained_pct", report->measured->explained_pct);
    json_warnings(a, &w, report->measured);
    dtp_json_kv_string(&w, "definitions", dtp_replay_definitions);
    dtp_json_end(&w);
}

const char dtp_replay_definitions[] =
    "Work is kernels, copies and sets. span: first start to last end of a rank's work; busy: union "
    "of "
    "the work; idle: span less busy; compute: union of kernels that are not NCCL's or RCCL's; "
    "communication: union of those; memory: union of copies and sets; overlap: share of the "
    "communication under which compute runs. A step has the work that its host calls launch and "
    "ends "
    "when the last of it has; it begins with its host part or, if the host runs ahead, when the "
    "step "
    "before has ended. job: first begin to last end over the ranks, mean of the steps without the "
    "first. "
    "Launch-bound: the device idles and what comes next was launched after it fell idle; a stretch "
    "goes on while work comes so. "
    "Clocks "
    "are aligned on the ends of collectives; transfer: last start of any rank to the end; waiting: "
    "own "
    "start to last start. explained: share of the ranks' spans (first call to last end) less the "
    "time by which work began later than its launch, the work it follows and the usual latency "
    "allow. critical path: from the end of the job back through what let each piece start. bubble: "
    "mean over the ranks of 1 - compute / (first to last compute of any rank in the step).";

bool dtp_replay_is_what_if(const struct dtp_replay_options *o) {
    const double speed[] = {o->network_bandwidth, o->network_latency, o->kernel_speed,
                            o->memory_speed,      o->host_speed,      o->op_speed};
    for (size_t i = 0; i < sizeof speed / sizeof *speed; i++)
        if (fabs(speed[i] - 1) > 0)
            return true;
    if (o->overlap || o->bucket_bytes || o->other.to || o->other.times_ranks > 1 ||
        o->other.removed || o->other.fused)
        return true;
    return o->remove_straggler || o->slow_rank >= 0 || o->delayed_rank >= 0 ||
           o->slow_collective >= 0;
}

/* Bus bandwidth as nccl-tests defines it, from the bytes one rank puts in; 0: unknown. */
static double busbw_bytes_per_s(enum dtp_comm_op op, int group_size, uint64_t in_bytes,
                                double transfer_s) {
    double bytes = (double)in_bytes;
    if (op == DTP_COMM_UNKNOWN || group_size < 2 || transfer_s <= 0)
        return 0;
    if (op == DTP_COMM_ALL_GATHER)
        bytes *= group_size; /* the whole buffer */
    return bytes * dtp_busbw_factor(dtp_comm_collective(op), group_size) / transfer_s;
}

/* ---- collectives by operation, group size and bytes ---- */

struct comm_line {
    enum dtp_comm_op op;
    int group_size;
    uint64_t bytes, count;
    double transfer_s, waiting_s;
};

static size_t sum_comms(struct dtp_arena *a, const struct dtp_replayed_rank *r,
                        struct comm_line **out) {
    struct comm_line *v = DTP_NEW(a, struct comm_line, r->ncomms + 1);
    size_t n = 0;
    for (size_t i = 0; i < r->ncomms; i++) {
        const struct dtp_replayed_comm *c = &r->comm[i];
        size_t at = 0;
        while (at < n &&
               (v[at].op != c->op || v[at].group_size != c->group_size || v[at].bytes != c->bytes))
            at++;
        if (at == n)
            v[n++] =
                (struct comm_line){.op = c->op, .group_size = c->group_size, .bytes = c->bytes};
        v[at].count++;
        v[at].transfer_s += c->transfer_s;
        v[at].waiting_s += c->waiting_s;
    }
    *out = v;
    return n;
}

static void print_comms(struct dtp_arena *a, FILE *f, const struct dtp_replayed_rank *r) {
    struct comm_line *v;
    size_t n = sum_comms(a, r, &v);
    char bytes[32], transfer[32], waiting[32], busbw[32];
    for (size_t i = 0; i < n; i++) {
        double per_s = v[i].transfer_s / (double)v[i].count;
        double rate = busbw_bytes_per_s(v[i].op, v[i].group_size, v[i].bytes, per_s);
        const char *size = v[i].group_size > 0 ? dtp_arena_printf(a, "%d", v[i].group_size) : "?";
        fprintf(f, "    %-14s x%-4llu of %-4s %10s  transfer %9s  busbw %10s  waiting %9s\n",
                dtp_comm_op_name[v[i].op], (unsigned long long)v[i].count, size,
                v[i].bytes ? dtp_fmt_bytes_si((double)v[i].bytes, bytes, sizeof bytes) : "?",
                dtp_fmt_time(per_s, transfer, sizeof transfer),
                rate > 0 ? dtp_fmt_rate(rate, busbw, sizeof busbw) : "?",
                dtp_fmt_time(v[i].waiting_s, waiting, sizeof waiting));
    }
}

/* ---- text ---- */

static void print_streams(struct dtp_arena *a, FILE *f, const struct dtp_trace_rank *r) {
    struct dtp_trace_stream *s;
    size_t n;
    char busy[32], part[DTP_NCLASSES][32];
    dtp_trace_streams(a, r, &s, &n);
    for (size_t i = 0; i < n; i++) {
        int64_t span_ns = s[i].last_ns - s[i].first_ns;
        for (int c = 0; c < DTP_NCLASSES; c++)
            dtp_fmt_time((double)s[i].class_ns[c] * DTP_NANO, part[c], sizeof part[c]);
        fprintf(f,
                "    stream %-5lld busy %9s of its span (%.1f %%), %llu pieces: compute %s, "
                "communication %s, memory %s\n",
                (long long)s[i].stream,
                dtp_fmt_time((double)s[i].busy_ns * DTP_NANO, busy, sizeof busy),
                span_ns > 0 ? 100 * (double)s[i].busy_ns / (double)span_ns : 0,
                (unsigned long long)s[i].nwork, part[DTP_CLASS_COMPUTE], part[DTP_CLASS_COMM],
                part[DTP_CLASS_MEMORY]);
    }
}

static void print_launch_bound(struct dtp_arena *a, FILE *f, const struct dtp_trace_rank *r) {
    struct dtp_trace_stretch *s;
    size_t n;
    char idle[32], length[32], from[32];
    dtp_trace_launch_bound(a, r, &s, &n);
    if (n == 0)
        return;
    fprintf(
        f, "    launch-bound in %zu stretches; the most in %s from %s: %s idle, %llu pieces\n", n,
        dtp_fmt_time((double)(s->end_ns - s->start_ns) * DTP_NANO, length, sizeof length),
        dtp_fmt_time((double)(s->start_ns - dtp_trace_first_ns(r)) * DTP_NANO, from, sizeof from),
        dtp_fmt_time((double)s->idle_ns * DTP_NANO, idle, sizeof idle),
        (unsigned long long)s->nwork);
}

/* The step's work by kind: what its host calls launched. */
static void print_step_times(struct dtp_arena *a, FILE *f, const struct dtp_trace_rank *r,
                             size_t step) {
    const struct dtp_trace_step *s;
    struct dtp_trace_times t;
    size_t n;
    char b[4][32];
    dtp_trace_steps(a, r, &s, &n);
    if (step >= n)
        return;
    dtp_trace_times_launched(r, s[step].start_ns, s[step].start_ns + s[step].dur_ns, &t);
    fprintf(f, "    compute %s, communication %s (%.1f %% under compute), memory %s, idle %s\n",
            dtp_fmt_time((double)t.compute_ns * DTP_NANO, b[0], 32),
            dtp_fmt_time((double)t.comm_ns * DTP_NANO, b[1], 32), dtp_trace_overlap_pct(&t),
            dtp_fmt_time((double)t.memory_ns * DTP_NANO, b[2], 32),
            dtp_fmt_time((double)t.idle_ns * DTP_NANO, b[3], 32));
}

static void print_bubbles(struct dtp_arena *a, FILE *f, const struct dtp_replay_report *report) {
    struct dtp_trace_bubble b;
    char window[32];
    for (size_t i = 0; report->trace && i < report->replay->rank[0].nsteps; i++) {
        dtp_trace_pipeline_bubble(a, report->trace, &report->measured->matches, i, &b);
        if (b.found)
            fprintf(f,
                    "pipeline: %s: bubble %.1f %% of a window of %s; %.1f %% is waiting for other "
                    "ranks\n",
                    report->replay->rank[0].step[i].name, 100 * b.fraction,
                    dtp_fmt_time(b.window_s, window, sizeof window), 100 * b.waiting_fraction);
    }
}

static void print_network(FILE *f, const struct dtp_replay *r) {
    enum { MOST_ROWS = 12 };
    char t[32];
    for (size_t i = 0; i < r->nnetwork && i < MOST_ROWS; i++)
        fprintf(f, "latency of %s of %d%s%s: %s, by %s\n", dtp_comm_op_name[r->network[i].op],
                r->network[i].group_size, *r->network[i].group ? " in group " : "",
                r->network[i].group, dtp_fmt_time(r->network[i].latency_s, t, sizeof t),
                r->network[i].from);
}

static double class_pct(const struct dtp_critical *c, int class) {
    return c->span_s > 0 ? 100 * c->class_s[class] / c->span_s : 0;
}

static void print_critical(FILE *f, const struct dtp_replay_report *report) {
    enum { ITEMS = 5 };
    const struct dtp_critical *c = &report->replay->critical, *was = &report->measured->critical;
    char t[32];
    fprintf(f, "critical path: %s", dtp_fmt_time(was->span_s, t, sizeof t));
    if (report->what_if)
        fprintf(f, ", what if %s", dtp_fmt_time(c->span_s, t, sizeof t));
    const char *separator = ":";
    for (int k = 0; k < DTP_NCRITICAL; k++) {
        if (was->class_s[k] <= 0 && c->class_s[k] <= 0)
            continue;
        fprintf(f, "%s %s %.1f %%", separator, dtp_critical_names[k], class_pct(was, k));
        if (report->what_if)
            fprintf(f, " -> %.1f %%", class_pct(c, k));
        separator = ",";
    }
    fprintf(f, "; %llu changes of rank, ends on rank %d\n", (unsigned long long)c->nhops,
            c->last_rank);
    for (size_t i = 0; i < c->nitems && i < ITEMS; i++)
        fprintf(f, "    %9s  x%-5llu %-13s %.60s\n", dtp_fmt_time(c->item[i].sum_s, t, sizeof t),
                (unsigned long long)c->item[i].count, dtp_critical_names[c->item[i].class],
                c->item[i].name);
}

static const char *ms(int64_t ns, char *buf, size_t size) {
    return dtp_fmt_time((double)ns * DTP_NANO, buf, size);
}

static void print_rank(struct dtp_arena *a, FILE *f, const struct dtp_replay_report *report,
                       size_t rank) {
    enum { KERNELS = 5 };
    const struct dtp_replayed_rank *r = &report->replay->rank[rank];
    struct dtp_trace_times t;
    char b[6][32];
    times_of(report, r->rank, &t);
    fprintf(f,
            "rank %d: span %s, compute %s, communication %s (%.1f %% under compute), memory %s, "
            "idle %s, waiting for the host %s\n",
            r->rank->rank, ms(t.span_ns, b[0], 32), ms(t.compute_ns, b[1], 32),
            ms(t.comm_ns, b[2], 32), dtp_trace_overlap_pct(&t), ms(t.memory_ns, b[3], 32),
            ms(t.idle_ns, b[4], 32), ms(dtp_trace_launch_bound_ns(r->rank), b[5], 32));
    for (size_t i = 0; i < r->nsteps; i++) {
        const struct dtp_replayed_step *s = &r->step[i];
        double was_s = report->measured->rank[rank].step[i].replayed_s;
        fprintf(f, "  %-20s measured %s, replayed %s", s->name,
                dtp_fmt_time(s->measured_s, b[0], 32), dtp_fmt_time(was_s, b[1], 32));
        if (report->what_if)
            fprintf(f, ", what if %s (%+.1f %%)", dtp_fmt_time(s->replayed_s, b[2], 32),
                    was_s > 0 ? 100 * (s->replayed_s / was_s - 1) : 0);
        if (s->host_s > 0)
            fprintf(f, "; host %s", dtp_fmt_time(s->host_s, b[3], 32));
        fprintf(f, "\n");
        print_step_times(a, f, r->rank, i);
    }
    const struct dtp_trace_by_name *k;
    size_t n;
    dtp_trace_kernels(a, r->rank, &k, &n);
    for (size_t i = 0; i < n && i < KERNELS; i++)
        fprintf(f, "    %9s  x%-5llu %.70s\n", ms(k[i].sum_ns, b[0], 32),
                (unsigned long long)k[i].count, k[i].name);
    print_comms(a, f, r);
    print_streams(a, f, r->rank);
    print_launch_bound(a, f, r->rank);
}

static void print_job(FILE *f, const struct dtp_replay_report *report) {
    const struct dtp_replayed_job was = replay_job(report->measured),
                                  is = replay_job(report->replay);
    char b[4][32];
    if (was.nsteps == 0)
        return;
    fprintf(f, "job: step measured %s, replayed %s", dtp_fmt_time(was.measured_s, b[0], 32),
            dtp_fmt_time(was.replayed_s, b[1], 32));
    if (report->what_if)
        fprintf(f, ", what if %s (%+.1f %%)", dtp_fmt_time(is.replayed_s, b[2], 32),
                was.replayed_s > 0 ? 100 * (is.replayed_s / was.replayed_s - 1) : 0);
    if (was.host_s > 0)
        fprintf(f, "; host %s", dtp_fmt_time(was.host_s, b[3], 32));
    fprintf(f, " (mean of %zu steps, %zu ranks)\n", was.nsteps, report->measured->nranks);
}

static void print_doubt(struct dtp_arena *a, FILE *f, const struct dtp_replay_report *report) {
    const char *doubt = dtp_replay_doubt(a, report->measured);
    if (doubt)
        fprintf(f, "warning: %s\n", doubt);
}

/* Mean over the ranks that have the step. */
static void print_step_row(struct dtp_arena *a, FILE *f, const struct dtp_replay_report *report,
                           size_t i) {
    double sum_s[7] = {0}, n = 0;
    char b[7][32];
    for (size_t r = 0; r < report->measured->nranks; r++) {
        const struct dtp_replayed_rank *was = &report->measured->rank[r];
        const struct dtp_trace_step *step;
        struct dtp_trace_times t = {0};
        size_t nsteps;
        if (i >= was->nsteps)
            continue;
        dtp_trace_steps(a, was->rank, &step, &nsteps);
        if (i < nsteps)
            dtp_trace_times_launched(was->rank, step[i].start_ns, step[i].start_ns + step[i].dur_ns,
                                     &t);
        const double row_s[] = {was->step[i].measured_s,
                                was->step[i].replayed_s,
                                report->replay->rank[r].step[i].replayed_s,
                                was->step[i].host_s,
                                (double)t.compute_ns * DTP_NANO,
                                (double)t.comm_ns * DTP_NANO,
                                (double)t.idle_ns * DTP_NANO};
        for (int k = 0; k < 7; k++)
            sum_s[k] += row_s[k];
        n++;
    }
    for (int k = 0; k < 7; k++)
        dtp_fmt_time(sum_s[k] / n, b[k], sizeof b[k]);
    fprintf(f, "%-20s %11s %11s %11s %11s %11s %11s %11s\n", report->measured->rank[0].step[i].name,
            b[0], b[1], report->what_if ? b[2] : "-", b[3], b[4], b[5], b[6]);
}

static void print_steps(struct dtp_arena *a, FILE *f, const struct dtp_replay_report *report) {
    fprintf(f, "%-20s %11s %11s %11s %11s %11s %11s %11s\n", "", "measured", "replayed", "what if",
            "host", "compute", "comm", "idle");
    for (size_t i = 0; report->measured->nranks > 0 && i < report->measured->rank[0].nsteps; i++)
        print_step_row(a, f, report, i);
}

void dtp_replay_print(struct dtp_arena *a, FILE *f, const struct dtp_replay_report *report) {
    const struct dtp_replay *r = report->replay;
    print_job(f, report);
    print_doubt(a, f, report);
    if (report->steps) {
        print_steps(a, f, report);
        return;
    }
    for (size_t i = 0; i < r->nranks; i++)
        print_rank(a, f, report, i);
    double last_s = 0, most_s = 0;
    int last = -1;
    for (size_t i = 0; i < r->nranks; i++) { /* who the others wait for */
        double waiting_s = 0;
        for (size_t k = 0; k < r->rank[i].ncomms; k++)
            waiting_s += r->rank[i].comm[k].waiting_s;
        if (last < 0 || waiting_s < last_s) {
            last = r->rank[i].rank->rank;
            last_s = waiting_s;
        }
        most_s = waiting_s > most_s ? waiting_s : most_s;
    }
    char least[32], most[32];
    if (r->nranks > 1)
        fprintf(f, "straggler: rank %d waits least in collectives (%s; the most waits %s)\n", last,
                dtp_fmt_time(last_s, least, 32), dtp_fmt_time(most_s, most, 32));
    if (r->nranks > 0)
        print_bubbles(a, f, report);
    print_network(f, r);
    print_critical(f, report);
    fprintf(f, "explained: %.2f %% of the spans (%u tasks, %zu collectives)\n", r->explained_pct,
            r->ntasks, r->matches.n);
}
