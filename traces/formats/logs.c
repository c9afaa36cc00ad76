#include "traces/formats/logs.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/units.h"
#include "traces/formats/lines.h"
#include "traces/formats/logs_private.h"

enum { MOST_FIELDS = 16, NEW_FIELDS = 13, OLD_FIELDS = 12, MOST_RANKS = 1 << 24 };

/* "0: text" (srun -l) and "[1,0]<stdout>: text" (mpirun). */
static char *without_prefix(char *line) {
    char *at = line;
    if (*at == '[') {
        char *end = strstr(at, ">:");
        return end ? end + 2 : line;
    }
    while (isdigit((unsigned char)*at))
        at++;
    return at > line && *at == ':' ? at + 1 : line;
}

/* ---- nccl-tests ---- */

static double cell(const char *text, double unit) {
    char *end;
    double v = strtod(text, &end);
    return end == text || *end || !(v >= 0) || v > DTP_PETA ? -1 : v * unit;
}

static bool take_nccl_row(struct dtp_intern *texts, char *line, struct dtp_nccl_row *out) {
    char *field[MOST_FIELDS], *save;
    int n = 0;
    for (char *f = strtok_r(line, " \t\r", &save); f; f = strtok_r(NULL, " \t\r", &save))
        if (n < MOST_FIELDS)
            field[n++] = f;
    if ((n != NEW_FIELDS && n != OLD_FIELDS) || !isdigit((unsigned char)field[0][0]) ||
        !isdigit((unsigned char)field[1][0]) || !isalpha((unsigned char)field[2][0]))
        return false; /* size, count and type; other tables have numbers, too */
    *out = (struct dtp_nccl_row){.bytes = strtoull(field[0], NULL, 10),
                                 .count = strtoull(field[1], NULL, 10)};
    for (int k = 0; k < 2; k++) {
        char **at = field + (n == NEW_FIELDS ? 5 : 4) + 4 * k;
        out->time_s[k] = cell(at[0], DTP_MICRO);
        out->busbw_bytes_per_s[k] = cell(at[2], DTP_GIGA);
    }
    if (out->time_s[0] < 0 && out->time_s[1] < 0)
        return false;
    out->type = dtp_intern_text(texts, field[2]);
    return true;
}

/* Lines of the heading: "#  Rank  3 Group  0 Pid ...", "# Collective test starting: all_reduce_perf". */
static void take_heading(struct dtp_log *log, const char *line) {
    static const char starting[] = "Collective test starting:";
    const char *at = strstr(line, starting), *rank = strstr(line, " Rank ");
    if (at) {
        at += sizeof starting - 1;
        at += strspn(at, " ");
        log->nccl.collective =
            dtp_arena_strndup(log->scalars.a, at, strcspn(at, " \t")); /* once a file */
    } else if (rank) {
        char *end;
        long v = strtol(rank + strlen(" Rank "), &end, 10);
        if (end != rank + strlen(" Rank ") && v >= log->nccl.ranks && v < MOST_RANKS)
            log->nccl.ranks = (int)v + 1;
    }
}

static bool take_nccl(const struct log_state *s, char *line) {
    struct dtp_log *log = s->log;
    struct dtp_nccl_log *nccl = &log->nccl;
    struct dtp_nccl_row row;
    if (strstr(line, "Avg bus bandwidth"))
        return true;
    if (line[strspn(line, " \t")] == '#') {
        take_heading(log, line);
        return false;
    }
    /* cheap first: a row begins with two numbers */
    if (!isdigit((unsigned char)line[strspn(line, " \t")]) || !take_nccl_row(s->texts, line, &row))
        return false;
    nccl->row = dtp_arena_room(log->scalars.a, nccl->row, sizeof row, nccl->n, &nccl->capacity);
    nccl->row[nccl->n++] = row;
    return true;
}

double dtp_nccl_log_average_bytes_per_s(const struct dtp_nccl_log *log) {
    double sum = 0, n = 0;
    for (size_t i = 0; i < log->n; i++)
        for (int k = 0; k < 2; k++)
            if (log->row[i].busbw_bytes_per_s[k] >= 0) {
                sum += log->row[i].busbw_bytes_per_s[k];
                n++;
            }
    return n > 0 ? sum / n : 0;
}

/* ---- all ---- */

/* Terminal colours: ESC [ ... letter. */
static void remove_colours(char *line) {
    char *to = strchr(line, '\033');
    if (!to)
        return;
    for (const char *from = to; *from;) {
        if (*from != '\033') {
            *to++ = *from++;
            continue;
        }
        from++;
        if (*from != '[')
            continue;
        from += 1 + strspn(from + 1, "0123456789;");
        from += *from != '\0';
    }
    *to = '\0';
}

enum dtp_status dtp_log_read(struct dtp_arena *a, struct dtp_source *source, struct dtp_log *out,
                             struct dtp_err *err) {
    struct dtp_lines l;
    struct log_state state = {.log = out, .texts = dtp_intern_create(a), .titan_s = -1};
    enum dtp_status status;
    char *line;
    *out = (struct dtp_log){.nccl = {.collective = ""}};
    dtp_scalars_init(a, &out->scalars);
    dtp_lines_init(&l, a, source);
    while (dtp_lines_next(&l, &line, &status, err)) {
        remove_colours(line);
        if (logs_take_train(&state, line))
            continue;
        out->lines[DTP_LOG_NCCL_TESTS] += take_nccl(&state, without_prefix(line));
    }
    DTP_TRY(status);
    for (int d = 0; d < DTP_NLOG_DIALECTS; d++)
        if (out->lines[d] > out->lines[out->dialect])
            out->dialect = (enum dtp_log_dialect)d;
    if (out->nccl.n == 0 && out->scalars.n == 0)
        return dtp_fail(
            err, DTP_EINPUT,
            "%s: no row of nccl-tests and no step line of Megatron, nanotron, "
            "torchtitan, DeepSpeed or others in %llu lines (`dtplan trace --format list` has what "
            "else is read)",
            dtp_source_name(source), (unsigned long long)l.number);
    return DTP_OK;
}
