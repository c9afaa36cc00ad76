/* What uses which links. Where no tier of the fabric binds, a group that stands some nodes further on uses
 * the links so many nodes further on; groups and transfers without a common block (a node, or a group of the
 * highest tier that binds) share no link: on 131,072 GPUs the ring of one group is walked for thousands, and
 * folded only what meets the representative is looked at. */
#include "models/lower/lower_build.h"

/* Uses of groups alike but for where they start, by the place of the first member in its node. */
struct dtp_known_uses {
    struct dtp_known_uses *next;
    enum dtp_collective kind;
    enum dtp_algo algo;
    int stride, size;
    struct dtp_moved_uses *first; /* [gpus of a node]; at NULL: not yet asked for */
};

static struct dtp_known_uses *find_known(struct dtp_lowering *w, enum dtp_collective kind,
                                         enum dtp_algo algo, const struct dtp_group *g) {
    for (struct dtp_known_uses *k = w->known; k; k = k->next)
        if (k->kind == kind && k->algo == algo && k->stride == g->stride && k->size == g->size)
            return k;
    struct dtp_known_uses *k = DTP_NEW(w->a, struct dtp_known_uses, 1);
    size_t gpus = (size_t)w->problem->cluster->node.gpus;
    *k = (struct dtp_known_uses){w->known,  kind,    algo,
                                 g->stride, g->size, DTP_NEW(w->a, struct dtp_moved_uses, gpus)};
    w->known = k;
    return k;
}

static struct dtp_moved_uses uses_of(struct dtp_lowering *w, enum dtp_collective kind,
                                     enum dtp_algo algo, struct dtp_group g) {
    struct dtp_coll_call call = {kind, algo, g, w->placement.ngpus};
    struct dtp_moved_uses uses = {0};
    uses.n = dtp_coll_uses(w->a, w->problem->cluster, &call, &uses.at);
    return uses;
}

struct dtp_moved_uses dtp_lowering_uses(struct dtp_lowering *w, enum dtp_collective kind,
                                        enum dtp_algo algo, const struct dtp_group *group) {
    int gpus = w->problem->cluster->node.gpus, node = group->first / gpus;
    if (w->node_links == 0)
        return uses_of(w, kind, algo, *group);
    struct dtp_group moved = {group->first % gpus, group->stride, group->size};
    struct dtp_moved_uses *known = &find_known(w, kind, algo, group)->first[moved.first];
    if (!known->at)
        *known = uses_of(w, kind, algo, moved);
    return (struct dtp_moved_uses){known->at, known->n, (uint32_t)node * w->node_links};
}

void dtp_lowering_uses_add(struct dtp_lowering *w, const struct dtp_moved_uses *uses) {
    for (uint32_t k = 0; k < uses->n; k++)
        dtp_lowering_total_add(w, uses->at[k].resource + uses->shift, uses->at[k].weight);
}

bool dtp_lowering_meet(const struct dtp_lowering *w, const struct dtp_group *x,
                       const struct dtp_group *y) {
    int gpus = w->block_gpus;
    return gpus == 0 || (x->first / gpus <= (y->first + (y->size - 1) * y->stride) / gpus &&
                         y->first / gpus <= (x->first + (x->size - 1) * x->stride) / gpus);
}

/* The representative's transfer goes from one block to another or stays in it: those that start in them,
 * then those that end there and start elsewhere. */
int dtp_lowering_meeting(const struct dtp_lowering *w, int from, int to, const int **out) {
    const struct dtp_placement *p = &w->placement;
    int gpus = w->block_gpus, all = dtp_lowering_replicas(w), n = 0;
    bool near = w->out->folded && gpus > 0 && 2 * gpus < all;
    int *list = DTP_NEW(w->a, int, (size_t)(near ? 2 * gpus : all));
    *out = list;
    for (int q = 0; !near && q < all; q++)
        list[n++] = q;
    if (!near)
        return n;
    int block[2] = {dtp_lowering_rank(w, from, 0) / gpus, dtp_lowering_rank(w, to, 0) / gpus};
    for (int k = 0; k < (block[0] == block[1] ? 1 : 2); k++)
        for (int rank = block[k] * gpus; rank < (block[k] + 1) * gpus && rank < p->ngpus; rank++) {
            int t, c, d, stage;
            dtp_placement_coords(p, rank, &t, &c, &d, &stage);
            int q = t + p->tp * (c + p->cp * d), start = dtp_lowering_rank(w, from, q) / gpus;
            if (stage == from || (stage == to && start != block[0] && start != block[1]))
                list[n++] = q;
        }
    return n;
}
