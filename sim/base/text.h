/* text.h: names, numbers with units, growing strings, CSV, files.
 *
 * Units inside dtplan are SI: seconds, bytes, FLOP, bytes/s, FLOP/s. Other units exist in two
 * places: here (formatting for people) and in what a user types ("80GB", "25us", "4x200").
 */
#ifndef DTP_SIM_BASE_TEXT_H
#define DTP_SIM_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "sim/base/arena.h"
#include "sim/base/status.h"

/* ---- names ---- */

/* Whether two names are one to people: case, '-', '_' and blanks do not count ("Llama-3 8B" is
 * "llama3_8b"). Dots do, for gpt-1.3b is not gpt-13b. */
bool dtp_same_name(const char *x, const char *y);
/* Whether `lower`, in lower case, is anywhere in `text`, in any capitals. */
bool dtp_text_has(const char *text, const char *lower);
/* Returns what follows the last slash, the whole path without one. */
const char *dtp_base_name(const char *path);
bool dtp_ends_with(const char *s, const char *suffix);
/* Whether the word is one of `words`, which have a blank between two; NULL has none. */
bool dtp_one_of(const char *words, const char *word);
/* Index of the name nearest to `name` (edit distance, case-blind, prefix and substring preferred) in
 * a list of n names, or -1 when none is near enough to suggest. */
int dtp_nearest_name(const char *name, const char *const *names, size_t n);
/* `unknown KIND "NAME", did you mean "A", "B" or "C"?` or, when nothing is near, with the whole list
 * of names if it is short and the command that lists them (`list_hint`, may be NULL) otherwise. */
enum dtp_status dtp_unknown_name(struct dtp_err *err, enum dtp_status status, const char *kind,
                                 const char *name, const char *const *names, size_t n,
                                 const char *list_hint);

/* ---- formatting for people; each returns buf (32 bytes are enough) ---- */

const char *dtp_fmt_time(double t_s, char *buf, size_t size); /* "12.3 ms", "4.56 s", "3.2 days" */
const char *dtp_fmt_bytes_gib(double v_bytes, char *buf, size_t size);   /* "71.3 GiB", memory */
const char *dtp_fmt_bytes_si(double v_bytes, char *buf, size_t size);    /* "25.0 GB", traffic */
const char *dtp_fmt_rate(double v_bytes_per_s, char *buf, size_t size);  /* "232 GB/s" */
const char *dtp_fmt_flops(double v_flops_per_s, char *buf, size_t size); /* "148.2 TFLOP/s" */
const char *dtp_fmt_count(double v, char *buf,
                          size_t size); /* "174.6B", "1.02T", "52,128" below 1e6 */
const char *dtp_fmt_percent(double ratio, char *buf, size_t size); /* 0.0423 -> "4.2 %" */
/* Shortest decimal text that strtod reads back to v, for files; with a point in every locale. */
const char *dtp_double_text(double v, char *buf, size_t size);
#define DTP_LARGEST_INTEGER 9007199254740992.0 /* 2^53: a double holds every integer up to it */

/* ---- parsing what people type; *out in SI; place names the option or cell ---- */

/* Status of a value that cannot be: of an option ("--...") it is wrong use, in a file bad input. */
enum dtp_status dtp_bad_value(const char *place);
enum dtp_status dtp_parse_bytes(const char *text, const char *place, uint64_t *out,
                                struct dtp_err *err); /* 80GB 74.5GiB 512M 1000 */
enum dtp_status dtp_parse_time(const char *text, const char *place, double *out_s,
                               struct dtp_err *err); /* 25us 1.5ms 3s 2h */
enum dtp_status dtp_parse_count(const char *text, const char *place, double *out,
                                struct dtp_err *err); /* 300B 1.5T 450k tokens or parameters */
enum dtp_status dtp_parse_long(const char *text, const char *place, long min, long max, long *out,
                               struct dtp_err *err);
enum dtp_status dtp_parse_double(const char *text, const char *place, double *out,
                                 struct dtp_err *err);

/* ---- a growing string in an arena ---- */

struct dtp_str {
    struct dtp_arena *a;
    char *at; /* always NUL-terminated once something was added; NULL before */
    size_t n, capacity;
};
void dtp_str_add(struct dtp_str *s, const char *text);
void dtp_str_addn(struct dtp_str *s, const char *text, size_t n);
void dtp_str_printf(struct dtp_str *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Adds the text as a word of a POSIX shell, quoted if necessary. */
void dtp_str_add_word(struct dtp_str *s, const char *text);

/* Bytes of the byte order mark that a text in UTF-8 begins with (editors on Windows write one): 3, or 0. */
size_t dtp_text_mark_bytes(const char *text, size_t length_bytes);

/* ---- CSV (RFC 4180: quotes, embedded newlines, CRLF) ---- */

struct dtp_csv {
    const char *name;          /* file, for messages */
    size_t ncols, nrows;       /* rows without the header */
    const char *const *header; /* [ncols] */
    const char *const *cell;   /* [nrows * ncols], row-major; a missing trailing cell is "" */
    const int *line;           /* [nrows] line in the file where the row starts */
};
/* A blank line is no row; a row longer than the header is an error. */
enum dtp_status dtp_csv_read_file(struct dtp_arena *a, const char *path, struct dtp_csv *out,
                                  struct dtp_err *err);
int dtp_csv_col(const struct dtp_csv *csv, const char *name);            /* -1: none */
const char *dtp_csv_get(const struct dtp_csv *csv, size_t row, int col); /* col -1 gives "" */
/* Writes one cell, quoted when it must be. */
void dtp_csv_put(FILE *f, const char *cell, bool last);

/* ---- files ---- */

/* The whole file; *out is NUL-terminated beyond length. "-" reads standard input. limit_bytes 0: none. */
enum dtp_status dtp_file_read(struct dtp_arena *a, const char *path, size_t limit_bytes,
                              const char **out, size_t *out_length_bytes, struct dtp_err *err);
/* Status of a failed call that set errno: DTP_ENOMEM where memory ended, otherwise DTP_EINPUT. */
enum dtp_status dtp_file_errno(void);
/* A file that appears whole or not at all: write to file->f, then commit (fsync, rename) or abort.
 * "-" is standard output. */
struct dtp_file_out {
    FILE *f;
    char *temporary, *final;
};
enum dtp_status dtp_file_out_open(struct dtp_arena *a, const char *path, struct dtp_file_out *out,
                                  struct dtp_err *err);
enum dtp_status dtp_file_out_commit(struct dtp_file_out *out, struct dtp_err *err);
void dtp_file_out_abort(struct dtp_file_out *out);
/* Opens path, lets `write` write `what` into it, and closes it. */
typedef void dtp_file_write_fn(FILE *f, const void *what);
enum dtp_status dtp_file_write(struct dtp_arena *a, const char *path, dtp_file_write_fn *write,
                               const void *what, struct dtp_err *err);
/* From now on SIGINT, SIGTERM and SIGHUP remove what is neither committed nor aborted before they end the process. */
void dtp_file_out_guard(void);
/* Returns the folder of the running program, or NULL. */
const char *dtp_program_folder(struct dtp_arena *a);
/* Returns the path of a data file: in $DTPLAN_DATA, else next to the binary (../share/dtplan), else in the sources.
 * relative: such as "hw/gpu/a100.json". The file need not exist. */
const char *dtp_data_path(struct dtp_arena *a, const char *relative);
/* Names of the regular files in a folder that end in suffix, sorted, without the suffix. */
enum dtp_status dtp_dir_list(struct dtp_arena *a, const char *path, const char *suffix,
                             const char *const **out_names, size_t *out_n, struct dtp_err *err);

#endif
