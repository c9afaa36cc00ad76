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

/* Trains `steps` steps and saves each of them in a new folder, whose name goes to `folder`. */
static struct dtp_run_options saved(char *folder, const struct dtp_model *m, int steps) {
    struct dtp_run_options o = tiny_options(m);
    struct dtp_run_result r;
    struct dtp_err err = {0};
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
    o.steps = steps;
    o.save = folder;
    o.save_every = 1;
    CU_ASSERT_EQUAL_FATAL(dtp_run(arena, &o, &r, &err), DTP_OK);
    o.save = NULL;
    o.resume = folder;
    o.steps = steps + 1;
    return o;
}

static void shell(const char *folder, const char *command) {
    CU_ASSERT_EQUAL_FATAL(system(dtp_arena_printf(arena, "cd '%s' && %s", folder, command)), 0);
}

/* A file of another step or model is named as such, wherever it comes from. */
static void test_a_file_of_another_run_is_refused(void) {
    char folder[] = "/tmp/dtplan-test-XXXXXX", other[] = "/tmp/dtplan-test-XXXXXX";
    struct dtp_model relu = model;
    relu.activation = DTP_ACT_RELU;
    struct dtp_run_options o = saved(folder, &model, 2);
    (void)saved(other, &relu, 2);
    shell(folder, "mkdir keep && cp step-000002/* keep && cp step-000001/*.bin step-000002");
    check_failure(arena, &o, DTP_EINPUT,
                  "rank-00000.bin: it is of another run or step: step is 1, the manifest says 2",
                  10);
    shell(folder, dtp_arena_printf(arena, "cp %s/step-000002/*.bin step-000002", other));
    check_failure(
        arena, &o, DTP_EINPUT,
        "training.model.activation is relu, the manifest says gelu; step 1 is whole: go on "
        "from it with --resume",
        10);
    shell(folder, dtp_arena_printf(arena, "cp %s/step-000002/* step-000002", other));
    check_failure(arena, &o, DTP_EINPUT,
                  "saved by a run with model.activation relu, this one has model.activation gelu",
                  10);
    shell(folder, "cp keep/* step-000002 && printf x >> step-000002/rank-00000.bin");
    check_failure(arena, &o, DTP_EINPUT, "cut short", 10);
    remove_tree(folder);
    remove_tree(other);
}

/* What would train something else, field by field; and a batch that would move the place in the data. */
static void test_another_training_is_refused(void) {
    char folder[] = "/tmp/dtplan-test-XXXXXX";
    struct dtp_run_options good = saved(folder, &model, 1), o = good;
    o.plan.global_batch_size = 16;
    check_failure(arena, &o, DTP_EINPUT, "with batch 8, this one has batch 16", 10);
    o = good;
    o.seq = 8;
    check_failure(arena, &o, DTP_EINPUT, "with seq 16, this one has seq 8", 10);
    o = good;
    o.beta2 = 0.999;
    check_failure(arena, &o, DTP_EINPUT, "with optimizer.beta2 0.95, this one has", 10);
    o = good;
    o.dropout = 0.1;
    check_failure(arena, &o, DTP_EINPUT, "with dropout.hidden 0, this one has", 10);
    o = good; /* rates and layout may change */
    o.lr = 0.001;
    o.plan.dp = 2;
    struct dtp_run_result r;
    CU_ASSERT_EQUAL(dtp_run(arena, &o, &r, NULL), DTP_OK);
    remove_tree(folder);
}

/* A damaged newest step: the run that is told how to go on does. */
static void test_an_older_step_is_offered(void) {
    char folder[] = "/tmp/dtplan-test-XXXXXX";
    struct dtp_run_options o = saved(folder, &model, 3);
    struct dtp_run_result r;
    const char *offer = dtp_arena_printf(
        arena, "; step 1 is whole: go on from it with --resume %s/step-000001", folder);
    shell(folder, "truncate -s -1 step-000003/rank-00000.bin && rm step-000002/rank-00000.bin");
    check_failure(arena, &o, DTP_EINPUT, offer, 10);
    shell(folder, "sed -i 's/\"updates\": 3/\"updates\": 2/' step-000003/manifest");
    check_failure(arena, &o, DTP_EINPUT, "the manifest is damaged", 10);
    shell(folder, "echo ../x > latest");
    check_failure(arena, &o, DTP_EINPUT, "latest: it does not name a step", 10);
    shell(folder, "rm latest");
    check_failure(arena, &o, DTP_EINPUT, offer, 10);
    o.resume = dtp_arena_printf(arena, "%s/step-000001", folder);
    CU_ASSERT_EQUAL(dtp_run(arena, &o, &r, NULL), DTP_OK);
    CU_ASSERT(r.first_step == 1 && r.steps == 3);
    remove_tree(folder);
}

static void test_an_earlier_version_is_refused(void) {
    char folder[] = "/tmp/dtplan-test-XXXXXX";
    struct dtp_run_options o = saved(folder, &model, 1);
    shell(folder, "printf 'dtplan-checkpoint 1\nstep 1\nranks 1\nseed 1\n' > step-000001/manifest");
    check_failure(arena, &o, DTP_EINPUT, "of an earlier version of dtplan", 10);
    remove_tree(folder);
}

/* Ends with 0 when DIR/latest has always named a step folder with a manifest, until DIR/stop exists. */
static void watch_newest(const char *folder) {
    char name[64], path[200], now[64];
    for (bool stop = false; !stop;) {
        snprintf(path, sizeof path, "%s/stop", folder);
        stop = access(path, F_OK) == 0;
        snprintf(path, sizeof path, "%s/latest", folder);
        for (int i = 0; i < 2; i++) {
            char *to = i == 0 ? name : now;
            FILE *f = fopen(path, "r");
            if (!f || !fgets(to, sizeof name, f))
                _exit(1);
            fclose(f);
            char manifest[200];
            snprintf(manifest, sizeof manifest, "%s/%.*s/manifest", folder, (int)strcspn(to, "\n"),
                     to);
            if (access(manifest, F_OK) == 0)
                break;
            if (i == 1 && strcmp(name, now) == 0) /* not replaced between both looks */
                _exit(1);
        }
    }
    _exit(0);
}

static void test_there_is_a_newest_step_at_any_time(void) {
    char folder[] = "/tmp/dtplan-test-XXXXXX";
    struct dtp_run_options o = saved(folder, &model, 1);
    struct dtp_run_result r;
    int how;
    fflush(NULL);
    pid_t watcher = fork();
    if (watcher == 0)
        watch_newest(folder);
    o.resume = NULL;
    o.save = folder;
    o.steps = 2;
    o.save_every = 1;
    for (int i = 0; i < 12; i++)
        CU_ASSERT_EQUAL(dtp_run(arena, &o, &r, NULL), DTP_OK);
    shell(folder, "touch stop");
    CU_ASSERT_EQUAL(waitpid(watcher, &how, 0), watcher);
    CU_ASSERT(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    shell(folder, "test $(ls -d step-* | wc -l) = 2"); /* one of each step is left */
    remove_tree(folder);
}

static void stay(void *context, int step, double loss, double step_s) {
    (void)loss, (void)step_s;
    if (step == 0)
        shell(context, "touch began && while [ ! -e stop ]; do sleep 0.02; done");
}

/* The second run on a folder is refused while the first trains, and not after its death. */
static void test_two_runs_on_one_folder(void) {
    char folder[] = "/tmp/dtplan-test-XXXXXX";
    struct dtp_run_options o = tiny_options(&model);
    struct dtp_run_result r;
    int how;
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
    o.steps = 1;
    o.save = folder;
    fflush(NULL);
    pid_t first = fork();
    if (first == 0) {
        o.progress = stay;
        o.progress_context = folder;
        _exit((int)dtp_run(arena, &o, &r, NULL));
    }
    shell(folder, "while [ ! -e began ]; do sleep 0.02; done");
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL(dtp_run(arena, &o, &r, &err), DTP_EINPUT);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, "another run saves its checkpoints here (process "));
    shell(folder, "touch stop");
    CU_ASSERT(waitpid(first, &how, 0) == first && how == 0);
    /* what a dead run left goes away, and its lock file does no harm */
    shell(folder, "mkdir .step-000007.tmp && touch .step-000007.tmp/rank-00003.bin");
    CU_ASSERT_EQUAL(dtp_run(arena, &o, &r, &err), DTP_OK);
    shell(folder, "test ! -e .step-000007.tmp");
    remove_tree(folder);
}

static void test_a_damaged_checkpoint_is_refused(void) {
    enum { HEADER = 4 * 4 + 88 + 6 * 8 }; /* its last field: how many values follow */
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
    char was = put(path, 100000, "\xff", 1);
    if (was == '\xff')
        (void)put(path, 100000, "", 1);
    check_failure(arena, &o, DTP_EINPUT, "checksum", 10);
    (void)put(path, 100000, &was, 1);
    struct dtp_model wide = model;
    wide.layers = 9;
    o.model = &wide;
    check_failure(arena, &o, DTP_EINPUT, "model.layers 8, this one has model.layers 9", 10);
    o.model = &model;
    uint32_t text_bytes = 0;
    FILE *f = fopen(path, "rb");
    CU_ASSERT(f && fseek(f, 4, SEEK_SET) == 0 && fread(&text_bytes, 4, 1, f) == 1);
    fclose(f);
    (void)put(path, 8 + (long)text_bytes + HEADER - 8, &most, sizeof most);
    check_failure(arena, &o, DTP_EINPUT, "not a checkpoint of dtplan, or damaged", 10);
    remove_tree(folder);
}

int main(void) {
    CU_TestInfo tests[] = {{"same layout", test_resume_on_the_same_layout_is_exact},
                           {"another layout", test_resume_on_another_layout},
                           {"a long path", test_a_long_path},
                           {"another seed", test_another_seed_is_refused},
                           {"file of another run", test_a_file_of_another_run_is_refused},
                           {"another training", test_another_training_is_refused},
                           {"older step", test_an_older_step_is_offered},
                           {"earlier version", test_an_earlier_version_is_refused},
                           {"newest step", test_there_is_a_newest_step_at_any_time},
                           {"two runs", test_two_runs_on_one_folder},
                           {"damaged", test_a_damaged_checkpoint_is_refused},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"checkpoints", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    model = tiny_model("gpt");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
