/* critical.h: the longest chain of a replayed job: what each moment of it waited for.
 *
 * From the task that ends last back through the one that let each start (sim/engine.h): the pieces of
 * the chain do not overlap and add up to its span. Shortening anything else changes nothing, and
 * shortening a piece helps until another chain is as long.
 */
#ifndef DTP_TRACES_REPLAY_CRITICAL_H
#define DTP_TRACES_REPLAY_CRITICAL_H

#include "sim/engine.h"

enum dtp_critical_class {
    DTP_CRITICAL_COMPUTE,
    DTP_CRITICAL_COMM,
    DTP_CRITICAL_MEMORY,
    DTP_CRITICAL_HOST,
    DTP_CRITICAL_LATENCY,     /* from a launch, or from the end of other work, to a start */
    DTP_CRITICAL_UNEXPLAINED, /* a start that was later than anything in the trace says */
    DTP_NCRITICAL
};
extern const char *const dtp_critical_names[]; /* "compute", ..., NULL */

struct dtp_critical_task {
    const char *name;
    int rank; /* -1: of several */
    enum dtp_critical_class class;
};
/* Tells what a task of the graph is. */
typedef void dtp_critical_describe(const void *ctx, dtp_id task, struct dtp_critical_task *out);

struct dtp_critical_item { /* tasks of one name on the chain */
    const char *name;
    enum dtp_critical_class class;
    uint64_t count;
    double sum_s;
};
struct dtp_critical {
    double span_s, class_s[DTP_NCRITICAL]; /* the classes add up to span_s */
    struct dtp_critical_item *item;        /* the longest sum first */
    size_t nitems;
    uint64_t nhops; /* the chain goes from one rank to another */
    int last_rank;  /* rank on which it ends */
};

void dtp_critical_path(struct dtp_arena *a, const struct dtp_timeline *line,
                       dtp_critical_describe *describe, const void *ctx, struct dtp_critical *out);

#endif
