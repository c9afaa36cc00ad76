/* Series of scalars: Megatron's golden values give facts.json, event files of TensorBoard and lines of
 * four trainers give the numbers that were written. */
#include <CUnit/Basic.h>
#include <math.h>
#include <string.h>

#include "sim/base/units.h"
#include "tests/facts_case.h"
#include "tests/suites.h"
#include "traces/formats/logs.h"

static struct dtp_arena *arena;

static const char *corpus(const char *file) {
    return dtp_arena_printf(arena, "%s/tests/fuzz/corpus/%s", DTP_SOURCE_DIR, file);
}

static struct dtp_source *opened(const char *path) {
    struct dtp_source *s;
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL_FATAL(dtp_source_open(arena, path, &s, &err), DTP_OK);
    return s;
}

static void stats_of(const struct dtp_scalars *s, enum dtp_quantity q,
                     struct dtp_series_stats *out) {
    const struct dtp_series *series = dtp_scalars_find(s, q);
    CU_ASSERT_PTR_NOT_NULL_FATAL(series);
    dtp_series_stats(series, out);
}

static void check(const cJSON *fact, const char *key, double found, double tolerance) {
    const cJSON *j = cJSON_GetObjectItemCaseSensitive(fact, key);
    CU_ASSERT_PTR_NOT_NULL_FATAL(j);
    CU_ASSERT_DOUBLE_EQUAL(found, j->valuedouble, tolerance);
}

static void check_golden(const cJSON *fact) {
    struct dtp_scalars s;
    struct dtp_series_stats step, memory;
    struct dtp_err err = {0};
    const cJSON *tag;
    size_t tags = 0;
    struct dtp_source *source =
        opened(facts_path(arena, dtp_arena_printf(arena, "megatron/%s", fact->string)));
    CU_ASSERT_EQUAL_FATAL(dtp_golden_read(arena, source, &s, &err), DTP_OK);
    dtp_source_close(source);
    cJSON_ArrayForEach(tag, cJSON_GetObjectItemCaseSensitive(fact, "tags")) {
        CU_ASSERT_PTR_NOT_NULL(dtp_scalars_tag(&s, tag->valuestring));
        tags++;
    }
    CU_ASSERT_EQUAL(s.n, tags);
    const struct dtp_series *series = dtp_scalars_find(&s, DTP_QUANTITY_STEP_S);
    CU_ASSERT_PTR_NOT_NULL_FATAL(series);
    check(fact, "n", (double)series->n, 0);
    check(fact, "n_nan", (double)series->nan, 0);
    stats_of(&s, DTP_QUANTITY_STEP_S, &step);
    check(fact, "first_iter_s", step.first, 1e-12);
    check(fact, "median_after_warmup_s", step.median, 1e-12);
    check(fact, "min_s", step.min, 1e-12);
    check(fact, "max_s", step.max, 1e-12);
    stats_of(&s, DTP_QUANTITY_PEAK_BYTES, &memory);
    check(fact, "mem_max_alloc_last", memory.last, 0);
}

static void golden_samples(void) {
    size_t checked = 0;
    const cJSON *fact;
    cJSON *facts = facts_load(arena);
    if (!facts)
        return;
    cJSON_ArrayForEach(fact, cJSON_GetObjectItemCaseSensitive(
                                 facts, "other")) if (strstr(fact->string, "golden")) {
        check_golden(fact);
        checked++;
    }
    CU_ASSERT_EQUAL(checked, 5);
    cJSON_Delete(facts);
}

/* "nan" in quotes and bare NaN are values without a number, not errors. */
static void golden_nan(void) {
    struct dtp_scalars s;
    struct dtp_series_stats step;
    struct dtp_err err = {0};
    struct dtp_source *source = opened(corpus("fuzz_golden/26_nan_golden.json"));
    CU_ASSERT_EQUAL_FATAL(dtp_golden_read(arena, source, &s, &err), DTP_OK);
    dtp_source_close(source);
    CU_ASSERT_EQUAL_FATAL(s.n, 1);
    CU_ASSERT_EQUAL(s.series[0].n, 3);
    CU_ASSERT_EQUAL(s.series[0].nan, 2);
    dtp_series_stats(&s.series[0], &step);
    CU_ASSERT_EQUAL(step.n, 1);
    CU_ASSERT_DOUBLE_EQUAL(step.median, 8.5, 0);
}

/* Written by tensorboardX: five steps of three tags and a text, in 17 records. */
static void event_file(void) {
    struct dtp_scalars s;
    struct dtp_series_stats step, loss;
    struct dtp_err err = {0};
    struct dtp_source *source = opened(corpus("fuzz_events/titan.tfevents"));
    dtp_scalars_init(arena, &s);
    CU_ASSERT_EQUAL(dtp_events_checksum((const unsigned char *)"123456789", 9),
                    ((0xe3069283u >> 15) | (0xe3069283u << 17)) +
                        0xa282ead8u); /* RFC 3720's check */
    enum dtp_status status = dtp_events_read(arena, source, &s, &err);
    if (status != DTP_OK)
        printf("\n  %s", err.msg);
    CU_ASSERT_EQUAL_FATAL(status, DTP_OK);
    dtp_source_close(source);
    CU_ASSERT_EQUAL(s.n, 3);
    stats_of(&s, DTP_QUANTITY_STEP_S, &step);
    CU_ASSERT_EQUAL(step.n, 5);
    CU_ASSERT_DOUBLE_EQUAL(step.first, 8, 0);
    CU_ASSERT_DOUBLE_EQUAL(step.median, 1 + 3.5 / 64, 1e-12);
    CU_ASSERT_EQUAL(dtp_scalars_find(&s, DTP_QUANTITY_STEP_S)->at[4].step, 5);
    stats_of(&s, DTP_QUANTITY_LOSS, &loss);
    CU_ASSERT_DOUBLE_EQUAL(loss.last, 12 - 5 / 4.0, 0);
    stats_of(&s, DTP_QUANTITY_RESERVED_BYTES, &loss);
    CU_ASSERT_DOUBLE_EQUAL(loss.max, 20.5 * DTP_GIB, 0);
}

static void event_file_damaged(void) {
    static const char *const files[][2] = {{"fuzz_events/cut.tfevents", "the file ends inside"},
                                           {"fuzz_events/flipped.tfevents", "checksum of record"}};
    for (int i = 0; i < 2; i++) {
        struct dtp_scalars s;
        struct dtp_err err = {0};
        struct dtp_source *source = opened(corpus(files[i][0]));
        dtp_scalars_init(arena, &s);
        CU_ASSERT_EQUAL(dtp_events_read(arena, source, &s, &err), DTP_EINPUT);
        CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, files[i][1]));
        dtp_source_close(source);
    }
}

static void read_log(const char *file, enum dtp_log_dialect dialect, struct dtp_log *out) {
    struct dtp_err err = {0};
    struct dtp_source *source = opened(corpus(file));
    enum dtp_status status = dtp_log_read(arena, source, out, &err);
    if (status != DTP_OK)
        printf("\n  %s", err.msg);
    CU_ASSERT_EQUAL_FATAL(status, DTP_OK);
    dtp_source_close(source);
    CU_ASSERT_EQUAL(out->dialect, dialect);
}

static double value(const struct dtp_log *log, enum dtp_quantity q, size_t i) {
    const struct dtp_series *series = dtp_scalars_find(&log->scalars, q);
    CU_ASSERT_PTR_NOT_NULL_FATAL(series);
    CU_ASSERT_TRUE_FATAL(i < series->n);
    return series->at[i].value;
}

static void megatron(void) {
    struct dtp_log log;
    struct dtp_series_stats step;
    read_log("fuzz_logs/megatron.log", DTP_LOG_MEGATRON, &log);
    CU_ASSERT_EQUAL(log.steps_of, 100);
    stats_of(&log.scalars, DTP_QUANTITY_STEP_S, &step);
    CU_ASSERT_EQUAL(step.n, 3);
    CU_ASSERT_DOUBLE_EQUAL(step.median, 1.155, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(value(&log, DTP_QUANTITY_FLOPS_PER_GPU, 0), 12.5e12, 1);
    CU_ASSERT_DOUBLE_EQUAL(value(&log, DTP_QUANTITY_LOSS, 2), 9.5, 0);
    CU_ASSERT_DOUBLE_EQUAL(value(&log, DTP_QUANTITY_SEQUENCES, 0), 64, 0);
}

static void nanotron(void) {
    struct dtp_log log;
    read_log("fuzz_logs/nanotron.log", DTP_LOG_NANOTRON, &log);
    CU_ASSERT_EQUAL(log.steps_of, 20);
    CU_ASSERT_DOUBLE_EQUAL(value(&log, DTP_QUANTITY_STEP_S, 0), 9.5, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(value(&log, DTP_QUANTITY_STEP_S, 1), 0.95, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(value(&log, DTP_QUANTITY_TOKENS, 1), 1.05e6, 1e-6);
    CU_ASSERT_DOUBLE_EQUAL(value(&log, DTP_QUANTITY_TOKENS_PER_S_PER_GPU, 1), 138e3, 1e-6);
    CU_ASSERT_DOUBLE_EQUAL(value(&log, DTP_QUANTITY_HARDWARE_FLOPS_PER_GPU, 1), 490.5e12, 1);
    CU_ASSERT_TRUE(isnan(value(&log, DTP_QUANTITY_GRADIENT_NORM, 1)));
}

static void torchtitan(void) {
    struct dtp_log log;
    read_log("fuzz_logs/torchtitan.log", DTP_LOG_TORCHTITAN, &log);
    CU_ASSERT_EQUAL(log.lines[DTP_LOG_TORCHTITAN], 3);
    CU_ASSERT_DOUBLE_EQUAL(value(&log, DTP_QUANTITY_STEP_S, 0), 2, 1e-6);
    CU_ASSERT_DOUBLE_EQUAL(value(&log, DTP_QUANTITY_STEP_S, 1), 1.95, 1e-6);
    CU_ASSERT_DOUBLE_EQUAL(value(&log, DTP_QUANTITY_TOKENS_PER_S_PER_GPU, 0), 12345, 0);
    CU_ASSERT_DOUBLE_EQUAL(value(&log, DTP_QUANTITY_MFU, 1), 0.456, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(value(&log, DTP_QUANTITY_RESERVED_BYTES, 1), 20.5 * DTP_GIB, 1);
    CU_ASSERT_EQUAL(dtp_scalars_find(&log.scalars, DTP_QUANTITY_LOSS)->nan, 1);
}

static void deepspeed(void) {
    struct dtp_log log;
    read_log("fuzz_logs/deepspeed.log", DTP_LOG_DEEPSPEED, &log);
    CU_ASSERT_DOUBLE_EQUAL(value(&log, DTP_QUANTITY_STEP_S, 0), 0.332, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(value(&log, DTP_QUANTITY_STEP_S, 1), 0.320, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(value(&log, DTP_QUANTITY_SEQUENCES_PER_S, 1), 25.5, 0);
    CU_ASSERT_DOUBLE_EQUAL(value(&log, DTP_QUANTITY_PEAK_BYTES, 1), 20.75 * DTP_GIB, 1);
    const struct dtp_series *average = dtp_scalars_tag(&log.scalars, "RunningAvgSamplesPerSec");
    CU_ASSERT_PTR_NOT_NULL_FATAL(average);
    CU_ASSERT_FALSE(isfinite(average->at[0].value)); /* -inf before the first report */
}

/* Words that people use: NeMo, Hugging Face, a line of one's own; not of evaluations, nor any time. */
static void others(void) {
    struct dtp_log log;
    read_log("fuzz_logs/others.log", DTP_LOG_OTHER, &log);
    CU_ASSERT_EQUAL(log.lines[DTP_LOG_OTHER], 4);
    const struct dtp_series *step = dtp_scalars_find(&log.scalars, DTP_QUANTITY_STEP_S);
    CU_ASSERT_PTR_NOT_NULL_FATAL(step);
    CU_ASSERT_EQUAL(step->n, 2);
    CU_ASSERT_EQUAL(step->at[0].step, 9);
    CU_ASSERT_DOUBLE_EQUAL(step->at[1].value, 9.5, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(value(&log, DTP_QUANTITY_SEQUENCES_PER_S, 0), 12.2, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(value(&log, DTP_QUANTITY_STEPS_PER_S, 0), 0.5, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(value(&log, DTP_QUANTITY_PEAK_BYTES, 0), 61 * DTP_GIB, 1);
    step = dtp_scalars_tag(&log.scalars, "step time");
    CU_ASSERT_PTR_NOT_NULL_FATAL(step);
    CU_ASSERT_EQUAL(step->at[0].step, 12);
    CU_ASSERT_DOUBLE_EQUAL(step->at[0].value, 0.82, 1e-12);
    step = dtp_scalars_tag(&log.scalars, "data_time (ms)");
    CU_ASSERT_PTR_NOT_NULL_FATAL(step);
    CU_ASSERT_EQUAL(step->quantity, DTP_QUANTITY_OTHER);
}

/* Rows of nccl-tests between lines of a trainer: words of the ones are no series of the others. */
static void mixed(void) {
    static const char text[] = "8 2 float sum -1 164.3 0.00 0.01 0 163.3 0.00 0.02 0\n"
                               "lr: 1 | train_step_timing in s: 2\n"
                               "lr: 2 | train_step_timing in s: 3\n";
    struct dtp_source *s;
    struct dtp_log log;
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL_FATAL(dtp_source_memory(arena, "text", text, strlen(text), &s, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(dtp_log_read(arena, s, &log, &err), DTP_OK);
    dtp_source_close(s);
    CU_ASSERT_EQUAL(log.nccl.n, 1);
    CU_ASSERT_DOUBLE_EQUAL(value(&log, DTP_QUANTITY_STEP_S, 1), 3, 1e-12);
    CU_ASSERT_PTR_NULL(dtp_scalars_tag(&log.scalars, "float"));
}

static void no_log(void) {
    struct dtp_source *s;
    struct dtp_log log;
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL_FATAL(dtp_source_memory(arena, "text", "nothing\nof it\n", 14, &s, &err),
                          DTP_OK);
    CU_ASSERT_EQUAL(dtp_log_read(arena, s, &log, &err), DTP_EINPUT);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, "in 2 lines"));
    dtp_source_close(s);
}

int main(void) {
    CU_TestInfo tests[] = {{"golden values give facts.json", golden_samples},
                           {"golden values that are NaN", golden_nan},
                           {"an event file of TensorBoard", event_file},
                           {"damaged event files are refused", event_file_damaged},
                           {"Megatron", megatron},
                           {"nanotron", nanotron},
                           {"torchtitan", torchtitan},
                           {"DeepSpeed", deepspeed},
                           {"others", others},
                           {"two sorts of lines", mixed},
                           {"no log", no_log},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"scalars", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
