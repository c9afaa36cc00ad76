/* catalog.h: the formats that dtplan knows, and what a user names read by them.
 *
 *     struct dtp_items items = {.options = {.unit_s = 1}};
 *     DTP_TRY(dtp_items_read(a, paths, npaths, NULL, &items, err));
 *     items.item[0].format->print(a, stdout, &items.item[0], &items.options);
 *
 * A file is told by its content, never by its name. A text of no other format may be a log, whose lines
 * are looked at as they are read, and settings of a run if none of them is one.
 */
#ifndef DTP_TRACES_CATALOG_H
#define DTP_TRACES_CATALOG_H

#include "traces/formats/format.h"

/* In the order in which they are tried: a text is a log only if it is nothing else. */
#define DTP_FORMATS(X)                                                                             \
    X(dtplan)                                                                                      \
    X(kineto)                                                                                      \
    X(nsys)                                                                                        \
    X(chakra)                                                                                      \
    X(chakra_json)                                                                                 \
    X(pytorch_et)                                                                                  \
    X(workload)                                                                                    \
    X(aicb)                                                                                        \
    X(golden)                                                                                      \
    X(tensorboard)                                                                                 \
    X(nccl_topology)                                                                               \
    X(philly)                                                                                      \
    X(jobs_csv)                                                                                    \
    X(pai_iterations)                                                                              \
    X(log)                                                                                         \
    X(config)

#define X(name) extern const struct dtp_format dtp_format_##name;
DTP_FORMATS(X)
#undef X

#define X(name) +1
enum { DTP_NFORMATS = 0 DTP_FORMATS(X) };
#undef X
extern const struct dtp_format *const dtp_formats[DTP_NFORMATS];

/* DTP_EINPUT if the content is of no format; the message says what was seen. */
enum dtp_status dtp_format_detect(struct dtp_source *source, const struct dtp_format **out,
                                  struct dtp_err *err);
enum dtp_status dtp_format_find(const char *name, const struct dtp_format **out,
                                struct dtp_err *err);

struct dtp_items {
    struct dtp_item *item;
    size_t n, capacity;
    struct dtp_format_options options; /* set by the caller */
};

/* Files, folders and archives. format NULL: each file is told by its content, and one in a folder that is of no
 * format is passed over. */
enum dtp_status dtp_items_read(struct dtp_arena *a, const char *const *paths, size_t npaths,
                               const struct dtp_format *format, struct dtp_items *out,
                               struct dtp_err *err);

struct dtp_trace;

/* Adds the ranks of `more`, unless they are of another job: another world, the same rank, a rank that neither a
 * file nor its name says, a recording at another time. */
bool dtp_ranks_join(struct dtp_arena *a, struct dtp_trace *to, const struct dtp_trace *more);

#endif
