/* This file writes one page with inline SVG, without scripts or other files. */
#include "models/schedule/schedule.h"
#include "planner/report.h"
#include "sim/base/text.h"
#include "sim/base/units.h"
#include "traces/tasks/plot.h"

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

/* Light or dark as the reader's system is; what is wider than the window scrolls by itself. */
static const char style[] =
    ":root{color-scheme:light dark;--page:#fff;--text:#1b1f24;--dim:#687078;--line:#e3e6ea;"
    "--code:#f2f4f7;--warn:#b35c00}\n"
    "@media(prefers-color-scheme:dark){:root{--page:#15181c;--text:#e4e7eb;--dim:#98a1ab;"
    "--line:#343a41;--code:#22272d;--warn:#f0a04b}}\n"
    "body{font:15px/1.45 system-ui,sans-serif;max-width:1080px;margin:2em auto;padding:0 1em;"
    "color:var(--text);background:var(--page)}\n"
    "h1{font-size:1.3em}h2{font-size:1.1em;margin-top:1.8em}\n"
    "table{border-collapse:collapse;width:100%}\n"
    "td,th{padding:3px 8px;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}"
    "\ntd:last-child,th:last-child{text-align:left;white-space:normal;min-width:16em}\n"
    "code{background:var(--code);padding:.5em;display:block;white-space:pre-wrap;"
    "overflow-wrap:anywhere}\n"
    ".big span{display:inline-block;margin-right:2.2em}.big b{font-size:1.6em;display:block}\n"
    "text{font:12px system-ui,sans-serif;fill:var(--text);stroke:var(--page);stroke-width:3px;"
    "paint-order:stroke}\n"
    ".grid{stroke:var(--line);fill:none}.note{color:var(--dim)}.warn{color:var(--warn)}\n"
    "svg{width:100%;min-width:760px;height:auto;display:block}.wide{overflow-x:auto}\n";

static void head(FILE *f, const char *name) {
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta "
          "name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>dtplan: ",
          f);
    dtp_svg_text(f, name);
    fprintf(f, "</title>\n<style>\n%s</style></head><body>\n", style);
}

static void begin_svg(FILE *f, int height) {
    fprintf(f, "<div class=\"wide\"><svg viewBox=\"0 0 %d %d\">\n", PAGE, height);
}

static void end_svg(FILE *f) {
    fputs("</svg></div>\n", f);
}

/* Ends a paragraph with the command of the plan. */
static void simulate_line(struct dtp_arena *a, FILE *f, const struct dtp_report *r,
                          const struct dtp_plan *p) {
    fputs("</p><code>dtplan simulate ", f);
    dtp_svg_text(f, dtp_report_flags(a, r->setup, p));
    fputs("</code>\n", f);
}

static void cards(FILE *f, const struct dtp_report *r, const struct dtp_result *b) {
    struct dtp_training t = dtp_report_training(r, b);
    char text[32];
    fprintf(f, "<p class=\"big\"><span><b>%s</b>a step</span>",
            dtp_fmt_time(b->step_s, text, sizeof text));
    fprintf(f, "<span><b>%s</b>tokens/s</span>", dtp_fmt_count(b->tokens_per_s, text, sizeof text));
    fprintf(f, "<span><b>%s</b>per GPU</span>",
            dtp_fmt_flops(b->flops_per_gpu_per_s, text, sizeof text));
    fprintf(f, "<span><b>%.1f %%</b>MFU</span><span><b>%.1f %%</b>bubble</span>", b->mfu * 100,
            b->bubble.fraction * 100);
    if (t.days > 0)
        fprintf(f, "<span><b>%.1f days</b>for %s tokens</span>", t.days,
                dtp_fmt_count(t.tokens, text, sizeof text));
    fputs("</p>\n", f);
}

static void breakdown(FILE *f, const struct dtp_result *b) {
#define X(field, key, words, shorter, color, style) color,
    static const char *const color[DTP_NTERMS] = {DTP_BREAKDOWN_LIST(X)};
#undef X
    double full = 0;
    int n = 0, y = 0;
    for (int i = 0; i < DTP_NTERMS; i++) {
        double v = dtp_breakdown_term(&b->breakdown, i);
        full = v > full ? v : full;
        n += v >= UNSEEN * b->step_s;
    }
    fputs("<h2>Where the step goes</h2><p class=\"note\">on the rank that ends last</p>", f);
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
    end_svg(f);
}

/* Draws the limit under the figures next to the bars, which may reach it. */
static void draw_limit(FILE *f, const struct dtp_problem *p, const struct dtp_result *b,
                       double full) {
    double limit = 60 + (double)p->memory_limit_bytes * (PAGE - 200) / full;
    int bottom = b->nstages * ROW + 4;
    char text[32];
    fprintf(f,
            "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"0\" y2=\"%d\" stroke=\"#c92a2a\"/>"
            "<text x=\"%.1f\" y=\"%d\" text-anchor=\"end\">limit %s</text>\n",
            limit, limit, bottom, limit, bottom + 14,
            dtp_fmt_bytes_gib((double)p->memory_limit_bytes, text, sizeof text));
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
    draw_limit(f, p, b, full);
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
    end_svg(f);
}

enum { PLOT_LEFT = 70, PLOT_TOP = 10, PLOT_WIDTH = PAGE - PLOT_LEFT - 40, PLOT_TICKS = 4 };

/* Plans that take longer than so many times the best are not drawn. */
static const double SLOWEST = 3;

/* What the plot spans: memory across, step time upwards. */
struct window {
    double low_bytes, high_bytes, low_s, high_s;
};

static double plot_x(const struct window *w, double bytes) {
    return PLOT_LEFT + (bytes - w->low_bytes) / (w->high_bytes - w->low_bytes) * PLOT_WIDTH;
}

static double plot_y(const struct window *w, double s) {
    return PLOT_TOP + PLOT_HEIGHT * (1 - (s - w->low_s) / (w->high_s - w->low_s));
}

static bool is_plotted(const struct dtp_search *s, const struct dtp_legal *l) {
    return l->time_s > 0 && l->time_s <= SLOWEST * s->result[0].step_s;
}

/* Returns the window from 5 % below the fastest and the leanest plan to the memory limit and 10 % above the slowest. */
static struct window window_of(const struct dtp_problem *p, const struct dtp_search *s) {
    double best_s = s->result[0].step_s, limit = (double)p->memory_limit_bytes;
    struct window w = {limit, limit, 0.95 * best_s, 1.1 * best_s};
    for (size_t i = 0; i < s->nlegal; i++) {
        const struct dtp_legal *l = &s->legal[i];
        if (!is_plotted(s, l))
            continue;
        w.high_s = 1.1 * l->time_s > w.high_s ? 1.1 * l->time_s : w.high_s;
        w.low_bytes = 0.95 * (double)l->device_bytes < w.low_bytes ? 0.95 * (double)l->device_bytes
                                                                   : w.low_bytes;
    }
    return w;
}

static void grid(FILE *f, const struct window *w) {
    char text[32];
    fprintf(f, "<rect class=\"grid\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", PLOT_LEFT,
            PLOT_TOP, PLOT_WIDTH, PLOT_HEIGHT);
    for (int i = 0; i <= PLOT_TICKS; i++) {
        double part = (double)i / PLOT_TICKS;
        double bytes = w->low_bytes + part * (w->high_bytes - w->low_bytes);
        double s = w->low_s + part * (w->high_s - w->low_s), x = plot_x(w, bytes), y = plot_y(w, s);
        fprintf(f,
                "<path class=\"grid\" d=\"M%.1f %d v%d M%d %.1f h%d\"/>"
                "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>",
                x, PLOT_TOP, PLOT_HEIGHT, PLOT_LEFT, y, PLOT_WIDTH, x, PLOT_TOP + PLOT_HEIGHT + 16,
                dtp_fmt_bytes_gib(bytes, text, sizeof text));
        fprintf(f, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", PLOT_LEFT - 6,
                y + 4, dtp_fmt_time(s, text, sizeof text));
    }
}

static void scatter(FILE *f, const struct dtp_problem *p, const struct dtp_search *s) {
    struct window w = window_of(p, s);
    fputs(
        "<h2>All plans that were timed</h2><p class=\"note\">step time over device memory; large: "
        "simulated, red: the best</p>",
        f);
    begin_svg(f, PLOT_HEIGHT + 40);
    grid(f, &w);
    int drawn = 0;
    for (size_t i = 0; i < s->nlegal && drawn < MOST_POINTS; i++) {
        const struct dtp_legal *l = &s->legal[i];
        if (!is_plotted(s, l))
            continue;
        bool simulated = l->verdict == DTP_VERDICT_SIMULATED;
        fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%d\" fill=\"%s\" fill-opacity=\".6\"/>\n",
                plot_x(&w, (double)l->device_bytes), plot_y(&w, l->time_s), simulated ? 4 : 2,
                l->number == s->number[0] ? "#e03131"
                : simulated               ? "#2f9e44"
                                          : "#74809a");
        drawn++;
    }
    end_svg(f);
}

/* Degrees that are 1 in every plan are left out. */
struct columns {
    bool cp, ep, etp, zero_group;
};

static void header(FILE *f, const struct columns *show) {
    const struct {
        bool shown;
        const char *name, *meaning;
    } column[] = {{true, "tp", "tensor-parallel degree"},
                  {true, "pp", "pipeline stages"},
                  {true, "dp", "data-parallel degree"},
                  {show->cp, "cp", "context-parallel degree"},
                  {show->ep, "ep", "expert-parallel degree"},
                  {show->etp, "etp", "tensor-parallel degree of the experts"},
                  {true, "vpp", "virtual stages of a stage"},
                  {true, "mb", "sequences in a microbatch"},
                  {true, "ZeRO", "ZeRO stage"},
                  {show->zero_group, "over", "ranks that share one copy of the state"},
                  {true, "sp", "sequence parallelism"},
                  {true, "schedule", "pipeline schedule"},
                  {true, "recompute", "activations computed again"},
                  {true, "step", "step time"},
                  {true, "slower", "than the best plan"},
                  {true, "why it lost", "in percent of the best step"}};
    fputs("<tr>", f);
    for (size_t i = 0; i < sizeof column / sizeof *column; i++)
        if (column[i].shown)
            fprintf(f, "<th title=\"%s\">%s", column[i].meaning, column[i].name);
    fputs("</tr>\n", f);
}

static void other_row(FILE *f, const struct columns *show, const struct dtp_result *best,
                      const struct dtp_result *o) {
    const struct dtp_plan *p = &o->plan;
    char text[32], again[32];
    fprintf(f, "<tr><td>%d<td>%d<td>%d", p->tp, p->pp, p->dp);
    if (show->cp)
        fprintf(f, "<td>%d", p->cp);
    if (show->ep)
        fprintf(f, "<td>%d", p->ep);
    if (show->etp)
        fprintf(f, "<td>%d", dtp_plan_etp(p));
    fprintf(f, "<td>%d<td>%d<td>%d", p->vpp, p->microbatch_size, p->zero_stage);
    if (show->zero_group && p->zero_stage == 0)
        fputs("<td>-", f);
    else if (show->zero_group)
        fprintf(f, "<td>%d", p->zero_group > 0 ? p->zero_group : p->dp * p->cp);
    fprintf(f, "<td>%s<td>%s<td>%s<td>%s", p->sequence_parallel ? "on" : "off",
            dtp_schedule_kinds[p->schedule].name, dtp_recompute_text(p, again, sizeof again),
            dtp_fmt_time(o->step_s, text, sizeof text));
    fprintf(f, "<td>%+.1f %%<td>", (o->step_s / best->step_s - 1) * 100);
    dtp_svg_text(f, o->why_not ? o->why_not : "the best plan");
    fputs("</tr>\n", f);
}

static void others(FILE *f, const struct dtp_search *s) {
    struct columns show = {0};
    for (size_t i = 0; i < s->nresults; i++) {
        const struct dtp_plan *p = &s->result[i].plan;
        show.cp |= p->cp > 1;
        show.ep |= p->ep > 1;
        show.etp |= dtp_plan_etp(p) != p->tp;
        show.zero_group |= p->zero_group > 0;
    }
    fputs("<h2>Next best</h2><div class=\"wide\"><table>", f);
    header(f, &show);
    for (size_t i = 0; i < s->nresults; i++)
        other_row(f, &show, &s->result[0], &s->result[i]);
    for (int i = 0; i < s->nnear_misses; i++)
        other_row(f, &show, &s->result[0], &s->near_miss[i]);
    fputs("</table></div>\n", f);
}

void dtp_report_html(struct dtp_arena *a, FILE *f, const struct dtp_report *r) {
    const struct dtp_problem *p = &r->setup->problem;
    const struct dtp_result *best = &r->search->result[0];
    const struct dtp_counts *c = &r->search->counts;
    char text[32];
    head(f, p->model->name);
    fputs("<h1>", f);
    dtp_svg_text(f, dtp_problem_words(a, r));
    fputs("</h1>\n", f);
    fputs("<p><b>", f);
    dtp_svg_text(f, dtp_plan_words(a, &best->plan));
    fputs("</b>", f);
    simulate_line(a, f, r, &best->plan);
    cards(f, r, best);
    for (const char *const *w = dtp_report_warnings(a, p, best); *w; w++)
        fprintf(f, "<p class=\"warn\">%s</p>\n", *w);
    const char *unusual = dtp_unusual_words(a, r, best);
    if (unusual) {
        fputs("<p class=\"warn\">unusual: ", f);
        dtp_svg_text(f, unusual);
        fputs("</p>\n", f);
    }
    breakdown(f, best);
    memory(f, p, best);
    others(f, r->search);
    scatter(f, p, r->search);
    const struct {
        uint64_t n;
        const char *what;
    } counts[] = {
        {c->candidates, " plans: "},        {c->illegal, " illegal, "},
        {c->over_memory, " over memory, "}, {c->bounded, " cannot be faster by their bound, "},
        {c->estimated, " estimated, "},     {c->simulated, " of them simulated. "}};
    fputs("<p class=\"note\">", f);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        fprintf(f, "%s%s", dtp_fmt_count((double)counts[i].n, text, sizeof text), counts[i].what);
    fprintf(f,
            "dtplan %s. MFU counts model FLOPs (no recomputation, attention in full, LM head) "
            "against the dense peak.</p></body></html>\n",
            DTP_VERSION);
}
