#include "sim/base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/units.h"

struct unit {
    double factor;
    const char *name;
};

/* The value at which a smaller unit would print as many digits as "1000": take the next unit. */
static const double ROUND_UP = 1.0005;

static const struct unit *pick(const struct unit *units, size_t n, double v) {
    size_t i = 0;
    while (i + 1 < n && fabs(v) * ROUND_UP >= units[i + 1].factor)
        i++;
    return &units[i];
}

/* decimals < 0 means three significant digits. */
static const char *put(char *buf, size_t size, double v, int decimals, const char *unit) {
    if (decimals < 0) {
        double m = fabs(v);
        decimals = m >= 99.95 ? 0 : m >= 9.995 ? 1 : 2;
    }
    snprintf(buf, size, "%.*f%s%s", decimals, v, *unit ? " " : "", unit);
    return buf;
}

static const char *not_finite(char *buf, size_t size, double v) {
    snprintf(buf, size, "%s", isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
    return buf;
}

const char *dtp_fmt_time(double t_s, char *buf, size_t size) {
    static const struct unit units[] = {
        {DTP_NANO, "ns"},          {DTP_MICRO, "us"},     {DTP_MILLI, "ms"},      {1.0, "s"},
        {DTP_S_PER_MINUTE, "min"}, {DTP_S_PER_HOUR, "h"}, {DTP_S_PER_DAY, "days"}};
    if (!isfinite(t_s))
        return not_finite(buf, size, t_s);
    if (t_s == 0)
        return put(buf, size, 0, 0, "s");
    /* a training step is compared in seconds up to ten minutes, a run in hours up to two days */
    const struct unit *u = pick(units, sizeof units / sizeof *units, t_s);
    if (u->factor == DTP_S_PER_MINUTE && fabs(t_s) < 10 * DTP_S_PER_MINUTE)
        u = &units[3];
    if (u->factor == DTP_S_PER_DAY && fabs(t_s) < 2 * DTP_S_PER_DAY)
        u--;
    bool long_run = u->factor >= DTP_S_PER_MINUTE;
    return put(buf, size, t_s / u->factor, long_run ? 1 : -1, u->name);
}

const char *dtp_fmt_bytes_gib(double v_bytes, char *buf, size_t size) {
    static const struct unit units[] = {
        {1.0, "B"}, {DTP_KIB, "KiB"}, {DTP_MIB, "MiB"}, {DTP_GIB, "GiB"}, {DTP_TIB, "TiB"}};
    if (!isfinite(v_bytes))
        return not_finite(buf, size, v_bytes);
    const struct unit *u = pick(units, sizeof units / sizeof *units, v_bytes);
    return put(buf, size, v_bytes / u->factor, u == units ? 0 : 1, u->name);
}

const char *dtp_fmt_bytes_si(double v_bytes, char *buf, size_t size) {
    static const struct unit units[] = {{1.0, "B"},       {DTP_KILO, "kB"}, {DTP_MEGA, "MB"},
                                        {DTP_GIGA, "GB"}, {DTP_TERA, "TB"}, {DTP_PETA, "PB"}};
    if (!isfinite(v_bytes))
        return not_finite(buf, size, v_bytes);
    const struct unit *u = pick(units, sizeof units / sizeof *units, v_bytes);
    return put(buf, size, v_bytes / u->factor, u == units ? 0 : 1, u->name);
}

const char *dtp_fmt_rate(double v_bytes_per_s, char *buf, size_t size) {
    static const struct unit units[] = {{1.0, "B/s"},       {DTP_KILO, "kB/s"}, {DTP_MEGA, "MB/s"},
                                        {DTP_GIGA, "GB/s"}, {DTP_TERA, "TB/s"}, {DTP_PETA, "PB/s"}};
    if (!isfinite(v_bytes_per_s))
        return not_finite(buf, size, v_bytes_per_s);
    const struct unit *u = pick(units, sizeof units / sizeof *units, v_bytes_per_s);
    return put(buf, size, v_bytes_per_s / u->factor, -1, u->name);
}

const char *dtp_fmt_flops(double v_flops_per_s, char *buf, size_t size) {
    static const struct unit units[] = {{1.0, "FLOP/s"},
                                        {DTP_MEGA, "MFLOP/s"},
                                        {DTP_GIGA, "GFLOP/s"},
                                        {DTP_TERA, "TFLOP/s"},
                                        {DTP_PETA, "PFLOP/s"}};
    if (!isfinite(v_flops_per_s))
        return not_finite(buf, size, v_flops_per_s);
    const struct unit *u = pick(units, sizeof units / sizeof *units, v_flops_per_s);
    /* 1,979 TFLOP/s is how a GPU's peak is known: peta only from ten on */
    if (u->factor == DTP_PETA && fabs(v_flops_per_s) < 10 * DTP_PETA)
        u--;
    return put(buf, size, v_flops_per_s / u->factor, 1, u->name);
}

static const char *grouped(char *buf, size_t size, double v) {
    char digits[32];
    snprintf(digits, sizeof digits, "%.0f", fabs(v));
    size_t n = strlen(digits), at = 0;
    if (v < 0 && strcmp(digits, "0") != 0 && at + 1 < size)
        buf[at++] = '-';
    for (size_t i = 0; i < n && at + 2 < size; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            buf[at++] = ',';
        buf[at++] = digits[i];
    }
    buf[at] = '\0';
    return buf;
}

const char *dtp_fmt_count(double v, char *buf, size_t size) {
    static const struct unit units[] = {{DTP_MEGA, "M"}, {DTP_GIGA, "B"}, {DTP_TERA, "T"}};
    if (!isfinite(v))
        return not_finite(buf, size, v);
    if (fabs(v) < DTP_MEGA - 0.5)
        return grouped(buf, size, v);
    const struct unit *u = pick(units, sizeof units / sizeof *units, v);
    double m = v / u->factor;
    snprintf(buf, size, "%.*f%s", fabs(m) >= 99.995 ? 1 : 2, m, u->name);
    return buf;
}

const char *dtp_fmt_percent(double ratio, char *buf, size_t size) {
    if (!isfinite(ratio))
        return not_finite(buf, size, ratio);
    return put(buf, size, 100 * ratio, 1, "%");
}

/* The C library prints and reads the decimal point of the locale; JSON knows only '.'. */
static void use_point(char *s) {
    for (; *s; s++)
        if (!strchr("+-0123456789eE", *s))
            *s = '.';
}

const char *dtp_double_text(double v, char *buf, size_t size) {
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(buf, size, "%.*g", digits, v);
        /* in plain digits it would read as an integer that is too large to be exact */
        if (fabs(v) > DTP_LARGEST_INTEGER && isfinite(v) && !strchr(buf, 'e'))
            snprintf(buf, size, "%.*e", digits - 1, v);
        if (digits == 17 || strtod(buf, NULL) == v)
            break;
    }
    if (isfinite(v))
        use_point(buf);
    return buf;
}
