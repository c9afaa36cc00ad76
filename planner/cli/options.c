#include "planner/cli/options.h"

#include <ctype.h>
#include <string.h>
#include <unistd.h>

#include "sim/base/json.h"
#include "sim/base/text.h"

enum { MOST_NAMES = 256, NAME_SIZE = 48, NAME_COLUMN = 28, MAN_COLUMNS = 78 };

static const char *const on_off[] = {"off", "on", "false", "true", "no", "yes", "0", "1", NULL};

struct found {
    const struct dtp_option *option;
    void *out;
    bool negated;
};

static bool takes_no(const struct dtp_option *o) {
    return o->kind == DTP_OPT_FLAG || o->kind == DTP_OPT_SWITCH;
}

/* The next of the names in an option's aliases, copied into buf; NULL after the last. */
static const char *next_alias(const char **at, char *buf, size_t size) {
    if (!*at || !**at)
        return NULL;
    size_t n = strcspn(*at, " ");
    snprintf(buf, size, "%.*s", (int)n, *at);
    *at += n + strspn(*at + n, " ");
    return buf;
}

static bool is_called(const struct dtp_option *o, const char *name) {
    return strcmp(o->name, name) == 0 || dtp_one_of(o->aliases, name);
}

/* Exact names first; then a beginning that only one option has. */
static bool find_exact(const struct dtp_option_set *sets, size_t nsets, const char *name,
                       struct found *out) {
    for (size_t s = 0; s < nsets; s++)
        for (const struct dtp_option *o = sets[s].options; o && o->name; o++) {
            bool negated = takes_no(o) && strncmp(name, "no-", 3) == 0 && is_called(o, name + 3);
            if (!negated && !is_called(o, name))
                continue;
            *out = (struct found){o, sets[s].out, negated};
            return true;
        }
    return false;
}

static int find_prefix(const struct dtp_option_set *sets, size_t nsets, const char *name,
                       struct found *out) {
    int n = 0;
    for (size_t s = 0; s < nsets; s++)
        for (const struct dtp_option *o = sets[s].options; o && o->name; o++)
            if (strncmp(o->name, name, strlen(name)) == 0) {
                *out = (struct found){o, sets[s].out, false};
                n++;
            }
    return n;
}

/* The option with the nearest name or alias is suggested by its own name. */
static enum dtp_status unknown(struct dtp_arena *a, const struct dtp_option_set *sets, size_t nsets,
                               const char *name, struct dtp_err *err) {
    const char *names[MOST_NAMES], *of[MOST_NAMES] = {NULL};
    char alias[NAME_SIZE];
    size_t n = 0;
    for (size_t s = 0; s < nsets; s++)
        for (const struct dtp_option *o = sets[s].options; o && o->name && n < MOST_NAMES; o++) {
            names[n] = of[n] = o->name;
            n++;
            for (const char *at = o->aliases;
                 n < MOST_NAMES && next_alias(&at, alias, sizeof alias); n++) {
                names[n] = dtp_arena_strdup(a, alias);
                of[n] = o->name;
            }
        }
    int near = dtp_nearest_name(name, names, n);
    if (near >= 0)
        return dtp_fail(err, DTP_EUSAGE, "unknown option --%s, did you mean --%s?", name, of[near]);
    return dtp_fail(err, DTP_EUSAGE, "unknown option --%s; --help lists what there is", name);
}

static enum dtp_status find_long(struct dtp_arena *a, const struct dtp_option_set *sets,
                                 size_t nsets, const char *name, struct found *out,
                                 struct dtp_err *err) {
    if (find_exact(sets, nsets, name, out))
        return DTP_OK;
    const char *say = dtp_option_elsewhere(name);
    if (say)
        return dtp_fail(err, DTP_EUSAGE, "unknown option --%s; say %s", name, say);
    int n = strlen(name) >= 2 ? find_prefix(sets, nsets, name, out) : 0;
    if (n > 1)
        return dtp_fail(err, DTP_EUSAGE, "option --%s could mean several; one is --%s", name,
                        out->option->name);
    return n == 1 ? DTP_OK : unknown(a, sets, nsets, name, err);
}

static enum dtp_status find_letter(const struct dtp_option_set *sets, size_t nsets, char letter,
                                   struct found *out, struct dtp_err *err) {
    for (size_t s = 0; s < nsets; s++)
        for (const struct dtp_option *o = sets[s].options; o && o->name; o++)
            if (o->letter == letter) {
                *out = (struct found){o, sets[s].out, false};
                return DTP_OK;
            }
    return dtp_fail(err, DTP_EUSAGE, "unknown option -%c; --help lists what there is", letter);
}

static enum dtp_status set_choice(const struct dtp_option *o, const char *place, const char *text,
                                  int *out, struct dtp_err *err) {
    size_t n = 0;
    for (; o->names[n]; n++)
        if (dtp_same_name(o->names[n], text) || (o->same && dtp_same_name(o->same[n], text))) {
            *out = (int)n;
            return DTP_OK;
        }
    return dtp_unknown_name(err, DTP_EUSAGE, place, text, o->names, n, NULL);
}

static bool has_no_unit(const char *text) {
    return text[strspn(text, "0123456789.")] == '\0';
}

/* "8,16", "8..64", "a100,h100", and no file of that name. */
static bool is_list(const struct dtp_option *o, const char *text) {
    if (o->kind == DTP_OPT_INT)
        return isdigit((unsigned char)text[0]) && (strchr(text, ',') || strstr(text, ".."));
    return strchr(text, ',') && access(text, F_OK) != 0;
}

static enum dtp_status set_value(struct dtp_arena *a, const struct found *f, const char *text,
                                 struct dtp_err *err) {
    const struct dtp_option *o = f->option;
    char *at = (char *)f->out + o->offset;
    char place[64];
    snprintf(place, sizeof place, "--%s", o->name);
    enum dtp_status status = DTP_OK;
    long value = 0;
    if (o->many && is_list(o, text))
        return dtp_fail(err, DTP_EUSAGE, "%s: found \"%s\", one is wanted here; `%s` takes several",
                        place, text, o->many);
    if (o->scaled && isdigit((unsigned char)text[0]) &&
        isalpha((unsigned char)text[strspn(text, "0123456789.")]))
        return dtp_fail(err, DTP_EUSAGE, "%s: found \"%s\", expected %s", place, text, o->scaled);
    if (o->number && text[0] && has_no_unit(text))
        return dtp_fail(err, DTP_EUSAGE, "%s: found \"%s\", expected %s", place, text, o->number);
    switch (o->kind) {
    case DTP_OPT_FLAG:
        *(bool *)(void *)at = !f->negated;
        return DTP_OK;
    case DTP_OPT_SWITCH:
    case DTP_OPT_STRING:
        *(const char **)(void *)at = dtp_arena_strdup(a, text);
        return DTP_OK;
    case DTP_OPT_INT:
        status = dtp_parse_long(text, place, (long)o->min, (long)o->max, &value, err);
        *(int *)(void *)at = (int)value;
        break;
    case DTP_OPT_BYTES:
        status = dtp_parse_bytes(text, place, (uint64_t *)(void *)at, err);
        if (status == DTP_OK && (double)*(uint64_t *)(void *)at < o->min && has_no_unit(text))
            return dtp_fail(err, DTP_EUSAGE,
                            "%s: found \"%s\", that is in bytes; say such as %sGiB", place, text,
                            text);
        if (status == DTP_OK && (double)*(uint64_t *)(void *)at < o->min)
            return dtp_fail(err, DTP_EUSAGE, "%s: found \"%s\", expected %.0f bytes or more", place,
                            text, o->min);
        break;
    case DTP_OPT_COUNT:
        status = dtp_parse_count(text, place, (double *)(void *)at, err);
        if (status == DTP_OK && *(double *)(void *)at > o->max)
            return dtp_fail(err, DTP_EUSAGE, "%s: found \"%s\", expected %g at most", place, text,
                            o->max);
        break;
    case DTP_OPT_DOUBLE:
        status = dtp_parse_double(text, place, (double *)(void *)at, err);
        break;
    case DTP_OPT_CHOICE:
        status = set_choice(o, place, text, (int *)(void *)at, err);
        break;
    }
    return status;
}

struct cursor {
    int at, argc;
    char **argv;
};

/* Applies an option with its value: the text after '=', else the next argument. */
static enum dtp_status apply(struct dtp_arena *a, const struct found *f, const char *inline_value,
                             struct cursor *c, struct dtp_err *err) {
    const struct dtp_option *o = f->option;
    const char *next = c->at < c->argc ? c->argv[c->at] : NULL;
    if (o->kind == DTP_OPT_FLAG) {
        if (inline_value)
            return dtp_fail(err, DTP_EUSAGE, "option --%s takes no value", o->name);
        return set_value(a, f, "", err);
    }
    if (o->kind == DTP_OPT_SWITCH && !inline_value) {
        bool follows = !f->negated && next && dtp_name_index(on_off, next) >= 0;
        c->at += follows;
        return set_value(a, f, follows ? next : f->negated ? "off" : "on", err);
    }
    if (inline_value)
        return set_value(a, f, inline_value, err);
    if (!next || (next[0] == '-' && next[1] == '-'))
        return dtp_fail(err, DTP_EUSAGE, "option --%s needs a value%s%s", o->name,
                        o->value ? ": " : "", o->value ? o->value : "");
    c->at++;
    while (o->several && c->at < c->argc && dtp_name_index(o->names, c->argv[c->at]) >= 0)
        next = dtp_arena_printf(a, "%s,%s", next, c->argv[c->at++]);
    return set_value(a, f, next, err);
}

static enum dtp_status parse_long_option(struct dtp_arena *a, const struct dtp_option_set *sets,
                                         size_t nsets, struct cursor *c, struct dtp_err *err) {
    const char *text = c->argv[c->at++] + 2;
    const char *equals = strchr(text, '=');
    size_t n = equals ? (size_t)(equals - text) : strlen(text);
    struct found f;
    char *name = dtp_arena_strndup(a, text, n);
    for (char *p = name; *p; p++)
        if (*p == '_')
            *p = '-';
    DTP_TRY(find_long(a, sets, nsets, name, &f, err));
    return apply(a, &f, equals ? equals + 1 : NULL, c, err);
}

static enum dtp_status parse_letter(struct dtp_arena *a, const struct dtp_option_set *sets,
                                    size_t nsets, struct cursor *c, struct dtp_err *err) {
    const char *text = c->argv[c->at++];
    struct found f;
    DTP_TRY(find_letter(sets, nsets, text[1], &f, err));
    return apply(a, &f, text[2] ? text + 2 : NULL, c, err);
}

enum dtp_status dtp_options_parse(struct dtp_arena *a, const struct dtp_option_set *sets,
                                  size_t nsets, int argc, char **argv, const char **out_args,
                                  int *out_nargs, struct dtp_err *err) {
    struct cursor c = {0, argc, argv};
    bool ended = false;
    *out_nargs = 0;
    while (c.at < argc) {
        const char *text = argv[c.at];
        if (ended || text[0] != '-' || text[1] == '\0') {
            out_args[(*out_nargs)++] = argv[c.at++];
        } else if (strcmp(text, "--") == 0) {
            ended = true;
            c.at++;
        } else if (text[1] == '-') {
            DTP_TRY(parse_long_option(a, sets, nsets, &c, err));
        } else {
            DTP_TRY(parse_letter(a, sets, nsets, &c, err));
        }
    }
    return DTP_OK;
}

/* ---- help ---- */

static void wrap(FILE *f, const char *text, int indent, int column, int width) {
    while (*text) {
        size_t n = strcspn(text, " ");
        if (column > indent && column + 1 + (int)n > width) {
            fprintf(f, "\n%*s", indent, "");
            column = indent;
        }
        column += fprintf(f, "%s%.*s", column > indent ? " " : "", (int)n, text);
        text += n + (text[n] == ' ');
    }
    putc('\n', f);
}

static int left_part(const struct dtp_option *o, char *buf, size_t size) {
    char letter[8] = "    ";
    if (o->letter)
        snprintf(letter, sizeof letter, "-%c, ", o->letter);
    bool value = o->value && o->kind != DTP_OPT_FLAG;
    bool maybe = o->kind == DTP_OPT_SWITCH;
    return snprintf(buf, size, "  %s--%s%s%s%s", letter, maybe ? "[no-]" : "", o->name,
                    value ? " " : "", value ? o->value : "");
}

static void help_text(const struct dtp_option *o, char *buf, size_t size) {
    size_t n = (size_t)snprintf(buf, size, "%s", o->help);
    if (!o->names || o->kind == DTP_OPT_SWITCH)
        return;
    for (size_t i = 0; o->names[i] && n < size; i++)
        n += (size_t)snprintf(buf + n, size - n, "%s%s", i == 0 ? ": " : ", ", o->names[i]);
}

void dtp_options_help(FILE *f, const struct dtp_option_set *set, int width) {
    char left[96], text[512];
    fprintf(f, "\n%s:\n", set->title);
    for (const struct dtp_option *o = set->options; o && o->name; o++) {
        int n = left_part(o, left, sizeof left);
        help_text(o, text, sizeof text);
        fputs(left, f);
        if (n + 2 > NAME_COLUMN) {
            putc('\n', f);
            n = 0;
        }
        fprintf(f, "%*s", NAME_COLUMN - n, "");
        wrap(f, text, NAME_COLUMN, NAME_COLUMN, width);
    }
}

/* Bytes that the word at `text` takes in a manual page. */
static int man_bytes(const char *text) {
    int n = 0;
    for (; *text && *text != ' ' && *text != '\n'; text++)
        n += *text == '-' || *text == '\\' ? 2 : 1;
    return n;
}

void dtp_man_text(FILE *f, const char *text) {
    int column = 0;
    for (; *text; text++) {
        bool ends_line =
            *text == '\n' || (*text == ' ' && column + 1 + man_bytes(text + 1) > MAN_COLUMNS);
        bool escaped = *text == '-' || *text == '\\';
        if (column == 0 && (*text == '.' || *text == '\''))
            fputs("\\&", f);
        if (ends_line)
            putc('\n', f);
        else if (*text == '\\')
            fputs("\\e", f);
        else
            fprintf(f, "%s%c", escaped ? "\\" : "", *text);
        column = ends_line ? 0 : column + 1 + escaped;
    }
}

void dtp_options_man(FILE *f, const struct dtp_option_set *set) {
    char text[512];
    for (const struct dtp_option *o = set->options; o && o->name; o++) {
        fputs(".TP\n", f);
        if (o->letter)
            fprintf(f, "\\fB\\-%c\\fR, ", o->letter);
        fputs("\\fB\\-\\-", f);
        dtp_man_text(f, o->name);
        fputs("\\fR", f);
        if (o->value && o->kind != DTP_OPT_FLAG) {
            fputs(" \\fI", f);
            dtp_man_text(f, o->value);
            fputs("\\fR", f);
        }
        putc('\n', f);
        help_text(o, text, sizeof text);
        dtp_man_text(f, text);
        fputs(".\n", f);
    }
}

/* ---- options of other tools that have no counterpart of the same meaning: what to say instead. Options that differ by
 * name alone are aliases (common.c). ---- */

#define OWN_MODEL                                                                                  \
    "--model FILE: a model of your own, a few lines of JSON (models/README.md); `dtplan trace "    \
    "SCRIPT` reads a launch script"

static const struct {
    const char *name, *say;
} elsewhere[] = {
    {"price", "`dtplan sweep`, which has it"},
    {"deadline", "`dtplan sweep`, which has it"},
    {"nodes", "--gpus with the GPUs of all nodes"},
    {"num-nodes", "--gpus with the GPUs of all nodes"},
    {"nnodes", "--gpus with the GPUs of all nodes"},
    {"nproc-per-node", "--gpus with the GPUs of all nodes"},
    {"node", "--gpus with the GPUs of all nodes"},
    {"gpus-per-node", "--cluster, which has them"},
    {"bandwidth", "--nic NxG, such as 8x400"},
    {"network", "--nic NxG, such as 8x400, or a --cluster that has it"},
    {"hardware", "--cluster"},
    {"system", "--cluster"},
    {"vram", "--memory-limit"},
    {"bf16", "--dtype bf16"},
    {"fp16", "--dtype fp16"},
    {"fp8", "--dtype fp8"},
    {"fp8-format", "--dtype fp8"},
    {"fp32", "--dtype fp32"},
    {"tf32", "--dtype tf32"},
    {"fsdp", "--framework torch-fsdp2 --zero-stage 3"},
    {"hsdp", "--zero-stage 3 --zero-group N: GPUs that share one copy"},
    {"data-parallel-shard-degree", "--zero-group: GPUs that share one copy"},
    {"data-parallel-replicate-degree", "--zero-group: GPUs that share one copy"},
    {"deepspeed", "--framework deepspeed"},
    {"use-distributed-optimizer", "--zero-stage 1"},
    {"use-megatron-fsdp", "--framework megatron-bridge --zero-stage 3"},
    {"optimizer-cpu-offload", "--offload optimizer"},
    {"overlap-grad-reduce", "--dp-overlap 1"},
    {"tp-comm-overlap", "--tp-overlap 1"},
    {"overlap-moe-expert-parallel-comm", "--ep-overlap 1"},
    {"moe-enable-deepep", "--ep-per-node 1"},
    {"decoder-first-pipeline-num-layers", "--layers-per-stage LIST"},
    {"decoder-last-pipeline-num-layers", "--layers-per-stage LIST"},
    {"use-flash-attn", "--attention flash2"},
    {"flash-attention", "--attention flash2"},
    {"flash-attn", "--attention flash2"},
    {"gradient-checkpointing", "--recompute full"},
    {"activation-checkpointing", "--recompute none, selective or full"},
    {"ac", "--recompute none, selective or full"},
    {"recompute-method", "--recompute-layers N for block; uniform is the default"},
    {"recompute-num-layers", "--recompute-layers of --recompute-method block"},
    {"moe-layer-recompute", "--recompute selective --recompute-modules moe"},
    {"recompute-activations", "--recompute selective"},
    {"train-samples", "--tokens: samples x seq"},
    {"train-iters", "--tokens: iterations x batch x seq"},
    {"gradient-accumulation-steps", "--batch: microbatch x dp x this"},
    {"num-layers-per-virtual-pipeline-stage", "--vpp: layers / (pp x this)"},
    {"lora", "nothing: adapters are not modelled, all weights are trained"},
    {"qlora", "nothing: adapters are not modelled, all weights are trained"},
    {"peft", "nothing: adapters are not modelled, all weights are trained"},
    {"cpu-offload", "--offload optimizer"},
    {"offload-optimizer", "--offload optimizer"},
    {"offload-param", "--offload parameters"},
    {"layers", OWN_MODEL},
    {"num-layers", OWN_MODEL},
    {"hidden", OWN_MODEL},
    {"hidden-size", OWN_MODEL},
    {"heads", OWN_MODEL},
    {"num-attention-heads", OWN_MODEL},
    {"ffn-hidden-size", OWN_MODEL},
    {"vocab", OWN_MODEL},
    {"vocab-size", OWN_MODEL},
    {"num-experts", OWN_MODEL},
    {"num-query-groups", OWN_MODEL},
    {"group-query-attention", OWN_MODEL},
    {"moe-router-topk", OWN_MODEL},
    {"moe-ffn-hidden-size", OWN_MODEL},
    {"swiglu", OWN_MODEL},
    {"untie-embeddings-and-output-weights", OWN_MODEL},
};

/* Commands that others have. */
static const struct {
    const char *name, *say;
} commands[] = {
    {"memory", "simulate, whose answer has the memory of each stage"},
    {"oom", "doctor --measured OOM"},
    {"estimate", "simulate"},
    {"predict", "simulate"},
    {"search", "plan"},
    {"tune", "plan"},
    {"train", "run"},
    {"config", "trace FILE"},
    {"diff", "compare"},
};

const char *dtp_command_elsewhere(const char *name) {
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(commands[i].name, name) == 0)
            return commands[i].say;
    return NULL;
}

const char *dtp_option_elsewhere(const char *name) {
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        if (strcmp(elsewhere[i].name, name) == 0)
            return elsewhere[i].say;
    return NULL;
}
