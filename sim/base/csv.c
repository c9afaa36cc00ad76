#include "sim/base/text.h"
#include "sim/base/units.h"

#include <string.h>

/* Cells are cut out of one mutable copy of the text: quotes are removed in place, so a cell never
 * grows and each keeps its address. */
struct parser {
    struct dtp_arena *a;
    const char *name;
    char *p, *end;
    int line;
    const char **cell; /* cells of the rows so far, ncols each */
    size_t ncells, capacity;
    int *row_line;
    size_t nrows, row_capacity;
    struct dtp_err *err;
};

static void push_cell(struct parser *s, const char *cell) {
    s->cell = dtp_arena_room(s->a, s->cell, sizeof *s->cell, s->ncells, &s->capacity);
    s->cell[s->ncells++] = cell;
}

static void push_line(struct parser *s, int line) {
    s->row_line =
        dtp_arena_room(s->a, s->row_line, sizeof *s->row_line, s->nrows, &s->row_capacity);
    s->row_line[s->nrows++] = line;
}

/* Reads a quoted cell at p, which is behind the opening quote; "" stands for one quote. */
static enum dtp_status take_quoted(struct parser *s, const char **cell) {
    int start_line = s->line;
    char *to = s->p;
    *cell = to;
    for (; s->p < s->end; s->p++) {
        if (*s->p == '\n')
            s->line++;
        if (*s->p != '"') {
            *to++ = *s->p;
        } else if (s->p + 1 < s->end && s->p[1] == '"') {
            *to++ = *s->p++;
        } else {
            s->p++; /* the closing quote, at or behind *to */
            *to = '\0';
            return DTP_OK;
        }
    }
    return dtp_fail(s->err, DTP_EINPUT, "%s:%d: a quoted cell that never ends", s->name,
                    start_line);
}

/* Reads one cell and the separator behind it. *last: the row ends with this cell. */
static enum dtp_status take_cell(struct parser *s, const char **cell, bool *last) {
    if (s->p < s->end && *s->p == '"') {
        s->p++;
        DTP_TRY(take_quoted(s, cell));
        if (s->p < s->end && !strchr(",\r\n", *s->p))
            return dtp_fail(s->err, DTP_EINPUT, "%s:%d: found text after a closing quote", s->name,
                            s->line);
    } else {
        *cell = s->p;
        while (s->p < s->end && *s->p != ',' && *s->p != '\n' && *s->p != '\r')
            s->p++;
    }
    char separator = s->p < s->end ? *s->p : '\n';
    *s->p = '\0'; /* at the end this writes the NUL that the text has there already */
    *last = separator != ',';
    if (s->p < s->end)
        s->p++;
    if (separator == '\r' && s->p < s->end && *s->p == '\n')
        s->p++;
    s->line += *last;
    return DTP_OK;
}

static enum dtp_status take_row(struct parser *s, size_t ncols) {
    size_t first = s->ncells;
    int line = s->line;
    bool last = false;
    while (!last) {
        const char *cell;
        DTP_TRY(take_cell(s, &cell, &last));
        push_cell(s, cell);
        if (ncols > 0 && s->ncells - first > ncols)
            return dtp_fail(s->err, DTP_EINPUT,
                            "%s:%d: found more than the %zu cells of the header", s->name, line,
                            ncols);
    }
    if (s->ncells - first == 1 && s->cell[first][0] == '\0') {
        s->ncells = first; /* a blank line is no row */
        return DTP_OK;
    }
    while (s->ncells - first < ncols)
        push_cell(s, "");
    push_line(s, line);
    return DTP_OK;
}

static enum dtp_status check_header(const struct parser *s, size_t ncols) {
    if (ncols == 0)
        return dtp_fail(s->err, DTP_EINPUT, "%s: found no header line", s->name);
    for (size_t i = 1; i < ncols; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(s->cell[i], s->cell[k]) == 0 && s->cell[i][0])
                return dtp_fail(s->err, DTP_EINPUT, "%s:%d: column \"%s\" stands twice", s->name,
                                s->row_line[0], s->cell[i]);
    return DTP_OK;
}

/* name: what messages call the text. A blank line is no row; a row longer than the header is an error. */
static enum dtp_status parse_csv(struct dtp_arena *a, const char *name, const char *text,
                                 size_t length_bytes, struct dtp_csv *out, struct dtp_err *err) {
    if (memchr(text, '\0', length_bytes))
        return dtp_fail(err, DTP_EINPUT, "%s: found a NUL byte, expected text", name);
    char *copy = dtp_arena_strndup(a, text, length_bytes);
    struct parser s = {.a = a,
                       .name = dtp_arena_strdup(a, name),
                       .p = copy,
                       .end = copy + length_bytes,
                       .line = 1,
                       .err = err};
    s.p += dtp_text_mark_bytes(copy, length_bytes);
    while (s.p < s.end && s.nrows == 0)
        DTP_TRY(take_row(&s, 0));
    size_t ncols = s.ncells;
    DTP_TRY(check_header(&s, ncols));
    while (s.p < s.end)
        DTP_TRY(take_row(&s, ncols));
    *out = (struct dtp_csv){.name = s.name,
                            .ncols = ncols,
                            .nrows = s.nrows - 1,
                            .header = s.cell,
                            .cell = s.cell + ncols,
                            .line = s.row_line + 1};
    return DTP_OK;
}

/* A table is read whole; a device that never ends shall not fill the memory. */
static const size_t MOST_BYTES = (size_t)(2 * DTP_GIB);

enum dtp_status dtp_csv_read_file(struct dtp_arena *a, const char *path, struct dtp_csv *out,
                                  struct dtp_err *err) {
    const char *text;
    size_t length_bytes;
    DTP_TRY(dtp_file_read(a, path, MOST_BYTES, &text, &length_bytes, err));
    const char *name = strcmp(path, "-") == 0 ? "<stdin>" : path;
    return parse_csv(a, name, text, length_bytes, out, err);
}

int dtp_csv_col(const struct dtp_csv *csv, const char *name) {
    for (size_t i = 0; i < csv->ncols; i++)
        if (strcmp(csv->header[i], name) == 0)
            return (int)i;
    return -1;
}

const char *dtp_csv_get(const struct dtp_csv *csv, size_t row, int col) {
    return col < 0 ? "" : csv->cell[row * csv->ncols + (size_t)col];
}

void dtp_csv_put(FILE *f, const char *cell, bool last) {
    /* a mark that is content: in front of a file it would be taken for an encoding */
    if (dtp_text_mark_bytes(cell, strlen(cell)) > 0 || strpbrk(cell, ",\"\r\n")) {
        fputc('"', f);
        for (; *cell; cell++) {
            if (*cell == '"')
                fputc('"', f);
            fputc(*cell, f);
        }
        fputc('"', f);
    } else {
        fputs(cell, f);
    }
    fputc(last ? '\n' : ',', f);
}
