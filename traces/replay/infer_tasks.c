/* infer_tasks.c: from a timeline that dtplan wrote, simulated or run: actions by name give the layout;
 * where operations are tasks (--detail op), their shapes give the model. */
#include <stdlib.h>
#include <string.h>

#include "models/schedule/schedule.h"
#include "traces/replay/infer_internal.h"
#include "traces/tasks/tasks.h"

struct action { /* actions of a rank stand in order */
    int chunk, microbatch;
    char what; /* F, B */
};

/* Returns the kind of an action's name, "0F3" or "1B0"; '\0': none. I counts as B: input gradients. */
static char what_of(const struct dtp_tasks_task *k) {
    const char *at = k->name + strspn(k->name, "0123456789");
    if (at == k->name || k->class != DTP_CLASS_COMPUTE || strspn(at + 1, "0123456789") == 0)
        return '\0';
    return *at == 'F' ? 'F' : *at == 'B' || *at == 'I' ? 'B' : '\0';
}

static bool is_backward(const struct dtp_tasks_task *k) {
    return strstr(k->name, " dX") || strstr(k->name, " dY") || strstr(k->name, " dW") ||
           strstr(k->name, "backward");
}

struct op_at {
    double start_s;
    uint32_t task;
};
static int by_op_start(const void *x, const void *y) {
    const struct op_at *p = x, *q = y;
    if (p->start_s != q->start_s)
        return p->start_s < q->start_s ? -1 : 1;
    return p->task < q->task ? -1 : p->task > q->task;
}

/* Actions of a rank in order. Parts of one are one. Operations of one chunk and microbatch in a row are an
 * action, too: the first time its forward, which ends where the backward of the same follows at once. */
static struct action *actions_of(struct infer *x, int rank, size_t *out_n) {
    const struct dtp_tasks *t = x->trace->tasks;
    struct op_at *v = DTP_NEW(x->a, struct op_at, (size_t)t->ntasks + 1);
    size_t n = 0, kept = 0;
    for (uint32_t i = 0; i < t->ntasks; i++)
        if (t->task[i].rank == rank && t->task[i].microbatch >= 0 && t->task[i].chunk >= 0 &&
            strcmp(t->task[i].stream, "compute") == 0)
            v[n++] = (struct op_at){t->task[i].start_s, i};
    qsort(v, n, sizeof *v, by_op_start);
    struct action *out = DTP_NEW(x->a, struct action, n + 1);
    for (size_t i = 0; i < n; i++) {
        const struct dtp_tasks_task *k = &t->task[v[i].task];
        struct action *last = kept > 0 ? &out[kept - 1] : NULL;
        bool same = last && last->chunk == k->chunk && last->microbatch == k->microbatch;
        char said = what_of(k);
        bool turns = same && last->what == 'F' && (said ? said == 'B' : is_backward(k));
        bool seen = said == 'B';
        for (size_t j = 0; j < kept && !seen && !same; j++)
            seen = out[j].chunk == k->chunk && out[j].microbatch == k->microbatch;
        if (!same || turns)
            out[kept++] = (struct action){k->chunk, k->microbatch, turns || seen ? 'B' : 'F'};
    }
    *out_n = kept;
    return out;
}

/* Returns true if the order of actions is that of dtp_schedule_make(). */
static bool is_order(const struct dtp_schedule *schedule, const struct action *const *order,
                     const size_t *n) {
    const struct dtp_schedule s = *schedule;
    for (int stage = 0; stage < s.pp; stage++) {
        size_t at = 0;
        for (uint32_t k = s.begin[stage]; k < s.begin[stage + 1]; k++) {
            const struct dtp_action *a = &s.action[k];
            if (a->kind == DTP_A_W)
                continue;
            char what = a->kind == DTP_A_F ? 'F' : 'B';
            if (at == n[stage] || order[stage][at].what != what ||
                order[stage][at].chunk != a->chunk ||
                order[stage][at].microbatch != (int)a->microbatch)
                return false;
            at++;
        }
        if (at != n[stage])
            return false;
    }
    return true;
}

/* Stages: ranks whose actions hand over to each other. A folded timeline has one rank a stage, its
 * number the stage's first; else stages are blocks of equal length. */
static int count_stages(const struct dtp_tasks *t) {
    int top = 0;
    bool *waits = DTP_NEW(t->a, bool, t->nranks + 1);
    for (uint32_t i = 0; i < t->ntasks; i++) {
        const struct dtp_tasks_task *k = &t->task[i];
        if (k->op != DTP_COMM_SEND_RECV)
            continue;
        for (size_t r = 0; r < t->nranks; r++)
            waits[r] = waits[r] || t->rank[r].rank == k->rank;
    }
    bool any = false;
    for (size_t r = 0; r < t->nranks; r++)
        any = any || waits[r];
    if (!any)
        return 1;
    /* the least distance between a sender and its receiver: the replicas of a stage */
    int least = 0;
    for (uint32_t i = 0; i < t->ntasks; i++) {
        const struct dtp_tasks_task *k = &t->task[i];
        int far = k->op == DTP_COMM_SEND_RECV && k->peer >= 0 ? abs(k->peer - k->rank) : 0;
        if (far > 0 && (least == 0 || far < least))
            least = far;
    }
    for (size_t r = 0; r < t->nranks; r++)
        top = t->rank[r].rank > top ? t->rank[r].rank : top;
    return least > 0 ? top / least + 1 : 1;
}

static void vote_schedule(struct infer *x, int pp) {
    struct dtp_tasks *t = x->trace->tasks;
    const struct action **order = DTP_NEW(x->a, const struct action *, (size_t)pp);
    size_t *n = DTP_NEW(x->a, size_t, (size_t)pp);
    int m = 0, vpp = 0;
    for (int s = 0; s < pp; s++) {
        int rank = t->rank[(size_t)s * t->nranks / (size_t)pp].rank;
        order[s] = actions_of(x, rank, &n[s]);
        for (size_t i = 0; i < n[s]; i++) {
            m = order[s][i].microbatch >= m ? order[s][i].microbatch + 1 : m;
            vpp = order[s][i].chunk >= vpp ? order[s][i].chunk + 1 : vpp;
        }
    }
    if (m == 0)
        return;
    infer_vote(x, DTP_INFER_MICROBATCHES, m, 0.99, "numbers of the actions");
    infer_vote(x, DTP_INFER_VPP, vpp, 0.99, "chunks of the actions");
    for (int kind = 0; kind < DTP_NSCHEDULES; kind++) {
        struct dtp_schedule s;
        if ((pp == 1 && kind != dtp_schedule_usual(1)) ||
            dtp_schedule_make(x->a, kind, pp, vpp, m, &s, NULL) != DTP_OK ||
            !is_order(&s, order, n))
            continue;
        infer_vote(x, DTP_INFER_SCHEDULE, kind, 0.99, "order of the actions on each stage");
        return;
    }
}

/* ---- groups and ZeRO ---- */

static void vote_groups(struct infer *x) {
    const struct dtp_tasks *t = x->trace->tasks;
    bool unshards = false, gathers = false, scatters = false, reduces = false;
    int dp = 0, tp = 0;
    for (uint32_t i = 0; i < t->ntasks; i++) {
        const struct dtp_tasks_task *k = &t->task[i];
        const char *what = k->category ? k->category : "";
        bool dp_task = strcmp(k->stream, "data parallel") == 0 || strcmp(k->stream, "dp") == 0;
        bool in_op = strcmp(what, "collective") == 0 && strncmp(k->name, "tp", 2) == 0;
        if (dp_task && k->group_size > dp)
            dp = k->group_size;
        if (in_op && k->group_size > tp)
            tp = k->group_size;
        if (!dp_task)
            continue;
        unshards = unshards || strcmp(what, "unshard") == 0;
        gathers = gathers || k->op == DTP_COMM_ALL_GATHER;
        scatters = scatters || k->op == DTP_COMM_REDUCE_SCATTER;
        reduces = reduces || k->op == DTP_COMM_ALL_REDUCE || k->op == DTP_COMM_REDUCE_SCATTER;
    }
    if (dp > 0)
        infer_vote(x, DTP_INFER_DP, dp, 0.95, "groups of the reductions");
    else if (!reduces)
        infer_vote(x, DTP_INFER_DP, 1, 0.9, "no reductions of gradients");
    if (tp > 0)
        infer_vote(x, DTP_INFER_TP, tp, 0.95, "groups of the collectives inside actions");
    int zero = unshards ? 3 : scatters || gathers ? 1 : 0;
    if (reduces || unshards)
        infer_vote(x, DTP_INFER_ZERO, zero, zero == 1 ? 0.6 : 0.9, "%s",
                   unshards ? "parameters are unsharded before use"
                   : zero   ? "gradients are scattered, parameters gathered (stage 1 or 2)"
                            : "gradients are all-reduced");
}

/* ---- shapes of operations ---- */

static void numbers(const char *shape, int64_t *out, int n) {
    char *at = (char *)(uintptr_t)shape;
    for (int i = 0; i < n; i++) {
        out[i] = strtoll(at, &at, 10);
        at += *at == 'x';
    }
}

static void vote_gemm(struct infer *x, const struct dtp_tasks_task *k, int64_t tp) {
    int64_t g[4] = {0}; /* batch, m, n, k */
    numbers(k->shape, g, 4);
    int64_t dim = infer_value(x, DTP_INFER_HEAD_DIM), heads = infer_value(x, DTP_INFER_HEADS);
    if (is_backward(k))
        return;
    if (strcmp(k->name, "qkv") == 0 && dim > 0 && g[2] * tp > heads * dim) {
        infer_vote(x, DTP_INFER_HIDDEN, g[3], 0.9, "inner size of qkv");
        infer_vote(x, DTP_INFER_KV_HEADS, (g[2] * tp / dim - heads) / 2, 0.9, "outer size of qkv");
    } else if (strcmp(k->name, "fc2") == 0 && g[2] == infer_value(x, DTP_INFER_HIDDEN)) {
        infer_vote(x, DTP_INFER_FFN, g[3] * tp, 0.9, "inner size of fc2");
    } else if (strcmp(k->name, "logits") == 0) {
        infer_vote(x, DTP_INFER_VOCAB, g[2] * tp, 0.9, "outer size of the head (as padded)");
    }
}

struct seen { /* operations of a stage */
    int64_t forward, backward, norms, microbatches;
};

/* Microbatches whose actions are all operations: what is cut in parts has none. */
static bool *find_whole(struct infer *x, int rank, int64_t m) {
    const struct dtp_tasks *t = x->trace->tasks;
    bool *whole = DTP_NEW(x->a, bool, (size_t)(m > 0 ? m : 1));
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < t->ntasks; i++) {
            const struct dtp_tasks_task *k = &t->task[i];
            if (k->rank != rank || k->microbatch < 0 || k->microbatch >= m)
                continue;
            if (pass == 0 && strcmp(k->name, "attention dX") == 0)
                whole[k->microbatch] = true;
            if (pass == 1 && what_of(k))
                whole[k->microbatch] = false;
        }
    return whole;
}

static struct seen look_at_stage(struct infer *x, int rank, int64_t m) {
    const struct dtp_tasks *t = x->trace->tasks;
    const bool *whole = find_whole(x, rank, m);
    struct seen s = {0};
    for (int64_t i = 0; i < m; i++)
        s.microbatches += whole[i];
    for (uint32_t i = 0; i < t->ntasks; i++) {
        const struct dtp_tasks_task *k = &t->task[i];
        if (k->rank != rank || k->microbatch < 0 || k->microbatch >= m || !whole[k->microbatch])
            continue;
        s.backward += strcmp(k->name, "attention dX") == 0;
        s.forward += strcmp(k->name, "attention") == 0;
        s.norms += strncmp(k->name, "norm", 4) == 0 && !is_backward(k);
    }
    return s;
}

static void vote_layers(struct infer *x, int pp, int64_t m) {
    const struct dtp_tasks *t = x->trace->tasks;
    int64_t layers = 0;
    struct seen all = {0};
    for (int s = 0; s < pp; s++) {
        struct seen own = look_at_stage(x, t->rank[(size_t)s * t->nranks / (size_t)pp].rank, m);
        layers += own.microbatches > 0 ? own.backward / own.microbatches : 0;
        all.forward += own.forward;
        all.backward += own.backward;
        all.norms += own.norms;
    }
    if (all.backward == 0)
        return;
    infer_vote(x, DTP_INFER_LAYERS, layers, 0.95, "backward attentions a microbatch");
    infer_vote(x, DTP_INFER_RECOMPUTE,
               all.forward == all.backward     ? DTP_RECOMPUTE_NONE
               : all.norms >= 3 * all.backward ? DTP_RECOMPUTE_FULL
                                               : DTP_RECOMPUTE_SELECTIVE,
               0.9, "%lld forward and %lld backward attentions, %lld norms", (long long)all.forward,
               (long long)all.backward, (long long)all.norms);
}

/* Votes by the names of operations. */
static void vote_kinds(struct infer *x) {
    const struct dtp_tasks *t = x->trace->tasks;
    bool rope = false, any = false, scatters = false, reduces = false;
    int64_t up[4] = {0}, down[4] = {0};
    for (uint32_t i = 0; i < t->ntasks; i++) {
        const struct dtp_tasks_task *k = &t->task[i];
        any = any || strcmp(k->name, "qkv") == 0;
        rope = rope || strncmp(k->name, "rope", 4) == 0;
        scatters = scatters || strcmp(k->name, "tp reduce-scatter") == 0;
        reduces = reduces || strcmp(k->name, "tp all-reduce") == 0;
        if (k->shape && strcmp(k->name, "fc1") == 0)
            numbers(k->shape, up, 4);
        if (k->shape && strcmp(k->name, "fc2") == 0)
            numbers(k->shape, down, 4);
    }
    if (!any)
        return;
    bool gated = up[2] == 2 * down[3];
    infer_vote(x, DTP_INFER_GATED, gated, 0.9, "outer size of fc1, inner of fc2");
    infer_vote(x, DTP_INFER_ROPE, rope, 0.9, "operations of the attention");
    infer_vote(x, DTP_INFER_NORM, gated, 0.6, "the family of the MLP");
    if (scatters || reduces)
        infer_vote(x, DTP_INFER_SEQUENCE_PARALLEL, scatters, 0.9, "collectives inside layers");
}

static void vote_shapes(struct infer *x, int64_t tp) {
    const struct dtp_tasks *t = x->trace->tasks;
    for (uint32_t i = 0; i < t->ntasks; i++) {
        const struct dtp_tasks_task *k = &t->task[i];
        int64_t g[5] = {0}; /* batch, heads, key-value heads, sequence, head dimension */
        if (!k->shape || !k->category || strcmp(k->category, "attention") != 0)
            continue;
        numbers(k->shape, g, 5);
        infer_vote(x, DTP_INFER_MICROBATCH, g[0], 0.95, "shape of the attention");
        infer_vote(x, DTP_INFER_HEADS, g[1] * tp, 0.95, "shape of the attention");
        infer_vote(x, DTP_INFER_SEQ, g[3], 0.95, "shape of the attention");
        infer_vote(x, DTP_INFER_HEAD_DIM, g[4], 0.95, "shape of the attention");
    }
    static const enum dtp_infer_field fields[] = {DTP_INFER_MICROBATCH, DTP_INFER_HEADS,
                                                  DTP_INFER_SEQ, DTP_INFER_HEAD_DIM};
    for (int pass = 0; pass < 2; pass++) { /* fc2 is told by the hidden size that qkv gives */
        for (size_t f = 0; f < sizeof fields / sizeof *fields; f++)
            infer_decide(x, fields[f]);
        infer_decide(x, DTP_INFER_HIDDEN);
        for (uint32_t i = 0; i < t->ntasks; i++)
            if (t->task[i].shape && t->task[i].category && strcmp(t->task[i].category, "gemm") == 0)
                vote_gemm(x, &t->task[i], tp);
    }
}

void infer_vote_tasks(struct infer *x) {
    struct dtp_tasks *t = x->trace->tasks;
    if (t->nranks == 0)
        return;
    int pp = count_stages(t);
    infer_vote(x, DTP_INFER_PP, pp, 0.95, "transfers between ranks");
    vote_schedule(x, pp);
    vote_groups(x);
    int top = t->rank[t->nranks - 1].rank;
    int64_t dp = infer_decide(x, DTP_INFER_DP)->value;
    int64_t replicas =
        pp > 1 ? top / (pp - 1) : (int64_t)t->nranks; /* a folded one has rank 0 only */
    bool folded = (int)t->nranks == pp;
    if (folded && pp > 1)
        x->out->gpus = (int)replicas * pp;
    else if (folded)
        x->out->gpus = (int)(dp > 0 ? dp : 1);
    if (pp > 1 && !folded)
        replicas = (int64_t)t->nranks / pp;
    if (dp > 0 && replicas % dp == 0 && (pp > 1 || !folded))
        infer_vote(x, DTP_INFER_TP, replicas / dp, 0.85, "ranks of a stage over its replicas");
    int64_t tp = infer_decide(x, DTP_INFER_TP)->value;
    tp = tp > 1 ? tp : 1;
    if (folded && pp == 1)
        x->out->gpus = (int)(tp * (dp > 0 ? dp : 1));
    vote_shapes(x, tp);
    vote_kinds(x);
    vote_layers(x, pp, infer_decide(x, DTP_INFER_MICROBATCHES)->value);
    infer_vote(x, DTP_INFER_TRAINS, 1, 0.9, "a step of training");
    x->out->framework = "";
    x->out->framework_evidence = "";
}
