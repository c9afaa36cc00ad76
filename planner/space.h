/* space.h: the candidate plans of a problem, numbered 0 .. ncandidates-1 in a fixed order.
 *
 * The space, outermost field first (G GPUs, L layers, B sequences of global batch):
 *   tp               divisors of G
 *   pp               divisors of G / tp
 *   cp               divisors of G / (tp pp); unless limited by the user those that the framework, the model and
 *                    the sequence take
 *   dp               G / (tp pp cp)
 *   etp              tp; of models with experts, where the framework divides them apart from the rest, also 1;
 *                    with a limit, where it divides them as one likes, any divisor of tp cp dp
 *   ep               divisors of tp cp dp / etp that divide the experts (limited by the user: up to their number);
 *                    dense models: 1
 *   ep_per_node      0; 1 where the framework has it and a group of ep may leave its node
 *   ep_overlap       0; 1 where the framework has it, ep > 1 and vpp > 1 or pp = 1
 *   account_for_ends off; on where the framework has it, pp > 1 and pp divides L + 2, but for numbers of chunks
 *                    that off has, too: the same layers in each (unless only on is wanted)
 *   last_stage_less  0; where the framework takes the layers of each stage also up to 1.5 times the FLOPs of the
 *                    head in those of a layer; when limited by the user instead what is wanted; the last chunk
 *                    keeps a layer
 *   vpp              1 .. floor(L / pp) where chunks may be uneven, else its divisors; with account_for_ends
 *                    divisors of (L + 2) / pp; pp = 1: 1
 *   schedule         vpp = 1: every schedule without chunks; vpp > 1: every one with chunks
 *   microbatch_size  divisors of B / dp; 1 where dp does not divide B (then refused)
 *   zero_stage       0 1 2 3
 *   zero_group       0, all of dp cp; with ZeRO-3 where the framework shards in groups also the replicas of a
 *                    node and of 2, 4, 8 ... nodes that divide dp cp; when limited by the user instead
 *                    divisors of dp cp, or the first that is wanted where none divides (then refused)
 *   sequence_parallel off, on; tp = 1: off
 *   recompute        none selective full
 *   recompute_modules 0; selective with Megatron-Core's modules also those that cost little (DTP_CHEAP_MODULES),
 *                    where layers have some; when given instead these
 *   recompute_layers 0, all; of full recomputation, where the framework has it, also the fewest that fit: a
 *                    candidate has DTP_FEWEST_LAYERS, the search finds their number (dtp_search_plan); when
 *                    limited by the user instead the numbers that are wanted
 * Limits (limits.h) take values away; they never add any. dtp_plan_check() decides whether
 * a candidate is legal: the space only says what is counted. Layers are split as evenly as possible
 * unless the limits fix layers_per_stage, which then also fixes pp x vpp.
 *
 * A `shape` is what the fields up to schedule fix; its candidates are consecutive numbers:
 *     for (size_t s = 0; s < space.nshapes; s++)
 *         for (uint64_t i = 0; i < dtp_space_shape_size(&space, s); i++)
 *             dtp_space_plan(&space, s, i, &plan);
 */
#ifndef DTP_PLANNER_SPACE_H
#define DTP_PLANNER_SPACE_H

#include "planner/limits.h"

struct dtp_zero {
    int stage, group;
};

#define DTP_FEWEST_LAYERS (1 << 24) /* more than a chunk has */

struct dtp_recomputed {
    enum dtp_recompute mode;
    int layers, modules;
};

struct dtp_shape {
    int tp, pp, cp, dp, etp, ep, ep_overlap, ep_per_node, last_less, vpp, schedule;
    bool ends;
    int nmicrobatch, nzero, nsp, nrecompute;
    const int *microbatch; /* [nmicrobatch], shared between shapes of the same dp */
    /* [nzero], shared between shapes of the same tp, dp, cp, etp and ep */
    const struct dtp_zero *zero;
    int sp[2];
    const struct dtp_recomputed
        *recompute; /* [nrecompute], shared between shapes of the same chunks */
    uint64_t first; /* number of its first candidate */
};

struct dtp_space {
    const struct dtp_problem *problem;
    struct dtp_limits limits;
    struct dtp_shape *shape;
    size_t nshapes;
    uint64_t ncandidates;
};

/* limits may be NULL: none. problem must stay. */
void dtp_space_init(struct dtp_arena *a, const struct dtp_problem *problem,
                    const struct dtp_limits *limits, struct dtp_space *out);
uint64_t dtp_space_shape_size(const struct dtp_space *s, size_t shape);
/* Fills in the plan of candidate `i` of a shape. */
void dtp_space_plan(const struct dtp_space *s, size_t shape, uint64_t i, struct dtp_plan *out);
/* Fills in the plan of a candidate by number, 0 .. ncandidates-1. */
void dtp_space_candidate(const struct dtp_space *s, uint64_t candidate, struct dtp_plan *out);

/* Sorted divisors of n into out, returns how many. Room for DTP_MOST_DIVISORS is always enough. */
enum { DTP_MOST_DIVISORS = 1536 };
int dtp_divisors(int n, int *out);

#endif
