#include "sim/platform.h"
#include "tests/suites.h"

#include <CUnit/Basic.h>
#include <string.h>

static void test_links_have_dense_ids_and_keep_capacity_and_name(void) {
    struct dtp_arena *a = dtp_arena_create("test");
    struct dtp_platform p;
    dtp_platform_init(&p, a);
    for (uint32_t i = 0; i < 1000; i++)
        CU_ASSERT_EQUAL(dtp_platform_link(&p, 1.0 + i, i % 2 ? "odd" : NULL), i);
    CU_ASSERT_EQUAL(p.nlinks, 1000);
    int wrong = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        wrong += p.link_capacity_per_s[i] != 1.0 + i;
        wrong += i % 2 ? strcmp(p.link_name[i], "odd") != 0 : p.link_name[i] != NULL;
    }
    CU_ASSERT_EQUAL(wrong, 0);
    dtp_arena_destroy(a);
}

static void test_devices_have_dense_ids_apart_from_links(void) {
    struct dtp_arena *a = dtp_arena_create("test");
    struct dtp_platform p;
    dtp_platform_init(&p, a);
    CU_ASSERT_EQUAL(dtp_platform_device(&p), 0);
    CU_ASSERT_EQUAL(dtp_platform_link(&p, 1, NULL), 0);
    CU_ASSERT_EQUAL(dtp_platform_device(&p), 1);
    CU_ASSERT_EQUAL(p.ndevices, 2);
    dtp_arena_destroy(a);
}

int main(void) {
    CU_TestInfo tests[] = {
        {"links have dense ids and keep capacity and name",
         test_links_have_dense_ids_and_keep_capacity_and_name},
        {"devices have dense ids apart from links", test_devices_have_dense_ids_apart_from_links},
        CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{.pName = "platform", .pTests = tests}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
