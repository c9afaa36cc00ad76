/* Clusters: every file loads, links and routes are dense and right, NICs can be replaced. */
#include <CUnit/Basic.h>
#include <stdlib.h>
#include <string.h>

#include "hw/collective.h"
#include "sim/base/units.h"
#include "tests/cluster_routes.h"
#include "tests/cluster_case.h"
#include "tests/suites.h"

static void test_all_load(void) {
    const char *const *names = NULL;
    size_t n = 0;
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL_FATAL(dtp_cluster_list(a, &names, &n, &err), DTP_OK);
    CU_ASSERT(n >= 30);
    for (size_t i = 0; i < n; i++) {
        struct dtp_cluster c;
        enum dtp_status status = dtp_cluster_load(a, names[i], &c, &err);
        if (status != DTP_OK)
            printf("%s\n", err.msg);
        CU_ASSERT_EQUAL_FATAL(status, DTP_OK);
        CU_ASSERT(strcmp(c.name, names[i]) == 0);
        CU_ASSERT(c.title != NULL && c.node.gpu_link_bytes_per_s > 0);
        CU_ASSERT(c.intra_busbw_bytes_per_s <= c.node.gpu_link_bytes_per_s);
        int ngpus = c.max_gpus == c.node.gpus ? c.node.gpus : 3 * c.node.gpus;
        for (uint32_t l = 0; l < dtp_cluster_nlinks(&c, ngpus); l++)
            CU_ASSERT(dtp_cluster_link_capacity(&c, ngpus, l) > 0);
    }
}

static void test_figures(void) {
    struct dtp_cluster c = load("a100");
    CU_ASSERT(strcmp(c.name, "dgx-a100-80") == 0);
    CU_ASSERT_EQUAL(c.node.nics, 8);
    CU_ASSERT_DOUBLE_EQUAL(c.node.gpu_link_bytes_per_s, 300 * DTP_GIGA, 1);
    CU_ASSERT(strcmp(c.gpu.name, "a100-80") == 0);
    c = load("aws-p5"); /* 32 x 100 are four rails for each GPU */
    CU_ASSERT_EQUAL(c.node.nics, 8);
    CU_ASSERT_DOUBLE_EQUAL(c.node.nic_bytes_per_s, 50 * DTP_GIGA, 1);
    CU_ASSERT_EQUAL(load("selene").max_gpus, 4480);
    CU_ASSERT_EQUAL(load("pcie-gen4").node.intra, DTP_INTRA_PCIE);
}

static void test_set_nics(void) {
    struct dtp_cluster c = load("a100");
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL(dtp_cluster_set_nics(&c, "4x100", &err), DTP_OK);
    CU_ASSERT_EQUAL(c.node.nics, 4);
    CU_ASSERT_DOUBLE_EQUAL(c.node.nic_bytes_per_s, 12.5 * DTP_GIGA, 1);
    const int expected[8] = {0, 0, 1, 1, 2, 2, 3, 3};
    for (int i = 0; i < 8; i++)
        CU_ASSERT_EQUAL(c.node.nic_of_gpu[i], expected[i]);
    CU_ASSERT_EQUAL(dtp_cluster_set_nics(&c, "4*100", &err), DTP_EUSAGE);
    CU_ASSERT(dtp_cluster_set_nics(&c, "0x100", &err) != DTP_OK);
    CU_ASSERT(dtp_cluster_set_nics(&c, "4x-1", &err) != DTP_OK);
}

/* A file's own words, parsed from text. */
static enum dtp_status parse(const char *text, struct dtp_cluster *c, struct dtp_err *err) {
    const struct dtp_json *root = NULL;
    CU_ASSERT_EQUAL_FATAL(dtp_json_parse(a, "mine.json", text, strlen(text), &root, err), DTP_OK);
    *c = (struct dtp_cluster){.name = "mine"};
    return dtp_cluster_read(a, root, c, err);
}

static void test_own_file(void) {
    struct dtp_cluster c;
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL(parse("{\"gpu\": \"h100-sxm\", \"node\": {\"gpus\": 4, \"nics\": 2, "
                          "\"nic_bytes_per_s\": 25e9}}",
                          &c, &err),
                    DTP_OK);
    CU_ASSERT_EQUAL(c.node.nic_of_gpu[3], 1);
    CU_ASSERT_DOUBLE_EQUAL(c.node.gpu_link_bytes_per_s, 450 * DTP_GIGA, 1);
    CU_ASSERT_EQUAL(parse("{\"base\": \"a100\", \"node\": {\"nics\": 4}}", &c, &err), DTP_OK);
    CU_ASSERT_EQUAL(c.node.nic_of_gpu[7], 3);
    CU_ASSERT_EQUAL(parse("{\"base\": \"a100\", \"nvsl\": true}", &c, &err), DTP_EINPUT);
    CU_ASSERT(strstr(err.msg, "nvls") != NULL);
    CU_ASSERT_EQUAL(parse("{\"base\": \"a101\"}", &c, &err), DTP_EINPUT);
    CU_ASSERT_EQUAL(parse("{\"base\": \"a100\", \"gpu\": \"a100-81\"}", &c, &err), DTP_EINPUT);
    CU_ASSERT_EQUAL(parse("{\"base\": \"a100\", \"fabric\": \"infinband\"}", &c, &err), DTP_EINPUT);
    CU_ASSERT(strstr(err.msg, "infiniband") != NULL);
    CU_ASSERT_EQUAL(parse("{\"base\": \"a100\", \"nic_of_gpu\": [0, 1]}", &c, &err), DTP_EINPUT);
    CU_ASSERT_EQUAL(parse("{\"base\": \"a100\", \"mesh_links\": [[0]]}", &c, &err), DTP_EINPUT);
    CU_ASSERT_EQUAL(parse("{\"base\": \"h100\", \"nccl\": \"2.12\"}", &c, &err), DTP_OK);
    CU_ASSERT(!c.nvls);
    CU_ASSERT_EQUAL(parse("{\"base\": \"h100\", \"nccl\": \"new\"}", &c, &err), DTP_EINPUT);
    CU_ASSERT_EQUAL(parse("{\"title\": \"nothing\"}", &c, &err), DTP_EINPUT);
    CU_ASSERT_EQUAL(dtp_cluster_load(a, "dgx-a101", &c, &err), DTP_EINPUT);
    CU_ASSERT(strstr(err.msg, "\"dgx-a100\"") != NULL);
}

static struct dtp_route route(const struct dtp_cluster *c, int ngpus, int src, int dst) {
    struct dtp_route r;
    dtp_cluster_route(c, ngpus, src, dst, &r);
    for (int i = 0; i < r.n; i++)
        CU_ASSERT(r.link[i] < dtp_cluster_nlinks(c, ngpus));
    return r;
}

static bool passes(const struct dtp_cluster *c, int ngpus, const struct dtp_route *r,
                   const char *name) {
    for (int i = 0; i < r->n; i++)
        if (strcmp(link_name(a, c, ngpus, r->link[i]), name) == 0)
            return true;
    return false;
}

static void test_routes(void) {
    struct dtp_cluster c = load("a100");
    struct dtp_route r = route(&c, 32, 1, 6);
    CU_ASSERT_EQUAL(r.n, 2);
    CU_ASSERT(passes(&c, 32, &r, "node0.gpu1.out") && passes(&c, 32, &r, "node0.gpu6.in"));
    r = route(&c, 32, 1, 17);
    CU_ASSERT(r.inter_node);
    CU_ASSERT(passes(&c, 32, &r, "node0.nic1.out") && passes(&c, 32, &r, "node2.nic1.in"));
    c = load("v100");
    r = route(&c, 8, 0, 3);
    CU_ASSERT_EQUAL(r.n, 1);
    r = route(&c, 8, 0, 7); /* no NVLink between them: through GPU 3, 2 + 1 links, or 4 */
    CU_ASSERT_EQUAL(r.n, 2);
    CU_ASSERT(!r.inter_node);
    c = load("summit");
    r = route(&c, 6, 0, 5);
    CU_ASSERT(passes(&c, 6, &r, "node0.socket0.out") && passes(&c, 6, &r, "node0.host0.out"));
    c = load("pcie-gen4");
    r = route(&c, 8, 0, 1);
    CU_ASSERT_EQUAL(r.n, 2);
    r = route(&c, 8, 0, 7);
    CU_ASSERT_EQUAL(r.n, 5);
}

/* Two tiers, leafs of two nodes with half of the bandwidth going up. */
static void test_tiers(void) {
    static const char text[] =
        "{\"gpu\": \"a100-80\", \"node\": {\"gpus\": 8, \"nics\": 2, \"nic_bytes_per_s\": 25e9,"
        " \"nic_efficiency\": 1}, \"tiers\": [{\"name\": \"leaf\", \"nodes\": 2,"
        " \"oversubscription\": 2}, {\"name\": \"spine\", \"nodes\": 4}]}";
    struct dtp_cluster c;
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL_FATAL(parse(text, &c, &err), DTP_OK);
    struct dtp_route near = route(&c, 32, 0, 8), far = route(&c, 32, 0, 16);
    CU_ASSERT_EQUAL(near.n, 2);
    CU_ASSERT_EQUAL(far.n, 4);
    CU_ASSERT(passes(&c, 32, &far, "leaf0.0.up") && passes(&c, 32, &far, "leaf1.0.down"));
    CU_ASSERT_DOUBLE_EQUAL(dtp_cluster_link_capacity(&c, 32, far.link[1]), 50 * DTP_GIGA, 1);
    c.rail_optimised = true; /* a leaf for each NIC: half of the up-link each */
    far = route(&c, 32, 4, 20);
    CU_ASSERT(passes(&c, 32, &far, "leaf0.1.up"));
    CU_ASSERT_DOUBLE_EQUAL(dtp_cluster_link_capacity(&c, 32, far.link[1]), 25 * DTP_GIGA, 1);
    near = route(&c, 32, 0, 8);
    CU_ASSERT_EQUAL(near.n, 2); /* same rail */
    near = route(&c, 32, 0, 12);
    CU_ASSERT_EQUAL(near.n, 4); /* from rail 0 to rail 1, above the leafs */
}

static void test_for_gpu(void) {
    struct dtp_cluster c;
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL(dtp_cluster_for_gpu(a, "A100", 40, 8, &c, &err), DTP_OK);
    CU_ASSERT(strcmp(c.name, "dgx-a100-40") == 0);
    CU_ASSERT_EQUAL(dtp_cluster_for_gpu(a, "H100", 80, 4, &c, &err), DTP_OK);
    CU_ASSERT(c.node.gpus == 4 && c.node.nics == 4);
    CU_ASSERT_EQUAL(dtp_cluster_for_gpu(a, "V100", 32, 16, &c, &err), DTP_OK);
    CU_ASSERT(strcmp(c.name, "dgx-2") == 0);
    CU_ASSERT_EQUAL(dtp_cluster_for_gpu(a, "NVIDIA GeForce RTX 4090", 0, 8, &c, &err), DTP_OK);
    CU_ASSERT(strcmp(c.name, "rtx4090-box") == 0 && c.gpu.not_calibrated);
    CU_ASSERT_EQUAL(dtp_cluster_for_gpu(a, "Tesla V100-SXM2-32GB", 0, 8, &c, &err), DTP_OK);
    CU_ASSERT(strcmp(c.gpu.name, "v100-32") == 0);
    CU_ASSERT_EQUAL(dtp_cluster_for_gpu(a, "NVIDIA L40S", 0, 8, &c, &err), DTP_OK);
    CU_ASSERT(strcmp(c.gpu.name, "l40s") == 0);
    CU_ASSERT_EQUAL(dtp_cluster_for_gpu(a, "RTX 40900", 0, 8, &c, &err), DTP_EUNSUPPORTED);
    CU_ASSERT_EQUAL(dtp_cluster_for_gpu(a, "TPU", 0, 4, &c, &err), DTP_EUNSUPPORTED);
    /* a maker alone names nothing, whatever follows the end of the name */
    CU_ASSERT_EQUAL(dtp_cluster_for_gpu(a, "NVIDIA\0H100", 80, 8, &c, &err), DTP_EUNSUPPORTED);
}

int main(void) {
    CU_TestInfo tests[] = {{"every file loads, every link has a capacity", test_all_load},
                           {"figures of known machines", test_figures},
                           {"--nic replaces NICs and affinity", test_set_nics},
                           {"a user's file, good and bad", test_own_file},
                           {"routes in nodes and between", test_routes},
                           {"oversubscribed tiers and rails", test_tiers},
                           {"the cluster of a measured row", test_for_gpu},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"cluster", setup, teardown, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
