#include "planner/cli/calibration.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include "models/framework/framework.h"
#include "runtime/launch.h"
#include "sim/base/machine.h"
#include "sim/base/text.h"
#include "sim/base/units.h"

/* ---- what kernels under long load say of power ---- */

static const struct dtp_measured_load *row_of(const struct dtp_measured *m, const char *kernel) {
    for (int i = 0; i < m->nloads; i++)
        if (strcmp(m->load[i].kernel, kernel) == 0)
            return &m->load[i];
    return NULL;
}

/* Joules beyond idle of a call; rests take idle_w and no more. */
static double beyond_j(const struct dtp_measured *m, const struct dtp_measured_load *x,
                       double idle_w) {
    /* what is read is true to a few percent; a chip that slows down is at its limit */
    double limit_w = m->limits.power_limit_w;
    double w = limit_w > 0 && x->power_w > limit_w ? limit_w : x->power_w;
    return (w - idle_w) * x->call_s;
}

/* Returns the energy of a FLOP at a clock over that at the highest clock. */
static double factor_of(const struct dtp_measured *m, double clock_hz, double exponent) {
    return pow(clock_hz / m->limits.most_clock_hz, exponent);
}

/* Joules of a FLOP at the highest clock; where the kernel was not loaded, otherwise. */
static double at_most_clock(const struct dtp_measured *m, const char *kernel,
                            const struct dtp_power_cal *p, double otherwise) {
    const struct dtp_measured_load *x = row_of(m, kernel);
    if (!x)
        return otherwise;
    return (beyond_j(m, x, p->idle_w) - p->j_per_byte * x->bytes) /
           (x->flops * factor_of(m, x->clock_hz, p->exponent));
}

static bool is_gemm(const struct dtp_measured_load *x) {
    return strncmp(x->kernel, "gemm", strlen("gemm")) == 0;
}

/* Fits joules of a FLOP and of a byte at an exponent by least squares of the GEMMs' relative errors. Returns the sum of
 * the squares, or less than 0 with fewer than two GEMMs. */
static double fit_at(const struct dtp_measured *m, double exponent, struct dtp_power_cal *p) {
    const double least_share = 1e-9; /* share of uu vv; below it bytes are proportional to FLOPs */
    double n = 0, u = 0, v = 0, uu = 0, uv = 0, vv = 0;
    for (int i = 0; i < m->nloads; i++) {
        const struct dtp_measured_load *x = &m->load[i];
        double j = beyond_j(m, x, p->idle_w);
        if (!is_gemm(x) || !(x->clock_hz > 0) || !(j > 0))
            continue;
        double a = x->flops * factor_of(m, x->clock_hz, exponent) / j, b = x->bytes / j;
        n++;
        u += a;
        v += b;
        uu += a * a;
        uv += a * b;
        vv += b * b;
    }
    if (n < 2)
        return -1;
    double determinant = uu * vv - uv * uv;
    bool apart = determinant > least_share * uu * vv && v * uu > u * uv;
    p->exponent = exponent;
    p->j_per_byte = apart ? (v * uu - u * uv) / determinant : 0;
    p->gemm_j_per_flop = (u - p->j_per_byte * uv) / uu;
    double f = p->gemm_j_per_flop, b = p->j_per_byte;
    return fmax(0, f * f * uu + 2 * f * b * uv + b * b * vv - 2 * (f * u + b * v) + n);
}

/* The exponent that fits best, by thirds: of 0 and more. */
static bool fit_gemms(const struct dtp_measured *m, struct dtp_power_cal *p) {
    enum { ROUNDS = 60, THIRDS = 3 };
    const double most = 2;
    double low = 0, high = most;
    for (int i = 0; i < ROUNDS; i++) {
        double third = (high - low) / THIRDS, below = fit_at(m, low + third, p);
        if (below < 0)
            return false;
        if (below < fit_at(m, high - third, p))
            high -= third;
        else
            low += third;
    }
    return fit_at(m, (low + high) / 2, p) >= 0;
}

/* Returns the watts of a product that repeats without pause, each call in call_s. */
static double product_w(const struct dtp_measured *m, const struct dtp_power_cal *p,
                        const struct dtp_measured_load *x, double clock_hz, double call_s) {
    double flop_j = p->gemm_j_per_flop * factor_of(m, clock_hz, p->exponent);
    return p->idle_w + (flop_j * x->flops + p->j_per_byte * x->bytes) / call_s;
}

/* Returns the seconds of rest whose saved energy equals what the chip draws above its limit in a stretch after a long
 * rest: after a longer rest it exceeds its limit for a while (dtp_power_slowdown()). */
static double memory_s(const struct dtp_measured *m, const struct dtp_power_cal *p) {
    enum { ROUNDS = 20 };
    const struct dtp_measured_load *x = row_of(m, "after_rest");
    if (!x || !(x->call_s > 0))
        return 0;
    double w = product_w(m, p, x, x->clock_hz, x->call_s);
    double saved_w = m->limits.power_limit_w - p->idle_w;
    double full_s = (w - m->limits.power_limit_w) * x->stretch_s / saved_w, s = full_s;
    if (!(full_s > 0))
        return 0;
    for (int i = 0; i < ROUNDS; i++) /* full_s = s (1 - e^(-rest / s)) */
        s = full_s / (1 - exp(-x->rest_s / s));
    return s;
}

/* The most that a GEMM takes in its first milliseconds: at the clock that it has then. */
static double burst_w(const struct dtp_measured *m, const struct dtp_power_cal *p) {
    double most_w = 0;
    for (int i = 0; i < m->nloads; i++) {
        const struct dtp_measured_load *x = &m->load[i];
        if (!(x->flops > 0) || !is_gemm(x))
            continue;
        double w = product_w(m, p, x, x->alone_clock_hz, x->alone_s);
        most_w = w > most_w ? w : most_w;
    }
    return most_w;
}

bool dtp_own_power(const struct dtp_measured *m, struct dtp_power_cal *out) {
    const struct dtp_measured_load *idle = row_of(m, "pause");
    *out = (struct dtp_power_cal){0};
    if (!idle || !(idle->power_w > 0) || !(m->limits.most_clock_hz > 0))
        return false;
    out->idle_w = idle->power_w;
    if (!fit_gemms(m, out))
        return false;
    double gemm = out->gemm_j_per_flop;
    out->attention_j_per_flop = at_most_clock(m, "attention_forward", out, gemm);
    out->attention_backward_j_per_flop = at_most_clock(m, "attention_backward", out, gemm);
    out->attention_dropout_j_per_flop = at_most_clock(m, "attention_dropout_forward", out, 0);
    out->attention_dropout_backward_j_per_flop =
        at_most_clock(m, "attention_dropout_backward", out, 0);
    out->burst_w = burst_w(m, out);
    out->memory_s = memory_s(m, out);
    const struct dtp_measured_load *comm = row_of(m, "all_reduce");
    out->comm_w = comm && comm->power_w > out->idle_w ? comm->power_w - out->idle_w : 0;
    return true;
}

double dtp_own_kernel_power_w(const struct dtp_measured *m, const char *kernel) {
    const struct dtp_measured_load *x = row_of(m, kernel), *idle = row_of(m, "pause");
    return x && idle && x->power_w > idle->power_w ? x->power_w - idle->power_w : 0;
}

/* ---- what both files have ---- */

/* Returns FLOP/s at the fastest point, counting 2 m n k, or 2 s^2 d for causal attention. */
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

static void write_curve(struct dtp_json_out *w, const struct dtp_curve *c, const char *from) {
    if (c->at_bytes.n == 0)
        dtp_json_line(w); /* a measured curve has its points, one list a line */
    dtp_json_object(w);
    dtp_fields_write(w, dtp_curve_fields, c);
    dtp_json_kv_string(w, "source", from);
    dtp_json_end(w);
}

static void write_curves(struct dtp_json_out *w, const struct dtp_measured *m, const char *source) {
    dtp_json_put_key(w, "curves");
    dtp_json_array(w);
    for (int i = 0; i < m->ncurves; i++)
        write_curve(w, &m->curve[i], source);
    dtp_json_end(w);
}

/* ---- this machine, as a cluster file with its device inside ---- */

static const char cpu_source[] =
    "dtplan calibrate: kernels and collectives of the runtime, alone, on this machine";

static void write_gemm(struct dtp_json_out *w, const char *key, double rate) {
    dtp_json_put_key(w, key);
    dtp_json_object(w);
    dtp_json_put_key(w, "fp32");
    dtp_json_object(w);
    dtp_json_kv_double(w, "sm_flops_per_s", rate);
    dtp_json_end(w);
    dtp_json_end(w);
}

static void write_cpu_kernels(struct dtp_json_out *w, const struct dtp_measured *m) {
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

static void write_cpu_calibration(struct dtp_json_out *w, const struct dtp_measured *m,
                                  double peak) {
    dtp_json_put_key(w, "calibration");
    dtp_json_object(w);
    dtp_json_kv_string(w, "summary",
                       "times measured at the points of the tables; between them linear");
    dtp_json_kv_double(w, "stream_bytes_per_s", m->copy_bytes_per_s);
    write_gemm(w, "gemm", peak);
    write_gemm(w, "bmm", peak);
    write_cpu_kernels(w, m);
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
    double peak = peak_rate(&m->table[DTP_TABLE_GEMM_FORWARD], false);
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
    write_cpu_calibration(w, m, peak);
    dtp_json_kv_string(w, "source", cpu_source);
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

/* {"title", "gpu": {...}, "node", "curves", ...}: what dtp_cluster_read() takes. */
static void write_cpu_file(FILE *f, const void *what) {
    const struct dtp_measured *m = what;
    struct dtp_json_out w;
    dtp_json_begin(&w, f, 1);
    dtp_json_object(&w);
    dtp_json_kv_string(&w, "title", "this machine: ranks on cores, shared memory");
    write_gpu(&w, m);
    write_node(&w, m);
    dtp_json_kv_string(&w, "fabric", "none");
    write_curves(&w, m, cpu_source);
    dtp_json_kv_string(&w, "source", cpu_source);
    dtp_json_end(&w);
}

enum dtp_status dtp_calibration_make(struct dtp_arena *a, const struct dtp_measure_options *o,
                                     const char *path, struct dtp_measured *out,
                                     struct dtp_err *err) {
    DTP_TRY(dtp_measure(a, o, out, err));
    return dtp_file_write(a, path, write_cpu_file, out, err);
}

/* ---- our runtime on this machine's GPUs ---- */

static const char framework[] = "dtplan-cuda";

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

struct times_file {
    const char *gpu;
    double optimizer_bytes;
    const struct dtp_measured *m;
};

static void write_file(FILE *f, const void *what) {
    const struct times_file *x = what;
    const struct dtp_measured *m = x->m;
    struct dtp_json_out w;
    char date[32] = "?", source[128];
    time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc))
        (void)strftime(date, sizeof date, "%Y-%m-%d", &utc);
    snprintf(source, sizeof source, "dtplan calibrate --backend cuda --framework dtplan, %s", date);
    dtp_json_begin(&w, f, 1);
    dtp_json_object(&w);
    dtp_json_kv_string(&w, "gpu", x->gpu);
    dtp_json_kv_string(&w, "title", "times of dtplan's own kernels and of collectives");
    dtp_json_kv_string(&w, "machine", m->about.card);
    dtp_json_kv_string(&w, "versions", m->about.versions);
    dtp_json_kv_double(&w, "launch_s", m->launch_s);
    if (m->hop_s > 0)
        dtp_json_kv_double(&w, "stream_hop_s", m->hop_s);
    if (m->peer_gap_s > 0)
        dtp_json_kv_double(&w, "peer_gap_s", m->peer_gap_s);
    write_calibration(&w, x->optimizer_bytes, m);
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
    const char *gpu;
    DTP_TRY(dtp_measure_about(o->backend, &about, err));
    DTP_TRY(dtp_gpu_of_card(a, about.card, &gpu, err));
    DTP_TRY(dtp_framework_load(a, framework, &f, err));
    if (all.nranks < 1)
        all.nranks = about.ndevices;
    if (!*path)
        *path = dtp_arena_printf(a, "%s.json", gpu);
    DTP_TRY(dtp_measure_device(a, &all, &grid, out, err));
    return dtp_file_write(a, *path, write_file,
                          &(struct times_file){gpu, f.kernels.optimizer_bytes_moved, out}, err);
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
