/* Memory of our own runtime: what is added step by step, over a part of the microbatches, is what walking
 * each tensor of each action of the whole step gives, to the byte and item by item. */
#include <CUnit/Basic.h>
#include <stdio.h>
#include <string.h>

#include "models/memory/memory.h"
#include "models/memory/memory_internal.h"
#include "planner/space.h"
#include "tests/runtime_cases.h"
#include "tests/suites.h"

static void walk_rank(struct dtp_arena *a, const struct dtp_problem *problem,
                      const struct dtp_plan *p, const struct dtp_schedule *s, int rank,
                      struct walk *w) {
    struct chunk *chunk = DTP_NEW(a, struct chunk, (size_t)p->vpp);
    const struct dtp_action *end = s->action + s->begin[rank + 1];
    dtp_walk_begin(problem, p, w);
    for (int c = 0; c < p->vpp; c++)
        dtp_walk_chunk(a, problem, w, dtp_schedule_kinds[s->kind].stage(s->pp, s->vpp, rank, c),
                       &chunk[c]);
    int sent[2] = {0}, held = dtp_schedule_sends_held(s->kind, s->pp, s->m);
    for (const struct dtp_action *x = s->action + s->begin[rank]; x < end; x++) {
        bool send = x->kind == DTP_A_SEND_F || x->kind == DTP_A_SEND_B;
        if (!send || sent[x->kind == DTP_A_SEND_B]++ >= held) /* the first ones release none */
            dtp_walk_act(w, &chunk[x->chunk], x, end);
    }
}

static bool same(const struct dtp_stage_memory *m, const struct walk *w) {
    const uint64_t items[NITEMS] = {
        [WEIGHTS] = m->weights_bytes,     [GRADIENTS] = m->gradients_bytes,
        [OPTIMIZER] = m->optimizer_bytes, [ACTIVATIONS] = m->activations_bytes,
        [LOGITS] = m->logits_bytes,       [BUFFERS] = m->buffers_bytes};
    for (int i = 0; i < NITEMS; i++)
        if (items[i] != (uint64_t)w->at_peak[i])
            return false;
    return m->device_bytes == (uint64_t)w->peak;
}

static void compare(const struct dtp_problem *problem, const struct dtp_plan *p) {
    struct dtp_arena *a = dtp_arena_create("walk");
    struct dtp_stage_memory *stages = DTP_NEW(a, struct dtp_stage_memory, (size_t)p->pp);
    struct dtp_memory_memo *memo = dtp_memory_memo_create(a, problem);
    struct dtp_schedule_passes passes = dtp_walk_passes(p);
    struct dtp_schedule compute, s;
    uint64_t worst_bytes = 0;
    CU_ASSERT_EQUAL_FATAL(dtp_schedule_make(a, p->schedule, p->pp, p->vpp,
                                            dtp_plan_num_microbatches(p), &compute, NULL),
                          DTP_OK);
    CU_ASSERT_EQUAL_FATAL(dtp_schedule_complete(a, &compute, &passes, &s, NULL), DTP_OK);
    dtp_memory(memo, p, stages);
    for (int rank = 0; rank < p->pp; rank++) {
        struct walk w;
        walk_rank(a, problem, p, &s, rank, &w);
        CU_ASSERT(same(&stages[rank], &w));
        if (!same(&stages[rank], &w))
            printf("\n    %s: rank %d %llu, walked %lld\n", dtp_plan_flags(a, p), rank,
                   (unsigned long long)stages[rank].device_bytes, (long long)w.peak);
        worst_bytes = (uint64_t)w.peak > worst_bytes ? (uint64_t)w.peak : worst_bytes;
    }
    CU_ASSERT_EQUAL(dtp_memory_device_bytes(memo, p), worst_bytes);
    dtp_arena_destroy(a);
}

/* Every legal plan: `layers` that divide into the stages and that do not, microbatches fewer than ranks and
 * many more. Returns how many plans have more microbatches than are walked. */
static int compare_all(const char *framework_name, const char *family, int layers, int gpus,
                       int batch) {
    struct dtp_arena *a = dtp_arena_create("test");
    struct dtp_model m = tiny_model(family);
    struct dtp_cluster cluster;
    struct dtp_framework framework;
    struct dtp_err err = {0};
    bool cuda = strcmp(framework_name, "dtplan-cuda") == 0;
    m.layers = layers;
    CU_ASSERT_EQUAL_FATAL(dtp_cluster_load(a, cuda ? "dgx-h100" : "cpu", &cluster, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(dtp_framework_load(a, framework_name, &framework, &err), DTP_OK);
    struct dtp_problem problem = {.model = &m,
                                  .cluster = &cluster,
                                  .framework = &framework,
                                  .gpus = gpus,
                                  .seq = 16,
                                  .global_batch = batch,
                                  .memory_limit_bytes = (uint64_t)1 << 40,
                                  .attention = -1,
                                  .dtype = cuda ? DTP_BF16 : DTP_FP32};
    struct dtp_limits limits = dtp_limits_none();
    struct dtp_space space;
    limits.fixed.dtype = problem.dtype;
    dtp_space_init(a, &problem, &limits, &space);
    int longer = 0;
    for (uint64_t i = 0; i < space.ncandidates; i++) {
        struct dtp_plan p;
        dtp_space_candidate(&space, i, &p);
        if (dtp_plan_check(&problem, &p) != DTP_LEGAL)
            continue;
        compare(&problem, &p);
        longer += dtp_plan_num_microbatches(&p) > 4 * p.pp;
    }
    dtp_arena_destroy(a);
    return longer;
}

static void test_cpu(void) {
    CU_ASSERT(compare_all("dtplan", "gpt", 12, 4, 30) > 100);
    compare_all("dtplan", "llama", 7, 4, 4);
}

static void test_cuda(void) {
    CU_ASSERT(compare_all("dtplan-cuda", "llama", 12, 8, 120) > 300);
    compare_all("dtplan-cuda", "gpt", 16, 8, 16);
}

int main(void) {
    CU_TestInfo tests[] = {{"CPU ranks", test_cpu}, {"on GPUs", test_cuda}, CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"native walk", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
