/* plot.h: two pictures as SVG: predicted against measured on log axes, and a histogram of errors.
 *
 * Colours come from a fixed list by group; a group is a file, a framework or a backend. The texts are
 * escaped; the numbers are written with three decimals, so that equal data give equal bytes.
 */
#ifndef DTP_TRACES_TASKS_PLOT_H
#define DTP_TRACES_TASKS_PLOT_H

#include <stddef.h>
#include <stdio.h>

struct dtp_plot_point {
    double measured, predicted; /* > 0, in the unit of the axis; others are left out */
    int group;                  /* index into groups */
    const char *label;          /* shown when the pointer rests on the point; may be NULL */
};

struct dtp_plot {
    const char *title, *axis; /* "step time, s" */
    const struct dtp_plot_point *point;
    size_t npoints;
    const char *const *groups; /* [ngroups] names for the legend */
    int ngroups;
};

/* Escaped for an element's content. */
void dtp_svg_text(FILE *f, const char *s);

/* 720 x 640: log-log scatter with the diagonal and lines at +-10 %. */
void dtp_plot_scatter(FILE *f, const struct dtp_plot *p);
/* 720 x 360: errors predicted / measured - 1 in bins of 2.5 % between -50 % and +50 %, the rest in the
 * outer bins. */
void dtp_plot_errors(FILE *f, const struct dtp_plot *p);

#endif
