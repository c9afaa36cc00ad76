/* rng.h: random streams keyed by (seed, entity), so that a draw does not depend on the order in
 * which others draw: xoshiro256** seeded through splitmix64 (Blackman and Vigna 2018). */
#ifndef DTP_SIM_BASE_RNG_H
#define DTP_SIM_BASE_RNG_H

#include <stdint.h>

struct dtp_rng {
    uint64_t s[4];
};

/* entity: what draws, such as a rank or a job. */
struct dtp_rng dtp_rng_stream(uint64_t seed, uint64_t entity);
/* Returns 64 uniform bits. */
uint64_t dtp_rng_next(struct dtp_rng *r);
double dtp_rng_uniform(struct dtp_rng *r);             /* [0, 1) */
uint64_t dtp_rng_below(struct dtp_rng *r, uint64_t n); /* 0 .. n-1, n > 0, no bias */

#endif
