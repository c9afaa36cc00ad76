#include "runtime/parameters.h"

#include <math.h>
#include <string.h>

#include "models/ops/op_native.h"
#include "models/schedule/schedule.h"
#include "sim/base/mix.h"

/* The other way round of dtp_layout_rank(). */
static void coords(const struct dtp_plan *p, int rank, int *t, int *d, int *s) {
    *t = rank % p->tp;
    *d = rank / p->tp % p->dp;
    *s = rank / (p->tp * p->dp);
}

int dtp_layout_rank(const struct dtp_plan *p, int t, int d, int s) {
    return t + p->tp * (d + p->dp * s);
}

enum dtp_status dtp_layout_supports(const struct dtp_model *m, struct dtp_err *err) {
    const struct {
        bool lacks;
        const char *what;
    } rule[] = {
        {m->nconvs > 0 || m->image > 0, "images"},
        {m->moe.experts > 0, "experts"},
        {m->mla.kv_lora_rank > 0, "latent attention"},
        {!m->causal, "attention without a causal mask"},
        {m->position == DTP_POS_ALIBI, "ALiBi"},
        {m->parallel_block, "parallel attention and MLP"},
        {m->qk_norm, "norms of queries and keys"},
        {m->embedding_norm || m->token_types > 0, "a norm or types at the embedding"},
        {m->mlm_head || m->nsp_head || m->head_bias || m->classes > 0, "its head"},
        {m->sliding_window > 0, "a sliding window"},
        {m->mtp_layers > 0, "multi-token prediction"},
        {m->layer_norms != 0 && m->layer_norms != 2, "its norms per layer"},
        {!m->final_norm, "the lack of a final norm"},
        {m->gated_ffn && m->activation != DTP_ACT_SILU, "a gate other than SiLU"},
        {!m->gated_ffn && m->activation != DTP_ACT_GELU && m->activation != DTP_ACT_RELU,
         "its activation"},
        {m->position == DTP_POS_ROPE && m->head_dim % 2 != 0, "RoPE with an odd head_dim"},
    };
    for (size_t i = 0; i < sizeof rule / sizeof rule[0]; i++)
        if (rule[i].lacks)
            return dtp_fail(err, DTP_EUNSUPPORTED,
                            "%s is predicted, not runnable here: the runtime does not have %s",
                            m->name && m->name[0] ? m->name : "this model", rule[i].what);
    return DTP_OK;
}

static struct dtp_dims dims_of(const struct dtp_model *m, const struct dtp_plan *p, int seq,
                               int t) {
    struct dtp_dims d = {.batch = p->microbatch_size,
                         .seq = seq,
                         .hidden = m->hidden,
                         .head_dim = m->head_dim,
                         .heads = m->heads / p->tp,
                         .kv_heads = m->kv_heads >= p->tp ? m->kv_heads / p->tp : 1,
                         .kv_copies = m->kv_heads >= p->tp ? 1 : p->tp / m->kv_heads,
                         .ffn = m->ffn / p->tp,
                         .vocab = dtp_native_vocab(m, p->tp, p->dtype)};
    d.tokens = d.batch * d.seq;
    d.local_tokens = p->sequence_parallel ? d.tokens / p->tp : d.tokens;
    d.q_width = d.heads * d.head_dim;
    d.kv_width = d.kv_heads * d.head_dim;
    d.qkv_width = d.q_width + 2 * d.kv_width;
    d.up_width = m->gated_ffn ? 2 * d.ffn : d.ffn;
    d.vocab_first = t * d.vocab;
    int64_t left = m->vocab - d.vocab_first;
    d.vocab_valid = left < 0 ? 0 : left < d.vocab ? left : d.vocab;
    return d;
}

/* ---- the parameters of a unit ---- */

struct build {
    struct dtp_arena *a;
    const struct dtp_model *m;
    const struct dtp_plan *p;
    const struct dtp_layout *l;
    struct dtp_unit *u;
};

enum cut { WHOLE, BY_ROWS, BY_COLS };

/* A block of a global [rows, cols] matrix, cut over tp / copies parts. */
static struct dtp_param *add(const struct build *b, int id, const char *name, enum cut cut,
                             const int64_t shape[2], int copies) {
    struct dtp_param *x = &b->u->param[id];
    int parts = cut == WHOLE ? 1 : b->p->tp / copies, part = b->l->tp_rank / copies % parts;
    if (cut == WHOLE)
        copies = b->p->tp;
    *x = (struct dtp_param){.rows = shape[0],
                            .cols = shape[1],
                            .global_rows = shape[0],
                            .global_cols = shape[1],
                            .tp_copies = copies};
    x->name = b->u->layer >= 0 ? dtp_arena_printf(b->a, "layers.%d.%s", b->u->layer, name) : name;
    if (cut == BY_ROWS) {
        /* each rank takes so many rows of the vocabulary that rows of logits are aligned */
        x->rows = id == DTP_P_TABLE ? b->l->dims.vocab : (shape[0] + parts - 1) / parts;
        x->row0 = part * x->rows;
    } else if (cut == BY_COLS) {
        x->cols = shape[1] / parts;
        x->col0 = part * x->cols;
    }
    int64_t left = x->global_rows - x->row0;
    x->valid_rows = left < 0 ? 0 : left < x->rows ? left : x->rows;
    x->n = x->rows * x->cols;
    x->at = b->u->used_n;
    b->u->used_n += x->n;
    return x;
}

/* GPT-2's initial values: 0.02, projections into the residual stream divided by sqrt(2 layers). */
static const double usual_std = 0.02;

static void add_matrix(const struct build *b, int id, const char *name, enum cut cut, int64_t rows,
                       int64_t cols) {
    struct dtp_param *x = add(b, id, name, cut, (const int64_t[2]){rows, cols}, 1);
    x->decay = true;
    x->init_std = cut == BY_COLS ? usual_std / sqrt(2.0 * b->m->layers) : usual_std;
}

/* Keys and values: fewer heads than tp ranks are held by several. */
static void add_kv(const struct build *b, int id, const char *name, bool matrix) {
    int64_t rows = (int64_t)b->m->kv_heads * b->m->head_dim;
    const int64_t shape[2] = {rows, matrix ? b->m->hidden : 1};
    struct dtp_param *x = add(b, id, name, BY_ROWS, shape, b->l->dims.kv_copies);
    x->decay = matrix;
    x->init_std = matrix ? usual_std : 0;
    x->head_partial = b->l->dims.kv_copies > 1;
}

static void add_bias(const struct build *b, int id, const char *name, enum cut cut, int64_t rows) {
    (void)add(b, id, name, cut, (const int64_t[2]){rows, 1}, 1);
}

static void add_norm(const struct build *b, int id, const char *name, const char *bias_name) {
    struct dtp_param *x = add(b, id, name, WHOLE, (const int64_t[2]){b->m->hidden, 1}, 1);
    x->init_std = -1;
    x->sequence_partial = true;
    if (b->m->norm != DTP_NORM_LAYER || !b->m->norm_bias)
        return;
    x = add(b, id + 1, bias_name, WHOLE, (const int64_t[2]){b->m->hidden, 1}, 1);
    x->sequence_partial = true;
}

static void fill_layer(const struct build *b) {
    const struct dtp_model *m = b->m;
    int64_t h = m->hidden, q = (int64_t)m->heads * m->head_dim, f = m->ffn;
    add_norm(b, DTP_P_NORM1, "norm1.weight", "norm1.bias");
    add_matrix(b, DTP_P_Q, "attention.q.weight", BY_ROWS, q, h);
    add_kv(b, DTP_P_K, "attention.k.weight", true);
    add_kv(b, DTP_P_V, "attention.v.weight", true);
    if (m->attention_bias || m->qkv_bias) {
        add_bias(b, DTP_P_Q_BIAS, "attention.q.bias", BY_ROWS, q);
        add_kv(b, DTP_P_K_BIAS, "attention.k.bias", false);
        add_kv(b, DTP_P_V_BIAS, "attention.v.bias", false);
    }
    add_matrix(b, DTP_P_OUT, "attention.out.weight", BY_COLS, h, q);
    if (m->attention_bias)
        add_bias(b, DTP_P_OUT_BIAS, "attention.out.bias", WHOLE, h);
    add_norm(b, DTP_P_NORM2, "norm2.weight", "norm2.bias");
    if (m->gated_ffn)
        add_matrix(b, DTP_P_GATE, "mlp.gate.weight", BY_ROWS, f, h);
    add_matrix(b, DTP_P_UP, "mlp.up.weight", BY_ROWS, f, h);
    if (m->mlp_bias && m->gated_ffn)
        add_bias(b, DTP_P_GATE_BIAS, "mlp.gate.bias", BY_ROWS, f);
    if (m->mlp_bias)
        add_bias(b, DTP_P_UP_BIAS, "mlp.up.bias", BY_ROWS, f);
    add_matrix(b, DTP_P_DOWN, "mlp.down.weight", BY_COLS, h, f);
    if (m->mlp_bias)
        add_bias(b, DTP_P_DOWN_BIAS, "mlp.down.bias", WHOLE, h);
}

static void fill_table(const struct build *b, const char *name) {
    struct dtp_param *x =
        add(b, DTP_P_TABLE, name, BY_ROWS, (const int64_t[2]){b->m->vocab, b->m->hidden}, 1);
    x->decay = true;
    x->init_std = usual_std;
}

static void fill_positions(const struct build *b) {
    int64_t rows = b->m->max_positions > 0 ? b->m->max_positions : b->m->seq;
    struct dtp_param *x =
        add(b, DTP_P_TABLE, "positions.weight", WHOLE, (const int64_t[2]){rows, b->m->hidden}, 1);
    x->decay = true;
    x->init_std = usual_std;
    x->sequence_partial = true;
}

static void fill_unit(const struct build *b) {
    switch (b->u->kind) {
    case DTP_UNIT_TOKENS:
        fill_table(b, "tokens.weight");
        break;
    case DTP_UNIT_POSITIONS:
        fill_positions(b);
        break;
    case DTP_UNIT_LAYER:
        fill_layer(b);
        break;
    case DTP_UNIT_NORM:
        add_norm(b, DTP_P_NORM, "norm.weight", "norm.bias");
        break;
    case DTP_UNIT_HEAD:
        b->u->tied_copy = b->m->tied_embeddings;
        fill_table(b, b->u->tied_copy ? "tokens.weight" : "head.weight");
        break;
    }
    int64_t dp = b->p->dp;
    b->u->shard_n = (b->u->used_n + dp - 1) / dp;
    b->u->n = b->u->shard_n * dp;
}

/* ---- chunks ---- */

static struct dtp_unit *add_unit(struct build *b, struct dtp_chunk *c, enum dtp_unit_kind kind,
                                 int layer, int chunk) {
    struct dtp_unit *u = &c->unit[c->nunits];
    *u = (struct dtp_unit){.kind = kind, .layer = layer, .chunk = chunk, .index = c->nunits};
    c->nunits++;
    b->u = u;
    fill_unit(b);
    return u;
}

static void make_chunk(struct build *b, struct dtp_chunk *c, int chunk) {
    enum { OTHER_UNITS = 4 };
    const struct dtp_plan *p = b->p;
    c->stage = dtp_schedule_kinds[p->schedule].stage(p->pp, p->vpp, b->l->pp_rank, chunk);
    c->first = c->stage == 0;
    c->last = c->stage == p->pp * p->vpp - 1;
    c->nlayers = dtp_plan_layers(p, b->m, c->stage);
    c->unit = DTP_NEW(b->a, struct dtp_unit, (size_t)(c->nlayers + OTHER_UNITS));
    if (c->first)
        c->tokens = add_unit(b, c, DTP_UNIT_TOKENS, -1, chunk);
    if (c->first && b->m->position == DTP_POS_LEARNED)
        c->positions = add_unit(b, c, DTP_UNIT_POSITIONS, -1, chunk);
    c->layer = &c->unit[c->nunits];
    int first = dtp_plan_first_layer(p, b->m, c->stage);
    for (int i = 0; i < c->nlayers; i++)
        add_unit(b, c, DTP_UNIT_LAYER, first + i, chunk);
    if (!c->last)
        return;
    c->norm = add_unit(b, c, DTP_UNIT_NORM, -1, chunk);
    c->head =
        b->m->tied_embeddings && c->first ? c->tokens : add_unit(b, c, DTP_UNIT_HEAD, -1, chunk);
}

void dtp_layout_make(struct dtp_arena *a, const struct dtp_model *m, const struct dtp_plan *p,
                     int seq, int rank, struct dtp_layout *out) {
    *out = (struct dtp_layout){.nchunks = p->vpp};
    coords(p, rank, &out->tp_rank, &out->dp_rank, &out->pp_rank);
    out->dims = dims_of(m, p, seq, out->tp_rank);
    out->chunk = DTP_NEW(a, struct dtp_chunk, (size_t)p->vpp);
    struct build b = {.a = a, .m = m, .p = p, .l = out};
    for (int c = 0; c < p->vpp; c++)
        make_chunk(&b, &out->chunk[c], c);
}

/* ---- initial values ---- */

static uint64_t hash_name(const char *name) {
    uint64_t h = DTP_FNV_START;
    for (; *name; name++)
        h = dtp_fnv(h, (unsigned char)*name);
    return h;
}

/* As splitmix64 counts, so that 0 is no fixed point. */
static uint64_t mix(uint64_t x) {
    return dtp_mix(x + UINT64_C(0x9e3779b97f4a7c15));
}

/* Each uniform u = k / 2^16 has variance 1/12: four of them, 1/3. */
static float draw(uint64_t key, uint64_t index, double scale) {
    uint64_t bits = mix(key ^ mix(index));
    uint64_t sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
    return (float)(((double)sum + 2) / 65536.0 * scale - 2 * scale);
}

void dtp_param_init(const struct dtp_param *p, uint64_t seed, int64_t begin, int64_t n,
                    float *out) {
    uint64_t key = mix(seed) ^ hash_name(p->name);
    double scale = p->init_std * sqrt(3.0);
    for (int64_t i = 0; i < n; i++) {
        int64_t row = (begin + i) / p->cols, col = (begin + i) % p->cols;
        uint64_t index = (uint64_t)((p->row0 + row) * p->global_cols + p->col0 + col);
        if (row >= p->valid_rows)
            out[i] = 0;
        else if (p->init_std > 0)
            out[i] = draw(key, index, scale);
        else
            out[i] = p->init_std < 0 ? 1.0F : 0.0F;
    }
}
