/* chrome.h: timelines as Chrome JSON, which https://ui.perfetto.dev and chrome://tracing open.
 *
 * A process per rank (folded: per pipeline stage), a thread per stream, complete events ("X"), arrows
 * for transfers (flow events "s" and "f"), counters ("C"). Ids are integers; times are microseconds, as
 * the format wants. Two events of one stream that overlap in time go to two threads, "NAME" and
 * "NAME 2", since a thread can only nest. The file appears whole or not at all; a name that ends in
 * ".gz" is compressed. The same writer serves simulated and measured timelines:
 *
 *     struct dtp_chrome *c;
 *     DTP_TRY(dtp_chrome_open(a, "out.json.gz", &c, err));
 *     dtp_chrome_rank(c, 0, "rank 0");
 *     dtp_chrome_event(c, &(struct dtp_chrome_event){.rank = 0, .stream = "compute", .name = "0F3",
 *                      .start_s = 0.5, .dur_s = 0.01, .microbatch = -1, .part = -1});
 *     DTP_TRY(dtp_chrome_close(c, err));
 *
 * Format: "Trace Event Format" (Google, 2016).
 */
#ifndef DTP_TRACES_CHROME_H
#define DTP_TRACES_CHROME_H

#include "models/evaluate.h"

struct dtp_chrome;

struct dtp_chrome_event {
    int rank;
    const char *stream, *name;
    double start_s, dur_s;
    const char *category; /* or NULL */
    int microbatch, part; /* shown with the event where >= 0 */
};
/* Where an arrow starts or ends: at that time on the stream's event under way. */
struct dtp_chrome_point {
    int rank;
    const char *stream;
    double at_s;
};

enum dtp_status dtp_chrome_open(struct dtp_arena *a, const char *path, struct dtp_chrome **out,
                                struct dtp_err *err);
/* Name of a process; ranks are shown in increasing order. */
void dtp_chrome_rank(struct dtp_chrome *c, int rank, const char *name);
void dtp_chrome_event(struct dtp_chrome *c, const struct dtp_chrome_event *e);
void dtp_chrome_arrow(struct dtp_chrome *c, const char *name, struct dtp_chrome_point from,
                      struct dtp_chrome_point to);
void dtp_chrome_counter(struct dtp_chrome *c, int rank, const char *name, double at_s,
                        double value);
enum dtp_status dtp_chrome_close(struct dtp_chrome *c, struct dtp_err *err);
void dtp_chrome_abort(struct dtp_chrome *c); /* instead of close: no file */

/* A simulated step: actions named as in the schedule's text ("0F3"), transfers "0SF3", with arrows to the
 * action that waits for them; reductions, gathers and unshards on the first rank of their group; and
 * how many microbatches of activations each rank holds. */
void dtp_chrome_add(struct dtp_arena *a, struct dtp_chrome *c, const struct dtp_problem *problem,
                    const struct dtp_lowered *lowered, const struct dtp_timeline *timeline);
/* The same as a file of its own. */
enum dtp_status dtp_chrome_write(struct dtp_arena *a, const struct dtp_problem *problem,
                                 const struct dtp_lowered *lowered,
                                 const struct dtp_timeline *timeline, const char *path,
                                 struct dtp_err *err);

#endif
