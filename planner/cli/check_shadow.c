/* dtplan check --shadow: ranks of a job of many GPUs, one at a time on one GPU. */
#include <math.h>
#include <string.h>

#include "models/schedule/schedule.h"
#include "planner/cli/check_setup.h"
#include "planner/cli/check_terms.h"
#include "planner/report.h"
#include "planner/search.h"
#include "runtime/parameters.h"
#include "sim/base/text.h"
#include "sim/base/units.h"

enum { STAGES = 3, KINDS = 4 };
static const int kinds[KINDS] = {DTP_A_F, DTP_A_B, DTP_A_I, DTP_A_W};

/* One rank of a plan. */
struct shadow {
    const struct dtp_plan *plan; /* of the search */
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

/* The best, and the best of the next layouts. */
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

/* Most orders repeat after the first pp microbatches or so; those that hold all of them at once stay whole. */
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

/* Measured over predicted, over all actions of the ranks of a plan. */
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

static void write_row(struct dtp_json_out *w, const struct shadow *s, bool after) {
    dtp_json_object(w);
    dtp_json_put_key(w, "plan");
    dtp_plan_write(w, &s->run);
    dtp_json_kv_int(w, "stage", s->stage);
    dtp_json_kv_int(w, "rank", s->rank);
    dtp_json_put_key(w, "actions");
    dtp_json_array(w);
    for (int k = 0; k < KINDS; k++) {
        if (!(s->predicted_s[k] > 0))
            continue;
        dtp_json_object(w);
        dtp_json_kv_string(w, "name", dtp_action_names[kinds[k]]);
        dtp_json_kv_double(w, "predicted_s", s->predicted_s[k]);
        if (after) {
            dtp_json_kv_int(w, "count", s->count[k]);
            dtp_json_kv_double(w, "measured_s", measured(s, k) ? s->measured_s[k] : (double)NAN);
        }
        dtp_json_end(w);
    }
    dtp_json_end(w);
    dtp_json_kv_u64(w, "predicted_peak_bytes", s->predicted_bytes);
    if (after)
        dtp_json_kv_u64(w, "measured_peak_bytes", s->measured_bytes);
    if (after && s->clock_hz > 0) {
        dtp_json_kv_double(w, "clock_hz", s->clock_hz);
        dtp_json_kv_double(w, "power_w", s->power_w);
    }
    if (s->failure)
        dtp_json_kv_string(w, "failure", s->failure);
    dtp_json_end(w);
}

static void write_json(FILE *f, const struct shadows *x, bool after) {
    const struct dtp_problem *p = &x->setup->problem;
    struct dtp_json_out w;
    dtp_json_begin(&w, f, 1);
    dtp_json_object(&w);
    dtp_json_kv_int(&w, "schema_version", 1);
    dtp_json_kv_string(&w, "source", "dtplan check --shadow: predicted, and measured on machine");
    dtp_json_kv_string(&w, "machine", x->c->machine);
    if (x->c->versions)
        dtp_json_kv_string(&w, "versions", x->c->versions);
    dtp_json_kv_string(&w, "backend", x->c->backend);
    dtp_json_kv_string(&w, "model", p->model->name);
    dtp_json_kv_string(&w, "cluster", p->cluster->name);
    dtp_json_kv_string(&w, "framework", p->framework->name);
    dtp_json_kv_int(&w, "gpus", p->gpus);
    dtp_json_kv_int(&w, "seq", p->seq);
    dtp_json_kv_int(&w, "steps", x->c->steps);
    dtp_json_put_key(&w, "plans");
    dtp_json_array(&w);
    for (size_t i = 0; i < x->nplans; i++) {
        dtp_json_object(&w);
        dtp_json_put_key(&w, "plan");
        dtp_plan_write(&w, &x->plan[i].plan);
        dtp_json_kv_double(&w, "step_s", x->plan[i].step_s);
        if (after)
            dtp_json_kv_double(&w, "scaled_step_s", scaled_s(x, &x->plan[i]));
        dtp_json_end(&w);
    }
    dtp_json_end(&w);
    dtp_json_put_key(&w, "rows");
    dtp_json_array(&w);
    for (size_t i = 0; i < x->nrows; i++)
        write_row(&w, &x->row[i], after);
    dtp_json_end(&w);
    if (after) {
        dtp_json_kv_double(&w, "mape_action_pct", x->mape_action_pct);
        dtp_json_kv_double(&w, "mape_peak_pct", x->mape_peak_pct);
    }
    dtp_json_end(&w);
}

static enum dtp_status save(struct shadows *x, const char *path, bool after, struct dtp_err *err) {
    struct dtp_file_out file;
    if (!path)
        return DTP_OK;
    DTP_TRY(dtp_file_out_open(x->cli->a, path, &file, err));
    write_json(file.f, x, after);
    return dtp_file_out_commit(&file, err);
}

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
    DTP_TRY(save(&x, own->predictions, false, err));
    if (!cli->args.json)
        fprintf(cli->out.file, "%s on %d GPUs of %s, %s; %d steps of one rank at a time\n",
                x.setup->model.name, x.setup->problem.gpus, x.setup->cluster.name, c->machine,
                c->steps);
    DTP_TRY(run_rows(&x, err));
    summarise(&x);
    if (cli->args.json)
        write_json(cli->out.file, &x, true);
    else
        print_end(&x);
    DTP_TRY(save(&x, own->results, true, err));
    for (size_t i = 0; i < x.nrows; i++)
        if (x.row[i].failure)
            return dtp_fail(err, DTP_ENO, "stage %d of a plan failed: %s", x.row[i].stage,
                            x.row[i].failure);
    return DTP_OK;
}
