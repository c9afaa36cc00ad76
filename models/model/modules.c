#include "models/model/modules.h"

#include <stddef.h>

const char *const dtp_module_names[] = {[DTP_MODULE_CORE_ATTN] = "core_attn",
                                        [DTP_MODULE_LAYERNORM] = "layernorm",
                                        [DTP_MODULE_MLA_UP_PROJ] = "mla_up_proj",
                                        [DTP_MODULE_MLP] = "mlp",
                                        [DTP_MODULE_MOE] = "moe",
                                        [DTP_MODULE_MOE_ACT] = "moe_act",
                                        [DTP_MODULE_SHARED_EXPERTS] = "shared_experts",
                                        [DTP_NMODULES] = NULL};

/* The norm before a product is a part of it in TransformerEngine (LayerNormLinear) and then no module that can be
 * chosen, but before latent attention and before experts (gpt_layer_specs.py). */
const struct dtp_module_text dtp_module_texts[DTP_NMODULES] = {
    [DTP_MODULE_CORE_ATTN] = {"attention", "softmax statistics; unfused, the scores", "all"},
    [DTP_MODULE_LAYERNORM] = {"the norm", "its output, which products read",
                              "latent attention, experts"},
    [DTP_MODULE_MLA_UP_PROJ] = {"norms and products from the latents up, rotary embedding",
                                "queries, keys, values, normed latents", "latent attention"},
    [DTP_MODULE_MLP] = {"norm, both products, activation, tp collectives",
                        "input of either product and of the activation", "dense MLP"},
    [DTP_MODULE_MOE] = {"router, permutation, exchanges, experts",
                        "all of the experts but the router's input", "experts"},
    [DTP_MODULE_MOE_ACT] = {"the experts' activation", "input of their second product", "experts"},
    [DTP_MODULE_SHARED_EXPERTS] = {"both products and the activation of shared experts",
                                   "input of the second and of the activation", "shared experts"}};

int dtp_model_modules(const struct dtp_model *m) {
    bool experts = m->moe.experts > 0, latent = m->mla.kv_lora_rank > 0;
    if (m->nconvs > 0)
        return 0;
    return DTP_BIT_CORE_ATTN | (latent || experts ? DTP_BIT_LAYERNORM : 0) |
           (latent ? DTP_BIT_MLA_UP_PROJ : 0) |
           (!experts || m->moe.dense_layers_first > 0 ? DTP_BIT_MLP : 0) |
           (experts ? DTP_BIT_MOE | DTP_BIT_MOE_ACT : 0) |
           (m->moe.shared_experts > 0 ? DTP_BIT_SHARED_EXPERTS : 0);
}
