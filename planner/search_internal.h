/* search_internal.h: what search.c, search_check.c and search_layouts.c share. */
#ifndef DTP_PLANNER_SEARCH_INTERNAL_H
#define DTP_PLANNER_SEARCH_INTERNAL_H

#include "planner/search.h"

enum {
    DTP_MOST_LAYOUTS = 32,
    DTP_MOST_SIMULATED_WAVE = 64,
    DTP_MOST_MISSED = 2 /* times the limit: what takes more memory is no near miss */
};

/* A legal plan on its way through the fidelities. */
struct contender {
    struct dtp_legal *legal;
    uint64_t number;
    double bound_s, estimate_s; /* 0: not known */
    struct dtp_result *result;  /* NULL: not simulated */
    struct dtp_err *failure;    /* its simulation failed; NULL: no */
};

struct searcher {
    struct dtp_arena *a;
    const struct dtp_problem *problem;
    struct dtp_search_options options;
    struct dtp_search *out;
    struct dtp_evaluator **evaluator; /* [jobs] */
    struct dtp_arena **arena;         /* [jobs] */
    struct contender *contender;      /* by (bound, number) */
    size_t ncontenders, next;         /* next: the first that was not looked at for an estimate */
    double *best;                     /* [top] best estimates, ascending */
    int nbest;
    double best_simulated_s;
    const struct dtp_err *failure; /* the first plan too large, or what ends the search */
    struct contender **wave;       /* contenders of the running pool */
    struct contender *bounded;     /* the same */
};

/* Returns the evaluator of the thread, made when it is first asked for. */
struct dtp_evaluator *dtp_search_evaluator(struct searcher *s, int thread);
/* Frees it and all that it remembers. */
void dtp_search_forget(struct searcher *s, int thread);
/* CHECK: fills reason, legal, nfit, leanest and counts of s->out. */
void dtp_search_check(struct searcher *s);
/* The legal plans that fit, by (bound, number); or those over it up to DTP_MOST_MISSED x limit, by (bytes, number). */
void dtp_search_gather(struct searcher *s, bool fits, struct contender **out, size_t *out_n);
/* The bounds of those of the list that have none yet. */
void dtp_search_bound(struct searcher *s, struct contender *list, size_t n);
/* Counts the verdicts. */
void dtp_search_count(struct dtp_search *out);
void dtp_search_estimate(struct searcher *s, struct contender **wave, size_t n);
/* The best plan by estimate of each of the next layouts, best layout first. Returns how many. */
size_t dtp_search_layouts(struct searcher *s, struct contender **out);
/* The best by estimate of the usual plans; NULL: there is none. */
struct contender *dtp_search_usual(struct searcher *s);

#endif
