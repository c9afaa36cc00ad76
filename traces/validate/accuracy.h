/* accuracy.h: the validated error of each stack, as `dtplan validate --accuracy FILE` wrote it.
 *
 * Data: traces/measured/accuracy.json, one entry per (framework, GPU family, experts or none) and one for
 * all runs: number
 * of runs, mean and 90th percentile of |predicted / measured - 1|, bias; the same for the peak of
 * memory. What a prediction's expected range is made of.
 */
#ifndef DTP_TRACES_VALIDATE_ACCURACY_H
#define DTP_TRACES_VALIDATE_ACCURACY_H

#include "traces/validate/validate.h"

struct dtp_accuracy {
    const char *framework, *gpu; /* "" in the entry for all runs */
    bool experts;                /* models with experts alone */
    int rows;
    double mape, p90, bias; /* ratios */
    int memory_rows;
    double memory_mape, memory_p90;
};

/* Below, a stack has no error of its own: the next of n + 1 errors exceeds the n others with a
 * probability of 1 / (n + 1), so that fewer than eight or nine say nothing of the 90th percentile. */
enum { DTP_FEW_RUNS = 8 };

/* The entry of a stack. One with fewer than DTP_FEW_RUNS runs is expected to err like three of four
 * others: the entry of all runs, its p90 replaced by the upper quartile of the stacks' own (over the
 * runs themselves, the stack with the most rows would decide: a sweep of a thousand). The same for the
 * peak of memory, by the runs that have one. */
enum dtp_status dtp_accuracy_of(struct dtp_arena *a, const char *framework, const char *gpu,
                                bool experts, struct dtp_accuracy *out, struct dtp_err *err);
void dtp_accuracy_write(struct dtp_arena *a, FILE *f, const struct dtp_validation *v);

#endif
