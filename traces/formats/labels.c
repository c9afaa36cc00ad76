/* labels_number.c: numbers as logs write them. */
#include "traces/formats/labels.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/text.h"
#include "sim/base/units.h"

bool dtp_groups_thousands(const char *text, const char *comma) {
    return comma > text && isdigit((unsigned char)comma[-1]) &&
           strspn(comma + 1, "0123456789") == 3;
}

bool dtp_number_read(const char *text, size_t n, double *out, size_t *out_n) {
    char digits[DTP_LABEL_SIZE / 2], *end;
    size_t at = 0, to = 0;
    while (at < n && isspace((unsigned char)text[at]))
        at++;
    for (; at < n && to < sizeof digits - 1; at++) {
        if (text[at] == ',' && at > 0 && n - at > 3 && dtp_groups_thousands(text, text + at))
            continue;
        if (!isalnum((unsigned char)text[at]) && !strchr("+-.", text[at]))
            break;
        digits[to++] = text[at];
    }
    digits[to] = '\0';
    *out_n = at;
    if (to > 0 && dtp_parse_count(digits, "number", out, NULL) == DTP_OK)
        return true;
    *out = strtod(digits, &end);
    *out_n -= (size_t)(digits + to - end);
    return end > digits;
}

#define PERCENT 1e-2

enum { SIZE = DTP_LABEL_SIZE };

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
                                       {"wps", "tok/s"},
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

/* A text may end with one of these, for all GPUs or for one; the first that fits counts. */
static const struct {
    const char *end;
    enum dtp_quantity all, of_one;
    double unit;
} units[] = {{"tf", DTP_QUANTITY_FLOPS_PER_GPU, DTP_QUANTITY_FLOPS_PER_GPU, DTP_TERA},
             {"tok/s", DTP_QUANTITY_TOKENS_PER_S, DTP_QUANTITY_TOKENS_PER_S_PER_GPU, 1},
             {"seq/s", DTP_QUANTITY_SEQUENCES_PER_S, DTP_QUANTITY_SEQUENCES_PER_S_PER_GPU, 1},
             {"it/s", DTP_QUANTITY_STEPS_PER_S, DTP_QUANTITY_STEPS_PER_S, 1},
             {"/it", DTP_QUANTITY_STEP_S, DTP_QUANTITY_STEP_S, 1},
             {"%mfu", DTP_QUANTITY_MFU, DTP_QUANTITY_MFU, PERCENT},
             {"mfu", DTP_QUANTITY_MFU, DTP_QUANTITY_MFU, 1},
             {"%", DTP_QUANTITY_MFU, DTP_QUANTITY_MFU, PERCENT}};

/* A unit alone does not tell the quantity, since not each time is that of a step: the label must hold one of these. */
static const struct {
    enum dtp_quantity quantity;
    const char *word;
} said[] = {{DTP_QUANTITY_STEP_S, "iter"},    {DTP_QUANTITY_STEP_S, "/it"},
            {DTP_QUANTITY_STEP_S, "step"},    {DTP_QUANTITY_STEP_S, "elapsed"},
            {DTP_QUANTITY_MFU, "mfu"},        {DTP_QUANTITY_MFU, "flop"},
            {DTP_QUANTITY_PEAK_BYTES, "mem"}, {DTP_QUANTITY_PEAK_BYTES, "peak"}};

/* Tags of the frameworks have these meanings: Megatron's log and TensorBoard, nanotron, torchtitan's console and
 * TensorBoard, DeepSpeed. Their unit counts before that of the number; 0: the number has its own. */
static const struct {
    const char *tag;
    enum dtp_quantity quantity;
    double unit;
} tags[] = {{"elapsed time per iteration (ms)", DTP_QUANTITY_STEP_S, DTP_MILLI},
            {"elapsed_time_per_iteration_ms", DTP_QUANTITY_STEP_S, DTP_MILLI},
            {"iteration-time", DTP_QUANTITY_STEP_S, 1},
            {"time_metrics/end_to_end(s)", DTP_QUANTITY_STEP_S, 1},
            {"tokens_per_sec", DTP_QUANTITY_TOKENS_PER_S, 1},
            {"tokens_per_sec_per_gpu", DTP_QUANTITY_TOKENS_PER_S_PER_GPU, 1},
            {"throughput(tps)", DTP_QUANTITY_TOKENS_PER_S_PER_GPU, 1},
            {"CurrSamplesPerSec", DTP_QUANTITY_SEQUENCES_PER_S, 1},
            {"throughput per GPU (TFLOP/s/GPU)", DTP_QUANTITY_FLOPS_PER_GPU, DTP_TERA},
            {"throughput", DTP_QUANTITY_FLOPS_PER_GPU, DTP_TERA},
            {"model_tflops_per_gpu", DTP_QUANTITY_FLOPS_PER_GPU, DTP_TERA},
            {"tflops", DTP_QUANTITY_FLOPS_PER_GPU, DTP_TERA},
            {"hardware_tflops_per_gpu", DTP_QUANTITY_HARDWARE_FLOPS_PER_GPU, DTP_TERA},
            {"mfu", DTP_QUANTITY_MFU, PERCENT},
            {"mfu(%)", DTP_QUANTITY_MFU, PERCENT},
            {"lm loss", DTP_QUANTITY_LOSS, 1},
            {"lm_loss", DTP_QUANTITY_LOSS, 1},
            {"loss", DTP_QUANTITY_LOSS, 1},
            {"loss_metrics/global_avg_loss", DTP_QUANTITY_LOSS, 1},
            {"Train/Samples/train_loss", DTP_QUANTITY_LOSS, 1},
            {"grad norm", DTP_QUANTITY_GRADIENT_NORM, 1},
            {"grad-norm", DTP_QUANTITY_GRADIENT_NORM, 1},
            {"grad_norm", DTP_QUANTITY_GRADIENT_NORM, 1},
            {"learning rate", DTP_QUANTITY_LEARNING_RATE, 1},
            {"learning-rate", DTP_QUANTITY_LEARNING_RATE, 1},
            {"lr", DTP_QUANTITY_LEARNING_RATE, 1},
            {"global_batch_size", DTP_QUANTITY_TOKENS,
             1}, /* nanotron counts tokens; stands before Megatron's */
            {"global batch size", DTP_QUANTITY_SEQUENCES, 1},
            {"batch-size", DTP_QUANTITY_SEQUENCES, 1},
            {"mem-max-allocated-bytes", DTP_QUANTITY_PEAK_BYTES, 1},
            {"memory/max_active(GiB)", DTP_QUANTITY_PEAK_BYTES, DTP_GIB},
            {"MaxMemAllocated", DTP_QUANTITY_PEAK_BYTES, DTP_GIB}, /* called GB, divided by 2^30 */
            {"memory/max_reserved(GiB)", DTP_QUANTITY_RESERVED_BYTES, DTP_GIB},
            {"memory", DTP_QUANTITY_RESERVED_BYTES, 0},
            {"mem-allocated-bytes", DTP_QUANTITY_ALLOCATED_BYTES, 1},
            {"MemAllocated", DTP_QUANTITY_ALLOCATED_BYTES, DTP_GIB},
            {"number of skipped iterations", DTP_QUANTITY_SKIPPED, 1},
            {"number of nan iterations", DTP_QUANTITY_NAN_STEPS, 1}};

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

static bool says(const char *label, size_t n, const char *word) {
    while (n > 0 && !starts_with(label, n, word)) {
        label++;
        n--;
    }
    return n > 0;
}

static bool may_be(enum dtp_quantity quantity, const char *label, size_t n) {
    bool asked = false;
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        if (said[i].quantity == quantity && says(label, n, said[i].word))
            return true;
        asked = asked || said[i].quantity == quantity;
    }
    return !asked || (n == strlen("time") && starts_with(label, n, "time"));
}

/* Writers that clean tags put _ for what is no letter: "end_to_end(s)" becomes "end_to_end_s_". */
static bool same_tag(const char *meaning, const char *tag, size_t n) {
    for (; *meaning && n > 0; meaning++, tag++, n--)
        if (*meaning != *tag && !(*tag == '_' && strchr("()% ", *meaning)))
            return false;
    return *meaning == '\0' && n == 0;
}

/* Without label: "3.2 s", "110 TFLOP/s/GPU", "61GiB". */
static bool read_words(const char *given, size_t n, struct dtp_reading *out) {
    char text[SIZE];
    bool one = false;
    double v = 0;
    uint64_t bytes = 0;
    normalise(given, n, text);
    for (size_t i = 0; i < sizeof each / sizeof *each; i++)
        one = cut_end(text, each[i]) || one;
    size_t u = 0, nunits = sizeof units / sizeof *units;
    while (u < nunits && !cut_end(text, units[u].end))
        u++;
    enum dtp_quantity q = u == nunits ? DTP_QUANTITY_STEP_S : one ? units[u].of_one : units[u].all;
    if (q != DTP_QUANTITY_STEP_S) {
        if (dtp_parse_count(text, "number", &v, NULL) != DTP_OK)
            return false;
        double unit = q == DTP_QUANTITY_MFU && v > 1 ? PERCENT : units[u].unit;
        *out = (struct dtp_reading){q, v * unit};
        return true;
    }
    bool memory = says(given, n, "mem"); /* a bare number of memory leaves its unit open */
    if (!memory && dtp_parse_time(text, "number", &v, NULL) == DTP_OK) {
        *out = (struct dtp_reading){q, v};
        return true;
    }
    size_t end = strlen(text);
    if (u < nunits || end == 0 || text[end - 1] != 'b' ||
        dtp_parse_bytes(text, "number", &bytes, NULL) != DTP_OK)
        return false;
    *out = (struct dtp_reading){DTP_QUANTITY_PEAK_BYTES, (double)bytes};
    return true;
}

/* Reads what logs write with number and label exchanged: "tps: 5,762" is 5,762 tps, "elapsed time (ms): 5123.4"
 * 5123.4 ms, and in "memory: 41.71GiB(43.91%)" the value has its unit. */
static bool read_turned(const struct dtp_label *l, struct dtp_reading *out) {
    char turned[SIZE];
    double v;
    size_t end, nunit = l->n, nvalue = l->nvalue;
    const char *unit = l->at, *open = memchr(unit, '(', nunit),
               *close = open ? memchr(open, ')', nunit - (size_t)(open - unit)) : NULL,
               *tail = memchr(l->value, '(', nvalue);
    if (tail)
        nvalue = (size_t)(tail - l->value);
    if (close) {
        unit = open + 1;
        nunit = (size_t)(close - unit);
    }
    if (nunit >= SIZE / 2 || nvalue >= SIZE / 2)
        return false;
    bool bare = dtp_number_read(l->value, nvalue, &v, &end) && end == nvalue;
    snprintf(turned, SIZE, "%.*s %.*s", (int)nvalue, l->value, bare ? (int)nunit : 0, unit);
    return read_words(turned, strlen(turned), out);
}

/* The number of a label that a framework writes, with the unit that it has there. */
static bool read_tag(size_t tag, const struct dtp_label *l, struct dtp_reading *out) {
    char text[SIZE];
    uint64_t bytes;
    size_t end;
    out->quantity = tags[tag].quantity;
    if (tags[tag].unit > 0) {
        bool read = dtp_number_read(l->value, l->nvalue, &out->value, &end);
        /* people write an MFU as 0.38, too */
        bool ratio = out->quantity == DTP_QUANTITY_MFU && out->value <= 1 && end == l->nvalue;
        out->value *= ratio ? 1 : tags[tag].unit;
        return read;
    }
    const char *tail = memchr(l->value, '(', l->nvalue);
    size_t n = tail ? (size_t)(tail - l->value) : l->nvalue;
    snprintf(text, sizeof text, "%.*s", (int)(n < SIZE ? n : 0), l->value);
    if (!*text || tolower((unsigned char)text[strlen(text) - 1]) != 'b' ||
        dtp_parse_bytes(text, "number", &bytes, NULL) != DTP_OK)
        return false;
    out->value = (double)bytes;
    return true;
}

/* Index of a tag, or how many there are. */
static size_t tag_of(const char *label, size_t n) {
    size_t i = 0, ntags = sizeof tags / sizeof *tags;
    if (n >= SIZE)
        return ntags;
    while (i < ntags && !same_tag(tags[i].tag, label, n))
        i++;
    return i;
}

bool dtp_label_value(const struct dtp_label *l, struct dtp_reading *out) {
    size_t tag = tag_of(l->at, l->n);
    if (tag < sizeof tags / sizeof *tags)
        return read_tag(tag, l, out);
    return read_turned(l, out) && may_be(out->quantity, l->at, l->n);
}

struct dtp_meaning dtp_label_meaning(const char *label) {
    struct dtp_label one = {label, strlen(label), "1", 1};
    struct dtp_reading r;
    size_t tag = tag_of(label, one.n);
    if (tag < sizeof tags / sizeof *tags)
        return (struct dtp_meaning){tags[tag].quantity, tags[tag].unit > 0 ? tags[tag].unit : 1};
    if (dtp_label_value(&one, &r))
        return (struct dtp_meaning){r.quantity, r.value};
    return (struct dtp_meaning){DTP_QUANTITY_OTHER, 1};
}

/* The label between two places, without what is around its words. */
static bool label_between(const char *from, const char *to, struct dtp_label *out) {
    while (from < to && !isalnum((unsigned char)*from))
        from++;
    while (to > from && (isspace((unsigned char)to[-1]) || strchr("'\"", to[-1])))
        to--;
    out->at = from;
    out->n = (size_t)(to - from);
    while (from < to && !isalpha((unsigned char)*from))
        from++;
    return from < to;
}

bool dtp_label_read(const char *text, size_t n, struct dtp_reading *out) {
    struct dtp_label l = {0};
    size_t at;
    while (n > 0 && isspace((unsigned char)text[n - 1]))
        n--;
    for (at = n; at > 0 && text[at - 1] != ':' && text[at - 1] != '=';)
        at--;
    if (at > 0) {
        l.value = text + at;
        l.nvalue = n - at;
        for (; l.nvalue > 0 && isspace((unsigned char)*l.value); l.nvalue--)
            l.value++;
    }
    bool labelled = at > 0 && label_between(text, text + at - 1, &l);
    if (labelled && tag_of(l.at, l.n) < sizeof tags / sizeof *tags)
        return dtp_label_value(&l, out);
    return read_words(text, n, out) || (labelled && read_turned(&l, out));
}

static bool is_number(const char *at) {
    at += strspn(at, "+-");
    at += *at == '.';
    size_t n = strnlen(at, 3);
    return isdigit((unsigned char)*at) ||
           ((starts_with(at, n, "nan") || starts_with(at, n, "inf")) &&
            !isalnum((unsigned char)at[n]));
}

/* Returns the end of a number and its unit: "38%" and "820 ms" end at a comma, a bar or the end of the text. */
static const char *value_end(const char *value) {
    const char *end = value + strspn(value, "+-");
    while (isalnum((unsigned char)*end) || (*end && strchr(".%/", *end)) ||
           (*end == ',' && dtp_groups_thousands(value, end)) ||
           (*end && strchr("+-", *end) && strchr("eE", end[-1]) && isdigit((unsigned char)end[1])))
        end++;
    const char *unit = end + 1;
    if (*end != ' ' || (!isalpha((unsigned char)*unit) && *unit != '%'))
        return end;
    while (isalnum((unsigned char)*unit) || (*unit && strchr("%/", *unit)))
        unit++;
    const char *next = unit + strspn(unit, " ");
    return !*next || strchr(",|;}\n", *next) || next > unit + 1 ? unit : end;
}

/* No part of a label. */
static bool parts_labels(char c) {
    return c == '|' || c == ',' || c == '[' || c == ']' || c == '{' || c == '\n';
}

/* The label reaches back to the value before it, to a bar, comma or bracket, to a dash or colon with a space after it,
 * or to two spaces. */
const char *dtp_label_next(const char *from, struct dtp_label *out) {
    for (const char *at = from; *at; at++) {
        if (*at != ':' && *at != '=')
            continue;
        const char *value = at + 1 + strspn(at + 1, " '\""), *begin = at;
        if (!is_number(value))
            continue;
        while (begin > from && at - begin < SIZE && !parts_labels(begin[-1]) &&
               !(at > begin && *begin == ' ' &&
                 (begin[-1] == ' ' || begin[-1] == '-' || begin[-1] == ':')))
            begin--;
        if (!label_between(begin, at, out))
            continue;
        const char *end = value_end(value);
        out->value = value;
        out->nvalue = (size_t)(end - value);
        if (*end == '(') /* "41.71GiB(43.91%)" */
            end += strcspn(end, ")");
        return end;
    }
    return NULL;
}
