/* A piece holds operations with their arguments, one after the other in a buffer of bytes. */
#include "runtime/device/graphs.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/device/graphs_ops.h"
#include "sim/base/mix.h"

enum {
    MAX_PIECES = 1 << 13,   /* a power of two, of the table */
    MOST_PIECES = 6000,     /* most that it takes; then nothing new is learned */
    MOST_KERNELS = 1 << 15, /* limit for all graphs, which take memory of the device */
    LEARN_STEPS = 1,
    FEWEST_OPS = 2, /* operations of a piece that is worth a graph */
    BUFFER_BYTES = 1 << 18,
    POOL_BYTES = 64 << 20 /* room for all pieces */
};

/* In the buffer: a header, then the arguments. All sizes are multiples of 8. */
struct header {
    uint64_t op;
};

struct piece {
    uint64_t hash;
    const char *bytes; /* NULL: unused */
    size_t size;
    int graph; /* -1: none yet; -2: cannot be recorded */
};

struct dtp_graphs {
    struct dtp_dev_ops ops;
    struct dtp_arena *arena; /* memory of the pieces that were seen */
    char *buffer;
    size_t used;
    int count;           /* operations in the buffer */
    struct piece *piece; /* [MAX_PIECES], by hash */
    int npieces;
    size_t pool_used;
    int64_t enqueued, replayed; /* counts of this step */
    int nsteps;                 /* so far */
    struct dtp_graphs_stats stats;
    enum dtp_status failed; /* first failure of what was kept */
    struct dtp_err failure;
};

/* ---- operations in a row ---- */

#define CHECK_SIZE(name, type) _Static_assert(sizeof(struct type) % sizeof(uint64_t) == 0, #name);
DTP_GRAPHS_OPS(CHECK_SIZE)
CHECK_SIZE(collective, dtp_collective_args)

static void run(struct dtp_dev *d, enum dtp_op op, const void *args) {
    struct dtp_graphs *g = d->graphs;
    struct dtp_err err = {0};
    enum dtp_status status = dtp_op_rows[op].run(d->ops, d, args, &err);
    if (status == DTP_OK || g->failed != DTP_OK)
        return;
    g->failed = status;
    g->failure = err;
}

static void run_all(struct dtp_dev *d, const char *bytes, size_t size) {
    for (size_t at = 0; at < size;) {
        struct header h;
        memcpy(&h, bytes + at, sizeof h);
        run(d, (enum dtp_op)h.op, bytes + at + sizeof h);
        at += sizeof h + dtp_op_rows[h.op].size;
    }
}

/* ---- pieces ---- */

static uint64_t hash_of(const char *bytes, size_t size) {
    uint64_t hash = DTP_FNV_START, word;
    for (size_t i = 0; i < size; i += sizeof word) {
        memcpy(&word, bytes + i, sizeof word);
        hash = dtp_fnv(hash, word);
        hash ^= hash >> 32;
    }
    return hash;
}

/* Returns the piece in the buffer, or the place for it. The table is never full. */
static struct piece *find(struct dtp_graphs *g) {
    uint64_t hash = hash_of(g->buffer, g->used);
    for (uint64_t i = hash;; i++) {
        struct piece *p = &g->piece[i % MAX_PIECES];
        if (!p->bytes)
            p->hash = hash;
        if (!p->bytes ||
            (p->hash == hash && p->size == g->used && memcmp(p->bytes, g->buffer, g->used) == 0))
            return p;
    }
}

static void learn(struct dtp_graphs *g, struct piece *p) {
    if (g->npieces >= MOST_PIECES || g->pool_used + g->used > POOL_BYTES)
        return;
    char *bytes = dtp_arena_alloc(g->arena, 1, g->used);
    memcpy(bytes, g->buffer, g->used);
    *p = (struct piece){.hash = p->hash, .bytes = bytes, .size = g->used, .graph = -1};
    g->pool_used += g->used;
    g->npieces++;
}

/* A piece that came again; false: it is not recorded. */
static bool record(struct dtp_dev *d, struct piece *p) {
    struct dtp_graphs *g = d->graphs;
    struct dtp_graphs_stats *s = &g->stats;
    p->graph = -2;
    if (s->graphs >= DTP_DEV_GRAPHS || s->kernels >= MOST_KERNELS ||
        !d->ops->record(d, s->graphs, true))
        return false;
    run_all(d, p->bytes, p->size);
    int kernels = d->ops->record(d, s->graphs, false);
    if (kernels == 0)
        return false;
    s->kernels += kernels;
    p->graph = s->graphs++;
    return true;
}

static bool replays(struct dtp_dev *d, struct piece *p) {
    if (d->graphs->nsteps < LEARN_STEPS || !p->bytes)
        return false;
    return p->graph >= 0 || (p->graph == -1 && record(d, p));
}

static void flush(struct dtp_dev *d) {
    struct dtp_graphs *g = d->graphs;
    if (g->used == 0)
        return;
    struct piece *p = g->count >= FEWEST_OPS ? find(g) : NULL;
    if (p && replays(d, p)) {
        d->ops->replay(d, p->graph);
        g->replayed += g->count;
    } else {
        run_all(d, g->buffer, g->used);
    }
    if (p && !p->bytes)
        learn(g, p);
    g->used = 0;
    g->count = 0;
}

static void put(struct dtp_dev *d, enum dtp_op op, const void *args) {
    struct dtp_graphs *g = d->graphs;
    const struct header h = {.op = op};
    size_t size = dtp_op_rows[op].size;
    if (g->used + sizeof h + size > BUFFER_BYTES)
        flush(d);
    memcpy(g->buffer + g->used, &h, sizeof h);
    memcpy(g->buffer + g->used + sizeof h, args, size);
    g->used += sizeof h + size;
    g->count++;
    g->enqueued++;
}

/* ---- the table ---- */

#define PUT_STRUCT(name, type)                                                                     \
    static void put_##name(struct dtp_dev *d, const struct type *x) {                              \
        put(d, DTP_OP_##name, x);                                                                  \
    }
DTP_GRAPHS_STRUCT_OPS(PUT_STRUCT)

#define PUT_WORDS(name, takes, ...)                                                                \
    static void put_##name takes {                                                                 \
        put(d, DTP_OP_##name, &(struct dtp_##name##_args){__VA_ARGS__});                           \
    }
DTP_GRAPHS_WORD_OPS(PUT_WORDS)

enum dtp_status dtp_graphs_collective(struct dtp_dev *d, const struct dtp_collective_args *x,
                                      bool may_keep, struct dtp_err *err) {
    if (d->graphs && may_keep) {
        put(d, DTP_OP_collective, x);
        return DTP_OK;
    }
    if (d->graphs)
        flush(d);
    return dtp_op_run_collective(d->ops, d, x, err);
}

/* These operations end a piece: they involve the host, another stream, or arguments that no piece keeps. */

static void end_copy_in(struct dtp_dev *d, void *to, const void *from_host, uint64_t bytes) {
    flush(d);
    d->ops->copy_in(d, to, from_host, bytes);
}

static void end_copy_out(struct dtp_dev *d, void *to_host, const void *from, uint64_t bytes) {
    flush(d);
    d->ops->copy_out(d, to_host, from, bytes);
}

static void end_cast(struct dtp_dev *d, void *to, enum dtp_dtype to_type, const void *from,
                     enum dtp_dtype from_type, int64_t n) {
    flush(d);
    d->ops->cast(d, to, to_type, from, from_type, n);
}

static void end_event_record(struct dtp_dev *d, enum dtp_stream stream, int event) {
    if (stream == DTP_STREAM_COMPUTE)
        flush(d);
    d->ops->event_record(d, stream, event);
}

static void end_event_wait(struct dtp_dev *d, enum dtp_stream stream, int event) {
    if (stream == DTP_STREAM_COMPUTE)
        flush(d);
    d->ops->event_wait(d, stream, event);
}

static void end_sync(struct dtp_dev *d) {
    flush(d);
    d->ops->sync(d);
}

static enum dtp_status end_check(struct dtp_dev *d, struct dtp_err *err) {
    const struct dtp_graphs *g = d->graphs;
    flush(d);
    DTP_TRY(d->ops->check(d, err)); /* why a collective fails, too */
    return g->failed == DTP_OK ? DTP_OK : dtp_fail(err, g->failed, "%s", g->failure.msg);
}

static void end_mark(struct dtp_dev *d, enum dtp_stream stream, int mark) {
    if (stream == DTP_STREAM_COMPUTE)
        flush(d);
    d->ops->mark(d, stream, mark);
}

static void end_tick(struct dtp_dev *d, int end) {
    flush(d);
    d->ops->tick(d, end);
}

static void end_reach(struct dtp_dev *d, int number) {
    flush(d);
    d->ops->reach(d, number);
}

static void end_fill(struct dtp_dev *d, void *to, uint64_t bytes) {
    flush(d);
    d->ops->fill(d, to, bytes);
}

static void end_clip_scale(struct dtp_dev *d, float *scale, const float *norm2,
                           const struct dtp_clip *clip) {
    flush(d);
    d->ops->clip_scale(d, scale, norm2, clip);
}

static void end_adamw(struct dtp_dev *d, const struct dtp_adamw_hyper *h,
                      const struct dtp_adamw_tensor *t, int n) {
    flush(d);
    d->ops->adamw(d, h, t, n);
}

static void fill_table(struct dtp_dev_ops *ops) {
#define OWN(name, type) ops->name = put_##name;
    DTP_GRAPHS_OPS(OWN)
    ops->copy_in = end_copy_in;
    ops->copy_out = end_copy_out;
    ops->cast = end_cast;
    ops->event_record = end_event_record;
    ops->event_wait = end_event_wait;
    ops->sync = end_sync;
    ops->check = end_check;
    ops->mark = end_mark;
    if (ops->tick)
        ops->tick = end_tick;
    if (ops->reach)
        ops->reach = end_reach;
    ops->fill = end_fill;
    ops->clip_scale = end_clip_scale;
    ops->adamw = end_adamw;
}

const struct dtp_dev_ops *dtp_graphs_open(struct dtp_arena *a, struct dtp_dev *d) {
    const char *wish = getenv("DTPLAN_CUDA_GRAPHS");
    if (!d->ops->record || (wish && strcmp(wish, "0") == 0))
        return d->ops;
    struct dtp_graphs *g = DTP_NEW(a, struct dtp_graphs, 1);
    g->ops = *d->ops;
    fill_table(&g->ops);
    g->buffer = dtp_arena_alloc(a, 1, BUFFER_BYTES);
    g->piece = DTP_NEW(a, struct piece, MAX_PIECES);
    g->arena = dtp_arena_create_in(a, "pieces");
    d->graphs = g;
    return &g->ops;
}

bool dtp_graphs_keep(const struct dtp_dev *d) {
    return d->graphs != NULL;
}

void dtp_graphs_next_step(struct dtp_dev *d) {
    struct dtp_graphs *g = d->graphs;
    if (!g)
        return;
    g->nsteps++;
    g->stats.ops = g->enqueued;
    g->stats.replayed = g->replayed;
    g->enqueued = g->replayed = 0;
}

void dtp_graphs_forget(struct dtp_dev *d) {
    struct dtp_graphs *g = d->graphs;
    if (!g)
        return;
    d->ops->forget_graphs(d);
    memset(g->piece, 0, MAX_PIECES * sizeof *g->piece);
    dtp_arena_reset(g->arena);
    g->npieces = 0;
    g->pool_used = 0;
    g->nsteps = 0;
    g->stats = (struct dtp_graphs_stats){0};
    g->failed = DTP_OK;
}

void dtp_graphs_stats(const struct dtp_dev *d, struct dtp_graphs_stats *out) {
    *out = d->graphs ? d->graphs->stats : (struct dtp_graphs_stats){0};
}
