/* weights.h: weights of Hugging Face's models as initial values (weights.c).
 *
 *     struct dtp_weights *w = NULL;
 *     status = dtp_weights_open(a, "Qwen2.5-1.5B", &model, seq, &w, err);
 *     if (status == DTP_OK)
 *         status = dtp_weights_read(w, param, 0, param->n, values, err);
 *     dtp_weights_close(w);                       whatever the status was
 */
#ifndef DTP_RUNTIME_WEIGHTS_H
#define DTP_RUNTIME_WEIGHTS_H

#include "runtime/parameters.h"

struct dtp_weights;

/* path: a file, or a folder with *.safetensors and perhaps config.json. Checks that file and model have the same tensors. */
enum dtp_status dtp_weights_open(struct dtp_arena *a, const char *path, const struct dtp_model *m,
                                 int seq, struct dtp_weights **out, struct dtp_err *err);
/* Elements begin .. begin + n - 1 of the block. */
enum dtp_status dtp_weights_read(const struct dtp_weights *w, const struct dtp_param *p,
                                 int64_t begin, int64_t n, float *out, struct dtp_err *err);
void dtp_weights_close(struct dtp_weights *w); /* w may be NULL */

#endif
