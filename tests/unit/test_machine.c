/* Memory of the machine and of control groups, from trees of files like those of Linux. */
#include "sim/base/machine.h"

#include <CUnit/Basic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/arena_case.h"
#include "tests/suites.h"

static const uint64_t mib = UINT64_C(1) << 20;

/* A file under root, with the folders above it. */
static void put(const char *root, const char *path, const char *text) {
    char *at = dtp_arena_printf(arena, "%s%s", root, path);
    for (char *p = at + 1; *p; p++)
        if (*p == '/') {
            *p = '\0';
            (void)mkdir(at, 0700);
            *p = '/';
        }
    FILE *f = fopen(at, "w");
    CU_ASSERT_FATAL(f != NULL);
    fputs(text, f);
    fclose(f);
}

static char *new_root(void) {
    char *root = dtp_arena_printf(arena, "/tmp/dtplan-machine-XXXXXX");
    CU_ASSERT_FATAL(mkdtemp(root) != NULL);
    put(root, "/proc/meminfo", "MemTotal: 999999 kB\nMemFree: 1 kB\nMemAvailable:  8192 kB\n");
    return root;
}

static void drop(const char *root) {
    CU_ASSERT(system(dtp_arena_printf(arena, "rm -r %s", root)) == 0);
}

/* This machine has something; without the files nothing is known of what is free. */
static void test_machine(void) {
    struct dtp_machine_memory m = dtp_machine_memory("");
    CU_ASSERT(m.total_bytes > mib && m.total_bytes < UINT64_MAX);
    CU_ASSERT(m.free_bytes > 0 && m.free_bytes <= m.total_bytes);
    CU_ASSERT(dtp_machine_memory("/no/such/place").free_bytes == UINT64_MAX);
    char *root = new_root();
    CU_ASSERT(dtp_machine_memory(root).free_bytes == 8 * mib);
    drop(root);
}

/* Version 2: a job's step may use what it wants, its job 6 MiB, of which 3 are used, 1 by idle files. */
static void test_version_2(void) {
    char *root = new_root();
    put(root, "/proc/self/cgroup", "0::/batch/job7/step0\n");
    put(root, "/sys/fs/cgroup/batch/job7/step0/memory.max", "max\n");
    put(root, "/sys/fs/cgroup/batch/job7/memory.max", "6291456\n");
    put(root, "/sys/fs/cgroup/batch/job7/memory.current", "3145728\n");
    put(root, "/sys/fs/cgroup/batch/job7/memory.stat", "anon 5\ninactive_file 1048576\n");
    struct dtp_machine_memory m = dtp_machine_memory(root);
    CU_ASSERT(m.total_bytes == 6 * mib && m.free_bytes == 4 * mib);
    /* more is used than may be */
    put(root, "/sys/fs/cgroup/batch/job7/memory.current", "9437184\n");
    CU_ASSERT(dtp_machine_memory(root).free_bytes == 0);
    drop(root);
}

/* Version 1 in a container: the path is the host's, the group itself is what is mounted. */
static void test_version_1(void) {
    char *root = new_root();
    put(root, "/proc/self/cgroup", "5:cpu:/docker/abc\n4:memory:/docker/abc\n0::/\n");
    put(root, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "4194304\n");
    put(root, "/sys/fs/cgroup/memory/memory.usage_in_bytes", "2097152\n");
    put(root, "/sys/fs/cgroup/memory/memory.stat", "inactive_file 7\ntotal_inactive_file 0\n");
    struct dtp_machine_memory m = dtp_machine_memory(root);
    CU_ASSERT(m.total_bytes == 4 * mib && m.free_bytes == 2 * mib);
    /* what the version calls no limit */
    put(root, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    CU_ASSERT(dtp_machine_memory(root).free_bytes == 8 * mib);
    drop(root);
}

int main(void) {
    CU_TestInfo tests[] = {{"the machine", test_machine},
                           {"groups of version 2", test_version_2},
                           {"groups of version 1", test_version_1},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"memory", setup, teardown, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
