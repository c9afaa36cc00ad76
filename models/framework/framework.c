#include "models/framework/framework.h"

#include <stddef.h>
#include <string.h>

#include "models/framework/framework_private.h"
#include "sim/base/text.h"

/* What a framework file does not say. */
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
    .host = {.backward_launch_factor = 0.62}, /* traces of PyTorch 2.11: 31 against 50 us */
    .keeps = {.weight_bytes = 2,
              .gradient_bytes = 2,
              .optimizer_bytes = 12,
              .allocator_factor = 1,
              .logits_copies_bytes = 10},
    .can = {.uneven_stages = true,
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

/* Bits of the names that are given. */
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

static const struct dtp_framework_gpu *of_family(const struct dtp_framework *f,
                                                 const char *family) {
    for (size_t i = 0; i < f->kernels.nby_gpu; i++)
        if (dtp_same_name(f->kernels.by_gpu[i].family, family))
            return &f->kernels.by_gpu[i];
    return NULL;
}

struct dtp_framework_gpu dtp_framework_on(const struct dtp_framework *f,
                                          const struct dtp_gpu *gpu) {
    const struct dtp_framework_gpu *there = of_family(f, gpu->family);
    if (!there && gpu->not_calibrated && gpu->like_family)
        there = of_family(f, gpu->like_family);
    if (there)
        return *there;
    return (struct dtp_framework_gpu){.family = gpu->family,
                                      .attention = f->kernels.attention,
                                      .kernel_time_factor = f->kernels.kernel_time_factor,
                                      .attention_time_factor = 1,
                                      .norm_time_factor = f->kernels.norm_time_factor,
                                      .norm_backward_time_factor = f->kernels.norm_time_factor};
}

enum dtp_status dtp_framework_list(struct dtp_arena *a, const char *const **out_names,
                                   size_t *out_n, struct dtp_err *err) {
    return dtp_dir_list(a, dtp_data_path(a, "models/frameworks"), ".json", out_names, out_n, err);
}

static bool is_path(const char *name) {
    size_t length = strlen(name);
    return length > 5 && strcmp(name + length - 5, ".json") == 0;
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
    if (is_path(name))
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

/* The place of a key that is in some group, such as "host.launch_s"; NULL: no group has it. */
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

enum { MOST_BASES = 8 }; /* one upon the other */

static enum dtp_status read_over(struct dtp_arena *a, const struct dtp_json *j, int depth,
                                 struct document *d, struct dtp_err *err);

/* The base's fields, but for those that name the base itself. */
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

void dtp_framework_to_fp32(struct dtp_framework *f) {
    const double fp32_bytes = 4;
    struct dtp_framework_keeps *m = &f->keeps;
    if (m->weight_bytes >= fp32_bytes)
        return;
    if (m->optimizer_bytes >= 3 * fp32_bytes) /* master weights and two moments */
        m->optimizer_bytes -= fp32_bytes;
    m->weight_bytes = m->gradient_bytes = fp32_bytes;
    m->gathered_bytes = f->quirks.autocast_copies.cached_weight_bytes = 0;
    f->wire.reduce_bytes = f->wire.p2p_bytes = fp32_bytes;
}

bool dtp_framework_dp_overlaps(const struct dtp_framework *f, int option, int zero_stage) {
    return option < 0
               ? f->wire.dp_overlap && f->quirks.overlap_stages.dp_overlap_stages >> zero_stage & 1
               : option != 0;
}

double dtp_framework_reused_params(const struct dtp_framework *f, double params) {
    double most = f->quirks.zero_pieces.zero3_reuse_params / 2;
    return params < most ? params : most;
}

double dtp_framework_unit_params(const struct dtp_framework *f, const struct dtp_model *m) {
    double weight = (double)m->hidden * m->ffn;
    return weight > f->quirks.zero_pieces.zero3_unit_params
               ? weight
               : f->quirks.zero_pieces.zero3_unit_params;
}

double dtp_framework_gathered_bytes(const struct dtp_framework *f, enum dtp_dtype dtype) {
    if (dtp_dtype_narrow(dtype) && f->keeps.fp8_gathered_bytes > 0)
        return f->keeps.fp8_gathered_bytes;
    return f->keeps.gathered_bytes > 0 ? f->keeps.gathered_bytes : f->keeps.weight_bytes;
}

/* TransformerEngine, csrc/quantizer.cpp: 2 bytes in and two casts out; the tensor's maximum first costs a read
 * more; blocks bring their scales, 1/32 byte each (MX). NVFP4 reads three times (both maxima, rowwise, columnwise
 * behind a Hadamard transform) and writes two casts of half a byte and 1/16 of scales. */
double dtp_framework_cast_bytes(const struct dtp_framework *f, enum dtp_dtype dtype) {
    static const double recipe_bytes[] = {
        [DTP_FP8_DELAYED] = 4, [DTP_FP8_CURRENT] = 6, [DTP_FP8_BLOCK] = 4 + 2.0 / 32};
    if (dtype == DTP_FP4)
        return 3 * 2 + 2 * (0.5 + 1.0 / 16);
    return f->kernels.fp8_cast_bytes > 0 ? f->kernels.fp8_cast_bytes
                                         : recipe_bytes[f->kernels.fp8_recipe];
}

double dtp_framework_check_s(const struct dtp_framework *f, int ranks, bool far) {
    double rank_s =
        far ? f->quirks.polled_checks.check_far_rank_s : f->quirks.polled_checks.check_rank_s;
    return f->host.checked_collectives && ranks > 1 ? rank_s * ranks : 0;
}

bool dtp_framework_layers_vary(const struct dtp_framework *f) {
    return strncmp(f->wire.rank_order, "tp-cp", 5) != 0 ||
           f->quirks.zero_pieces.zero_copy_bytes > 0;
}

double dtp_framework_capacity(const struct dtp_framework *f, const struct dtp_model *m) {
    return m->moe.capacity_factor > 0 ? m->moe.capacity_factor : f->quirks.expert_loop.moe_capacity;
}

int dtp_framework_padded_vocab(const struct dtp_framework *f, int vocab, int tp) {
    int multiple = f->kernels.vocab_multiple > 0 ? f->kernels.vocab_multiple * tp : tp;
    if (tp == 1 && !f->quirks.traced_gaps.vocab_padded)
        return vocab;
    return (vocab + multiple - 1) / multiple * multiple;
}
