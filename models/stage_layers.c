#include "models/framework.h"

/* nanotron, models/base.py: a block is built on the target rank; when the cumulative cost passes the
 * rank's threshold, sum x (rank + 1) / pp, the next block goes to the next rank. */
bool dtp_framework_stage_layers(const struct dtp_framework *f, const struct dtp_model *m, int pp,
                                int *layers) {
    if (!f->stages_by_cost || pp <= 1 || m->layers < pp || m->moe.experts > 0)
        return false;
    struct dtp_param_counts counts;
    dtp_model_params(m, m->vocab, &counts);
    double layer = (double)counts.dense_layer, head = (double)m->vocab * m->hidden;
    double sum = m->layers * layer + head, done = 0;
    int rank = 0;
    for (int s = 0; s < pp; s++)
        layers[s] = 0;
    for (int l = 0; l < m->layers; l++) {
        layers[rank]++;
        done += layer;
        if (rank < pp - 1 && done > sum * (rank + 1) / pp)
            rank++;
    }
    return true;
}
