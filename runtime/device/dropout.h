/* dropout.h: which elements dropout keeps: the same ones on CPU and GPU, and in any layout.
 *
 *     y = x m / (1 - p),  m = 1 with probability 1 - p, else 0          (Srivastava 2014, section 10)
 *
 * Philox 4x32-10 (Salmon 2011, section 3.3) makes 128 random bits from a counter of 128 bits and a key of
 * 64, and has no state. So a mask is not kept from forward to backward, it is drawn again, and an element's
 * bits depend on what it is, not on which rank has it, in which microbatch, or how often it is computed:
 *   key      seed, step
 *   counter  column, row, sequence of the global batch, site (layer and place in it)
 * Eight elements share a counter and take 16 bits each, so p is good to 2^-17:
 *   hidden states   columns are features, rows positions: 8 features of a position
 *   probabilities   columns are keys, with the head above bit 20, rows queries: 4 queries 8 apart with
 *                   2 keys 8 apart, which one thread of each kernel has (cuda/attention_kernels.cuh)
 * Values that are kept are scaled by the probability as it was rounded: the mean is exact.
 *
 * Also included by CUDA C++.
 */
#ifndef DTP_RUNTIME_DROPOUT_H
#define DTP_RUNTIME_DROPOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define DTP_BOTH static __host__ __device__ __forceinline__
#else
#define DTP_BOTH static inline
#endif

enum dtp_dropout_place {
    DTP_DROPOUT_ATTENTION,  /* probabilities */
    DTP_DROPOUT_PROJECTION, /* output of the attention block */
    DTP_DROPOUT_MLP,        /* likewise */
    DTP_DROPOUT_EMBEDDING,  /* "layer" 0 */
    DTP_DROPOUTS
};

struct dtp_dropout {
    uint32_t drop_below; /* p times 65536; 0: no dropout */
    float scale;         /* factor of what is kept */
    uint32_t key[2];     /* seed, step */
    uint32_t site;       /* layer * DTP_DROPOUTS + place */
    uint32_t sequence;   /* the first of this microbatch in the global batch */
    /* Step and sequence to be added, in the device's memory: what is another one each time stays out of the
     * arguments, which a CUDA graph keeps. NULL: nothing. */
    const uint32_t *now;
};

/* Eight times 16 random bits. */
struct dtp_dropout_bits {
    uint32_t word[4];
};

enum { DTP_DROPOUT_BLOCK = 8, DTP_DROPOUT_HEAD_SHIFT = 20 };

DTP_BOTH void dtp_philox_round(uint32_t c[4], uint32_t key0, uint32_t key1) {
    uint64_t a = (uint64_t)c[0] * 0xD2511F53U, b = (uint64_t)c[2] * 0xCD9E8D57U;
    uint32_t next0 = (uint32_t)(b >> 32) ^ c[1] ^ key0, next2 = (uint32_t)(a >> 32) ^ c[3] ^ key1;
    c[1] = (uint32_t)b;
    c[3] = (uint32_t)a;
    c[0] = next0;
    c[2] = next2;
}

/* c: the counter, then the random words. */
DTP_BOTH void dtp_philox(uint32_t c[4], const uint32_t key[2]) {
    uint32_t key0 = key[0], key1 = key[1];
    for (int i = 0; i < 10; i++) {
        dtp_philox_round(c, key0, key1);
        key0 += 0x9E3779B9U; /* Weyl sequences: golden ratio, sqrt(3) - 1 */
        key1 += 0xBB67AE85U;
    }
}

DTP_BOTH struct dtp_dropout_bits dtp_dropout_draw(const struct dtp_dropout *d, uint32_t column,
                                                  uint32_t row, uint32_t sequence) {
    struct dtp_dropout_bits b;
    const uint32_t key[2] = {d->key[0], d->key[1] + (d->now ? d->now[0] : 0)};
    b.word[0] = column;
    b.word[1] = row;
    b.word[2] = d->sequence + (d->now ? d->now[1] : 0) + sequence;
    b.word[3] = d->site;
    dtp_philox(b.word, key);
    return b;
}

/* slot: 0 .. 7 */
DTP_BOTH bool dtp_dropout_keeps(const struct dtp_dropout *d, const struct dtp_dropout_bits *b,
                                unsigned slot) {
    uint32_t low = slot & 2 ? b->word[1] : b->word[0], high = slot & 2 ? b->word[3] : b->word[2];
    uint32_t word = slot & 4 ? high : low;
    return (slot & 1 ? word >> 16 : word & 0xffffU) >= d->drop_below;
}

/* Features first .. first + 7 (a multiple of 8) of a position. sequence: within the microbatch. */
DTP_BOTH struct dtp_dropout_bits dtp_dropout_features(const struct dtp_dropout *d, uint32_t first,
                                                      uint32_t position, uint32_t sequence) {
    return dtp_dropout_draw(d, first / DTP_DROPOUT_BLOCK, position, sequence);
}

/* Queries q, q + 8, q + 16, q + 24 (q modulo 32 below 8) with keys k, k + 8 (k modulo 16 below 8); slot:
 * twice the query's number plus the key's. head: of the model. */
DTP_BOTH struct dtp_dropout_bits dtp_dropout_scores(const struct dtp_dropout *d, uint32_t head,
                                                    uint32_t query, uint32_t key,
                                                    uint32_t sequence) {
    uint32_t column = key / 16 * 8 + key % 8, row = query / 32 * 8 + query % 8;
    return dtp_dropout_draw(d, head << DTP_DROPOUT_HEAD_SHIFT | column, row, sequence);
}
/* Returns the slot for any query and key. */
DTP_BOTH unsigned dtp_dropout_score_slot(uint32_t query, uint32_t key) {
    return query / 8 % 4 * 2 + key / 8 % 2;
}

/* p: 0 <= p < 1, rounded to 1 / 65536. */
static inline struct dtp_dropout dtp_dropout_of(double p, uint64_t seed, uint32_t step,
                                                uint32_t site, uint32_t sequence) {
    const double all = 65536;
    struct dtp_dropout d;
    d.drop_below = (uint32_t)(p * all + 0.5);
    if (d.drop_below > 65535)
        d.drop_below = 65535;
    d.scale = (float)(all / (all - (double)d.drop_below));
    d.key[0] = (uint32_t)seed ^ (uint32_t)(seed >> 32);
    d.key[1] = step;
    d.site = site;
    d.sequence = sequence;
    d.now = NULL;
    return d;
}

#endif
