/* trace_json.c: the same summaries for programs. */
#include "planner/cli/trace.h"
#include "sim/base/units.h"
#include "traces/replay/analyse.h"

static void write_sums(struct dtp_arena *a, struct dtp_json_out *w,
                       const struct dtp_trace_item *item) {
    struct dtp_trace_sum *s;
    size_t n = dtp_trace_sums(a, item, &s);
    dtp_json_put_key(w, "communication");
    dtp_json_array(w);
    for (size_t i = 0; i < n; i++) {
        dtp_json_object(w);
        dtp_json_kv_string(w, "kind", s[i].kind);
        dtp_json_kv_string(w, "group", s[i].group);
        dtp_json_kv_u64(w, "count", s[i].count);
        dtp_json_kv_double(w, "bytes", s[i].bytes);
        dtp_json_end(w);
    }
    dtp_json_end(w);
}

static void write_ranks(struct dtp_json_out *w, const struct dtp_trace *t) {
    dtp_json_put_key(w, "ranks");
    dtp_json_array(w);
    for (size_t r = 0; r < t->nranks; r++) {
        struct dtp_trace_times times;
        dtp_trace_times_all(&t->rank[r], &times);
        dtp_json_object(w);
        dtp_json_kv_int(w, "rank", t->rank[r].rank);
        dtp_json_kv_int(w, "world_size", t->rank[r].world_size);
        dtp_json_kv_string(w, "device", t->rank[r].device);
        dtp_json_kv_u64(w, "events", t->rank[r].nevents);
        dtp_json_kv_u64(w, "steps", t->rank[r].nsteps);
        dtp_json_kv_double(w, "span_s", (double)times.span_ns * DTP_NANO);
        dtp_json_kv_double(w, "compute_s", (double)times.compute_ns * DTP_NANO);
        dtp_json_kv_double(w, "communication_s", (double)times.comm_ns * DTP_NANO);
        dtp_json_kv_double(w, "memory_s", (double)times.memory_ns * DTP_NANO);
        dtp_json_kv_double(w, "idle_s", (double)times.idle_ns * DTP_NANO);
        dtp_json_kv_double(w, "overlap_pct", dtp_trace_overlap_pct(&times));
        dtp_json_end(w);
    }
    dtp_json_end(w);
}

static void write_graph(struct dtp_json_out *w, const struct dtp_chakra *g) {
    dtp_json_kv_string(w, "version", g->version);
    dtp_json_kv_u64(w, "nodes", g->nnodes);
    dtp_json_kv_u64(w, "dependencies", g->ndeps);
    dtp_json_kv_u64(w, "dangling", g->ndangling);
    dtp_json_put_key(w, "types");
    dtp_json_array(w);
    for (int type = 0; type < DTP_NCHAKRA_TYPES; type++) {
        uint64_t n = 0, us = 0;
        for (uint32_t i = 0; i < g->nnodes; i++) {
            n += g->node[i].type == type;
            us += g->node[i].type == type ? g->node[i].dur_us : 0;
        }
        if (n == 0)
            continue;
        dtp_json_object(w);
        dtp_json_kv_string(w, "type", dtp_chakra_type_name[type]);
        dtp_json_kv_u64(w, "count", n);
        dtp_json_kv_double(w, "duration_s", (double)us * DTP_MICRO);
        dtp_json_end(w);
    }
    dtp_json_end(w);
}

static void write_workload(struct dtp_json_out *w, const struct dtp_trace_items *items,
                           const struct dtp_workload *load) {
    static const char *const keys[DTP_NPHASES] = {"forward_s", "input_gradient_s",
                                                  "weight_gradient_s"};
    double sum_s[DTP_NPHASES] = {0};
    dtp_json_kv_string(w, "policy", load->policy);
    dtp_json_kv_string(w, "header", load->header);
    dtp_json_kv_u64(w, "layers", load->nlayers);
    dtp_json_kv_string(w, "time_unit", items->unit);
    for (size_t i = 0; i < load->nlayers; i++)
        for (int p = 0; p < DTP_NPHASES; p++)
            sum_s[p] += load->layer[i].phase[p].compute_s;
    for (int p = 0; p < DTP_NPHASES; p++)
        if (items->unit) /* without the unit there are no seconds */
            dtp_json_kv_double(w, keys[p], sum_s[p]);
}

static void write_series(struct dtp_json_out *w, const struct dtp_scalars *s) {
    dtp_json_put_key(w, "series");
    dtp_json_array(w);
    for (size_t i = 0; i < s->n; i++) {
        struct dtp_series_stats t;
        dtp_series_stats(&s->series[i], &t);
        dtp_json_object(w);
        dtp_json_kv_string(w, "tag", s->series[i].tag);
        dtp_json_kv_string(w, "quantity", dtp_quantity_name[s->series[i].quantity]);
        dtp_json_kv_u64(w, "n", s->series[i].n);
        dtp_json_kv_u64(w, "nan", s->series[i].nan);
        dtp_json_kv_u64(w, "warmup", t.warmup);
        if (t.n > 0) {
            dtp_json_kv_double(w, "first", t.first);
            dtp_json_kv_double(w, "last", t.last);
            dtp_json_kv_double(w, "median", t.median);
            dtp_json_kv_double(w, "min", t.min);
            dtp_json_kv_double(w, "max", t.max);
            dtp_json_kv_double(w, "mean", t.mean);
        }
        dtp_json_end(w);
    }
    dtp_json_end(w);
}

static void write_log(struct dtp_arena *a, struct dtp_json_out *w,
                      const struct dtp_trace_items *items, const struct dtp_log *log) {
    if (log->nccl.n > 0) {
        dtp_json_put_key(w, "nccl_tests");
        dtp_json_array(w);
        for (size_t i = 0; i < log->nccl.n; i++) {
            const struct dtp_nccl_row *row = &log->nccl.row[i];
            dtp_json_object(w);
            dtp_json_kv_u64(w, "bytes", row->bytes);
            dtp_json_kv_string(w, "type", row->type);
            dtp_json_kv_double(w, "time_s", row->time_s[0]);
            dtp_json_kv_double(w, "time_in_place_s", row->time_s[1]);
            dtp_json_kv_double(w, "busbw_bytes_per_s", row->busbw_bytes_per_s[0]);
            dtp_json_end(w);
        }
        dtp_json_end(w);
    }
    if (log->scalars.n == 0)
        return;
    write_series(w, &log->scalars);
    dtp_json_kv_string(w, "doctor", dtp_trace_doctor(a, items, log));
}

static void write_topology(struct dtp_json_out *w, const struct dtp_topology *t) {
    dtp_json_kv_string(w, "gpu", t->gpu_name);
    dtp_json_kv_bool(w, "gpu_guessed", t->gpu_guessed);
    dtp_json_kv_int(w, "gpus", t->ngpus);
    dtp_json_kv_int(w, "nics", t->nused);
    dtp_json_kv_string(w, "intra", t->intra);
    dtp_json_kv_string(w, "fabric", t->fabric);
}

static void write_jobs(struct dtp_json_out *w, const struct dtp_jobs *jobs) {
    uint64_t by_status[DTP_NJOB_STATUSES] = {0};
    double gpu_s = 0;
    for (size_t i = 0; i < jobs->n; i++) {
        by_status[jobs->job[i].status]++;
        if (jobs->job[i].gpus > 0 && jobs->job[i].run_s > 0)
            gpu_s += jobs->job[i].gpus * jobs->job[i].run_s;
    }
    dtp_json_kv_u64(w, "jobs", jobs->n);
    dtp_json_kv_u64(w, "dropped_rows", jobs->dropped);
    dtp_json_kv_double(w, "gpu_s", gpu_s);
    dtp_json_put_key(w, "by_status");
    dtp_json_object(w);
    for (int s = 0; s < DTP_NJOB_STATUSES; s++)
        dtp_json_kv_u64(w, dtp_job_status_name[s], by_status[s]);
    dtp_json_end(w);
}

static void write_iterations(struct dtp_json_out *w, const struct dtp_iterations *t) {
    dtp_json_kv_u64(w, "rows", t->rows);
    dtp_json_kv_u64(w, "workers", t->nworkers);
    dtp_json_kv_u64(w, "iterations", t->niterations);
    dtp_json_kv_double(w, "mean", t->mean);
    dtp_json_kv_double(w, "mean_slowest", t->mean_slowest);
}

void dtp_trace_write_item(struct dtp_arena *a, struct dtp_json_out *w,
                          const struct dtp_trace_items *items, const struct dtp_trace_item *item) {
    dtp_json_object(w);
    dtp_json_kv_string(w, "source", item->name);
    dtp_json_kv_string(w, "format", dtp_formats[item->format].name);
    dtp_json_kv_string(w, "kind", dtp_format_kind_name[dtp_formats[item->format].kind]);
    dtp_json_kv_u64(w, "files", item->nfiles);
    if (item->ranks)
        write_ranks(w, item->ranks);
    if (item->graph)
        write_graph(w, item->graph);
    if (item->et) {
        dtp_json_kv_string(w, "schema", item->et->schema);
        dtp_json_kv_u64(w, "nodes", item->et->nnodes);
    }
    if (item->workload)
        write_workload(w, items, item->workload);
    if (item->graph || item->et || item->workload || item->aicb)
        write_sums(a, w, item);
    if (item->log)
        write_log(a, w, items, item->log);
    if (item->topology)
        write_topology(w, item->topology);
    if (item->jobs)
        write_jobs(w, item->jobs);
    if (item->iterations)
        write_iterations(w, item->iterations);
    if (item->config)
        dtp_trace_write_config(a, w, item->config);
    if (item->run)
        dtp_trace_write_run(w, item->run);
    dtp_json_end(w);
}
