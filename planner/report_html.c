/* One page with inline SVG: no scripts, no other files. */
#include "models/schedule.h"
#include "planner/report.h"
#include "sim/base/text.h"
#include "sim/base/units.h"
#include "traces/plot.h"

enum {
    PAGE = 1080,
    BAR_LEFT = 220,
    BAR_WIDTH = 640,
    ROW = 22,
    MOST_POINTS = 4000,
    PLOT_HEIGHT = 320
};

/* Terms below this part of the step would print as 0.0 %. */
static const double UNSEEN = 0.0005;

static void head(FILE *f, const char *name) {
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>dtplan: ", f);
    dtp_svg_text(f, name);
    fputs(
        "</title>\n<style>body{font:15px/1.45 system-ui,sans-serif;max-width:1080px;margin:2em "
        "auto;padding:0 "
        "1em;color:#1b1f24}h1{font-size:1.3em}h2{font-size:1.1em;margin-top:1.8em}table{border-"
        "collapse:"
        "collapse;width:100%}td,th{padding:3px 8px;text-align:right;border-bottom:1px solid "
        "#e3e6ea}"
        "td{white-space:nowrap}td:last-child,th:last-child{text-align:left;white-space:normal}code{"
        "background:#f2f4f7;padding:.5em;display:"
        "block;white-space:pre-wrap}.big span{display:inline-block;margin-right:2.2em}.big b{font-"
        "size:1.6em;display:block}text{font:12px system-ui,sans-serif;fill:#1b1f24}.note{color:#68"
        "7078}.warn{color:#b35c00}svg{max-width:100%;height:auto}.wide{overflow-x:auto}</style></"
        "head><body>\n",
        f);
}

static void begin_svg(FILE *f, int height) {
    fprintf(f, "<svg width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n", PAGE, height, PAGE,
            height);
}

static void cards(FILE *f, const struct dtp_result *b) {
    char text[32];
    fprintf(f, "<p class=\"big\"><span><b>%s</b>a step</span>",
            dtp_fmt_time(b->step_s, text, sizeof text));
    fprintf(f, "<span><b>%s</b>tokens/s</span>", dtp_fmt_count(b->tokens_per_s, text, sizeof text));
    fprintf(f, "<span><b>%s</b>per GPU</span>",
            dtp_fmt_flops(b->flops_per_gpu_per_s, text, sizeof text));
    fprintf(f, "<span><b>%.1f %%</b>MFU</span><span><b>%.1f %%</b>bubble</span></p>\n",
            b->mfu * 100, b->bubble.fraction * 100);
}

static void breakdown(FILE *f, const struct dtp_result *b) {
    static const char *const color[DTP_NTERMS] = {"#2f9e44", "#12b886", "#1c7ed6", "#1c7ed6",
                                                  "#1c7ed6", "#f08c00", "#4263eb", "#4263eb",
                                                  "#0c8599", "#c92a2a", "#e03131", "#868e96"};
    double full = 0;
    int n = 0, y = 0;
    for (int i = 0; i < DTP_NTERMS; i++) {
        double v = dtp_breakdown_term(&b->breakdown, i);
        full = v > full ? v : full;
        n += v >= UNSEEN * b->step_s;
    }
    fputs("<h2>Where the step goes</h2>", f);
    begin_svg(f, n * ROW + 4);
    char text[32];
    for (int i = 0; i < DTP_NTERMS; i++) {
        double v = dtp_breakdown_term(&b->breakdown, i);
        if (v < UNSEEN * b->step_s)
            continue;
        double w = v / full * BAR_WIDTH;
        fprintf(
            f,
            "<text x=\"0\" y=\"%d\">%s</text><rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"16\" "
            "fill=\"%s\"/><text x=\"%.1f\" y=\"%d\">%s, %.1f %%</text>\n",
            y + 14, dtp_term_words[i], BAR_LEFT, y + 2, w, color[i], BAR_LEFT + w + 6, y + 14,
            dtp_fmt_time(v, text, sizeof text), v / b->step_s * 100);
        y += ROW;
    }
    fputs("</svg>\n", f);
}

static void memory(FILE *f, const struct dtp_problem *p, const struct dtp_result *b) {
    static const char *const color[] = {"#1c7ed6", "#15aabf", "#2f9e44",
                                        "#fab005", "#e8590c", "#adb5bd"};
    static const char *const name[] = {"weights",     "gradients",       "optimizer",
                                       "activations", "logits, buffers", "reserve, context"};
    double full = (double)p->memory_limit_bytes;
    for (int s = 0; s < b->nstages; s++)
        if ((double)b->stages[s].device_bytes > full)
            full = (double)b->stages[s].device_bytes;
    fprintf(f, "<h2>Memory of a GPU, by pipeline stage</h2><p class=\"note\">");
    for (int i = 0; i < 6; i++)
        fprintf(f, "<span style=\"color:%s\">&#9632;</span> %s&ensp;", color[i], name[i]);
    fputs("</p>", f);
    begin_svg(f, b->nstages * ROW + ROW);
    for (int s = 0; s < b->nstages; s++) {
        const struct dtp_stage_memory *m = &b->stages[s];
        const double part[6] = {(double)m->weights_bytes,
                                (double)m->gradients_bytes,
                                (double)m->optimizer_bytes,
                                (double)m->activations_bytes,
                                (double)(m->logits_bytes + m->buffers_bytes),
                                (double)(m->device_bytes - m->peak_bytes)};
        double x = 60, scale = (PAGE - 200) / full;
        fprintf(f, "<text x=\"0\" y=\"%d\">stage %d</text>", s * ROW + 14, s);
        for (int i = 0; i < 6; i++) {
            fprintf(f, "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"16\" fill=\"%s\"/>", x,
                    s * ROW + 2, part[i] * scale, color[i]);
            x += part[i] * scale;
        }
        fprintf(f, "<text x=\"%.1f\" y=\"%d\">%.1f GiB</text>\n", x + 6, s * ROW + 14,
                (double)m->device_bytes / DTP_GIB);
    }
    double limit = 60 + (double)p->memory_limit_bytes * (PAGE - 200) / full;
    int bottom = b->nstages * ROW + 4;
    char text[32];
    fprintf(f,
            "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"0\" y2=\"%d\" stroke=\"#c92a2a\"/>"
            "<text x=\"%.1f\" y=\"%d\" text-anchor=\"end\">limit %s</text></svg>\n",
            limit, limit, bottom, limit, bottom + 14,
            dtp_fmt_bytes_gib((double)p->memory_limit_bytes, text, sizeof text));
}

enum { PLOT_LEFT = 70, PLOT_TOP = 10, PLOT_TICKS = 4 };

/* Gridlines: memory across, up to the limit; step time upwards, up to three times the best. */
static void grid(FILE *f, double limit_bytes, double top_s) {
    char text[32];
    double width = PAGE - PLOT_LEFT - 40;
    fprintf(f,
            "<rect x=\"%d\" y=\"%d\" width=\"%.0f\" height=\"%d\" fill=\"none\" "
            "stroke=\"#ced4da\"/>\n",
            PLOT_LEFT, PLOT_TOP, width, PLOT_HEIGHT);
    for (int i = 0; i <= PLOT_TICKS; i++) {
        double part = (double)i / PLOT_TICKS, x = PLOT_LEFT + part * width;
        double y = PLOT_TOP + PLOT_HEIGHT * (1 - part);
        fprintf(f,
                "<path d=\"M%.1f %d V%d M%d %.1f H%.1f\" stroke=\"#f1f3f5\"/>"
                "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>",
                x, PLOT_TOP, PLOT_TOP + PLOT_HEIGHT, PLOT_LEFT, y, PLOT_LEFT + width, x,
                PLOT_TOP + PLOT_HEIGHT + 16,
                dtp_fmt_bytes_gib(part * limit_bytes, text, sizeof text));
        fprintf(f, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", PLOT_LEFT - 6,
                y + 4, dtp_fmt_time(part * top_s, text, sizeof text));
    }
}

static void scatter(FILE *f, const struct dtp_problem *p, const struct dtp_search *s) {
    double best_s = s->result[0].step_s, top_s = 3 * best_s;
    double limit = (double)p->memory_limit_bytes, width = PAGE - PLOT_LEFT - 40;
    fputs(
        "<h2>All plans that were timed</h2><p class=\"note\">step time over device memory; large: "
        "simulated, red: the best</p>",
        f);
    begin_svg(f, PLOT_HEIGHT + 40);
    grid(f, limit, top_s);
    int drawn = 0;
    for (size_t i = 0; i < s->nlegal && drawn < MOST_POINTS; i++) {
        const struct dtp_legal *l = &s->legal[i];
        if (l->time_s <= 0 || l->time_s > top_s)
            continue;
        bool simulated = l->verdict == DTP_VERDICT_SIMULATED;
        fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%d\" fill=\"%s\" fill-opacity=\".6\"/>\n",
                PLOT_LEFT + (double)l->device_bytes / limit * width,
                PLOT_TOP + PLOT_HEIGHT * (1 - l->time_s / top_s), simulated ? 4 : 2,
                l->number == s->number[0] ? "#c92a2a"
                : simulated               ? "#2f9e44"
                                          : "#74809a");
        drawn++;
    }
    fputs("</svg>\n", f);
}

static void others(FILE *f, const struct dtp_search *s) {
    char text[32];
    fputs(
        "<h2>Next best</h2><div "
        "class=\"wide\"><table><tr><th>tp<th>pp<th>dp<th>cp<th>ep<th>etp<th>vpp<th>"
        "mb<th>ZeRO<th>over<th>sp<th>schedule<th>recompute<th>step<th>slower<th>why it lost</tr>\n",
        f);
    for (size_t i = 0; i < s->nresults; i++) {
        const struct dtp_result *o = &s->result[i];
        const struct dtp_plan *p = &o->plan;
        fprintf(f, "<tr><td>%d<td>%d<td>%d<td>%d<td>%d<td>%d<td>%d<td>%d<td>%d", p->tp, p->pp,
                p->dp, p->cp, p->ep, dtp_plan_etp(p), p->vpp, p->microbatch_size, p->zero_stage);
        if (p->zero_stage == 0)
            fputs("<td>-", f);
        else
            fprintf(f, "<td>%d", p->zero_group > 0 ? p->zero_group : p->dp * p->cp);
        fprintf(f, "<td>%s<td>%s<td>%s<td>%s", p->sequence_parallel ? "on" : "off",
                dtp_schedule_kinds[p->schedule].name, dtp_recompute_names[p->recompute],
                dtp_fmt_time(o->step_s, text, sizeof text));
        fprintf(f, "<td>%+.1f %%<td>", (o->step_s / s->result[0].step_s - 1) * 100);
        dtp_svg_text(f, o->why_not ? o->why_not : "the best plan");
        fputs("</tr>\n", f);
    }
    fputs("</table></div>\n", f);
}

void dtp_report_html(struct dtp_arena *a, FILE *f, const struct dtp_report *r) {
    const struct dtp_problem *p = &r->setup->problem;
    const struct dtp_result *best = &r->search->result[0];
    const struct dtp_counts *c = &r->search->counts;
    head(f, p->model->name);
    fputs("<h1>", f);
    dtp_svg_text(f, dtp_problem_words(a, r));
    fputs("</h1>\n", f);
    fputs("<p><b>", f);
    dtp_svg_text(f, dtp_plan_words(a, &best->plan));
    fputs("</b></p><code>dtplan simulate ", f);
    dtp_svg_text(f, dtp_report_flags(a, r->setup, &best->plan));
    fputs("</code>\n", f);
    cards(f, best);
    for (const char *const *w = dtp_report_warnings(a, p, best); *w; w++)
        fprintf(f, "<p class=\"warn\">%s</p>\n", *w);
    breakdown(f, best);
    memory(f, p, best);
    others(f, r->search);
    scatter(f, p, r->search);
    fprintf(
        f,
        "<p class=\"note\">%llu plans: %llu illegal, %llu over memory, %llu bounded, %llu "
        "estimated, %llu of them simulated. dtplan %s. MFU counts model FLOPs (no "
        "recomputation, attention in full, LM head) against the dense peak.</p></body></html>\n",
        (unsigned long long)c->candidates, (unsigned long long)c->illegal,
        (unsigned long long)c->over_memory, (unsigned long long)c->bounded,
        (unsigned long long)c->estimated, (unsigned long long)c->simulated, DTP_VERSION);
}
