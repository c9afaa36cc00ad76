/* The pipeline schedule of a measured run, from what its source calls it. */
#include <string.h>

#include "models/schedule/schedule.h"
#include "sim/base/text.h"
#include "traces/validate/measured_private.h"

/* A text that names no schedule is one of 1F1B, and says so. */
static int find_schedule(struct dtp_arena *a, const struct dtp_run *run, struct dtp_run_case *c) {
    int kind = dtp_schedule_find(run->schedule), n = 0;
    if (kind >= 0 || !*run->schedule)
        return kind >= 0 ? kind : dtp_schedule_usual(1);
    if (strstr(run->schedule, "nterleaved"))
        return dtp_schedule_usual(2);
    if (c->plan.pp > 1) {
        while (dtp_schedule_names[n])
            n++;
        int near = dtp_nearest_name(run->schedule, dtp_schedule_names, (size_t)n);
        const char *hint =
            near < 0 ? "" : dtp_arena_printf(a, " (near: %s)", dtp_schedule_names[near]);
        c->unknown_schedule = dtp_arena_printf(a, "schedule \"%s\" is not known%s: taken as 1f1b",
                                               run->schedule, hint);
        dtp_run_note(a, c, c->unknown_schedule);
    }
    return dtp_schedule_usual(1);
}

/* The schedule with chunks that it takes: more than one without a schedule that has them are interleaved. */
void dtp_run_set_schedule(struct dtp_arena *a, const struct dtp_run *run, struct dtp_run_case *c) {
    struct dtp_plan *p = &c->plan;
    p->schedule = find_schedule(a, run, c);
    bool chunked = dtp_schedule_kinds[p->schedule].chunked;
    if (p->pp > 1 && p->vpp > 1 && !chunked)
        p->schedule = dtp_schedule_usual(p->vpp);
    if (p->pp > 1 && chunked && run->vpp <= 0) {
        p->vpp = 2;
        dtp_run_note(a, c, "2 virtual stages assumed");
    }
    if (!dtp_schedule_kinds[p->schedule].chunked || (p->vpp == 1 || p->pp == 1)) {
        p->vpp = 1;
        p->schedule = dtp_schedule_kinds[p->schedule].chunked ? dtp_schedule_usual(1) : p->schedule;
    }
    const char *why =
        dtp_schedule_applies(p->schedule, p->pp, p->vpp, dtp_plan_num_microbatches(p));
    if (why && p->pp > 1) {
        p->vpp = 1;
        p->schedule = dtp_schedule_usual(1);
        dtp_run_note(a, c, dtp_arena_printf(a, "1F1B taken: %s", why));
    }
}
