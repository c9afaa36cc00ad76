/* dtplan jobs: a cluster's job trace on another cluster or queue. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "planner/cli/verbs.h"
#include "planner/search.h"
#include "planner/setup.h"
#include "sim/base/text.h"
#include "sim/base/units.h"
#include "traces/jobs/cluster_replay.h"

struct own {
    int nodes, gpus_per_node;
    int policy; /* index into policies */
    const char *from_cluster;
};

enum { BOTH = 2 };
/* In the order of enum dtp_queue_policy, then all of them. */
static const char *const policies[] = {"fifo", "backfill", "both", NULL};

#define AT(field) offsetof(struct own, field)
static const struct dtp_option options[] = {
    {"nodes", DTP_OPT_INT, 0, AT(nodes), .value = "N", .min = 1, .max = DTP_MOST_GPUS,
     .help = "nodes of the cluster"},
    {"gpus-per-node", DTP_OPT_INT, 0, AT(gpus_per_node), .value = "G", .min = 1, .max = 1024,
     .help = "GPUs of a node (default: those of --cluster, else 8)"},
    {"policy", DTP_OPT_CHOICE, 0, AT(policy), .value = "QUEUE", .names = policies,
     .help = "queue; backfill is EASY (default both)"},
    {"from-cluster", DTP_OPT_STRING, 0, AT(from_cluster), .value = "NAME|FILE",
     .complete = DTP_COMPLETE_CLUSTERS,
     .help = "with --model: where the trace ran; run times change with the model's throughput"},
    {0}};

static void defaults(void *own) {
    *(struct own *)own = (struct own){.policy = BOTH};
}

/* ---- throughput by size ---- */

struct size {
    int gpus;
    double tokens_per_s, from_tokens_per_s; /* 0: no plan fits */
};
struct sizes {
    struct size *at;
    size_t n;
    double best_per_gpu; /* tokens/s */
};

static enum dtp_status throughput(struct dtp_cli *cli, const char *cluster, int gpus, double *out,
                                  struct dtp_err *err) {
    struct dtp_setup *setup = DTP_NEW(cli->a, struct dtp_setup, 1);
    struct dtp_ask ask = cli->args.ask;
    struct dtp_limits limits = dtp_limits_none();
    struct dtp_search search;
    struct dtp_search_options o = {.jobs = cli->args.jobs, .top = 2, .layouts = -1};
    *out = 0;
    ask.gpus = gpus;
    ask.cluster = cluster;
    DTP_TRY(dtp_setup_init(cli->a, &ask, setup, err));
    limits.fixed = dtp_plan_default();
    limits.fixed.dtype = setup->problem.dtype;
    limits.fixed.global_batch_size = setup->problem.global_batch;
    if (dtp_search(cli->a, &setup->problem, &limits, &o, &search, NULL) == DTP_OK &&
        search.nresults > 0)
        *out = search.result[0].tokens_per_s;
    return DTP_OK;
}

static int by_gpus(const void *x, const void *y) {
    const struct size *p = x, *q = y;
    return p->gpus < q->gpus ? -1 : p->gpus > q->gpus;
}

/* The sizes that occur, up to the next power of two, so that there are few. */
static void collect_sizes(struct dtp_cli *cli, const struct dtp_jobs *jobs, int most,
                          struct sizes *out) {
    enum { MOST_SIZES = 32 };
    out->at = DTP_NEW(cli->a, struct size, MOST_SIZES);
    for (size_t i = 0; i < jobs->n; i++) {
        int gpus = 1;
        while (gpus < jobs->job[i].gpus && gpus < most)
            gpus *= 2;
        size_t k = 0;
        while (k < out->n && out->at[k].gpus != gpus)
            k++;
        if (k == out->n && out->n < MOST_SIZES && jobs->job[i].gpus <= most)
            out->at[out->n++] = (struct size){.gpus = gpus};
    }
    if (out->n > 1)
        qsort(out->at, out->n, sizeof *out->at, by_gpus);
}

static enum dtp_status find_sizes(struct dtp_cli *cli, const struct dtp_jobs *jobs, int most,
                                  struct sizes *out, struct dtp_err *err) {
    const struct own *own = cli->own;
    *out = (struct sizes){0};
    if (!cli->args.ask.model)
        return DTP_OK;
    DTP_TRY(dtp_ask_read(cli->a, &cli->args.ask, err));
    collect_sizes(cli, jobs, most, out);
    for (size_t i = 0; i < out->n; i++) {
        struct size *s = &out->at[i];
        DTP_TRY(throughput(cli, cli->args.ask.cluster, s->gpus, &s->tokens_per_s, err));
        if (own->from_cluster)
            DTP_TRY(throughput(cli, own->from_cluster, s->gpus, &s->from_tokens_per_s, err));
        double each = s->tokens_per_s / s->gpus;
        out->best_per_gpu = each > out->best_per_gpu ? each : out->best_per_gpu;
    }
    if (out->n > 0 && !(out->best_per_gpu > 0))
        return dtp_fail(err, DTP_ENO, "no plan of the model fits on any size of the trace's jobs");
    return DTP_OK;
}

/* A job of a size at which no plan fits does no work for this model. */
static struct dtp_job_speed speed_of(const void *ctx, double gpus) {
    const struct sizes *s = ctx;
    struct dtp_job_speed speed = {1, 1};
    for (size_t i = 0; i < s->n; i++) {
        const struct size *x = &s->at[i];
        if (x->gpus < gpus && i + 1 < s->n)
            continue;
        speed.efficiency = x->tokens_per_s / x->gpus / s->best_per_gpu;
        if (x->from_tokens_per_s > 0 && x->tokens_per_s > 0)
            speed.time_factor = x->from_tokens_per_s / x->tokens_per_s;
        break;
    }
    return speed;
}

/* ---- output ---- */

static void print_sizes(const struct dtp_term *t, const struct sizes *sizes) {
    for (size_t i = 0; i < sizes->n; i++) {
        const struct size *s = &sizes->at[i];
        char each[32], percent[32];
        if (!(s->tokens_per_s > 0)) {
            fprintf(t->file, "  %6d GPUs  no plan fits\n", s->gpus);
            continue;
        }
        double per_gpu = s->tokens_per_s / s->gpus;
        fprintf(t->file, "  %6d GPUs  %s tokens/s a GPU, efficiency %s", s->gpus,
                dtp_fmt_count(per_gpu, each, sizeof each),
                dtp_fmt_percent(per_gpu / sizes->best_per_gpu, percent, sizeof percent));
        if (s->from_tokens_per_s > 0)
            fprintf(t->file, ", run time x %.3f", s->from_tokens_per_s / s->tokens_per_s);
        putc('\n', t->file);
    }
}

static void print_result(const struct dtp_term *t, const char *policy,
                         const struct dtp_cluster_replay *r) {
    char a[32], b[32], c[32], d[32];
    dtp_term_print(t, DTP_BOLD, "%s", policy);
    fprintf(t->file, ": %zu jobs in %s, utilisation %s, goodput %s\n", r->n,
            dtp_fmt_time(r->span_s, a, sizeof a), dtp_fmt_percent(r->utilisation, b, sizeof b),
            dtp_fmt_percent(r->goodput, c, sizeof c));
    fprintf(t->file, "  queueing   mean %s, median %s, 90 %% %s, 99 %% %s\n",
            dtp_fmt_time(r->wait_mean_s, a, sizeof a), dtp_fmt_time(r->wait_median_s, b, sizeof b),
            dtp_fmt_time(r->wait_p90_s, c, sizeof c), dtp_fmt_time(r->wait_p99_s, d, sizeof d));
    for (int i = 0; i < DTP_JOB_SIZES; i++)
        if (r->size[i].n > 0)
            fprintf(t->file, "    %-16s %8llu jobs, %.1f GPU-hours, queueing %s\n",
                    dtp_job_size_words[i], (unsigned long long)r->size[i].n,
                    r->size[i].gpu_s / DTP_S_PER_HOUR,
                    dtp_fmt_time(r->size[i].wait_s, a, sizeof a));
    fprintf(t->file, "  failures   %llu, %.1f GPU-hours lost\n", (unsigned long long)r->failures,
            r->lost_gpu_s / DTP_S_PER_HOUR);
}

static void write_result(struct dtp_json_out *w, const char *policy,
                         const struct dtp_cluster_replay *r) {
    dtp_json_object(w);
    dtp_json_kv_string(w, "policy", policy);
    dtp_json_kv_u64(w, "jobs", r->n);
    dtp_json_kv_double(w, "span_s", r->span_s);
    dtp_json_kv_double(w, "utilisation", r->utilisation);
    dtp_json_kv_double(w, "goodput", r->goodput);
    dtp_json_kv_double(w, "wait_mean_s", r->wait_mean_s);
    dtp_json_kv_double(w, "wait_median_s", r->wait_median_s);
    dtp_json_kv_double(w, "wait_p90_s", r->wait_p90_s);
    dtp_json_kv_double(w, "wait_p99_s", r->wait_p99_s);
    dtp_json_kv_u64(w, "failures", r->failures);
    dtp_json_kv_double(w, "lost_gpu_s", r->lost_gpu_s);
    dtp_json_end(w);
}

static void print_head(struct dtp_cli *cli, const struct dtp_jobs *jobs,
                       const struct dtp_cluster_replay_options *o,
                       const struct dtp_cluster_replay *r) {
    char a[32], b[32];
    FILE *f = cli->out.file;
    fprintf(f, "%zu jobs of the trace on %d nodes of %d GPUs", jobs->n, o->nodes, o->gpus_per_node);
    if (r->unknown + r->too_large > 0)
        fprintf(f, "; left out: %llu without GPUs or times, %llu larger than the cluster",
                (unsigned long long)r->unknown, (unsigned long long)r->too_large);
    putc('\n', f);
    if (r->recorded_wait_s >= 0)
        fprintf(f, "queueing in the trace: mean %s\n",
                dtp_fmt_time(r->recorded_wait_s, a, sizeof a));
    if (o->gpu_hours_per_failure > 0)
        fprintf(f,
                "assumed: a failure every %.0f GPU-hours, %s to restart, a checkpoint every %s\n",
                o->gpu_hours_per_failure, dtp_fmt_time(o->restart_s, a, sizeof a),
                dtp_fmt_time(o->checkpoint_s, b, sizeof b));
}

static enum dtp_status make_options(struct dtp_cli *cli, struct dtp_cluster_replay_options *o,
                                    struct dtp_err *err) {
    const struct own *own = cli->own;
    struct dtp_failures failures;
    *o = (struct dtp_cluster_replay_options){.nodes = own->nodes,
                                             .gpus_per_node = own->gpus_per_node};
    if (own->nodes == 0)
        return dtp_fail(err, DTP_EUSAGE, "--nodes N is needed: how large is the cluster?");
    if (o->gpus_per_node == 0 && cli->args.ask.cluster) {
        struct dtp_cluster *c = DTP_NEW(cli->a, struct dtp_cluster, 1);
        DTP_TRY(dtp_cluster_load(cli->a, cli->args.ask.cluster, c, err));
        o->gpus_per_node = c->node.gpus;
    }
    o->gpus_per_node = o->gpus_per_node > 0 ? o->gpus_per_node : 8;
    if (cli->args.checkpoint_write)
        return dtp_fail(err, DTP_EUSAGE,
                        "--checkpoint-write: run times of a trace have it in them already");
    DTP_TRY(dtp_cli_failures(cli, false, &failures, err));
    o->gpu_hours_per_failure = failures.gpu_hours_per_failure;
    o->restart_s = failures.restart_s;
    o->checkpoint_s = failures.checkpoint_s;
    o->seed = (uint64_t)cli->args.seed;
    return DTP_OK;
}

static enum dtp_status run(struct dtp_cli *cli, struct dtp_err *err) {
    const struct own *own = cli->own;
    struct dtp_cluster_replay_options o;
    struct dtp_jobs jobs;
    struct sizes sizes;
    struct dtp_json_out w;
    DTP_TRY(make_options(cli, &o, err));
    DTP_TRY(dtp_jobs_load(cli->a, cli->arg, (size_t)cli->nargs, &jobs, err));
    DTP_TRY(find_sizes(cli, &jobs, o.nodes * o.gpus_per_node, &sizes, err));
    if (sizes.n > 0) {
        o.speed = speed_of;
        o.speed_ctx = &sizes;
    }
    dtp_json_begin(&w, cli->out.file, 1);
    if (cli->args.json) {
        dtp_json_object(&w);
        dtp_json_kv_int(&w, "schema_version", DTP_SCHEMA_VERSION);
        dtp_json_kv_int(&w, "nodes", o.nodes);
        dtp_json_kv_int(&w, "gpus_per_node", o.gpus_per_node);
        dtp_json_kv_double(&w, "gpu_hours_per_failure", o.gpu_hours_per_failure);
        dtp_json_put_key(&w, "results");
        dtp_json_array(&w);
    }
    for (int p = 0, first = 1; p < DTP_NQUEUE_POLICIES; p++) {
        struct dtp_cluster_replay r;
        if (own->policy != BOTH && own->policy != p)
            continue;
        o.policy = (enum dtp_queue_policy)p;
        DTP_TRY(dtp_cluster_replay(cli->a, &jobs, &o, &r, err));
        if (first && !cli->args.json) {
            print_head(cli, &jobs, &o, &r);
            print_sizes(&cli->out, &sizes);
        }
        first = 0;
        if (cli->args.json)
            write_result(&w, policies[p], &r);
        else
            print_result(&cli->out, policies[p], &r);
    }
    if (cli->args.json) {
        dtp_json_end(&w);
        dtp_json_kv_string(&w, "source", "dtplan jobs: the trace's jobs replayed");
        dtp_json_end(&w);
    }
    return DTP_OK;
}

const struct dtp_verb dtp_verb_jobs = {
    .name = "jobs",
    .summary = "a cluster's job trace on N nodes: queueing, utilisation, goodput",
    .synopsis = "jobs TRACE... --nodes N [--policy fifo|backfill|both] [--model M --cluster C]",
    .description =
        "Reads job traces of Philly, Helios, Acme or PAI and runs their jobs on N nodes with a "
        "queue "
        "in order of submission and with EASY backfill, whole nodes first, and prints queueing, "
        "utilisation (GPU time allocated over that of the cluster) and goodput (less what failures "
        "cost). With --model, a job does what the best plan of the model on so many GPUs does, and "
        "goodput counts it against the most efficient size; --from-cluster scales run times by the "
        "two clusters' throughputs. Failures are drawn with --seed from stated assumptions.",
    .groups = DTP_GROUP_PROBLEM | DTP_GROUP_FAILURES | DTP_GROUP_OUTPUT | DTP_GROUP_SEARCH,
    .options = options,
    .own_size = sizeof(struct own),
    .defaults = defaults,
    .min_args = 1,
    .max_args = -1,
    .run = run};
