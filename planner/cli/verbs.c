#include "planner/cli/verbs.h"

#include <string.h>

/* clang-format off */
const struct dtp_verb *const dtp_verbs[] = {
    &dtp_verb_plan,
    &dtp_verb_sweep,
    &dtp_verb_simulate,
    &dtp_verb_explain,
    &dtp_verb_compare,
    &dtp_verb_validate,
    &dtp_verb_trace,
    &dtp_verb_replay,
    &dtp_verb_infer,
    &dtp_verb_jobs,
    &dtp_verb_calibrate,
    &dtp_verb_doctor,
    &dtp_verb_run,
    &dtp_verb_check,
    &dtp_verb_models,
    &dtp_verb_clusters,
    &dtp_verb_frameworks,
    &dtp_verb_schedules,
    &dtp_verb_collectives,
    &dtp_verb_collective,
    &dtp_verb_help,
    NULL};
/* clang-format on */

const struct dtp_verb *dtp_verb_find(const char *name) {
    for (int i = 0; dtp_verbs[i]; i++)
        if (strcmp(dtp_verbs[i]->name, name) == 0)
            return dtp_verbs[i];
    return NULL;
}
