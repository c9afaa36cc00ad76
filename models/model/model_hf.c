#include "models/model/model_hf.h"

#include <assert.h>
#include <string.h>

#include "sim/base/text.h"

/* Hugging Face config.json. Model types name the same thing differently (n_embd, hidden_size,
 * d_model), so one table lists every name of each number; what a type means beyond its numbers is
 * its row: the family that sets the flags, and a function for its own keys. Keys that do not touch
 * sizes are passed over; a null counts as absent. */

/* ---- values ---------------------------------------------------------------------------------- */

const struct dtp_json *dtp_hf_get(const struct dtp_json *j, const char *key) {
    const struct dtp_json *v = dtp_json_get(j, key);
    return v && dtp_json_type(v) != DTP_JSON_NULL ? v : NULL;
}

enum dtp_status dtp_hf_int(const struct dtp_json *j, const char *key, int *out,
                           struct dtp_err *err) {
    const struct dtp_json *v = dtp_hf_get(j, key);
    if (!v)
        return DTP_OK;
    double d = dtp_json_type(v) == DTP_JSON_NUMBER ? dtp_json_number(v) : -1;
    if (!(d >= 0 && d <= 1e8) || d != (double)(int)d)
        return dtp_json_expected(v, "an integer from 0 to 1e8", err);
    *out = (int)d;
    return DTP_OK;
}

enum dtp_status dtp_hf_bool(const struct dtp_json *j, const char *key, bool *out,
                            struct dtp_err *err) {
    const struct dtp_json *v = dtp_hf_get(j, key);
    if (!v)
        return DTP_OK;
    if (dtp_json_type(v) != DTP_JSON_BOOL)
        return dtp_json_expected(v, "true or false", err);
    *out = dtp_json_bool(v);
    return DTP_OK;
}

/* A non-empty string, or NULL when absent. */
enum dtp_status dtp_hf_string(const struct dtp_json *j, const char *key, const char **out,
                              struct dtp_err *err) {
    const struct dtp_json *v = dtp_hf_get(j, key);
    if (!v)
        return DTP_OK;
    if (dtp_json_type(v) != DTP_JSON_STRING)
        return dtp_json_expected(v, "a string", err);
    *out = dtp_json_string(v);
    return DTP_OK;
}

static enum dtp_status get_dropout(const struct dtp_json *j, const char *key, double *out,
                                   struct dtp_err *err) {
    const struct dtp_json *v = dtp_hf_get(j, key);
    if (!v)
        return DTP_OK;
    if (dtp_json_type(v) != DTP_JSON_NUMBER || dtp_json_number(v) < 0 || dtp_json_number(v) > 1)
        return dtp_json_expected(v, "a probability from 0 to 1", err);
    *out = dtp_json_number(v);
    return DTP_OK;
}

/* The first of the names that stands in j. */
struct hf_number {
    size_t offset;
    bool required;
    const char *names[7];
};

#define TO(member) offsetof(struct dtp_model, member)
static const struct hf_number numbers[] = {
    {TO(layers), true, {"num_hidden_layers", "n_layer", "n_layers", "num_layers"}},
    {TO(hidden), true, {"hidden_size", "n_embd", "d_model", "n_embed"}},
    {TO(heads), true, {"num_attention_heads", "n_head", "n_heads", "num_heads"}},
    {TO(kv_heads), false, {"num_key_value_heads", "num_kv_heads", "multi_query_group_num"}},
    {TO(head_dim), false, {"head_dim"}},
    {TO(ffn), false, {"intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"}},
    {TO(vocab), false, {"vocab_size", "padded_vocab_size"}},
    {TO(max_positions),
     false,
     {"max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx"}},
    {TO(token_types), false, {"type_vocab_size"}},
    {TO(mtp_layers), false, {"num_nextn_predict_layers", "mtp_num_hidden_layers"}},
};

static enum dtp_status read_numbers(const struct dtp_json *j, struct dtp_model *m,
                                    struct dtp_err *err) {
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const struct hf_number *n = &numbers[i];
        int *to = (int *)(void *)((char *)m + n->offset);
        const char *const *name = n->names;
        while (*name && !dtp_hf_get(j, *name))
            name++;
        if (!*name)
            continue;
        DTP_TRY(dtp_hf_int(j, *name, to, err));
        if (n->required && *to < 1)
            return dtp_json_expected(dtp_hf_get(j, *name), "an integer of 1 or more", err);
    }
    return DTP_OK;
}

/* After the type had its say: some leave out what their class has by default. */
static enum dtp_status check_numbers(const struct dtp_json *j, const struct dtp_model *m,
                                     struct dtp_err *err) {
    char place[512];
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const struct hf_number *n = &numbers[i];
        if (n->required && *(const int *)(const void *)((const char *)m + n->offset) < 1)
            return dtp_fail(err, DTP_EINPUT, "%s: missing key \"%s\" (or \"%s\")",
                            dtp_json_place(j, place, sizeof place), n->names[0], n->names[1]);
    }
    return DTP_OK;
}

static const struct {
    const char *name;
    enum dtp_activation activation;
} activations[] = {
    {"gelu", DTP_ACT_GELU},          {"gelu_new", DTP_ACT_GELU},
    {"gelu_fast", DTP_ACT_GELU},     {"gelu_pytorch_tanh", DTP_ACT_GELU},
    {"quick_gelu", DTP_ACT_GELU},    {"gelu_10", DTP_ACT_GELU},
    {"gelu_python", DTP_ACT_GELU},   {"relu", DTP_ACT_RELU},
    {"relu2", DTP_ACT_SQUARED_RELU}, {"silu", DTP_ACT_SILU},
    {"swish", DTP_ACT_SILU},
};
#define NACTIVATIONS (sizeof activations / sizeof activations[0])

static enum dtp_status read_activation(const struct dtp_json *j, struct dtp_model *m,
                                       struct dtp_err *err) {
    static const char *const keys[] = {"hidden_activation", "hidden_act", "activation_function",
                                       "activation"};
    const struct dtp_json *v = NULL;
    const char *names[NACTIVATIONS], *text = NULL;
    char place[512];
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && !v; i++) {
        v = dtp_hf_get(j, keys[i]);
        DTP_TRY(dtp_hf_string(j, keys[i], &text, err));
    }
    for (size_t i = 0; i < NACTIVATIONS; i++) {
        names[i] = activations[i].name;
        if (text && strcmp(text, names[i]) == 0) {
            m->activation = activations[i].activation;
            return DTP_OK;
        }
    }
    if (!text)
        return DTP_OK;
    enum dtp_status status =
        dtp_unknown_name(err, DTP_EUNSUPPORTED, "activation", text, names, NACTIVATIONS, NULL);
    dtp_err_prefix(err, dtp_json_place(v, place, sizeof place));
    return status;
}

static enum dtp_status read_common(const struct dtp_json *j, struct dtp_model *m,
                                   struct dtp_err *err) {
    static const char *const dropouts[] = {"resid_pdrop",    "hidden_dropout_prob",
                                           "hidden_dropout", "residual_dropout",
                                           "resid_dropout",  "dropout"};
    static const char *const of_attention[] = {"attn_pdrop", "attention_probs_dropout_prob",
                                               "attention_dropout"};
    DTP_TRY(read_numbers(j, m, err));
    DTP_TRY(read_activation(j, m, err));
    for (size_t i = 0; i < sizeof dropouts / sizeof dropouts[0]; i++)
        DTP_TRY(get_dropout(j, dropouts[i], &m->dropout, err));
    for (size_t i = 0; i < sizeof of_attention / sizeof of_attention[0]; i++)
        DTP_TRY(get_dropout(j, of_attention[i], &m->attention_dropout, err));
    DTP_TRY(dtp_hf_bool(j, "attention_bias", &m->attention_bias, err));
    DTP_TRY(dtp_hf_bool(j, "mlp_bias", &m->mlp_bias, err));
    return dtp_hf_bool(j, "tie_word_embeddings", &m->tied_embeddings, err);
}

/* ---- the document ---------------------------------------------------------------------------- */

bool dtp_model_is_hf(const struct dtp_json *j) {
    return dtp_json_get(j, "model_type") || dtp_json_get(j, "architectures") ||
           dtp_json_get(j, "hidden_size") || dtp_json_get(j, "n_embd"); /* without its type */
}

/* "LlamaForCausalLM" begins with "llama": the longest type whose letters begin the class name. */
static const char *type_of_class(const char *class_name) {
    const char *best = NULL;
    size_t best_length = 0;
    for (size_t i = 0; i < dtp_hf_ntypes; i++) {
        const char *t = dtp_hf_types[i].type, *c = class_name;
        for (; *t; t++) {
            if (*t == '_')
                continue;
            if ((*c | 0x20) != *t && *c != *t)
                break;
            c++;
        }
        if (!*t && (size_t)(c - class_name) > best_length) {
            best = dtp_hf_types[i].type;
            best_length = (size_t)(c - class_name);
        }
    }
    return best;
}

#define MAX_TYPES 96

static enum dtp_status find_type(const struct dtp_json *j, const struct dtp_hf_type **out,
                                 struct dtp_err *err) {
    const char *text = NULL, *names[MAX_TYPES];
    const struct dtp_json *at = dtp_hf_get(j, "model_type"),
                          *classes = dtp_hf_get(j, "architectures");
    char place[512];
    assert(dtp_hf_ntypes <= MAX_TYPES);
    DTP_TRY(dtp_hf_string(j, "model_type", &text, err));
    if (!at && classes && dtp_json_type(classes) == DTP_JSON_ARRAY && dtp_json_size(classes) > 0)
        at = dtp_json_at(classes, 0);
    if (!at || dtp_json_type(at) != DTP_JSON_STRING)
        return dtp_json_expected(at ? at : j, "\"model_type\", or \"architectures\" of one class",
                                 err);
    const char *of_class = text ? NULL : type_of_class(dtp_json_string(at));
    text = text ? text : of_class ? of_class : dtp_json_string(at);
    for (size_t i = 0; i < dtp_hf_ntypes; i++) {
        names[i] = dtp_hf_types[i].type;
        if (strcmp(names[i], text) == 0) {
            *out = &dtp_hf_types[i];
            return DTP_OK;
        }
    }
    dtp_json_place(at, place, sizeof place);
    /* a name that goes on behind a known one ("qwen3_next") is another architecture, not a slip */
    int nearest = dtp_nearest_name(text, names, dtp_hf_ntypes);
    if (nearest < 0 || strlen(text) > strlen(names[nearest]) + 1)
        return dtp_fail(err, DTP_EUNSUPPORTED,
                        "%s: models of type \"%s\" are not modelled; one that is built like a "
                        "decoder or BERT can be a file of your own (models/README.md)",
                        place, text);
    enum dtp_status status =
        dtp_unknown_name(err, DTP_EUNSUPPORTED, "model type", text, names, dtp_hf_ntypes, NULL);
    dtp_err_prefix(err, place);
    return status;
}

/* A checkpoint's folder or "owner/name" as saved by the trainer; the part after the slash. */
static const char *short_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Models that see or hear keep what they speak with in a config of its own. */
static const struct dtp_json *language_model(const struct dtp_json *j) {
    const struct dtp_json *text = dtp_hf_get(j, "text_config");
    bool of_text = text && dtp_json_type(text) == DTP_JSON_OBJECT;
    return of_text && !dtp_hf_get(j, "num_hidden_layers") ? text : j;
}

enum dtp_status dtp_model_read_hf(const struct dtp_json *j, struct dtp_model *out,
                                  struct dtp_err *err) {
    const struct dtp_hf_type *type = NULL;
    const char *path = "";
    const struct dtp_json *whole = j;
    j = language_model(j);
    DTP_TRY(find_type(j, &type, err));
    DTP_TRY(dtp_model_family(type->family, out, err));
    DTP_TRY(read_common(j, out, err));
    if (type->special)
        DTP_TRY(type->special(j, out, err));
    DTP_TRY(check_numbers(j, out, err));
    DTP_TRY(dtp_hf_read_layer_types(j, out, err));
    DTP_TRY(dtp_hf_bool(whole, "tie_word_embeddings", &out->tied_embeddings, err));
    if (j != whole || dtp_hf_get(whole, "vision_config"))
        out->title = "language model alone, without what sees or hears";
    DTP_TRY(dtp_hf_string(whole, "_name_or_path", &path, err));
    out->name = short_name(path);
    out->source = "Hugging Face config.json";
    if (out->seq == 0 && out->max_positions > 0)
        out->seq = out->max_positions;
    if (out->seq > DTP_MODEL_SEQ_DEFAULT_MAX)
        out->seq = DTP_MODEL_SEQ_DEFAULT_MAX;
    return DTP_OK;
}
