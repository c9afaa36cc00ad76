/* format.h: one row for each kind of file: how its content is recognised, what it becomes and how that is shown.
 *
 * A new format is a file that reads it and ends in its row, its name in DTP_FORMATS() (catalog.h), and a
 * test. The row:
 *
 *     const struct dtp_format dtp_format_aicb = {.name = "aicb", .title = "AICB workload, CSV",
 *         .told = "header comm_type,comm_group,...", .kind = DTP_KIND_WORKLOAD,
 *         .detect = is_aicb, .read = read_item, .print = print_item, .json = write_item};
 *
 * detect() sees the first DTP_SOURCE_AHEAD bytes after unpacking. In JSON the first keys tell; binary files
 * have a magic number; tables have their header.
 */
#ifndef DTP_TRACES_FORMATS_FORMAT_H
#define DTP_TRACES_FORMATS_FORMAT_H

#include <stdio.h>

#include "sim/base/json.h"
#include "traces/formats/source.h"
#include "traces/formats/visit.h"

/* The kind of a file gives the type of an item's content. */
enum dtp_format_kind {
    DTP_KIND_RANKS,    /* struct dtp_trace (trace.h): ranks with times, for replay */
    DTP_KIND_GRAPH,    /* struct dtp_chakra (chakra.h): tasks with dependencies */
    DTP_KIND_OPS,      /* struct dtp_et (et.h): operators without times */
    DTP_KIND_WORKLOAD, /* struct dtp_workload or dtp_aicb: layers or rows of a simulator's input */
    DTP_KIND_LOG,      /* struct dtp_log (logs.h): series by step, or rows of nccl-tests */
    DTP_KIND_TOPOLOGY, /* struct dtp_topology (topology.h): a machine */
    DTP_KIND_JOBS,     /* struct dtp_jobs (jobs.h): jobs of a cluster */
    DTP_KIND_SERIES,   /* struct dtp_iterations (stragglers.h): iteration times by worker */
    DTP_KIND_CONFIG,   /* struct dtp_run_config (config.h): settings of a run */
    DTP_NKINDS
};
extern const char *const dtp_format_kind_name[DTP_NKINDS];

struct dtp_trace_options;

/* Readers and printers get these options with the file. */
struct dtp_format_options {
    const char *unit; /* the unit of times in workloads, as typed; NULL: not said */
    double unit_s;
    const struct dtp_trace_options *load; /* NULL: defaults */
    int launch;                           /* number in a script, from 1; 0: the first */
};

/* One file, or several that are one thing together: the ranks of a job, the tables of a cluster's jobs. */
struct dtp_item {
    const char *name;
    const struct dtp_format *format; /* format of the first file */
    size_t nfiles;
    void *content;
};

struct dtp_format_head; /* the first bytes, and the keys in them */

struct dtp_format {
    const char *name;  /* for --format */
    const char *title; /* what people call it */
    const char *told;  /* what its content is recognised by */
    enum dtp_format_kind kind;
    const char
        *joins; /* files of formats with the same word here are one item; NULL: each is its own */
    bool (*detect)(const struct dtp_format_head *head);
    /* *content is NULL, or what earlier files of the item became, to which this file is added. */
    enum dtp_status (*read)(struct dtp_arena *a, const struct dtp_visited *v,
                            const struct dtp_format_options *o, void **content,
                            struct dtp_err *err);
    enum dtp_status (*finish)(struct dtp_arena *a, void *content,
                              struct dtp_err *err); /* or NULL */
    void (*heading)(FILE *f, const void *content);  /* NULL: the title */
    void (*print)(struct dtp_arena *a, FILE *f, const struct dtp_item *item,
                  const struct dtp_format_options *o);
    /* Members of the object that `dtplan trace --json` has for the item. */
    void (*json)(struct dtp_arena *a, struct dtp_json_out *w, const struct dtp_item *item,
                 const struct dtp_format_options *o);
};

/* ---- for detect() ---- */

const unsigned char *dtp_head_bytes(const struct dtp_format_head *h, size_t *n);
/* '{' or '[' where the content is JSON, else 0. */
char dtp_head_json(const struct dtp_format_head *h);
bool dtp_head_is_text(const struct dtp_format_head *h);
/* Depth 1: a key of the outermost object; 2: of an object or array in it. */
bool dtp_head_has_key(const struct dtp_format_head *h, int depth, const char *key);
/* The k-th line that is not blank, from 0, cut to size; false: there is none. */
bool dtp_head_line(const struct dtp_format_head *h, int k, char *out, size_t size);
struct dtp_format_head *dtp_head_look(struct dtp_arena *a, const unsigned char *at, size_t n);
/* Describes what was seen, for a message. */
const char *dtp_head_describe(struct dtp_arena *a, const struct dtp_format_head *h);
/* Says what stands in place of content that could be read, and what to do about it; NULL if nothing does. */
const char *dtp_head_no_content(const unsigned char *at, size_t n);

/* ---- for print() and json(): traffic by kind of collective and group ---- */

struct dtp_traffic {
    struct dtp_arena *a;
    struct dtp_traffic_row {
        const char *kind, *group;
        uint64_t count;
        double bytes;
    } * row;
    size_t n, capacity;
};
void dtp_traffic_add(struct dtp_traffic *t, const char *kind, const char *group, uint64_t count,
                     double bytes);
void dtp_traffic_print(FILE *f, const struct dtp_traffic *t);
void dtp_traffic_json(struct dtp_json_out *w, const struct dtp_traffic *t); /* "communication" */

#endif
