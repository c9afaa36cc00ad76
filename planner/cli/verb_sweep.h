/* verb_sweep.h: one model on several numbers of GPUs, clusters and frameworks: the best plan of each, beside what
 * it costs.
 *
 *     days      = tokens / (tokens/s) / 86400 / the part of the time that trains (traces/jobs/failures.h)
 *     GPU-hours = GPUs x hours,  cost = GPU-hours x price of the cluster
 *     scaling   = tokens/s per GPU over that of the first row of its cluster and framework that fits
 *
 * A row is on the front where no other is at least as fast and as cheap, and better in one of the two. Without
 * prices GPU-hours stand for the cost. Everything lives in the arena of the program.
 */
#ifndef DTP_PLANNER_CLI_VERB_SWEEP_H
#define DTP_PLANNER_CLI_VERB_SWEEP_H

#include "planner/cli/cli.h"
#include "planner/report.h"

struct dtp_sweep_row {
    const char *cluster, *framework; /* as asked */
    int gpus;
    double price;                  /* a GPU-hour; 0: not given */
    const struct dtp_setup *setup; /* NULL: the cluster or the framework cannot have it */
    const struct dtp_result *best; /* NULL: nothing fits */
    const char *reason;            /* why best is NULL */
    double days, gpu_hours, cost;  /* 0: without tokens, without a price */
    double scaling;
    bool front;
};

struct dtp_sweep {
    const char *model; /* as asked */
    struct dtp_sweep_row *row;
    int n;
    double tokens, deadline_s;    /* 0: none */
    struct dtp_failures failures; /* zero: none */
    bool priced;
    int fastest, cheapest,
        within; /* rows; -1: none. within: the cheapest that meets the deadline */
};

void dtp_sweep_text(struct dtp_cli *cli, const struct dtp_sweep *s);
extern const struct dtp_form dtp_sweep_form;
void dtp_sweep_csv(FILE *f, const struct dtp_sweep *s);

#endif
