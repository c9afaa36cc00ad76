/* What long work says on a terminal: one line on stderr, over the one before. */
#include <stdarg.h>

#include "planner/cli/cli.h"
#include "sim/base/units.h"

void dtp_cli_progress(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("\r", stderr);
    if (format)
        vfprintf(stderr, format, args);
    fputs("\033[K\r", stderr);
    va_end(args);
    fflush(stderr);
}

void dtp_cli_reading(void *context, const char *file, uint64_t bytes) {
    (void)context;
    dtp_cli_progress("  %s: %.0f MB", file, (double)bytes / DTP_MEGA);
}

void dtp_cli_measuring(void *context, const char *what) {
    fprintf(context, "measuring %s\n", what);
}
