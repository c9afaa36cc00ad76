/* explain_private.h: private to explain*.c: what the rank of a stage does in a step. */
#ifndef DTP_PLANNER_CLI_EXPLAIN_PRIVATE_H
#define DTP_PLANNER_CLI_EXPLAIN_PRIVATE_H

#include "models/evaluate/evaluate.h"
#include "models/schedule/schedule.h"

/* One operation of the rank, over a whole step. */
struct dtp_budget_row {
    const struct dtp_op *op;
    const char *layer; /* kind of layer */
    const char *pass;
    double times; /* launches in a step */
    double time_s, flops, bytes;
    double of_peak;    /* of the dense peak or of nominal HBM bandwidth; NAN: neither */
    bool extrapolated; /* a product of a size that was not measured */
};

struct dtp_budget {
    const struct dtp_problem *problem;
    const struct dtp_plan *plan;
    struct dtp_arena *a;
    struct dtp_budget_row *row;
    size_t n, capacity;
    double time_s, compute_s;
};

/* All operations of a pipeline stage's rank, equal ones in one row. */
void dtp_budget_fill(struct dtp_budget *b, int stage);

#endif
