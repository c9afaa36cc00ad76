/* term.h: what a report may do on its output: colours, width, bars.
 *
 * Colours only on a terminal and without NO_COLOR (no-color.org); the width is the terminal's,
 * within 60 .. 120, and 100 where there is none, so that redirected output does not depend on the
 * window.
 */
#ifndef DTP_PLANNER_TERM_H
#define DTP_PLANNER_TERM_H

#include <stdbool.h>
#include <stdio.h>

enum dtp_style { DTP_PLAIN, DTP_BOLD, DTP_DIM, DTP_GREEN, DTP_YELLOW, DTP_RED, DTP_BLUE, DTP_CYAN };

struct dtp_term {
    FILE *file;
    bool color;
    int width;
};

/* color: 0 as the rules say, 1 always, 2 never. */
struct dtp_term dtp_term_open(FILE *file, int color);
/* printf in a style. Returns the columns written (UTF-8 aware). */
int dtp_term_print(const struct dtp_term *t, enum dtp_style style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Prints a heading after an empty line, and a note on the same line (NULL: none). */
void dtp_term_title(const struct dtp_term *t, const char *text, const char *note);
/* Text wrapped at spaces and a newline; column: where the cursor is; later lines are indented. */
void dtp_term_wrap(const struct dtp_term *t, enum dtp_style style, int column, int indent,
                   const char *text);
/* A bar of `width` columns for value / full in eighths of a column; what is left are spaces. */
void dtp_term_bar(const struct dtp_term *t, enum dtp_style style, double ratio, int width);

#endif
