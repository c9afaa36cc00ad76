/* model_hf.h: the two halves of the Hugging Face reader; not for others.
 *
 * model_hf.c reads what all types share and finds the type; model_hf_types.c has one row, and if
 * need be one function, for each type. To add a type: a row, its function, a config in the test.
 */
#ifndef DTP_MODELS_MODEL_HF_H
#define DTP_MODELS_MODEL_HF_H

#include "models/model_internal.h"

/* Reads the keys that only this type has, over the family's flags and the common numbers. */
typedef enum dtp_status dtp_hf_fn(const struct dtp_json *j, struct dtp_model *m,
                                  struct dtp_err *err);

struct dtp_hf_type {
    const char *type, *family;
    dtp_hf_fn *special; /* NULL: the numbers say all */
};
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
