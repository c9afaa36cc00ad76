/* model_internal.h: what the files of the model reader share; not for others. */
#ifndef DTP_MODELS_MODEL_INTERNAL_H
#define DTP_MODELS_MODEL_INTERNAL_H

#include "models/model/model.h"

/* True for a Hugging Face config.json: it has "model_type" or "architectures". */
bool dtp_model_is_hf(const struct dtp_json *j);
/* Hugging Face's keys into *out; not finished yet. */
enum dtp_status dtp_model_read_hf(const struct dtp_json *j, struct dtp_model *out,
                                  struct dtp_err *err);
/* Each integer of m against the range that its field has in documents. */
enum dtp_status dtp_model_check_ranges(const struct dtp_model *m, struct dtp_err *err);
/* "aliases" of an own document, or NULL. */
const struct dtp_json *dtp_model_aliases(const struct dtp_json *j);

#endif
