/* limits.h: which plans the user wants to see: a set of values for each searched field.
 *
 * A set is written as people type it:  8   1,2,4   4..16   none,full   on   1..8,32
 * An empty set means "all that the space has" (space.h). Fields that are not searched (dtype,
 * offload, algorithms, overlap) are the same in every plan and stand in `fixed`.
 *
 * One table, dtp_limit_fields, names the searched fields in the order of enumeration; options,
 * --why-not and messages are made from it.
 */
#ifndef DTP_PLANNER_LIMITS_H
#define DTP_PLANNER_LIMITS_H

#include "models/evaluate/evaluate.h"

enum dtp_limit {
    DTP_LIMIT_TP,
    DTP_LIMIT_PP,
    DTP_LIMIT_CP,
    DTP_LIMIT_DP,
    DTP_LIMIT_ETP, /* before ep, which depends on it */
    DTP_LIMIT_EP,
    DTP_LIMIT_EP_OVERLAP,
    DTP_LIMIT_EP_PER_NODE,
    DTP_LIMIT_ENDS,
    DTP_LIMIT_LAST_LESS,
    DTP_LIMIT_VPP,
    DTP_LIMIT_SCHEDULE,
    DTP_LIMIT_MICROBATCH,
    DTP_LIMIT_ZERO,
    DTP_LIMIT_ZERO_GROUP,
    DTP_LIMIT_SP,
    DTP_LIMIT_RECOMPUTE,
    DTP_LIMIT_RECOMPUTE_LAYERS,
    DTP_NLIMITS
};

/* What other tools call the fields, with a blank between two. */
#define DTP_LIMIT_TP_ALIASES                                                                       \
    "tensor-parallel tensor-model-parallel-size tensor-parallel-size tp-size"
#define DTP_LIMIT_PP_ALIASES                                                                       \
    "pipeline-parallel pipeline-model-parallel-size pipeline-parallel-size pp-size"
#define DTP_LIMIT_CP_ALIASES "context-parallel context-parallel-size"
#define DTP_LIMIT_DP_ALIASES "data-parallel data-parallel-size"
#define DTP_LIMIT_EP_ALIASES "expert-parallel expert-model-parallel-size"
#define DTP_LIMIT_ETP_ALIASES "expert-tensor-parallel expert-tensor-parallel-size"
#define DTP_LIMIT_EP_OVERLAP_ALIASES NULL
#define DTP_LIMIT_EP_PER_NODE_ALIASES NULL
#define DTP_LIMIT_ENDS_ALIASES "ends"
#define DTP_LIMIT_LAST_LESS_ALIASES NULL
#define DTP_LIMIT_VPP_ALIASES                                                                      \
    "virtual-stages num-virtual-stages-per-pipeline-rank virtual-pipeline-model-parallel-size"
#define DTP_LIMIT_SCHEDULE_ALIASES NULL
#define DTP_LIMIT_MICROBATCH_ALIASES                                                               \
    "microbatch micro-batch-size micro-batch mbs per-device-train-batch-size "                     \
    "train-micro-batch-size-per-gpu local-batch-size"
#define DTP_LIMIT_ZERO_ALIASES "zero"
#define DTP_LIMIT_ZERO_GROUP_ALIASES NULL
#define DTP_LIMIT_SP_ALIASES "sp"
#define DTP_LIMIT_RECOMPUTE_ALIASES "recompute-granularity"
#define DTP_LIMIT_RECOMPUTE_LAYERS_ALIASES NULL

struct dtp_limit_field {
    const char *name;    /* key of the plan: "zero_stage" */
    const char *option;  /* "zero-stage" */
    const char *aliases; /* or NULL */
    size_t offset;       /* place of the plan's field: an int, or a bool with flag */
    bool flag;
};
extern const struct dtp_limit_field dtp_limit_fields[DTP_NLIMITS + 1]; /* ends with name NULL */

enum { DTP_MOST_RANGES = 16 };
struct dtp_select { /* n == 0: everything */
    int n;
    int lo[DTP_MOST_RANGES], hi[DTP_MOST_RANGES];
};

struct dtp_limits {
    struct dtp_select field[DTP_NLIMITS];
    struct dtp_plan fixed; /* the fields that are not searched */
};

/* Lets the field have any value, those too that are searched only when asked for. */
void dtp_limits_relax(struct dtp_limits *l, enum dtp_limit field);
struct dtp_limits dtp_limits_none(void);
static inline bool dtp_select_has(const struct dtp_select *s, int value) {
    for (int i = 0; i < s->n; i++)
        if (value >= s->lo[i] && value <= s->hi[i])
            return true;
    return s->n == 0;
}
/* place: the option, such as "--tp". Status DTP_EUSAGE. */
enum dtp_status dtp_select_parse(enum dtp_limit limit, const char *text, const char *place,
                                 struct dtp_select *out, struct dtp_err *err);
/* "tp=8,pp=5": each field one set; a comma before NAME= starts the next field. */
enum dtp_status dtp_limits_parse(struct dtp_arena *a, const char *text, const char *place,
                                 struct dtp_limits *out, struct dtp_err *err);
/* Returns the index of a searched field by key, option or an alias; -1: none. */
int dtp_limit_find(const char *name);

/* Returns the field as a number: the index of an enumeration, 0 or 1 for a flag. */
int dtp_limit_get(const struct dtp_plan *p, enum dtp_limit limit);
void dtp_limit_set(struct dtp_plan *p, enum dtp_limit limit, int value);
/* The value as people write it: "8", "interleaved", "selective", "on". Returns buf. */
const char *dtp_limit_text(enum dtp_limit limit, int value, char *buf, size_t size);

#endif
