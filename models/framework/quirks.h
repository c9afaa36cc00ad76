/* quirks.h: what one or two frameworks alone need, by name under "quirks" of a framework file.
 *
 * Each quirk has its own struct and says what it is for. A framework without it holds the defaults of
 * dtp_quirks_default, with which it does nothing. When a third framework needs a field, the field moves to a group of
 * framework.h.
 */
#ifndef DTP_MODELS_QUIRKS_H
#define DTP_MODELS_QUIRKS_H

#include "sim/base/json.h"

/* DeepSpeed ZeRO: gathers and reductions by pieces of so many parameters, not by layers. */
struct dtp_quirk_zero_pieces {
    double zero3_unit_params;  /* gathers are of about so many parameters; 0: of layers */
    double zero3_reuse_params; /* parameters reused within so many parameters stay gathered */
    bool zero3_buckets;        /* reduced in buckets, not layer by layer */
    bool zero2_reduce_scatter; /* ZeRO-2: false: all-reduce, then a rank keeps its part */
    double zero_copy_bytes;    /* ZeRO-1/2: per gradient, into and out of the buckets */
    /* ZeRO-1/2: second buckets where reductions overlap the backward */
    double overlap_bucket_bytes;
};

/* DeepSpeed offload: gradients leave for the host with each microbatch, behind the backward. */
struct dtp_quirk_eager_offload {
    /* gradients leave the GPU with each microbatch; false: in the step */
    bool offload_each_microbatch;
    bool offload_overlap; /* they leave behind the backward */
};

/* Megatron-Core offload moves fp32 gradients and weights. */
struct dtp_quirk_fp32_offload {
    double offload_gradient_bytes; /* what a gradient takes on the link */
    double offload_weight_bytes;   /* what a weight takes on the link */
};

/* Megatron-Core: transfers run behind compute where a rank holds several chunks. */
struct dtp_quirk_chunk_transfers {
    bool p2p_chunks_overlap; /* p2p_blocking does not hold where a rank holds several chunks */
};

/* NeMo: the head's weight gradients wait for idle time of the last stage. */
struct dtp_quirk_head_deferral {
    double head_deferral_bytes; /* dtp_cost_deferred(); 0: none is deferred */
};

/* InternEvo: norms read fp32 and are repeated in the backward. */
struct dtp_quirk_fp32_norms {
    bool norm_fp32;     /* a norm's input is converted to fp32 before it */
    bool repeats_norms; /* the backward repeats norms, whatever is recomputed */
};

/* InternEvo: updated parameters come by one broadcast from each rank. */
struct dtp_quirk_broadcast_gather {
    bool gather_by_broadcasts; /* ZeRO-1/2: each rank broadcasts its part of the parameters */
};

/* torch.autocast over fp32 weights keeps 16-bit copies for the backward. */
struct dtp_quirk_autocast_copies {
    bool autocast; /* eager: fp32 weights and residual, 16-bit products (torch.autocast) */
    double cached_weight_bytes; /* per parameter: 16-bit copies kept for the backward (autocast) */
};

/* torch.distributed.pipelining keeps outputs and buffers of each microbatch. */
struct dtp_quirk_kept_outputs {
    double outputs_kept_bytes; /* pipeline: per logit of each microbatch, until the step ends */
    bool transfers_kept;       /* pipeline: a buffer for each microbatch and direction */
};

/* torchtune copies keys and values for each head of queries. */
struct dtp_quirk_repeated_kv {
    bool repeats_kv; /* eager: keys and values copied for each head of queries */
};

/* Fused attention of PyTorch 2.0 and 2.1 is slower with small heads. */
struct dtp_quirk_small_heads {
    /* fitted: fused attention at head_dim <= 64, times the factors above */
    double small_head_factor;
};

/* torchao rowwise scales: each rank casts to FP8 what it gathered. */
struct dtp_quirk_gathered_casts {
    bool fp8_cast_after_gather; /* FP8: each rank casts what it gathered (rowwise scales) */
};

/* DeepSpeed-MoE: experts of fixed capacity run one after another. */
struct dtp_quirk_expert_loop {
    double
        moe_capacity; /* rows of an expert over the mean, for models without a capacity: rows beyond it are dropped, lacking rows are padded; 0: neither */
    bool moe_expert_loop; /* experts run one after another, not in groups */
};

/* DeepSpeed on Hugging Face models: one kernel between the products of experts. */
struct dtp_quirk_fused_experts {
    bool
        moe_fused_activation; /* experts have one kernel between their products, whatever dense layers have */
};

/* torchtitan weights the rows of experts with a separate kernel. */
struct dtp_quirk_weighed_rows {
    bool moe_weighs_rows; /* a separate kernel weights them and keeps them for its backward */
};

/* vTrain: times come from a tracer, which keeps kernels and collectives apart. */
struct dtp_quirk_traced_gaps {
    double kernel_gap_s; /* wait of the GPU between kernels, added to its gap */
    double
        collective_gap_s; /* it waits so long at each collective of a layer until all ranks have met */
    bool half_cross_entropy; /* cross-entropy in 16 bit (--fp16-lm-cross-entropy) */
    bool vocab_padded;       /* false: padded only with tp > 1 */
};

/* nanotron cuts stages by the parameters of layers and head. */
struct dtp_quirk_cut_by_cost {
    bool stages_by_cost; /* layers per stage by parameters of layers and head (stage_layers.c) */
};

/* nanotron: a ring of a tp group over nodes takes at least so long per step. */
struct dtp_quirk_slow_hops {
    /* A step of a ring of a tp group that spans nodes takes so much besides its bytes at the NICs' rate, or what the
     * cluster says where that is longer. */
    double tp_hop_s;
};

/* nanotron with TORCH_DISTRIBUTED_DEBUG=DETAIL: what checks of collectives and transfers take. */
struct dtp_quirk_polled_checks {
    double
        check_rank_s; /* the check of a collective takes so much host time per rank of the group */
    double check_far_rank_s; /* it takes so much where the group spans nodes */
    double check_transfer_s; /* the check of a transfer takes so long, both ways together */
    double check_poll_s;     /* the host looks so often whether a message has arrived */
};

/* nanotron: gradients of a step are one buffer, gathered weights are copied tensor by tensor. */
struct dtp_quirk_whole_gradients {
    bool dp_whole_buffer; /* what is reduced after the last backward is one message */
    /* ZeRO-1/2: each rank copies so many tensors of a layer, one launch each, out of what the gather wrote */
    int gather_copies_per_layer;
    /* per parameter: gradients of one backward, kept until it has ended and then added to those of the step */
    double backward_gradient_bytes;
    double flat_gather_bytes; /* ZeRO-1/2: per parameter, in one piece, where updated parameters are
                                 gathered; the pieces that are copied out of it take as much again */
};

/* nanotron: attention keeps copies in addition to Q, K, V and its output. */
struct dtp_quirk_attention_copies {
    /* per token and element of the heads' width: the copies besides Q, K, V and the output */
    double attention_copies_bytes;
};

/* What PyTorch's caching allocator reserves above what is allocated, replayed block by block. */
struct dtp_quirk_allocator_replay {
    double piece_params; /* ZeRO-1/2: reduced and gathered by so many parameters, each piece in a
                                 copy of its own; 0: in place */
    int gather_buffers;  /* sequence parallelism: buffers of a gathered input that stay */
    /* What the caching allocator holds while there is room, see memory_reserved.c. */
    double logits_freed_bytes;   /* per logit */
    double logits_split_bytes;   /* per logit */
    double table_gradient_bytes; /* per parameter of the embedding, on stages without logits */
    double queue_layers; /* layers whose forwards the host may launch before the GPU runs them */
    double host_lead;    /* share of all launches by which it leads, though layers keep it busier */
};

/* Megatron 2021 and 2022: the host waits for each transfer and then resumes launching. */
struct dtp_quirk_transfer_wait {
    /* exposed by each transfer between stages: the host waits for it, then resumes launching */
    double p2p_host_s;
};

/* Host time of a layer to unshard and reshard its parameters. */
struct dtp_quirk_unshard_host {
    double zero3_host_s; /* ZeRO-3: per layer and direction, to unshard and reshard */
};

/* Reductions hide behind the backward in some ZeRO stages only. */
struct dtp_quirk_overlap_stages {
    int dp_overlap_stages; /* bit s: dp_overlap holds with ZeRO stage s */
};

/* A text-book's stack: what its formulas leave out takes no time. */
struct dtp_quirk_textbook {
    bool equal_stages; /* each stage computes the same part of the layers, embedding and head */
    bool
        no_kernel_gaps; /* a kernel starts when the one before it ends, whatever the GPU file says */
};

struct dtp_framework_quirks {
    struct dtp_quirk_zero_pieces zero_pieces;
    struct dtp_quirk_eager_offload eager_offload;
    struct dtp_quirk_fp32_offload fp32_offload;
    struct dtp_quirk_chunk_transfers chunk_transfers;
    struct dtp_quirk_head_deferral head_deferral;
    struct dtp_quirk_fp32_norms fp32_norms;
    struct dtp_quirk_broadcast_gather broadcast_gather;
    struct dtp_quirk_autocast_copies autocast_copies;
    struct dtp_quirk_kept_outputs kept_outputs;
    struct dtp_quirk_repeated_kv repeated_kv;
    struct dtp_quirk_small_heads small_heads;
    struct dtp_quirk_gathered_casts gathered_casts;
    struct dtp_quirk_expert_loop expert_loop;
    struct dtp_quirk_fused_experts fused_experts;
    struct dtp_quirk_weighed_rows weighed_rows;
    struct dtp_quirk_traced_gaps traced_gaps;
    struct dtp_quirk_cut_by_cost cut_by_cost;
    struct dtp_quirk_slow_hops slow_hops;
    struct dtp_quirk_polled_checks polled_checks;
    struct dtp_quirk_whole_gradients whole_gradients;
    struct dtp_quirk_attention_copies attention_copies;
    struct dtp_quirk_allocator_replay allocator_replay;
    struct dtp_quirk_transfer_wait transfer_wait;
    struct dtp_quirk_unshard_host unshard_host;
    struct dtp_quirk_overlap_stages overlap_stages;
    struct dtp_quirk_textbook textbook;
};

extern const struct dtp_framework_quirks dtp_quirks_default;
extern const struct dtp_field dtp_quirk_fields[]; /* one object a quirk */
/* Sets the quirks that object j names with null back to their defaults. */
void dtp_quirks_drop(const struct dtp_json *j, struct dtp_framework_quirks *out);

#endif
