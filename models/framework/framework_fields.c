#include <stddef.h>
#include <string.h>

#include "models/framework/framework.h"
#include "models/framework/optimizer.h"
#include "sim/base/text.h"
#include "sim/base/units.h"

/* This file has the one table of a framework's fields, and reads a file by it. */

/* A file holds this: the framework and the lists that are read by hand. */
struct document {
    struct dtp_framework framework;
    const struct dtp_json *aliases, *schedules, *zero_stages, *zero_stages_pp, *zero_stages_tp,
        *dtypes, *recompute, *fitted, *by_gpu;
};

static const char *const cross_entropy_names[] = {"torch", "passes", "compiled", "fused", NULL};
static const char *const ops_names[] = {"fused", "eager", "own", NULL};
static const char *const fp8_recipe_names[] = {"delayed", "current", "block", NULL};

#define F(member) (offsetof(struct document, framework) + offsetof(struct dtp_framework, member))

#define BOOLEAN(group, member, text)                                                               \
    { .name = #member, .kind = DTP_FIELD_BOOL, .offset = F(group.member), .help = text }
#define NUMBER(group, member, top, text)                                                           \
    {                                                                                              \
        .name = #member, .kind = DTP_FIELD_DOUBLE, .offset = F(group.member), .max = top,          \
        .help = text                                                                               \
    }
#define INTEGER(group, member, top, text)                                                          \
    { .name = #member, .kind = DTP_FIELD_INT, .offset = F(group.member), .max = top, .help = text }
#define LIST(member, text)                                                                         \
    {                                                                                              \
        .name = #member, .kind = DTP_FIELD_JSON, .offset = offsetof(struct document, member),      \
        .help = text                                                                               \
    }

static const char *const recompute_some_names[] = {"all", "any", "every_nth", NULL};
static const char *const expert_tp_names[] = {"same", "one", "any", NULL};

static const struct dtp_field kernels_fields[] = {
    {.name = "attention",
     .kind = DTP_FIELD_ENUM,
     .offset = F(kernels.attention),
     .names = dtp_attention_names,
     .help = "attention kernel used unless a row or option says"},
    BOOLEAN(kernels, fused_softmax, "scale, mask and softmax are one kernel"),
    INTEGER(kernels, fused_softmax_multiple, 1024,
            "the softmax is fused where heads x microbatch of a rank is a multiple; 0: always"),
    BOOLEAN(kernels, fused_bias_activation, "bias and activation are one kernel"),
    BOOLEAN(kernels, fused_bias_dropout_add, "bias, dropout and residual add are one kernel"),
    BOOLEAN(kernels, fused_linear_bias, "the bias of a linear layer is in the GEMM's epilogue"),
    BOOLEAN(kernels, fused_norm, "RMS norm is one kernel, not operators in Python"),
    BOOLEAN(kernels, fused_rope, "rotary embedding is one kernel"),
    {.name = "cross_entropy",
     .kind = DTP_FIELD_ENUM,
     .offset = F(kernels.cross_entropy),
     .names = cross_entropy_names,
     .help = "PyTorch's, pass by pass over fp32 logits, these compiled, or one kernel in 16 bit"},
    BOOLEAN(kernels, fused_gradient_accumulation,
            "the weight-gradient GEMM adds into the gradient buffer"),
    BOOLEAN(kernels, fp32_gradient_accumulation, "gradients are accumulated in fp32"),
    NUMBER(kernels, fp8_cast_bytes, 16,
           "FP8: bytes per element of inputs and output gradients to cast them"),
    BOOLEAN(kernels, whole_gemm_waves, "its cuBLAS fills whole waves of tiles, as before CUDA 12"),
    {.name = "ops",
     .kind = DTP_FIELD_ENUM,
     .offset = F(kernels.ops),
     .names = ops_names,
     .help = "fused kernels, one kernel per operator as Hugging Face models run, or dtplan's own "
             "runtime"},
    BOOLEAN(kernels, gelu_chain, "eager: GELU as eight elementwise kernels"),
    BOOLEAN(kernels, fp8_keeps_casts,
            "FP8: the backward keeps a product's input as its cast, not in 16 bit"),
    {.name = "fp8_recipe",
     .kind = DTP_FIELD_ENUM,
     .offset = F(kernels.fp8_recipe),
     .names = fp8_recipe_names,
     .help = "FP8: scales of steps before, of the tensor at hand or of its blocks"},
    NUMBER(kernels, cp_attention_factor, 10, "fitted: ring attention over one kernel of the whole"),
    BOOLEAN(kernels, separate_products, "q, k, v, gate and up are products of their own"),
    BOOLEAN(kernels, selective_alternate_products,
            "selective recomputation repeats all but attention and every second product"),
    BOOLEAN(kernels, recompute_stops_early,
            "full recomputation ends with the last tensor that was saved"),
    BOOLEAN(kernels, dropout,
            "false: no dropout kernels, whatever the model says, unless --dropout asks"),
    INTEGER(kernels, vocab_multiple, 4096,
            "the vocabulary is padded to a multiple of this times tp"),
    NUMBER(kernels, optimizer_bytes_moved, 512,
           "bytes read and written per parameter by the update"),
    LIST(by_gpu, "per GPU family: attention kernel, kernel_time_factor, attention_time_factor"),
    NUMBER(kernels, norm_time_factor, 10, "norm kernels of this stack over the persistent ones"),
    NUMBER(kernels, kernel_time_factor, 10,
           "fitted: compute kernels of this stack over the GPU file's"),
    BOOLEAN(kernels, moe_router_fp32, "the router's product is one of fp32"),
    BOOLEAN(kernels, moe_separate_products, "gate and up of experts are products of their own"),
    BOOLEAN(kernels, moe_gathers_rows,
            "rows of experts are gathered back, weighted and summed in fp32"),
    BOOLEAN(kernels, moe_fused_permute,
            "rows of experts are ordered and put back by one kernel each"),
    NUMBER(kernels, moe_imbalance, 100, "rows of the fullest expert over the mean"),
    {0}};

static const struct dtp_field wire_fields[] = {
    BOOLEAN(wire, inline_communication,
            "ranks copy and reduce themselves, as part of their actions"),
    {.name = "rank_order",
     .kind = DTP_FIELD_STRING,
     .offset = F(wire.rank_order),
     .help = "axes of the rank number, innermost first"},
    BOOLEAN(wire, p2p_blocking, "pipeline transfers stop the compute streams of both neighbours"),
    BOOLEAN(wire, p2p_slots,
            "interleaved: ranks go by time slots and wait for a slot's transfers together"),
    BOOLEAN(wire, scatter_gather, "pipeline messages are split over tp and gathered in the node"),
    NUMBER(wire, p2p_bytes, 8, "bytes per activation element between stages"),
    BOOLEAN(wire, tp_overlap, "backward tp collectives run behind weight-gradient GEMMs"),
    BOOLEAN(wire, tp_overlap_forward,
            "tp collectives of the forward run behind GEMMs too (userbuffers)"),
    NUMBER(wire, tp_overlap_fraction, 1, "share of the overlapped tp time that can hide"),
    BOOLEAN(wire, dp_overlap, "gradients are reduced behind the last backward, bucket by bucket"),
    {.name = "dp_bucket_params_per_rank",
     .kind = DTP_FIELD_DOUBLE,
     .offset = F(wire.dp_bucket_params_per_rank),
     .max = DTP_GIGA,
     .least = 1 << 14,
     .help = "a bucket has at least so many parameters per rank"},
    {.name = "dp_bucket_bytes",
     .kind = DTP_FIELD_DOUBLE,
     .offset = F(wire.dp_bucket_bytes),
     .max = 1e11,
     .least = 1 << 16,
     .help = "bytes of one reduction bucket; 0: one bucket"},
    BOOLEAN(
        wire, dp_bucket_tensors,
        "a bucket ends with the tensor that fills it (PyTorch DDP); the last is the token table"),
    BOOLEAN(wire, param_gather_overlap,
            "ZeRO-1/2: parameters are gathered behind the next forward"),
    BOOLEAN(wire, zero1_reduce_scatter, "ZeRO-1 reduces with reduce-scatter; false: all-reduce"),
    NUMBER(wire, reduce_bytes, 8, "bytes per gradient on the wire"),
    BOOLEAN(wire, reduce_per_microbatch, "ZeRO-2/3 reduce after each microbatch"),
    BOOLEAN(wire, zero3_regather_backward, "ZeRO-3 gathers parameters again for the backward"),
    INTEGER(wire, zero3_prefetch_layers, 64, "ZeRO-3: layers gathered ahead"),
    BOOLEAN(wire, zero3_forward_prefetch, "ZeRO-3: false: only the backward gathers ahead"),
    NUMBER(wire, zero3_copy_out_bytes, 64, "ZeRO-3: bytes copied per gathered parameter"),
    NUMBER(wire, zero3_copy_in_bytes, 64, "ZeRO-3: bytes copied per gradient before it is reduced"),
    BOOLEAN(wire, tied_embedding_all_reduce,
            "first and last stage sum the gradient of tied embeddings"),
    NUMBER(wire, comm_time_factor, 10, "fitted: collectives of this stack over the cluster's"),
    {0}};

static const struct dtp_field host_fields[] = {
    NUMBER(host, launch_s, 1, "host time per kernel of the forward"),
    NUMBER(host, stream_hop_s, 1,
           "native: two waits between streams, around what is on one of its own"),
    NUMBER(host, backward_launch_factor, 10, "host time per kernel of the backward over launch_s"),
    BOOLEAN(host, checked_collectives,
            "each collective is checked first (TORCH_DISTRIBUTED_DEBUG=DETAIL)"),
    BOOLEAN(host, checked_transfers,
            "a microbatch waits at each boundary of stages for check_transfer_s"),
    BOOLEAN(host, launch_blocking, "every launch waits for its kernel (CUDA_LAUNCH_BLOCKING=1)"),
    BOOLEAN(host, host_sync, "the host waits for the GPU at the start of each microbatch"),
    NUMBER(host, layer_host_s, 1, "host time per layer and direction, beside the kernels'"),
    NUMBER(host, moe_layer_host_s, 1,
           "host time per layer of experts and direction: router, counts, permutation"),
    NUMBER(host, step_host_s, 100, "exposed host time per step"),
    BOOLEAN(host, moe_sync, "the host waits for the counts of rows in every layer of experts"),
    {0}};

static const struct dtp_field keeps_fields[] = {
    BOOLEAN(keeps, keeps_stage_outputs, "what a stage sent stays allocated until its backward"),
    NUMBER(keeps, weight_bytes, 8, "bytes of one parameter used by the kernels"),
    NUMBER(keeps, gradient_bytes, 8, "bytes of one gradient kept over a step"),
    NUMBER(keeps, optimizer_bytes, 32,
           "bytes of optimizer state per parameter: fp32 master 4 and two moments 8"),
    NUMBER(keeps, context_bytes, 1e11, "device bytes of the CUDA context and library workspaces"),
    NUMBER(keeps, communicator_bytes, 1e11, "device bytes of one communicator's buffers"),
    NUMBER(keeps, bucket_bytes, 1e11, "bytes of reduction buckets alive at once"),
    NUMBER(keeps, fixed_bytes, 1e11, "bytes that the framework keeps allocated whatever the plan"),
    {.name = "allocator_factor",
     .kind = DTP_FIELD_DOUBLE,
     .offset = F(keeps.allocator_factor),
     .min = 1,
     .max = 2,
     .help = "reserved over allocated bytes of the caching allocator"},
    NUMBER(keeps, cache_factor, 2,
           "as allocator_factor, where the card has room and tp or dp exceeds 1: what nvidia-smi "
           "shows"),
    NUMBER(keeps, margin, 0.5,
           "share of device memory kept free: validated error of the predicted peak"),
    NUMBER(keeps, logits_copies_bytes, 64, "bytes per logit alive at the start of the backward"),
    NUMBER(keeps, logits_tp_copies_bytes, 64,
           "the same with tp > 1, whose loss may be another; 0: logits_copies_bytes"),
    NUMBER(keeps, gathered_bytes, 8,
           "ZeRO-3: bytes of a parameter on the wire and while in use; 0: weight_bytes"),
    NUMBER(keeps, fp8_gathered_bytes, 8,
           "FP8: gathered_bytes where parameters themselves are FP8; 0: gathered_bytes"),
    NUMBER(keeps, fp8_weight_bytes, 8,
           "FP8: bytes per parameter of a layer of copies beside its 16-bit weights"),
    NUMBER(keeps, reducer_bytes, 16, "bytes per parameter of all reduction buckets, without ZeRO"),
    INTEGER(keeps, reducer_ranks, 4096, "data-parallel ranks from which on these buckets exist"),
    NUMBER(keeps, logits_saved_bytes, 64,
           "bytes per logit kept from the forward to the backward of a microbatch"),
    BOOLEAN(keeps, lazy_gradients, "gradients exist only from their backward to the update"),
    NUMBER(keeps, step_copy_bytes, 64,
           "per parameter of the update: copies of gradients that live in it only"),
    {0}};

static const struct dtp_field can_fields[] = {
    INTEGER(can, max_tp, 4096, "largest tp; 0: no limit, 1: none"),
    INTEGER(can, max_pp, 4096, "largest pp; 0: no limit, 1: none"),
    BOOLEAN(can, has_sequence_parallel, "has Megatron's sequence parallelism"),
    BOOLEAN(can, has_cp, "has context parallelism"),
    BOOLEAN(can, has_mtp, "trains multi-token prediction; else the main model alone"),
    BOOLEAN(can, has_ep,
            "has layers of experts and expert parallelism; else it refuses such models"),
    {.name = "expert_tp",
     .kind = DTP_FIELD_ENUM,
     .offset = F(can.expert_tp),
     .names = expert_tp_names,
     .help = "tensor parallel degree of routed experts: that of the layer, also one, any"},
    BOOLEAN(can, has_ep_per_node,
            "tokens may go once to each node with experts of theirs (DeepEP)"),
    BOOLEAN(can, has_ep_overlap,
            "all-to-all of experts may hide behind another microbatch's compute"),
    INTEGER(can, max_ep, 4096, "largest ep; 0: no limit, 1: each rank holds all experts"),
    BOOLEAN(can, uneven_stages, "stages may hold different numbers of layers"),
    BOOLEAN(can, uneven_chunks, "so may the chunks of interleaved stages"),
    BOOLEAN(can, accounts_for_ends, "embedding and head may count as a layer each of their stages"),
    LIST(schedules, "names of the pipeline schedules it has"),
    LIST(dtypes, "types of its products; left out: all of 16 and 32 bit"),
    LIST(zero_stages, "ZeRO stages it has"),
    LIST(zero_stages_pp, "ZeRO stages allowed with pp > 1"),
    BOOLEAN(can, pp_keeps_gathered,
            "with pp > 1 parameters stay gathered over the microbatches unless asked otherwise"),
    LIST(zero_stages_tp, "ZeRO stages allowed with tp > 1"),
    BOOLEAN(can, hybrid_shard, "ZeRO-3 in groups: sharded inside, replicated between (HSDP, MiCS)"),
    LIST(recompute, "recomputation modes it has"),
    {.name = "recompute_modules",
     .kind = DTP_FIELD_SET,
     .offset = F(can.recompute_modules),
     .names = dtp_module_names,
     .help = "parts of a layer that selective recomputation can choose"},
    {.name = "recompute_layers",
     .kind = DTP_FIELD_ENUM,
     .offset = F(can.recompute_layers),
     .names = recompute_some_names,
     .help = "full recomputation: of all layers alone, of any number of them, of every n-th"},
    {.name = "optimizers",
     .kind = DTP_FIELD_SET,
     .offset = F(can.optimizers),
     .names = dtp_optimizer_names,
     .help = "optimizers that --optimizer may name"},
    BOOLEAN(can, offload, "can keep optimizer state on the host, with ZeRO-3 the weights too"),
    {0}};

/* The offsets of the groups count from the whole document, so that lists can be read next to the framework. */
#define GROUP(group, text)                                                                         \
    { .name = #group, .kind = DTP_FIELD_OBJECT, .fields = group##_fields, .help = text }

const struct dtp_field dtp_framework_fields[] = {
    {.name = "name",
     .kind = DTP_FIELD_STRING,
     .offset = F(name),
     .required = true,
     .help = "as in --framework"},
    {.name = "title",
     .kind = DTP_FIELD_STRING,
     .offset = F(title),
     .required = true,
     .help = "one line for people"},
    {.name = "base",
     .kind = DTP_FIELD_STRING,
     .offset = F(base),
     .help = "name or file of a framework: this file lists only what differs from it"},
    LIST(aliases, "other names, such as those in measured data"),
    GROUP(kernels, "kernels of a layer, and how fast they are beside those of the GPU file"),
    GROUP(wire, "what is sent, when, and what hides behind what"),
    GROUP(host, "time of the host"),
    GROUP(keeps, "what is kept in device memory"),
    GROUP(can, "what the framework has; a plan that asks for more is refused"),
    {.name = "quirks",
     .kind = DTP_FIELD_OBJECT,
     .offset = F(quirks),
     .fields = dtp_quirk_fields,
     .help = "what one or two frameworks alone need; null drops one that the base has"},
    LIST(fitted, "names of the fields that were fitted to measured steps"),
    {0}};

const struct dtp_field dtp_framework_gpu_fields[] = {
    {.name = "family",
     .kind = DTP_FIELD_STRING,
     .offset = offsetof(struct dtp_framework_gpu, family),
     .required = true,
     .help = "family of hw/gpu"},
    {.name = "attention",
     .kind = DTP_FIELD_ENUM,
     .offset = offsetof(struct dtp_framework_gpu, attention),
     .names = dtp_attention_names,
     .help = "attention kernel of the stack on this family"},
    {.name = "kernel_time_factor",
     .kind = DTP_FIELD_DOUBLE,
     .offset = offsetof(struct dtp_framework_gpu, kernel_time_factor),
     .max = 10,
     .help = "fitted: GEMM and memory-bound kernels over the GPU file's"},
    {.name = "attention_time_factor",
     .kind = DTP_FIELD_DOUBLE,
     .offset = offsetof(struct dtp_framework_gpu, attention_time_factor),
     .max = 10,
     .help = "fitted: the fused attention kernel over the GPU file's"},
    {.name = "norm_time_factor",
     .kind = DTP_FIELD_DOUBLE,
     .offset = offsetof(struct dtp_framework_gpu, norm_time_factor),
     .max = 10,
     .help = "norm kernels of the stack over the GPU file's; left out: as of the framework"},
    {.name = "norm_backward_time_factor",
     .kind = DTP_FIELD_DOUBLE,
     .offset = offsetof(struct dtp_framework_gpu, norm_backward_time_factor),
     .max = 10,
     .help = "the same of their backward"},
    {0}};

/* ---- reading ---- */

/* These values hold where a framework file says nothing, and the measured ones of models/framework/defaults.json. */
static const struct dtp_framework framework_default = {
    .kernels = {.attention = DTP_ATTN_UNFUSED,
                .fused_norm = true,
                .fp8_recipe = DTP_FP8_CURRENT,
                .cp_attention_factor = 1,
                .dropout = true,
                .vocab_multiple = 1,
                .optimizer_bytes_moved = 28,
                .kernel_time_factor = 1,
                .norm_time_factor = 1,
                .moe_imbalance = 1},
    .wire = {.rank_order = "tp-cp-dp-pp",
             .p2p_bytes = 2,
             .tp_overlap_fraction = 1,
             .reduce_bytes = 2,
             .zero3_forward_prefetch = true,
             .comm_time_factor = 1},
    .keeps = {.weight_bytes = 2,
              .gradient_bytes = 2,
              .optimizer_bytes = 12,
              .allocator_factor = 1,
              .logits_copies_bytes = 10},
    .can = {.uneven_stages = true,
            .optimizers = 1 << DTP_ADAMW,
            .dtypes = 1 << DTP_FP32 | 1 << DTP_TF32 | 1 << DTP_FP16 | 1 << DTP_BF16},
};

static enum dtp_status read_names(struct dtp_arena *a, const struct dtp_json *j,
                                  const char *const **out, struct dtp_err *err) {
    if (!j)
        return DTP_OK;
    if (dtp_json_type(j) != DTP_JSON_ARRAY)
        return dtp_json_expected(j, "an array of names", err);
    size_t n = dtp_json_size(j);
    const char **names = DTP_NEW(a, const char *, n + 1);
    for (size_t i = 0; i < n; i++) {
        const struct dtp_json *item = dtp_json_at(j, i);
        if (dtp_json_type(item) != DTP_JSON_STRING)
            return dtp_json_expected(item, "a name", err);
        names[i] = dtp_json_string(item);
    }
    *out = names;
    return DTP_OK;
}

static enum dtp_status read_stage_bits(const struct dtp_json *j, int *out, struct dtp_err *err) {
    if (!j)
        return DTP_OK;
    if (dtp_json_type(j) != DTP_JSON_ARRAY)
        return dtp_json_expected(j, "an array of ZeRO stages", err);
    *out = 0;
    for (size_t i = 0; i < dtp_json_size(j); i++) {
        const struct dtp_json *item = dtp_json_at(j, i);
        double v = dtp_json_type(item) == DTP_JSON_NUMBER ? dtp_json_number(item) : -1;
        if (!(v == 0 || v == 1 || v == 2 || v == 3))
            return dtp_json_expected(item, "a ZeRO stage 0, 1, 2 or 3", err);
        *out |= 1 << (int)v;
    }
    return DTP_OK;
}

/* Sets a bit for each name that is given. */
static enum dtp_status read_bits(struct dtp_arena *a, const struct dtp_json *j, const char *what,
                                 const char *const *names, size_t nnames, int *out,
                                 struct dtp_err *err) {
    const char *const *given = NULL;
    DTP_TRY(read_names(a, j, &given, err));
    if (!given)
        return DTP_OK;
    *out = 0;
    for (size_t i = 0; given[i]; i++) {
        int k = dtp_name_index(names, given[i]);
        if (k < 0)
            return dtp_unknown_name(err, DTP_EINPUT, what, given[i], names, nnames, NULL);
        *out |= 1 << k;
    }
    return DTP_OK;
}

static enum dtp_status read_by_gpu(struct dtp_arena *a, const struct dtp_json *j,
                                   struct dtp_framework *out, struct dtp_err *err) {
    if (!j)
        return DTP_OK;
    if (dtp_json_type(j) != DTP_JSON_ARRAY)
        return dtp_json_expected(j, "an array of objects, one per GPU family", err);
    out->kernels.nby_gpu = dtp_json_size(j);
    struct dtp_framework_gpu *gpu = DTP_NEW(a, struct dtp_framework_gpu, out->kernels.nby_gpu);
    for (size_t i = 0; i < out->kernels.nby_gpu; i++) {
        gpu[i] =
            (struct dtp_framework_gpu){.attention = out->kernels.attention,
                                       .kernel_time_factor = out->kernels.kernel_time_factor,
                                       .attention_time_factor = 1,
                                       .norm_time_factor = out->kernels.norm_time_factor,
                                       .norm_backward_time_factor = out->kernels.norm_time_factor};
        DTP_TRY(dtp_fields_read(a, dtp_json_at(j, i), dtp_framework_gpu_fields, &gpu[i], err));
    }
    out->kernels.by_gpu = gpu;
    return DTP_OK;
}

/* ---- files, by name or path ---- */

enum dtp_status dtp_framework_list(struct dtp_arena *a, const char *const **out_names,
                                   size_t *out_n, struct dtp_err *err) {
    return dtp_dir_list(a, dtp_data_path(a, "models/frameworks"), ".json", out_names, out_n, err);
}

/* Whether a file has this name or alias. */
static enum dtp_status answers_to(struct dtp_arena *a, const struct dtp_json *j, const char *name,
                                  bool *out, struct dtp_err *err) {
    const struct dtp_json *own = dtp_json_get(j, "name");
    const char *const *aliases = NULL;
    DTP_TRY(read_names(a, dtp_json_get(j, "aliases"), &aliases, err));
    *out =
        own && dtp_json_type(own) == DTP_JSON_STRING && dtp_same_name(dtp_json_string(own), name);
    for (size_t i = 0; aliases && aliases[i]; i++)
        *out = *out || dtp_same_name(aliases[i], name);
    return DTP_OK;
}

static enum dtp_status find_file(struct dtp_arena *a, const char *name, const struct dtp_json **out,
                                 struct dtp_err *err) {
    const char *const *names;
    size_t n;
    if (dtp_ends_with(name, ".json"))
        return dtp_json_read_file(a, name, out, err);
    DTP_TRY(dtp_framework_list(a, &names, &n, err));
    int exact = dtp_name_index(names, name);
    for (size_t i = 0; i < n; i++) {
        if (exact >= 0 && (size_t)exact != i)
            continue;
        const char *path =
            dtp_data_path(a, dtp_arena_printf(a, "models/frameworks/%s.json", names[i]));
        bool found = false;
        DTP_TRY(dtp_json_read_file(a, path, out, err));
        DTP_TRY(answers_to(a, *out, name, &found, err));
        if (found)
            return DTP_OK;
    }
    return dtp_unknown_name(err, DTP_EINPUT, "framework", name, names, n, "dtplan frameworks");
}

/* ---- files that build on another, and those of before there were groups ---- */

/* Returns the place of a key that is in some group, such as "host.launch_s"; NULL: no group has it. */
static const char *place_of(struct dtp_arena *a, const struct dtp_field *fields, const char *key) {
    for (const struct dtp_field *f = fields; f->name; f++) {
        if (f->kind != DTP_FIELD_OBJECT)
            continue;
        if (dtp_field_find(f->fields, key))
            return dtp_arena_printf(a, "%s.%s", f->name, key);
        const char *inside = place_of(a, f->fields, key);
        if (inside)
            return dtp_arena_printf(a, "%s.%s", f->name, inside);
    }
    return NULL;
}

/* Files once listed their keys without groups. */
static enum dtp_status refuse_flat(struct dtp_arena *a, const struct dtp_json *j,
                                   struct dtp_err *err) {
    if (dtp_json_type(j) != DTP_JSON_OBJECT)
        return dtp_json_expected(j, "an object", err);
    for (size_t i = 0; i < dtp_json_size(j); i++) {
        char place[512];
        const char *key = dtp_json_key(dtp_json_at(j, i));
        if (dtp_field_find(dtp_framework_fields, key))
            continue;
        const char *now =
            strcmp(key, "memory") == 0 ? "keeps" : place_of(a, dtp_framework_fields, key);
        if (now)
            return dtp_fail(err, DTP_EINPUT, "%s: this key is now \"%s\"",
                            dtp_json_place(dtp_json_at(j, i), place, sizeof place), now);
    }
    return DTP_OK;
}

enum { MOST_BASES = 8 }; /* so many may build on each other */

static enum dtp_status read_over(struct dtp_arena *a, const struct dtp_json *j, int depth,
                                 struct document *d, struct dtp_err *err);

/* Reads the base's fields, but not those that name the base itself. */
static enum dtp_status read_base(struct dtp_arena *a, const struct dtp_json *base, int depth,
                                 struct document *d, struct dtp_err *err) {
    char place[512];
    const struct dtp_json *j;
    if (dtp_json_type(base) != DTP_JSON_STRING)
        return dtp_json_expected(base, "the name of a framework", err);
    if (depth == MOST_BASES)
        return dtp_fail(err, DTP_EINPUT, "%s: more than %d bases build on each other: a circle?",
                        dtp_json_place(base, place, sizeof place), MOST_BASES);
    DTP_TRY(find_file(a, dtp_json_string(base), &j, err));
    DTP_TRY(read_over(a, j, depth + 1, d, err));
    d->aliases = NULL;
    d->framework.base = NULL;
    return DTP_OK;
}

static enum dtp_status read_over(struct dtp_arena *a, const struct dtp_json *j, int depth,
                                 struct document *d, struct dtp_err *err) {
    DTP_TRY(refuse_flat(a, j, err));
    const struct dtp_json *base = dtp_json_get(j, "base"), *quirks = dtp_json_get(j, "quirks");
    if (base)
        DTP_TRY(read_base(a, base, depth, d, err));
    if (quirks)
        dtp_quirks_drop(quirks, &d->framework.quirks);
    return dtp_fields_read(a, j, dtp_framework_fields, d, err);
}

enum dtp_status dtp_framework_read(struct dtp_arena *a, const struct dtp_json *j,
                                   struct dtp_framework *out, struct dtp_err *err) {
    static const char *const recompute_names[] = {"none", "selective", "full", NULL};
    static const char *const default_schedules[] = {"gpipe", "1f1b", "interleaved", NULL};
    struct document d = {.framework = framework_default};
    d.framework.quirks = dtp_quirks_default;
    d.framework.can.schedules = default_schedules;
    const struct dtp_json *measured = NULL;
    DTP_TRY(
        dtp_json_read_file(a, dtp_data_path(a, "models/framework/defaults.json"), &measured, err));
    DTP_TRY(dtp_fields_read(a, measured, dtp_framework_fields, &d, err));
    DTP_TRY(read_over(a, j, 0, &d, err));
    *out = d.framework;
    out->can.zero_stages = out->can.recompute_modes = 1;
    DTP_TRY(read_names(a, d.aliases, &out->aliases, err));
    DTP_TRY(read_names(a, d.schedules, &out->can.schedules, err));
    DTP_TRY(read_names(a, d.fitted, &out->fitted, err));
    DTP_TRY(read_by_gpu(a, d.by_gpu, out, err));
    DTP_TRY(read_stage_bits(d.zero_stages, &out->can.zero_stages, err));
    out->can.zero_stages_pp = out->can.zero_stages_tp = out->can.zero_stages;
    DTP_TRY(read_stage_bits(d.zero_stages_pp, &out->can.zero_stages_pp, err));
    DTP_TRY(read_stage_bits(d.zero_stages_tp, &out->can.zero_stages_tp, err));
    DTP_TRY(read_bits(a, d.recompute, "recomputation", recompute_names, 3,
                      &out->can.recompute_modes, err));
    DTP_TRY(read_bits(a, d.dtypes, "dtype", dtp_dtype_names, DTP_NDTYPES, &out->can.dtypes, err));
    const struct dtp_json *source = dtp_json_get(j, "source");
    if (source && dtp_json_type(source) == DTP_JSON_STRING)
        out->source = dtp_json_string(source);
    return DTP_OK;
}

enum dtp_status dtp_framework_file(struct dtp_arena *a, const char *name, struct dtp_framework *out,
                                   const struct dtp_json **out_json, struct dtp_err *err) {
    DTP_TRY(find_file(a, name, out_json, err));
    return dtp_framework_read(a, *out_json, out, err);
}

enum dtp_status dtp_framework_load(struct dtp_arena *a, const char *name, struct dtp_framework *out,
                                   struct dtp_err *err) {
    const struct dtp_json *file;
    return dtp_framework_file(a, name, out, &file, err);
}
