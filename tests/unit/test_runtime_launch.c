/* Ranks started by torchrun, MPI and Slurm: what their environments say, and a run of them. */
#include <CUnit/Basic.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/launch.h"
#include "runtime/os_linux.h"
#include "runtime/rank.h"
#include "tests/runtime_cases.h"
#include "tests/suites.h"

static struct dtp_arena *arena;
static struct dtp_model model;

/* What torchrun would tell a rank. */
static void set_environment(int rank, int size, int local_size, const char *port) {
    char text[4][16];
    snprintf(text[0], sizeof text[0], "%d", rank);
    snprintf(text[1], sizeof text[1], "%d", size);
    snprintf(text[2], sizeof text[2], "%d", rank % local_size);
    snprintf(text[3], sizeof text[3], "%d", local_size);
    setenv("RANK", text[0], 1);
    setenv("WORLD_SIZE", text[1], 1);
    setenv("LOCAL_RANK", text[2], 1);
    setenv("LOCAL_WORLD_SIZE", text[3], 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", port, 1);
}

/* A rank in a process of its own; its first loss as the exit status. */
static pid_t start_rank(int rank, int size, int local_size, const char *port) {
    pid_t p = fork();
    if (p != 0)
        return p;
    set_environment(rank, size, local_size, port);
    struct dtp_run_options o = tiny_options(&model);
    struct dtp_run_result r;
    struct dtp_err err = {0};
    o.steps = 2;
    o.plan = with_degrees(o.plan, 1, 2, size / 2);
    o.plan.zero_stage = size > 2 ? 1 : 0;
    enum dtp_status status = dtp_run(arena, &o, &r, &err);
    if (status != DTP_OK)
        fprintf(stderr, "rank %d: %s\n", rank, err.msg);
    int root = status == DTP_OK && r.is_root ? (int)lround(r.loss[1] * 10) : 0;
    _exit(status != DTP_OK ? 1 : root);
}

/* local_size < size: several hosts, so TCP; else shared memory. */
static void check_launched(int size, int local_size, const char *port) {
    struct dtp_run_options o = tiny_options(&model);
    struct dtp_run_result r;
    struct dtp_err err = {0};
    pid_t process[8];
    o.steps = 2;
    CU_ASSERT_EQUAL_FATAL(dtp_run(arena, &o, &r, &err), DTP_OK);
    fflush(NULL);
    for (int rank = size - 1; rank >= 0; rank--) /* rank 0 comes last */
        process[rank] = start_rank(rank, size, local_size, port);
    for (int rank = 0; rank < size; rank++) {
        int how;
        CU_ASSERT_EQUAL(waitpid(process[rank], &how, 0), process[rank]);
        CU_ASSERT(WIFEXITED(how));
        CU_ASSERT_EQUAL(WEXITSTATUS(how), rank == 0 ? (int)lround(r.loss[1] * 10) : 0);
    }
}

static void test_torchrun_on_one_host(void) {
    check_launched(4, 4, "29651");
}

static void test_torchrun_on_several_hosts(void) {
    check_launched(4, 2, "29652");
}

/* ---- ranks that must not train together ---- */

enum { FOUR = 4, STRANGE = 1, MESSAGE = 1024 };
typedef void change(struct dtp_run_options *o, struct dtp_model *m);

static double seconds_since(int64_t start_ns) {
    return (double)(dtp_os_now_ns() - start_ns) / (double)DTP_NS_PER_S;
}

/* Four ranks, of which one differs: all end with the same message, soon, whether on one host or on several. */
static void check_disagreement(change *how_changed, const char *says, int local_size,
                               const char *port) {
    char(*message)[MESSAGE] = dtp_os_map(FOUR * MESSAGE, true);
    pid_t process[FOUR];
    int64_t start_ns = dtp_os_now_ns();
    CU_ASSERT_PTR_NOT_NULL_FATAL(message);
    fflush(NULL);
    for (int rank = 0; rank < FOUR; rank++) {
        if ((process[rank] = fork()) != 0)
            continue;
        set_environment(rank, FOUR, local_size, port);
        struct dtp_model m = model;
        struct dtp_run_options o = tiny_options(&m);
        struct dtp_run_result r;
        struct dtp_err err = {0};
        o.plan.dp = FOUR;
        if (rank == STRANGE)
            how_changed(&o, &m);
        enum dtp_status status = dtp_run(arena, &o, &r, &err);
        snprintf(message[rank], MESSAGE, "%s", err.msg);
        _exit((int)status);
    }
    for (int rank = 0; rank < FOUR; rank++) {
        int how;
        CU_ASSERT(waitpid(process[rank], &how, 0) == process[rank] && WIFEXITED(how));
        CU_ASSERT_NOT_EQUAL(WEXITSTATUS(how), DTP_OK);
        if (!strstr(message[rank], says))
            printf("\n    rank %d: \"%s\", expected \"%s\"\n", rank, message[rank], says);
        CU_ASSERT_PTR_NOT_NULL(strstr(message[rank], says));
    }
    CU_ASSERT(seconds_since(start_ns) < 10);
    munmap(message, FOUR * MESSAGE);
}

static void other_lr(struct dtp_run_options *o, struct dtp_model *m) {
    (void)m;
    o->lr = 0.002;
}
static void other_seed(struct dtp_run_options *o, struct dtp_model *m) {
    (void)m;
    o->seed = 2;
}
static void other_batch(struct dtp_run_options *o, struct dtp_model *m) {
    (void)m;
    o->plan.global_batch_size = 16;
}
static void other_plan(struct dtp_run_options *o, struct dtp_model *m) {
    (void)m;
    o->plan.zero_stage = 1;
}
static void other_steps(struct dtp_run_options *o, struct dtp_model *m) {
    (void)m;
    o->steps = 21;
}
static void other_model(struct dtp_run_options *o, struct dtp_model *m) {
    (void)o;
    m->hidden = 64;
}
static void no_data(struct dtp_run_options *o, struct dtp_model *m) {
    (void)m;
    o->data = "/nowhere/text";
}
static void other_size(struct dtp_run_options *o, struct dtp_model *m) {
    (void)m;
    o->plan.dp = 2;
}

static void test_ranks_agree(void) {
    static const struct {
        change *how;
        const char *says;
    } c[] = {
        {other_lr, "job.rates.lr is 0.004 on rank 0 and 0.002 on rank 1"},
        {other_seed, "training.seed is 1 on rank 0 and 2 on rank 1"},
        {other_batch, "training.batch is 8 on rank 0 and 16 on rank 1"},
        {other_plan, "job.plan.zero_stage is 0 on rank 0 and 1 on rank 1"},
        {other_steps, "job.steps is 20 on rank 0 and 21 on rank 1"},
        {other_model, "training.model.hidden is 32 on rank 0 and 64 on rank 1"},
    };
    for (size_t i = 0; i < sizeof c / sizeof c[0]; i++)
        check_disagreement(c[i].how, c[i].says, i % 2 ? 2 : 4, i % 2 ? "29660" : "29670");
}

/* The others wait for a rank of which they then hear. */
static void test_a_rank_that_cannot_start(void) {
    check_disagreement(no_data, "/nowhere/text", 4, "29680");
    check_disagreement(other_size, "torchrun started 4 ranks, the plan has 2", 2, "29690");
}

static int try_port(int port) {
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    (void)connect(fd, (struct sockaddr *)&at, sizeof at);
    return fd;
}

/* Callers who say nothing hold nobody up, and a port that another program holds is passed over. */
static void test_strangers_at_the_port(void) {
    enum { SIZE = 2, STRANGERS = 20, PORT = 29700 };
    const struct timespec nap = {.tv_nsec = 200 * (long)DTP_NS_PER_MS};
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    int held = socket(AF_INET, SOCK_STREAM, 0), stranger[STRANGERS], how;
    CU_ASSERT_EQUAL_FATAL(bind(held, (struct sockaddr *)&at, sizeof at), 0);
    CU_ASSERT_EQUAL_FATAL(listen(held, 8), 0);
    int64_t start_ns = dtp_os_now_ns();
    fflush(NULL);
    pid_t first = start_rank(0, SIZE, SIZE, "29700");
    nanosleep(&nap, NULL);
    for (int i = 0; i < STRANGERS; i++)
        stranger[i] = try_port(PORT + 1);
    nanosleep(&nap, NULL);
    pid_t second = start_rank(1, SIZE, SIZE, "29700");
    CU_ASSERT(waitpid(second, &how, 0) == second && WIFEXITED(how) && WEXITSTATUS(how) == 0);
    CU_ASSERT(waitpid(first, &how, 0) == first && WIFEXITED(how) && WEXITSTATUS(how) > 1);
    CU_ASSERT(seconds_since(start_ns) < 15); /* 2 s for the program that holds the first port */
    for (int i = 0; i < STRANGERS; i++)
        close(stranger[i]);
    close(held);
}

/* A listener whose queue is full: connect() would wait for minutes. */
static void test_the_time_out_holds_in_connect(void) {
    enum { FULL = 8, PORT = 29720 };
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    int held = socket(AF_INET, SOCK_STREAM, 0), filler[FULL];
    CU_ASSERT_EQUAL_FATAL(bind(held, (struct sockaddr *)&at, sizeof at), 0);
    CU_ASSERT_EQUAL_FATAL(listen(held, 0), 0);
    for (int i = 0; i < FULL; i++)
        filler[i] = try_port(PORT);
    struct dtp_endpoint e = {.launcher = "test",
                             .rank = 1,
                             .size = 2,
                             .local_size = 2,
                             .master_host = "127.0.0.1",
                             .master_port = PORT,
                             .timeout_s = 1};
    struct dtp_caller peers[2];
    struct dtp_err err = {0};
    unsigned char blob[DTP_BLOB_BYTES] = {0};
    int64_t start_ns = dtp_os_now_ns();
    CU_ASSERT_EQUAL(dtp_rendezvous(&e, blob, peers, &err), DTP_ENO);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, "rank 1 did not reach rank 0"));
    CU_ASSERT(seconds_since(start_ns) < 3);
    for (int i = 0; i < FULL; i++)
        close(filler[i]);
    close(held);
}

static void test_environments(void) {
    bool found;
    struct dtp_endpoint e;
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL(dtp_launch_environment(arena, &found, &e, &err), DTP_OK);
    CU_ASSERT_FALSE(found);
    setenv("SLURM_PROCID", "5", 1);
    setenv("SLURM_NTASKS", "8", 1);
    CU_ASSERT_EQUAL(dtp_launch_environment(arena, &found, &e, &err), DTP_OK);
    CU_ASSERT_FALSE(found); /* an allocation, no job step */
    setenv("SLURM_STEP_ID", "0", 1);
    setenv("SLURM_LOCALID", "1", 1);
    setenv("SLURM_NTASKS_PER_NODE", "4", 1);
    CU_ASSERT_EQUAL(dtp_launch_environment(arena, &found, &e, &err), DTP_EUSAGE);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, "set MASTER_ADDR"));
    setenv("SLURM_STEP_NODELIST", "rack[07-09,12],x", 1);
    CU_ASSERT_EQUAL(dtp_launch_environment(arena, &found, &e, &err), DTP_OK);
    CU_ASSERT(found && e.rank == 5 && e.size == 8 && e.local_rank == 1 && e.local_size == 4);
    CU_ASSERT_STRING_EQUAL(e.launcher, "slurm");
    CU_ASSERT_STRING_EQUAL(e.master_host, "rack07");
    unsetenv("SLURM_NTASKS_PER_NODE"); /* told only where srun was given it */
    setenv("SLURM_STEP_TASKS_PER_NODE", "1,2(x2),3", 1);
    setenv("SLURM_NODEID", "2", 1);
    CU_ASSERT_EQUAL(dtp_launch_environment(arena, &found, &e, &err), DTP_OK);
    CU_ASSERT_EQUAL(e.local_size, 2);
    setenv("SLURM_NODEID", "3", 1);
    CU_ASSERT_EQUAL(dtp_launch_environment(arena, &found, &e, &err), DTP_OK);
    CU_ASSERT_EQUAL(e.local_size, 3);
    uint64_t job = e.job;
    setenv("SLURM_JOB_ID", "17", 1);
    CU_ASSERT_EQUAL(dtp_launch_environment(arena, &found, &e, &err), DTP_OK);
    CU_ASSERT_NOT_EQUAL(e.job, job);
    setenv("SLURM_PROCID", "8", 1);
    CU_ASSERT_EQUAL(dtp_launch_environment(arena, &found, &e, &err), DTP_EINPUT);
    const char *const names[] = {"SLURM_PROCID",        "SLURM_NTASKS",
                                 "SLURM_STEP_ID",       "SLURM_LOCALID",
                                 "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE",
                                 "SLURM_NODEID",        "SLURM_JOB_ID"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unsetenv(names[i]);
    setenv("OMPI_COMM_WORLD_RANK", "2", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "x", 1);
    CU_ASSERT_NOT_EQUAL(dtp_launch_environment(arena, &found, &e, &err), DTP_OK);
    setenv("OMPI_COMM_WORLD_SIZE", "3", 1);
    CU_ASSERT_EQUAL(dtp_launch_environment(arena, &found, &e, &err), DTP_OK);
    CU_ASSERT(found && e.rank == 2 && e.size == 3 && e.local_rank == 2 && e.local_size == 3);
    setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "0", 1);
    CU_ASSERT_EQUAL(dtp_launch_environment(arena, &found, &e, &err), DTP_EINPUT);
    CU_ASSERT_STRING_EQUAL(err.msg,
                           "openmpi says 0 ranks on this host (OMPI_COMM_WORLD_LOCAL_SIZE)");
    unsetenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    unsetenv("OMPI_COMM_WORLD_RANK");
    unsetenv("OMPI_COMM_WORLD_SIZE");
}

/* Hosts of 1, 4 and 3 ranks: each rank of a pair says the same of it. */
static void test_within_host(void) {
    enum { RANKS = 8 };
    static const int first[RANKS] = {0, 1, 1, 1, 1, 5, 5, 5},
                     size[RANKS] = {1, 4, 4, 4, 4, 3, 3, 3};
    for (int a = 0; a < RANKS; a++)
        for (int b = a + 1; b < RANKS; b++) {
            const int pair[] = {a, b};
            const struct dtp_comm_group g = {.size = 2, .rank = pair};
            for (int i = 0; i < 2; i++) {
                int rank = pair[i];
                const struct dtp_rank r = {
                    .rank = rank, .first_local = first[rank], .local_size = size[rank]};
                CU_ASSERT_EQUAL(dtp_within_host(&r, &g), first[a] == first[b]);
            }
        }
}

int main(void) {
    CU_TestInfo launchers[] = {{"environments", test_environments},
                               {"groups of one host", test_within_host},
                               {"one host", test_torchrun_on_one_host},
                               {"several hosts", test_torchrun_on_several_hosts},
                               {"ranks agree", test_ranks_agree},
                               {"a rank cannot start", test_a_rank_that_cannot_start},
                               {"strangers", test_strangers_at_the_port},
                               {"connect blocks", test_the_time_out_holds_in_connect},
                               CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"launchers", NULL, NULL, NULL, NULL, launchers}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    model = tiny_model("gpt");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
