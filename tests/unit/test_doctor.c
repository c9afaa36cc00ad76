/* The doctor: what people type, the expected range, suspects that explain a gap they made. */
#include <CUnit/Basic.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/doctor.h"
#include "tests/suites.h"

static struct dtp_arena *arena;

static struct dtp_setup *setup(void) {
    struct dtp_setup *s = DTP_NEW(arena, struct dtp_setup, 1);
    struct dtp_ask ask = {.model = "gpt3-6.7b", .gpus = 16, .dtype = -1, .attention = -1};
    struct dtp_err err = {0};
    if (dtp_setup_init(arena, &ask, s, &err) != DTP_OK) {
        printf("\n  %s\n", err.msg);
        CU_FAIL_FATAL("dtp_setup_init");
    }
    return s;
}

static struct dtp_plan plan_of(const struct dtp_setup *s) {
    struct dtp_plan p = dtp_plan_default();
    p.tp = 2;
    p.dp = 8;
    p.zero_stage = 1;
    p.global_batch_size = s->problem.global_batch;
    p.dtype = s->problem.dtype;
    return p;
}

/* step = FLOPs / (rate x GPUs) = tokens / (tokens/s) = FLOPs / (MFU x peak x GPUs) */
static void test_parse(void) {
    struct dtp_setup *s = setup();
    const struct dtp_problem *p = &s->problem;
    double flops = 3 * dtp_model_forward_flops(p->model, p->seq) * p->global_batch;
    double tokens = (double)p->seq * p->global_batch,
           peak = p->cluster->gpu.peak_flops_per_s[p->dtype];
    struct dtp_measured m;
    CU_ASSERT(dtp_measured_parse("3.5s", p, &m, NULL) == DTP_OK && m.step_s == 3.5);
    CU_ASSERT(dtp_measured_parse("820ms", p, &m, NULL) == DTP_OK && fabs(m.step_s - 0.82) < 1e-12);
    CU_ASSERT(dtp_measured_parse("150TF", p, &m, NULL) == DTP_OK &&
              fabs(m.step_s * 150e12 * 16 / flops - 1) < 1e-12);
    CU_ASSERT(dtp_measured_parse("150 TFLOP/s", p, &m, NULL) == DTP_OK &&
              fabs(m.step_s * 150e12 * 16 / flops - 1) < 1e-12);
    CU_ASSERT(dtp_measured_parse("50%", p, &m, NULL) == DTP_OK &&
              fabs(m.step_s * 0.5 * peak * 16 / flops - 1) < 1e-12);
    CU_ASSERT(dtp_measured_parse("20k tok/s, 61GiB", p, &m, NULL) == DTP_OK &&
              fabs(m.step_s * 20000 / tokens - 1) < 1e-12 &&
              m.peak_bytes == 61.0 * 1024 * 1024 * 1024);
    CU_ASSERT(dtp_measured_parse("global_step=1, CurrSamplesPerSec=24.5, MaxMemAllocated=-20.5GB",
                                 p, &m, NULL) == DTP_OK &&
              m.step_s > 0 && m.peak_bytes == 0);
    CU_ASSERT(dtp_measured_parse("110TF,61 GB", p, &m, NULL) == DTP_OK && m.peak_bytes == 61e9);
    CU_ASSERT(dtp_measured_parse("step: 5  memory: 41.5GiB(52.5%)  loss: 3", p, &m, NULL) ==
                  DTP_OK &&
              m.step_s == 0 && m.peak_bytes == 41.5 * 1024 * 1024 * 1024);
    CU_ASSERT(dtp_measured_parse("memory: 41.5", p, &m, NULL) == DTP_EUSAGE); /* it lacks a unit */
    CU_ASSERT(dtp_measured_parse("step: 3.2s, reserved memory: 61GiB", p, &m, NULL) == DTP_OK &&
              m.step_s == 3.2 && m.peak_bytes == 61.0 * 1024 * 1024 * 1024);
    CU_ASSERT(dtp_measured_parse("step: 3, data_time (ms): 5, info: information", p, &m, NULL) ==
              DTP_EUSAGE); /* not each time of a log is that of a step */
    CU_ASSERT(dtp_measured_parse("global_step=1, CurrSamplesPerSec=24.5, MemAllocated=10.25GB, "
                                 "MaxMemAllocated=20.5GB",
                                 p, &m, NULL) == DTP_OK &&
              m.peak_bytes == 20.5 * 1024 * 1024 * 1024); /* called GB, divided by 2^30 */
    CU_ASSERT(dtp_measured_parse("loss: 3, lr: 2", p, &m, NULL) == DTP_EUSAGE);
    CU_ASSERT(dtp_measured_parse("-3s", p, &m, NULL) == DTP_EUSAGE);
    CU_ASSERT(dtp_measured_parse("fast", p, &m, NULL) == DTP_EUSAGE);
    CU_ASSERT(dtp_measured_parse("0TF", p, &m, NULL) == DTP_EUSAGE);
    CU_ASSERT(dtp_measured_parse("1e-320TF", p, &m, NULL) == DTP_EUSAGE); /* an endless step */
    CU_ASSERT(dtp_measured_parse("1e308GiB", p, &m, NULL) == DTP_EUSAGE);
    CU_ASSERT(dtp_measured_parse("", p, &m, NULL) == DTP_EUSAGE);
}

/* If a bracket stays open, no byte after the text is read. */
static void test_open_bracket(void) {
    struct dtp_measured m;
    char *open = strdup("a label that is long (in: 3");
    CU_ASSERT(dtp_measured_parse(open, &setup()->problem, &m, NULL) == DTP_EUSAGE);
    free(open);
}

/* As people say it: text, and the step. */
struct said {
    const char *text;
    double step_s;
};

static void check_said(const struct said *said, size_t n) {
    struct dtp_measured m;
    for (size_t i = 0; i < n; i++) {
        enum dtp_status status = dtp_measured_parse(said[i].text, &setup()->problem, &m, NULL);
        if (status != DTP_OK || fabs(m.step_s / said[i].step_s - 1) > 1e-12)
            printf("%s: %g s, expected %g\n", said[i].text, m.step_s, said[i].step_s);
        CU_ASSERT(status == DTP_OK && fabs(m.step_s / said[i].step_s - 1) < 1e-12);
    }
}

static void test_words(void) {
    const struct dtp_problem *p = &setup()->problem;
    double flops = dtp_step_flops(p), tokens = (double)p->seq * p->global_batch,
           peak = p->cluster->gpu.peak_flops_per_s[p->dtype];
    const struct said said[] = {
        {"38% MFU", flops / (0.38 * peak * 16)},
        {"MFU: 38 %", flops / (0.38 * peak * 16)},
        {"mfu 0.38", flops / (0.38 * peak * 16)},
        {"3.2 s", 3.2},
        {"step time 3.2 sec", 3.2},
        {"3200 ms/step", 3.2},
        {"0.8 s/it", 0.8},
        {"2 it/s", 0.5},
        {"0.5 steps per second", 2},
        {"110 TFLOPs", flops / (110e12 * 16)},
        {"110 TFLOP/s/GPU", flops / (110e12 * 16)},
        {"110 TFLOPS per GPU", flops / (110e12 * 16)},
        {"2000 tok/s/gpu", tokens / (2000 * 16)},
        {"2,000 tokens per second per GPU", tokens / (2000 * 16)},
        {"12k tps", tokens / 12000},
        {"5 samples/s", p->global_batch / 5.0},
        /* as logs say it: Megatron-LM, torchtitan, DeepSpeed, Hugging Face, NeMo, nanotron */
        {"elapsed time per iteration (ms): 5123.4", 5.1234},
        {"throughput per GPU (TFLOP/s/GPU): 110", flops / (110e12 * 16)},
        {"tps: 5,762", tokens / 5762},
        {"tokens per second per device: 2000", tokens / (2000 * 16)},
        {"~3.2s", 3.2},
        {"tok/s = 12k", tokens / 12000},
        {"TFLOPS: 110", flops / (110e12 * 16)},
        {"tokens/s/GPU=2000", tokens / (2000 * 16)},
        {"train_steps_per_second: 0.5", 2},
        {" [2024-05-01 12:00:01] iteration 100/ 5000 | consumed samples: 51200 | elapsed time per "
         "iteration (ms): 1123.4 | throughput per GPU (TFLOP/s/GPU): 402.3 | global batch size:   "
         "512 | "
         "lm loss: 7.123456E+00 | loss scale: 1.0 | grad norm: 1.234 |",
         1.1234},
        {"[titan] 2025-01-01 12:00:00,000 - root - INFO - step: 20  loss: 10.1234  memory: "
         "47.71GiB(60.30%)  tps: 6,667  mfu: 38%",
         flops / (0.38 * peak * 16)},
        {"{'train_runtime': 123.4, 'train_samples_per_second': 12.2, 'train_steps_per_second': "
         "0.5, "
         "'loss': 2.3}",
         2},
        {"lr: 2.7e-06 | global_step: 9 | reduced_train_loss: 10.9 | train_step_timing in s: 9.71",
         9.71},
        {"iteration: 6 / 20 | consumed_tokens: 12.6M | tokens_per_sec: 41.5K | loss: 9.97 |",
         tokens / 41500}};
    check_said(said, sizeof said / sizeof said[0]);
}

/* What whole logs say. */
static void test_logs(void) {
    const struct dtp_problem *p = &setup()->problem;
    double tokens = (double)p->seq * p->global_batch;
    const struct said said[] = {
        {"iteration: 2 / 20 | elapsed_time_per_iteration_ms: 9.5K | tokens_per_sec: 1.1M |", 9.5},
        {"[INFO] [Rank 0] time (ms) | fwd: 100.50 | bwd: 201.00 | bwd_inner: 160.00 | step: 30.50",
         0.332},
        {"epoch=0/micro_step=2/global_step=1, RunningAvgSamplesPerSec=-inf, "
         "CurrSamplesPerSec=24.5, "
         "MemAllocated=10.25GB, MaxMemAllocated=20.5GB",
         p->global_batch / 24.5},
        {"2025-01-01 12:00:00,000 - step: 10  loss: 3.1  tps: 6,667\n"
         "2025-01-01 12:00:15,000 - step: 20  loss: 3.0  tps: 6,667",
         1.5},
        {"step: 20  loss: 3.0  tps: 6,667", tokens / (6667 * 16)},
        {"step time: 820 ms, peak memory: 61 GiB", 0.82}};
    check_said(said, sizeof said / sizeof said[0]);
}

/* A measurement equal to the prediction is normal; one made by a suspect names it first. */
static void test_diagnosis(void) {
    struct dtp_setup *s = setup();
    struct dtp_plan p = plan_of(s);
    struct dtp_measured none = {0};
    struct dtp_diagnosis *d = DTP_NEW(arena, struct dtp_diagnosis, 2);
    CU_ASSERT_FATAL(dtp_doctor(arena, s, &p, &none, &d[0], NULL) == DTP_OK);
    CU_ASSERT(d[0].step_normal && d[0].peak_normal && d[0].n > 5);
    CU_ASSERT(d[0].low_s <= d[0].expected.step_s && d[0].expected.step_s <= d[0].high_s);
    struct dtp_measured same = {.step_s = d[0].expected.step_s};
    CU_ASSERT(dtp_doctor(arena, s, &p, &same, &d[1], NULL) == DTP_OK && d[1].step_normal);
    struct dtp_measured crawl = {.step_s = 100 * d[0].expected.step_s};
    CU_ASSERT(dtp_doctor(arena, s, &p, &crawl, &d[1], NULL) == DTP_OK && !d[1].step_normal);
    struct dtp_measured rush = {.step_s = d[0].expected.step_s / 100};
    CU_ASSERT(dtp_doctor(arena, s, &p, &rush, &d[1], NULL) == DTP_OK && !d[1].step_normal);
    double clocks = 0; /* most of the step is products, which take 1 / 0.8 as long */
    for (int i = 0; i < d[0].n; i++)
        if (strstr(d[0].suspect[i].what, "0.8 of their clock"))
            clocks = d[0].suspect[i].step_s / d[0].expected.step_s;
    CU_ASSERT(clocks > 1.12 && clocks < 1.25);
    for (int i = 0; i < d[0].n; i++) {
        struct dtp_measured made = {.step_s = d[0].suspect[i].step_s};
        if (fabs(made.step_s / d[0].expected.step_s - 1) < 0.01)
            continue;
        CU_ASSERT_FATAL(dtp_doctor(arena, s, &p, &made, &d[1], NULL) == DTP_OK);
        CU_ASSERT(fabs(d[1].suspect[0].explained - 1) < 1e-9);
        CU_ASSERT(d[1].suspect[0].step_s == made.step_s);
    }
}

/* A stack without runs: the range of three stacks in four, not that of the one with the most rows. */
static void test_unknown_stack(void) {
    struct dtp_accuracy known, unknown;
    struct dtp_err err = {0};
    CU_ASSERT_FATAL(dtp_accuracy_of(arena, "nanotron", "H100", false, &known, &err) == DTP_OK);
    CU_ASSERT_FATAL(dtp_accuracy_of(arena, "no such stack", "H100", false, &unknown, &err) ==
                    DTP_OK);
    CU_ASSERT_STRING_EQUAL(known.framework, "nanotron");
    CU_ASSERT_STRING_EQUAL(unknown.framework, "");
    CU_ASSERT(unknown.rows > known.rows);
    CU_ASSERT(unknown.p90 > 0 && unknown.p90 < known.p90);
    /* five runs (torch-ddp on H100) are as good as none; a stack without peaks takes the others' */
    CU_ASSERT_FATAL(dtp_accuracy_of(arena, "torch-ddp", "H100", false, &known, &err) == DTP_OK);
    CU_ASSERT(!*known.framework && known.p90 == unknown.p90);
    CU_ASSERT_FATAL(dtp_accuracy_of(arena, "torch-fsdp1", "H100", false, &known, &err) == DTP_OK);
    CU_ASSERT(*known.framework && known.p90 < unknown.p90);
    CU_ASSERT(known.memory_rows == 0 && known.memory_p90 == unknown.memory_p90);
}

/* No run of NeMo with experts is validated: its range is that of a stack without runs. */
static void test_experts(void) {
    struct dtp_setup *s = DTP_NEW(arena, struct dtp_setup, 1);
    struct dtp_ask ask = {.model = "mixtral-8x7b",
                          .cluster = "h100",
                          .framework = "nemo",
                          .gpus = 16,
                          .dtype = -1,
                          .attention = -1};
    struct dtp_diagnosis *d = DTP_NEW(arena, struct dtp_diagnosis, 1);
    struct dtp_measured nothing = {0};
    struct dtp_accuracy unknown;
    struct dtp_plan p = dtp_plan_default();
    CU_ASSERT_FATAL(dtp_setup_init(arena, &ask, s, NULL) == DTP_OK);
    p.dp = 16;
    p.ep = 8;
    p.global_batch_size = 16;
    CU_ASSERT_FATAL(dtp_doctor(arena, s, &p, &nothing, d, NULL) == DTP_OK);
    CU_ASSERT_FATAL(dtp_accuracy_of(arena, "no such stack", "H100", false, &unknown, NULL) ==
                    DTP_OK);
    CU_ASSERT(!*d->accuracy.framework && d->accuracy.p90 == unknown.p90);
}

/* Llama 3 70B without recomputation has no room on 4 x 8 H100, GPT-2 has on any: what helps, and what explains,
 * comes first. */
static void test_out_of_memory(void) {
    static const struct {
        const char *model, *what;
        int tp, pp;
        bool normal;
    } cases[] = {{"llama3-70b", "full recomputation is on", 4, 8, true},
                 {"gpt2", NULL, 1, 1, false}};
    static const char *const said[] = {"OOM", "Out Of Memory",
                                       "torch.OutOfMemoryError: CUDA out of memory. Tried to"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dtp_setup *s = DTP_NEW(arena, struct dtp_setup, 1);
        struct dtp_ask ask = {
            .model = cases[i].model, .cluster = "h100", .gpus = 32, .dtype = -1, .attention = -1};
        struct dtp_diagnosis *d = DTP_NEW(arena, struct dtp_diagnosis, 1);
        struct dtp_measured m;
        struct dtp_plan p = dtp_plan_default();
        CU_ASSERT_FATAL(dtp_setup_init(arena, &ask, s, NULL) == DTP_OK);
        p.tp = cases[i].tp;
        p.pp = cases[i].pp;
        p.dp = 32 / (p.tp * p.pp);
        p.global_batch_size = s->problem.global_batch;
        CU_ASSERT_FATAL(dtp_measured_parse(said[i], &s->problem, &m, NULL) == DTP_OK);
        CU_ASSERT(m.out_of_memory && !(m.step_s > 0));
        CU_ASSERT_FATAL(dtp_doctor(arena, s, &p, &m, d, NULL) == DTP_OK);
        CU_ASSERT(d->peak_normal == cases[i].normal && d->may_run_out == cases[i].normal);
        CU_ASSERT(d->n > 0 && (!cases[i].what || !strcmp(d->suspect[0].what, cases[i].what)));
        for (int k = 0; k < d->n; k++) /* what does not help, or explain, is left out */
            CU_ASSERT((d->suspect[k].peak_bytes < (double)d->expected.device_bytes) ==
                      cases[i].normal);
    }
}

int main(void) {
    CU_TestInfo tests[] = {{"what people type", test_parse},
                           {"what people and logs say", test_words},
                           {"what logs say", test_logs},
                           {"an open bracket", test_open_bracket},
                           {"diagnosis", test_diagnosis},
                           {"a stack without runs", test_unknown_stack},
                           {"a model with experts", test_experts},
                           {"out of memory", test_out_of_memory},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"doctor", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
