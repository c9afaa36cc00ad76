/* Which communicators of NCCL join which ranks (runtime/cuda/nccl_comm.c), without a GPU: NCCL's functions here note who
 * comes. All ranks of a job are opened one behind the other, twice: the ids that others make are known the second
 * time. Skips where NCCL's header is not found. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <CUnit/Basic.h>

#include "runtime/rank.h"
#include "sim/base/units.h"
#include "tests/suites.h"

enum { SKIP = 77 };

#ifdef DTP_WITH_NCCL

#include "runtime/cuda/nccl_internal.h"

enum { MOST_RANKS = 8, MOST_JOINED = 512 };

static struct dtp_arena *arena;
static size_t free_bytes;

/* ---- NCCL and CUDA ---- */

static struct joined {
    int id, size, me, rank; /* rank: which joined */
    bool ended;
    int stream; /* stream of its transfers; -1: none yet */
} joined[MOST_JOINED];
static int njoined, nids, now; /* now: the rank whose turn it is */

cudaError_t cudaMemGetInfo(size_t *left, size_t *all) {
    *left = *all = free_bytes;
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    (void)to, (void)from, (void)n, (void)kind, (void)stream;
    return cudaSuccess;
}
const char *cudaGetErrorString(cudaError_t e) {
    (void)e;
    return "an error";
}
enum dtp_status dtp_nccl_open(struct dtp_arena *a, const struct dtp_comm_config *config,
                              struct dtp_comm **out, struct dtp_err *err) {
    (void)a, (void)config, (void)out;
    return dtp_fail(err, DTP_ENO, "not here");
}
void dtp_nccl_close(struct dtp_comm *c) {
    (void)c;
}
void dtp_nccl_abort_all(struct dtp_nccl *n) {
    (void)n;
}

static ncclResult_t get_id(ncclUniqueId *out) {
    const int id = now * MOST_JOINED + ++nids;
    memset(out, 0, sizeof *out);
    memcpy(out, &id, sizeof id);
    return ncclSuccess;
}

static ncclResult_t init_rank(ncclComm_t *out, int size, ncclUniqueId id, int me) {
    struct joined *j = &joined[njoined++];
    *j = (struct joined){.size = size, .me = me, .rank = now, .stream = -1};
    memcpy(&j->id, &id, sizeof j->id);
    *out = (ncclComm_t)(void *)j;
    return ncclSuccess;
}

static ncclResult_t end_result;
static ncclResult_t destroy(ncclComm_t comm) {
    struct joined *j = (struct joined *)(void *)comm;
    CU_ASSERT_FALSE(j->ended);
    j->ended = true;
    return end_result;
}

static const char *error_of(ncclResult_t r) {
    (void)r;
    return "an error";
}

/* A transfer: which communicator it takes, and that each is used on one stream. */
static struct joined *taken;
static int taken_peer;

static ncclResult_t transfer(ncclComm_t comm, int peer, cudaStream_t stream) {
    struct joined *j = (struct joined *)(void *)comm;
    int of = (int)(intptr_t)(void *)stream;
    CU_ASSERT(j->stream < 0 || j->stream == of);
    j->stream = of;
    taken = j;
    taken_peer = peer;
    return ncclSuccess;
}
static ncclResult_t fake_send(const void *x, size_t n, ncclDataType_t type, int peer,
                              ncclComm_t comm, cudaStream_t stream) {
    (void)x, (void)n, (void)type;
    return transfer(comm, peer, stream);
}
static ncclResult_t fake_recv(void *x, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
                              cudaStream_t stream) {
    (void)x, (void)n, (void)type;
    return transfer(comm, peer, stream);
}

/* ---- the host's communicator: what each rank gave is kept for the others ---- */

static ncclUniqueId board[DTP_NGROUPS][MOST_RANKS][NDIRECTIONS];

struct host_group {
    struct dtp_comm_group group;
    enum dtp_group_kind kind;
};

static enum dtp_status host_group(struct dtp_arena *a, struct dtp_comm *c, enum dtp_group_kind kind,
                                  const int *ranks, int n, struct dtp_comm_group **out,
                                  struct dtp_err *err) {
    struct host_group *g = DTP_NEW(a, struct host_group, 1);
    (void)err;
    *g = (struct host_group){.group = {.comm = c, .size = n, .rank = ranks}, .kind = kind};
    *out = &g->group;
    return DTP_OK;
}

/* Since the last barrier something was reduced: a slow rank may still read it where another object of the group would
 * write (runtime/comm_shm_collective.c). */
static bool host_reads;

static enum dtp_status host_gather(struct dtp_comm_group *g, enum dtp_stream stream, void *out,
                                   const void *in, int64_t n, enum dtp_dtype dtype,
                                   struct dtp_err *err) {
    enum dtp_group_kind kind = ((struct host_group *)(void *)g)->kind;
    (void)stream, (void)dtype, (void)err;
    CU_ASSERT_FALSE(host_reads);
    CU_ASSERT_EQUAL((size_t)n * sizeof(float), sizeof board[kind][now]);
    memcpy(board[kind][now], in, sizeof board[kind][now]);
    for (int i = 0; i < g->size; i++)
        memcpy((char *)out + (size_t)i * sizeof board[kind][0], board[kind][g->rank[i]],
               sizeof board[kind][0]);
    return DTP_OK;
}

static enum dtp_status host_reduce(struct dtp_comm_group *g, enum dtp_stream stream, void *x,
                                   int64_t n, enum dtp_dtype dtype, enum dtp_reduce_op op,
                                   struct dtp_err *err) {
    (void)g, (void)stream, (void)x, (void)n, (void)dtype, (void)op, (void)err;
    CU_ASSERT_FALSE(host_reads);
    host_reads = true;
    return DTP_OK;
}

static enum dtp_status host_barrier(struct dtp_comm_group *g, struct dtp_err *err) {
    (void)g, (void)err;
    host_reads = false;
    return DTP_OK;
}

static const struct dtp_comm_ops host_ops = {.group = host_group,
                                             .all_gather = host_gather,
                                             .all_reduce = host_reduce,
                                             .barrier = host_barrier};

/* ---- ranks ---- */

static struct dtp_nccl *open_rank(int rank, int size) {
    struct dtp_nccl *n = DTP_NEW(arena, struct dtp_nccl, 1);
    n->host = DTP_NEW(arena, struct dtp_comm, 1);
    *n->host = (struct dtp_comm){.ops = &host_ops, .rank = rank, .size = size};
    n->comm = (struct dtp_comm){.ops = dtp_cuda_comm_ops(), .rank = rank, .size = size};
    n->arena = arena;
    n->cuda = DTP_NEW(arena, struct dtp_cuda, 1);
    for (int s = 0; s < DTP_NSTREAMS; s++)
        n->cuda->stream[s] = (cudaStream_t)(void *)(intptr_t)s;
    n->ncclGetUniqueId = get_id;
    n->ncclCommInitRank = init_rank;
    n->ncclCommDestroy = destroy;
    n->ncclGetErrorString = error_of;
    n->ncclSend = fake_send;
    n->ncclRecv = fake_recv;
    now = rank;
    nids = 0;
    return n;
}

static void open_pipeline(struct dtp_nccl *n, const struct dtp_plan *p) {
    struct dtp_err err = {0};
    struct dtp_rank r = {
        .arena = arena, .plan = p, .comm = &n->comm, .cops = n->comm.ops, .err = &err};
    int ranks[MOST_RANKS];
    r.schedule.kind = p->schedule;
    for (int i = 0; i < p->pp; i++)
        ranks[i] = i;
    CU_ASSERT_EQUAL(dtp_rank_open_stages(&r, ranks), DTP_OK);
    CU_ASSERT_EQUAL(n->comm.ops->join(&n->comm, &err), DTP_OK);
}

/* Every communicator has all of its ranks, once. */
static void check_joined(void) {
    for (int i = 0; i < njoined; i++) {
        int members = 0;
        CU_ASSERT(joined[i].id > 0);
        for (int k = 0; k < njoined; k++) {
            bool same = joined[k].id == joined[i].id;
            members += same ? 1 : 0;
            CU_ASSERT(!same || joined[k].size == joined[i].size);
            CU_ASSERT(!same || k == i ||
                      (joined[k].me != joined[i].me && joined[k].rank != joined[i].rank));
        }
        CU_ASSERT_EQUAL(members, joined[i].size);
    }
}

/* Each rank waits in a communicator until all of its ranks have come there: none waits for good. */
static void check_order(int size) {
    int at[MOST_RANKS], left = njoined;
    for (int r = 0; r < size; r++)
        for (at[r] = 0; at[r] < njoined && joined[at[r]].rank != r;)
            at[r]++;
    for (bool moves = true; moves;) {
        moves = false;
        for (int r = 0; r < size; r++) {
            int members = 0;
            const struct joined *j = &joined[at[r]];
            for (int k = 0; k < size && at[r] < njoined; k++)
                members += at[k] < njoined && joined[at[k]].id == j->id ? 1 : 0;
            if (at[r] == njoined || members < j->size)
                continue;
            for (int k = 0, id = j->id; k < size; k++)
                while (at[k] < njoined && joined[at[k]].rank == k && joined[at[k]].id == id) {
                    left--;
                    do
                        at[k]++;
                    while (at[k] < njoined && joined[at[k]].rank != k);
                }
            moves = true;
        }
    }
    CU_ASSERT_EQUAL(left, 0);
}

/* Both ends of a transfer take the same communicator, and the sender means the receiver. */
static void check_transfer(struct dtp_nccl *const *n, int from, int to, bool forward) {
    struct dtp_err err = {0};
    enum dtp_stream out = forward ? DTP_STREAM_SEND_F : DTP_STREAM_SEND_B;
    enum dtp_stream in = forward ? DTP_STREAM_RECV_F : DTP_STREAM_RECV_B;
    const struct dtp_comm_ops *ops = dtp_cuda_comm_ops();
    CU_ASSERT_EQUAL_FATAL(ops->send(&n[from]->comm, out, NULL, 8, to, 0, &err), DTP_OK);
    const struct joined *sender = taken;
    int means = taken_peer;
    CU_ASSERT_EQUAL_FATAL(ops->recv(&n[to]->comm, in, NULL, 8, from, 0, &err), DTP_OK);
    CU_ASSERT_EQUAL(sender->id, taken->id);
    CU_ASSERT(sender->rank == from && taken->rank == to);
    CU_ASSERT(means == taken->me && taken_peer == sender->me);
}

static void check_pipeline(const struct dtp_plan *p, int communicators) {
    struct dtp_nccl *n[MOST_RANKS] = {NULL};
    for (int pass = 0; pass < 2; pass++) {
        njoined = 0;
        for (int rank = 0; rank < p->pp; rank++) {
            n[rank] = open_rank(rank, p->pp);
            open_pipeline(n[rank], p);
        }
    }
    check_joined();
    check_order(p->pp);
    CU_ASSERT_EQUAL(njoined, 2 * communicators);
    for (int vs = 0; vs + 1 < p->pp * p->vpp; vs++) {
        int from, to, chunk;
        dtp_schedule_holder(p->schedule, p->pp, p->vpp, vs, &from, &chunk);
        dtp_schedule_holder(p->schedule, p->pp, p->vpp, vs + 1, &to, &chunk);
        if (from == to)
            continue;
        check_transfer(n, from, to, true);
        check_transfer(n, to, from, false);
    }
}

static void test_pipelines(void) {
    for (int pp = 2; pp <= MOST_RANKS; pp++) {
        struct dtp_plan p = dtp_plan_default();
        p.pp = pp;
        for (int i = 0; i < DTP_NSCHEDULES; i++) {
            int chain = 2 * (pp - 1);
            p.schedule = i;
            p.vpp = dtp_schedule_kinds[i].chunked ? 2 : 1;
            bool v = i == DTP_SCHED_ZB_V;
            check_pipeline(&p, v && pp > 2 ? 2 * chain : p.vpp > 1 ? chain + 2 : chain);
        }
    }
}

/* A rank that is no neighbour, also one of the plan before. */
static void test_no_neighbour(void) {
    struct dtp_plan p = dtp_plan_default();
    struct dtp_err err = {0};
    p.pp = 4;
    p.vpp = 2;
    p.schedule = DTP_SCHED_INTERLEAVED;
    struct dtp_nccl *n = open_rank(0, 4);
    open_pipeline(n, &p);
    CU_ASSERT_EQUAL(n->comm.ops->recv(&n->comm, DTP_STREAM_RECV_F, NULL, 8, 3, 0, &err), DTP_OK);
    p.vpp = 1;
    p.schedule = DTP_SCHED_1F1B;
    open_pipeline(n, &p);
    CU_ASSERT_EQUAL(n->comm.ops->recv(&n->comm, DTP_STREAM_RECV_F, NULL, 8, 3, 0, &err),
                    DTP_EUNSUPPORTED);
    CU_ASSERT_STRING_EQUAL(err.msg, "rank 3 is no neighbour in the pipeline");
}

/* The world, then a group of each kind of the set. */
static enum dtp_status begin_plan(struct dtp_nccl *n, unsigned kinds, struct dtp_err *err) {
    const int ranks[] = {0, 1};
    struct dtp_comm_group *g;
    for (int kind = DTP_GROUP_WORLD; kind < DTP_NGROUPS; kind++)
        if (kind == DTP_GROUP_WORLD || kinds >> kind & 1)
            DTP_TRY(
                n->comm.ops->group(arena, &n->comm, (enum dtp_group_kind)kind, ranks, 2, &g, err));
    return n->comm.ops->join(&n->comm, err);
}

/* Groups of the plans before are kept while there is memory for those that a plan lacks; else those end that it does
 * not need. */
static void test_room(void) {
    enum { TP = 1 << DTP_GROUP_TP, DP = 1 << DTP_GROUP_DP, KV = 1 << DTP_GROUP_KV };
    static const struct {
        unsigned kinds;
        double free_gib;
        int joined, ended;
    } plans[] = {{TP | DP, 0, 3, 0}, /* nothing to end */
                 {DP, 0, 3, 0},      /* lacks nothing */
                 {TP | KV, 1, 4, 0},
                 {KV, 0, 4, 0},
                 {DP | (1 << DTP_GROUP_PP), 0.8, 6, 2}, /* two for transfers: tp's and kv's end */
                 {TP | DP, 1, 7, 2}};
    njoined = 0;
    struct dtp_nccl *n = open_rank(0, 2);
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
        int ended = 0;
        free_bytes = (size_t)(plans[i].free_gib * DTP_GIB);
        CU_ASSERT_EQUAL(begin_plan(n, plans[i].kinds, NULL), DTP_OK);
        for (int k = 0; k < njoined; k++)
            ended += joined[k].ended ? 1 : 0;
        CU_ASSERT_EQUAL(njoined, plans[i].joined);
        CU_ASSERT_EQUAL(ended, plans[i].ended);
        CU_ASSERT_EQUAL(n->nall, njoined - ended);
    }
}

/* One that does not end is told, and what is left to the end of the run has not ended yet. */
static void test_no_end(void) {
    struct dtp_err err = {0};
    struct dtp_nccl *n = open_rank(0, 2);
    njoined = 0;
    free_bytes = 0;
    CU_ASSERT_EQUAL(begin_plan(n, 1 << DTP_GROUP_TP, &err), DTP_OK);
    end_result = ncclSystemError;
    CU_ASSERT_EQUAL(begin_plan(n, 1 << DTP_GROUP_DP, &err), DTP_ENO);
    end_result = ncclSuccess;
    CU_ASSERT_STRING_EQUAL(err.msg, "ncclCommDestroy: an error");
    CU_ASSERT_EQUAL(n->nall, 1);
    for (int i = 0; i < n->nall; i++)
        CU_ASSERT_FALSE(((struct joined *)(void *)n->all[i])->ended);
}

int main(void) {
    CU_TestInfo tests[] = {{"pipelines", test_pipelines},
                           {"no neighbour", test_no_neighbour},
                           {"room", test_room},
                           {"no end", test_no_end},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"NCCL", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}

#else

int main(void) {
    printf("skipped: built without NCCL's header\n");
    return SKIP;
}

#endif
