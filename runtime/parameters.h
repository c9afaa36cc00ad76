/* parameters.h: which parameters a rank holds, and where each of their elements belongs in the model.
 *
 * A chunk (virtual stage) is a row of units: [tokens] [positions] layer... [norm] [head]. A unit is one
 * flat buffer of parameters, padded to a multiple of dp: what ZeRO shards (rank d holds elements
 * d n / dp .. (d + 1) n / dp), what a bucket of the gradient reduction is, and what ZeRO-3 gathers.
 * Tied embeddings: with pp = 1 the head uses the tokens unit; with pp > 1 the last stage has a head
 * unit that is a copy of it (same shape, same shards).
 *
 * A parameter is a block [rows, cols] of a global matrix: rows row0 .. and columns col0 .. of it, so
 * that initial values and checkpoints do not depend on the layout. Linear layers hold [out, in].
 * Tensor parallel: column-parallel ones split rows, row-parallel ones split columns, the vocabulary is
 * split by rows and padded to a multiple of tp (rows from valid_rows on are padding: always 0).
 */
#ifndef DTP_RUNTIME_LAYOUT_H
#define DTP_RUNTIME_LAYOUT_H

#include "models/plan/plan.h"

enum dtp_unit_kind {
    DTP_UNIT_TOKENS,
    DTP_UNIT_POSITIONS,
    DTP_UNIT_LAYER,
    DTP_UNIT_NORM,
    DTP_UNIT_HEAD
};

enum dtp_param_id {
    DTP_P_NORM1,
    DTP_P_NORM1_BIAS,
    DTP_P_Q, /* q, k, v follow each other, so that one GEMM makes all three */
    DTP_P_K,
    DTP_P_V,
    DTP_P_Q_BIAS,
    DTP_P_K_BIAS,
    DTP_P_V_BIAS,
    DTP_P_OUT,
    DTP_P_OUT_BIAS,
    DTP_P_NORM2,
    DTP_P_NORM2_BIAS,
    DTP_P_GATE, /* likewise gate and up */
    DTP_P_UP,
    DTP_P_GATE_BIAS,
    DTP_P_UP_BIAS,
    DTP_P_DOWN,
    DTP_P_DOWN_BIAS,
    DTP_NLAYER_PARAMS,
    /* other units have at most two */
    DTP_P_TABLE = 0,
    DTP_P_NORM = 0,
    DTP_P_NORM_BIAS = 1
};

struct dtp_param {
    const char *name; /* global, "layers.3.attention.q.weight"; NULL: the unit lacks it */
    int64_t rows, cols, valid_rows;
    int64_t row0, col0, global_rows, global_cols;
    int64_t at, n;         /* first element in the unit, elements */
    double init_std;       /* deviation of a normal distribution; 0: zeros; < 0: ones */
    bool decay;            /* weight decay: matrices only */
    int tp_copies;         /* ranks of the tp group that hold the same block */
    bool head_partial;     /* key-value heads of several ranks: the gradient is summed over them */
    bool sequence_partial; /* under sequence parallelism the gradient is summed over tp */
};

struct dtp_unit {
    enum dtp_unit_kind kind;
    int layer; /* index in the model; -1: none */
    int chunk, index;
    bool tied_copy; /* a head that repeats the tokens of the first stage */
    struct dtp_param param[DTP_NLAYER_PARAMS];
    int64_t n, shard_n, used_n; /* padded elements, n / dp, without padding */

    /* tensors (runtime/rank.h) */
    void *weights, *grads;           /* [n]; NULL while sharded */
    void *weight_shard, *grad_shard; /* [shard_n], ZeRO-3; ZeRO-2, -3 */
    float *master, *m, *v;           /* [n], or [shard_n] with ZeRO */
    int gathered_event;              /* ZeRO-3: when weights are there */
    bool reduced;                    /* gradients are final in this step */
};

struct dtp_chunk {
    int stage; /* virtual stage */
    bool first, last;
    int nlayers, nunits;
    struct dtp_unit *unit;                             /* [nunits] */
    struct dtp_unit *tokens, *positions, *norm, *head; /* or NULL; head may be tokens */
    struct dtp_unit *layer;                            /* [nlayers], within unit */
};

/* Sizes of one rank. Tokens T of a microbatch; local ones T / tp under sequence parallelism. */
struct dtp_dims {
    int64_t batch, seq, tokens, local_tokens;
    int64_t hidden, head_dim, heads, kv_heads; /* heads of this rank */
    int64_t q_width, kv_width, qkv_width;      /* widths of this rank */
    int64_t ffn, up_width;                   /* widths of this rank; up_width = 2 ffn when gated */
    int64_t vocab, vocab_first, vocab_valid; /* rows of this rank; of them in the vocabulary */
    int kv_copies;                           /* tp ranks per key-value head, 1: none */
};

struct dtp_layout {
    struct dtp_dims dims;
    int tp_rank, dp_rank, pp_rank;
    int nchunks;
    struct dtp_chunk *chunk;
};

/* t + tp (d + dp s). */
int dtp_layout_rank(const struct dtp_plan *p, int t, int d, int s);
void dtp_layout_make(struct dtp_arena *a, const struct dtp_model *m, const struct dtp_plan *p,
                     int seq, int rank, struct dtp_layout *out);
/* DTP_EUNSUPPORTED with the reason when the runtime lacks something that the model has. */
enum dtp_status dtp_layout_supports(const struct dtp_model *m, struct dtp_err *err);

/* Initial values of elements begin .. begin + n - 1 of the block, from (seed, name, global index): the
 * sum of four uniforms of 16 bits each (Irwin-Hall), scaled to init_std. */
void dtp_param_init(const struct dtp_param *p, uint64_t seed, int64_t begin, int64_t n, float *out);

#endif
