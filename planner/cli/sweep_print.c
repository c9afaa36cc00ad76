#include "planner/cli/verb_sweep.h"

#include <math.h>

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

/* Else null, as the writer has for what is no number. */
static void number_where(struct dtp_json_out *w, const char *key, bool known, double v) {
    dtp_json_kv_double(w, key, known ? v : (double)NAN);
}

static void positive(struct dtp_json_out *w, const char *key, double v) {
    number_where(w, key, v > 0, v);
}

void dtp_sweep_json(struct dtp_cli *cli, const struct dtp_sweep *s) {
    struct dtp_json_out w;
    dtp_json_begin(&w, cli->out.file, 2);
    dtp_json_object(&w);
    dtp_json_kv_int(&w, "schema_version", DTP_SCHEMA_VERSION);
    dtp_json_kv_string(&w, "version", DTP_VERSION);
    dtp_json_kv_string(&w, "source", "dtplan: predicted");
    dtp_json_kv_string(&w, "model", cli->args.ask.model ? cli->args.ask.model : "-");
    positive(&w, "tokens", s->tokens);
    positive(&w, "deadline_s", s->deadline_s);
    dtp_json_put_key(&w, "rows");
    dtp_json_array(&w);
    for (int i = 0; i < s->n; i++) {
        const struct dtp_sweep_row *row = &s->row[i];
        dtp_json_object(&w);
        dtp_json_kv_string(&w, "cluster", row->cluster);
        dtp_json_kv_string(&w, "framework", row->framework);
        dtp_json_kv_int(&w, "gpus", row->gpus);
        positive(&w, "price_per_gpu_hour", row->price);
        positive(&w, "days", row->days);
        positive(&w, "gpu_hours", row->gpu_hours);
        positive(&w, "cost", row->cost);
        positive(&w, "scaling", row->scaling);
        dtp_json_kv_bool(&w, "front", row->front);
        dtp_json_put_key(&w, "best");
        if (row->best)
            dtp_result_write(&w, &row->setup->problem, row->best);
        else
            dtp_json_put_null(&w);
        if (row->reason)
            dtp_json_kv_string(&w, "reason", row->reason);
        dtp_json_end(&w);
    }
    dtp_json_end(&w);
    number_where(&w, "fastest", s->fastest >= 0, s->fastest);
    number_where(&w, "cheapest", s->cheapest >= 0, s->cheapest);
    number_where(&w, "within_deadline", s->within >= 0, s->within);
    dtp_json_end(&w);
}

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
