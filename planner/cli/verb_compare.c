/* compare: shows two plans side by side, both simulated now, or a trace next to its prediction. */
#include <math.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

#include "planner/cli/cli.h"
#include "planner/report.h"
#include "sim/base/text.h"
#include "traces/catalog.h"
#include "traces/tasks/diff.h"
#include "traces/tasks/tasks_simulated.h"

/* ---- two timelines: a trace next to its prediction ---- */

/* Whether the file is a trace or timeline, not a plan document. */
static bool is_trace(struct dtp_arena *a, const char *path) {
    struct stat st;
    struct dtp_source *s;
    const struct dtp_format *format = NULL;
    const unsigned char *at;
    size_t n;
    if (strcmp(path, "-") == 0)
        return false;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return true;
    if (dtp_source_open(a, path, &s, NULL) != DTP_OK)
        return false;
    bool trace = dtp_source_is_tar(s) ||
                 (dtp_format_detect(s, &format, NULL) == DTP_OK && format->kind == DTP_KIND_RANKS);
    if (trace && format == &dtp_format_kineto && dtp_source_peek(s, &at, &n, NULL) == DTP_OK)
        trace = !strstr(dtp_arena_strndup(a, (const char *)at, n), "\"schema_version\"");
    dtp_source_close(s);
    return trace;
}

/* Whether the first side has operations or kernels, not whole actions. */
static bool is_fine(const struct dtp_tasks *t) {
    bool fine = strcmp(t->from, "replay") == 0;
    for (uint32_t i = 0; i < t->ntasks && !fine; i++)
        fine = t->task[i].category && strcmp(t->task[i].category, "gemm") == 0;
    return fine;
}

static enum dtp_status tasks_of_plan(struct dtp_cli *cli, const char *path, bool fine,
                                     struct dtp_tasks **out, struct dtp_err *err) {
    struct dtp_document d;
    struct dtp_setup *setup = DTP_NEW(cli->a, struct dtp_setup, 1);
    struct dtp_plan plan;
    struct dtp_result result;
    struct dtp_simulate_options how = {.no_fold = true,
                                       .detail = fine ? DTP_DETAIL_OP : DTP_DETAIL_ACTION};
    DTP_TRY(dtp_document_read(cli->a, path, &d, err));
    DTP_TRY(dtp_setup_init(cli->a, &d.ask, setup, err));
    DTP_TRY(dtp_document_plan(cli->a, &d, &setup->problem, &plan, err));
    struct dtp_evaluator *ev = dtp_evaluator_create(cli->a, &setup->problem);
    return dtp_tasks_simulate(cli->a, ev, &plan, &how, &result, out, err);
}

static enum dtp_status tasks_of_trace(struct dtp_cli *cli, const char *const *paths, size_t n,
                                      struct dtp_tasks **out, struct dtp_err *err) {
    struct dtp_trace trace;
    DTP_TRY(dtp_trace_load(cli->a, paths, n, NULL, &trace, err));
    *out = trace.tasks ? trace.tasks : dtp_tasks_of_trace(cli->a, &trace, false);
    return DTP_OK;
}

/* ---- text ---- */

enum { KIND = 24, TASK_COLUMN = 12, SHOWN_KINDS = 14 };

static void kind_row(FILE *f, const char *kind, const double *n, const double *s, double step_s) {
    char a[32], b[32];
    char count[48] = "";
    if (n)
        snprintf(count, sizeof count, n[0] == n[1] ? "%.0f" : "%.0f / %.0f", n[0], n[1]);
    fprintf(f, "  %-*.*s %*s %*s %*s %+8.1f %%\n", KIND, KIND, kind, TASK_COLUMN, count,
            TASK_COLUMN, dtp_fmt_time(s[0], a, sizeof a), TASK_COLUMN,
            dtp_fmt_time(s[1], b, sizeof b), step_s > 0 ? 100 * (s[1] - s[0]) / step_s : 0.0);
}

static const char *short_name(const struct dtp_tasks_task *k) {
    return k ? k->name : "nothing";
}

static void print_place(FILE *f, const char *what, const struct dtp_diff_place *p, bool in_time) {
    char at[32], a[32], b[32];
    if (!p->found) {
        fprintf(f, "first divergence in %s: none\n", what);
        return;
    }
    const struct dtp_tasks_task *x = p->task[0], *y = p->task[1];
    fprintf(f, "first divergence in %s: rank %d, %.60s of the first", what, p->rank, short_name(x));
    if (x)
        fprintf(f, " at %s", dtp_fmt_time(x->start_s, at, sizeof at));
    fprintf(f, ", %.60s of the second", short_name(y));
    if (in_time && x && y)
        fprintf(f, ": %s and %s", dtp_fmt_time(dtp_diff_cost_s(x), a, sizeof a),
                dtp_fmt_time(dtp_diff_cost_s(y), b, sizeof b));
    putc('\n', f);
}

static void print_text(struct dtp_cli *cli, const struct dtp_diff *d) {
    FILE *f = cli->out.file;
    char a[32], b[32];
    dtp_term_print(&cli->out, DTP_BOLD, "step: first %s, second %s (%+.1f %%)\n",
                   dtp_fmt_time(d->step_s[0], a, sizeof a), dtp_fmt_time(d->step_s[1], b, sizeof b),
                   d->step_s[0] > 0 ? 100 * (d->step_s[1] / d->step_s[0] - 1) : 0.0);
    fprintf(f,
            "%d ranks, aligned %s: %llu pairs, %llu only in the first, %llu only in the second\n",
            d->nranks, dtp_diff_mode_words[d->mode], (unsigned long long)d->npaired,
            (unsigned long long)d->nonly[0], (unsigned long long)d->nonly[1]);
    print_place(f, "order", &d->order, false);
    print_place(f, "time", &d->time, true);
    fprintf(f, "\n  %-*s %*s %*s %*s   of the step\n", KIND, "mean over ranks", TASK_COLUMN,
            "number", TASK_COLUMN, "first", TASK_COLUMN, "second");
    for (size_t i = 0; i < d->nkinds && i < SHOWN_KINDS; i++)
        kind_row(f, d->kind[i].kind, d->kind[i].n, d->kind[i].sum_s, d->step_s[0]);
    kind_row(f, "compute streams idle", NULL, d->idle_s, d->step_s[0]);
    kind_row(f, "waiting in collectives", NULL, d->waiting_s, d->step_s[0]);
    fprintf(f, "\nlargest differences of pairs\n");
    for (size_t i = 0; i < d->npairs && d->pair[i].less_s != 0; i++) {
        const struct dtp_diff_pair *p = &d->pair[i];
        char less[32];
        fprintf(f, "  rank %-4d %s%-10s %.36s | %.36s\n", p->rank, p->less_s < 0 ? "-" : "+",
                dtp_fmt_time(p->less_s < 0 ? -p->less_s : p->less_s, less, sizeof less),
                p->task[0]->name, p->task[1]->name);
    }
}

/* ---- JSON ---- */

static void put_two(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    const double *v = at;
    (void)f;
    dtp_json_array(w);
    dtp_json_put_double(w, v[0]);
    dtp_json_put_double(w, v[1]);
    dtp_json_end(w);
}

static void put_cost(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    (void)f;
    dtp_json_put_double(w, dtp_diff_cost_s(at));
}

static void put_place(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    const struct dtp_diff_place *place = at, *found = place->found ? place : NULL;
    dtp_put_pointer(w, f, &found);
}

static void put_index(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    (void)f;
    dtp_json_put_int(w, *(const uint32_t *)at);
}

static void put_kinds(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    const struct dtp_diff *d = at;
    const struct dtp_list list = DTP_LIST(d->kind, d->nkinds);
    dtp_put_list(w, f, &list);
}

static void put_pairs(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    const struct dtp_diff *d = at;
    const struct dtp_list list = DTP_LIST(d->pair, d->npairs);
    dtp_put_list(w, f, &list);
}

/* clang-format off */
#define AT(member) offsetof(struct dtp_tasks_task, member)
static const struct dtp_field task_fields[] = {
    {"name", DTP_FIELD_STRING, AT(name), .help = "name of the task"},
    {"start_s", DTP_FIELD_DOUBLE, AT(start_s), .help = "when it starts"},
    {"cost_s", DTP_FIELD_PUT, 0, .put = put_cost, .help = "time that it takes"},
    {0}};
#undef AT
static const struct dtp_form task_form = {"TASK", "A task of a timeline.", task_fields};

#define AT(member) offsetof(struct dtp_diff_place, member)
#define TASK(key, i, text) {key, DTP_FIELD_PUT, AT(task[i]), .put = dtp_put_pointer, .form = &task_form, .help = text}
static const struct dtp_field place_fields[] = {
    {"rank", DTP_FIELD_INT, AT(rank), .help = "rank on which they differ"},
    {"index", DTP_FIELD_PUT, AT(index), .put = put_index, .help = "number of the task on the rank"},
    TASK("first", 0, "task of the first timeline; null: it has none"),
    TASK("second", 1, "task of the second timeline; null: it has none"),
    {0}};
#undef AT
static const struct dtp_form place_form = {"DIVERGENCE", "Where two timelines differ.", place_fields};

#define AT(member) offsetof(struct dtp_diff_pair, member)
static const struct dtp_field pair_fields[] = {
    {"rank", DTP_FIELD_INT, AT(rank), .help = "rank of the two tasks"},
    {"second_less_first_s", DTP_FIELD_DOUBLE, AT(less_s), .help = "by how much the second takes longer"},
    TASK("first", 0, "task of the first timeline"),
    TASK("second", 1, "task of the second timeline"),
    {0}};
#undef AT
#define AT(member) offsetof(struct dtp_diff_kind, member)
static const struct dtp_field kind_fields[] = {
    {"kind", DTP_FIELD_STRING, AT(kind), .help = "kind of tasks"},
    {"number", DTP_FIELD_PUT, AT(n), .put = put_two, .help = "how many, mean over the ranks: of the first, of the second"},
    {"sum_s", DTP_FIELD_PUT, AT(sum_s), .put = put_two, .help = "their time, likewise"},
    {0}};
#undef AT
#define AT(member) offsetof(struct dtp_diff, member)
static const struct dtp_field document_fields[] = {
    DTP_FIELD_SCHEMA_VERSION, DTP_FIELD_SOURCE("dtplan compare: the two timelines, task by task"),
    {"aligned", DTP_FIELD_ENUM, AT(mode), .names = dtp_diff_mode_words, .help = "how tasks were paired"},
    {"ranks", DTP_FIELD_INT, AT(nranks), .help = "ranks that both have"},
    {"step_s", DTP_FIELD_PUT, AT(step_s), .put = put_two,
     .help = "longest over the ranks: of the first, of the second, as the next two"},
    {"idle_s", DTP_FIELD_PUT, AT(idle_s), .put = put_two, .help = "idle time of the compute streams, mean over the ranks"},
    {"waiting_s", DTP_FIELD_PUT, AT(waiting_s), .put = put_two, .help = "waiting in collectives, mean over the ranks"},
    {"pairs", DTP_FIELD_U64, AT(npaired), .help = "tasks that both have"},
    {"only_first", DTP_FIELD_U64, AT(nonly[0]), .help = "tasks that the first alone has"},
    {"only_second", DTP_FIELD_U64, AT(nonly[1]), .help = "tasks that the second alone has"},
    {"first_divergence_order", DTP_FIELD_PUT, AT(order), .put = put_place, .form = &place_form,
     .help = "where the order of tasks first differs; null: nowhere"},
    {"first_divergence_time", DTP_FIELD_PUT, AT(time), .put = put_place, .form = &place_form,
     .help = "where the time of a task first differs; null: nowhere"},
    {"kinds", DTP_FIELD_PUT, 0, .put = put_kinds, .inner = "[]", .fields = kind_fields},
    {"largest_pairs", DTP_FIELD_PUT, 0, .put = put_pairs, .inner = "[]", .fields = pair_fields},
    {0}};
#undef AT
/* clang-format on */
static const struct dtp_form traces_form = {"compare of traces", "Two timelines, task by task.",
                                            document_fields};

/* cli->arg: the ranks of a trace, then a timeline, trace or plan document to compare it with. step: of
 * the trace, -1: the last. */
static enum dtp_status compare_traces(struct dtp_cli *cli, int step, struct dtp_err *err) {
    struct dtp_tasks *side[2];
    struct dtp_diff d;
    const char *predicted = cli->arg[cli->nargs - 1];
    DTP_TRY(tasks_of_trace(cli, cli->arg, (size_t)cli->nargs - 1, &side[0], err));
    if (is_trace(cli->a, predicted))
        DTP_TRY(tasks_of_trace(cli, &predicted, 1, &side[1], err));
    else
        DTP_TRY(tasks_of_plan(cli, predicted, is_fine(side[0]), &side[1], err));
    const struct dtp_tasks *const both[2] = {side[0], side[1]};
    const int steps[2] = {step, -1};
    DTP_TRY(dtp_diff(cli->a, both, steps, &d, err));
    if (cli->args.json)
        dtp_form_write(cli->out.file, 1, &traces_form, &d);
    else
        print_text(cli, &d);
    return DTP_OK;
}

/* ---- two plans ---- */

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
    static const double rounding = 1e-9; /* share of the step that rounding of sums leaves */
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
static const struct dtp_form *const documents[] = {&document, &traces_form, NULL};

static enum dtp_status run(struct dtp_cli *cli, struct dtp_err *err) {
    const struct own *own = cli->own;
    if (is_trace(cli->a, cli->arg[0]))
        return compare_traces(cli, own->step, err);
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
