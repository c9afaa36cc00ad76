/* Reports of Nsight Systems and topologies of NCCL: what is in the files by hand is what comes out. */
#include <CUnit/Basic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hw/cluster.h"
#include "sim/base/json.h"
#include "sim/base/text.h"
#include "tests/suites.h"
#include "traces/replay/analyse.h"
#include "traces/catalog.h"
#include "traces/formats/nsys.h"
#include "traces/formats/topology.h"

static struct dtp_arena *arena;

static const char *corpus(const char *file) {
    return dtp_arena_printf(arena, "%s/tests/fuzz/corpus/%s", DTP_SOURCE_DIR, file);
}

/* packed: from memory, as a member of an archive would be. */
static enum dtp_status read_report(const char *file, bool packed, struct dtp_trace_rank **out,
                                   size_t *out_n, struct dtp_err *err) {
    struct dtp_source *s;
    const char *path = corpus(file);
    DTP_TRY(dtp_source_open(arena, path, &s, err));
    enum dtp_status status = dtp_nsys_read(arena, s, packed ? NULL : path, out, out_n, err);
    dtp_source_close(s);
    return status;
}

/* Skips the test where dtplan was built without the library. */
static bool built(enum dtp_status status, const struct dtp_err *err) {
    if (status == DTP_EUNSUPPORTED) {
        printf("skipped: %s\n", err->msg);
        return false;
    }
    if (status != DTP_OK)
        printf("\n  %s", err->msg);
    CU_ASSERT_EQUAL_FATAL(status, DTP_OK);
    return true;
}

/* Two processes on two GPUs: four kernels each, of which one is a collective, by mk.py. */
static void check_schedule(bool packed) {
    struct dtp_trace_rank *rank;
    struct dtp_trace_times t;
    size_t n;
    struct dtp_err err = {0};
    if (!built(read_report("fuzz_nsys/mini_nsys.sqlite", packed, &rank, &n, &err), &err))
        return;
    CU_ASSERT_EQUAL_FATAL(n, 2);
    for (size_t r = 0; r < n; r++) {
        uint64_t launched = 0;
        CU_ASSERT_EQUAL(rank[r].base_ns, 1767189312000000000);
        CU_ASSERT_EQUAL_FATAL(rank[r].nsteps, 1);
        CU_ASSERT_EQUAL(rank[r].step[0].number, 1);
        CU_ASSERT_EQUAL(rank[r].step[0].dur_ns, 16000);
        for (size_t i = 0; i < rank[r].nevents; i++) {
            const struct dtp_trace_event *e = dtp_trace_event(&rank[r], i);
            if (e->kind == DTP_TRACE_CALL)
                CU_ASSERT_STRING_EQUAL(dtp_trace_name(&rank[r], e->name), "cudaLaunchKernel");
            launched += dtp_trace_is_work(e) && e->launch != DTP_TRACE_NONE;
        }
        CU_ASSERT_EQUAL(launched, 4);
    }
    dtp_trace_times_all(&rank[0], &t);
    CU_ASSERT_EQUAL(t.span_ns, 16000);
    CU_ASSERT_EQUAL(t.compute_ns, 4000 + 8000 + 1000);
    CU_ASSERT_EQUAL(t.comm_ns, 6000);
    CU_ASSERT_EQUAL(t.overlap_ns, 3000);
    dtp_trace_times_all(&rank[1], &t);
    CU_ASSERT_EQUAL(t.compute_ns, 5000 + 8500 + 1000);
    CU_ASSERT_EQUAL(t.comm_ns, 5000);
}

static void report(void) {
    check_schedule(false);
    check_schedule(true);
}

/* No process ids, no correlation, short names only; a time that is text and an end before its start. */
static void report_with_other_columns(void) {
    struct dtp_trace_rank *rank;
    size_t n, copies = 0;
    struct dtp_err err = {0};
    if (!built(read_report("fuzz_nsys/odd.sqlite", false, &rank, &n, &err), &err))
        return;
    CU_ASSERT_EQUAL_FATAL(n, 1);
    CU_ASSERT_EQUAL(rank[0].warned[DTP_WARN_BAD_TIME].count, 1);
    CU_ASSERT_EQUAL(rank[0].warned[DTP_WARN_NEGATIVE_DURATION].count, 1);
    CU_ASSERT_EQUAL_FATAL(rank[0].nsteps, 1);
    CU_ASSERT_EQUAL(rank[0].step[0].number, 4);
    for (size_t i = 0; i < rank[0].nevents; i++) {
        const struct dtp_trace_event *e = dtp_trace_event(&rank[0], i);
        copies += strcmp(dtp_trace_name(&rank[0], e->name), "Memcpy DtoH") == 0;
    }
    CU_ASSERT_EQUAL(copies, 1);
}

static void no_report(void) {
    struct dtp_trace_rank *rank;
    size_t n;
    struct dtp_err err = {0};
    static const char text[] = "SQLite format 3\0 and no more";
    struct dtp_source *s;
    CU_ASSERT_TRUE(
        dtp_format_nsys.detect(dtp_head_look(arena, (const unsigned char *)text, sizeof text)));
    CU_ASSERT_EQUAL_FATAL(dtp_source_memory(arena, "cut", text, sizeof text, &s, &err), DTP_OK);
    CU_ASSERT_NOT_EQUAL(dtp_nsys_read(arena, s, NULL, &rank, &n, &err), DTP_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, "cut"));
    dtp_source_close(s);
}

/* ---- topologies ---- */

static bool read_topology(const char *file, struct dtp_topology **out) {
    struct dtp_source *s;
    struct dtp_err err = {0};
    *out = DTP_NEW(arena, struct dtp_topology, 1);
    CU_ASSERT_EQUAL_FATAL(dtp_source_open(arena, corpus(file), &s, &err), DTP_OK);
    enum dtp_status status = dtp_topology_read(arena, s, *out, &err);
    dtp_source_close(s);
    return built(status, &err);
}

/* The cluster file that is written is one that --cluster takes. */
static void as_cluster(const struct dtp_topology *t, struct dtp_cluster *out) {
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    const struct dtp_json *j;
    struct dtp_err err = {0};
    dtp_topology_write_cluster(f, t, "a test");
    fclose(f);
    enum dtp_status status = dtp_json_parse(arena, "cluster", text, n, &j, &err);
    if (status == DTP_OK)
        status = dtp_cluster_read(arena, j, out, &err);
    if (status != DTP_OK)
        printf("\n  %s", err.msg);
    CU_ASSERT_EQUAL_FATAL(status, DTP_OK);
    free(text);
}

static void topology_switch(void) {
    struct dtp_topology *t;
    struct dtp_cluster c;
    if (!read_topology("fuzz_topology/switch.xml", &t))
        return;
    CU_ASSERT_EQUAL(t->ngpus, 8);
    CU_ASSERT_EQUAL(t->gpu[3].switch_links, 18);
    CU_ASSERT_STRING_EQUAL(t->gpu_name, "h100-sxm");
    CU_ASSERT_FALSE(t->gpu_guessed);
    CU_ASSERT_EQUAL(t->nused, 4); /* not the 1 Gb/s one */
    CU_ASSERT_EQUAL(t->cores, 32);
    as_cluster(t, &c);
    CU_ASSERT_EQUAL(c.node.intra, DTP_INTRA_SWITCH);
    CU_ASSERT_DOUBLE_EQUAL(c.node.gpu_link_bytes_per_s, 450e9, 1);
    CU_ASSERT_DOUBLE_EQUAL(c.node.nic_bytes_per_s, 25e9, 1);
    for (int g = 0; g < 8; g++) /* a NIC below the same switch as two GPUs */
        CU_ASSERT_EQUAL(c.node.nic_of_gpu[g], g / 2);
}

static void topology_mesh(void) {
    struct dtp_topology *t;
    struct dtp_cluster c;
    if (!read_topology("fuzz_topology/mesh.xml", &t))
        return;
    CU_ASSERT_STRING_EQUAL(t->intra, "mesh");
    CU_ASSERT_STRING_EQUAL(t->gpu_name, "a100-40");
    as_cluster(t, &c);
    CU_ASSERT_EQUAL(c.node.intra, DTP_INTRA_MESH);
    CU_ASSERT_EQUAL(c.node.mesh_links[0][3], 4);
    CU_ASSERT_EQUAL(c.node.mesh_links[2][2], 0);
    CU_ASSERT_DOUBLE_EQUAL(c.node.mesh_link_bytes_per_s, 25e9, 1);
}

static void topology_pcie(void) {
    struct dtp_topology *t;
    struct dtp_cluster c;
    if (!read_topology("fuzz_topology/pcie.xml", &t))
        return;
    CU_ASSERT_STRING_EQUAL(t->intra, "pcie");
    CU_ASSERT_EQUAL(t->gpus_a_switch, 2);
    as_cluster(t, &c);
    CU_ASSERT_EQUAL(c.node.intra, DTP_INTRA_PCIE);
    CU_ASSERT_DOUBLE_EQUAL(c.node.gpu_link_bytes_per_s, 16e9 * 128 / 130 * 16 / 8, 1);
}

static void no_topology(void) {
    struct dtp_topology *t = DTP_NEW(arena, struct dtp_topology, 1);
    struct dtp_source *s;
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL_FATAL(dtp_source_open(arena, corpus("fuzz_topology/unclosed.xml"), &s, &err),
                          DTP_OK);
    CU_ASSERT_NOT_EQUAL(dtp_topology_read(arena, s, t, &err), DTP_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, "unclosed.xml"));
    dtp_source_close(s);
}

int main(void) {
    CU_TestInfo tests[] = {{"a report, from a file and from memory", report},
                           {"a report with other columns", report_with_other_columns},
                           {"what is no report is refused", no_report},
                           {"a machine with switches", topology_switch},
                           {"a mesh of NVLinks", topology_mesh},
                           {"a machine without NVLinks", topology_pcie},
                           {"a topology that is cut is refused", no_topology},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"reports and topologies", NULL, NULL, NULL, NULL, tests},
                             CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
