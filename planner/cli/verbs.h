/* verbs.h: the rows of the table of verbs, each from the file of its name. */
#ifndef DTP_PLANNER_CLI_VERBS_H
#define DTP_PLANNER_CLI_VERBS_H

#include "planner/cli/cli.h"

extern const struct dtp_verb dtp_verb_plan, dtp_verb_simulate, dtp_verb_explain, dtp_verb_compare,
    dtp_verb_models, dtp_verb_clusters, dtp_verb_frameworks, dtp_verb_schedules,
    dtp_verb_collectives, dtp_verb_collective, dtp_verb_validate, dtp_verb_replay, dtp_verb_trace,
    dtp_verb_infer, dtp_verb_jobs, dtp_verb_calibrate, dtp_verb_check, dtp_verb_doctor,
    dtp_verb_run, dtp_verb_sweep, dtp_verb_help;

#endif
