/* logs_train.c: step lines of trainers. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/units.h"
#include "traces/jobs/jobs.h"
#include "traces/formats/logs_private.h"

/* ---- labels ---- */

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

/* one: rates of tokens are those of one GPU, as torchtitan's are (its metrics.py). */
static void take_label(struct dtp_scalars *s, const struct dtp_label *l, int64_t step, bool one) {
    char tag[DTP_LABEL_SIZE];
    struct dtp_reading r;
    size_t end;
    if (l->n >= sizeof tag)
        return;
    memcpy(tag, l->at, l->n);
    tag[l->n] = '\0';
    const struct dtp_series *before = dtp_scalars_tag(s, tag);
    if ((before && before->quantity == DTP_QUANTITY_OTHER) || !dtp_label_value(l, &r)) {
        r.quantity = DTP_QUANTITY_OTHER;
        if (!dtp_number_read(l->value, l->nvalue, &r.value, &end))
            return;
    }
    if (one && r.quantity == DTP_QUANTITY_TOKENS_PER_S)
        r.quantity = DTP_QUANTITY_TOKENS_PER_S_PER_GPU;
    dtp_scalars_put(s, tag, step, &r);
}

static void take_labels(struct dtp_scalars *s, const char *text, int64_t step, bool one) {
    struct dtp_label l;
    while ((text = dtp_label_next(text, &l)))
        take_label(s, &l, step, one);
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
    take_labels(&s->log->scalars, bar + 1, n, false);
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
        dtp_scalars_put(&s->log->scalars, "step time from timestamps (s)", step,
                        &(struct dtp_reading){DTP_QUANTITY_STEP_S,
                                              (t - s->titan_s) / (double)(step - s->titan_step)});
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
    take_labels(&s->log->scalars, end, step, true);
    return true;
}

/* ---- DeepSpeed ---- */

/* Of the line of a step, in ms; their sum is the step. */
static const struct {
    const char *label;
    enum dtp_quantity quantity;
} deepspeed[] = {{"fwd", DTP_QUANTITY_FORWARD_S},
                 {"bwd", DTP_QUANTITY_BACKWARD_S},
                 {"step", DTP_QUANTITY_OPTIMIZER_S}};
enum { DEEPSPEED_PARTS = sizeof deepspeed / sizeof *deepspeed };

/* "time (ms) | fwd: X | bwd: X | ... | step: X": a line for the last microstep and one for the step. */
static bool take_deepspeed_times(struct log_state *s, char *line) {
    struct dtp_scalars *scalars = &s->log->scalars;
    struct dtp_label l;
    const char *at = strstr(line, "time (ms) |");
    if (!at || !strstr(at, "fwd") || !strstr(at, "bwd"))
        return false;
    bool whole = strstr(at, "| fwd:") != NULL;
    const struct dtp_series *before = dtp_scalars_tag(scalars, deepspeed[0].label);
    int64_t step = (before ? (int64_t)before->n : 0) + whole;
    struct dtp_reading sum = {DTP_QUANTITY_STEP_S, 0};
    int parts = 0;
    s->log->lines[DTP_LOG_DEEPSPEED]++;
    at += strlen("time (ms)");
    while ((at = dtp_label_next(at, &l))) {
        int k = 0;
        struct dtp_reading r;
        size_t end;
        while (k < DEEPSPEED_PARTS &&
               (strlen(deepspeed[k].label) != l.n || strncmp(l.at, deepspeed[k].label, l.n) != 0))
            k++;
        if (k == DEEPSPEED_PARTS || !dtp_number_read(l.value, l.nvalue, &r.value, &end)) {
            take_label(scalars, &l, step, false);
            continue;
        }
        r = (struct dtp_reading){deepspeed[k].quantity, r.value * DTP_MILLI};
        dtp_scalars_put(scalars, deepspeed[k].label, step, &r);
        sum.value += r.value;
        parts++;
    }
    if (whole && parts == DEEPSPEED_PARTS && sum.value >= 0)
        dtp_scalars_put(scalars, "fwd + bwd + step (ms)", step, &sum);
    return true;
}

/* "epoch=0/micro_step=10/global_step=5, RunningAvgSamplesPerSec=X, CurrSamplesPerSec=X, MemAllocated=XGB, ..." */
static bool take_deepspeed_rate(struct log_state *s, char *line) {
    static const char key[] = "global_step=";
    char *at = strstr(line, key), *end;
    if (!at || !strstr(at, "SamplesPerSec="))
        return false;
    int64_t step = strtoll(at + strlen(key), &end, 10);
    s->log->lines[DTP_LOG_DEEPSPEED]++;
    take_labels(&s->log->scalars, end, step, false);
    return true;
}

/* ---- others ---- */

static bool says_step(enum dtp_quantity q) {
    return q <= DTP_QUANTITY_MFU || q == DTP_QUANTITY_PEAK_BYTES;
}

/* "global_step: 9"; but "step: 3.2s" is a time. */
static bool step_of(const struct dtp_label *l, int64_t *out) {
    static const char *const names[] = {"step", "global_step", "iteration", "iter"};
    size_t i = 0, n = sizeof names / sizeof *names, end;
    double v;
    while (i < n && (l->n != strlen(names[i]) || strncmp(l->at, names[i], l->n) != 0))
        i++;
    if (i == n || !dtp_number_read(l->value, l->nvalue, &v, &end) || end < l->nvalue || !(v >= 0) ||
        v > DTP_PETA)
        return false;
    *out = (int64_t)v;
    return true;
}

/* Two labels and more, one of which says how fast or how full: NeMo, Hugging Face, ...; not of an evaluation. */
static bool take_other(struct log_state *s, const char *line) {
    struct dtp_label l;
    struct dtp_reading r;
    int n = 0, known = 0;
    int64_t step = (int64_t)s->log->lines[DTP_LOG_OTHER] + 1;
    for (const char *at = line; (at = dtp_label_next(at, &l)); n++)
        known += !step_of(&l, &step) && dtp_label_value(&l, &r) && says_step(r.quantity);
    if (n < 2 || known == 0 || strstr(line, "valid") || strstr(line, "eval"))
        return false;
    s->log->lines[DTP_LOG_OTHER]++;
    for (const char *at = line; (at = dtp_label_next(at, &l));)
        if (!step_of(&l, &step))
            take_label(&s->log->scalars, &l, step, false);
    return true;
}

bool logs_take_train(struct log_state *s, char *line) {
    return take_iteration(s, line) || take_titan(s, line) || take_deepspeed_times(s, line) ||
           take_deepspeed_rate(s, line) || take_other(s, line);
}
