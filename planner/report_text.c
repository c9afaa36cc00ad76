#include "planner/report.h"

#include <math.h>
#include <string.h>

#include "models/schedule/schedule.h"
#include "sim/base/text.h"
#include "sim/base/units.h"

/* ---- memory ---- */

enum { MOST_STAGES_SHOWN = 8, MEMORY_COLUMNS = 64, NSEGMENTS = 6 };

static const struct segment {
    const char *name, *mark;
    enum dtp_style style;
} segments[NSEGMENTS] = {
    {"weights", "█", DTP_BLUE},           {"gradients", "▓", DTP_CYAN},
    {"optimizer", "▒", DTP_GREEN},        {"activations", "░", DTP_YELLOW},
    {"logits and buffers", "▪", DTP_RED}, {"rest: reserve and context", "·", DTP_DIM}};

static void segment_bytes(const struct dtp_stage_memory *m, double *out) {
    out[0] = (double)m->weights_bytes;
    out[1] = (double)m->gradients_bytes;
    out[2] = (double)m->optimizer_bytes;
    out[3] = (double)m->activations_bytes;
    out[4] = (double)(m->logits_bytes + m->buffers_bytes);
    out[5] = (double)(m->device_bytes - m->peak_bytes);
}

static void stacked_bar(const struct dtp_term *t, const double *bytes, double full, int width) {
    double sum = 0;
    int drawn = 0;
    for (int i = 0; i < NSEGMENTS; i++) {
        sum += bytes[i];
        int end = (int)(sum / full * width + 0.5);
        for (; drawn < end && drawn < width; drawn++)
            dtp_term_print(t, segments[i].style, "%s", segments[i].mark);
    }
    fprintf(t->file, "%*s", width - drawn, "");
}

/* Which stages are shown: all, or the first, the last, the worst and some between. */
static bool is_shown(int stage, int nstages, int worst) {
    if (nstages <= MOST_STAGES_SHOWN || stage == worst || stage == nstages - 1)
        return true;
    int every = (nstages + MOST_STAGES_SHOWN - 2) / (MOST_STAGES_SHOWN - 1);
    return stage % every == 0;
}

static void zero_stages(struct dtp_arena *a, const struct dtp_term *t, const struct dtp_problem *p,
                        const struct dtp_result *best) {
    char text[32];
    struct dtp_str s = {.a = a};
    dtp_str_add(&s, "With ZeRO");
    for (int z = 0; z < 4; z++) {
        uint64_t bytes = best->by_zero_stage[z];
        dtp_str_printf(&s, "%s%d: %s%s", z ? ",  " : " ", z,
                       dtp_fmt_bytes_gib((double)bytes, text, sizeof text),
                       best->zero_refused >> z & 1     ? " (refused)"
                       : bytes > p->memory_limit_bytes ? " (too much)"
                                                       : "");
    }
    fputs("  ", t->file);
    dtp_term_wrap(t, DTP_PLAIN, 2, 4, s.at);
}

static void offloaded(struct dtp_arena *a, const struct dtp_term *t, const struct dtp_problem *p,
                      const struct dtp_plan *plan) {
    const struct dtp_node *node = &p->cluster->node;
    bool nvme = plan->offload_to == DTP_OFFLOAD_NVME;
    char bytes[32], room[32];
    if (plan->offload == DTP_OFFLOAD_NONE)
        return;
    dtp_fmt_bytes_gib(dtp_plan_offloaded_bytes(p, plan), bytes, sizeof bytes);
    dtp_fmt_bytes_gib(nvme ? node->nvme_bytes : (double)node->host_memory_bytes, room, sizeof room);
    fputs("  ", t->file);
    dtp_term_wrap(t, DTP_PLAIN, 2, 4,
                  dtp_arena_printf(a,
                                   "%s of a node: %s of %s, without what loading a checkpoint and "
                                   "pinned buffers take",
                                   nvme ? "On the NVMe" : "In the host's memory", bytes, room));
}

static void legend(const struct dtp_term *t) {
    int column = 0;
    for (int i = 0; i < NSEGMENTS; i++) {
        bool wraps = column > 0 && column + 4 + (int)strlen(segments[i].name) > t->width;
        fputs(wraps ? "\n  " : "  ", t->file);
        column = wraps ? 2 : column + 2;
        column += dtp_term_print(t, segments[i].style, "%s", segments[i].mark);
        column += dtp_term_print(t, DTP_DIM, " %s", segments[i].name);
    }
    putc('\n', t->file);
}

/* A bar and the parts in GiB for each pipeline stage, and the sums with each ZeRO stage. */
static void print_memory(struct dtp_arena *a, const struct dtp_term *t, const struct dtp_problem *p,
                         const struct dtp_result *best) {
    char text[64], limit[32];
    snprintf(text, sizeof text, "GiB; a full bar is the limit of %s",
             dtp_fmt_bytes_gib((double)p->memory_limit_bytes, limit, sizeof limit));
    dtp_term_title(t, best->nstages > 1 ? "Memory of a GPU, by pipeline stage" : "Memory of a GPU",
                   text);
    int width = t->width - MEMORY_COLUMNS;
    double bytes[NSEGMENTS], full = (double)p->memory_limit_bytes;
    int worst = 0;
    for (int s = 1; s < best->nstages; s++)
        if (best->stages[s].device_bytes > best->stages[worst].device_bytes)
            worst = s;
    dtp_term_print(t, DTP_DIM, "  stage %*s %6s%8s%8s%8s%8s%8s%8s\n", width, "", "sum", "weights",
                   "grads", "optim", "activ.", "logits", "rest");
    for (int s = 0; s < best->nstages; s++) {
        if (!is_shown(s, best->nstages, worst))
            continue;
        const struct dtp_stage_memory *m = &best->stages[s];
        segment_bytes(m, bytes);
        fprintf(t->file, "  %5d ", s);
        stacked_bar(t, bytes, full, width);
        dtp_term_print(t, m->device_bytes > p->memory_limit_bytes ? DTP_RED : DTP_BOLD, " %6.1f",
                       (double)m->device_bytes / DTP_GIB);
        for (int i = 0; i < NSEGMENTS; i++)
            fprintf(t->file, "%8.1f", bytes[i] / DTP_GIB);
        putc('\n', t->file);
    }
    legend(t);
    zero_stages(a, t, p, best);
    offloaded(a, t, p, &best->plan);
}

enum {
    LABEL = 16,
    TERM_LABEL = 32,
    MOST_REASONS = 3,
    MOST_SHADES = 3,
    MANY = 8,
    NEARBY = 20,
    ENOUGH_A_STAGE = 16
};

/* Terms below this part of the step would print as 0.0 %. */
static const double UNSEEN = 0.0005;

/* A count below it is printed by its digits; the mask is told of where it leaves out this part of the FLOPs. */
static const double FEW = 10, MASK_MATTERS = 0.1, ATTENTION_MATTERS = 1.5;

/* ---- step time and what follows from it ---- */

static const char *gpu_hours(double days, int gpus, char *buf, size_t size) {
    return dtp_fmt_count(days * gpus * DTP_S_PER_DAY / DTP_S_PER_HOUR, buf, size);
}

/* Days of a run, hours and minutes of one that takes less than a day. */
static const char *run_time(double days, char *buf, size_t size) {
    if (days < 1)
        return dtp_fmt_time(days * DTP_S_PER_DAY, buf, size);
    snprintf(buf, size, "%.1f days", days);
    return buf;
}

/* The run with interruptions, where at least one is to be expected. */
static void failures(struct dtp_arena *a, const struct dtp_term *t,
                     const struct dtp_training *training, int gpus) {
    const struct dtp_goodput *g = &training->goodput;
    char every[32], write[32], between[32], bytes[32], hours[32];
    fprintf(t->file, "  %-*s ", LABEL, "with failures");
    dtp_fmt_time(g->failure_s, every, sizeof every);
    dtp_fmt_time(g->write_s, write, sizeof write);
    dtp_fmt_time(g->checkpoint_s, between, sizeof between);
    if (training->days_with_failures <= 0) {
        dtp_term_wrap(t, DTP_RED, LABEL + 3, LABEL + 3,
                      dtp_arena_printf(a,
                                       "no progress: one is to be expected every %s, and a "
                                       "checkpoint takes %s after each %s",
                                       every, write, between));
        return;
    }
    dtp_term_print(t, DTP_BOLD, "%s", run_time(training->days_with_failures, hours, sizeof hours));
    fputs("   ", t->file);
    const char *size =
        g->checkpoint_bytes > 0
            ? dtp_arena_printf(a, "%s in ",
                               dtp_fmt_bytes_si(g->checkpoint_bytes, bytes, sizeof bytes))
            : "";
    dtp_term_wrap(
        t, DTP_DIM, LABEL + 3 + 12, LABEL + 3,
        dtp_arena_printf(a,
                         "%s GPU-hours; one every %s, %.1f %% of the time trains; a checkpoint "
                         "(%s%s) every %s",
                         gpu_hours(training->days_with_failures, gpus, hours, sizeof hours), every,
                         g->fraction * 100, size, write, between));
}

static void days(struct dtp_arena *a, const struct dtp_term *t, const struct dtp_report *r,
                 const struct dtp_result *best) {
    const struct dtp_model *m = r->setup->problem.model;
    struct dtp_training training = dtp_report_training(r, best);
    double tokens = training.tokens;
    if (training.days <= 0)
        return;
    struct dtp_param_counts c;
    dtp_model_params(m, m->vocab, &c);
    char count[32], label[48];
    double n = r->setup->problem.gpus, x = best->flops_per_gpu_per_s, p = (double)c.active;
    snprintf(label, sizeof label, "%s tokens", dtp_fmt_count(tokens, count, sizeof count));
    fprintf(t->file, "  %-*s ", LABEL, label);
    dtp_term_print(t, DTP_BOLD, "%s", run_time(training.days, count, sizeof count));
    struct dtp_str s = {.a = a};
    double seq = r->setup->problem.seq;
    char ideal[32];
    dtp_str_printf(&s, "%s GPU-hours; 6TP/(nX) gives %s",
                   gpu_hours(training.days, r->setup->problem.gpus, count, sizeof count),
                   run_time(6 * tokens * p / (n * x) / DTP_S_PER_DAY, ideal, sizeof ideal));
    if (dtp_model_forward_flops(m, (int)seq) > ATTENTION_MATTERS * 2 * p * seq)
        dtp_str_printf(&s, " (attention is not in it)");
    if (best->plan.recompute == DTP_RECOMPUTE_FULL && best->mfu > 0)
        dtp_str_printf(&s, ", 8TP/(nX) with recomputation counted in X %s",
                       run_time(8 * tokens * p / (n * x * best->hfu / best->mfu) / DTP_S_PER_DAY,
                                ideal, sizeof ideal));
    fputs("   ", t->file);
    dtp_term_wrap(t, DTP_DIM, LABEL + 3 + 12, LABEL + 3, s.at);
    if (training.days_with_failures != training.days)
        failures(a, t, &training, r->setup->problem.gpus);
}

/* Prints a note in the column of the values. */
static void note(const struct dtp_term *t, enum dtp_style style, const char *text) {
    fprintf(t->file, "  %*s ", LABEL, "");
    dtp_term_wrap(t, style, LABEL + 3, LABEL + 3, text);
}

static void bubble(struct dtp_arena *a, const struct dtp_term *t, const struct dtp_result *best) {
    fprintf(t->file, "  %-*s ", LABEL, "bubble");
    dtp_term_print(t, DTP_BOLD, "%.1f %%", best->bubble.fraction * 100);
    fprintf(t->file, " of the pipeline's time, mean over the stages\n");
    note(t, DTP_DIM,
         dtp_arena_printf(a, "warm-up %.1f, drain %.1f, imbalance %.1f; over ideal time %.1f %%",
                          best->bubble.warmup * 100, best->bubble.drain * 100,
                          best->bubble.imbalance * 100, best->bubble.over_ideal * 100));
}

static void numbers(struct dtp_arena *a, const struct dtp_term *t, const struct dtp_report *r,
                    const struct dtp_result *best) {
    char text[32];
    const struct dtp_problem *p = &r->setup->problem;
    double peak = p->cluster->gpu.peak_flops_per_s[p->dtype];
    fprintf(t->file, "  %-*s ", LABEL, "step time");
    dtp_term_print(t, DTP_BOLD, "%s", dtp_fmt_time(best->step_s, text, sizeof text));
    fprintf(t->file, "   %s tokens/s", dtp_fmt_count(best->tokens_per_s, text, sizeof text));
    bool images = p->model->nconvs > 0 || p->model->image > 0;
    double rate = p->global_batch / best->step_s;
    if (rate < FEW)
        snprintf(text, sizeof text, "%.2g", rate);
    fprintf(t->file, "   %s %s/s\n", rate < FEW ? text : dtp_fmt_count(rate, text, sizeof text),
            images ? "images" : "sequences");
    fprintf(t->file, "  %-*s ", LABEL, "per GPU");
    dtp_term_print(t, DTP_BOLD, "%s", dtp_fmt_flops(best->flops_per_gpu_per_s, text, sizeof text));
    fprintf(t->file, "   MFU ");
    dtp_term_print(t, DTP_BOLD, "%.1f %%", best->mfu * 100);
    fprintf(t->file, "   HFU %.1f %%\n", best->hfu * 100);
    note(t, DTP_DIM,
         dtp_arena_printf(a,
                          "of %s dense %s; model FLOPs: attention in full, LM head, no "
                          "recomputation (HFU: with it)",
                          dtp_fmt_flops(peak, text, sizeof text), dtp_dtype_names[p->dtype]));
    if (best->causal_mfu < (1 - MASK_MATTERS) * best->mfu)
        note(t, DTP_DIM,
             dtp_arena_printf(a,
                              "without the attention that the causal mask leaves out: %s, MFU "
                              "%.1f %%",
                              dtp_fmt_flops(best->causal_mfu * peak, text, sizeof text),
                              best->causal_mfu * 100));
    if (best->plan.pp > 1)
        bubble(a, t, best);
    const char *layers = images ? NULL : dtp_uneven_layers(a, p->model, &best->plan);
    if (layers) {
        fprintf(t->file, "  %-*s ", LABEL, "layers");
        dtp_term_wrap(t, DTP_PLAIN, LABEL + 3, LABEL + 3,
                      dtp_arena_printf(a, "%s on the %sstages, in their order", layers,
                                       best->plan.vpp > 1 ? "virtual " : ""));
    }
    const char *unusual = dtp_unusual_words(a, r, best);
    if (unusual) {
        fprintf(t->file, "  %-*s ", LABEL, "unusual");
        dtp_term_wrap(t, DTP_YELLOW, LABEL + 3, LABEL + 3, unusual);
    }
    days(a, t, r, best);
    for (const char *const *w = dtp_report_warnings(a, p, best); *w; w++)
        note(t, DTP_YELLOW, *w);
}

static void breakdown(const struct dtp_term *t, const struct dtp_result *best) {
#define X(field, key, words, shorter, color, style) DTP_##style,
    static const enum dtp_style style[DTP_NTERMS] = {DTP_BREAKDOWN_LIST(X)};
#undef X
    dtp_term_title(t, "Where the step goes", "on the rank that ends last");
    int width = t->width - TERM_LABEL - 26;
    char text[32];
    double full = 0;
    for (int i = 0; i < DTP_NTERMS; i++)
        full = fmax(full, dtp_breakdown_term(&best->breakdown, i));
    for (int i = 0; i < DTP_NTERMS; i++) {
        double v = dtp_breakdown_term(&best->breakdown, i);
        if (v < UNSEEN * best->step_s)
            continue;
        fprintf(t->file, "  %-*s", TERM_LABEL, dtp_term_words[i]);
        dtp_term_bar(t, style[i], v / full, width);
        fprintf(t->file, " %9s %5.1f %%\n", dtp_fmt_time(v, text, sizeof text),
                v / best->step_s * 100);
    }
}

/* ---- the others ---- */

/* Columns that are the same in every plan shown are left out. */
struct columns {
    bool cp, ep, etp, zero_group;
};

static void other_row(const struct dtp_term *t, const struct columns *show,
                      const struct dtp_result *best, const struct dtp_result *o) {
    char text[32], again[32];
    const struct dtp_plan *p = &o->plan;
    int n = fprintf(t->file, "  %3d %3d %4d", p->tp, p->pp, p->dp);
    if (show->cp)
        n += fprintf(t->file, " %3d", p->cp);
    if (show->ep)
        n += fprintf(t->file, " %3d", p->ep);
    if (show->etp)
        n += fprintf(t->file, " %3d", dtp_plan_etp(p));
    n += fprintf(t->file, " %3d %3d %4d", p->vpp, p->microbatch_size, p->zero_stage);
    if (show->zero_group && p->zero_stage == 0)
        n += fprintf(t->file, "     -");
    else if (show->zero_group)
        n += fprintf(t->file, " %5d", p->zero_group > 0 ? p->zero_group : p->dp * p->cp);
    n += fprintf(t->file, " %-3s %-11s %-9s", p->sequence_parallel ? "on" : "off",
                 dtp_schedule_kinds[p->schedule].name, dtp_recompute_text(p, again, sizeof again));
    n += fprintf(t->file, " %8s %+6.1f %%", dtp_fmt_time(o->step_s, text, sizeof text),
                 (o->step_s / best->step_s - 1) * 100);
    const char *why = o->why_not ? o->why_not : "the best plan";
    fputs(n + 2 + (int)strlen(why) > t->width ? "\n        " : "  ", t->file);
    if (o->why_not)
        dtp_term_wrap(t, DTP_DIM, 8, 8, why);
    else
        dtp_term_print(t, DTP_GREEN, "%s\n", why);
}

static void others(const struct dtp_term *t, const struct dtp_report *r) {
    const struct dtp_search *s = r->search;
    const struct dtp_result *best = &s->result[0];
    struct columns show = {0};
    if (s->nresults + (size_t)s->nnear_misses < 2)
        return;
    for (size_t i = 0; i < s->nresults; i++) {
        show.cp |= s->result[i].plan.cp > 1;
        show.ep |= s->result[i].plan.ep > 1;
        show.etp |= dtp_plan_etp(&s->result[i].plan) != s->result[i].plan.tp;
        show.zero_group |= s->result[i].plan.zero_group > 0;
    }
    dtp_term_title(t, "Next best", "why each lost, in percent of the best step");
    dtp_term_print(t, DTP_DIM,
                   "   tp  pp   dp%s%s%s vpp  mb ZeRO%s sp  schedule    recompute     step\n",
                   show.cp ? "  cp" : "", show.ep ? "  ep" : "", show.etp ? " etp" : "",
                   show.zero_group ? "  over" : "");
    other_row(t, &show, best, best);
    int shades = 0;
    for (size_t i = 1; i < s->nresults; i++)
        if (!s->new_layout[i] && (shades < MOST_SHADES || &s->result[i] == s->usual)) {
            other_row(t, &show, best, &s->result[i]);
            shades++;
        }
    bool labelled = false;
    for (size_t i = 1; i < s->nresults; i++)
        if (s->new_layout[i]) {
            dtp_term_print(t, DTP_DIM, "%s", labelled ? "" : "  other layouts\n");
            labelled = true;
            other_row(t, &show, best, &s->result[i]);
        }
    if (s->nnear_misses > 0)
        dtp_term_print(t, DTP_DIM, "  over the memory limit\n");
    for (int i = 0; i < s->nnear_misses; i++)
        other_row(t, &show, best, &s->near_miss[i]);
}

static void print_counts(struct dtp_arena *a, const struct dtp_term *t,
                         const struct dtp_report *r) {
    const struct dtp_counts *c = &r->search->counts;
    char n[6][32];
    const uint64_t counts[6] = {c->candidates, c->illegal,   c->over_memory,
                                c->bounded,    c->estimated, c->simulated};
    for (int i = 0; i < 6; i++)
        dtp_fmt_count((double)counts[i], n[i], sizeof n[i]);
    struct dtp_str s = {.a = a};
    dtp_str_printf(
        &s,
        "Searched %s plans in %.2f s: %s illegal, %s over memory, %s cannot be faster by "
        "their bound, %s estimated, %s of them simulated.",
        n[0], c->seconds, n[1], n[2], n[3], n[4], n[5]);
    if (c->too_large > 0)
        dtp_str_printf(&s,
                       " %s of them could not be: this machine has no memory for "
                       "their events, and one may be faster.",
                       dtp_fmt_count((double)c->too_large, n[0], sizeof n[0]));
    putc('\n', t->file);
    dtp_term_wrap(t, DTP_PLAIN, 2, 2, s.at);
    for (int k = 0; k < MOST_REASONS; k++) {
        int reason = dtp_counts_reason(c, k);
        if (reason < 0)
            break;
        fprintf(t->file, "  %9s  ", dtp_fmt_count((double)c->reason[reason], n[0], sizeof n[0]));
        dtp_term_wrap(t, DTP_DIM, 13, 13, dtp_reasons[reason]);
    }
}

void dtp_report_result(struct dtp_arena *a, const struct dtp_term *t, const struct dtp_report *r,
                       const struct dtp_result *result) {
    numbers(a, t, r, result);
    breakdown(t, result);
    print_memory(a, t, &r->setup->problem, result);
}

static int common_divisor(int a, int b) {
    while (b) {
        int rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* A batch that shares few factors with the GPUs rules most layouts out: names a better one near it. */
static void batch_hint(struct dtp_arena *a, const struct dtp_term *t, const struct dtp_problem *p) {
    int shared = common_divisor(p->global_batch, p->gpus);
    if (p->gpus / shared < MANY)
        return;
    for (int d = 1; d <= p->global_batch / NEARBY; d++)
        for (int sign = -1; sign <= 1; sign += 2) {
            int batch = p->global_batch + sign * d;
            int better = common_divisor(batch, p->gpus);
            if (better < shared * MANY)
                continue;
            fputs("\n  ", t->file);
            dtp_term_wrap(
                t, DTP_YELLOW, 2, 2,
                dtp_arena_printf(a,
                                 "Hint: a batch of %d divides over at most %d of the %d GPUs; one "
                                 "of %d over %d, which allows more layouts.",
                                 p->global_batch, shared, p->gpus, batch, better));
            return;
        }
}

/* The model's own batch on few GPUs makes steps of very many microbatches: names one that fills the pipeline as well. */
static void default_batch_hint(struct dtp_arena *a, const struct dtp_term *t,
                               const struct dtp_report *r, const struct dtp_plan *plan) {
    int m = dtp_plan_num_microbatches(plan), enough = ENOUGH_A_STAGE * plan->pp;
    if (r->setup->ask.batch > 0 || m < MANY * enough)
        return;
    fputs("\n  ", t->file);
    dtp_term_wrap(
        t, DTP_YELLOW, 2, 2,
        dtp_arena_printf(a,
                         "Hint: the model's own batch of %d makes %d microbatches a step here; "
                         "--batch %d makes %d, which fill this pipeline nearly as well.",
                         plan->global_batch_size, m, plan->dp * plan->microbatch_size * enough,
                         enough));
}

void dtp_report_text(struct dtp_arena *a, const struct dtp_term *t, const struct dtp_report *r) {
    const struct dtp_result *best = &r->search->result[0];
    dtp_report_header(a, t, r);
    putc('\n', t->file);
    dtp_term_print(t, DTP_BOLD, "Best plan  ");
    dtp_term_wrap(t, DTP_GREEN, 11, 11, dtp_plan_words(a, &best->plan));
    /* one line however wide, so that it can be copied */
    dtp_term_print(t, DTP_DIM, "  dtplan simulate %s\n",
                   dtp_report_flags(a, r->setup, &best->plan));
    putc('\n', t->file);
    dtp_report_result(a, t, r, best);
    others(t, r);
    batch_hint(a, t, &r->setup->problem);
    default_batch_hint(a, t, r, &best->plan);
    print_counts(a, t, r);
}
