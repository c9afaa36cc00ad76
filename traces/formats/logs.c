/* logs_train.c: step lines of trainers. */
#include "traces/formats/logs.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/units.h"
#include "traces/formats/lines.h"
#include "traces/jobs/jobs.h"
#include "traces/formats/format.h"
#include "sim/base/text.h"
#include "traces/catalog.h"

/* The state holds what earlier lines said. */
struct log_state {
    struct dtp_log *log;
    struct dtp_intern *texts; /* texts in rows of nccl-tests */
    double titan_s;           /* time stamp of the last step line, or -1 */
    int64_t titan_step;
    int64_t bar_step, trainer_lines; /* in the last progress bar; lines of Hugging Face's Trainer */
    uint64_t nccl_lines;             /* lines of NCCL_DEBUG */
};

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

/* The line of a step gives these times in ms; their sum is the step. */
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
    take_stamp(s, line, step);
    take_labels(&s->log->scalars, end, step, false);
    return true;
}

/* ---- MaxText ---- */

/* "completed step: 5, seconds: 1.234, TFLOP/s/device: 123.4, Tokens/s/device: 3321.1, ..., loss: 10.2" */
static bool take_maxtext(struct log_state *s, const char *line) {
    static const char key[] = "completed step:", seconds[] = "seconds:";
    const char *at = strstr(line, key), *time = at ? strstr(at, seconds) : NULL;
    char *end;
    if (!time)
        return false;
    int64_t step = strtoll(at + strlen(key), &end, 10);
    double v = strtod(time + strlen(seconds), NULL);
    s->log->lines[DTP_LOG_OTHER]++;
    dtp_scalars_put(&s->log->scalars, "seconds", step,
                    &(struct dtp_reading){DTP_QUANTITY_STEP_S, v});
    at = strchr(time, ',');
    if (at)
        take_labels(&s->log->scalars, at + 1, step, true);
    return true;
}

/* ---- NeMo ---- */

/* "train_step_timing in s: [11.85, 6.98, 5.36]": the times of all steps in one line. */
static bool take_list(struct log_state *s, const char *line) {
    static const char key[] = "train_step_timing in s: [", tag[] = "train_step_timing in s";
    const char *at = strstr(line, key);
    char *end;
    if (!at)
        return false;
    at += strlen(key);
    for (int64_t step = 1;; step++) {
        double v = strtod(at, &end);
        if (end == at)
            break;
        dtp_scalars_put(&s->log->scalars, tag, step, &(struct dtp_reading){DTP_QUANTITY_STEP_S, v});
        at = end + strspn(end, ", ");
    }
    s->log->lines[DTP_LOG_OTHER]++;
    return true;
}

/* ---- Hugging Face's Trainer and what builds on it (ms-swift) ---- */

/* "  0%|   | 1/712 [10:58<90:00:48, 447.23s/it]", several a line where a carriage return parts them. A bar with
 * a description (Loading, Map) is not that of the training. */
static bool take_bar(struct log_state *s, const char *line) {
    bool any = false;
    for (const char *bar = line; (bar = strstr(bar, "%|")); bar++) {
        const char *from = bar, *at = strchr(bar + 2, '|');
        int64_t n, of;
        while (from > line && from[-1] != '\r' && from[-1] != ']')
            from--;
        if (strspn(from, " \t0123456789") != (size_t)(bar - from) || !at)
            continue;
        const char *rate = strchr(at, '<'), *end = rate ? strchr(rate, ']') : NULL;
        rate = rate ? strchr(rate, ',') : NULL;
        if (!count_of(at + 1, &n, &of) || !rate || !end || rate > end)
            continue;
        char *unit;
        double v = strtod(rate + 1, &unit);
        bool inverse = strncmp(unit, "it/s", 4) == 0;
        if ((!inverse && strncmp(unit, "s/it", 4) != 0) || !(v > 0))
            continue;
        s->log->steps_of = of;
        any = n != s->bar_step || any;
        if (n != s->bar_step) /* the bar is drawn again before and after other lines */
            dtp_scalars_put(&s->log->scalars, "time of the progress bar (s/it)", n,
                            &(struct dtp_reading){DTP_QUANTITY_STEP_S, inverse ? 1 / v : v});
        s->bar_step = n;
    }
    s->log->lines[DTP_LOG_OTHER] += any;
    return any;
}

/* "{'loss': 1.2345, 'grad_norm': 2.1, 'learning_rate': 1e-05, 'epoch': 0.01}", of ms-swift with
 * 'global_step/max_steps': '10/712'. */
static bool take_trainer(struct log_state *s, const char *line) {
    static const char steps[] = "'global_step/max_steps':";
    const char *at = strstr(line, "{'loss':"), *count = at ? strstr(at, steps) : NULL;
    int64_t n = s->bar_step > 0 ? s->bar_step : ++s->trainer_lines, of;
    if (!at || !strstr(at, "'epoch':"))
        return false;
    if (count && count_of(count + strlen(steps) + strspn(count + strlen(steps), " '"), &n, &of))
        s->log->steps_of = of;
    s->log->lines[DTP_LOG_OTHER]++;
    take_labels(&s->log->scalars, at, n, false);
    return true;
}

/* ---- others ---- */

static bool says_step(enum dtp_quantity q) {
    return q <= DTP_QUANTITY_MFU || q == DTP_QUANTITY_PEAK_BYTES;
}

/* "global_step: 9"; but "step: 3.2s" is a time. */
static bool step_of(const struct dtp_label *l, int64_t *out) {
    static const char *const names[] = {"step", "steps", "global_step", "iteration", "iter"};
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

static bool take_train(struct log_state *s, char *line) {
    bool bar = take_bar(s, line); /* other lines may follow it */
    return take_iteration(s, line) || take_maxtext(s, line) || take_titan(s, line) ||
           take_deepspeed_times(s, line) || take_deepspeed_rate(s, line) || take_list(s, line) ||
           take_trainer(s, line) || take_other(s, line) || bar;
}

enum { MOST_FIELDS = 16, NEW_FIELDS = 13, OLD_FIELDS = 12, MOST_RANKS = 1 << 24 };

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

/* ---- nccl-tests ---- */

static double cell(const char *text, double unit) {
    char *end;
    double v = strtod(text, &end);
    return end == text || *end || !(v >= 0) || v > DTP_PETA ? -1 : v * unit;
}

static bool take_nccl_row(struct dtp_intern *texts, char *line, struct dtp_nccl_row *out) {
    char *field[MOST_FIELDS], *save;
    int n = 0;
    for (char *f = strtok_r(line, " \t\r", &save); f; f = strtok_r(NULL, " \t\r", &save))
        if (n < MOST_FIELDS)
            field[n++] = f;
    if ((n != NEW_FIELDS && n != OLD_FIELDS) || !isdigit((unsigned char)field[0][0]) ||
        !isdigit((unsigned char)field[1][0]) || !isalpha((unsigned char)field[2][0]))
        return false; /* size, count and type; other tables have numbers, too */
    *out = (struct dtp_nccl_row){.bytes = strtoull(field[0], NULL, 10),
                                 .count = strtoull(field[1], NULL, 10)};
    for (int k = 0; k < 2; k++) {
        char **at = field + (n == NEW_FIELDS ? 5 : 4) + 4 * k;
        out->time_s[k] = cell(at[0], DTP_MICRO);
        out->busbw_bytes_per_s[k] = cell(at[2], DTP_GIGA);
    }
    if (out->time_s[0] < 0 && out->time_s[1] < 0)
        return false;
    out->type = dtp_intern_text(texts, field[2]);
    return true;
}

/* Lines of the heading: "#  Rank  3 Group  0 Pid ...", "# Collective test starting: all_reduce_perf". */
static void take_heading(struct dtp_log *log, const char *line) {
    static const char starting[] = "Collective test starting:";
    const char *at = strstr(line, starting), *rank = strstr(line, " Rank ");
    if (at) {
        at += sizeof starting - 1;
        at += strspn(at, " ");
        log->nccl.collective =
            dtp_arena_strndup(log->scalars.a, at, strcspn(at, " \t")); /* once a file */
    } else if (rank) {
        char *end;
        long v = strtol(rank + strlen(" Rank "), &end, 10);
        if (end != rank + strlen(" Rank ") && v >= log->nccl.ranks && v < MOST_RANKS)
            log->nccl.ranks = (int)v + 1;
    }
}

static bool take_nccl(const struct log_state *s, char *line) {
    struct dtp_log *log = s->log;
    struct dtp_nccl_log *nccl = &log->nccl;
    struct dtp_nccl_row row;
    if (strstr(line, "Avg bus bandwidth"))
        return true;
    if (line[strspn(line, " \t")] == '#') {
        take_heading(log, line);
        return false;
    }
    /* cheap first: a row begins with two numbers */
    if (!isdigit((unsigned char)line[strspn(line, " \t")]) || !take_nccl_row(s->texts, line, &row))
        return false;
    nccl->row = dtp_arena_room(log->scalars.a, nccl->row, sizeof row, nccl->n, &nccl->capacity);
    nccl->row[nccl->n++] = row;
    return true;
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

/* ---- all ---- */

/* Colours that lost their ESC bytes, "[31mstep: 10": the line has one of a foreground. */
static bool has_bare_colours(const char *line) {
    for (const char *at = line; (at = strchr(at, '[')); at++)
        if ((at[1] == '3' || at[1] == '9') && isdigit((unsigned char)at[2]) && at[3] == 'm')
            return true;
    return false;
}

static void remove_bare_colours(char *line) {
    char *to = line;
    for (const char *from = line; *from;) {
        size_t n = *from == '[' ? strspn(from + 1, "0123456789;") : 0;
        if (n > 0 && from[n + 1] == 'm')
            from += n + 2;
        else
            *to++ = *from++;
    }
    *to = '\0';
}

/* Terminal colours: ESC [ ... letter. */
static void remove_colours(char *line) {
    char *to = strchr(line, '\033');
    if (!to) {
        if (has_bare_colours(line))
            remove_bare_colours(line);
        return;
    }
    for (const char *from = to; *from;) {
        if (*from != '\033') {
            *to++ = *from++;
            continue;
        }
        from++;
        if (*from != '[')
            continue;
        from += 1 + strspn(from + 1, "0123456789;");
        from += *from != '\0';
    }
    *to = '\0';
}

enum dtp_status dtp_log_read(struct dtp_arena *a, struct dtp_source *source, struct dtp_log *out,
                             struct dtp_err *err) {
    struct dtp_lines l;
    struct log_state state = {.log = out, .texts = dtp_intern_create(a), .titan_s = -1};
    enum dtp_status status;
    char *line;
    *out = (struct dtp_log){.nccl = {.collective = ""}};
    dtp_scalars_init(a, &out->scalars);
    dtp_lines_init(&l, a, source);
    while (dtp_lines_next(&l, &line, &status, err)) {
        remove_colours(line);
        state.nccl_lines += strstr(line, "NCCL INFO") != NULL;
        if (take_train(&state, line))
            continue;
        out->lines[DTP_LOG_NCCL_TESTS] += take_nccl(&state, without_prefix(line));
    }
    DTP_TRY(status);
    for (int d = 0; d < DTP_NLOG_DIALECTS; d++)
        if (out->lines[d] > out->lines[out->dialect])
            out->dialect = (enum dtp_log_dialect)d;
    if (out->nccl.n == 0 && out->scalars.n == 0 && state.nccl_lines > 0)
        return dtp_fail(err, DTP_EINPUT,
                        "%s: output of NCCL_DEBUG (%llu lines): rings and channels, no time of a "
                        "step or collective; NCCL_TOPO_DUMP_FILE writes a topology that is read",
                        dtp_source_name(source), (unsigned long long)state.nccl_lines);
    if (out->nccl.n == 0 && out->scalars.n == 0)
        return dtp_fail(
            err, DTP_EINPUT,
            "%s: no row of nccl-tests and no step line of Megatron, nanotron, "
            "torchtitan, DeepSpeed or others in %llu lines (`dtplan trace --format list` has what "
            "else is read)",
            dtp_source_name(source), (unsigned long long)l.number);
    return DTP_OK;
}

/* ---- the row of the format ---- */

enum { TEXT = 32 };

/* A value in the unit that people use for its quantity. */
static const char *quantity_text(enum dtp_quantity q, double v, char *buf) {
    switch (q) {
    case DTP_QUANTITY_STEP_S:
    case DTP_QUANTITY_FORWARD_S:
    case DTP_QUANTITY_BACKWARD_S:
    case DTP_QUANTITY_OPTIMIZER_S:
        return dtp_fmt_time(v, buf, TEXT);
    case DTP_QUANTITY_PEAK_BYTES:
    case DTP_QUANTITY_RESERVED_BYTES:
    case DTP_QUANTITY_ALLOCATED_BYTES:
        return dtp_fmt_bytes_gib(v, buf, TEXT);
    case DTP_QUANTITY_FLOPS_PER_GPU:
    case DTP_QUANTITY_HARDWARE_FLOPS_PER_GPU:
        return dtp_fmt_flops(v, buf, TEXT);
    case DTP_QUANTITY_MFU:
        return dtp_fmt_percent(v, buf, TEXT);
    case DTP_QUANTITY_TOKENS_PER_S:
    case DTP_QUANTITY_TOKENS_PER_S_PER_GPU:
    case DTP_QUANTITY_TOKENS:
    case DTP_QUANTITY_SEQUENCES:
        return dtp_fmt_count(v, buf, TEXT);
    case DTP_QUANTITY_SEQUENCES_PER_S:
    case DTP_QUANTITY_SEQUENCES_PER_S_PER_GPU:
    case DTP_QUANTITY_STEPS_PER_S:
    case DTP_QUANTITY_LOSS:
    case DTP_QUANTITY_GRADIENT_NORM:
    case DTP_QUANTITY_LEARNING_RATE:
    case DTP_QUANTITY_SKIPPED:
    case DTP_QUANTITY_NAN_STEPS:
    case DTP_QUANTITY_OTHER:
    case DTP_NQUANTITIES:
        break;
    }
    snprintf(buf, TEXT, "%.5g", v);
    return buf;
}

static void print_series(FILE *f, const struct dtp_scalars *s) {
    fprintf(f, "  %-36s %7s %11s %11s %11s %11s %11s\n", "", "n", "first", "last", "median", "min",
            "max");
    for (size_t i = 0; i < s->n; i++) {
        const struct dtp_series *series = &s->series[i];
        struct dtp_series_stats t;
        char b[5][TEXT];
        dtp_series_stats(series, &t);
        if (t.n == 0)
            continue;
        fprintf(f, "  %-36.36s %7zu %11s %11s %11s %11s %11s", series->tag, t.n,
                quantity_text(series->quantity, t.first, b[0]),
                quantity_text(series->quantity, t.last, b[1]),
                quantity_text(series->quantity, t.median, b[2]),
                quantity_text(series->quantity, t.min, b[3]),
                quantity_text(series->quantity, t.max, b[4]));
        if (series->nan > series->negative)
            fprintf(f, "  (%llu NaN)", (unsigned long long)(series->nan - series->negative));
        if (series->negative > 0)
            fprintf(f, "  (%llu below 0 left out)", (unsigned long long)series->negative);
        fprintf(f, "\n");
    }
    fprintf(f, "  median, min and max after the warm-up, the first 5 %% and at least one\n");
}

static void print_nccl(FILE *f, const struct dtp_nccl_log *log) {
    char bytes[TEXT], time[2][TEXT], rate[TEXT];
    double most = 0;
    fprintf(f, "  %s%s%zu sizes\n", log->collective, log->collective[0] ? ", " : "", log->n);
    fprintf(f, "  %12s %12s %12s %12s\n", "bytes", "out of place", "in place", "busbw");
    for (size_t i = 0; i < log->n; i++) {
        const struct dtp_nccl_row *row = &log->row[i];
        most = row->busbw_bytes_per_s[0] > most ? row->busbw_bytes_per_s[0] : most;
        if (row->bytes == 0)
            continue;
        for (int k = 0; k < 2; k++)
            if (row->time_s[k] >= 0)
                dtp_fmt_time(row->time_s[k], time[k], TEXT);
            else
                snprintf(time[k], TEXT, "N/A");
        fprintf(f, "  %12s %12s %12s %12s\n", dtp_fmt_bytes_si((double)row->bytes, bytes, TEXT),
                time[0], time[1], dtp_fmt_rate(row->busbw_bytes_per_s[0], rate, TEXT));
    }
    fprintf(f, "  largest busbw %s, ", dtp_fmt_rate(most, rate, TEXT));
    fprintf(f, "mean of all cells %s\n",
            dtp_fmt_rate(dtp_nccl_log_average_bytes_per_s(log), rate, TEXT));
}

void dtp_log_print(struct dtp_arena *a, FILE *f, const struct dtp_item *item,
                   const struct dtp_format_options *o) {
    (void)a;
    (void)o;
    const struct dtp_log *log = item->content;
    if (log->nccl.n > 0)
        print_nccl(f, &log->nccl);
    if (log->scalars.n == 0)
        return;
    if (log->steps_of > 0)
        fprintf(f, "  a run of %lld steps\n", (long long)log->steps_of);
    print_series(f, &log->scalars);
}

static void write_series(struct dtp_json_out *w, const struct dtp_scalars *s) {
    dtp_json_put_key(w, "series");
    dtp_json_array(w);
    for (size_t i = 0; i < s->n; i++) {
        struct dtp_series_stats t;
        dtp_series_stats(&s->series[i], &t);
        dtp_json_object(w);
        dtp_json_kv_string(w, "tag", s->series[i].tag);
        dtp_json_kv_string(w, "quantity", dtp_quantity_name[s->series[i].quantity]);
        dtp_json_kv_u64(w, "n", s->series[i].n);
        dtp_json_kv_u64(w, "nan", s->series[i].nan);
        dtp_json_kv_u64(w, "warmup", t.warmup);
        if (t.n > 0) {
            dtp_json_kv_double(w, "first", t.first);
            dtp_json_kv_double(w, "last", t.last);
            dtp_json_kv_double(w, "median", t.median);
            dtp_json_kv_double(w, "min", t.min);
            dtp_json_kv_double(w, "max", t.max);
            dtp_json_kv_double(w, "mean", t.mean);
        }
        dtp_json_end(w);
    }
    dtp_json_end(w);
}

void dtp_log_json(struct dtp_arena *a, struct dtp_json_out *w, const struct dtp_item *item,
                  const struct dtp_format_options *o) {
    (void)a;
    (void)o;
    const struct dtp_log *log = item->content;
    if (log->nccl.n > 0) {
        dtp_json_put_key(w, "nccl_tests");
        dtp_json_array(w);
        for (size_t i = 0; i < log->nccl.n; i++) {
            const struct dtp_nccl_row *row = &log->nccl.row[i];
            dtp_json_object(w);
            dtp_json_kv_u64(w, "bytes", row->bytes);
            dtp_json_kv_string(w, "type", row->type);
            dtp_json_kv_double(w, "time_s", row->time_s[0]);
            dtp_json_kv_double(w, "time_in_place_s", row->time_s[1]);
            dtp_json_kv_double(w, "busbw_bytes_per_s", row->busbw_bytes_per_s[0]);
            dtp_json_end(w);
        }
        dtp_json_end(w);
    }
    if (log->scalars.n > 0)
        write_series(w, &log->scalars);
}

static bool is_log(const struct dtp_format_head *h) {
    size_t n;
    const unsigned char *at = dtp_head_bytes(h, &n);
    bool python =
        n > 1 && at[0] == '{' && at[1] == '\''; /* a dictionary of Hugging Face's Trainer */
    return dtp_head_is_text(h) && (!dtp_head_json(h) || python);
}

static enum dtp_status read_item(struct dtp_arena *a, const struct dtp_visited *v,
                                 const struct dtp_format_options *o, void **content,
                                 struct dtp_err *err) {
    (void)o;
    struct dtp_log *log = *content = DTP_NEW(a, struct dtp_log, 1);
    return dtp_log_read(a, v->source, log, err);
}

static void print_heading(FILE *f, const void *content) {
    static const char *const dialects[DTP_NLOG_DIALECTS] = {"nccl-tests", "Megatron",  "nanotron",
                                                            "torchtitan", "DeepSpeed", "a trainer"};
    fprintf(f, "log of %s", dialects[((const struct dtp_log *)content)->dialect]);
}

const struct dtp_format dtp_format_log = {
    .name = "log",
    .title = "log of nccl-tests, Megatron, nanotron, torchtitan or DeepSpeed",
    .told = "text; lines are looked at one by one",
    .kind = DTP_KIND_LOG,
    .detect = is_log,
    .read = read_item,
    .heading = print_heading,
    .print = dtp_log_print,
    .json = dtp_log_json};
