/* The reader and the writer of Chakra graphs: samples of ../shared/traces give facts.json, malformed files are
 * refused, what is written reads back. */
#include <CUnit/Basic.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/units.h"
#include "tests/facts_case.h"
#include "traces/formats/chakra.h"

static struct dtp_arena *arena;
static cJSON *facts; /* NULL where ../shared is missing */

static enum dtp_status read_graph(const char *path, const char *member, struct dtp_chakra *g,
                                  struct dtp_err *err) {
    struct dtp_source *s, *m = NULL;
    *err = (struct dtp_err){0};
    DTP_TRY(dtp_source_open(arena, path, &s, err));
    enum dtp_status status = DTP_OK;
    while (member && (status = dtp_source_tar_next(arena, s, &m, err)) == DTP_OK && m &&
           !strstr(dtp_source_name(m), member))
        dtp_source_close(m);
    if (status == DTP_OK)
        status = dtp_chakra_read(arena, m ? m : s, g, err);
    dtp_source_close(m);
    dtp_source_close(s);
    return status;
}

static void check_nodes(const struct dtp_chakra *g, const cJSON *fact) {
    const cJSON *c;
    CU_ASSERT_DOUBLE_EQUAL((double)g->nmessages, number(fact, "n_messages"), 0);
    CU_ASSERT_DOUBLE_EQUAL((double)g->ndangling, number(fact, "dangling_deps"), 0);
    CU_ASSERT_STRING_EQUAL(g->version, string(fact, "version"));
    double nctrl = 0, ndata = 0;
    for (uint32_t i = 0; i < g->nnodes; i++) {
        nctrl += g->node[i].nctrl;
        ndata += g->node[i].ndata;
    }
    CU_ASSERT_DOUBLE_EQUAL(nctrl, number(fact, "ctrl_deps"), 0);
    CU_ASSERT_DOUBLE_EQUAL(ndata, number(fact, "data_deps"), 0);
    cJSON_ArrayForEach(c, item(fact, "attr_names")) {
        uint32_t name = dtp_intern_add(g->attr, c->string, strlen(c->string));
        double n = name < g->attr_capacity ? (double)g->attr_count[name] : 0;
        CU_ASSERT_DOUBLE_EQUAL(n, c->valuedouble, 0);
    }
    cJSON_ArrayForEach(c, item(fact, "node_types")) {
        double n = 0, dur = 0;
        for (uint32_t i = 0; i < g->nnodes; i++)
            if (strcmp(dtp_chakra_type_name[g->node[i].type], c->string) == 0) {
                n++;
                dur += (double)g->node[i].dur_us;
            }
        CU_ASSERT_DOUBLE_EQUAL(n, c->valuedouble, 0);
        CU_ASSERT_DOUBLE_EQUAL(dur, number(item(fact, "duration_micros_by_type"), c->string), 0);
    }
}

static void check_collectives(const struct dtp_chakra *g, const cJSON *fact) {
    const cJSON *c;
    cJSON_ArrayForEach(c, item(fact, "collectives")) {
        double n = 0, bytes = 0;
        for (uint32_t i = 0; i < g->nnodes; i++) {
            const struct dtp_chakra_node *node = &g->node[i];
            if (node->type < DTP_CHAKRA_SEND)
                continue;
            const char *kind = node->type != DTP_CHAKRA_COLL ? dtp_chakra_type_name[node->type]
                               : node->comm_type < 0         ? "None"
                                                     : dtp_chakra_comm_name[node->comm_type];
            if (strcmp(kind, c->string) == 0) {
                n++;
                bytes += (double)node->comm_bytes;
            }
        }
        CU_ASSERT_DOUBLE_EQUAL(n, number(c, "count"), 0);
        CU_ASSERT_DOUBLE_EQUAL(bytes, number(c, "bytes"), 0);
    }
}

static void chakra_samples(void) {
    static const struct {
        const char *path, *member, *key;
    } cases[] = {{"chakra/feeder_tests_trace.tar.gz", "chakra.0.et",
                  "feeder_tests_trace.tar.gz:chakra.0.et"},
                 {"astra-sim/et/4npus_1MB__all_to_all.0.et", NULL, "4npus_1MB__all_to_all.0.et"},
                 {"astra-sim/et/8npus_1MB__all_reduce.0.et", NULL, "8npus_1MB__all_reduce.0.et"},
                 {"astra-sim/et/custom_ring_allreduce_8npus_1MB.0.et", NULL,
                  "custom_ring_allreduce_8npus_1MB.0.et"}};
    for (size_t i = 0; facts && i < sizeof cases / sizeof *cases; i++) {
        struct dtp_chakra g;
        struct dtp_err err;
        const cJSON *fact = item(item(facts, "other"), cases[i].key);
        enum dtp_status status =
            read_graph(facts_path(arena, cases[i].path), cases[i].member, &g, &err);
        if (status != DTP_OK)
            printf("\n  %s", err.msg);
        CU_ASSERT_EQUAL_FATAL(status, DTP_OK);
        CU_ASSERT_PTR_NOT_NULL_FATAL(fact);
        check_nodes(&g, fact);
        check_collectives(&g, fact);
    }
}

static void chakra_malformed(void) {
    static const struct {
        const char *file, *says;
    } cases[] = {{"19_chakra_cycle.et", "2 nodes depend on each other in a cycle"},
                 {"20_chakra_dangling_dup_id.et", "node 1 is there twice"},
                 {"21_chakra_truncated_frame.et", "message 1 is cut"},
                 {"22_huge_length.et", "claims"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dtp_chakra g;
        struct dtp_err err;
        const char *path = dtp_arena_printf(arena, "%s/tests/fuzz/corpus/fuzz_chakra/%s",
                                            DTP_SOURCE_DIR, cases[i].file);
        CU_ASSERT_EQUAL(read_graph(path, NULL, &g, &err), DTP_EINPUT);
        if (!strstr(err.msg, cases[i].says))
            printf("\n  %s", err.msg);
        CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, cases[i].says));
    }
}

static void expect_same(const struct dtp_chakra_node *p, const struct dtp_chakra_node *q) {
    CU_ASSERT(p->id == q->id && p->type == q->type && p->dur_us == q->dur_us &&
              p->start_us == q->start_us && p->comm_type == q->comm_type &&
              p->comm_bytes == q->comm_bytes && p->comm_src == q->comm_src &&
              p->comm_dst == q->comm_dst && p->comm_tag == q->comm_tag &&
              p->is_cpu_op == q->is_cpu_op && p->nctrl == q->nctrl && p->ndata == q->ndata);
    CU_ASSERT_STRING_EQUAL(p->name, q->name);
    CU_ASSERT_STRING_EQUAL(p->group, q->group);
}

static void chakra_written(void) {
    static uint64_t dep[] = {7, 0, 7, UINT64_MAX};
    struct dtp_chakra_node node[] = {{.id = 0,
                                      .name = "load",
                                      .group = "",
                                      .type = DTP_CHAKRA_MEM_LOAD,
                                      .comm_type = -1,
                                      .comm_src = -1,
                                      .comm_dst = -1,
                                      .comm_tag = -1,
                                      .dur_us = 3},
                                     {.id = 7,
                                      .name = "gemm",
                                      .group = "",
                                      .type = DTP_CHAKRA_COMP,
                                      .comm_type = -1,
                                      .comm_src = -1,
                                      .comm_dst = -1,
                                      .comm_tag = -1,
                                      .start_us = 1ull << 40,
                                      .dur_us = 300},
                                     {.id = UINT64_MAX,
                                      .name = "all-reduce",
                                      .group = "dp",
                                      .type = DTP_CHAKRA_COLL,
                                      .comm_type = 0,
                                      .comm_bytes = 1ull << 33,
                                      .comm_src = -1,
                                      .comm_dst = -1,
                                      .comm_tag = -1,
                                      .first_dep = 0,
                                      .nctrl = 1,
                                      .ndata = 1},
                                     {.id = 9,
                                      .name = "send",
                                      .group = "",
                                      .type = DTP_CHAKRA_SEND,
                                      .comm_type = -1,
                                      .comm_bytes = 5,
                                      .comm_src = 0,
                                      .comm_dst = 1,
                                      .comm_tag = 4,
                                      .is_cpu_op = true,
                                      .first_dep = 2,
                                      .ndata = 2}};
    struct dtp_chakra g = {.version = "0.0.4", .node = node, .nnodes = 4, .dep = dep, .ndeps = 4},
                      back;
    char *bytes = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&bytes, &n);
    struct dtp_source *s;
    struct dtp_err err = {0};
    dtp_chakra_write(f, &g);
    fclose(f);
    CU_ASSERT_EQUAL_FATAL(dtp_source_memory(arena, "written", bytes, n, &s, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(dtp_chakra_read(arena, s, &back, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(back.nnodes, 4);
    CU_ASSERT_STRING_EQUAL(back.version, "0.0.4");
    for (uint32_t i = 0; i < 4; i++)
        expect_same(&node[i], &back.node[i]);
    free(bytes);
}

int main(void) {
    CU_TestInfo tests[] = {{"Chakra samples give facts.json", chakra_samples},
                           {"malformed graphs are refused", chakra_malformed},
                           {"a written graph reads back", chakra_written},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"chakra", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_facts_suites(suites, &arena, &facts);
}
