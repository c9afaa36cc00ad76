/* advise.h: when the answer is no: the reason, and the nearest that works; and why not another plan.
 *
 *     no plan of gpt175b splits a batch of 1537 on 1,024 GPUs; nearest that work: a batch of 1536
 *     gpt1t does not fit on 8 GPUs: the leanest plan needs 1,912 GiB of 74.6 GiB; 256 GPUs are enough
 *     --pp 5 leaves no plan; values that do: 1, 2, 4, 8, 16, 32, 64
 */
#ifndef DTP_PLANNER_ADVISE_H
#define DTP_PLANNER_ADVISE_H

#include "planner/report.h"

/* Why a search found nothing, as one line. The search has nresults 0. */
const char *dtp_advise(struct dtp_arena *a, const struct dtp_report *r);

/* --why-not: reports what became of the plans with these fields, compared with the best plan of the search;
 * if the space has none, it reports those with the nearest values. */
enum dtp_status dtp_why_not(struct dtp_arena *a, const struct dtp_term *t,
                            const struct dtp_report *r, const struct dtp_limits *fields,
                            const struct dtp_search_options *options, struct dtp_err *err);

#endif
