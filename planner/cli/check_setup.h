/* check_setup.h: options of dtplan check, and the problem that they ask for: on CPU ranks with a
 * calibration of this machine, on GPUs with the card's cluster and the times of our own kernels. */
#ifndef DTP_PLANNER_CLI_CHECK_SETUP_H
#define DTP_PLANNER_CLI_CHECK_SETUP_H

#include <string.h>

#include "planner/check.h"
#include "planner/cli/cli.h"

struct dtp_check_own {
    const char *backend, *calibration, *predictions, *results, *svg;
    int steps, layouts, skip;
    bool cover, shadow;
    int runners_up;
};

static inline bool dtp_check_on_gpus(const struct dtp_check_own *own) {
    return strcmp(own->backend, "cuda") == 0;
}
/* Also c->machine, versions and calibrate_s. */
enum dtp_status dtp_check_set_up(struct dtp_cli *cli, struct dtp_ask ask, struct dtp_check *c,
                                 struct dtp_setup *setup, struct dtp_err *err);
/* Ranks do their own communication, in order: said in the plan, so that the executor does it too. */
struct dtp_plan dtp_check_resolved(const struct dtp_plan *p, const struct dtp_framework *f);
double dtp_check_now_s(void);

/* check_shadow.c: --shadow */
extern const struct dtp_form dtp_check_shadow_form;
enum dtp_status dtp_check_shadow(struct dtp_cli *cli, struct dtp_check *c, struct dtp_err *err);

#endif
