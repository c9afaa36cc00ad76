#include "hw/calibrate_internal.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/text.h"
#include "sim/base/units.h"

static bool in_list(const char *const *names, const char *name) {
    for (; names && *names; names++)
        if (!strcmp(*names, name))
            return true;
    return false;
}

/* Adds a row of zeros. */
static struct dtp_cal_row *add_row(struct dtp_arena *a, struct dtp_cal_rows *rows) {
    rows->at = dtp_arena_room(a, rows->at, sizeof *rows->at, rows->n, &rows->capacity);
    rows->at[rows->n] = (struct dtp_cal_row){0};
    return &rows->at[rows->n++];
}

/* Index of a source, added where it is new. */
static enum dtp_status find_source(struct dtp_arena *a, struct dtp_cal_rows *rows, const char *name,
                                   int *out, struct dtp_err *err) {
    size_t i = 0;

    while (i < rows->nsources && strcmp(rows->sources[i], name))
        i++;
    if (i == DTP_CAL_MAX_SOURCES)
        return dtp_fail(err, DTP_EINPUT, "%s: more than %d sources of rows", name,
                        (int)DTP_CAL_MAX_SOURCES);
    if (i == rows->nsources)
        rows->sources[rows->nsources++] = dtp_arena_strdup(a, name);
    *out = (int)i;
    return DTP_OK;
}

/* ---- CSV: sweeps of GEMMs or of attention ---- */

/* The setting of the FlashAttention papers (Dao 2023, section 4.1). */
static const int64_t paper_tokens = 16384, paper_hidden = 2048;

/* Columns of a CSV, -1 where there is none. */
struct columns {
    int gpu, dtype, m, n, k, layout, time_us, source;
    int impl, pass, causal, headdim, seqlen, tflops;
};

static int column_dtype(const char *text) {
    static const struct {
        const char *text;
        enum dtp_dtype dtype;
    } other[] = {{"fp16in/mixed", DTP_FP16}, {"bf16/fp16", DTP_BF16}};

    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        if (!strcmp(text, other[i].text))
            return (int)other[i].dtype;
    return dtp_name_index(dtp_dtype_names, text);
}

static double number(const struct dtp_csv *csv, size_t row, int column) {
    return strtod(dtp_csv_get(csv, row, column), NULL);
}

/* False: a row that is not a GEMM with a time, or is the best of a sweep. */
static bool fill_csv_gemm(const struct dtp_csv *csv, size_t i, const struct columns *c,
                          struct dtp_cal_row *out) {
    const char *layout = dtp_csv_get(csv, i, c->layout);
    int dtype = column_dtype(dtp_csv_get(csv, i, c->dtype));

    if (dtype < 0 || !strncmp(layout, "best-of", 7))
        return false;
    out->kind = DTP_CAL_GEMM;
    out->gemm = (struct dtp_gemm){(enum dtp_dtype)dtype,
                                  !strcmp(layout, "NN")       ? DTP_GEMM_DGRAD
                                  : !strcmp(layout, "NT+acc") ? DTP_GEMM_WGRAD
                                                              : DTP_GEMM_FORWARD,
                                  (int64_t)number(csv, i, c->m),
                                  (int64_t)number(csv, i, c->n),
                                  (int64_t)number(csv, i, c->k),
                                  1};
    out->time_s = number(csv, i, c->time_us) * DTP_MICRO;
    return out->gemm.m > 0 && out->gemm.n > 0 && out->gemm.k > 0 && out->time_s > 0;
}

static bool fill_csv_attention(const struct dtp_csv *csv, size_t i, const struct columns *c,
                               struct dtp_cal_row *out) {
    static const struct {
        const char *text;
        enum dtp_attention impl;
    } impls[] = {{"FA1", DTP_ATTN_FLASH1},    {"FA2", DTP_ATTN_FLASH2},
                 {"FA3", DTP_ATTN_FLASH3},    {"FA-triton", DTP_ATTN_TRITON},
                 {"triton", DTP_ATTN_TRITON}, {"cuDNN", DTP_ATTN_CUDNN}};
    bool both = !strcmp(dtp_csv_get(csv, i, c->pass), "fwd+bwd");
    struct dtp_attention_shape *s = &out->attention;
    double flops;

    for (size_t j = 0; j < sizeof impls / sizeof *impls; j++)
        if (!strcmp(dtp_csv_get(csv, i, c->impl), impls[j].text))
            s->impl = impls[j].impl;
    s->seq_q = s->seq_kv = (int64_t)number(csv, i, c->seqlen);
    s->head_dim = (int64_t)number(csv, i, c->headdim);
    if (s->impl == DTP_ATTN_UNFUSED || s->seq_q <= 0 || s->head_dim <= 0)
        return false;
    out->kind = DTP_CAL_ATTENTION;
    out->part = both ? DTP_CAL_BOTH : DTP_CAL_FORWARD;
    s->dtype = DTP_FP16;
    s->causal = number(csv, i, c->causal) > 0;
    s->batch = paper_tokens / s->seq_q;
    s->heads = s->kv_heads = paper_hidden / s->head_dim;
    flops = dtp_attention_flops(s) * (both ? 3.5 : 1);
    out->time_s = flops / (number(csv, i, c->tflops) * DTP_TERA);
    return s->batch > 0 && s->heads > 0 && number(csv, i, c->tflops) > 0;
}

static enum dtp_status read_csv(struct dtp_arena *a, const char *path,
                                const struct dtp_cal_names *names, struct dtp_cal_rows *rows,
                                struct dtp_err *err) {
    struct dtp_csv csv;
    struct columns c;

    DTP_TRY(dtp_csv_read_file(a, path, &csv, err));
    c = (struct columns){
        dtp_csv_col(&csv, "gpu"),     dtp_csv_col(&csv, "dtype"),  dtp_csv_col(&csv, "m"),
        dtp_csv_col(&csv, "n"),       dtp_csv_col(&csv, "k"),      dtp_csv_col(&csv, "layout"),
        dtp_csv_col(&csv, "time_us"), dtp_csv_col(&csv, "source"), dtp_csv_col(&csv, "impl"),
        dtp_csv_col(&csv, "pass"),    dtp_csv_col(&csv, "causal"), dtp_csv_col(&csv, "headdim"),
        dtp_csv_col(&csv, "seqlen"),  dtp_csv_col(&csv, "tflops")};
    if (c.gpu < 0 || (c.time_us < 0 && c.impl < 0))
        return dtp_fail(err, DTP_EINPUT,
                        "%s: expected the columns of a GEMM or attention sweep, see "
                        "hw/calibrate.h",
                        path);
    for (size_t i = 0; i < csv.nrows; i++) {
        const char *gpu = dtp_csv_get(&csv, i, c.gpu), *source = dtp_csv_get(&csv, i, c.source);
        struct dtp_cal_row row = {0}, *out;

        if (!in_list(names->own, gpu) && !in_list(names->same_chip, gpu)) {
            rows->other_gpu++;
            continue;
        }
        if (!(c.impl < 0 ? fill_csv_gemm : fill_csv_attention)(&csv, i, &c, &row)) {
            rows->biased++;
            continue;
        }
        DTP_TRY(find_source(a, rows, source[0] ? source : path, &row.source, err));
        row.same_chip = !in_list(names->own, gpu);
        out = add_row(a, rows);
        *out = row;
    }
    return DTP_OK;
}

/* ---- JSON ---- */

/* One op name of a JSON row. */
struct op {
    const char *name;
    enum dtp_cal_kind kind;
    enum dtp_cal_part part;
    int detail;                   /* GEMM pass, or kernel class */
    int backward;                 /* class of the backward part */
    double bytes, backward_bytes; /* an element; 0: the row has "bytes" */
    double element_bytes;         /* > 0: elements = bytes / this */
};

/* clang-format off */
static const struct op ops[] = {
    {"gemm_fwd", DTP_CAL_GEMM, DTP_CAL_FORWARD, DTP_GEMM_FORWARD, 0, 0, 0, 0},
    {"qkv", DTP_CAL_GEMM, DTP_CAL_FORWARD, DTP_GEMM_FORWARD, 0, 0, 0, 0},
    {"proj", DTP_CAL_GEMM, DTP_CAL_FORWARD, DTP_GEMM_FORWARD, 0, 0, 0, 0},
    {"fc1", DTP_CAL_GEMM, DTP_CAL_FORWARD, DTP_GEMM_FORWARD, 0, 0, 0, 0},
    {"fc2", DTP_CAL_GEMM, DTP_CAL_FORWARD, DTP_GEMM_FORWARD, 0, 0, 0, 0},
    {"gemm_dgrad", DTP_CAL_GEMM, DTP_CAL_FORWARD, DTP_GEMM_DGRAD, 0, 0, 0, 0},
    {"gemm_wgrad", DTP_CAL_GEMM, DTP_CAL_FORWARD, DTP_GEMM_WGRAD, 0, 0, 0, 0},
    {"bmm", DTP_CAL_BMM, DTP_CAL_FORWARD, DTP_GEMM_FORWARD, 0, 0, 0, 0},
    {"attn_fwd", DTP_CAL_ATTENTION, DTP_CAL_FORWARD, 0, 0, 0, 0, 0},
    {"attn_bwd", DTP_CAL_ATTENTION, DTP_CAL_BACKWARD, 0, 0, 0, 0, 0},
    {"attn_fwd_bwd", DTP_CAL_ATTENTION, DTP_CAL_BOTH, 0, 0, 0, 0, 0},
    {"add", DTP_CAL_KERNEL, DTP_CAL_FORWARD, DTP_K_ELEMENTWISE, 0, 0, 0, 0},
    {"gelu", DTP_CAL_KERNEL, DTP_CAL_FORWARD, DTP_K_ACTIVATION, 0, 0, 0, 0},
    {"silu_mul", DTP_CAL_KERNEL, DTP_CAL_FORWARD, DTP_K_ACTIVATION, 0, 0, 0, 0},
    {"cast_f32_bf16", DTP_CAL_KERNEL, DTP_CAL_FORWARD, DTP_K_COPY, 0, 0, 0, 0},
    {"dropout", DTP_CAL_KERNEL, DTP_CAL_FORWARD, DTP_K_DROPOUT, 0, 0, 0, 5},
    {"layernorm_fwd", DTP_CAL_KERNEL, DTP_CAL_FORWARD, DTP_K_NORM, 0, 4, 0, 0},
    {"rmsnorm_fwd", DTP_CAL_KERNEL, DTP_CAL_FORWARD, DTP_K_NORM, 0, 4, 0, 0},
    {"layernorm_fwd_bwd", DTP_CAL_KERNEL, DTP_CAL_BOTH, DTP_K_NORM, DTP_K_NORM_BACKWARD, 4, 10, 0},
    {"rmsnorm_fwd_bwd", DTP_CAL_KERNEL, DTP_CAL_BOTH, DTP_K_NORM, DTP_K_NORM_BACKWARD, 4, 10, 0},
    {"softmax_fwd", DTP_CAL_KERNEL, DTP_CAL_FORWARD, DTP_K_SOFTMAX, 0, 4, 0, 0},
    {"softmax_fwd_bwd", DTP_CAL_KERNEL, DTP_CAL_BOTH, DTP_K_SOFTMAX, DTP_K_SOFTMAX_BACKWARD, 4, 6, 0},
    {"cross_entropy_f32_fwd_bwd", DTP_CAL_KERNEL, DTP_CAL_FORWARD, DTP_K_CROSS_ENTROPY, 0, 24, 0, 0},
    {"adamw_fused_f32", DTP_CAL_KERNEL, DTP_CAL_FORWARD, DTP_K_OPTIMIZER, 0, 28, 0, 0},
    {"adamw_fused_bf16", DTP_CAL_KERNEL, DTP_CAL_FORWARD, DTP_K_OPTIMIZER, 0, 14, 0, 0},
    {"kernel_gap", DTP_CAL_GAP, DTP_CAL_FORWARD, 0, 0, 0, 0, 0},
    {"offload", DTP_CAL_OFFLOAD, DTP_CAL_FORWARD, 0, 0, 0, 0, 0}};
/* clang-format on */

/* What a JSON row may hold. */
struct json_row {
    const char *op, *backend, *shape, *note, *accumulate;
    int dtype;
    double m, n, k, batch, time_s, tflops;
    double b, a, s, hd, kv_heads, h, V, bytes, elements, clock_mhz;
    bool causal;
};

#define POSITIVE(key)                                                                              \
    {                                                                                              \
#key, DTP_FIELD_DOUBLE, offsetof(struct json_row, key), .min = 1e-12, .max = 1e18,         \
                                                                .help = "see hw/calibrate.h"       \
    }
#define TEXT(key)                                                                                  \
    { #key, DTP_FIELD_STRING, offsetof(struct json_row, key), .help = "see hw/calibrate.h" }

static const struct dtp_field row_fields[] = {
    {"op", DTP_FIELD_STRING, offsetof(struct json_row, op), .required = true, .help = "kernel"},
    {"time_s", DTP_FIELD_DOUBLE, offsetof(struct json_row, time_s), .min = 1e-9, .max = 1e6,
     .required = true, .help = "of one kernel"},
    {"dtype", DTP_FIELD_ENUM, offsetof(struct json_row, dtype), .names = dtp_dtype_names,
     .help = "operands"},
    {"causal", DTP_FIELD_BOOL, offsetof(struct json_row, causal), .help = "mask"},
    TEXT(backend),
    TEXT(shape),
    TEXT(note),
    TEXT(accumulate),
    POSITIVE(clock_mhz),
    POSITIVE(m),
    POSITIVE(n),
    POSITIVE(k),
    POSITIVE(batch),
    POSITIVE(tflops),
    POSITIVE(b),
    POSITIVE(a),
    POSITIVE(s),
    POSITIVE(hd),
    POSITIVE(kv_heads),
    POSITIVE(h),
    POSITIVE(V),
    POSITIVE(bytes),
    POSITIVE(elements),
    {0}};

struct json_file {
    const char *gpu;
    const struct dtp_json *rows, *ignored;
    double loaded_clock_mhz;
};

#define IGNORED(key)                                                                               \
    { key, DTP_FIELD_JSON, offsetof(struct json_file, ignored), .help = "not used" }

static const struct dtp_field json_fields[] = {
    {"gpu", DTP_FIELD_STRING, offsetof(struct json_file, gpu), .required = true, .help = "name"},
    {"rows", DTP_FIELD_JSON, offsetof(struct json_file, rows), .required = true, .help = "kernels"},
    IGNORED("driver"),
    IGNORED("versions"),
    IGNORED("torch"),
    IGNORED("nccl"),
    IGNORED("world"),
    IGNORED("clock_mhz"),
    IGNORED("power_w"),
    IGNORED("impl"),
    IGNORED("date"),
    IGNORED("source"),
    IGNORED("note"),
    IGNORED("cuda"),
    IGNORED("cublas"),
    IGNORED("cudnn"),
    IGNORED("num_sms"),
    IGNORED("l2_bytes"),
    IGNORED("memory_bytes"),
    IGNORED("power_limit_w"),
    IGNORED("other"),
    IGNORED("clocks"),
    IGNORED("failures"),
    {"loaded_clock_mhz", DTP_FIELD_DOUBLE, offsetof(struct json_file, loaded_clock_mhz), .min = 1,
     .max = 1e5, .help = "SM clock of the chip under sustained load"},
    {0}};

static const struct op *find_op(const char *name, struct op *scratch) {
    int k = dtp_name_index(dtp_kernel_names, name);

    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (!strcmp(ops[i].name, name))
            return &ops[i];
    if (k < 0)
        return NULL;
    *scratch = (struct op){name, DTP_CAL_KERNEL, DTP_CAL_FORWARD, k, 0, 0, 0, 0};
    return scratch;
}

static int attention_impl(const char *backend) {
    if (!backend)
        return -1;
    if (!strcmp(backend, "flash"))
        return DTP_ATTN_FLASH2;
    return dtp_name_index(dtp_attention_names, backend);
}

static bool fill_gemm(const struct json_row *in, const struct op *op, struct dtp_cal_row *out) {
    out->gemm = (struct dtp_gemm){(enum dtp_dtype)in->dtype,
                                  (enum dtp_gemm_pass)op->detail,
                                  (int64_t)in->m,
                                  (int64_t)in->n,
                                  (int64_t)in->k,
                                  (int64_t)in->batch};
    return in->m > 0 && in->n > 0 && in->k > 0;
}

static bool fill_attention(const struct json_row *in, struct dtp_cal_row *out) {
    int impl = attention_impl(in->backend);
    double kv_heads = in->kv_heads > 0 ? in->kv_heads : in->a;

    if (impl < 0)
        return false;
    out->attention = (struct dtp_attention_shape){(enum dtp_dtype)in->dtype,
                                                  (enum dtp_attention)impl,
                                                  in->causal,
                                                  out->part == DTP_CAL_BACKWARD,
                                                  (int64_t)in->b,
                                                  (int64_t)in->a,
                                                  (int64_t)kv_heads,
                                                  (int64_t)in->s,
                                                  (int64_t)in->s,
                                                  (int64_t)in->hd};
    return in->b > 0 && in->a > 0 && in->s > 0 && in->hd > 0;
}

static bool fill_kernel(const struct json_row *in, const struct op *op, struct dtp_cal_row *out) {
    double elements = in->h > 0 ? in->m * in->h : in->V > 0 ? in->m * in->V : in->n;

    out->kernel = (enum dtp_kernel)op->detail;
    out->backward_kernel = (enum dtp_kernel)op->backward;
    out->bytes = op->bytes > 0 ? op->bytes * elements : in->bytes;
    out->backward_bytes = op->backward_bytes * elements;
    out->elements = op->element_bytes > 0 ? out->bytes / op->element_bytes : in->elements;
    return out->bytes > 0;
}

/* Applies what the sweep says about the state of the chip, see calibrate.h. */
static void apply_load(const struct json_row *in, double loaded_clock_mhz,
                       struct dtp_cal_row *out) {
    double c_bytes = (double)out->gemm.m * (double)out->gemm.n * (double)dtp_dtype_bytes(DTP_FP32);

    out->accumulate_bytes = in->accumulate ? c_bytes : 0;
    out->loaded = loaded_clock_mhz > 0;
    if (out->loaded && out->kind == DTP_CAL_GEMM && in->clock_mhz > 0 &&
        dtp_dtype_bytes(out->gemm.dtype) == 2)
        out->time_s *= in->clock_mhz / loaded_clock_mhz;
}

static enum dtp_status add_json_row(struct dtp_arena *a, const struct dtp_json *j,
                                    double loaded_clock_mhz, struct dtp_cal_rows *rows,
                                    struct dtp_err *err) {
    struct json_row in = {.dtype = DTP_BF16, .batch = 1};
    struct dtp_cal_row *out;
    struct op scratch;
    const struct op *op;
    bool ok = true;

    DTP_TRY(dtp_fields_read(a, j, row_fields, &in, err));
    op = find_op(in.op, &scratch);
    if (!op)
        return dtp_json_expected(dtp_json_get(j, "op"), "an op of hw/calibrate.h", err);
    out = add_row(a, rows);
    out->kind = op->kind;
    out->part = op->part;
    out->time_s = in.time_s;
    if (op->kind == DTP_CAL_GEMM || op->kind == DTP_CAL_BMM)
        ok = fill_gemm(&in, op, out);
    else if (op->kind == DTP_CAL_ATTENTION)
        ok = fill_attention(&in, out);
    else if (op->kind == DTP_CAL_KERNEL)
        ok = fill_kernel(&in, op, out);
    else
        out->bytes = in.bytes;
    if (op->kind == DTP_CAL_GEMM || op->kind == DTP_CAL_BMM)
        apply_load(&in, loaded_clock_mhz, out);
    return ok ? DTP_OK : dtp_json_expected(j, "every dimension of the op, see hw/calibrate.h", err);
}

static enum dtp_status read_json(struct dtp_arena *a, const char *path,
                                 const struct dtp_cal_names *names, struct dtp_cal_rows *rows,
                                 struct dtp_err *err) {
    const char *base = dtp_base_name(path);
    const struct dtp_json *j;
    struct json_file file = {0};
    int source = 0;

    DTP_TRY(dtp_json_read_file(a, path, &j, err));
    DTP_TRY(dtp_fields_read(a, j, json_fields, &file, err));
    if (dtp_json_type(file.rows) != DTP_JSON_ARRAY)
        return dtp_json_expected(file.rows, "an array of rows", err);
    if (!in_list(names->own, file.gpu) && !in_list(names->same_chip, file.gpu)) {
        rows->other_gpu += dtp_json_size(file.rows);
        return DTP_OK;
    }
    DTP_TRY(find_source(a, rows, base, &source, err));
    for (size_t i = 0; i < dtp_json_size(file.rows); i++) {
        DTP_TRY(add_json_row(a, dtp_json_at(file.rows, i), file.loaded_clock_mhz, rows, err));
        rows->at[rows->n - 1].source = source;
        rows->at[rows->n - 1].same_chip = !in_list(names->own, file.gpu);
    }
    return DTP_OK;
}

enum dtp_status dtp_calibrate_read(struct dtp_arena *a, const char *path,
                                   const struct dtp_cal_names *names, struct dtp_cal_rows *rows,
                                   struct dtp_err *err) {
    const char *dot = strrchr(path, '.');

    if (dot && !strcmp(dot, ".csv"))
        return read_csv(a, path, names, rows, err);
    return read_json(a, path, names, rows, err);
}
