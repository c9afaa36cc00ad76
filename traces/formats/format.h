/* format.h: the table of formats: what each is called, how its content is told, what it becomes.
 *
 * A format is found by content, never by name: by the first DTP_SOURCE_AHEAD bytes after unpacking. In
 * JSON the first keys tell; binary files have a magic number or, Chakra's, a first message that is a
 * GlobalMetadata; tables have their header; a text that is none of these may be a log, whose lines are
 * looked at as they are read, and where none is one, settings of a run.
 *
 *     DTP_TRY(dtp_format_detect(source, &format, err));
 *     dtp_formats[format].kind == DTP_KIND_RANKS: dtp_trace_load() takes it
 */
#ifndef DTP_TRACES_FORMATS_FORMAT_H
#define DTP_TRACES_FORMATS_FORMAT_H

#include "traces/formats/source.h"

/* What a file becomes. */
enum dtp_format_kind {
    DTP_KIND_RANKS,    /* trace.h: ranks with times, for replay */
    DTP_KIND_GRAPH,    /* chakra.h: tasks with dependencies */
    DTP_KIND_OPS,      /* et.h: operators without times */
    DTP_KIND_WORKLOAD, /* workload.h, aicb.h: layers or rows of a simulator's input */
    DTP_KIND_LOG,      /* logs.h, scalars.h: series by step, or rows of nccl-tests */
    DTP_KIND_TOPOLOGY, /* topology.h: a machine */
    DTP_KIND_JOBS,     /* jobs.h: jobs of a cluster */
    DTP_KIND_SERIES,   /* stragglers.h: iteration times by worker */
    DTP_KIND_CONFIG,   /* config.h: settings of a run */
    DTP_NKINDS
};
extern const char *const dtp_format_kind_name[DTP_NKINDS];

enum dtp_format {
    DTP_FORMAT_KINETO,
    DTP_FORMAT_DTPLAN,
    DTP_FORMAT_NSYS,
    DTP_FORMAT_CHAKRA,
    DTP_FORMAT_CHAKRA_JSON,
    DTP_FORMAT_PYTORCH_ET,
    DTP_FORMAT_WORKLOAD,
    DTP_FORMAT_AICB,
    DTP_FORMAT_GOLDEN,
    DTP_FORMAT_TENSORBOARD,
    DTP_FORMAT_TOPOLOGY,
    DTP_FORMAT_PHILLY,
    DTP_FORMAT_JOBS_CSV,
    DTP_FORMAT_PAI_ITERATIONS,
    DTP_FORMAT_LOG,
    DTP_FORMAT_CONFIG,
    DTP_NFORMATS
};

struct dtp_format_head; /* private: the first bytes, and the keys in them */

struct dtp_format_row {
    const char *name;  /* for --format */
    const char *title; /* what people call it */
    const char *told;  /* by what its content is told */
    enum dtp_format_kind kind;
    bool (*detect)(const struct dtp_format_head *head);
};
/* In the order in which they are tried. */
extern const struct dtp_format_row dtp_formats[DTP_NFORMATS];

/* DTP_EINPUT where the content is of no format; the message says what was seen. */
enum dtp_status dtp_format_detect(struct dtp_source *source, enum dtp_format *out,
                                  struct dtp_err *err);

#endif
