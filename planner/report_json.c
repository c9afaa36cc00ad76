#include <stdlib.h>
#include <string.h>

#include "models/schedule/schedule.h"
#include "planner/document.h"
#include "planner/report.h"
#include "sim/base/text.h"
#include "sim/base/units.h"

static void begin(struct dtp_json_out *w, FILE *f, const struct dtp_report *r) {
    dtp_json_begin(w, f, 2);
    dtp_json_object(w);
    dtp_json_kv_int(w, "schema_version", DTP_SCHEMA_VERSION);
    dtp_json_kv_string(w, "version", DTP_VERSION);
    dtp_json_kv_string(w, "source", "dtplan: predicted");
    dtp_document_write_problem(w, r->setup);
    dtp_json_kv_int(w, "seed", r->seed);
}

/* null where the tokens to train on are not known. */
static void write_training(struct dtp_json_out *w, const struct dtp_report *r,
                           const struct dtp_result *best) {
    struct dtp_training t = dtp_report_training(r, best);
    dtp_json_put_key(w, "training");
    if (t.days <= 0) {
        dtp_json_put_null(w);
        return;
    }
    dtp_json_object(w);
    dtp_json_kv_double(w, "tokens", t.tokens);
    dtp_json_kv_double(w, "days", t.days);
    dtp_json_kv_double(w, "days_with_failures", t.days_with_failures);
    dtp_json_kv_double(w, "gpu_hours",
                       t.days_with_failures * r->setup->problem.gpus * DTP_S_PER_DAY /
                           DTP_S_PER_HOUR);
    if (r->failures.gpu_hours_per_failure > 0) {
        dtp_json_kv_double(w, "training_fraction", t.goodput.fraction);
        dtp_json_kv_double(w, "failure_every_s", t.goodput.failure_s);
        dtp_json_kv_double(w, "checkpoint_every_s", t.goodput.checkpoint_s);
        dtp_json_kv_double(w, "checkpoint_write_s", t.goodput.write_s);
    }
    dtp_json_end(w);
}

void dtp_report_result_json(FILE *f, const struct dtp_report *r, const struct dtp_result *result) {
    struct dtp_json_out w;
    begin(&w, f, r);
    dtp_json_put_key(&w, "best");
    dtp_result_write(&w, &r->setup->problem, result);
    write_training(&w, r, result);
    dtp_json_end(&w);
}

static void write_counts(struct dtp_json_out *w, const struct dtp_counts *c) {
    dtp_json_object(w);
    dtp_json_kv_u64(w, "candidates", c->candidates);
    dtp_json_kv_u64(w, "illegal", c->illegal);
    dtp_json_kv_u64(w, "over_memory", c->over_memory);
    dtp_json_kv_u64(w, "bounded", c->bounded);
    dtp_json_kv_u64(w, "estimated", c->estimated);
    dtp_json_kv_u64(w, "simulated", c->simulated);
    if (c->too_large > 0)
        dtp_json_kv_u64(w, "too_large_to_simulate", c->too_large);
    dtp_json_put_key(w, "illegal_reasons");
    dtp_json_object(w);
    for (int i = DTP_LEGAL + 1; i < DTP_NREASONS; i++)
        if (c->reason[i] > 0)
            dtp_json_kv_u64(w, dtp_reasons[i], c->reason[i]);
    dtp_json_end(w);
    dtp_json_kv_double(w, "seconds", c->seconds);
    dtp_json_end(w);
}

void dtp_report_json(struct dtp_arena *a, FILE *f, const struct dtp_report *r) {
    const struct dtp_search *s = r->search;
    const struct dtp_problem *p = &r->setup->problem;
    struct dtp_json_out w;
    begin(&w, f, r);
    dtp_json_put_key(&w, "best");
    if (s->nresults > 0)
        dtp_result_write(&w, p, &s->result[0]);
    else
        dtp_json_put_null(&w);
    if (s->nresults > 0)
        write_training(&w, r, &s->result[0]);
    const char *unusual = s->nresults > 0 ? dtp_unusual_words(a, r, &s->result[0]) : NULL;
    if (unusual)
        dtp_json_kv_string(&w, "unusual", unusual);
    dtp_json_put_key(&w, "runners_up");
    dtp_json_array(&w);
    for (size_t i = 1; i < s->nresults; i++)
        dtp_result_write(&w, p, &s->result[i]);
    dtp_json_end(&w);
    dtp_json_put_key(&w, "near_misses");
    dtp_json_array(&w);
    for (int i = 0; i < s->nnear_misses; i++)
        dtp_result_write(&w, p, &s->near_miss[i]);
    dtp_json_end(&w);
    dtp_json_put_key(&w, "search");
    write_counts(&w, &s->counts);
    dtp_json_end(&w);
}

void dtp_plan_csv_head(FILE *f) {
    for (int k = 0; k < DTP_NLIMITS; k++)
        fprintf(f, "%s,", dtp_limit_fields[k].name);
    fputs("recompute_modules,", f);
}

void dtp_plan_csv(FILE *f, const struct dtp_plan *p) {
    char text[128];
    for (int k = 0; k < DTP_NLIMITS; k++)
        fprintf(f, "%s,",
                p ? dtp_limit_text((enum dtp_limit)k, dtp_limit_get(p, (enum dtp_limit)k), text,
                                   sizeof text)
                  : "");
    int modules = p ? p->recompute_modules : 0;
    dtp_csv_put(f, dtp_set_text(dtp_module_names, modules, text, sizeof text), false);
}

/* Those that fit before those that do not; timed ones by time, the rest by bound. */
static int better(const void *x, const void *y) {
    const struct dtp_legal *a = x, *b = y;
    int over = (a->verdict == DTP_VERDICT_OVER_MEMORY) - (b->verdict == DTP_VERDICT_OVER_MEMORY);
    if (over != 0)
        return over;
    if ((a->time_s > 0) != (b->time_s > 0))
        return a->time_s > 0 ? -1 : 1;
    double p = a->time_s > 0 ? a->time_s : a->bound_s, q = b->time_s > 0 ? b->time_s : b->bound_s;
    if (p != q)
        return p < q ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

void dtp_report_csv(struct dtp_arena *a, FILE *f, const struct dtp_report *r) {
    const struct dtp_search *s = r->search;
    struct dtp_legal *legal = DTP_NEW(a, struct dtp_legal, s->nlegal + 1);
    struct dtp_plan p;
    char bound[32], time[32];
    if (s->nlegal > 0)
        memcpy(legal, s->legal, s->nlegal * sizeof *legal);
    qsort(legal, s->nlegal, sizeof *legal, better);
    dtp_plan_csv_head(f);
    fputs("verdict,reason,device_bytes,bound_s,time_s\n", f);
    for (const struct dtp_legal *x = legal; x < legal + s->nlegal; x++) {
        dtp_search_plan(s, x, &p);
        dtp_plan_csv(f, &p);
        dtp_double_text(x->bound_s, bound, sizeof bound);
        dtp_double_text(x->time_s, time, sizeof time);
        fprintf(f, "%s,,%llu,%s,%s\n", dtp_verdict_names[x->verdict],
                (unsigned long long)x->device_bytes, bound, x->time_s > 0 ? time : "");
    }
    for (uint64_t i = 0; i < s->space.ncandidates; i++) {
        if (s->reason[i] == DTP_LEGAL)
            continue;
        dtp_space_candidate(&s->space, i, &p);
        if (p.recompute_layers == DTP_FEWEST_LAYERS)
            p.recompute_layers = 1; /* what was looked at */
        dtp_plan_csv(f, &p);
        fprintf(f, "%s,\"%s\",,,\n", dtp_verdict_names[DTP_VERDICT_ILLEGAL],
                dtp_reasons[s->reason[i]]);
    }
}
