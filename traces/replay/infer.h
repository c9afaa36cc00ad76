/* infer.h: from a trace to the model and the plan that made it.
 *
 * Counts are of one step, by launches: work that other steps left behind on the device does not count.
 * What is looked at: names, grids and counts of kernels (attention forward and backward, norms, gathers of
 * embeddings, activations, losses), dimensions of operators where they were recorded, elements and
 * groups of collectives, the order of forwards and backwards on each rank; of a timeline that dtplan
 * wrote, names of actions and shapes of operations. Each observation votes for a value of a field with a
 * weight in (0, 1); a value's confidence is 1 - prod(1 - weight) over its votes, times the share of
 * the field's weight that agrees. Derived fields (layers of all stages, microbatch) are computed from
 * the winners and carry the least of their confidences. Every value is printed with its evidence; what
 * no observation tells is unknown and takes the default that dtp_infer_complete() states.
 */
#ifndef DTP_TRACES_REPLAY_INFER_H
#define DTP_TRACES_REPLAY_INFER_H

#include "models/plan/plan.h"
#include "traces/formats/trace.h"

/* X(enum, JSON key, words) */
#define DTP_INFER_FIELDS(X)                                                                        \
    X(LAYERS, "layers", "layers")                                                                  \
    X(HIDDEN, "hidden", "hidden size")                                                             \
    X(HEADS, "heads", "attention heads")                                                           \
    X(KV_HEADS, "kv_heads", "key-value heads")                                                     \
    X(HEAD_DIM, "head_dim", "head dimension")                                                      \
    X(FFN, "ffn", "MLP's hidden size")                                                             \
    X(GATED, "gated_ffn", "gated MLP")                                                             \
    X(NORM, "norm", "norm")                                                                        \
    X(ROPE, "rope", "rotary positions")                                                            \
    X(VOCAB, "vocab", "vocabulary")                                                                \
    X(SEQ, "seq", "sequence")                                                                      \
    X(MICROBATCH, "microbatch_size", "microbatch, sequences")                                      \
    X(MICROBATCHES, "microbatches", "microbatches a step and rank")                                \
    X(TP, "tp", "tensor parallel")                                                                 \
    X(PP, "pp", "pipeline stages")                                                                 \
    X(DP, "dp", "data parallel")                                                                   \
    X(VPP, "vpp", "virtual stages of a stage")                                                     \
    X(ZERO, "zero_stage", "ZeRO stage, 3 for FSDP")                                                \
    X(SEQUENCE_PARALLEL, "sequence_parallel", "sequence parallelism")                              \
    X(RECOMPUTE, "recompute", "recomputation")                                                     \
    X(SCHEDULE, "schedule", "schedule")                                                            \
    X(DTYPE, "dtype", "number format")                                                             \
    X(TRAINS, "trains", "backward pass seen")

enum dtp_infer_field {
#define X(name, key, words) DTP_INFER_##name,
    DTP_INFER_FIELDS(X)
#undef X
        DTP_NINFERRED
};
extern const char *const dtp_infer_keys[], *const dtp_infer_words[];

struct dtp_guess {
    bool known;
    int64_t value;
    double confidence;    /* 0 .. 1 */
    const char *evidence; /* what voted for it; then what did not */
};

struct dtp_inferred {
    struct dtp_guess at[DTP_NINFERRED];
    int gpus;              /* GPUs of the job: its world, or the ranks given */
    const char *framework; /* entry of models/frameworks */
    const char *framework_evidence;
    const char *device;     /* as the trace names it, or "" */
    uint64_t device_bytes;  /* its memory; 0: unknown */
    const char *no_decoder; /* why the job is not a transformer decoder; NULL: nothing says so */
};

void dtp_infer(struct dtp_arena *a, struct dtp_trace *trace, struct dtp_inferred *out);

/* The model and the plan, what is unknown filled in; notes: one line for each assumption. Fails where
 * layers or hidden size are unknown, the sizes contradict each other, or the job is inference or not a
 * transformer decoder. */
struct dtp_infer_model {
    struct dtp_model model;
    struct dtp_plan plan;
    int seq;
    const char **note;
    size_t nnotes;
};
enum dtp_status dtp_infer_complete(struct dtp_arena *a, const struct dtp_inferred *in,
                                   struct dtp_infer_model *out, struct dtp_err *err);

#endif
