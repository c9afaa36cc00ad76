#include "traces/formats/aicb.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "traces/formats/lines.h"
#include "traces/formats/format.h"
#include "traces/catalog.h"

enum { MOST_CELLS = 24, MOST_GROUP = 1 << 24 };

enum column { TYPE, GROUP, SIZE, BYTES, STAGE, DST, SRC, ELAPSED, COUNT, NCOLUMNS };
static const char *const column_name[NCOLUMNS] = {"comm_type", "comm_group",    "comm_group_size",
                                                  "msg_size",  "stage",         "dst",
                                                  "src",       "_elapsed_time", "count"};

struct reader {
    struct dtp_aicb *out;
    struct dtp_arena *a;
    const char *file;
    double unit_s;
    uint64_t line;
    int at[NCOLUMNS]; /* -1: no such column */
    size_t ncells;
};

/* The word after the dot of a Python enumeration. */
static const char *word(struct reader *r, const char *text, const char *prefix) {
    size_t n = strlen(prefix);
    return dtp_intern_text(r->out->words, strncmp(text, prefix, n) == 0 ? text + n : text);
}

/* A number, or none: "None" and nothing. */
static enum dtp_status number(const struct reader *r, char **cell, enum column c, double none,
                              double *out, struct dtp_err *err) {
    const char *text = r->at[c] >= 0 ? cell[r->at[c]] : "";
    char *end;
    *out = none;
    if (!*text || strcmp(text, "None") == 0)
        return DTP_OK;
    double v = strtod(text, &end);
    if (end == text || *end || !isfinite(v) || v < 0 || v > 0x1p63)
        return dtp_fail(err, DTP_EINPUT, "%s:%llu: %s: found \"%.60s\", expected a number or None",
                        r->file, (unsigned long long)r->line, column_name[c], text);
    *out = v;
    return DTP_OK;
}

static enum dtp_status take_row(struct reader *r, char **cell, struct dtp_err *err) {
    struct dtp_aicb *out = r->out;
    double size, bytes, count, elapsed, src, dst;
    DTP_TRY(number(r, cell, SIZE, 0, &size, err));
    DTP_TRY(number(r, cell, BYTES, 0, &bytes, err));
    DTP_TRY(number(r, cell, COUNT, 1, &count, err));
    DTP_TRY(number(r, cell, ELAPSED, -1, &elapsed, err));
    DTP_TRY(number(r, cell, SRC, -1, &src, err));
    DTP_TRY(number(r, cell, DST, -1, &dst, err));
    if (size > MOST_GROUP)
        return dtp_fail(err, DTP_EINPUT, "%s:%llu: a group of %.0f ranks", r->file,
                        (unsigned long long)r->line, size);
    out->row = dtp_arena_room(r->a, out->row, sizeof *out->row, out->n, &out->capacity);
    out->row[out->n++] =
        (struct dtp_aicb_row){.type = word(r, cell[r->at[TYPE]], "CommType."),
                              .group = word(r, cell[r->at[GROUP]], "CommGroup."),
                              .stage = word(r, r->at[STAGE] >= 0 ? cell[r->at[STAGE]] : "", ""),
                              .group_size = (int)size,
                              .bytes = (uint64_t)bytes,
                              .count = (uint64_t)count,
                              .elapsed_s = elapsed < 0 ? -1 : elapsed * r->unit_s,
                              .src = (int64_t)src,
                              .dst = (int64_t)dst};
    return DTP_OK;
}

static enum dtp_status take_header(struct reader *r, char **cell, size_t n, struct dtp_err *err) {
    for (int c = 0; c < NCOLUMNS; c++) {
        r->at[c] = -1;
        for (size_t i = 0; i < n && i < MOST_CELLS; i++)
            if (strcmp(cell[i], column_name[c]) == 0)
                r->at[c] = (int)i;
    }
    r->ncells = n;
    if (n > MOST_CELLS || r->at[TYPE] < 0 || r->at[GROUP] < 0 || r->at[BYTES] < 0)
        return dtp_fail(err, DTP_EINPUT,
                        "%s:%llu: no header of AICB: expected comm_type, comm_group, msg_size, ...",
                        r->file, (unsigned long long)r->line);
    return DTP_OK;
}

static enum dtp_status take_line(struct reader *r, char *line, bool *header, struct dtp_err *err) {
    char *cell[MOST_CELLS];
    if (!*header && *line == '[') {
        size_t n = strcspn(line + 1, "]");
        r->out->preamble = dtp_arena_strndup(r->a, line + 1, n);
        return DTP_OK;
    }
    if (!*line)
        return DTP_OK;
    size_t n = dtp_line_cells(line, cell, MOST_CELLS);
    if (!*header) {
        *header = true;
        return take_header(r, cell, n, err);
    }
    if (n != r->ncells)
        return dtp_fail(err, DTP_EINPUT, "%s:%llu: %zu cells, the header has %zu", r->file,
                        (unsigned long long)r->line, n, r->ncells);
    return take_row(r, cell, err);
}

enum dtp_status dtp_aicb_read(struct dtp_arena *a, struct dtp_source *source, double unit_s,
                              struct dtp_aicb *out, struct dtp_err *err) {
    struct reader r = {.out = out, .a = a, .file = dtp_source_name(source), .unit_s = unit_s};
    struct dtp_lines l;
    enum dtp_status status;
    char *line;
    bool header = false;
    *out = (struct dtp_aicb){.preamble = "", .words = dtp_intern_create(a)};
    dtp_lines_init(&l, a, source);
    while (dtp_lines_next(&l, &line, &status, err)) {
        r.line = l.number;
        DTP_TRY(take_line(&r, line, &header, err));
    }
    DTP_TRY(status);
    if (out->n == 0)
        return dtp_fail(err, DTP_EINPUT, "%s: no row of AICB in it", r.file);
    return DTP_OK;
}

/* ---- the row of the format ---- */

static bool is_aicb(const struct dtp_format_head *h) {
    static const char header[] = "comm_type,comm_group,";
    char line[256];
    for (int k = 0; k < 2; k++)
        if (dtp_head_line(h, k, line, sizeof line) && strncmp(line, header, sizeof header - 1) == 0)
            return true;
    return false;
}

static enum dtp_status read_item(struct dtp_arena *a, const struct dtp_visited *v,
                                 const struct dtp_format_options *o, void **content,
                                 struct dtp_err *err) {
    struct dtp_aicb *w = *content = DTP_NEW(a, struct dtp_aicb, 1);
    return dtp_aicb_read(a, v->source, o->unit_s, w, err);
}

static const struct dtp_traffic *traffic_of(struct dtp_arena *a, const struct dtp_aicb *w) {
    struct dtp_traffic *t = DTP_NEW(a, struct dtp_traffic, 1);
    t->a = a;
    for (size_t i = 0; i < w->n; i++)
        dtp_traffic_add(t, w->row[i].type, w->row[i].group, w->row[i].count,
                        (double)w->row[i].bytes * (double)w->row[i].count);
    return t;
}

static void print_item(struct dtp_arena *a, FILE *f, const struct dtp_item *item,
                       const struct dtp_format_options *o) {
    (void)o;
    const struct dtp_aicb *w = item->content;
    fprintf(f, "  %zu rows%s%s\n", w->n, w->preamble[0] ? " of " : "", w->preamble);
    dtp_traffic_print(f, traffic_of(a, w));
}

static void write_item(struct dtp_arena *a, struct dtp_json_out *w, const struct dtp_item *item,
                       const struct dtp_format_options *o) {
    (void)o;
    dtp_traffic_json(w, traffic_of(a, item->content));
}

const struct dtp_format dtp_format_aicb = {.name = "aicb",
                                           .title = "AICB workload, CSV",
                                           .told = "header comm_type,comm_group,...",
                                           .kind = DTP_KIND_WORKLOAD,
                                           .detect = is_aicb,
                                           .read = read_item,
                                           .print = print_item,
                                           .json = write_item};
