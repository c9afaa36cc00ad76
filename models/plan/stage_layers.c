#include "models/framework/framework.h"

/* Blocks in order on the ranks of a pipeline, with the cost of all and of those so far. */
struct cut {
    double all, done;
    int pp, rank;
    bool reaches; /* a block that just reaches a rank's share is its last, too */
};

/* Rank of the next block. */
static int cut_next(struct cut *c, double cost) {
    int rank = c->rank;
    c->done += cost;
    double share = c->all * (rank + 1) / c->pp;
    if (rank < c->pp - 1 && (c->reaches ? c->done >= share : c->done > share))
        c->rank++;
    return rank;
}

static double layer_cost(const struct dtp_model *m) {
    double width = (double)m->heads * m->head_dim;
    return (4 * width + (m->gated_ffn ? 3.0 : 2.0) * m->ffn) * m->hidden;
}

static bool cuts_by_cost(const struct dtp_framework *f, const struct dtp_model *m, int pp) {
    return f->quirks.cut_by_cost.stages_by_cost && pp > 1 && m->layers >= pp && m->moe.experts == 0;
}

static struct cut start_cut(const struct dtp_model *m, int pp, bool reaches) {
    return (struct cut){.all = m->layers * layer_cost(m) + (double)m->vocab * m->hidden,
                        .pp = pp,
                        .reaches = reaches};
}

/* nanotron, models/base.py: a block is built on the target rank; when the cumulative cost passes the
 * rank's threshold, sum x (rank + 1) / pp, the next block goes to the next rank. Its costs are those of
 * models/llama.py, get_block_compute_costs(). The version that polls its transfers does so; before it a block
 * that just reaches the threshold ends the stage too (the first of two or four stages of the 1B model holds the
 * bytes of eleven and six layers there, of ten and five before). */
bool dtp_framework_stage_layers(const struct dtp_framework *f, const struct dtp_model *m, int pp,
                                int *layers) {
    if (!cuts_by_cost(f, m, pp))
        return false;
    struct cut c = start_cut(m, pp, !f->host.checked_transfers);
    for (int s = 0; s < pp; s++)
        layers[s] = 0;
    for (int l = 0; l < m->layers; l++)
        layers[cut_next(&c, layer_cost(m))]++;
    return true;
}

/* Final norm, head, cast and loss are blocks of their own (models/llama.py), and only the head costs anything:
 * with many stages the loss comes before the last, where build_model() takes the output to be. */
bool dtp_framework_reaches_last(const struct dtp_framework *f, const struct dtp_model *m, int pp) {
    if (!cuts_by_cost(f, m, pp))
        return true;
    struct cut c = start_cut(m, pp, false);
    double head = (double)m->vocab * m->hidden;
    if (head * pp <= c.all) /* the head is in the last share */
        return true;
    for (int l = 0; l < m->layers; l++)
        cut_next(&c, layer_cost(m));
    cut_next(&c, 0);
    cut_next(&c, head);
    cut_next(&c, 0);
    return cut_next(&c, 0) == pp - 1;
}
