#include "sim/base/memo.h"

#include <assert.h>
#include <string.h>

#include "sim/base/mix.h"

enum { FIRST_CAPACITY = 64 };

void dtp_memo_init(struct dtp_memo *m, struct dtp_arena *a, size_t key_bytes) {
    assert(key_bytes % sizeof(uint32_t) == 0);
    *m = (struct dtp_memo){.a = a,
                           .key_bytes = key_bytes,
                           .entry = DTP_NEW(a, struct dtp_memo_entry, FIRST_CAPACITY),
                           .capacity = FIRST_CAPACITY};
}

static inline uint64_t fold(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

/* A multiplication for each 8 bytes: each bit reaches the high half, which is folded back before the next word. Two
 * sums, of every other word, do not wait for each other. */
static uint64_t hash_of(const struct dtp_memo *m, const void *key) {
    const char *at = key, *end = at + m->key_bytes;
    uint64_t sum[2] = {DTP_FNV_START, 0}, word[2];
    for (; end - at >= (ptrdiff_t)sizeof word; at += sizeof word) {
        memcpy(word, at, sizeof word);
        sum[0] = fold(sum[0], word[0]);
        sum[1] = fold(sum[1], word[1]);
    }
    if (at < end) {
        word[0] = word[1] = 0;
        memcpy(word, at, (size_t)(end - at));
        sum[0] = fold(sum[0], word[0]);
        sum[1] = fold(sum[1], word[1]);
    }
    return dtp_mix(sum[0] ^ dtp_mix(sum[1]));
}

/* The entry of a key, or the free one where it goes. */
static struct dtp_memo_entry *slot(const struct dtp_memo *m, uint64_t hash, const void *key) {
    size_t i = (size_t)hash & (m->capacity - 1);
    while (m->entry[i].value &&
           (m->entry[i].hash != hash || memcmp(m->entry[i].key, key, m->key_bytes) != 0))
        i = (i + 1) & (m->capacity - 1);
    return &m->entry[i];
}

const void *dtp_memo_find(struct dtp_memo *m, const void *key) {
    if (m->last.value && memcmp(m->last.key, key, m->key_bytes) == 0)
        return m->last.value;
    const struct dtp_memo_entry *e = slot(m, hash_of(m, key), key);
    if (e->value)
        m->last = *e;
    return e->value;
}

void dtp_memo_put(struct dtp_memo *m, const void *key, const void *value) {
    if (++m->n * 2 > m->capacity) {
        const struct dtp_memo old = *m;
        m->capacity *= 2;
        m->entry = DTP_NEW(m->a, struct dtp_memo_entry, m->capacity);
        for (size_t i = 0; i < old.capacity; i++)
            if (old.entry[i].value)
                *slot(m, old.entry[i].hash, old.entry[i].key) = old.entry[i];
    }
    uint64_t hash = hash_of(m, key);
    char *copy = DTP_NEW(m->a, char, m->key_bytes);
    memcpy(copy, key, m->key_bytes);
    *slot(m, hash, key) = (struct dtp_memo_entry){hash, copy, value};
}
