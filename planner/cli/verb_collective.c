#include "planner/cli/cli.h"

#include <string.h>

#include "sim/base/text.h"

struct own {
    uint64_t bytes;
    const char *cluster, *nic;
    int gpus, groups;
};

static const struct dtp_option own_options[] = {
    {"bytes", DTP_OPT_BYTES, 0, offsetof(struct own, bytes), .value = "B",
     .help = "size of the buffer, such as 256MB (all_gather, reduce_scatter: the whole buffer)"},
    {"gpus", DTP_OPT_INT, 'g', offsetof(struct own, gpus), .value = "N", .min = 1, .max = 1 << 20,
     .help = "ranks of the group"},
    {"groups", DTP_OPT_INT, 0, offsetof(struct own, groups), .value = "N", .min = 1, .max = 1 << 16,
     .help = "so many groups at once, members taken in turn (8: one group a GPU of the node)"},
    {"cluster", DTP_OPT_STRING, 'c', offsetof(struct own, cluster), .value = "NAME|FILE",
     .complete = DTP_COMPLETE_CLUSTERS, .help = "default " DTP_DEFAULT_CLUSTER},
    {"nic", DTP_OPT_STRING, 0, offsetof(struct own, nic), .value = "NxG",
     .help = "network cards of a node, such as 4x100"},
    {0}};

static void defaults(void *own) {
    struct own *o = own;
    o->cluster = DTP_DEFAULT_CLUSTER;
    o->groups = 1;
}

struct row {
    struct dtp_coll_cost cost;
    enum dtp_algo algo;
};

/* The algorithms that apply, fastest first (auto, the chosen one, is not among them). */
static int time_all(const struct dtp_cluster *c, enum dtp_collective kind,
                    const struct dtp_group_shape *shape, double bytes, struct row *rows) {
    struct dtp_step steps[128];
    int n = 0;
    for (int algo = DTP_ALGO_AUTO + 1; algo < DTP_NALGOS; algo++) {
        if (dtp_coll_steps((enum dtp_algo)algo, kind, shape->size, shape->per_node, steps, 128) < 0)
            continue;
        struct row r = {.algo = (enum dtp_algo)algo};
        dtp_coll_cost(c, kind, r.algo, shape, bytes, &r.cost);
        if (r.cost.algo != r.algo) /* not on this machine */
            continue;
        int at = n++;
        for (; at > 0 && rows[at - 1].cost.time_s > r.cost.time_s; at--)
            rows[at] = rows[at - 1];
        rows[at] = r;
    }
    return n;
}

static void print_row(const struct dtp_term *t, const char *name, const struct dtp_coll_cost *c,
                      double bytes, double factor) {
    char time[32], busbw[32], latency[32];
    double rate = c->time_s > 0 ? bytes / c->time_s * factor : 0;
    fprintf(t->file, "  %-20s %10s %12s %12s  %s%s\n", name,
            dtp_fmt_time(c->time_s, time, sizeof time), dtp_fmt_rate(rate, busbw, sizeof busbw),
            dtp_fmt_time(c->latency_s, latency, sizeof latency), c->source ? c->source : "",
            c->extrapolated ? " (extrapolated)" : "");
}

/* ---- JSON ---- */

struct document {
    int kind;
    struct own own;
    struct dtp_coll_cost cost;
    double busbw_bytes_per_s;
    struct dtp_list algorithms;
};

/* clang-format off */
static const struct dtp_field row_fields[] = {
    {"algo", DTP_FIELD_ENUM, offsetof(struct row, algo), .names = dtp_algo_names, .help = "each algorithm that applies"},
    {"time_s", DTP_FIELD_DOUBLE, offsetof(struct row, cost.time_s), .help = "its time"},
    {0}};
#define AT(member) offsetof(struct document, member)
static const struct dtp_field document_fields[] = {
    DTP_FIELD_SCHEMA_VERSION,
    {"collective", DTP_FIELD_ENUM, AT(kind), .names = dtp_collective_names, .help = "kind of the collective"},
    {"cluster", DTP_FIELD_STRING, AT(own.cluster), .help = "name of the cluster"},
    {"gpus", DTP_FIELD_INT, AT(own.gpus), .help = "GPUs of the group"},
    {"bytes", DTP_FIELD_U64, AT(own.bytes), .help = "size of the buffer"},
    {"time_s", DTP_FIELD_DOUBLE, AT(cost.time_s), .help = "time as NCCL chooses the algorithm"},
    {"latency_s", DTP_FIELD_DOUBLE, AT(cost.latency_s), .help = "part of it that does not grow with the bytes"},
    {"busbw_bytes_per_s", DTP_FIELD_DOUBLE, AT(busbw_bytes_per_s), .help = "bus bandwidth, as nccl-tests counts it"},
    {"algo", DTP_FIELD_ENUM, AT(cost.algo), .names = dtp_algo_names, .help = "the algorithm"},
    {"source", DTP_FIELD_STRING, AT(cost.source), .unset = DTP_UNSET_NULL, .help = "the curve or the model"},
    {"extrapolated", DTP_FIELD_BOOL, AT(cost.extrapolated), .help = "outside what was measured"},
    {"algorithms", DTP_FIELD_PUT, AT(algorithms), .put = dtp_put_list, .fields = row_fields},
    {0}};
/* clang-format on */
static const struct dtp_form document = {"collective", "The time of one collective.",
                                         document_fields};
static const struct dtp_form *const documents[] = {&document, NULL};

static enum dtp_status run(struct dtp_cli *cli, struct dtp_err *err) {
    const struct own *own = cli->own;
    int kind = 0; /* "AllReduce" is all_reduce */
    while (kind < DTP_NCOLLECTIVES && !dtp_same_name(dtp_collective_names[kind], cli->arg[0]))
        kind++;
    if (kind == DTP_NCOLLECTIVES)
        return dtp_unknown_name(err, DTP_EUSAGE, "collective", cli->arg[0], dtp_collective_names,
                                DTP_NCOLLECTIVES, NULL);
    if (own->bytes == 0 || own->gpus == 0)
        return dtp_fail(err, DTP_EUSAGE, "--%s is missing, or 0; usage: dtplan %s",
                        own->bytes == 0 ? "bytes" : "gpus", cli->verb->synopsis);
    struct dtp_cluster c;
    DTP_TRY(dtp_cluster_load(cli->a, own->cluster, &c, err));
    if (own->nic)
        DTP_TRY(dtp_cluster_set_nics(&c, own->nic, err));
    struct dtp_placement p;
    struct dtp_sizes sizes = {own->groups, 1, own->gpus, 1, 1};
    DTP_TRY(dtp_placement_init(&p, &c, &sizes, "tp-cp-dp-pp", err));
    struct dtp_group_shape shape = dtp_placement_shape(&p, &c, DTP_AXIS_DP, 0);
    struct row rows[DTP_NALGOS];
    struct dtp_coll_cost cost;
    double bytes = (double)own->bytes;
    double factor = dtp_busbw_factor((enum dtp_collective)kind, own->gpus);
    dtp_coll_cost(&c, (enum dtp_collective)kind, DTP_ALGO_AUTO, &shape, bytes, &cost);
    int n = time_all(&c, (enum dtp_collective)kind, &shape, bytes, rows);
    if (cli->args.json) {
        const struct document d = {kind, *own, cost,
                                   cost.time_s > 0 ? bytes / cost.time_s * factor : 0,
                                   DTP_LIST(rows, n)};
        dtp_form_write(cli->out.file, 2, &document, &d);
        return DTP_OK;
    }
    char size[32];
    dtp_term_print(&cli->out, DTP_BOLD, "%s of %s over %d GPUs on %s", dtp_collective_names[kind],
                   dtp_fmt_bytes_si(bytes, size, sizeof size), own->gpus, own->cluster);
    fprintf(cli->out.file, " (%d node%s, %d group%s at once)\n  %-20s %10s %12s %12s\n",
            shape.nodes, shape.nodes == 1 ? "" : "s", own->groups, own->groups == 1 ? "" : "s",
            "algorithm", "time", "busbw", "latency");
    print_row(&cli->out, "auto", &cost, bytes, factor);
    for (int i = 0; i < n; i++)
        print_row(&cli->out, dtp_algo_names[rows[i].algo], &rows[i].cost, bytes, factor);
    return DTP_OK;
}

const struct dtp_verb dtp_verb_collective = {
    .name = "collective",
    .summary = "time of one collective, by algorithm",
    .synopsis = "collective KIND --bytes B --gpus N [--groups N] [--cluster C] [--json]",
    .description =
        "Predicts one collective alone on the network: what NCCL would choose (auto), and "
        "each algorithm. busbw is nccl-tests' bus bandwidth.",
    .groups = DTP_GROUP_OUTPUT,
    .documents = documents,
    .options = own_options,
    .own_size = sizeof(struct own),
    .defaults = defaults,
    .min_args = 1,
    .max_args = 1,
    .run = run};
