#include "traces/logs.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/units.h"

enum { MOST_FIELDS = 16, NEW_FIELDS = 13, OLD_FIELDS = 12 };

/* The next line as a string of its own; false at the end. */
static bool next_line(struct dtp_arena *a, const char **at, char **out) {
    if (!**at)
        return false;
    size_t n = strcspn(*at, "\n");
    *out = dtp_arena_strndup(a, *at, n);
    *at += n + ((*at)[n] == '\n');
    return true;
}

/* ---- nccl-tests ---- */

/* "0: text" (srun -l) and "[1,0]<stdout>: text" (mpirun). */
static char *without_prefix(char *line) {
    char *at = line;
    if (*at == '[') {
        char *end = strstr(at, ">:");
        return end ? end + 2 : line;
    }
    while (isdigit((unsigned char)*at))
        at++;
    return at > line && *at == ':' ? at + 1 : line;
}

static double cell(const char *text, double unit) {
    char *end;
    double v = strtod(text, &end);
    return end == text || *end || !(v >= 0) ? -1 : v * unit;
}

static bool take_nccl_row(struct dtp_arena *a, char *line, struct dtp_nccl_row *out) {
    char *field[MOST_FIELDS], *save;
    int n = 0;
    for (char *f = strtok_r(line, " \t\r", &save); f; f = strtok_r(NULL, " \t\r", &save))
        if (n < MOST_FIELDS)
            field[n++] = f;
    if ((n != NEW_FIELDS && n != OLD_FIELDS) || !isdigit((unsigned char)field[0][0]) ||
        !isdigit((unsigned char)field[1][0]))
        return false;
    *out = (struct dtp_nccl_row){.bytes = strtoull(field[0], NULL, 10),
                                 .count = strtoull(field[1], NULL, 10),
                                 .type = dtp_arena_strdup(a, field[2]),
                                 .redop = dtp_arena_strdup(a, field[3])};
    for (int k = 0; k < 2; k++) {
        char **at = field + (n == NEW_FIELDS ? 5 : 4) + 4 * k;
        out->time_s[k] = cell(at[0], DTP_MICRO);
        out->algbw_bytes_per_s[k] = cell(at[1], DTP_GIGA);
        out->busbw_bytes_per_s[k] = cell(at[2], DTP_GIGA);
    }
    return out->time_s[0] >= 0 || out->time_s[1] >= 0;
}

enum dtp_status dtp_nccl_log_parse(struct dtp_arena *a, const char *name, const char *text,
                                   struct dtp_nccl_log *out, struct dtp_err *err) {
    size_t capacity = 0;
    char *line;
    *out = (struct dtp_nccl_log){.stated_average_bytes_per_s = -1};
    while (next_line(a, &text, &line)) {
        struct dtp_nccl_row row;
        line = without_prefix(line);
        const char *average = strstr(line, "Avg bus bandwidth"), *colon;
        if (average && (colon = strchr(average, ':')))
            out->stated_average_bytes_per_s = strtod(colon + 1, NULL) * DTP_GIGA;
        if (average || !take_nccl_row(a, line, &row))
            continue;
        if (out->n == capacity) {
            out->row = dtp_arena_grow(a, out->row, sizeof row, capacity, capacity * 2 + 32);
            capacity = capacity * 2 + 32;
        }
        out->row[out->n++] = row;
    }
    if (out->n == 0)
        return dtp_fail(err, DTP_EINPUT, "%s: no row of nccl-tests in it", name);
    return DTP_OK;
}

double dtp_nccl_log_average_bytes_per_s(const struct dtp_nccl_log *log) {
    double sum = 0, n = 0;
    for (size_t i = 0; i < log->n; i++)
        for (int k = 0; k < 2; k++)
            if (log->row[i].busbw_bytes_per_s[k] >= 0) {
                sum += log->row[i].busbw_bytes_per_s[k];
                n++;
            }
    return n > 0 ? sum / n : 0;
}

/* ---- Megatron ---- */

/* The number after "key" and a colon; -1 where the line has none. */
static double after(const char *line, const char *key) {
    const char *at = strstr(line, key);
    at = at ? strchr(at, ':') : NULL;
    char *end;
    double v = at ? strtod(at + 1, &end) : -1;
    return at && end != at + 1 ? v : -1;
}

/* The same as a count; -1 also where it is none that a long holds. */
static long count_after(const char *line, const char *key) {
    double v = after(line, key);
    return v >= 0 && v <= DTP_PETA ? (long)v : -1;
}

static bool take_train_row(const char *line, struct dtp_train_row *out) {
    const char *at = strstr(line, " iteration ");
    double ms = after(line, "elapsed time per iteration (ms)");
    char *end;
    if (!at || !(ms > 0))
        return false;
    *out = (struct dtp_train_row){.step_s = ms * DTP_MILLI};
    out->iteration = strtol(at + strlen(" iteration "), &end, 10);
    while (*end == ' ' || *end == '/')
        end++;
    out->of = strtol(end, NULL, 10);
    out->tflops_per_gpu = after(line, "throughput per GPU (TFLOP/s/GPU)");
    out->loss = after(line, "lm loss");
    out->grad_norm = after(line, "grad norm");
    out->global_batch = after(line, "global batch size");
    out->skipped = count_after(line, "number of skipped iterations");
    out->nan = count_after(line, "number of nan iterations");
    return true;
}

enum dtp_status dtp_train_log_parse(struct dtp_arena *a, const char *name, const char *text,
                                    struct dtp_train_log *out, struct dtp_err *err) {
    size_t capacity = 0;
    char *line;
    *out = (struct dtp_train_log){0};
    while (next_line(a, &text, &line)) {
        struct dtp_train_row row;
        if (!take_train_row(line, &row))
            continue;
        if (out->n == capacity) {
            out->row = dtp_arena_grow(a, out->row, sizeof row, capacity, capacity * 2 + 32);
            capacity = capacity * 2 + 32;
        }
        out->row[out->n++] = row;
    }
    if (out->n == 0)
        return dtp_fail(err, DTP_EINPUT, "%s: no iteration line of Megatron in it", name);
    return DTP_OK;
}

static int by_value(const void *x, const void *y) {
    double p = *(const double *)x, q = *(const double *)y;
    return p < q ? -1 : p > q;
}

double dtp_train_log_median_s(struct dtp_arena *a, const struct dtp_train_log *log, size_t warmup) {
    size_t first = warmup < log->n ? warmup : 0, n = log->n - first;
    double *v = DTP_NEW(a, double, n + 1);
    for (size_t i = 0; i < n; i++)
        v[i] = log->row[first + i].step_s;
    qsort(v, n, sizeof *v, by_value);
    return n == 0 ? 0 : n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}
