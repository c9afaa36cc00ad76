/* infer_layout.c: groups and their collectives, microbatches and their order. */
#include <stdlib.h>
#include <string.h>

#include "models/schedule/schedule.h"
#include "sim/base/text.h"
#include "traces/replay/infer_internal.h"
#include "traces/replay/match.h"
#include "traces/tasks/tasks.h"

/* The order of a stage's F and B is this text. Attention has no part in weight gradients. */
static bool is_order(const struct dtp_schedule *s, int stage, const char *at) {
    for (uint32_t k = s->begin[stage]; k < s->begin[stage + 1]; k++) {
        if (s->action[k].kind == DTP_A_W)
            continue;
        if (*at++ != (s->action[k].kind == DTP_A_F ? 'F' : 'B'))
            return false;
    }
    return *at == '\0';
}

static int schedule_of(struct dtp_arena *a, const char *const *order, int pp, int vpp, int m) {
    for (int kind = 0; kind < DTP_NSCHEDULES; kind++) {
        struct dtp_schedule s;
        if (dtp_schedule_make(a, kind, pp, vpp, m, &s, NULL) != DTP_OK)
            continue;
        bool same = true;
        for (int stage = 0; stage < pp && same; stage++)
            same = !order[stage] || is_order(&s, stage, order[stage]);
        if (same)
            return kind;
    }
    return -1;
}

/* ---- the order of microbatches ---- */

/* Gathers of token rows, or losses: one a microbatch. */
static uint64_t microbatches_of(const struct infer_rank *q) {
    uint64_t gathers = 0;
    for (size_t i = 0; i < q->nkernels; i++) {
        const struct infer_kernel *k = &q->kernel[i];
        if (k->role == ROLE_GATHER && q->tokens > 0 && k->grid[0] == q->tokens)
            gathers += k->n;
    }
    uint64_t n = q->count[ROLE_LOSS] > 0 ? q->count[ROLE_LOSS] : gathers;
    return n;
}

static bool has_embedding(const struct infer_rank *q) {
    for (size_t i = 0; i < q->nkernels; i++)
        if (q->kernel[i].role == ROLE_GATHER)
            return true;
    return false;
}

/* Without the forwards that a recomputation repeats: one before each backward. */
static const char *without_recomputation(struct dtp_arena *a, const char *order) {
    char *out = DTP_NEW(a, char, strlen(order) + 1);
    size_t n = 0;
    for (const char *at = order; *at; at++)
        if (*at == 'B' || at[1] != 'B')
            out[n++] = *at;
    return out;
}

/* One letter a microbatch, from one a layer; NULL where runs are no multiples of the layers. */
static const char *by_microbatch(struct dtp_arena *a, const char *order, size_t layers) {
    size_t n = strlen(order), at = 0;
    char *out = DTP_NEW(a, char, n / layers + 2);
    for (size_t i = 0; i < n;) {
        size_t run = i;
        while (run < n && order[run] == order[i])
            run++;
        if ((run - i) % layers != 0)
            return NULL;
        for (size_t k = 0; k < (run - i) / layers; k++)
            out[at++] = order[i];
        i = run;
    }
    return out;
}

static uint64_t of(const char *order, char what) {
    uint64_t n = 0;
    for (; *order; order++)
        n += *order == what;
    return n;
}

static void vote_recomputation(struct infer *x, struct infer_rank *q, uint64_t m) {
    uint64_t f = of(q->order, 'F'), b = of(q->order, 'B');
    if (b == 0) {
        q->layers = m > 0 ? f / m : f;
        return;
    }
    bool twice = f == 2 * b;
    q->layers = m > 0 && b % m == 0 ? b / m : 0;
    uint64_t norms = q->count[ROLE_NORM] + q->count[ROLE_RMS];
    bool norms_too = m * q->layers > 0 && norms >= 3 * m * q->layers;
    if (twice || f == b)
        infer_vote(x, DTP_INFER_RECOMPUTE,
                   !twice      ? DTP_RECOMPUTE_NONE
                   : norms_too ? DTP_RECOMPUTE_FULL
                               : DTP_RECOMPUTE_SELECTIVE,
                   0.85, "%llu forward and %llu backward attention kernels a step",
                   (unsigned long long)f, (unsigned long long)b);
    if (twice)
        q->order = without_recomputation(x->a, q->order);
}

/* Sends and receives of the step: stages hand over to each other. */
static void count_transfers(struct infer *x, struct infer_rank *q) {
    struct dtp_comm_kernel *k;
    size_t n;
    dtp_trace_comm_kernels(x->a, q->r, &k, &n);
    for (size_t i = 0; i < n; i++)
        q->transfers += k[i].info.op == DTP_COMM_SEND_RECV &&
                        infer_in_step(q, dtp_trace_event(q->r, k[i].event));
}

static void vote_pipeline(struct infer *x, uint64_t m) {
    size_t n = x->trace->nranks, with = 0, ends = 0, hand_over = 0;
    for (size_t r = 0; r < n; r++) {
        hand_over += x->rank[r].transfers > 0;
        with += has_embedding(&x->rank[r]);
        ends += x->rank[r].count[ROLE_LOSS] > 0;
    }
    if (x->out->gpus == 1)
        infer_vote(x, DTP_INFER_PP, 1, 0.95, "a job of one rank");
    else if (with == n && (ends == n || ends == 0))
        infer_vote(x, DTP_INFER_PP, 1, 0.8, "each rank has the embedding%s",
                   ends ? " and the loss" : "");
    else if ((int)n == x->out->gpus && with > 0 && n % with == 0 && hand_over == n)
        infer_vote(x, DTP_INFER_PP, (int64_t)(n / with), 0.85,
                   "%zu of %zu ranks have the embedding, %zu the loss, all send or receive", with,
                   n, ends);
    int pp = (int)infer_decide(x, DTP_INFER_PP)->value;
    if (pp < 1 || m == 0)
        return;
    const char **order = DTP_NEW(x->a, const char *, (size_t)pp);
    uint64_t layers = 0;
    for (int s = 0; s < pp; s++) {
        struct infer_rank *q = &x->rank[(size_t)s * n / (size_t)pp];
        if (q->layers == 0)
            return;
        layers += q->layers;
        order[s] = by_microbatch(x->a, q->order, q->layers);
    }
    if ((int)n == x->out->gpus || pp == 1)
        infer_vote(x, DTP_INFER_LAYERS, (int64_t)layers, 0.9, "%llu attention layers on %d stage%s",
                   (unsigned long long)layers, pp, pp > 1 ? "s" : "");
    if (of(x->rank[0].order, 'B') == 0)
        return;
    int kind = schedule_of(x->a, order, pp, 1, (int)m);
    if (pp > 1 && kind >= 0)
        infer_vote(x, DTP_INFER_SCHEDULE, kind, 0.9, "order of the first stage %s",
                   order[0] ? order[0] : "?");
}

void infer_vote_order(struct infer *x) {
    uint64_t m = 0;
    for (size_t r = 0; r < x->trace->nranks; r++)
        count_transfers(x, &x->rank[r]);
    for (size_t r = 0; r < x->trace->nranks; r++) {
        uint64_t own = microbatches_of(&x->rank[r]);
        m = own > m ? own : m;
    }
    const struct dtp_guess *trains = infer_decide(x, DTP_INFER_TRAINS);
    if (m > 0)
        infer_vote(x, DTP_INFER_MICROBATCHES, (int64_t)m, 0.85,
                   "%llu gathers of tokens or losses a step", (unsigned long long)m);
    else if (trains->known && trains->value == 0)
        infer_vote(x, DTP_INFER_MICROBATCHES, (int64_t)(m = 1), 0.4, "forward only: taken as one");
    for (size_t r = 0; r < x->trace->nranks; r++)
        if (x->rank[r].order[0])
            vote_recomputation(x, &x->rank[r], m);
    if (x->trace->nranks > 0 && x->rank[0].order[0])
        vote_pipeline(x, m);
    infer_vote(x, DTP_INFER_VPP, 1, 0.5, "layers of a rank run as one chunk");
}

/* ---- collectives ---- */

struct use { /* one operation by one group with one size */
    enum dtp_comm_op op;
    const struct dtp_trace_comm *comm;
    int group_size;    /* 0: unknown */
    uint64_t elements; /* elements of the whole buffer */
    uint64_t n;
};

static size_t count_uses(struct infer *x, const struct infer_rank *q, struct use **out) {
    const struct dtp_trace_rank *r = q->r;
    struct dtp_comm_kernel *k;
    size_t n, nuses = 0;
    dtp_trace_comm_kernels(x->a, r, &k, &n);
    struct use *use = DTP_NEW(x->a, struct use, n + 1);
    for (size_t i = 0; i < n; i++) {
        const struct dtp_trace_comm *c = k[i].info.comm;
        if (!c || !infer_in_step(q, dtp_trace_event(r, k[i].event)))
            continue;
        uint64_t elements = c->in_elements > c->out_elements ? c->in_elements : c->out_elements;
        size_t at = 0;
        while (at < nuses && (use[at].op != k[i].info.op || use[at].elements != elements ||
                              strcmp(use[at].comm->group, c->group) != 0))
            at++;
        if (at == nuses)
            use[nuses++] = (struct use){k[i].info.op, c, k[i].info.group_size, elements, 0};
        use[at].n++;
    }
    *out = use;
    return nuses;
}

/* Parameters of a GPT layer, 12 h^2 + 13 h, solved for h; 0: no whole number. */
static int64_t gpt_hidden(uint64_t layer_elements) {
    for (int64_t h = 8; 12 * h * h <= (int64_t)layer_elements; h += 8)
        if ((uint64_t)(12 * h * h + 13 * h) == layer_elements)
            return h;
    return 0;
}

/* Gathered before use, reduced and scattered after it in the same size: parameters in shards. */
static void vote_shards(struct infer *x, const struct infer_rank *q, const struct use *use,
                        size_t n) {
    const struct use *layer = NULL, *root = NULL;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++) {
            if (use[i].op != DTP_COMM_REDUCE_SCATTER || use[j].op != DTP_COMM_ALL_GATHER ||
                use[i].elements != use[j].elements || use[j].n < use[i].n || use[i].group_size < 2)
                continue;
            if (!layer || use[i].n > layer->n) {
                root = layer;
                layer = &use[i];
            } else {
                root = &use[i];
            }
        }
    if (!layer)
        return;
    infer_vote(x, DTP_INFER_ZERO, 3, 0.9,
               "%llu elements all-gathered before use and reduce-scattered after it",
               (unsigned long long)layer->elements);
    infer_vote(x, DTP_INFER_DP, layer->group_size, 0.85, "group of the shards, %s",
               layer->comm->group_description[0] ? layer->comm->group_description
                                                 : layer->comm->group);
    infer_vote(x, DTP_INFER_LAYERS, (int64_t)layer->n, 0.6, "%llu equal units reduced a step",
               (unsigned long long)layer->n);
    int64_t h = gpt_hidden(layer->elements);
    if (h == 0)
        return;
    infer_vote(x, DTP_INFER_HIDDEN, h, 0.9, "a unit of 12 h^2 + 13 h = %llu parameters",
               (unsigned long long)layer->elements);
    infer_vote(x, DTP_INFER_FFN, 4 * h, 0.8, "the same unit");
    int64_t rows = root ? (int64_t)root->elements / h - 2 : 0; /* embeddings and the last norm */
    if (q->seq > 0 && rows > q->seq && (int64_t)root->elements == (rows + 2) * h)
        infer_vote(x, DTP_INFER_VOCAB, rows - q->seq, 0.7,
                   "the root unit of %llu parameters, less positions and the last norm",
                   (unsigned long long)root->elements);
}

/* Collectives of the size of activations, at least two a layer. */
static void vote_tensor(struct infer *x, const struct infer_rank *q, const struct use *use,
                        size_t n) {
    int64_t width = q->heads * q->head_dim;
    bool found = false;
    for (size_t i = 0; i < n; i++) {
        const struct use *u = &use[i];
        bool whole = q->tokens > 0 && u->elements % (uint64_t)q->tokens == 0;
        int64_t h = whole ? (int64_t)(u->elements / (uint64_t)q->tokens) : 0;
        bool often = q->layers > 0 && u->n >= 2 * q->layers;
        if (!often || u->group_size < 2 || h < width || h < 64 || h > 65536)
            continue;
        found = true;
        infer_vote(x, DTP_INFER_TP, u->group_size, 0.85,
                   "%llu collectives of tokens x %lld by a group of %d", (unsigned long long)u->n,
                   (long long)h, u->group_size);
        infer_vote(x, DTP_INFER_HIDDEN, h, 0.7, "their width");
        infer_vote(x, DTP_INFER_SEQUENCE_PARALLEL, u->op != DTP_COMM_ALL_REDUCE, 0.8, "they are %s",
                   u->op == DTP_COMM_ALL_REDUCE ? "all-reduces" : "gathers");
    }
    for (size_t i = 0; i < q->nkernels; i++) { /* all-reduces that are not NCCL's */
        const struct infer_kernel *k = &q->kernel[i];
        bool own = strstr(k->name, "multimem_all_reduce") || strstr(k->name, "cross_device_reduce");
        if (!own || q->layers == 0 || k->n < 2 * q->layers || q->r->world_size < 2)
            continue;
        found = true;
        infer_vote(x, DTP_INFER_TP, q->r->world_size, 0.6,
                   "%llu all-reduces by a kernel of their own, %llu layers, a world of %d",
                   (unsigned long long)k->n, (unsigned long long)q->layers, q->r->world_size);
        infer_vote(x, DTP_INFER_SEQUENCE_PARALLEL, 0, 0.6, "they are all-reduces");
    }
    if (!found && q->layers > 0)
        infer_vote(x, DTP_INFER_TP, 1, 0.7, "no collectives of activations");
}

/* A loss over a divided vocabulary reduces one number a token: the maximum, the target's logit, the sum. */
static void find_divided_loss(struct infer_rank *q, const struct use *use, size_t n) {
    for (size_t i = 0; i < n && q->tokens > 0; i++)
        if (use[i].op == DTP_COMM_ALL_REDUCE && use[i].elements == (uint64_t)q->tokens &&
            use[i].n >= 2 && use[i].group_size > 1)
            q->vocab_parts = use[i].group_size;
}

static void vote_replicas(struct infer *x, const struct use *use, size_t n) {
    uint64_t reduced = 0;
    int group_size = 0;
    for (size_t i = 0; i < n; i++)
        if (use[i].op == DTP_COMM_ALL_REDUCE && use[i].elements > 1024) {
            reduced += use[i].elements * use[i].n;
            group_size = use[i].group_size;
        }
    if (reduced > 0 && infer_decide(x, DTP_INFER_TP)->value <= 1 &&
        !infer_decide(x, DTP_INFER_ZERO)->known) {
        if (group_size > 0)
            infer_vote(x, DTP_INFER_DP, group_size, 0.6,
                       "%llu elements all-reduced by a group of %d", (unsigned long long)reduced,
                       group_size);
        infer_vote(x, DTP_INFER_ZERO, 0, 0.6, "gradients are all-reduced whole");
    }
}

/* Names of the process groups: "mesh_dp", "TENSOR_MODEL_PARALLEL_GROUP". */
static void vote_names(struct infer *x, const struct dtp_trace_rank *r) {
    static const struct {
        const char *word;
        enum dtp_infer_field field;
    } words[] = {{"mesh_dp", DTP_INFER_DP},
                 {"mesh_tp", DTP_INFER_TP},
                 {"mesh_pp", DTP_INFER_PP},
                 {"mesh_fsdp", DTP_INFER_DP},
                 {"DATA_PARALLEL_GROUP", DTP_INFER_DP},
                 {"TENSOR_MODEL_PARALLEL_GROUP", DTP_INFER_TP},
                 {"PIPELINE_MODEL_PARALLEL_GROUP", DTP_INFER_PP},
                 {"tp:", DTP_INFER_TP},
                 {"dp:", DTP_INFER_DP},
                 {"pp:", DTP_INFER_PP}};
    for (size_t g = 0; g < r->ngroups; g++)
        for (size_t w = 0; w < sizeof words / sizeof *words; w++)
            if (r->group[g].size > 0 &&
                (strstr(r->group[g].description, words[w].word) == r->group[g].description))
                infer_vote(x, words[w].field, r->group[g].size, 0.6, "a group named %s of %d",
                           r->group[g].description, r->group[g].size);
}

void infer_vote_collectives(struct infer *x) {
    for (size_t r = 0; r < x->trace->nranks; r++) {
        struct use *use;
        size_t n = count_uses(x, &x->rank[r], &use);
        vote_names(x, x->rank[r].r);
        vote_shards(x, &x->rank[r], use, n);
        vote_tensor(x, &x->rank[r], use, n);
        find_divided_loss(&x->rank[r], use, n);
        vote_replicas(x, use, n);
    }
    infer_decide(x, DTP_INFER_TP);
}

/* ---- the framework ---- */

static const struct {
    const char *part, *framework;
} marks[] = {{"transformer_engine", "megatron-core"},      {"megatron", "megatron-core"},
             {"deepspeed", "megatron-deepspeed"},          {"FSDP::", "torch-fsdp2"},
             {"FullyShardedDataParallel", "torch-fsdp1"},  {"nanotron", "nanotron"},
             {"DistributedDataParallel", "torch-ddp-bf16"}};
enum { NMARKS = sizeof marks / sizeof *marks };

/* The first mark before `best` that the name has, or best. */
static size_t mark_in(const char *name, size_t best) {
    for (size_t k = 0; k < best; k++)
        if (strstr(name, marks[k].part))
            return k;
    return best;
}

void infer_find_framework(struct infer *x) {
    size_t best = NMARKS;
    for (size_t r = 0; r < x->trace->nranks; r++) {
        const struct dtp_trace_rank *q = &x->trace->rank[r];
        for (uint32_t i = 0; i < dtp_trace_nnames(q); i++) {
            size_t mark = mark_in(dtp_trace_name(q, i), best);
            if (mark < best)
                x->out->framework_evidence = dtp_trace_name(q, i);
            best = mark;
        }
    }
    if (best < NMARKS) {
        x->out->framework = marks[best].framework;
        return;
    }
    if (infer_decide(x, DTP_INFER_TRAINS)->known && infer_value(x, DTP_INFER_TRAINS) == 0)
        return; /* the frameworks are those of training */
    bool pipeline = infer_decide(x, DTP_INFER_PP)->value > 1;
    bool tensor = infer_decide(x, DTP_INFER_TP)->value > 1;
    x->out->framework = pipeline ? "torch-pp" : tensor ? "torch-tp" : "torch-ddp-bf16";
    x->out->framework_evidence = "operators of PyTorch, nothing else is named";
}
