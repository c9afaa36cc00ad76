/* run.h: train a plan for real, and say how long everything took. The library's entry point.
 *
 *     struct dtp_run_options o = dtp_run_options_default();
 *     o.model = &model; o.plan = plan; o.seq = 128; o.steps = 20;
 *     struct dtp_run_result r;
 *     DTP_TRY(dtp_run(a, &o, &r, err));          forks plan.tp * plan.pp * plan.dp ranks
 *
 * Under a launcher (launch.h) this process is one rank; rank 0 gets the result, the others a result
 * with is_root false. Losses are means over the global batch, in nats per token, before the update of
 * their step. Step time: from a barrier to the end of the slowest rank; result: median without the
 * first steps (dtp_run_warm_up(); with fewer: the last one).
 *
 * Trace: every action of the last step of every rank, as it ran: names are those of the schedule
 * ("0F3" = chunk 0, F, microbatch 3), and on streams of their own the collectives inside
 * actions ("tp all_reduce", "dp reduce_scatter 0.2" = chunk.unit, ...). Times are seconds from the
 * step's barrier on the host's monotonic clock.
 *
 * Weights (weights.h) begin a run: its losses are those of PyTorch on the same weights and tokens.
 *
 * What the runtime refuses, with DTP_EUNSUPPORTED: cp > 1, ep > 1, offload, mixtures of experts and
 * other models than GPT-like and Llama-like decoders, dtypes that the backend lacks.
 */
#ifndef DTP_RUNTIME_RUN_H
#define DTP_RUNTIME_RUN_H

#include "models/plan/plan.h"
#include "models/schedule/schedule.h"

struct dtp_run_options {
    const struct dtp_model *model;
    struct dtp_plan plan;
    int seq;
    const char *backend; /* "cpu" */
    int steps;
    uint64_t seed;
    double dropout,
        attention_dropout; /* probabilities: of hidden states; of attention's. 0: none */
    const char *data;      /* text or token file (token_files.c); NULL: synthetic tokens */
    /* optimizer: warm-up to lr over warmup_steps, then cosine to min_lr at decay_steps (0: steps) */
    double lr, min_lr;
    int warmup_steps, decay_steps;
    double beta1, beta2, epsilon, weight_decay;
    double clip_norm; /* global norm; 0: no clipping */
    /* Factor of the gradients during the backward: the first one, halved when a step overflows (which
     * then changes nothing) and doubled after 1000 steps that do not. 0: 65536 in fp16, else none. */
    double loss_scale;
    const char
        *weights; /* initial values: file or folder of safetensors (weights.h); NULL: drawn */
    const char *save_weights; /* file of safetensors that is written at the end; NULL: none */
    /* checkpoints */
    const char *save, *resume; /* folders or NULL */
    int save_every;            /* steps; 0: at the end only */
    /* limits */
    uint64_t memory_bytes; /* per rank; 0: the device's share */
    double timeout_s;      /* limit for any wait */
    int prefetch_units;    /* ZeRO-3: units gathered ahead */
    bool rough_weights;    /* numbers that the device makes: a quick start, losses mean nothing */
    bool pin;
    void (*progress)(void *context, int step, double loss, double step_s); /* rank 0's process */
    void *progress_context;
    /* one rank alone, the others replaced by waits (comm.h); losses mean nothing. NULL: all ranks */
    const struct dtp_cluster *shadow_cluster;
    int shadow_rank;
    /* for tests of failures: this rank at this step and action index ... */
    enum dtp_fault {
        DTP_FAULT_NONE,
        DTP_FAULT_KILL,
        DTP_FAULT_HANG,
        DTP_FAULT_ADDRESS /* a GPU writes to an address without memory */
    } fault;
    int fault_rank, fault_step, fault_action;
};

struct dtp_run_event {
    int rank, step;
    int stream; /* enum dtp_stream */
    char name[28];
    double start_s, dur_s;
};

struct dtp_run_result {
    bool is_root;
    int first_step, steps, nranks; /* steps of this run; first_step > 0 after a resume */
    double *loss;                  /* [steps] */
    double *step_s_each;           /* [steps] */
    double open_s;                 /* rank 0's time until the first step could begin */
    double step_s;                 /* median */
    double best_step_s;            /* fastest, likewise */
    double tokens_per_s;           /* rate of the whole job */
    double loss_scale;             /* at the end; 1: none */
    int skipped_steps;             /* because gradients were infinite at the scale of that step */
    double clock_hz, power_w;      /* rank 0's device, mean over the same steps; 0: not known */
    double host_s;                 /* to enqueue a step, likewise */
    int graphs, graph_kernels;     /* CUDA graphs of rank 0 (graphs.h), and the kernels in them */
    double graph_share;            /* share of the last step's operations that were in graphs */
    uint64_t overhead_bytes;       /* taken on rank 0's device outside the heap, at the end */
    uint64_t *peak_bytes;          /* [nranks] high-water mark of live bytes */
    uint64_t (*peak_by_class)[6];  /* [nranks][enum dtp_mem] at that moment */
    struct dtp_run_event *event;   /* by rank, then start */
    size_t nevents;
};

struct dtp_run_options dtp_run_options_default(void);
/* Steps before those that count: the first one chooses algorithms, and on GPUs one more records graphs. */
int dtp_run_warm_up(const struct dtp_run_options *o);
/* DTP_OK when the runtime can train it; else DTP_EUNSUPPORTED or DTP_EINPUT with the reason. */
enum dtp_status dtp_run_check(const struct dtp_run_options *o, struct dtp_err *err);
enum dtp_status dtp_run(struct dtp_arena *a, const struct dtp_run_options *o,
                        struct dtp_run_result *out, struct dtp_err *err);

/* Many plans of one number of ranks, one after another in the same processes: device, context and NCCL's
 * communicators are opened once. After a failure the processes end, and the rest goes on in new ones.
 * done() is called in this process, in order, as soon as a run has ended: with its result, or with the
 * failure. DTP_OK whatever the runs did. Not under a launcher. */
struct dtp_run_series {
    const struct dtp_run_options *options; /* [n]; those that differ in backend or dtype, and shadow
                                              ranks, get processes of their own */
    size_t n;
    void (*done)(void *context, size_t i, const struct dtp_run_result *r,
                 const struct dtp_err *failure);
    void *context;
};
enum dtp_status dtp_run_series(struct dtp_arena *a, const struct dtp_run_series *s,
                               struct dtp_err *err);

const char *dtp_run_stream_name(int stream); /* stream of an event: "compute", "tp", ... */
/* These return the passes that complete the plan's schedule, and the complete list that the executor walks. */
struct dtp_schedule_passes dtp_run_passes(const struct dtp_plan *plan);
enum dtp_status dtp_run_schedule(struct dtp_arena *a, const struct dtp_plan *plan,
                                 struct dtp_schedule *out, struct dtp_err *err);

#endif
