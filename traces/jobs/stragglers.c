#include "traces/jobs/stragglers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "traces/formats/lines.h"
#include "traces/formats/format.h"
#include "traces/catalog.h"

enum { MOST_CELLS = 8, MOST_WORKERS = 1 << 20 };

struct row {
    int64_t time, worker;
    double value;
};

struct table {
    struct row *row;
    size_t n, capacity;
    int worker, time, value; /* columns */
    size_t ncells;
};

static enum dtp_status take_header(struct table *t, const char *file, char **cell, size_t n,
                                   struct dtp_err *err) {
    t->worker = t->time = t->value = -1;
    t->ncells = n;
    for (int i = 0; i < (int)n && i < MOST_CELLS; i++) {
        t->worker = strcmp(cell[i], "worker") == 0 ? i : t->worker;
        t->time = strcmp(cell[i], "time") == 0 ? i : t->time;
        t->value = strcmp(cell[i], "batch_time_norm") == 0 ? i : t->value;
    }
    if (n > MOST_CELLS || t->worker < 0 || t->time < 0 || t->value < 0)
        return dtp_fail(err, DTP_EINPUT, "%s: expected columns worker, time, batch_time_norm",
                        file);
    return DTP_OK;
}

static bool take_row(struct dtp_arena *a, struct table *t, char **cell, size_t n) {
    char *end[3];
    if (n != t->ncells)
        return false;
    struct row row = {.worker = strtoll(cell[t->worker], &end[0], 10),
                      .time = strtoll(cell[t->time], &end[1], 10),
                      .value = strtod(cell[t->value], &end[2])};
    if (end[0] == cell[t->worker] || *end[0] || end[1] == cell[t->time] || *end[1] ||
        end[2] == cell[t->value] || *end[2] || !isfinite(row.value) || row.value < 0 ||
        row.worker < 0 || row.worker >= MOST_WORKERS)
        return false;
    t->row = dtp_arena_room(a, t->row, sizeof *t->row, t->n, &t->capacity);
    t->row[t->n++] = row;
    return true;
}

static int by_time(const void *x, const void *y) {
    const struct row *p = x, *q = y;
    if (p->time != q->time)
        return p->time < q->time ? -1 : 1;
    return p->worker < q->worker ? -1 : p->worker > q->worker;
}

static void sum_up(struct dtp_arena *a, struct table *t, struct dtp_iterations *out) {
    int64_t most = 0;
    for (size_t i = 0; i < t->n; i++)
        most = t->row[i].worker > most ? t->row[i].worker : most;
    struct dtp_worker *w = DTP_NEW(a, struct dtp_worker, (size_t)most + 1);
    qsort(t->row, t->n, sizeof *t->row, by_time);
    for (size_t from = 0, to = 0; from < t->n; from = to) {
        size_t slowest = from;
        for (; to < t->n && t->row[to].time == t->row[from].time; to++) {
            const struct row *r = &t->row[to];
            w[r->worker].n++;
            w[r->worker].mean += r->value;
            w[r->worker].max = r->value > w[r->worker].max ? r->value : w[r->worker].max;
            out->mean += r->value;
            slowest = r->value > t->row[slowest].value ? to : slowest;
        }
        w[t->row[slowest].worker].slowest++;
        out->mean_slowest += t->row[slowest].value;
        out->niterations++;
    }
    for (int64_t i = 0; i <= most; i++)
        if (w[i].n > 0) {
            w[i].worker = i;
            w[i].mean /= (double)w[i].n;
            w[out->nworkers++] = w[i];
        }
    out->worker = w;
    out->rows = t->n;
    out->mean /= (double)t->n;
    out->mean_slowest /= (double)out->niterations;
}

enum dtp_status dtp_iterations_read(struct dtp_arena *a, struct dtp_source *source,
                                    struct dtp_iterations *out, struct dtp_err *err) {
    struct table t = {0};
    struct dtp_lines l;
    enum dtp_status status;
    char *line, *cell[MOST_CELLS];
    *out = (struct dtp_iterations){0};
    dtp_lines_init(&l, a, source);
    bool header = false;
    while (dtp_lines_next(&l, &line, &status, err)) {
        if (!*line)
            continue;
        size_t n = dtp_line_cells(line, cell, MOST_CELLS);
        if (!header)
            DTP_TRY(take_header(&t, dtp_source_name(source), cell, n, err));
        else if (!take_row(a, &t, cell, n))
            return dtp_fail(err, DTP_EINPUT, "%s:%llu: no worker, time and iteration time",
                            dtp_source_name(source), (unsigned long long)l.number);
        header = true;
    }
    DTP_TRY(status);
    if (t.n == 0)
        return dtp_fail(err, DTP_EINPUT, "%s: no row in it", dtp_source_name(source));
    sum_up(a, &t, out);
    return DTP_OK;
}

/* ---- the row of the format ---- */

static bool is_pai_iterations(const struct dtp_format_head *h) {
    char line[256];
    return dtp_head_is_text(h) && dtp_head_line(h, 0, line, sizeof line) &&
           strstr(line, "worker,gpu,time,batch_time_norm");
}

static enum dtp_status read_item(struct dtp_arena *a, const struct dtp_visited *v,
                                 const struct dtp_format_options *o, void **content,
                                 struct dtp_err *err) {
    (void)o;
    struct dtp_iterations *t = *content = DTP_NEW(a, struct dtp_iterations, 1);
    return dtp_iterations_read(a, v->source, t, err);
}

static void print_item(struct dtp_arena *a, FILE *f, const struct dtp_item *item,
                       const struct dtp_format_options *o) {
    (void)a;
    (void)o;
    const struct dtp_iterations *t = item->content;
    fprintf(f, "  %zu workers, %zu iterations, %zu rows: mean %.2f, the slowest worker %.2f\n",
            t->nworkers, t->niterations, t->rows, t->mean, t->mean_slowest);
    for (size_t i = 0; i < t->nworkers; i++)
        fprintf(f, "    worker %-4lld mean %8.2f  max %8.2f  slowest in %llu\n",
                (long long)t->worker[i].worker, t->worker[i].mean, t->worker[i].max,
                (unsigned long long)t->worker[i].slowest);
    fprintf(f, "  a synchronous step waits for the slowest: %.1f %% longer than the mean\n",
            t->mean > 0 ? (t->mean_slowest / t->mean - 1) * 100 : 0);
}

static void write_item(struct dtp_arena *a, struct dtp_json_out *w, const struct dtp_item *item,
                       const struct dtp_format_options *o) {
    (void)a;
    (void)o;
    const struct dtp_iterations *t = item->content;
    dtp_json_kv_u64(w, "rows", t->rows);
    dtp_json_kv_u64(w, "workers", t->nworkers);
    dtp_json_kv_u64(w, "iterations", t->niterations);
    dtp_json_kv_double(w, "mean", t->mean);
    dtp_json_kv_double(w, "mean_slowest", t->mean_slowest);
}

const struct dtp_format dtp_format_pai_iterations = {.name = "pai-iterations",
                                                     .title = "PAI iteration times by worker, CSV",
                                                     .told =
                                                         "header worker,gpu,time,batch_time_norm",
                                                     .kind = DTP_KIND_SERIES,
                                                     .detect = is_pai_iterations,
                                                     .read = read_item,
                                                     .print = print_item,
                                                     .json = write_item};
