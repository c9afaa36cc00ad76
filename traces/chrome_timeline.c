#include "models/schedule.h"
#include "traces/chrome.h"

struct writing {
    struct dtp_arena *names; /* reset for each task */
    struct dtp_chrome *c;
    const struct dtp_lowered *lo;
    const struct dtp_timeline *t;
    int *held;  /* [nranks] microbatches of activations */
    int *index; /* by global rank */
};

static const char *const stream_names[DTP_NTASKS] = {
    [DTP_T_F] = "compute",
    [DTP_T_B] = "compute",
    [DTP_T_I] = "compute",
    [DTP_T_W] = "compute",
    [DTP_T_SEND_F] = "send forward",
    [DTP_T_SEND_B] = "send backward",
    [DTP_T_REDUCE] = "data parallel",
    [DTP_T_GATHER] = "data parallel",
    [DTP_T_UNSHARD] = "data parallel",
    [DTP_T_OPTIM] = "compute",
    [DTP_T_EMBEDDING] = "embedding",
    [DTP_T_NORM] = "norm",
    [DTP_T_OFFLOAD] = "compute",
    [DTP_T_HOST] = "compute",
    [DTP_T_OP] = "compute",
};

static int chunk_of(const struct dtp_lowered *lo, int vs) {
    int rank, chunk;
    dtp_schedule_holder(lo->schedule, lo->pp, lo->vpp, vs, &rank, &chunk);
    return chunk;
}

/* As in the text of a schedule where the task is an action. */
static const char *task_name(const struct writing *w, struct dtp_task_tag tag) {
    static const char *const action[] = {"F", "B", "I", "W", "SF", "SB"};
    dtp_arena_reset(w->names);
    if (tag.kind <= DTP_T_SEND_B)
        return dtp_arena_printf(w->names, "%d%s%d", chunk_of(w->lo, tag.stage), action[tag.kind],
                                tag.microbatch);
    if (tag.kind == DTP_T_OP)
        return w->lo->op_name[tag.part];
    if (tag.kind == DTP_T_REDUCE || tag.kind == DTP_T_GATHER || tag.kind == DTP_T_UNSHARD)
        return dtp_arena_printf(w->names, "%d %s %d", chunk_of(w->lo, tag.stage),
                                dtp_task_names[tag.kind], tag.microbatch);
    return dtp_task_names[tag.kind];
}

static bool computes(enum dtp_task_kind kind) {
    return kind <= DTP_T_W || kind == DTP_T_OP;
}

/* From the transfer to the action of another rank that waits for it. */
static void arrow(const struct writing *w, dtp_id x, struct dtp_task_tag tag, const char *name) {
    const struct dtp_graph *g = &w->lo->graph;
    for (uint32_t k = g->succ_begin[x]; k < g->succ_begin[x + 1]; k++) {
        struct dtp_task_tag to = dtp_tag_unpack(g->tag[g->succ[k]]);
        if (to.rank == tag.rank || !computes(to.kind) || to.microbatch != tag.microbatch)
            continue;
        dtp_chrome_arrow(
            w->c, name,
            (struct dtp_chrome_point){tag.rank, stream_names[tag.kind], w->t->start_s[x]},
            (struct dtp_chrome_point){to.rank, stream_names[to.kind], w->t->start_s[g->succ[k]]});
        return;
    }
}

/* Activations of a microbatch are held from the start of F to the end of B (of W where split). */
static void count_activations(const struct writing *w, dtp_id x, struct dtp_task_tag tag) {
    int *held = &w->held[w->index[tag.rank]];
    struct dtp_task_tag next = {.kind = DTP_NTASKS};
    if (x + 1 < w->t->ntasks)
        next = dtp_tag_unpack(w->lo->graph.tag[x + 1]);
    bool last_part = next.kind != tag.kind || next.rank != tag.rank || next.stage != tag.stage ||
                     next.microbatch != tag.microbatch;
    if (tag.kind == DTP_T_F && tag.part == 0)
        dtp_chrome_counter(w->c, tag.rank, "microbatches held", w->t->start_s[x], ++*held);
    if ((tag.kind == DTP_T_B || tag.kind == DTP_T_W) && last_part)
        dtp_chrome_counter(w->c, tag.rank, "microbatches held", w->t->end_s[x], --*held);
}

static void write_task(const struct writing *w, dtp_id x) {
    struct dtp_task_tag tag = dtp_tag_unpack(w->lo->graph.tag[x]);
    double start_s = w->t->start_s[x], end_s = w->t->end_s[x];
    bool action = tag.kind <= DTP_T_SEND_B || tag.kind == DTP_T_OP;
    bool barrier = tag.kind == DTP_T_OPTIM || tag.kind == DTP_T_EMBEDDING ||
                   (tag.kind >= DTP_T_REDUCE && tag.kind <= DTP_T_UNSHARD);
    if (barrier && end_s == start_s)
        return;
    const char *name = task_name(w, tag);
    struct dtp_chrome_event e = {.rank = tag.rank,
                                 .stream = stream_names[tag.kind],
                                 .name = name,
                                 .start_s = start_s,
                                 .dur_s = end_s - start_s,
                                 .category = dtp_task_names[tag.kind],
                                 .microbatch = action ? tag.microbatch : -1,
                                 .part = tag.kind <= DTP_T_W && tag.part > 0 ? tag.part : -1};
    dtp_chrome_event(w->c, &e);
    if (tag.kind == DTP_T_SEND_F || tag.kind == DTP_T_SEND_B)
        arrow(w, x, tag, name);
    else if (tag.kind <= DTP_T_W)
        count_activations(w, x, tag);
}

static void name_ranks(const struct writing *w, const struct dtp_problem *problem) {
    const struct dtp_lowered *lo = w->lo;
    for (int i = 0; i < lo->nranks; i++) {
        int rank = lo->rank[i], node = rank / problem->cluster->node.gpus;
        dtp_arena_reset(w->names);
        dtp_chrome_rank(w->c, rank,
                        lo->folded
                            ? dtp_arena_printf(w->names, "stage %d (rank %d)", lo->stage[i], rank)
                            : dtp_arena_printf(w->names, "rank %d (stage %d, node %d)", rank,
                                               lo->stage[i], node));
        w->index[rank] = i;
    }
}

void dtp_chrome_add(struct dtp_arena *a, struct dtp_chrome *c, const struct dtp_problem *problem,
                    const struct dtp_lowered *lowered, const struct dtp_timeline *timeline) {
    struct writing w = {.c = c, .lo = lowered, .t = timeline};
    int most = 0;
    for (int i = 0; i < lowered->nranks; i++)
        most = lowered->rank[i] > most ? lowered->rank[i] : most;
    w.held = DTP_NEW(a, int, (size_t)lowered->nranks);
    w.index = DTP_NEW(a, int, (size_t)most + 1);
    w.names = dtp_arena_create("task names");
    name_ranks(&w, problem);
    for (dtp_id x = 0; x < timeline->ntasks; x++)
        write_task(&w, x);
    dtp_arena_destroy(w.names);
}

enum dtp_status dtp_chrome_write(struct dtp_arena *a, const struct dtp_problem *problem,
                                 const struct dtp_lowered *lowered,
                                 const struct dtp_timeline *timeline, const char *path,
                                 struct dtp_err *err) {
    struct dtp_chrome *c;
    DTP_TRY(dtp_chrome_open(a, path, &c, err));
    dtp_chrome_add(a, c, problem, lowered, timeline);
    return dtp_chrome_close(c, err);
}
