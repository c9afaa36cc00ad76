/* cases.h: the graphs that the engine's benchmarks and its test against SimGrid's times share.
 *
 * Cluster: nodes of 8 GPUs, a NIC per GPU (25e9 B/s each way, 2.5 us up and down), 16 nodes a leaf,
 * 16 spines, leaf to spine 100e9 B/s each way; the spine of a pair of GPUs is a hash of the pair.
 * Ranks map to GPUs packed (tp, dp, pp), spread (tp, pp, dp) or spread and shuffled.
 */
#ifndef DTP_TESTS_BENCH_CASES_H
#define DTP_TESTS_BENCH_CASES_H

#include "sim/engine.h"

enum case_map { CASE_PACKED, CASE_SPREAD, CASE_SHUFFLED };

struct case_graph {
    struct dtp_arena *a;
    struct dtp_platform p;
    struct dtp_graph g;
    dtp_id up, down, leaf_up, leaf_down; /* first ids */
    int tp, pp, dp, jitter;
    int loads; /* GPUs are devices, and a ring's flow takes a tenth of both its ends */
    enum case_map map;
    int *permutation;
};

void case_init(struct case_graph *c, struct dtp_arena *a);
void case_chain_fork(struct case_graph *c, const int *arg); /* {chains, length} */
void case_pipeline(struct case_graph *c, const int *arg);   /* {stages, microbatches} */
void case_rings(struct case_graph *c, const int *arg);      /* {nodes, map, jitter} */
void case_step(struct case_graph *c, const int *arg);       /* {tp, pp, dp, m, jitter, map} */
void case_step_loads(struct case_graph *c, const int *arg); /* as case_step */
void case_all_to_all(struct case_graph *c, const int *arg); /* {nodes, jitter}: all pairs at once */

#endif
