#include "models/framework/quirks.h"

#include <stddef.h>
#include <string.h>

#include "sim/base/units.h"

const struct dtp_framework_quirks dtp_quirks_default = {
    .zero_pieces = {.zero2_reduce_scatter = true},
    .fp32_offload = {.offload_gradient_bytes = 2, .offload_weight_bytes = 2},
    .small_heads = {.small_head_factor = 1},
    .traced_gaps = {.vocab_padded = true},
    .overlap_stages = {.dp_overlap_stages = 15},
};

#define BOOLEAN(member, text)                                                                      \
    { .name = #member, .kind = DTP_FIELD_BOOL, .offset = F(member), .help = text }
#define NUMBER(member, top, text)                                                                  \
    { .name = #member, .kind = DTP_FIELD_DOUBLE, .offset = F(member), .max = top, .help = text }
#define INTEGER(member, top, text)                                                                 \
    { .name = #member, .kind = DTP_FIELD_INT, .offset = F(member), .max = top, .help = text }
#define F(member) offsetof(struct dtp_quirk_zero_pieces, member)
static const struct dtp_field zero_pieces[] = {
    NUMBER(zero3_unit_params, DTP_TERA, "ZeRO-3: parameters of one gather; 0: those of a layer"),
    NUMBER(zero3_reuse_params, DTP_TERA,
           "ZeRO-3: what is used again within so many parameters stays gathered"),
    BOOLEAN(zero3_buckets, "ZeRO-3 reduces in buckets of dp_bucket_bytes, not layer by layer"),
    BOOLEAN(zero2_reduce_scatter, "ZeRO-2 reduces with reduce-scatter; false: all-reduce"),
    NUMBER(zero_copy_bytes, 64, "ZeRO-1/2: bytes copied per gradient around its reduction"),
    NUMBER(overlap_bucket_bytes, 1e11,
           "ZeRO-1/2: second buckets, where reductions overlap the backward"),
    {0}};
#undef F

#define F(member) offsetof(struct dtp_quirk_eager_offload, member)
static const struct dtp_field eager_offload[] = {
    BOOLEAN(offload_each_microbatch,
            "offload: gradients leave the GPU with each microbatch; false: in the step"),
    BOOLEAN(offload_overlap, "offload: gradients leave behind the backward"),
    {0}};
#undef F

#define F(member) offsetof(struct dtp_quirk_fp32_offload, member)
static const struct dtp_field fp32_offload[] = {
    NUMBER(offload_gradient_bytes, 8, "offload: bytes of a gradient that go to the host"),
    NUMBER(offload_weight_bytes, 8, "offload: bytes of a weight that come back"),
    {0}};
#undef F

#define F(member) offsetof(struct dtp_quirk_chunk_transfers, member)
static const struct dtp_field chunk_transfers[] = {
    BOOLEAN(p2p_chunks_overlap, "but run behind compute where a rank holds several chunks"), {0}};
#undef F

#define F(member) offsetof(struct dtp_quirk_head_deferral, member)
static const struct dtp_field head_deferral[] = {
    NUMBER(
        head_deferral_bytes, DTP_TERA,
        "pipelines: the head's weight gradients wait until the last stage has nothing else to do, "
        "for as many microbatches as so many bytes hold gradients of logits of"),
    {0}};
#undef F

#define F(member) offsetof(struct dtp_quirk_fp32_norms, member)
static const struct dtp_field fp32_norms[] = {
    BOOLEAN(norm_fp32, "the input of a norm is converted to fp32 by a kernel of its own"),
    BOOLEAN(repeats_norms, "norms are repeated in the backward, whatever is recomputed"),
    {0}};
#undef F

#define F(member) offsetof(struct dtp_quirk_broadcast_gather, member)
static const struct dtp_field broadcast_gather[] = {
    BOOLEAN(gather_by_broadcasts,
            "ZeRO-1/2: updated parameters come by a broadcast from each rank, one after the other"),
    {0}};
#undef F

#define F(member) offsetof(struct dtp_quirk_autocast_copies, member)
static const struct dtp_field autocast_copies[] = {
    BOOLEAN(autocast, "eager: weights and residual stream in fp32, products in 16 bit"),
    NUMBER(cached_weight_bytes, 8, "bytes per parameter of 16-bit copies that the backward needs"),
    {0}};
#undef F

#define F(member) offsetof(struct dtp_quirk_kept_outputs, member)
static const struct dtp_field kept_outputs[] = {
    NUMBER(outputs_kept_bytes, 16,
           "pipeline: bytes per logit of each microbatch kept until the step ends"),
    BOOLEAN(transfers_kept, "pipeline: a transfer buffer for each microbatch and direction"),
    {0}};
#undef F

#define F(member) offsetof(struct dtp_quirk_repeated_kv, member)
static const struct dtp_field repeated_kv[] = {
    BOOLEAN(repeats_kv, "eager: keys and values are copied for each head of queries"), {0}};
#undef F

#define F(member) offsetof(struct dtp_quirk_small_heads, member)
static const struct dtp_field small_heads[] = {
    NUMBER(small_head_factor, 10,
           "fitted: fused attention with head_dim up to 64, over the GPU file's and by_gpu"),
    {0}};
#undef F

#define F(member) offsetof(struct dtp_quirk_gathered_casts, member)
static const struct dtp_field gathered_casts[] = {
    BOOLEAN(fp8_cast_after_gather, "FP8: each rank casts what it gathered, as rowwise scales need"),
    {0}};
#undef F

#define F(member) offsetof(struct dtp_quirk_expert_loop, member)
static const struct dtp_field expert_loop[] = {
    NUMBER(moe_capacity, 100, "capacity of experts over the mean, of models without one; 0: none"),
    BOOLEAN(moe_expert_loop, "experts run one after another, not in groups"),
    {0}};
#undef F

#define F(member) offsetof(struct dtp_quirk_fused_experts, member)
static const struct dtp_field fused_experts[] = {
    BOOLEAN(moe_fused_activation, "one kernel between the products of experts"), {0}};
#undef F

#define F(member) offsetof(struct dtp_quirk_weighed_rows, member)
static const struct dtp_field weighed_rows[] = {
    BOOLEAN(moe_weighs_rows,
            "rows of experts are weighted apart from the activation, and kept for it"),
    {0}};
#undef F

#define F(member) offsetof(struct dtp_quirk_traced_gaps, member)
static const struct dtp_field traced_gaps[] = {
    NUMBER(kernel_gap_s, 1, "GPU time between kernels beside the GPU's own gap (a tracer's)"),
    NUMBER(collective_gap_s, 1, "GPU time around a layer's collective until all ranks have met"),
    BOOLEAN(half_cross_entropy, "cross-entropy keeps its tensors in 16 bit"),
    BOOLEAN(vocab_padded, "false: the vocabulary is padded only with tp > 1"),
    {0}};
#undef F

#define F(member) offsetof(struct dtp_quirk_cut_by_cost, member)
static const struct dtp_field cut_by_cost[] = {
    BOOLEAN(stages_by_cost, "stages are cut by the parameters of layers and head, not by layers"),
    {0}};
#undef F

#define F(member) offsetof(struct dtp_quirk_slow_hops, member)
static const struct dtp_field slow_hops[] = {
    NUMBER(tp_hop_s, 1, "at least, per ring step of a tp group that spans nodes, beside its bytes"),
    {0}};
#undef F

#define F(member) offsetof(struct dtp_quirk_polled_checks, member)
static const struct dtp_field polled_checks[] = {
    NUMBER(check_rank_s, 1, "checked_collectives: host time per collective and rank of its group"),
    NUMBER(check_far_rank_s, 1, "the same where the group spans nodes"),
    NUMBER(check_transfer_s, 10,
           "checked_transfers: wait of a microbatch at a boundary, both ways"),
    NUMBER(check_poll_s, 1, "checked_transfers: time between two looks whether a message arrived"),
    {0}};
#undef F

#define F(member) offsetof(struct dtp_quirk_whole_gradients, member)
static const struct dtp_field whole_gradients[] = {
    BOOLEAN(dp_whole_buffer, "what is reduced after the last backward is one message, no buckets"),
    INTEGER(gather_copies_per_layer, 1024,
            "ZeRO-1/2: tensors of a layer copied one by one, for each rank, out of the gather"),
    NUMBER(backward_gradient_bytes, 8,
           "bytes per parameter of one backward's gradients, added to the step's at its end"),
    NUMBER(flat_gather_bytes, 8,
           "ZeRO-1/2: bytes per parameter of the one piece that updated parameters are gathered "
           "into"),
    {0}};
#undef F

#define F(member) offsetof(struct dtp_quirk_attention_copies, member)
static const struct dtp_field attention_copies[] = {
    NUMBER(attention_copies_bytes, 64,
           "bytes per token and element of the heads' width kept beside Q, K, V and the output"),
    {0}};
#undef F

#define F(member) offsetof(struct dtp_quirk_allocator_replay, member)
static const struct dtp_field allocator_replay[] = {
    NUMBER(
        piece_params, DTP_TERA,
        "ZeRO-1/2: gradients are reduced and parameters gathered by so many, each piece in a copy "
        "of its own; 0: in place"),
    INTEGER(gather_buffers, 8,
            "sequence parallelism: buffers of a gathered input that stay allocated"),
    NUMBER(logits_freed_bytes, 64,
           "reserved: bytes per logit freed before the peak that nothing else fills"),
    NUMBER(logits_split_bytes, 64,
           "reserved: bytes per logit of a freed copy that a library's workspace splits for good"),
    NUMBER(table_gradient_bytes, 8,
           "reserved: bytes per parameter of the embedding, whose gradient is larger than what a "
           "backward frees, on stages without logits"),
    NUMBER(queue_layers, 1e4,
           "reserved: layers whose launches fill the GPU's queue; their collectives keep what "
           "they read"),
    NUMBER(host_lead, 1,
           "reserved: share of launches by which a rank's host is ahead of the slowest of its tp "
           "group"),
    {0}};
#undef F

#define F(member) offsetof(struct dtp_quirk_transfer_wait, member)
static const struct dtp_field transfer_wait[] = {
    NUMBER(p2p_host_s, 1, "exposed host time per transfer between stages"), {0}};
#undef F

#define F(member) offsetof(struct dtp_quirk_unshard_host, member)
static const struct dtp_field unshard_host[] = {
    NUMBER(zero3_host_s, 1, "ZeRO-3: host time per layer and direction to unshard and reshard"),
    {0}};
#undef F

static const char *const stage_names[] = {"zero-0", "zero-1", "zero-2", "zero-3", NULL};
#define F(member) offsetof(struct dtp_quirk_overlap_stages, member)
static const struct dtp_field overlap_stages[] = {{.name = "dp_overlap_stages",
                                                   .kind = DTP_FIELD_SET,
                                                   .offset = F(dp_overlap_stages),
                                                   .names = stage_names,
                                                   .help = "ZeRO stages in which dp_overlap holds"},
                                                  {0}};
#undef F

#define F(member) offsetof(struct dtp_quirk_textbook, member)
static const struct dtp_field textbook[] = {
    BOOLEAN(equal_stages,
            "pipelines: each stage computes the same part of the layers, embedding and head"),
    BOOLEAN(no_kernel_gaps, "no time passes between kernels, whatever the GPU file says"),
    {0}};
#undef F

#define QUIRK(quirk, text)                                                                         \
    {                                                                                              \
        .name = #quirk, .kind = DTP_FIELD_OBJECT,                                                  \
        .offset = offsetof(struct dtp_framework_quirks, quirk), .fields = quirk,                   \
        .optional_null = true, .help = text                                                        \
    }

const struct dtp_field dtp_quirk_fields[] = {
    QUIRK(zero_pieces,
          "DeepSpeed ZeRO: gathers and reductions by pieces of so many parameters, not by layers"),
    QUIRK(eager_offload, "DeepSpeed offload: gradients leave for the host with each microbatch, "
                         "behind the backward"),
    QUIRK(fp32_offload, "Megatron-Core offload moves fp32 gradients and weights"),
    QUIRK(chunk_transfers,
          "Megatron-Core: transfers run behind compute where a rank holds several chunks"),
    QUIRK(head_deferral, "NeMo: the head's weight gradients wait for idle time of the last stage"),
    QUIRK(fp32_norms, "InternEvo: norms read fp32 and are repeated in the backward"),
    QUIRK(broadcast_gather, "InternEvo: updated parameters come by one broadcast from each rank"),
    QUIRK(autocast_copies, "torch.autocast over fp32 weights keeps 16-bit copies for the backward"),
    QUIRK(kept_outputs,
          "torch.distributed.pipelining keeps outputs and buffers of each microbatch"),
    QUIRK(repeated_kv, "torchtune copies keys and values for each head of queries"),
    QUIRK(small_heads, "Fused attention of PyTorch 2.0 and 2.1 is slower with small heads"),
    QUIRK(gathered_casts, "torchao rowwise scales: each rank casts to FP8 what it gathered"),
    QUIRK(expert_loop, "DeepSpeed-MoE: experts of fixed capacity run one after another"),
    QUIRK(fused_experts,
          "DeepSpeed on Hugging Face models: one kernel between the products of experts"),
    QUIRK(weighed_rows, "torchtitan weights the rows of experts by a kernel of its own"),
    QUIRK(traced_gaps,
          "vTrain: times come from a tracer, which keeps kernels and collectives apart"),
    QUIRK(cut_by_cost, "nanotron cuts stages by the parameters of layers and head"),
    QUIRK(slow_hops, "nanotron: a ring of a tp group over nodes takes at least so long per step"),
    QUIRK(polled_checks, "nanotron with TORCH_DISTRIBUTED_DEBUG=DETAIL: what checks of collectives "
                         "and transfers take"),
    QUIRK(whole_gradients, "nanotron: gradients of a step are one buffer, gathered weights are "
                           "copied tensor by tensor"),
    QUIRK(attention_copies, "nanotron: attention keeps copies beside Q, K, V and its output"),
    QUIRK(allocator_replay, "What PyTorch's caching allocator reserves beside what is allocated, "
                            "replayed block by block"),
    QUIRK(transfer_wait,
          "Megatron 2021 and 2022: the host waits for each transfer and starts anew"),
    QUIRK(unshard_host, "Host time of a layer to unshard and reshard its parameters"),
    QUIRK(overlap_stages, "Reductions hide behind the backward in some ZeRO stages only"),
    QUIRK(textbook, "A text-book's stack: what its formulas leave out takes no time"),
    {0}};

/* A quirk ends where the next one begins. */
static size_t end_of(const struct dtp_field *f) {
    return f[1].name ? f[1].offset : sizeof(struct dtp_framework_quirks);
}

void dtp_quirks_drop(const struct dtp_json *j, struct dtp_framework_quirks *out) {
    for (const struct dtp_field *f = dtp_quirk_fields; f->name; f++) {
        const struct dtp_json *member = dtp_json_get(j, f->name);
        if (member && dtp_json_type(member) == DTP_JSON_NULL)
            memcpy((char *)out + f->offset, (const char *)&dtp_quirks_default + f->offset,
                   end_of(f) - f->offset);
    }
}
