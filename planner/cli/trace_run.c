/* trace_run.c: workloads and graphs on a cluster. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "planner/cli/trace.h"
#include "sim/base/text.h"
#include "traces/formats/aicb.h"
#include "traces/formats/chakra.h"
#include "traces/formats/workload.h"

/* "job.3.et": 3, the last number that stands alone in the name; -1: none. */
static long rank_of(const char *name) {
    long rank = -1;
    const char *base = strrchr(name, '/');
    for (const char *at = base ? base : name; *at; at++) {
        char *end;
        if (*at != '.' || !isdigit((unsigned char)at[1]))
            continue;
        long v = strtol(at + 1, &end, 10);
        if (*end == '.')
            rank = v;
    }
    return rank;
}

struct ranked {
    long rank;
    size_t item;
};

static int by_rank(const void *x, const void *y) {
    const struct ranked *p = x, *q = y;
    if (p->rank != q->rank)
        return p->rank < q->rank ? -1 : 1;
    return p->item < q->item ? -1 : p->item > q->item;
}

static void *content_of(const struct dtp_item *item, const struct dtp_format *format) {
    return item->format == format ? item->content : NULL;
}

static enum dtp_status run_graphs(struct dtp_arena *a, struct dtp_trace_files *files,
                                  const struct dtp_cluster *c, int gpus, struct dtp_err *err) {
    const struct dtp_items *items = &files->items;
    struct ranked *v = DTP_NEW(a, struct ranked, items->n + 1);
    const struct dtp_chakra **graph = DTP_NEW(a, const struct dtp_chakra *, items->n + 1);
    size_t n = 0;
    for (size_t i = 0; i < items->n; i++)
        if (items->item[i].format->kind == DTP_KIND_GRAPH)
            v[n++] = (struct ranked){rank_of(items->item[i].name), i};
    if (n == 0)
        return DTP_OK;
    qsort(v, n, sizeof *v, by_rank);
    for (size_t i = 0; i < n; i++)
        graph[i] = items->item[v[i].item].content;
    if (n == 1 && gpus == 0)
        return dtp_fail(err, DTP_EINPUT,
                        "%s: one graph stands for all ranks, and does not say how many: --gpus N",
                        items->item[v[0].item].name);
    struct dtp_workload_result *run = DTP_NEW(a, struct dtp_workload_result, 1);
    files->run[v[0].item] = run;
    return dtp_chakra_run(a, graph, n, c, gpus, run, err);
}

static enum dtp_status need_unit(const struct dtp_items *items, const struct dtp_item *item,
                                 struct dtp_err *err) {
    if (items->options.unit)
        return DTP_OK;
    return dtp_fail(err, DTP_EUSAGE,
                    "%s: the file does not say the unit of its times: --time-unit ns (ASTRA-sim 1 "
                    "and SimAI), us (what Chakra's converter takes them for), ms or s",
                    item->name);
}

static bool has_times(const struct dtp_aicb *w) {
    for (size_t i = 0; i < w->n; i++)
        if (w->row[i].elapsed_s > 0)
            return true;
    return false;
}

enum dtp_status dtp_trace_simulate(struct dtp_arena *a, struct dtp_trace_files *files,
                                   const struct dtp_cluster *c, int gpus, struct dtp_err *err) {
    const struct dtp_items *items = &files->items;
    size_t any = 0;
    files->run = DTP_NEW(a, struct dtp_workload_result *, items->n);
    for (size_t i = 0; i < items->n; i++) {
        const struct dtp_item *item = &items->item[i];
        const struct dtp_workload *workload = content_of(item, &dtp_format_workload);
        const struct dtp_aicb *aicb = content_of(item, &dtp_format_aicb);
        any += workload || aicb || item->format->kind == DTP_KIND_GRAPH;
        if (!workload && !aicb)
            continue;
        struct dtp_workload_result *run = DTP_NEW(a, struct dtp_workload_result, 1);
        files->run[i] = run;
        if (workload || has_times(aicb))
            DTP_TRY(need_unit(items, item, err));
        enum dtp_status status = workload ? dtp_workload_run(a, workload, c, gpus, run, err)
                                          : dtp_aicb_run(a, aicb, c, gpus, run, err);
        if (status != DTP_OK) {
            dtp_err_prefix(err, item->name);
            return status;
        }
    }
    if (any == 0)
        return dtp_fail(err, DTP_EUSAGE,
                        "--cluster: none of the files is a workload or a Chakra graph");
    return run_graphs(a, files, c, gpus, err);
}

void dtp_trace_print_run(FILE *f, const struct dtp_workload_result *run) {
    char step[32], busy[32];
    const struct dtp_sizes *s = &run->sizes;
    fprintf(f, "  on %d GPUs", run->gpus);
    if (s->tp > 1 || s->pp > 1 || s->ep > 1)
        fprintf(f, " (tensor %d, data %d, pipeline %d, expert %d)", s->tp, s->dp, s->pp, s->ep);
    fprintf(f, ": %s\n", dtp_fmt_time(run->step_s, step, sizeof step));
    for (int k = 0; k < DTP_NWORKLOAD_STREAMS; k++)
        if (run->busy_s[k] > 0)
            fprintf(f, "    %-14s %10s\n", dtp_workload_stream_name[k],
                    dtp_fmt_time(run->busy_s[k], busy, sizeof busy));
    if (s->pp > 1)
        fprintf(f, "    rows of one stage: pipeline transfers and bubble are not in the file\n");
    if (run->unmatched > 0)
        fprintf(f, "    %llu collectives and transfers whose other side has no file\n",
                (unsigned long long)run->unmatched);
}

void dtp_trace_write_run(struct dtp_json_out *w, const struct dtp_workload_result *run) {
    dtp_json_put_key(w, "simulation");
    dtp_json_object(w);
    dtp_json_kv_string(w, "source", "dtplan: the workload on the cluster");
    dtp_json_kv_int(w, "gpus", run->gpus);
    dtp_json_kv_int(w, "tp", run->sizes.tp);
    dtp_json_kv_int(w, "dp", run->sizes.dp);
    dtp_json_kv_int(w, "pp", run->sizes.pp);
    dtp_json_kv_int(w, "ep", run->sizes.ep);
    dtp_json_kv_double(w, "step_s", run->step_s);
    dtp_json_put_key(w, "busy_s");
    dtp_json_object(w);
    for (int k = 0; k < DTP_NWORKLOAD_STREAMS; k++)
        dtp_json_kv_double(w, dtp_workload_stream_name[k], run->busy_s[k]);
    dtp_json_end(w);
    dtp_json_kv_u64(w, "unmatched", run->unmatched);
    dtp_json_end(w);
}
