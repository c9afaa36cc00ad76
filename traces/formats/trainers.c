#include "traces/formats/trainers.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/text.h"

struct table {
    const char *name;
    struct dtp_csv csv; /* key, default, use, note */
    size_t known;       /* settings that it has */
};

enum { KEY, DEFAULT, USE, NOTE };
static const char *const header[] = {"key", "default", "use", "note"};
enum { NUM_COLUMNS = sizeof header / sizeof *header };

static enum dtp_status load(struct dtp_arena *a, const char *name, struct table *out,
                            struct dtp_err *err) {
    const char *file = dtp_arena_printf(a, "traces/trainers/%s.csv", name);
    out->name = name;
    DTP_TRY(dtp_csv_read_file(a, dtp_data_path(a, file), &out->csv, err));
    for (int i = 0; i < NUM_COLUMNS; i++)
        if (dtp_csv_col(&out->csv, header[i]) != i)
            return dtp_fail(err, DTP_EINPUT, "%s: column %d is not \"%s\"", file, i + 1, header[i]);
    return DTP_OK;
}

/* Tells whether one of two paths ends with the other, which may leave out the outer sections. */
static bool ends_alike(const char *x, const char *y) {
    size_t n = strlen(x), m = strlen(y);
    const char *longer = n > m ? x : y, *shorter = n > m ? y : x;
    size_t more = n > m ? n - m : m - n;
    return strcmp(longer + more, shorter) == 0 && (more == 0 || longer[more - 1] == '.');
}

static const char *last_part(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

/* Row of the table for a setting: the one with its path before one with its key alone; -1: none. */
static long row_of(const struct table *t, const char *path, const char *key) {
    long found = -1;
    for (size_t i = 0; i < t->csv.nrows; i++) {
        const char *has = dtp_csv_get(&t->csv, i, KEY);
        if (strcmp(last_part(has), key) != 0)
            continue;
        if (ends_alike(has, path))
            return (long)i;
        found = (long)i;
    }
    return found;
}

/* The path as tables have it. */
static const char *table_path(struct dtp_arena *a, const struct dtp_setting *s) {
    char *path = dtp_arena_strdup(a, s->path + strspn(s->path, "-+"));
    for (char *p = path; *p; p++)
        *p = *p == '-' ? '_' : *p;
    return path;
}

static bool is_off(const char *value) {
    return !*value || dtp_one_of("false False FALSE no off none None null 0 0.0 [] {}", value);
}

static void judge(struct dtp_setting *s, const struct table *t, size_t row) {
    const char *use = dtp_csv_get(&t->csv, row, USE), *note = dtp_csv_get(&t->csv, row, NOTE);
    const char *usual = dtp_csv_get(&t->csv, row, DEFAULT);
    bool flag = dtp_one_of("False True", usual),
         same = *usual && s->value && strcmp(usual, s->value) == 0;
    bool ours = strcmp(use, "used") == 0; /* whose default is not always dtplan's */
    s->why = *note ? note : NULL;
    if (strcmp(use, "none") == 0) {
        s->use = DTP_SETTING_NONE;
    } else if (s->value && (is_off(s->value) || (same && !ours)) && (*s->value || !flag)) {
        s->use = DTP_SETTING_NONE;
        s->why = is_off(s->value) ? "off" : "the trainer's default";
    } else if (strncmp(note, "model.", strlen("model.")) == 0) {
        s->use = DTP_SETTING_NONE; /* beyond what --model has */
        s->why = "of the model";
    } else if (strcmp(use, "used") == 0) {
        s->use = DTP_SETTING_LEFT_OUT;
        s->why = *note ? note : "not taken over";
    } else {
        s->use = strcmp(use, "matters") == 0 ? DTP_SETTING_LEFT_OUT : DTP_SETTING_UNKNOWN;
        s->why = s->why ? s->why : "may matter by its name";
    }
}

/* Its names that are near the key. */
static void name_nearest(struct dtp_arena *a, struct dtp_setting *s, const struct table *t) {
    const char **names = DTP_NEW(a, const char *, t->csv.nrows + 1);
    for (size_t i = 0; i < t->csv.nrows; i++)
        names[i] = last_part(dtp_csv_get(&t->csv, i, KEY));
    int k = dtp_nearest_name(s->key, names, t->csv.nrows);
    if (k >= 0)
        s->why =
            dtp_arena_printf(a, "nearest of %s: %s", t->name, dtp_csv_get(&t->csv, (size_t)k, KEY));
}

/* The table that has most of the keys comes first, the launchers' next, as they stand in every script. */
static int compare(const void *x, const void *y) {
    const struct table *s = x, *t = y;
    bool first = strcmp(s->name, "launchers") == 0, second = strcmp(t->name, "launchers") == 0;
    if (s->known != t->known)
        return s->known > t->known ? -1 : 1;
    return first != second ? second - first : strcmp(s->name, t->name);
}

enum dtp_status dtp_trainers_judge(struct dtp_settings *s, struct dtp_err *err) {
    const char *const *names;
    size_t n;
    DTP_TRY(dtp_dir_list(s->a, dtp_data_path(s->a, "traces/trainers"), ".csv", &names, &n, err));
    struct table *t = DTP_NEW(s->a, struct table, n + 1);
    const char **path = DTP_NEW(s->a, const char *, s->n + 1);
    for (size_t i = 0; i < s->n; i++)
        path[i] = table_path(s->a, &s->at[i]);
    for (size_t k = 0; k < n; k++) {
        DTP_TRY(load(s->a, names[k], &t[k], err));
        for (size_t i = 0; i < s->n; i++)
            t[k].known += row_of(&t[k], path[i], s->at[i].key) >= 0;
    }
    qsort(t, n, sizeof *t, compare);
    for (size_t i = 0; i < s->n; i++) {
        struct dtp_setting *one = &s->at[i];
        long row = -1;
        if (one->opens || one->use != DTP_SETTING_UNKNOWN)
            continue;
        size_t k = 0;
        while (k < n && (row = row_of(&t[k], path[i], one->key)) < 0)
            k++;
        if (row >= 0)
            judge(one, &t[k], (size_t)row);
        else if (n > 0)
            name_nearest(s->a, one, &t[0]);
    }
    return DTP_OK;
}

/* ---- the lists ---- */

static const struct {
    const char *json, *text;
} uses[] = {
#define X(name, json, text) {json, text},
    DTP_SETTING_USES(X)
#undef X
};

static bool is_in(const struct dtp_setting *s, int use) {
    return !s->opens && (int)s->use == use;
}

size_t dtp_settings_left_out(const struct dtp_settings *s) {
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        n += is_in(&s->at[i], DTP_SETTING_LEFT_OUT) || is_in(&s->at[i], DTP_SETTING_UNKNOWN);
    return n;
}

static bool same_why(const struct dtp_setting *x, const struct dtp_setting *y) {
    return x->why == y->why || (x->why && y->why && strcmp(x->why, y->why) == 0);
}

/* Settings of one list; what is not taken over stands with its value, together with others of the same reason. */
static void print_list(FILE *f, const struct dtp_settings *s, int use) {
    bool values = use == DTP_SETTING_LEFT_OUT || use == DTP_SETTING_UNKNOWN;
    const char *comma = "";
    fprintf(f, "  %s%s", uses[use].text, values ? "\n" : ": ");
    for (size_t i = 0; i < s->n; i++) {
        size_t k = 0;
        if (!is_in(&s->at[i], use))
            continue;
        if (!values) {
            bool told = s->at[i].why && strncmp(s->at[i].why, "of the ", strlen("of the ")) == 0;
            fprintf(f, "%s%s", comma, s->at[i].path);
            if (told && (i + 1 == s->n || !same_why(&s->at[i], &s->at[i + 1])))
                fprintf(f, " (%s)", s->at[i].why);
            comma = ", ";
            continue;
        }
        while (k < i && !(is_in(&s->at[k], use) && same_why(&s->at[k], &s->at[i])))
            k++;
        if (k < i)
            continue;
        for (comma = "    "; k < s->n; k++)
            if (is_in(&s->at[k], use) && same_why(&s->at[k], &s->at[i])) {
                fprintf(f, "%s%s%s%s", comma, s->at[k].path, s->at[k].value ? " " : "",
                        s->at[k].value ? s->at[k].value : "");
                comma = ", ";
            }
        fprintf(f, "%s%s\n", s->at[i].why ? ": " : "", s->at[i].why ? s->at[i].why : "");
    }
    fputs(values ? "" : "\n", f);
}

void dtp_settings_print(FILE *f, const struct dtp_settings *s) {
    for (int use = 0; use < DTP_SETTING_NUSES; use++) {
        size_t n = 0;
        for (size_t i = 0; i < s->n; i++)
            n += is_in(&s->at[i], use);
        if (n > 0)
            print_list(f, s, use);
    }
}

void dtp_settings_write(struct dtp_json_out *w, const struct dtp_settings *s) {
    dtp_json_put_key(w, "settings");
    dtp_json_object(w);
    for (int use = 0; use < DTP_SETTING_NUSES; use++) {
        dtp_json_put_key(w, uses[use].json);
        dtp_json_array(w);
        for (size_t i = 0; i < s->n; i++) {
            if (!is_in(&s->at[i], use))
                continue;
            dtp_json_object(w);
            dtp_json_kv_string(w, "path", s->at[i].path);
            dtp_json_kv_string(w, "value", s->at[i].value);
            if (s->at[i].why)
                dtp_json_kv_string(w, "why", s->at[i].why);
            dtp_json_end(w);
        }
        dtp_json_end(w);
    }
    dtp_json_end(w);
}
