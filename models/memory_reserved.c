/* What PyTorch's caching allocator has reserved beside what is allocated, while the card has room. */
#include <math.h>

#include "models/memory_private.h"

double dtp_memory_flat_gather_bytes(const struct dtp_framework_memory *f,
                                    const struct dtp_plan *plan, const struct rank_parts *r) {
    bool divided = (plan->zero_stage == 1 || plan->zero_stage == 2) && plan->dp * plan->cp > 1;
    return divided ? f->flat_gather_bytes * (r->dense + r->experts) : 0;
}

/* Layers whose forwards the host has launched before the GPU starts on them, and what the queue holds beside
 * them. It runs ahead freely, to the end of the queue already in the first step, unless it checks each
 * collective with the other ranks. Then it gets ahead where a layer takes the GPU longer, by a share of all
 * launches; and the first stage of a pipeline launches its warm-up while the GPU waits for the second stage to
 * take the first microbatches, the more so in the first step, where that stage starts late. Transfers that the
 * host polls leave nothing behind. */
static double forwards_ahead(const struct dtp_framework *f, const struct dtp_plan *plan,
                             const struct activations *x, const struct rank_parts *r,
                             double *out_left) {
    double queue = f->memory.queue_layers, all = (double)r->layers * r->in_flight;
    double warm_up = f->checked_collectives ? all - 2.0 * r->layers : all;
    *out_left = 0;
    if (f->checked_transfers)
        return 0;
    if (f->checked_collectives) {
        double launched = (double)r->layers * dtp_plan_num_microbatches(plan) *
                          (1 + x->launches[1] / x->launches[0]);
        double lead = x->lead * launched;
        queue = lead < queue ? lead : queue;
    }
    double forwards = all < queue ? all : queue;
    *out_left = queue - forwards;
    warm_up = warm_up < f->memory.queue_layers ? warm_up : f->memory.queue_layers;
    return warm_up > forwards ? warm_up : forwards;
}

/* Sequence parallelism scatters the whole sequence's sums after attention and MLP, and in the backward the
 * gradients of their inputs. The host frees each sum as soon as its reduce-scatter is launched, but what a
 * collective reads on a stream of its own is not used again before the GPU has done it (record_stream in
 * PyTorch's ProcessGroupNCCL): the sums of all launches that the queue holds. */
static double deferred_bytes(const struct dtp_problem *problem, const struct dtp_plan *plan,
                             const struct activations *x, const struct rank_parts *r) {
    const struct dtp_framework *f = problem->framework;
    const double sums = 2; /* of a layer and direction */
    if (plan->tp == 1 || !plan->sequence_parallel || x->launches[0] <= 0)
        return 0;
    double left, forwards = forwards_ahead(f, plan, x, r, &left);
    double backwards =
        dtp_plan_num_microbatches(plan) > 1 ? left * x->launches[0] / x->launches[1] : 0;
    if (backwards > r->layers)
        backwards = r->layers;
    return sums * (forwards + backwards) * dtp_memory_gathered_input_bytes(problem, plan);
}

/* Blocks of the freed logits (in 16 bit, in fp32 and their softmax) hold so many pieces. */
static double logits_room(const struct rank_parts *r, double piece_bytes) {
    return floor(2 * r->nlogits / piece_bytes) + 2 * floor(4 * r->nlogits / piece_bytes);
}

/* DeepSpeed's ZeRO-1/2 (stage_1_and_2.py) reduces gradients by flattened copies and gathers parameters into
 * another (ProcessGroupNCCL flattens the outputs of all_gather), both in 16 bit. Each is read or written on
 * NCCL's stream, so that the block of a freed copy serves the next only after the GPU: the host is ahead, and
 * the copies of all pieces are there at once, unless every launch waits for its kernel. In between the update
 * casts its gradients to fp32. Layers' activations leave blocks that are too small. */
static double pieces_bytes(const struct dtp_framework *f, const struct dtp_plan *plan,
                           const struct rank_parts *r) {
    const double all = r->dense + r->experts, most = f->memory.piece_params;
    if (most <= 0 || plan->zero_stage < 1 || plan->zero_stage > 2 ||
        plan->offload != DTP_OFFLOAD_NONE)
        return 0;
    double reduced = 2 * (all < most ? all : most);
    double gathered = 2 * all / (all < most ? 1 : floor(all / most));
    double cast = f->memory.step_copy_bytes * all / ((double)plan->dp * plan->cp);
    double total = f->launch_blocking ? reduced : 2 * all;
    double bytes = total - logits_room(r, reduced) * reduced, largest = reduced;
    bytes = bytes > 0 ? bytes : 0;
    if (cast > largest && logits_room(r, cast) < 1) {
        bytes += cast;
        largest = cast;
    }
    double more = (f->launch_blocking ? gathered : 2 * all) - logits_room(r, gathered) * gathered;
    return gathered > largest && more > 0 ? bytes + more : bytes;
}

/* The logits in 16 bit are freed once they are fp32 but nothing of their size comes after. The freed fp32 ones
 * are split by the library workspace that the first backward takes, for good, so that the next forward asks
 * for more; what is left of them the optimizer's moments may take, which the first update allocates, and deferred
 * inputs of reduce-scatters. The piece for the gathered parameters is asked for beside all that where nothing
 * freed is as large. On a stage without logits part of a backward's gradients finds no block either: activations
 * leave smaller ones. */
double dtp_memory_idle_bytes(const struct dtp_memory_memo *memo, const struct dtp_plan *plan,
                             const struct activations *x, const struct rank_parts *r,
                             const struct rank_sums *sums) {
    const struct dtp_framework_memory *f = &memo->problem->framework->memory;
    const double master = 4; /* of the optimizer's bytes per parameter, there from the start */
    double moments =
        f->optimizer_bytes > master ? sums->optimizer * (1 - master / f->optimizer_bytes) : 0;
    double split = f->logits_split_bytes * r->nlogits, left = split - moments;
    double reserved = sums->loss + f->logits_freed_bytes * r->nlogits;
    double deferred = deferred_bytes(memo->problem, plan, x, r);
    if (dtp_plan_num_microbatches(plan) > 1 && left > 0) {
        reserved += left;
        deferred -= left;
    }
    if (reserved < sums->peak)
        reserved = sums->peak;
    if (dtp_memory_flat_gather_bytes(f, plan, r) > (split > x->widest ? split : x->widest))
        reserved += dtp_memory_flat_gather_bytes(f, plan, r);
    if (r->nlogits <= 0)
        reserved += f->gradients_apart_bytes * (r->dense + r->experts);
    return reserved - sums->peak + (deferred > 0 ? deferred : 0) +
           pieces_bytes(memo->problem->framework, plan, r);
}
