#include <string.h>

#include "planner/cli/cli.h"
#include "planner/cli/listing.h"
#include "planner/cli/verbs.h"
#include "sim/base/text.h"

enum { EXAMPLE_RANKS = 16, EXAMPLE_PER_NODE = 8, MOST_STEPS = 128 };

static const char *const peers[] = {[DTP_PEER_NEXT] = "next",
                                    [DTP_PEER_CHAIN] = "along the chain",
                                    [DTP_PEER_CHAIN_BACK] = "back along the chain",
                                    [DTP_PEER_XOR] = "xor",
                                    [DTP_PEER_FOLD_IN] = "into the power of two",
                                    [DTP_PEER_FOLD_OUT] = "out of the power of two",
                                    [DTP_PEER_TO_ROOT] = "to root",
                                    [DTP_PEER_FROM_ROOT] = "from root",
                                    [DTP_PEER_ALL] = "all",
                                    [DTP_PEER_TREE_UP] = "up the tree",
                                    [DTP_PEER_TREE_DOWN] = "down the tree",
                                    [DTP_PEER_TREES_UP] = "up two trees",
                                    [DTP_PEER_TREES_DOWN] = "down two trees",
                                    [DTP_PEER_SWITCH] = "switch"};
static const char *const tiers[] = {"all ranks", "inside the node", "across nodes"};

/* Steps of the example; < 0: the algorithm does not apply. */
static int example(int algo, int kind, struct dtp_step *steps) {
    return dtp_coll_steps((enum dtp_algo)algo, (enum dtp_collective)kind, EXAMPLE_RANKS,
                          EXAMPLE_PER_NODE, steps, MOST_STEPS);
}

/* "7 x next 0.125 inside the node" of each step, joined. Returns buf. */
static const char *steps_text(const struct dtp_step *steps, int n, char *buf, size_t size) {
    size_t used = 0;
    buf[0] = '\0';
    for (int i = 0; i < n && used < size; i++)
        used += (size_t)snprintf(buf + used, size - used, "%s%d x %s %.4g%s%s", i ? ", " : "",
                                 steps[i].repeat, peers[steps[i].peer], steps[i].fraction,
                                 steps[i].tier > 0 ? " " : "",
                                 steps[i].tier > 0 ? tiers[steps[i].tier] : "");
    return buf;
}

static void print(const struct dtp_term *t, int kind) {
    struct dtp_step steps[MOST_STEPS];
    char text[512];
    dtp_term_print(t, DTP_BOLD, "%s\n", dtp_collective_names[kind]);
    for (int algo = DTP_ALGO_AUTO + 1; algo < DTP_NALGOS; algo++) {
        int n = example(algo, kind, steps);
        if (n < 0)
            continue;
        fputs("  ", t->file);
        dtp_listing_row(t, dtp_algo_names[algo], 20, steps_text(steps, n, text, sizeof text));
    }
}

/* ---- JSON ---- */

struct document {
    int kind, ranks, ranks_per_node;
};

/* An algorithm that applies, with the steps of the example. */
struct algorithm {
    int algo;
    struct dtp_list steps;
};

static void put_algorithms(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    const struct document *d = at;
    struct dtp_step steps[MOST_STEPS];
    dtp_json_array(w);
    for (int algo = DTP_ALGO_AUTO + 1; algo < DTP_NALGOS; algo++) {
        int n = example(algo, d->kind, steps);
        if (n < 0)
            continue;
        const struct algorithm x = {algo, DTP_LIST(steps, n)};
        dtp_json_object(w);
        dtp_fields_write(w, f->fields, &x);
        dtp_json_end(w);
    }
    dtp_json_end(w);
}

/* clang-format off */
#define AT(member) offsetof(struct dtp_step, member)
static const struct dtp_field step_fields[] = {
    {"repeat", DTP_FIELD_INT, AT(repeat), .help = "how often"},
    {"peer", DTP_FIELD_ENUM, AT(peer), .names = peers, .help = "to whom a rank sends"},
    {"fraction", DTP_FIELD_DOUBLE, AT(fraction), .help = "part of the buffer"},
    {"among", DTP_FIELD_ENUM, AT(tier), .names = tiers, .help = "all ranks, or those inside the node, or across nodes"},
    {0}};
#undef AT
static const struct dtp_field algorithm_fields[] = {
    {"algo", DTP_FIELD_ENUM, offsetof(struct algorithm, algo), .names = dtp_algo_names, .help = "each algorithm that applies"},
    {"steps", DTP_FIELD_PUT, offsetof(struct algorithm, steps), .put = dtp_put_list, .fields = step_fields},
    {0}};
#define AT(member) offsetof(struct document, member)
static const struct dtp_field document_fields[] = {
    {"name", DTP_FIELD_ENUM, AT(kind), .names = dtp_collective_names, .help = "name of the collective"},
    {"ranks", DTP_FIELD_INT, AT(ranks), .help = "ranks of the example"},
    {"ranks_per_node", DTP_FIELD_INT, AT(ranks_per_node), .help = "ranks of a node of the example"},
    {"algorithms", DTP_FIELD_PUT, 0, .put = put_algorithms, .inner = "[]", .fields = algorithm_fields},
    {0}};
/* clang-format on */
static const struct dtp_form document = {"collectives KIND", "The steps of its algorithms.",
                                         document_fields};
static const struct dtp_form *const documents[] = {&document, NULL};

static void heading(FILE *f) {
    fprintf(f,
            "Steps of each algorithm for %d ranks, %d a node: repeats x peer, part of the "
            "buffer\n",
            EXAMPLE_RANKS, EXAMPLE_PER_NODE);
}

static enum dtp_status details(struct dtp_cli *cli, const char *name, struct dtp_err *err) {
    int kind = dtp_name_index(dtp_collective_names, name);
    if (kind < 0)
        return dtp_unknown_name(err, DTP_EUSAGE, "collective", name, dtp_collective_names,
                                DTP_NCOLLECTIVES, NULL);
    if (cli->args.json) {
        const struct document d = {kind, EXAMPLE_RANKS, EXAMPLE_PER_NODE};
        dtp_form_write(cli->out.file, 2, &document, &d);
        return DTP_OK;
    }
    heading(cli->out.file);
    print(&cli->out, kind);
    return DTP_OK;
}

static enum dtp_status list(struct dtp_arena *a, const char *const **names, size_t *n,
                            struct dtp_err *err) {
    (void)a;
    (void)err;
    *names = dtp_collective_names;
    *n = DTP_NCOLLECTIVES;
    return DTP_OK;
}

static enum dtp_status row(struct dtp_cli *cli, const char *name, int width, struct dtp_err *err) {
    int kind = dtp_name_index(dtp_collective_names, name);
    (void)width;
    (void)err;
    if (kind == 0)
        heading(cli->out.file);
    print(&cli->out, kind);
    return DTP_OK;
}

static enum dtp_status run(struct dtp_cli *cli, struct dtp_err *err) {
    static const struct dtp_listing_verb verb = {list, row, details};
    return dtp_listing_run(cli, &verb, err);
}

const struct dtp_verb dtp_verb_collectives = {
    .name = "collectives",
    .summary = "the collectives and their algorithms as steps",
    .synopsis = "collectives [KIND]",
    .description = "Lists the collectives with the algorithms that apply to each. A step is: how "
                   "often, to whom, which part of the buffer.",
    .groups = DTP_GROUP_OUTPUT,
    .documents = documents,
    .options = dtp_listing_options,
    .own_size = sizeof(struct dtp_listing),
    .max_args = 1,
    .run = run};
