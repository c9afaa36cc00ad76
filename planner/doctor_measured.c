/* What people say that they measured, as seconds of a step and bytes. */
#include <ctype.h>
#include <string.h>

#include "planner/doctor.h"
#include "sim/base/text.h"
#include "sim/base/units.h"

enum { SIZE = 96 };

/* Words of one meaning, longer ones before their beginnings. */
static const char *const words[][2] = {
    {"step time", ""},   {"iterations", "it"},  {"iteration", "it"}, {"iters", "it"},
    {"iter", "it"},      {"steps", "it"},       {"step", "it"},      {"sequences", "seq"},
    {"sequence", "seq"}, {"seqs", "seq"},       {"samples", "seq"},  {"sample", "seq"},
    {"images", "seq"},   {"tokens", "tok"},     {"token", "tok"},    {"toks", "tok"},
    {"tps", "tok/s"},    {"tflops/s", "tf"},    {"tflop/s", "tf"},   {"tflops", "tf"},
    {"tflop", "tf"},     {"tf/s", "tf"},        {"seconds", "s"},    {"second", "s"},
    {"secs", "s"},       {"sec", "s"},          {"per", "/"},        {"peak", ""},
    {"memory", ""},      {"devices", "device"}, {"gpus", "gpu"}};

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
        if (!isspace((unsigned char)text[i]) && !strchr("=:~,", text[i]))
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

static enum dtp_status parse_one(const char *given, size_t n, const struct dtp_problem *p,
                                 struct dtp_measured *out, struct dtp_err *err) {
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
    bool read = meaning == STEP ? dtp_parse_time(text, "--measured", &v, NULL) == DTP_OK
                                : dtp_parse_count(text, "--measured", &v, NULL) == DTP_OK;
    if (read) {
        set_step(meaning, v, count, p, out);
        return DTP_OK;
    }
    size_t end = strlen(text);
    if (u == nunits && end > 0 && text[end - 1] == 'b' &&
        dtp_parse_bytes(text, "--measured", &bytes, NULL) == DTP_OK) {
        out->peak_bytes = (double)bytes;
        return DTP_OK;
    }
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

enum dtp_status dtp_measured_parse(const char *text, const struct dtp_problem *problem,
                                   struct dtp_measured *out, struct dtp_err *err) {
    *out = (struct dtp_measured){.text = text};
    for (const char *at = text; at;) {
        const char *comma = strchr(at, ',');
        while (comma && groups(at, comma))
            comma = strchr(comma + 1, ',');
        size_t n = comma ? (size_t)(comma - at) : strlen(at);
        DTP_TRY(parse_one(at, n, problem, out, err));
        at = comma ? comma + 1 : NULL;
    }
    if (!(out->step_s > 0) && !(out->peak_bytes > 0))
        return dtp_fail(err, DTP_EUSAGE, "--measured: found \"%s\", expected more than 0", text);
    return DTP_OK;
}
