/* logs_train.c: step lines of trainers. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/units.h"
#include "traces/jobs/jobs.h"
#include "traces/formats/logs_private.h"

/* ---- numbers ---- */

/* 1,234.5 and, of nanotron, 1.2K, 3M, 1B, 2T; what follows (a unit, a parenthesis) does not matter. */
static bool number_at(const char *text, bool human, double *out) {
    char digits[48], *end;
    size_t n = 0;
    text += strspn(text, " \t");
    for (const char *at = text; *at && n < sizeof digits - 1; at++) {
        if (*at == ',' && isdigit((unsigned char)at[1]) && n > 0)
            continue;
        if (!isalnum((unsigned char)*at) && !strchr("+-.", *at))
            break;
        digits[n++] = *at;
    }
    digits[n] = '\0';
    *out = strtod(digits, &end);
    if (end == digits)
        return false;
    if (human && *end && !end[1])
        switch (*end) {
        case 'K':
            *out *= DTP_KILO;
            break;
        case 'M':
            *out *= DTP_MEGA;
            break;
        case 'B':
            *out *= DTP_GIGA;
            break;
        case 'T':
            *out *= DTP_TERA;
            break;
        default:
            break;
        }
    return true;
}

/* "N / M |" at text. */
static bool count_of(const char *text, int64_t *out_n, int64_t *out_of) {
    char *end;
    text += strspn(text, " \t=:");
    if (!isdigit((unsigned char)*text))
        return false;
    *out_n = strtoll(text, &end, 10);
    end += strspn(end, " ");
    if (*end != '/')
        return false;
    text = end + 1 + strspn(end + 1, " ");
    if (!isdigit((unsigned char)*text))
        return false;
    *out_of = strtoll(text, &end, 10);
    return true;
}

/* The text between from and to without blanks at its ends, as a string in place. */
static char *trim(char *from, char *to) {
    while (from < to && isspace((unsigned char)*from))
        from++;
    while (to > from && isspace((unsigned char)to[-1]))
        to--;
    *to = '\0';
    return from;
}

/* "key: value" or "key=value", cut at the last colon: keys may hold one. */
static bool take_pair(struct dtp_scalars *s, char *pair, int64_t step, bool human) {
    char *sign = strrchr(pair, ':');
    sign = sign ? sign : strchr(pair, '=');
    double v;
    if (!sign || !number_at(sign + 1, human, &v))
        return false;
    const char *key = trim(pair, sign);
    if (!*key)
        return false;
    dtp_scalars_add(s, key, step, v);
    return true;
}

/* Items between bars. How many were pairs. */
static int take_items(struct dtp_scalars *s, char *items, int64_t step, bool human) {
    int n = 0;
    char *save;
    for (char *item = strtok_r(items, "|", &save); item; item = strtok_r(NULL, "|", &save))
        n += take_pair(s, item, step, human);
    return n;
}

/* ---- Megatron, nanotron ---- */

static bool take_iteration(struct log_state *s, char *line) {
    int64_t n, of;
    char *at = strstr(line, "iteration"), *bar = strchr(line, '|');
    while (at && !count_of(at + strlen("iteration"), &n, &of))
        at = strstr(at + 1, "iteration");
    if (!at)
        return false;
    bar = strchr(at, '|');
    bool megatron = bar && (strstr(bar, "elapsed time per iteration (ms)") ||
                            strstr(bar, "elapsed_time_per_iteration_ms="));
    bool nanotron = bar && strstr(bar, "elapsed_time_per_iteration_ms:");
    if (!megatron && !nanotron)
        return false;
    s->log->steps_of = of;
    s->log->lines[nanotron ? DTP_LOG_NANOTRON : DTP_LOG_MEGATRON]++;
    take_items(&s->log->scalars, bar + 1, n, nanotron);
    return true;
}

/* ---- torchtitan ---- */

/* Python's logging stamp, "2024-10-16 12:00:01,123", anywhere in the first part of a line. */
static double stamp_of(const char *line) {
    char text[32];
    double t;
    bool zone;
    for (const char *at = line; *at && at < line + 256; at++) {
        size_t n = strspn(at, "0123456789-:, ");
        if (!isdigit((unsigned char)*at) || n < 19)
            continue;
        n = n < 23 ? 19 : 23;
        memcpy(text, at, n);
        text[n] = '\0';
        if (n == 23 && text[19] == ',')
            text[19] = '.';
        else
            text[19] = '\0';
        if (dtp_parse_date(text, &t, &zone))
            return t;
    }
    return -1;
}

/* The line is the mean over the steps since the line before; the first has none before. */
static void take_stamp(struct log_state *s, const char *line, int64_t step) {
    double t = stamp_of(line);
    if (t >= 0 && s->titan_s >= 0 && step > s->titan_step && t >= s->titan_s)
        dtp_scalars_add(&s->log->scalars, "step time from timestamps (s)", step,
                        (t - s->titan_s) / (double)(step - s->titan_step));
    s->titan_s = t;
    s->titan_step = step;
}

static bool take_titan(struct log_state *s, char *line) {
    char *at = strstr(line, "step:"), *end;
    if (!at || !strstr(at, "loss:") || (at > line && at[-1] != ' ') ||
        (at - line >= 9 && strncmp(at - 9, "validate ", 9) == 0))
        return false;
    char *from = at + strlen("step:");
    int64_t step = strtoll(from, &end, 10);
    if (end == from || step < 0)
        return false;
    take_stamp(s, line, step);
    s->log->lines[DTP_LOG_TORCHTITAN]++;
    for (char *item = end;
         *item;) { /* items stand two blanks apart, "loss:  8.1" has them inside */
        item += strspn(item, " ");
        char *colon = strchr(item, ':');
        double v;
        if (!colon || !number_at(colon + 1, false, &v))
            break;
        char *next = colon + 1 + strspn(colon + 1, " ");
        next += strcspn(next, " ");
        dtp_scalars_add(&s->log->scalars, trim(item, colon), step, v);
        item = next;
    }
    return true;
}

/* ---- DeepSpeed ---- */

static double pair_value(const struct dtp_scalars *s, const char *tag, size_t n) {
    const struct dtp_series *series = dtp_scalars_tag(s, tag);
    return series && series->n == n ? series->at[n - 1].value / DTP_MILLI : -1;
}

/* "time (ms) | fwd: X | bwd: X | ... | step: X": a line for the last microstep and one for the step. */
static bool take_deepspeed_times(struct log_state *s, char *line) {
    struct dtp_scalars *scalars = &s->log->scalars;
    char *at = strstr(line, "time (ms) |");
    if (!at || !strstr(at, "fwd") || !strstr(at, "bwd"))
        return false;
    bool whole = strstr(at, "| fwd:") != NULL;
    const struct dtp_series *before = dtp_scalars_tag(scalars, "fwd");
    size_t n = before ? before->n : 0;
    int64_t step = whole ? (int64_t)n + 1 : (int64_t)n;
    s->log->lines[DTP_LOG_DEEPSPEED]++;
    take_items(scalars, at + strlen("time (ms) |"), step, false);
    double fwd = pair_value(scalars, "fwd", n + 1), bwd = pair_value(scalars, "bwd", n + 1),
           own = pair_value(scalars, "step", n + 1);
    if (whole && fwd >= 0 && bwd >= 0 && own >= 0)
        dtp_scalars_add(scalars, "fwd + bwd + step (ms)", step, fwd + bwd + own);
    return true;
}

/* "epoch=0/micro_step=10/global_step=5, RunningAvgSamplesPerSec=X, CurrSamplesPerSec=X, MemAllocated=XGB, ..." */
static bool take_deepspeed_rate(struct log_state *s, char *line) {
    static const char key[] = "global_step=";
    char *at = strstr(line, key), *save, *end;
    if (!at || !strstr(at, "SamplesPerSec="))
        return false;
    int64_t step = strtoll(at + strlen(key), &end, 10);
    s->log->lines[DTP_LOG_DEEPSPEED]++;
    for (char *item = strtok_r(end, ",", &save); item; item = strtok_r(NULL, ",", &save)) {
        char *equals = strchr(item, '=');
        double v;
        if (equals && number_at(equals + 1, false, &v))
            dtp_scalars_add(&s->log->scalars, trim(item, equals), step, v);
    }
    return true;
}

bool logs_take_train(struct log_state *s, char *line) {
    return take_iteration(s, line) || take_titan(s, line) || take_deepspeed_times(s, line) ||
           take_deepspeed_rate(s, line);
}
