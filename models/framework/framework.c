#include "models/framework/framework.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/text.h"

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

bool dtp_framework_autocasts(const struct dtp_framework *f, int zero_stage) {
    return f->quirks.autocast_copies.autocast && zero_stage < 2;
}

double dtp_framework_gathered_bytes(const struct dtp_framework *f, enum dtp_dtype dtype) {
    if (dtp_dtype_narrow(dtype) && f->keeps.fp8_gathered_bytes > 0)
        return f->keeps.fp8_gathered_bytes;
    return f->keeps.gathered_bytes > 0 ? f->keeps.gathered_bytes : f->keeps.weight_bytes;
}

/* A cast reads 2 bytes and writes two casts (TransformerEngine, csrc/quantizer.cpp); the tensor's maximum costs one
 * read more; blocks bring their scales, 1/32 byte each (MX). NVFP4 reads three times (both maxima, rowwise, columnwise
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

double dtp_framework_kernel_gap_s(const struct dtp_framework *f, const struct dtp_gpu *gpu) {
    return f->quirks.textbook.no_kernel_gaps
               ? 0
               : gpu->kernel_gap_s + f->quirks.traced_gaps.kernel_gap_s;
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

/* ---- other frameworks that have what one does not ---- */

enum { MOST_NAMED = 3 };

struct other {
    struct dtp_framework framework;
    int distance;
    size_t number; /* among equals the order of the list */
};

static const void *at(const void *of, const struct dtp_field *f) {
    return (const char *)of + f->offset;
}

/* Counts the switches, names and numbers of the table that differ. */
static int distance(const struct dtp_field *fields, const void *x, const void *y) {
    int n = 0;
    for (const struct dtp_field *f = fields; f->name; f++) {
        const void *p = at(x, f), *q = at(y, f);
        if (f->kind == DTP_FIELD_OBJECT)
            n += distance(f->fields, p, q);
        else if (f->kind == DTP_FIELD_BOOL)
            n += *(const bool *)p != *(const bool *)q;
        else if (f->kind == DTP_FIELD_INT || f->kind == DTP_FIELD_ENUM)
            n += *(const int *)p != *(const int *)q;
        else if (f->kind == DTP_FIELD_DOUBLE)
            n += *(const double *)p != *(const double *)q;
    }
    return n;
}

static int compare(const void *x, const void *y) {
    const struct other *p = x, *q = y;
    bool p_textbook = p->framework.quirks.textbook.equal_stages;
    if (p_textbook != q->framework.quirks.textbook.equal_stages)
        return p_textbook ? 1 : -1;
    if (p->distance != q->distance)
        return p->distance < q->distance ? -1 : 1;
    return p->number < q->number ? -1 : p->number > q->number;
}

const char *const *dtp_frameworks_that(struct dtp_arena *a, const struct dtp_framework *from,
                                       dtp_framework_fn *holds, const void *context) {
    const char *const *names;
    const char **out = DTP_NEW(a, const char *, MOST_NAMED + 1);
    size_t n, nothers = 0;
    if (dtp_framework_list(a, &names, &n, NULL) != DTP_OK)
        return out;
    struct other *other = DTP_NEW(a, struct other, n);
    for (size_t i = 0; i < n; i++) {
        struct other *o = &other[nothers];
        if (dtp_framework_load(a, names[i], &o->framework, NULL) != DTP_OK ||
            o->framework.kernels.ops == DTP_OPS_OWN)
            continue;
        o->number = i;
        o->distance = distance(dtp_framework_fields, from, &o->framework);
        nothers++;
    }
    qsort(other, nothers, sizeof *other, compare);
    int named = 0;
    for (size_t i = 0; i < nothers && named < MOST_NAMED; i++)
        if (holds(&other[i].framework, context))
            out[named++] = other[i].framework.name;
    return out;
}

const char *dtp_frameworks_text(struct dtp_arena *a, const struct dtp_framework *from,
                                dtp_framework_fn *holds, const void *context) {
    struct dtp_str s = {.a = a};
    for (const char *const *name = dtp_frameworks_that(a, from, holds, context); *name; name++)
        dtp_str_printf(&s, "%s%s", s.n > 0 ? ", " : "", *name);
    return s.at;
}
