/* trace: what is in a file of any format; workloads and graphs on a cluster. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "planner/cli/cli.h"
#include "planner/cli/timeline_file.h"
#include "planner/cli/trace_internal.h"
#include "sim/base/text.h"
#include "sim/base/units.h"
#include "traces/formats/aicb.h"
#include "traces/formats/chakra.h"
#include "traces/formats/topology.h"
#include "traces/formats/trace.h"
#include "traces/formats/trainers.h"
#include "traces/formats/workload.h"

/* ---- workloads and graphs on a cluster ---- */

/* "job.3.et": 3, the last number that stands alone in the name; -1: none. */
static long rank_of(const char *name) {
    long rank = -1;
    for (const char *at = dtp_base_name(name); *at; at++) {
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

/* gpus 0: as the files say. */
static enum dtp_status run_workloads(struct dtp_arena *a, struct dtp_trace_files *files,
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

static void print_run(FILE *f, const struct dtp_workload_result *run) {
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

static void write_run(struct dtp_json_out *w, const struct dtp_workload_result *run) {
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

/* ---- the verb ---- */

struct own {
    const char *format, *write_cluster, *config, *write_model, *cluster, *nic;
    int rank, unit, gpus, launch;
};

/* No unit is right for every file: ASTRA-sim 1 and SimAI mean ns, Chakra's converter reads us. */
static const char *const unit_names[] = {"unknown", "ns", "us", "ms", "s", NULL};
static const double unit_s[] = {1, DTP_NANO, DTP_MICRO, DTP_MILLI, 1};

/* clang-format off */
static const struct dtp_option own_options[] = {
    {"format", DTP_OPT_STRING, .offset = offsetof(struct own, format), .value = "NAME|list",
     .help = "read the files as this format; list: print all formats"},
    {"time-unit", DTP_OPT_CHOICE, .offset = offsetof(struct own, unit), .value = "UNIT", .names = unit_names,
     .help = "of the times in ASTRA-sim, SimAI and AICB workloads, which do not say: ns, us, ms, s"},
    {"config", DTP_OPT_STRING, .offset = offsetof(struct own, config), .value = "FILE", .complete = DTP_COMPLETE_FILE,
     .help = "configuration of the run that a log is of: arguments of Megatron, YAML, TOML or JSON"},
    {"launch", DTP_OPT_INT, .offset = offsetof(struct own, launch), .value = "N", .min = 1, .max = 1 << 20,
     .help = "which launch of a script that has several (default: the first)"},
    {"write-model", DTP_OPT_STRING, .offset = offsetof(struct own, write_model), .value = "FILE",
     .complete = DTP_COMPLETE_FILE, .help = "write the model of --config as a file for --model"},
    {"write-cluster", DTP_OPT_STRING, .offset = offsetof(struct own, write_cluster), .value = "FILE",
     .complete = DTP_COMPLETE_FILE, .help = "write a topology of NCCL as a file for --cluster; - is standard output"},
    {"cluster", DTP_OPT_STRING, 'c', offsetof(struct own, cluster), .value = "NAME|FILE", .complete = DTP_COMPLETE_CLUSTERS,
     .help = "run workloads and Chakra graphs (one file a rank) on this cluster"},
    {"nic", DTP_OPT_STRING, .offset = offsetof(struct own, nic), .value = "NxG", .help = "its network cards, such as 4x100"},
    {"gpus", DTP_OPT_INT, 'g', offsetof(struct own, gpus), .value = "N", .min = 1, .max = DTP_MOST_GPUS,
     .help = "on how many GPUs (default: as the file says)"},
    {"rank", DTP_OPT_INT, .offset = offsetof(struct own, rank), .value = "N", .min = -1, .max = 1 << 20,
     .help = "rank of a single file that does not say"},
    {0}};
/* clang-format on */

static void defaults(void *own) {
    ((struct own *)own)->rank = -1;
}

static void list_formats(struct dtp_cli *cli) {
    FILE *f = cli->out.file;
    struct dtp_json_out w;
    if (cli->args.json) {
        dtp_json_begin(&w, f, 1);
        dtp_json_array(&w);
        for (int i = 0; i < DTP_NFORMATS; i++) {
            dtp_json_object(&w);
            dtp_json_kv_string(&w, "format", dtp_formats[i]->name);
            dtp_json_kv_string(&w, "title", dtp_formats[i]->title);
            dtp_json_kv_string(&w, "told_by", dtp_formats[i]->told);
            dtp_json_kv_string(&w, "kind", dtp_format_kind_name[dtp_formats[i]->kind]);
            dtp_json_end(&w);
        }
        dtp_json_end(&w);
        return;
    }
    fprintf(f, "%-15s %-11s %s\n", "format", "becomes", "what it is, and by what it is told");
    for (int i = 0; i < DTP_NFORMATS; i++)
        fprintf(f, "%-15s %-11s %s\n%-27s %s\n", dtp_formats[i]->name,
                dtp_format_kind_name[dtp_formats[i]->kind], dtp_formats[i]->title, "",
                dtp_formats[i]->told);
    fprintf(f, "Each may be gzip, lie in a tar archive or in a folder.\n");
}

static enum dtp_status read_config(struct dtp_cli *cli, struct dtp_trace_files *files,
                                   struct dtp_err *err) {
    const struct own *own = cli->own;
    struct dtp_run_config *c = DTP_NEW(cli->a, struct dtp_run_config, 1);
    struct dtp_source *s;
    struct dtp_file_out file;
    if (!own->config)
        return own->write_model ? dtp_fail(err, DTP_EUSAGE, "--write-model: it needs --config FILE")
                                : DTP_OK;
    DTP_TRY(dtp_source_open(cli->a, own->config, &s, err));
    enum dtp_status status = dtp_config_read_launch(cli->a, s, own->launch, c, err);
    dtp_source_close(s);
    DTP_TRY(status);
    files->config = c;
    if (!own->write_model)
        return DTP_OK;
    DTP_TRY(dtp_file_out_open(cli->a, own->write_model, &file, err));
    if (!dtp_config_write_model(file.f, c)) {
        dtp_file_out_abort(&file);
        return dtp_fail(err, DTP_EINPUT,
                        "%s: it does not say all of layers, hidden size, heads, vocabulary and "
                        "sequence length",
                        own->config);
    }
    files->model_file = own->write_model;
    return dtp_file_out_commit(&file, err);
}

struct cluster_file {
    const struct dtp_topology *topology;
    const char *source;
};

static void write_topology(FILE *f, const void *what) {
    const struct cluster_file *c = what;
    dtp_topology_write_cluster(f, c->topology, c->source);
}

static enum dtp_status write_cluster(struct dtp_cli *cli, const struct dtp_items *items,
                                     struct dtp_err *err) {
    const struct own *own = cli->own;
    const struct dtp_item *item = NULL;
    for (size_t i = 0; i < items->n; i++)
        if (items->item[i].format->kind == DTP_KIND_TOPOLOGY)
            item = &items->item[i];
    if (!item)
        return dtp_fail(err, DTP_EUSAGE,
                        "--write-cluster: none of the files is a topology of NCCL");
    const struct cluster_file c = {item->content,
                                   dtp_arena_printf(cli->a, "topology of NCCL, %s", item->name)};
    return dtp_file_write(cli->a, own->write_cluster, write_topology, &c, err);
}

/* Simulates workloads and graphs on --cluster, and writes the timeline of the first. */
static enum dtp_status simulate(struct dtp_cli *cli, struct dtp_trace_files *files,
                                struct dtp_err *err) {
    const struct own *own = cli->own;
    struct dtp_cluster *c = DTP_NEW(cli->a, struct dtp_cluster, 1);
    if (!own->cluster && (own->nic || own->gpus > 0 || cli->args.timeline))
        return dtp_fail(err, DTP_EUSAGE, "--nic, --gpus and --timeline need --cluster");
    if (!own->cluster)
        return DTP_OK;
    DTP_TRY(dtp_cluster_load(cli->a, own->cluster, c, err));
    if (own->nic)
        DTP_TRY(dtp_cluster_set_nics(c, own->nic, err));
    DTP_TRY(run_workloads(cli->a, files, c, own->gpus, err));
    for (size_t i = 0; i < files->items.n && cli->args.timeline; i++)
        if (files->run[i])
            return dtp_cli_write_tasks(cli, files->run[i]->tasks, cli->args.timeline, err);
    return DTP_OK;
}

/* Prints the commands that answer more about a file than its content does. */
static void print_commands(struct dtp_cli *cli, const struct dtp_trace_files *files,
                           const struct dtp_item *item) {
    FILE *f = cli->out.file;
    const struct dtp_log *log = item->content;
    if (item->format->kind == DTP_KIND_CONFIG)
        dtp_trace_print_config(cli->a, f, item->content);
    if (item->format->kind == DTP_KIND_LOG && log->scalars.n > 0)
        fprintf(f, "  is that normal?  %s\n", dtp_trace_doctor(cli->a, files, log));
    const struct dtp_trace *t = item->content;
    for (size_t r = 0; item->format->kind == DTP_KIND_RANKS && r < t->nranks; r++)
        dtp_trace_print_warnings(stderr, &t->rank[r]);
}

static void print_item(struct dtp_cli *cli, const struct dtp_trace_files *files, size_t i) {
    FILE *f = cli->out.file;
    const struct dtp_item *item = &files->items.item[i];
    fprintf(f, "%s: ", item->name);
    if (item->format->heading)
        item->format->heading(f, item->content);
    else
        fputs(item->format->title, f);
    if (item->nfiles > 1)
        fprintf(f, ", %zu files", item->nfiles);
    fputs("\n", f);
    item->format->print(cli->a, f, item, &files->items.options);
    print_commands(cli, files, item);
    if (files->run && files->run[i])
        print_run(f, files->run[i]);
}

static void write_item(struct dtp_cli *cli, struct dtp_json_out *w,
                       const struct dtp_trace_files *files, size_t i) {
    const struct dtp_item *item = &files->items.item[i];
    const struct dtp_log *log = item->content;
    dtp_json_object(w);
    dtp_json_kv_string(w, "source", item->name);
    dtp_json_kv_string(w, "format", item->format->name);
    dtp_json_kv_string(w, "kind", dtp_format_kind_name[item->format->kind]);
    dtp_json_kv_u64(w, "files", item->nfiles);
    item->format->json(cli->a, w, item, &files->items.options);
    if (item->format->kind == DTP_KIND_CONFIG)
        dtp_trace_write_config(cli->a, w, item->content);
    if (item->format->kind == DTP_KIND_LOG && log->scalars.n > 0)
        dtp_json_kv_string(w, "doctor", dtp_trace_doctor(cli->a, files, log));
    if (files->run && files->run[i])
        write_run(w, files->run[i]);
    dtp_json_end(w);
}

static void print_items(struct dtp_cli *cli, const struct dtp_trace_files *files) {
    struct dtp_json_out w;
    if (!cli->args.json) {
        for (size_t i = 0; i < files->items.n; i++)
            print_item(cli, files, i);
        return;
    }
    dtp_json_begin(&w, cli->out.file, 1);
    dtp_json_object(&w);
    dtp_json_kv_int(&w, "schema_version", DTP_SCHEMA_VERSION);
    dtp_json_put_key(&w, "files");
    dtp_json_array(&w);
    for (size_t i = 0; i < files->items.n; i++)
        write_item(cli, &w, files, i);
    dtp_json_end(&w);
    dtp_json_end(&w);
}

/* A prediction of a configuration is of what was read of it. */
static enum dtp_status all_read(const struct dtp_items *items, struct dtp_err *err) {
    size_t left_out = 0;
    for (size_t i = 0; i < items->n; i++) {
        const struct dtp_run_config *c = items->item[i].content;
        if (items->item[i].format->kind == DTP_KIND_CONFIG)
            left_out += dtp_settings_left_out(&c->settings);
    }
    return left_out == 0
               ? DTP_OK
               : dtp_fail(err, DTP_ENO,
                          "%zu setting%s that may cost time or memory %s not in the "
                          "commands above",
                          left_out, left_out == 1 ? "" : "s", left_out == 1 ? "is" : "are");
}

static enum dtp_status has_launch(const struct dtp_items *items, struct dtp_err *err) {
    for (size_t i = 0; i < items->n; i++) {
        const struct dtp_run_config *c = items->item[i].content;
        bool config = items->item[i].format->kind == DTP_KIND_CONFIG;
        int n = !config ? 0 : c->script ? (int)c->script->nlaunches : 1;
        if (config && items->options.launch > n)
            return dtp_fail(err, DTP_EUSAGE, "--launch %d: %s has %d", items->options.launch,
                            items->item[i].name, n);
    }
    return DTP_OK;
}

static enum dtp_status run(struct dtp_cli *cli, struct dtp_err *err) {
    const struct own *own = cli->own;
    struct dtp_trace_options load = {.rank = own->rank,
                                     .progress = cli->progress ? dtp_cli_reading : NULL};
    struct dtp_trace_files files = {.items.options = {own->unit > 0 ? unit_names[own->unit] : NULL,
                                                      unit_s[own->unit], &load, own->launch}};
    const struct dtp_format *format = NULL;
    if (own->format && strcmp(own->format, "list") == 0) {
        list_formats(cli);
        return DTP_OK;
    }
    if (cli->nargs == 0)
        return dtp_fail(err, DTP_EUSAGE, "usage: dtplan %s", cli->verb->synopsis);
    if (own->format)
        DTP_TRY(dtp_format_find(own->format, &format, err));
    DTP_TRY(read_config(cli, &files, err));
    DTP_TRY(dtp_items_read(cli->a, cli->arg, (size_t)cli->nargs, format, &files.items, err));
    if (cli->progress)
        dtp_cli_progress(NULL);
    if (own->write_cluster)
        return write_cluster(cli, &files.items, err);
    DTP_TRY(simulate(cli, &files, err));
    DTP_TRY(has_launch(&files.items, err));
    print_items(cli, &files);
    return all_read(&files.items, err);
}

enum dtp_status dtp_trace_other(struct dtp_cli *cli, bool *out_done, struct dtp_err *err) {
    struct dtp_trace_files files = {.items.options.unit_s = 1};
    struct dtp_source *s;
    const struct dtp_format *format;
    *out_done = false;
    if (dtp_source_open(cli->a, cli->arg[0], &s, NULL) != DTP_OK)
        return DTP_OK; /* a folder, or an error that the caller finds, too */
    enum dtp_status status =
        dtp_source_is_tar(s) ? DTP_EINPUT : dtp_format_detect(s, &format, NULL);
    dtp_source_close(s);
    if (status != DTP_OK || format->kind == DTP_KIND_RANKS)
        return DTP_OK;
    *out_done = true;
    DTP_TRY(dtp_items_read(cli->a, cli->arg, (size_t)cli->nargs, NULL, &files.items, err));
    print_items(cli, &files);
    return DTP_OK;
}

const struct dtp_verb dtp_verb_trace = {
    .name = "trace",
    .summary = "what is in a trace, log, launch script, workload, topology or table of jobs",
    .synopsis = "trace FILE... [--cluster C] [--format NAME|list] [--json]",
    .description =
        "Tells each file by its content and sums it up: ranks with times (Kineto, Nsight Systems), "
        "graphs (Chakra), operators (PyTorch execution traces), workloads of simulators "
        "(ASTRA-sim, "
        "SimAI, AICB), logs and scalars of trainers (Megatron, nanotron, torchtitan, DeepSpeed, "
        "TensorBoard), nccl-tests, topologies of NCCL (--write-cluster makes a cluster file) and "
        "jobs of a cluster (Philly, Helios, Acme, PAI). Files may be gzip, folders or tar "
        "archives. "
        "With --cluster workloads and graphs run on it. For a launch script or configuration "
        "(Megatron, NeMo, torchtitan, nanotron, DeepSpeed, LLM Foundry, axolotl, LLaMA-Factory) it "
        "prints the commands that predict it and that look for a better plan. For a log it prints "
        "the `dtplan doctor` "
        "command that compares it with a prediction; with "
        "--config the command is complete but for the number of GPUs.",
    .groups = DTP_GROUP_TIMELINE | DTP_GROUP_OUTPUT,
    .options = own_options,
    .own_size = sizeof(struct own),
    .defaults = defaults,
    .min_args = 0,
    .max_args = -1,
    .run = run};
