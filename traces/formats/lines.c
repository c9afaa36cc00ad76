#include "traces/formats/lines.h"

#include <string.h>

void dtp_lines_init(struct dtp_lines *l, struct dtp_arena *a, struct dtp_source *source) {
    *l = (struct dtp_lines){.source = source, .a = a, .capacity = 1 << 16};
    l->buf = DTP_NEW(a, char, l->capacity + 1);
}

/* Moves what is left to the front and reads more after it. */
static enum dtp_status refill(struct dtp_lines *l, struct dtp_err *err) {
    size_t left = l->end - l->at, n;
    memmove(l->buf, l->buf + l->at, left);
    l->at = 0;
    l->end = left;
    if (left == l->capacity) {
        if (l->capacity >= DTP_LINE_BYTES)
            return dtp_fail(err, DTP_EINPUT, "%s: line %llu is longer than %zu bytes",
                            dtp_source_name(l->source), (unsigned long long)l->number + 1,
                            DTP_LINE_BYTES);
        l->buf = dtp_arena_grow(l->a, l->buf, 1, l->capacity + 1, l->capacity * 2 + 1);
        l->capacity *= 2;
    }
    DTP_TRY(dtp_source_read(l->source, l->buf + left, l->capacity - left, &n, err));
    l->end += n;
    l->at_end = n == 0;
    return DTP_OK;
}

bool dtp_lines_next(struct dtp_lines *l, char **out, enum dtp_status *out_status,
                    struct dtp_err *err) {
    size_t seen = 0;
    char *newline = NULL;
    *out_status = DTP_OK;
    for (;;) {
        newline = memchr(l->buf + l->at + seen, '\n', l->end - l->at - seen);
        if (newline || l->at_end)
            break;
        seen = l->end - l->at;
        *out_status = refill(l, err);
        if (*out_status != DTP_OK)
            return false;
    }
    if (!newline && l->at == l->end)
        return false;
    char *line = l->buf + l->at, *stop = newline ? newline : l->buf + l->end;
    l->at = (size_t)(stop - l->buf) + (newline != NULL);
    if (stop > line && stop[-1] == '\r')
        stop--;
    *stop = '\0';
    l->number++;
    *out = line;
    return true;
}

size_t dtp_line_cells(char *line, char **cell, size_t most) {
    size_t n = 0;
    for (char *from = line;;) {
        char *to = from, *start = from;
        bool quoted = *from == '"';
        from += quoted;
        while (*from && (quoted || *from != ',')) {
            if (quoted && *from == '"' && from[1] != '"') {
                quoted = false;
                from++;
                continue;
            }
            from += quoted && *from == '"';
            *to++ = *from++;
        }
        bool last = *from == '\0';
        *to = '\0';
        if (n < most)
            cell[n] = start;
        n++;
        if (last)
            return n;
        from++;
    }
}
