#include "sim/base/arena.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/status.h"

enum { ALIGN = 16, FIRST_BLOCK_BYTES = 1 << 14, LARGEST_BLOCK_BYTES = 1 << 22 };

/* Blocks form a list in the order of their creation; those after `current` are empty and wait for
 * reuse after a reset. */
struct block {
    struct block *next;
    size_t capacity, used;
    _Alignas(ALIGN) unsigned char data[];
};

struct dtp_arena {
    const char *name;
    struct block *first, *current;
    size_t next_block_bytes; /* doubles, so that a large arena has few blocks */
    struct dtp_arena *parent, *first_child, *sibling;
    struct block *spare; /* left by child arenas that ended; the next child takes them */
};

static _Noreturn void oom_exit(const char *arena, size_t bytes) {
    if (bytes == 0)
        fprintf(stderr, "dtplan: out of memory (%s)\n", arena);
    else if (bytes == SIZE_MAX)
        fprintf(stderr, "dtplan: out of memory (%s: a size beyond the address space)\n", arena);
    else
        fprintf(stderr, "dtplan: out of memory (%s: %zu bytes)\n", arena, bytes);
    exit(DTP_ENOMEM);
}

static _Atomic(dtp_oom_fn *) oom_handler; /* starts as a null pointer */

void dtp_arena_set_oom(dtp_oom_fn *fn) {
    atomic_store(&oom_handler, fn);
}

_Noreturn void dtp_out_of_memory(const char *what, size_t bytes) {
    dtp_oom_fn *fn = atomic_load(&oom_handler);
    if (fn)
        fn(what, bytes);
    oom_exit(what, bytes);
}

struct dtp_arena *dtp_arena_create(const char *name) {
    struct dtp_arena *a = calloc(1, sizeof *a);
    if (!a)
        dtp_out_of_memory(name, sizeof *a);
    a->name = name;
    a->next_block_bytes = FIRST_BLOCK_BYTES;
    return a;
}

struct dtp_arena *dtp_arena_create_in(struct dtp_arena *parent, const char *name) {
    struct dtp_arena *a = dtp_arena_create(name);
    a->parent = parent;
    a->sibling = parent->first_child;
    parent->first_child = a;
    return a;
}

static void leave_parent(struct dtp_arena *a) {
    struct dtp_arena **link = &a->parent->first_child;
    while (*link != a)
        link = &(*link)->sibling;
    *link = a->sibling;
}

static void destroy_children(struct dtp_arena *a) {
    while (a->first_child)
        dtp_arena_destroy(a->first_child);
}

static void free_blocks(struct block *b) {
    for (struct block *next; b; b = next) {
        next = b->next;
        free(b);
    }
}

/* Puts a list of blocks before those that are spare, in its order: small ones first, as they will be asked for. */
static void give_blocks(struct dtp_arena *to, struct block *list) {
    struct block **end = &list;
    while (*end)
        end = &(*end)->next;
    *end = to->spare;
    to->spare = list;
}

void dtp_arena_destroy(struct dtp_arena *a) {
    if (!a)
        return;
    destroy_children(a);
    if (a->parent) {
        leave_parent(a);
        give_blocks(a->parent, a->spare);
        give_blocks(a->parent, a->first);
    } else {
        free_blocks(a->spare);
        free_blocks(a->first);
    }
    free(a);
}

void dtp_arena_reset(struct dtp_arena *a) {
    destroy_children(a);
    a->current = a->first;
    if (a->first)
        a->first->used = 0;
}

size_t dtp_arena_bytes(const struct dtp_arena *a) {
    size_t bytes = 0;
    for (const struct block *b = a ? a->first : NULL; b; b = b->next)
        bytes += b->capacity;
    return bytes;
}

/* Takes a block of at least `bytes` and at most twice the `wanted` from what the parent has spare; NULL: none. */
static struct block *take_spare(struct dtp_arena *parent, size_t bytes, size_t wanted) {
    struct block **link = &parent->spare;
    while (*link && ((*link)->capacity < bytes || (*link)->capacity / 2 > wanted))
        link = &(*link)->next;
    struct block *b = *link;
    if (b)
        *link = b->next;
    return b;
}

static struct block *new_block(struct dtp_arena *a, size_t bytes) {
    size_t capacity = bytes > a->next_block_bytes ? bytes : a->next_block_bytes;
    if (capacity > SIZE_MAX - sizeof(struct block))
        dtp_out_of_memory(a->name, bytes);
    struct block *b = a->parent ? take_spare(a->parent, bytes, capacity) : NULL;
    if (!b) {
        b = malloc(sizeof *b + capacity);
        if (!b)
            dtp_out_of_memory(a->name, bytes);
        b->capacity = capacity;
    }
    b->used = 0;
    if (a->next_block_bytes < LARGEST_BLOCK_BYTES)
        a->next_block_bytes *= 2;
    return b;
}

/* Takes the smallest of the kept blocks after *link that has room for `bytes`; NULL: none has. */
static struct block *take_kept(struct block **link, size_t bytes) {
    struct block **best = NULL;
    for (; *link; link = &(*link)->next)
        if ((*link)->capacity >= bytes && (!best || (*link)->capacity < (*best)->capacity))
            best = link;
    if (!best)
        return NULL;
    struct block *b = *best;
    *best = b->next;
    return b;
}

/* Makes current a block with room for `bytes`, of those kept if one has it. */
static void advance_block(struct dtp_arena *a, size_t bytes) {
    struct block *old = a->current;
    struct block **link = old ? &old->next : &a->first;
    struct block *b = take_kept(link, bytes);
    if (!b)
        b = new_block(a, bytes);
    b->next = *link;
    *link = b;
    b->used = 0;
    a->current = b;
}

static size_t product_bytes(const struct dtp_arena *a, size_t size, size_t count) {
    if (size != 0 && count > (SIZE_MAX - ALIGN) / size)
        dtp_out_of_memory(a->name, SIZE_MAX);
    return (size * count + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

void *dtp_arena_alloc(struct dtp_arena *a, size_t size, size_t count) {
    size_t bytes = product_bytes(a, size, count);
    if (bytes == 0)
        bytes = ALIGN; /* a distinct address, never NULL */
    if (!a->current || a->current->capacity - a->current->used < bytes)
        advance_block(a, bytes);
    void *p = a->current->data + a->current->used;
    a->current->used += bytes;
    return memset(p, 0, bytes);
}

void *dtp_arena_grow(struct dtp_arena *a, void *old, size_t size, size_t old_count,
                     size_t new_count) {
    if (!old)
        return dtp_arena_alloc(a, size, new_count);
    size_t old_bytes = product_bytes(a, size, old_count);
    size_t new_bytes = product_bytes(a, size, new_count);
    if (new_bytes <= old_bytes)
        return old;
    struct block *b = a->current;
    unsigned char *start = old;
    if (old_bytes > 0 && b && start + old_bytes == b->data + b->used &&
        b->capacity - b->used >= new_bytes - old_bytes) {
        /* the padding after the old elements is zero already: they never reached it */
        memset(start + old_bytes, 0, new_bytes - old_bytes);
        b->used += new_bytes - old_bytes;
        return old;
    }
    void *p = dtp_arena_alloc(a, size, new_count);
    return memcpy(p, old, size * old_count);
}

void *dtp_arena_room(struct dtp_arena *a, void *array, size_t size, size_t n, size_t *capacity) {
    enum { FIRST = 64 };
    if (n < *capacity)
        return array;
    size_t old = *capacity;
    *capacity = old > 0 ? 2 * old : FIRST;
    return dtp_arena_grow(a, array, size, old, *capacity);
}

char *dtp_arena_strndup(struct dtp_arena *a, const char *s, size_t n) {
    char *copy = dtp_arena_alloc(a, 1, n + 1);
    memcpy(copy, s, n);
    return copy;
}

char *dtp_arena_strdup(struct dtp_arena *a, const char *s) {
    return dtp_arena_strndup(a, s, strlen(s));
}

char *dtp_arena_vprintf(struct dtp_arena *a, const char *format, va_list args) {
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    if (n < 0)
        n = 0; /* an encoding error gives an empty text */
    char *s = dtp_arena_alloc(a, 1, (size_t)n + 1);
    if (n > 0)
        vsnprintf(s, (size_t)n + 1, format, again);
    va_end(again);
    return s;
}

char *dtp_arena_printf(struct dtp_arena *a, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *s = dtp_arena_vprintf(a, format, args);
    va_end(args);
    return s;
}
