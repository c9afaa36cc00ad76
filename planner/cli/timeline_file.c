#include "planner/cli/timeline_file.h"

#include <stdlib.h>
#include <string.h>

#include "models/schedule/schedule.h"
#include "runtime/run.h"
#include "sim/base/text.h"
#include "sim/base/units.h"
#include "traces/tasks/tasks_simulated.h"

enum dtp_status dtp_cli_check_timeline(const struct dtp_cli *cli, struct dtp_err *err) {
    const struct dtp_tasks_filter *f = &cli->args.timeline_filter;
    if (cli->args.timeline || !(f->ranks || f->steps || f->streams))
        return DTP_OK;
    return dtp_fail(err, DTP_EUSAGE, "--timeline-%s needs --timeline FILE",
                    f->ranks   ? "ranks"
                    : f->steps ? "steps"
                               : "streams");
}

enum dtp_status dtp_cli_write_tasks(struct dtp_cli *cli, const struct dtp_tasks *tasks,
                                    const char *path, struct dtp_err *err) {
    const struct dtp_tasks_filter *f = &cli->args.timeline_filter;
    struct dtp_tasks *part;
    if (f->ranks || f->steps || f->streams) {
        DTP_TRY(dtp_tasks_select(cli->a, tasks, f, &part, err));
        tasks = part;
    }
    const double large = DTP_GIB / 4;
    double bytes = dtp_tasks_bytes(tasks, path);
    char size[32], n[32];
    if (bytes > large)
        fprintf(stderr,
                "dtplan: --timeline: %s tasks of %zu ranks make files of about %s; "
                "--timeline-ranks writes some, a name that ends in .gz packs them\n",
                dtp_fmt_count(tasks->ntasks, n, sizeof n), tasks->nranks,
                dtp_fmt_bytes_gib(bytes, size, sizeof size));
    return dtp_tasks_write(cli->a, tasks, path, err);
}

/* Folded, one rank stands for its replicas. Says so where --timeline-ranks asks for some that are not there;
 * an error where it asks for no other. */
static enum dtp_status tell_folded(const struct dtp_tasks *tasks, const char *ranks, int gpus,
                                   struct dtp_err *err) {
    static const char why[] = "here one rank stands for its replicas; --no-fold has them all";
    int missing = -1, found = 0;
    for (size_t i = 0; i < tasks->nranks; i++)
        found += dtp_tasks_in_list(ranks, tasks->rank[i].rank);
    for (int r = 0; r < gpus && missing < 0; r++) {
        size_t i = 0;
        while (i < tasks->nranks && tasks->rank[i].rank != r)
            i++;
        if (i == tasks->nranks && dtp_tasks_in_list(ranks, r))
            missing = r;
    }
    if (missing >= 0 && found == 0)
        return dtp_fail(err, DTP_EUSAGE, "--timeline-ranks: the timeline has no rank %d: %s",
                        missing, why);
    if (missing >= 0)
        fprintf(stderr, "dtplan: --timeline-ranks: the timeline has no rank %d: %s\n", missing,
                why);
    return DTP_OK;
}

enum dtp_status dtp_cli_simulate(struct dtp_cli *cli, struct dtp_evaluator *ev,
                                 const struct dtp_plan *plan, const char *path,
                                 struct dtp_result *out, struct dtp_err *err) {
    struct dtp_tasks *tasks;
    struct dtp_simulate_options options = {.no_fold = cli->args.no_fold,
                                           .detail = (enum dtp_detail)cli->args.detail};
    if (!path)
        return dtp_evaluate(cli->a, ev, plan, DTP_SIMULATE, &options, out, err);
    DTP_TRY(dtp_tasks_check_path(path, err));
    if (dtp_tasks_wants_all(path)) {
        options.no_fold = true;
        options.detail = DTP_DETAIL_OP;
    }
    DTP_TRY(dtp_tasks_simulate(cli->a, ev, plan, &options, out, &tasks, err));
    const char *ranks = cli->args.timeline_filter.ranks;
    if (ranks && !options.no_fold)
        DTP_TRY(tell_folded(tasks, ranks, dtp_evaluator_problem(ev)->gpus, err));
    return dtp_cli_write_tasks(cli, tasks, path, err);
}

/* ---- real runs ---- */

/* "0F3": chunk, kind, microbatch. */
static bool parse_action(const char *name, int *kind, int *chunk, int *microbatch) {
    char *end;
    long c = strtol(name, &end, 10);
    if (end == name || c > INT16_MAX)
        return false;
    size_t letters = strspn(end, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    for (int k = 0; k < DTP_NACTIONS && letters > 0; k++) {
        if (strlen(dtp_action_names[k]) != letters || strncmp(end, dtp_action_names[k], letters))
            continue;
        *kind = k;
        *chunk = (int)c;
        *microbatch = (int)strtol(end + letters, NULL, 10);
        return true;
    }
    return false;
}

/* Collective in a name such as "tp all_reduce" or "dp reduce_scatter 0.2". */
static int op_in(const char *name) {
    for (int op = 0; op < DTP_COMM_UNKNOWN; op++)
        if (strstr(name, dtp_comm_op_name[op]))
            return op;
    return DTP_COMM_UNKNOWN;
}

static struct dtp_tasks_task describe(const struct dtp_run_event *e) {
    int kind = -1, chunk = -1, microbatch = -1;
    bool action = parse_action(e->name, &kind, &chunk, &microbatch);
    struct dtp_tasks_task k = {.name = e->name,
                               .stream = dtp_run_stream_name(e->stream),
                               .rank = e->rank,
                               DTP_TASKS_UNSAID,
                               .start_s = e->start_s,
                               .end_s = e->start_s + e->dur_s};
    if (action) {
        bool moves = kind >= DTP_A_SEND_F && kind <= DTP_A_RECV_B;
        k.category = dtp_action_names[kind];
        k.chunk = chunk;
        k.microbatch = microbatch;
        k.class = moves                                          ? DTP_CLASS_COMM
                  : kind == DTP_A_OFFLOAD || kind == DTP_A_FETCH ? DTP_CLASS_MEMORY
                                                                 : DTP_CLASS_COMPUTE;
        k.op = moves ? DTP_COMM_SEND_RECV : DTP_COMM_UNKNOWN;
    } else if (strcmp(k.stream, "compute") != 0) {
        k.category = k.stream;
        k.class = DTP_CLASS_COMM;
        k.op = op_in(e->name);
    }
    return k;
}

static int by_start(const void *x, const void *y) {
    const struct dtp_run_event *p = *(const struct dtp_run_event *const *)x,
                               *q = *(const struct dtp_run_event *const *)y;
    if (p->start_s != q->start_s)
        return p->start_s < q->start_s ? -1 : 1;
    if (p->rank != q->rank)
        return p->rank < q->rank ? -1 : 1;
    return p->dur_s > q->dur_s ? -1 : p->dur_s < q->dur_s;
}

struct run_tasks {
    struct dtp_tasks *t;
    const struct dtp_plan *plan;
    uint32_t *last; /* [nranks] the action before on the rank */
    uint32_t *sent; /* [2][stages][microbatches] the send of a microbatch, by its stage */
    int nmicrobatches, replicas;
};

/* Virtual stage of a chunk on a rank: replicas are innermost, stages outermost. */
static int stage_of(const struct run_tasks *x, int rank, int chunk) {
    const struct dtp_plan *p = x->plan;
    return dtp_schedule_kinds[p->schedule].stage(p->pp, p->vpp, rank / x->replicas, chunk);
}

/* Who a send goes to, and the ranks of a collective: replicas of a stage are tp, then dp. */
static void place(const struct run_tasks *x, struct dtp_tasks_task *k) {
    const struct dtp_plan *p = x->plan;
    bool tp = strcmp(k->stream, "tp") == 0;
    if (k->category && k->category[0] == 'S' && k->op == DTP_COMM_SEND_RECV) {
        int to = stage_of(x, k->rank, k->chunk) + (k->category[1] == 'B' ? -1 : 1), rank, chunk;
        if (to < 0 || to >= p->pp * p->vpp)
            return;
        dtp_schedule_holder(p->schedule, p->pp, p->vpp, to, &rank, &chunk);
        k->peer = rank * x->replicas + k->rank % x->replicas;
    } else if (k->op != DTP_COMM_SEND_RECV && k->op != DTP_COMM_UNKNOWN &&
               (tp || strncmp(k->name, "dp ", 3) == 0)) {
        k->group_size = tp ? p->tp : p->dp;
        k->group_stride = tp ? 1 : p->tp;
        int inside = tp ? k->rank % p->tp : k->rank / p->tp % p->dp;
        k->group_first = k->rank - inside * k->group_stride;
    }
}

static uint32_t *slot_of(const struct run_tasks *x, const struct dtp_tasks_task *k, int stage,
                         bool backward) {
    int nstages = x->plan->pp * x->plan->vpp, replica = k->rank % x->replicas;
    if (stage < 0 || stage >= nstages || k->microbatch < 0 || k->microbatch >= x->nmicrobatches)
        return NULL;
    size_t at = ((size_t)backward * (size_t)nstages + (size_t)stage) * (size_t)x->nmicrobatches +
                (size_t)k->microbatch;
    return &x->sent[at * (size_t)x->replicas + (size_t)replica];
}

static void link_transfer(const struct run_tasks *x, uint32_t i, const struct dtp_tasks_task *k) {
    bool sends = k->category[0] == 'S', backward = k->category[1] == 'B';
    int stage = stage_of(x, k->rank, k->chunk);
    uint32_t *slot = slot_of(x, k, sends ? stage : backward ? stage + 1 : stage - 1, backward);
    if (slot && sends)
        *slot = i;
    else if (slot && *slot != DTP_TRACE_NONE)
        dtp_tasks_after(x->t, *slot);
}

/* Collectives inside an action are its own time; they wait for what it waited for. */
static void add_event(struct run_tasks *x, const struct dtp_run_event *e) {
    struct dtp_tasks_task k = describe(e);
    place(x, &k);
    uint32_t i = dtp_tasks_add(x->t, &k), before = x->last[e->rank];
    bool inside = before != DTP_TRACE_NONE && x->t->task[before].end_s > k.start_s;
    if (before != DTP_TRACE_NONE && !inside)
        dtp_tasks_after(x->t, before);
    if (k.op == DTP_COMM_SEND_RECV && k.category && strlen(k.category) == 2)
        link_transfer(x, i, &k);
    if (!inside)
        x->last[e->rank] = i;
}

struct dtp_tasks *dtp_cli_run_tasks(struct dtp_arena *a, const struct dtp_plan *plan,
                                    const struct dtp_run_result *r, const char *title) {
    struct run_tasks x = {.plan = plan, .replicas = plan->tp * plan->cp * plan->dp};
    size_t n = r->nevents;
    x.nmicrobatches = dtp_plan_num_microbatches(plan);
    x.t = dtp_tasks_create(a, "run", title);
    x.last = DTP_NEW(a, uint32_t, (size_t)r->nranks + 1);
    memset(x.last, 0xff, ((size_t)r->nranks + 1) * sizeof *x.last);
    size_t slots =
        2 * (size_t)(plan->pp * plan->vpp) * (size_t)x.nmicrobatches * (size_t)x.replicas;
    x.sent = DTP_NEW(a, uint32_t, slots + 1);
    memset(x.sent, 0xff, (slots + 1) * sizeof *x.sent);
    const struct dtp_run_event **v = DTP_NEW(a, const struct dtp_run_event *, n + 1);
    for (int i = 0; i < r->nranks; i++)
        dtp_tasks_rank(x.t, i, dtp_arena_printf(a, "rank %d", i));
    for (size_t i = 0; i < n; i++)
        v[i] = &r->event[i];
    qsort(v, n, sizeof *v, by_start);
    for (size_t i = 0; i < n; i++)
        add_event(&x, v[i]);
    double step_s = r->steps > 0 ? r->step_s_each[r->steps - 1] : 0;
    double end_s = dtp_tasks_end_s(x.t);
    dtp_tasks_step(x.t, -1, "step", 0, step_s > end_s ? step_s : end_s);
    dtp_tasks_explain(x.t);
    return x.t;
}
