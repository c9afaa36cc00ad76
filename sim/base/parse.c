#include "sim/base/text.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/units.h"

enum dtp_status dtp_bad_value(const char *place) {
    return strncmp(place, "--", 2) == 0 ? DTP_EUSAGE : DTP_EINPUT;
}

struct suffix {
    const char *text; /* lower case */
    double factor;
};

/* Length of a decimal number at s: [+-] digits [. digits] [e [+-] digits]. 0 if there is none.
 * strtod alone would also take hexadecimal, "nan" and "infinity". */
static size_t number_length(const char *s) {
    const char *p = s;
    if (*p == '+' || *p == '-')
        p++;
    size_t digits = 0;
    for (; isdigit((unsigned char)*p); p++)
        digits++;
    if (*p == '.')
        for (p++; isdigit((unsigned char)*p); p++)
            digits++;
    if (digits == 0)
        return 0;
    if (*p == 'e' || *p == 'E') {
        const char *q = p + 1;
        if (*q == '+' || *q == '-')
            q++;
        if (isdigit((unsigned char)*q)) {
            while (isdigit((unsigned char)*q))
                q++;
            p = q;
        }
    }
    return (size_t)(p - s);
}

static bool equal_case_blind(const char *a, const char *lower) {
    for (; *a && *lower; a++, lower++)
        if (tolower((unsigned char)*a) != *lower)
            return false;
    return *a == *lower;
}

static bool find_factor(const char *unit, const struct suffix *suffixes, size_t n, double *factor) {
    while (*unit == ' ')
        unit++;
    for (size_t i = 0; i < n; i++) {
        if (equal_case_blind(unit, suffixes[i].text)) {
            *factor = suffixes[i].factor;
            return true;
        }
    }
    return false;
}

/* A number >= 0 with a suffix of the table (the empty one included where it is allowed). */
static bool parse_scaled(const char *text, const struct suffix *suffixes, size_t n, double *out) {
    size_t length = number_length(text);
    double factor = 1;
    if (length == 0 || !find_factor(text + length, suffixes, n, &factor))
        return false;
    double v = strtod(text, NULL) * factor;
    if (!isfinite(v) || v < 0)
        return false;
    *out = v;
    return true;
}

enum dtp_status dtp_parse_bytes(const char *text, const char *place, uint64_t *out,
                                struct dtp_err *err) {
    static const struct suffix suffixes[] = {
        {"", 1.0},        {"b", 1.0},       {"k", DTP_KILO},  {"kb", DTP_KILO},
        {"m", DTP_MEGA},  {"mb", DTP_MEGA}, {"g", DTP_GIGA},  {"gb", DTP_GIGA},
        {"t", DTP_TERA},  {"tb", DTP_TERA}, {"kib", DTP_KIB}, {"mib", DTP_MIB},
        {"gib", DTP_GIB}, {"tib", DTP_TIB}, {"p", DTP_PETA},  {"pb", DTP_PETA}};
    static const double limit_bytes = 9.2e18; /* below 2^63, so that sums of two stay in uint64_t */
    double v = 0;
    if (!parse_scaled(text, suffixes, sizeof suffixes / sizeof *suffixes, &v) || v > limit_bytes)
        return dtp_fail(err, dtp_bad_value(place),
                        "%s: found \"%s\", expected bytes such as 80GB, 74.5GiB or 1000", place,
                        text);
    *out = (uint64_t)(v + 0.5);
    return DTP_OK;
}

enum dtp_status dtp_parse_time(const char *text, const char *place, double *out_s,
                               struct dtp_err *err) {
    static const struct suffix suffixes[] = {{"", 1.0},
                                             {"s", 1.0},
                                             {"ms", DTP_MILLI},
                                             {"us", DTP_MICRO},
                                             {"ns", DTP_NANO},
                                             {"min", DTP_S_PER_MINUTE},
                                             {"h", DTP_S_PER_HOUR},
                                             {"d", DTP_S_PER_DAY},
                                             {"days", DTP_S_PER_DAY}};
    if (!parse_scaled(text, suffixes, sizeof suffixes / sizeof *suffixes, out_s))
        return dtp_fail(err, dtp_bad_value(place),
                        "%s: found \"%s\", expected a time such as 1.5ms, 3s, 2h or 30d", place,
                        text);
    return DTP_OK;
}

enum dtp_status dtp_parse_count(const char *text, const char *place, double *out,
                                struct dtp_err *err) {
    static const struct suffix suffixes[] = {
        {"", 1.0}, {"k", DTP_KILO}, {"m", DTP_MEGA}, {"b", DTP_GIGA}, {"t", DTP_TERA}};
    if (!parse_scaled(text, suffixes, sizeof suffixes / sizeof *suffixes, out))
        return dtp_fail(err, dtp_bad_value(place),
                        "%s: found \"%s\", expected a count such as 300B, 1.5T or 450k", place,
                        text);
    return DTP_OK;
}

static enum dtp_status not_in_range(const char *text, const char *place, long min, long max,
                                    struct dtp_err *err) {
    if (max == LONG_MAX)
        return dtp_fail(err, dtp_bad_value(place),
                        "%s: found \"%s\", expected an integer of %ld or more", place, text, min);
    return dtp_fail(err, dtp_bad_value(place),
                    "%s: found \"%s\", expected an integer from %ld to %ld", place, text, min, max);
}

enum dtp_status dtp_parse_long(const char *text, const char *place, long min, long max, long *out,
                               struct dtp_err *err) {
    const char *digits = text + (*text == '+' || *text == '-');
    if (!isdigit((unsigned char)*digits))
        return not_in_range(text, place, min, max, err);
    char *end = NULL;
    errno = 0;
    long v = strtol(text, &end, 10);
    if (*end || errno || v < min || v > max)
        return not_in_range(text, place, min, max, err);
    *out = v;
    return DTP_OK;
}

enum dtp_status dtp_parse_double(const char *text, const char *place, double *out,
                                 struct dtp_err *err) {
    size_t length = number_length(text);
    double v = length > 0 ? strtod(text, NULL) : 0;
    if (length == 0 || text[length] || !isfinite(v))
        return dtp_fail(err, dtp_bad_value(place), "%s: found \"%s\", expected a number", place,
                        text);
    *out = v;
    return DTP_OK;
}
