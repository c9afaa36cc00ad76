/* tasks_gantt.c: a timeline as a picture, SVG. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/text.h"
#include "sim/base/units.h"
#include "traces/tasks/plot.h"
#include "traces/tasks/tasks_internal.h"

/* ---- stretches of time that are shown ---- */

/* Narrower than LEAST_PX a task cannot be read; FEW of them stand around each turn, twice as many in the middle.
 * Kernels of a trace have no turns: their pattern over the whole is what can be seen. */
enum { LEAST_PX = 5, FEW = 6, BREAK_PX = 34 };
static const double most_shown = 0.6;

/* Mean duration on the row that is busy for longest. */
static double typical_s(struct dtp_arena *a, const struct dtp_tasks *t,
                        const struct tasks_lanes *lanes) {
    double *sum_s = DTP_NEW(a, double, lanes->n + 1), longest_s = 0;
    uint32_t *n = DTP_NEW(a, uint32_t, lanes->n + 1), at = 0;
    for (uint32_t i = 0; i < t->ntasks; i++) {
        sum_s[lanes->of[i]] += t->task[i].end_s - t->task[i].start_s;
        n[lanes->of[i]]++;
    }
    for (uint32_t i = 0; i < lanes->n; i++)
        if (sum_s[i] > longest_s) {
            longest_s = sum_s[i];
            at = i;
        }
    return n[at] > 0 ? sum_s[at] / n[at] : 0;
}

static bool is(const struct dtp_tasks_task *k, const char *category) {
    return k->category && strcmp(k->category, category) == 0;
}

struct turns {
    double warm_s, drain_s; /* every rank has begun a backward; a rank has ended its last forward */
    bool known;
};

static struct turns find_turns(struct dtp_arena *a, const struct dtp_tasks *t) {
    double *first_s = DTP_NEW(a, double, t->nranks + 1),
           *last_s = DTP_NEW(a, double, t->nranks + 1);
    struct turns out = {0, dtp_tasks_end_s(t), false};
    for (size_t r = 0; r < t->nranks; r++)
        first_s[r] = last_s[r] = -1;
    size_t r = 0;
    for (uint32_t i = 0; i < t->ntasks; i++) {
        const struct dtp_tasks_task *k = &t->task[i];
        for (size_t tried = 0; tried < t->nranks && t->rank[r].rank != k->rank; tried++)
            r = (r + 1) % t->nranks;
        if ((is(k, "B") || is(k, "I")) && (first_s[r] < 0 || k->start_s < first_s[r]))
            first_s[r] = k->start_s;
        if (is(k, "F") && k->end_s > last_s[r])
            last_s[r] = k->end_s;
    }
    for (r = 0; r < t->nranks; r++) {
        if (first_s[r] < 0 || last_s[r] < 0)
            return out;
        out.warm_s = first_s[r] > out.warm_s ? first_s[r] : out.warm_s;
        out.drain_s = last_s[r] < out.drain_s ? last_s[r] : out.drain_s;
    }
    out.known = t->nranks > 0;
    return out;
}

static int gantt_pieces(struct dtp_arena *a, const struct dtp_tasks *t,
                        const struct tasks_lanes *lanes, struct tasks_piece out[TASKS_PIECES]) {
    struct tasks_piece whole = out[0];
    double span_s = whole.to_s - whole.from_s, task_s = typical_s(a, t, lanes);
    if (task_s * whole.width >= LEAST_PX * span_s || t->nranks == 0)
        return 1;
    struct turns turns = find_turns(a, t);
    double first_s = turns.warm_s - whole.from_s + FEW * task_s, middle_s = 2 * FEW * task_s;
    double last_s = whole.to_s - turns.drain_s + FEW * task_s;
    double shown_s = first_s + middle_s + last_s;
    if (!turns.known || shown_s > most_shown * span_s)
        return 1;
    double px = (whole.width - 2 * BREAK_PX) / shown_s, x = whole.x;
    double middle = (whole.from_s + first_s + whole.to_s - last_s) / 2;
    out[0].to_s = whole.from_s + first_s;
    out[1].from_s = middle - middle_s / 2;
    out[1].to_s = middle + middle_s / 2;
    out[2].from_s = whole.to_s - last_s;
    out[2].to_s = whole.to_s;
    for (int i = 0; i < TASKS_PIECES; i++) {
        out[i].x = x;
        out[i].width = px * (out[i].to_s - out[i].from_s);
        x += out[i].width + BREAK_PX;
    }
    return TASKS_PIECES;
}

enum {
    LEFT = 190,
    CHART = 1180,
    RIGHT = 30,
    TOP = 86,
    ROW = 20,
    GAP = 10,
    CURVE = 34,
    MOST_LANES = 600,
    MOST_COLORS = 14
};
static const double least_px = 0.6;

static const char *const colors[MOST_COLORS] = {
    "#4c8fd6", "#57a773", "#e8a33d", "#c4573b", "#9a6fc2", "#3aa6a6", "#d878a8",
    "#8a9a35", "#7a7f8a", "#b58553", "#5560b8", "#c9b72f", "#6fbf9f", "#a0522d"};

struct chart {
    FILE *f;
    const struct dtp_tasks *t;
    struct tasks_lanes lanes;
    double from_s, to_s;
    struct tasks_piece piece[TASKS_PIECES], now; /* now: the one that is drawn */
    int npieces;
    const char *category[MOST_COLORS]; /* in order of appearance; the last stands for the rest */
    int ncategories;
    double *y; /* [lanes.n] top of the row; -1: left out */
    double height;
    size_t nshown, nranks;
};

static double x_of(const struct chart *c, double t_s) {
    const struct tasks_piece *p = &c->now;
    t_s = t_s < p->from_s ? p->from_s : t_s > p->to_s ? p->to_s : t_s;
    return p->x + p->width * (t_s - p->from_s) / (p->to_s - p->from_s);
}

static int color_of(struct chart *c, const char *category) {
    for (int i = 0; i < c->ncategories; i++)
        if (strcmp(c->category[i], category) == 0)
            return i;
    if (c->ncategories < MOST_COLORS) {
        c->category[c->ncategories] = category;
        return c->ncategories++;
    }
    return MOST_COLORS - 1;
}

static bool has_curve(const struct chart *c, int rank) {
    for (size_t i = 0; i < c->t->ncounts; i++)
        if (c->t->count[i].rank == rank && strstr(c->t->count[i].name, "memory"))
            return true;
    return false;
}

/* Rows from top to bottom; lanes of one rank are neighbours. */
static void place_rows(struct chart *c) {
    double y = TOP;
    for (size_t i = 0; i < c->lanes.n; i++) {
        bool last = i + 1 == c->lanes.n || c->lanes.lane[i + 1].rank != c->lanes.lane[i].rank;
        c->y[i] = -1;
        if (i >= MOST_LANES)
            continue;
        c->y[i] = y;
        c->nshown++;
        y += ROW;
        c->nranks += last;
        if (last)
            y += GAP + (has_curve(c, c->lanes.lane[i].rank) ? CURVE : 0);
    }
    c->height = y + 60;
}

static void text(const struct chart *c, double x, double y, const char *style, const char *s) {
    fprintf(c->f, "<text x=\"%.2f\" y=\"%.2f\" %s>", x, y, style);
    dtp_svg_text(c->f, s);
    fputs("</text>\n", c->f);
}

/* 1, 2 or 5 times a power of ten, at least v. */
static double round_step(double v) {
    double unit = 1e-9;
    while (unit * 10 <= v)
        unit *= 10;
    return unit >= v ? unit : 2 * unit >= v ? 2 * unit : 5 * unit >= v ? 5 * unit : 10 * unit;
}

/* As many decimals as tell ticks apart. */
static const char *tick(double t_s, double step_s, char *buf, size_t size) {
    double unit_s = t_s >= 1 ? 1 : DTP_MILLI;
    int decimals = 0;
    for (double step = step_s / unit_s; step < 1 && decimals < 9; step *= 10)
        decimals++;
    snprintf(buf, size, "%.*f %s", decimals, t_s / unit_s, t_s >= 1 ? "s" : "ms");
    return buf;
}

static void axis(const struct chart *c) {
    const struct tasks_piece *p = &c->now;
    double step_s = round_step((p->to_s - p->from_s) * CHART / p->width / 10);
    double bottom = c->height - 50;
    char label[48];
    for (double i = ceil(p->from_s / step_s); i * step_s <= p->to_s * (1 + 1e-9); i++) {
        double t_s = i * step_s, x = x_of(c, t_s);
        fprintf(c->f, "<line x1=\"%.2f\" y1=\"%d\" x2=\"%.2f\" y2=\"%.2f\" stroke=\"#d9dde3\"/>\n",
                x, TOP - 8, x, bottom);
        text(c, x, TOP - 14, "text-anchor=\"middle\" fill=\"#55606e\"",
             t_s <= 0         ? "0"
             : c->npieces > 1 ? tick(t_s, step_s, label, sizeof label)
                              : dtp_fmt_time(t_s, label, sizeof label));
    }
}

/* Between two pieces. */
static void left_out(const struct chart *c, const struct tasks_piece *before) {
    const struct tasks_piece *after = before + 1;
    double x = (before->x + before->width + after->x) / 2;
    char length[32], label[48];
    snprintf(label, sizeof label, "%s not shown",
             dtp_fmt_time(after->from_s - before->to_s, length, sizeof length));
    fprintf(c->f,
            "<line x1=\"%.2f\" y1=\"%d\" x2=\"%.2f\" y2=\"%.2f\" stroke=\"#7a7f8a\" "
            "stroke-dasharray=\"2 4\"/>\n",
            x, TOP - 26, x, c->height - 50);
    text(c, x, TOP - 28, "text-anchor=\"middle\" fill=\"#c4573b\"", label);
}

static void labels(const struct chart *c) {
    for (size_t i = 0; i < c->lanes.n; i++) {
        const struct tasks_lane *l = &c->lanes.lane[i];
        if (c->y[i] < 0)
            continue;
        bool first = i == 0 || c->lanes.lane[i - 1].rank != l->rank;
        for (size_t r = 0; first && r < c->t->nranks; r++)
            if (c->t->rank[r].rank == l->rank)
                text(c, 8, c->y[i] + 14, "font-weight=\"bold\"", c->t->rank[r].name);
        text(c, LEFT - 8, c->y[i] + 14, "text-anchor=\"end\" fill=\"#55606e\"", l->stream);
        for (int p = 0; p < c->npieces; p++)
            fprintf(c->f,
                    "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%d\" "
                    "fill=\"#f3f5f8\"/>\n",
                    c->piece[p].x, c->y[i] + 1, c->piece[p].width, ROW - 2);
    }
}

/* A box of one task, or of some that are too narrow to tell apart. */
struct box {
    double from_s, to_s;
    uint32_t task, n;
    int color;
    uint32_t lane;
};

static void draw(const struct chart *c, const struct box *b) {
    const struct dtp_tasks_task *k = &c->t->task[b->task];
    uint32_t depth = b->n == 1 ? c->lanes.depth[b->task] : 0;
    double inset = 3.0 * (depth < 4 ? depth : 4), x = x_of(c, b->from_s);
    double width = x_of(c, b->to_s) - x, y = c->y[b->lane] + 1 + inset;
    char start[32], length[32];
    fprintf(c->f,
            "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"%s><title>", x,
            y, width > least_px ? width : least_px, ROW - 2 - inset, colors[b->color],
            width > 4 ? " stroke=\"white\" stroke-width=\"0.6\"" : "");
    if (b->n > 1)
        fprintf(c->f, "%u tasks, first ", b->n);
    dtp_svg_text(c->f, k->name);
    fprintf(c->f, " (%s): from %s, %s</title></rect>\n", tasks_category(k),
            dtp_fmt_time(b->from_s, start, sizeof start),
            dtp_fmt_time(b->to_s - b->from_s, length, sizeof length));
    if (b->n == 1 && width > 6.5 * (double)strlen(k->name) + 4 && depth == 0)
        text(c, x + width / 2, y + 13, "text-anchor=\"middle\" fill=\"white\" font-size=\"11\"",
             k->name);
}

static void boxes(struct chart *c) {
    struct box b = {.n = 0};
    double px_s = (c->now.to_s - c->now.from_s) / c->now.width;
    for (uint32_t i = 0; i < c->t->ntasks; i++) {
        uint32_t x = c->lanes.order[i];
        const struct dtp_tasks_task *k = &c->t->task[x];
        struct box own = {k->start_s,    k->end_s, x, 1, color_of(c, tasks_category(k)),
                          c->lanes.of[x]};
        bool outside = k->end_s <= c->now.from_s || k->start_s >= c->now.to_s;
        if (c->y[own.lane] < 0 || (outside && c->npieces > 1) ||
            (!(k->end_s > k->start_s) && c->lanes.n > 1))
            continue;
        bool narrow = k->end_s - k->start_s < px_s && (b.n > 1 || b.to_s - b.from_s < px_s);
        if (b.n > 0 && b.lane == own.lane && b.color == own.color && narrow &&
            own.from_s - b.to_s < px_s) {
            b.to_s = own.to_s > b.to_s ? own.to_s : b.to_s;
            b.n++;
            continue;
        }
        if (b.n > 0)
            draw(c, &b);
        b = own;
    }
    if (b.n > 0)
        draw(c, &b);
}

/* The memory of a rank as a step curve under its rows. */
static void curve(const struct chart *c, int rank, double y) {
    double most = 0, before = -1;
    bool begun = false;
    char peak[32];
    for (size_t i = 0; i < c->t->ncounts; i++)
        if (c->t->count[i].rank == rank && strstr(c->t->count[i].name, "memory"))
            most = c->t->count[i].value > most ? c->t->count[i].value : most;
    if (!(most > 0))
        return;
    fputs("<polyline fill=\"none\" stroke=\"#364fc7\" points=\"", c->f);
    for (size_t i = 0; i < c->t->ncounts; i++) {
        const struct dtp_tasks_count *n = &c->t->count[i];
        if (n->rank != rank || !strstr(n->name, "memory") || n->at_s > c->now.to_s)
            continue;
        double at = y + CURVE - 4 - (CURVE - 8) * n->value / most;
        if (n->at_s >= c->now.from_s) {
            if (before >= 0 && !begun)
                fprintf(c->f, "%.2f,%.2f ", c->now.x, before);
            begun = true;
            if (before >= 0)
                fprintf(c->f, "%.2f,%.2f ", x_of(c, n->at_s), before);
            fprintf(c->f, "%.2f,%.2f ", x_of(c, n->at_s), at);
        }
        before = at;
    }
    fprintf(c->f, "%.2f,%.2f\"/>\n", c->now.x + c->now.width, before);
    if (c->now.from_s > c->from_s)
        return;
    struct dtp_str s = {.a = c->t->a};
    dtp_str_printf(&s, "memory, peak %s", dtp_fmt_bytes_gib(most, peak, sizeof peak));
    text(c, LEFT - 8, y + 20, "text-anchor=\"end\" fill=\"#55606e\"", s.at);
}

static void curves(const struct chart *c) {
    for (size_t i = 0; i < c->lanes.n; i++) {
        bool last = i + 1 == c->lanes.n || c->lanes.lane[i + 1].rank != c->lanes.lane[i].rank;
        if (last && c->y[i] >= 0)
            curve(c, c->lanes.lane[i].rank, c->y[i] + ROW);
    }
}

static void legend(const struct chart *c) {
    double x = LEFT, y = c->height - 32;
    for (int i = 0; i < c->ncategories; i++) {
        const char *name = i == MOST_COLORS - 1 ? "others" : c->category[i];
        double width = 26 + 6.6 * (double)strlen(name);
        if (x + width > LEFT + CHART)
            break;
        fprintf(c->f, "<rect x=\"%.2f\" y=\"%.2f\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", x,
                y, colors[i]);
        text(c, x + 16, y + 11, "fill=\"#333\"", name);
        x += width;
    }
    if (c->nshown < c->lanes.n) {
        struct dtp_str s = {.a = c->t->a};
        dtp_str_printf(&s, "%zu of %zu rows are shown; --timeline-ranks takes others", c->nshown,
                       c->lanes.n);
        text(c, LEFT, c->height - 6, "fill=\"#c4573b\"", s.at);
    }
}

static void head(const struct chart *c) {
    char length[32];
    fprintf(
        c->f,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" viewBox=\"0 0 %d "
        "%.0f\" style=\"max-width:100%%;height:auto\" font-family=\"sans-serif\" "
        "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
        LEFT + CHART + RIGHT, c->height, LEFT + CHART + RIGHT, c->height);
    text(c, 8, 24, "font-size=\"16\" font-weight=\"bold\"", c->t->title);
    struct dtp_str s = {.a = c->t->a};
    dtp_str_printf(&s, "%s, %s, %u tasks on %zu rank%s%s", c->t->from,
                   dtp_fmt_time(c->to_s - c->from_s, length, sizeof length), c->t->ntasks,
                   c->t->nranks, c->t->nranks == 1 ? "" : "s",
                   c->npieces > 1 ? "; its start, middle and end, what lies between is like the "
                                    "middle (a .json timeline has all)"
                                  : "");
    text(c, 8, 44, "fill=\"#55606e\"", s.at);
}

enum dtp_status tasks_write_gantt(struct dtp_arena *a, FILE *f, const struct dtp_tasks *t,
                                  struct dtp_err *err) {
    struct chart c = {.f = f, .t = t};
    (void)err;
    tasks_lay_out(a, t, &c.lanes);
    c.from_s = t->ntasks > 0 ? INFINITY : 0;
    for (uint32_t i = 0; i < t->ntasks; i++)
        c.from_s = t->task[i].start_s < c.from_s ? t->task[i].start_s : c.from_s;
    c.to_s = dtp_tasks_end_s(t);
    c.from_s = c.from_s < 0.2 * c.to_s && c.from_s > 0 ? 0 : c.from_s;
    if (!(c.to_s > c.from_s))
        c.to_s = c.from_s + 1;
    c.piece[0] = (struct tasks_piece){c.from_s, c.to_s, LEFT, CHART};
    c.npieces = gantt_pieces(a, t, &c.lanes, c.piece);
    c.y = DTP_NEW(a, double, c.lanes.n + 1);
    place_rows(&c);
    head(&c);
    labels(&c);
    for (int i = 0; i < c.npieces; i++) {
        c.now = c.piece[i];
        axis(&c);
        boxes(&c);
        curves(&c);
        if (i + 1 < c.npieces)
            left_out(&c, &c.piece[i]);
    }
    legend(&c);
    fputs("</svg>\n", f);
    return DTP_OK;
}
