/* This file estimates what PyTorch's caching allocator reserves above what is allocated while the card has room. */
#include <math.h>

#include "models/memory/memory_internal.h"

/* Layers that the host has launched and the GPU has not started on. */
struct ahead {
    double forwards, backwards;
};

/* Returns what the launch queue holds, in forwards of layers. Each step starts with an empty queue. The last
 * forward ends the launches that count; in pipelines the last backward counts too, which the host launches while the
 * GPU waits for its gradient. The host leads by a share of all launches: as far as a layer takes the GPU longer than
 * the host, or by how much faster the host is than the slowest host of its tensor-parallel group, for which the GPU
 * waits in each collective. A host that checks each collective with the other ranks is as fast as they are, and one
 * that polls transfers waits for each of them. */
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

/* If transfers are polled, a host that waits for a gradient continues once it has seen the messages that announce it,
 * and the sender sends the gradient once it has seen that they were received. Both look every check_poll_s. If the
 * receiver waited first, the GPU waits for the gradient up to that long (each share of it is equally likely) while the
 * host launches the backward and the next forward; if the sender waited first, which is half of the cases, the GPU does
 * not wait. So P(share <= x) is (1 + x) / 2, and the largest of n shares is 1 - integral of P^n in the mean. With two
 * stages the second mostly waits for the first, which has more layers, and the queue is taken as empty. */
static struct ahead ahead_of_gradients(const struct dtp_framework *f, const struct dtp_plan *plan,
                                       const struct activations *x, const struct rank_parts *r) {
    struct ahead at = {0};
    double n = dtp_plan_num_microbatches(plan) - r->in_flight + 1; /* with all activations held */
    double wait_s =
        f->quirks.polled_checks.check_poll_s * (1 - 2 / (n + 1) * (1 - ldexp(1, -(int)n - 1)));
    if (plan->pp <= 2)
        return at;
    at.backwards = fmin(r->layers, wait_s / x->host_s[1]);
    if (n > 1)
        at.forwards = fmin(r->layers, (wait_s - at.backwards * x->host_s[1]) / x->host_s[0]);
    return at;
}

/* The rest of the queue, which no forward fills, holds backwards. A first stage that has all microbatches of a step in
 * flight launches no forward after a backward, so that its queue holds only its last forward. */
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

/* The first stage launches its warm-up while the GPU waits for the second stage to receive the first two microbatches;
 * in the first step that stage starts with a delay. A stage that polls its transfers launches nothing meanwhile. */
static double ahead_in_warm_up(const struct dtp_framework *f, const struct rank_parts *r) {
    double waiting = f->host.checked_transfers ? 0 : r->layers * (r->in_flight - 2.0);
    return fmin(fmax(0, waiting), f->quirks.allocator_replay.queue_layers);
}

/* Sequence parallelism reduce-scatters sums over the whole sequence after embedding, attention and MLP, and in the
 * backward the gradients of their inputs. The host frees each sum once its reduce-scatter is launched, but PyTorch
 * does not reuse the block until the GPU has run the collective, which reads it on a separate stream (record_stream in
 * ProcessGroupNCCL). So the sums of all queued launches stay reserved. An allocation that fails waits for them and
 * returns all free blocks to the device, and each later pass does the same: from then on the queue holds backwards
 * only. The warm-up of the first step is not repeated. */
static struct reserved deferred_bytes(const struct dtp_problem *problem,
                                      const struct dtp_plan *plan, const struct activations *x,
                                      const struct rank_parts *r) {
    const struct dtp_framework *f = problem->framework;
    const double sums = 2; /* per layer and direction */
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

/* Returns how many pieces the blocks of the freed logits hold (in 16 bit, in fp32, and their softmax). */
static double logits_room(const struct rank_parts *r, double piece_bytes) {
    return floor(2 * r->nlogits / piece_bytes) + 2 * floor(4 * r->nlogits / piece_bytes);
}

/* DeepSpeed's ZeRO-1/2 (stage_1_and_2.py) reduces gradients from flattened copies and gathers parameters into
 * flat copies (ProcessGroupNCCL flattens the outputs of all_gather), both in 16 bit. NCCL's stream reads or writes
 * each copy, so that the block of a freed copy is reused only after the GPU has run the collective. The host launches
 * faster, so the copies of all pieces exist at once unless every launch waits for its kernel. Between the two the
 * update casts its gradients to fp32. The blocks that activations of layers leave are too small. */
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

/* Returns the optimizer state that the first update allocates; the master weights exist from the start. */
static double moments_bytes(const struct dtp_framework *f, const struct rank_sums *sums) {
    const double master = 4; /* bytes per parameter */
    return f->keeps.optimizer_bytes > master
               ? sums->optimizer * (1 - master / f->keeps.optimizer_bytes)
               : 0;
}

/* ZeRO-1 gathers one flat tensor and copies it out into a piece for each rank and one more. A layer's freed activations
 * leave one block of the widest tensor and two of half its size; pieces without a block need new memory. */
static double gathered_anew(double flat, int replicas, const struct activations *x,
                            const struct rank_parts *r) {
    double piece = flat / replicas, blocks = 0;
    if (piece > 0)
        blocks = (floor(x->widest / piece) + 2 * floor(x->widest / 2 / piece)) * r->layers *
                 r->in_flight;
    return (flat > x->widest ? flat : 0) + fmax(0, replicas + 1 - blocks) * piece;
}

/* Returns the reserved bytes of a stage without logits. The first update follows a backward: the moments go into blocks
 * that activations left, but the gathered parameters need memory on top of that, which the next step's activations
 * use later. If the device has no room for it, the allocator returns its free blocks. The embedding's gradient is
 * larger than any block that a backward frees. */
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

/* If layers take the host longer than the GPU, the sums of the first forward are free when its backward begins. The
 * smallest block that holds cuBLAS's workspace (one of the two fixed ones) is then such a sum, less the share of it
 * that the last norm's output takes, unless the logits are smaller still. */
static bool workspace_in_sum(const struct dtp_problem *problem, const struct dtp_plan *plan,
                             const struct activations *x, double logits_bytes) {
    double sum = x->gathered_input, left = sum - sum / plan->tp;
    return plan->tp > 1 && plan->sequence_parallel &&
           x->host_s[0] + x->host_s[1] > x->gpu_s[0] + x->gpu_s[1] && left < logits_bytes &&
           left >= problem->framework->keeps.fixed_bytes / 2;
}

/* The 16-bit logits are freed after the cast to fp32, but no later tensor has their size. The workspace of the library,
 * which the first backward allocates, splits the block of the freed fp32 logits for good, unless a smaller block is
 * free, so that the next forward needs another block. The rest of the split block can hold the moments of the
 * optimizer, which the first update allocates, and deferred inputs of reduce-scatters. The piece for the gathered
 * parameters needs new memory if no freed block is as large. */
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
