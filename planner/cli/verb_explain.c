/* explain: the step of one rank, operation by operation; of a plan or of a measured run. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "models/evaluate/evaluate.h"
#include "models/plan/plan.h"
#include "models/schedule/schedule.h"
#include "planner/cli/cli.h"
#include "planner/report.h"
#include "sim/base/text.h"
#include "traces/validate/measured.h"

/* One operation of the rank, over a whole step. */
struct budget_row {
    const struct dtp_op *op;
    const char *layer; /* kind of layer */
    const char *pass;
    double times; /* launches in a step */
    double time_s, flops, bytes;
    double of_peak;    /* share of dense peak or nominal HBM bandwidth; NAN: neither */
    bool extrapolated; /* a product of a size that was not measured */
};

struct budget {
    const struct dtp_problem *problem;
    const struct dtp_plan *plan;
    struct dtp_arena *a;
    struct budget_row *row;
    size_t n, capacity;
    double time_s, compute_s;
};

/* ---- the operations of one rank added up over a step ---- */

static double gemm_bytes(const struct dtp_gemm *g) {
    return (double)(g->m * g->k + g->k * g->n + g->m * g->n) * (double)g->batch *
           dtp_dtype_bytes(g->dtype);
}

static double attention_bytes(const struct dtp_attention_shape *s) {
    return (double)(s->batch * s->head_dim) *
           (double)(2 * s->heads * s->seq_q + 2 * s->kv_heads * s->seq_kv) *
           dtp_dtype_bytes(s->dtype);
}

static double op_bytes(const struct dtp_op *op) {
    switch (op->kind) {
    case DTP_OP_GEMM:
    case DTP_OP_BMM:
        return op->count * gemm_bytes(&op->gemm);
    case DTP_OP_ATTENTION:
        return op->count * attention_bytes(&op->attention);
    case DTP_OP_KERNEL:
    case DTP_OP_COLLECTIVE:
        break;
    }
    return op->count * op->bytes;
}

static double of_peak(const struct budget *b, const struct budget_row *r) {
    const struct dtp_gpu *gpu = &b->problem->cluster->gpu;
    if (r->op->kind == DTP_OP_COLLECTIVE || r->time_s <= 0)
        return NAN;
    if (r->op->kind == DTP_OP_KERNEL)
        return r->bytes / r->time_s / gpu->hbm_bytes_per_s;
    return r->flops / r->time_s / gpu->peak_flops_per_s[b->plan->dtype];
}

static bool same_gemm(const struct dtp_gemm *x, const struct dtp_gemm *y) {
    return x->dtype == y->dtype && x->pass == y->pass && x->m == y->m && x->n == y->n &&
           x->k == y->k && x->batch == y->batch && x->whole_waves == y->whole_waves &&
           x->unaligned == y->unaligned;
}

/* A row that the operation joins: the same kernel on the same shape, as the two all-gathers of a layer. */
static struct budget_row *find(struct budget *b, const struct budget_row *r) {
    for (size_t i = 0; i < b->n; i++) {
        struct budget_row *o = &b->row[i];
        if (o->layer == r->layer && strcmp(o->pass, r->pass) == 0 &&
            strcmp(o->op->name, r->op->name) == 0 && o->op->kind == r->op->kind &&
            o->op->bytes == r->op->bytes && o->op->overlapped == r->op->overlapped &&
            same_gemm(&o->op->gemm, &r->op->gemm))
            return o;
    }
    return NULL;
}

static void add(struct budget *b, const struct dtp_op *op, const char *layer, const char *pass,
                double launches) {
    struct budget_row r = {.op = op, .layer = layer, .pass = pass, .times = launches * op->count};
    r.time_s = launches * dtp_op_time_s(b->problem, b->plan, op);
    r.flops = launches * dtp_op_flops(op);
    r.bytes = launches * op_bytes(op);
    b->time_s += r.time_s;
    if (op->kind != DTP_OP_COLLECTIVE)
        b->compute_s += r.time_s;
    struct budget_row *same = find(b, &r);
    if (same) {
        same->times += r.times;
        same->time_s += r.time_s;
        same->flops += r.flops;
        same->bytes += r.bytes;
        return;
    }
    r.of_peak = of_peak(b, &r);
    r.extrapolated =
        op->kind == DTP_OP_GEMM && !dtp_device_gemm_covered(&b->problem->cluster->gpu, &op->gemm);
    b->row = dtp_arena_room(b->a, b->row, sizeof *b->row, b->n, &b->capacity);
    b->row[b->n++] = r;
}

/* Adds the layers of the stage, some of which are recomputed. */
static void add_layers(struct budget *b, enum dtp_layer_kind kind, double layers, double again) {
    static const char *const kinds[DTP_NLAYER_KINDS] = {
        [DTP_LAYER_DENSE] = "layer",
        [DTP_LAYER_MOE] = "MoE layer",
        [DTP_LAYER_DENSE_WINDOW] = "window layer",
        [DTP_LAYER_MOE_WINDOW] = "MoE window layer",
        [DTP_LAYER_EMBEDDING] = "embedding",
        [DTP_LAYER_HEAD] = "head",
        [DTP_LAYER_MTP] = "prediction after next",
        [DTP_LAYER_CONV] = "convolutions",
    };
    if (layers <= 0)
        return;
    struct dtp_ops *ops = DTP_NEW(b->a, struct dtp_ops, 1);
    double m = dtp_plan_num_microbatches(b->plan);
    dtp_ops_layer(b->problem, b->plan, kind, ops);
    for (int i = 0; i < ops->n; i++) {
        const struct dtp_op *op = &ops->at[i];
        add(b, op, kinds[kind], dtp_pass_names[op->pass], layers * m);
        if (op->repeated && again > 0)
            add(b, op, kinds[kind], "R", again * m);
    }
}

/* All operations of a pipeline stage's rank, equal ones in one row. */
static void fill_budget(struct budget *b, int stage) {
    const struct dtp_model *m = b->problem->model;
    const struct dtp_plan *p = b->plan;
    int all[DTP_NLAYER_KINDS] = {0}, again[DTP_NLAYER_KINDS] = {0}; /* recomputed */
    for (int chunk = 0; chunk < p->vpp; chunk++) {
        int vs = dtp_schedule_kinds[p->schedule].stage(p->pp, p->vpp, stage, chunk);
        int first = dtp_plan_first_layer(p, m, vs), n = dtp_stage_layers(m, p, vs);
        int here[DTP_NLAYER_KINDS];
        dtp_stage_count(m, p, vs, here);
        for (int k = 0; k < DTP_NLAYER_KINDS; k++)
            all[k] += here[k];
        if (p->recompute_layers > 0 && p->recompute_layers < n)
            n = p->recompute_layers;
        if (m->nconvs == 0)
            dtp_model_count_kinds(m, first, first + n, again);
    }
    for (int k = 0; k < DTP_NLAYER_KINDS; k++)
        add_layers(b, (enum dtp_layer_kind)k, all[k], again[k]);
}

/* ---- the verb ---- */

struct own {
    int stage, top;
    const char *row;
};

static const struct dtp_option own_options[] = {
    {"stage", DTP_OPT_INT, 0, offsetof(struct own, stage), .value = "N", .min = 0,
     .max = DTP_MAX_STAGES, .help = "pipeline stage whose rank is shown (default 0)"},
    {"top", DTP_OPT_INT, 0, offsetof(struct own, top), .value = "N", .min = 1, .max = 1000,
     .help = "rows shown, the longest first (default 30; --json has all)"},
    {"row", DTP_OPT_STRING, 0, offsetof(struct own, row), .value = "ID",
     .help = "explain the measured run with this id; the files of runs follow as arguments"},
    {0}};

static void defaults(void *own) {
    ((struct own *)own)->top = 30;
}

static int by_time(const void *x, const void *y) {
    const struct budget_row *a = x, *b = y;
    if (a->time_s != b->time_s)
        return a->time_s > b->time_s ? -1 : 1;
    int c = strcmp(a->op->name, b->op->name);
    return c ? c : strcmp(a->pass, b->pass);
}

static const char *shape_text(const struct dtp_op *op, char *buf, size_t size) {
    const struct dtp_gemm *g = &op->gemm;
    const struct dtp_attention_shape *s = &op->attention;
    char bytes[32];
    switch (op->kind) {
    case DTP_OP_GEMM:
    case DTP_OP_BMM:
        snprintf(buf, size, "%lld x %lld x %lld", (long long)g->m, (long long)g->n,
                 (long long)g->k);
        if (g->batch > 1)
            snprintf(buf + strlen(buf), size - strlen(buf), ", %lld times", (long long)g->batch);
        break;
    case DTP_OP_ATTENTION:
        snprintf(buf, size, "%lld heads of %lld, %lld x %lld", (long long)s->heads,
                 (long long)s->head_dim, (long long)s->seq_q, (long long)s->seq_kv);
        break;
    case DTP_OP_KERNEL:
    case DTP_OP_COLLECTIVE:
        snprintf(buf, size, "%s", dtp_fmt_bytes_si(op->bytes, bytes, sizeof bytes));
        break;
    }
    return buf;
}

static void print_row(const struct dtp_term *t, const struct budget_row *r, double step_s) {
    char time[32], rate[32], shape[96], peak[32] = "";
    bool memory = r->op->kind == DTP_OP_KERNEL || r->op->kind == DTP_OP_COLLECTIVE;
    double per_s = r->time_s > 0 ? (memory ? r->bytes : r->flops) / r->time_s : 0;
    if (memory)
        dtp_fmt_rate(per_s, rate, sizeof rate);
    else
        dtp_fmt_flops(per_s, rate, sizeof rate);
    if (r->of_peak >= 0)
        snprintf(peak, sizeof peak, "%3.0f %%%s", r->of_peak * 100, memory ? " HBM" : "");
    fprintf(t->file, "  %-12s %-22s %s %6.0f %9s %5.1f %%  %13s %-9s %s%s\n", r->layer, r->op->name,
            r->pass, r->times, dtp_fmt_time(r->time_s, time, sizeof time), r->time_s / step_s * 100,
            rate, peak, shape_text(r->op, shape, sizeof shape),
            r->extrapolated ? ", extrapolated" : "");
}

static void print_text(struct dtp_cli *cli, const struct budget *b, int stage, double step_s) {
    const struct own *own = cli->own;
    const struct dtp_term *t = &cli->out;
    char text[32], compute[32], step[32];
    size_t shown = (size_t)own->top < b->n ? (size_t)own->top : b->n;
    fprintf(t->file, "\n");
    dtp_term_print(t, DTP_BOLD, "Operations of a rank of stage %d over a step of %s\n", stage,
                   dtp_fmt_time(step_s, step, sizeof step));
    dtp_term_print(t, DTP_DIM,
                   "  pass: F forward, I input gradient, W weight gradient, R recomputation; "
                   "rate against the dense peak or HBM\n"
                   "  %-12s %-22s P  times      time    step           rate of peak   shape\n",
                   "layer", "operation");
    for (size_t i = 0; i < shown; i++)
        print_row(t, &b->row[i], step_s);
    double rest_s = 0;
    for (size_t i = shown; i < b->n; i++)
        rest_s += b->row[i].time_s;
    if (rest_s > 0)
        fprintf(t->file, "  %zu more rows: %s\n", b->n - shown,
                dtp_fmt_time(rest_s, text, sizeof text));
    fprintf(t->file,
            "  in all %s, of it %s compute; kernel gaps, host time, bubble and transfers come on "
            "top,\n  collectives that hide behind compute do not\n",
            dtp_fmt_time(b->time_s, text, sizeof text),
            dtp_fmt_time(b->compute_s, compute, sizeof compute));
    double outside_s = 0;
    for (size_t i = 0; i < b->n; i++)
        outside_s += b->row[i].extrapolated ? b->row[i].time_s : 0;
    if (outside_s > 0)
        fprintf(t->file, "  %s in products of sizes that were not measured (extrapolated)\n",
                dtp_fmt_time(outside_s, text, sizeof text));
    const char *calibration = b->problem->cluster->gpu.calibration;
    int column = dtp_term_print(t, DTP_DIM, "  constants: %s: ", b->problem->cluster->gpu.name);
    dtp_term_wrap(t, DTP_DIM, column, 4, calibration ? calibration : "not calibrated");
}

/* ---- JSON ---- */

struct document {
    const struct dtp_setup *setup;
    struct dtp_plan plan;
    int stage;
    double step_s;
    struct dtp_list operations;
};

static void put_shape(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    char shape[96];
    (void)f;
    dtp_json_put_string(w, shape_text(*(const struct dtp_op *const *)at, shape, sizeof shape));
}

static void put_overlapped(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    const struct dtp_op *op = *(const struct dtp_op *const *)at;
    (void)f;
    dtp_json_put_bool(w, op->overlapped);
}

/* clang-format off */
static const struct dtp_field op_fields[] = {
    {"name", DTP_FIELD_STRING, offsetof(struct dtp_op, name), .help = "name of the operation"},
    {"kind", DTP_FIELD_ENUM, offsetof(struct dtp_op, kind), .names = dtp_op_kind_names,
     .help = "gemm, attention, kernel, collective, ..."},
    {0}};
#define AT(member) offsetof(struct budget_row, member)
static const struct dtp_field row_fields[] = {
    {"layer", DTP_FIELD_STRING, AT(layer), .help = "embedding, layer, head"},
    {"op", DTP_FIELD_PUT, AT(op), .put = dtp_put_part, .flat = true, .fields = op_fields},
    {"pass", DTP_FIELD_STRING, AT(pass), .help = "F, I, W, or R: recomputation for the backward"},
    {"shape", DTP_FIELD_PUT, AT(op), .put = put_shape, .help = "the shape in words"},
    {"times", DTP_FIELD_DOUBLE, AT(times), .help = "how often one rank runs it in a step"},
    {"time_s", DTP_FIELD_DOUBLE, AT(time_s), .help = "time of all of them in a step"},
    {"flops", DTP_FIELD_DOUBLE, AT(flops), .help = "FLOPs of all of them in a step"},
    {"bytes", DTP_FIELD_DOUBLE, AT(bytes), .help = "bytes that all of them move in a step"},
    {"of_peak", DTP_FIELD_DOUBLE, AT(of_peak),
     .help = "its rate as a share of the FLOP/s or the memory's; null: it has none"},
    {"overlapped", DTP_FIELD_PUT, AT(op), .put = put_overlapped, .help = "hidden behind compute as far as that goes"},
    {"extrapolated", DTP_FIELD_BOOL, AT(extrapolated), .help = "outside what was measured"},
    {0}};
#undef AT
#define AT(member) offsetof(struct document, member)
static const struct dtp_field document_fields[] = {
    DTP_FIELD_SCHEMA_VERSION, DTP_FIELD_SOURCE("dtplan explain: predicted"),
    {"problem", DTP_FIELD_PUT, AT(setup), .put = dtp_put_part, .flat = true, .form = &dtp_problem_form},
    DTP_FIELD_PLAN_AT(AT(plan)),
    {"stage", DTP_FIELD_INT, AT(stage), .help = "pipeline stage whose operations these are"},
    {"step_s", DTP_FIELD_DOUBLE, AT(step_s), .help = "time of a step"},
    {"operations", DTP_FIELD_PUT, AT(operations), .put = dtp_put_list, .fields = row_fields},
    {0}};
/* clang-format on */
static const struct dtp_form document = {"explain", "The operations of a rank.", document_fields};
static const struct dtp_form *const documents[] = {&document, NULL};

static const struct dtp_run *find_run(const struct dtp_runs *runs, const char *id) {
    for (size_t i = 0; i < runs->n; i++)
        if (strcmp(runs->at[i].id, id) == 0)
            return &runs->at[i];
    return NULL;
}

static enum dtp_status unknown_run(struct dtp_arena *a, const struct dtp_runs *runs, const char *id,
                                   struct dtp_err *err) {
    const char **ids = DTP_NEW(a, const char *, runs->n + 1);
    for (size_t i = 0; i < runs->n; i++)
        ids[i] = runs->at[i].id;
    return dtp_unknown_name(err, DTP_EUSAGE, "run", id, ids, runs->n, NULL);
}

/* Setup and plan of a measured run. */
static enum dtp_status setup_run(struct dtp_cli *cli, struct dtp_setup *setup,
                                 struct dtp_plan *plan, const struct dtp_run **out_run,
                                 struct dtp_err *err) {
    const struct own *own = cli->own;
    struct dtp_runs runs = {0};
    struct dtp_run_library *library;
    struct dtp_run_case *c = DTP_NEW(cli->a, struct dtp_run_case, 1);
    if (cli->nargs == 0)
        return dtp_fail(err, DTP_EUSAGE, "usage: dtplan explain --row ID FILE...");
    for (int i = 0; i < cli->nargs; i++)
        DTP_TRY(dtp_runs_read(cli->a, cli->arg[i], &runs, err));
    *out_run = find_run(&runs, own->row);
    if (!*out_run)
        return unknown_run(cli->a, &runs, own->row, err);
    DTP_TRY(dtp_run_library_create(cli->a, &library, err));
    dtp_run_case_make(cli->a, library, *out_run, c);
    struct dtp_run *run = DTP_NEW(cli->a, struct dtp_run, 1);
    *run = **out_run;
    run->peak_mem_unit = c->peak_mem_unit;
    *out_run = run;
    if (c->unsupported)
        return dtp_fail(err, DTP_EUNSUPPORTED, "run %s: %s", own->row, c->unsupported);
    setup->model = c->model;
    setup->cluster = c->cluster;
    setup->framework = c->framework;
    setup->problem = c->problem;
    setup->problem.model = &setup->model;
    setup->problem.cluster = &setup->cluster;
    setup->problem.framework = &setup->framework;
    setup->ask = (struct dtp_ask){.model = c->model.name,
                                  .cluster = c->cluster.name,
                                  .framework = c->framework.name,
                                  .gpus = c->problem.gpus,
                                  .seq = c->problem.seq,
                                  .batch = c->problem.global_batch,
                                  .dtype = (int)c->problem.dtype,
                                  .attention = c->problem.attention,
                                  .memory_limit_bytes = c->problem.memory_limit_bytes};
    *plan = c->plan;
    if (*c->note && !cli->args.json)
        fprintf(cli->out.file, "run %s: %s\n", own->row, c->note);
    return DTP_OK;
}

static void print_measured(const struct dtp_term *t, const struct dtp_run *run,
                           const struct dtp_result *r) {
    char measured[32], predicted[32];
    const char *meaning;
    double peak_bytes = dtp_run_peak_bytes(run, &meaning);
    if (run->step_s > 0)
        fprintf(t->file, "  measured %s, predicted %s: %+.1f %%\n",
                dtp_fmt_time(run->step_s, measured, sizeof measured),
                dtp_fmt_time(r->step_s, predicted, sizeof predicted),
                100 * (r->step_s / run->step_s - 1));
    if (peak_bytes > 0)
        fprintf(t->file, "  measured peak %s (%s)\n",
                dtp_fmt_bytes_gib(peak_bytes, measured, sizeof measured), meaning);
    fprintf(t->file, "  source: %s\n", run->source);
}

static enum dtp_status run(struct dtp_cli *cli, struct dtp_err *err) {
    const struct own *own = cli->own;
    struct dtp_setup *setup = DTP_NEW(cli->a, struct dtp_setup, 1);
    const struct dtp_run *measured = NULL;
    struct dtp_plan plan;
    struct dtp_result result;
    if (own->row)
        DTP_TRY(setup_run(cli, setup, &plan, &measured, err));
    else
        DTP_TRY(dtp_cli_plan(cli, setup, &plan, err));
    if (own->stage >= plan.pp)
        return dtp_fail(err, DTP_EUSAGE, "--stage: found %d, the plan has stages 0 to %d",
                        own->stage, plan.pp - 1);
    struct dtp_evaluator *ev = dtp_evaluator_create(cli->a, &setup->problem);
    DTP_TRY(dtp_evaluate(cli->a, ev, &plan, DTP_SIMULATE, NULL, &result, err));
    struct budget b = {.problem = &setup->problem,
                       .plan = &plan,
                       .a = cli->a,
                       .row = DTP_NEW(cli->a, struct budget_row, 1),
                       .capacity = 1};
    fill_budget(&b, own->stage);
    qsort(b.row, b.n, sizeof *b.row, by_time);
    if (cli->args.json) {
        const struct document d = {setup, plan, own->stage, result.step_s, DTP_LIST(b.row, b.n)};
        dtp_form_write(cli->out.file, 2, &document, &d);
        return DTP_OK;
    }
    struct dtp_report report = {.setup = setup};
    dtp_report_header(cli->a, &cli->out, &report);
    dtp_term_wrap(&cli->out, DTP_GREEN, 2, 2, dtp_plan_words(cli->a, &plan));
    if (measured) {
        print_measured(&cli->out, measured, &result);
        dtp_report_result(cli->a, &cli->out, &report, &result);
    }
    print_text(cli, &b, own->stage, result.step_s);
    return DTP_OK;
}

const struct dtp_verb dtp_verb_explain = {
    .name = "explain",
    .summary = "the operations behind a prediction, longest first",
    .synopsis = "explain --plan FILE | --model M --gpus N --tp T --pp P ... | --row ID FILE... "
                "[--stage N]",
    .description =
        "Lists the kernels and collectives that a rank of one pipeline stage runs in a step: how "
        "often, seconds, FLOPs or bytes per second against the peak, shape. What the step is made "
        "of, term by term, is in the output of simulate. With --row ID the plan is that of a "
        "measured "
        "run in the CSV files given, and the prediction stands beside the measurement.",
    .groups = DTP_GROUP_PROBLEM | DTP_GROUP_PLAN | DTP_GROUP_LAYOUT | DTP_GROUP_OUTPUT,
    .documents = documents,
    .options = own_options,
    .own_size = sizeof(struct own),
    .defaults = defaults,
    .max_args = -1,
    .run = run};
