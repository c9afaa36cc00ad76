#include "planner/cli/verb_sweep.h"

#include <stddef.h>

#include "sim/base/text.h"

static const char *money(double v, char *buf, size_t size) {
    char text[32];
    snprintf(buf, size, "$%s", dtp_fmt_count(v, text, sizeof text));
    return buf;
}

/* ---- text ---- */

struct columns {
    bool cp, ep;
};

static void print_row(const struct dtp_term *t, const struct columns *show,
                      const struct dtp_sweep *s, const struct dtp_sweep_row *row) {
    char text[32];
    fprintf(t->file, "  %7s", dtp_fmt_count(row->gpus, text, sizeof text));
    if (!row->best) {
        fputs("  ", t->file);
        dtp_term_wrap(t, DTP_YELLOW, 11, 11, row->reason);
        return;
    }
    const struct dtp_result *b = row->best;
    fprintf(t->file, " %4d %3d %4d", b->plan.tp, b->plan.pp, b->plan.dp);
    if (show->cp)
        fprintf(t->file, " %3d", b->plan.cp);
    if (show->ep)
        fprintf(t->file, " %3d", b->plan.ep);
    fprintf(t->file, " %3d %9s", b->plan.microbatch_size,
            dtp_fmt_time(b->step_s, text, sizeof text));
    fprintf(t->file, " %11s %5.1f %% %5.1f %%", dtp_fmt_count(b->tokens_per_s, text, sizeof text),
            b->mfu * 100, row->scaling * 100);
    if (s->tokens > 0)
        fprintf(t->file, " %8.1f %9s", row->days, dtp_fmt_count(row->gpu_hours, text, sizeof text));
    if (s->tokens > 0 && s->priced)
        fprintf(t->file, " %9s", money(row->cost, text, sizeof text));
    if (row->front)
        dtp_term_print(t, DTP_GREEN, " *");
    putc('\n', t->file);
}

static void table(const struct dtp_term *t, const struct dtp_sweep *s) {
    struct columns show = {0};
    for (int i = 0; i < s->n; i++)
        if (s->row[i].best) {
            show.cp |= s->row[i].best->plan.cp > 1;
            show.ep |= s->row[i].best->plan.ep > 1;
        }
    dtp_term_print(
        t, DTP_DIM, "     GPUs   tp  pp   dp%s%s  mb      step    tokens/s     MFU scaling%s%s\n",
        show.cp ? "  cp" : "", show.ep ? "  ep" : "", s->tokens > 0 ? "     days GPU-hours" : "",
        s->tokens > 0 && s->priced ? "      cost" : "");
    for (int i = 0; i < s->n; i++) {
        const struct dtp_sweep_row *row = &s->row[i], *last = i > 0 ? row - 1 : NULL;
        if (!last || last->cluster != row->cluster || last->framework != row->framework) {
            dtp_term_print(t, DTP_BOLD, "%s, %s", row->cluster, row->framework);
            if (row->price > 0)
                fprintf(t->file, ", $%.2f a GPU-hour", row->price);
            putc('\n', t->file);
        }
        print_row(t, &show, s, row);
    }
}

static void name_row(const struct dtp_term *t, const struct dtp_sweep *s, const char *label,
                     int i) {
    char text[32];
    if (i < 0)
        return;
    const struct dtp_sweep_row *row = &s->row[i];
    fprintf(t->file, "  %-18s %s GPUs of %s, %s: ", label,
            dtp_fmt_count(row->gpus, text, sizeof text), row->cluster, row->framework);
    if (s->tokens > 0)
        fprintf(t->file, "%.1f days", row->days);
    else
        fprintf(t->file, "%s a step", dtp_fmt_time(row->best->step_s, text, sizeof text));
    if (s->tokens > 0 && s->priced)
        fprintf(t->file, ", %s", money(row->cost, text, sizeof text));
    putc('\n', t->file);
}

void dtp_sweep_text(struct dtp_cli *cli, const struct dtp_sweep *s) {
    const struct dtp_term *t = &cli->out;
    const struct dtp_setup *setup = NULL;
    char text[32];
    for (int i = 0; i < s->n && !setup; i++)
        setup = s->row[i].setup;
    if (setup) {
        const struct dtp_problem *p = &setup->problem;
        dtp_term_print(t, DTP_BOLD, "%s, seq %d, batch %d", p->model->name, p->seq,
                       p->global_batch);
        if (s->tokens > 0)
            fprintf(t->file, ", %s tokens", dtp_fmt_count(s->tokens, text, sizeof text));
        fputs("\n\n", t->file);
    }
    table(t, s);
    if (s->fastest < 0)
        return;
    fputs("  * ", t->file);
    dtp_term_wrap(t, DTP_DIM, 4, 4,
                  s->priced ? "no other row is both faster and cheaper"
                            : "no other row is both faster and takes fewer GPU-hours");
    if (s->tokens > 0 && s->failures.gpu_hours_per_failure > 0)
        dtp_term_print(t, DTP_DIM, "    days are with failures, one in %s GPU-hours\n",
                       dtp_fmt_count(s->failures.gpu_hours_per_failure, text, sizeof text));
    putc('\n', t->file);
    name_row(t, s, "fastest", s->fastest);
    name_row(t, s, s->priced ? "cheapest" : "fewest GPU-hours", s->cheapest);
    if (s->within >= 0)
        name_row(t, s, "meets the deadline", s->within);
    const struct dtp_sweep_row *shown = &s->row[s->within >= 0 ? s->within : s->fastest];
    dtp_term_print(t, DTP_DIM, "  dtplan simulate %s\n",
                   dtp_report_flags(cli->a, shown->setup, &shown->best->plan));
}

/* ---- for programs ---- */

static void put_index(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    int i = *(const int *)at;
    (void)f;
    if (i >= 0)
        dtp_json_put_int(w, i);
    else
        dtp_json_put_null(w);
}

static void put_rows(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    const struct dtp_sweep *s = at;
    const struct dtp_list rows = DTP_LIST(s->row, s->n);
    dtp_put_list(w, f, &rows);
}

/* clang-format off */
#define AT(member) offsetof(struct dtp_sweep_row, member)
#define POSITIVE(key) #key, DTP_FIELD_DOUBLE, AT(key), .unset = DTP_UNSET_NULL
static const struct dtp_field row_fields[] = {
    {"cluster", DTP_FIELD_STRING, AT(cluster), .help = "name of the cluster"},
    {"framework", DTP_FIELD_STRING, AT(framework), .help = "name of the framework"},
    {"gpus", DTP_FIELD_INT, AT(gpus), .help = "GPUs in all"},
    {"price_per_gpu_hour", DTP_FIELD_DOUBLE, AT(price), .unset = DTP_UNSET_NULL, .help = "price that was given; null: none"},
    {POSITIVE(days), .help = "days to train, with interruptions; null: the tokens are not known"},
    {POSITIVE(gpu_hours), .help = "the same in GPU-hours"},
    {POSITIVE(cost), .help = "the same in the currency of the price"},
    {POSITIVE(scaling),
     .help = "tokens a second and GPU over those of the first row of its cluster and framework that fits"},
    {"front", DTP_FIELD_BOOL, AT(front), .help = "no other row is at least as fast and as cheap, and better in one of the two"},
    {"best", DTP_FIELD_PUT, AT(best), .put = dtp_put_pointer, .form = &dtp_result_form, .help = "the plan; null: none fits"},
    {"reason", DTP_FIELD_STRING, AT(reason), .help = "why no plan is there"},
    {0}};
#undef AT
#define AT(member) offsetof(struct dtp_sweep, member)
static const struct dtp_field sweep_fields[] = {
    DTP_FIELD_SCHEMA_VERSION, DTP_FIELD_VERSION, DTP_FIELD_SOURCE("dtplan: predicted"),
    {"model", DTP_FIELD_STRING, AT(model), .help = "name of the model"},
    {POSITIVE(tokens), .help = "tokens to train on; null: not known"},
    {POSITIVE(deadline_s), .help = "deadline that was given; null: none"},
    {"rows", DTP_FIELD_PUT, 0, .put = put_rows, .inner = "[]", .fields = row_fields},
    {"fastest", DTP_FIELD_PUT, AT(fastest), .put = put_index, .help = "index of the fastest row"},
    {"cheapest", DTP_FIELD_PUT, AT(cheapest), .put = put_index, .help = "index of the cheapest row"},
    {"within_deadline", DTP_FIELD_PUT, AT(within), .put = put_index,
     .help = "index of the cheapest row within the deadline"},
    {0}};
/* clang-format on */
const struct dtp_form dtp_sweep_form = {"sweep", "The best plan on each size and cluster.",
                                        sweep_fields};

static void csv_number(FILE *f, double v) {
    char text[32];
    fprintf(f, "%s,", v > 0 ? dtp_double_text(v, text, sizeof text) : "");
}

void dtp_sweep_csv(FILE *f, const struct dtp_sweep *s) {
    fputs("cluster,framework,gpus,", f);
    dtp_plan_csv_head(f);
    fputs("step_s,tokens_per_s,mfu,device_bytes,scaling,days,gpu_hours,cost,front,reason\n", f);
    for (int i = 0; i < s->n; i++) {
        const struct dtp_sweep_row *row = &s->row[i];
        const struct dtp_result *b = row->best;
        dtp_csv_put(f, row->cluster, false);
        dtp_csv_put(f, row->framework, false);
        fprintf(f, "%d,", row->gpus);
        dtp_plan_csv(f, b ? &b->plan : NULL);
        if (!b) {
            fputs(",,,,,,,,0,", f);
            dtp_csv_put(f, row->reason, true);
            continue;
        }
        const double numbers[] = {
            b->step_s,    b->tokens_per_s, b->mfu,         (double)b->device_bytes,
            row->scaling, row->days,       row->gpu_hours, row->cost};
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
            csv_number(f, numbers[k]);
        fprintf(f, "%d,\n", row->front);
    }
}
