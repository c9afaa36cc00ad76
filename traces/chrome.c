#include "traces/chrome.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <zlib.h>

#include "sim/base/text.h"
#include "sim/base/units.h"

/* One thread of the file. */
struct lane {
    int rank, tid;
    const char *stream;
    double end_s;
};

struct dtp_chrome {
    struct dtp_arena *a;
    struct dtp_file_out file;
    FILE *plain; /* what is compressed at the end, or NULL */
    struct dtp_json_out w;
    struct lane *lane;
    size_t nlanes, capacity;
    size_t *bucket; /* [nbuckets] 1 + lane, by rank and stream; open addressing */
    size_t nbuckets;
    int narrows;
};

static bool ends_in(const char *s, const char *suffix) {
    size_t n = strlen(s), k = strlen(suffix);
    return n >= k && strcmp(s + n - k, suffix) == 0;
}

enum dtp_status dtp_chrome_open(struct dtp_arena *a, const char *path, struct dtp_chrome **out,
                                struct dtp_err *err) {
    struct dtp_chrome *c = DTP_NEW(a, struct dtp_chrome, 1);
    c->a = a;
    DTP_TRY(dtp_file_out_open(a, path, &c->file, err));
    if (ends_in(path, ".gz")) {
        c->plain = tmpfile();
        if (!c->plain) {
            dtp_file_out_abort(&c->file);
            return dtp_fail(err, DTP_EINPUT, "%s: no temporary file: %s", path, strerror(errno));
        }
    }
    dtp_json_begin(&c->w, c->plain ? c->plain : c->file.f, 0);
    dtp_json_object(&c->w);
    dtp_json_kv_string(&c->w, "displayTimeUnit", "ms");
    dtp_json_put_key(&c->w, "traceEvents");
    dtp_json_array(&c->w);
    *out = c;
    return DTP_OK;
}

static void begin(struct dtp_chrome *c, const char *phase, const char *name, int rank, int tid) {
    dtp_json_object(&c->w);
    dtp_json_kv_string(&c->w, "ph", phase);
    dtp_json_kv_string(&c->w, "name", name);
    dtp_json_kv_int(&c->w, "pid", rank);
    dtp_json_kv_int(&c->w, "tid", tid);
}

static void args(struct dtp_chrome *c) {
    dtp_json_put_key(&c->w, "args");
    dtp_json_object(&c->w);
}

static void name_thread(struct dtp_chrome *c, const struct lane *lane, int number) {
    const char *name =
        number > 1 ? dtp_arena_printf(c->a, "%s %d", lane->stream, number) : lane->stream;
    begin(c, "M", "thread_name", lane->rank, lane->tid);
    args(c);
    dtp_json_kv_string(&c->w, "name", name);
    dtp_json_end(&c->w);
    dtp_json_end(&c->w);
}

void dtp_chrome_rank(struct dtp_chrome *c, int rank, const char *name) {
    begin(c, "M", "process_name", rank, 0);
    args(c);
    dtp_json_kv_string(&c->w, "name", name);
    dtp_json_end(&c->w);
    dtp_json_end(&c->w);
    begin(c, "M", "process_sort_index", rank, 0);
    args(c);
    dtp_json_kv_int(&c->w, "sort_index", rank);
    dtp_json_end(&c->w);
    dtp_json_end(&c->w);
}

static size_t hash(int rank, const char *stream) {
    uint64_t h = (uint64_t)rank * UINT64_C(0x9e3779b97f4a7c15);
    for (; *stream; stream++)
        h = (h ^ (unsigned char)*stream) * UINT64_C(0x100000001b3);
    return (size_t)(h ^ h >> 31);
}

static void rehash(struct dtp_chrome *c) {
    c->nbuckets = c->nbuckets ? 2 * c->nbuckets : 256;
    c->bucket = DTP_NEW(c->a, size_t, c->nbuckets);
    for (size_t i = 0; i < c->nlanes; i++) {
        size_t at = hash(c->lane[i].rank, c->lane[i].stream) % c->nbuckets;
        while (c->bucket[at])
            at = (at + 1) % c->nbuckets;
        c->bucket[at] = i + 1;
    }
}

/* The first lane of the stream that is free at start_s; made when there is none. */
static struct lane *find_lane(struct dtp_chrome *c, int rank, const char *stream, double start_s) {
    if (2 * c->nlanes >= c->nbuckets)
        rehash(c);
    size_t at = hash(rank, stream) % c->nbuckets;
    int number = 1;
    for (; c->bucket[at]; at = (at + 1) % c->nbuckets) {
        struct lane *l = &c->lane[c->bucket[at] - 1];
        if (l->rank != rank || strcmp(l->stream, stream) != 0)
            continue;
        if (l->end_s <= start_s)
            return l;
        number++;
    }
    if (c->nlanes == c->capacity) {
        size_t more = c->capacity ? 2 * c->capacity : 64;
        c->lane = dtp_arena_grow(c->a, c->lane, sizeof *c->lane, c->capacity, more);
        c->capacity = more;
    }
    struct lane *l = &c->lane[c->nlanes++];
    *l = (struct lane){
        .rank = rank, .tid = (int)c->nlanes, .stream = dtp_arena_strdup(c->a, stream)};
    c->bucket[at] = c->nlanes;
    name_thread(c, l, number);
    return l;
}

static void put_time(struct dtp_chrome *c, const char *key, double t_s) {
    dtp_json_kv_double(&c->w, key, t_s / DTP_MICRO);
}

void dtp_chrome_event(struct dtp_chrome *c, const struct dtp_chrome_event *e) {
    struct lane *l = find_lane(c, e->rank, e->stream, e->start_s);
    l->end_s = e->start_s + e->dur_s;
    begin(c, "X", e->name, e->rank, l->tid);
    if (e->category)
        dtp_json_kv_string(&c->w, "cat", e->category);
    put_time(c, "ts", e->start_s);
    put_time(c, "dur", e->dur_s);
    if (e->microbatch >= 0 || e->part >= 0) {
        args(c);
        if (e->microbatch >= 0)
            dtp_json_kv_int(&c->w, "microbatch", e->microbatch);
        if (e->part >= 0)
            dtp_json_kv_int(&c->w, "part", e->part);
        dtp_json_end(&c->w);
    }
    dtp_json_end(&c->w);
}

static void point(struct dtp_chrome *c, const char *phase, const char *name,
                  struct dtp_chrome_point p) {
    const struct lane *l = find_lane(c, p.rank, p.stream, INFINITY);
    begin(c, phase, name, p.rank, l->tid);
    dtp_json_kv_string(&c->w, "cat", "transfer");
    dtp_json_kv_int(&c->w, "id", c->narrows);
    put_time(c, "ts", p.at_s);
    if (phase[0] == 'f')
        dtp_json_kv_string(&c->w, "bp", "e");
    dtp_json_end(&c->w);
}

void dtp_chrome_arrow(struct dtp_chrome *c, const char *name, struct dtp_chrome_point from,
                      struct dtp_chrome_point to) {
    c->narrows++;
    point(c, "s", name, from);
    point(c, "f", name, to);
}

void dtp_chrome_counter(struct dtp_chrome *c, int rank, const char *name, double at_s,
                        double value) {
    begin(c, "C", name, rank, 0);
    put_time(c, "ts", at_s);
    args(c);
    dtp_json_kv_double(&c->w, "value", value);
    dtp_json_end(&c->w);
    dtp_json_end(&c->w);
}

/* gzip (RFC 1952) of the plain file; no time in the header, so that equal runs give equal bytes. */
static enum dtp_status compress_plain(struct dtp_chrome *c, struct dtp_err *err) {
    enum { CHUNK = 1 << 16, GZIP_WINDOW = 15 + 16, MEMORY_LEVEL = 8 };
    unsigned char *in = DTP_NEW(c->a, unsigned char, CHUNK);
    unsigned char *out = DTP_NEW(c->a, unsigned char, CHUNK);
    z_stream z = {0};
    if (deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP_WINDOW, MEMORY_LEVEL,
                     Z_DEFAULT_STRATEGY) != Z_OK)
        return dtp_fail(err, DTP_EINPUT, "%s: zlib does not start", c->file.final);
    rewind(c->plain);
    int state = Z_OK;
    while (state != Z_STREAM_END && state != Z_STREAM_ERROR) {
        if (z.avail_in == 0 && !feof(c->plain)) {
            z.next_in = in;
            z.avail_in = (uInt)fread(in, 1, CHUNK, c->plain);
        }
        z.next_out = out;
        z.avail_out = CHUNK;
        state = deflate(&z, feof(c->plain) ? Z_FINISH : Z_NO_FLUSH);
        fwrite(out, 1, CHUNK - z.avail_out, c->file.f);
        if (ferror(c->plain))
            break;
    }
    deflateEnd(&z);
    if (state != Z_STREAM_END)
        return dtp_fail(err, DTP_EINPUT, "%s: cannot compress", c->file.final);
    return DTP_OK;
}

void dtp_chrome_abort(struct dtp_chrome *c) {
    if (c->plain)
        fclose(c->plain);
    dtp_file_out_abort(&c->file);
}

enum dtp_status dtp_chrome_close(struct dtp_chrome *c, struct dtp_err *err) {
    dtp_json_end(&c->w);
    dtp_json_end(&c->w);
    if (!c->plain)
        return dtp_file_out_commit(&c->file, err);
    enum dtp_status status =
        fflush(c->plain) == 0 ? compress_plain(c, err)
                              : dtp_fail(err, DTP_EINPUT, "%s: %s", c->file.final, strerror(errno));
    if (status != DTP_OK) {
        dtp_chrome_abort(c);
        return status;
    }
    fclose(c->plain);
    return dtp_file_out_commit(&c->file, err);
}
