#include "planner/cli/check_terms.h"

#include <ctype.h>
#include <string.h>

#include "runtime/device/backend.h"
#include "planner/cli/timeline_file.h"
#include "traces/tasks/tasks_simulated.h"

enum { FORWARD, BACKWARD, OPTIMIZER, WAITS };
static const char *const names[DTP_CHECK_TERMS] = {"forward", "backward", "optimizer", "waits"};

static void name_terms(struct dtp_check_row *row) {
    for (int i = 0; i < DTP_CHECK_TERMS; i++)
        row->term[i].name = names[i];
}

/* ---- predicted ---- */

/* Seconds of all ranks by task. */
static void sum_tasks(const struct dtp_lowered *lo, const struct dtp_timeline *t,
                      double sum_s[DTP_NTASKS]) {
    for (dtp_id x = 0; x < t->ntasks; x++)
        sum_s[dtp_tag_unpack(lo->graph.tag[x]).kind] += t->end_s[x] - t->start_s[x];
}

/* What the phases wait, in all virtual stages and microbatches: forward, backward. */
static void waits_of(const struct dtp_costs *c, bool beside, double out_s[2]) {
    out_s[0] = out_s[1] = 0;
    for (int vs = 0; vs < c->nstages; vs++) {
        const struct dtp_stage_cost *s = &c->stage[vs];
        out_s[0] += c->m * (s->f.pp_s + (beside ? 0 : s->f.dp_s));
        out_s[1] += c->m * (s->i.pp_s + (beside ? 0 : s->i.dp_s + s->w.dp_s));
    }
}

enum dtp_status dtp_check_predict(struct dtp_check_terms *t, struct dtp_check_row *row,
                                  struct dtp_err *err) {
    struct dtp_arena *a = dtp_arena_create("prediction");
    struct dtp_lowered *lo = NULL;
    struct dtp_timeline *timeline = NULL;
    struct dtp_simulate_options options = {.out_lowered = &lo, .out_timeline = &timeline};
    struct dtp_result result;
    enum dtp_status status =
        dtp_evaluate(a, t->ev, &row->plan, DTP_SIMULATE, &options, &result, err);
    if (status == DTP_OK && lo && timeline) {
        struct dtp_costs costs;
        double sum_s[DTP_NTASKS] = {0}, waits_s[2], n = lo->nranks;
        double stages = n / row->plan.pp;
        dtp_costs(a, t->memo, &row->plan, &costs);
        sum_tasks(lo, timeline, sum_s);
        waits_of(&costs, t->beside, waits_s);
        name_terms(row);
        row->predicted_s = result.step_s;
        row->predicted_peak_bytes = result.peak_bytes;
        row->term[FORWARD].predicted_s = (sum_s[DTP_T_F] - stages * waits_s[0]) / n;
        row->term[BACKWARD].predicted_s =
            (sum_s[DTP_T_B] + sum_s[DTP_T_I] + sum_s[DTP_T_W] - stages * waits_s[1]) / n;
        row->term[OPTIMIZER].predicted_s = sum_s[DTP_T_OPTIM] / n;
        row->term[WAITS].predicted_s = result.step_s;
        for (int i = 0; i < WAITS; i++)
            row->term[WAITS].predicted_s -= row->term[i].predicted_s;
    }
    dtp_arena_destroy(a);
    return status;
}

/* ---- measured ---- */

/* The action of "0F3", "1RB12": the letters between two numbers; "" for other events. */
static const char *action_of(const char *name, char out[4]) {
    size_t digits = strspn(name, "0123456789"), n = 0;
    memset(out, 0, 4);
    while (n < 3 && isupper((unsigned char)name[digits + n]))
        n++;
    if (digits == 0 || n == 0 || strspn(name + digits + n, "0123456789") == 0)
        return out;
    memcpy(out, name + digits, n);
    return out;
}

static int term_of(const struct dtp_run_event *e) {
    char action[4];
    action_of(e->name, action);
    if (strncmp(e->name, "dp ", 3) == 0 || strncmp(e->name, "embedding ", 10) == 0 ||
        strncmp(e->name, "norm ", 5) == 0)
        return WAITS;
    if (strchr(e->name, ' '))
        return -1; /* tp, and a layer that is computed again: inside its action */
    if (strcmp(action, dtp_action_names[DTP_A_F]) == 0)
        return FORWARD;
    if (strcmp(action, dtp_action_names[DTP_A_B]) == 0 ||
        strcmp(action, dtp_action_names[DTP_A_I]) == 0 ||
        strcmp(action, dtp_action_names[DTP_A_W]) == 0)
        return BACKWARD;
    return strcmp(action, dtp_action_names[DTP_A_OPTIM]) == 0 ? OPTIMIZER : -1;
}

static bool inside(const struct dtp_run_event *e, const struct dtp_run_event *outer) {
    return e->rank == outer->rank && e->start_s >= outer->start_s &&
           e->start_s + e->dur_s <= outer->start_s + outer->dur_s;
}

void dtp_check_measure(struct dtp_check_row *row, const struct dtp_run_result *r, bool beside) {
    double sum_s[DTP_CHECK_TERMS] = {0};
    const struct dtp_run_event *outer = NULL; /* the last F, B, I, W or OPTIM */
    for (size_t i = 0; i < r->nevents; i++) {
        const struct dtp_run_event *e = &r->event[i];
        int term = term_of(e), of = outer ? term_of(outer) : -1;
        if (term == WAITS && outer && (!beside || of == OPTIMIZER) && inside(e, outer))
            sum_s[of] -= e->dur_s;
        if (term < 0 || term == WAITS)
            continue;
        sum_s[term] += e->dur_s;
        outer = e;
    }
    name_terms(row);
    row->term[WAITS].measured_s = r->step_s_each[r->steps - 1];
    for (int i = 0; i < WAITS; i++) {
        row->term[i].measured_s = sum_s[i] / r->nranks;
        row->term[WAITS].measured_s -= row->term[i].measured_s;
    }
}

double dtp_action_mean_s(const struct dtp_run_result *r, int kind, int *count) {
    double sum_s = 0;
    char action[4];
    *count = 0;
    for (size_t i = 0; i < r->nevents; i++) {
        if (strchr(r->event[i].name, ' ') ||
            strcmp(action_of(r->event[i].name, action), dtp_action_names[kind]) != 0)
            continue;
        sum_s += r->event[i].dur_s;
        ++*count;
    }
    return *count > 0 ? sum_s / *count : 0;
}

/* ---- both timelines ---- */

enum dtp_status dtp_check_tasks(struct dtp_arena *a, const struct dtp_problem *problem,
                                const struct dtp_plan *plan, const struct dtp_run_result *r,
                                struct dtp_tasks **out, struct dtp_err *err) {
    struct dtp_simulate_options options = {.no_fold = true};
    struct dtp_result result;
    struct dtp_evaluator *ev = dtp_evaluator_create(a, problem);
    DTP_TRY(dtp_tasks_simulate(a, ev, plan, &options, &result, out, err));
    struct dtp_tasks *t = *out;
    for (size_t i = 0; i < t->nranks; i++)
        t->rank[i].name = dtp_arena_printf(a, "rank %d, predicted", t->rank[i].rank);
    const struct dtp_tasks *measured = dtp_cli_run_tasks(a, plan, r, "measured");
    for (int i = 0; i < r->nranks; i++)
        dtp_tasks_rank(t, r->nranks + i, dtp_arena_printf(a, "rank %d, measured", i));
    dtp_tasks_append(t, measured, r->nranks);
    return DTP_OK;
}
