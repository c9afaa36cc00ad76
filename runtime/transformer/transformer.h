/* transformer.h: pieces of a layer that its forward and its backward share; internal. */
#ifndef DTP_RUNTIME_TRANSFORMER_H
#define DTP_RUNTIME_TRANSFORMER_H

#include "runtime/rank.h"

#define ACTS DTP_MEM_ACTIVATIONS

struct dtp_layer_linears {
    struct dtp_linear qkv, out, up, down;
};
void dtp_layer_linears(const struct dtp_rank *r, const struct dtp_unit *u,
                       struct dtp_layer_linears *out);
/* id: of the norm's weight, its bias follows. x, y and gradients are the caller's. */
void dtp_layer_norm_args(struct dtp_rank *r, struct dtp_unit *u, int id, float *stats,
                         struct dtp_norm_args *out);
/* x, u NULL: the shape alone. */
void dtp_layer_attention_args(const struct dtp_rank *r, const struct dtp_unit *u,
                              const struct dtp_layer_acts *x, struct dtp_attention_args *out);
/* Describes this rank's rows [local_tokens, hidden] of the current microbatch, without operands. */
struct dtp_residual_args dtp_layer_residual(const struct dtp_rank *r, int layer,
                                            enum dtp_dropout_place place);
struct dtp_act_args dtp_layer_act(const struct dtp_rank *r);

#endif
