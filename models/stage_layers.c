#include "models/framework.h"

/* nanotron, models/base.py: a block is built on the target rank; when the cumulative cost passes the
 * rank's threshold, sum x (rank + 1) / pp, the next block goes to the next rank. Its costs are those of
 * models/llama.py, get_block_compute_costs(). The version that polls its transfers does so; before it a block
 * that just reaches the threshold ends the stage too (the first of two or four stages of the 1B model holds the
 * bytes of eleven and six layers there, of ten and five before). */
bool dtp_framework_stage_layers(const struct dtp_framework *f, const struct dtp_model *m, int pp,
                                int *layers) {
    if (!f->stages_by_cost || pp <= 1 || m->layers < pp || m->moe.experts > 0)
        return false;
    double width = (double)m->heads * m->head_dim, head = (double)m->vocab * m->hidden;
    double layer = (4 * width + (m->gated_ffn ? 3.0 : 2.0) * m->ffn) * m->hidden;
    double sum = m->layers * layer + head, done = 0;
    int rank = 0;
    for (int s = 0; s < pp; s++)
        layers[s] = 0;
    for (int l = 0; l < m->layers; l++) {
        layers[rank]++;
        done += layer;
        double share = sum * (rank + 1) / pp;
        if (rank < pp - 1 && (f->checked_transfers ? done > share : done >= share))
            rank++;
    }
    return true;
}
