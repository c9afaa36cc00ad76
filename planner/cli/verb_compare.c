/* compare: two plans side by side, both simulated now; or a trace beside what was predicted. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "planner/cli/compare_traces.h"
#include "planner/cli/verbs.h"
#include "planner/report.h"
#include "sim/base/text.h"

struct side {
    const char *path;
    struct dtp_document document;
    struct dtp_setup setup;
    struct dtp_plan plan;
    struct dtp_result result;
    double recorded_s; /* step time in the document, 0: none */
};

struct own {
    int step;
};
static const struct dtp_option options[] = {
    {"step", DTP_OPT_INT, 0, offsetof(struct own, step), .value = "N", .min = -1, .max = 1 << 30,
     .help = "of a trace: the number of the step (default: the last)"},
    {0}};
static void defaults(void *own) {
    ((struct own *)own)->step = -1;
}

enum { LABEL = 32, COLUMN = 18 };

static enum dtp_status load(struct dtp_cli *cli, const char *path, struct side *s,
                            struct dtp_err *err) {
    s->path = path;
    DTP_TRY(dtp_document_read(cli->a, path, &s->document, err));
    DTP_TRY(dtp_setup_init(cli->a, &s->document.ask, &s->setup, err));
    DTP_TRY(dtp_document_plan(cli->a, &s->document, &s->setup.problem, &s->plan, err));
    const struct dtp_json *step =
        s->document.result ? dtp_json_get(s->document.result, "step_s") : NULL;
    if (step && dtp_json_type(step) == DTP_JSON_NUMBER)
        s->recorded_s = dtp_json_number(step);
    struct dtp_evaluator *ev = dtp_evaluator_create(cli->a, &s->setup.problem);
    return dtp_evaluate(cli->a, ev, &s->plan, DTP_SIMULATE, NULL, &s->result, err);
}

static void text_row(const struct dtp_term *t, const char *label, const char *a, const char *b) {
    bool differ = strcmp(a, b) != 0;
    fprintf(t->file, "  %-*s", LABEL, label);
    dtp_term_print(t, differ ? DTP_BOLD : DTP_DIM, "%*s %*s", COLUMN, a, COLUMN, b);
    putc('\n', t->file);
}

static void time_row(const struct dtp_term *t, const char *label, double a_s, double b_s,
                     double whole_s) {
    static const double rounding = 1e-9; /* of the step: what sums leave over */
    char a[32], b[32];
    if (a_s <= rounding * whole_s && b_s <= rounding * whole_s)
        return;
    fprintf(t->file, "  %-*s%*s %*s", LABEL, label, COLUMN, dtp_fmt_time(a_s, a, sizeof a), COLUMN,
            dtp_fmt_time(b_s, b, sizeof b));
    double change = (b_s - a_s) / whole_s * 100;
    dtp_term_print(t,
                   change > 0.05    ? DTP_RED
                   : change < -0.05 ? DTP_GREEN
                                    : DTP_DIM,
                   "  %+7.1f %%\n", change);
}

static void plan_rows(const struct dtp_term *t, const struct side *x, const struct side *y) {
    char a[64], b[64];
    for (int k = 0; k < DTP_NLIMITS; k++) {
        enum dtp_limit limit = (enum dtp_limit)k;
        dtp_limit_text(limit, dtp_limit_get(&x->plan, limit), a, sizeof a);
        dtp_limit_text(limit, dtp_limit_get(&y->plan, limit), b, sizeof b);
        text_row(t, dtp_limit_fields[k].name, a, b);
    }
    if (x->plan.recompute_modules || y->plan.recompute_modules)
        text_row(t, "recompute_modules",
                 dtp_set_text(dtp_module_names, dtp_plan_modules(&x->plan), a, sizeof a),
                 dtp_set_text(dtp_module_names, dtp_plan_modules(&y->plan), b, sizeof b));
}

static void problem_rows(const struct dtp_term *t, const struct side *x, const struct side *y) {
    const struct dtp_problem *p = &x->setup.problem, *q = &y->setup.problem;
    char a[32], b[32];
    text_row(t, "model", p->model->name, q->model->name);
    text_row(t, "cluster", p->cluster->name, q->cluster->name);
    text_row(t, "framework", p->framework->name, q->framework->name);
    const struct {
        const char *label;
        int a, b;
    } rows[] = {{"GPUs", p->gpus, q->gpus},
                {"seq", p->seq, q->seq},
                {"batch", p->global_batch, q->global_batch}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(a, sizeof a, "%d", rows[i].a);
        snprintf(b, sizeof b, "%d", rows[i].b);
        text_row(t, rows[i].label, a, b);
    }
}

static void result_rows(const struct dtp_term *t, const struct side *x, const struct side *y) {
    const struct dtp_result *p = &x->result, *q = &y->result;
    char a[48], b[48];
    text_row(t, "tokens/s", dtp_fmt_count(p->tokens_per_s, a, sizeof a),
             dtp_fmt_count(q->tokens_per_s, b, sizeof b));
    text_row(t, "MFU", dtp_fmt_percent(p->mfu, a, sizeof a), dtp_fmt_percent(q->mfu, b, sizeof b));
    text_row(t, "bubble", dtp_fmt_percent(p->bubble.fraction, a, sizeof a),
             dtp_fmt_percent(q->bubble.fraction, b, sizeof b));
    text_row(t, "device memory", dtp_fmt_bytes_gib((double)p->device_bytes, a, sizeof a),
             dtp_fmt_bytes_gib((double)q->device_bytes, b, sizeof b));
    text_row(t, "fits", p->fits ? "yes" : "no", q->fits ? "yes" : "no");
    time_row(t, "step time", p->step_s, q->step_s, p->step_s);
    for (int i = 0; i < DTP_NTERMS; i++)
        time_row(t, dtp_term_words[i], dtp_breakdown_term(&p->breakdown, i),
                 dtp_breakdown_term(&q->breakdown, i), p->step_s);
}

static void note_recorded(const struct dtp_term *t, const struct side *s) {
    char then[32], now[32];
    if (s->recorded_s <= 0 || fabs(s->recorded_s / s->result.step_s - 1) < 1e-9)
        return;
    fprintf(t->file, "  note: %s recorded %s (dtplan %s); simulated again it is %s\n", s->path,
            dtp_fmt_time(s->recorded_s, then, sizeof then),
            s->document.version ? s->document.version : "of another version",
            dtp_fmt_time(s->result.step_s, now, sizeof now));
}

struct document {
    struct side a, b;
    const char *why;
};

/* clang-format off */
#define AT(member) offsetof(struct side, member)
static const struct dtp_field side_fields[] = {
    {"file", DTP_FIELD_STRING, AT(path), .help = "the document"},
    {"problem", DTP_FIELD_OBJECT, AT(setup), .flat = true, .form = &dtp_problem_form},
    {"best", DTP_FIELD_OBJECT, AT(result), .form = &dtp_result_form, .help = "its plan"},
    {0}};
#undef AT
static const struct dtp_field plan_fields[] = {
    DTP_FIELD_SCHEMA_VERSION, DTP_FIELD_SOURCE("dtplan compare: both predicted"),
    {"a", DTP_FIELD_OBJECT, offsetof(struct document, a), .fields = side_fields},
    {"b", DTP_FIELD_OBJECT, offsetof(struct document, b), .fields = side_fields},
    {"why", DTP_FIELD_STRING, offsetof(struct document, why), .help = "what makes the difference, in words"},
    {0}};
/* clang-format on */
static const struct dtp_form document = {"compare", "Two plans.", plan_fields};
static const struct dtp_form *const documents[] = {&document, &dtp_compare_traces_form, NULL};

static enum dtp_status run(struct dtp_cli *cli, struct dtp_err *err) {
    const struct own *own = cli->own;
    if (dtp_cli_is_trace(cli->a, cli->arg[0]))
        return dtp_cli_compare_traces(cli, own->step, err);
    if (cli->nargs > 2)
        return dtp_fail(err, DTP_EUSAGE, "two plans are compared: unexpected \"%s\"", cli->arg[2]);
    struct side *sides = DTP_NEW(cli->a, struct side, 2);
    for (int i = 0; i < 2; i++)
        DTP_TRY(load(cli, cli->arg[i], &sides[i], err));
    if (cli->args.json) {
        const struct document d = {sides[0], sides[1],
                                   dtp_report_why(cli->a, &sides[0].result, &sides[1].result)};
        dtp_form_write(cli->out.file, 2, &document, &d);
        return DTP_OK;
    }
    const struct dtp_term *t = &cli->out;
    dtp_term_print(t, DTP_BOLD, "  %-*s%*s %*s\n", LABEL, "", COLUMN, "A", COLUMN, "B");
    problem_rows(t, &sides[0], &sides[1]);
    plan_rows(t, &sides[0], &sides[1]);
    result_rows(t, &sides[0], &sides[1]);
    fprintf(t->file, "  (percent of A's step; A %s, B %s)\n", sides[0].path, sides[1].path);
    for (int i = 0; i < 2; i++)
        note_recorded(t, &sides[i]);
    return DTP_OK;
}

const struct dtp_verb dtp_verb_compare = {
    .name = "compare",
    .summary = "two plans side by side, term by term; or a trace beside what was predicted",
    .synopsis = "compare A.json B.json | TRACE... PREDICTED [--json]",
    .description =
        "Simulates the plans of two documents (plan documents or outputs of dtplan --json) "
        "and prints problem, plan, time, breakdown and memory side by side. With a trace or a "
        "timeline "
        "first, its ranks are aligned with those of the last argument, task by task: a plan "
        "document "
        "(which is simulated, see `dtplan infer`), a timeline or another trace. Prints the first "
        "divergence in order and in time and what contributes most to the difference.",
    .groups = DTP_GROUP_OUTPUT,
    .min_args = 2,
    .max_args = -1,
    .documents = documents,
    .options = options,
    .own_size = sizeof(struct own),
    .defaults = defaults,
    .run = run};
