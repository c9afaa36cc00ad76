#include "models/model/model_internal.h"

#include <string.h>

#include "sim/base/text.h"

const char *const dtp_activation_names[] = {"gelu", "relu", "silu", "squared_relu", NULL};
const char *const dtp_norm_names[] = {"layer", "rms", NULL};
const char *const dtp_position_names[] = {"learned", "rope", "alibi", "none", NULL};

#define MAX_VOCAB 1e8

/* ---- families ---- */

struct family {
    const char *name;
    struct dtp_model m;
};

#define LAYER_NORM .norm = DTP_NORM_LAYER, .norm_bias = true
#define ALL_BIASES .attention_bias = true, .mlp_bias = true
#define DECODER .causal = true, .final_norm = true
#define SWIGLU .gated_ffn = true, .activation = DTP_ACT_SILU, .norm = DTP_NORM_RMS

/* Models of one family share these values; a model's file states the rest and may overrule any of it. */
static const struct family families[] = {
    {"gpt",
     {DECODER, LAYER_NORM, ALL_BIASES, .position = DTP_POS_LEARNED, .dropout = 0.1,
      .attention_dropout = 0.1, .tied_embeddings = true}},
    {"opt",
     {DECODER, LAYER_NORM, ALL_BIASES, .activation = DTP_ACT_RELU, .dropout = 0.1,
      .attention_dropout = 0.1, .position = DTP_POS_LEARNED, .tied_embeddings = true}},
    {"bloom",
     {DECODER, LAYER_NORM, ALL_BIASES, .position = DTP_POS_ALIBI, .tied_embeddings = true,
      .embedding_norm = true}},
    {"llama", {DECODER, SWIGLU, .position = DTP_POS_ROPE}},
    {"gemma",
     {DECODER, .gated_ffn = true, .norm = DTP_NORM_RMS, .position = DTP_POS_ROPE,
      .tied_embeddings = true}},
    {"mpt", {DECODER, .norm = DTP_NORM_LAYER, .position = DTP_POS_ALIBI, .tied_embeddings = true}},
    {"gptj",
     {DECODER, LAYER_NORM, .mlp_bias = true, .position = DTP_POS_ROPE, .parallel_block = true,
      .layer_norms = 1, .head_bias = true}},
    {"gpt_neox",
     {DECODER, LAYER_NORM, ALL_BIASES, .position = DTP_POS_ROPE, .parallel_block = true,
      .layer_norms = 2}},
    {"falcon",
     {DECODER, LAYER_NORM, .position = DTP_POS_ROPE, .parallel_block = true, .layer_norms = 2,
      .tied_embeddings = true}},
    {"nemotron",
     {DECODER, LAYER_NORM, .activation = DTP_ACT_SQUARED_RELU, .position = DTP_POS_ROPE}},
    {"bert",
     {LAYER_NORM, ALL_BIASES, .position = DTP_POS_LEARNED, .tied_embeddings = true,
      .embedding_norm = true, .token_types = 2, .mlm_head = true, .nsp_head = true, .dropout = 0.1,
      .attention_dropout = 0.1}},
    {"vit",
     {LAYER_NORM, ALL_BIASES, .position = DTP_POS_LEARNED, .final_norm = true, .channels = 3,
      .classes = 1000}},
    {"conv",
     {.position = DTP_POS_NONE, .activation = DTP_ACT_RELU, .channels = 3, .classes = 1000}},
};
#define NFAMILIES (sizeof families / sizeof families[0])

static const char *const family_names[NFAMILIES + 1] = {
    "gpt",      "opt",    "bloom",    "llama", "gemma", "mpt",  "gptj",
    "gpt_neox", "falcon", "nemotron", "bert",  "vit",   "conv", NULL};

enum dtp_status dtp_model_family(const char *family, struct dtp_model *out, struct dtp_err *err) {
    int i = dtp_name_index(family_names, family);
    if (i < 0)
        return dtp_unknown_name(err, DTP_EINPUT, "family", family, family_names, NFAMILIES, NULL);
    *out = families[i].m;
    return DTP_OK;
}

/* ---- the table of fields ---- */

struct model_doc {
    struct dtp_model m;
    int family;
    const struct dtp_json *aliases, *convs;
};

#define AT(member) offsetof(struct model_doc, m.member)
#define COUNT(name_, what)                                                                         \
    { #name_, DTP_FIELD_INT, AT(name_), .max = 1e6, .help = what }
#define FLAG(name_, what)                                                                          \
    { #name_, DTP_FIELD_BOOL, AT(name_), .help = what }
#define IN(type, name_, what)                                                                      \
    { #name_, DTP_FIELD_INT, offsetof(struct type, name_), .max = 1e6, .help = what }

static const struct dtp_field moe_fields[] = {
    IN(dtp_moe, experts, "routed experts per MoE layer, 0: dense model"),
    IN(dtp_moe, top_k, "routed experts that a token visits"),
    IN(dtp_moe, ffn, "hidden size of one expert"),
    IN(dtp_moe, shared_experts, "experts that every token visits"),
    {"shared_gate", DTP_FIELD_BOOL, offsetof(struct dtp_moe, shared_gate),
     .help = "sigmoid gate on the shared experts"},
    {"router_bias", DTP_FIELD_BOOL, offsetof(struct dtp_moe, router_bias),
     .help = "bias per expert in the router"},
    IN(dtp_moe, dense_layers_first, "first layers that keep the dense MLP"),
    IN(dtp_moe, layer_step, "every so many layers one is MoE"),
    {"capacity_factor", DTP_FIELD_DOUBLE, offsetof(struct dtp_moe, capacity_factor), .max = 1e3,
     .help = "capacity of an expert over its even share, 0: dropless"},
    {0}};

static const struct dtp_field mla_fields[] = {
    IN(dtp_mla, q_lora_rank, "rank of the queries' compression, 0: none"),
    IN(dtp_mla, kv_lora_rank, "rank of the keys' and values' compression, 0: no MLA"),
    IN(dtp_mla, nope_head_dim, "head size of queries and keys without positions"),
    IN(dtp_mla, rope_head_dim, "head size of queries and keys with rotary positions"),
    IN(dtp_mla, v_head_dim, "head size of the values"),
    {0}};

/* The first READ_ONLY rows exist in documents only; dtp_model_write starts after them. */
#define READ_ONLY 3
const struct dtp_field dtp_model_fields[] = {
    {"family", DTP_FIELD_ENUM, offsetof(struct model_doc, family), .names = family_names,
     .help = "sets the defaults of the flags below; gpt if absent"},
    {"aliases", DTP_FIELD_JSON, offsetof(struct model_doc, aliases), .help = "other names"},
    {"convs", DTP_FIELD_JSON, offsetof(struct model_doc, convs), .help = "list of convolutions"},
    {"name", DTP_FIELD_STRING, AT(name), .help = "the file's name if absent"},
    {"title", DTP_FIELD_STRING, AT(title), .help = "one line for people"},
    {"layers", DTP_FIELD_INT, AT(layers), .min = 1, .max = 2048, .required = true,
     .help = "transformer layers; stages of a convolutional network"},
    COUNT(hidden, "width h of the residual stream"),
    COUNT(heads, "attention heads"),
    COUNT(kv_heads, "heads of keys and values; heads if absent"),
    COUNT(head_dim, "size of a head; hidden / heads if absent"),
    COUNT(ffn, "hidden size of the MLP; 4 h if absent (8/3 h when gated)"),
    FLAG(gated_ffn, "SwiGLU or GeGLU: two matrices in, one out"),
    {"activation", DTP_FIELD_ENUM, AT(activation), .names = dtp_activation_names,
     .help = "non-linearity of the MLP"},
    {"norm", DTP_FIELD_ENUM, AT(norm), .names = dtp_norm_names, .help = "LayerNorm or RMSNorm"},
    {"position", DTP_FIELD_ENUM, AT(position), .names = dtp_position_names,
     .help = "how positions enter"},
    FLAG(attention_bias, "biases on all four projections"),
    FLAG(qkv_bias, "biases on queries, keys and values only"),
    FLAG(mlp_bias, "biases in the MLP"),
    FLAG(norm_bias, "LayerNorm has a bias"),
    FLAG(qk_norm, "norms of head_dim on queries and keys"),
    COUNT(layer_norms, "norms of width h per layer; 2, or 1 when parallel_block, if 0"),
    FLAG(tied_embeddings, "LM head and token table share their weights"),
    FLAG(embedding_norm, "norm after the embedding"),
    FLAG(final_norm, "norm before the head"),
    FLAG(causal, "a token sees earlier ones only"),
    FLAG(parallel_block, "attention and MLP side by side"),
    {"vocab", DTP_FIELD_INT, AT(vocab), .max = MAX_VOCAB,
     .help = "vocabulary as published, before padding"},
    {"seq", DTP_FIELD_INT, AT(seq), .max = MAX_VOCAB, .help = "default training length in tokens"},
    {"max_positions", DTP_FIELD_INT, AT(max_positions), .max = MAX_VOCAB,
     .help = "rows of the learned position table; seq if absent"},
    COUNT(token_types, "rows of the token type table"),
    FLAG(head_bias, "LM head with a bias"),
    FLAG(mlm_head, "BERT: dense and norm before the decoder, decoder bias"),
    FLAG(nsp_head, "BERT: pooler and next-sentence classifier"),
    {"dropout", DTP_FIELD_DOUBLE, AT(dropout), .max = 1, .help = "probability, 0: no dropout"},
    {"attention_dropout", DTP_FIELD_DOUBLE, AT(attention_dropout), .max = 1,
     .help = "probability of dropout of attention's probabilities"},
    {"norm_epsilon", DTP_FIELD_DOUBLE, AT(norm_epsilon), .max = 1, .unset = DTP_UNSET_LEFT_OUT,
     .help = "what norms add to the variance, 0: 1e-5"},
    {"rope_theta", DTP_FIELD_DOUBLE, AT(rope_theta), .max = 1e12, .unset = DTP_UNSET_LEFT_OUT,
     .help = "base of rotary positions, 0: 10000"},
    {"sliding_window", DTP_FIELD_INT, AT(sliding_window), .max = MAX_VOCAB,
     .help = "keys that a query sees, 0: all"},
    COUNT(full_attention_step, "every so many-th layer sees all keys all the same, 0: none"),
    COUNT(mtp_layers, "depths of multi-token prediction, trained beside the model"),
    FLAG(chunked_attention, "the window is a chunk: queries see the keys of their own"),
    {"moe", DTP_FIELD_OBJECT, AT(moe), .fields = moe_fields, .help = "mixture of experts"},
    {"mla", DTP_FIELD_OBJECT, AT(mla), .fields = mla_fields, .help = "latent attention"},
    COUNT(patch, "side of an image patch"),
    COUNT(image, "side of the image"),
    COUNT(classes, "classes of the classifier; above 0 there is no LM head"),
    COUNT(channels, "colour channels of the image"),
    {"global_batch", DTP_FIELD_INT, AT(global_batch), .max = MAX_VOCAB,
     .help = "default batch in sequences or images"},
    {"train_tokens", DTP_FIELD_DOUBLE, AT(train_tokens), .max = 1e18,
     .help = "token budget of the published training, 0: unknown"},
    {"published_params", DTP_FIELD_DOUBLE, AT(published_params), .max = 1e18,
     .help = "published parameter count, 0: unknown"},
    {0}};

#define CONV(name_)                                                                                \
    { #name_, DTP_FIELD_INT, offsetof(struct dtp_conv, name_), .min = 1, .max = 1e5 }
const struct dtp_field dtp_conv_fields[] = {CONV(cin),
                                            CONV(cout),
                                            CONV(kernel),
                                            CONV(stride),
                                            CONV(in_size),
                                            CONV(out_size),
                                            CONV(groups),
                                            CONV(repeat),
                                            {"batch_norm", DTP_FIELD_BOOL,
                                             offsetof(struct dtp_conv, batch_norm),
                                             .help = "batch norm and activation follow"},
                                            {0}};

/* ---- reading ---- */

static enum dtp_status read_convs(struct dtp_arena *a, const struct dtp_json *j,
                                  struct dtp_model *m, struct dtp_err *err) {
    if (dtp_json_type(j) != DTP_JSON_ARRAY)
        return dtp_json_expected(j, "an array of convolutions", err);
    m->nconvs = (int)dtp_json_size(j);
    m->conv = m->nconvs ? DTP_NEW(a, struct dtp_conv, (size_t)m->nconvs) : NULL;
    for (int i = 0; i < m->nconvs; i++) {
        const struct dtp_json *item = dtp_json_at(j, (size_t)i);
        struct dtp_conv *c = &m->conv[i];
        *c = (struct dtp_conv){
            .kernel = 1, .stride = 1, .groups = 1, .repeat = 1, .batch_norm = true};
        DTP_TRY(dtp_fields_read(a, item, dtp_conv_fields, c, err));
        if (c->in_size > 0 && c->out_size == 0) /* "same" padding */
            c->out_size = (c->in_size + c->stride - 1) / c->stride;
        if (c->cin < 1 || c->cout < 1 || c->in_size < 1)
            return dtp_json_expected(item, "an object with cin, cout and in_size", err);
        if (c->cin % c->groups != 0 || c->cout % c->groups != 0)
            return dtp_json_expected(item, "groups that divide cin and cout", err);
    }
    return DTP_OK;
}

static enum dtp_status check_aliases(const struct dtp_json *j, struct dtp_err *err) {
    if (dtp_json_type(j) != DTP_JSON_ARRAY)
        return dtp_json_expected(j, "an array of names", err);
    for (size_t i = 0; i < dtp_json_size(j); i++)
        if (dtp_json_type(dtp_json_at(j, i)) != DTP_JSON_STRING)
            return dtp_json_expected(dtp_json_at(j, i), "a name", err);
    return DTP_OK;
}

const struct dtp_json *dtp_model_aliases(const struct dtp_json *j) {
    return dtp_json_type(j) == DTP_JSON_OBJECT ? dtp_json_get(j, "aliases") : NULL;
}

/* It reads the table twice: first for the family, then over that family's defaults. */
enum dtp_status dtp_model_read_own(struct dtp_arena *a, const struct dtp_json *j,
                                   struct dtp_model *out, struct dtp_err *err) {
    struct model_doc doc = {0};
    DTP_TRY(dtp_fields_read(a, j, dtp_model_fields, &doc, err));
    doc.m = families[doc.family].m;
    DTP_TRY(dtp_fields_read(a, j, dtp_model_fields, &doc, err));
    if (doc.aliases)
        DTP_TRY(check_aliases(doc.aliases, err));
    if (doc.convs)
        DTP_TRY(read_convs(a, doc.convs, &doc.m, err));
    const struct dtp_json *source = dtp_json_get(j, "source");
    if (source && dtp_json_type(source) == DTP_JSON_OBJECT && dtp_json_size(source) > 0)
        source = dtp_json_at(source, 0);
    if (source && dtp_json_type(source) == DTP_JSON_STRING)
        doc.m.source = dtp_json_string(source);
    *out = doc.m;
    return DTP_OK;
}

/* ---- defaults of a short description, and the checks of a whole one ---- */

#define MAX_PARAMS 4e18
#define MAX_PATCHES 1000         /* on a side */
#define TOKENS_PER_BATCH 4194304 /* default batch where the source has none: 4 Mi tokens */
#define IMAGES_PER_BATCH 1024

/* Fails so: "moe.ffn: found 5000000, expected 0 to 1000000"; prefix is "moe" inside an object. */
static enum dtp_status check_ranges(const struct dtp_field *fields, const char *prefix,
                                    const void *in, struct dtp_err *err) {
    for (const struct dtp_field *f = fields; f->name; f++) {
        const void *at = (const char *)in + f->offset;
        if (f->kind == DTP_FIELD_OBJECT)
            DTP_TRY(check_ranges(f->fields, f->name, at, err));
        if (f->kind != DTP_FIELD_INT)
            continue;
        int v = *(const int *)at;
        if (v < f->min || v > f->max)
            return dtp_fail(err, DTP_EINPUT, "%s%s%s: found %d, expected %.0f to %.0f", prefix,
                            *prefix ? "." : "", f->name, v, f->min, f->max);
    }
    return DTP_OK;
}

static enum dtp_status check_all_ranges(const struct dtp_model *m, struct dtp_err *err) {
    struct model_doc doc = {.m = *m};
    return check_ranges(dtp_model_fields + READ_ONLY, "", &doc, err);
}

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
    return check_all_ranges(m, err);
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

/* The defaults are computed from these. */
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
    return check_all_ranges(m, err);
}

enum dtp_status dtp_model_finish(struct dtp_model *m, struct dtp_err *err) {
    if (m->nconvs > 0)
        return finish_convs(m, err);
    DTP_TRY(check_given(m, err));
    fill_defaults(m);
    DTP_TRY(check_attention(m, err));
    DTP_TRY(check_all_ranges(m, err));
    return check_rest(m, err);
}

/* ---- writing ---- */

void dtp_model_write(struct dtp_json_out *w, const struct dtp_model *m) {
    struct model_doc doc = {.m = *m};
    dtp_json_object(w);
    dtp_fields_write(w, dtp_model_fields + READ_ONLY, &doc);
    if (m->nconvs > 0) {
        dtp_json_put_key(w, "convs");
        dtp_json_array(w);
        for (int i = 0; i < m->nconvs; i++) {
            dtp_json_object(w);
            dtp_fields_write(w, dtp_conv_fields, &m->conv[i]);
            dtp_json_end(w);
        }
        dtp_json_end(w);
    }
    if (m->source)
        dtp_json_kv_string(w, "source", m->source);
    dtp_json_end(w);
}
