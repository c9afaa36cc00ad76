#include "hw/fit_curves.h"

#include <math.h>
#include <string.h>

enum { MOST_ROWS = 4096, ROUNDS = 12 };

static const struct dtp_curve *curve_of(const struct dtp_cluster *c, const struct dtp_sweep *s) {
    for (int i = 0; i < c->ncurves; i++)
        if (c->curve[i].collective == (int)s->collective && c->curve[i].gpus == s->gpus &&
            c->curve[i].nodes == s->nodes && !c->curve[i].foreign)
            return &c->curve[i];
    return NULL;
}

/* The term that the present factors take, as terms of a row. */
static void add_row(const struct dtp_curve *k, double bytes, double weight,
                    const struct dtp_nccl_correction *now, struct dtp_fit_row *out) {
    double t = k->a_s + k->b_s_per_sqrt_byte * sqrt(bytes) + k->c_s_per_byte * bytes, least = -1;
    for (int i = 0; i < k->nterms; i++) {
        double lat = k->term[i].lat_s, x = k->term[i].s_per_byte * bytes, mixed = sqrt(lat * x);
        double model = now->latency * lat + now->mixed * mixed + now->bandwidth * x;
        if (least >= 0 && model >= least)
            continue;
        least = model;
        *out = (struct dtp_fit_row){{lat / t, mixed / t, x / t}, weight};
    }
}

/* DTP_NCORRECTIONS: none. */
static enum dtp_correction class_of(const struct dtp_cluster *c, const struct dtp_curve *k) {
    if (k->collective == DTP_ALL_TO_ALL && k->nodes > 1 && !c->simple_only)
        return DTP_CORRECTION_EXCHANGE;
    if (k->collective > DTP_REDUCE)
        return DTP_NCORRECTIONS;
    if (k->nodes < 2)
        return DTP_CORRECTION_NODE;
    return c->simple_only ? DTP_CORRECTION_LIBFABRIC : DTP_CORRECTION_FABRIC;
}

/* Every octave of every measured curve; each curve counts once. */
static enum dtp_status collect(struct dtp_arena *a, enum dtp_correction class,
                               const struct dtp_nccl_correction *now, struct dtp_fit_row *row,
                               size_t *n, struct dtp_err *err) {
    size_t nsweeps = 0;
    const struct dtp_sweep *s = dtp_sweeps(&nsweeps);
    struct dtp_cluster c = {0};
    *n = 0;
    for (size_t i = 0; i < nsweeps; i++) {
        if (i == 0 || strcmp(s[i].cluster, s[i - 1].cluster) != 0)
            DTP_TRY(dtp_cluster_load(a, s[i].cluster, &c, err));
        const struct dtp_curve *k = curve_of(&c, &s[i]);
        if (!k || s[i].switches_sum || class_of(&c, k) != class)
            continue;
        int octaves = ilogb(k->max_bytes / k->min_bytes) + 1;
        double bytes = k->min_bytes;
        for (int o = 0; o < octaves && *n < MOST_ROWS; o++, bytes *= 2)
            add_row(k, bytes, 1.0 / octaves, now, &row[(*n)++]);
    }
    return DTP_OK;
}

static enum dtp_status fit_class(struct dtp_arena *a, enum dtp_correction class,
                                 struct dtp_nccl_correction *out, struct dtp_err *err) {
    struct dtp_fit_row *row = DTP_NEW(a, struct dtp_fit_row, MOST_ROWS);
    size_t n = 0;
    *out = (struct dtp_nccl_correction){2, 1, 1, 0};
    for (int round = 0; round < ROUNDS; round++) {
        double x[3], sum = 0, weights = 0;
        DTP_TRY(collect(a, class, out, row, &n, err));
        dtp_fit_three(row, n, (const double[3]){0, 0, 1}, x);
        *out = (struct dtp_nccl_correction){x[0], x[1], x[2], 0};
        for (size_t i = 0; i < n; i++) {
            double e = x[0] * row[i].x[0] + x[1] * row[i].x[1] + x[2] * row[i].x[2] - 1;
            sum += row[i].weight * fabs(e);
            weights += row[i].weight;
        }
        out->mean_error = sum / weights;
    }
    return DTP_OK;
}

enum dtp_status dtp_fit_correction(struct dtp_arena *a,
                                   struct dtp_nccl_correction out[DTP_NCORRECTIONS],
                                   struct dtp_err *err) {
    for (int i = 0; i < DTP_NCORRECTIONS; i++)
        DTP_TRY(fit_class(a, (enum dtp_correction)i, &out[i], err));
    return DTP_OK;
}
