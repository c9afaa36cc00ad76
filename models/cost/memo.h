/* memo.h: what was computed before, by a key of three words.
 *
 * Open addressing, nothing is forgotten: the values live in the arena of the memo, and their addresses hold.
 *
 *     const struct costs *known = dtp_memo_find(&memo, key);
 *     if (known)
 *         return known;
 *     ...
 *     dtp_memo_put(&memo, key, made);
 */
#ifndef DTP_MODELS_MEMO_H
#define DTP_MODELS_MEMO_H

#include <stdint.h>

#include "sim/base/arena.h"

struct dtp_memo_entry;

struct dtp_memo {
    struct dtp_arena *a;
    struct dtp_memo_entry *entry; /* [capacity], a power of two */
    size_t n, capacity;
};

void dtp_memo_init(struct dtp_memo *m, struct dtp_arena *a);
/* NULL: not known. */
const void *dtp_memo_find(const struct dtp_memo *m, const uint64_t key[3]);
/* A key that is not known yet; value, not NULL, must stay. */
void dtp_memo_put(struct dtp_memo *m, const uint64_t key[3], const void *value);

#endif
