/* output_traces.h: keys of the documents whose writers have no table of fields yet. tests/cli/formats.sh compares
 * them with what is written. */
#ifndef DTP_PLANNER_CLI_OUTPUT_TRACES_H
#define DTP_PLANNER_CLI_OUTPUT_TRACES_H

#include <stddef.h>

/* a.b is the member b of the object a, a[] a member of the list a, * any name. */
struct dtp_output_key {
    const char *path, *help;
    /* title of the page that describes its content; with an empty path: next to the others */
    const char *form;
};
struct dtp_output_page {
    const char *title; /* in capitals a part of others; else the command */
    const char *text;
    const struct dtp_output_key *keys; /* up to one without a path */
};

extern const struct dtp_output_page dtp_output_pages[]; /* up to one without a title */

#endif
