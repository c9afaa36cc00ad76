/* Shared memory of one host: opening, waiting, aborting. */
#include "runtime/comm_shm.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/launch.h"
#include "runtime/os_linux.h"

enum { PAGE_BYTES = 4096, SPINS = 400, YIELDS = 8, NAP_MS = 20, MAGIC = 0x64747073 };

static uint64_t round_up(uint64_t v, uint64_t unit) {
    return (v + unit - 1) / unit * unit;
}

static struct dtp_shm_layout layout_of(const struct dtp_comm_config *config) {
    struct dtp_shm_layout l = {0};
    uint64_t n = (uint64_t)config->size, k = (uint64_t)config->nmessages;
    l.stages_at =
        round_up(sizeof(struct dtp_board) + n * sizeof(struct dtp_rank_state), PAGE_BYTES);
    l.stage_bytes = PAGE_BYTES + round_up(config->staging_bytes, PAGE_BYTES);
    l.boxes_at = l.stages_at + n * DTP_NGROUPS * l.stage_bytes;
    l.box_bytes = round_up(sizeof(struct dtp_box) + k * sizeof(struct dtp_slot), PAGE_BYTES);
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
    const struct dtp_board *b = shared;
    if (atomic_load(&b->aborted) != 2)
        return NULL;
    *rank = atomic_load(&b->abort_rank);
    return b->message;
}

void dtp_comm_shm_abort(void *shared, int rank, const char *message) {
    struct dtp_board *b = shared;
    unsigned none = 0;
    if (!atomic_compare_exchange_strong(&b->aborted, &none, 1))
        return; /* the first message stays */
    atomic_store(&b->abort_rank, rank);
    snprintf(b->message, sizeof b->message, "%s", message);
    atomic_store(&b->aborted, 2);
}

const char *dtp_comm_shm_doing(const void *shared, int rank) {
    return ((const struct dtp_board *)shared)->rank[rank].doing;
}

static void shm_doing(struct dtp_comm *c, const char *action) {
    struct dtp_rank_state *x = &((struct dtp_shm *)c)->board->rank[c->rank];
    if (action)
        snprintf(x->doing, sizeof x->doing, "%s", action);
    atomic_store(&x->seen_ns, dtp_os_now_ns());
}

static void shm_abort(struct dtp_comm *c, const char *message) {
    dtp_comm_shm_abort(((struct dtp_shm *)c)->memory, c->rank, message);
}

static enum dtp_status aborted(const struct dtp_shm *s, struct dtp_err *err) {
    int rank = -1;
    const char *text = NULL;
    while (!(text = dtp_comm_shm_message(s->memory, &rank)))
        dtp_os_yield();
    return dtp_fail(err, DTP_ENO, "%s", text);
}

/* A rank whose process is gone. Zombies of a fork count as alive: their parent sees them end. */
static bool find_dead(const struct dtp_shm *s, char *text, size_t size) {
    for (int r = 0; r < s->comm.size; r++) {
        const struct dtp_rank_state *x = &s->board->rank[r];
        int process = atomic_load(&x->process);
        if (process == 0 || kill(process, 0) == 0 || errno != ESRCH)
            continue;
        snprintf(text, size, "rank %d died in %s", r, x->doing);
        return true;
    }
    return false;
}

static const char *doing_of(const struct dtp_rank_state *x) {
    return x->doing[0] ? x->doing : "its start";
}

/* The rank that was not seen for the longest time, and for half the time that this one waited: who waits
 * is seen every few milliseconds. -1: all are alive. */
static int find_silent(const struct dtp_shm *s, double waited_s) {
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
    const struct dtp_shm *s = (const struct dtp_shm *)c;
    const struct dtp_rank_state *rank = s->board->rank;
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
static enum dtp_status keep_waiting(struct dtp_shm *s, int64_t start_ns, struct dtp_err *err) {
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

static bool wait_briefly(const struct dtp_shm *s, struct dtp_gate *gate, unsigned old) {
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

enum dtp_status dtp_shm_wait(struct dtp_shm *s, struct dtp_gate *gate, unsigned old,
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

void dtp_shm_open_gate(struct dtp_gate *gate) {
    atomic_fetch_add(&gate->value, 1);
    if (atomic_load(&gate->waiters))
        dtp_os_futex_wake(&gate->value);
}

/* ---- open and close ---- */

struct shm_blob {
    int magic, process, fd;
};

/* Rank 0 makes the memory, all others map it through /proc. */
static enum dtp_status attach(struct dtp_arena *a, struct dtp_shm *s, struct dtp_err *err) {
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
    s->board = (struct dtp_board *)(void *)s->memory;
    if (status == DTP_OK)
        atomic_store(&s->board->rank[s->comm.rank].process, (int)getpid());
    if (status == DTP_OK)
        dtp_shm_open_gate(&s->board->attached);
    for (unsigned seen; status == DTP_OK &&
                        (seen = atomic_load(&s->board->attached.value)) < (unsigned)s->comm.size;)
        status = dtp_shm_wait(s, &s->board->attached, seen, err);
    if (mine.fd >= 0)
        close(mine.fd);
    return status;
}

static enum dtp_status shm_open_comm(struct dtp_arena *a, const struct dtp_comm_config *config,
                                     struct dtp_comm **out, struct dtp_err *err) {
    struct dtp_shm *s = DTP_NEW(a, struct dtp_shm, 1);
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
    struct dtp_shm *s = (struct dtp_shm *)c;
    atomic_store(&s->board->rank[c->rank].process, 0); /* ending is no death */
    if (s->owns_memory)
        munmap(s->memory, (size_t)s->layout.total_bytes);
}

static const struct dtp_comm_ops shm_ops = {
    .name = "shm",
    .open = shm_open_comm,
    .close = shm_close,
    .group = dtp_shm_group,
    .all_reduce = dtp_shm_all_reduce,
    .reduce_scatter = dtp_shm_reduce_scatter,
    .all_gather = dtp_shm_all_gather,
    .all_to_all = dtp_shm_all_to_all,
    .send = dtp_shm_send,
    .recv = dtp_shm_recv,
    .barrier = dtp_shm_barrier,
    .doing = shm_doing,
    .hang = shm_hang,
    .abort = shm_abort,
};

const struct dtp_comm_ops *dtp_shm_comm_ops(void) {
    return &shm_ops;
}
