/* check_shadow.c: what a step consists of, predicted and measured; and --shadow: ranks of a job of many GPUs, one at
 * a time on one GPU. */
#include <ctype.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "models/schedule/schedule.h"
#include "planner/cli/check_internal.h"
#include "planner/cli/timeline_file.h"
#include "planner/report.h"
#include "planner/search.h"
#include "runtime/device/backend.h"
#include "runtime/parameters.h"
#include "sim/base/text.h"
#include "sim/base/units.h"
#include "traces/tasks/tasks_simulated.h"

/* ---- terms ---- */

enum { FORWARD, BACKWARD, OPTIMIZER, WAITS };
static const char *const names[DTP_CHECK_TERMS] = {"forward", "backward", "optimizer", "waits"};

static void name_terms(struct dtp_check_row *row) {
    for (int i = 0; i < DTP_CHECK_TERMS; i++)
        row->term[i].name = names[i];
}

/* ---- predicted ---- */

/* Sums the seconds of all ranks by task. */
static void sum_tasks(const struct dtp_lowered *lo, const struct dtp_timeline *t,
                      double sum_s[DTP_NTASKS]) {
    for (dtp_id x = 0; x < t->ntasks; x++)
        sum_s[dtp_tag_unpack(lo->graph.tag[x]).kind] += t->end_s[x] - t->start_s[x];
}

/* Sums the waits in the phases over all virtual stages and microbatches: forward, backward. */
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
        return -1; /* tp, and a recomputed layer: inside its action */
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

/* ---- --shadow ---- */

enum { STAGES = 3, KINDS = 4 };
static const int kinds[KINDS] = {DTP_A_F, DTP_A_B, DTP_A_I, DTP_A_W};

/* One rank of a plan. */
struct shadow {
    const struct dtp_plan *plan; /* the search's */
    struct dtp_plan run;         /* with fewer microbatches: the steady state repeats */
    int stage, rank;
    double predicted_s[KINDS], measured_s[KINDS]; /* mean of an action; 0: has none */
    int count[KINDS];
    uint64_t predicted_bytes, measured_bytes;
    double clock_hz, power_w;
    const char *failure;
};

struct shadows {
    struct dtp_cli *cli;
    struct dtp_check *c;
    struct dtp_setup *setup;
    struct dtp_result *plan; /* [nplans], of the search */
    size_t nplans, nrows;
    struct shadow *row; /* plan by plan */
    double mape_action_pct, mape_peak_pct;
};

/* ---- plans ---- */

static enum dtp_status read_plan(struct shadows *x, struct dtp_err *err) {
    struct dtp_cli *cli = x->cli;
    struct dtp_document d;
    DTP_TRY(dtp_document_read(cli->a, cli->args.plan, &d, err));
    DTP_TRY(dtp_cli_plan_alone(cli, err));
    DTP_TRY(dtp_check_set_up(cli, d.ask, x->c, x->setup, err));
    x->plan = DTP_NEW(cli->a, struct dtp_result, 1);
    x->nplans = 1;
    DTP_TRY(dtp_document_plan(cli->a, &d, &x->setup->problem, &x->plan->plan, err));
    return dtp_cli_fixed(cli, &x->plan->plan, err);
}

/* Finds the best plan and the best plans of the next layouts. */
static enum dtp_status search(struct shadows *x, struct dtp_err *err) {
    enum { GPUS = 1024 };
    struct dtp_cli *cli = x->cli;
    const struct dtp_check_own *own = cli->own;
    struct dtp_ask ask = cli->args.ask;
    struct dtp_limits limits;
    const struct dtp_search_options options = {
        .jobs = cli->args.jobs, .layouts = own->runners_up > 0 ? own->runners_up : -1};
    struct dtp_search found;
    ask.model = ask.model ? ask.model : "gpt175b";
    ask.gpus = ask.gpus > 0 ? ask.gpus : GPUS;
    DTP_TRY(dtp_check_set_up(cli, ask, x->c, x->setup, err));
    DTP_TRY(dtp_cli_limits(cli, &x->setup->problem, &limits, err));
    DTP_TRY(dtp_search(cli->a, &x->setup->problem, &limits, &options, &found, err));
    if (found.nresults == 0)
        return dtp_fail(err, DTP_ENO, "no plan of %s on %d GPUs fits", x->setup->model.name,
                        ask.gpus);
    x->plan = DTP_NEW(cli->a, struct dtp_result, found.nresults);
    for (size_t i = 0; i < found.nresults && x->nplans <= (size_t)own->runners_up; i++)
        if (i == 0 || found.new_layout[i])
            x->plan[x->nplans++] = found.result[i];
    return DTP_OK;
}

/* ---- rows ---- */

/* Shortens orders, most of which repeat after about pp microbatches; those that hold all at once stay whole. */
static struct dtp_plan shortened(const struct dtp_plan *p) {
    struct dtp_plan s = *p;
    int m = dtp_plan_num_microbatches(p), most = 4 * p->pp;
    if (m > most && !dtp_schedule_holds_more(p->schedule, p->pp, p->vpp, m, most))
        s.global_batch_size = most * p->microbatch_size * p->dp;
    return s;
}

static void add_rows(struct shadows *x, const struct dtp_plan *plan) {
    const int stages[STAGES] = {0, plan->pp / 2, plan->pp - 1};
    for (int i = 0; i < STAGES; i++) {
        if (i > 0 && stages[i] <= stages[i - 1])
            continue;
        struct shadow *s = &x->row[x->nrows++];
        *s = (struct shadow){.plan = plan, .stage = stages[i]};
        s->run = dtp_check_resolved(plan, &x->setup->framework);
        s->run = shortened(&s->run);
        s->rank = dtp_layout_rank(plan, 0, 0, stages[i]);
    }
}

/* Means over the chunks of the rank. */
static void predict_actions(const struct dtp_costs *costs, const struct dtp_plan *p,
                            struct shadow *s) {
    bool split = dtp_schedule_kinds[p->schedule].split_backward;
    for (int vs = 0; vs < costs->nstages; vs++) {
        const struct dtp_stage_cost *c = &costs->stage[vs];
        int rank, chunk;
        dtp_schedule_holder(p->schedule, p->pp, p->vpp, vs, &rank, &chunk);
        if (rank != s->stage)
            continue;
        double input_s = c->i.total_s + c->r.total_s;
        s->predicted_s[0] += c->f.total_s / p->vpp;
        s->predicted_s[1] += split ? 0 : (input_s + c->w.total_s) / p->vpp;
        s->predicted_s[2] += split ? input_s / p->vpp : 0;
        s->predicted_s[3] += split ? c->w.total_s / p->vpp : 0;
    }
}

static enum dtp_status predict(struct shadows *x, struct dtp_err *err) {
    const struct dtp_problem *problem = &x->setup->problem;
    struct dtp_evaluator *ev = dtp_evaluator_create(x->cli->a, problem);
    /* Actions run on one chip, not on the slowest of the job's. */
    struct dtp_cluster one_chip = *problem->cluster;
    struct dtp_problem alone = *problem;
    one_chip.gpu.chip_spread = 0;
    alone.cluster = &one_chip;
    struct dtp_cost_memo *memo = dtp_cost_memo_create(x->cli->a, &alone);
    for (size_t i = 0; i < x->nplans; i++) {
        struct dtp_result whole;
        const struct dtp_plan p = x->plan[i].plan;
        DTP_TRY(dtp_evaluate(x->cli->a, ev, &p, DTP_SIMULATE, NULL, &whole, err));
        x->plan[i] = whole;
    }
    for (size_t i = 0; i < x->nrows; i++) {
        struct shadow *s = &x->row[i];
        struct dtp_costs costs;
        struct dtp_result result;
        DTP_TRY(dtp_evaluate(x->cli->a, ev, &s->run, DTP_SIMULATE, NULL, &result, err));
        dtp_costs(x->cli->a, memo, &s->run, &costs);
        predict_actions(&costs, &s->run, s);
        s->predicted_bytes = result.stages[s->stage].peak_bytes;
    }
    dtp_evaluator_destroy(ev);
    return DTP_OK;
}

/* ---- results ---- */

static bool measured(const struct shadow *s, int k) {
    return !s->failure && s->predicted_s[k] > 0 && s->measured_s[k] > 0;
}

/* Returns measured over predicted time for all actions of the ranks of a plan. */
static double ratio_of(const struct shadows *x, const struct dtp_plan *plan) {
    double predicted_s = 0, measured_s = 0;
    for (size_t i = 0; i < x->nrows; i++)
        for (int k = 0; k < KINDS; k++) {
            const struct shadow *s = &x->row[i];
            if (s->plan != plan || !measured(s, k))
                continue;
            predicted_s += s->count[k] * s->predicted_s[k];
            measured_s += s->count[k] * s->measured_s[k];
        }
    return predicted_s > 0 ? measured_s / predicted_s : (double)NAN;
}

/* The step if actions take as long as they were measured: they and the bubble scale. */
static double scaled_s(const struct shadows *x, const struct dtp_result *plan) {
    const struct dtp_breakdown *b = &plan->breakdown;
    double part_s = b->compute_s + b->recompute_s + b->tp_exposed_s + b->pp_bubble_s;
    return plan->step_s + (ratio_of(x, &plan->plan) - 1) * part_s;
}

static void summarise(struct shadows *x) {
    double action = 0, peak = 0;
    int nactions = 0, npeaks = 0;
    for (size_t i = 0; i < x->nrows; i++) {
        const struct shadow *s = &x->row[i];
        for (int k = 0; k < KINDS; k++)
            if (s->predicted_s[k] > 0) {
                action +=
                    measured(s, k) ? fabs(dtp_error_pct(s->predicted_s[k], s->measured_s[k])) : 100;
                nactions++;
            }
        peak += s->failure
                    ? 100
                    : fabs(dtp_error_pct((double)s->predicted_bytes, (double)s->measured_bytes));
        npeaks++;
    }
    x->mape_action_pct = nactions > 0 ? action / nactions : (double)NAN;
    x->mape_peak_pct = npeaks > 0 ? peak / npeaks : (double)NAN;
}

/* ---- JSON ---- */

/* The shadows before their runs (after NULL) or after them. */
struct document {
    const struct shadows *shadows, *after;
    const struct dtp_check *check;
    const struct dtp_problem *problem;
};
struct plan_row {
    struct dtp_plan plan;
    double step_s;
    double scaled_step_s; /* 0: before the runs */
};
struct action {
    const char *name;
    double predicted_s;
    const struct action_run *after;
};
struct action_run {
    int count;
    double measured_s;
};
struct row {
    const struct shadow *shadow, *after, *on_gpu;
};

static void put_plans(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    const struct document *d = at;
    const struct shadows *x = d->shadows;
    dtp_json_array(w);
    for (size_t i = 0; i < x->nplans; i++) {
        const struct plan_row row = {x->plan[i].plan, x->plan[i].step_s,
                                     d->after ? scaled_s(x, &x->plan[i]) : 0};
        dtp_put_object(w, f, &row);
    }
    dtp_json_end(w);
}

static void put_actions(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    const struct row *x = at;
    const struct shadow *s = x->shadow;
    dtp_json_array(w);
    for (int k = 0; k < KINDS; k++) {
        const struct action_run run = {s->count[k],
                                       measured(s, k) ? s->measured_s[k] : (double)NAN};
        const struct action action = {dtp_action_names[kinds[k]], s->predicted_s[k],
                                      x->after ? &run : NULL};
        if (s->predicted_s[k] > 0)
            dtp_put_object(w, f, &action);
    }
    dtp_json_end(w);
}

static void put_rows(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    const struct document *d = at;
    dtp_json_array(w);
    for (size_t i = 0; i < d->shadows->nrows; i++) {
        const struct shadow *s = &d->shadows->row[i], *after = d->after ? s : NULL;
        const struct row row = {s, after, s->clock_hz > 0 ? after : NULL};
        dtp_put_object(w, f, &row);
    }
    dtp_json_end(w);
}

/* clang-format off */
#define AT(member) offsetof(struct action_run, member)
static const struct dtp_field action_run_fields[] = {
    {"count", DTP_FIELD_INT, AT(count), .help = "actions that were measured"},
    {"measured_s", DTP_FIELD_DOUBLE, AT(measured_s), .help = "mean time of one"},
    {0}};
#undef AT
#define AT(member) offsetof(struct action, member)
static const struct dtp_field action_fields[] = {
    {"name", DTP_FIELD_STRING, AT(name), .help = "F, B, I, W, ..."},
    {"predicted_s", DTP_FIELD_DOUBLE, AT(predicted_s), .help = "time of one"},
    DTP_FIELD_PART_AT(AT(after), action_run_fields), {0}};
#undef AT
#define AT(member) offsetof(struct shadow, member)
static const struct dtp_field rank_fields[] = {
    DTP_FIELD_PLAN_AT(AT(run)),
    {"stage", DTP_FIELD_INT, AT(stage), .help = "pipeline stage of the rank"},
    {"rank", DTP_FIELD_INT, AT(rank), .help = "rank that ran alone"},
    {0}};
static const struct dtp_field predicted_fields[] = {
    {"predicted_peak_bytes", DTP_FIELD_U64, AT(predicted_bytes), .help = "peak of the rank"}, {0}};
static const struct dtp_field measured_fields[] = {
    {"measured_peak_bytes", DTP_FIELD_U64, AT(measured_bytes), .help = "peak of the rank"}, {0}};
static const struct dtp_field gpu_fields[] = {
    {"clock_hz", DTP_FIELD_DOUBLE, AT(clock_hz), .help = "clock of the GPU"},
    {"power_w", DTP_FIELD_DOUBLE, AT(power_w), .help = "power of the GPU"},
    {0}};
static const struct dtp_field failure_fields[] = {
    {"failure", DTP_FIELD_STRING, AT(failure), .help = "why the run failed"}, {0}};
#undef AT
#define AT(member) offsetof(struct row, member)
static const struct dtp_field row_fields[] = {
    DTP_FIELD_PART_AT(AT(shadow), rank_fields),
    {"actions", DTP_FIELD_PUT, 0, .put = put_actions, .inner = "[]", .fields = action_fields},
    DTP_FIELD_PART_AT(AT(shadow), predicted_fields), DTP_FIELD_PART_AT(AT(after), measured_fields), DTP_FIELD_PART_AT(AT(on_gpu), gpu_fields),
    DTP_FIELD_PART_AT(AT(shadow), failure_fields), {0}};
#undef AT
#define AT(member) offsetof(struct plan_row, member)
static const struct dtp_field plan_fields[] = {
    DTP_FIELD_PLAN_AT(AT(plan)),
    {"step_s", DTP_FIELD_DOUBLE, AT(step_s), .help = "predicted time of a step"},
    {"scaled_step_s", DTP_FIELD_DOUBLE, AT(scaled_step_s), .unset = DTP_UNSET_LEFT_OUT,
     .help = "time of a step by the actions as they were measured"},
    {0}};
#undef AT
#define AT(member) offsetof(struct dtp_check, member)
static const struct dtp_field steps_fields[] = {
    {"steps", DTP_FIELD_INT, AT(steps), .help = "steps that each rank ran"}, {0}};
#undef AT
static const struct dtp_field seq_fields[] = {
    {"seq", DTP_FIELD_INT, offsetof(struct dtp_problem, seq), .help = "tokens of a sequence"}, {0}};
#define AT(member) offsetof(struct shadows, member)
static const struct dtp_field summary_fields[] = {
    {"mape_action_pct", DTP_FIELD_DOUBLE, AT(mape_action_pct), .help = "mean of the absolute errors of the actions"},
    {"mape_peak_pct", DTP_FIELD_DOUBLE, AT(mape_peak_pct), .help = "mean of the absolute errors of the peak memory"},
    {0}};
#undef AT
#define AT(member) offsetof(struct document, member)
static const struct dtp_field document_fields[] = {
    DTP_FIELD_SCHEMA_VERSION, DTP_FIELD_SOURCE("dtplan check --shadow: predicted, and measured on machine"),
    DTP_FIELD_PART_AT(AT(check), dtp_check_machine_fields),
    {"model", DTP_FIELD_PUT, AT(problem), .put = dtp_put_model_name, .help = "name of the model"},
    {"cluster", DTP_FIELD_PUT, AT(problem), .put = dtp_put_cluster_name, .help = "cluster that the plans are for"},
    {"framework", DTP_FIELD_PUT, AT(problem), .put = dtp_put_framework_name, .help = "name of the framework"},
    {"gpus", DTP_FIELD_PUT, AT(problem), .put = dtp_put_gpus, .help = "GPUs of the plans"},
    DTP_FIELD_PART_AT(AT(problem), seq_fields), DTP_FIELD_PART_AT(AT(check), steps_fields),
    {"plans", DTP_FIELD_PUT, 0, .put = put_plans, .inner = "[]", .fields = plan_fields},
    {"rows", DTP_FIELD_PUT, 0, .put = put_rows, .inner = "[]", .fields = row_fields},
    DTP_FIELD_PART_AT(AT(after), summary_fields), {0}};
/* clang-format on */
const struct dtp_form dtp_check_shadow_form = {
    "check --shadow", "Ranks of a large plan, one at a time.", document_fields};

static void write_before(FILE *f, const void *shadows) {
    const struct shadows *x = shadows;
    const struct document d = {x, NULL, x->c, &x->setup->problem};
    dtp_form_write(f, 1, &dtp_check_shadow_form, &d);
}

static void write_after(FILE *f, const void *shadows) {
    const struct shadows *x = shadows;
    const struct document d = {x, x, x->c, &x->setup->problem};
    dtp_form_write(f, 1, &dtp_check_shadow_form, &d);
}

/* ---- text ---- */

static void print_row(struct shadows *x, const struct shadow *s) {
    const struct dtp_term *t = &x->cli->out;
    fprintf(t->file, "stage %3d rank %5d ", s->stage, s->rank);
    if (s->failure) {
        fprintf(t->file, " failed: %s\n", s->failure);
        return;
    }
    for (int k = 0; k < KINDS; k++)
        if (s->predicted_s[k] > 0)
            fprintf(t->file, " %s %8.2f %8.2f ms %+5.1f %%", dtp_action_names[kinds[k]],
                    s->predicted_s[k] / DTP_MILLI, s->measured_s[k] / DTP_MILLI,
                    dtp_error_pct(s->predicted_s[k], s->measured_s[k]));
    fprintf(t->file, "  peak %9.3f GB %+6.2f %%\n", (double)s->predicted_bytes / DTP_GIGA,
            dtp_error_pct((double)s->predicted_bytes, (double)s->measured_bytes));
    fflush(t->file);
}

static void done(void *context, size_t i, const struct dtp_run_result *r,
                 const struct dtp_err *failure) {
    struct shadows *x = context;
    struct shadow *s = &x->row[i];
    if (failure)
        s->failure = dtp_arena_strdup(x->cli->a, failure->msg);
    for (int k = 0; r && k < KINDS; k++)
        s->measured_s[k] = dtp_action_mean_s(r, kinds[k], &s->count[k]);
    s->measured_bytes = r ? r->peak_bytes[0] : 0;
    s->clock_hz = r ? r->clock_hz : 0;
    s->power_w = r ? r->power_w : 0;
    if (!x->cli->args.json)
        print_row(x, s);
    fflush(x->cli->out.file);
}

static enum dtp_status run_rows(struct shadows *x, struct dtp_err *err) {
    struct dtp_run_options *o = DTP_NEW(x->cli->a, struct dtp_run_options, x->nrows);
    for (size_t i = 0; i < x->nrows; i++) {
        o[i] = dtp_run_options_default();
        o[i].model = &x->setup->model;
        o[i].plan = x->row[i].run;
        o[i].seq = x->setup->problem.seq;
        if (x->setup->framework.kernels.dropout) {
            o[i].dropout = x->setup->model.dropout;
            o[i].attention_dropout = x->setup->model.attention_dropout;
        }
        o[i].backend = x->c->backend;
        o[i].steps = x->c->steps + dtp_run_warm_up(&o[i]);
        o[i].lr = o[i].min_lr = o[i].weight_decay = 0; /* weights stay numbers */
        o[i].shadow_cluster = &x->setup->cluster;
        o[i].shadow_rank = x->row[i].rank;
    }
    const struct dtp_run_series series = {.options = o, .n = x->nrows, .done = done, .context = x};
    return dtp_run_series(x->cli->a, &series, err);
}

static void print_end(struct shadows *x) {
    FILE *f = x->cli->out.file;
    for (size_t i = 0; i < x->nplans; i++)
        fprintf(f, "%s: step %.3f s predicted, %.3f s with the actions as measured\n",
                dtp_plan_words(x->cli->a, &x->plan[i].plan), x->plan[i].step_s,
                scaled_s(x, &x->plan[i]));
    fprintf(f, "mean error of an action %.1f %%, of the peak %.2f %%\n", x->mape_action_pct,
            x->mape_peak_pct);
}

enum dtp_status dtp_check_shadow(struct dtp_cli *cli, struct dtp_check *c, struct dtp_err *err) {
    const struct dtp_check_own *own = cli->own;
    struct shadows x = {.cli = cli, .c = c, .setup = DTP_NEW(cli->a, struct dtp_setup, 1)};
    c->setup = x.setup;
    DTP_TRY(cli->args.plan ? read_plan(&x, err) : search(&x, err));
    x.row = DTP_NEW(cli->a, struct shadow, x.nplans * STAGES);
    for (size_t i = 0; i < x.nplans; i++)
        add_rows(&x, &x.plan[i].plan);
    DTP_TRY(predict(&x, err));
    if (own->predictions)
        DTP_TRY(dtp_file_write(cli->a, own->predictions, write_before, &x, err));
    if (!cli->args.json)
        fprintf(cli->out.file, "%s on %d GPUs of %s, %s; %d steps of one rank at a time\n",
                x.setup->model.name, x.setup->problem.gpus, x.setup->cluster.name, c->machine,
                c->steps);
    DTP_TRY(run_rows(&x, err));
    summarise(&x);
    if (cli->args.json)
        write_after(cli->out.file, &x);
    else
        print_end(&x);
    if (own->results)
        DTP_TRY(dtp_file_write(cli->a, own->results, write_after, &x, err));
    for (size_t i = 0; i < x.nrows; i++)
        if (x.row[i].failure)
            return dtp_fail(err, DTP_ENO, "stage %d of a plan failed: %s", x.row[i].stage,
                            x.row[i].failure);
    return DTP_OK;
}
