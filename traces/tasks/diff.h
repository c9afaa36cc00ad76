/* diff.h: compares one step of a job with another, task by task: a trace with its prediction, for example.
 *
 * Tasks of a rank and class are taken in order. Between two timelines of dtplan they pair by name ("0F3",
 * "qkv dX"); a trace of kernels pairs with simulated operations by kind (product, attention, norm,
 * optimizer, collectives by operation), of which products, attention and collectives must follow in one
 * order; where the prediction has whole actions only, by compute, optimizer and collectives. Where the
 * orders part, the nearest task that both have takes them up again. Waiting in a collective is no cost:
 * durations are from the last start of any rank.
 *
 *     first divergence   in order: the first task that the other side lacks there; in time: the first
 *                        pair whose durations differ by more than DTP_DIFF_SHARE and DTP_DIFF_LEAST_S
 *     contributors       kinds by the difference of their times, mean over ranks; pairs by theirs
 */
#ifndef DTP_TRACES_TASKS_DIFF_H
#define DTP_TRACES_TASKS_DIFF_H

#include "traces/tasks/tasks.h"

#define DTP_DIFF_SHARE 0.1
#define DTP_DIFF_LEAST_S 20e-6

struct dtp_diff_kind {
    const char *kind;
    int class;
    double n[2], sum_s[2]; /* mean over ranks: of the first side, of the second */
};

struct dtp_diff_place { /* a task on each side; NULL: none */
    bool found;
    int rank;
    uint32_t index; /* in the order of the rank */
    const struct dtp_tasks_task *task[2];
};

struct dtp_diff_pair {
    int rank;
    const struct dtp_tasks_task *task[2];
    double less_s; /* the second's duration less the first's */
};

enum dtp_diff_mode { DTP_DIFF_NAMES, DTP_DIFF_KINDS, DTP_DIFF_COARSE };
extern const char *const dtp_diff_mode_words[];

struct dtp_diff {
    enum dtp_diff_mode mode;
    int nranks;          /* ranks that both have */
    double step_s[2];    /* the longest over ranks */
    double idle_s[2];    /* idle compute streams, waits for the host included, mean over ranks */
    double waiting_s[2]; /* in collectives, mean over ranks */
    struct dtp_diff_kind *kind; /* the largest difference first */
    size_t nkinds;
    struct dtp_diff_place order, time;
    struct dtp_diff_pair *pair; /* the largest difference first, at most DTP_DIFF_PAIRS */
    size_t npairs;
    uint64_t npaired, nonly[2];
};
enum { DTP_DIFF_PAIRS = 10 };

/* step: number of the step on each side; -1: the last. DTP_ENO where they have no rank in common. */
enum dtp_status dtp_diff(struct dtp_arena *a, const struct dtp_tasks *const side[2],
                         const int step[2], struct dtp_diff *out, struct dtp_err *err);
/* Returns the seconds of a task without waiting for others. */
double dtp_diff_cost_s(const struct dtp_tasks_task *k);

/* Returns what a GPU kernel is for, by its name: "product", "attention", "attention backward", "norm", "norm
 * backward", "optimizer", or "elementwise" for all else. */
const char *dtp_diff_kernel_kind(const char *name);

#endif
