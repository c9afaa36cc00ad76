#include "traces/tasks/plot.h"

#include <math.h>

enum { LEFT = 70, TOP = 50, SIDE = 480, WIDTH = 720, LEGEND = LEFT + SIDE + 20 };

static const char *const colors[] = {"#1c7ed6", "#f08c00", "#2f9e44", "#e03131",
                                     "#9c36b5", "#0c8599", "#e8590c", "#5c940d",
                                     "#364fc7", "#c2255c", "#846358", "#495057"};
enum { NCOLORS = sizeof colors / sizeof colors[0] };

void dtp_svg_text(FILE *f, const char *s) {
    for (; *s; s++)
        switch (*s) {
        case '<':
            fputs("&lt;", f);
            break;
        case '>':
            fputs("&gt;", f);
            break;
        case '&':
            fputs("&amp;", f);
            break;
        default:
            fputc(*s, f);
        }
}

static void begin(FILE *f, int height, const char *title) {
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
            "<text x=\"%d\" y=\"28\" font-size=\"16\" font-weight=\"bold\">",
            WIDTH, height, WIDTH, height, LEFT);
    dtp_svg_text(f, title);
    fputs("</text>\n", f);
}

static void label(FILE *f, double x, double y, const char *anchor, const char *s) {
    fprintf(f, "<text x=\"%.3f\" y=\"%.3f\" text-anchor=\"%s\">", x, y, anchor);
    dtp_svg_text(f, s);
    fputs("</text>\n", f);
}

static void line(FILE *f, double x1, double y1, double x2, double y2, const char *style) {
    fprintf(f, "<line x1=\"%.3f\" y1=\"%.3f\" x2=\"%.3f\" y2=\"%.3f\" %s/>\n", x1, y1, x2, y2,
            style);
}

static int usable(const struct dtp_plot_point *q) {
    return q->measured > 0 && q->predicted > 0 && isfinite(q->measured) && isfinite(q->predicted);
}

/* ---- scatter -------------------------------------------------------------------------------------- */

struct axes {
    double from, to; /* log10 */
};

static double at_x(const struct axes *a, double v) {
    return LEFT + SIDE * (log10(v) - a->from) / (a->to - a->from);
}

static double at_y(const struct axes *a, double v) {
    return TOP + SIDE - SIDE * (log10(v) - a->from) / (a->to - a->from);
}

static struct axes span(const struct dtp_plot *p) {
    double low = INFINITY, high = 0;
    for (size_t i = 0; i < p->npoints; i++) {
        const struct dtp_plot_point *q = &p->point[i];
        if (!usable(q))
            continue;
        low = fmin(low, fmin(q->measured, q->predicted));
        high = fmax(high, fmax(q->measured, q->predicted));
    }
    if (!(high > 0))
        return (struct axes){0, 1};
    struct axes a = {floor(log10(low)), ceil(log10(high))};
    if (a.to <= a.from)
        a.to = a.from + 1;
    return a;
}

static void grid(FILE *f, const struct axes *a, const struct dtp_plot *p) {
    for (double e = a->from; e <= a->to + 0.5; e++) {
        double v = pow(10, e);
        char text[32];
        snprintf(text, sizeof text, "%.6g", v);
        line(f, at_x(a, v), TOP, at_x(a, v), TOP + SIDE, "stroke=\"#dee2e6\"");
        line(f, LEFT, at_y(a, v), LEFT + SIDE, at_y(a, v), "stroke=\"#dee2e6\"");
        label(f, at_x(a, v), TOP + SIDE + 18, "middle", text);
        label(f, LEFT - 8, at_y(a, v) + 4, "end", text);
    }
    double low = pow(10, a->from), high = pow(10, a->to);
    line(f, LEFT, TOP + SIDE, LEFT + SIDE, TOP, "stroke=\"#212529\"");
    line(f, LEFT, at_y(a, low * 1.1), at_x(a, high / 1.1), TOP,
         "stroke=\"#adb5bd\" stroke-dasharray=\"4 4\"");
    line(f, at_x(a, low * 1.1), TOP + SIDE, LEFT + SIDE, at_y(a, high / 1.1),
         "stroke=\"#adb5bd\" stroke-dasharray=\"4 4\"");
    char text[128];
    snprintf(text, sizeof text, "measured %s", p->axis);
    label(f, LEFT + SIDE / 2.0, TOP + SIDE + 40, "middle", text);
    fprintf(f, "<text transform=\"translate(18 %d) rotate(-90)\" text-anchor=\"middle\">predicted ",
            TOP + SIDE / 2);
    dtp_svg_text(f, p->axis);
    fputs("</text>\n", f);
}

static void legend(FILE *f, const struct dtp_plot *p) {
    for (int g = 0; g < p->ngroups; g++) {
        fprintf(f, "<circle cx=\"%d\" cy=\"%d\" r=\"4\" fill=\"%s\"/>\n", LEGEND, TOP + 6 + 18 * g,
                colors[g % NCOLORS]);
        fprintf(f, "<text x=\"%d\" y=\"%d\" font-size=\"10\">", LEGEND + 10, TOP + 10 + 18 * g);
        dtp_svg_text(f, p->groups[g]);
        fputs("</text>\n", f);
    }
}

void dtp_plot_scatter(FILE *f, const struct dtp_plot *p) {
    struct axes a = span(p);
    begin(f, TOP + SIDE + 60, p->title);
    grid(f, &a, p);
    for (size_t i = 0; i < p->npoints; i++) {
        const struct dtp_plot_point *q = &p->point[i];
        if (!usable(q))
            continue;
        fprintf(f, "<circle cx=\"%.3f\" cy=\"%.3f\" r=\"2.5\" fill=\"%s\" fill-opacity=\"0.6\">",
                at_x(&a, q->measured), at_y(&a, q->predicted), colors[q->group % NCOLORS]);
        if (q->label) {
            fputs("<title>", f);
            dtp_svg_text(f, q->label);
            fprintf(f, ": measured %.4g, predicted %.4g, %+.1f %%</title>", q->measured,
                    q->predicted, 100 * (q->predicted / q->measured - 1));
        }
        fputs("</circle>\n", f);
    }
    legend(f, p);
    fputs("</svg>\n", f);
}

/* ---- histogram ------------------------------------------------------------------------------------- */

enum { NBINS = 40, BARS = 240 };

void dtp_plot_errors(FILE *f, const struct dtp_plot *p) {
    size_t bin[NBINS] = {0}, most = 1;
    for (size_t i = 0; i < p->npoints; i++) {
        const struct dtp_plot_point *q = &p->point[i];
        if (!usable(q))
            continue;
        double error = q->predicted / q->measured - 1;
        int b = (int)floor((error + 0.5) * NBINS);
        b = b < 0 ? 0 : b >= NBINS ? NBINS - 1 : b;
        most = ++bin[b] > most ? bin[b] : most;
    }
    double width = (WIDTH - LEFT - 30) / (double)NBINS;
    begin(f, TOP + BARS + 60, p->title);
    for (int b = 0; b < NBINS; b++) {
        double height = BARS * (double)bin[b] / (double)most;
        int far = b < NBINS / 2 ? NBINS / 2 - 1 - b : b - NBINS / 2;
        fprintf(f,
                "<rect x=\"%.3f\" y=\"%.3f\" width=\"%.3f\" height=\"%.3f\" fill=\"%s\"><title>%zu "
                "runs</title></rect>\n",
                LEFT + b * width + 1, TOP + BARS - height, width - 2, height,
                far < 4   ? "#2f9e44"
                : far < 8 ? "#f08c00"
                          : "#e03131",
                bin[b]);
    }
    line(f, LEFT, TOP + BARS, WIDTH - 30, TOP + BARS, "stroke=\"#212529\"");
    for (int b = 0; b <= NBINS; b += 8) {
        char text[32];
        const char *beyond = b == 0 ? "\xe2\x89\xa4 " : b == NBINS ? "\xe2\x89\xa5 " : "";
        snprintf(text, sizeof text, "%s%+d %%", beyond, -50 + b * 100 / NBINS);
        label(f, LEFT + b * width, TOP + BARS + 18, "middle", text);
    }
    char text[64];
    snprintf(text, sizeof text, "%zu", most);
    label(f, LEFT - 8, TOP + 10, "end", text);
    label(f, LEFT + (WIDTH - LEFT - 30) / 2.0, TOP + BARS + 42, "middle",
          "error of the prediction (right: predicted too slow)");
    fputs("</svg>\n", f);
}
