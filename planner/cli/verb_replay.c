#include <string.h>

#include "planner/cli/timeline_file.h"
#include "planner/cli/trace_internal.h"
#include "planner/cli/cli.h"
#include "sim/base/text.h"
#include "sim/base/units.h"
#include "traces/replay/replay_report.h"
#include "traces/tasks/tasks.h"

enum { MOST_RANKS = 999999 };
#define MOST_FACTOR DTP_GIGA
#define MOST_DELAY_S DTP_MEGA /* in ns, sums stay far below 2^63 */

struct own {
    double network_bandwidth, network_latency, kernel_speed, memory_speed, host_speed;
    const char *cluster, *gpu, *from, *remove, *fuse, *overlap, *bucket;
    int more_ranks;
    const char *faster, *slow_rank, *delay_rank, *slow_collective;
    int rank;
    bool remove_straggler, hta_compat, steps;
};

/* clang-format off */
static const struct dtp_option own_options[] = {
    {"network-bandwidth", .kind = DTP_OPT_DOUBLE, .offset = offsetof(struct own, network_bandwidth),
     .value = "X", .help = "what if the network had X times the bandwidth"},
    {"network-latency", .kind = DTP_OPT_DOUBLE, .offset = offsetof(struct own, network_latency),
     .value = "X", .help = "what if the network had X times the latency; 0: none"},
    {"kernel-speed", .kind = DTP_OPT_DOUBLE, .offset = offsetof(struct own, kernel_speed),
     .value = "X", .help = "what if compute kernels were X times as fast"},
    {"memory-speed", .kind = DTP_OPT_DOUBLE, .offset = offsetof(struct own, memory_speed),
     .value = "X", .help = "what if copies were X times as fast"},
    {"host-speed", .kind = DTP_OPT_DOUBLE, .offset = offsetof(struct own, host_speed),
     .value = "X", .help = "what if the host were X times as fast"},
    {"faster", .kind = DTP_OPT_STRING, .offset = offsetof(struct own, faster), .value = "NAME=X",
     .help = "what if kernels with NAME in their name were X times as fast"},
    {"remove", .kind = DTP_OPT_STRING, .offset = offsetof(struct own, remove), .value = "NAME",
     .help = "what if kernels or collectives with NAME in their name took no time"},
    {"overlap", .kind = DTP_OPT_STRING, .offset = offsetof(struct own, overlap), .value = "OP",
     .help = "what if collectives named OP (all_reduce) held up nothing but the end of their step"},
    {"bucket", .kind = DTP_OPT_STRING, .offset = offsetof(struct own, bucket), .value = "BYTES",
     .help = "what if neighbouring reductions of a group went together, up to BYTES (100MB)"},
    {"fuse", .kind = DTP_OPT_STRING, .offset = offsetof(struct own, fuse), .value = "NAME",
     .help = "what if neighbouring kernels with NAME in their name were one, as long as the longest"},
    {"gpu", .kind = DTP_OPT_STRING, .offset = offsetof(struct own, gpu), .value = "NAME",
     .help = "what if the kernels ran on the GPUs of that cluster (h100, a100-40, ...)"},
    {"cluster", .kind = DTP_OPT_STRING, .offset = offsetof(struct own, cluster),
     .value = "NAME|FILE", .help = "what if the job ran on that cluster: its GPUs and its network"},
    {"more-ranks", .kind = DTP_OPT_INT, .offset = offsetof(struct own, more_ranks), .value = "K",
     .min = 1, .max = 1 << 16,
     .help = "what if there were K times the data-parallel ranks, each with the same work"},
    {"from", .kind = DTP_OPT_STRING, .offset = offsetof(struct own, from), .value = "NAME|FILE",
     .help = "the cluster of the trace (default: the usual machine of its GPU)"},
    {"slow-rank", .kind = DTP_OPT_STRING, .offset = offsetof(struct own, slow_rank), .value = "R=X",
     .help = "what if the kernels of rank R took X times as long"},
    {"delay-rank", .kind = DTP_OPT_STRING, .offset = offsetof(struct own, delay_rank),
     .value = "R=TIME", .help = "what if rank R started TIME later (2ms)"},
    {"slow-collective", .kind = DTP_OPT_STRING, .offset = offsetof(struct own, slow_collective),
     .value = "K=X", .help = "what if the K-th collective (by end, from 0) took X times as long"},
    {"remove-straggler", .kind = DTP_OPT_FLAG, .offset = offsetof(struct own, remove_straggler),
     .help = "what if no rank computed longer between collectives than the median rank"},
    {"hta-compat", .kind = DTP_OPT_FLAG, .offset = offsetof(struct own, hta_compat),
     .help = "times as Holistic Trace Analysis defines and rounds them"},
    {"steps", .kind = DTP_OPT_FLAG, .offset = offsetof(struct own, steps),
     .help = "one line a step, the mean over the ranks, in place of the rest"},
    {"rank", .kind = DTP_OPT_INT, .offset = offsetof(struct own, rank), .value = "N", .min = -1,
     .max = 1 << 20, .help = "rank of a single file that does not say"},
    {0}};
/* clang-format on */

static void defaults(void *own) {
    *(struct own *)own = (struct own){.network_bandwidth = 1,
                                      .network_latency = 1,
                                      .kernel_speed = 1,
                                      .memory_speed = 1,
                                      .host_speed = 1,
                                      .rank = -1};
}

static enum dtp_status positive(const char *option, double v, bool zero, struct dtp_err *err) {
    if (!(v > 0 || (zero && v == 0)))
        return dtp_fail(err, DTP_EUSAGE, "--%s: found %g, expected a number %s 0", option, v,
                        zero ? "of at least" : "above");
    if (v > MOST_FACTOR || (v > 0 && v < 1 / MOST_FACTOR))
        return dtp_fail(err, DTP_EUSAGE, "--%s: found %g, expected a number from 1e-9 to 1e9",
                        option, v);
    return DTP_OK;
}

/* "NAME=VALUE": where the value begins. */
static enum dtp_status split(struct dtp_cli *cli, const char *option, const char *text,
                             const char **out_name, const char **out_value, struct dtp_err *err) {
    const char *equals = strrchr(text, '=');
    if (!equals || equals == text)
        return dtp_fail(err, DTP_EUSAGE, "--%s: found \"%s\", expected NAME=X", option, text);
    *out_name = dtp_arena_strndup(cli->a, text, (size_t)(equals - text));
    *out_value = equals + 1;
    return DTP_OK;
}

static enum dtp_status numbered(struct dtp_cli *cli, const char *option, const char *text,
                                int *out_number, const char **out_value, struct dtp_err *err) {
    const char *name;
    long number;
    DTP_TRY(split(cli, option, text, &name, out_value, err));
    const char *place = dtp_arena_printf(cli->a, "--%s", option);
    DTP_TRY(dtp_parse_long(name, place, 0, MOST_RANKS, &number, err));
    *out_number = (int)number;
    return DTP_OK;
}

static enum dtp_status take_regrouping(const struct own *own, struct dtp_replay_options *out,
                                       struct dtp_err *err) {
    bool known = !own->overlap;
    for (int op = 0; op < DTP_COMM_UNKNOWN; op++)
        known |= own->overlap && strstr(dtp_comm_op_name[op], own->overlap);
    if (!known)
        return dtp_fail(err, DTP_EUSAGE,
                        "--overlap: found \"%s\", expected an operation such as all_reduce",
                        own->overlap);
    out->overlap = own->overlap;
    return own->bucket ? dtp_parse_bytes(own->bucket, "--bucket", &out->bucket_bytes, err) : DTP_OK;
}

static enum dtp_status take_single(struct dtp_cli *cli, struct dtp_replay_options *out,
                                   struct dtp_err *err) {
    const struct own *own = cli->own;
    const char *value = "";
    if (own->faster) {
        DTP_TRY(split(cli, "faster", own->faster, &out->op, &value, err));
        DTP_TRY(dtp_parse_double(value, "--faster", &out->op_speed, err));
        DTP_TRY(positive("faster", out->op_speed, false, err));
    }
    if (own->slow_rank) {
        DTP_TRY(numbered(cli, "slow-rank", own->slow_rank, &out->slow_rank, &value, err));
        DTP_TRY(dtp_parse_double(value, "--slow-rank", &out->slow_by, err));
        DTP_TRY(positive("slow-rank", out->slow_by, false, err));
    }
    if (own->delay_rank) {
        DTP_TRY(numbered(cli, "delay-rank", own->delay_rank, &out->delayed_rank, &value, err));
        DTP_TRY(dtp_parse_time(value, "--delay-rank", &out->delay_s, err));
        if (out->delay_s > MOST_DELAY_S)
            return dtp_fail(err, DTP_EUSAGE, "--delay-rank: found %g s, expected at most 1e6 s",
                            out->delay_s);
    }
    if (own->slow_collective) {
        DTP_TRY(numbered(cli, "slow-collective", own->slow_collective, &out->slow_collective,
                         &value, err));
        DTP_TRY(dtp_parse_double(value, "--slow-collective", &out->slow_collective_by, err));
        DTP_TRY(positive("slow-collective", out->slow_collective_by, true, err));
    }
    return DTP_OK;
}

static enum dtp_status take_options(struct dtp_cli *cli, struct dtp_replay_options *out,
                                    struct dtp_err *err) {
    const struct own *own = cli->own;
    DTP_TRY(positive("network-bandwidth", own->network_bandwidth, false, err));
    DTP_TRY(positive("network-latency", own->network_latency, true, err));
    DTP_TRY(positive("kernel-speed", own->kernel_speed, false, err));
    DTP_TRY(positive("memory-speed", own->memory_speed, false, err));
    DTP_TRY(positive("host-speed", own->host_speed, false, err));
    *out = DTP_REPLAY_AS_MEASURED;
    out->network_bandwidth = own->network_bandwidth;
    out->network_latency = own->network_latency;
    out->kernel_speed = own->kernel_speed;
    out->memory_speed = own->memory_speed;
    out->host_speed = own->host_speed;
    out->remove_straggler = own->remove_straggler;
    bool network = own->network_bandwidth < 1 || own->network_bandwidth > 1 ||
                   own->network_latency < 1 || own->network_latency > 1 || own->bucket;
    if (own->from && !own->gpu && !own->cluster && own->more_ranks <= 1 && !network)
        return dtp_fail(err, DTP_EUSAGE,
                        "--from is the machine of the trace: what if it were another? Give --gpu, "
                        "--cluster, --more-ranks or an option on the network");
    DTP_TRY(take_regrouping(own, out, err));
    return take_single(cli, out, err);
}

/* Finds the machine of the trace and the other machine. */
static enum dtp_status take_machines(struct dtp_cli *cli, const struct dtp_trace *t,
                                     struct dtp_whatif *out, struct dtp_err *err) {
    const struct own *own = cli->own;
    const char *to = own->cluster ? own->cluster : own->gpu;
    struct dtp_cluster *machine = DTP_NEW(cli->a, struct dtp_cluster, 2);
    out->removed = own->remove;
    out->fused = own->fuse;
    out->times_ranks = own->more_ranks;
    if (own->cluster && own->gpu)
        return dtp_fail(err, DTP_EUSAGE, "--cluster brings its GPUs: leave --gpu out");
    if (!to && own->more_ranks <= 1 && !own->from)
        return DTP_OK;
    if (own->from)
        DTP_TRY(dtp_cluster_load(cli->a, own->from, &machine[0], err));
    else if (!t->tasks) /* a timeline has no other machine: dtp_replay_tasks says so */
        DTP_TRY(
            dtp_whatif_machine(cli->a, t->nranks > 0 ? t->rank[0].device : "", &machine[0], err));
    out->from = &machine[0];
    if (!to)
        return DTP_OK;
    DTP_TRY(dtp_cluster_load(cli->a, to, &machine[1], err));
    out->to = &machine[1];
    out->same_network = own->cluster == NULL;
    return DTP_OK;
}

/* ---- whether there is what the options name ---- */

static bool occurs(const struct dtp_trace *t, const char *text) {
    for (size_t r = 0; r < t->nranks; r++)
        for (size_t i = 0; i < t->rank[r].nevents; i++) {
            const struct dtp_trace_event *e = dtp_trace_event(&t->rank[r], i);
            if (e->on_stream && strstr(dtp_trace_name(&t->rank[r], e->name), text))
                return true;
        }
    for (uint32_t i = 0; t->tasks && i < t->tasks->ntasks; i++)
        if (strstr(t->tasks->task[i].name, text))
            return true;
    return false;
}

static bool has_operation(const struct dtp_matches *m, const char *text) {
    for (size_t i = 0; i < m->n; i++)
        if (strstr(dtp_comm_op_name[m->at[i].op], text))
            return true;
    return false;
}

static enum dtp_status find_named(const struct dtp_trace *t, const struct dtp_matches *m,
                                  const struct dtp_replay_options *o, struct dtp_err *err) {
    const struct {
        const char *option, *text;
        bool operations;
    } named[] = {{"faster", o->op, false},
                 {"remove", o->other.removed, true},
                 {"fuse", o->other.fused, false}};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        const char *text = named[i].text;
        if (text &&
            (!*text || !(occurs(t, text) || (named[i].operations && has_operation(m, text)))))
            return dtp_fail(err, DTP_EUSAGE, "--%s: nothing in the trace has \"%s\" in its name",
                            named[i].option, text);
    }
    return DTP_OK;
}

static enum dtp_status find_ranks(const struct dtp_trace *t, const struct dtp_matches *m,
                                  const struct dtp_replay_options *o, struct dtp_err *err) {
    const struct {
        const char *option;
        int rank;
    } wanted[] = {{"slow-rank", o->slow_rank}, {"delay-rank", o->delayed_rank}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        bool found = wanted[i].rank < 0;
        for (size_t r = 0; r < t->nranks && !found; r++)
            found = t->rank[r].rank == wanted[i].rank;
        if (!found)
            return dtp_fail(err, DTP_EUSAGE, "--%s: the trace has no rank %d", wanted[i].option,
                            wanted[i].rank);
    }
    if (!t->tasks && o->slow_collective >= 0 && (size_t)o->slow_collective >= m->n)
        return dtp_fail(err, DTP_EUSAGE, "--slow-collective: found %d, the trace has %zu of them",
                        o->slow_collective, m->n);
    return DTP_OK;
}

static void print(struct dtp_cli *cli, const struct dtp_replay_report *report) {
    dtp_replay_print(cli->a, cli->out.file, report);
    if (!report->steps)
        dtp_term_wrap(&cli->out, DTP_DIM, 0, 0, dtp_replay_definitions);
}

static enum dtp_status run(struct dtp_cli *cli, struct dtp_err *err) {
    const struct own *own = cli->own;
    struct dtp_replay_options options;
    struct dtp_trace_options load = {.rank = own->rank,
                                     .progress = cli->progress ? dtp_cli_reading : NULL};
    struct dtp_trace trace;
    struct dtp_replay replay, measured;
    bool other;
    DTP_TRY(take_options(cli, &options, err));
    DTP_TRY(dtp_trace_other(cli, &other, err));
    if (other)
        return DTP_OK;
    DTP_TRY(dtp_trace_load(cli->a, cli->arg, (size_t)cli->nargs, &load, &trace, err));
    if (cli->progress)
        dtp_cli_progress(NULL);
    DTP_TRY(take_machines(cli, &trace, &options.other, err));
    DTP_TRY(dtp_replay(cli->a, &trace, &DTP_REPLAY_AS_MEASURED, &measured, err));
    DTP_TRY(find_named(&trace, &measured.matches, &options, err));
    DTP_TRY(find_ranks(&trace, &measured.matches, &options, err));
    bool what_if = dtp_replay_is_what_if(&options);
    replay = measured;
    struct dtp_tasks *tasks = NULL;
    options.out_tasks = cli->args.timeline ? &tasks : NULL;
    if (what_if || cli->args.timeline)
        DTP_TRY(dtp_replay(cli->a, &trace, &options, &replay, err));
    struct dtp_replay_report report = {.replay = &replay,
                                       .measured = &measured,
                                       .trace = &trace,
                                       .what_if = what_if,
                                       .hta_compat = own->hta_compat,
                                       .steps = own->steps};
    if (tasks)
        DTP_TRY(dtp_cli_write_tasks(cli, tasks, cli->args.timeline, err));
    if (cli->args.json)
        dtp_replay_write_json(cli->a, cli->out.file, &report);
    else
        print(cli, &report);
    for (size_t r = 0; r < trace.nranks && !cli->args.json; r++)
        dtp_trace_print_warnings(stderr, &trace.rank[r]);
    return dtp_replay_doubt(cli->a, &measured) ? DTP_ENO : DTP_OK;
}

const struct dtp_verb dtp_verb_replay = {
    .name = "replay",
    .summary = "read traces of a job, say where its time goes, replay it, ask what if",
    .synopsis = "replay TRACE... [what-if options] [--json]",
    .description =
        "Reads PyTorch Kineto traces (.json, .json.gz; a folder or tar archive of ranks), prints "
        "the time of each rank and step by kind, the collectives with what is waiting and what is "
        "transfer, and replays the job from its dependencies: host threads, streams, launches, and "
        "collectives across ranks. With a what-if option the replay is repeated under it. "
        "explained is the share of the spans that dependencies account for; what they do not stays "
        "as "
        "waits named unexplained. Below 95 %, or if the replay as measured is 3 % off the trace, a "
        "warning says so and the exit status is 1.",
    .groups = DTP_GROUP_OUTPUT | DTP_GROUP_TIMELINE,
    .options = own_options,
    .own_size = sizeof(struct own),
    .defaults = defaults,
    .min_args = 1,
    .max_args = -1,
    .run = run};
