#include "models/model/model.h"

#include <math.h>

/* Parameters and forward FLOPs are counted over the same weight matrices: a matrix of n x k weights costs
 * 2 n k FLOPs per token. */

struct layer_weights {
    uint64_t attention;      /* weights of the attention's matrices */
    uint64_t attention_rest; /* its biases and inner norms */
    uint64_t dense, dense_rest;
    uint64_t expert, expert_rest; /* one routed or shared expert */
};

static uint64_t mul(int a, int b) {
    return (uint64_t)a * (uint64_t)b;
}

static uint64_t norm_size(const struct dtp_model *m, int width) {
    return m->norm == DTP_NORM_LAYER && m->norm_bias ? 2 * (uint64_t)width : (uint64_t)width;
}

/* Queries and keys/values have low rank, with a rotary part apart (DeepSeek-V2 2024, section 2.1). */
static void mla_weights(const struct dtp_model *m, struct layer_weights *w) {
    const struct dtp_mla *l = &m->mla;
    int qk = l->nope_head_dim + l->rope_head_dim;
    uint64_t query = mul(m->hidden, m->heads) * (uint64_t)qk;
    if (l->q_lora_rank > 0) {
        query = mul(m->hidden, l->q_lora_rank) + mul(l->q_lora_rank, m->heads) * (uint64_t)qk;
        w->attention_rest += (uint64_t)l->q_lora_rank;
    }
    uint64_t down = mul(m->hidden, l->kv_lora_rank + l->rope_head_dim);
    uint64_t up = mul(l->kv_lora_rank, m->heads) * (uint64_t)(l->nope_head_dim + l->v_head_dim);
    w->attention_rest += (uint64_t)l->kv_lora_rank;
    w->attention = query + down + up + mul(m->heads, l->v_head_dim) * (uint64_t)m->hidden;
}

static void attention_weights(const struct dtp_model *m, struct layer_weights *w) {
    if (m->mla.kv_lora_rank > 0) {
        mla_weights(m, w);
        return;
    }
    uint64_t q = mul(m->heads, m->head_dim), kv = mul(m->kv_heads, m->head_dim);
    w->attention = (uint64_t)m->hidden * (2 * q + 2 * kv);
    if (m->attention_bias || m->qkv_bias)
        w->attention_rest += q + 2 * kv;
    if (m->attention_bias)
        w->attention_rest += (uint64_t)m->hidden;
    if (m->qk_norm)
        w->attention_rest += 2 * norm_size(m, m->head_dim);
}

static struct layer_weights layer_weights(const struct dtp_model *m) {
    struct layer_weights w = {0};
    uint64_t ins = m->gated_ffn ? 2 : 1; /* matrices from h to f */
    uint64_t h = (uint64_t)m->hidden;
    attention_weights(m, &w);
    w.dense = (ins + 1) * mul(m->hidden, m->ffn);
    w.expert = (ins + 1) * mul(m->hidden, m->moe.ffn);
    if (m->mlp_bias) {
        w.dense_rest = ins * (uint64_t)m->ffn + h;
        w.expert_rest = ins * (uint64_t)m->moe.ffn + h;
    }
    return w;
}

bool dtp_model_layer_is_moe(const struct dtp_model *m, int layer) {
    return m->moe.experts > 0 && layer >= m->moe.dense_layers_first &&
           (layer + 1) % m->moe.layer_step == 0;
}

enum dtp_layer_kind dtp_model_layer_kind(const struct dtp_model *m, int layer) {
    if (layer >= m->layers)
        layer = m->layers - 1;
    bool moe = dtp_model_layer_is_moe(m, layer), window = m->full_attention_step > 0;
    if (window && (layer + 1) % m->full_attention_step != 0)
        return moe ? DTP_LAYER_MOE_WINDOW : DTP_LAYER_DENSE_WINDOW;
    return moe ? DTP_LAYER_MOE : DTP_LAYER_DENSE;
}

void dtp_model_count_kinds(const struct dtp_model *m, int from, int to, int n[DTP_NLAYER_KINDS]) {
    if (m->full_attention_step == 0 && (m->moe.experts == 0 || m->moe.layer_step == 1)) {
        int first = m->moe.dense_layers_first;
        bool moe = m->moe.experts > 0 && first < m->layers;
        int dense = !moe || first >= to ? to - from : first > from ? first - from : 0;
        n[DTP_LAYER_DENSE] += dense;
        n[DTP_LAYER_MOE] += to - from - dense;
        return;
    }
    for (int l = from; l < to; l++)
        n[dtp_model_layer_kind(m, l)]++;
}

static uint64_t conv_weights(const struct dtp_conv *c) {
    return mul(c->cout, c->cin / c->groups) * mul(c->kernel, c->kernel);
}

static uint64_t embedding_params(const struct dtp_model *m, int vocab) {
    uint64_t h = (uint64_t)m->hidden, n = 0;
    for (int i = 0; i < m->nconvs; i++) {
        const struct dtp_conv *c = &m->conv[i];
        uint64_t rest = (c->batch_norm ? 2 : 1) * (uint64_t)c->cout;
        n += (uint64_t)c->repeat * (conv_weights(c) + rest);
    }
    if (m->nconvs > 0)
        return n;
    n = (uint64_t)vocab * h + (uint64_t)m->token_types * h;
    if (m->patch > 0) /* projection with bias, and the class token */
        n += mul(m->patch, m->patch) * mul(m->channels, m->hidden) + 2 * h;
    if (m->position == DTP_POS_LEARNED)
        n += (uint64_t)m->max_positions * h;
    return n + (m->embedding_norm ? norm_size(m, m->hidden) : 0);
}

static uint64_t head_params(const struct dtp_model *m, int vocab) {
    uint64_t h = (uint64_t)m->hidden, n = 0;
    if (m->classes > 0)
        n += (h + 1) * (uint64_t)m->classes;
    else if (!m->tied_embeddings)
        n += h * (uint64_t)vocab;
    if (m->mlm_head)
        n += h * h + h + norm_size(m, m->hidden);
    if (m->mlm_head || m->head_bias)
        n += (uint64_t)vocab;
    if (m->nsp_head)
        n += h * h + h + 2 * h + 2;
    return n;
}

void dtp_model_params(const struct dtp_model *m, int vocab, struct dtp_param_counts *out) {
    struct layer_weights w = layer_weights(m);
    uint64_t h = (uint64_t)m->hidden, experts = (uint64_t)m->moe.experts;
    uint64_t common =
        w.attention + w.attention_rest + (uint64_t)m->layer_norms * norm_size(m, m->hidden);
    uint64_t expert = w.expert + w.expert_rest;
    uint64_t shared = common + experts * (h + (m->moe.router_bias ? 1 : 0)) +
                      (uint64_t)m->moe.shared_experts * expert + (m->moe.shared_gate ? h : 0);
    *out = (struct dtp_param_counts){
        .embedding = embedding_params(m, vocab),
        .head = head_params(m, vocab),
        .final_norm = m->final_norm ? norm_size(m, m->hidden) : 0,
        .mtp = m->mtp_layers > 0 ? 3 * norm_size(m, m->hidden) + 2 * h * h : 0,
    };
    for (int l = 0; m->nconvs == 0 && l < m->layers; l++)
        out->moe_layers += dtp_model_layer_is_moe(m, l) ? 1 : 0;
    out->dense_layers = m->nconvs > 0 ? 0 : m->layers - out->moe_layers;
    if (m->nconvs == 0)
        out->dense_layer = common + w.dense + w.dense_rest;
    if (out->moe_layers > 0) {
        out->moe_layer_experts = experts * expert;
        out->moe_layer = shared + out->moe_layer_experts;
        out->moe_layer_active = shared + (uint64_t)m->moe.top_k * expert;
    }
    uint64_t rest = out->embedding + out->head + out->final_norm +
                    (uint64_t)out->dense_layers * out->dense_layer;
    out->total = rest + (uint64_t)out->moe_layers * out->moe_layer;
    out->active = rest + (uint64_t)out->moe_layers * out->moe_layer_active;
}

static double conv_flops(const struct dtp_model *m) {
    double flops = 2.0 * m->hidden * m->classes;
    for (int i = 0; i < m->nconvs; i++) {
        const struct dtp_conv *c = &m->conv[i];
        flops += 2.0 * c->repeat * (double)conv_weights(c) * c->out_size * c->out_size;
    }
    return flops;
}

/* One head has s c pairs of queries and keys, where c counts the keys of the window or all keys. A causal mask
 * leaves out a triangle below the window's width, one for each chunk where the window is a chunk. */
static double attention_pairs(const struct dtp_model *m, int seq, bool window, bool masked) {
    bool cut = window && m->sliding_window < seq;
    double keys = cut ? m->sliding_window : seq;
    double triangles = cut && m->chunked_attention ? seq / keys : 1;
    return seq * keys - (masked ? triangles * keys * (keys - 1) / 2 : 0);
}

/* Scores and weighted values of all layers take 2 (d_qk + d_v) FLOPs a pair and head. */
static double attention_flops(const struct dtp_model *m, int seq,
                              const int of_kind[DTP_NLAYER_KINDS], bool masked) {
    double dims = 2 * m->head_dim;
    if (m->mla.kv_lora_rank > 0)
        dims = m->mla.nope_head_dim + m->mla.rope_head_dim + m->mla.v_head_dim;
    /* all layers have the window or none has it, unless their kinds say so */
    int apart = of_kind[DTP_LAYER_DENSE_WINDOW] + of_kind[DTP_LAYER_MOE_WINDOW];
    bool window = m->sliding_window > 0 && m->full_attention_step == 0;
    double pairs = attention_pairs(m, seq, window, masked) * (m->layers + m->mtp_layers - apart) +
                   attention_pairs(m, seq, true, masked) * apart;
    return 2 * pairs * m->heads * dims;
}

static double head_flops(const struct dtp_model *m, int seq) {
    double h = m->hidden, flops = 0;
    if (m->classes > 0)
        flops += 2 * h * m->classes;
    else
        flops += 2 * h * m->vocab * seq;
    if (m->mlm_head)
        flops += 2 * h * h * seq;
    if (m->nsp_head)
        flops += 2 * h * h + 2 * h * 2;
    if (m->patch > 0)
        flops += 2.0 * m->patch * m->patch * m->channels * h * (seq - 1);
    return flops;
}

static double forward_flops(const struct dtp_model *m, int seq, bool masked) {
    if (m->nconvs > 0)
        return conv_flops(m);
    struct layer_weights w = layer_weights(m);
    double moe_weights = (double)m->hidden * (m->moe.experts + (m->moe.shared_gate ? 1 : 0)) +
                         (double)w.expert * (m->moe.top_k + m->moe.shared_experts);
    int of[DTP_NLAYER_KINDS] = {0}, layers = m->layers + m->mtp_layers;
    dtp_model_count_kinds(m, 0, layers, of);
    int moe = of[DTP_LAYER_MOE] + of[DTP_LAYER_MOE_WINDOW];
    double per_token = 2.0 * (double)w.attention * layers + 2.0 * (double)w.dense * (layers - moe) +
                       2.0 * moe_weights * moe + 4.0 * m->hidden * m->hidden * m->mtp_layers;
    return per_token * seq + attention_flops(m, seq, of, masked) +
           head_flops(m, seq) * (1 + m->mtp_layers);
}

double dtp_model_forward_flops(const struct dtp_model *m, int seq) {
    return forward_flops(m, seq, false);
}

double dtp_model_causal_flops(const struct dtp_model *m, int seq) {
    return forward_flops(m, seq, m->causal);
}

double dtp_model_published_gap(const struct dtp_model *m) {
    enum { DIGIT = 10 };
    static const double tolerance = 0.02;
    double published = m->published_params, unit = 1;
    if (!(published >= 1))
        return 0;
    while (fmod(published, unit * DIGIT) == 0)
        unit *= DIGIT;
    struct dtp_param_counts n;
    dtp_model_params(m, m->vocab, &n);
    double gap = (double)n.total - published;
    bool rounded = fabs(gap) <= unit / 2 || fabs(gap) <= tolerance * published;
    return rounded ? 0 : gap / published;
}
