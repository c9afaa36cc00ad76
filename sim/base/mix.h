/* mix.h: the finalizer of splitmix64 (Steele, Lea and Flood 2014): a bijection in which each bit of x changes
 * half of the bits, so that the low ones can index a table. */
#ifndef DTP_SIM_BASE_MIX_H
#define DTP_SIM_BASE_MIX_H

#include <stdint.h>

static inline uint64_t dtp_mix(uint64_t x) {
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

#endif
