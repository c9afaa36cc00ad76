/* lower.h: Plan + Schedule + Costs -> Graph of tasks for the engine; and the longest path over the
 * same structure without building it (ESTIMATE).
 *
 * Tasks at action detail: F, B (or I, W; R is part of B) of a chunk and a microbatch on the compute
 * stream of a rank; each pipeline transfer, gradient reduction unit, parameter gather, unshard and
 * the optimizer are tasks of their own.
 *   p2p overlapped   F(vs,m) -> transfer -> F(vs+1,m); neither rank's stream waits otherwise
 *   p2p blocking     rendezvous: the transfer starts when the sender's action has ended and the
 *                    receiver has ended the action before the one that needs the data; the next
 *                    action of both waits for it
 *   reduce           after the last B of the chunk (or per microbatch); overlapped: that B is split into
 *                    nreduce equal parts and unit k waits for part k; units are a stream per rank
 *   optimizer        after all reductions of the rank, the norm and the embedding all-reduce; then the
 *                    gathers (ZeRO-1/2); with gather_overlap they hide behind the first F's instead
 *   ZeRO-3           F and B split into nunshard units, unit k waits for its unshard; an unshard starts
 *                    when the unit `prefetch` before it has started
 * A step ends when every rank has ended. ESTIMATE gives the same time as SIMULATE where nothing
 * contends, to 1e-9; never more.
 *
 * Folded: one rank (t = c = d = 0) per stage stands for its replicas; link weights count the replicas
 * that share the link. Unfolded: every rank. Equal results where dtp_placement_symmetric().
 */
#ifndef DTP_MODELS_LOWER_H
#define DTP_MODELS_LOWER_H

#include "models/cost.h"
#include "models/schedule.h"
#include "sim/engine.h"

enum dtp_detail { DTP_DETAIL_ACTION, DTP_DETAIL_OP, DTP_DETAIL_STEP };
extern const char *const dtp_detail_names[];

/* What a task is, packed into its 64-bit tag. */
enum dtp_task_kind {
    DTP_T_F, DTP_T_B, DTP_T_I, DTP_T_W, DTP_T_SEND_F, DTP_T_SEND_B, DTP_T_REDUCE, DTP_T_GATHER,
    DTP_T_UNSHARD, DTP_T_OPTIM, DTP_T_EMBEDDING, DTP_T_NORM, DTP_T_OFFLOAD, DTP_T_HOST, DTP_T_OP,
    DTP_NTASKS
};
extern const char *const dtp_task_names[]; /* "F", "B", ..., "send F", "reduce", ... */
struct dtp_task_tag {
    enum dtp_task_kind kind;
    int rank;       /* global rank (folded: the representative's) */
    int stage;      /* virtual stage */
    int microbatch; /* or unit */
    int part;       /* of a split action */
};
uint64_t dtp_tag_pack(struct dtp_task_tag t);
struct dtp_task_tag dtp_tag_unpack(uint64_t tag);

struct dtp_lowered {
    struct dtp_platform platform;
    struct dtp_graph graph;      /* frozen */
    int nranks;                  /* simulated ranks */
    int *rank;                   /* [nranks] global rank */
    dtp_id *compute_stream;      /* [nranks] */
    bool folded;
};
struct dtp_lower_options {
    bool fold;
    enum dtp_detail detail;
};
enum dtp_status dtp_lower(struct dtp_arena *a, const struct dtp_problem *problem,
                          const struct dtp_plan *plan, const struct dtp_costs *costs,
                          const struct dtp_schedule *schedule,
                          const struct dtp_lower_options *options, struct dtp_lowered *out,
                          struct dtp_err *err);

/* Longest path over the same tasks, without a graph. The schedule holds compute actions only. */
struct dtp_path {
    double step_s;
    double *rank_busy_s, *rank_first_s, *rank_last_s; /* [pp] compute: busy, window */
};
void dtp_estimate(struct dtp_arena *a, const struct dtp_costs *costs,
                  const struct dtp_schedule *schedule, struct dtp_path *out);
/* A time that no schedule of the plan can beat, from layer costs alone: O(1), never above dtp_estimate().
 */
double dtp_bound_s(struct dtp_cost_memo *memo, const struct dtp_plan *plan);

#endif
