#include "planner/cli/own_times.h"

#include <string.h>
#include <time.h>

#include "models/framework/framework.h"
#include "planner/cli/calibration.h"
#include "sim/base/text.h"
#include "sim/base/units.h"

static const char framework[] = "dtplan-cuda";

/* FLOP/s of the fastest point: 2 m n k, or causal attention's 2 s^2 d. */
static double peak_rate(const struct dtp_time_table *t, bool attention) {
    double best = 0;
    size_t nz = t->axis[2].n, ny = t->axis[1].n;
    for (size_t i = 0; i < t->time_s.n; i++) {
        double x = t->axis[0].at[i / nz / ny];
        double flops = 2 * x * t->axis[1].at[i / nz % ny] * t->axis[2].at[i % nz];
        double rate = t->time_s.at[i] > 0 ? flops * (attention ? x : 1) / t->time_s.at[i] : 0;
        best = rate > best ? rate : best;
    }
    return best;
}

static void write_kernels(struct dtp_json_out *w, double optimizer_bytes,
                          const struct dtp_measured *m) {
    double element_bytes = dtp_dtype_bytes((enum dtp_dtype)m->table[0].dtype);
    dtp_json_put_key(w, "kernel");
    dtp_json_object(w);
    for (int k = 0; k < DTP_NKERNELS; k++) {
        double bytes = k == DTP_K_OPTIMIZER ? optimizer_bytes : 2 * element_bytes;
        if (!(m->elements_per_s[k] > 0))
            continue;
        dtp_json_put_key(w, dtp_kernel_names[k]);
        dtp_json_line(w);
        dtp_json_object(w);
        dtp_json_kv_double(w, "bytes_per_s", bytes * m->elements_per_s[k]);
        dtp_json_kv_double(w, "latency_s", m->latency_s[k]);
        if (m->nloads > 0)
            dtp_json_kv_double(w, "power_w", dtp_own_kernel_power_w(m, dtp_kernel_names[k]));
        dtp_json_end(w);
    }
    dtp_json_end(w);
}

static void write_power(struct dtp_json_out *w, const struct dtp_measured *m) {
    struct dtp_power_cal p;
    if (!dtp_own_power(m, &p))
        return;
    dtp_json_put_key(w, "power");
    dtp_json_line(w);
    dtp_json_object(w);
    dtp_fields_write(w, dtp_power_fields, &p);
    dtp_json_end(w);
}

static void write_calibration(struct dtp_json_out *w, double optimizer_bytes,
                              const struct dtp_measured *m) {
    const struct dtp_time_table *attention = &m->table[DTP_TABLE_ATTENTION_FORWARD];
    dtp_json_put_key(w, "calibration");
    dtp_json_object(w);
    dtp_json_kv_string(w, "summary",
                       "kernels of our own runtime alone, as its executor calls them; bytes of a "
                       "class: an element read and one written");
    write_kernels(w, optimizer_bytes, m);
    dtp_json_put_key(w, "attention");
    dtp_json_object(w);
    dtp_json_put_key(w, "own");
    dtp_json_object(w); /* the tables give the times */
    dtp_json_kv_double(w, "flops_per_s", peak_rate(attention, true));
    dtp_json_end(w);
    dtp_json_end(w);
    dtp_json_kv_double(w, "kernel_gap_s", m->gap_s);
    write_power(w, m);
    dtp_json_put_key(w, "tables");
    dtp_json_array(w);
    for (int i = 0; i < DTP_NTABLES; i++)
        dtp_table_write(w, (enum dtp_table)i, &m->table[i]);
    dtp_json_end(w);
    dtp_json_end(w);
}

static void write_loads(struct dtp_json_out *w, const struct dtp_measured *m) {
    dtp_json_kv_double(w, "power_limit_w", m->limits.power_limit_w);
    dtp_json_kv_double(w, "most_clock_hz", m->limits.most_clock_hz);
    dtp_json_put_key(w, "loads");
    dtp_json_array(w);
    for (int i = 0; i < m->nloads; i++) {
        const struct dtp_measured_load *x = &m->load[i];
        dtp_json_line(w);
        dtp_json_object(w);
        dtp_json_kv_string(w, "kernel", x->kernel);
        dtp_json_kv_double(w, "busy", x->busy);
        if (x->flops > 0)
            dtp_json_kv_double(w, "flops", x->flops);
        if (x->bytes > 0)
            dtp_json_kv_double(w, "bytes", x->bytes);
        dtp_json_kv_double(w, "alone_s", x->alone_s);
        dtp_json_kv_double(w, "call_s", x->call_s);
        dtp_json_kv_double(w, "alone_clock_hz", x->alone_clock_hz);
        dtp_json_kv_double(w, "clock_hz", x->clock_hz);
        dtp_json_kv_double(w, "power_w", x->power_w);
        if (x->rest_s > 0) {
            dtp_json_kv_double(w, "rest_s", x->rest_s);
            dtp_json_kv_double(w, "stretch_s", x->stretch_s);
        }
        dtp_json_end(w);
    }
    dtp_json_end(w);
}

static void write_curves(struct dtp_json_out *w, const struct dtp_measured *m, const char *source) {
    dtp_json_put_key(w, "curves");
    dtp_json_array(w);
    for (int i = 0; i < m->ncurves; i++)
        dtp_curve_write(w, &m->curve[i], source);
    dtp_json_end(w);
}

static void write_file(FILE *f, const char *gpu, double optimizer_bytes,
                       const struct dtp_measured *m) {
    struct dtp_json_out w;
    char date[32] = "?", source[128];
    time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc))
        (void)strftime(date, sizeof date, "%Y-%m-%d", &utc);
    snprintf(source, sizeof source, "dtplan calibrate --backend cuda --framework dtplan, %s", date);
    dtp_json_begin(&w, f, 1);
    dtp_json_object(&w);
    dtp_json_kv_string(&w, "gpu", gpu);
    dtp_json_kv_string(&w, "title", "times of dtplan's own kernels and of collectives");
    dtp_json_kv_string(&w, "machine", m->about.card);
    dtp_json_kv_string(&w, "versions", m->about.versions);
    dtp_json_kv_double(&w, "launch_s", m->launch_s);
    if (m->hop_s > 0)
        dtp_json_kv_double(&w, "stream_hop_s", m->hop_s);
    if (m->peer_gap_s > 0)
        dtp_json_kv_double(&w, "peer_gap_s", m->peer_gap_s);
    write_calibration(&w, optimizer_bytes, m);
    if (m->nloads > 0)
        write_loads(&w, m);
    write_curves(&w, m, source);
    dtp_json_kv_string(&w, "source", source);
    dtp_json_end(&w);
}

enum dtp_status dtp_own_times_make(struct dtp_arena *a, const struct dtp_measure_options *o,
                                   const char **path, struct dtp_measured *out,
                                   struct dtp_err *err) {
    const struct dtp_measure_grid grid = dtp_measure_gpu_grid();
    struct dtp_measure_options all = *o;
    struct dtp_dev_about about;
    struct dtp_framework f;
    struct dtp_file_out file;
    const char *gpu;
    DTP_TRY(dtp_measure_about(o->backend, &about, err));
    DTP_TRY(dtp_gpu_of_card(a, about.card, &gpu, err));
    DTP_TRY(dtp_framework_load(a, framework, &f, err));
    if (all.nranks < 1)
        all.nranks = about.ndevices;
    if (!*path)
        *path = dtp_arena_printf(a, "%s.json", gpu);
    DTP_TRY(dtp_measure_device(a, &all, &grid, out, err));
    DTP_TRY(dtp_file_out_open(a, *path, &file, err));
    write_file(file.f, gpu, f.kernels.optimizer_bytes_moved, out);
    return dtp_file_out_commit(&file, err);
}

void dtp_own_times_report(FILE *f, const struct dtp_measured *m, const char *path) {
    const struct dtp_time_table *gemm = m->table, *attention = gemm + DTP_TABLE_ATTENTION_FORWARD;
    fprintf(f, "%s, %s; %.1f s\n", m->about.card, m->about.versions, m->seconds);
    for (int i = 0; i <= DTP_TABLE_GEMM_WGRAD; i++)
        fprintf(f, "%-20s %7.1f TFLOP/s at best\n", dtp_table_names[i],
                peak_rate(&gemm[i], false) / DTP_TERA);
    fprintf(f, "%-20s %7.1f TFLOP/s at best (causal)\n",
            dtp_table_names[DTP_TABLE_ATTENTION_FORWARD], peak_rate(attention, true) / DTP_TERA);
    for (int k = 0; k < DTP_NKERNELS; k++)
        if (m->elements_per_s[k] > 0)
            fprintf(f, "%-20s %7.2f G elements/s, %.1f us\n", dtp_kernel_names[k],
                    m->elements_per_s[k] / DTP_GIGA, m->latency_s[k] / DTP_MICRO);
    fprintf(f, "copy %.0f GB/s; the host launches a kernel in %.2f us; between streams %.2f us\n",
            m->copy_bytes_per_s / DTP_GIGA, m->launch_s / DTP_MICRO, m->hop_s / DTP_MICRO);
    for (int i = 0; i < m->ncurves; i++) {
        const struct dtp_curve *c = &m->curve[i];
        fprintf(f, "%-16s %3d GPUs  latency %6.1f us  %7.1f GB/s  error of the fit %4.1f %%\n",
                dtp_collective_names[c->collective], c->gpus, c->a_s / DTP_MICRO,
                c->c_s_per_byte > 0 ? 1 / c->c_s_per_byte / DTP_GIGA : 0.0, 100 * c->mean_error);
    }
    fprintf(f, "Wrote %s: hw/runtime/GPU.json, or --calibration\n", path);
}
