#include <string.h>

#include "planner/cli/cli.h"
#include "planner/cli/listing.h"
#include "planner/cli/verbs.h"
#include "sim/base/text.h"

enum { EXAMPLE_RANKS = 16, EXAMPLE_PER_NODE = 8, MOST_STEPS = 128 };

/* "2 x (n-1) steps: NEXT by 1, 1/8 of the buffer" of each step, joined. Returns buf. */
static const char *steps_text(const struct dtp_step *steps, int n, char *buf, size_t size) {
    static const char *const peers[] = {[DTP_PEER_NEXT] = "next",
                                        [DTP_PEER_XOR] = "xor",
                                        [DTP_PEER_TO_ROOT] = "to root",
                                        [DTP_PEER_FROM_ROOT] = "from root",
                                        [DTP_PEER_ALL] = "all",
                                        [DTP_PEER_TREE_UP] = "up the tree",
                                        [DTP_PEER_TREE_DOWN] = "down the tree",
                                        [DTP_PEER_SWITCH] = "switch"};
    static const char *const tiers[] = {"", " inside the node", " across nodes"};
    size_t used = 0;
    buf[0] = '\0';
    for (int i = 0; i < n && used < size; i++)
        used += (size_t)snprintf(buf + used, size - used, "%s%d x %s %.4g%s", i ? ", " : "",
                                 steps[i].repeat, peers[steps[i].peer], steps[i].fraction,
                                 tiers[steps[i].tier]);
    return buf;
}

static enum dtp_status find_kind(const char *name, int *out, struct dtp_err *err) {
    size_t n = 0;
    while (dtp_collective_names[n])
        n++;
    *out = dtp_name_index(dtp_collective_names, name);
    if (*out >= 0)
        return DTP_OK;
    return dtp_unknown_name(err, DTP_EUSAGE, "collective", name, dtp_collective_names, n, NULL);
}

static void algorithms(const struct dtp_term *t, enum dtp_collective kind, const char *indent) {
    struct dtp_step steps[MOST_STEPS];
    char text[512], line[640];
    for (int algo = DTP_ALGO_AUTO + 1; algo < DTP_NALGOS; algo++) {
        int n = dtp_coll_steps((enum dtp_algo)algo, kind, EXAMPLE_RANKS, EXAMPLE_PER_NODE, steps,
                               MOST_STEPS);
        if (n < 0)
            continue;
        snprintf(line, sizeof line, "%s", steps_text(steps, n, text, sizeof text));
        fputs(indent, t->file);
        dtp_listing_row(t, dtp_algo_names[algo], 20, line);
    }
}

static enum dtp_status run(struct dtp_cli *cli, struct dtp_err *err) {
    const struct dtp_listing *own = cli->own;
    FILE *f = cli->out.file;
    int only = -1;
    if (cli->nargs == 1)
        DTP_TRY(find_kind(cli->arg[0], &only, err));
    if (!own->names)
        fprintf(f,
                "Steps of each algorithm for %d ranks, %d a node: repeats x peer, part of the "
                "buffer\n",
                EXAMPLE_RANKS, EXAMPLE_PER_NODE);
    for (int k = 0; k < DTP_NCOLLECTIVES; k++) {
        if (only >= 0 && k != only)
            continue;
        dtp_term_print(&cli->out, own->names ? DTP_PLAIN : DTP_BOLD, "%s\n",
                       dtp_collective_names[k]);
        if (!own->names)
            algorithms(&cli->out, (enum dtp_collective)k, "  ");
    }
    return DTP_OK;
}

const struct dtp_verb dtp_verb_collectives = {
    .name = "collectives",
    .summary = "the collectives and their algorithms as steps",
    .synopsis = "collectives [KIND]",
    .description = "Lists the collectives with the algorithms that apply to each. A step is: how "
                   "often, to whom, which part of the buffer.",
    .options = dtp_listing_options,
    .own_size = sizeof(struct dtp_listing),
    .max_args = 1,
    .run = run};
