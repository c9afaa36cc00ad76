/* model_hf.h: the parts of the Hugging Face reader; not for others.
 *
 * model_hf.c reads what all types share and finds the type; model_hf_types.c has one row for each type
 * and, if need be, one function (those of types with experts are in model_hf_experts.c, windows in
 * model_hf_windows.c). To add a type:
 * a row, its function, a config in the test.
 */
#ifndef DTP_MODELS_MODEL_HF_H
#define DTP_MODELS_MODEL_HF_H

#include "models/model/model_internal.h"

/* Reads the keys that only this type has, over the family's flags and the common numbers. */
typedef enum dtp_status dtp_hf_fn(const struct dtp_json *j, struct dtp_model *m,
                                  struct dtp_err *err);

struct dtp_hf_type {
    const char *type, *family;
    dtp_hf_fn *special; /* NULL: the numbers say all */
};
/* Of types with experts, and what they share with others. */
dtp_hf_fn dtp_hf_read_mixtral, dtp_hf_read_qwen2_moe, dtp_hf_read_qwen3_moe, dtp_hf_read_deepseek,
    dtp_hf_read_deepseek_v3, dtp_hf_read_experts, dtp_hf_read_olmoe, dtp_hf_read_gpt_oss,
    dtp_hf_read_phimoe, dtp_hf_read_llama4, dtp_hf_read_dbrx, dtp_hf_read_glm4_moe,
    dtp_hf_read_minimax_m2, dtp_hf_read_ernie;
dtp_hf_fn dtp_hf_read_qkv_bias;
/* Of windows (model_hf_windows.c); the last for every type, after its own. */
dtp_hf_fn dtp_hf_read_window, dtp_hf_read_qwen_window, dtp_hf_read_every_second,
    dtp_hf_read_every_fourth, dtp_hf_read_every_sixth, dtp_hf_read_chunks, dtp_hf_read_layer_types;
extern const struct dtp_hf_type dtp_hf_types[];
extern const size_t dtp_hf_ntypes;

/* Member of j, or NULL when absent or null. */
const struct dtp_json *dtp_hf_get(const struct dtp_json *j, const char *key);
/* Each leaves *out when the key is absent or null, and fails when the type is wrong. */
enum dtp_status dtp_hf_int(const struct dtp_json *j, const char *key, int *out,
                           struct dtp_err *err);
enum dtp_status dtp_hf_bool(const struct dtp_json *j, const char *key, bool *out,
                            struct dtp_err *err);
enum dtp_status dtp_hf_string(const struct dtp_json *j, const char *key, const char **out,
                              struct dtp_err *err);

#endif
