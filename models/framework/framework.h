/* framework.h: describes a training software stack as data (models/frameworks/NAME.json).
 *
 * The data say which kernels it launches for a layer, what it keeps for the backward, which dtypes it stores,
 * what communication it hides behind what, what it refuses, and what time and memory its host side takes.
 * Every field is documented once, in dtp_framework_fields (framework_fields.c); `dtplan frameworks
 * NAME` prints them. At most two fitted constants per framework and GPU family: `fitted` names them.
 */
#ifndef DTP_MODELS_FRAMEWORK_H
#define DTP_MODELS_FRAMEWORK_H

#include "hw/collective.h"
#include "hw/device.h"
#include "models/framework/quirks.h"
#include "models/model/model.h"
#include "models/model/modules.h"

/* The kernels of the LM loss: PyTorch's; one for each pass over fp32 logits (Megatron's vocabulary-parallel loss);
 * these passes joined by torch.compile; one for 16-bit logits. */
enum dtp_cross_entropy { DTP_LOSS_TORCH, DTP_LOSS_PASSES, DTP_LOSS_COMPILED, DTP_LOSS_FUSED };

/* Whose operations a step has: fused kernels (op_fused.c), eager PyTorch with one kernel per operator (op_eager.c), or
 * our runtime (op_native.c). ops, cost and memory each have a table with one row of functions per method. */
enum dtp_ops_method { DTP_OPS_FUSED, DTP_OPS_EAGER, DTP_OPS_OWN, DTP_NOPS_METHODS };

/* FP8 takes its scales from earlier steps (attention and its projection then each keep the output), from the tensor,
 * which is first read for its maximum, or from blocks (MX, 128 x 128). */
enum dtp_fp8_recipe { DTP_FP8_DELAYED, DTP_FP8_CURRENT, DTP_FP8_BLOCK };

/* What the framework keeps in device memory. */
struct dtp_framework_keeps {
    double weight_bytes;       /* per parameter: 2 */
    double gradient_bytes;     /* per parameter: 2, or 4 where gradients are fp32 */
    double optimizer_bytes;    /* per parameter: 12 = fp32 master, two moments */
    double context_bytes;      /* CUDA context and library workspaces */
    double communicator_bytes; /* buffers of one communicator (NCCL) */
    double bucket_bytes;       /* reduction buckets alive at once */
    double fixed_bytes;        /* what the framework itself keeps allocated */
    double allocator_factor;   /* reserved / allocated, >= 1 */
    /* the same if the card has room and tp or dp exceeds 1; 0: allocator_factor */
    double cache_factor;
    double margin; /* share of device memory kept free: validated error of the peak */
    /* per logit, live at the loss: 2 fp16 logits + 4 fp32 + 4 softmax ... */
    double logits_copies_bytes;
    double logits_tp_copies_bytes; /* the same with tp > 1; 0: logits_copies_bytes */
    double gathered_bytes; /* ZeRO-3: per parameter on the wire and while in use; 0: weight_bytes */
    /* gathered_bytes if the parameters themselves are FP8; 0: gathered_bytes */
    double fp8_gathered_bytes;
    double fp8_weight_bytes; /* FP8: copies in addition to a 16-bit weight, per parameter */
    double reducer_bytes;    /* per parameter without ZeRO: all reduction buckets together */
    int reducer_ranks;       /* ranks of the smallest data-parallel group that has these buckets */
    double logits_saved_bytes; /* part of it kept from forward to backward, per logit */
    bool lazy_gradients;       /* gradients are freed by the update and come back in the backward */
    bool keeps_stage_outputs;  /* what a stage sent stays allocated until its backward */
    double step_copy_bytes;    /* fp32 gradients that exist only during the update, per parameter */
};

/* What depends on the GPU family that the stack runs on: its attention kernel there, and its fitted
 * constants. */
struct dtp_framework_gpu {
    const char *family; /* "A100" */
    enum dtp_attention attention;
    double kernel_time_factor;    /* fitted: GEMM and memory-bound kernels over the GPU file's */
    double attention_time_factor; /* fitted: the fused attention kernel over the GPU file's */
    double norm_time_factor, norm_backward_time_factor; /* its norm kernels over the GPU file's */
};

/* Tensor parallel degree of routed experts (etp): tp; tp or 1; any that divides the ranks of a stage. */
enum dtp_expert_tp { DTP_EXPERT_TP_SAME, DTP_EXPERT_TP_ONE, DTP_EXPERT_TP_ANY };

/* Full recomputation may cover only all layers, any number of layers, or every n-th layer, n = 1, 2, ... */
enum dtp_recompute_some { DTP_RECOMPUTE_ALL, DTP_RECOMPUTE_ANY, DTP_RECOMPUTE_NTH };

/* Which kernels the framework launches for a layer, and how fast they are compared with those of the GPU file. */
struct dtp_framework_kernels {
    enum dtp_ops_method ops;
    enum dtp_attention attention; /* default */
    bool fused_softmax;           /* scale + mask + softmax in one kernel */
    int fused_softmax_multiple;   /* fused if it divides heads x microbatch of a rank; 0: always */
    bool fused_bias_activation, fused_bias_dropout_add, fused_linear_bias, fused_norm, fused_rope;
    enum dtp_cross_entropy cross_entropy;
    bool fused_gradient_accumulation; /* wgrad adds into the gradient buffer */
    bool fp32_gradient_accumulation;
    double
        fp8_cast_bytes; /* FP8: bytes to cast an element of a linear input or output gradient; 0: by recipe */
    bool whole_gemm_waves; /* its cuBLAS fills whole waves of tiles (before CUDA 12) */
    bool gelu_chain;       /* eager: GELU as eight elementwise kernels (NewGELUActivation) */
    bool fp8_keeps_casts;  /* FP8: keeps the cast of a product's input (TransformerEngine) */
    enum dtp_fp8_recipe fp8_recipe;
    /* fitted: time of ring attention (steps and merges) over that of one kernel */
    double cp_attention_factor;
    bool separate_products; /* q, k, v, gate and up are separate products */
    /* selective recomputation repeats all but attention and every second product (torchtitan) */
    bool selective_alternate_products;
    bool recompute_stops_early;   /* full recomputation ends with the last tensor that was saved */
    bool dropout;                 /* false: trains without, whatever the model says, unless asked */
    int vocab_multiple;           /* vocabulary padded to a multiple of this x tp; 1: none */
    double optimizer_bytes_moved; /* per parameter and step: 54 (apex fp16), 28 (fp32 fused) ... */
    /* fitted: memory-bound and GEMM kernels of this stack over the GPU file's */
    double kernel_time_factor;
    const struct dtp_framework_gpu *by_gpu; /* [nby_gpu] */
    size_t nby_gpu;
    double norm_time_factor; /* fitted: its norm kernels over the persistent ones of the GPU file */
    bool moe_router_fp32;    /* the router's product is in fp32 */
    bool moe_separate_products; /* gate and up of experts are separate products */
    bool moe_gathers_rows;  /* rows are gathered back, weighted and summed in fp32, not added up */
    bool moe_fused_permute; /* rows are ordered and put back by one kernel each */
    double moe_imbalance;   /* rows of the fullest expert over the mean, dropless; >= 1 */
};

/* What the framework sends, when, and what it hides behind what. */
struct dtp_framework_wire {
    bool inline_communication; /* ranks copy and reduce themselves: part of their actions */
    const char *rank_order;    /* "tp-cp-dp-pp" */
    bool p2p_blocking;         /* transfers stop the compute stream (rendezvous of neighbours) */
    bool p2p_slots;            /* interleaved: in time slots, each with one batch of transfers */
    bool scatter_gather; /* p2p sends 1/tp and gathers inside the node (Narayanan 2021, 4.1) */
    double p2p_bytes;    /* per element: 2; 4 where activations travel in fp32 */
    bool tp_overlap;     /* backward tp collectives behind wgrad */
    /* forward tp collectives behind the neighbouring GEMM (userbuffers) */
    bool tp_overlap_forward;
    double tp_overlap_fraction; /* share of the backward's tp time that can hide, 0 .. 1 */
    bool dp_overlap;            /* gradient reduction behind the last backward, by buckets */
    double dp_bucket_bytes;     /* one reduction bucket, at least; 0: one bucket in all */
    bool dp_bucket_tensors;     /* a bucket ends with the tensor that fills it (PyTorch's DDP) */
    double dp_bucket_params_per_rank; /* and at least so many parameters per rank of the group */
    bool param_gather_overlap;  /* ZeRO-1/2: all-gather of parameters behind the next forward */
    bool zero1_reduce_scatter;  /* reduce-scatter + all-gather; false: all-reduce then all-gather */
    double reduce_bytes;        /* per gradient on the wire: 2 or 4 */
    bool reduce_per_microbatch; /* ZeRO-2/3 reduce after each microbatch */
    bool zero3_regather_backward; /* the backward gathers parameters a second time */
    int zero3_prefetch_layers;
    bool zero3_forward_prefetch;                      /* false: only the backward prefetches */
    double zero3_copy_out_bytes, zero3_copy_in_bytes; /* per parameter, besides collectives */
    bool tied_embedding_all_reduce;
    double comm_time_factor; /* fitted */
};

/* Time of the host, whose two clocks cost_layer.c describes. Forward and recomputed forward take launches x launch_s,
 * the backward launches x launch_s x backward_launch_factor; each adds layer_host_s. */
struct dtp_framework_host {
    double launch_s; /* host time per kernel of the forward */
    /* dtplan's runtime: each collective or transfer on its separate stream takes two waits between streams */
    double stream_hop_s;
    /* per kernel of the backward over launch_s (autograd runs in C++) */
    double backward_launch_factor;
    double layer_host_s;     /* per layer and direction, added to the kernels' */
    double moe_layer_host_s; /* likewise, per layer of experts */
    bool
        checked_collectives; /* the group's first rank checks every collective first (TORCH_DISTRIBUTED_DEBUG=DETAIL) */
    bool
        checked_transfers; /* a microbatch waits at each boundary of stages as well (polled_checks) */
    bool host_sync;        /* the host waits for the GPU at the start of each microbatch */
    bool launch_blocking; /* every launch waits for its kernel (CUDA_LAUNCH_BLOCKING=1) */
    double step_host_s;   /* per step, exposed */
    bool moe_sync;        /* the host reads the counts of rows back in every layer of experts */
};

/* What the framework supports; a plan that asks for more is refused. */
struct dtp_framework_can {
    int max_tp, max_pp; /* 0: no limit; 1: has none */
    bool has_sequence_parallel, has_cp;
    bool has_mtp; /* multi-token prediction; false: trains the main model alone */
    bool has_ep;  /* has layers of experts, and their parallelism */
    enum dtp_expert_tp expert_tp;
    bool has_ep_per_node; /* plans may send a token once to each node (DeepEP, HybridEP) */
    bool has_ep_overlap;  /* plans may hide their all-to-all */
    int max_ep;           /* 0: no limit; 1: every rank holds all experts */
    bool uneven_stages, uneven_chunks, accounts_for_ends;
    const char *const *schedules; /* NULL-terminated names */
    int dtypes;                   /* bit per enum dtp_dtype */
    int zero_stages;              /* bit s: has ZeRO stage s */
    int zero_stages_pp;           /* bit s: allowed with pp > 1 */
    bool pp_keeps_gathered; /* with pp > 1 its sharding is ZeRO-2 unless ZeRO-3 is asked for */
    int zero_stages_tp;     /* bit s: allowed with tp > 1 */
    bool hybrid_shard;      /* ZeRO-3 inside a zero_group, replicas between groups (HSDP, MiCS) */
    int recompute_modes;    /* bit per enum dtp_recompute */
    int recompute_modules; /* selective: those that can be chosen; 0: none, it is what the stack has */
    enum dtp_recompute_some recompute_layers;
    int optimizers; /* bit per enum dtp_optimizer */
    bool offload;   /* optimizer state on the host; with ZeRO-3 the weights too */
};

struct dtp_framework {
    const char *name, *title, *source;
    const char *base;           /* the framework that its file builds on, or NULL */
    const char *const *aliases; /* NULL-terminated; names in measured data */
    const char *const *fitted;  /* names of the fields that were fitted, NULL-terminated */
    struct dtp_framework_kernels kernels;
    struct dtp_framework_wire wire;
    struct dtp_framework_host host;
    struct dtp_framework_keeps keeps;
    struct dtp_framework_can can;
    struct dtp_framework_quirks quirks;
};

/* Whether it accepts a number of layers for each stage, not only for the one with the remainder. */
static inline bool dtp_framework_takes_layers(const struct dtp_framework *f) {
    return f->can.uneven_chunks || f->kernels.ops == DTP_OPS_OWN;
}
/* Returns whether the stack can recompute `some` of a chunk's layers in full. */
static inline bool dtp_framework_recomputes(const struct dtp_framework *f, int layers, int some) {
    if (some >= layers || f->can.recompute_layers != DTP_RECOMPUTE_NTH)
        return some == layers || (some < layers && f->can.recompute_layers == DTP_RECOMPUTE_ANY);
    return layers / (layers / some) == some; /* every n-th is layers / n of them */
}

extern const struct dtp_field dtp_framework_fields[];
extern const struct dtp_field dtp_framework_gpu_fields[]; /* a member of "by_gpu" */

/* Loads the framework and returns the file that describes it. */
enum dtp_status dtp_framework_file(struct dtp_arena *a, const char *name, struct dtp_framework *out,
                                   const struct dtp_json **out_json, struct dtp_err *err);
enum dtp_status dtp_framework_load(struct dtp_arena *a, const char *name, struct dtp_framework *out,
                                   struct dtp_err *err);
enum dtp_status dtp_framework_read(struct dtp_arena *a, const struct dtp_json *j,
                                   struct dtp_framework *out, struct dtp_err *err);
enum dtp_status dtp_framework_list(struct dtp_arena *a, const char *const **out_names,
                                   size_t *out_n, struct dtp_err *err);
/* Returns the entry of the GPU's family, for an uncalibrated GPU that of the GPU it is scaled from, or else the
 * defaults of the framework. */
struct dtp_framework_gpu dtp_framework_on(const struct dtp_framework *f, const struct dtp_gpu *gpu);
/* The stack without mixed precision, for fp32 and tf32: fp32 weights that need no master copy, fp32
 * gradients and activations on the wire. Nothing changes where weights are fp32 already. */
void dtp_framework_to_fp32(struct dtp_framework *f);
/* Gradient reductions run behind the backward: as the option says, else as the framework does. */
bool dtp_framework_dp_overlaps(const struct dtp_framework *f, int option, int zero_stage);
/* ZeRO-3: of so many parameters of a rank, those that stay gathered from the forward to the backward:
 * the last of the forward are the first of the backward, twice their own number of parameters apart. */
double dtp_framework_reused_params(const struct dtp_framework *f, double params);
/* ZeRO-3 with zero3_unit_params: parameters of one gather; a weight is never cut. */
double dtp_framework_unit_params(const struct dtp_framework *f, const struct dtp_model *m);
/* Products run under torch.autocast; what FSDP (ZeRO-2 and 3) gathers is of 16 bit already. */
bool dtp_framework_autocasts(const struct dtp_framework *f, int zero_stage);
/* ZeRO: bytes of a parameter on the wire and while in use. */
double dtp_framework_gathered_bytes(const struct dtp_framework *f, enum dtp_dtype dtype);
/* Returns the bytes moved per element to cast it to a narrow type, rowwise and transposed. */
double dtp_framework_cast_bytes(const struct dtp_framework *f, enum dtp_dtype dtype);
/* Fills layers[pp] if the framework cuts the model by cost (nanotron). It goes through the blocks in order: a
 * layer costs its parameters, the head vocab x hidden, and a stage ends with the block that passes its
 * share of the sum, so that the last stages may have no layer. False: stages are even, and layers[pp] is unset. */
bool dtp_framework_stage_layers(const struct dtp_framework *f, const struct dtp_model *m, int pp,
                                int *layers);
/* Whether the loss comes to the last of pp stages so. */
bool dtp_framework_reaches_last(const struct dtp_framework *f, const struct dtp_model *m, int pp);
/* Host time of the check of a collective over so many ranks (far: they span nodes); 0 where none is made. */
double dtp_framework_check_s(const struct dtp_framework *f, int ranks, bool far);
/* Time between two kernels on a busy stream. */
double dtp_framework_kernel_gap_s(const struct dtp_framework *f, const struct dtp_gpu *gpu);
/* Rows that an expert holds over the mean: the model's, else the framework's; 0: dropless. */
double dtp_framework_capacity(const struct dtp_framework *f, const struct dtp_model *m);
int dtp_framework_padded_vocab(const struct dtp_framework *f, int vocab, int tp);
/* Lists at most three frameworks for which `holds` is true, those with the fewest fields that differ
 * from `from` first, a text-book's last; ends with NULL. */
typedef bool dtp_framework_fn(const struct dtp_framework *f, const void *context);
const char *const *dtp_frameworks_that(struct dtp_arena *a, const struct dtp_framework *from,
                                       dtp_framework_fn *holds, const void *context);
/* Returns the same as text, "a, b"; NULL: none. */
const char *dtp_frameworks_text(struct dtp_arena *a, const struct dtp_framework *from,
                                dtp_framework_fn *holds, const void *context);

#endif
