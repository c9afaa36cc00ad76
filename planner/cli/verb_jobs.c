/* dtplan jobs: runs a cluster's job trace on another cluster or queue. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "planner/cli/cli.h"
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

struct result {
    const char *policy;
    struct dtp_cluster_replay replay;
};
struct document {
    struct dtp_cluster_replay_options options;
    uint64_t rows, dropped_rows;
    struct result result[BOTH];
    int nresults;
};

static void put_size(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    (void)f;
    dtp_json_put_u64(w, *(const size_t *)at);
}

static void put_results(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    const struct document *d = at;
    const struct dtp_list list = DTP_LIST(d->result, d->nresults);
    dtp_put_list(w, f, &list);
}

/* clang-format off */
#define IN(member) offsetof(struct result, member)
static const struct dtp_field result_fields[] = {
    {"policy", DTP_FIELD_STRING, IN(policy), .help = "fifo or backfill"},
    {"jobs", DTP_FIELD_PUT, IN(replay.n), .put = put_size, .help = "jobs that ran"},
    {"left_out_unknown", DTP_FIELD_U64, IN(replay.unknown), .help = "jobs without GPUs or times"},
    {"left_out_too_large", DTP_FIELD_U64, IN(replay.too_large), .help = "jobs larger than the cluster"},
    {"left_out_share", DTP_FIELD_DOUBLE, IN(replay.too_large_share),
     .help = "share of the known GPU time that those would take, 0 to 1"},
    {"span_s", DTP_FIELD_DOUBLE, IN(replay.span_s), .help = "first submission to last end"},
    {"utilisation", DTP_FIELD_DOUBLE, IN(replay.utilisation),
     .help = "GPU time that jobs hold over that of the cluster in the span"},
    {"goodput", DTP_FIELD_DOUBLE, IN(replay.goodput),
     .help = "the same without restarts and lost work, by the throughput of each size"},
    {"wait_mean_s", DTP_FIELD_DOUBLE, IN(replay.wait_mean_s), .help = "mean time in the queue"},
    {"wait_median_s", DTP_FIELD_DOUBLE, IN(replay.wait_median_s), .help = "median time in the queue"},
    {"wait_p90_s", DTP_FIELD_DOUBLE, IN(replay.wait_p90_s), .help = "time in the queue that nine of ten stay below"},
    {"wait_p99_s", DTP_FIELD_DOUBLE, IN(replay.wait_p99_s), .help = "time in the queue that 99 of 100 stay below"},
    {"failures", DTP_FIELD_U64, IN(replay.failures), .help = "interruptions"},
    {"lost_gpu_s", DTP_FIELD_DOUBLE, IN(replay.lost_gpu_s), .help = "GPU time that they cost"},
    {0}};
#define TOP(member) offsetof(struct document, member)
static const struct dtp_field document_fields[] = {
    DTP_FIELD_SCHEMA_VERSION,
    {"nodes", DTP_FIELD_INT, TOP(options.nodes), .help = "nodes of the cluster"},
    {"gpus_per_node", DTP_FIELD_INT, TOP(options.gpus_per_node), .help = "GPUs of a node"},
    {"gpu_hours_per_failure", DTP_FIELD_DOUBLE, TOP(options.gpu_hours_per_failure),
     .help = "mean GPU-hours between interruptions; 0: none"},
    {"rows", DTP_FIELD_U64, TOP(rows), .help = "rows of the trace"},
    {"dropped_rows", DTP_FIELD_U64, TOP(dropped_rows), .help = "those that are no jobs and are left out"},
    {"results", DTP_FIELD_PUT, 0, .put = put_results, .inner = "[]", .fields = result_fields},
    DTP_FIELD_SOURCE("dtplan jobs: the trace's jobs replayed"),
    {0}};
/* clang-format on */
static const struct dtp_form document = {"jobs", "A cluster's jobs, by policy.", document_fields};
static const struct dtp_form *const documents[] = {&document, NULL};

static void print_head(struct dtp_cli *cli, const struct dtp_jobs *jobs,
                       const struct dtp_cluster_replay_options *o,
                       const struct dtp_cluster_replay *r) {
    char a[32], b[32];
    FILE *f = cli->out.file;
    fprintf(f, "%zu jobs of the trace on %d nodes of %d GPUs", jobs->n, o->nodes, o->gpus_per_node);
    if (r->unknown + r->too_large > 0)
        fprintf(
            f,
            "; left out: %llu without GPUs or times, %llu larger than the cluster (%.1f %% of the "
            "known GPU-hours)",
            (unsigned long long)r->unknown, (unsigned long long)r->too_large,
            100 * r->too_large_share);
    putc('\n', f);
    dtp_jobs_print_warnings(f, jobs);
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
    struct document d = {0};
    struct dtp_cluster_replay_options *o = &d.options;
    struct dtp_jobs jobs;
    struct sizes sizes;
    DTP_TRY(make_options(cli, o, err));
    DTP_TRY(dtp_jobs_load(cli->a, cli->arg, (size_t)cli->nargs, &jobs, err));
    d.rows = jobs.rows;
    d.dropped_rows = jobs.dropped;
    DTP_TRY(find_sizes(cli, &jobs, o->nodes * o->gpus_per_node, &sizes, err));
    if (sizes.n > 0) {
        o->speed = speed_of;
        o->speed_ctx = &sizes;
    }
    for (int p = 0; p < DTP_NQUEUE_POLICIES; p++) {
        struct result *r = &d.result[d.nresults];
        if (own->policy != BOTH && own->policy != p)
            continue;
        o->policy = (enum dtp_queue_policy)p;
        r->policy = policies[p];
        DTP_TRY(dtp_cluster_replay(cli->a, &jobs, o, &r->replay, err));
        if (d.nresults++ == 0 && !cli->args.json) {
            print_head(cli, &jobs, o, &r->replay);
            print_sizes(&cli->out, &sizes);
        }
        if (!cli->args.json)
            print_result(&cli->out, policies[p], &r->replay);
    }
    if (cli->args.json)
        dtp_form_write(cli->out.file, 1, &document, &d);
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
    .documents = documents,
    .options = options,
    .own_size = sizeof(struct own),
    .defaults = defaults,
    .min_args = 1,
    .max_args = -1,
    .run = run};
