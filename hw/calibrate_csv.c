/* Rows of a CSV of GEMM or attention sweeps. */
#include <stdlib.h>
#include <string.h>

#include "hw/calibrate_rows_private.h"
#include "sim/base/text.h"
#include "sim/base/units.h"

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

enum dtp_status dtp_cal_read_csv(struct dtp_arena *a, const char *path,
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

        if (!dtp_cal_in_list(names->own, gpu) && !dtp_cal_in_list(names->same_chip, gpu)) {
            rows->other_gpu++;
            continue;
        }
        if (!(c.impl < 0 ? fill_csv_gemm : fill_csv_attention)(&csv, i, &c, &row)) {
            rows->biased++;
            continue;
        }
        DTP_TRY(dtp_cal_find_source(a, rows, source[0] ? source : path, &row.source, err));
        row.same_chip = !dtp_cal_in_list(names->own, gpu);
        out = dtp_cal_add_row(a, rows);
        *out = row;
    }
    return DTP_OK;
}
