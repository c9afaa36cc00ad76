/* listing.h: what the listing verbs share: names in the first column, one line each, or --names. */
#ifndef DTP_PLANNER_CLI_LISTING_H
#define DTP_PLANNER_CLI_LISTING_H

#include "planner/cli/cli.h"

struct dtp_listing {
    bool names; /* names alone, for scripts and completion */
};
extern const struct dtp_option dtp_listing_options[];
extern const struct dtp_form *const dtp_names_documents[]; /* of the listing verbs together */

/* "name   title" with the title cut to the width. */
void dtp_listing_row(const struct dtp_term *t, const char *name, int name_width, const char *title);
/* What the verbs have in common: NAME shows the details, else a row for each name, or --names. */
struct dtp_listing_verb {
    enum dtp_status (*list)(struct dtp_arena *a, const char *const **names, size_t *n,
                            struct dtp_err *err);
    enum dtp_status (*row)(struct dtp_cli *cli, const char *name, int width, struct dtp_err *err);
    enum dtp_status (*details)(struct dtp_cli *cli, const char *name, struct dtp_err *err);
};
enum dtp_status dtp_listing_run(struct dtp_cli *cli, const struct dtp_listing_verb *verb,
                                struct dtp_err *err);
/* --json NAME: what stands in its file, in the form that a plan document may embed. */
void dtp_listing_json(struct dtp_cli *cli, const struct dtp_json *file);
/* The value of one field as text, into buf; for "dtplan frameworks NAME". */
const char *dtp_listing_value(const struct dtp_field *field, const void *in, char *buf,
                              size_t size);

#endif
