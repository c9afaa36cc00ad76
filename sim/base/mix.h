/* mix.h: hashes.
 *
 * dtp_mix() is the finalizer of splitmix64 (Steele, Lea and Flood 2014): a bijection in which each bit of x changes
 * half of the bits, so that the low ones can index a table. dtp_fnv() is one step of FNV-1a (Fowler, Noll and Vo),
 * from DTP_FNV_START on: x is a byte, or a whole word, whose high bits then reach only the high bits of the hash. */
#ifndef DTP_SIM_BASE_MIX_H
#define DTP_SIM_BASE_MIX_H

#include <stdint.h>

static inline uint64_t dtp_mix(uint64_t x) {
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

#define DTP_FNV_START UINT64_C(0xcbf29ce484222325)

static inline uint64_t dtp_fnv(uint64_t hash, uint64_t x) {
    return (hash ^ x) * UINT64_C(0x100000001b3);
}

#endif
