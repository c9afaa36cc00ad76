/* From a trace to the model: published traces whose model is known, and timelines of our own simulation,
 * whose answer is exact. */
#include <CUnit/Basic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/schedule/schedule.h"
#include "planner/setup.h"
#include "tests/suites.h"
#include "traces/replay/infer.h"
#include "traces/tasks/tasks_simulated.h"

static struct dtp_arena *arena;
static char folder[] = "/tmp/dtp_infer_XXXXXX";

#ifndef DTP_SOURCE_DIR
#define DTP_SOURCE_DIR "."
#endif
#define TRACES DTP_SOURCE_DIR "/../shared/traces/"

static bool infer(const char *const *paths, size_t n, struct dtp_inferred *out) {
    struct dtp_trace trace;
    struct dtp_err err = {0};
    if (access(paths[0], R_OK) !=
        0) /* one of the samples of ../shared, which not every checkout has */
        return false;
    if (dtp_trace_load(arena, paths, n, NULL, &trace, &err) != DTP_OK) {
        printf("\n  %s\n", err.msg);
        CU_FAIL_FATAL("load");
    }
    dtp_infer(arena, &trace, out);
    return true;
}

struct fact {
    enum dtp_infer_field field;
    int64_t value;
};

static void check(const struct dtp_inferred *in, const struct fact *fact, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const struct dtp_guess *g = &in->at[fact[i].field];
        bool good = g->known && g->value == fact[i].value && g->confidence > 0 && g->evidence[0];
        if (!good)
            printf("\n  %s: %lld, expected %lld (%s)\n", dtp_infer_words[fact[i].field],
                   g->known ? (long long)g->value : -1LL, (long long)fact[i].value,
                   g->evidence ? g->evidence : "");
        CU_ASSERT(good);
    }
}
#define CHECK(in, facts) check(in, facts, sizeof facts / sizeof *facts)

static void test_fsdp(void) {
    static const char *const paths[] = {TRACES "kineto-h200-2rank/k_fsdp2_rank0.json.gz",
                                        TRACES "kineto-h200-2rank/k_fsdp2_rank1.json.gz"};
    static const struct fact facts[] = {
        {DTP_INFER_LAYERS, 6},     {DTP_INFER_HIDDEN, 2048},    {DTP_INFER_HEADS, 16},
        {DTP_INFER_FFN, 8192},     {DTP_INFER_GATED, 0},        {DTP_INFER_NORM, 0},
        {DTP_INFER_ROPE, 0},       {DTP_INFER_VOCAB, 51200},    {DTP_INFER_SEQ, 1024},
        {DTP_INFER_MICROBATCH, 4}, {DTP_INFER_MICROBATCHES, 1}, {DTP_INFER_TP, 1},
        {DTP_INFER_PP, 1},         {DTP_INFER_DP, 2},           {DTP_INFER_ZERO, 3},
        {DTP_INFER_RECOMPUTE, 0},  {DTP_INFER_DTYPE, DTP_BF16}, {DTP_INFER_TRAINS, 1}};
    struct dtp_inferred in;
    struct dtp_infer_model m;
    struct dtp_err err = {0};
    if (!infer(paths, 2, &in))
        return;
    CHECK(&in, facts);
    CU_ASSERT(strcmp(in.framework, "torch-fsdp2") == 0 && in.gpus == 2);
    CU_ASSERT_FATAL(dtp_infer_complete(arena, &in, &m, &err) == DTP_OK);
    CU_ASSERT(m.plan.dp == 2 && m.plan.zero_stage == 3 && m.plan.global_batch_size == 8);
    struct dtp_param_counts n;
    dtp_model_params(&m.model, m.model.vocab, &n);
    CU_ASSERT(n.dense_layer == 50358272); /* what the units of the trace hold */
}

static void test_pipeline(void) {
    static const char *const paths[] = {TRACES "kineto-h200-2rank/k_pp_rank0.json.gz",
                                        TRACES "kineto-h200-2rank/k_pp_rank1.json.gz"};
    static const struct fact facts[] = {
        {DTP_INFER_LAYERS, 8},    {DTP_INFER_HIDDEN, 2048},
        {DTP_INFER_HEADS, 16},    {DTP_INFER_FFN, 8192},
        {DTP_INFER_GATED, 1},     {DTP_INFER_NORM, 1},
        {DTP_INFER_ROPE, 1},      {DTP_INFER_VOCAB, 32000},
        {DTP_INFER_SEQ, 1024},    {DTP_INFER_MICROBATCH, 2},
        {DTP_INFER_PP, 2},        {DTP_INFER_MICROBATCHES, 4},
        {DTP_INFER_RECOMPUTE, 0}, {DTP_INFER_SCHEDULE, DTP_SCHED_1F1B},
        {DTP_INFER_DP, 1},        {DTP_INFER_TP, 1}};
    struct dtp_inferred in;
    if (infer(paths, 2, &in))
        CHECK(&in, facts);
}

static void test_others(void) {
    static const char *const bert[] = {
        TRACES "tracelens/h100__gaunernst_bert-small-uncased__1016001.json.gz"};
    static const struct fact bert_facts[] = {{DTP_INFER_LAYERS, 4}, {DTP_INFER_HIDDEN, 512},
                                             {DTP_INFER_HEADS, 8},  {DTP_INFER_FFN, 2048},
                                             {DTP_INFER_SEQ, 141},  {DTP_INFER_VOCAB, 30522},
                                             {DTP_INFER_TRAINS, 0}, {DTP_INFER_MICROBATCH, 1}};
    static const char *const block[] = {TRACES "tracelens/torch_compile_triton__trace.json.gz"};
    static const struct fact block_facts[] = {{DTP_INFER_LAYERS, 1}, {DTP_INFER_HIDDEN, 2048},
                                              {DTP_INFER_HEADS, 16}, {DTP_INFER_FFN, 8192},
                                              {DTP_INFER_SEQ, 4096}, {DTP_INFER_MICROBATCH, 8}};
    static const char *const b200[] = {TRACES "tracelens/b200__eager_trace.json.gz"};
    static const struct fact b200_facts[] = {{DTP_INFER_LAYERS, 36},   {DTP_INFER_HIDDEN, 2880},
                                             {DTP_INFER_HEADS, 64},    {DTP_INFER_KV_HEADS, 8},
                                             {DTP_INFER_HEAD_DIM, 64}, {DTP_INFER_TP, 8},
                                             {DTP_INFER_NORM, 1},      {DTP_INFER_VOCAB, 201088}};
    struct dtp_inferred in;
    if (infer(bert, 1, &in))
        CHECK(&in, bert_facts);
    if (infer(block, 1, &in))
        CHECK(&in, block_facts);
    if (infer(b200, 1, &in))
        CHECK(&in, b200_facts);
}

/* A trace without a transformer says so, and makes no model. */
static void test_none(void) {
    static const char *const paths[] = {DTP_SOURCE_DIR "/tests/fixtures/traces/job_rank0.json",
                                        TRACES "kineto-hta/nccl_parser_config__nccl_data.json.gz"};
    for (int i = 0; i < 2; i++) {
        struct dtp_inferred in;
        struct dtp_infer_model m;
        struct dtp_err err = {0};
        bool there = infer(&paths[i], 1, &in);
        CU_ASSERT(there || i > 0);
        if (!there)
            continue;
        CU_ASSERT(!in.at[DTP_INFER_HEADS].known && !in.at[DTP_INFER_LAYERS].known);
        CU_ASSERT(dtp_infer_complete(arena, &in, &m, &err) == DTP_ENO);
    }
}

/* Operators of one rank of two that divide the tensors: 8 heads of 64 with 4 for keys, an MLP of 2048 and 32,000
 * rows of the vocabulary are halves of what is inferred. Kernels of the activation and of the logits say the same. */
static void test_halves(void) {
    static const char *const op[][2] = {
        {"aten::embedding", "[[16000, 512], [2, 256]]"},
        {"aten::layer_norm", "[[2, 256, 512], [], [512], [512], [], []]"},
        {"aten::scaled_dot_product_attention",
         "[[2, 4, 256, 64], [2, 2, 256, 64], [2, 2, 256, 64]]"},
        {"aten::linear", "[[2, 256, 1024], [512, 1024], []]"},
        {"c10d::_allgather_base_", "[[2, 16000], [1, 16000], [], [], []]"}};
    static const struct fact facts[] = {{DTP_INFER_TP, 2},       {DTP_INFER_HEADS, 8},
                                        {DTP_INFER_FFN, 2048},   {DTP_INFER_KV_HEADS, 4},
                                        {DTP_INFER_HIDDEN, 512}, {DTP_INFER_VOCAB, 32000}};
    const char *path = dtp_arena_printf(arena, "%s/half.json", folder);
    FILE *f = fopen(path, "w");
    fputs("{\"distributedInfo\":{\"rank\":0,\"world_size\":2,\"pg_config\":[{\"pg_name\":\"1\","
          "\"pg_desc\":\"mesh_tp\",\"pg_size\":2,\"ranks\":[0,1]}]},\"traceEvents\":[",
          f);
    for (size_t i = 0; i < sizeof op / sizeof *op; i++)
        fprintf(
            f,
            "%s\n{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"%s\",\"pid\":1,\"tid\":1,\"ts\":%zu,"
            "\"dur\":5,\"args\":{\"Input Dims\":%s}}",
            i > 0 ? "," : "", op[i][0], 10 * i, op[i][1]);
    fputs("]}\n", f);
    fclose(f);
    struct dtp_inferred in;
    CU_ASSERT_FATAL(infer(&path, 1, &in));
    CHECK(&in, facts);
}

/* ---- our own ---- */

struct own_case {
    const char *model, *cluster;
    int tp, pp, dp, vpp, schedule, zero, microbatch, batch, recompute;
    bool sp, no_fold;
};

static void check_own(const struct own_case *c) {
    struct dtp_ask ask = {.model = c->model,
                          .cluster = c->cluster,
                          .gpus = c->tp * c->pp * c->dp,
                          .batch = c->batch,
                          .seq = 1024,
                          .dtype = -1,
                          .attention = -1};
    struct dtp_setup *setup = DTP_NEW(arena, struct dtp_setup, 1);
    struct dtp_err err = {0};
    struct dtp_plan plan = dtp_plan_default();
    CU_ASSERT_FATAL(dtp_setup_init(arena, &ask, setup, &err) == DTP_OK);
    plan.tp = c->tp;
    plan.pp = c->pp;
    plan.dp = c->dp;
    plan.vpp = c->vpp;
    plan.schedule = c->schedule;
    plan.zero_stage = c->zero;
    plan.microbatch_size = c->microbatch;
    plan.global_batch_size = c->batch;
    plan.recompute = (enum dtp_recompute)c->recompute;
    plan.sequence_parallel = c->sp;
    plan.dtype = setup->problem.dtype;
    CU_ASSERT_FATAL(dtp_plan_check(&setup->problem, &plan) == DTP_LEGAL);
    struct dtp_simulate_options how = {.no_fold = c->no_fold, .detail = DTP_DETAIL_OP};
    struct dtp_result result;
    struct dtp_tasks *tasks;
    struct dtp_evaluator *ev = dtp_evaluator_create(arena, &setup->problem);
    CU_ASSERT_FATAL(dtp_tasks_simulate(arena, ev, &plan, &how, &result, &tasks, &err) == DTP_OK);
    dtp_evaluator_destroy(ev);
    const char *path = dtp_arena_printf(arena, "%s/own.json", folder);
    CU_ASSERT_FATAL(dtp_tasks_write(arena, tasks, path, &err) == DTP_OK);
    struct dtp_inferred in;
    if (!infer(&path, 1, &in))
        CU_FAIL_FATAL("own.json");
    const struct dtp_model *m = &setup->model;
    const struct fact facts[] = {{DTP_INFER_LAYERS, m->layers},
                                 {DTP_INFER_HIDDEN, m->hidden},
                                 {DTP_INFER_HEADS, m->heads},
                                 {DTP_INFER_KV_HEADS, m->kv_heads},
                                 {DTP_INFER_FFN, m->ffn},
                                 {DTP_INFER_GATED, m->gated_ffn},
                                 {DTP_INFER_SEQ, 1024},
                                 {DTP_INFER_TP, c->tp},
                                 {DTP_INFER_PP, c->pp},
                                 {DTP_INFER_DP, c->dp},
                                 {DTP_INFER_VPP, c->vpp},
                                 {DTP_INFER_SCHEDULE, c->schedule},
                                 {DTP_INFER_ZERO, c->zero},
                                 {DTP_INFER_MICROBATCH, c->microbatch},
                                 {DTP_INFER_MICROBATCHES, c->batch / c->dp / c->microbatch},
                                 {DTP_INFER_RECOMPUTE, c->recompute},
                                 {DTP_INFER_SEQUENCE_PARALLEL, c->sp}};
    size_t n = sizeof facts / sizeof *facts;
    check(&in, facts, c->tp > 1 ? n : n - 1); /* without tp there is none */
    CU_ASSERT(in.gpus == ask.gpus);
}

static void test_own(void) {
    static const struct own_case cases[] = {
        {"llama2-7b", "dgx-a100-80", 2, 4, 2, 2, DTP_SCHED_INTERLEAVED, 1, 1, 32, 2, false, false},
        {"llama2-7b", "dgx-h100", 4, 2, 2, 1, DTP_SCHED_1F1B, 0, 2, 32, 0, true, false},
        {"gpt3-1.3b", "dgx-a100-80", 2, 2, 2, 1, DTP_SCHED_GPIPE, 1, 1, 8, 0, true, true},
        {"llama3-8b", "dgx-h100", 4, 1, 2, 1, DTP_SCHED_1F1B, 1, 1, 8, 0, true, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_own(&cases[i]);
}

static int remove_folder(void) {
    remove(dtp_arena_printf(arena, "%s/half.json", folder));
    remove(dtp_arena_printf(arena, "%s/own.json", folder));
    return rmdir(folder);
}

int main(void) {
    CU_TestInfo tests[] = {{"FSDP2, GPT-2", test_fsdp},
                           {"1F1B, Llama", test_pipeline},
                           {"BERT, a compiled block, a served model", test_others},
                           {"no transformer", test_none},
                           {"one rank of two that divide tensors", test_halves},
                           {"our own simulations", test_own},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"infer", NULL, remove_folder, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    if (!mkdtemp(folder))
        return 1;
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
