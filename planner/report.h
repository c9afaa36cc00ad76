/* report.h: what the search found, for people and for programs.
 *
 * Text: a header line with everything that was assumed; the best plan as a line that can be fed back;
 * its time, use of the GPU, bubble and days; where the step goes; memory by stage and by ZeRO stage;
 * the next best layouts, each with the reason why it lost; the counts of the search.
 * JSON as CLI.md says, CSV with every candidate, HTML as one self-contained page.
 *
 * `Why it lost` compares the breakdowns of two steps, which both add up to their step time: each term's
 * difference is given in percent of the best step.
 */
#ifndef DTP_PLANNER_REPORT_H
#define DTP_PLANNER_REPORT_H

#include "planner/search.h"
#include "planner/setup.h"
#include "planner/term.h"
#include "traces/jobs/failures.h"

struct dtp_report {
    const struct dtp_setup *setup;
    const struct dtp_search *search; /* NULL in a report on one plan */
    const struct dtp_limits *limits; /* the user's, or NULL */
    double tokens;                   /* budget, 0: the model's */
    struct dtp_failures failures;    /* without any: zero */
    int seed;
};

/* Sets why_not of every result but the first, and of the near misses. Text in `a`. */
void dtp_report_explain(struct dtp_arena *a, const struct dtp_problem *problem,
                        struct dtp_search *search);
/* Returns "+4.1 % pipeline bubble, +1.2 % recomputation" for `other` against `best`. */
const char *dtp_report_why(struct dtp_arena *a, const struct dtp_result *best,
                           const struct dtp_result *other);

/* The run that trains the tokens with the best plan; days = 0: no tokens are known. */
struct dtp_training {
    double tokens, days;        /* without interruptions */
    double days_with_failures;  /* days where none is to be expected; 0: no progress */
    struct dtp_goodput goodput; /* zero where none is assumed */
};
struct dtp_training dtp_report_training(const struct dtp_report *r, const struct dtp_result *best);
/* The whole report; dtp_report_explain() was called before. */
void dtp_report_text(struct dtp_arena *a, const struct dtp_term *t, const struct dtp_report *r);
/* The part on one plan, for `simulate`. */
void dtp_report_result(struct dtp_arena *a, const struct dtp_term *t, const struct dtp_report *r,
                       const struct dtp_result *result);
/* Layers of the virtual stages in order, "2 x 7, 3 x 8, 2", or NULL where all have as many. */
const char *dtp_uneven_layers(struct dtp_arena *a, const struct dtp_model *m,
                              const struct dtp_plan *p);
/* "gpt175b (174.6B parameters) on 1,024 GPUs of ..., batch 1536, bf16, memory limit 76.2 GiB of ..." */
const char *dtp_problem_words(struct dtp_arena *a, const struct dtp_report *r);
/* Lists what a reader should know before trusting the figures; ends with NULL. */
const char *const *dtp_report_warnings(struct dtp_arena *a, const struct dtp_problem *p,
                                       const struct dtp_result *result);
void dtp_report_header(struct dtp_arena *a, const struct dtp_term *t, const struct dtp_report *r);
/* Returns "tp 8 x pp 16 x dp 8, interleaved with 6 chunks, microbatch 1, ...". */
const char *dtp_plan_words(struct dtp_arena *a, const struct dtp_plan *p);
/* Returns "14 of 32 layers recomputed. Without (--recompute-layers 0): 8.80 s, +4.2 %" for the best plan of a search,
 * or NULL if nothing is unusual. */
const char *dtp_unusual_words(struct dtp_arena *a, const struct dtp_report *r,
                              const struct dtp_result *best);
/* "full", "full 14" where only so many layers of a chunk are. Returns buf. */
const char *dtp_recompute_text(const struct dtp_plan *p, char *buf, size_t size);
/* Returns options that a shell accepts: "--model gpt175b --gpus 1024 --tp 8 ...". */
const char *dtp_report_flags(struct dtp_arena *a, const struct dtp_setup *setup,
                             const struct dtp_plan *p);
extern const struct dtp_form dtp_answer_form, dtp_one_plan_form;
void dtp_report_json(struct dtp_arena *a, FILE *f, const struct dtp_report *r);
/* One simulated plan in the same form, without runners-up and search. */
void dtp_report_result_json(FILE *f, const struct dtp_report *r, const struct dtp_result *result);
/* Write names and values of a plan's searched fields, each with a comma after it; NULL: empty values. */
void dtp_plan_csv_head(FILE *f);
void dtp_plan_csv(FILE *f, const struct dtp_plan *p);
/* Every plan of the space: those that fit first, fastest first, then those over memory, then the refused ones. */
void dtp_report_csv(struct dtp_arena *a, FILE *f, const struct dtp_report *r);
void dtp_report_html(struct dtp_arena *a, FILE *f, const struct dtp_report *r);

/* Terms of the breakdown in order, with words for people. */
enum {
#define X(field, ...) DTP_TERM_##field,
    DTP_BREAKDOWN_LIST(X)
#undef X
        DTP_NTERMS
};
extern const char *const dtp_term_words[DTP_NTERMS];
/* Seconds. */
double dtp_breakdown_term(const struct dtp_breakdown *b, int term);

#endif
