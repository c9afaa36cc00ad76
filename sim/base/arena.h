/* arena.h: memory with three lifetimes: program, candidate (reset per plan) and result.
 *
 * A function allocates if and only if its first parameter is `struct dtp_arena *a`; what it returns
 * lives as long as that arena. Nothing is freed one by one. Allocation never returns NULL: when the
 * system has no more memory the out-of-memory handler is called, which by default prints one line
 * and exits with 5 (DTP_ENOMEM); a library user installs one that jumps back to its entry point.
 * Memory is zeroed and aligned to 16 bytes. An arena belongs to one thread at a time.
 *
 *     struct dtp_arena *a = dtp_arena_create("candidate");
 *     double *t_s = DTP_NEW(a, double, n);
 *     dtp_arena_reset(a);      keeps the blocks for the next candidate
 *     dtp_arena_destroy(a);
 */
#ifndef DTP_SIM_BASE_ARENA_H
#define DTP_SIM_BASE_ARENA_H

#include <stdarg.h>
#include <stddef.h>

struct dtp_arena;

/* name: for the message when memory runs out; must outlive the arena. */
struct dtp_arena *dtp_arena_create(const char *name);
/* An arena that ends with its parent, when that is destroyed or reset, if it was not destroyed before.
 * Its memory goes back to the parent, for the next arena in it: pages that are mapped already. So both belong
 * to the same thread. */
struct dtp_arena *dtp_arena_create_in(struct dtp_arena *parent, const char *name);
void dtp_arena_destroy(struct dtp_arena *a); /* NULL is fine */
void dtp_arena_reset(struct dtp_arena *a);
size_t dtp_arena_bytes(const struct dtp_arena *a); /* sum of its blocks; 0 for NULL */

/* size x count bytes, zeroed; an overflow of the product counts as out of memory. */
void *dtp_arena_alloc(struct dtp_arena *a, size_t size, size_t count);
/* Grows an array that was allocated in `a`; the old block is abandoned unless it was the last. */
void *dtp_arena_grow(struct dtp_arena *a, void *old, size_t size, size_t old_count,
                     size_t new_count);
/* The array with room for one more than n: twice as large where it is full. NULL with a capacity of 0 is empty. */
void *dtp_arena_room(struct dtp_arena *a, void *array, size_t size, size_t n, size_t *capacity);
char *dtp_arena_strdup(struct dtp_arena *a, const char *s);
char *dtp_arena_strndup(struct dtp_arena *a, const char *s, size_t n);
char *dtp_arena_printf(struct dtp_arena *a, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
char *dtp_arena_vprintf(struct dtp_arena *a, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));

#define DTP_NEW(a, type, count) ((type *)dtp_arena_alloc((a), sizeof(type), (count)))

/* Called with the arena's name and the bytes asked for; must not return. NULL restores the default. */
typedef void dtp_oom_fn(const char *arena, size_t bytes);
void dtp_arena_set_oom(dtp_oom_fn *fn);
/* Calls it where another library had no memory: `what` for so many bytes, 0 where it does not say. */
__attribute__((noreturn)) void dtp_out_of_memory(const char *what, size_t bytes);

#endif
