/* Communicators: collectives and messages against sums done by hand, on shared memory after a fork and
 * over TCP between processes that find each other by rendezvous; nothing is left behind. */
#include <CUnit/Basic.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/comm/comm.h"
#include "runtime/launch.h"
#include "runtime/os_linux.h"
#include "tests/suites.h"

enum { RANKS = 4, N = 1000, STAGING = 4096, PORT = 29641 };

struct job {
    struct dtp_comm_config config;
    const struct dtp_comm_ops *ops;
    struct dtp_endpoint endpoint;
    enum dtp_status (*body)(struct dtp_comm *c, struct dtp_arena *a, struct dtp_err *err);
};

#define EXPECT(cond)                                                                               \
    do {                                                                                           \
        if (!(cond))                                                                               \
            return dtp_fail(err, DTP_ENO, "line %d: %s", __LINE__, #cond);                         \
    } while (0)

static float value(int rank, int64_t i) {
    return (float)((i * 7 + rank * 13) % 32); /* sums are exact in fp32 */
}

static enum dtp_status world_of(struct dtp_comm *c, struct dtp_arena *a,
                                struct dtp_comm_group **out, struct dtp_err *err) {
    static const int all[RANKS] = {0, 1, 2, 3};
    return c->ops->group(a, c, DTP_GROUP_WORLD, all, RANKS, out, err);
}

static enum dtp_status check_reductions(struct dtp_comm *c, struct dtp_arena *a,
                                        struct dtp_comm_group *g, struct dtp_err *err) {
    /* 1000 and 4001 floats: more than a half of the staging memory, and not divisible by 4 */
    for (int64_t n = 1; n <= 4001; n = n < N ? N : n + 3001) {
        float *x = DTP_NEW(a, float, (size_t)n), *y = DTP_NEW(a, float, (size_t)n);
        for (int64_t i = 0; i < n; i++)
            x[i] = y[i] = value(c->rank, i);
        DTP_TRY(c->ops->all_reduce(g, DTP_STREAM_TP, x, n, DTP_FP32, DTP_REDUCE_SUM, err));
        DTP_TRY(c->ops->all_reduce(g, DTP_STREAM_TP, y, n, DTP_FP32, DTP_REDUCE_MAX, err));
        for (int64_t i = 0; i < n; i++) {
            float sum = 0, most = 0;
            for (int r = 0; r < RANKS; r++) {
                sum += value(r, i);
                most = value(r, i) > most ? value(r, i) : most;
            }
            EXPECT(x[i] == sum);
            EXPECT(y[i] == most);
        }
    }
    return DTP_OK;
}

static enum dtp_status check_parts(struct dtp_comm *c, struct dtp_arena *a,
                                   struct dtp_comm_group *g, struct dtp_err *err) {
    float *all = DTP_NEW(a, float, RANKS *N), *part = DTP_NEW(a, float, N);
    float *out = DTP_NEW(a, float, RANKS *N);
    for (int64_t i = 0; i < RANKS * N; i++)
        all[i] = value(c->rank, i);
    DTP_TRY(c->ops->reduce_scatter(g, DTP_STREAM_DP, part, all, N, DTP_FP32, err));
    for (int64_t i = 0; i < N; i++) {
        int64_t at = c->rank * N + i;
        EXPECT(part[i] == value(0, at) + value(1, at) + value(2, at) + value(3, at));
        part[i] = value(c->rank, i);
    }
    DTP_TRY(c->ops->all_gather(g, DTP_STREAM_DP, out, part, N, DTP_FP32, err));
    for (int64_t i = 0; i < RANKS * N; i++)
        EXPECT(out[i] == value((int)(i / N), i % N));
    DTP_TRY(c->ops->all_to_all(g, DTP_STREAM_DP, out, all, N, DTP_FP32, err));
    for (int64_t i = 0; i < RANKS * N; i++)
        EXPECT(out[i] == value((int)(i / N), c->rank * N + i % N));
    /* in place: the own part of the whole */
    DTP_TRY(c->ops->reduce_scatter(g, DTP_STREAM_DP, all + c->rank * N, all, N, DTP_FP32, err));
    DTP_TRY(c->ops->all_gather(g, DTP_STREAM_DP, all, all + c->rank * N, N, DTP_FP32, err));
    for (int64_t i = 0; i < RANKS * N; i++)
        EXPECT(all[i] == value(0, i) + value(1, i) + value(2, i) + value(3, i));
    return DTP_OK;
}

/* Everybody sends two messages to everybody before anybody receives; taken in the other order. */
static enum dtp_status check_messages(struct dtp_comm *c, struct dtp_err *err) {
    float x[2];
    for (int to = 0; to < RANKS; to++)
        for (uint64_t tag = 0; to != c->rank && tag < 2; tag++) {
            x[0] = value(c->rank, to);
            x[1] = (float)tag;
            DTP_TRY(c->ops->send(c, DTP_STREAM_SEND_F, x, sizeof x, to, tag, err));
        }
    for (int from = RANKS - 1; from >= 0; from--)
        for (uint64_t tag = 2; from != c->rank && tag-- > 0;) {
            DTP_TRY(c->ops->recv(c, DTP_STREAM_RECV_F, x, sizeof x, from, tag, err));
            EXPECT(x[0] == value(from, c->rank));
            EXPECT(x[1] == (float)tag);
        }
    return DTP_OK;
}

/* Pairs {0, 2} and {1, 3}: two groups of one kind at the same time. */
static enum dtp_status check_pairs(struct dtp_comm *c, struct dtp_arena *a, struct dtp_err *err) {
    struct dtp_comm_group *g;
    const int pair[2] = {c->rank % 2, c->rank % 2 + 2};
    float x = (float)c->rank;
    DTP_TRY(c->ops->group(a, c, DTP_GROUP_DP, pair, 2, &g, err));
    EXPECT(g->me == c->rank / 2);
    for (int i = 0; i < 100; i++) {
        DTP_TRY(c->ops->all_reduce(g, DTP_STREAM_DP, &x, 1, DTP_FP32, DTP_REDUCE_SUM, err));
        EXPECT(x == (float)(pair[0] + pair[1]));
        x = (float)c->rank;
        DTP_TRY(c->ops->barrier(g, err));
    }
    return DTP_OK;
}

static enum dtp_status everything(struct dtp_comm *c, struct dtp_arena *a, struct dtp_err *err) {
    struct dtp_comm_group *g;
    DTP_TRY(world_of(c, a, &g, err));
    DTP_TRY(check_reductions(c, a, g, err));
    DTP_TRY(check_parts(c, a, g, err));
    DTP_TRY(check_messages(c, err));
    DTP_TRY(check_pairs(c, a, err));
    return c->ops->barrier(g, err);
}

static enum dtp_status run_job(void *context, int rank, struct dtp_err *err) {
    struct job *job = context;
    struct dtp_arena *a = dtp_arena_create("rank");
    struct dtp_comm *c;
    job->config.rank = rank;
    if (!job->config.shared) {
        job->endpoint.rank = rank;
        job->config.endpoint = &job->endpoint;
    }
    enum dtp_status status = job->ops->open(a, &job->config, &c, err);
    if (status == DTP_OK) {
        c->ops->doing(c, "the test");
        status = job->body(c, a, err);
        if (status != DTP_OK)
            c->ops->abort(c, err->msg);
        c->ops->close(c);
    }
    if (status != DTP_OK && !job->config.shared)
        fprintf(stderr, "rank %d: %s\n", rank, err->msg);
    dtp_arena_destroy(a);
    return status;
}

static struct job make_job(const struct dtp_comm_ops *ops, double timeout_s) {
    return (struct job){.ops = ops,
                        .body = everything,
                        .config = {.size = RANKS,
                                   .local_size = RANKS,
                                   .staging_bytes = STAGING,
                                   .message_bytes = 64,
                                   .nmessages = 8,
                                   .timeout_s = timeout_s},
                        .endpoint = {.launcher = "test",
                                     .size = RANKS,
                                     .local_size = RANKS,
                                     .master_host = "127.0.0.1",
                                     .master_port = PORT,
                                     .timeout_s = timeout_s}};
}

static enum dtp_status launch(struct job *job, struct dtp_err *err) {
    struct dtp_fork f = {.nranks = RANKS,
                         .run = run_job,
                         .context = job,
                         .shared = job->config.shared,
                         .grace_s = 1};
    return dtp_launch_fork(&f, err);
}

static void test_shared_memory_after_a_fork(void) {
    struct job job = make_job(dtp_shm_comm_ops(), 30);
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL_FATAL(dtp_comm_shm_map(&job.config, &job.config.shared, &err), DTP_OK);
    CU_ASSERT_EQUAL(launch(&job, &err), DTP_OK);
    CU_ASSERT_STRING_EQUAL(err.msg, "");
    dtp_comm_shm_unmap(&job.config, job.config.shared);
}

static void test_shared_memory_by_rendezvous(void) {
    struct job job = make_job(dtp_shm_comm_ops(), 30);
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL(launch(&job, &err), DTP_OK);
}

static void test_tcp(void) {
    struct job job = make_job(dtp_tcp_comm_ops(), 30);
    struct dtp_err err = {0};
    job.endpoint.master_port = PORT + 1;
    CU_ASSERT_EQUAL(launch(&job, &err), DTP_OK);
}

/* ---- failures ---- */

static enum dtp_status rank_two_leaves(struct dtp_comm *c, struct dtp_arena *a,
                                       struct dtp_err *err) {
    struct dtp_comm_group *g;
    DTP_TRY(world_of(c, a, &g, err));
    if (c->rank == 2)
        _exit(0); /* without a word */
    return c->ops->barrier(g, err);
}

static enum dtp_status rank_one_aborts(struct dtp_comm *c, struct dtp_arena *a,
                                       struct dtp_err *err) {
    struct dtp_comm_group *g;
    DTP_TRY(world_of(c, a, &g, err));
    if (c->rank == 1)
        return dtp_fail(err, DTP_EINPUT, "does not like it");
    enum dtp_status status = c->ops->barrier(g, err);
    EXPECT(status == DTP_ENO);
    EXPECT(strcmp(err->msg, "does not like it") == 0);
    return DTP_OK;
}

/* The dead rank's socket closes: all others know within moments, long before the time-out. */
static void test_tcp_sees_death(void) {
    struct job job = make_job(dtp_tcp_comm_ops(), 600);
    struct dtp_err err = {0};
    job.body = rank_two_leaves;
    job.endpoint.master_port = PORT + 2;
    int64_t start_ns = dtp_os_now_ns();
    fflush(stderr);
    int keep = dup(STDERR_FILENO); /* the ranks say why, which is no news here */
    FILE *sink = freopen("/dev/null", "w", stderr);
    CU_ASSERT_EQUAL(launch(&job, &err), DTP_ENO);
    CU_ASSERT_PTR_NOT_NULL(sink);
    dup2(keep, STDERR_FILENO);
    close(keep);
    CU_ASSERT((double)(dtp_os_now_ns() - start_ns) * 1e-9 < 30);
}

static void test_abort_reaches_everybody(void) {
    const struct dtp_comm_ops *const all[] = {dtp_shm_comm_ops(), dtp_tcp_comm_ops()};
    for (int i = 0; i < 2; i++) {
        struct job job = make_job(all[i], 600);
        struct dtp_err err = {0};
        job.body = rank_one_aborts;
        job.endpoint.master_port = PORT + 3 + i;
        int64_t start_ns = dtp_os_now_ns();
        if (i == 0)
            CU_ASSERT_EQUAL_FATAL(dtp_comm_shm_map(&job.config, &job.config.shared, &err), DTP_OK);
        CU_ASSERT_EQUAL(launch(&job, &err), DTP_EINPUT);
        if (i == 0) {
            CU_ASSERT_STRING_EQUAL(err.msg, "rank 1: does not like it");
            dtp_comm_shm_unmap(&job.config, job.config.shared);
        }
        CU_ASSERT((double)(dtp_os_now_ns() - start_ns) * 1e-9 < 30);
    }
}

/* Nobody else comes: an error that says how many did. */
static void test_rendezvous_times_out(void) {
    struct dtp_caller callers[RANKS];
    unsigned char blob[DTP_BLOB_BYTES] = {0};
    struct dtp_err err = {0};
    struct job job = make_job(dtp_shm_comm_ops(), 0.3);
    job.endpoint.master_port = PORT + 6;
    CU_ASSERT_EQUAL(dtp_rendezvous(&job.endpoint, blob, callers, &err), DTP_ENO);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, "1 of 4 ranks"));
    job.endpoint.rank = 1;
    CU_ASSERT_EQUAL(dtp_rendezvous(&job.endpoint, blob, callers, &err), DTP_ENO);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, "did not reach rank 0"));
}

static void test_no_child_is_left(void) {
    CU_ASSERT_EQUAL(waitpid(-1, NULL, WNOHANG), -1);
}

/* Two ranks of shared memory in one process: who waits in vain names the one that shows no life, or says
 * what everybody does. */
static void test_who_hangs(void) {
    const struct timespec nap = {.tv_nsec = 60 * (long)DTP_NS_PER_MS};
    struct dtp_comm_config config = {
        .size = 2, .local_size = 2, .staging_bytes = STAGING, .message_bytes = 1, .nmessages = 1};
    struct dtp_arena *a = dtp_arena_create("test");
    struct dtp_comm *c[2];
    char text[256];
    CU_ASSERT_EQUAL_FATAL(dtp_comm_shm_map(&config, &config.shared, NULL), DTP_OK);
    for (int i = 0; i < 2; i++) {
        config.rank = i;
        CU_ASSERT_EQUAL_FATAL(dtp_shm_comm_ops()->open(a, &config, &c[i], NULL), DTP_OK);
    }
    c[0]->ops->hang(c[0], 0.1, text, sizeof text);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "rank 1 hangs in its start"));
    c[0]->ops->doing(c[0], "0B0 of step 2");
    c[1]->ops->doing(c[1], "0F1 of step 2");
    c[0]->ops->hang(c[0], 60, text, sizeof text);
    CU_ASSERT_STRING_EQUAL(text, "all ranks wait for each other, for 60.0 s: rank 0 in 0B0 of step "
                                 "2, rank 1 in 0F1 of step 2");
    nanosleep(&nap, NULL);
    c[0]->ops->hang(c[0], 0.1, text, sizeof text);
    CU_ASSERT_STRING_EQUAL(
        text, "rank 1 hangs in 0F1 of step 2: rank 0 has waited 0.1 s in 0B0 of step 2");
    c[1]->ops->doing(c[1], NULL); /* alive, and still there */
    c[0]->ops->hang(c[0], 0.1, text, sizeof text);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "rank 1 in 0F1 of step 2"));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "all ranks wait"));
    for (int i = 0; i < 2; i++)
        c[i]->ops->close(c[i]);
    dtp_comm_shm_unmap(&config, config.shared);
    dtp_arena_destroy(a);
}

int main(void) {
    CU_TestInfo tests[] = {{"shared memory after a fork", test_shared_memory_after_a_fork},
                           {"shared memory by rendezvous", test_shared_memory_by_rendezvous},
                           {"TCP", test_tcp},
                           {"a rank dies", test_tcp_sees_death},
                           {"a rank aborts", test_abort_reaches_everybody},
                           {"who hangs", test_who_hangs},
                           {"rendezvous alone", test_rendezvous_times_out},
                           {"no child is left", test_no_child_is_left},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"comm", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
