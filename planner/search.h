/* search.h: the fastest plan that fits, exactly.
 *
 * CHECK     every candidate: legal (with the reason if not), device bytes, BOUND where it fits; where it
 *           recomputes the fewest layers that fit, their number, by halving: memory falls as they grow
 * ESTIMATE  legal plans that fit, in order of (bound, number), in waves of a fixed size, until the
 *           bounds exceed the `top`-th best estimate: what is left cannot be among the `top` best
 * SIMULATE  the `top` best estimates; then on, as long as a plan's estimate or, where it has none, its
 *           bound is below the best simulated time
 * BOUND <= ESTIMATE <= SIMULATE makes the winner that of simulating everything. Ties go to the lower
 * number. The sizes of waves are constants, results go to slots by number and thresholds move between
 * waves only: any number of threads gives the same bytes.
 *
 * A `layout` is what (tp, pp, cp, ep, etp) fix. The best plan of each of the next layouts is simulated too,
 * so that the report can show different plans rather than one plan in many shades; it is the best of
 * its layout by ESTIMATE. Where the best plan has settings that few use (dtp_plan_is_usual), so is the best without.
 * Of a large space most is settled many candidates at a time: what refuses one microbatch or one division refuses all
 * that share it, memory grows with the microbatch, and what is far slower than plans known so far is not kept.
 * Verdicts: candidates = illegal + over_memory + bounded + estimated.
 */
#ifndef DTP_PLANNER_SEARCH_H
#define DTP_PLANNER_SEARCH_H

#include "planner/space.h"

enum dtp_verdict {
    DTP_VERDICT_ILLEGAL,
    DTP_VERDICT_OVER_MEMORY,
    DTP_VERDICT_BOUNDED, /* its bound says it cannot win */
    DTP_VERDICT_ESTIMATED,
    DTP_VERDICT_SIMULATED, /* counted among the estimated ones too */
    DTP_NVERDICTS
};
extern const char *const dtp_verdict_names[];

/* Called between waves on the calling thread: what is going on, how far (0 .. 1). */
typedef void dtp_progress_fn(void *ctx, const char *what, double done);

struct dtp_search_options {
    int jobs;         /* threads, < 1: one a processor */
    int top;          /* plans simulated at least; 0: DTP_DEFAULT_TOP */
    int layouts;      /* other layouts shown; < 0: none; 0: DTP_DEFAULT_LAYOUTS */
    size_t most_kept; /* legal plans, before slow ones are left out; 0: DTP_DEFAULT_KEPT */
    bool no_fold;
    bool
        every; /* keeps every candidate: its reason, or its bytes and bound, whether it fits or not */
    enum dtp_detail detail;
    double most_bytes;         /* a simulation takes no more (lower.h); 0: what the machine has */
    dtp_progress_fn *progress; /* may be NULL */
    void *progress_ctx;
};
enum { DTP_DEFAULT_TOP = 16, DTP_DEFAULT_LAYOUTS = 5, DTP_DEFAULT_KEPT = 1 << 14 };

struct dtp_counts {
    uint64_t candidates, illegal, over_memory, bounded, estimated, simulated;
    uint64_t too_large;            /* estimated, but this machine has no memory to simulate them */
    uint64_t reason[DTP_NREASONS]; /* illegal candidates by reason */
    double seconds;                /* wall clock */
};

/* What is known of a legal plan. */
struct dtp_legal {
    uint64_t number, device_bytes;
    double bound_s, time_s; /* 0: not known; time_s: of the highest fidelity that was run */
    int recompute_layers;   /* the plan's, if the candidate has DTP_FEWEST_LAYERS */
    enum dtp_verdict verdict;
};

struct dtp_search {
    struct dtp_space space;
    struct dtp_counts counts;
    uint8_t
        *reason; /* by number of the candidate: enum dtp_reason; NULL unless every one is kept */
    struct dtp_legal *legal; /* by number: those that could matter (search_check.c), or every one */
    size_t nlegal;
    uint64_t nfit; /* legal plans that fit, kept or not */
    /* simulated plans, fastest first; rank 0 is the best */
    struct dtp_result *result;
    uint64_t *number; /* [nresults] their plans */
    size_t nresults;
    bool *new_layout; /* [nresults] the first of its layout */
    /* over memory, but faster than the best if they fitted: of a few that are simulated the one that
     * misses least, and the fastest */
    struct dtp_result near_miss[2];
    int nnear_misses;
    /* the legal plan of the fewest device_bytes: what the report of "nothing fits" names; NULL: nothing is legal */
    const struct dtp_legal *leanest;
    const struct dtp_result
        *usual; /* first of result[] with dtp_plan_is_usual(), if the best is not so */
};

/* Everything in *out lives in `a`. Status DTP_OK also when nothing fits: then nresults is 0. */
enum dtp_status dtp_search(struct dtp_arena *a, const struct dtp_problem *problem,
                           const struct dtp_limits *limits,
                           const struct dtp_search_options *options, struct dtp_search *out,
                           struct dtp_err *err);
/* Fills in the plan of a legal candidate. */
void dtp_search_plan(const struct dtp_search *search, const struct dtp_legal *legal,
                     struct dtp_plan *out);
/* Divides layers as frameworks do by themselves, and recomputes all of them or none. */
static inline bool dtp_plan_is_usual(const struct dtp_plan *p) {
    return p->last_stage_less == 0 && p->recompute_layers == 0;
}
/* The k-th most frequent reason of the illegal plans (k = 0: the first), or -1: there are no more. */
int dtp_counts_reason(const struct dtp_counts *c, int k);
/* The first candidate that is legal and fits; false when there is none. What `nearest that works` asks. */
bool dtp_search_any(const struct dtp_problem *problem, const struct dtp_limits *limits,
                    struct dtp_plan *out);

#endif
