#include "traces/formats/source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "sim/base/text.h"

enum {
    CHUNK = 1 << 16,
    AHEAD = DTP_SOURCE_AHEAD,
    TAR_BLOCK = 512,
    GZIP_WINDOW = 15 + 16,
    NAME_MAX_BYTES = 4096
};

/* Kinds of level: each reads from the one below. */
typedef enum dtp_status read_fn(struct dtp_source *s, void *to, size_t n, size_t *out_n,
                                struct dtp_err *err);

struct dtp_source {
    const char *name;
    read_fn *read;
    struct dtp_source *below;
    bool owns_below;
    FILE *file;
    const unsigned char *memory;
    uint64_t left;              /* bytes of memory */
    uint64_t tar_left, tar_pad; /* bytes left in an archive's open member, and padding after it */
    unsigned char ahead[AHEAD];
    size_t ahead_at, ahead_n;
    /* gzip */
    z_stream z;
    bool z_open, z_between;
    unsigned char *in;
};

static enum dtp_status read_file(struct dtp_source *s, void *to, size_t n, size_t *out_n,
                                 struct dtp_err *err) {
    *out_n = fread(to, 1, n, s->file);
    if (*out_n < n && ferror(s->file))
        return dtp_fail(err, dtp_file_errno(), "%s: %s", s->name, strerror(errno));
    return DTP_OK;
}

static enum dtp_status read_memory(struct dtp_source *s, void *to, size_t n, size_t *out_n,
                                   struct dtp_err *err) {
    (void)err;
    *out_n = n < s->left ? n : (size_t)s->left;
    memcpy(to, s->memory, *out_n);
    s->memory += *out_n;
    s->left -= *out_n;
    return DTP_OK;
}

static enum dtp_status read_member(struct dtp_source *s, void *to, size_t n, size_t *out_n,
                                   struct dtp_err *err) {
    struct dtp_source *tar = s->below;
    size_t want = n < tar->tar_left ? n : (size_t)tar->tar_left;
    DTP_TRY(dtp_source_read(tar, to, want, out_n, err));
    tar->tar_left -= *out_n;
    if (*out_n < want)
        return dtp_fail(err, DTP_EINPUT, "%s: the archive ends %llu bytes before the member does",
                        s->name, (unsigned long long)tar->tar_left);
    return DTP_OK;
}

/* One more member follows where one ended, if a byte does; zero padding is not a member. */
static enum dtp_status gzip_next_member(struct dtp_source *s, bool *out_end, struct dtp_err *err) {
    *out_end = false;
    while (s->z.avail_in > 0 && *s->z.next_in == 0) {
        s->z.avail_in--;
        s->z.next_in++;
    }
    if (s->z.avail_in == 0) {
        size_t n;
        DTP_TRY(dtp_source_read(s->below, s->in, CHUNK, &n, err));
        s->z.next_in = s->in;
        s->z.avail_in = (uInt)n;
        *out_end = n == 0;
        return DTP_OK;
    }
    s->z_between = false;
    if (inflateReset(&s->z) != Z_OK)
        return dtp_fail(err, DTP_EINPUT, "%s: gzip cannot be reset", s->name);
    return DTP_OK;
}

static enum dtp_status gzip_step(struct dtp_source *s, struct dtp_err *err) {
    if (s->z.avail_in == 0) {
        size_t n;
        DTP_TRY(dtp_source_read(s->below, s->in, CHUNK, &n, err));
        if (n == 0)
            return dtp_fail(err, DTP_EINPUT,
                            "%s: gzip data ends inside a member after %llu unpacked bytes (cut "
                            "file: its checksum and length are missing)",
                            s->name, (unsigned long long)s->z.total_out);
        s->z.next_in = s->in;
        s->z.avail_in = (uInt)n;
    }
    int rc = inflate(&s->z, Z_NO_FLUSH);
    if (rc == Z_STREAM_END)
        s->z_between = true;
    else if (rc == Z_MEM_ERROR)
        return dtp_fail(err, DTP_ENOMEM, "%s: no memory to unpack", s->name);
    else if (rc != Z_OK && rc != Z_BUF_ERROR)
        return dtp_fail(err, DTP_EINPUT, "%s: broken gzip data after %llu unpacked bytes: %s",
                        s->name, (unsigned long long)s->z.total_out,
                        s->z.msg ? s->z.msg : "unknown");
    return DTP_OK;
}

static enum dtp_status read_gzip(struct dtp_source *s, void *to, size_t n, size_t *out_n,
                                 struct dtp_err *err) {
    s->z.next_out = to;
    s->z.avail_out = (uInt)n;
    bool end = false;
    while (s->z.avail_out > 0 && !end) {
        if (s->z_between)
            DTP_TRY(gzip_next_member(s, &end, err));
        else
            DTP_TRY(gzip_step(s, err));
    }
    *out_n = n - s->z.avail_out;
    return DTP_OK;
}

static struct dtp_source *new_source(struct dtp_arena *a, const char *name, read_fn *read) {
    struct dtp_source *s = DTP_NEW(a, struct dtp_source, 1);
    s->name = dtp_arena_strdup(a, name);
    s->read = read;
    return s;
}

/* Puts a gzip level over a source that begins like gzip. */
static enum dtp_status unpack(struct dtp_arena *a, struct dtp_source **s, struct dtp_err *err) {
    const unsigned char *head;
    size_t n;
    DTP_TRY(dtp_source_peek(*s, &head, &n, err));
    if (n < 2 || head[0] != 0x1f || head[1] != 0x8b)
        return DTP_OK;
    struct dtp_source *z = new_source(a, (*s)->name, read_gzip);
    z->below = *s;
    z->owns_below = true;
    z->in = DTP_NEW(a, unsigned char, CHUNK);
    if (inflateInit2(&z->z, GZIP_WINDOW) != Z_OK)
        return dtp_fail(err, DTP_ENOMEM, "%s: no memory to unpack", z->name);
    z->z_open = true;
    *s = z;
    return DTP_OK;
}

/* A byte order mark in front of UTF-8 text is no part of it. */
static enum dtp_status skip_mark(struct dtp_source *s, struct dtp_err *err) {
    const unsigned char *head;
    size_t n;
    DTP_TRY(dtp_source_peek(s, &head, &n, err));
    s->ahead_at += dtp_text_mark_bytes((const char *)head, n);
    return DTP_OK;
}

static enum dtp_status finish_open(struct dtp_arena *a, struct dtp_source *s,
                                   struct dtp_source **out, struct dtp_err *err) {
    enum dtp_status status = unpack(a, &s, err);
    if (status == DTP_OK)
        status = skip_mark(s, err);
    if (status != DTP_OK)
        dtp_source_close(s);
    *out = status == DTP_OK ? s : NULL;
    return status;
}

enum dtp_status dtp_source_open(struct dtp_arena *a, const char *path, struct dtp_source **out,
                                struct dtp_err *err) {
    struct dtp_source *s = new_source(a, path, read_file);
    s->file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    if (!s->file)
        return dtp_fail(err, dtp_file_errno(), "%s: %s", path, strerror(errno));
    return finish_open(a, s, out, err);
}

enum dtp_status dtp_source_memory(struct dtp_arena *a, const char *name, const void *bytes,
                                  size_t n, struct dtp_source **out, struct dtp_err *err) {
    struct dtp_source *s = new_source(a, name, read_memory);
    s->memory = bytes;
    s->left = n;
    return finish_open(a, s, out, err);
}

enum dtp_status dtp_source_read(struct dtp_source *s, void *to, size_t n, size_t *out_n,
                                struct dtp_err *err) {
    size_t from_ahead = s->ahead_n - s->ahead_at < n ? s->ahead_n - s->ahead_at : n, more = 0;
    memcpy(to, s->ahead + s->ahead_at, from_ahead);
    s->ahead_at += from_ahead;
    if (from_ahead < n)
        DTP_TRY(s->read(s, (unsigned char *)to + from_ahead, n - from_ahead, &more, err));
    *out_n = from_ahead + more;
    return DTP_OK;
}

enum dtp_status dtp_source_peek(struct dtp_source *s, const unsigned char **out, size_t *out_n,
                                struct dtp_err *err) {
    if (s->ahead_at == s->ahead_n) {
        s->ahead_at = s->ahead_n = 0;
        DTP_TRY(s->read(s, s->ahead, AHEAD, &s->ahead_n, err));
    }
    *out = s->ahead + s->ahead_at;
    *out_n = s->ahead_n - s->ahead_at;
    return DTP_OK;
}

bool dtp_source_is_packed(const struct dtp_source *s) {
    return s->z_open || !s->file || s->file == stdin;
}

const char *dtp_source_name(const struct dtp_source *s) {
    return s->name;
}

void dtp_source_close(struct dtp_source *s) {
    if (!s)
        return;
    if (s->z_open)
        inflateEnd(&s->z);
    if (s->file && s->file != stdin)
        fclose(s->file);
    if (s->owns_below)
        dtp_source_close(s->below);
    *s = (struct dtp_source){.name = s->name, .read = read_memory};
}

/* ---- tar ---- */

bool dtp_source_is_tar(struct dtp_source *s) {
    const unsigned char *head;
    size_t n;
    return dtp_source_peek(s, &head, &n, NULL) == DTP_OK && n >= TAR_BLOCK &&
           memcmp(head + 257, "ustar", 5) == 0;
}

static uint64_t octal(const unsigned char *at, size_t n) {
    uint64_t v = 0;
    if (at[0] & 0x80) { /* GNU: binary, big-endian */
        for (size_t i = n - 8; i < n; i++)
            v = v << 8 | at[i];
        return v;
    }
    for (size_t i = 0; i < n && at[i]; i++)
        if (at[i] >= '0' && at[i] <= '7')
            v = v * 8 + (uint64_t)(at[i] - '0');
    return v;
}

static enum dtp_status skip(struct dtp_source *s, uint64_t n, struct dtp_err *err) {
    unsigned char buf[4096];
    while (n > 0) {
        size_t want = n < sizeof buf ? (size_t)n : sizeof buf, got;
        DTP_TRY(dtp_source_read(s, buf, want, &got, err));
        if (got == 0)
            return dtp_fail(err, DTP_EINPUT, "%s: the archive ends inside a member", s->name);
        n -= got;
    }
    return DTP_OK;
}

/* A GNU long name is the whole body; pax has lines "LENGTH path=NAME". */
static enum dtp_status long_name(struct dtp_source *tar, char type, uint64_t size, char *name,
                                 struct dtp_err *err) {
    char body[NAME_MAX_BYTES];
    size_t got, keep = size < sizeof body - 1 ? (size_t)size : sizeof body - 1;
    DTP_TRY(dtp_source_read(tar, body, keep, &got, err));
    body[got] = '\0';
    const char *at = type == 'L' ? body : strstr(body, " path=");
    if (at) {
        at += type == 'L' ? 0 : strlen(" path=");
        snprintf(name, NAME_MAX_BYTES, "%.*s", (int)strcspn(at, "\n"), at);
    }
    return skip(tar, size - got + (TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK, err);
}

enum dtp_status dtp_source_tar_next(struct dtp_arena *a, struct dtp_source *tar,
                                    struct dtp_source **out, struct dtp_err *err) {
    unsigned char head[TAR_BLOCK];
    char name[NAME_MAX_BYTES] = "";
    *out = NULL;
    DTP_TRY(skip(tar, tar->tar_left + tar->tar_pad, err));
    tar->tar_left = tar->tar_pad = 0;
    for (;;) {
        size_t n;
        DTP_TRY(dtp_source_read(tar, head, sizeof head, &n, err));
        if (n == 0 || (n == sizeof head && head[0] == 0))
            return DTP_OK;
        if (n < sizeof head || memcmp(head + 257, "ustar", 5) != 0)
            return dtp_fail(err, DTP_EINPUT, "%s: broken tar header", tar->name);
        uint64_t size = octal(head + 124, 12);
        if (size > (uint64_t)1 << 50)
            return dtp_fail(err, DTP_EINPUT, "%s: a tar member of %llu bytes", tar->name,
                            (unsigned long long)size);
        uint64_t pad = (TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK;
        char type = (char)head[156];
        if (type == 'L' || type == 'x') {
            DTP_TRY(long_name(tar, type, size, name, err));
        } else if (type == '0' || type == '\0') {
            if (!name[0])
                snprintf(name, sizeof name, "%.100s", (const char *)head);
            struct dtp_source *s =
                new_source(a, dtp_arena_printf(a, "%s:%s", tar->name, name), read_member);
            s->below = tar;
            tar->tar_left = size;
            tar->tar_pad = pad;
            return finish_open(a, s, out, err);
        } else {
            DTP_TRY(skip(tar, size + pad, err));
            name[0] = '\0';
        }
    }
}
