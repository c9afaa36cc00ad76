/* output_formats.h: what the JSON documents hold that dtplan writes, for the manual and its test
 * (tests/cli/formats.sh, which compares these tables with what is written). Files that dtplan also reads have
 * tables with their readers (man_formats.c). */
#ifndef DTP_PLANNER_CLI_OUTPUT_FORMATS_H
#define DTP_PLANNER_CLI_OUTPUT_FORMATS_H

#include <stddef.h>

/* a.b is the member b of the object a, a[] a member of the list a, * any name. */
struct dtp_output_key {
    const char *path, *help;
    /* title of the page that has what is in it; with an empty path: beside the others */
    const char *form;
};
struct dtp_output_page {
    const char *title; /* in capitals a part of others; else the command */
    const char *text;
    const struct dtp_output_key *keys; /* up to one without a path */
};

extern const struct dtp_output_page dtp_output_pages[]; /* up to one without a title */

/* output_traces.c */
extern const struct dtp_output_key dtp_output_task[], dtp_output_divergence[],
    dtp_output_compare_traces[], dtp_output_errors[], dtp_output_error_group[],
    dtp_output_validate[], dtp_output_critical[], dtp_output_replay[], dtp_output_infer[],
    dtp_output_trace[], dtp_output_jobs[];

#endif
