/* op_native.h: what a rank of our runtime holds: sizes after dividing, and units of parameters.
 *
 * A unit is a flat buffer of parameters padded to a multiple of dp: what ZeRO shards, what one gradient
 * reduction is and what ZeRO-3 gathers. The units of a virtual stage, in order:
 *     [tokens] [positions] layer... [norm] [head]
 * Tied embeddings: with both ends on one stage the head uses the tokens; else it is a copy of them.
 * Frameworks whose `ops` are `own` (models/frameworks/dtplan.json) are timed by op_native.c, and their
 * memory is walked by memory_walk.c; both start from here.
 */
#ifndef DTP_MODELS_OP_NATIVE_H
#define DTP_MODELS_OP_NATIVE_H

#include "models/plan/key.h"

struct dtp_native {
    int64_t tokens, local_tokens, hidden,
        seq; /* one microbatch; local: with sequence parallelism */
    int64_t heads, kv_heads, head_dim, q_width, kv_width, qkv_width;
    int64_t ffn, up_width, vocab; /* on this rank; up_width = 2 ffn when gated */
    int kv_copies;                /* tp ranks that hold the same key-value head */
    int64_t layer_params, norm_params;
    bool sp; /* sequence parallel */
    bool dropout, attention_dropout;
};
/* Rows of the vocabulary on a tp rank: in 16 bit a multiple of 64, since products with rows that are no
 * multiple of 16 bytes are slow or not there. */
int64_t dtp_native_vocab(const struct dtp_model *m, int tp, enum dtp_dtype dtype);
/* What the sizes of a rank depend on. */
struct dtp_native_sizes {
    int tp, microbatch_size;
    bool sequence_parallel;
    enum dtp_dtype dtype;
};
void dtp_native_of(const struct dtp_problem *problem, const struct dtp_native_sizes *sizes,
                   struct dtp_native *out);

struct dtp_native_stage {
    bool first, last;
    bool tied;                                    /* the head is the tokens unit of this stage */
    int layers;                                   /* units of layers */
    int64_t tokens_n;                             /* elements of each unit, padded; 0: none */
    int64_t positions_n, layer_n, norm_n, head_n; /* head_n 0 when tied */
};
void dtp_native_stage_of(const struct dtp_model *m, const struct dtp_cut *cut, int dp,
                         const struct dtp_native *d, int vs, struct dtp_native_stage *out);
/* Returns the elements of all units. */
int64_t dtp_native_stage_params(const struct dtp_native_stage *s);

/* Times of ZeRO-2 and -3 over a microbatch and all stages: the collectives that all ranks wait for, the
 * prefetched gathers, and the longest of them. */
struct dtp_native_waits {
    double reduce_s, gather_s, layer_gather_s;
};
/* all: the key of all kinds. */
struct dtp_native_waits dtp_native_waits_of(const struct dtp_problem *problem,
                                            const struct dtp_layer_key *all);

/* A stage with what takes part in its communication. */
struct dtp_native_comm {
    const struct dtp_problem *problem;
    struct dtp_native d;
    struct dtp_native_stage s;
    const struct dtp_group_shape *dp, *tp;
    enum dtp_dtype dtype;
    int zero_stage, replicas;
};
/* Seconds to reduce the gradients of all its units, to gather so many parameters, those of all its units. */
double dtp_native_reduce_s(const struct dtp_native_comm *c);
double dtp_native_gather_s(const struct dtp_native_comm *c, int64_t n);
double dtp_native_gather_all_s(const struct dtp_native_comm *c);
/* Reductions that the last backward counts as, which take all_s together. */
int dtp_native_num_reductions(const struct dtp_native_comm *c, double all_s);

#endif
