#include "models/lower/lower.h"

/* This file says what the tasks of a lowered graph mean, and reads the paths of its ranks from a timeline. */

const char *const dtp_detail_names[] = {"action", "op", "step", NULL};
const char *const dtp_task_names[] = {"F",
                                      "B",
                                      "I",
                                      "W",
                                      "send F",
                                      "send B",
                                      "reduce",
                                      "gather",
                                      "unshard",
                                      "optimizer",
                                      "embedding all-reduce",
                                      "norm all-reduce",
                                      "offload",
                                      "host",
                                      "late W",
                                      "op",
                                      NULL};

/* A tag has 5 bits of kind, 20 of rank, 12 of stage, 19 of microbatch and 8 of part (larger parts count as 255). */
enum { RANK_AT = 5, STAGE_AT = 25, MICROBATCH_AT = 37, PART_AT = 56, MOST_PARTS = 255 };

uint64_t dtp_tag_pack(struct dtp_task_tag t) {
    int part = t.part < MOST_PARTS ? t.part : MOST_PARTS;
    return (uint64_t)t.kind | (uint64_t)t.rank << RANK_AT | (uint64_t)t.stage << STAGE_AT |
           (uint64_t)t.microbatch << MICROBATCH_AT | (uint64_t)part << PART_AT;
}

static int bits(uint64_t tag, int from, int to) {
    return (int)(tag >> from & ((UINT64_C(1) << (to - from)) - 1));
}

static enum dtp_task_kind tag_kind(uint64_t tag) {
    return (enum dtp_task_kind)bits(tag, 0, RANK_AT);
}

struct dtp_task_tag dtp_tag_unpack(uint64_t tag) {
    return (struct dtp_task_tag){.kind = tag_kind(tag),
                                 .rank = bits(tag, RANK_AT, STAGE_AT),
                                 .stage = bits(tag, STAGE_AT, MICROBATCH_AT),
                                 .microbatch = bits(tag, MICROBATCH_AT, PART_AT),
                                 .part = (int)(tag >> PART_AT)};
}

/* ---- paths of the ranks ---- */

/* Adds the busy time of the compute stream, and waits whose last cause was a gather, unshard or reduction. */
static void add_busy(const struct dtp_lowered *lo, const struct dtp_timeline *t, double fixed_s,
                     double *previous_s, struct dtp_rank_path *path) {
    for (int i = 0; i < lo->nranks; i++)
        previous_s[i] = fixed_s;
    for (dtp_id x = 0; x < t->ntasks; x++) {
        enum dtp_task_kind kind = tag_kind(lo->graph.tag[x]);
        if (kind > DTP_T_W && kind != DTP_T_LATE && kind != DTP_T_OP)
            continue;
        dtp_id i = lo->graph.stream[x]; /* compute streams are the first ones, in order */
        path[i].busy_s += t->end_s[x] - t->start_s[x];
        if (t->cause[x] != DTP_NONE) {
            enum dtp_task_kind why = tag_kind(lo->graph.tag[t->cause[x]]);
            if (why == DTP_T_GATHER || why == DTP_T_UNSHARD || why == DTP_T_REDUCE)
                path[i].dp_wait_s += t->start_s[x] - previous_s[i];
        }
        previous_s[i] = t->end_s[x];
    }
}

static double end_or(const struct dtp_timeline *t, dtp_id task, double otherwise_s) {
    return task == DTP_NONE ? otherwise_s : t->end_s[task];
}

static double start_or(const struct dtp_timeline *t, dtp_id task, double otherwise_s) {
    return task == DTP_NONE ? otherwise_s : t->start_s[task];
}

void dtp_lowered_path(struct dtp_arena *a, const struct dtp_lowered *lowered,
                      const struct dtp_costs *costs, const struct dtp_timeline *timeline,
                      struct dtp_path *out) {
    const struct dtp_timeline *t = timeline;
    size_t n = (size_t)lowered->nranks;
    *out = (struct dtp_path){.nranks = lowered->nranks, .step_s = t->makespan_s};
    out->rank = DTP_NEW(a, struct dtp_rank_path, n);
    out->nactions = t->ntasks;
    add_busy(lowered, t, costs->step_host_s, DTP_NEW(a, double, n), out->rank);
    double last_s = -1;
    for (int i = 0; i < lowered->nranks; i++) {
        const struct dtp_rank_tasks *tasks = &lowered->tasks[i];
        struct dtp_rank_path *p = &out->rank[i];
        p->first_s = start_or(t, tasks->first, costs->step_host_s);
        p->last_s = end_or(t, tasks->last, costs->step_host_s);
        p->reduced_s = end_or(t, tasks->reduce, p->last_s);
        p->reduced_s = p->reduced_s > p->last_s ? p->reduced_s : p->last_s;
        p->embedding_start_s = start_or(t, tasks->embedding_begin, p->reduced_s);
        p->embedding_end_s = end_or(t, tasks->embedding, p->reduced_s);
        p->norm_start_s = start_or(t, tasks->norm, p->embedding_end_s);
        p->norm_end_s = end_or(t, tasks->norm, p->embedding_end_s);
        p->optimized_s = end_or(t, tasks->optimizer, p->norm_end_s);
        p->gathered_s = end_or(t, tasks->gather, p->optimized_s);
        p->gathered_s = p->gathered_s > p->optimized_s ? p->gathered_s : p->optimized_s;
        p->end_s = end_or(t, tasks->end, p->gathered_s);
        if (p->end_s > last_s) {
            last_s = p->end_s;
            out->last_rank = i;
            out->stage_of_last = lowered->stage[i];
        }
    }
}
