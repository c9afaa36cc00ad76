/* What PyTorch's caching allocator has reserved beside what is allocated, while the card has room. */
#include <math.h>

#include "models/memory/memory_internal.h"

/* Layers that the host has launched and the GPU has not started on. */
struct ahead {
    double forwards, backwards;
};

/* What the queue holds, in layers' forwards. Each step starts with an empty one; behind the last forward come the last
 * launches that count, but in pipelines, where the GPU waits for the gradient and the host launches the
 * backward. The host runs ahead by a share of all launches: where a layer takes the GPU longer, else by how much faster
 * it is than the slowest host of its tensor-parallel group, for which the GPU waits in each collective. Where it
 * checks each collective with the other ranks it is as fast as they are, and where it polls transfers it waits for
 * each. */
static double queued(const struct dtp_framework *f, const struct dtp_plan *plan,
                     const struct activations *x, const struct rank_parts *r) {
    if (f->host.checked_transfers)
        return 0;
    double forwards = dtp_plan_num_microbatches(plan), backwards = forwards - (plan->pp == 1);
    double launched = r->layers * (forwards + backwards * x->launches[1] / x->launches[0]);
    double lead = 1 - (x->host_s[0] + x->host_s[1]) / (x->gpu_s[0] + x->gpu_s[1]);
    lead = fmax(lead, f->host.checked_collectives ? 0 : f->quirks.allocator_replay.host_lead);
    return fmin(f->quirks.allocator_replay.queue_layers, lead * launched);
}

/* Where transfers are polled, a host that waits for a gradient goes on when it has seen the messages that announce it,
 * the sender sends it when it has seen them taken. Both look every check_poll_s: where the receiver waited first the
 * GPU then waits up to that long for the gradient (any share of it is as likely), while the host launches the backward
 * and the next forward; where the sender did, half of the times, it does not. P(share <= x) is (1 + x) / 2, and the
 * largest of n shares in the mean 1 - integral of P^n. Of two stages the first, with more layers, is mostly waited
 * for, and nothing is taken. */
static struct ahead ahead_of_gradients(const struct dtp_framework *f, const struct dtp_plan *plan,
                                       const struct activations *x, const struct rank_parts *r) {
    struct ahead at = {0};
    double n = dtp_plan_num_microbatches(plan) - r->in_flight + 1; /* beside all activations */
    double wait_s =
        f->quirks.polled_checks.check_poll_s * (1 - 2 / (n + 1) * (1 - ldexp(1, -(int)n - 1)));
    if (plan->pp <= 2)
        return at;
    at.backwards = fmin(r->layers, wait_s / x->host_s[1]);
    if (n > 1)
        at.forwards = fmin(r->layers, (wait_s - at.backwards * x->host_s[1]) / x->host_s[0]);
    return at;
}

/* What the queue holds beside forwards are backwards. The first stage of a pipeline with as many microbatches in
 * flight as there are launches no forward behind a backward, so that only its last forward is in the queue. */
static struct ahead ahead_of(const struct dtp_framework *f, const struct dtp_plan *plan,
                             const struct activations *x, const struct rank_parts *r) {
    int microbatches = dtp_plan_num_microbatches(plan);
    if (f->host.checked_transfers)
        return ahead_of_gradients(f, plan, x, r);
    double queue = queued(f, plan, x, r), ratio = x->launches[0] / x->launches[1];
    if (plan->pp > 1 && microbatches <= r->in_flight)
        return (struct ahead){.forwards = fmin(r->layers, queue)};
    struct ahead at = {.forwards = fmin((double)r->layers * r->in_flight, queue)};
    if (microbatches > 1)
        at.backwards = fmin(r->layers, (queue - at.forwards) * ratio);
    return at;
}

/* The first stage launches its warm-up while the GPU waits for the second stage to take the first two
 * microbatches, which in the first step starts late; not where it polls its transfers. */
static double ahead_in_warm_up(const struct dtp_framework *f, const struct rank_parts *r) {
    double waiting = f->host.checked_transfers ? 0 : r->layers * (r->in_flight - 2.0);
    return fmin(fmax(0, waiting), f->quirks.allocator_replay.queue_layers);
}

/* Sequence parallelism scatters the whole sequence's sums after embedding, attention and MLP, and in the backward
 * the gradients of their inputs. The host frees each sum as soon as its reduce-scatter is launched, but what a
 * collective reads on a stream of its own is not used again before the GPU has done it (record_stream in
 * PyTorch's ProcessGroupNCCL): the sums of all launches that the queue holds. An allocation that fails waits for them
 * and gives back all that is free, and the next pass does so again: the queue is then filled from there on, by
 * backwards; the first step's warm-up does not come again. */
static struct reserved deferred_bytes(const struct dtp_problem *problem,
                                      const struct dtp_plan *plan, const struct activations *x,
                                      const struct rank_parts *r) {
    const struct dtp_framework *f = problem->framework;
    const double sums = 2; /* of a layer and direction */
    if (plan->tp == 1 || !plan->sequence_parallel || f->quirks.allocator_replay.queue_layers <= 0 ||
        r->layers == 0)
        return (struct reserved){0};
    struct ahead at = ahead_of(f, plan, x, r);
    double forward = sums + (plan->pp > 1 && r->table > 0 ? 1.0 / r->layers : 0);
    double warm_up = plan->pp > 1 ? ahead_in_warm_up(f, r) : 0;
    double steady = forward * at.forwards + sums * at.backwards;
    double backwards = queued(f, plan, x, r) * x->launches[0] / x->launches[1];
    double bytes = x->gathered_input;
    return (struct reserved){.wanted = bytes * fmax(steady, forward * warm_up),
                             .least = bytes *
                                      (plan->pp > 1 ? steady : sums * fmin(r->layers, backwards))};
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
    const double all = r->dense + r->experts, most = f->quirks.allocator_replay.piece_params;
    if (most <= 0 || plan->zero_stage < 1 || plan->zero_stage > 2 ||
        plan->offload != DTP_OFFLOAD_NONE)
        return 0;
    double reduced = 2 * (all < most ? all : most);
    double gathered = 2 * all / (all < most ? 1 : floor(all / most));
    double cast = f->keeps.step_copy_bytes * all / ((double)plan->dp * plan->cp);
    double total = f->host.launch_blocking ? reduced : 2 * all;
    double bytes = total - logits_room(r, reduced) * reduced, largest = reduced;
    bytes = bytes > 0 ? bytes : 0;
    if (cast > largest && logits_room(r, cast) < 1) {
        bytes += cast;
        largest = cast;
    }
    double more =
        (f->host.launch_blocking ? gathered : 2 * all) - logits_room(r, gathered) * gathered;
    return gathered > largest && more > 0 ? bytes + more : bytes;
}

/* Of the optimizer, allocated by the first update; the master weights are there from the start. */
static double moments_bytes(const struct dtp_framework *f, const struct rank_sums *sums) {
    const double master = 4; /* bytes per parameter */
    return f->keeps.optimizer_bytes > master
               ? sums->optimizer * (1 - master / f->keeps.optimizer_bytes)
               : 0;
}

/* ZeRO-1 gathers into pieces, one for each rank and its own, which are copied out of one flat tensor. What freed
 * activations hold no block for, of which the widest and two of half its size are a layer's, is asked for anew. */
static double gathered_anew(double flat, int replicas, const struct activations *x,
                            const struct rank_parts *r) {
    double piece = flat / replicas, blocks = 0;
    if (piece > 0)
        blocks = (floor(x->widest / piece) + 2 * floor(x->widest / 2 / piece)) * r->layers *
                 r->in_flight;
    return (flat > x->widest ? flat : 0) + fmax(0, replicas + 1 - blocks) * piece;
}

/* A stage without logits. The first update comes after all blocks of a backward: moments go into what
 * activations left, but what is gathered is asked for beside that, and takes the next step's activations. Where it
 * has no room the allocator gives back what is free. The embedding's gradient is larger than what a backward
 * frees. */
static struct reserved without_logits(const struct dtp_framework *f, const struct dtp_plan *plan,
                                      const struct activations *x, const struct rank_parts *r,
                                      const struct rank_sums *sums) {
    double flat = dtp_memory_flat_gather_bytes(f, plan, r);
    double table = f->quirks.allocator_replay.table_gradient_bytes * r->table;
    double first =
        sums->passes - moments_bytes(f, sums) + gathered_anew(flat, plan->dp * plan->cp, x, r);
    return (struct reserved){.least = table + sums->peak,
                             .wanted = table + fmax(first, sums->peak)};
}

/* Where layers keep the host busier than the GPU the sums of the first forward are free when its backward begins, and
 * the smallest block that holds cuBLAS's workspace (one of the two fixed ones) is such a sum, what the last norm's
 * output, a share of it, has left of it, unless the logits are smaller still. */
static bool workspace_in_sum(const struct dtp_problem *problem, const struct dtp_plan *plan,
                             const struct activations *x, double logits_bytes) {
    double sum = x->gathered_input, left = sum - sum / plan->tp;
    return plan->tp > 1 && plan->sequence_parallel &&
           x->host_s[0] + x->host_s[1] > x->gpu_s[0] + x->gpu_s[1] && left < logits_bytes &&
           left >= problem->framework->keeps.fixed_bytes / 2;
}

/* The logits in 16 bit are freed once they are fp32 but nothing of their size comes after. The freed fp32 ones
 * are split for good by the library workspace that the first backward takes, unless a smaller block is free, so that
 * the next forward asks for more; what is left of them the optimizer's moments may take, which the first update
 * allocates, and deferred inputs of reduce-scatters. The piece for the gathered parameters is asked for beside all
 * that where nothing freed is as large. */
static struct reserved with_logits(const struct dtp_problem *problem, const struct dtp_plan *plan,
                                   const struct activations *x, const struct rank_parts *r,
                                   const struct rank_sums *sums, struct reserved *deferred) {
    const struct dtp_framework *f = problem->framework;
    double moments = moments_bytes(f, sums);
    double split = f->quirks.allocator_replay.logits_split_bytes * r->nlogits,
           left = split - moments;
    double bytes = sums->loss + f->quirks.allocator_replay.logits_freed_bytes * r->nlogits;
    if (dtp_plan_num_microbatches(plan) > 1 && left > 0 &&
        !workspace_in_sum(problem, plan, x, split)) {
        bytes += left;
        deferred->wanted -= left;
        deferred->least -= left;
    }
    bytes = fmax(bytes, sums->peak);
    double flat = dtp_memory_flat_gather_bytes(f, plan, r);
    return (struct reserved){.least = bytes,
                             .wanted = bytes + (flat > fmax(split, x->widest) ? flat : 0)};
}

struct reserved dtp_memory_idle_bytes(const struct dtp_memory_memo *memo,
                                      const struct dtp_plan *plan, const struct activations *x,
                                      const struct rank_parts *r, const struct rank_sums *sums) {
    const struct dtp_framework *f = memo->problem->framework;
    struct reserved deferred = deferred_bytes(memo->problem, plan, x, r);
    struct reserved at = r->nlogits > 0 ? with_logits(memo->problem, plan, x, r, sums, &deferred)
                                        : without_logits(f, plan, x, r, sums);
    double beside = pieces_bytes(memo->problem->framework, plan, r) - sums->peak;
    return (struct reserved){.least = at.least + fmax(0, deferred.least) + beside,
                             .wanted = at.wanted + fmax(0, deferred.wanted) + beside};
}
