/* events.c: TensorBoard's event files. A record is the length (8 bytes), its checksum (4), the Event,
 * its checksum (4), little-endian. Event{wall_time = 1, step = 2, file_version = 3, summary = 5};
 * Summary{value = 1 {tag = 1, simple_value = 2, tensor = 8 {dtype = 1, content = 4, floats = 5, doubles
 * = 6}}}. Formats: TensorFlow's record_writer and event.proto, summary.proto, tensor.proto. */
#include <string.h>

#include "traces/formats/protobuf.h"
#include "traces/formats/scalars.h"
#include "traces/formats/logs.h"
#include "traces/catalog.h"

enum {
    HEAD_BYTES = 12,
    TAIL_BYTES = 4,
    MOST_RECORD_BYTES = 1 << 26,
    TYPE_FLOAT = 1,
    TYPE_DOUBLE = 2
};

static uint32_t crc32c(const unsigned char *at, size_t n) {
    static const uint32_t polynomial = 0x82f63b78; /* Castagnoli's, bits reversed */
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (polynomial & (0u - (crc & 1)));
    }
    return ~crc;
}

uint32_t dtp_events_checksum(const unsigned char *at, size_t n) {
    uint32_t crc = crc32c(at, n);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

static uint64_t little_endian(const unsigned char *at, size_t n) {
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++)
        v |= (uint64_t)at[i] << (8 * i);
    return v;
}

/* Tells whether bytes begin like an event file. */
static bool is_record(const unsigned char *head, size_t n) {
    return n >= HEAD_BYTES && little_endian(head, 8) <= MOST_RECORD_BYTES &&
           dtp_events_checksum(head, 8) == little_endian(head + 8, 4);
}

/* A scalar in a tensor: one float or double, in its list or as raw bytes. */
static bool tensor_value(struct dtp_bytes b, double *out) {
    struct dtp_proto_field f;
    uint64_t type = TYPE_FLOAT;
    bool found = false;
    while (b.at < b.end) {
        if (!dtp_proto_next(&b, &f))
            return false;
        if (f.number == 1 && f.wire == DTP_WIRE_VARINT)
            type = f.value;
        bool list = f.number == 5 || f.number == 6;
        if (!list && f.number != 4)
            continue;
        if (f.wire == DTP_WIRE_BYTES) {
            size_t n = f.number == 6 || (f.number == 4 && type == TYPE_DOUBLE) ? 8 : 4;
            if ((size_t)(f.body.end - f.body.at) != n)
                continue;
            f.wire = n == 8 ? DTP_WIRE_64 : DTP_WIRE_32;
            f.value = little_endian(f.body.at, n);
        }
        *out = dtp_proto_double(&f);
        found = true;
    }
    return found && (type == TYPE_FLOAT || type == TYPE_DOUBLE);
}

static bool take_value(struct dtp_scalars *out, int64_t step, struct dtp_bytes b) {
    struct dtp_proto_field f;
    char tag[512] = "";
    double v = 0;
    bool scalar = false;
    while (b.at < b.end) {
        if (!dtp_proto_next(&b, &f))
            return false;
        if (f.number == 1 && f.wire == DTP_WIRE_BYTES) {
            size_t n = (size_t)(f.body.end - f.body.at);
            n = n < sizeof tag - 1 ? n : sizeof tag - 1;
            memcpy(tag, f.body.at, n);
            tag[n] = '\0';
        } else if (f.number == 2 && f.wire == DTP_WIRE_32) {
            v = dtp_proto_double(&f);
            scalar = true;
        } else if (f.number == 8 && f.wire == DTP_WIRE_BYTES) {
            scalar |= tensor_value(f.body, &v);
        }
    }
    if (scalar && tag[0])
        dtp_scalars_add(out, tag, step, v);
    return true;
}

static bool take_event(struct dtp_scalars *out, struct dtp_bytes b) {
    struct dtp_proto_field f;
    struct dtp_bytes summary = {0}, again = b;
    int64_t step = 0;
    while (b.at < b.end) { /* the step may stand after the summary */
        if (!dtp_proto_next(&b, &f))
            return false;
        if (f.number == 2 && f.wire == DTP_WIRE_VARINT)
            step = (int64_t)f.value;
    }
    while (again.at < again.end && dtp_proto_next(&again, &f)) {
        if (f.number != 5 || f.wire != DTP_WIRE_BYTES)
            continue;
        summary = f.body;
        while (summary.at < summary.end) {
            if (!dtp_proto_next(&summary, &f))
                return false;
            if (f.number == 1 && f.wire == DTP_WIRE_BYTES && !take_value(out, step, f.body))
                return false;
        }
    }
    return true;
}

struct reader {
    struct dtp_source *source;
    struct dtp_arena *a;
    unsigned char *buf;
    size_t capacity;
    uint64_t record;
};

static enum dtp_status cut(const struct reader *r, struct dtp_err *err) {
    return dtp_fail(err, DTP_EINPUT, "%s: the file ends inside record %llu",
                    dtp_source_name(r->source), (unsigned long long)r->record);
}

/* n bytes and their checksum, in steps, so that memory grows with what is really there. */
static enum dtp_status read_body(struct reader *r, size_t n, struct dtp_err *err) {
    size_t got;
    for (size_t have = 0; have < n; have += got) {
        size_t want = n - have < (size_t)1 << 16 ? n - have : (size_t)1 << 16;
        if (r->capacity < have + want) {
            size_t more = r->capacity * 2 > have + want ? r->capacity * 2 : have + want;
            r->buf = dtp_arena_grow(r->a, r->buf, 1, r->capacity, more);
            r->capacity = more;
        }
        DTP_TRY(dtp_source_read(r->source, r->buf + have, want, &got, err));
        if (got < want)
            return cut(r, err);
    }
    return DTP_OK;
}

static enum dtp_status read_record(struct reader *r, struct dtp_scalars *out, bool *more,
                                   struct dtp_err *err) {
    unsigned char head[HEAD_BYTES];
    size_t got;
    DTP_TRY(dtp_source_read(r->source, head, sizeof head, &got, err));
    *more = got > 0;
    if (got == 0)
        return DTP_OK;
    if (got < sizeof head)
        return cut(r, err);
    if (!is_record(head, sizeof head))
        return dtp_fail(err, DTP_EINPUT, "%s: the checksum of the length of record %llu is wrong",
                        dtp_source_name(r->source), (unsigned long long)r->record);
    size_t n = (size_t)little_endian(head, 8);
    DTP_TRY(read_body(r, n + TAIL_BYTES, err));
    if (dtp_events_checksum(r->buf, n) != little_endian(r->buf + n, TAIL_BYTES))
        return dtp_fail(err, DTP_EINPUT, "%s: the checksum of record %llu is wrong",
                        dtp_source_name(r->source), (unsigned long long)r->record);
    if (!take_event(out, (struct dtp_bytes){r->buf, r->buf + n}))
        return dtp_fail(err, DTP_EINPUT, "%s: record %llu is no event", dtp_source_name(r->source),
                        (unsigned long long)r->record);
    r->record++;
    return DTP_OK;
}

enum dtp_status dtp_events_read(struct dtp_arena *a, struct dtp_source *source,
                                struct dtp_scalars *out, struct dtp_err *err) {
    struct reader r = {.source = source, .a = a};
    for (bool more = true; more;)
        DTP_TRY(read_record(&r, out, &more, err));
    if (r.record == 0)
        return dtp_fail(err, DTP_EINPUT, "%s: an empty file", dtp_source_name(source));
    return DTP_OK;
}

/* ---- the row of the format ---- */

static bool is_tensorboard(const struct dtp_format_head *h) {
    size_t n;
    const unsigned char *at = dtp_head_bytes(h, &n);
    return is_record(at, n);
}

static enum dtp_status read_item(struct dtp_arena *a, const struct dtp_visited *v,
                                 const struct dtp_format_options *o, void **content,
                                 struct dtp_err *err) {
    (void)o;
    struct dtp_log *log = *content;
    if (!log) {
        *content = log = DTP_NEW(a, struct dtp_log, 1);
        log->dialect = DTP_LOG_OTHER;
        dtp_scalars_init(a, &log->scalars);
    }
    return dtp_events_read(a, v->source, &log->scalars, err);
}

const struct dtp_format dtp_format_tensorboard = {.name = "tensorboard",
                                                  .title = "TensorBoard event file",
                                                  .told = "checksum of the first length",
                                                  .kind = DTP_KIND_LOG,
                                                  .joins = "events",
                                                  .detect = is_tensorboard,
                                                  .read = read_item,
                                                  .print = dtp_log_print,
                                                  .json = dtp_log_json};
