#include "tests/bench/sweeps.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/text.h"
#include "sim/base/units.h"

#define GB DTP_GIGA
#define RING_2 (17 * DTP_MICRO) /* 7.8 us of NCCL for two GPUs, as much slower as others */
#define VTRAIN "vtrain_allreduce_1node.csv"
#define SWEEPS "collectives.csv"
#define AZURE_A100 "NVLink3 (ring/tree; page header says NVLS but A100 has none)"
#define HDR "8x200Gb HDR (CX6)"
#define SOPHIA "8 GPUs + 8x200Gb HDR (ALCF Sophia)"
#define DGX_H100 "DGX H100 8x400Gb NDR IB"
#define POLARIS "4 GPUs NVLink3 + 2x200Gb Slingshot-11 per node"
#define IN_A100 (240 * GB)  /* 12 NVLinks of 25 GB/s at 0.8 */
#define OUT_A100 (192 * GB) /* 8 NICs of 25 GB/s at 0.96 */
#define OUT_H100 (384 * GB)
#define VTRAIN_SOURCE "vTrain's NCCL trace of one node (VIA-Research/vTrain)"
#define H200_2 "two H200 on NVLink, NCCL 2.28 in CUDA graphs, our run"
#define H200_OURS "two and four H200 on NVSwitch, PyTorch 2.11, NCCL 2.28, our run"
#define H200_GRAPH "traces/measured/calibration/h200x2_comm.json"
#define DGXH100_SOURCE "arXiv 2411.13055 (plot, by eye)"
#define ALCF "argonne-lcf/alcf-nccl-tests"

/* clang-format off */
static const struct dtp_sweep sweeps[] = {
    {"dgx-1v", "dgx-1v", DTP_ALL_REDUCE, 2, 1, 22.625 * GB, 0, VTRAIN_SOURCE, {{VTRAIN, "V100", NULL, 0}}},
    {"dgx-1v", "dgx-1v", DTP_ALL_REDUCE, 3, 1, 45.25 * GB, 0, VTRAIN_SOURCE, {{VTRAIN, "V100", NULL, 0}}},
    {"dgx-1v", "dgx-1v", DTP_ALL_REDUCE, 4, 1, 90.5 * GB, 0, VTRAIN_SOURCE, {{VTRAIN, "V100", NULL, 0}}},
    {"dgx-1v", "dgx-1v", DTP_ALL_REDUCE, 5, 1, 45.25 * GB, 0, VTRAIN_SOURCE, {{VTRAIN, "V100", NULL, 0}}},
    {"dgx-1v", "dgx-1v", DTP_ALL_REDUCE, 6, 1, 67.875 * GB, 0, VTRAIN_SOURCE, {{VTRAIN, "V100", NULL, 0}}},
    {"dgx-1v", "dgx-1v", DTP_ALL_REDUCE, 7, 1, 90.5 * GB, 0, VTRAIN_SOURCE, {{VTRAIN, "V100", NULL, 0}}},
    {"dgx-1v", "dgx-1v", DTP_ALL_REDUCE, 8, 1, 135.75 * GB, 0, VTRAIN_SOURCE, {{VTRAIN, "V100", NULL, 0}}},
    {"dgx-a100", "dgx-a100-80", DTP_ALL_REDUCE, 2, 1, IN_A100, 0, VTRAIN_SOURCE, {{VTRAIN, "A100", NULL, 0}}},
    {"dgx-a100", "dgx-a100-80", DTP_ALL_REDUCE, 3, 1, IN_A100, 0, VTRAIN_SOURCE, {{VTRAIN, "A100", NULL, 0}}},
    {"dgx-a100", "dgx-a100-80", DTP_ALL_REDUCE, 4, 1, IN_A100, 0, VTRAIN_SOURCE, {{VTRAIN, "A100", NULL, 0}}},
    {"dgx-a100", "dgx-a100-80", DTP_ALL_REDUCE, 5, 1, IN_A100, 0, VTRAIN_SOURCE, {{VTRAIN, "A100", NULL, 0}}},
    {"dgx-a100", "dgx-a100-80", DTP_ALL_REDUCE, 6, 1, IN_A100, 0, VTRAIN_SOURCE, {{VTRAIN, "A100", NULL, 0}}},
    {"dgx-a100", "dgx-a100-80", DTP_ALL_REDUCE, 7, 1, IN_A100, 0, VTRAIN_SOURCE, {{VTRAIN, "A100", NULL, 0}}},
    {"dgx-a100", "dgx-a100-80", DTP_ALL_REDUCE, 8, 1, IN_A100, 0, VTRAIN_SOURCE "; Azure/AI-benchmarking-guide ND_A100_v4", {{VTRAIN, "A100", NULL, 0}, {SWEEPS, "A100-SXM4-80", AZURE_A100, 0}}},
    {"dgx-a100", "dgx-a100-80", DTP_ALL_REDUCE, 16, 2, OUT_A100, 0, "NVIDIA/deepops nccl-tests; " ALCF " (Sophia)", {{SWEEPS, "A100-SXM4 (DGX A100)", HDR, 0}, {SWEEPS, "A100-SXM4 (DGX A100)", SOPHIA, 0}}},
    {"dgx-a100", "dgx-a100-80", DTP_ALL_REDUCE, 32, 4, OUT_A100, 0, "NVIDIA/deepops nccl-tests", {{SWEEPS, "A100-SXM4 (DGX A100)", HDR, 0}}},
    {"dgx-a100", "dgx-a100-80", DTP_ALL_GATHER, 16, 2, OUT_A100, 0, ALCF " (Sophia)", {{SWEEPS, "A100-SXM4 (DGX A100)", SOPHIA, 0}}},
    {"dgx-a100", "dgx-a100-80", DTP_ALL_TO_ALL, 16, 2, 48 * GB, 0, ALCF " (Sophia)", {{SWEEPS, "A100-SXM4 (DGX A100)", SOPHIA, 0}}},
    {"hgx-h100", "hgx-h100", DTP_ALL_REDUCE, 8, 1, 660 * GB, 0, "Azure/AI-benchmarking-guide ND_H100_v5", {{SWEEPS, "H100-SXM", "NVLink4 NVLS", 0}}},
    {"h100-sharp", "hgx-h100-sharp", DTP_ALL_REDUCE, 64, 8, 660 * GB, 100 * DTP_MICRO, "coreweave/nccl-tests README, H100 with SHARP", {{SWEEPS, "H100-SXM", "8x400Gb NDR IB + SHARP", 0}}, .switches_sum = true},
    {"dgx-h100", "dgx-h100", DTP_ALL_REDUCE, 32, 4, 1.3 * OUT_H100, 0, DGXH100_SOURCE, {{SWEEPS, "H100-SXM", DGX_H100, 0}}},
    {"dgx-h100", "dgx-h100", DTP_ALL_REDUCE, 64, 8, 1.2 * OUT_H100, 0, DGXH100_SOURCE, {{SWEEPS, "H100-SXM", DGX_H100, 0}}},
    {"dgx-h100", "dgx-h100", DTP_ALL_REDUCE, 128, 16, 1.05 * OUT_H100, 0, DGXH100_SOURCE, {{SWEEPS, "H100-SXM", DGX_H100, 0}}},
    {"dgx-h100", "dgx-h100", DTP_ALL_REDUCE, 256, 32, OUT_H100, 0, DGXH100_SOURCE, {{SWEEPS, "H100-SXM", DGX_H100, 0}}},
    {"dgx-h100", "dgx-h100", DTP_ALL_REDUCE, 512, 64, OUT_H100, 0, DGXH100_SOURCE, {{SWEEPS, "H100-SXM", DGX_H100, 0}}},
    {"dgx-h100", "dgx-h100", DTP_ALL_REDUCE, 1024, 128, OUT_H100, 0, DGXH100_SOURCE, {{SWEEPS, "H100-SXM", DGX_H100, 0}}},
    {"dgx-h100", "dgx-h100", DTP_ALL_REDUCE, 2048, 256, OUT_H100, 0, DGXH100_SOURCE, {{SWEEPS, "H100-SXM", DGX_H100, 0}}},
    {"dgx-h100", "dgx-h100", DTP_ALL_REDUCE, 4096, 512, OUT_H100, 0, DGXH100_SOURCE, {{SWEEPS, "H100-SXM", DGX_H100, 0}}},
    {"hgx-h200", "hgx-h200", DTP_ALL_REDUCE, 2, 1, 376 * GB, 0, H200_2, {{H200_GRAPH, "all_reduce", NULL, 0}}},
    {"hgx-h200", "hgx-h200", DTP_ALL_GATHER, 2, 1, 376 * GB, 0, H200_2, {{H200_GRAPH, "all_gather", NULL, 0}}},
    {"hgx-h200", "hgx-h200", DTP_REDUCE_SCATTER, 2, 1, 376 * GB, 0, H200_2, {{H200_GRAPH, "reduce_scatter", NULL, 0}}},
    {"hgx-h200", "hgx-h200", DTP_ALL_TO_ALL, 2, 1, 376 * GB, 0, H200_2, {{H200_GRAPH, "all_to_all", NULL, 0}}},
    {"hgx-h200", "hgx-h200", DTP_SEND_RECV, 2, 1, 376 * GB, 0, H200_2, {{H200_GRAPH, "p2p", NULL, 0}}},
    {"hgx-h200", "hgx-h200", DTP_ALL_REDUCE, 4, 1, 376 * GB, RING_2, H200_OURS, {{"h200x4_comm.json", "all_reduce", NULL, 30e6}}},
    {"hgx-h200", "hgx-h200", DTP_ALL_GATHER, 4, 1, 376 * GB, RING_2, H200_OURS, {{"h200x4_comm.json", "all_gather", NULL, 60e6}}},
    {"hgx-h200", "hgx-h200", DTP_REDUCE_SCATTER, 4, 1, 376 * GB, RING_2, H200_OURS, {{"h200x4_comm.json", "reduce_scatter", NULL, 60e6}}},
    {"hgx-h200", "hgx-h200", DTP_ALL_TO_ALL, 4, 1, 376 * GB, RING_2, H200_OURS, {{"h200x4_comm.json", "all_to_all", NULL, 60e6}}},
    {"hgx-h200", "hgx-h200", DTP_ALL_REDUCE, 8, 1, 660 * GB, 0, "Azure/AI-benchmarking-guide ND_H200_v5", {{SWEEPS, "H200-SXM", "NVLink4 NVLS", 0}}},
    {"dgx-b200", "dgx-b200", DTP_ALL_REDUCE, 8, 1, 1260 * GB, 0, "stas00/ml-engineering, p6-b200, NCCL 2.27", {{SWEEPS, "B200-SXM", "p6-b200 NVLink5 NVLS", 0}}},
    {"aws-p6-b200", "aws-p6-b200", DTP_ALL_REDUCE, 32, 4, 1.3 * OUT_H100, 0, "stas00/ml-engineering, p6-b200, NCCL 2.27", {{SWEEPS, "B200-SXM", "p6-b200 8x400Gb EFAv4", 0}}},
    {"gcp-a3-high", "gcp-a3-high", DTP_ALL_GATHER, 16, 2, 96 * GB, 0, "GoogleCloudPlatform/cluster-toolkit gke-a3-highgpu", {{SWEEPS, "H100-SXM", "GCP a3-highgpu 4x200Gb TCPX", 0}}},
    {"gcp-a3-mega", "gcp-a3-mega", DTP_ALL_GATHER, 16, 2, 192 * GB, 0, "GoogleCloudPlatform/cluster-toolkit gke-a3-megagpu", {{SWEEPS, "H100-SXM", "GCP a3-megagpu 8x200Gb TCPXO", 0}}},
    {"gcp-a3-mega", "gcp-a3-mega", DTP_ALL_REDUCE, 16, 2, 360 * GB, 0, "GoogleCloudPlatform/cluster-toolkit gke-a3-megagpu", {{SWEEPS, "H100-SXM", "GCP a3-megagpu 8x200Gb TCPXO", 0}}},
    {"gcp-a3-ultra", "gcp-a3-ultra", DTP_ALL_GATHER, 16, 2, 384 * GB, 0, "GoogleCloudPlatform/cluster-toolkit gke-consumption-options", {{SWEEPS, "H200-SXM", "GCP a3-ultragpu 8x400Gb RoCE", 0}}},
    {"alcf-polaris", "alcf-polaris", DTP_ALL_REDUCE, 8, 2, 37.5 * GB, 0, ALCF, {{SWEEPS, "A100-SXM4-40", POLARIS, 0}}},
    {"alcf-polaris", "alcf-polaris", DTP_ALL_REDUCE, 32, 8, 37.5 * GB, 0, ALCF, {{SWEEPS, "A100-SXM4-40", POLARIS, 0}}},
    {"alcf-polaris", "alcf-polaris", DTP_ALL_REDUCE, 1024, 256, 37.5 * GB, 0, ALCF, {{SWEEPS, "A100-SXM4-40", POLARIS, 0}}},
    {"alcf-polaris", "alcf-polaris", DTP_ALL_REDUCE, 2160, 540, 37.5 * GB, 0, ALCF, {{SWEEPS, "A100-SXM4-40", POLARIS, 0}}},
    {"alcf-polaris", "alcf-polaris", DTP_ALL_GATHER, 8, 2, 37.5 * GB, 0, ALCF, {{SWEEPS, "A100-SXM4-40", POLARIS, 0}}},
    {"alcf-polaris", "alcf-polaris", DTP_ALL_GATHER, 32, 8, 37.5 * GB, 0, ALCF, {{SWEEPS, "A100-SXM4-40", POLARIS, 0}}},
    {"alcf-polaris", "alcf-polaris", DTP_ALL_GATHER, 512, 128, 37.5 * GB, 0, ALCF, {{SWEEPS, "A100-SXM4-40", POLARIS, 0}}},
    {"alcf-polaris", "alcf-polaris", DTP_ALL_GATHER, 1024, 256, 37.5 * GB, 0, ALCF, {{SWEEPS, "A100-SXM4-40", POLARIS, 0}}},
    {"alcf-polaris", "alcf-polaris", DTP_ALL_GATHER, 2160, 540, 37.5 * GB, 0, ALCF, {{SWEEPS, "A100-SXM4-40", POLARIS, 0}}},
    {"alcf-polaris", "alcf-polaris", DTP_ALL_TO_ALL, 8, 2, 37.5 * GB, 0, ALCF, {{SWEEPS, "A100-SXM4-40", POLARIS, 0}}},
    {"alcf-polaris", "alcf-polaris", DTP_ALL_TO_ALL, 32, 8, 37.5 * GB, 0, ALCF, {{SWEEPS, "A100-SXM4-40", POLARIS, 0}}},
    {"alcf-polaris", "alcf-polaris", DTP_ALL_TO_ALL, 1024, 256, 37.5 * GB, 0, ALCF, {{SWEEPS, "A100-SXM4-40", POLARIS, 0}}},
    {"alcf-polaris", "alcf-polaris", DTP_ALL_TO_ALL, 2160, 540, 37.5 * GB, 0, ALCF, {{SWEEPS, "A100-SXM4-40", POLARIS, 0}}},
    {"alcf-sophia", "alcf-sophia", DTP_ALL_REDUCE, 16, 2, OUT_A100, 0, ALCF " (Sophia)", {{SWEEPS, "A100-SXM4 (DGX A100)", SOPHIA, 0}}},
    {"gb200-nvl72", "gb200-nvl72", DTP_ALL_REDUCE, 72, 1, 1300 * GB, 30 * DTP_MICRO, "coreweave/nccl-tests, NCCL 2.26", {{SWEEPS, "GB200", "NVL72 NVLink5", 0}}},
    {"gb200-nvl72", "gb200-nvl72", DTP_ALL_REDUCE, 144, 2, 1300 * GB, 100 * DTP_MICRO, "coreweave/nccl-tests, NCCL 2.26", {{SWEEPS, "GB200", "2xNVL72 + 4x400Gb NDR/node", 0}}},
    {"gb200-nvl72", "gb200-nvl72", DTP_ALL_REDUCE, 1440, 20, 1300 * GB, 100 * DTP_MICRO, "coreweave/nccl-tests, NCCL 2.26", {{SWEEPS, "GB200", "20xNVL72 + 4x400Gb NDR/node", 0}}},
};
/* clang-format on */

const struct dtp_sweep *dtp_sweeps(size_t *n) {
    *n = sizeof sweeps / sizeof *sweeps;
    return sweeps;
}

/* ---- reading ---- */

struct points {
    struct dtp_arena *a;
    struct dtp_point *at;
    size_t n, capacity;
};

static void add(struct points *p, double bytes, double time_s) {
    p->at = dtp_arena_room(p->a, p->at, sizeof *p->at, p->n, &p->capacity);
    p->at[p->n++] = (struct dtp_point){bytes, time_s};
}

/* What nccl-tests calls it. */
static const char *csv_name(enum dtp_collective kind) {
    return kind == DTP_ALL_TO_ALL ? "alltoall" : dtp_collective_names[kind];
}

static bool row_matches(const struct dtp_csv *csv, size_t row, const struct dtp_sweep *s,
                        const char *gpu, const char *interconnect) {
    int kind = dtp_csv_col(csv, "collective");
    if (strcmp(dtp_csv_get(csv, row, dtp_csv_col(csv, "gpu")), gpu) != 0 ||
        atoi(dtp_csv_get(csv, row, dtp_csv_col(csv, "gpus"))) != s->gpus)
        return false;
    if (interconnect &&
        strcmp(dtp_csv_get(csv, row, dtp_csv_col(csv, "interconnect")), interconnect) != 0)
        return false;
    return kind < 0 || strcmp(dtp_csv_get(csv, row, kind), csv_name(s->collective)) == 0;
}

static enum dtp_status read_csv(const char *path, const struct dtp_sweep *s, int part,
                                struct points *p, struct dtp_err *err) {
    struct dtp_csv csv;
    DTP_TRY(dtp_csv_read_file(p->a, path, &csv, err));
    int bytes = dtp_csv_col(&csv, "bytes"), time = dtp_csv_col(&csv, "time_us");
    if (bytes < 0 || time < 0)
        return dtp_fail(err, DTP_EINPUT, "%s: expected columns bytes and time_us", path);
    for (size_t r = 0; r < csv.nrows; r++) {
        if (!row_matches(&csv, r, s, s->from[part].gpu, s->from[part].interconnect))
            continue;
        double size = strtod(dtp_csv_get(&csv, r, bytes), NULL);
        double time_us = strtod(dtp_csv_get(&csv, r, time), NULL);
        if (size >= s->from[part].min_bytes && size > 0 && time_us > 0)
            add(p, size, time_us * DTP_MICRO);
    }
    return DTP_OK;
}

static enum dtp_status read_json(const char *path, const struct dtp_sweep *s, int part,
                                 struct points *p, struct dtp_err *err) {
    const struct dtp_json *root = NULL;
    DTP_TRY(dtp_json_read_file(p->a, path, &root, err));
    const struct dtp_json *rows = dtp_json_get(root, "rows");
    bool mixed = !rows; /* dtplan-calibrate-cuda: with rows that are no collectives */
    if (mixed)
        rows = dtp_json_get(root, "other");
    if (!rows || dtp_json_type(rows) != DTP_JSON_ARRAY)
        return dtp_json_expected(root, "rows", err);
    for (size_t i = 0; i < dtp_json_size(rows); i++) {
        const struct dtp_json *row = dtp_json_at(rows, i);
        const struct dtp_json *op = dtp_json_get(row, "op"), *size = dtp_json_get(row, "bytes");
        const struct dtp_json *time = dtp_json_get(row, "time_s");
        if (mixed && (!size || !time))
            continue;
        if (!op || !size || !time)
            return dtp_json_expected(row, "op, bytes and time_s", err);
        if (strcmp(dtp_json_string(op), s->from[part].gpu) == 0 &&
            dtp_json_number(size) >= s->from[part].min_bytes)
            add(p, dtp_json_number(size), dtp_json_number(time));
    }
    return DTP_OK;
}

static int by_size(const void *x, const void *y) {
    const struct dtp_point *p = x, *q = y;
    if (p->bytes != q->bytes)
        return p->bytes < q->bytes ? -1 : 1;
    return p->time_s < q->time_s ? -1 : p->time_s > q->time_s;
}

enum dtp_status dtp_sweep_read(struct dtp_arena *a, const char *data, const struct dtp_sweep *s,
                               struct dtp_point **out, size_t *out_n, struct dtp_err *err) {
    struct points p = {.a = a};
    for (int i = 0; i < 3 && s->from[i].file; i++) {
        const char *file = s->from[i].file;
        const char *path = strncmp(file, "traces/", 7) == 0
                               ? dtp_data_path(a, file)
                               : dtp_arena_printf(a, "%s/%s", data, file);
        bool json = dtp_ends_with(path, ".json");
        DTP_TRY(json ? read_json(path, s, i, &p, err) : read_csv(path, s, i, &p, err));
    }
    if (p.n > 0)
        qsort(p.at, p.n, sizeof *p.at, by_size);
    *out = p.at;
    *out_n = p.n;
    return DTP_OK;
}

/* ---- hw/curves ---- */

/* Six digits are more than a fit has. */
static double rounded(double v) {
    char text[32];
    snprintf(text, sizeof text, "%.5e", v);
    return strtod(text, NULL);
}

static void write_curve(struct dtp_json_out *w, const struct dtp_sweep *s,
                        const struct dtp_curve *c) {
    dtp_json_line(w);
    dtp_json_object(w);
    dtp_json_kv_string(w, "collective", dtp_collective_names[s->collective]);
    dtp_json_kv_int(w, "gpus", s->gpus);
    dtp_json_kv_int(w, "nodes", s->nodes);
    dtp_json_kv_double(w, "a_s", rounded(c->a_s));
    dtp_json_kv_double(w, "b_s_per_sqrt_byte", rounded(c->b_s_per_sqrt_byte));
    dtp_json_kv_double(w, "c_s_per_byte", rounded(c->c_s_per_byte));
    dtp_json_kv_double(w, "min_bytes", c->min_bytes);
    dtp_json_kv_double(w, "max_bytes", c->max_bytes);
    dtp_json_kv_int(w, "points", c->points);
    dtp_json_kv_double(w, "mean_error", floor(c->mean_error * 1e5 + 0.5) / 1e5);
    dtp_json_kv_string(w, "source", s->source);
    dtp_json_end(w);
}

static enum dtp_status fit_sweep(struct dtp_arena *a, const char *data, const struct dtp_sweep *s,
                                 struct dtp_curve *out, struct dtp_err *err) {
    struct dtp_point *point = NULL;
    size_t n = 0;
    DTP_TRY(dtp_sweep_read(a, data, s, &point, &n, err));
    const double least[3] = {s->least_s, 0,
                             dtp_busbw_factor(s->collective, s->gpus) / s->busbw_limit_bytes_per_s};
    enum dtp_status status = dtp_fit_curve(a, point, n, least, out, err);
    if (status != DTP_OK) {
        char where[160];
        snprintf(where, sizeof where, "%s, %s, %d GPUs", s->curves,
                 dtp_collective_names[s->collective], s->gpus);
        dtp_err_prefix(err, where);
    }
    return status;
}

enum dtp_status dtp_fit_curves(struct dtp_arena *a, const char *data, const char *out, FILE *report,
                               struct dtp_err *err) {
    size_t n = 0;
    const struct dtp_sweep *s = dtp_sweeps(&n);
    for (size_t i = 0; i < n;) {
        const char *name = s[i].curves;
        struct dtp_file_out file;
        struct dtp_json_out w;
        DTP_TRY(dtp_file_out_open(a, dtp_arena_printf(a, "%s/%s.json", out, name), &file, err));
        dtp_json_begin(&w, file.f, 1);
        dtp_json_object(&w);
        dtp_json_kv_string(&w, "notes", "written by bench_collective --fit; do not edit");
        dtp_json_put_key(&w, "curves");
        dtp_json_array(&w);
        for (; i < n && strcmp(s[i].curves, name) == 0; i++) {
            struct dtp_curve c = {0};
            enum dtp_status status = fit_sweep(a, data, &s[i], &c, err);
            if (status != DTP_OK) {
                dtp_file_out_abort(&file);
                return status;
            }
            write_curve(&w, &s[i], &c);
            fprintf(report,
                    "%-13s %-14s %5d GPUs %4d nodes %5d points  error %4.1f %%  %.1f GB/s\n", name,
                    dtp_collective_names[s[i].collective], s[i].gpus, s[i].nodes, c.points,
                    100 * c.mean_error,
                    dtp_busbw_factor(s[i].collective, s[i].gpus) / c.c_s_per_byte / DTP_GIGA);
        }
        dtp_json_end(&w);
        dtp_json_end(&w);
        DTP_TRY(dtp_file_out_commit(&file, err));
    }
    return DTP_OK;
}

/* ---- factors of hw/nccl ---- */

enum { MOST_ROWS = 4096, ROUNDS = 12 };

static const struct dtp_curve *curve_of(const struct dtp_cluster *c, const struct dtp_sweep *s) {
    for (int i = 0; i < c->ncurves; i++)
        if (c->curve[i].collective == (int)s->collective && c->curve[i].gpus == s->gpus &&
            c->curve[i].nodes == s->nodes && !c->curve[i].foreign)
            return &c->curve[i];
    return NULL;
}

/* The term that the present factors take, as terms of a row. */
static void add_octave(const struct dtp_curve *k, double bytes, double weight,
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
            add_octave(k, bytes, 1.0 / octaves, now, &row[(*n)++]);
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
