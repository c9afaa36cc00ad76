#include <string.h>

#include "models/model/model_hf.h"

/* Which layers see all keys and which a window of them. */

enum dtp_status dtp_hf_read_window(const struct dtp_json *j, struct dtp_model *m,
                                   struct dtp_err *err) {
    return dtp_hf_int(j, "sliding_window", &m->sliding_window, err);
}

/* Qwen states a window that is switched off; on, it is that of the layers from max_window_layers on. */
enum dtp_status dtp_hf_read_qwen_window(const struct dtp_json *j, struct dtp_model *m,
                                        struct dtp_err *err) {
    bool use = false;
    int full = 0;
    DTP_TRY(dtp_hf_bool(j, "use_sliding_window", &use, err));
    DTP_TRY(dtp_hf_int(j, "max_window_layers", &full, err));
    if (!use || (full > 0 && full >= m->layers))
        return DTP_OK;
    if (full > 0)
        return dtp_json_expected(dtp_hf_get(j, "max_window_layers"), "0, or all layers", err);
    return dtp_hf_read_window(j, m, err);
}

/* 6, or "LLLG": local layers, then one that is global. */
static enum dtp_status read_pattern(const struct dtp_json *j, const char *key, int *step,
                                    struct dtp_err *err) {
    const struct dtp_json *v = dtp_hf_get(j, key);
    if (!v || dtp_json_type(v) != DTP_JSON_STRING)
        return dtp_hf_int(j, key, step, err);
    const char *text = dtp_json_string(v);
    size_t local = strspn(text, "L");
    if (strcmp(text + local, "G") != 0)
        return dtp_json_expected(v, "local layers and a global one, such as \"LLLG\"", err);
    *step = (int)local + 1;
    return DTP_OK;
}

static enum dtp_status alternate(const struct dtp_json *j, struct dtp_model *m, int window,
                                 int step, struct dtp_err *err) {
    m->sliding_window = dtp_json_get(j, "sliding_window") ? 0 : window; /* null: none */
    DTP_TRY(dtp_hf_read_window(j, m, err));
    DTP_TRY(read_pattern(j, "sliding_window_pattern", &step, err));
    DTP_TRY(read_pattern(j, "_sliding_window_pattern", &step, err));
    m->full_attention_step = m->sliding_window > 0 ? step : 0;
    return DTP_OK;
}

/* What may be left out are the defaults of the configs' classes. */
enum dtp_status dtp_hf_read_every_second(const struct dtp_json *j, struct dtp_model *m,
                                         struct dtp_err *err) {
    return alternate(j, m, 4096, 2, err);
}

enum dtp_status dtp_hf_read_every_fourth(const struct dtp_json *j, struct dtp_model *m,
                                         struct dtp_err *err) {
    return alternate(j, m, 4096, 4, err);
}

enum dtp_status dtp_hf_read_every_sixth(const struct dtp_json *j, struct dtp_model *m,
                                        struct dtp_err *err) {
    return alternate(j, m, 4096, 6, err);
}

/* Llama 4: layers with rotary positions see their own chunk, every fourth has no positions and sees all. */
enum dtp_status dtp_hf_read_chunks(const struct dtp_json *j, struct dtp_model *m,
                                   struct dtp_err *err) {
    const char *key = "attention_chunk_size";
    m->sliding_window = dtp_json_get(j, key) ? 0 : 8192;
    DTP_TRY(dtp_hf_int(j, key, &m->sliding_window, err));
    m->chunked_attention = m->sliding_window > 0;
    m->full_attention_step = m->chunked_attention ? 4 : 0;
    return m->chunked_attention
               ? dtp_hf_int(j, "no_rope_layer_interval", &m->full_attention_step, err)
               : DTP_OK;
}

/* A list of all layers goes over what the type says: full ones are every so many-th, or all, or none. */
enum dtp_status dtp_hf_read_layer_types(const struct dtp_json *j, struct dtp_model *m,
                                        struct dtp_err *err) {
    const struct dtp_json *types = dtp_hf_get(j, "layer_types");
    int step = 0;
    if (!types || m->sliding_window == 0)
        return DTP_OK;
    if (dtp_json_type(types) != DTP_JSON_ARRAY || (int)dtp_json_size(types) != m->layers)
        return dtp_json_expected(types, "an array of as many types as layers", err);
    for (int l = 0; l < m->layers; l++) {
        const struct dtp_json *at = dtp_json_at(types, (size_t)l);
        bool text = dtp_json_type(at) == DTP_JSON_STRING;
        bool full = text && strcmp(dtp_json_string(at), "full_attention") == 0;
        if (!full && (!text || (strcmp(dtp_json_string(at), "sliding_attention") != 0 &&
                                strcmp(dtp_json_string(at), "chunked_attention") != 0)))
            return dtp_json_expected(
                at, "\"full_attention\", \"sliding_attention\" or \"chunked_attention\"", err);
        if (full && step == 0)
            step = l + 1;
        if (full != (step > 0 && (l + 1) % step == 0))
            return dtp_json_expected(at, "full attention in every so many-th layer", err);
    }
    m->full_attention_step = step;
    if (step == 1)
        m->sliding_window = m->full_attention_step = 0;
    m->chunked_attention &= m->sliding_window > 0;
    return DTP_OK;
}
