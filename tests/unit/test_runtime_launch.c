/* Ranks started by torchrun, MPI and Slurm: what their environments say, and a run of them. */
#include <CUnit/Basic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/launch.h"
#include "runtime/rank.h"
#include "tests/runtime_cases.h"
#include "tests/suites.h"

static struct dtp_arena *arena;
static struct dtp_model model;

/* A rank in a process of its own, as torchrun would start it; its first loss as the exit status. */
static pid_t start_rank(int rank, int size, int local_size, const char *port) {
    pid_t p = fork();
    if (p != 0)
        return p;
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
    CU_ASSERT_EQUAL(dtp_launch_environment(arena, &found, &e, &err), DTP_OK);
    CU_ASSERT(found && e.rank == 5 && e.size == 8 && e.local_rank == 1 && e.local_size == 4);
    CU_ASSERT_STRING_EQUAL(e.launcher, "slurm");
    setenv("SLURM_PROCID", "8", 1);
    CU_ASSERT_EQUAL(dtp_launch_environment(arena, &found, &e, &err), DTP_EINPUT);
    const char *const names[] = {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID", "SLURM_LOCALID",
                                 "SLURM_NTASKS_PER_NODE"};
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
                               CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"launchers", NULL, NULL, NULL, NULL, launchers}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    model = tiny_model("gpt");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
