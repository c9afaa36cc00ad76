/* trace_items.c: from what a user names to what is in it, by the formats of the files. */
#include <string.h>

#include "planner/cli/trace.h"
#include "traces/formats/visit.h"

struct reader {
    struct dtp_arena *a;
    const struct dtp_trace_request *request;
    struct dtp_trace_items *out;
    const char *path; /* that the user named */
    const char **rank_path;
    size_t nrank_paths, passed_over;
    enum dtp_format rank_format; /* of the first */
};

static struct dtp_trace_item *add(struct reader *r, const char *name, enum dtp_format format) {
    struct dtp_trace_items *o = r->out;
    o->item = dtp_arena_room(r->a, o->item, sizeof *o->item, o->n, &o->capacity);
    o->item[o->n] = (struct dtp_trace_item){.name = name, .format = format, .nfiles = 1};
    return &o->item[o->n++];
}

/* The item that takes more files of this kind, or a new one. */
static struct dtp_trace_item *together(struct reader *r, const char *name, enum dtp_format format) {
    for (size_t i = 0; i < r->out->n; i++)
        if (dtp_formats[r->out->item[i].format].kind == dtp_formats[format].kind &&
            (format != DTP_FORMAT_TENSORBOARD || r->out->item[i].format == format)) {
            r->out->item[i].nfiles++;
            return &r->out->item[i];
        }
    return add(r, name, format);
}

static enum dtp_status read_log(struct reader *r, struct dtp_source *s, enum dtp_format format,
                                struct dtp_err *err) {
    const char *name = dtp_source_name(s);
    struct dtp_trace_item *item =
        format == DTP_FORMAT_TENSORBOARD ? together(r, name, format) : add(r, name, format);
    if (!item->log) {
        item->log = DTP_NEW(r->a, struct dtp_log, 1);
        dtp_scalars_init(r->a, &item->log->scalars);
    }
    if (format == DTP_FORMAT_TENSORBOARD)
        return dtp_events_read(r->a, s, &item->log->scalars, err);
    if (format == DTP_FORMAT_GOLDEN)
        return dtp_golden_read(r->a, s, &item->log->scalars, err);
    return dtp_log_read(r->a, s, item->log, err);
}

static enum dtp_status read_graph(struct reader *r, struct dtp_source *s, enum dtp_format format,
                                  struct dtp_err *err) {
    struct dtp_trace_item *item = add(r, dtp_source_name(s), format);
    item->graph = DTP_NEW(r->a, struct dtp_chakra, 1);
    return format == DTP_FORMAT_CHAKRA ? dtp_chakra_read(r->a, s, item->graph, err)
                                       : dtp_chakra_read_json(r->a, s, item->graph, err);
}

static enum dtp_status read_workload(struct reader *r, struct dtp_source *s, enum dtp_format format,
                                     struct dtp_err *err) {
    struct dtp_trace_item *item = add(r, dtp_source_name(s), format);
    double unit_s = r->out->unit ? r->out->unit_s : 1;
    if (format == DTP_FORMAT_AICB) {
        item->aicb = DTP_NEW(r->a, struct dtp_aicb, 1);
        return dtp_aicb_read(r->a, s, unit_s, item->aicb, err);
    }
    item->workload = DTP_NEW(r->a, struct dtp_workload, 1);
    return dtp_workload_read(r->a, s, unit_s, item->workload, err);
}

static enum dtp_status read_jobs(struct reader *r, struct dtp_source *s, enum dtp_format format,
                                 struct dtp_err *err) {
    struct dtp_trace_item *item = together(r, dtp_source_name(s), format);
    if (!item->jobs) {
        item->jobs = DTP_NEW(r->a, struct dtp_jobs, 1);
        dtp_jobs_init(r->a, item->jobs);
    }
    return dtp_jobs_read(r->a, s, item->jobs, err);
}

static enum dtp_status read_as(struct reader *r, struct dtp_source *s, enum dtp_format format,
                               struct dtp_err *err) {
    struct dtp_trace_item *item;
    switch (dtp_formats[format].kind) {
    case DTP_KIND_GRAPH:
        return read_graph(r, s, format, err);
    case DTP_KIND_WORKLOAD:
        return read_workload(r, s, format, err);
    case DTP_KIND_LOG:
        return read_log(r, s, format, err);
    case DTP_KIND_JOBS:
        return read_jobs(r, s, format, err);
    case DTP_KIND_OPS:
        item = add(r, dtp_source_name(s), format);
        item->et = DTP_NEW(r->a, struct dtp_et, 1);
        return dtp_et_read(r->a, s, item->et, err);
    case DTP_KIND_TOPOLOGY:
        item = add(r, dtp_source_name(s), format);
        item->topology = DTP_NEW(r->a, struct dtp_topology, 1);
        return dtp_topology_read(r->a, s, item->topology, err);
    case DTP_KIND_SERIES:
        item = add(r, dtp_source_name(s), format);
        item->iterations = DTP_NEW(r->a, struct dtp_iterations, 1);
        return dtp_iterations_read(r->a, s, item->iterations, err);
    case DTP_KIND_CONFIG:
        item = add(r, dtp_source_name(s), format);
        item->config = DTP_NEW(r->a, struct dtp_run_config, 1);
        return dtp_config_read(r->a, s, item->config, err);
    case DTP_KIND_RANKS: /* read all together, at the end */
        r->rank_format = r->nrank_paths == 0 ? format : r->rank_format;
        if (r->nrank_paths == 0 || r->rank_path[r->nrank_paths - 1] != r->path)
            r->rank_path[r->nrank_paths++] = r->path;
        return DTP_OK;
    case DTP_NKINDS:
        break;
    }
    return dtp_fail(err, DTP_EUNSUPPORTED, "%s: no reader", dtp_source_name(s));
}

/* A text that is no log, read once more: from its file, else what was seen of it where that is all. One setting may be
 * anything. */
static bool read_config(struct reader *r, const struct dtp_visited *v, const void *seen, size_t n) {
    enum { FEW = 2 };
    struct dtp_source *s;
    size_t before = r->out->n;
    if (!v->path && n == DTP_SOURCE_AHEAD)
        return false;
    if ((v->path
             ? dtp_source_open(r->a, v->path, &s, NULL)
             : dtp_source_memory(r->a, dtp_source_name(v->source), seen, n, &s, NULL)) != DTP_OK)
        return false;
    bool is = read_as(r, s, DTP_FORMAT_CONFIG, NULL) == DTP_OK &&
              r->out->item[before].config->found >= FEW;
    dtp_source_close(s);
    r->out->n = is ? r->out->n : before;
    return is;
}

/* A text in a folder that is no log is not what the user means. */
static enum dtp_status read_one(void *ctx, const struct dtp_visited *v, struct dtp_err *err) {
    struct reader *r = ctx;
    enum dtp_format format = (enum dtp_format)r->request->format;
    const unsigned char *seen = NULL;
    size_t n = 0;
    if (r->request->format < 0) {
        enum dtp_status status = dtp_format_detect(v->source, &format, err);
        if (status != DTP_OK) {
            r->passed_over += !v->named;
            return v->named ? status : DTP_OK;
        }
        DTP_TRY(dtp_source_peek(v->source, &seen, &n, err)); /* reading leaves it there */
    }
    size_t before = r->out->n;
    enum dtp_status status = read_as(r, v->source, format, err);
    if (status == DTP_EINPUT && r->request->format < 0 && v->named && format == DTP_FORMAT_LOG) {
        size_t after = r->out->n;
        r->out->n = before;
        status = read_config(r, v, seen, n) ? DTP_OK : status;
        r->out->n = status == DTP_OK ? r->out->n : after;
        if (status != DTP_OK && !v->path && n == DTP_SOURCE_AHEAD)
            return dtp_fail(err, status, "%s: no log; if it is a configuration: --format config",
                            dtp_source_name(v->source));
    } else if (status != DTP_OK && !v->named && format == DTP_FORMAT_LOG) {
        r->out->n = before;
        r->passed_over++;
        return DTP_OK;
    }
    return status;
}

enum dtp_status dtp_trace_items_read(struct dtp_arena *a, const struct dtp_trace_request *request,
                                     struct dtp_trace_items *out, struct dtp_err *err) {
    struct reader r = {.a = a, .request = request, .out = out};
    r.rank_path = DTP_NEW(a, const char *, request->npaths + 1);
    for (size_t i = 0; i < request->npaths; i++) {
        r.path = request->paths[i];
        DTP_TRY(dtp_visit(a, r.path, read_one, &r, err));
    }
    for (size_t i = 0; i < out->n; i++)
        if (out->item[i].jobs)
            dtp_jobs_finish(a, out->item[i].jobs);
    if (r.nrank_paths > 0) {
        struct dtp_trace_item *item = add(&r, r.rank_path[0], r.rank_format);
        item->nfiles = r.nrank_paths;
        item->ranks = DTP_NEW(a, struct dtp_trace, 1);
        DTP_TRY(dtp_trace_load(a, r.rank_path, r.nrank_paths, &request->load, item->ranks, err));
    }
    if (out->n == 0)
        return dtp_fail(err, DTP_EINPUT,
                        "%s: no file of a known format in it (%zu others); `dtplan trace --format "
                        "list` has the formats",
                        request->paths[0], r.passed_over);
    return DTP_OK;
}
