/* What people say that they measured, as seconds of a step and bytes. */
#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "planner/doctor.h"
#include "sim/base/text.h"
#include "sim/base/units.h"

enum { SIZE = 128 };

/* Words of one meaning, longer ones before their beginnings. */
static const char *const words[][2] = {{"step time", ""},
                                       {"iterations", "it"},
                                       {"iteration", "it"},
                                       {"iters", "it"},
                                       {"iter", "it"},
                                       {"steps", "it"},
                                       {"step", "it"},
                                       {"sequences", "seq"},
                                       {"sequence", "seq"},
                                       {"seqs", "seq"},
                                       {"samples", "seq"},
                                       {"sample", "seq"},
                                       {"images", "seq"},
                                       {"tokens", "tok"},
                                       {"token", "tok"},
                                       {"toks", "tok"},
                                       {"tps", "tok/s"},
                                       {"tflops/s", "tf"},
                                       {"tflop/s", "tf"},
                                       {"tflops", "tf"},
                                       {"tflop", "tf"},
                                       {"tf/s", "tf"},
                                       {"seconds", "s"},
                                       {"second", "s"},
                                       {"secs", "s"},
                                       {"sec", "s"},
                                       {"per", "/"},
                                       {"peak", ""},
                                       {"memory", ""},
                                       {"devices", "device"},
                                       {"gpus", "gpu"},
                                       /* what logs put before their labels */
                                       {"train_step_timing in", ""},
                                       {"train_", ""},
                                       {"model_", ""},
                                       {"runningavg", ""},
                                       {"curr", ""}};

static const char *const each[] = {"/gpu", "/device", "/card", "/rank"};

enum meaning { FLOPS, TOKENS, SEQUENCES, STEPS, STEP, PERCENT, FRACTION };

/* What a text may end with; the first that fits counts. */
static const struct {
    const char *end;
    enum meaning meaning;
} units[] = {{"tf", FLOPS}, {"tok/s", TOKENS}, {"seq/s", SEQUENCES}, {"it/s", STEPS},
             {"/it", STEP}, {"%mfu", PERCENT}, {"mfu", FRACTION},    {"%", PERCENT}};

static bool starts_with(const char *text, size_t n, const char *lower) {
    size_t i = 0;
    while (i < n && lower[i] && tolower((unsigned char)text[i]) == lower[i])
        i++;
    return !lower[i];
}

/* "Tokens per second per GPU" is "tok/s/gpu", "MFU: 38 %" is "38%mfu". */
static void normalise(const char *text, size_t n, char *out) {
    enum { LONGEST_WORD = 8 };
    bool mfu = false;
    size_t at = 0;
    while (n > 0 && isspace((unsigned char)*text)) {
        text++;
        n--;
    }
    if (starts_with(text, n, "mfu")) {
        mfu = n > 3;
        text += mfu ? 3 : 0;
        n -= mfu ? 3 : 0;
    }
    for (size_t i = 0; i < n && at + LONGEST_WORD < SIZE;) {
        size_t w = 0, nwords = sizeof words / sizeof *words;
        while (w < nwords && !starts_with(text + i, n - i, words[w][0]))
            w++;
        if (w < nwords) {
            at += (size_t)snprintf(out + at, SIZE - at, "%s", words[w][1]);
            i += strlen(words[w][0]);
            continue;
        }
        if (!isspace((unsigned char)text[i]) && !strchr("=:~,_'\"{}", text[i]))
            out[at++] = (char)tolower((unsigned char)text[i]);
        i++;
    }
    snprintf(out + at, SIZE - at, "%s", mfu ? "mfu" : "");
}

static bool cut_end(char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    if (n < m || strcmp(text + n - m, end) != 0)
        return false;
    text[n - m] = '\0';
    return true;
}

double dtp_step_flops(const struct dtp_problem *p) {
    return 3 * dtp_model_forward_flops(p->model, p->seq) * p->global_batch;
}

/* v of a unit, of one GPU or of all (count: GPUs that the number is one of). */
static void set_step(enum meaning meaning, double v, double count, const struct dtp_problem *p,
                     struct dtp_measured *out) {
    double peak = p->cluster->gpu.peak_flops_per_s[p->dtype] * p->gpus;
    double per_s = v * count;
    if (!(v > 0))
        return;
    switch (meaning) {
    case FLOPS:
        out->step_s = dtp_step_flops(p) / (v * DTP_TERA * p->gpus);
        break;
    case TOKENS:
        out->step_s = (double)p->global_batch * p->seq / per_s;
        out->tokens = count <= 1;
        break;
    case SEQUENCES:
        out->step_s = p->global_batch / per_s;
        break;
    case STEPS:
        out->step_s = 1 / v;
        break;
    case STEP:
        out->step_s = v;
        break;
    case FRACTION:
    case PERCENT:
        out->step_s = dtp_step_flops(p) / (meaning == PERCENT || v > 1 ? v / 100 : v) / peak;
        out->mfu = true;
        break;
    }
}

static bool says_memory(const char *label, size_t n) {
    while (n > 0 && !starts_with(label, n, "mem")) {
        label++;
        n--;
    }
    return n > 0;
}

/* False: the text says no number that is known. of: what the number of a step is. */
static bool parse_words(const char *given, size_t n, const struct dtp_problem *p,
                        struct dtp_measured *out, enum meaning *of) {
    char text[SIZE];
    double v = 0, count = 1;
    uint64_t bytes = 0;
    normalise(given, n, text);
    for (size_t i = 0; i < sizeof each / sizeof *each; i++)
        if (cut_end(text, each[i]))
            count = p->gpus;
    size_t u = 0, nunits = sizeof units / sizeof *units;
    while (u < nunits && !cut_end(text, units[u].end))
        u++;
    enum meaning meaning = u < nunits ? units[u].meaning : STEP;
    bool memory = meaning == STEP && says_memory(given, n); /* of which unit, where it has none? */
    bool read = memory            ? false
                : meaning == STEP ? dtp_parse_time(text, "--measured", &v, NULL) == DTP_OK
                                  : dtp_parse_count(text, "--measured", &v, NULL) == DTP_OK;
    if (read) {
        *of = meaning;
        set_step(meaning, v, count, p, out);
        return true;
    }
    size_t end = strlen(text);
    if (u == nunits && end > 0 && text[end - 1] == 'b' &&
        dtp_parse_bytes(text, "--measured", &bytes, NULL) == DTP_OK) {
        out->peak_bytes = (double)bytes;
        return true;
    }
    return false;
}

/* A number without a unit, a factor such as k apart. */
static bool is_bare(const char *value, size_t n) {
    while (n > 0 && isspace((unsigned char)value[n - 1]))
        n--;
    if (n > 0 && strchr("kKmMbBtT", value[n - 1]))
        n--;
    return n > 0 && (isdigit((unsigned char)value[n - 1]) || value[n - 1] == '.');
}

/* What logs write, turned round: "tps: 5,762" is 5,762 tps, "elapsed time (ms): 5123.4" 5123.4 ms, and in
 * "memory: 41.71GiB(43.91%)" the value has its unit. out: empty where it is not of this form. */
static void turn_label(const char *given, size_t n, const struct dtp_problem *p, char *out) {
    size_t at = n;
    *out = '\0';
    while (at > 0 && given[at - 1] != ':' && given[at - 1] != '=')
        at--;
    if (at == 0)
        return;
    const char *value = given + at, *unit = given, *open = memchr(given, '(', at);
    const char *end = memchr(value, '(', n - at),
               *close = open ? memchr(open, ')', (size_t)(value - open)) : NULL;
    size_t nvalue = end ? (size_t)(end - value) : n - at, nunit = at - 1;
    bool bare = is_bare(value, nvalue);
    if (close) {
        unit = open + 1;
        nunit = (size_t)(close - unit);
    }
    /* torchtitan's tps is that of one device (its metrics.py) */
    bool each_gpu = strncmp(p->framework->name, "torchtitan", 10) == 0 && nunit >= 3 &&
                    strncmp(unit + nunit - 3, "tps", 3) == 0;
    if (nunit < SIZE / 2 && nvalue < SIZE / 2)
        snprintf(out, SIZE, "%.*s %.*s%s", (int)nvalue, value, bare ? (int)nunit : 0, unit,
                 each_gpu ? "/gpu" : "");
}

static enum dtp_status parse_one(const char *given, size_t n, const struct dtp_problem *p,
                                 struct dtp_measured *out, enum meaning *meaning,
                                 struct dtp_err *err) {
    char turned[SIZE];
    turn_label(given, n, p, turned);
    if (parse_words(given, n, p, out, meaning) ||
        (*turned && parse_words(turned, strlen(turned), p, out, meaning)))
        return DTP_OK;
    return dtp_fail(err, DTP_EUSAGE,
                    "--measured: found \"%.*s\", expected a step time (3.2s), TFLOP/s per GPU "
                    "(152TF), MFU (45%%), tokens/s (190k tok/s, 3k tok/s/GPU), sequences/s "
                    "(12 seq/s), steps/s (1.2 it/s) or memory (61GiB)",
                    (int)n, given);
}

/* A comma between digits, three of them behind it, groups thousands. */
static bool groups(const char *text, const char *comma) {
    return comma > text && isdigit((unsigned char)comma[-1]) &&
           strspn(comma + 1, "0123456789") == 3;
}

/* The next "label: value" of a line of a log: its begin, and its end returned; NULL: no more. The label reaches
 * back to the value before it, to a bar, comma or bracket, or to two spaces. */
static const char *next_labelled(const char *from, const char **begin) {
    for (const char *at = from; *at; at++) {
        const char *value = at + 1 + strspn(at + 1, " '\"");
        if ((*at != ':' && *at != '=') || !isdigit((unsigned char)*value))
            continue;
        const char *end = value;
        while (isalnum((unsigned char)*end) || (*end && strchr(".%/", *end)) ||
               (*end == ',' && groups(value, end)))
            end++;
        for (*begin = at; *begin > from && !strchr("|,[{\n", (*begin)[-1]); (*begin)--)
            if (at > *begin && (*begin)[-1] == ' ' && **begin == ' ')
                break;
        const char *letter = *begin;
        while (letter < at && !isalpha((unsigned char)*letter))
            letter++;
        if (letter < at)
            return end;
    }
    return NULL;
}

/* "global batch size:   512" of Megatron-LM, in sequences; 0: another label, or a rounded number. */
static int batch_of(const char *piece, size_t n) {
    static const char label[] = "global batch size:";
    while (n > 0 && isspace((unsigned char)*piece)) {
        piece++;
        n--;
    }
    if (!starts_with(piece, n, label))
        return 0;
    char *end = NULL;
    long batch = strtol(piece + strlen(label), &end, 10);
    return end == piece + n && batch > 0 && batch <= INT_MAX ? (int)batch : 0;
}

/* A line of a log has two labels and more, of which some say how fast or how full. */
static bool read_log(const char *text, const struct dtp_problem *p, struct dtp_measured *out) {
    const char *begin = NULL;
    bool timed = false;
    int n = 0, batch = 0;
    for (const char *end = text; (end = next_labelled(end, &begin)); n++) {
        struct dtp_measured one = {.text = text};
        enum meaning meaning = FRACTION;
        int named = batch_of(begin, (size_t)(end - begin));
        batch = named > 0 ? named : batch;
        if (parse_one(begin, (size_t)(end - begin), p, &one, &meaning, NULL) != DTP_OK)
            continue;
        /* the time of a step says more than rates, whose FLOPs are counted otherwise */
        double peak_bytes = one.peak_bytes > out->peak_bytes ? one.peak_bytes : out->peak_bytes;
        if (one.step_s > 0 && !timed) {
            *out = one;
            timed = meaning == STEP;
        }
        out->peak_bytes = peak_bytes;
    }
    out->batch = batch;
    return n > 1 && (out->step_s > 0 || out->peak_bytes > 0);
}

enum dtp_status dtp_measured_parse(const char *text, const struct dtp_problem *problem,
                                   struct dtp_measured *out, struct dtp_err *err) {
    enum meaning meaning;
    *out = (struct dtp_measured){.text = text};
    if (read_log(text, problem, out))
        return DTP_OK;
    *out = (struct dtp_measured){.text = text};
    for (const char *at = text; at;) {
        const char *comma = strchr(at, ',');
        while (comma && groups(at, comma))
            comma = strchr(comma + 1, ',');
        size_t n = comma ? (size_t)(comma - at) : strlen(at);
        DTP_TRY(parse_one(at, n, problem, out, &meaning, err));
        at = comma ? comma + 1 : NULL;
    }
    if (!(out->step_s > 0) && !(out->peak_bytes > 0))
        return dtp_fail(err, DTP_EUSAGE, "--measured: found \"%s\", expected more than 0", text);
    return DTP_OK;
}
