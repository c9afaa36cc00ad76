/* modules.h: parts of a layer that selective recomputation can choose, as Megatron-Core's --recompute-modules names
 * them. The operations are marked where they are made with the modules that repeat them and that drop what
 * they saved (op.h: again_by, dropped_by); this header names the modules, the models that have them, and what they do.
 *
 * Two kinds (Megatron-LM core 0.13, moe/README.md, "Fine-grained Recomputation"). An output-discarding module
 * frees its output once the next product has read it and recomputes it when that product's backward needs it;
 * its input stays. An ordinary checkpoint (core_attn, mlp, moe, shared_experts) keeps its input alone.
 */
#ifndef DTP_MODELS_MODULES_H
#define DTP_MODELS_MODULES_H

#include "models/model/model.h"

enum dtp_module {
    DTP_MODULE_CORE_ATTN,
    DTP_MODULE_LAYERNORM,
    DTP_MODULE_MLA_UP_PROJ,
    DTP_MODULE_MLP,
    DTP_MODULE_MOE,
    DTP_MODULE_MOE_ACT,
    DTP_MODULE_SHARED_EXPERTS,
    DTP_NMODULES
};

/* Sets are bits: 1 << module. */
enum {
    DTP_BIT_CORE_ATTN = 1 << DTP_MODULE_CORE_ATTN,
    DTP_BIT_LAYERNORM = 1 << DTP_MODULE_LAYERNORM,
    DTP_BIT_MLA_UP_PROJ = 1 << DTP_MODULE_MLA_UP_PROJ,
    DTP_BIT_MLP = 1 << DTP_MODULE_MLP,
    DTP_BIT_MOE = 1 << DTP_MODULE_MOE,
    DTP_BIT_MOE_ACT = 1 << DTP_MODULE_MOE_ACT,
    DTP_BIT_SHARED_EXPERTS = 1 << DTP_MODULE_SHARED_EXPERTS,
    /* that discard outputs: much memory for little work */
    DTP_CHEAP_MODULES = DTP_BIT_LAYERNORM | DTP_BIT_MLA_UP_PROJ | DTP_BIT_MOE_ACT
};

extern const char *const dtp_module_names[]; /* NULL-terminated */
struct dtp_module_text {
    const char *again, *dropped; /* what is recomputed; what is not kept */
    const char *where;           /* the layers that have it */
};
extern const struct dtp_module_text dtp_module_texts[DTP_NMODULES];
/* Modules that some layer of the model has. */
int dtp_model_modules(const struct dtp_model *m);

#endif
