/* lower.h: Plan + Schedule + Costs -> Graph of tasks for the engine; and the longest path over the
 * same structure without building it (ESTIMATE).
 *
 * Tasks at action detail: F, B (or I, W; R is part of B) of a chunk and a microbatch on the compute
 * stream of a rank; each pipeline transfer, gradient reduction unit, parameter gather, unshard and
 * the optimizer are separate tasks.
 *   p2p overlapped   F(vs,m) -> transfer -> F(vs+1,m); neither rank's stream waits otherwise
 *   p2p blocking     GPipe and 1F1B, rendezvous: a transfer starts when the sender's action has ended
 *                    and the receiver has ended the action before the one that needs the data; the
 *                    next action of both waits for it. Between two actions a rank so sends its last
 *                    output and receives its next input at once, as Megatron's
 *                    send_forward_recv_backward does. Chunked and split schedules: the transfer starts
 *                    when the sender's action has ended and the sender's next action waits for it (a
 *                    rendezvous on their order would stall on work that trainers do meanwhile)
 *                    Interleaved with p2p_slots (torch.distributed.pipelining): actions stand in time
 *                    slots; after a slot a rank's transfers of that slot, sent and received, go as one
 *                    batch, each when both ends have come, and its next slot waits for all of them
 *   reduce           after the last B of the chunk (or per microbatch); overlapped: that B is split into
 *                    nreduce equal parts and unit k waits for part k; units are a stream per rank
 *   optimizer        after all reductions of the rank, the embedding and the norm all-reduce; then the
 *                    gathers (ZeRO-1/2); with gather_overlap they hide behind the first F's instead
 *   ZeRO-3           F and B split into nunshard units, unit k waits for its unshard; an unshard starts
 *                    when the unit `prefetch` before it has started
 * A step ends when every rank has ended. ESTIMATE gives the same time as SIMULATE where nothing
 * contends, to 1e-9; never more.
 *
 * Folded: one rank (t = c = d = 0) per stage stands for its replicas; link weights count the replicas
 * that share the link. Unfolded: every rank. Equal results where dtp_placement_symmetric(); where not, every rank is
 * simulated without asking, unless the graph is large.
 */
#ifndef DTP_MODELS_LOWER_H
#define DTP_MODELS_LOWER_H

#include "models/cost/cost.h"
#include "models/schedule/schedule.h"
#include "sim/engine.h"

enum dtp_detail { DTP_DETAIL_ACTION, DTP_DETAIL_OP, DTP_DETAIL_STEP };
extern const char *const dtp_detail_names[];

/* What a task is, packed into its 64-bit tag. */
enum dtp_task_kind {
    DTP_T_F,
    DTP_T_B,
    DTP_T_I,
    DTP_T_W,
    DTP_T_SEND_F,
    DTP_T_SEND_B,
    DTP_T_REDUCE,
    DTP_T_GATHER,
    DTP_T_UNSHARD,
    DTP_T_OPTIM,
    DTP_T_EMBEDDING,
    DTP_T_NORM,
    DTP_T_OFFLOAD,
    DTP_T_HOST,
    DTP_T_LATE, /* deferred weight gradients of the head */
    DTP_T_OP,
    DTP_NTASKS
};
extern const char *const dtp_task_names[]; /* "F", "B", ..., "send F", "reduce", ... */
struct dtp_task_tag {
    enum dtp_task_kind kind;
    int rank;       /* global rank (folded: the representative's) */
    int stage;      /* virtual stage */
    int microbatch; /* or unit */
    int part;       /* index in a split action */
};
/* rank 20 bits, stage 12, microbatch 19; parts beyond 255 are 255. */
uint64_t dtp_tag_pack(struct dtp_task_tag t);
struct dtp_task_tag dtp_tag_unpack(uint64_t tag);

/* The tasks with which the parts of a rank's step end; DTP_NONE: it has no such part. */
struct dtp_rank_tasks {
    dtp_id first, last; /* compute actions */
    dtp_id reduce, embedding, norm, optimizer, gather, end;
    dtp_id embedding_begin; /* differs from embedding where it is expanded into steps */
};

struct dtp_lowered {
    struct dtp_platform platform;
    struct dtp_graph graph;       /* frozen */
    int nranks;                   /* simulated ranks */
    int *rank;                    /* [nranks] global rank */
    int *stage;                   /* [nranks] pipeline stage */
    dtp_id *compute_stream;       /* [nranks] */
    struct dtp_rank_tasks *tasks; /* [nranks] */
    const char **op_name;         /* DTP_T_OP: by the part of the tag */
    const struct dtp_op **op;     /* the same: shape, or NULL where operations have several */
    int nop_names;
    bool folded, unlike;   /* unlike: one replica stands for others that do not lie as it does */
    int schedule, pp, vpp; /* for names of actions */
};
struct dtp_lower_options {
    bool fold;
    enum dtp_detail detail;
    double most_bytes; /* larger graphs are refused; 0: those that the machine has no memory for */
};
struct dtp_lower_input {
    const struct dtp_problem *problem;
    const struct dtp_plan *plan;
    const struct dtp_costs *costs;
    const struct dtp_schedule *schedule; /* compute actions only */
};
/* The graph, frozen, and what each rank does, all in a. DTP_EUNSUPPORTED: too large (most_bytes); DTP_EINPUT: an
 * order that deadlocks, with the tasks. */
enum dtp_status dtp_lower(struct dtp_arena *a, const struct dtp_lower_input *in,
                          const struct dtp_lower_options *options, struct dtp_lowered *out,
                          struct dtp_err *err);

/* When a rank does what in a step, seconds from its start; filled by ESTIMATE and by SIMULATE. */
struct dtp_rank_path {
    double first_s;   /* start of the first action */
    double last_s;    /* end of the last action */
    double filled_s;  /* ESTIMATE only: idle time before the first backward */
    double busy_s;    /* compute actions under way, slow-down by communication included */
    double dp_wait_s; /* inside first_s .. last_s: waiting for unshards, gathers, reductions */
    double reduced_s; /* its reductions have ended, >= last_s */
    double embedding_start_s, embedding_end_s; /* = reduced_s where it has none */
    double norm_start_s, norm_end_s;           /* likewise */
    double optimized_s, gathered_s;
    double end_s; /* with offload */
};

/* Longest path over the same tasks, without a graph. The schedule holds compute actions only. */
struct dtp_path {
    double step_s;     /* INFINITY: the order deadlocks */
    int last_rank;     /* ends last, the lowest among equals */
    int stage_of_last; /* its pipeline stage */
    int nranks;
    struct dtp_rank_path *rank; /* [nranks]: pp, or every simulated rank */
    uint64_t nactions;          /* that were walked, not jumped over */
};
/* Estimates with free transfers between stages: the idle time that a rank then has is the bubble. */
void dtp_estimate_free(struct dtp_arena *a, const struct dtp_costs *costs,
                       const struct dtp_schedule *schedule, struct dtp_path *out);
void dtp_estimate(struct dtp_arena *a, const struct dtp_costs *costs,
                  const struct dtp_schedule *schedule, struct dtp_path *out);
/* Estimates without the jump over the periodic steady state (estimate.c); the result is equal to 1e-12. */
void dtp_estimate_plain(struct dtp_arena *a, const struct dtp_costs *costs,
                        const struct dtp_schedule *schedule, struct dtp_path *out);
/* Fills the same from a simulated timeline, for every simulated rank. */
void dtp_lowered_path(struct dtp_arena *a, const struct dtp_lowered *lowered,
                      const struct dtp_costs *costs, const struct dtp_timeline *timeline,
                      struct dtp_path *out);

/* A time that no schedule of the plan can beat, from layer costs alone: O(1), never above dtp_estimate().
 */
/* Below the BOUND of every plan that differs in schedule, chunks, ZeRO and recomputation alone: what all stages compute
 * for all microbatches without recomputation, divided evenly. O(1); 0 where layers take longer or less by those. */
double dtp_floor_s(struct dtp_cost_memo *memo, const struct dtp_problem *problem,
                   const struct dtp_plan *plan);
double dtp_bound_s(struct dtp_cost_memo *memo, const struct dtp_problem *problem,
                   const struct dtp_plan *plan);

#endif
