#include "traces/formats/intern.h"

#include <string.h>

#include "sim/base/mix.h"

static uint32_t hash_of(const char *s, size_t n) { /* eight bytes a round */
    uint64_t h = DTP_FNV_START ^ n, w;
    for (; n >= 8; n -= 8, s += 8) {
        memcpy(&w, s, 8);
        h = dtp_fnv(h, w);
        h ^= h >> 29;
    }
    for (; n > 0; n--, s++)
        h = dtp_fnv(h, (unsigned char)*s);
    return (uint32_t)(h ^ h >> 32);
}

struct dtp_intern *dtp_intern_create(struct dtp_arena *a) {
    struct dtp_intern *t = DTP_NEW(a, struct dtp_intern, 1);
    t->a = a;
    t->capacity = 64;
    t->nslots = 128;
    t->at = DTP_NEW(a, const char *, t->capacity);
    t->length = DTP_NEW(a, uint32_t, t->capacity);
    t->hash = DTP_NEW(a, uint32_t, t->capacity);
    t->slot = DTP_NEW(a, uint32_t, t->nslots);
    return t;
}

static void grow(struct dtp_intern *t) {
    uint32_t more = t->capacity * 2;
    t->at = dtp_arena_grow(t->a, t->at, sizeof *t->at, t->capacity, more);
    t->length = dtp_arena_grow(t->a, t->length, sizeof *t->length, t->capacity, more);
    t->hash = dtp_arena_grow(t->a, t->hash, sizeof *t->hash, t->capacity, more);
    t->capacity = more;
    t->nslots = more * 2;
    t->slot = DTP_NEW(t->a, uint32_t, t->nslots);
    for (uint32_t i = 0; i < t->n; i++) {
        uint32_t at = t->hash[i] & (t->nslots - 1);
        while (t->slot[at])
            at = (at + 1) & (t->nslots - 1);
        t->slot[at] = i + 1;
    }
}

/* Returns the slot of a text, or the empty one where it would be. */
static uint32_t slot_of(const struct dtp_intern *t, const char *s, size_t n, uint32_t h) {
    uint32_t at = h & (t->nslots - 1);
    for (; t->slot[at]; at = (at + 1) & (t->nslots - 1)) {
        uint32_t id = t->slot[at] - 1;
        if (t->hash[id] == h && t->length[id] == n && memcmp(t->at[id], s, n) == 0)
            break;
    }
    return at;
}

bool dtp_intern_find(const struct dtp_intern *t, const char *s, size_t n, uint32_t *out) {
    uint32_t at = slot_of(t, s, n, hash_of(s, n));
    *out = t->slot[at] - 1;
    return t->slot[at] != 0;
}

uint32_t dtp_intern_add(struct dtp_intern *t, const char *s, size_t n) {
    uint32_t h = hash_of(s, n), at = slot_of(t, s, n, h);
    if (t->slot[at])
        return t->slot[at] - 1;
    if (t->n == t->capacity) {
        grow(t);
        at = slot_of(t, s, n, h);
    }
    t->at[t->n] = dtp_arena_strndup(t->a, s, n);
    t->length[t->n] = (uint32_t)n;
    t->hash[t->n] = h;
    t->slot[at] = ++t->n;
    return t->n - 1;
}

const char *dtp_intern_text(struct dtp_intern *t, const char *s) {
    uint32_t id = dtp_intern_add(t, s, strlen(s));
    return t->at[id];
}
