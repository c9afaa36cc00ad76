/* Collectives through staging memory. Each rank has two halves per kind of group; piece k of a buffer
 * uses half k mod 2, and one barrier per piece makes it readable. When a rank writes piece k + 2 into
 * the same half, it has passed barrier k + 1, which every member enters only after it has read piece
 * k: so no second barrier is needed. Reductions add in the order of ranks: same bytes every time. */
#include <string.h>

#include "runtime/comm_shm.h"
#include "runtime/launch.h"

struct shm_group {
    struct dtp_comm_group group;
    struct dtp_shm *shm;
    struct dtp_stage_words *words; /* of the first member: the group's barrier */
    char **half[2];                /* [size] staging of each member */
    uint64_t half_bytes;
    unsigned piece; /* counts on over all collectives */
};

static char *stage_of(const struct dtp_shm *s, int rank, enum dtp_group_kind kind) {
    uint64_t index = (uint64_t)rank * DTP_NGROUPS + (uint64_t)kind;
    return s->memory + s->layout.stages_at + index * s->layout.stage_bytes;
}

enum dtp_status dtp_shm_group(struct dtp_arena *a, struct dtp_comm *c, enum dtp_group_kind kind,
                              const int *ranks, int nranks, struct dtp_comm_group **out,
                              struct dtp_err *err) {
    enum { WORDS_BYTES = 4096 }; /* the page before the staging memory */
    struct dtp_shm *s = (struct dtp_shm *)c;
    struct shm_group *g = DTP_NEW(a, struct shm_group, 1);
    int *copy = DTP_NEW(a, int, (size_t)nranks);
    memcpy(copy, ranks, (size_t)nranks * sizeof *copy);
    g->group = (struct dtp_comm_group){.comm = c, .size = nranks, .me = -1, .rank = copy};
    g->shm = s;
    g->words = (struct dtp_stage_words *)(void *)stage_of(s, ranks[0], kind);
    g->half_bytes = s->config.staging_bytes / 2 / 64 * 64;
    for (int half = 0; half < 2; half++) {
        g->half[half] = DTP_NEW(a, char *, (size_t)nranks);
        for (int i = 0; i < nranks; i++)
            g->half[half][i] =
                stage_of(s, ranks[i], kind) + WORDS_BYTES + (uint64_t)half * g->half_bytes;
    }
    for (int i = 0; i < nranks; i++)
        if (ranks[i] == c->rank)
            g->group.me = i;
    if (g->group.me < 0)
        return dtp_fail(err, DTP_EINPUT, "rank %d is no member of the group it opens", c->rank);
    *out = &g->group;
    return DTP_OK;
}

enum dtp_status dtp_shm_barrier(struct dtp_comm_group *group, struct dtp_err *err) {
    struct shm_group *g = (struct shm_group *)group;
    struct dtp_stage_words *w = g->words;
    unsigned seen = atomic_load(&w->generation.value);
    if (atomic_fetch_add(&w->arrived, 1) + 1 == (unsigned)group->size) {
        atomic_store(&w->arrived, 0);
        dtp_shm_open_gate(&w->generation);
        return DTP_OK;
    }
    return dtp_shm_wait(g->shm, &w->generation, seen, err);
}

/* ---- reductions, fp32 and the integers that ranks exchange as fp32 bits are not reduced ---- */

static void reduce_into(float *out, char *const *from, uint64_t offset_bytes, int64_t n,
                        const struct shm_group *g, enum dtp_reduce_op op) {
    memcpy(out, from[0] + offset_bytes, (size_t)n * sizeof *out);
    for (int r = 1; r < g->group.size; r++) {
        const float *x = (const float *)(const void *)(from[r] + offset_bytes);
        for (int64_t i = 0; op == DTP_REDUCE_SUM && i < n; i++)
            out[i] += x[i];
        for (int64_t i = 0; op == DTP_REDUCE_MAX && i < n; i++)
            out[i] = x[i] > out[i] ? x[i] : out[i];
    }
}

static enum dtp_status only_fp32(enum dtp_dtype dtype, struct dtp_err *err) {
    if (dtype == DTP_FP32)
        return DTP_OK;
    return dtp_fail(err, DTP_EUNSUPPORTED, "shared memory reduces fp32, not %s",
                    dtp_dtype_names[dtype]);
}

/* Part i of n elements for m members: [first, first + count). */
static int64_t part_begin(int64_t n, int m, int i) {
    return n * i / m;
}

/* One piece: every member writes its data, reduces its own part in its own half, and reads all parts. */
static enum dtp_status reduce_piece(struct shm_group *g, float *x, int64_t n, enum dtp_reduce_op op,
                                    struct dtp_err *err) {
    int me = g->group.me, size = g->group.size;
    char **half = g->half[g->piece++ % 2];
    memcpy(half[me], x, (size_t)n * sizeof *x);
    DTP_TRY(dtp_shm_barrier(&g->group, err));
    int64_t first = part_begin(n, size, me), count = part_begin(n, size, me + 1) - first;
    reduce_into(x + first, half, (uint64_t)first * sizeof *x, count, g, op);
    memcpy(half[me] + (uint64_t)first * sizeof *x, x + first, (size_t)count * sizeof *x);
    DTP_TRY(dtp_shm_barrier(&g->group, err));
    for (int r = 0; r < size; r++) {
        int64_t at = part_begin(n, size, r), end = part_begin(n, size, r + 1);
        if (r != me)
            memcpy(x + at, half[r] + (uint64_t)at * sizeof *x, (size_t)(end - at) * sizeof *x);
    }
    return DTP_OK;
}

enum dtp_status dtp_shm_all_reduce(struct dtp_comm_group *group, enum dtp_stream stream, void *x,
                                   int64_t n, enum dtp_dtype dtype, enum dtp_reduce_op op,
                                   struct dtp_err *err) {
    (void)stream;
    struct shm_group *g = (struct shm_group *)group;
    DTP_TRY(only_fp32(dtype, err));
    if (group->size == 1)
        return DTP_OK;
    int64_t most = (int64_t)(g->half_bytes / sizeof(float));
    for (int64_t at = 0; at < n; at += most)
        DTP_TRY(reduce_piece(g, (float *)x + at, n - at < most ? n - at : most, op, err));
    return DTP_OK;
}

enum dtp_status dtp_shm_reduce_scatter(struct dtp_comm_group *group, enum dtp_stream stream,
                                       void *out, const void *in, int64_t n, enum dtp_dtype dtype,
                                       struct dtp_err *err) {
    (void)stream;
    struct shm_group *g = (struct shm_group *)group;
    DTP_TRY(only_fp32(dtype, err));
    int me = group->me, size = group->size;
    int64_t most = (int64_t)(g->half_bytes / sizeof(float)) / size;
    const float *from = in;
    for (int64_t at = 0; at < n; at += most) {
        int64_t count = n - at < most ? n - at : most;
        char **half = g->half[g->piece++ % 2];
        for (int r = 0; r < size; r++)
            memcpy(half[me] + (uint64_t)(r * count) * sizeof(float), from + r * n + at,
                   (size_t)count * sizeof(float));
        DTP_TRY(dtp_shm_barrier(group, err));
        reduce_into((float *)out + at, half, (uint64_t)(me * count) * sizeof(float), count, g,
                    DTP_REDUCE_SUM);
    }
    return DTP_OK;
}

enum dtp_status dtp_shm_all_gather(struct dtp_comm_group *group, enum dtp_stream stream, void *out,
                                   const void *in, int64_t n, enum dtp_dtype dtype,
                                   struct dtp_err *err) {
    (void)stream;
    struct shm_group *g = (struct shm_group *)group;
    uint64_t total = (uint64_t)n * (uint64_t)dtp_dtype_bytes(dtype);
    const char *from = in;
    char *to = out;
    for (uint64_t at = 0; at < total; at += g->half_bytes) {
        size_t count = (size_t)(total - at < g->half_bytes ? total - at : g->half_bytes);
        char **half = g->half[g->piece++ % 2];
        memcpy(half[group->me], from + at, count);
        DTP_TRY(dtp_shm_barrier(group, err));
        for (int r = 0; r < group->size; r++)
            memcpy(to + (uint64_t)r * total + at, half[r], count);
    }
    return DTP_OK;
}

enum dtp_status dtp_shm_all_to_all(struct dtp_comm_group *group, enum dtp_stream stream, void *out,
                                   const void *in, int64_t n, enum dtp_dtype dtype,
                                   struct dtp_err *err) {
    (void)stream;
    struct shm_group *g = (struct shm_group *)group;
    uint64_t part = (uint64_t)n * (uint64_t)dtp_dtype_bytes(dtype);
    uint64_t most = g->half_bytes / (uint64_t)group->size;
    const char *from = in;
    char *to = out;
    for (uint64_t at = 0; at < part; at += most) {
        size_t count = (size_t)(part - at < most ? part - at : most);
        char **half = g->half[g->piece++ % 2];
        for (int r = 0; r < group->size; r++)
            memcpy(half[group->me] + (uint64_t)r * count, from + (uint64_t)r * part + at, count);
        DTP_TRY(dtp_shm_barrier(group, err));
        for (int r = 0; r < group->size; r++)
            memcpy(to + (uint64_t)r * part + at, half[r] + (uint64_t)group->me * count, count);
    }
    return DTP_OK;
}
