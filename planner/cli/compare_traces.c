#include "planner/cli/compare_traces.h"

#include <string.h>
#include <sys/stat.h>

#include "sim/base/text.h"
#include "traces/tasks/diff.h"
#include "traces/tasks/tasks_simulated.h"

bool dtp_cli_is_trace(struct dtp_arena *a, const char *path) {
    struct stat st;
    struct dtp_source *s;
    const unsigned char *at;
    size_t n;
    if (strcmp(path, "-") == 0)
        return false;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return true;
    if (dtp_source_open(a, path, &s, NULL) != DTP_OK)
        return false;
    bool trace = dtp_tasks_is_own(s) || dtp_source_is_tar(s);
    if (!trace && dtp_source_peek(s, &at, &n, NULL) == DTP_OK) {
        const char *head = dtp_arena_strndup(a, (const char *)at, n);
        trace = strstr(head, "\"traceEvents\"") || strstr(head, "\"schemaVersion\"") ||
                strstr(head, "\"deviceProperties\"") || strstr(head, "\"ph\"");
    }
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

enum { KIND = 24, COLUMN = 12, SHOWN_KINDS = 14 };

static void time_row(FILE *f, const char *kind, const double *n, const double *s, double step_s) {
    char a[32], b[32];
    char count[48] = "";
    if (n)
        snprintf(count, sizeof count, n[0] == n[1] ? "%.0f" : "%.0f / %.0f", n[0], n[1]);
    fprintf(f, "  %-*.*s %*s %*s %*s %+8.1f %%\n", KIND, KIND, kind, COLUMN, count, COLUMN,
            dtp_fmt_time(s[0], a, sizeof a), COLUMN, dtp_fmt_time(s[1], b, sizeof b),
            step_s > 0 ? 100 * (s[1] - s[0]) / step_s : 0.0);
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
    fprintf(f, "\n  %-*s %*s %*s %*s   of the step\n", KIND, "mean over ranks", COLUMN, "number",
            COLUMN, "first", COLUMN, "second");
    for (size_t i = 0; i < d->nkinds && i < SHOWN_KINDS; i++)
        time_row(f, d->kind[i].kind, d->kind[i].n, d->kind[i].sum_s, d->step_s[0]);
    time_row(f, "compute streams idle", NULL, d->idle_s, d->step_s[0]);
    time_row(f, "waiting in collectives", NULL, d->waiting_s, d->step_s[0]);
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

static void put_two(struct dtp_json_out *w, const char *key, const double *v) {
    dtp_json_put_key(w, key);
    dtp_json_array(w);
    dtp_json_put_double(w, v[0]);
    dtp_json_put_double(w, v[1]);
    dtp_json_end(w);
}

static void put_tasks(struct dtp_json_out *w, const struct dtp_tasks_task *const *task) {
    static const char *const keys[] = {"first", "second"};
    for (int i = 0; i < 2; i++) {
        dtp_json_put_key(w, keys[i]);
        if (!task[i]) {
            dtp_json_put_null(w);
            continue;
        }
        dtp_json_object(w);
        dtp_json_kv_string(w, "name", task[i]->name);
        dtp_json_kv_double(w, "start_s", task[i]->start_s);
        dtp_json_kv_double(w, "cost_s", dtp_diff_cost_s(task[i]));
        dtp_json_end(w);
    }
}

static void put_place(struct dtp_json_out *w, const char *key, const struct dtp_diff_place *p) {
    dtp_json_put_key(w, key);
    if (!p->found) {
        dtp_json_put_null(w);
        return;
    }
    dtp_json_object(w);
    dtp_json_kv_int(w, "rank", p->rank);
    dtp_json_kv_int(w, "index", p->index);
    put_tasks(w, p->task);
    dtp_json_end(w);
}

static void print_json(struct dtp_cli *cli, const struct dtp_diff *d) {
    struct dtp_json_out w;
    dtp_json_begin(&w, cli->out.file, 1);
    dtp_json_object(&w);
    dtp_json_kv_int(&w, "schema_version", DTP_SCHEMA_VERSION);
    dtp_json_kv_string(&w, "source", "dtplan compare: the two timelines, task by task");
    dtp_json_kv_string(&w, "aligned", dtp_diff_mode_words[d->mode]);
    dtp_json_kv_int(&w, "ranks", d->nranks);
    put_two(&w, "step_s", d->step_s);
    put_two(&w, "idle_s", d->idle_s);
    put_two(&w, "waiting_s", d->waiting_s);
    dtp_json_kv_u64(&w, "pairs", d->npaired);
    dtp_json_kv_u64(&w, "only_first", d->nonly[0]);
    dtp_json_kv_u64(&w, "only_second", d->nonly[1]);
    put_place(&w, "first_divergence_order", &d->order);
    put_place(&w, "first_divergence_time", &d->time);
    dtp_json_put_key(&w, "kinds");
    dtp_json_array(&w);
    for (size_t i = 0; i < d->nkinds; i++) {
        dtp_json_object(&w);
        dtp_json_kv_string(&w, "kind", d->kind[i].kind);
        put_two(&w, "number", d->kind[i].n);
        put_two(&w, "sum_s", d->kind[i].sum_s);
        dtp_json_end(&w);
    }
    dtp_json_end(&w);
    dtp_json_put_key(&w, "largest_pairs");
    dtp_json_array(&w);
    for (size_t i = 0; i < d->npairs; i++) {
        dtp_json_object(&w);
        dtp_json_kv_int(&w, "rank", d->pair[i].rank);
        dtp_json_kv_double(&w, "second_less_first_s", d->pair[i].less_s);
        put_tasks(&w, d->pair[i].task);
        dtp_json_end(&w);
    }
    dtp_json_end(&w);
    dtp_json_end(&w);
}

enum dtp_status dtp_cli_compare_traces(struct dtp_cli *cli, int step, struct dtp_err *err) {
    struct dtp_tasks *side[2];
    struct dtp_diff d;
    const char *predicted = cli->arg[cli->nargs - 1];
    DTP_TRY(tasks_of_trace(cli, cli->arg, (size_t)cli->nargs - 1, &side[0], err));
    if (dtp_cli_is_trace(cli->a, predicted))
        DTP_TRY(tasks_of_trace(cli, &predicted, 1, &side[1], err));
    else
        DTP_TRY(tasks_of_plan(cli, predicted, is_fine(side[0]), &side[1], err));
    const struct dtp_tasks *const both[2] = {side[0], side[1]};
    const int steps[2] = {step, -1};
    DTP_TRY(dtp_diff(cli->a, both, steps, &d, err));
    if (cli->args.json)
        print_json(cli, &d);
    else
        print_text(cli, &d);
    return DTP_OK;
}
