#include "traces/formats/workload.h"

#include <stdlib.h>
#include <string.h>
#include <ctype.h>

#include "sim/base/text.h"
#include "traces/formats/lines.h"
#include "traces/formats/format.h"
#include "traces/catalog.h"

enum { FIELDS = 12, MOST_LAYERS = 9999999 };

static const char space[] = " \t\r";

/* The next line that is not blank, without blanks before it; NULL at the end of the text. */
static enum dtp_status next_line(struct dtp_lines *l, char **out, struct dtp_err *err) {
    enum dtp_status status;
    while (dtp_lines_next(l, out, &status, err)) {
        *out += strspn(*out, space);
        if (**out)
            return DTP_OK;
    }
    *out = NULL;
    return status;
}

static size_t split(char *line, char **field, size_t most) {
    size_t n = 0;
    for (char *at = line; *at;) {
        at += strspn(at, space);
        if (!*at)
            break;
        if (n < most)
            field[n] = at;
        n++;
        at += strcspn(at, space);
        if (*at)
            *at++ = '\0';
    }
    return n;
}

static bool number(const char *text, double *out) {
    char *end;
    *out = strtod(text, &end);
    return end != text && *end == '\0' && *out >= 0 && *out < 1e300;
}

static enum dtp_status take_layer(struct dtp_intern *words, char **field, const char *place,
                                  double unit_s, struct dtp_workload_layer *out,
                                  struct dtp_err *err) {
    double v;
    *out = (struct dtp_workload_layer){.name = dtp_intern_text(words, field[0])};
    for (int p = 0; p < DTP_NPHASES; p++) {
        char **at = field + 2 + 3 * p;
        if (!number(at[0], &v))
            return dtp_fail(err, DTP_EINPUT, "%s: found \"%s\", expected a time", place, at[0]);
        out->phase[p].compute_s = v * unit_s;
        out->phase[p].collective = dtp_intern_text(words, at[1]);
        if (!number(at[2], &v) || v > 0x1p63)
            return dtp_fail(err, DTP_EINPUT, "%s: found \"%s\", expected bytes", place, at[2]);
        out->phase[p].bytes = (uint64_t)v;
    }
    if (!number(field[FIELDS - 1], &v))
        return dtp_fail(err, DTP_EINPUT, "%s: found \"%s\", expected a time", place,
                        field[FIELDS - 1]);
    out->update_s = v * unit_s;
    return DTP_OK;
}

static enum dtp_status take_rows(struct dtp_arena *a, const char *name, struct dtp_lines *l,
                                 double unit_s, struct dtp_workload *out, struct dtp_err *err) {
    size_t capacity = 0;
    char *line, *field[FIELDS];
    struct dtp_intern *words = dtp_intern_create(a);
    for (;;) {
        char place[512];
        DTP_TRY(next_line(l, &line, err));
        if (!line)
            break;
        snprintf(place, sizeof place, "%.400s:%llu", name, (unsigned long long)l->number);
        size_t n = split(line, field, FIELDS);
        if (n != FIELDS)
            return dtp_fail(err, DTP_EINPUT, "%s: %zu fields, expected %d", place, n, FIELDS);
        out->layer = dtp_arena_room(a, out->layer, sizeof *out->layer, out->nlayers, &capacity);
        DTP_TRY(take_layer(words, field, place, unit_s, &out->layer[out->nlayers++], err));
    }
    return DTP_OK;
}

enum dtp_status dtp_workload_read(struct dtp_arena *a, struct dtp_source *source, double unit_s,
                                  struct dtp_workload *out, struct dtp_err *err) {
    struct dtp_lines l;
    const char *name = dtp_source_name(source);
    char *line;
    long declared;
    *out = (struct dtp_workload){.policy = "", .header = ""};
    dtp_lines_init(&l, a, source);
    DTP_TRY(next_line(&l, &line, err));
    if (!line)
        return dtp_fail(err, DTP_EINPUT, "%s: an empty file", name);
    size_t n = strcspn(line, space);
    out->policy = dtp_arena_strndup(a, line, n);
    n += strspn(line + n, space);
    size_t length = strlen(line + n);
    while (length > 0 && strchr(space, line[n + length - 1]))
        length--;
    out->header = dtp_arena_strndup(a, line + n, length);
    DTP_TRY(next_line(&l, &line, err));
    if (!line)
        return dtp_fail(err, DTP_EINPUT, "%s: no number of layers in line 2", name);
    line[strcspn(line, space)] = '\0';
    DTP_TRY(dtp_parse_long(line, name, 0, MOST_LAYERS, &declared, err));
    DTP_TRY(take_rows(a, name, &l, unit_s, out, err));
    if ((size_t)declared != out->nlayers)
        return dtp_fail(err, DTP_EINPUT, "%s: line 2 says %ld layers, the file has %zu", name,
                        declared, out->nlayers);
    return DTP_OK;
}

/* ---- the row of the format ---- */

/* A word, a line with nothing but a number, and rows of twelve fields. */
static bool is_workload(const struct dtp_format_head *h) {
    char line[1024], *save;
    int n = 0;
    if (!dtp_head_is_text(h) || dtp_head_json(h) || !dtp_head_line(h, 0, line, sizeof line) ||
        !isupper((unsigned char)line[0]) || !dtp_head_line(h, 1, line, sizeof line) ||
        !isdigit((unsigned char)line[0]))
        return false;
    size_t digits = strspn(line, "0123456789");
    if (line[digits + strspn(line + digits, " \t\r")])
        return false;
    if (!dtp_head_line(h, 2, line, sizeof line))
        return true;
    for (char *f = strtok_r(line, " \t\r", &save); f; f = strtok_r(NULL, " \t\r", &save))
        n++;
    return n >= FIELDS - 2;
}

static enum dtp_status read_item(struct dtp_arena *a, const struct dtp_visited *v,
                                 const struct dtp_format_options *o, void **content,
                                 struct dtp_err *err) {
    struct dtp_workload *w = *content = DTP_NEW(a, struct dtp_workload, 1);
    return dtp_workload_read(a, v->source, o->unit_s, w, err);
}

static const struct dtp_traffic *traffic_of(struct dtp_arena *a, const struct dtp_workload *w) {
    static const char *const phases[DTP_NPHASES] = {"forward", "input gradient", "weight gradient"};
    struct dtp_traffic *t = DTP_NEW(a, struct dtp_traffic, 1);
    t->a = a;
    for (size_t i = 0; i < w->nlayers; i++)
        for (int p = 0; p < DTP_NPHASES; p++)
            if (strcmp(w->layer[i].phase[p].collective, "NONE") != 0)
                dtp_traffic_add(t, w->layer[i].phase[p].collective, phases[p], 1,
                                (double)w->layer[i].phase[p].bytes);
    return t;
}

static void print_item(struct dtp_arena *a, FILE *f, const struct dtp_item *item,
                       const struct dtp_format_options *o) {
    enum { TEXT = 32 };
    const struct dtp_workload *w = item->content;
    double sum_s[DTP_NPHASES] = {0}, update_s = 0;
    char text[DTP_NPHASES + 1][TEXT];
    for (size_t i = 0; i < w->nlayers; i++) {
        for (int p = 0; p < DTP_NPHASES; p++)
            sum_s[p] += w->layer[i].phase[p].compute_s;
        update_s += w->layer[i].update_s;
    }
    fprintf(f, "  policy %s%s%s: %zu layers\n", w->policy, w->header[0] ? ", " : "", w->header,
            w->nlayers);
    for (int p = 0; p <= DTP_NPHASES; p++) {
        double v = p < DTP_NPHASES ? sum_s[p] : update_s;
        if (o->unit)
            dtp_fmt_time(v, text[p], TEXT);
        else
            snprintf(text[p], TEXT, "%.0f", v);
    }
    fprintf(f, "  compute: forward %s, input gradient %s, weight gradient %s, update %s%s\n",
            text[0], text[1], text[2], text[3],
            o->unit ? "" : " in units of the file (--time-unit)");
    dtp_traffic_print(f, traffic_of(a, w));
}

static void write_item(struct dtp_arena *a, struct dtp_json_out *w, const struct dtp_item *item,
                       const struct dtp_format_options *o) {
    const struct dtp_workload *load = item->content;
    static const char *const keys[DTP_NPHASES] = {"forward_s", "input_gradient_s",
                                                  "weight_gradient_s"};
    double sum_s[DTP_NPHASES] = {0};
    dtp_json_kv_string(w, "policy", load->policy);
    dtp_json_kv_string(w, "header", load->header);
    dtp_json_kv_u64(w, "layers", load->nlayers);
    dtp_json_kv_string(w, "time_unit", o->unit);
    for (size_t i = 0; i < load->nlayers; i++)
        for (int p = 0; p < DTP_NPHASES; p++)
            sum_s[p] += load->layer[i].phase[p].compute_s;
    for (int p = 0; p < DTP_NPHASES; p++)
        if (o->unit) /* without the unit there are no seconds */
            dtp_json_kv_double(w, keys[p], sum_s[p]);
    dtp_traffic_json(w, traffic_of(a, load));
}

const struct dtp_format dtp_format_workload = {
    .name = "workload",
    .title = "ASTRA-sim 1 or SimAI workload, text",
    .told = "a policy, a number of layers, rows of 12 fields",
    .kind = DTP_KIND_WORKLOAD,
    .detect = is_workload,
    .read = read_item,
    .print = print_item,
    .json = write_item};
