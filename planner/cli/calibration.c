#include "planner/cli/calibration.h"

#include "runtime/launch.h"
#include "sim/base/machine.h"
#include "sim/base/text.h"
#include "sim/base/units.h"

static const char source[] =
    "dtplan calibrate: kernels and collectives of the runtime, alone, on this machine";

/* FLOP/s of the fastest point of the forward table. */
static double peak_flops_per_s(const struct dtp_measured *m) {
    const struct dtp_time_table *t = &m->table[DTP_TABLE_GEMM_FORWARD];
    double best = 0;
    for (size_t i = 0; i < t->time_s.n; i++) {
        size_t nz = t->axis[2].n, ny = t->axis[1].n;
        double flops =
            2 * t->axis[0].at[i / nz / ny] * t->axis[1].at[i / nz % ny] * t->axis[2].at[i % nz];
        best = flops / t->time_s.at[i] > best ? flops / t->time_s.at[i] : best;
    }
    return best;
}

static void write_gemm(struct dtp_json_out *w, const char *key, double rate) {
    dtp_json_put_key(w, key);
    dtp_json_object(w);
    dtp_json_put_key(w, "fp32");
    dtp_json_object(w);
    dtp_json_kv_double(w, "sm_flops_per_s", rate);
    dtp_json_end(w);
    dtp_json_end(w);
}

static void write_kernels(struct dtp_json_out *w, const struct dtp_measured *m) {
    dtp_json_put_key(w, "kernel");
    dtp_json_object(w);
    for (int k = 0; k < DTP_NKERNELS; k++) {
        double rate = m->elements_per_s[k];
        if (!(rate > 0))
            continue;
        dtp_json_put_key(w, dtp_kernel_names[k]);
        dtp_json_line(w);
        dtp_json_object(w);
        dtp_json_kv_double(w, "bytes_per_s", DTP_KILO * rate); /* elements alone bind */
        dtp_json_kv_double(w, "elements_per_s", rate);
        if (m->gated_factor[k] > 0)
            dtp_json_kv_double(w, "gated_factor", m->gated_factor[k]);
        dtp_json_end(w);
    }
    dtp_json_end(w);
}

static void write_calibration(struct dtp_json_out *w, const struct dtp_measured *m, double peak) {
    dtp_json_put_key(w, "calibration");
    dtp_json_object(w);
    dtp_json_kv_string(w, "summary",
                       "times measured at the points of the tables; between them linear");
    dtp_json_kv_double(w, "stream_bytes_per_s", m->copy_bytes_per_s);
    write_gemm(w, "gemm", peak);
    write_gemm(w, "bmm", peak);
    write_kernels(w, m);
    dtp_json_put_key(w, "attention");
    dtp_json_object(w);
    dtp_json_put_key(w, "heads");
    dtp_json_object(w);
    dtp_json_kv_double(w, "flops_per_s", peak); /* the tables give the times */
    dtp_json_end(w);
    dtp_json_end(w);
    dtp_json_kv_double(w, "kernel_gap_s", m->gap_s);
    dtp_json_put_key(w, "tables");
    dtp_json_array(w);
    for (int i = 0; i < DTP_NTABLES; i++)
        dtp_table_write(w, (enum dtp_table)i, &m->table[i]);
    dtp_json_end(w);
    dtp_json_kv_string(
        w, "notes", "not covered: ReLU (taken as GELU), sizes beyond the tables (in proportion)");
    dtp_json_end(w);
}

static void write_gpu(struct dtp_json_out *w, const struct dtp_measured *m) {
    double peak = peak_flops_per_s(m);
    dtp_json_put_key(w, "gpu");
    dtp_json_object(w);
    dtp_json_kv_string(w, "name", "cpu");
    dtp_json_kv_string(w, "title", "one core of this machine");
    dtp_json_kv_string(w, "arch", "cpu");
    dtp_json_kv_string(w, "family", "CPU");
    dtp_json_kv_int(w, "num_sms", 1);
    dtp_json_kv_u64(w, "memory_bytes", dtp_machine_memory("").total_bytes / (uint64_t)m->ncores);
    dtp_json_kv_double(w, "hbm_bytes_per_s", m->copy_bytes_per_s);
    dtp_json_put_key(w, "peak_flops_per_s");
    dtp_json_object(w);
    dtp_json_kv_double(w, "fp32", peak);
    dtp_json_end(w);
    write_calibration(w, m, peak);
    dtp_json_kv_string(w, "source", source);
    dtp_json_end(w);
}

static void write_node(struct dtp_json_out *w, const struct dtp_measured *m) {
    dtp_json_put_key(w, "node");
    dtp_json_object(w);
    dtp_json_kv_int(w, "gpus", DTP_MAX_GPUS_PER_NODE);
    dtp_json_kv_string(w, "intra", "shm");
    dtp_json_kv_double(w, "gpu_link_bytes_per_s", m->copy_bytes_per_s * m->ncores);
    dtp_json_kv_double(w, "gpu_link_efficiency", 1);
    dtp_json_kv_u64(w, "host_memory_bytes", dtp_machine_memory("").total_bytes);
    dtp_json_kv_int(w, "cores", m->ncores);
    dtp_json_end(w);
}

void dtp_curve_write(struct dtp_json_out *w, const struct dtp_curve *c, const char *from) {
    if (c->at_bytes.n == 0)
        dtp_json_line(w); /* a measured curve has its points, one list a line */
    dtp_json_object(w);
    dtp_fields_write(w, dtp_curve_fields, c);
    dtp_json_kv_string(w, "source", from);
    dtp_json_end(w);
}

static void write_curves(struct dtp_json_out *w, const struct dtp_measured *m) {
    dtp_json_put_key(w, "curves");
    dtp_json_array(w);
    for (int i = 0; i < m->ncurves; i++)
        dtp_curve_write(w, &m->curve[i], source);
    dtp_json_end(w);
}

/* {"title", "gpu": {...}, "node", "curves", ...}: what dtp_cluster_read() takes. */
static void write_file(FILE *f, const struct dtp_measured *m) {
    struct dtp_json_out w;
    dtp_json_begin(&w, f, 1);
    dtp_json_object(&w);
    dtp_json_kv_string(&w, "title", "this machine: ranks on cores, shared memory");
    write_gpu(&w, m);
    write_node(&w, m);
    dtp_json_kv_string(&w, "fabric", "none");
    write_curves(&w, m);
    dtp_json_kv_string(&w, "source", source);
    dtp_json_end(&w);
}

enum dtp_status dtp_calibration_make(struct dtp_arena *a, const struct dtp_measure_options *o,
                                     const char *path, struct dtp_measured *out,
                                     struct dtp_err *err) {
    struct dtp_file_out file;
    DTP_TRY(dtp_measure(a, o, out, err));
    DTP_TRY(dtp_file_out_open(a, path, &file, err));
    write_file(file.f, out);
    return dtp_file_out_commit(&file, err);
}
