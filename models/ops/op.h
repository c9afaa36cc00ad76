/* op.h: the kernels and collectives of one layer, one by one.
 *
 * dtp_ops_*() write the list of operations that ONE rank launches for one microbatch: shapes after
 * dividing by tp, cp, ep; the framework says what is fused. Each operation belongs to one pass:
 * F forward, I input gradient, W weight gradient (B = I + W; elementwise backward kernels are in I).
 * What full recomputation repeats is the F list; what selective recomputation repeats are
 * those that one of the plan's modules recomputes (modules.h; by default the attention core of Korthikanti 2022,
 * section 5).
 *
 * saved_bytes of an F operation: what it keeps for the backward. Their sum per layer is
 * Korthikanti's s b h (34 + 5 a s / h) for an unfused GPT layer without parallelism (equation 1) and
 * his equations 2 to 4 with tp and sequence parallelism.
 */
#ifndef DTP_MODELS_OP_H
#define DTP_MODELS_OP_H

#include "hw/placement.h"
#include "models/plan/key.h"

enum dtp_op_kind { DTP_OP_GEMM, DTP_OP_BMM, DTP_OP_ATTENTION, DTP_OP_KERNEL, DTP_OP_COLLECTIVE };
enum dtp_pass { DTP_PASS_F, DTP_PASS_I, DTP_PASS_W, DTP_NPASSES };
extern const char *const dtp_pass_names[], *const dtp_op_kind_names[];

struct dtp_op {
    const char *name; /* static: "qkv", "softmax", "fc1", "tp all_reduce" */
    enum dtp_op_kind kind;
    enum dtp_pass pass;
    int again_by;         /* F: modules (bits) whose recomputation repeats it */
    int dropped_by;       /* F: modules whose recomputation does not keep saved_bytes */
    bool again;           /* repeated by any */
    bool repeated;        /* by the plan's recomputation; F of a layer only */
    bool overlapped;      /* collective: overlaps compute as far as the framework hides it;
                              cp: overlaps the attention of the same pass */
    double count;         /* times per layer and microbatch */
    double slowdown;      /* factor on a product: clock at the power limit; 1: none */
    double launches;      /* kernels that the host launches for it, each time */
    double saved_bytes;   /* F only, all `count` together */
    struct dtp_gemm gemm; /* GEMM, BMM */
    struct dtp_attention_shape attention;
    enum dtp_kernel kernel; /* KERNEL */
    double bytes, elements; /* KERNEL: read + written; also the buffer of a COLLECTIVE */
    double rows, cols;      /* KERNEL of our runtime, timed by both; else 0 */
    enum dtp_collective collective;
    enum dtp_axis axis;
};

#define DTP_MAX_OPS 224
struct dtp_ops {
    int n;
    int mlp; /* the first of the MLP, whose backward has ended when attention's begins; 0: not told apart */
    struct dtp_op at[DTP_MAX_OPS];
};

/* One layer of the kind (CONV: the whole list of convolutions). Uses tp, cp, ep, sequence_parallel,
 * microbatch_size and dtype of the plan. */
void dtp_ops_layer(const struct dtp_problem *problem, const struct dtp_plan *plan,
                   enum dtp_layer_kind kind, struct dtp_ops *out);
/* Lists the same operations by the key, at the highest clock. */
void dtp_op_list(const struct dtp_problem *problem, const struct dtp_layer_key *key,
                 struct dtp_ops *out);
double dtp_op_flops(const struct dtp_op *op); /* all `count` together */
/* Returns the seconds of the operation alone on the problem's cluster, without host time and kernel gap. */
double dtp_op_time_s(const struct dtp_problem *problem, const struct dtp_plan *plan,
                     const struct dtp_op *op);
/* Returns the same by the key, which may be that of all kinds. */
double dtp_op_seconds(const struct dtp_problem *problem, const struct dtp_layer_key *key,
                      const struct dtp_op *op);
/* The part of a collective's bytes that leaves a node: less than all where tokens go once to each node. */
double dtp_op_net_share(const struct dtp_problem *problem, const struct dtp_layer_key *key,
                        const struct dtp_op *op);

/* ---- the clock of products (GEMM, attention) of layers and head at the power limit ---- */

bool dtp_op_is_product(const struct dtp_op *op);
bool dtp_op_follows_clock(enum dtp_layer_kind kind); /* its products do */
/* One layer of such operations at the highest clock, without rests. */
struct dtp_load_mix dtp_op_load(const struct dtp_problem *problem, const struct dtp_layer_key *key,
                                const struct dtp_ops *ops);
/* Returns how much longer products take in the stages of the key `all`, with its bubble. of: a layer of each kind. */
double dtp_op_slowdown(const struct dtp_problem *problem, const struct dtp_layer_key *all,
                       const struct dtp_load_mix of[DTP_NLAYER_KINDS]);
/* Returns how much longer a product takes even on a rested chip, >= 1. */
double dtp_op_droop(const struct dtp_gpu *g, const struct dtp_op *op);

#endif
