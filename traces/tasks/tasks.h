/* tasks.h: what all ranks of a job did in a step, task by task, with what each task waited for.
 *
 * One form for simulations, replays and real runs: it is written by one table of writers, read back,
 * replayed, compared and inferred from. Times are seconds since the step (or the first event) began.
 *
 *     struct dtp_tasks *t = dtp_tasks_create(a, "simulation", "gpt175b on 64 GPUs");
 *     dtp_tasks_rank(t, 0, "rank 0");
 *     uint32_t f = dtp_tasks_add(t, &(struct dtp_tasks_task){.name = "0F0", .rank = 0,
 *                                .stream = "compute", .end_s = 0.01, DTP_TASKS_UNSAID});
 *     dtp_tasks_add(t, ...); dtp_tasks_after(t, f);         the task added last waits for f
 *     DTP_TRY(dtp_tasks_write(a, t, "step.json.gz", err));
 *
 * Writers, by the end of the name; ".gz" after it compresses:
 *     .json    Chrome JSON for https://ui.perfetto.dev: exact times and dependencies in args, so that
 *              dtplan reads it back and replays it to the same step time (tasks_read)
 *     .et      Chakra graphs for ASTRA-sim, NAME.RANK.et for each rank, and the members of the
 *              process groups in NAME.groups.json
 *     .csv     a row a task
 *     .svg     a Gantt chart that needs no script
 *
 * A task starts when all it waits for have ended, plus gap_s: time of its own that nothing recorded
 * explains (the host's, in a real run; 0 in a simulation). A task that waits for none starts at start_s.
 * What it waits for may also end while it is under way (a receive that was posted before its send): then
 * it ends that much after the last of these as it did in the record.
 */
#ifndef DTP_TRACES_TASKS_TASKS_H
#define DTP_TRACES_TASKS_TASKS_H

#include "traces/formats/source.h"
#include "traces/formats/trace.h"

/* Beyond enum dtp_trace_class: a call or operator of the host. */
enum { DTP_CLASS_HOST = DTP_NCLASSES, DTP_NTASK_CLASSES };
extern const char *const dtp_task_class_names[]; /* "compute", "communication", "memory", "host" */

struct dtp_tasks_task {
    const char *name;
    const char *category; /* what it is, for colours and filters: "F", "reduce"; NULL: the class */
    const char *stream;   /* stream of its rank */
    const char *shape;    /* "m,n,k" or as in dtp_trace_event; NULL: unknown */
    int rank, step;
    int microbatch, chunk, part;               /* -1: none */
    int class;                                 /* enum dtp_trace_class or DTP_CLASS_HOST */
    int op;                                    /* communication's enum dtp_comm_op */
    int peer;                                  /* other rank of a transfer; -1: none */
    int group_first, group_stride, group_size; /* ranks of a collective; size 0: unknown */
    uint64_t bytes;                            /* as collective.h counts them; 0: unknown */
    double start_s, end_s;
    double latency_s; /* communication's part that no bandwidth shortens */
    double gap_s;
    double wait_s; /* part of the duration: waits for other ranks, in compute for the host */
    double flops;  /* 0: unknown */
    uint32_t first_dep, ndeps; /* into dep[]; set by dtp_tasks_after() */
};
#define DTP_TASKS_UNSAID                                                                           \
    .microbatch = -1, .chunk = -1, .part = -1, .op = DTP_COMM_UNKNOWN, .peer = -1

struct dtp_tasks_rank {
    int rank;
    const char *name;
    const uint32_t *own; /* its tasks, once dtp_tasks_to_trace() has run */
    uint32_t nown;
};
struct dtp_tasks_count { /* a counter's new value */
    int rank;
    const char *name; /* "memory bytes" */
    double at_s, value;
};
struct dtp_tasks_step {
    int rank; /* -1: of all ranks */
    const char *name;
    double start_s, end_s;
};

struct dtp_tasks {
    struct dtp_arena *a;
    const char *from, *title; /* from: "simulation", "replay" or "run" */
    double explained_pct;     /* a replay's own; else 0, and gaps tell */
    struct dtp_tasks_rank *rank;
    struct dtp_tasks_task *task;
    uint32_t *dep; /* tasks, by index */
    struct dtp_tasks_count *count;
    struct dtp_tasks_step *step;
    size_t nranks, ranks_capacity, ncounts, counts_capacity, nsteps, steps_capacity;
    uint32_t ntasks, ndeps;
    size_t tasks_capacity, deps_capacity;
};

/* The strings must live as long as the tasks. */
struct dtp_tasks *dtp_tasks_create(struct dtp_arena *a, const char *from, const char *title);
void dtp_tasks_rank(struct dtp_tasks *t, int rank, const char *name);
uint32_t dtp_tasks_add(struct dtp_tasks *t, const struct dtp_tasks_task *task);
void dtp_tasks_after(struct dtp_tasks *t, uint32_t before);
void dtp_tasks_step(struct dtp_tasks *t, int rank, const char *name, double start_s, double end_s);
void dtp_tasks_count(struct dtp_tasks *t, int rank, const char *name, double at_s, double value);
/* The tasks of another job with its ranks shifted; not its steps. */
void dtp_tasks_append(struct dtp_tasks *t, const struct dtp_tasks *more, int rank_shift);
/* Sets gap_s of the tasks of a measured job to what they took beyond their dependencies; what ended
 * before a task that it was said to wait for does not wait for it. */
void dtp_tasks_explain(struct dtp_tasks *t);
double dtp_tasks_end_s(const struct dtp_tasks *t); /* end of the last task */

/* A filter says what is kept: lists of ranks and steps ("0,4..7"), streams by name ("compute,tp"); NULL: all. A task
 * that waited for one left out keeps its time as a gap. */
struct dtp_tasks_filter {
    const char *ranks, *steps, *streams;
};
/* Tells whether v stands in "0,4..7". */
bool dtp_tasks_in_list(const char *list, long v);
enum dtp_status dtp_tasks_select(struct dtp_arena *a, const struct dtp_tasks *t,
                                 const struct dtp_tasks_filter *filter, struct dtp_tasks **out,
                                 struct dtp_err *err);

/* An end of the name that no writer has is DTP_EUSAGE. */
enum dtp_status dtp_tasks_write(struct dtp_arena *a, const struct dtp_tasks *t, const char *path,
                                struct dtp_err *err);
enum dtp_status dtp_tasks_check_path(const char *path, struct dtp_err *err);
/* About what the files of that name will take; 0: little, or packed (.gz). */
double dtp_tasks_bytes(const struct dtp_tasks *t, const char *path);
/* Tells whether a writer wants every rank and operation of a simulation (.et). */
bool dtp_tasks_wants_all(const char *path);

/* ---- reading back ---- */

enum dtp_status dtp_tasks_read(struct dtp_arena *a, struct dtp_source *source,
                               struct dtp_tasks **out, struct dtp_err *err);
/* As ranks of a trace, for the analysis: tasks are work of the device, in whole nanoseconds. */
void dtp_tasks_to_trace(struct dtp_arena *a, struct dtp_tasks *t, const char *file,
                        struct dtp_trace *out);
/* Returns the bytes that one rank puts in, as traces count them: its share of an all-gather. */
uint64_t dtp_tasks_in_bytes(const struct dtp_tasks_task *k);
/* Returns the tasks of a measured trace: device work, and the calls that launched it; waits as far as streams,
 * launches and collectives tell. all: operators of the host, too. */
struct dtp_tasks *dtp_tasks_of_trace(struct dtp_arena *a, struct dtp_trace *trace, bool all);

#endif
