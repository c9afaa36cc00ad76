/* Reports: why a plan lost, JSON that is read back, a line for each plan in CSV, flags that can be fed
 * back, text without colours and within its width. */
#include <CUnit/Basic.h>
#include <stdlib.h>
#include <string.h>

#include "planner/report.h"
#include "planner/document.h"
#include "sim/base/text.h"
#include "sim/base/units.h"
#include "tests/planner_case.h"
#include "tests/suites.h"

static struct dtp_arena *arena;

/* ---- why ---- */

static struct dtp_result step_of(double compute_s, double bubble_s, double tp_s, double gib) {
    struct dtp_result r = {
        .breakdown = {.compute_s = compute_s, .pp_bubble_s = bubble_s, .tp_exposed_s = tp_s},
        .device_bytes = (uint64_t)(gib * DTP_GIB)};
    r.step_s = compute_s + bubble_s + tp_s;
    return r;
}

static void why(const struct dtp_result *best, struct dtp_result other, const char *expected) {
    const char *found = dtp_report_why(arena, best, &other);
    CU_ASSERT_STRING_EQUAL(found, expected);
    if (strcmp(found, expected) != 0)
        printf("\n  found \"%s\", expected \"%s\"\n", found, expected);
}

static void test_why(void) {
    /* a step of 10 s: 1 % is 0.1 s */
    struct dtp_result best = step_of(8, 1, 1, 60);
    why(&best, step_of(8, 1.41, 1, 60), "+4.1 % pipeline bubble");
    why(&best, step_of(8.3, 1.4, 1, 60), "+4.0 % pipeline bubble, +3.0 % compute");
    why(&best, step_of(7.5, 1, 2, 60), "+10.0 % tp communication, -5.0 % compute");
    why(&best, step_of(7.99, 1, 2, 60), "+10.0 % tp communication");
    why(&best, step_of(8.1, 1.41, 1, 60),
        "+4.1 % pipeline bubble"); /* compute: less than a quarter */
    why(&best, step_of(8, 1, 1, 63.2), "as fast, needs 3.2 GiB more");
    why(&best, step_of(8, 1, 1, 60), "as fast");
}

/* The terms cover the struct: they sum to its sum. */
static void test_terms(void) {
    struct dtp_breakdown b = {0};
    double *at = (double *)&b, sum = 0;
    CU_ASSERT_EQUAL(sizeof b / sizeof(double), DTP_NTERMS);
    for (int i = 0; i < DTP_NTERMS; i++)
        at[i] = 1 << i;
    for (int i = 0; i < DTP_NTERMS; i++) {
        CU_ASSERT(dtp_term_words[i] != NULL);
        sum += dtp_breakdown_term(&b, i);
    }
    CU_ASSERT_EQUAL(sum, (1 << DTP_NTERMS) - 1);
}

/* ---- a whole search, printed ---- */

static const struct planner_case whole = {"gpt3-1.3b", "dgx-a100-80", "megatron-core", 16, 64, 0,
                                          8,           NULL};
static struct dtp_setup *setup;
static struct dtp_search found;
static struct dtp_report report;

static int prepare(void) {
    struct dtp_err err = {0};
    struct dtp_search_options options = {.jobs = 2, .every = true};
    setup = case_setup(arena, &whole);
    if (dtp_search(arena, &setup->problem, NULL, &options, &found, &err) != DTP_OK ||
        found.nresults < 2)
        return 1;
    dtp_report_explain(arena, &setup->problem, &found);
    report = (struct dtp_report){.setup = setup, .search = &found};
    return 0;
}

enum form { TEXT, COLOR, NARROW, JSON, CSV, HTML };

static const char *print(enum form form) {
    char *text;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    struct dtp_term t = {.file = f, .color = form == COLOR, .width = form == NARROW ? 80 : 100};
    switch (form) {
    case TEXT:
    case COLOR:
    case NARROW:
        dtp_report_text(arena, &t, &report);
        break;
    case JSON:
        dtp_report_json(arena, f, &report);
        break;
    case CSV:
        dtp_report_csv(arena, f, &report);
        break;
    case HTML:
        dtp_report_html(arena, f, &report);
        break;
    }
    fclose(f);
    const char *copy = dtp_arena_strdup(arena, text);
    free(text);
    return copy;
}

static int count(const char *text, const char *part) {
    int n = 0;
    for (const char *at = strstr(text, part); at; at = strstr(at + 1, part))
        n++;
    return n;
}

/* Columns of the widest line, that with the command to copy left out. */
static int widest(const char *text) {
    int most = 0, column = 0;
    bool command = false;
    for (; *text; text++) {
        if (column == 0)
            command = strncmp(text, "  dtplan simulate", 17) == 0;
        column = *text == '\n' ? 0 : column + (((unsigned char)*text & 0xc0) != 0x80);
        most = column > most && !command ? column : most;
    }
    return most;
}

static void test_text(void) {
    const char *text = print(TEXT), *color = print(COLOR), *narrow = print(NARROW);
    CU_ASSERT_EQUAL(count(text, "\033"), 0);
    CU_ASSERT(count(color, "\033[") > 10);
    CU_ASSERT(widest(text) <= 100);
    CU_ASSERT(widest(narrow) <= 80);
    static const char *const parts[] = {"gpt3-1.3b",
                                        "by default: --seq",
                                        "Best plan",
                                        "step time",
                                        "tokens/s",
                                        "TFLOP/s",
                                        "MFU",
                                        "days",
                                        "6TP/(nX)",
                                        "Where the step goes",
                                        "Memory of a GPU",
                                        "With ZeRO",
                                        "Next best",
                                        "Searched"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (!strstr(text, parts[i]))
            printf("\n  no \"%s\" in the report\n", parts[i]);
        CU_ASSERT(strstr(text, parts[i]) != NULL);
    }
    /* every runner-up that is shown has a reason */
    for (size_t i = 1; i < found.nresults; i++)
        CU_ASSERT(found.result[i].why_not != NULL);
}

static const struct dtp_json *member(const struct dtp_json *j, const char *key) {
    const struct dtp_json *m = dtp_json_get(j, key);
    if (!m)
        printf("\n  no \"%s\"\n", key);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    return m;
}

/* The fields that CLI.md promises; counts that sum; best = the first result. */
static void test_json(void) {
    static const char *const top[] = {"schema_version", "version",    "model", "cluster",
                                      "framework",      "gpus",       "seq",   "seed",
                                      "best",           "runners_up", "search"};
    const char *text = print(JSON);
    const struct dtp_json *j;
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL_FATAL(dtp_json_parse(arena, "out.json", text, strlen(text), &j, &err), DTP_OK);
    for (size_t i = 0; i < sizeof top / sizeof *top; i++)
        member(j, top[i]);
    const struct dtp_json *best = member(j, "best"), *search = member(j, "search");
    CU_ASSERT_EQUAL(dtp_json_number(member(best, "step_s")), found.result[0].step_s);
    const struct dtp_json *others = member(j, "runners_up");
    CU_ASSERT_EQUAL(dtp_json_size(others), found.nresults - 1);
    for (size_t i = 0; i < dtp_json_size(others); i++)
        member(dtp_json_at(others, i), "why_not");
    CU_ASSERT_EQUAL(dtp_json_number(member(search, "candidates")),
                    dtp_json_number(member(search, "illegal")) +
                        dtp_json_number(member(search, "over_memory")) +
                        dtp_json_number(member(search, "bounded")) +
                        dtp_json_number(member(search, "estimated")));
}

/* Days with failures = days / the part of the time that trains, where a failure is to be expected at all. */
static void test_training(void) {
    const struct dtp_result *best = &found.result[0];
    struct dtp_training none = dtp_report_training(&report, best);
    CU_ASSERT_DOUBLE_EQUAL(none.days, none.tokens / best->tokens_per_s / DTP_S_PER_DAY, 1e-9);
    CU_ASSERT_EQUAL(none.days_with_failures, none.days);
    CU_ASSERT_PTR_NULL(strstr(print(TEXT), "with failures"));

    double gpu_hours = none.days * 24 * setup->problem.gpus;
    report.failures = (struct dtp_failures){.gpu_hours_per_failure = gpu_hours / 10,
                                            .restart_s = 600,
                                            .checkpoint_s = 1800,
                                            .write_s = 5};
    struct dtp_training t = dtp_report_training(&report, best);
    CU_ASSERT_DOUBLE_EQUAL(t.goodput.failure_s, none.days * DTP_S_PER_DAY / 10, 1e-6);
    CU_ASSERT_DOUBLE_EQUAL(t.days_with_failures * t.goodput.fraction, t.days, 1e-9);
    CU_ASSERT(t.goodput.fraction > 0.5 && t.goodput.fraction < 1);
    CU_ASSERT_PTR_NOT_NULL(strstr(print(TEXT), "with failures"));
    CU_ASSERT_PTR_NOT_NULL(strstr(print(JSON), "\"checkpoint_every_s\": 1800"));

    report.failures.gpu_hours_per_failure = 2 * gpu_hours;
    CU_ASSERT_EQUAL(dtp_report_training(&report, best).days_with_failures, none.days);
    CU_ASSERT_PTR_NULL(strstr(print(TEXT), "with failures"));

    report.failures.gpu_hours_per_failure = gpu_hours / 1e6;
    CU_ASSERT_EQUAL(dtp_report_training(&report, best).days_with_failures, 0);
    CU_ASSERT_PTR_NOT_NULL(strstr(print(TEXT), "no progress"));
    report.failures.gpu_hours_per_failure =
        gpu_hours / 10; /* rare, but all time goes into checkpoints */
    report.failures.checkpoint_s = 0.001;
    CU_ASSERT_EQUAL(dtp_report_training(&report, best).days_with_failures, 0);
    CU_ASSERT_PTR_NOT_NULL(strstr(print(TEXT), "checkpoint takes 5.00 s"));
    report.failures = (struct dtp_failures){0};
}

static const char *temporary(const char *text) {
    char *path = dtp_arena_strdup(arena, "/tmp/dtplan_test_XXXXXX");
    int fd = mkstemp(path);
    CU_ASSERT_FATAL(fd >= 0);
    FILE *f = fdopen(fd, "w");
    fputs(text, f);
    fclose(f);
    return path;
}

/* The output of --json is a plan document: the same plan and, simulated again, the same time. */
static void test_document(void) {
    const char *path = temporary(print(JSON));
    struct dtp_document d;
    struct dtp_setup *again = DTP_NEW(arena, struct dtp_setup, 1);
    struct dtp_plan plan;
    struct dtp_result r;
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL_FATAL(dtp_document_read(arena, path, &d, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(dtp_setup_init(arena, &d.ask, again, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(dtp_document_plan(arena, &d, &again->problem, &plan, &err), DTP_OK);
    CU_ASSERT_EQUAL(dtp_plan_compare(&plan, &found.result[0].plan), 0);
    CU_ASSERT_EQUAL(again->problem.memory_limit_bytes, setup->problem.memory_limit_bytes);
    struct dtp_evaluator *ev = dtp_evaluator_create(arena, &again->problem);
    CU_ASSERT_EQUAL(dtp_evaluate(arena, ev, &plan, DTP_SIMULATE, NULL, &r, &err), DTP_OK);
    CU_ASSERT_EQUAL(r.step_s, found.result[0].step_s);
    dtp_evaluator_destroy(ev);
    remove(path);
}

static void document_says(const char *text, enum dtp_status status, const char *says) {
    const char *path = temporary(text);
    struct dtp_document d;
    struct dtp_setup *s = DTP_NEW(arena, struct dtp_setup, 1);
    struct dtp_plan plan;
    struct dtp_err err = {0};
    enum dtp_status got = dtp_document_read(arena, path, &d, &err);
    if (got == DTP_OK)
        got = dtp_setup_init(arena, &d.ask, s, &err);
    if (got == DTP_OK)
        got = dtp_document_plan(arena, &d, &s->problem, &plan, &err);
    CU_ASSERT_EQUAL(got, status);
    if (!strstr(err.msg, says))
        printf("\n  found \"%s\", expected \"%s\"\n", err.msg, says);
    CU_ASSERT(strstr(err.msg, says) != NULL);
    remove(path);
}

static void test_document_errors(void) {
    document_says("[]", DTP_EINPUT, "plan document");
    document_says("{\"schema_version\": 2, \"gpus\": 8}", DTP_EINPUT, "schema_version");
    document_says("{\"schema_version\": 1, \"gpus\": 8, \"modle\": \"gpt2\"}", DTP_EINPUT,
                  "did you mean \"model\"");
    document_says("{\"schema_version\": 1, \"gpus\": 8, \"model\": \"gpt2\"}", DTP_EINPUT,
                  "\"plan\"");
    document_says("{\"schema_version\": 1, \"gpus\": 8, \"plan\": {\"tp\": 2}}", DTP_EINPUT,
                  "\"model\"");
    document_says(
        "{\"schema_version\": 1, \"gpus\": 8, \"model\": \"gpt2\", \"plan\": {\"tq\": 2}}",
        DTP_EINPUT, "\"tp\"");
    document_says(
        "{\"schema_version\": 1, \"gpus\": 8, \"model\": \"gpt2\", \"plan\": {\"tp\": 5}}", DTP_ENO,
        "tp x cp x pp x dp");
    document_says("{\"schema_version\": 1, \"gpus\": 8, \"model\": \"gtp2\", \"plan\": {}}",
                  DTP_EINPUT, "gpt2");
    document_says("{\"schema_version\": 1, \"gpus\": 8, \"model\": \"gpt2\", \"dtype\": \"bf17\", "
                  "\"plan\": {}}",
                  DTP_EINPUT, "bf16");
    document_says("{\"schema_version\": 1, \"gpus\": 8, \"best\": null, \"model\": \"gpt2\"}",
                  DTP_EINPUT, "best");
}

static void test_csv(void) {
    const char *path = temporary(print(CSV));
    struct dtp_csv csv;
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL_FATAL(dtp_csv_read_file(arena, path, &csv, &err), DTP_OK);
    remove(path);
    CU_ASSERT_EQUAL(csv.nrows, found.space.ncandidates);
    uint64_t simulated = 0, illegal = 0, bad = 0;
    int verdict = dtp_csv_col(&csv, "verdict"), reason = dtp_csv_col(&csv, "reason");
    for (size_t i = 0; i < csv.nrows; i++) {
        const char *v = dtp_csv_get(&csv, i, verdict);
        simulated += strcmp(v, "simulated") == 0;
        illegal += strcmp(v, "illegal") == 0;
        bad += (strcmp(v, "illegal") == 0) != (dtp_csv_get(&csv, i, reason)[0] != '\0');
    }
    CU_ASSERT_EQUAL(simulated, found.counts.simulated);
    CU_ASSERT_EQUAL(illegal, found.counts.illegal);
    CU_ASSERT_EQUAL(bad, 0);
}

static void test_html(void) {
    const char *text = print(HTML);
    CU_ASSERT_EQUAL(count(text, "<svg"), 3);
    CU_ASSERT_EQUAL(count(text, "<svg"), count(text, "</svg>"));
    CU_ASSERT_EQUAL(count(text, "<script"), 0);
    CU_ASSERT_EQUAL(count(text, "http"), 0);
    CU_ASSERT(strstr(text, "</html>") != NULL);
    /* no experts: no column of theirs */
    CU_ASSERT(strstr(text, ">sp<") && !strstr(text, ">ep<") && strstr(text, ">limit "));
    CU_ASSERT(strstr(text, "1.32B parameters") != NULL);
}

static void test_flags(void) {
    const char *flags = dtp_report_flags(arena, setup, &found.result[0].plan);
    CU_ASSERT(strstr(flags, "--model gpt3-1.3b --gpus 16 --cluster dgx-a100-80") != NULL);
    CU_ASSERT(strstr(flags, "--memory-limit 8GiB") != NULL);
    CU_ASSERT(strstr(flags, "--batch 64") != NULL);
}

int main(void) {
    CU_TestInfo tests[] = {{"why a plan lost", test_why},
                           {"terms of a step", test_terms},
                           {"text", test_text},
                           {"JSON", test_json},
                           {"days of training", test_training},
                           {"JSON as a plan document", test_document},
                           {"documents with errors", test_document_errors},
                           {"CSV", test_csv},
                           {"HTML", test_html},
                           {"flags", test_flags},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"report", prepare, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
