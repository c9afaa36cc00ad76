#include "traces/formats/script.h"

#include <ctype.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/text.h"
#include "traces/formats/intern.h"

/* Blanks that part words once quotes are gone. */
#define PART "\036"
enum { MOST_WORDS = 1024, MOST_DEPTH = 32, MOST_NESTED = 8, MOST_ARGS = 10, MOST_BYTES = 1 << 20 };

struct shell_variable {
    const char *name, *value; /* NULL: not assigned so far */
    bool exported;
    int order;                              /* of its last assignment */
    enum { UNASKED, SET, UNSET } somewhere; /* whether the script assigns it at all, on any path */
};

struct block {
    bool is_case, taken, runs; /* a branch of it was taken; the current branch runs */
    bool pattern;              /* a pattern comes next */
    const char *subject;       /* subject of a case */
    bool first;                /* an open question is decided for the first branch */
};

struct shell {
    struct dtp_script *out;
    struct dtp_arena *a;
    const char *whole, *text, *at;
    struct dtp_intern *names; /* id: index of the variable */
    struct shell_variable *variable;
    size_t variables_room;
    int assignments;
    struct dtp_intern *unread; /* names of commands that are no launch */
    struct place {
        const char *at;
        int newlines; /* of the text before it */
    } counted;
    struct block block[MOST_DEPTH];
    int depth, nested, line;
    size_t nbytes; /* expanded so far */
    const char *arg[MOST_ARGS];
    struct dtp_settings shared; /* #SBATCH lines and documents in the script */
};

struct words {
    const char *at[MOST_WORDS];
    size_t n;
};

static void run_text(struct shell *s, const char *text);

static struct shell_variable *variable_of(struct shell *s, const char *name, size_t n) {
    uint32_t known = s->names->n, id = dtp_intern_add(s->names, name, n);
    if (id == known) {
        s->variable =
            dtp_arena_room(s->a, s->variable, sizeof *s->variable, id, &s->variables_room);
        s->variable[id] = (struct shell_variable){.name = s->names->at[id]};
    }
    return &s->variable[id];
}

static const char *get(const struct shell *s, const char *name, size_t n) {
    uint32_t id;
    if (n == 1 && isdigit((unsigned char)*name))
        return s->arg[*name - '0'];
    return dtp_intern_find(s->names, name, n, &id) ? s->variable[id].value : NULL;
}

static void put(struct shell *s, const char *name, const char *value, bool exported) {
    struct shell_variable *v = variable_of(s, name, strlen(name));
    v->value = value;
    v->exported |= exported;
    v->order = ++s->assignments;
}

/* ---- raw text: where a quote, brace or parenthesis ends ---- */

static const char *skip_quoted(const char *p) {
    char q = *p++;
    while (*p && *p != q)
        p += *p == '\\' && q == '"' && p[1] ? 2 : 1;
    return p + (*p == q);
}

static const char *skip_pair(const char *p, char open, char close) {
    int depth = 0;
    for (; *p; p++) {
        if (*p == '\\' && p[1]) {
            p++;
        } else if (*p == '"' || *p == '\'') {
            p = skip_quoted(p) - 1;
        } else if (*p == open) {
            depth++;
        } else if (*p == close && --depth == 0) {
            return p + 1;
        }
    }
    return p;
}

static const char *skip_word(const char *p) {
    while (*p && !strchr(" \t\n;&|<>", *p)) {
        if (*p == '\\' && p[1])
            p += 2;
        else if (*p == '"' || *p == '\'')
            p = skip_quoted(p);
        else if (*p == '(')
            p = skip_pair(p, '(', ')');
        else if (*p == '{' && p[-1] == '$')
            p = skip_pair(p, '{', '}');
        else
            p++;
    }
    return p;
}

/* ---- expansion ---- */

/* +, -, *, /, % from left to right over names and numbers, products first; false: something is unknown. */
static bool calculate(const struct shell *s, const char **at, int level, long long *out) {
    *out = 0;
    const char *p = *at + strspn(*at, " $");
    long long v = 0, w = 0;
    if (level == 0) {
        size_t n = 0;
        bool braced = *p == '{', inner = *p == '(';
        p += braced || inner;
        if (inner) {
            if (!calculate(s, &p, 2, &v))
                return false;
            p += strspn(p, " ");
            p += *p == ')';
        } else if (isdigit((unsigned char)*p)) {
            v = strtoll(p, (char **)(void *)&p, 10);
        } else {
            while (isalnum((unsigned char)p[n]) || p[n] == '_')
                n++;
            const char *value = n > 0 ? get(s, p, n) : NULL;
            char *end = NULL;
            v = value ? strtoll(value, &end, 10) : 0;
            if (!value || end == value || *end)
                return false;
            p += n + (braced && p[n] == '}');
        }
        *at = p;
        *out = v;
        return v <= INT_MAX && v >= -INT_MAX;
    }
    if (!calculate(s, &p, level - 1, &v))
        return false;
    for (p += strspn(p, " "); *p && strchr(level == 1 ? "*/%" : "+-", *p); p += strspn(p, " ")) {
        char sign = *p++;
        if (v > INT_MAX || v < -INT_MAX || !calculate(s, &p, level - 1, &w) ||
            ((sign == '/' || sign == '%') && w == 0))
            return false;
        v = sign == '*'   ? v * w
            : sign == '/' ? v / w
            : sign == '%' ? v % w
            : sign == '+' ? v + w
                          : v - w;
    }
    *at = p;
    *out = v;
    return v <= INT_MAX && v >= -INT_MAX;
}

static void expand(struct shell *s, struct dtp_str *to, const char *raw, size_t n, bool quoted);

static void add_value(struct dtp_str *to, const char *value, bool quoted) {
    for (; *value; value++)
        dtp_str_addn(to, !quoted && isspace((unsigned char)*value) ? PART : value, 1);
}

/* Words as one text. */
static const char *with_blanks(const struct shell *s, const char *value) {
    char *plain = dtp_arena_strdup(s->a, value);
    for (char *p = plain; *p; p++)
        *p = *p == PART[0] ? ' ' : *p;
    return plain;
}

static bool is_set_somewhere(struct shell *s, const char *name, size_t n) {
    struct shell_variable *v = variable_of(s, name, n);
    if (v->somewhere == UNASKED) {
        const char *assigned = dtp_arena_printf(s->a, "%s=", v->name);
        v->somewhere = UNSET;
        for (const char *p = strstr(s->whole, assigned); p; p = strstr(p + 1, assigned))
            if (p == s->whole || (!isalnum((unsigned char)p[-1]) && p[-1] != '_'))
                v->somewhere = SET;
    }
    return v->somewhere == SET;
}

/* Expands what follows "$"; a name that is not known stays as it is written. */
static const char *expand_dollar(struct shell *s, struct dtp_str *to, const char *p, bool quoted) {
    const char *begin = p++;
    long long v = 0;
    if (p[0] == '(' && p[1] == '(') {
        const char *end = skip_pair(p, '(', ')'), *inner = p + 2;
        if (calculate(s, &inner, 2, &v))
            dtp_str_printf(to, "%lld", v);
        else
            dtp_str_addn(to, begin, (size_t)(end - begin));
        return end;
    }
    if (*p == '(') {
        const char *end = skip_pair(p, '(', ')');
        dtp_str_addn(to, begin, (size_t)(end - begin));
        return end;
    }
    bool braced = *p == '{';
    const char *end = braced ? skip_pair(p, '{', '}') : p, *name = p + braced;
    size_t n = isdigit((unsigned char)*name) ? 1 : 0;
    while (n == 0 ? isalpha((unsigned char)*name) || *name == '_'
                  : !isdigit((unsigned char)*name) &&
                        (isalnum((unsigned char)name[n]) || name[n] == '_'))
        n++;
    if (n == 0) {
        dtp_str_addn(to, begin, 1);
        return begin + 1;
    }
    const char *value = get(s, name, n), *rest = name + n;
    end = braced ? end : rest;
    bool joined = quoted && braced && strncmp(rest, "[*]", 3) == 0;
    bool all = braced && (strncmp(rest, "[@]", 3) == 0 || strncmp(rest, "[*]", 3) == 0);
    rest += all ? 3 : 0;
    size_t colon = braced && *rest == ':';
    if (braced && strchr("-=", rest[colon]) && rest[colon] && (!value || (colon && !*value)) &&
        end > rest + colon + 1)
        expand(s, to, rest + colon + 1, (size_t)(end - 1 - (rest + colon + 1)), quoted);
    else if (value)
        add_value(to, joined ? with_blanks(s, value) : value, quoted);
    else if (!is_set_somewhere(s, name, n)) /* else it is empty in this branch */
        dtp_str_addn(to, begin, (size_t)(end - begin));
    return end;
}

static void expand(struct shell *s, struct dtp_str *to, const char *raw, size_t n, bool quoted) {
    const char *end = raw + n;
    for (const char *p = raw; p < end && s->nbytes + to->n < MOST_BYTES;) {
        if (*p == '\\' && p + 1 < end && (!quoted || strchr("\"$\\\n", p[1]))) {
            dtp_str_addn(to, p + 1, p[1] != '\n');
            p += 2;
        } else if (*p == '\'' && !quoted) {
            const char *close = memchr(p + 1, '\'', (size_t)(end - p - 1));
            close = close ? close : end;
            dtp_str_addn(to, p + 1, (size_t)(close - p - 1));
            p = close + (close < end);
        } else if (*p == '"') {
            const char *close = skip_quoted(p);
            close = close < end ? close : end;
            bool shut = close > p + 1 && close[-1] == '"';
            if (quoted)
                dtp_str_addn(to, "", 0);
            expand(s, to, p + 1, (size_t)(close - p - 1 - shut), true);
            p = close;
        } else if (*p == '$') {
            p = expand_dollar(s, to, p, quoted);
        } else {
            dtp_str_addn(to, p++, 1);
        }
    }
}

static const char *text_of(struct shell *s, const char *raw, size_t n, bool quoted) {
    struct dtp_str to = {.a = s->a};
    dtp_str_add(&to, "");
    if (s->nested < MOST_DEPTH && s->nbytes < MOST_BYTES) {
        s->nested++;
        expand(s, &to, raw, n, quoted);
        s->nested--;
    }
    s->nbytes += to.n;
    return to.at;
}

static void add_words(struct shell *s, struct words *to, const char *raw, size_t n) {
    char *text = dtp_arena_strdup(s->a, text_of(s, raw, n, false));
    while (text && to->n < MOST_WORDS) {
        char *next = strchr(text, PART[0]);
        if (next)
            *next++ = '\0';
        if (*text)
            to->at[to->n++] = text;
        text = next;
    }
}

/* ---- launches ---- */

/* A word of the form NAME=..., name.of.path=...; 0: it is none, else where "=" is. */
static size_t assigns(const char *word) {
    size_t n = strspn(word, "+~");
    if (!isalpha((unsigned char)word[n]) && word[n] != '_')
        return 0;
    while (isalnum((unsigned char)word[n]) || (word[n] && strchr("_.[]@/-", word[n])))
        n++;
    return word[n] == '=' ? n : word[n] == '+' && word[n + 1] == '=' ? n : 0;
}

static bool is_launch(const struct words *w, size_t from) {
    static const char launchers[] = "torchrun python python3 accelerate deepspeed swift megatron "
                                    "xtuner llamafactory-cli axolotl "
                                    "automodel litgpt srun mpirun trl colossalai torchx sbatch";
    for (size_t i = from; i < w->n && i < from + 3; i++) {
        const char *name = dtp_base_name(w->at[i]);
        bool shell = i > from && dtp_ends_with(name, ".sh") &&
                     dtp_one_of("bash sh", dtp_base_name(w->at[i - 1]));
        if (dtp_one_of(launchers, name) || dtp_ends_with(name, ".py") || shell)
            return true;
    }
    return false;
}

static bool is_value(const char *word) {
    return *word != '-' || isdigit((unsigned char)word[1]) || word[1] == '.';
}

static void add_options(struct shell *s, struct dtp_settings *to, const struct words *w,
                        size_t from) {
    for (size_t i = from; i < w->n; i++) {
        const char *word = w->at[i], *equal = strchr(word, '=');
        size_t n = assigns(word);
        if (n > 0) {
            dtp_settings_add(to,
                             dtp_arena_printf(s->a, "%.*s", (int)(n - strspn(word, "+~")),
                                              word + strspn(word, "+~")),
                             word + n + 1 + (word[n] == '+'));
            continue;
        }
        if (strncmp(word, "--", 2) != 0 || !word[2])
            continue;
        const char *path = word + 2;
        if (equal) {
            dtp_settings_add(to, dtp_arena_printf(s->a, "%.*s", (int)(equal - path), path),
                             equal + 1);
            continue;
        }
        struct dtp_str value = {.a = s->a};
        dtp_str_add(&value, "");
        while (i + 1 < w->n && is_value(w->at[i + 1]) && assigns(w->at[i + 1]) == 0 &&
               (value.n == 0 || !strpbrk(w->at[i + 1], "./"))) {
            dtp_str_printf(&value, "%s%s", value.n > 0 ? " " : "", w->at[++i]);
        }
        dtp_settings_add(to, path, value.at);
    }
}

/* Programs that read variables as settings of their own. */
static bool reads_environment(const struct words *w, size_t from) {
    for (size_t i = from; i < w->n && i < from + 3; i++)
        if (dtp_one_of("swift megatron llamafactory-cli xtuner", w->at[i]) ||
            dtp_ends_with(w->at[i], ".sh"))
            return true;
    return false;
}

static int by_order(const void *x, const void *y) {
    const struct shell_variable *const *a = x, *const *b = y;
    return (*b)->order - (*a)->order;
}

/* Adds the exported variables, the last assigned first. */
static void add_exported(struct shell *s, struct dtp_settings *to) {
    const struct shell_variable **v = DTP_NEW(s->a, const struct shell_variable *, s->names->n + 1);
    size_t n = 0;
    for (uint32_t i = 0; i < s->names->n; i++)
        if (s->variable[i].exported)
            v[n++] = &s->variable[i];
    qsort(v, n, sizeof *v, by_order);
    for (size_t i = 0; i < n; i++)
        dtp_settings_add(to, v[i]->name, v[i]->value);
}

static void add_launch(struct shell *s, const struct words *w, size_t from) {
    struct dtp_script *out = s->out;
    struct dtp_str command = {.a = s->a};
    struct dtp_settings settings = {.a = s->a};
    for (size_t i = 0; i < s->shared.n; i++)
        dtp_settings_add(&settings, s->shared.at[i].path, s->shared.at[i].value)->opens =
            s->shared.at[i].opens;
    if (reads_environment(w, from))
        add_exported(s, &settings);
    for (size_t i = 0; i < from; i++)
        if (assigns(w->at[i]) > 0)
            dtp_settings_add(&settings,
                             dtp_arena_printf(s->a, "%.*s", (int)assigns(w->at[i]), w->at[i]),
                             strchr(w->at[i], '=') + 1);
    add_options(s, &settings, w, from);
    enum { SHOWN = 8 };
    for (size_t i = 0; i < w->n && i < SHOWN; i++)
        dtp_str_printf(&command, "%s%s", i > 0 ? " " : "", w->at[i]);
    out->launch = dtp_arena_room(out->a, out->launch, sizeof *out->launch, out->nlaunches,
                                 &out->launches_room);
    out->launch[out->nlaunches++] = (struct dtp_launch){s->line, command.at, settings};
}

/* NAME=value and NAME=( ... ), of which the raw text is given. */
static void assign(struct shell *s, const char *raw, size_t n, bool exported) {
    size_t equal = assigns(raw);
    bool adds = raw[equal] == '+';
    const char *name = dtp_arena_printf(s->a, "%.*s", (int)equal, raw);
    const char *from = raw + equal + 1 + adds, *end = raw + n, *value;
    if (*from == '(') {
        struct words w = {.n = 0};
        struct dtp_str all = {.a = s->a};
        dtp_str_add(&all, "");
        for (const char *p = from + 1; p < end - 1;) {
            p += strspn(p, " \t\n");
            if (*p == '#') {
                p += strcspn(p, "\n");
                continue;
            }
            const char *stop = skip_word(p);
            stop = stop > end - 1 ? end - 1 : stop;
            if (stop <= p) {
                p++;
                continue;
            }
            add_words(s, &w, p, (size_t)(stop - p));
            p = stop;
        }
        for (size_t i = 0; i < w.n; i++)
            dtp_str_printf(&all, "%s%s", i > 0 ? PART : "", w.at[i]);
        value = all.at;
    } else {
        value = with_blanks(s, text_of(s, from, (size_t)(end - from), false));
    }
    const char *before = adds ? get(s, name, equal) : NULL;
    if (before)
        value = dtp_arena_printf(s->a, "%s%s%s", before, *from == '(' ? PART : "", value);
    put(s, name, value, exported);
}

/* ---- statements ---- */

struct statement {
    const char *raw[MOST_WORDS];
    size_t length[MOST_WORDS], n;
    const char *document; /* here-document of the command, with its end in `rest` */
    const char *end_word;
    int line;
};

/* Places are asked for in their order, but for a look ahead that goes back. */
static int line_of(struct shell *s, const char *p) {
    if (p < s->counted.at)
        s->counted = (struct place){s->text, 0};
    for (; s->counted.at < p; s->counted.at++)
        s->counted.newlines += *s->counted.at == '\n';
    return 1 + s->counted.newlines;
}

/* Reads up to ";", "&&", "||", "|", "&" or the end of the line. */
static bool next_statement(struct shell *s, struct statement *st) {
    const char *p = s->at;
    *st = (struct statement){.n = 0};
    while (*p) {
        p += strspn(p, " \t");
        if (*p == '\\' && p[1] == '\n') {
            p += 2;
        } else if (*p == '#') {
            p += strcspn(p, "\n");
        } else if (strncmp(p, "<<", 2) == 0 && p[2] != '<') {
            p += 2 + (p[2] == '-');
            p += strspn(p, " ");
            const char *end = skip_word(p);
            st->end_word = text_of(s, p, (size_t)(end - p), false);
            p = end;
        } else if (*p == '<' || *p == '>') { /* a file */
            p += strspn(p, "<>&");
            p += strspn(p, " ");
            p = skip_word(p);
        } else if (strchr("\n;&|", *p)) {
            bool stops = st->n > 0 || strncmp(p, ";;", 2) == 0;
            if (strncmp(p, ";;", 2) == 0 && st->n == 0) {
                st->raw[st->n] = p;
                st->length[st->n++] = 2;
                p += 2;
                break;
            }
            if (*p == ';' && p[1] == ';')
                break;
            bool line_ends = *p == '\n';
            p += *p != '\0';
            if (line_ends && st->end_word)
                st->document = p;
            if (stops || st->document)
                break;
        } else if (*p) {
            if (st->n == 0)
                st->line = line_of(s, p);
            const char *end = skip_word(p);
            end += end == p;
            if (st->n < MOST_WORDS) {
                st->raw[st->n] = p;
                st->length[st->n++] = (size_t)(end - p);
            }
            p = end;
        }
    }
    s->at = p;
    return st->n > 0;
}

static bool is_word(const struct statement *st, size_t i, const char *word) {
    return i < st->n && st->length[i] == strlen(word) &&
           strncmp(st->raw[i], word, st->length[i]) == 0;
}

static bool runs(const struct shell *s) {
    for (int i = 0; i < s->depth; i++)
        if (!s->block[i].runs)
            return false;
    return true;
}

/* A document of settings counts for the launches that follow; of a script, its launches do. */
static void take_document(struct shell *s, const struct statement *st) {
    const char *end = st->document;
    size_t n = strlen(st->end_word);
    while (*end) {
        const char *line = end + strspn(end, "\t ");
        if (strncmp(line, st->end_word, n) == 0 && (line[n] == '\n' || !line[n]))
            break;
        end += strcspn(end, "\n");
        end += *end == '\n';
    }
    s->at = end + strcspn(end, "\n");
    if (!runs(s))
        return;
    const char *text = text_of(s, st->document, (size_t)(end - st->document), true);
    struct words w = {.n = 0};
    for (size_t i = 0; i < st->n && i < 2; i++)
        add_words(s, &w, st->raw[i], st->length[i]);
    if (w.n > 0 && dtp_one_of("bash sh sbatch", w.at[0]))
        run_text(s, text);
    else
        dtp_settings_read_yaml(&s->shared, text, strlen(text));
}

static bool is_usual(const char *word) {
    return dtp_one_of("none None false False 0 no off bf16", word);
}

enum answer { NO, YES, OPEN };

/* [ a = b ], [[ a != b ]], -z, -n; OPEN: something of it is not known. usual: it is the usual value that is asked for. */
static enum answer test(struct shell *s, const struct statement *st, size_t from, bool *usual) {
    const char *w[8] = {0};
    size_t n = 0;
    *usual = false;
    for (size_t i = from; i < st->n && n < 8; i++)
        if (!is_word(st, i, "[") && !is_word(st, i, "[[") && !is_word(st, i, "]") &&
            !is_word(st, i, "]]"))
            w[n++] = text_of(s, st->raw[i], st->length[i], false);
    if (n == 2 && dtp_one_of("-z -n", w[0])) {
        bool empty = !*w[1] || *w[1] == '$';
        return empty == (w[0][1] == 'z') ? YES : NO;
    }
    if (n != 3)
        return OPEN;
    bool same = strcmp(w[0], w[2]) == 0;
    if (*w[0] == '$' || *w[2] == '$') {
        if (dtp_one_of("= ==", w[1]))
            *usual = is_usual(w[2]);
        return dtp_one_of("!=", w[1]) && is_usual(w[2]) ? NO : *usual ? YES : OPEN;
    }
    if (dtp_one_of("= ==", w[1]))
        return same || fnmatch(w[2], w[0], 0) == 0 ? YES : NO;
    if (strcmp(w[1], "!=") == 0)
        return same ? NO : YES;
    long x = strtol(w[0], NULL, 10), y = strtol(w[2], NULL, 10);
    static const char *const order[] = {"-eq", "-ne", "-gt", "-ge", "-lt", "-le"};
    bool is[] = {x == y, x != y, x > y, x >= y, x < y, x <= y};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (strcmp(w[1], order[i]) == 0)
            return is[i] ? YES : NO;
    return OPEN;
}

static void add_branch(struct shell *s, int line, const char *condition, bool taken) {
    struct dtp_script *o = s->out;
    o->branch = dtp_arena_room(o->a, o->branch, sizeof *o->branch, o->nbranches, &o->branches_room);
    o->branch[o->nbranches++] = (struct dtp_branch){line, condition, taken};
}

/* Tells whether an open question is decided for the first branch: it picks one of several, none of them the usual. */
static bool picks_first(struct shell *s) {
    const char *back = s->at;
    struct place counted = s->counted;
    struct statement *st = DTP_NEW(s->a, struct statement, 1);
    int depth = 0;
    bool found = false, several = false, usual;
    while (!found && next_statement(s, st)) {
        depth += is_word(st, 0, "if");
        if (is_word(st, 0, "fi") && depth-- == 0)
            break;
        if (depth == 0 && is_word(st, 0, "else"))
            found = true;
        if (depth == 0 && is_word(st, 0, "elif")) {
            several = true;
            found |= test(s, st, 1, &usual) == YES;
        }
    }
    s->at = back;
    s->counted = counted;
    return several && !found;
}

static const char *condition_of(struct shell *s, const struct statement *st, size_t from) {
    struct dtp_str text = {.a = s->a};
    dtp_str_add(&text, "");
    for (size_t i = from; i < st->n; i++)
        dtp_str_printf(&text, "%s%.*s", i > from ? " " : "", (int)st->length[i], st->raw[i]);
    return text.at;
}

static void take_if(struct shell *s, const struct statement *st, bool begins) {
    bool usual;
    if (begins && s->depth < MOST_DEPTH)
        s->block[s->depth++] = (struct block){.runs = true};
    if (s->depth == 0)
        return;
    struct block *b = &s->block[s->depth - 1];
    b->runs = true;
    bool outer = runs(s);
    enum answer is = outer ? test(s, st, 1, &usual) : NO;
    bool chain = is == OPEN && begins && picks_first(s);
    b->runs = outer && !b->taken && (is == YES || chain);
    b->taken |= b->runs;
    if (outer)
        add_branch(s, st->line, condition_of(s, st, 1), b->runs);
}

/* "name)" of a case. */
static void take_pattern(struct shell *s) {
    struct block *b = &s->block[s->depth - 1];
    s->at += strspn(s->at, " \t\n;");
    s->at += *s->at == '(';
    if (strncmp(s->at, "esac", 4) == 0) {
        b->pattern = false;
        return;
    }
    if (*s->at == '#') {
        s->at += strcspn(s->at, "\n");
        return;
    }
    size_t n = strcspn(s->at, ")\n");
    const char *all = text_of(s, s->at, n, false), *p = all;
    bool open = *b->subject == '$', fits = false;
    while (*p) {
        size_t k = strcspn(p, "|");
        const char *one = dtp_arena_printf(s->a, "%.*s", (int)k, p);
        one += strspn(one, " ");
        fits |= open ? is_usual(one) || strcmp(one, "*") == 0 : fnmatch(one, b->subject, 0) == 0;
        p += k + (p[k] == '|');
    }
    b->runs = true;
    bool outer = runs(s);
    b->runs = outer && (fits || (open && b->first)) && !b->taken;
    b->taken |= b->runs;
    if (outer)
        add_branch(s, line_of(s, s->at), dtp_arena_printf(s->a, "%s in %s", b->subject, all),
                   b->runs);
    s->at += n + (s->at[n] == ')');
    b->pattern = false;
}

/* Tells whether a case, up to its end, says what is done for everything else or for the usual. */
static bool has_usual_pattern(const char *from) {
    static const char *const patterns[] = {"*)", "none)", "false)", "bf16)"};
    const char *end = strstr(from, "esac");
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        const char *found = strstr(from, patterns[i]);
        if (found && (!end || found < end))
            return true;
    }
    return false;
}

/* Words that steer; false: it is a command. */
static bool take_control(struct shell *s, const struct statement *st) {
    struct block *b = s->depth > 0 ? &s->block[s->depth - 1] : NULL;
    if (is_word(st, 0, "if") || is_word(st, 0, "elif")) {
        take_if(s, st, is_word(st, 0, "if"));
    } else if (is_word(st, 0, "case")) {
        if (s->depth < MOST_DEPTH)
            s->block[s->depth++] = (struct block){
                .is_case = true,
                .runs = true,
                .pattern = true,
                .subject = st->n > 1 ? text_of(s, st->raw[1], st->length[1], false) : ""};
        if (s->depth > 0)
            s->block[s->depth - 1].first = !has_usual_pattern(s->at);
        s->at = st->n > 2 ? st->raw[2] + st->length[2] : s->at;
    } else if (b && is_word(st, 0, "else")) {
        b->runs = !b->taken;
        bool taken = b->runs;
        if (runs(s) || !taken)
            add_branch(s, st->line, "else", taken);
        b->taken = true;
    } else if (b && is_word(st, 0, ";;")) {
        b->runs = true;
        b->pattern = b->is_case;
    } else if (b && (is_word(st, 0, "fi") || is_word(st, 0, "esac"))) {
        s->depth--;
    } else if (is_word(st, 0, "for")) {
        if (st->n > 3 && runs(s))
            put(s, dtp_arena_printf(s->a, "%.*s", (int)st->length[1], st->raw[1]),
                text_of(s, st->raw[3], st->length[3], false), false);
        if (st->n > 4 && runs(s))
            add_branch(s, st->line, condition_of(s, st, 0), true);
    } else if (!(is_word(st, 0, "done") || is_word(st, 0, "}") || is_word(st, 0, "{") ||
                 is_word(st, 0, "while"))) {
        return false;
    }
    return true;
}

static void take_command(struct shell *s, const struct statement *st, size_t from) {
    struct words *w = DTP_NEW(s->a, struct words, 1);
    size_t first = from, lead;
    while (first < st->n && assigns(st->raw[first]) > 0 &&
           assigns(st->raw[first]) < st->length[first])
        first++;
    bool declares = is_word(st, from, "export") || is_word(st, from, "local") ||
                    is_word(st, from, "declare") || is_word(st, from, "readonly");
    if (first == st->n || declares) {
        for (size_t i = from + declares; i < st->n; i++)
            if (assigns(st->raw[i]) > 0 && assigns(st->raw[i]) < st->length[i])
                assign(s, st->raw[i], st->length[i], is_word(st, from, "export"));
        return;
    }
    for (size_t i = from; i < st->n; i++)
        add_words(s, w, st->raw[i], st->length[i]);
    for (lead = 0; lead < w->n && assigns(w->at[lead]) > 0;)
        lead++;
    while (lead < w->n && dtp_one_of("eval exec nohup time env sudo", w->at[lead]))
        for (lead++; lead < w->n && assigns(w->at[lead]) > 0;)
            lead++;
    if (lead == w->n)
        return;
    if (s->text == s->whole)
        s->line = st->line;
    for (size_t i = lead + 1; i + 1 < w->n; i++)
        if (strcmp(w->at[i], "-c") == 0 && dtp_one_of("bash sh", dtp_base_name(w->at[i - 1])) &&
            strchr(w->at[i + 1], ' ')) {
            const char *inner = w->at[i + 1];
            w->n = i;
            add_options(s, &s->shared, w, lead);
            run_text(s, inner);
            return;
        }
    if (is_launch(w, lead))
        add_launch(s, w, lead);
    else
        (void)dtp_intern_add(s->unread, w->at[lead], strlen(w->at[lead]));
}

static void take_statements(struct shell *s) {
    struct statement *st = DTP_NEW(s->a, struct statement, 1);
    while (*s->at) {
        if (s->depth > 0 && s->block[s->depth - 1].pattern) {
            take_pattern(s);
            continue;
        }
        if (!next_statement(s, st))
            break;
        size_t from = 0;
        while (is_word(st, from, "then") || is_word(st, from, "do"))
            from++;
        if (is_word(st, from, "else") && st->n > from + 1) { /* else command */
            bool was = s->block[s->depth > 0 ? s->depth - 1 : 0].taken;
            if (s->depth > 0) {
                s->block[s->depth - 1].runs = !was;
                s->block[s->depth - 1].taken = true;
            }
            from++;
        }
        if (from < st->n && !(from == 0 && take_control(s, st)) && runs(s))
            take_command(s, st, from);
        if (st->document)
            take_document(s, st);
    }
}

static void run_text(struct shell *s, const char *text) {
    const char *before = s->text, *at = s->at;
    struct place counted = s->counted;
    int depth = s->depth;
    if (s->nested >= MOST_NESTED)
        return;
    s->nested++;
    s->text = s->at = text;
    s->counted = (struct place){text, 0};
    take_statements(s);
    s->nested--;
    s->text = before;
    s->counted = counted;
    s->at = at;
    s->depth = depth;
}

/* Words of a comment up to what no shell would read as one. */
static void comment_words(struct shell *s, const char *p, const char *end, struct words *to) {
    for (p += strspn(p, "# \t"); p < end; p += strspn(p, " \t")) {
        const char *stop = skip_word(p);
        stop = stop > end ? end : stop;
        if (*p == '#' || stop == p)
            break;
        if (to->n < MOST_WORDS)
            to->at[to->n++] = dtp_arena_printf(s->a, "%.*s", (int)(stop - p), p);
        p = stop;
    }
}

/* Settings of Slurm, and a call of the script: in comments. */
static void take_comments(struct shell *s, const char *text) {
    struct words *w = DTP_NEW(s->a, struct words, 1);
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        const char *end = line + strcspn(line, "\n");
        const char *copy =
            *line == '#' ? dtp_arena_printf(s->a, "%.*s", (int)(end - line), line) : "";
        bool slurm = strncmp(copy, "#SBATCH", strlen("#SBATCH")) == 0;
        if (!slurm && !dtp_text_has(copy, "usage") && !dtp_text_has(copy, "called as"))
            continue;
        w->n = 0;
        comment_words(s, line, end, w);
        if (slurm) {
            add_options(s, &s->shared, w, 0);
            continue;
        }
        size_t script = 0;
        while (script < w->n && !dtp_ends_with(w->at[script], ".sh"))
            script++;
        for (size_t i = script + 1; i < w->n && i - script < MOST_ARGS; i++)
            if (!strpbrk(w->at[i], "<[$") && !s->arg[i - script])
                s->arg[i - script] = w->at[i];
    }
}

void dtp_script_read(struct dtp_script *out, const char *text) {
    struct shell *s = DTP_NEW(out->a, struct shell, 1);
    *s = (struct shell){.out = out,
                        .a = out->a,
                        .whole = text,
                        .names = dtp_intern_create(out->a),
                        .unread = dtp_intern_create(out->a),
                        .shared.a = out->a};
    take_comments(s, text);
    run_text(s, text);
    out->unread = s->unread->at;
    out->nunread = s->unread->n;
}
