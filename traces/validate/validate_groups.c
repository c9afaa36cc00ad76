#include <string.h>

#include "traces/validate/validate_parts.h"

/* ---- which rows -------------------------------------------------------------------------------------- */

static bool has_value(const struct dtp_grouping *g, const struct dtp_validated *row,
                      const char *value) {
    const char *x = g->key(row);
    return x && strcmp(x, value) == 0;
}

bool dtp_in_subset(const void *ctx, const struct dtp_validated *row) {
    const struct dtp_subset *s = ctx;
    return row->extrapolated == s->extrapolated && (!s->by || has_value(s->by, row, s->value));
}

static const char *key_file(const struct dtp_validated *row) {
    return row->run->file;
}
static const char *key_framework(const struct dtp_validated *row) {
    return row->run->framework;
}
static const char *key_gpu(const struct dtp_validated *row) {
    return row->run->gpu;
}

/* A number by octaves. */
static const char *octave(int v) {
    static const char *const names[] = {"1", "2-3", "4-7", "8-15", "16-31", "32-63", "64 and more"};
    int i = 0;
    while (v > 1 && i < 6) {
        v /= 2;
        i++;
    }
    return names[i];
}

static const char *key_gpus(const struct dtp_validated *row) {
    return row->run->gpus < 10      ? "1-9"
           : row->run->gpus < 100   ? "10-99"
           : row->run->gpus < 1000  ? "100-999"
           : row->run->gpus < 10000 ? "1,000-9,999"
                                    : "10,000 and more";
}
static const char *key_tp(const struct dtp_validated *row) {
    return octave(row->run->tp);
}
static const char *key_pp(const struct dtp_validated *row) {
    return octave(row->run->pp);
}
static const char *key_dp(const struct dtp_validated *row) {
    return octave(row->run->dp);
}
static const char *key_cp(const struct dtp_validated *row) {
    return octave(row->run->cp);
}
static const char *key_zero(const struct dtp_validated *row) {
    static const char *const names[] = {"0", "1", "2", "3"};
    return row->run->zero_stage >= 0 && row->run->zero_stage <= 3 ? names[row->run->zero_stage]
                                                                  : "unknown";
}
static const char *key_memory(const struct dtp_validated *row) {
    return row->measured_peak_bytes > 0 ? row->peak_meaning : NULL;
}
static const char *key_recompute(const struct dtp_validated *row) {
    return *row->run->recompute ? row->run->recompute : "unknown";
}

const struct dtp_grouping dtp_groupings[] = {{"file", key_file, false},
                                             {"framework", key_framework, false},
                                             {"gpu", key_gpu, false},
                                             {"peak_mem", key_memory, false},
                                             {"gpus", key_gpus, true},
                                             {"tp", key_tp, true},
                                             {"pp", key_pp, true},
                                             {"dp", key_dp, true},
                                             {"cp", key_cp, true},
                                             {"zero_stage", key_zero, true},
                                             {"recompute", key_recompute, true},
                                             {NULL, NULL, false}};

/* Distinct values of a key, in order of first appearance. */
size_t dtp_distinct_values(struct dtp_arena *a, const struct dtp_validation *v, dtp_row_key *key,
                           const char ***out) {
    const char **value = DTP_NEW(a, const char *, v->runs.n + 1);
    size_t n = 0;
    for (size_t i = 0; i < v->runs.n; i++) {
        const char *x = key(&v->row[i]);
        size_t k = 0;
        if (!x)
            continue;
        while (k < n && strcmp(value[k], x) != 0)
            k++;
        if (k == n)
            value[n++] = x;
    }
    *out = value;
    return n;
}

int dtp_count_unsupported(const struct dtp_validation *v, const struct dtp_grouping *g,
                          const char *value) {
    int n = 0;
    for (size_t i = 0; i < v->runs.n; i++)
        n += !v->row[i].supported && (!g || has_value(g, &v->row[i], value));
    return n;
}
