/* Checkpoints: a run goes on from one on any layout; what is not this run's or is damaged is refused. */
#include <CUnit/Basic.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>

#include "tests/runtime_cases.h"
#include "tests/suites.h"

static struct dtp_arena *arena;
static struct dtp_model model;

/* 6 steps at once = 3 steps with one layout, saved, and 3 more with another. */
static void check_resume(const struct dtp_plan *first, const struct dtp_plan *second,
                         double tolerance) {
    char folder[] = "/tmp/dtplan-test-XXXXXX";
    struct dtp_run_options o = tiny_options(&model);
    struct dtp_run_result whole, half, rest;
    struct dtp_err err = {0};
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
    o.steps = 6;
    o.plan = *first;
    CU_ASSERT_EQUAL_FATAL(dtp_run(arena, &o, &whole, &err), DTP_OK);
    o.save = folder;
    o.save_every = 2;
    o.steps = 3;
    CU_ASSERT_EQUAL_FATAL(dtp_run(arena, &o, &half, &err), DTP_OK);
    o.save = NULL;
    o.resume = folder;
    o.steps = 6;
    o.plan = *second;
    enum dtp_status status = dtp_run(arena, &o, &rest, &err);
    CU_ASSERT_EQUAL(status, DTP_OK);
    if (status != DTP_OK)
        printf("\n    %s\n", err.msg);
    for (int i = 0; status == DTP_OK && i < 3; i++)
        CU_ASSERT(fabs(rest.loss[i] - whole.loss[3 + i]) <= tolerance);
    CU_ASSERT(status != DTP_OK || (rest.first_step == 3 && rest.steps == 3));
    remove_tree(folder);
}

static void test_resume_on_the_same_layout_is_exact(void) {
    struct dtp_plan p = with_degrees(tiny_options(&model).plan, 2, 1, 2);
    check_resume(&p, &p, 0);
    p.zero_stage = 3;
    check_resume(&p, &p, 0);
}

static void test_resume_on_another_layout(void) {
    struct dtp_plan one = tiny_options(&model).plan, two = with_degrees(one, 2, 2, 1), three;
    three = with_degrees(one, 1, 2, 2);
    three.zero_stage = 3;
    three.schedule = DTP_SCHED_INTERLEAVED;
    three.vpp = 2;
    check_resume(&one, &two, 5e-6);
    check_resume(&two, &three, 5e-6);
    check_resume(&three, &one, 5e-6);
}

/* Folders of 200 characters in each other: the path is longer than 1,400. */
static void test_a_long_path(void) {
    char root[] = "/tmp/dtplan-test-XXXXXX", name[201];
    struct dtp_run_options o = tiny_options(&model);
    struct dtp_run_result r;
    struct dtp_err err = {0};
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(root));
    o.save = root;
    for (int i = 0; i < 7; i++) {
        o.save = dtp_arena_printf(arena, "%s/%s", o.save, name);
        CU_ASSERT_EQUAL_FATAL(mkdir(o.save, 0700), 0);
    }
    o.steps = 1;
    CU_ASSERT_EQUAL(dtp_run(arena, &o, &r, &err), DTP_OK);
    o.resume = o.save;
    o.steps = 2;
    CU_ASSERT_EQUAL(dtp_run(arena, &o, &r, &err), DTP_OK);
    CU_ASSERT(r.first_step == 1 && r.steps == 1);
    remove_tree(root);
}

/* Another seed draws other sequences: the losses would go on as if nothing were. */
static void test_another_seed_is_refused(void) {
    char folder[] = "/tmp/dtplan-test-XXXXXX";
    struct dtp_run_options o = tiny_options(&model);
    struct dtp_run_result r;
    struct dtp_err err = {0};
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
    o.steps = 1;
    o.seed = 3;
    o.save = folder;
    CU_ASSERT_EQUAL_FATAL(dtp_run(arena, &o, &r, &err), DTP_OK);
    o.save = NULL;
    o.resume = folder;
    o.steps = 2;
    o.seed = 4;
    check_failure(arena, &o, DTP_EINPUT,
                  "manifest: saved by a run with seed 3, this one has seed 4", 10);
    remove_tree(folder);
}

/* Writes n bytes over those at `at`, and returns the first of those that were there. */
static char put(const char *path, long at, const void *bytes, size_t n) {
    FILE *f = fopen(path, "r+b");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    fseek(f, at, SEEK_SET);
    int was = fgetc(f);
    fseek(f, at, SEEK_SET);
    fwrite(bytes, 1, n, f);
    fclose(f);
    return (char)was;
}

static void test_a_damaged_checkpoint_is_refused(void) {
    const long n_at =
        4 * 4 + 88 + 5 * 8; /* the last field of the first header: how many values follow */
    const int64_t most = INT64_MAX;
    char folder[] = "/tmp/dtplan-test-XXXXXX", path[200];
    struct dtp_run_options o = tiny_options(&model);
    struct dtp_run_result r;
    struct dtp_err err = {0};
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
    o.steps = 1;
    o.save = folder;
    CU_ASSERT_EQUAL_FATAL(dtp_run(arena, &o, &r, &err), DTP_OK);
    o.save = NULL;
    o.resume = folder;
    check_failure(arena, &o, DTP_EINPUT, "the run ends at 1", 10);
    o.steps = 2;
    snprintf(path, sizeof path, "%s/step-000001/rank-00000.bin", folder);
    char was = put(path, 2000, "\xff", 1);
    if (was == '\xff')
        (void)put(path, 2000, "", 1);
    check_failure(arena, &o, DTP_EINPUT, "checksum", 10);
    (void)put(path, 2000, &was, 1);
    struct dtp_model wide = model;
    wide.layers = 9;
    o.model = &wide;
    check_failure(arena, &o, DTP_EINPUT, "does not hold this model", 10);
    o.model = &model;
    (void)put(path, n_at, &most, sizeof most);
    check_failure(arena, &o, DTP_EINPUT, "not a checkpoint of dtplan, or damaged", 10);
    snprintf(path, sizeof path, "%s/step-000001/manifest", folder);
    (void)put(path, (long)strlen("dtplan-checkpoint 1\nstep 1\nranks 1\nseed 1\nupdates "), "-", 1);
    check_failure(arena, &o, DTP_EINPUT, "step-000001/manifest: not a manifest", 10);
    remove_tree(folder);
}

int main(void) {
    CU_TestInfo tests[] = {{"same layout", test_resume_on_the_same_layout_is_exact},
                           {"another layout", test_resume_on_another_layout},
                           {"a long path", test_a_long_path},
                           {"another seed", test_another_seed_is_refused},
                           {"damaged", test_a_damaged_checkpoint_is_refused},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"checkpoints", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    model = tiny_model("gpt");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
