#include "models/model/model_internal.h"

/* Defaults of a short description, in one place, and the checks of a whole one. */

#define MAX_PARAMS 4e18
#define MAX_PATCHES 1000         /* on a side */
#define TOKENS_PER_BATCH 4194304 /* default batch where the source has none: 4 Mi tokens */
#define IMAGES_PER_BATCH 1024

static void fill_texts(struct dtp_model *m) {
    m->name = m->name ? m->name : "";
    m->title = m->title ? m->title : m->name;
    m->source = m->source ? m->source : "";
}

static void fill_defaults(struct dtp_model *m) {
    fill_texts(m);
    if (m->kv_heads == 0)
        m->kv_heads = m->heads;
    if (m->head_dim == 0 && m->heads > 0 && m->mla.kv_lora_rank > 0)
        m->head_dim = m->mla.nope_head_dim + m->mla.rope_head_dim;
    if (m->head_dim == 0 && m->heads > 0 && m->hidden % m->heads == 0)
        m->head_dim = m->hidden / m->heads;
    if (m->ffn == 0) /* Llama 2023, section 2.2: 2/3 of 4 h, up to a multiple of 256 */
        m->ffn = m->gated_ffn ? (8 * m->hidden / 3 + 255) / 256 * 256 : 4 * m->hidden;
    if (m->layer_norms == 0)
        m->layer_norms = m->parallel_block ? 1 : 2;
    if (m->moe.experts > 0) {
        m->moe.ffn = m->moe.ffn ? m->moe.ffn : m->ffn;
        m->moe.layer_step = m->moe.layer_step ? m->moe.layer_step : 1;
        m->moe.top_k = m->moe.top_k ? m->moe.top_k : 1;
    }
    if (m->patch > 0 && m->seq == 0)
        m->seq = (m->image / m->patch) * (m->image / m->patch) + 1;
    if (m->seq == 0)
        m->seq = m->max_positions > 0 ? m->max_positions : 2048;
    if (m->max_positions == 0)
        m->max_positions = m->seq;
    if (m->global_batch == 0)
        m->global_batch = m->patch > 0                ? IMAGES_PER_BATCH
                          : m->seq < TOKENS_PER_BATCH ? TOKENS_PER_BATCH / m->seq
                                                      : 1;
}

static enum dtp_status finish_convs(struct dtp_model *m, struct dtp_err *err) {
    double params = 0;
    fill_texts(m);
    if (m->hidden == 0)
        m->hidden = m->conv[m->nconvs - 1].cout;
    m->image = m->image ? m->image : m->conv[0].in_size;
    m->seq = m->max_positions = 1;
    m->layer_norms = 0;
    m->global_batch = m->global_batch ? m->global_batch : IMAGES_PER_BATCH;
    if (m->heads > 0)
        return dtp_fail(err, DTP_EINPUT, "heads: a list of convolutions has no attention heads");
    for (int i = 0; i < m->nconvs; i++) {
        const struct dtp_conv *c = &m->conv[i];
        params += (double)c->repeat * c->cout * c->cin * c->kernel * c->kernel;
    }
    if (!(params < MAX_PARAMS))
        return dtp_fail(err, DTP_EINPUT, "convs: %.3g parameters are more than can be counted",
                        params);
    return dtp_model_check_ranges(m, err);
}

static enum dtp_status check_attention(const struct dtp_model *m, struct dtp_err *err) {
    if (m->head_dim < 1)
        return dtp_fail(err, DTP_EINPUT,
                        "heads: %d do not divide hidden %d; give \"head_dim\" if that is meant",
                        m->heads, m->hidden);
    if (m->heads % m->kv_heads != 0)
        return dtp_fail(err, DTP_EINPUT, "kv_heads: %d do not divide the %d heads", m->kv_heads,
                        m->heads);
    if (m->mla.kv_lora_rank > 0 &&
        (m->mla.nope_head_dim + m->mla.rope_head_dim < 1 || m->mla.v_head_dim < 1))
        return dtp_fail(err, DTP_EINPUT,
                        "mla: kv_lora_rank needs nope_head_dim or rope_head_dim, and v_head_dim");
    return DTP_OK;
}

static enum dtp_status check_size(const struct dtp_model *m, struct dtp_err *err) {
    double widest = (double)m->heads * m->head_dim * 4 + 3.0 * m->ffn +
                    3.0 * m->moe.ffn * ((double)m->moe.experts + m->moe.shared_experts) +
                    (double)m->heads * ((double)m->mla.nope_head_dim + m->mla.v_head_dim);
    double rank = (double)m->hidden + m->mla.q_lora_rank + m->mla.kv_lora_rank;
    double total = rank * (widest * m->layers + 2.0 * m->vocab + m->max_positions);
    if (!(total < MAX_PARAMS))
        return dtp_fail(err, DTP_EINPUT,
                        "layers, hidden, ffn, experts: about %.3g parameters are "
                        "more than can be counted",
                        total);
    return DTP_OK;
}

static enum dtp_status check_rest(const struct dtp_model *m, struct dtp_err *err) {
    if (m->moe.experts > 0 && (m->moe.top_k < 1 || m->moe.top_k > m->moe.experts))
        return dtp_fail(err, DTP_EINPUT, "moe.top_k: found %d, expected 1 to the %d experts",
                        m->moe.top_k, m->moe.experts);
    if (m->sliding_window == 0 && (m->full_attention_step > 0 || m->chunked_attention))
        return dtp_fail(err, DTP_EINPUT, "%s: there is no \"sliding_window\"",
                        m->chunked_attention ? "chunked_attention" : "full_attention_step");
    if (m->mtp_layers > 0 && (!m->causal || m->classes > 0))
        return dtp_fail(err, DTP_EINPUT, "mtp_layers: %d with a model that predicts no next token",
                        m->mtp_layers);
    if (m->mtp_layers > m->layers)
        return dtp_fail(err, DTP_EINPUT, "mtp_layers: found %d, expected at most the %d layers",
                        m->mtp_layers, m->layers);
    if (m->vocab < 1 && m->classes < 1)
        return dtp_fail(err, DTP_EINPUT, "missing key \"vocab\" (or \"classes\")");
    if (m->patch > 0 && (m->image < m->patch || m->image % m->patch != 0 || m->channels < 1))
        return dtp_fail(err, DTP_EINPUT,
                        "image: %d pixels with %d channels are not whole patches "
                        "of %d",
                        m->image, m->channels, m->patch);
    if (m->position == DTP_POS_LEARNED && m->seq > m->max_positions)
        return dtp_fail(err, DTP_EINPUT,
                        "seq: %d tokens are more than the %d learned positions (max_positions)",
                        m->seq, m->max_positions);
    return check_size(m, err);
}

/* What the defaults are computed from. */
static enum dtp_status check_given(const struct dtp_model *m, struct dtp_err *err) {
    const struct {
        const char *name;
        int v;
    } needed[] = {{"layers", m->layers}, {"hidden", m->hidden}, {"heads", m->heads}};
    for (int i = 0; i < 3; i++)
        if (needed[i].v < 1)
            return dtp_fail(err, DTP_EINPUT, "missing key \"%s\", expected 1 or more",
                            needed[i].name);
    if (m->patch > 0 && m->image / m->patch > MAX_PATCHES)
        return dtp_fail(err, DTP_EINPUT, "image: %d pixels are more than %d patches of %d",
                        m->image, MAX_PATCHES, m->patch);
    return dtp_model_check_ranges(m, err);
}

enum dtp_status dtp_model_finish(struct dtp_model *m, struct dtp_err *err) {
    if (m->nconvs > 0)
        return finish_convs(m, err);
    DTP_TRY(check_given(m, err));
    fill_defaults(m);
    DTP_TRY(check_attention(m, err));
    DTP_TRY(dtp_model_check_ranges(m, err));
    return check_rest(m, err);
}
