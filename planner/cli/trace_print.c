/* trace_print.c: summaries for people, by what a file became. */
#include <math.h>
#include <string.h>

#include "planner/cli/trace.h"
#include "sim/base/stats.h"
#include "sim/base/text.h"
#include "sim/base/units.h"
#include "traces/replay/analyse.h"

enum { MOST_ROWS = 12, TEXT = 32 };

static void print_sums(struct dtp_arena *a, FILE *f, const struct dtp_trace_item *item) {
    struct dtp_trace_sum *s;
    size_t n = dtp_trace_sums(a, item, &s);
    char bytes[TEXT];
    for (size_t i = 0; i < n; i++)
        fprintf(f, "    %-22s %-18s x%-7llu %s\n", s[i].kind, s[i].group,
                (unsigned long long)s[i].count,
                s[i].bytes > 0 ? dtp_fmt_bytes_si(s[i].bytes, bytes, sizeof bytes) : "");
}

/* ---- ranks ---- */

static void print_ranks(FILE *f, const struct dtp_trace_item *item) {
    char span[TEXT], compute[TEXT], comm[TEXT], idle[TEXT], overlap[TEXT];
    const struct dtp_trace *t = item->ranks;
    for (size_t r = 0; r < t->nranks; r++) {
        const struct dtp_trace_rank *rank = &t->rank[r];
        struct dtp_trace_times times;
        dtp_trace_times_all(rank, &times);
        fprintf(f, "  rank %d", rank->rank);
        if (rank->world_size > 0)
            fprintf(f, " of %d", rank->world_size);
        fprintf(f, "%s%s: %zu events, %zu steps\n", rank->device[0] ? ", " : "", rank->device,
                rank->nevents, rank->nsteps);
        fprintf(f, "    span %s: compute %s, communication %s (%s under compute), idle %s\n",
                dtp_fmt_time((double)times.span_ns * DTP_NANO, span, sizeof span),
                dtp_fmt_time((double)times.compute_ns * DTP_NANO, compute, sizeof compute),
                dtp_fmt_time((double)times.comm_ns * DTP_NANO, comm, sizeof comm),
                dtp_fmt_percent(dtp_trace_overlap_pct(&times) / 100, overlap, sizeof overlap),
                dtp_fmt_time((double)times.idle_ns * DTP_NANO, idle, sizeof idle));
    }
    fprintf(f, "  replay it, ask what if:      dtplan replay %s%s\n", item->name,
            item->nfiles > 1 ? " ..." : "");
    fprintf(f, "  find model and plan:         dtplan infer %s%s\n", item->name,
            item->nfiles > 1 ? " ..." : "");
}

/* ---- graphs and operators ---- */

static void print_graph(struct dtp_arena *a, FILE *f, const struct dtp_trace_item *item) {
    const struct dtp_chakra *g = item->graph;
    fprintf(f, "  %u nodes, %u dependencies (%llu on nodes that are not there)\n", g->nnodes,
            g->ndeps, (unsigned long long)g->ndangling);
    for (int type = 0; type < DTP_NCHAKRA_TYPES; type++) {
        uint64_t n = 0, us = 0;
        char time[TEXT];
        for (uint32_t i = 0; i < g->nnodes; i++)
            if (g->node[i].type == type) {
                n++;
                us += g->node[i].dur_us;
            }
        if (n > 0)
            fprintf(f, "    %-22s %-18s x%-7llu %s\n", dtp_chakra_type_name[type], "",
                    (unsigned long long)n, dtp_fmt_time((double)us * DTP_MICRO, time, sizeof time));
    }
    print_sums(a, f, item);
}

static void print_et(struct dtp_arena *a, FILE *f, const struct dtp_trace_item *item) {
    const struct dtp_et *et = item->et;
    const struct dtp_et_count *ops;
    size_t n;
    fprintf(f, "  schema %s, %s, process %lld: %u nodes", et->schema, et->time, (long long)et->pid,
            et->nnodes);
    if (et->duplicate_ids + et->missing_parents > 0)
        fprintf(f, " (%llu ids twice, %llu parents missing)", (unsigned long long)et->duplicate_ids,
                (unsigned long long)et->missing_parents);
    fprintf(f, "; it has no times: those are in the Kineto trace of the run\n");
    dtp_et_ops(a, et, &ops, &n);
    for (size_t i = 0; i < n && i < MOST_ROWS; i++)
        fprintf(f, "    %-50.50s x%llu\n", ops[i].name, (unsigned long long)ops[i].count);
    print_sums(a, f, item);
}

/* ---- workloads ---- */

static void print_workload(struct dtp_arena *a, FILE *f, const struct dtp_trace_items *items,
                           const struct dtp_trace_item *item) {
    const struct dtp_workload *w = item->workload;
    double sum_s[DTP_NPHASES] = {0}, update_s = 0;
    char text[DTP_NPHASES + 1][TEXT];
    for (size_t i = 0; i < w->nlayers; i++) {
        for (int p = 0; p < DTP_NPHASES; p++)
            sum_s[p] += w->layer[i].phase[p].compute_s;
        update_s += w->layer[i].update_s;
    }
    fprintf(f, "  policy %s%s%s: %zu layers\n", w->policy, w->header[0] ? ", " : "", w->header,
            w->nlayers);
    for (int p = 0; p <= DTP_NPHASES; p++) {
        double v = p < DTP_NPHASES ? sum_s[p] : update_s;
        if (items->unit)
            dtp_fmt_time(v, text[p], TEXT);
        else
            snprintf(text[p], TEXT, "%.0f", v);
    }
    fprintf(f, "  compute: forward %s, input gradient %s, weight gradient %s, update %s%s\n",
            text[0], text[1], text[2], text[3],
            items->unit ? "" : " in units of the file (--time-unit)");
    print_sums(a, f, item);
}

static void print_aicb(struct dtp_arena *a, FILE *f, const struct dtp_trace_item *item) {
    fprintf(f, "  %zu rows%s%s\n", item->aicb->n, item->aicb->preamble[0] ? " of " : "",
            item->aicb->preamble);
    print_sums(a, f, item);
}

/* ---- logs ---- */

/* A value in the unit that people use for its quantity. */
static const char *quantity_text(enum dtp_quantity q, double v, char *buf) {
    switch (q) {
    case DTP_QUANTITY_STEP_S:
    case DTP_QUANTITY_FORWARD_S:
    case DTP_QUANTITY_BACKWARD_S:
    case DTP_QUANTITY_OPTIMIZER_S:
        return dtp_fmt_time(v, buf, TEXT);
    case DTP_QUANTITY_PEAK_BYTES:
    case DTP_QUANTITY_RESERVED_BYTES:
    case DTP_QUANTITY_ALLOCATED_BYTES:
        return dtp_fmt_bytes_gib(v, buf, TEXT);
    case DTP_QUANTITY_FLOPS_PER_GPU:
    case DTP_QUANTITY_HARDWARE_FLOPS_PER_GPU:
        return dtp_fmt_flops(v, buf, TEXT);
    case DTP_QUANTITY_MFU:
        return dtp_fmt_percent(v, buf, TEXT);
    case DTP_QUANTITY_TOKENS_PER_S:
    case DTP_QUANTITY_TOKENS_PER_S_PER_GPU:
    case DTP_QUANTITY_TOKENS:
    case DTP_QUANTITY_SEQUENCES:
        return dtp_fmt_count(v, buf, TEXT);
    case DTP_QUANTITY_SEQUENCES_PER_S:
    case DTP_QUANTITY_SEQUENCES_PER_S_PER_GPU:
    case DTP_QUANTITY_STEPS_PER_S:
    case DTP_QUANTITY_LOSS:
    case DTP_QUANTITY_GRADIENT_NORM:
    case DTP_QUANTITY_LEARNING_RATE:
    case DTP_QUANTITY_SKIPPED:
    case DTP_QUANTITY_NAN_STEPS:
    case DTP_QUANTITY_OTHER:
    case DTP_NQUANTITIES:
        break;
    }
    snprintf(buf, TEXT, "%.5g", v);
    return buf;
}

static void print_series(FILE *f, const struct dtp_scalars *s) {
    fprintf(f, "  %-36s %7s %11s %11s %11s %11s %11s\n", "", "n", "first", "last", "median", "min",
            "max");
    for (size_t i = 0; i < s->n; i++) {
        const struct dtp_series *series = &s->series[i];
        struct dtp_series_stats t;
        char b[5][TEXT];
        dtp_series_stats(series, &t);
        if (t.n == 0)
            continue;
        fprintf(f, "  %-36.36s %7zu %11s %11s %11s %11s %11s", series->tag, t.n,
                quantity_text(series->quantity, t.first, b[0]),
                quantity_text(series->quantity, t.last, b[1]),
                quantity_text(series->quantity, t.median, b[2]),
                quantity_text(series->quantity, t.min, b[3]),
                quantity_text(series->quantity, t.max, b[4]));
        if (series->nan > 0)
            fprintf(f, "  (%llu NaN)", (unsigned long long)series->nan);
        fprintf(f, "\n");
    }
    fprintf(f, "  median, min and max after the warm-up, the first 5 %% and at least one\n");
}

static void print_nccl(FILE *f, const struct dtp_nccl_log *log) {
    char bytes[TEXT], time[2][TEXT], rate[TEXT];
    double most = 0;
    fprintf(f, "  %s%s%zu sizes\n", log->collective, log->collective[0] ? ", " : "", log->n);
    fprintf(f, "  %12s %12s %12s %12s\n", "bytes", "out of place", "in place", "busbw");
    for (size_t i = 0; i < log->n; i++) {
        const struct dtp_nccl_row *row = &log->row[i];
        most = row->busbw_bytes_per_s[0] > most ? row->busbw_bytes_per_s[0] : most;
        if (row->bytes == 0)
            continue;
        for (int k = 0; k < 2; k++)
            if (row->time_s[k] >= 0)
                dtp_fmt_time(row->time_s[k], time[k], TEXT);
            else
                snprintf(time[k], TEXT, "N/A");
        fprintf(f, "  %12s %12s %12s %12s\n", dtp_fmt_bytes_si((double)row->bytes, bytes, TEXT),
                time[0], time[1], dtp_fmt_rate(row->busbw_bytes_per_s[0], rate, TEXT));
    }
    fprintf(f, "  largest busbw %s, ", dtp_fmt_rate(most, rate, TEXT));
    fprintf(f, "mean of all cells %s\n",
            dtp_fmt_rate(dtp_nccl_log_average_bytes_per_s(log), rate, TEXT));
}

static void print_log(struct dtp_arena *a, FILE *f, const struct dtp_trace_items *items,
                      const struct dtp_log *log) {
    if (log->nccl.n > 0)
        print_nccl(f, &log->nccl);
    if (log->scalars.n == 0)
        return;
    if (log->steps_of > 0)
        fprintf(f, "  a run of %lld steps\n", (long long)log->steps_of);
    print_series(f, &log->scalars);
    fprintf(f, "  is that normal?  %s\n", dtp_trace_doctor(a, items, log));
}

/* ---- machines, jobs, workers ---- */

static void print_topology(FILE *f, const struct dtp_trace_item *item) {
    const struct dtp_topology *t = item->topology;
    char rate[TEXT];
    fprintf(f, "  %d x %s%s, %s, %d sockets\n", t->ngpus, t->gpu_name,
            t->gpu_guessed ? " (a guess by compute capability)" : "", t->intra, t->ncpus);
    for (int i = 0; i < t->nnets; i++)
        fprintf(f, "    NIC %-12s %s%s\n", t->net[i].name,
                dtp_fmt_rate(t->net[i].bytes_per_s, rate, sizeof rate),
                t->net[i].used ? "" : ", not for training");
    for (int i = 0; i < t->ngpus; i++)
        fprintf(f, "    GPU %-2d %s: %d NVLinks, %d of them to switches, NIC %d\n", t->gpu[i].dev,
                t->gpu[i].bus_id, t->gpu[i].nvlinks, t->gpu[i].switch_links, t->gpu[i].nic);
    fprintf(f,
            "  as a cluster:  dtplan trace %s --write-cluster my.json; dtplan --cluster my.json "
            "...\n",
            item->name);
}

/* Median and 95th percentile of values that are known. */
static void print_spread(struct dtp_arena *a, FILE *f, const char *what,
                         const struct dtp_jobs *jobs, double (*of)(const struct dtp_job *)) {
    double *v = DTP_NEW(a, double, jobs->n + 1);
    size_t n = 0;
    char mid[TEXT], high[TEXT];
    for (size_t i = 0; i < jobs->n; i++) {
        double x = of(&jobs->job[i]);
        if (x >= 0)
            v[n++] = x;
    }
    if (n == 0)
        return;
    double median = dtp_median_high(v, n); /* sorts */
    fprintf(f, "  %s: median %s, 95 %% below %s (%zu jobs)\n", what,
            dtp_fmt_time(median, mid, TEXT), dtp_fmt_time(v[n * 95 / 100], high, TEXT), n);
}

static double queue_s(const struct dtp_job *j) {
    return j->submit_s >= 0 && j->start_s >= j->submit_s ? j->start_s - j->submit_s : -1;
}

static double run_s(const struct dtp_job *j) {
    return j->run_s;
}

static void print_jobs(struct dtp_arena *a, FILE *f, const struct dtp_trace_item *item) {
    const struct dtp_jobs *jobs = item->jobs;
    uint64_t by_status[DTP_NJOB_STATUSES] = {0};
    double gpu_s = 0, most = 0, first = -1, last = -1;
    char span[TEXT];
    for (size_t i = 0; i < jobs->n; i++) {
        const struct dtp_job *j = &jobs->job[i];
        by_status[j->status]++;
        if (j->gpus > 0 && j->run_s > 0)
            gpu_s += j->gpus * j->run_s;
        most = j->gpus > most ? j->gpus : most;
        if (j->submit_s >= 0 && (first < 0 || j->submit_s < first))
            first = j->submit_s;
        last = j->end_s > last ? j->end_s : last;
    }
    fprintf(f, "  %zu jobs of %s", jobs->n,
            jobs->n > 0 ? dtp_job_source_name[jobs->job[0].source] : "no source");
    if (first >= 0 && last > first)
        fprintf(f, " over %s", dtp_fmt_time(last - first, span, TEXT));
    fprintf(f, ", %.1f GPU hours, the largest on %.0f GPUs\n ", gpu_s / DTP_S_PER_HOUR, most);
    for (int s = 0; s < DTP_NJOB_STATUSES; s++)
        if (by_status[s] > 0)
            fprintf(f, " %llu %s", (unsigned long long)by_status[s], dtp_job_status_name[s]);
    fprintf(f, "\n");
    print_spread(a, f, "run time", jobs, run_s);
    print_spread(a, f, "time in the queue", jobs, queue_s);
    struct {
        uint64_t n;
        const char *text;
    } notes[] = {{jobs->dropped, "rows that are no job (the first in line"},
                 {jobs->bad_times, "jobs that end before they start or start before they are sent"},
                 {jobs->bad_durations, "rows whose duration is not end less start"},
                 {jobs->no_zone, "times without a zone, taken as UTC"},
                 {jobs->no_tasks, "jobs without a row in the table of tasks"}};
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++) {
        if (notes[i].n == 0)
            continue;
        fprintf(f, "  warning: %llu %s", (unsigned long long)notes[i].n, notes[i].text);
        if (i == 0)
            fprintf(f, " %llu)", (unsigned long long)jobs->dropped_line);
        fprintf(f, "\n");
    }
    fprintf(f, "  on another cluster or queue:  dtplan jobs %s%s --nodes N\n", item->name,
            item->nfiles > 1 ? " ..." : "");
}

static void print_iterations(FILE *f, const struct dtp_iterations *t) {
    fprintf(f, "  %zu workers, %zu iterations, %zu rows: mean %.2f, the slowest worker %.2f\n",
            t->nworkers, t->niterations, t->rows, t->mean, t->mean_slowest);
    for (size_t i = 0; i < t->nworkers; i++)
        fprintf(f, "    worker %-4lld mean %8.2f  max %8.2f  slowest in %llu\n",
                (long long)t->worker[i].worker, t->worker[i].mean, t->worker[i].max,
                (unsigned long long)t->worker[i].slowest);
    fprintf(f, "  a synchronous step waits for the slowest: %.1f %% longer than the mean\n",
            t->mean > 0 ? (t->mean_slowest / t->mean - 1) * 100 : 0);
}

void dtp_trace_print_item(struct dtp_arena *a, FILE *f, const struct dtp_trace_items *items,
                          const struct dtp_trace_item *item) {
    static const char *const dialects[DTP_NLOG_DIALECTS] = {"nccl-tests", "Megatron",  "nanotron",
                                                            "torchtitan", "DeepSpeed", "a trainer"};
    if (item->config)
        fprintf(f, "%s: configuration of %s", item->name,
                item->config->framework ? item->config->framework : "a run");
    else if (item->format == DTP_FORMAT_LOG)
        fprintf(f, "%s: log of %s", item->name, dialects[item->log->dialect]);
    else
        fprintf(f, "%s: %s", item->name, dtp_formats[item->format].title);
    if (item->nfiles > 1)
        fprintf(f, ", %zu files", item->nfiles);
    fprintf(f, "\n");
    if (item->ranks)
        print_ranks(f, item);
    else if (item->graph)
        print_graph(a, f, item);
    else if (item->et)
        print_et(a, f, item);
    else if (item->workload)
        print_workload(a, f, items, item);
    else if (item->aicb)
        print_aicb(a, f, item);
    else if (item->log)
        print_log(a, f, items, item->log);
    else if (item->topology)
        print_topology(f, item);
    else if (item->jobs)
        print_jobs(a, f, item);
    else if (item->iterations)
        print_iterations(f, item->iterations);
    else if (item->config)
        dtp_trace_print_config(a, f, item->config);
    if (item->run)
        dtp_trace_print_run(f, item->run);
}
