/* infer_kernels.c: votes, and what kernels and operators say of the sizes of a model. */
#include <stdlib.h>
#include <string.h>

#include "models/schedule/schedule.h"
#include "sim/base/text.h"
#include "traces/replay/analyse.h"
#include "traces/replay/infer_internal.h"
#include "traces/tasks/tasks.h"

/* ---- votes ---- */

void infer_vote(struct infer *x, enum dtp_infer_field field, int64_t value, double weight,
                const char *format, ...) {
    va_list args;
    x->vote = dtp_arena_room(x->a, x->vote, sizeof *x->vote, x->nvotes, &x->capacity);
    va_start(args, format);
    const char *evidence = dtp_arena_vprintf(x->a, format, args);
    va_end(args);
    for (size_t i = 0; i < x->nvotes; i++) /* the same evidence on several ranks counts once */
        if (x->vote[i].field == field && x->vote[i].value == value &&
            strcmp(x->vote[i].evidence, evidence) == 0)
            return;
    x->vote[x->nvotes++] = (struct infer_vote){field, value, weight, evidence};
}

/* Confidence of a value before the others are weighed: 1 - prod(1 - weight). */
static double support(const struct infer *x, enum dtp_infer_field field, int64_t value) {
    double doubt = 1;
    for (size_t i = 0; i < x->nvotes; i++)
        if (x->vote[i].field == field && x->vote[i].value == value)
            doubt *= 1 - x->vote[i].weight;
    return 1 - doubt;
}

const struct dtp_guess *infer_decide(struct infer *x, enum dtp_infer_field field) {
    struct dtp_guess *g = &x->out->at[field];
    double all = 0, best = 0;
    *g = (struct dtp_guess){.evidence = ""};
    for (size_t i = 0; i < x->nvotes; i++) {
        if (x->vote[i].field != field)
            continue;
        double s = support(x, field, x->vote[i].value);
        all += x->vote[i].weight;
        if (s > best) {
            best = s;
            g->known = true;
            g->value = x->vote[i].value;
        }
    }
    double agreeing = 0;
    struct dtp_str s = {.a = x->a};
    for (size_t i = 0; i < x->nvotes; i++) {
        const struct infer_vote *v = &x->vote[i];
        if (v->field != field || v->value != g->value)
            continue;
        agreeing += v->weight;
        dtp_str_printf(&s, "%s%s", s.n ? "; " : "", v->evidence);
    }
    for (size_t i = 0; i < x->nvotes; i++) {
        const struct infer_vote *v = &x->vote[i];
        if (v->field == field && v->value != g->value)
            dtp_str_printf(&s, "; but %lld by %s", (long long)v->value, v->evidence);
    }
    g->confidence = all > 0 ? best * agreeing / all : 0;
    g->evidence = s.at ? s.at : "";
    return g;
}

int64_t infer_value(const struct infer *x, enum dtp_infer_field field) {
    return x->out->at[field].known ? x->out->at[field].value : 0;
}

/* Parts of kernels' names, of PyTorch 1.13 to 2.9, cuDNN, FlashAttention, CK, Triton and vLLM. The first
 * that matches counts. */
static const struct {
    const char *part;
    enum infer_role role;
} roles[] = {{"dot_do_o", ROLE_ATTENTION_DOT},
             {"flash_fprop", ROLE_ATTENTION},
             {"flash_fwd", ROLE_ATTENTION},
             {"fmha_fwd", ROLE_ATTENTION},
             {"fmha_cutlassF", ROLE_ATTENTION},
             {"fmhaSm", ROLE_ATTENTION},
             {"attn_fwd", ROLE_ATTENTION},
             {"flash_bprop", ROLE_ATTENTION_BACKWARD},
             {"flash_bwd_dq_dk_dv", ROLE_ATTENTION_BACKWARD},
             {"fmha_cutlassB", ROLE_ATTENTION_BACKWARD},
             {"attn_bwd", ROLE_ATTENTION_BACKWARD},
             {"vectorized_gather_kernel", ROLE_GATHER},
             {"indexSelect", ROLE_GATHER},
             {"layer_norm_kernel", ROLE_NORM},
             {"rms_norm", ROLE_RMS},
             {"rsqrt_kernel", ROLE_RMS},
             {"mean_mul_pow_rsqrt", ROLE_RMS},
             {"silu_backward", ROLE_NONE},
             {"silu", ROLE_SILU},
             {"GeluBackward", ROLE_NONE},
             {"GeluCUDAKernel", ROLE_GELU},
             {"tanh_backward", ROLE_NONE},
             {"tanh_kernel", ROLE_TANH},
             {"LogSoftMaxForward", ROLE_LOSS_SOFTMAX},
             {"nll_loss_forward", ROLE_LOSS},
             {"vectorized_elementwise_kernel", ROLE_ADD},
             {"unrolled_elementwise_kernel", ROLE_CAST},
             {"cos_kernel", ROLE_ROPE},
             {"rotary", ROLE_ROPE},
             {"FusedAdam", ROLE_ADAM}};

static enum infer_role role_of(const char *name) {
    if (strstr(name, "nccl"))
        return ROLE_NONE;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (!strstr(name, roles[i].part))
            continue;
        bool add = roles[i].role == ROLE_ADD, cast = roles[i].role == ROLE_CAST;
        if (add && !strstr(name, "CUDAFunctor_add<c10::") && !strstr(name, "CUDAFunctor_add<c10"))
            continue;
        if (cast && !strstr(name, "direct_copy"))
            continue;
        return roles[i].role;
    }
    return ROLE_NONE;
}

/* "[16,1,1][64,1,1]" */
static void parse_shape(const char *text, struct infer_kernel *k) {
    char *at = (char *)(uintptr_t)text;
    for (int i = 0; i < 6; i++) {
        at += strspn(at, "[],");
        int64_t v = strtoll(at, &at, 10);
        if (i < 3)
            k->grid[i] = v;
        else
            k->block[i - 3] = v;
    }
}

static int by_kernel(const void *x, const void *y) {
    const struct dtp_trace_event *p = *(const struct dtp_trace_event *const *)x,
                                 *q = *(const struct dtp_trace_event *const *)y;
    if (p->name != q->name)
        return p->name < q->name ? -1 : 1;
    return p->shape < q->shape ? -1 : p->shape > q->shape;
}

/* ---- one step ---- */

bool infer_in_step(const struct infer_rank *q, const struct dtp_trace_event *e) {
    int64_t at_ns = e->start_ns;
    if (dtp_trace_is_work(e) && e->launch != DTP_TRACE_NONE)
        at_ns = dtp_trace_event(q->r, e->launch)->start_ns;
    else if (dtp_trace_is_work(e) && q->launched)
        return false;
    return at_ns >= q->from_ns && at_ns < q->to_ns;
}

struct step_size {
    uint64_t kernels;
    size_t step;
};
static int by_kernels(const void *x, const void *y) {
    const struct step_size *p = x, *q = y;
    if (p->kernels != q->kernels)
        return p->kernels < q->kernels ? -1 : 1;
    return p->step < q->step ? -1 : p->step > q->step;
}

static void choose_step(struct infer *x, struct infer_rank *q) {
    const struct dtp_trace_rank *r = q->r;
    const struct dtp_trace_step *step;
    size_t n;
    dtp_trace_steps(x->a, r, &step, &n);
    q->from_ns = INT64_MIN;
    q->to_ns = INT64_MAX;
    for (size_t i = 0; i < r->nevents && !q->launched; i++)
        q->launched = dtp_trace_is_work(dtp_trace_event(r, i)) &&
                      dtp_trace_event(r, i)->launch != DTP_TRACE_NONE;
    if (n < 2)
        return;
    struct step_size *v = DTP_NEW(x->a, struct step_size, n);
    for (size_t s = 0; s < n; s++) {
        q->from_ns = step[s].start_ns;
        q->to_ns = step[s].start_ns + step[s].dur_ns;
        v[s].step = s;
        for (size_t i = 0; i < r->nevents; i++) {
            const struct dtp_trace_event *e = dtp_trace_event(r, i);
            v[s].kernels += e->kind == DTP_TRACE_KERNEL && infer_in_step(q, e);
        }
    }
    qsort(v, n, sizeof *v, by_kernels);
    const struct dtp_trace_step *middle = &step[v[n / 2].step];
    q->from_ns = middle->start_ns;
    q->to_ns = middle->start_ns + middle->dur_ns;
}

static void count_kernels(struct infer *x, struct infer_rank *q) {
    const struct dtp_trace_rank *r = q->r;
    const struct dtp_trace_event **v =
        DTP_NEW(x->a, const struct dtp_trace_event *, r->nevents + 1);
    size_t n = 0;
    for (size_t i = 0; i < r->nevents; i++)
        if (dtp_trace_event(r, i)->kind == DTP_TRACE_KERNEL &&
            infer_in_step(q, dtp_trace_event(r, i)))
            v[n++] = dtp_trace_event(r, i);
    if (n > 1)
        qsort(v, n, sizeof *v, by_kernel);
    q->kernel = DTP_NEW(x->a, struct infer_kernel, n + 1);
    for (size_t i = 0, j; i < n; i = j) {
        struct infer_kernel *k = &q->kernel[q->nkernels++];
        for (j = i; j < n && by_kernel(&v[i], &v[j]) == 0; j++)
            k->n++;
        k->name = dtp_trace_name(r, v[i]->name);
        k->role = i > 0 && v[i]->name == v[i - 1]->name ? k[-1].role : role_of(k->name);
        if (v[i]->shape != DTP_TRACE_NONE)
            parse_shape(dtp_trace_name(r, v[i]->shape), k);
        q->count[k->role] += k->n;
    }
}

/* ---- the order of forwards and backwards ---- */

struct mark {
    int64_t start_ns;
    char what;
};
static int by_start(const void *x, const void *y) {
    const struct mark *p = x, *q = y;
    return p->start_ns < q->start_ns ? -1 : p->start_ns > q->start_ns;
}

static void find_order(struct infer *x, struct infer_rank *q) {
    const struct dtp_trace_rank *r = q->r;
    unsigned char *role = DTP_NEW(x->a, unsigned char, dtp_trace_nnames(r) + 1);
    struct mark *v = DTP_NEW(x->a, struct mark,
                             q->count[ROLE_ATTENTION] + q->count[ROLE_ATTENTION_BACKWARD] + 1);
    size_t n = 0;
    for (size_t i = 0; i < r->nevents; i++) {
        const struct dtp_trace_event *e = dtp_trace_event(r, i);
        if (e->kind != DTP_TRACE_KERNEL || !infer_in_step(q, e))
            continue;
        if (role[e->name] == 0)
            role[e->name] = (unsigned char)(1 + role_of(dtp_trace_name(r, e->name)));
        int what = role[e->name] - 1;
        if (what == ROLE_ATTENTION || what == ROLE_ATTENTION_BACKWARD)
            v[n++] = (struct mark){e->start_ns, what == ROLE_ATTENTION ? 'F' : 'B'};
    }
    qsort(v, n, sizeof *v, by_start);
    char *order = DTP_NEW(x->a, char, n + 1);
    for (size_t i = 0; i < n; i++)
        order[i] = v[i].what;
    q->order = order;
}

/* ---- attention ---- */

/* "..._64x128x128_4x1x1..." of cuDNN: the last of the three is the head dimension; "traits<64," of
 * FlashAttention: the first; "H64" of TensorRT-LLM's. */
static int64_t head_dim_of(const char *name) {
    const char *at = strstr(name, "kernel_traits<");
    if (at)
        return strtoll(at + strlen("kernel_traits<"), NULL, 10);
    at = strstr(name, "OBfloat16H");
    if (at)
        return strtoll(at + strlen("OBfloat16H"), NULL, 10);
    at = strstr(name, "knob_");
    at = at ? strchr(at + strlen("knob_"), '_') : NULL;
    if (!at)
        return 0;
    char *end;
    int64_t dim = 0;
    strtoll(at + 1, &end, 10);
    for (int i = 0; i < 2 && *end == 'x'; i++)
        dim = strtoll(end + 1, &end, 10);
    return *end == '_' ? dim : 0;
}

static void look_at_attention(struct infer_rank *q) {
    for (size_t i = 0; i < q->nkernels; i++) {
        const struct infer_kernel *k = &q->kernel[i];
        int64_t dim = k->role == ROLE_ATTENTION ? head_dim_of(k->name) : 0;
        if (dim > 0)
            q->head_dim = dim;
        if (k->role == ROLE_ATTENTION_DOT && k->grid[1] > 0) {
            bool cudnn = strstr(k->name, "compute_dot_do_o") != NULL;
            q->batch = k->grid[1];
            q->heads = k->grid[2];
            q->seq =
                cudnn ? k->grid[0] * 8 : 0; /* 8 queries a block; FlashAttention rounds to 128 */
        } else if (k->role == ROLE_ATTENTION && q->heads == 0 && k->grid[2] > 1 &&
                   strstr(k->name, "flash_fwd")) {
            q->batch = k->grid[1];
            q->heads = k->grid[2];
        }
    }
}

/* Rows that norms, the gather of token embeddings and the loss have in common. */
static void look_at_tokens(struct infer_rank *q) {
    for (size_t i = 0; i < q->nkernels; i++) {
        const struct infer_kernel *k = &q->kernel[i];
        bool rows = k->role == ROLE_LOSS_SOFTMAX || k->role == ROLE_NORM ||
                    (k->role == ROLE_GATHER && strstr(k->name, "vectorized_gather")) ||
                    (k->role == ROLE_RMS && strstr(k->name, "rms_norm"));
        if (rows && k->grid[0] > q->tokens)
            q->tokens = k->grid[0];
    }
}

void infer_look_at_kernels(struct infer *x) {
    x->rank = DTP_NEW(x->a, struct infer_rank, x->trace->nranks + 1);
    for (size_t r = 0; r < x->trace->nranks; r++) {
        struct infer_rank *q = &x->rank[r];
        q->r = &x->trace->rank[r];
        q->vocab_parts = 1;
        choose_step(x, q);
        count_kernels(x, q);
        find_order(x, q);
        look_at_attention(q);
        look_at_tokens(q);
    }
}

/* ---- kernels ---- */

/* A kernel over the hidden states of a microbatch: elements per block, or 0. PyTorch's vectorized
 * kernels take 512, 1024 or 2048 elements a block, by version and type. */
static int64_t per_block(const struct infer_rank *q, int64_t hidden) {
    uint64_t most = 0;
    int64_t found = 0;
    for (size_t i = 0; i < q->nkernels; i++) {
        const struct infer_kernel *k = &q->kernel[i];
        int64_t elements = q->tokens * hidden;
        if (k->role != ROLE_ADD || k->grid[0] == 0 || elements % k->grid[0] != 0)
            continue;
        int64_t each = elements / k->grid[0];
        if ((each == 512 || each == 1024 || each == 2048) && k->n > most) {
            most = k->n;
            found = each;
        }
    }
    return found;
}

static void vote_activation(struct infer *x, const struct infer_rank *q, int64_t hidden) {
    int64_t each = per_block(q, hidden), tp = infer_value(x, DTP_INFER_TP);
    const struct infer_kernel *best = NULL;
    for (size_t i = 0; i < q->nkernels; i++) {
        const struct infer_kernel *k = &q->kernel[i];
        bool acts = k->role == ROLE_SILU || k->role == ROLE_GELU || k->role == ROLE_TANH;
        if (acts && (!best || k->n > best->n))
            best = k;
    }
    if (!best)
        return;
    bool silu = best->role == ROLE_SILU;
    infer_vote(x, DTP_INFER_GATED, silu, 0.8, "the activation is %s",
               silu                      ? "SiLU"
               : best->role == ROLE_GELU ? "GELU"
                                         : "GELU by tanh");
    if (each > 0 && best->grid[0] * each % q->tokens == 0)
        infer_vote(x, DTP_INFER_FFN, best->grid[0] * each / q->tokens * (tp > 1 ? tp : 1), 0.8,
                   "the activation runs over tokens x %lld",
                   (long long)(best->grid[0] * each / q->tokens));
}

/* Logits are cast before the loss: 512 elements a block. */
static void vote_vocabulary(struct infer *x, const struct infer_rank *q) {
    enum { PER_BLOCK = 512 };
    int64_t most = 0;
    if (q->count[ROLE_LOSS] == 0 || q->tokens == 0)
        return;
    for (size_t i = 0; i < q->nkernels; i++)
        if (q->kernel[i].role == ROLE_CAST && q->kernel[i].grid[0] > most)
            most = q->kernel[i].grid[0];
    int64_t v = most * PER_BLOCK / q->tokens;
    if (v > 256 && v * q->tokens == most * PER_BLOCK)
        infer_vote(x, DTP_INFER_VOCAB, v * q->vocab_parts, 0.8,
                   "logits of tokens x %lld are cast for the loss%s", (long long)v,
                   q->vocab_parts > 1 ? ", in parts" : "");
}

static void vote_attention(struct infer *x, const struct infer_rank *q) {
    int64_t tp = infer_value(x, DTP_INFER_TP), all = q->heads * (tp > 1 ? tp : 1);
    if (q->head_dim > 0)
        infer_vote(x, DTP_INFER_HEAD_DIM, q->head_dim, 0.8, "name of the attention kernel");
    if (q->heads == 0)
        return;
    infer_vote(x, DTP_INFER_HEADS, all, 0.8, "%lld heads in the grid of an attention kernel%s",
               (long long)q->heads, tp > 1 ? ", times tp" : "");
    if (q->head_dim > 0)
        infer_vote(x, DTP_INFER_HIDDEN, all * q->head_dim, 0.6, "heads x head dimension");
    if (q->seq > 0)
        infer_vote(x, DTP_INFER_SEQ, q->seq, 0.8, "blocks of queries in the same grid");
    infer_vote(x, DTP_INFER_MICROBATCH, q->batch, 0.8, "sequences in the same grid");
}

static void vote_rest(struct infer *x, const struct infer_rank *q) {
    bool rms = q->count[ROLE_RMS] > 0, layer = q->count[ROLE_NORM] > 0;
    if (rms || layer)
        infer_vote(x, DTP_INFER_NORM, rms && !layer, 0.8,
                   rms && !layer ? "RMS norms" : "layer norms");
    if (q->count[ROLE_ROPE] > 0)
        infer_vote(x, DTP_INFER_ROPE, 1, 0.8, "kernels of rotary positions");
    for (size_t i = 0; i < q->nkernels; i++) {
        const struct infer_kernel *k = &q->kernel[i];
        if (k->role == ROLE_GATHER && q->tokens > 0 && k->grid[0] < q->tokens &&
            q->tokens % (k->grid[0] > 0 ? k->grid[0] : 1) == 0 && k->grid[0] >= 64) {
            infer_vote(x, DTP_INFER_ROPE, 0, 0.6, "a gather of %lld position rows",
                       (long long)k->grid[0]);
            infer_vote(x, DTP_INFER_SEQ, k->grid[0], 0.5, "rows of positions");
        }
        if (strstr(k->name, "c10::BFloat16") || strstr(k->name, "bf16"))
            infer_vote(x, DTP_INFER_DTYPE, DTP_BF16, 0.8, "kernels of bfloat16");
        else if (strstr(k->name, "c10::Half"))
            infer_vote(x, DTP_INFER_DTYPE, DTP_FP16, 0.5, "kernels of half precision");
    }
}

void infer_vote_kernels(struct infer *x) {
    for (size_t r = 0; r < x->trace->nranks; r++) {
        const struct infer_rank *q = &x->rank[r];
        vote_attention(x, q);
        vote_rest(x, q);
    }
    int64_t hidden = infer_decide(x, DTP_INFER_HIDDEN)->value;
    int64_t seq = infer_decide(x, DTP_INFER_SEQ)->value;
    for (size_t r = 0; r < x->trace->nranks; r++)
        if (hidden > 0 && per_block(&x->rank[r], hidden) > 0)
            infer_vote(x, DTP_INFER_HIDDEN, hidden, 0.5, "additions over tokens x %lld",
                       (long long)hidden);
    for (size_t r = 0; r < x->trace->nranks; r++) {
        const struct infer_rank *q = &x->rank[r];
        vote_vocabulary(x, q);
        if (hidden > 0 && q->tokens > 0)
            vote_activation(x, q, hidden);
        if (seq > 0 && q->tokens % seq == 0 && q->tokens > 0)
            infer_vote(x, DTP_INFER_MICROBATCH, q->tokens / seq, 0.6,
                       "%lld tokens in norms and losses", (long long)q->tokens);
    }
}

/* ---- operators ---- */

enum { MOST_INPUTS = 4, MOST_DIMS = 5 };
struct inputs {
    int64_t at[MOST_INPUTS][MOST_DIMS];
    int ndims[MOST_INPUTS], n;
};

/* "[[1,141,512],[512,512],[]]" */
static void parse_inputs(const char *text, struct inputs *out) {
    *out = (struct inputs){0};
    for (const char *at = text + 1; *at == '[' && out->n < MOST_INPUTS; out->n++) {
        for (at++; *at && *at != ']';) {
            char *end;
            int64_t v = strtoll(at, &end, 10);
            if (end == at)
                return;
            if (out->ndims[out->n] < MOST_DIMS)
                out->at[out->n][out->ndims[out->n]++] = v;
            at = end + (*end == ',');
        }
        at += *at == ']';
        at += *at == ',';
    }
}

struct op_row {
    const char *name;
    struct inputs in;
    uint64_t n;
};

/* Product of all but the last dimension. */
static int64_t rows_of(const struct inputs *in, int i) {
    int64_t rows = 1;
    for (int d = 0; d + 1 < in->ndims[i]; d++)
        rows *= in->at[i][d];
    return rows;
}
static int64_t last_of(const struct inputs *in, int i) {
    return in->ndims[i] > 0 ? in->at[i][in->ndims[i] - 1] : 0;
}

struct op_rows {
    struct op_row *at;
    size_t n, capacity;
};

static bool same_inputs(const struct inputs *x, const struct inputs *y) {
    return x->n == y->n && memcmp(x->ndims, y->ndims, sizeof x->ndims) == 0 &&
           memcmp(x->at, y->at, sizeof x->at) == 0;
}

/* Returns the row of an operator and its inputs, looked for among the latest; made where there is none. */
static size_t find_row(struct dtp_arena *a, struct op_rows *rows, const char *name,
                       const char *shape) {
    enum { LATEST = 64 };
    struct inputs in;
    parse_inputs(shape, &in);
    for (size_t k = rows->n; k-- > 0 && rows->n - k < LATEST;)
        if (rows->at[k].name == name && same_inputs(&in, &rows->at[k].in))
            return k;
    rows->at = dtp_arena_room(a, rows->at, sizeof *rows->at, rows->n, &rows->capacity);
    rows->at[rows->n] = (struct op_row){.name = name, .in = in};
    return rows->n++;
}

static size_t collect(struct infer *x, const struct infer_rank *q, struct op_row **out) {
    const struct dtp_trace_rank *r = q->r;
    struct op_rows rows = {0};
    for (size_t i = 0; i < r->nevents; i++) {
        const struct dtp_trace_event *e = dtp_trace_event(r, i);
        if (e->kind != DTP_TRACE_OP || e->shape == DTP_TRACE_NONE || !infer_in_step(q, e))
            continue;
        const char *name = dtp_trace_name(r, e->name);
        if (strncmp(name, "aten::", 6) != 0 && strncmp(name, "_C::", 4) != 0 &&
            strncmp(name, "c10d::", 6) != 0)
            continue;
        size_t row = find_row(x->a, &rows, name, dtp_trace_name(r, e->shape));
        rows.at[row].n++;
    }
    *out = rows.at;
    return rows.n;
}

static const struct op_row *find_op(const struct op_row *v, size_t n, const char *name) {
    const struct op_row *best = NULL;
    for (size_t i = 0; i < n; i++)
        if (strcmp(v[i].name, name) == 0 && (!best || v[i].n > best->n))
            best = &v[i];
    return best;
}

/* Ranks over which the vocabulary is divided: they gather logits of as many columns as the table has rows. */
static int64_t find_vocab_parts(struct infer *x, const struct op_row *v, size_t n, int64_t rows) {
    for (size_t i = 0; i < n; i++) {
        const struct inputs *in = &v[i].in;
        if (strcmp(v[i].name, "c10d::_allgather_base_") != 0 || in->n < 2 || last_of(in, 1) != rows)
            continue;
        int64_t whole = rows_of(in, 0) * last_of(in, 0), part = rows_of(in, 1) * last_of(in, 1);
        if (part <= 0 || whole % part != 0)
            continue;
        infer_vote(x, DTP_INFER_TP, whole / part, 0.85, "logits gathered from %lld parts",
                   (long long)(whole / part));
        return whole / part;
    }
    return 0;
}

static void vote_table(struct infer *x, struct infer_rank *q, const struct op_row *v, size_t n) {
    const struct op_row *table = NULL;
    for (size_t i = 0; i < n; i++)
        if (strcmp(v[i].name, "aten::embedding") == 0 && v[i].in.ndims[0] == 2 &&
            (!table || v[i].in.at[0][0] > table->in.at[0][0]))
            table = &v[i];
    if (!table || table->in.at[0][0] <= 1000)
        return;
    int64_t rows = table->in.at[0][0], parts = find_vocab_parts(x, v, n, rows);
    if (parts > 1)
        q->vocab_parts = parts;
    bool unsure = parts == 0 && infer_value(x, DTP_INFER_TP) > 1 && q->vocab_parts == 1;
    infer_vote(x, DTP_INFER_HIDDEN, table->in.at[0][1], 0.85, "table of aten::embedding");
    infer_vote(x, DTP_INFER_VOCAB, rows * q->vocab_parts, unsure ? 0.5 : 0.85,
               "rows of the table of aten::embedding%s", q->vocab_parts > 1 ? ", in parts" : "");
}

static void vote_flash(struct infer *x, const struct op_row *v, size_t n, int64_t tp) {
    static const char *const names[] = {"aten::scaled_dot_product_attention",
                                        "aten::_scaled_dot_product_flash_attention",
                                        "aten::_scaled_dot_product_efficient_attention",
                                        "aten::_scaled_dot_product_cudnn_attention"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct op_row *o = find_op(v, n, names[i]);
        if (!o || o->in.n < 2 || o->in.ndims[0] != 4)
            continue;
        const int64_t *q = o->in.at[0], *k = o->in.at[1];
        infer_vote(x, DTP_INFER_MICROBATCH, q[0], 0.85, "queries of %s", names[i]);
        infer_vote(x, DTP_INFER_HEADS, q[1] * tp, 0.85, "queries of %s", names[i]);
        infer_vote(x, DTP_INFER_SEQ, q[2], 0.85, "queries of %s", names[i]);
        infer_vote(x, DTP_INFER_HEAD_DIM, q[3], 0.85, "queries of %s", names[i]);
        infer_vote(x, DTP_INFER_KV_HEADS, k[1] * tp, 0.7, "keys of %s", names[i]);
        return;
    }
}

/* Operators of attention, one a layer and microbatch: twice where the forward is recomputed. */
static void vote_attention_operators(struct infer *x, const struct op_row *v, size_t n) {
    static const char *const names[] = {"aten::scaled_dot_product_attention",
                                        "aten::_scaled_dot_product_flash_attention",
                                        "aten::_scaled_dot_product_efficient_attention",
                                        "aten::_scaled_dot_product_cudnn_attention"};
    uint64_t count = 0, m = (uint64_t)infer_decide(x, DTP_INFER_MICROBATCHES)->value;
    for (size_t i = 0; i < sizeof names / sizeof *names && count == 0; i++)
        for (size_t k = 0; k < n; k++)
            count += strcmp(v[k].name, names[i]) == 0 ? v[k].n : 0;
    m *= infer_decide(x, DTP_INFER_RECOMPUTE)->value > 0 ? 2 : 1;
    if (count > 0 && m > 0 && count % m == 0 && infer_decide(x, DTP_INFER_PP)->value <= 1)
        infer_vote(x, DTP_INFER_LAYERS, (int64_t)(count / m), 0.6,
                   "%llu operators of attention a step", (unsigned long long)count);
}

/* Products of one operator and shape whose inner size is the hidden size, or whose outer size is. */
static void vote_products(struct infer *x, const struct op_row *v, size_t n, int64_t tp) {
    int64_t hidden = infer_decide(x, DTP_INFER_HIDDEN)->value, most = 0;
    const char *name = find_op(v, n, "aten::linear") ? "aten::linear" : "aten::mm";
    bool linear = name[6] == 'l';
    for (size_t i = 0; i < n && hidden > 0; i++) {
        const struct inputs *in = &v[i].in;
        if (strcmp(v[i].name, name) != 0 || in->n < 2 || in->ndims[1] != 2)
            continue;
        int64_t inner = last_of(in, 0), outer = in->at[1][linear ? 0 : 1];
        if (outer == hidden && inner > hidden && inner <= 16 * hidden && inner > most)
            most = inner;
    }
    if (most > 0)
        infer_vote(x, DTP_INFER_FFN, most * tp, 0.8, "a product from %lld to the hidden size",
                   (long long)most);
}

/* Queries, keys and values from one product: (heads + 2 key-value heads) head dimension. */
static void vote_grouped(struct infer *x, const struct op_row *v, size_t n, int64_t tp) {
    const struct op_row *rope = find_op(v, n, "_C::rotary_embedding");
    if (!rope || rope->in.n < 3 || rope->in.ndims[1] != 2)
        return;
    int64_t q = last_of(&rope->in, 1), k = last_of(&rope->in, 2);
    int64_t dim = infer_decide(x, DTP_INFER_HEAD_DIM)->value;
    infer_vote(x, DTP_INFER_ROPE, 1, 0.8, "rotary positions");
    if (dim <= 0 || q % dim != 0 || k % dim != 0)
        return;
    infer_vote(x, DTP_INFER_HEADS, q / dim * tp, 0.8, "queries of width %lld", (long long)q);
    infer_vote(x, DTP_INFER_KV_HEADS, k / dim * tp, 0.8, "keys of width %lld", (long long)k);
}

void infer_vote_operators(struct infer *x) {
    for (size_t r = 0; r < x->trace->nranks; r++) {
        struct infer_rank *q = &x->rank[r];
        struct op_row *v;
        size_t n = collect(x, q, &v);
        int64_t tp = infer_decide(x, DTP_INFER_TP)->value;
        tp = tp > 1 ? tp : 1;
        if (q->head_dim > 0)
            infer_vote(x, DTP_INFER_HEAD_DIM, q->head_dim, 0.8, "name of the attention kernel");
        const struct op_row *norm = find_op(v, n, "aten::layer_norm");
        const struct op_row *rms = find_op(v, n, "_C::fused_add_rms_norm");
        const struct op_row *any = norm ? norm : rms;
        if (any && last_of(&any->in, 0) >= 64) {
            infer_vote(x, DTP_INFER_HIDDEN, last_of(&any->in, 0), 0.85, "inputs of %s", any->name);
            q->tokens = rows_of(&any->in, 0) > q->tokens ? rows_of(&any->in, 0) : q->tokens;
        }
        vote_table(x, q, v, n);
        vote_flash(x, v, n, tp);
        const struct op_row *mm = find_op(v, n, "aten::mm");
        if (!norm && !rms && mm && mm->in.ndims[1] == 2 && mm->in.at[1][0] == mm->in.at[1][1])
            infer_vote(x, DTP_INFER_HIDDEN, mm->in.at[1][0], 0.6, "square products are the most");
        vote_attention_operators(x, v, n);
        vote_products(x, v, n, tp);
        vote_grouped(x, v, n, tp);
    }
}
