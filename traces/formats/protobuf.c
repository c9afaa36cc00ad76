#include "traces/formats/protobuf.h"

#include <string.h>

bool dtp_proto_varint(struct dtp_bytes *b, uint64_t *out) {
    *out = 0;
    if (!b->at)
        return false;
    for (unsigned i = 0; i < DTP_VARINT_BYTES && b->at < b->end; i++) {
        unsigned char c = *b->at++;
        *out |= (uint64_t)(c & 0x7f) << (7 * i);
        if (!(c & 0x80))
            return true;
    }
    return false;
}

static bool take_fixed(struct dtp_bytes *b, size_t n, uint64_t *out) {
    if ((size_t)(b->end - b->at) < n)
        return false;
    *out = 0;
    for (size_t i = 0; i < n; i++)
        *out |= (uint64_t)b->at[i] << (8 * i);
    b->at += n;
    return true;
}

bool dtp_proto_next(struct dtp_bytes *b, struct dtp_proto_field *out) {
    uint64_t key, n;
    if (!dtp_proto_varint(b, &key) || key >> 3 == 0 || key >> 32)
        return false;
    out->number = (uint32_t)(key >> 3);
    out->wire = (int)(key & 7);
    if (out->wire == DTP_WIRE_VARINT)
        return dtp_proto_varint(b, &out->value);
    if (out->wire == DTP_WIRE_64 || out->wire == DTP_WIRE_32)
        return take_fixed(b, out->wire == DTP_WIRE_64 ? 8 : 4, &out->value);
    if (out->wire != DTP_WIRE_BYTES || !dtp_proto_varint(b, &n) || n > (uint64_t)(b->end - b->at))
        return false;
    out->body = (struct dtp_bytes){b->at, b->at + n};
    b->at += n;
    return true;
}

int64_t dtp_proto_zigzag(uint64_t v) {
    return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

double dtp_proto_double(const struct dtp_proto_field *f) {
    double d = 0;
    float single = 0;
    uint32_t bits = (uint32_t)f->value;
    if (f->wire == DTP_WIRE_64)
        memcpy(&d, &f->value, sizeof d);
    else if (f->wire == DTP_WIRE_32) {
        memcpy(&single, &bits, sizeof single);
        d = (double)single;
    }
    return d;
}

const char *dtp_proto_text(struct dtp_arena *a, const struct dtp_bytes *b) {
    return dtp_arena_strndup(a, (const char *)b->at, (size_t)(b->end - b->at));
}
