/* validate_parts.h: private to validate_*.c: the groups of rows that errors are given for. */
#ifndef DTP_TRACES_VALIDATE_VALIDATE_PARTS_H
#define DTP_TRACES_VALIDATE_VALIDATE_PARTS_H

#include "traces/validate/validate.h"

/* What a row is counted under; NULL: nowhere. */
typedef const char *dtp_row_key(const struct dtp_validated *row);

struct dtp_grouping {
    const char *name;
    dtp_row_key *key;
    bool detail; /* printed on request only */
};
extern const struct dtp_grouping dtp_groupings[]; /* ends with name NULL */

struct dtp_subset {
    const struct dtp_grouping *by; /* NULL: all rows */
    const char *value;
    bool extrapolated; /* only those, else only those inside the calibration */
};
dtp_row_filter dtp_in_subset; /* ctx: struct dtp_subset */

/* Distinct values of a key, in order of first appearance. */
size_t dtp_distinct_values(struct dtp_arena *a, const struct dtp_validation *v, dtp_row_key *key,
                           const char ***out);
/* g NULL: of all rows. */
int dtp_count_unsupported(const struct dtp_validation *v, const struct dtp_grouping *g,
                          const char *value);

#endif
