/* data.h: what is trained on: sequences of seq + 1 tokens, numbered by a global index, so that every
 * layout sees the same sequence i of step s, i = s * global_batch + index in the batch.
 *
 * Text: a sequence starts at a place drawn from (seed, i), tokens are bytes (the vocabulary must have
 * 256). Synthetic: token k + 1 is (5 token k + 17) mod V with probability 7/8, else drawn: something to
 * learn, down to about 1/8 ln V + 0.4 nats. */
#ifndef DTP_RUNTIME_DATA_H
#define DTP_RUNTIME_DATA_H

#include <stdint.h>

#include "sim/base/arena.h"
#include "sim/base/status.h"

struct dtp_data {
    uint64_t seed;
    int vocab, seq;
    const unsigned char *text; /* NULL: synthetic */
    uint64_t length_bytes;
};

enum dtp_status dtp_data_open(struct dtp_arena *a, const char *path, struct dtp_data *out,
                              struct dtp_err *err);
/* Tokens out[seq + 1]: inputs, and from the second on targets. */
void dtp_data_sequence(const struct dtp_data *d, uint64_t index, int32_t *out);

#endif
