/* rank.h: everything one rank works with during training; internal to runtime/.
 *
 * The executor (executor.c) walks the schedule, the transformer (transformer/) computes, zero.c keeps
 * weights and gradients where ZeRO wants them and ends the step. Errors: functions
 * return a status, the message is in r->err.
 *
 * Tensors live in r->dev->heap; who allocates one says who releases it. Host structs live in r->arena
 * and are allocated before the first step.
 */
#ifndef DTP_RUNTIME_RANK_H
#define DTP_RUNTIME_RANK_H

#include "runtime/comm/comm.h"
#include "runtime/launch.h"
#include "runtime/parameters.h"
#include "runtime/run.h"

/* The data are sequences of seq + 1 tokens, numbered by a global index, so that every layout sees the same
 * sequence i of step s, i = s * global_batch + index in the batch.
 *
 * Text: a sequence starts at a place drawn from (seed, i), tokens are bytes (the vocabulary must have
 * 256). Token files (token_files.c): the same with tokens for bytes. Synthetic: token k + 1 is (5 token k + 17) mod V with probability 7/8, else it is drawn: something to
 * learn, down to about 1/8 ln V + 0.4 nats. */
struct dtp_data {
    uint64_t seed;
    int vocab, seq;
    const unsigned char *text; /* tokens of token_bytes each, little-endian; NULL: synthetic */
    uint64_t length_bytes;
    int token_bytes; /* a text has 1 */
    bool token_signed;
};

/* path NULL: synthetic. */
enum dtp_status dtp_data_open(struct dtp_arena *a, const char *path, struct dtp_data *out,
                              struct dtp_err *err);
int64_t dtp_data_token(const struct dtp_data *d, uint64_t i); /* -1: beyond 2^63 */
/* Reads tokens where the file is NumPy's .npy, or Megatron's .bin that has an .idx of the same name next to it; path may
 * also be that name without its end. *known is false where it is neither. */
enum dtp_status dtp_token_file_read(struct dtp_arena *a, const char *path, struct dtp_data *out,
                                    bool *known, struct dtp_err *err);
/* Tokens out[seq + 1]: inputs, and from the second on targets. */
void dtp_data_sequence(const struct dtp_data *d, uint64_t index, int32_t *out);

/* A layer keeps these tensors for the backward of one microbatch. */
struct dtp_layer_acts {
    void *x;                /* input [local_tokens, hidden] */
    void *n1, *x1, *n2;     /* norm, residual stream after attention, norm: the same shape */
    float *stats1, *stats2; /* mean, rstd [2, local_tokens] */
    void *qkv;              /* [tokens, qkv_width] */
    void *saved, *ctx;      /* the attention's own; its output [tokens, q_width] */
    void *up, *act;         /* [tokens, up_width], [tokens, ffn] */
    /* split backward: gradients that the weights still need */
    void *dout, *dup, *dx1, *dqkv; /* [tokens, ...]; dout, dx1 gathered */
};

/* One microbatch in a chunk. */
struct dtp_micro {
    struct dtp_layer_acts *layer; /* [nlayers] */
    int32_t *ids, *targets;       /* first stage; last stage: [tokens] */
    void *x;                      /* between actions: what came in, or what goes out */
    void *grad;                   /* gradient that came in, or goes out */
    /* last stage */
    void *head_x, *head_n;    /* input of the final norm; its output */
    float *head_stats, *rows; /* mean, rstd; max, sum, target: [3, tokens] */
    void *logits;             /* [tokens, vocab], then their gradient */
    void *dembed;             /* split backward: gradient of the embedding's output */
};

/* So many actions may be enqueued that the device has not done: enough that it never waits for the host. */
enum { DTP_ACTIONS_AHEAD = 8 };

/* Messages that were sent in a direction stand oldest first. The order of the schedule says when one is released
 * (rank.c), not the moment at which it was delivered, so that each step has the same addresses and the same peak. */
enum { DTP_MOST_SENT = 1024 };
struct dtp_sent {
    void *tensor[DTP_MOST_SENT]; /* a ring */
    int first, n;
};

/* Dynamic loss scaling (Micikevicius 2018, section 3.2): gradients are multiplied by `scale` from the loss
 * on, so that small ones are not lost in fp16. A step with an infinite norm changes nothing but the
 * scale. The same on all ranks, since the norm is. */
struct dtp_loss_scale {
    double scale;
    bool dynamic;
    int clean; /* steps since the scale changed */
    int updates, skipped;
};

struct dtp_rank {
    struct dtp_arena *arena, *home; /* this plan's; device and communicators' (NULL: the same) */
    const struct dtp_run_options *o;
    const struct dtp_model *model;
    const struct dtp_plan *plan;
    struct dtp_err *err;
    int rank, size, first_local, local_size; /* local: of this host */

    const struct dtp_dev_ops *ops;
    struct dtp_dev *dev;
    struct dtp_comm *host, *comm; /* host memory (results, aborts); tensors. The same on the CPU */
    const struct dtp_comm_ops *cops;
    /* room for all plans of a series; NULL: for this one */
    const struct dtp_comm_config *comm_config;
    struct dtp_comm_group *host_world, *world, *tp, *dp, *kv, *embedding; /* NULL: not needed */

    struct dtp_layout layout;
    struct dtp_dims dims;
    struct dtp_unit **unit; /* [nunits] of all chunks */
    int nunits;
    struct dtp_schedule schedule; /* complete */
    bool split, sp;               /* backward in I and W; sequence parallel */
    struct dtp_micro **micro;     /* [nchunks][num_microbatches] */
    int num_microbatches;
    struct dtp_data *data;
    int32_t *host_ids; /* [tokens] */
    int32_t *drawn;    /* [sequences of this rank][seq + 1], of step drawn_step */
    int drawn_step;

    void *workspace; /* workspace of the attention */
    float *scalars;  /* on the device: loss, norm2, clip scale */
    struct dtp_adamw_tensor *tensors;
    struct dtp_loss_scale loss_scale;
    int save_lock; /* descriptor of DIR/lock; 0: none */
    int step, first_step, action;
    int64_t sequence;      /* the first of the current microbatch in the global batch */
    double tokens_inverse; /* 1 / tokens of the global batch */

    struct dtp_sent sent[2]; /* forward, backward */
    int sends_held;          /* per direction: dtp_schedule_sends_held() */
    int next_event;
    int num_ahead;   /* actions of this step that were enqueued */
    double clock_hz; /* the device's mean over the step; 0: not known */
    int64_t host_ns; /* spent in the actions of the step, without waiting for the device */

    struct dtp_run_event *event; /* events of the current step */
    int nevents, max_events;
};

enum {
    DTP_SCALAR_LOSS,
    DTP_SCALAR_NORM2,
    DTP_SCALAR_CLIP,
    DTP_SCALAR_NOW = 4, /* two integers: see dropout.h */
    DTP_NSCALARS = 64
};
static inline uint32_t *dtp_rank_now(const struct dtp_rank *r) {
    return (uint32_t *)(void *)(r->scalars + DTP_SCALAR_NOW);
}

/* All units of a rank, in order of chunks. */
#define DTP_EACH_UNIT(r, u)                                                                        \
    for (struct dtp_unit **dtp_u = (r)->unit, *u;                                                  \
         dtp_u < (r)->unit + (r)->nunits && (u = *dtp_u, true); dtp_u++)

/* ---- memory, events, trace (rank.c) ---- */

/* n elements of `bytes` each. */
enum dtp_status dtp_take(struct dtp_rank *r, enum dtp_mem class, const char *name, int64_t n,
                         void **out);
enum dtp_status dtp_take_floats(struct dtp_rank *r, enum dtp_mem class, const char *name, int64_t n,
                                float **out);
void dtp_give(struct dtp_rank *r, void *p); /* release now (order of the compute stream) */
/* Releases *p and sets it to NULL. */
#define DTP_DROP(r, p) (dtp_give((r), (p)), (p) = NULL)
/* Releases the oldest that were sent, when they have gone, until `most` are held. */
enum dtp_status dtp_give_sent(struct dtp_rank *r, int direction, int most);
/* After a send. */
void dtp_hold_sent(struct dtp_rank *r, int direction, void *tensor);
/* Until the device has passed it; a device that does not is found by sync(). */
enum dtp_status dtp_wait_event(struct dtp_rank *r, int event);
int dtp_record(struct dtp_rank *r, enum dtp_stream stream); /* a new event */
/* Events that are not handed out as new ones: of the n-th action of a step, and of what was sent. */
static inline int dtp_event_ahead(int n) {
    return DTP_DEV_EVENTS - 1 - n % DTP_ACTIONS_AHEAD;
}
static inline int dtp_event_sent(int direction, int at) {
    return DTP_DEV_EVENTS - 1 - DTP_ACTIONS_AHEAD - direction * DTP_MOST_SENT - at;
}
enum { DTP_NEW_EVENTS = DTP_DEV_EVENTS - DTP_ACTIONS_AHEAD - 2 * DTP_MOST_SENT };
/* stream waits for what is on `after` now. */
void dtp_order(struct dtp_rank *r, enum dtp_stream stream, enum dtp_stream after);
/* Returns what the communicator of this plan needs; the caller sets rank and mapping. */
struct dtp_comm_config dtp_rank_comm_config(const struct dtp_run_options *o,
                                            const struct dtp_schedule *s);
/* An event of the trace; returns its index, for dtp_trace_end(). */
int dtp_trace_begin(struct dtp_rank *r, enum dtp_stream stream, const char *name);
/* Records a part of an action on the compute stream, shown under `stream`; records nothing if a graph may hold it. */
int dtp_trace_begin_part(struct dtp_rank *r, enum dtp_stream stream, const char *name);
void dtp_trace_end(struct dtp_rank *r, int event);

/* ---- tensor parallel communication (transformer/tensor_parallel.c) ---- */

/* A group of this rank has no other host's. Ranks are numbered host by host, of which some may have more. */
bool dtp_within_host(const struct dtp_rank *r, const struct dtp_comm_group *g);
/* Sum over tp of x[tokens, hidden], whole or (sequence parallel) this rank's rows: *out is x itself or a
 * new tensor, x is then released. */
enum dtp_status dtp_tp_reduce(struct dtp_rank *r, enum dtp_mem class, const char *name, void *x,
                              void **out);
/* x[local_tokens, hidden] -> [tokens, hidden]: x itself, or a gathered copy to be given back. */
enum dtp_status dtp_tp_gather(struct dtp_rank *r, const void *x, void **out);
void dtp_tp_ungather(struct dtp_rank *r, const void *x, void *gathered);
/* g: ranks of one tp group; NULL: nothing to do. */
enum dtp_status dtp_tp_all_reduce(struct dtp_rank *r, struct dtp_comm_group *g, void *x, int64_t n,
                                  enum dtp_dtype dtype, enum dtp_reduce_op op);

/* ---- layers (transformer/layer.c) and ends (transformer/chunk.c) ---- */

/* keep: as the plan's recomputation says; else all. *out: a new tensor. */
enum dtp_status dtp_layer_forward(struct dtp_rank *r, struct dtp_unit *u, struct dtp_layer_acts *x,
                                  bool keep_all, void **out);
void dtp_layer_drop(struct dtp_rank *r, struct dtp_layer_acts *x, bool keep_input);
/* Takes dout over; *dx is new. Weight gradients too unless r->split. */
enum dtp_status dtp_layer_backward(struct dtp_rank *r, struct dtp_unit *u, struct dtp_layer_acts *x,
                                   void *dout, void **dx);
enum dtp_status dtp_layer_weights(struct dtp_rank *r, struct dtp_unit *u, struct dtp_layer_acts *x);
bool dtp_layer_recomputed(const struct dtp_rank *r, const struct dtp_chunk *c, int layer);

/* y[rows, out] = x[rows, in] w[out, in]^T + bias; the gradients of x (written) and of w (added). */
struct dtp_linear {
    int64_t rows, in, out;
    const void *w, *bias;
    void *before;         /* forward: gets y, and y gets its GELU; NULL: no GELU */
    const void *slope_at; /* input gradient: times the slope of GELU there; NULL: none */
};
void dtp_linear_forward(struct dtp_rank *r, const struct dtp_linear *l, const void *x, void *y);
void dtp_linear_input(struct dtp_rank *r, const struct dtp_linear *l, const void *dy, void *dx);
void dtp_linear_weights(struct dtp_rank *r, const struct dtp_linear *l, const void *dy,
                        const void *x, void *dw);

/* ---- one action (executor.c calls) (transformer/chunk.c) ---- */

/* The tokens of a step, before its first action; nothing to do when they are there. */
void dtp_draw_tokens(struct dtp_rank *r, int step);
enum dtp_status dtp_chunk_forward(struct dtp_rank *r, int chunk, int microbatch);
/* B, or I when r->split; last: the chunk's last microbatch of the step. */
enum dtp_status dtp_chunk_backward(struct dtp_rank *r, int chunk, int microbatch, bool last);
enum dtp_status dtp_chunk_weights(struct dtp_rank *r, int chunk, int microbatch, bool last);

/* ---- weights and gradients under ZeRO (zero.c) ---- */

enum dtp_status dtp_units_create(struct dtp_rank *r); /* allocates, initial values */
/* Makes u->weights usable; gathers what comes next in this direction (+1, -1) ahead. */
enum dtp_status dtp_unit_need(struct dtp_rank *r, struct dtp_unit *u, int direction);
void dtp_unit_used(struct dtp_rank *r, struct dtp_unit *u);
void dtp_chunk_reshard(struct dtp_rank *r, struct dtp_chunk *c);
enum dtp_status dtp_unit_grads(struct dtp_rank *r, struct dtp_unit *u); /* makes u->grads usable */
/* A microbatch's gradients of the unit are complete; last: of the step. */
enum dtp_status dtp_unit_done(struct dtp_rank *r, struct dtp_unit *u, bool last);
enum dtp_status dtp_chunk_reduce(struct dtp_rank *r, struct dtp_chunk *c); /* REDUCE_GRAD */
/* fp32 values of the unit (of its shard under ZeRO-3) from the host. */
enum dtp_status dtp_unit_set(struct dtp_rank *r, struct dtp_unit *u, const float *values);
enum dtp_status dtp_units_begin_step(struct dtp_rank *r);
/* Element of a parameter in the unit's flat buffers. */
static inline void *dtp_element(const struct dtp_rank *r, void *flat, int64_t at, bool gradient) {
    enum dtp_dtype dtype = gradient ? r->dev->grad_dtype : r->dev->dtype;
    return (char *)flat + at * dtp_dtype_bytes(dtype);
}
static inline void *dtp_weight(const struct dtp_rank *r, const struct dtp_unit *u, int id) {
    return u->param[id].name && u->weights ? dtp_element(r, u->weights, u->param[id].at, false)
                                           : NULL;
}
static inline void *dtp_grad(const struct dtp_rank *r, const struct dtp_unit *u, int id) {
    return u->param[id].name && u->grads ? dtp_element(r, u->grads, u->param[id].at, true) : NULL;
}

/* ---- end of the step (zero.c) ---- */

/* Elements begin .. begin + n - 1 of the unit; weights and grads point at the first of them, and so do
 * the unit's master, m and v. */
struct dtp_owned {
    int64_t begin, n;
    void *weights, *grads;
};
struct dtp_owned dtp_unit_owned(const struct dtp_rank *r, struct dtp_unit *u);
/* Finds the part of a parameter among them, as elements of the unit; returns false if there is none. */
bool dtp_param_owned(const struct dtp_param *p, const struct dtp_owned *o, int64_t *begin,
                     int64_t *n);

void dtp_loss_scale_start(const struct dtp_run_options *o, struct dtp_loss_scale *out);
/* Reads the step's norm: doubles the scale after many finite ones, halves it after another. */
enum dtp_status dtp_loss_scale_update(struct dtp_rank *r);

enum dtp_status dtp_optimizer_step(struct dtp_rank *r);
double dtp_learning_rate(const struct dtp_run_options *o, int step); /* step from 0 */

/* ---- the job (executor.c, checkpoint.c) ---- */

/* shared: the mapping made before the fork, or NULL with an endpoint. Device and communicators that r
 * has already are used. */
enum dtp_status dtp_rank_open(struct dtp_rank *r, void *shared,
                              const struct dtp_endpoint *endpoint);
/* Seconds of the events, from the step's start; {sum of the losses, longest step} of all ranks, and
 * a failure where the loss is no number. */
void dtp_step_times(struct dtp_rank *r, int64_t start_ns);
enum dtp_status dtp_step_share(struct dtp_rank *r, double *loss, double *step_s);
/* The groups of the ranks[pp] of a pipeline: NCCL joins those between which activations go, and gradients the other
 * way, when they open. */
enum dtp_status dtp_rank_open_stages(struct dtp_rank *r, const int *ranks);
enum dtp_status dtp_rank_step(struct dtp_rank *r, double *loss, double *step_s);
/* After a plan, when another may follow: all ranks are done, and the device's memory is free. */
enum dtp_status dtp_rank_clear(struct dtp_rank *r);
void dtp_rank_close(struct dtp_rank *r);
/* Tells whether this rank writes the parameter: one of those that hold it. */
bool dtp_param_writes(const struct dtp_rank *r, const struct dtp_unit *u,
                      const struct dtp_param *p);
/* fp32 weights of the unit's own elements at .. at + n - 1 to the host. */
enum dtp_status dtp_unit_master(struct dtp_rank *r, struct dtp_unit *u, int64_t at, int64_t n,
                                float *out);
/* All weights into o->save_weights, a file of safetensors in fp32. begin: before the first step, so that hours are not
 * trained for a path that is wrong. */
enum dtp_status dtp_weights_save_begin(struct dtp_rank *r);
enum dtp_status dtp_weights_save(struct dtp_rank *r);
/* Before the first step: rank 0 makes the folder, so that hours are not trained for a path that is wrong, and
 * locks it until dtp_checkpoint_release(). */
enum dtp_status dtp_checkpoint_prepare(struct dtp_rank *r);
void dtp_checkpoint_release(struct dtp_rank *r);
enum dtp_status dtp_checkpoint_save(struct dtp_rank *r, int step);
enum dtp_status dtp_checkpoint_load(struct dtp_rank *r, int *step);

#endif
