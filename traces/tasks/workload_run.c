#include "traces/tasks/workload_run.h"

#include <stdlib.h>
#include <string.h>

#include "hw/collective.h"
#include "sim/engine.h"

enum { MOST_GPUS = 1 << 24, MOST_MARKS = 64 };

const char *const dtp_workload_stream_name[DTP_NWORKLOAD_STREAMS] = {
    "compute", "tensor", "data", "expert", "expert data", "transfer", "communication"};

/* One rank's program as a graph, with what each task is for the record. */
struct program {
    struct dtp_arena *a;
    const struct dtp_cluster *c;
    struct dtp_placement p;
    struct dtp_graph g;
    dtp_id stream[DTP_NWORKLOAD_STREAMS],
        last[DTP_NWORKLOAD_STREAMS]; /* last: the task added last to it */
    struct dtp_tasks *tasks;         /* [ntasks of g], times filled in at the end */
    struct dtp_err *err;
};

static enum dtp_status start(struct program *p, const struct dtp_sizes *sizes, const char *title) {
    DTP_TRY(dtp_placement_init(&p->p, p->c, sizes, "tp-cp-dp-pp", p->err));
    dtp_graph_init(&p->g, p->a);
    for (int s = 0; s < DTP_NWORKLOAD_STREAMS; s++) {
        p->stream[s] = dtp_graph_stream(&p->g);
        p->last[s] = DTP_NONE;
    }
    p->tasks = dtp_tasks_create(p->a, "simulation", title);
    dtp_tasks_rank(p->tasks, 0, "every rank");
    return DTP_OK;
}

/* Adds a task that waits for `after` (and for what its stream did before). */
static dtp_id add(struct program *p, enum dtp_workload_stream stream, const char *name,
                  double time_s, dtp_id after) {
    dtp_id id = dtp_graph_add(
        &p->g, &(struct dtp_task){
                   .work = time_s, .rate_cap = 1, .device = DTP_NONE, .stream = p->stream[stream]});
    dtp_tasks_add(p->tasks, &(struct dtp_tasks_task){.name = name,
                                                     .stream = dtp_workload_stream_name[stream],
                                                     .class = stream == DTP_WORKLOAD_COMPUTE
                                                                  ? DTP_CLASS_COMPUTE
                                                                  : DTP_CLASS_COMM,
                                                     DTP_TASKS_UNSAID});
    if (after != DTP_NONE) {
        dtp_graph_dep(&p->g, after, id);
        dtp_tasks_after(p->tasks, after);
    }
    if (p->last[stream] != DTP_NONE && p->last[stream] != after)
        dtp_tasks_after(p->tasks, p->last[stream]);
    p->last[stream] = id;
    return id;
}

static enum dtp_axis axis_of(enum dtp_workload_stream stream) {
    switch (stream) {
    case DTP_WORKLOAD_TENSOR:
        return DTP_AXIS_TP;
    case DTP_WORKLOAD_EXPERT:
        return DTP_AXIS_EP;
    case DTP_WORKLOAD_EXPERT_DATA:
        return DTP_AXIS_EDP;
    case DTP_WORKLOAD_DATA:
    case DTP_WORKLOAD_COMPUTE:
    case DTP_WORKLOAD_TRANSFER:
    case DTP_WORKLOAD_COMMUNICATION:
    case DTP_NWORKLOAD_STREAMS:
        break;
    }
    return DTP_AXIS_DP;
}

static double collective_s(const struct program *p, enum dtp_collective kind,
                           enum dtp_workload_stream stream, double bytes) {
    struct dtp_group_shape shape = dtp_placement_shape(&p->p, p->c, axis_of(stream), 0);
    struct dtp_coll_cost cost;
    if (shape.size <= 1 || bytes <= 0)
        return 0;
    dtp_coll_cost(p->c, kind, DTP_ALGO_AUTO, &shape, bytes, &cost);
    return cost.time_s;
}

/* ASTRA-sim's and AICB's words; false: no collective. */
static bool kind_of(const char *word, enum dtp_collective *out) {
    static const struct {
        const char *word;
        enum dtp_collective kind;
    } words[] = {{"ALLREDUCE", DTP_ALL_REDUCE},
                 {"all_reduce", DTP_ALL_REDUCE},
                 {"ALLGATHER", DTP_ALL_GATHER},
                 {"all_gather", DTP_ALL_GATHER},
                 {"REDUCESCATTER", DTP_REDUCE_SCATTER},
                 {"reduce_scatter", DTP_REDUCE_SCATTER},
                 {"ALLTOALL", DTP_ALL_TO_ALL},
                 {"all_to_all", DTP_ALL_TO_ALL},
                 {"BROADCAST", DTP_BROADCAST},
                 {"broadcast", DTP_BROADCAST},
                 {"reduce", DTP_REDUCE}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strncmp(word, words[i].word, strlen(words[i].word)) == 0) {
            *out = words[i].kind;
            return true;
        }
    return false;
}

static enum dtp_status finish(struct program *p, struct dtp_workload_result *out) {
    struct dtp_platform platform;
    struct dtp_timeline line;
    DTP_TRY(dtp_graph_freeze(&p->g, p->err));
    dtp_platform_init(&platform, p->a);
    DTP_TRY(dtp_engine_run(p->a, &platform, &p->g, &line, p->err));
    const double *busy_s = dtp_timeline_busy_s(p->a, &line, &p->g);
    for (int s = 0; s < DTP_NWORKLOAD_STREAMS; s++)
        out->busy_s[s] = busy_s[s];
    for (uint32_t i = 0; i < line.ntasks; i++) {
        p->tasks->task[i].start_s = line.start_s[i];
        p->tasks->task[i].end_s = line.end_s[i];
    }
    out->step_s = line.makespan_s;
    out->gpus = p->p.ngpus;
    out->sizes = (struct dtp_sizes){p->p.tp, p->p.cp, p->p.dp, p->p.pp, p->p.ep};
    out->tasks = p->tasks;
    dtp_tasks_step(p->tasks, -1, "step", 0, line.makespan_s);
    return DTP_OK;
}

/* ---- text workloads ---- */

struct marks {
    long at[MOST_MARKS];
    int n;
};

/* Returns the number after "key:" of a header, or none. */
static long header_number(const char *header, const char *key, long none) {
    size_t n = strlen(key);
    for (const char *at = header; (at = strstr(at, key)); at += n) {
        if ((at != header && at[-1] != ' ') || at[n] != ':')
            continue;
        long v = strtol(at + n + 1, NULL, 10);
        return v > 0 && v <= MOST_GPUS ? v : none;
    }
    return none;
}

/* "checkpoints: 2 4 9": a count and layers. */
static struct marks header_marks(const char *header, const char *key) {
    struct marks m = {.n = 0};
    const char *at = strstr(header, key);
    at = at ? strchr(at, ':') : NULL;
    if (!at)
        return m;
    char *end;
    long n = strtol(at + 1, &end, 10);
    for (long i = 0; i < n && m.n < MOST_MARKS; i++) {
        const char *from = end;
        long v = strtol(from, &end, 10);
        if (end == from)
            break;
        m.at[m.n++] = v;
    }
    return m;
}

static bool has_mark(const struct marks *m, size_t layer) {
    for (int i = 0; i < m->n; i++)
        if (m->at[i] >= 0 && (size_t)m->at[i] == layer)
            return true;
    return false;
}

static enum dtp_status sizes_of(const struct dtp_workload *w, const struct dtp_cluster *c, int gpus,
                                struct dtp_sizes *out, struct dtp_err *err) {
    long all = gpus > 0 ? gpus : header_number(w->header, "all_gpus", 0);
    long tp = header_number(w->header, "model_parallel_NPU_group", 1),
         pp = header_number(w->header, "pp", 1), ep = header_number(w->header, "ep", 1);
    if (all == 0)
        return dtp_fail(err, DTP_EINPUT,
                        "the workload does not say on how many GPUs it runs: --gpus N");
    if (strcmp(w->policy, "MODEL") == 0)
        tp = all;
    else if (strstr(w->policy, "DATA_MODEL") || strstr(w->policy, "MODEL_DATA"))
        tp = all < c->node.gpus ? all : c->node.gpus;
    if (all % (tp * pp) != 0 || (all / (tp * pp) % ep != 0))
        return dtp_fail(err, DTP_EINPUT,
                        "%ld GPUs do not divide into tensor %ld x pipeline %ld, experts %ld", all,
                        tp, pp, ep);
    *out = (struct dtp_sizes){(int)tp, 1, (int)(all / (tp * pp)), (int)pp, (int)ep};
    return DTP_OK;
}

/* Returns the stream for the group of a collective of one phase. */
static enum dtp_workload_stream stream_of(const struct program *p, const char *word, int phase) {
    if (strstr(word, "_DP_EP"))
        return DTP_WORKLOAD_EXPERT_DATA;
    if (strstr(word, "_EP"))
        return DTP_WORKLOAD_EXPERT;
    bool tensor = phase != DTP_PHASE_WEIGHT_GRADIENT && p->p.tp > 1;
    return tensor ? DTP_WORKLOAD_TENSOR : DTP_WORKLOAD_DATA;
}

/* Compute of a phase and its collective. *compute, *comm: their tasks; comm DTP_NONE: none. */
static void add_phase(struct program *p, const struct dtp_workload_layer *l, int phase,
                      dtp_id after, dtp_id *compute, dtp_id *comm) {
    static const char *const words[DTP_NPHASES] = {"forward", "input gradient", "weight gradient"};
    enum dtp_collective kind;
    *compute = add(p, DTP_WORKLOAD_COMPUTE, dtp_arena_printf(p->a, "%s %s", l->name, words[phase]),
                   l->phase[phase].compute_s, after);
    *comm = DTP_NONE;
    if (!kind_of(l->phase[phase].collective, &kind))
        return;
    enum dtp_workload_stream stream = stream_of(p, l->phase[phase].collective, phase);
    double time_s = collective_s(p, kind, stream, (double)l->phase[phase].bytes);
    *comm = add(p, stream, dtp_arena_printf(p->a, "%s %s", l->name, l->phase[phase].collective),
                time_s, *compute);
    p->tasks->task[*comm].bytes = l->phase[phase].bytes;
}

static dtp_id forward(struct program *p, const struct dtp_workload *w, size_t from, size_t to,
                      dtp_id prev) {
    for (size_t i = from; i < to; i++) {
        dtp_id compute, comm;
        add_phase(p, &w->layer[i], DTP_PHASE_FORWARD, prev, &compute, &comm);
        prev = comm != DTP_NONE ? comm : compute;
    }
    return prev;
}

/* Returns the last checkpoint at or before a layer. */
static size_t checkpoint_before(const struct marks *m, size_t layer) {
    size_t best = layer;
    bool any = false;
    for (int i = 0; i < m->n; i++)
        if (m->at[i] >= 0 && (size_t)m->at[i] <= layer && (!any || (size_t)m->at[i] > best)) {
            best = (size_t)m->at[i];
            any = true;
        }
    return best;
}

static void build(struct program *p, const struct dtp_workload *w) {
    struct marks points = header_marks(w->header, "checkpoints"),
                 initiates = header_marks(w->header, "checkpoint_initiates");
    dtp_id *gradient = DTP_NEW(p->a, dtp_id, w->nlayers + 1);
    dtp_id prev = forward(p, w, 0, w->nlayers, DTP_NONE);
    for (size_t i = w->nlayers; i-- > 0;) {
        dtp_id compute, comm;
        if (has_mark(&initiates, i))
            prev = forward(p, w, checkpoint_before(&points, i), i + 1, prev);
        add_phase(p, &w->layer[i], DTP_PHASE_WEIGHT_GRADIENT, prev, &compute, &gradient[i]);
        add_phase(p, &w->layer[i], DTP_PHASE_INPUT_GRADIENT, compute, &compute, &comm);
        prev = comm != DTP_NONE ? comm : compute;
    }
    for (size_t i = w->nlayers; i-- > 0;) {
        dtp_id update =
            add(p, DTP_WORKLOAD_COMPUTE, dtp_arena_printf(p->a, "%s update", w->layer[i].name),
                w->layer[i].update_s, prev);
        if (gradient[i] != DTP_NONE) {
            dtp_graph_dep(&p->g, gradient[i], update);
            dtp_tasks_after(p->tasks, gradient[i]);
        }
    }
}

enum dtp_status dtp_workload_run(struct dtp_arena *a, const struct dtp_workload *w,
                                 const struct dtp_cluster *c, int gpus,
                                 struct dtp_workload_result *out, struct dtp_err *err) {
    struct program p = {.a = a, .c = c, .err = err};
    struct dtp_sizes sizes;
    *out = (struct dtp_workload_result){0};
    DTP_TRY(sizes_of(w, c, gpus, &sizes, err));
    DTP_TRY(start(&p, &sizes, w->policy));
    build(&p, w);
    return finish(&p, out);
}

/* ---- AICB ---- */

static int group_size(const struct dtp_aicb *w, const char *group) {
    int size = 1;
    for (size_t i = 0; i < w->n; i++)
        if (strcmp(w->row[i].group, group) == 0 && w->row[i].group_size > size)
            size = w->row[i].group_size;
    return size;
}

/* "rank0 ~ rank127": 128. */
static long ranks_of(const char *preamble) {
    const char *at = strstr(preamble, "~ rank");
    long v = at ? strtol(at + strlen("~ rank"), NULL, 10) : -1;
    return v >= 0 && v < MOST_GPUS ? v + 1 : 0;
}

static enum dtp_workload_stream aicb_stream(const char *group) {
    if (strcmp(group, "tp_group") == 0)
        return DTP_WORKLOAD_TENSOR;
    if (strcmp(group, "ep_dp_group") == 0)
        return DTP_WORKLOAD_EXPERT_DATA;
    if (strcmp(group, "ep_group") == 0)
        return DTP_WORKLOAD_EXPERT;
    return strcmp(group, "pp_group") == 0 ? DTP_WORKLOAD_TRANSFER : DTP_WORKLOAD_DATA;
}

static dtp_id add_row(struct program *p, const struct dtp_aicb_row *row, dtp_id prev,
                      uint64_t *unmatched) {
    enum dtp_collective kind;
    double times = (double)(row->count > 0 ? row->count : 1);
    if (strcmp(row->type, "computation") == 0)
        return add(p, DTP_WORKLOAD_COMPUTE, row->stage,
                   row->elapsed_s > 0 ? row->elapsed_s * times : 0, prev);
    enum dtp_workload_stream stream = aicb_stream(row->group);
    double time_s = 0;
    if (strcmp(row->type, "isend") == 0 || strcmp(row->type, "irecv") == 0) {
        struct dtp_coll_cost cost = {0};
        int stage = p->p.ngpus / (p->p.pp > 0 ? p->p.pp : 1);
        if (p->p.pp > 1)
            dtp_p2p_cost(p->c, 0, stage, 1, (double)row->bytes, &cost);
        *unmatched += p->p.pp <= 1;
        stream = DTP_WORKLOAD_TRANSFER;
        time_s = cost.time_s * times;
    } else if (kind_of(row->type, &kind)) {
        time_s = collective_s(p, kind, stream, (double)row->bytes) * times;
    } else {
        return prev; /* epoch_end and its like: no time */
    }
    dtp_id id =
        add(p, stream, dtp_arena_printf(p->a, "%s %s", row->stage, row->type), time_s, prev);
    p->tasks->task[id].bytes = row->bytes;
    return id;
}

enum dtp_status dtp_aicb_run(struct dtp_arena *a, const struct dtp_aicb *w,
                             const struct dtp_cluster *c, int gpus, struct dtp_workload_result *out,
                             struct dtp_err *err) {
    struct program p = {.a = a, .c = c, .err = err};
    long tp = group_size(w, "tp_group"), pp = group_size(w, "pp_group"),
         ep = group_size(w, "ep_group"), dp = group_size(w, "dp_group");
    long all = gpus > 0 ? gpus : ranks_of(w->preamble);
    *out = (struct dtp_workload_result){0};
    if (all == 0)
        all = tp * pp * dp;
    if (all > MOST_GPUS || all % (tp * pp) != 0 || all / (tp * pp) % ep != 0)
        return dtp_fail(err, DTP_EINPUT,
                        "%ld GPUs do not divide into tensor %ld x pipeline %ld, experts %ld", all,
                        tp, pp, ep);
    struct dtp_sizes sizes = {(int)tp, 1, (int)(all / (tp * pp)), (int)pp, (int)ep};
    DTP_TRY(start(&p, &sizes, w->preamble));
    dtp_id prev = DTP_NONE;
    for (size_t i = 0; i < w->n; i++)
        prev = add_row(&p, &w->row[i], prev, &out->unmatched);
    return finish(&p, out);
}
