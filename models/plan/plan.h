/* plan.h: a layout: plain data, totally ordered, JSON and command line in and out.
 *
 * tp x cp x pp x dp = GPUs; etp x ep divides tp x cp x dp, where etp is tp unless it is given. One table of fields
 * (dtp_plan_fields) reads and writes JSON, parses `--tp 8`, and prints. One function, dtp_plan_check(), decides
 * whether a plan is legal, with a reason for every refusal.
 */
#ifndef DTP_MODELS_PLAN_H
#define DTP_MODELS_PLAN_H

#include "hw/cluster.h"
#include "hw/placement.h"
#include "models/framework/framework.h"
#include "models/model/model.h"
#include "models/model/modules.h"

enum dtp_recompute { DTP_RECOMPUTE_NONE, DTP_RECOMPUTE_SELECTIVE, DTP_RECOMPUTE_FULL };
enum dtp_offload { DTP_OFFLOAD_NONE, DTP_OFFLOAD_OPTIMIZER, DTP_OFFLOAD_PARAMETERS };
enum dtp_offload_to { DTP_OFFLOAD_HOST, DTP_OFFLOAD_NVME };
extern const char *const dtp_recompute_names[], *const dtp_offload_names[],
                                                    *const dtp_offload_to_names[];

#define DTP_MAX_STAGES 1024
/* Larger degrees and microbatches are refused: they are far beyond what is trained, and products of two degrees fit
 * an int. */
#define DTP_MAX_DEGREE 16383
#define DTP_MAX_MICROBATCH 1048575
/* A step has at most so many microbatches: orders and simulations grow with their number, so that this bounds the
 * time and memory of a plan; a tag (lower.h) has room for 2^19. Training runs have some hundred, a batch of
 * 4 million tokens on one GPU has a thousand or two. */
#define DTP_MAX_MICROBATCHES 16384

struct dtp_plan {
    int tp, pp, dp, cp, ep;
    int etp; /* tensor parallel degree of the experts alone; 0: tp */
    int vpp;
    int zero_stage;
    int zero_group; /* ZeRO: ranks that share one copy of the state; 0: all of dp x cp */
    bool sequence_parallel;
    enum dtp_recompute recompute;
    int recompute_modules; /* selective: bits of enum dtp_module; 0: the attention core, or what the stack has */
    int recompute_layers; /* full: only the first so many layers of a chunk; 0: all */
    int schedule;         /* index into dtp_schedule_kinds */
    int microbatch_size, global_batch_size; /* sequences */
    bool account_for_ends; /* embedding and head count as a layer each when layers are divided */
    int last_stage_less; /* layers that the last virtual stage leaves to the others, for its head */
    /* [pp * vpp] in order of the model; at NULL: as even as possible */
    struct dtp_ints layers_per_stage;
    enum dtp_algo tp_algo, dp_algo;
    int tp_overlap, dp_overlap, p2p_overlap; /* -1: the framework's default; 0 or 1 */
    int ep_overlap;  /* 1: rows of experts travel behind the compute of another microbatch */
    int ep_per_node; /* 1: a token goes once to each node that holds experts of its, copied there */
    enum dtp_offload offload;
    enum dtp_offload_to offload_to;
    enum dtp_dtype dtype;
};

/* The fields are in the order of a command line. The option of a field is its name with '-' for '_', and every option
 * takes a value: "--zero-stage 1 --sequence-parallel true --layers-per-stage 5,6,5". */
extern const struct dtp_field dtp_plan_fields[];

struct dtp_plan dtp_plan_default(void); /* all degrees 1, microbatch 1, 1F1B, bf16 */
/* Total order, field by field in the order of dtp_plan_fields; 0 if and only if all are equal. */
int dtp_plan_compare(const struct dtp_plan *a, const struct dtp_plan *b);
static inline int dtp_plan_num_microbatches(const struct dtp_plan *p) {
    return p->global_batch_size / (p->microbatch_size * p->dp);
}
/* Returns the share of a stage's layers whose forward is repeated; which layers they are has no effect. */
static inline double dtp_plan_recomputed_share(const struct dtp_plan *p, double layers) {
    bool some = p->recompute_layers > 0 && p->recompute_layers < layers;
    return some ? p->recompute_layers / layers : 1;
}
/* Modules of a layer that are recomputed; 0: none, or the layer as a whole. */
static inline int dtp_plan_modules(const struct dtp_plan *p) {
    if (p->recompute != DTP_RECOMPUTE_SELECTIVE)
        return 0;
    return p->recompute_modules ? p->recompute_modules : DTP_BIT_CORE_ATTN;
}
static inline int dtp_plan_etp(const struct dtp_plan *p) {
    return p->etp > 0 ? p->etp : p->tp;
}
static inline bool dtp_plan_hides_experts(const struct dtp_plan *p) {
    return p->ep_overlap > 0 && p->ep > 1;
}
/* Transfers between stages stop the compute streams of both. */
static inline bool dtp_plan_p2p_blocks(const struct dtp_plan *p, const struct dtp_framework *f) {
    bool overlaps = f->quirks.chunk_transfers.p2p_chunks_overlap && p->vpp > 1;
    return p->p2p_overlap < 0 ? f->wire.p2p_blocking && !overlaps : !p->p2p_overlap;
}
/* Ranks of a stage among which the routed experts of a layer are divided. */
static inline double dtp_plan_expert_ranks(const struct dtp_plan *p) {
    return (double)dtp_plan_etp(p) * p->ep;
}
/* Returns how many ranks share the state of one part of an expert with ZeRO. */
static inline double dtp_plan_expert_sharers(const struct dtp_plan *p) {
    return p->zero_group > 0 ? p->zero_group
                             : (double)p->tp * p->cp * p->dp / dtp_plan_expert_ranks(p);
}
/* The groups of a plan on a cluster, ranks in the framework's order. */
enum dtp_status dtp_plan_place(const struct dtp_plan *p, const struct dtp_cluster *c,
                               const struct dtp_framework *f, struct dtp_placement *out,
                               struct dtp_err *err);
/* How a plan divides the model among its ranks: the parameters of a stage depend on nothing else. It has no padding. */
struct dtp_cut {
    const int *layers_per_stage; /* NULL: as even as possible */
    int tp, ep, etp, pp, vpp;    /* etp resolved */
    int schedule;                /* which rank holds which virtual stage */
    int last_stage_less, account_for_ends;
};
static inline struct dtp_cut dtp_plan_cut(const struct dtp_plan *p) {
    return (struct dtp_cut){p->layers_per_stage.at,
                            p->tp,
                            p->ep,
                            dtp_plan_etp(p),
                            p->pp,
                            p->vpp,
                            p->schedule,
                            p->last_stage_less,
                            p->account_for_ends};
}
/* Layers of virtual stage vs (0 .. pp*vpp-1, in order of the model). As even as it goes: each of the
 * n = pp*vpp stages gets L / n; the L mod n that are left over go, one each, to the last stages but
 * one, n-1-(L mod n) .. n-2: the last carries the head, the first the embedding and, under 1F1B, the
 * most activations in flight; with multi-token prediction the last has three layers less for its first
 * depth and two for each other. With account_for_ends L + 2 are divided and the first and the last stage
 * hold one layer less each, maybe none (Megatron-Core: --account-for-embedding-in-pipeline-split and
 * --account-for-loss-in-pipeline-split; Llama 3: 126 layers on 16 x 8 stages, section 3.3.2). With
 * last_stage_less the last has so many less, and the others share what that leaves in the same way (torchtitan:
 * pipeline_parallel_last_stage_less_layers; Megatron-Core: --pipeline-model-parallel-layout). */
int dtp_plan_layers(const struct dtp_plan *p, const struct dtp_model *m, int vs);
int dtp_cut_layers(const struct dtp_cut *cut, const struct dtp_model *m, int vs);
/* All virtual stages hold the same layers. */
static inline bool dtp_plan_alike(const struct dtp_plan *p, const struct dtp_model *m) {
    return !p->layers_per_stage.at && !p->account_for_ends && p->last_stage_less == 0 &&
           m->moe.experts + m->full_attention_step + m->mtp_layers == 0 && m->nconvs == 0 &&
           m->layers % (p->pp * p->vpp) == 0;
}
/* Returns the layers of the virtual stage that holds the most. */
int dtp_plan_most_layers(const struct dtp_plan *p, const struct dtp_model *m);
int dtp_plan_first_layer(const struct dtp_plan *p, const struct dtp_model *m, int vs);
/* Writes the plan as options of dtplan: "--tp 8 --pp 16 --dp 8 --schedule 1f1b ...". It lists tp, pp, dp, schedule and
 * batch sizes always, other fields only if they differ from the default. global_batch_size is "--batch". */
const char *dtp_plan_flags(struct dtp_arena *a, const struct dtp_plan *p);
/* Layers of each virtual stage, "1,2,2", of Megatron-Core's layout "Et|tt|ttL", where (tt|)*3 and t*3 repeat
 * (pipeline_parallel_layer_layout.py): E embedding, t a layer, m multi-token prediction, L loss. NULL: no layout. */
const char *dtp_plan_layers_of_layout(struct dtp_arena *a, const char *text);
/* {"tp": 8, ...} into *out, which holds defaults. */
enum dtp_status dtp_plan_read(struct dtp_arena *a, const struct dtp_json *j, struct dtp_plan *out,
                              struct dtp_err *err);
void dtp_plan_write(struct dtp_json_out *w, const struct dtp_plan *p);

/* Why a plan is refused; each has a text for people in dtp_reasons[]. */
#define DTP_REASON_LIST(X)                                                                         \
    X(DTP_LEGAL, "legal")                                                                          \
    X(DTP_WHY_GPUS, "tp x cp x pp x dp is not the number of GPUs")                                 \
    X(DTP_WHY_SIZE, "tp, cp, ep or etp beyond 16,383, or a microbatch beyond 1,048,575")           \
    X(DTP_WHY_HEADS, "tp does not divide the attention heads")                                     \
    X(DTP_WHY_KV_HEADS, "tp neither divides the key-value heads nor is a multiple of them")        \
    X(DTP_WHY_FFN, "tp does not divide the MLP's hidden size")                                     \
    X(DTP_WHY_HIDDEN, "tp does not divide the hidden size")                                        \
    X(DTP_WHY_LAYERS, "fewer layers than virtual pipeline stages")                                 \
    X(DTP_WHY_LAST_STAGE, "the framework cuts stages by cost, and the loss is not on the last")    \
    X(DTP_WHY_UNEVEN, "the framework wants equal layers per stage, pp x vpp does not divide them") \
    X(DTP_WHY_ENDS,                                                                                \
      "account_for_ends: pp x vpp does not divide the layers + 2, or not in this framework")       \
    X(DTP_WHY_LAST_LESS,                                                                           \
      "last_stage_less: pp 1, no layer left, layers_per_stage set, or not in this framework")      \
    X(DTP_WHY_LAYER_SUM, "layers_per_stage is not one number >= 1 per stage that add up")          \
    X(DTP_WHY_BATCH, "microbatch x dp does not divide the global batch")                           \
    X(DTP_WHY_MICROBATCHES,                                                                        \
      "more than 16,384 microbatches a step: larger ones, more dp or a smaller batch make fewer")  \
    X(DTP_WHY_SEQ_TP, "sequence parallelism: tp does not divide the sequence")                     \
    X(DTP_WHY_SEQ_CP, "2 cp does not divide the sequence")                                         \
    X(DTP_WHY_SP_TP1, "sequence parallelism needs tp > 1")                                         \
    X(DTP_WHY_SP, "the framework has no sequence parallelism")                                     \
    X(DTP_WHY_CP, "the framework has no context parallelism")                                      \
    X(DTP_WHY_EXPERTS,                                                                             \
      "the model has experts: not in this framework, but in megatron-core, torchtitan, deepspeed") \
    X(DTP_WHY_EP,                                                                                  \
      "ep does not divide the experts and the ranks of a stage, or the model has no experts")      \
    X(DTP_WHY_EP_DENSE, "ep_overlap and ep_per_node: the model has no experts")                    \
    X(DTP_WHY_EP_HERE, "the framework has no expert parallelism")                                  \
    X(DTP_WHY_EP_PER_NODE, "the framework has no ep_per_node")                                     \
    X(DTP_WHY_EP_OVERLAP,                                                                          \
      "ep_overlap: pp > 1 and vpp 1, 1 microbatch, full recomputation, or not in this framework")  \
    X(DTP_WHY_ETP,                                                                                 \
      "etp does not divide the experts' hidden size and the ranks, or not of this stack or model") \
    X(DTP_WHY_EXPERTS_SP,                                                                          \
      "layers of experts need sequence parallelism where tp > 1: --sequence-parallel true")        \
    X(DTP_WHY_VPP, "the schedule and vpp do not go together")                                      \
    X(DTP_WHY_INTERLEAVE, "interleaving: pp does not divide the number of microbatches")           \
    X(DTP_WHY_FEW_MICROBATCHES, "this schedule needs at least 2 pp - 1 microbatches")              \
    X(DTP_WHY_PP1, "without a pipeline (pp = 1) there is one schedule: 1f1b")                      \
    X(DTP_WHY_SCHEDULE, "the framework does not have this schedule")                               \
    X(DTP_WHY_ZERO, "the framework does not have this ZeRO stage")                                 \
    X(DTP_WHY_ZERO_PP, "the framework refuses this ZeRO stage with pp > 1")                        \
    X(DTP_WHY_ZERO_DP1, "ZeRO needs dp x cp > 1, or parameters offloaded; one replica has ZeRO 0") \
    X(DTP_WHY_ZERO_GROUP,                                                                          \
      "zero_group must divide dp x cp; ep 1; ZeRO-1, 2 or hybrid 3; not in our own runtime")       \
    X(DTP_WHY_ZERO_TP, "the framework refuses this ZeRO stage with tp > 1")                        \
    X(DTP_WHY_RECOMPUTE,                                                                           \
      "the framework does not have this recomputation, of so many layers, or with this schedule")  \
    X(DTP_WHY_MODULES,                                                                             \
      "recompute_modules: not this framework or model, not selective, or FP8 with delayed scales") \
    X(DTP_WHY_TP, "the framework or model has no tensor parallelism, or tp is over its limit")     \
    X(DTP_WHY_PP, "the framework has no pipeline parallelism, or the model cannot be cut")         \
    X(DTP_WHY_OFFLOAD, "the framework has no offload")                                             \
    X(DTP_WHY_OFFLOAD_ZERO,                                                                        \
      "offload: parameters want ZeRO-3, the optimizer of several replicas ZeRO-1 or more")         \
    X(DTP_WHY_OFFLOAD_ROOM, "the node has no room for what is offloaded")                          \
    X(DTP_WHY_DTYPE, "the GPU does not have this dtype")                                           \
    X(DTP_WHY_DTYPE_HERE, "the framework does not have this dtype")                                \
    X(DTP_WHY_CONSTRAINT, "excluded by an option of the command line")

enum dtp_reason {
#define X(name, text) name,
    DTP_REASON_LIST(X)
#undef X
        DTP_NREASONS
};
extern const char *const dtp_reasons[]; /* by enum dtp_reason */

struct dtp_stage {
    int layers, moe_layers;      /* those of multi-token prediction too; of `layers` */
    bool first, last;            /* holds the embedding; the final norm, head and loss */
    double dense_params;         /* on one tp rank: what dp x cp replicates */
    double expert_params;        /* on one tp and ep rank: routed experts */
    double largest_layer_params; /* on one tp and ep rank */
    double root_params; /* part of dense_params outside the layers: embedding, norm, head */
};

/* Layers of a virtual stage with those of multi-token prediction, which follow the model's on the last one
 * (Megatron-Core: mtp_on_this_rank()). */
int dtp_stage_layers(const struct dtp_model *m, const struct dtp_plan *plan, int vs);
/* Counts the layers of each kind that virtual stage vs (0 .. pp*vpp-1) holds. */
void dtp_stage_count(const struct dtp_model *m, const struct dtp_plan *plan, int vs,
                     int n[DTP_NLAYER_KINDS]);
/* counts: dtp_model_params() of the model. vs: 0 .. pp*vpp-1. */
void dtp_stage_of(const struct dtp_model *m, const struct dtp_param_counts *counts,
                  const struct dtp_cut *cut, int vs, struct dtp_stage *out);

/* The problem is everything but the plan. */
struct dtp_problem {
    const struct dtp_model *model;
    const struct dtp_cluster *cluster;
    const struct dtp_framework *framework;
    int gpus, seq, global_batch;
    uint64_t memory_limit_bytes; /* bound on device memory */
    int attention;               /* enum dtp_attention, or -1: the framework's */
    int document_tokens; /* packed sequences: fused attention stays in documents of so many; 0: none */
    int offloaded_layers; /* activations of so many layers are moved to the host and back */
    enum dtp_dtype dtype;
};

/* The first reason found, cheap tests first, in the order of check_* in plan_check.c. No allocation.
 * Rules beyond what the reasons say:
 *   pp = 1 allows 1f1b alone (F B F B: gradient accumulation), whatever the framework's list has;
 *   several chunks a rank want pp x vpp to divide the layers, unless the framework has uneven_chunks, or
 *   uneven stages and layers_per_stage is given; no stage is left without a layer but with account_for_ends;
 *   convolution models are data parallel: every other degree is 1, no recomputation;
 *   cp splits the sequence in 2 cp chunks (zig-zag), and sequence parallelism splits each
 *   rank's share by tp; offload of parameters needs ZeRO-3. */
enum dtp_reason dtp_plan_check(const struct dtp_problem *problem, const struct dtp_plan *plan);
/* The framework's list has the schedule. */
bool dtp_framework_has_schedule(const struct dtp_framework *framework, int schedule);
/* What the GPUs of a node put into its host's memory, or on its NVMe: optimizer state and fp32 gradients of every
 * parameter, and the weights if they go too, over the ranks that divide them; 0: nothing is offloaded. */
double dtp_plan_offloaded_bytes(const struct dtp_problem *problem, const struct dtp_plan *plan);

#endif
