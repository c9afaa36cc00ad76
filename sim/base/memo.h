/* memo.h: what was computed before, by a key that is compared and hashed as bytes.
 *
 * A key is a struct of whole numbers without padding, all of whose members are set: what is computed takes the key
 * as its input, so that it cannot depend on anything that the key lacks. Open addressing, nothing is forgotten: keys
 * are copied into the arena of the memo, values live there, and their addresses hold.
 *
 *     const struct costs *known = dtp_memo_find(&memo, &key);
 *     if (known)
 *         return known;
 *     ...
 *     dtp_memo_put(&memo, &key, made);
 */
#ifndef DTP_SIM_BASE_MEMO_H
#define DTP_SIM_BASE_MEMO_H

#include <stddef.h>
#include <stdint.h>

#include "sim/base/arena.h"

struct dtp_memo_entry {
    uint64_t hash;
    const void *key, *value; /* value NULL: free */
};

struct dtp_memo {
    struct dtp_arena *a;
    size_t key_bytes;             /* a multiple of 4 */
    struct dtp_memo_entry *entry; /* [capacity], a power of two */
    size_t n, capacity;
    struct dtp_memo_entry last; /* found last: most questions are like the one before */
};

void dtp_memo_init(struct dtp_memo *m, struct dtp_arena *a, size_t key_bytes);
/* Returns what is stored under the key; NULL: nothing. */
const void *dtp_memo_find(struct dtp_memo *m, const void *key);
/* A key that is not known yet; value, not NULL, must stay. */
void dtp_memo_put(struct dtp_memo *m, const void *key, const void *value);

#endif
