/* memory.h: the ONLY place that turns a plan into bytes.
 *
 * Per pipeline stage (pp rank), itemised at the moment of the largest sum: either while activations
 * peak, or at the loss, or at the optimizer step; the items always add up to the peak exactly.
 * ZeRO (Rajbhandari 2020, section 5): with N = dp x cp, psi parameters of the stage,
 *   stage 1 divides the optimizer state, 2 also the gradients, 3 also the weights, by N.
 */
#ifndef DTP_MODELS_MEMORY_H
#define DTP_MODELS_MEMORY_H

#include "models/plan/plan.h"

struct dtp_stage_memory {
    uint64_t weights_bytes, gradients_bytes, optimizer_bytes, activations_bytes, logits_bytes,
        buffers_bytes;   /* buckets, unshard buffers, pipeline buffers */
    uint64_t peak_bytes; /* = the sum of the above = allocated */
    uint64_t
        reserved_bytes; /* with the allocator's rounding and, while there is room, what it holds idle */
    uint64_t wanted_bytes; /* reserved if the card had unlimited memory */
    uint64_t
        device_bytes; /* what must fit: allocated with the rounding, context, communicators, library workspaces */
    uint64_t
        observed_bytes; /* device_bytes with what the allocator caches while there is room: what
                                nvidia-smi shows */
    uint64_t params;    /* the stage's, per tp rank */
    const char *moment; /* static: "steady state", "loss", "optimizer" */
};

/* The memo keeps activations and in-flight counts, which come from the schedule (dtp_schedule_in_flight()). */
struct dtp_memory_memo;
/* The memo serves one problem, which must stay, and one thread; it lives in `a`. */
struct dtp_memory_memo *dtp_memory_memo_create(struct dtp_arena *a,
                                               const struct dtp_problem *problem);
/* stages: [pp]. The plan must be legal. */
void dtp_memory(struct dtp_memory_memo *memo, const struct dtp_plan *plan,
                struct dtp_stage_memory *stages);
/* Returns the largest device_bytes over the stages, by which the search prunes. It is faster than dtp_memory() and
 * gives the same maximum. */
uint64_t dtp_memory_device_bytes(struct dtp_memory_memo *memo, const struct dtp_plan *plan);
/* Returns the activation bytes that a layer keeps per microbatch: the formulas of Korthikanti follow from it. */
double dtp_memory_layer_activations(const struct dtp_problem *problem, const struct dtp_plan *plan,
                                    enum dtp_layer_kind kind);

/* Fills stages[pp] with the bytes of each pipeline stage by walking its actions (memory_walk.c). */
void dtp_memory_native(struct dtp_arena *a, const struct dtp_problem *problem,
                       const struct dtp_plan *plan, struct dtp_stage_memory *stages);
/* Returns the largest peak of the stages. */
uint64_t dtp_memory_native_peak(struct dtp_arena *a, const struct dtp_problem *problem,
                                const struct dtp_plan *plan);

#endif
