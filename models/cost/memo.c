#include "models/cost/memo.h"

#include <string.h>

#include "sim/base/mix.h"

enum { FIRST_CAPACITY = 64 };

struct dtp_memo_entry {
    uint64_t key[3];
    const void *value; /* NULL: free */
};

void dtp_memo_init(struct dtp_memo *m, struct dtp_arena *a) {
    *m = (struct dtp_memo){a, DTP_NEW(a, struct dtp_memo_entry, FIRST_CAPACITY), 0, FIRST_CAPACITY};
}

/* The entry of a key, or the free one where it goes. */
static struct dtp_memo_entry *slot(const struct dtp_memo *m, const uint64_t key[3]) {
    uint64_t hash = dtp_mix(key[0] ^ dtp_mix(key[1] ^ dtp_mix(key[2])));
    size_t i = (size_t)hash & (m->capacity - 1);
    while (m->entry[i].value && memcmp(m->entry[i].key, key, sizeof m->entry[i].key) != 0)
        i = (i + 1) & (m->capacity - 1);
    return &m->entry[i];
}

const void *dtp_memo_find(const struct dtp_memo *m, const uint64_t key[3]) {
    return slot(m, key)->value;
}

void dtp_memo_put(struct dtp_memo *m, const uint64_t key[3], const void *value) {
    if (++m->n * 2 > m->capacity) {
        const struct dtp_memo old = *m;
        m->capacity *= 2;
        m->entry = DTP_NEW(m->a, struct dtp_memo_entry, m->capacity);
        for (size_t i = 0; i < old.capacity; i++)
            if (old.entry[i].value)
                *slot(m, old.entry[i].key) = old.entry[i];
    }
    *slot(m, key) = (struct dtp_memo_entry){{key[0], key[1], key[2]}, value};
}
