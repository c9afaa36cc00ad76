#include "models/framework.h"

#include <stddef.h>
#include <string.h>

#include "sim/base/text.h"
#include "sim/base/units.h"

/* What a file holds: the framework and the lists that are read by hand. */
struct document {
    struct dtp_framework framework;
    const struct dtp_json *aliases, *schedules, *zero_stages, *zero_stages_pp, *zero_stages_tp,
        *dp_overlap_stages, *recompute, *fitted, *by_gpu;
};

#define F(member) (offsetof(struct document, framework) + offsetof(struct dtp_framework, member))
#define M(member) offsetof(struct dtp_framework_memory, member)

static const struct dtp_field memory_fields[] = {
    {.name = "weight_bytes",
     .kind = DTP_FIELD_DOUBLE,
     .offset = M(weight_bytes),
     .max = 8,
     .help = "bytes of one parameter used by the kernels"},
    {.name = "gradient_bytes",
     .kind = DTP_FIELD_DOUBLE,
     .offset = M(gradient_bytes),
     .max = 8,
     .help = "bytes of one gradient kept over a step"},
    {.name = "optimizer_bytes",
     .kind = DTP_FIELD_DOUBLE,
     .offset = M(optimizer_bytes),
     .max = 32,
     .help = "bytes of optimizer state per parameter: fp32 master 4 and two moments 8"},
    {.name = "context_bytes",
     .kind = DTP_FIELD_DOUBLE,
     .offset = M(context_bytes),
     .max = 1e11,
     .help = "device bytes of the CUDA context and library workspaces"},
    {.name = "communicator_bytes",
     .kind = DTP_FIELD_DOUBLE,
     .offset = M(communicator_bytes),
     .max = 1e11,
     .help = "device bytes of one communicator's buffers"},
    {.name = "bucket_bytes",
     .kind = DTP_FIELD_DOUBLE,
     .offset = M(bucket_bytes),
     .max = 1e11,
     .help = "bytes of reduction buckets alive at once"},
    {.name = "fixed_bytes",
     .kind = DTP_FIELD_DOUBLE,
     .offset = M(fixed_bytes),
     .max = 1e11,
     .help = "bytes that the framework keeps allocated whatever the plan"},
    {.name = "attention_copies_bytes",
     .kind = DTP_FIELD_DOUBLE,
     .offset = M(attention_copies_bytes),
     .max = 64,
     .help = "bytes per token and element of the heads' width kept beside Q, K, V and the output"},
    {.name = "backward_gradient_bytes",
     .kind = DTP_FIELD_DOUBLE,
     .offset = M(backward_gradient_bytes),
     .max = 8,
     .help = "bytes per parameter of one backward's gradients, added to the step's at its end"},
    {.name = "allocator_factor",
     .kind = DTP_FIELD_DOUBLE,
     .offset = M(allocator_factor),
     .min = 1,
     .max = 2,
     .help = "reserved over allocated bytes of the caching allocator"},
    {.name = "cache_factor",
     .kind = DTP_FIELD_DOUBLE,
     .offset = M(cache_factor),
     .max = 2,
     .help = "as allocator_factor, where the card has room: what nvidia-smi shows after a while"},
    {.name = "margin",
     .kind = DTP_FIELD_DOUBLE,
     .offset = M(margin),
     .max = 0.5,
     .help = "share of device memory kept free: validated error of the predicted peak"},
    {.name = "logits_copies_bytes",
     .kind = DTP_FIELD_DOUBLE,
     .offset = M(logits_copies_bytes),
     .max = 64,
     .help = "bytes per logit alive at the start of the backward"},
    {.name = "gathered_bytes",
     .kind = DTP_FIELD_DOUBLE,
     .offset = M(gathered_bytes),
     .max = 8,
     .help = "ZeRO-3: bytes of a parameter on the wire and while in use; 0: weight_bytes"},
    {.name = "cached_weight_bytes",
     .kind = DTP_FIELD_DOUBLE,
     .offset = M(cached_weight_bytes),
     .max = 8,
     .help = "bytes per parameter of 16-bit copies that the backward needs"},
    {.name = "reducer_bytes",
     .kind = DTP_FIELD_DOUBLE,
     .offset = M(reducer_bytes),
     .max = 16,
     .help = "bytes per parameter of all reduction buckets, without ZeRO"},
    {.name = "logits_saved_bytes",
     .kind = DTP_FIELD_DOUBLE,
     .offset = M(logits_saved_bytes),
     .max = 64,
     .help = "bytes per logit kept from the forward to the backward of a microbatch"},
    {.name = "outputs_kept_bytes",
     .kind = DTP_FIELD_DOUBLE,
     .offset = M(outputs_kept_bytes),
     .max = 16,
     .help = "pipeline: bytes per logit of each microbatch kept until the step ends"},
    {.name = "gradient_copy_bytes",
     .kind = DTP_FIELD_DOUBLE,
     .offset = M(gradient_copy_bytes),
     .max = 64,
     .help = "per parameter with dp x cp > 1: what their reduction keeps beside them"},
    {.name = "lazy_gradients",
     .kind = DTP_FIELD_BOOL,
     .offset = M(lazy_gradients),
     .help = "gradients exist only from their backward to the update"},
    {.name = "overlap_bucket_bytes",
     .kind = DTP_FIELD_DOUBLE,
     .offset = M(overlap_bucket_bytes),
     .max = 1e11,
     .help = "ZeRO-1/2: second buckets, where reductions overlap the backward"},
    {.name = "step_copy_bytes",
     .kind = DTP_FIELD_DOUBLE,
     .offset = M(step_copy_bytes),
     .max = 64,
     .help = "per parameter of the update: copies of gradients that live in it only"},
    {.name = "transfers_kept",
     .kind = DTP_FIELD_BOOL,
     .offset = M(transfers_kept),
     .help = "pipeline: a transfer buffer for each microbatch and direction"},
    {0}};

#define BOOLEAN(member, text)                                                                      \
    { .name = #member, .kind = DTP_FIELD_BOOL, .offset = F(member), .help = text }
#define NUMBER(member, top, text)                                                                  \
    { .name = #member, .kind = DTP_FIELD_DOUBLE, .offset = F(member), .max = top, .help = text }
#define INTEGER(member, top, text)                                                                 \
    { .name = #member, .kind = DTP_FIELD_INT, .offset = F(member), .max = top, .help = text }
#define LIST(member, text)                                                                         \
    {                                                                                              \
        .name = #member, .kind = DTP_FIELD_JSON, .offset = offsetof(struct document, member),      \
        .help = text                                                                               \
    }

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
    LIST(aliases, "other names, such as those in measured data"),
    {.name = "memory",
     .kind = DTP_FIELD_OBJECT,
     .offset = F(memory),
     .fields = memory_fields,
     .help = "bytes per parameter and fixed amounts"},
    {.name = "attention",
     .kind = DTP_FIELD_ENUM,
     .offset = F(attention),
     .names = dtp_attention_names,
     .help = "attention kernel used unless a row or option says"},
    BOOLEAN(fused_softmax, "scale, mask and softmax are one kernel"),
    INTEGER(fused_softmax_multiple, 1024,
            "the softmax is fused where heads x microbatch of a rank is a multiple; 0: always"),
    BOOLEAN(fused_bias_activation, "bias and activation are one kernel"),
    BOOLEAN(fused_bias_dropout_add, "bias, dropout and residual add are one kernel"),
    BOOLEAN(fused_linear_bias, "the bias of a linear layer is in the GEMM's epilogue"),
    BOOLEAN(fused_norm, "a norm is one kernel; else five elementwise passes"),
    BOOLEAN(fused_rope, "rotary embedding is one kernel"),
    BOOLEAN(fused_cross_entropy, "cross-entropy without fp32 copies of all logits"),
    BOOLEAN(half_cross_entropy, "cross-entropy keeps its tensors in 16 bit"),
    BOOLEAN(fused_gradient_accumulation, "the weight-gradient GEMM adds into the gradient buffer"),
    BOOLEAN(fp32_gradient_accumulation, "gradients are accumulated in fp32"),
    NUMBER(fp8_cast_bytes, 16,
           "FP8: bytes per element of inputs and output gradients to cast them"),
    BOOLEAN(whole_gemm_waves, "its cuBLAS fills whole waves of tiles, as before CUDA 12"),
    BOOLEAN(eager, "one kernel per operator, as Hugging Face models run"),
    BOOLEAN(autocast, "eager: weights and residual stream in fp32, products in 16 bit"),
    BOOLEAN(gelu_chain, "eager: GELU as eight elementwise kernels"),
    BOOLEAN(fp8_cast_after_gather, "FP8: each rank casts what it gathered, as rowwise scales need"),
    NUMBER(cp_attention_factor, 10, "fitted: ring attention over one kernel of the whole"),
    BOOLEAN(separate_products, "q, k, v, gate and up are products of their own"),
    BOOLEAN(selective_alternate_products,
            "selective recomputation repeats all but attention and every second product"),
    BOOLEAN(recompute_stops_early, "full recomputation ends with the last tensor that was saved"),
    BOOLEAN(native, "dtplan's own runtime: its kernels and allocations one by one"),
    BOOLEAN(inline_communication, "ranks copy and reduce themselves, as part of their actions"),
    BOOLEAN(dropout, "false: no dropout kernels whatever the model says"),
    BOOLEAN(vocab_padded, "false: the vocabulary is padded only with tp > 1"),
    INTEGER(vocab_multiple, 4096, "the vocabulary is padded to a multiple of this times tp"),
    NUMBER(optimizer_bytes_moved, 512, "bytes read and written per parameter by the update"),
    {.name = "rank_order",
     .kind = DTP_FIELD_STRING,
     .offset = F(rank_order),
     .help = "axes of the rank number, innermost first"},
    BOOLEAN(p2p_blocking, "pipeline transfers stop the compute streams of both neighbours"),
    BOOLEAN(p2p_slots,
            "interleaved: ranks go by time slots and wait for a slot's transfers together"),
    BOOLEAN(scatter_gather, "pipeline messages are split over tp and gathered in the node"),
    BOOLEAN(keeps_stage_outputs, "what a stage sent stays allocated until its backward"),
    NUMBER(p2p_bytes, 8, "bytes per activation element between stages"),
    BOOLEAN(keeps_gathered_input, "sequence parallelism: the gathered input of a layer is kept"),
    BOOLEAN(tp_overlap, "backward tp collectives run behind weight-gradient GEMMs"),
    BOOLEAN(tp_overlap_forward, "tp collectives of the forward run behind GEMMs too (userbuffers)"),
    NUMBER(tp_overlap_fraction, 1, "share of the overlapped tp time that can hide"),
    BOOLEAN(dp_overlap, "gradients are reduced behind the last backward, bucket by bucket"),
    NUMBER(dp_bucket_params_per_rank, DTP_GIGA,
           "a bucket has at least so many parameters per rank"),
    NUMBER(dp_bucket_bytes, 1e11, "bytes of one reduction bucket; 0: one bucket"),
    BOOLEAN(param_gather_overlap, "ZeRO-1/2: parameters are gathered behind the next forward"),
    BOOLEAN(zero1_reduce_scatter, "ZeRO-1 reduces with reduce-scatter; false: all-reduce"),
    BOOLEAN(zero2_reduce_scatter, "ZeRO-2 reduces with reduce-scatter; false: all-reduce"),
    LIST(dp_overlap_stages, "ZeRO stages in which dp_overlap holds; left out: all"),
    NUMBER(reduce_bytes, 8, "bytes per gradient on the wire"),
    BOOLEAN(reduce_per_microbatch, "ZeRO-2/3 reduce after each microbatch"),
    BOOLEAN(zero3_regather_backward, "ZeRO-3 gathers parameters again for the backward"),
    INTEGER(zero3_prefetch_layers, 64, "ZeRO-3: layers gathered ahead"),
    NUMBER(zero3_unit_params, DTP_TERA, "ZeRO-3: parameters of one gather; 0: those of a layer"),
    NUMBER(zero3_reuse_params, DTP_TERA,
           "ZeRO-3: what is used again within so many parameters stays gathered"),
    BOOLEAN(zero3_buckets, "ZeRO-3 reduces in buckets of dp_bucket_bytes, not layer by layer"),
    NUMBER(zero_copy_bytes, 64, "ZeRO-1/2: bytes copied per gradient around its reduction"),
    BOOLEAN(zero3_forward_prefetch, "ZeRO-3: false: only the backward gathers ahead"),
    NUMBER(zero3_copy_out_bytes, 64, "ZeRO-3: bytes copied per gathered parameter"),
    NUMBER(zero3_copy_in_bytes, 64, "ZeRO-3: bytes copied per gradient before it is reduced"),
    BOOLEAN(tied_embedding_all_reduce, "first and last stage sum the gradient of tied embeddings"),
    NUMBER(launch_s, 1, "host time per kernel of the forward"),
    NUMBER(kernel_gap_s, 1, "GPU time between kernels beside the GPU's own gap (a tracer's)"),
    NUMBER(collective_gap_s, 1, "GPU time around a layer's collective until all ranks have met"),
    NUMBER(backward_launch_factor, 10, "host time per kernel of the backward over launch_s"),
    NUMBER(collective_host_s, 1, "host time per collective, beside its launch"),
    NUMBER(tp_hop_s, 1, "per ring step of a tp group that spans nodes, beside the network's time"),
    BOOLEAN(checked_collectives,
            "each collective is checked first (TORCH_DISTRIBUTED_DEBUG=DETAIL)"),
    NUMBER(check_rank_s, 1, "checked_collectives: host time per collective and rank of its group"),
    BOOLEAN(checked_transfers, "each transfer between stages waits for check_transfer_s"),
    NUMBER(check_transfer_s, 10, "checked_transfers: time of each transfer"),
    BOOLEAN(launch_blocking, "every launch waits for its kernel (CUDA_LAUNCH_BLOCKING=1)"),
    BOOLEAN(host_sync, "the host waits for the GPU at the start of each microbatch"),
    NUMBER(layer_host_s, 1, "host time per layer and direction, beside the kernels'"),
    NUMBER(zero3_host_s, 1, "ZeRO-3: host time per layer and direction to unshard and reshard"),
    NUMBER(p2p_host_s, 1, "exposed host time per transfer between stages"),
    NUMBER(microbatch_host_s, 10, "exposed host time per microbatch and rank"),
    NUMBER(step_host_s, 100, "exposed host time per step"),
    LIST(by_gpu, "per GPU family: attention kernel, kernel_time_factor, attention_time_factor"),
    NUMBER(small_head_factor, 10,
           "fitted: fused attention with head_dim up to 64, over the GPU file's and by_gpu"),
    NUMBER(norm_time_factor, 10, "norm kernels of this stack over the persistent ones"),
    NUMBER(kernel_time_factor, 10, "fitted: compute kernels of this stack over the GPU file's"),
    NUMBER(comm_time_factor, 10, "fitted: collectives of this stack over the cluster's"),
    INTEGER(max_tp, 4096, "largest tp; 0: no limit, 1: none"),
    INTEGER(max_pp, 4096, "largest pp; 0: no limit, 1: none"),
    BOOLEAN(has_sequence_parallel, "has Megatron's sequence parallelism"),
    BOOLEAN(has_cp, "has context parallelism"),
    BOOLEAN(has_ep, "has layers of experts and expert parallelism; else it refuses such models"),
    NUMBER(moe_imbalance, 100, "rows of the fullest expert over the mean"),
    BOOLEAN(moe_sync, "the host waits for the counts of rows in every layer of experts"),
    BOOLEAN(uneven_stages, "stages may hold different numbers of layers"),
    BOOLEAN(accounts_for_ends, "embedding and head may count as a layer each of their stages"),
    BOOLEAN(stages_by_cost, "stages are cut by the parameters of layers and head, not by layers"),
    LIST(schedules, "names of the pipeline schedules it has"),
    LIST(zero_stages, "ZeRO stages it has"),
    LIST(zero_stages_pp, "ZeRO stages allowed with pp > 1"),
    LIST(zero_stages_tp, "ZeRO stages allowed with tp > 1"),
    BOOLEAN(hybrid_shard, "ZeRO-3 in groups: sharded inside, replicated between (HSDP, MiCS)"),
    LIST(recompute, "recomputation modes it has"),
    BOOLEAN(offload, "can keep optimizer state on the host, with ZeRO-3 the weights too"),
    NUMBER(offload_gradient_bytes, 8, "offload: bytes of a gradient that go to the host"),
    NUMBER(offload_weight_bytes, 8, "offload: bytes of a weight that come back"),
    BOOLEAN(offload_each_microbatch,
            "offload: gradients leave the GPU with each microbatch; false: in the step"),
    BOOLEAN(offload_overlap, "offload: gradients leave behind the backward"),
    LIST(fitted, "names of the fields that were fitted to measured steps"),
    {0}};

/* What a framework file does not say. */
static const struct dtp_framework framework_default = {
    .memory = {.weight_bytes = 2,
               .gradient_bytes = 2,
               .optimizer_bytes = 12,
               .allocator_factor = 1,
               .logits_copies_bytes = 10},
    .attention = DTP_ATTN_UNFUSED,
    .fused_norm = true,
    .dropout = true,
    .vocab_multiple = 1,
    .vocab_padded = true,
    .optimizer_bytes_moved = 28,
    .rank_order = "tp-cp-dp-pp",
    .p2p_bytes = 2,
    .tp_overlap_fraction = 1,
    .fp8_cast_bytes = 4,
    .reduce_bytes = 2,
    .zero2_reduce_scatter = true,
    .dp_overlap_stages = 15,
    .backward_launch_factor = 0.62, /* traces of PyTorch 2.11: 31 against 50 us */
    .norm_time_factor = 1,
    .small_head_factor = 1,
    .zero3_forward_prefetch = true,
    .cp_attention_factor = 1,
    .moe_imbalance = 1,
    .offload_gradient_bytes = 2,
    .offload_weight_bytes = 2,
    .kernel_time_factor = 1,
    .comm_time_factor = 1,
    .uneven_stages = true,
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

static enum dtp_status read_recompute(struct dtp_arena *a, const struct dtp_json *j, int *out,
                                      struct dtp_err *err) {
    static const char *const names[] = {"none", "selective", "full", NULL};
    const char *const *given = NULL;
    DTP_TRY(read_names(a, j, &given, err));
    if (!given)
        return DTP_OK;
    *out = 0;
    for (size_t i = 0; given[i]; i++) {
        int k = dtp_name_index(names, given[i]);
        if (k < 0)
            return dtp_unknown_name(err, DTP_EINPUT, "recomputation", given[i], names, 3, NULL);
        *out |= 1 << k;
    }
    return DTP_OK;
}

static const struct dtp_field gpu_fields[] = {
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
    {0}};

static enum dtp_status read_by_gpu(struct dtp_arena *a, const struct dtp_json *j,
                                   struct dtp_framework *out, struct dtp_err *err) {
    if (!j)
        return DTP_OK;
    if (dtp_json_type(j) != DTP_JSON_ARRAY)
        return dtp_json_expected(j, "an array of objects, one per GPU family", err);
    out->nby_gpu = dtp_json_size(j);
    struct dtp_framework_gpu *gpu = DTP_NEW(a, struct dtp_framework_gpu, out->nby_gpu);
    for (size_t i = 0; i < out->nby_gpu; i++) {
        gpu[i] = (struct dtp_framework_gpu){.attention = out->attention,
                                            .kernel_time_factor = out->kernel_time_factor,
                                            .attention_time_factor = 1};
        DTP_TRY(dtp_fields_read(a, dtp_json_at(j, i), gpu_fields, &gpu[i], err));
    }
    out->by_gpu = gpu;
    return DTP_OK;
}

struct dtp_framework_gpu dtp_framework_on(const struct dtp_framework *f,
                                          const struct dtp_gpu *gpu) {
    for (size_t i = 0; i < f->nby_gpu; i++)
        if (strcmp(f->by_gpu[i].family, gpu->family) == 0)
            return f->by_gpu[i];
    return (struct dtp_framework_gpu){gpu->family, f->attention, f->kernel_time_factor, 1};
}

enum dtp_status dtp_framework_read(struct dtp_arena *a, const struct dtp_json *j,
                                   struct dtp_framework *out, struct dtp_err *err) {
    static const char *const default_schedules[] = {"gpipe", "1f1b", "interleaved", NULL};
    struct document d = {.framework = framework_default};
    d.framework.schedules = default_schedules;
    DTP_TRY(dtp_fields_read(a, j, dtp_framework_fields, &d, err));
    *out = d.framework;
    out->zero_stages = out->recompute_modes = 1;
    DTP_TRY(read_names(a, d.aliases, &out->aliases, err));
    DTP_TRY(read_names(a, d.schedules, &out->schedules, err));
    DTP_TRY(read_names(a, d.fitted, &out->fitted, err));
    DTP_TRY(read_by_gpu(a, d.by_gpu, out, err));
    DTP_TRY(read_stage_bits(d.zero_stages, &out->zero_stages, err));
    out->zero_stages_pp = out->zero_stages_tp = out->zero_stages;
    DTP_TRY(read_stage_bits(d.zero_stages_pp, &out->zero_stages_pp, err));
    DTP_TRY(read_stage_bits(d.zero_stages_tp, &out->zero_stages_tp, err));
    DTP_TRY(read_stage_bits(d.dp_overlap_stages, &out->dp_overlap_stages, err));
    DTP_TRY(read_recompute(a, d.recompute, &out->recompute_modes, err));
    const struct dtp_json *source = dtp_json_get(j, "source");
    if (source && dtp_json_type(source) == DTP_JSON_STRING)
        out->source = dtp_json_string(source);
    return DTP_OK;
}

enum dtp_status dtp_framework_list(struct dtp_arena *a, const char *const **out_names,
                                   size_t *out_n, struct dtp_err *err) {
    return dtp_dir_list(a, dtp_data_path(a, "models/frameworks"), ".json", out_names, out_n, err);
}

static bool answers_to(const struct dtp_framework *f, const char *name) {
    if (strcmp(f->name, name) == 0)
        return true;
    for (size_t i = 0; f->aliases && f->aliases[i]; i++)
        if (strcmp(f->aliases[i], name) == 0)
            return true;
    return false;
}

enum dtp_status dtp_framework_load(struct dtp_arena *a, const char *name, struct dtp_framework *out,
                                   struct dtp_err *err) {
    const struct dtp_json *j;
    size_t length = strlen(name);
    if (length > 5 && strcmp(name + length - 5, ".json") == 0) {
        DTP_TRY(dtp_json_read_file(a, name, &j, err));
        return dtp_framework_read(a, j, out, err);
    }
    const char *const *names;
    size_t n;
    DTP_TRY(dtp_framework_list(a, &names, &n, err));
    int exact = dtp_name_index(names, name);
    for (size_t i = 0; i < n; i++) {
        if (exact >= 0 && (size_t)exact != i)
            continue;
        const char *path =
            dtp_data_path(a, dtp_arena_printf(a, "models/frameworks/%s.json", names[i]));
        DTP_TRY(dtp_json_read_file(a, path, &j, err));
        DTP_TRY(dtp_framework_read(a, j, out, err));
        if (answers_to(out, name))
            return DTP_OK;
    }
    return dtp_unknown_name(err, DTP_EINPUT, "framework", name, names, n, "dtplan frameworks");
}

void dtp_framework_to_fp32(struct dtp_framework *f) {
    const double fp32_bytes = 4;
    struct dtp_framework_memory *m = &f->memory;
    if (m->weight_bytes >= fp32_bytes)
        return;
    if (m->optimizer_bytes >= 3 * fp32_bytes) /* master weights and two moments */
        m->optimizer_bytes -= fp32_bytes;
    m->weight_bytes = m->gradient_bytes = fp32_bytes;
    m->gathered_bytes = m->cached_weight_bytes = 0;
    f->reduce_bytes = f->p2p_bytes = fp32_bytes;
}

bool dtp_framework_dp_overlaps(const struct dtp_framework *f, int option, int zero_stage) {
    return option < 0 ? f->dp_overlap && f->dp_overlap_stages >> zero_stage & 1 : option != 0;
}

double dtp_framework_reused_params(const struct dtp_framework *f, double params) {
    double most = f->zero3_reuse_params / 2;
    return params < most ? params : most;
}

double dtp_framework_unit_params(const struct dtp_framework *f, const struct dtp_model *m) {
    double weight = (double)m->hidden * m->ffn;
    return weight > f->zero3_unit_params ? weight : f->zero3_unit_params;
}

double dtp_framework_gathered_bytes(const struct dtp_framework *f) {
    return f->memory.gathered_bytes > 0 ? f->memory.gathered_bytes : f->memory.weight_bytes;
}

double dtp_framework_check_s(const struct dtp_framework *f, int ranks) {
    return f->checked_collectives && ranks > 1 ? f->check_rank_s * ranks : 0;
}

int dtp_framework_padded_vocab(const struct dtp_framework *f, int vocab, int tp) {
    int multiple = f->vocab_multiple > 0 ? f->vocab_multiple * tp : tp;
    if (tp == 1 && !f->vocab_padded)
        return vocab;
    return (vocab + multiple - 1) / multiple * multiple;
}
