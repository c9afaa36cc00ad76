/* pull.h: a JSON tokenizer over a stream, for files of any size in little memory.
 *
 * The caller walks the document and takes each value as a string, a number (as text, so that no digit
 * is lost) or skips it; nothing is built. Strings point into the window and live until the next call.
 * Strict in structure: a missing comma, quote or brace is an error that names the byte; kind in
 * content, for profilers write it: an unknown escape is kept literally, bad UTF-8 becomes U+FFFD, a raw
 * control character stays, NaN and infinity are tokens; each is counted. Depth is limited to
 * DTP_PULL_DEPTH, one string to DTP_PULL_STRING_BYTES.
 *
 *     DTP_TRY(dtp_pull_open(&p, '{', err));
 *     while (dtp_pull_member(&p, &key, &status, err))
 *         ... exactly one of dtp_pull_text, dtp_pull_skip, an inner open and its loop
 *     return status;
 */
#ifndef DTP_TRACES_FORMATS_PULL_H
#define DTP_TRACES_FORMATS_PULL_H

#include "traces/formats/source.h"

#define DTP_PULL_DEPTH 64
#define DTP_PULL_STRING_BYTES ((size_t)1 << 24)

enum dtp_token { DTP_TOKEN_STRING, DTP_TOKEN_NUMBER, DTP_TOKEN_WORD, DTP_TOKEN_NOT_FINITE };

struct dtp_text {
    const char *at; /* not NUL-terminated */
    size_t n;
    enum dtp_token token;
};

struct dtp_pull {
    struct dtp_source *source;
    struct dtp_arena *a;
    unsigned char *buf;
    size_t capacity, at, end;
    uint64_t before; /* bytes that left the window */
    bool at_end;
    bool opened; /* the brace came last: the next member or element has no comma before it */
    int depth;
    char *decoded;
    size_t decoded_capacity;
    uint64_t bad_escapes, bad_utf8, raw_controls, not_finite;
};

/* Its window and decoded strings are in a; source must stay. */
void dtp_pull_init(struct dtp_pull *p, struct dtp_arena *a, struct dtp_source *source);
uint64_t dtp_pull_offset(const struct dtp_pull *p);
/* The next byte that is no white space, not consumed; 0 at the end of the input. */
enum dtp_status dtp_pull_peek(struct dtp_pull *p, char *out, struct dtp_err *err);
enum dtp_status dtp_pull_open(struct dtp_pull *p, char brace, struct dtp_err *err);
/* Opens what begins with brace; another value is passed over, and then *out_open is false. */
enum dtp_status dtp_pull_open_or_skip(struct dtp_pull *p, char brace, bool *out_open,
                                      struct dtp_err *err);
/* Tells whether another element of the array, or member of the object, follows; at the end its closing brace is taken.
 * It is false, too, if that fails: *out_status says which, and is to be returned or tried after the loop. */
bool dtp_pull_element(struct dtp_pull *p, enum dtp_status *out_status, struct dtp_err *err);
bool dtp_pull_member(struct dtp_pull *p, struct dtp_text *out_key, enum dtp_status *out_status,
                     struct dtp_err *err);
/* A scalar. A composite is an error. */
enum dtp_status dtp_pull_text(struct dtp_pull *p, struct dtp_text *out, struct dtp_err *err);
/* A whole number of 64 bits, as dtp_text_u64() and dtp_text_i64() take it; anything else is an error. */
enum dtp_status dtp_pull_u64(struct dtp_pull *p, uint64_t *out, struct dtp_err *err);
enum dtp_status dtp_pull_i64(struct dtp_pull *p, int64_t *out, struct dtp_err *err);
enum dtp_status dtp_pull_skip(struct dtp_pull *p, struct dtp_err *err);
/* An error at the current byte. */
enum dtp_status dtp_pull_fail(const struct dtp_pull *p, struct dtp_err *err, const char *what);

bool dtp_text_is(const struct dtp_text *t, const char *s);

/* ---- numbers from text, exactly ---- */

/* Decimal microseconds to nanoseconds; digits beyond round half away from zero. False: not a number, or too large. */
bool dtp_text_us_to_ns(const struct dtp_text *t, int64_t *out_ns);
/* A whole number of 64 bits, from a number or from a string of digits. */
bool dtp_text_i64(const struct dtp_text *t, int64_t *out);
bool dtp_text_u64(const struct dtp_text *t, uint64_t *out);

#endif
