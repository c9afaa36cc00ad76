#include "planner/term.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { NARROWEST = 60, WIDEST = 120, WIDTH_WITHOUT_TERMINAL = 100, EIGHTHS = 8 };

static const char *const codes[] = {
    [DTP_PLAIN] = "",         [DTP_BOLD] = "\033[1m",    [DTP_DIM] = "\033[2m",
    [DTP_GREEN] = "\033[32m", [DTP_YELLOW] = "\033[33m", [DTP_RED] = "\033[31m",
    [DTP_BLUE] = "\033[34m",  [DTP_CYAN] = "\033[36m"};

struct dtp_term dtp_term_open(FILE *file, int color) {
    struct dtp_term t = {.file = file, .width = WIDTH_WITHOUT_TERMINAL};
    int fd = fileno(file);
    bool tty = fd >= 0 && isatty(fd);
    struct winsize size;
    if (tty && ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        t.width = size.ws_col < NARROWEST ? NARROWEST : size.ws_col > WIDEST ? WIDEST : size.ws_col;
    const char *no_color = getenv("NO_COLOR"), *terminal = getenv("TERM");
    bool plain = (no_color && no_color[0]) || (terminal && strcmp(terminal, "dumb") == 0);
    t.color = color == 1 || (color == 0 && tty && !plain);
    return t;
}

static int columns(const char *text) {
    int n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

int dtp_term_print(const struct dtp_term *t, enum dtp_style style, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    bool styled = t->color && style != DTP_PLAIN;
    fprintf(t->file, "%s%s%s", styled ? codes[style] : "", text, styled ? "\033[0m" : "");
    return columns(text);
}

void dtp_term_wrap(const struct dtp_term *t, enum dtp_style style, int column, int indent,
                   const char *text) {
    char word[256];
    bool first = true;
    while (*text) {
        size_t n = strcspn(text, " ");
        if (text[n] == ' ' && text[n + 1] == '%') /* a number keeps its sign */
            n += 1 + strcspn(text + n + 1, " ");
        snprintf(word, sizeof word, "%.*s", (int)n, text);
        int wide = columns(word) + !first;
        if (column + wide > t->width && column > indent) {
            fprintf(t->file, "\n%*s", indent, "");
            column = indent;
            first = true;
        }
        if (!first)
            putc(' ', t->file);
        column += !first;
        column += dtp_term_print(t, style, "%s", word);
        first = false;
        text += n + (text[n] == ' ');
    }
    putc('\n', t->file);
}

void dtp_term_bar(const struct dtp_term *t, enum dtp_style style, double ratio, int width) {
    static const char *const part[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    double limited = ratio < 0 ? 0 : ratio > 1 ? 1 : ratio;
    int eighths = (int)(limited * width * EIGHTHS + 0.5);
    if (ratio > 0 && eighths == 0)
        eighths = 1;
    bool styled = t->color && style != DTP_PLAIN;
    fputs(styled ? codes[style] : "", t->file);
    for (int i = 0; i < eighths / EIGHTHS; i++)
        fputs("█", t->file);
    fputs(part[eighths % EIGHTHS], t->file);
    fputs(styled ? "\033[0m" : "", t->file);
    fprintf(t->file, "%*s", width - eighths / EIGHTHS - (eighths % EIGHTHS != 0), "");
}

void dtp_term_title(const struct dtp_term *t, const char *text, const char *note) {
    putc('\n', t->file);
    dtp_term_print(t, DTP_BOLD, "%s", text);
    if (note && note[0])
        dtp_term_print(t, DTP_DIM, "  %s", note);
    putc('\n', t->file);
}
