/* Makes the training data from bytes of a text, from token files or as synthetic sequences, and draws the sequences of a step. */
#include "runtime/rank.h"

#include "sim/base/rng.h"
#include "sim/base/text.h"

static enum dtp_status check_tokens(const char *path, const struct dtp_data *d,
                                    struct dtp_err *err) {
    uint64_t n = d->length_bytes / (uint64_t)d->token_bytes;
    if (n < (uint64_t)d->seq + 1)
        return dtp_fail(err, DTP_EINPUT, "%s: %llu tokens, a sequence needs %d", path,
                        (unsigned long long)n, d->seq + 1);
    for (uint64_t i = 0; d->token_bytes > 1 && i < n; i++) {
        int64_t token = dtp_data_token(d, i);
        if (token < 0 || token >= d->vocab)
            return dtp_fail(err, DTP_EINPUT,
                            "%s: token %llu is %lld, expected 0 to %d (the model's vocabulary)",
                            path, (unsigned long long)i, (long long)token, d->vocab - 1);
    }
    return DTP_OK;
}

enum dtp_status dtp_data_open(struct dtp_arena *a, const char *path, struct dtp_data *out,
                              struct dtp_err *err) {
    enum { BYTES = 256 };
    if (!path)
        return DTP_OK;
    bool known;
    DTP_TRY(dtp_token_file_read(a, path, out, &known, err));
    if (known)
        return check_tokens(path, out, err);
    const char *text;
    size_t length_bytes;
    DTP_TRY(dtp_file_read(a, path, 0, &text, &length_bytes, err));
    if (out->vocab < BYTES)
        return dtp_fail(err, DTP_EINPUT, "%s is read by bytes, a vocabulary of %d is too small",
                        path, out->vocab);
    if (length_bytes < (size_t)out->seq + 1)
        return dtp_fail(err, DTP_EINPUT, "%s: %zu bytes, a sequence needs %d", path, length_bytes,
                        out->seq + 1);
    out->text = (const unsigned char *)text;
    out->length_bytes = length_bytes;
    out->token_bytes = 1;
    return DTP_OK;
}

int64_t dtp_data_token(const struct dtp_data *d, uint64_t i) {
    const unsigned char *at = d->text + i * (uint64_t)d->token_bytes;
    uint64_t token = 0;
    for (int k = 0; k < d->token_bytes; k++) /* both formats are little-endian */
        token |= (uint64_t)at[k] << (8 * k);
    if (d->token_signed && d->token_bytes < 8 && token >> (8 * d->token_bytes - 1))
        return (int64_t)token - ((int64_t)1 << (8 * d->token_bytes));
    return token <= INT64_MAX ? (int64_t)token : -1;
}

static int32_t next_synthetic(const struct dtp_data *d, struct dtp_rng *rng, int32_t token) {
    uint64_t v = (uint64_t)d->vocab;
    uint64_t drawn = dtp_rng_next(rng);
    if (drawn % 8 == 0)
        return (int32_t)(drawn / 8 % v);
    return (int32_t)(((uint64_t)token * 5 + 17) % v);
}

void dtp_data_sequence(const struct dtp_data *d, uint64_t index, int32_t *out) {
    struct dtp_rng rng = dtp_rng_stream(d->seed, index);
    uint64_t at = 0;
    if (d->text)
        at = dtp_rng_below(&rng, d->length_bytes / (uint64_t)d->token_bytes - (uint64_t)d->seq);
    out[0] =
        d->text ? (int32_t)dtp_data_token(d, at) : (int32_t)dtp_rng_below(&rng, (uint64_t)d->vocab);
    for (int i = 0; i < d->seq; i++)
        out[i + 1] = d->text ? (int32_t)dtp_data_token(d, at + (uint64_t)i + 1)
                             : next_synthetic(d, &rng, out[i]);
}

void dtp_draw_tokens(struct dtp_rank *r, int step) {
    bool uses = false;
    for (int c = 0; c < r->layout.nchunks; c++)
        uses |= r->layout.chunk[c].first || r->layout.chunk[c].last;
    if (!uses || step == r->drawn_step)
        return;
    int64_t n = r->num_microbatches * r->dims.batch, row = r->dims.seq + 1;
    uint64_t first = (uint64_t)step * (uint64_t)r->plan->global_batch_size +
                     (uint64_t)r->layout.dp_rank * (uint64_t)n;
    for (int64_t i = 0; i < n; i++)
        dtp_data_sequence(r->data, first + (uint64_t)i, r->drawn + i * row);
    r->drawn_step = step;
}
