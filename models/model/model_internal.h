/* model_internal.h: what the files of the model reader share; no other file includes it. */
#ifndef DTP_MODELS_MODEL_INTERNAL_H
#define DTP_MODELS_MODEL_INTERNAL_H

#include "models/model/model.h"

/* True for a Hugging Face config.json: it has "model_type" or "architectures". */
bool dtp_model_is_hf(const struct dtp_json *j);
/* Both read a document into *out, which dtp_model_finish() completes: Hugging Face's keys, or ours. */
enum dtp_status dtp_model_read_hf(const struct dtp_json *j, struct dtp_model *out,
                                  struct dtp_err *err);
enum dtp_status dtp_model_read_own(struct dtp_arena *a, const struct dtp_json *j,
                                   struct dtp_model *out, struct dtp_err *err);
/* "aliases" of an own document, or NULL. */
const struct dtp_json *dtp_model_aliases(const struct dtp_json *j);

#endif
