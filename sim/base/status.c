#include "sim/base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A message quotes input, which may hold line ends or terminal escapes: neither may reach a log. */
static void make_one_line(char *s) {
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            *s = '?';
}

static void mark_cut(char *msg, size_t size, int length) {
    if (length >= 0 && (size_t)length >= size)
        memcpy(msg + size - 4, "...", 4);
}

enum dtp_status dtp_fail(struct dtp_err *err, enum dtp_status status, const char *format, ...) {
    if (!err)
        return status;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(err->msg, sizeof err->msg, format, args);
    va_end(args);
    mark_cut(err->msg, sizeof err->msg, length);
    make_one_line(err->msg);
    err->status = status;
    return status;
}

void dtp_err_prefix(struct dtp_err *err, const char *prefix) {
    if (!err)
        return;
    char old[sizeof err->msg];
    memcpy(old, err->msg, sizeof old);
    int length = snprintf(err->msg, sizeof err->msg, "%s: %s", prefix, old);
    mark_cut(err->msg, sizeof err->msg, length);
    make_one_line(err->msg);
}
