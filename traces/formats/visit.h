/* visit.h: from what a user names to the files in it: a file, a folder (its files by name), a tar
 * archive (its members in order), each unpacked if it is gzip. */
#ifndef DTP_TRACES_FORMATS_VISIT_H
#define DTP_TRACES_FORMATS_VISIT_H

#include "traces/formats/source.h"

/* path: of the file that holds the source on disk, for readers that need one; NULL where the source is
 * packed or a member. named: the user named this very file, so that it must be understood. The
 * visitor closes the source. */
struct dtp_visited {
    struct dtp_source *source;
    const char *path;
    bool named;
    const char *given; /* what the user typed: the file, or the folder or archive that holds it */
};
typedef enum dtp_status dtp_visit_fn(void *ctx, const struct dtp_visited *v, struct dtp_err *err);

enum dtp_status dtp_visit(struct dtp_arena *a, const char *path, dtp_visit_fn *fn, void *ctx,
                          struct dtp_err *err);

#endif
