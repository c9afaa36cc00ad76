/* labels.h: one number with its label and unit, as people say it and the logs of trainers write it:
 *     3.2 s    110 TFLOP/s/GPU    tps: 5,762    elapsed time per iteration (ms): 5123.4    memory: 41.71GiB(43.91%)
 * Labels, words and units are tables in labels.c. Both a line that is pasted (planner/doctor.h) and whole logs
 * (logs.h) are read with this.
 *
 *     struct dtp_label l;
 *     for (const char *at = line; (at = dtp_label_next(at, &l));)
 *         if (dtp_label_value(&l, &reading)) ...
 */
#ifndef DTP_TRACES_FORMATS_LABELS_H
#define DTP_TRACES_FORMATS_LABELS_H

#include <stdbool.h>
#include <stddef.h>

#include "traces/formats/quantity.h"

enum { DTP_LABEL_SIZE = 128 }; /* longer ones have no meaning */

struct dtp_label {
    const char *at;
    size_t n;
    const char *value; /* a number and what stands at it */
    size_t nvalue;
};
struct dtp_reading {
    enum dtp_quantity quantity;
    double value; /* SI */
};
struct dtp_meaning {
    enum dtp_quantity quantity;
    double unit; /* unit of a number without one */
};

/* Tells whether a comma of the text stands between digits, three of them after it. */
bool dtp_groups_thousands(const char *text, const char *comma);
/* 1,234.5 1.2K 3M nan -inf; what follows (a unit, a parenthesis) does not matter. *out_n: where it ends. */
bool dtp_number_read(const char *text, size_t n, double *out, size_t *out_n);
/* Reads a stated quantity: a number with a unit, a label or both. Returns false if the quantity is not known. */
bool dtp_label_read(const char *text, size_t n, struct dtp_reading *out);
/* Finds the next "label: value" or "label=value" of a line; returns where to go on, or NULL. */
const char *dtp_label_next(const char *from, struct dtp_label *out);
/* In a log not each time is that of a step: the label must say so. */
bool dtp_label_value(const struct dtp_label *label, struct dtp_reading *out);
/* Returns the meaning of a tag; DTP_QUANTITY_OTHER with unit 1 if it is not known. */
struct dtp_meaning dtp_label_meaning(const char *label);

#endif
