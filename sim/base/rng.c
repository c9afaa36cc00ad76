#include "sim/base/rng.h"

#include <assert.h>

#include "sim/base/mix.h"

/* splitmix64 (Steele, Lea and Flood 2014): the seeding that Blackman and Vigna recommend. */
static uint64_t splitmix(uint64_t *state) {
    return dtp_mix(*state += UINT64_C(0x9e3779b97f4a7c15));
}

struct dtp_rng dtp_rng_stream(uint64_t seed, uint64_t entity) {
    /* mixing the seed before the entity enters keeps (seed, entity + 1) and (seed + 1, entity)
     * apart; splitmix64 is a bijection, so no two entities of one seed share a state */
    uint64_t state = seed;
    state = splitmix(&state) ^ entity;
    struct dtp_rng r;
    for (int i = 0; i < 4; i++)
        r.s[i] = splitmix(&state);
    return r;
}

static uint64_t rotate(uint64_t x, int bits) {
    return (x << bits) | (x >> (64 - bits));
}

uint64_t dtp_rng_next(struct dtp_rng *r) {
    uint64_t *s = r->s;
    uint64_t result = rotate(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 45);
    return result;
}

double dtp_rng_uniform(struct dtp_rng *r) {
    return (double)(dtp_rng_next(r) >> 11) * 0x1p-53;
}

uint64_t dtp_rng_below(struct dtp_rng *r, uint64_t n) {
    assert(n > 0);
    /* values under 2^64 mod n would make the small remainders one draw more likely */
    uint64_t biased = (UINT64_MAX - n + 1) % n;
    uint64_t v;
    do
        v = dtp_rng_next(r);
    while (v < biased);
    return v % n;
}
