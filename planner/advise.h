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

/* Whether the framework has a legal plan of the report's problem within its limits; context: the report. */
bool dtp_legal_there(const struct dtp_framework *f, const void *context);

/* Values of one field over the candidates of a space, sorted. Returns how many, at most `most`. */
int dtp_space_values(const struct dtp_space *space, enum dtp_limit limit, int *out, int most);

#endif
