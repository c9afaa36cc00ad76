/* lines.h: text as a stream of lines, for logs and tables of any size in little memory.
 *
 *     struct dtp_lines l;
 *     dtp_lines_init(&l, a, source);
 *     for (;;) {
 *         char *line;
 *         DTP_TRY(dtp_lines_next(&l, &line, err));
 *         if (!line) break;
 *         ... the line lives until the next call and may be written to
 *     }
 */
#ifndef DTP_TRACES_FORMATS_LINES_H
#define DTP_TRACES_FORMATS_LINES_H

#include "traces/formats/source.h"

#define DTP_LINE_BYTES ((size_t)1 << 21)

struct dtp_lines {
    struct dtp_source *source;
    struct dtp_arena *a;
    char *buf;
    size_t capacity, at, end;
    uint64_t number; /* of the line just given, from 1 */
    bool at_end;
};

void dtp_lines_init(struct dtp_lines *l, struct dtp_arena *a, struct dtp_source *source);
/* Without its end (LF or CRLF); *out = NULL at the end of the text. A line beyond DTP_LINE_BYTES is
 * DTP_EINPUT. */
enum dtp_status dtp_lines_next(struct dtp_lines *l, char **out, struct dtp_err *err);
/* Cells of one line of CSV, cut in place, quotes removed. How many there are, even beyond `most`. */
size_t dtp_line_cells(char *line, char **cell, size_t most);

#endif
