/* Shared memory of one host: a communicator of processes that map the same memory.
 *
 *   board     one for all: the abort flag and its message; for each rank its process id and what it does
 *   stage     per rank and kind of group: the words of a barrier and two halves of staging memory
 *   box       per sending rank: message slots; a slot is free or full, only its sender fills it and
 *             only its receiver frees it
 * Everything is reached by offset, since processes map it at different addresses. Zero bytes are the
 * valid initial state. */
#include "runtime/comm/comm.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/launch.h"
#include "runtime/os_linux.h"

/* A counter that others wait on; waiters tells whether a wake-up call is needed. */
struct gate {
    atomic_uint value, waiters;
};

struct rank_state {
    atomic_int process;
    atomic_llong seen_ns; /* alive then; dtp_os_now_ns(), one clock for all processes */
    char doing[56];
};

struct board {
    atomic_uint aborted; /* 0 no, 1 message under way, 2 message there */
    atomic_int abort_rank;
    struct gate attached; /* ranks that have mapped the memory */
    char message[1024];
    struct rank_state rank[]; /* [size] */
};

struct stage_words {
    atomic_uint arrived;
    struct gate generation;
};

enum slot_state { SLOT_FREE, SLOT_FULL };
struct slot {
    atomic_uint state;
    int to;
    uint64_t tag, bytes;
};
struct box {
    struct gate posted, freed;
    struct slot slot[]; /* [nmessages] */
};

struct memory_map {
    uint64_t stage_bytes, box_bytes;       /* size of one stage, of one box */
    uint64_t stages_at, boxes_at, data_at; /* offsets */
    uint64_t slot_bytes;                   /* room for one message */
    uint64_t total_bytes;
};

struct shm {
    struct dtp_comm comm;
    struct dtp_comm_config config;
    struct memory_map layout;
    char *memory;
    struct board *board;
    bool owns_memory; /* mapped by open, not by the process that forked */
    bool spin;        /* there is a core for every rank */
};

enum { PAGE_BYTES = 4096, SPINS = 400, YIELDS = 8, NAP_MS = 20, MAGIC = 0x64747073 };

static uint64_t round_up(uint64_t v, uint64_t unit) {
    return (v + unit - 1) / unit * unit;
}

static struct memory_map layout_of(const struct dtp_comm_config *config) {
    struct memory_map l = {0};
    uint64_t n = (uint64_t)config->size, k = (uint64_t)config->nmessages;
    l.stages_at = round_up(sizeof(struct board) + n * sizeof(struct rank_state), PAGE_BYTES);
    l.stage_bytes = PAGE_BYTES + round_up(config->staging_bytes, PAGE_BYTES);
    l.boxes_at = l.stages_at + n * DTP_NGROUPS * l.stage_bytes;
    l.box_bytes = round_up(sizeof(struct box) + k * sizeof(struct slot), PAGE_BYTES);
    l.data_at = l.boxes_at + n * l.box_bytes;
    l.slot_bytes = round_up(config->message_bytes, PAGE_BYTES);
    l.total_bytes = l.data_at + n * k * l.slot_bytes;
    return l;
}

uint64_t dtp_comm_shm_bytes(const struct dtp_comm_config *config) {
    return layout_of(config).total_bytes;
}

enum dtp_status dtp_comm_shm_map(const struct dtp_comm_config *config, void **out,
                                 struct dtp_err *err) {
    uint64_t bytes = dtp_comm_shm_bytes(config);
    *out = dtp_os_map(bytes, true);
    if (!*out)
        return dtp_fail(err, DTP_ENOMEM, "cannot map %llu bytes of shared memory for %d ranks",
                        (unsigned long long)bytes, config->size);
    return DTP_OK;
}

void dtp_comm_shm_unmap(const struct dtp_comm_config *config, void *shared) {
    munmap(shared, (size_t)dtp_comm_shm_bytes(config));
}

/* ---- the board ---- */

const char *dtp_comm_shm_message(const void *shared, int *rank) {
    const struct board *b = shared;
    if (atomic_load(&b->aborted) != 2)
        return NULL;
    *rank = atomic_load(&b->abort_rank);
    return b->message;
}

void dtp_comm_shm_abort(void *shared, int rank, const char *message) {
    struct board *b = shared;
    unsigned none = 0;
    if (!atomic_compare_exchange_strong(&b->aborted, &none, 1))
        return; /* the first message stays */
    atomic_store(&b->abort_rank, rank);
    snprintf(b->message, sizeof b->message, "%s", message);
    atomic_store(&b->aborted, 2);
}

const char *dtp_comm_shm_doing(const void *shared, int rank) {
    return ((const struct board *)shared)->rank[rank].doing;
}

static void shm_doing(struct dtp_comm *c, const char *action) {
    struct rank_state *x = &((struct shm *)c)->board->rank[c->rank];
    if (action)
        snprintf(x->doing, sizeof x->doing, "%s", action);
    atomic_store(&x->seen_ns, dtp_os_now_ns());
}

static void shm_abort(struct dtp_comm *c, const char *message) {
    dtp_comm_shm_abort(((struct shm *)c)->memory, c->rank, message);
}

static enum dtp_status aborted(const struct shm *s, struct dtp_err *err) {
    int rank = -1;
    const char *text = NULL;
    while (!(text = dtp_comm_shm_message(s->memory, &rank)))
        dtp_os_yield();
    return dtp_fail(err, DTP_ENO, "%s", text);
}

/* A rank whose process is gone. Zombies of a fork count as alive: their parent sees them end. */
static bool find_dead(const struct shm *s, char *text, size_t size) {
    for (int r = 0; r < s->comm.size; r++) {
        const struct rank_state *x = &s->board->rank[r];
        int process = atomic_load(&x->process);
        if (process == 0 || kill(process, 0) == 0 || errno != ESRCH)
            continue;
        snprintf(text, size, "rank %d died in %s", r, x->doing);
        return true;
    }
    return false;
}

static const char *doing_of(const struct rank_state *x) {
    return x->doing[0] ? x->doing : "its start";
}

/* The rank that was not seen for the longest time, and for half the time that this one waited: who waits
 * is seen every few milliseconds. -1: all are alive. */
static int find_silent(const struct shm *s, double waited_s) {
    int silent = -1;
    int64_t oldest_ns = dtp_os_now_ns() - (int64_t)(waited_s / 2 * (double)DTP_NS_PER_S);
    for (int r = 0; r < s->comm.size; r++) {
        int64_t seen_ns = atomic_load(&s->board->rank[r].seen_ns);
        if (r == s->comm.rank || seen_ns >= oldest_ns)
            continue;
        silent = r;
        oldest_ns = seen_ns;
    }
    return silent;
}

static void shm_hang(struct dtp_comm *c, double waited_s, char *text, size_t size) {
    const struct shm *s = (const struct shm *)c;
    const struct rank_state *rank = s->board->rank;
    int silent = find_silent(s, waited_s);
    if (silent >= 0) {
        snprintf(text, size, "rank %d hangs in %s: rank %d has waited %.1f s in %s", silent,
                 doing_of(&rank[silent]), c->rank, waited_s, doing_of(&rank[c->rank]));
        return;
    }
    int n = snprintf(text, size, "all ranks wait for each other, for %.1f s:", waited_s);
    for (int r = 0; r < c->size && n > 0 && (size_t)n < size; r++)
        n += snprintf(text + n, size - (size_t)n, "%s rank %d in %s", r ? "," : "", r,
                      doing_of(&rank[r]));
}

/* ---- waiting ---- */

/* Called between naps: is there a reason to give up? */
static enum dtp_status keep_waiting(struct shm *s, int64_t start_ns, struct dtp_err *err) {
    char text[512];
    if (atomic_load(&s->board->aborted))
        return aborted(s, err);
    shm_doing(&s->comm, NULL);
    bool dead = find_dead(s, text, sizeof text);
    double waited_s = (double)(dtp_os_now_ns() - start_ns) / (double)DTP_NS_PER_S;
    if (!dead && waited_s < s->config.timeout_s)
        return DTP_OK;
    if (!dead)
        shm_hang(&s->comm, waited_s, text, sizeof text);
    dtp_comm_shm_abort(s->memory, s->comm.rank, text);
    return aborted(s, err);
}

static bool wait_briefly(const struct shm *s, struct gate *gate, unsigned old) {
    for (int i = 0; s->spin && i < SPINS; i++) {
        if (atomic_load(&gate->value) != old)
            return true;
        dtp_os_relax();
    }
    for (int i = 0; i < YIELDS; i++) {
        if (atomic_load(&gate->value) != old)
            return true;
        dtp_os_yield();
    }
    return atomic_load(&gate->value) != old;
}

static enum dtp_status shm_wait(struct shm *s, struct gate *gate, unsigned old,
                                struct dtp_err *err) {
    if (wait_briefly(s, gate, old))
        return DTP_OK;
    enum dtp_status status = DTP_OK;
    int64_t start_ns = dtp_os_now_ns();
    atomic_fetch_add(&gate->waiters, 1);
    while (status == DTP_OK && atomic_load(&gate->value) == old) {
        dtp_os_futex_wait(&gate->value, old, NAP_MS * DTP_NS_PER_MS);
        if (atomic_load(&gate->value) == old)
            status = keep_waiting(s, start_ns, err);
    }
    atomic_fetch_sub(&gate->waiters, 1);
    return status;
}

static void shm_open_gate(struct gate *gate) {
    atomic_fetch_add(&gate->value, 1);
    if (atomic_load(&gate->waiters))
        dtp_os_futex_wake(&gate->value);
}

/* ---- messages through slots ---- */

static struct box *box_of(const struct shm *s, int rank) {
    return (struct box *)(void *)(s->memory + s->layout.boxes_at +
                                  (uint64_t)rank * s->layout.box_bytes);
}

static char *data_of(const struct shm *s, int rank, int slot) {
    uint64_t index = (uint64_t)rank * (uint64_t)s->config.nmessages + (uint64_t)slot;
    return s->memory + s->layout.data_at + index * s->layout.slot_bytes;
}

static int find_free(const struct shm *s, struct box *box) {
    for (int i = 0; i < s->config.nmessages; i++)
        if (atomic_load(&box->slot[i].state) == SLOT_FREE)
            return i;
    return -1;
}

static int find_message(const struct shm *s, struct box *box, uint64_t tag) {
    for (int i = 0; i < s->config.nmessages; i++)
        if (atomic_load(&box->slot[i].state) == SLOT_FULL && box->slot[i].to == s->comm.rank &&
            box->slot[i].tag == tag)
            return i;
    return -1;
}

static enum dtp_status too_long(const struct shm *s, uint64_t bytes, struct dtp_err *err) {
    return dtp_fail(err, DTP_EINPUT, "rank %d: a message of %llu bytes, slots hold %llu",
                    s->comm.rank, (unsigned long long)bytes,
                    (unsigned long long)s->layout.slot_bytes);
}

static enum dtp_status shm_send(struct dtp_comm *c, enum dtp_stream stream, const void *x,
                                uint64_t bytes, int to, uint64_t tag, struct dtp_err *err) {
    (void)stream;
    struct shm *s = (struct shm *)c;
    struct box *box = box_of(s, c->rank);
    if (bytes > s->layout.slot_bytes)
        return too_long(s, bytes, err);
    int i;
    for (;;) {
        unsigned seen = atomic_load(&box->freed.value);
        if ((i = find_free(s, box)) >= 0)
            break;
        DTP_TRY(shm_wait(s, &box->freed, seen, err));
    }
    struct slot *slot = &box->slot[i];
    memcpy(data_of(s, c->rank, i), x, (size_t)bytes);
    slot->to = to;
    slot->tag = tag;
    slot->bytes = bytes;
    atomic_store(&slot->state, SLOT_FULL);
    shm_open_gate(&box->posted);
    return DTP_OK;
}

static enum dtp_status shm_recv(struct dtp_comm *c, enum dtp_stream stream, void *x, uint64_t bytes,
                                int from, uint64_t tag, struct dtp_err *err) {
    (void)stream;
    struct shm *s = (struct shm *)c;
    struct box *box = box_of(s, from);
    int i;
    for (;;) {
        unsigned seen = atomic_load(&box->posted.value);
        if ((i = find_message(s, box, tag)) >= 0)
            break;
        DTP_TRY(shm_wait(s, &box->posted, seen, err));
    }
    struct slot *slot = &box->slot[i];
    if (slot->bytes != bytes)
        return dtp_fail(err, DTP_EINPUT, "rank %d expects %llu bytes from rank %d, which sent %llu",
                        c->rank, (unsigned long long)bytes, from, (unsigned long long)slot->bytes);
    memcpy(x, data_of(s, from, i), (size_t)bytes);
    atomic_store(&slot->state, SLOT_FREE);
    shm_open_gate(&box->freed);
    return DTP_OK;
}

/* ---- collectives through staging memory ----
 *
 * Each rank has two halves per kind of group; piece k of a buffer uses half k mod 2, and one barrier per piece makes
 * it readable. When a rank writes piece k + 2 into the same half, it has passed barrier k + 1, which every member
 * enters only after it has read piece k: so no second barrier is needed. Reductions add in the order of ranks, so
 * that the bytes are the same every time. */

struct shm_group {
    struct dtp_comm_group group;
    struct shm *shm;
    struct stage_words *words; /* words of the first member: the group's barrier */
    char **half[2];            /* [size] staging of each member */
    uint64_t half_bytes;
    unsigned piece; /* counts on over all collectives */
};

static char *stage_of(const struct shm *s, int rank, enum dtp_group_kind kind) {
    uint64_t index = (uint64_t)rank * DTP_NGROUPS + (uint64_t)kind;
    return s->memory + s->layout.stages_at + index * s->layout.stage_bytes;
}

static enum dtp_status shm_group(struct dtp_arena *a, struct dtp_comm *c, enum dtp_group_kind kind,
                                 const int *ranks, int nranks, struct dtp_comm_group **out,
                                 struct dtp_err *err) {
    enum { WORDS_BYTES = 4096 }; /* the page before the staging memory */
    struct shm *s = (struct shm *)c;
    struct shm_group *g = DTP_NEW(a, struct shm_group, 1);
    DTP_TRY(dtp_comm_members(a, c, ranks, nranks, &g->group, err));
    g->shm = s;
    g->words = (struct stage_words *)(void *)stage_of(s, ranks[0], kind);
    g->half_bytes = s->config.staging_bytes / 2 / 64 * 64;
    for (int half = 0; half < 2; half++) {
        g->half[half] = DTP_NEW(a, char *, (size_t)nranks);
        for (int i = 0; i < nranks; i++)
            g->half[half][i] =
                stage_of(s, ranks[i], kind) + WORDS_BYTES + (uint64_t)half * g->half_bytes;
    }
    *out = &g->group;
    return DTP_OK;
}

static enum dtp_status shm_barrier(struct dtp_comm_group *group, struct dtp_err *err) {
    struct shm_group *g = (struct shm_group *)group;
    struct stage_words *w = g->words;
    unsigned seen = atomic_load(&w->generation.value);
    if (atomic_fetch_add(&w->arrived, 1) + 1 == (unsigned)group->size) {
        atomic_store(&w->arrived, 0);
        shm_open_gate(&w->generation);
        return DTP_OK;
    }
    return shm_wait(g->shm, &w->generation, seen, err);
}

/* ---- reductions, fp32 and the integers that ranks exchange as fp32 bits are not reduced ---- */

static void reduce_into(float *out, char *const *from, uint64_t offset_bytes, int64_t n,
                        const struct shm_group *g, enum dtp_reduce_op op) {
    memcpy(out, from[0] + offset_bytes, (size_t)n * sizeof *out);
    for (int r = 1; r < g->group.size; r++) {
        const float *x = (const float *)(const void *)(from[r] + offset_bytes);
        dtp_comm_combine(out, x, n, op);
    }
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
    DTP_TRY(shm_barrier(&g->group, err));
    int64_t first = part_begin(n, size, me), count = part_begin(n, size, me + 1) - first;
    reduce_into(x + first, half, (uint64_t)first * sizeof *x, count, g, op);
    memcpy(half[me] + (uint64_t)first * sizeof *x, x + first, (size_t)count * sizeof *x);
    DTP_TRY(shm_barrier(&g->group, err));
    for (int r = 0; r < size; r++) {
        int64_t at = part_begin(n, size, r), end = part_begin(n, size, r + 1);
        if (r != me)
            memcpy(x + at, half[r] + (uint64_t)at * sizeof *x, (size_t)(end - at) * sizeof *x);
    }
    return DTP_OK;
}

static enum dtp_status shm_all_reduce(struct dtp_comm_group *group, enum dtp_stream stream, void *x,
                                      int64_t n, enum dtp_dtype dtype, enum dtp_reduce_op op,
                                      struct dtp_err *err) {
    (void)stream;
    struct shm_group *g = (struct shm_group *)group;
    DTP_TRY(dtp_comm_only_fp32("shared memory", dtype, err));
    if (group->size == 1)
        return DTP_OK;
    int64_t most = (int64_t)(g->half_bytes / sizeof(float));
    for (int64_t at = 0; at < n; at += most)
        DTP_TRY(reduce_piece(g, (float *)x + at, n - at < most ? n - at : most, op, err));
    return DTP_OK;
}

static enum dtp_status shm_reduce_scatter(struct dtp_comm_group *group, enum dtp_stream stream,
                                          void *out, const void *in, int64_t n,
                                          enum dtp_dtype dtype, struct dtp_err *err) {
    (void)stream;
    struct shm_group *g = (struct shm_group *)group;
    DTP_TRY(dtp_comm_only_fp32("shared memory", dtype, err));
    int me = group->me, size = group->size;
    int64_t most = (int64_t)(g->half_bytes / sizeof(float)) / size;
    const float *from = in;
    for (int64_t at = 0; at < n; at += most) {
        int64_t count = n - at < most ? n - at : most;
        char **half = g->half[g->piece++ % 2];
        for (int r = 0; r < size; r++)
            memcpy(half[me] + (uint64_t)(r * count) * sizeof(float), from + r * n + at,
                   (size_t)count * sizeof(float));
        DTP_TRY(shm_barrier(group, err));
        reduce_into((float *)out + at, half, (uint64_t)(me * count) * sizeof(float), count, g,
                    DTP_REDUCE_SUM);
    }
    return DTP_OK;
}

static enum dtp_status shm_all_gather(struct dtp_comm_group *group, enum dtp_stream stream,
                                      void *out, const void *in, int64_t n, enum dtp_dtype dtype,
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
        DTP_TRY(shm_barrier(group, err));
        for (int r = 0; r < group->size; r++)
            memcpy(to + (uint64_t)r * total + at, half[r], count);
    }
    return DTP_OK;
}

static enum dtp_status shm_all_to_all(struct dtp_comm_group *group, enum dtp_stream stream,
                                      void *out, const void *in, int64_t n, enum dtp_dtype dtype,
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
        DTP_TRY(shm_barrier(group, err));
        for (int r = 0; r < group->size; r++)
            memcpy(to + (uint64_t)r * part + at, half[r] + (uint64_t)group->me * count, count);
    }
    return DTP_OK;
}

/* ---- open and close ---- */

struct shm_blob {
    int magic, process, fd;
};

/* Rank 0 makes the memory, all others map it through /proc. */
static enum dtp_status attach(struct dtp_arena *a, struct shm *s, struct dtp_err *err) {
    unsigned char blob[DTP_BLOB_BYTES] = {0};
    struct shm_blob mine = {.magic = MAGIC, .process = (int)getpid(), .fd = -1}, root;
    struct dtp_caller *peers = DTP_NEW(a, struct dtp_caller, (size_t)s->comm.size);
    s->owns_memory = true;
    if (s->comm.rank == 0) {
        s->memory = dtp_os_memory_create(s->layout.total_bytes, &mine.fd);
        if (!s->memory)
            return dtp_fail(err, DTP_ENOMEM, "cannot create %llu bytes of shared memory",
                            (unsigned long long)s->layout.total_bytes);
    }
    memcpy(blob, &mine, sizeof mine);
    enum dtp_status status = dtp_rendezvous(s->config.endpoint, blob, peers, err);
    memcpy(&root, peers[0].blob, sizeof root);
    if (status == DTP_OK && s->comm.rank != 0)
        s->memory = root.magic == MAGIC
                        ? dtp_os_memory_attach(root.process, root.fd, s->layout.total_bytes)
                        : NULL;
    if (status == DTP_OK && !s->memory)
        status = dtp_fail(err, DTP_EUNSUPPORTED,
                          "rank %d cannot map the memory of rank 0 (process "
                          "%d): not the same host or process namespace",
                          s->comm.rank, root.process);
    s->board = (struct board *)(void *)s->memory;
    if (status == DTP_OK)
        atomic_store(&s->board->rank[s->comm.rank].process, (int)getpid());
    if (status == DTP_OK)
        shm_open_gate(&s->board->attached);
    for (unsigned seen; status == DTP_OK &&
                        (seen = atomic_load(&s->board->attached.value)) < (unsigned)s->comm.size;)
        status = shm_wait(s, &s->board->attached, seen, err);
    if (mine.fd >= 0)
        close(mine.fd);
    return status;
}

static enum dtp_status shm_open_comm(struct dtp_arena *a, const struct dtp_comm_config *config,
                                     struct dtp_comm **out, struct dtp_err *err) {
    struct shm *s = DTP_NEW(a, struct shm, 1);
    s->comm = (struct dtp_comm){dtp_shm_comm_ops(), config->rank, config->size};
    s->config = *config;
    s->layout = layout_of(config);
    s->spin = config->size <= dtp_os_num_cores();
    s->memory = config->shared;
    s->board = config->shared;
    if (s->memory)
        atomic_store(&s->board->rank[config->rank].process, (int)getpid());
    else
        DTP_TRY(attach(a, s, err));
    *out = &s->comm;
    return DTP_OK;
}

static void shm_close(struct dtp_comm *c) {
    struct shm *s = (struct shm *)c;
    atomic_store(&s->board->rank[c->rank].process, 0); /* ending is no death */
    if (s->owns_memory)
        munmap(s->memory, (size_t)s->layout.total_bytes);
}

static const struct dtp_comm_ops shm_ops = {
    .name = "shm",
    .open = shm_open_comm,
    .close = shm_close,
    .group = shm_group,
    .all_reduce = shm_all_reduce,
    .reduce_scatter = shm_reduce_scatter,
    .all_gather = shm_all_gather,
    .all_to_all = shm_all_to_all,
    .send = shm_send,
    .recv = shm_recv,
    .barrier = shm_barrier,
    .doing = shm_doing,
    .hang = shm_hang,
    .abort = shm_abort,
};

const struct dtp_comm_ops *dtp_shm_comm_ops(void) {
    return &shm_ops;
}
