/* collective.h: what the two verbs on collectives share. */
#ifndef DTP_PLANNER_CLI_COLLECTIVE_H
#define DTP_PLANNER_CLI_COLLECTIVE_H

#include "planner/cli/cli.h"

/* "2 x (n-1) steps: NEXT by 1, 1/8 of the buffer" of each step, joined. Returns buf. */
const char *dtp_steps_text(const struct dtp_step *steps, int n, char *buf, size_t size);

#endif
