/* source.h: bytes from where a trace lies, as a stream: a file, gzip in any number of members, a
 * member of a tar archive, and these inside each other.
 *
 * What is compressed is told by its first two bytes (1f 8b), not by its name. A gzip member must be
 * whole: a missing or wrong trailer is an error (RFC 1952, section 2.3.1), for a trace that was cut
 * looks complete otherwise. Memory: some 100 kB a level, whatever the size of the file.
 *
 *     struct dtp_source *s;
 *     DTP_TRY(dtp_source_open(a, "rank0.json.gz", &s, err));
 *     DTP_TRY(dtp_source_read(s, buf, sizeof buf, &n, err));     n = 0: the end
 *     dtp_source_close(s);
 */
#ifndef DTP_TRACES_FORMATS_SOURCE_H
#define DTP_TRACES_FORMATS_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/arena.h"
#include "sim/base/status.h"

struct dtp_source;

enum { DTP_SOURCE_AHEAD = 1 << 14 };

/* "-" is standard input. Unpacks gzip. Memory lives in `a`; close gives back what lies outside it. */
enum dtp_status dtp_source_open(struct dtp_arena *a, const char *path, struct dtp_source **out,
                                struct dtp_err *err);
/* Bytes in memory, for tests and fuzzers; unpacks gzip. The bytes must outlive the source. */
enum dtp_status dtp_source_memory(struct dtp_arena *a, const char *name, const void *bytes,
                                  size_t n, struct dtp_source **out, struct dtp_err *err);
/* Fills up to n bytes; *out_n < n only at the end. */
enum dtp_status dtp_source_read(struct dtp_source *s, void *to, size_t n, size_t *out_n,
                                struct dtp_err *err);
/* Looks ahead without consuming, at most DTP_SOURCE_AHEAD bytes: all of them before the first read. */
enum dtp_status dtp_source_peek(struct dtp_source *s, const unsigned char **out, size_t *out_n,
                                struct dtp_err *err);
const char *dtp_source_name(const struct dtp_source *s);
/* The bytes are not those of a file: unpacked, a member, memory or standard input. */
bool dtp_source_is_packed(const struct dtp_source *s);
void dtp_source_close(struct dtp_source *s); /* NULL is fine */

/* ---- tar (POSIX ustar, with GNU and pax long names) ---- */

/* The stream begins with a tar header. */
bool dtp_source_is_tar(struct dtp_source *s);
/* The next regular file of an archive as a source of its own (unpacked if it is gzip), named
 * ARCHIVE:MEMBER; *out = NULL at the end. The one before must be closed; what it left is skipped. */
enum dtp_status dtp_source_tar_next(struct dtp_arena *a, struct dtp_source *tar,
                                    struct dtp_source **out, struct dtp_err *err);

#endif
