/* lines.h: text as a stream of lines, for logs and tables of any size in little memory.
 *
 *     struct dtp_lines l;
 *     dtp_lines_init(&l, a, source);
 *     while (dtp_lines_next(&l, &line, &status, err))
 *         ... the line lives until the next call and may be written to
 *     return status;
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
    uint64_t number; /* number of the line just given, from 1 */
    bool at_end;
};

void dtp_lines_init(struct dtp_lines *l, struct dtp_arena *a, struct dtp_source *source);
/* A line without its end (LF or CRLF). False at the end of the text, and where it cannot be read, as *out_status says:
 * a line beyond DTP_LINE_BYTES is DTP_EINPUT. */
bool dtp_lines_next(struct dtp_lines *l, char **out, enum dtp_status *out_status,
                    struct dtp_err *err);
/* Cells of one line of CSV, cut in place, quotes removed. How many there are, even beyond `most`. */
size_t dtp_line_cells(char *line, char **cell, size_t most);

#endif
