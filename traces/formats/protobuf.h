/* protobuf.h: the wire format of protocol buffers, field by field, from bytes in memory.
 *
 *     for (struct dtp_bytes b = {at, at + n}; b.at < b.end;) {
 *         struct dtp_proto_field f;
 *         if (!dtp_proto_next(&b, &f)) return false;      cut, or no protobuf
 *         if (f.number == 2 && f.wire == DTP_WIRE_BYTES) ...
 *     }
 *
 * https://protobuf.dev/programming-guides/encoding
 */
#ifndef DTP_TRACES_FORMATS_PROTOBUF_H
#define DTP_TRACES_FORMATS_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/arena.h"

enum { DTP_VARINT_BYTES = 10 };
enum { DTP_WIRE_VARINT, DTP_WIRE_64, DTP_WIRE_BYTES, DTP_WIRE_32 = 5 };

struct dtp_bytes {
    const unsigned char *at, *end;
};

struct dtp_proto_field {
    uint32_t number;
    int wire;
    uint64_t value;        /* value of a number of any width */
    struct dtp_bytes body; /* content of DTP_WIRE_BYTES */
};

bool dtp_proto_varint(struct dtp_bytes *b, uint64_t *out);
bool dtp_proto_next(struct dtp_bytes *b, struct dtp_proto_field *out);
int64_t dtp_proto_zigzag(uint64_t v);
/* Returns the number of a field of type double or float. */
double dtp_proto_double(const struct dtp_proto_field *f);
const char *dtp_proto_text(struct dtp_arena *a, const struct dtp_bytes *b);

#endif
