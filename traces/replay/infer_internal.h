/* infer_internal.h: shared by infer*.c: votes and what a rank's kernels show. */
#ifndef DTP_TRACES_REPLAY_INFER_INTERNAL_H
#define DTP_TRACES_REPLAY_INFER_INTERNAL_H

#include "traces/replay/infer.h"

enum infer_role {
    ROLE_NONE,
    ROLE_ATTENTION,          /* fused, forward */
    ROLE_ATTENTION_BACKWARD, /* the main kernel of the backward */
    ROLE_ATTENTION_DOT,      /* grid tells sequence, batch and heads */
    ROLE_GATHER,             /* rows of an embedding */
    ROLE_NORM,               /* layer norm, forward */
    ROLE_RMS,
    ROLE_SILU,
    ROLE_GELU,
    ROLE_TANH,
    ROLE_LOSS_SOFTMAX,
    ROLE_LOSS,
    ROLE_ADD,
    ROLE_CAST,
    ROLE_ROPE,
    ROLE_ADAM,
    NROLES
};

/* Kernels of one name and grid. */
struct infer_kernel {
    const char *name;
    enum infer_role role;
    int64_t grid[3], block[3];
    uint64_t n;
};

/* All counts are of one step: the one with the median number of kernels. */
struct infer_rank {
    const struct dtp_trace_rank *r;
    int64_t from_ns, to_ns; /* bounds of the step's host part */
    bool launched;          /* work without a launch is a leftover of what was not traced */
    struct infer_kernel *kernel;
    size_t nkernels;
    uint64_t count[NROLES]; /* kernels of the role */
    const char *order;      /* F and B of attention kernels, as started */
    uint64_t transfers;     /* kernels that send or receive */
    int64_t vocab_parts;    /* ranks that divide the vocabulary, as collectives show; else 1 */
    int64_t batch, heads, kv_heads, seq, head_dim; /* attention's, on this rank; 0: unknown */
    int64_t tokens;                                /* tokens of a microbatch; 0: unknown */
    uint64_t layers;                               /* layers of the rank; 0: unknown */
};

struct infer_vote {
    enum dtp_infer_field field;
    int64_t value;
    double weight;
    const char *evidence;
};

struct infer {
    struct dtp_arena *a;
    struct dtp_trace *trace;
    struct dtp_inferred *out;
    struct infer_rank *rank; /* [trace->nranks] */
    struct infer_vote *vote;
    size_t nvotes, capacity;
};

void infer_vote(struct infer *x, enum dtp_infer_field field, int64_t value, double weight,
                const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Counts the votes of a field into out->at[field]; again after more votes. */
const struct dtp_guess *infer_decide(struct infer *x, enum dtp_infer_field field);
/* Returns the winner, or 0. */
int64_t infer_value(const struct infer *x, enum dtp_infer_field field);

/* The event belongs to the step that is counted: by its launch, a host event by its start. */
bool infer_in_step(const struct infer_rank *q, const struct dtp_trace_event *e);

void infer_look_at_kernels(struct infer *x);  /* infer_kernels.c: fills x->rank */
void infer_vote_kernels(struct infer *x);     /* infer_kernels.c: sizes of the model */
void infer_vote_operators(struct infer *x);   /* infer_kernels.c: where dimensions are recorded */
void infer_vote_training(struct infer *x);    /* infer_job.c: training or inference */
void infer_look_for_decoder(struct infer *x); /* infer_job.c: what is no transformer decoder */
void infer_vote_collectives(struct infer *x); /* infer_layout.c: groups, ZeRO, sizes */
void infer_vote_order(struct infer *x);       /* infer_layout.c: microbatches and schedule */
void infer_vote_tasks(struct infer *x);       /* infer_tasks.c: a timeline of dtplan's own */
void infer_find_framework(struct infer *x);   /* infer_layout.c */

#endif
