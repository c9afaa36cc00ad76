/* Legality against the rules once more, over all plans of small worlds. */
#include <CUnit/Basic.h>

#include "models/evaluate/evaluate.h"
#include "models/schedule/schedule.h"
#include "tests/plan_world.h"
#include "tests/suites.h"

static const char *const one_schedule[] = {"1f1b", NULL};

static bool divides(int a, int b) {
    return b % a == 0;
}

/* The rules again, as one plain sentence each, for even splits on the world above. */
static bool plainly_legal(const struct world *w, const struct dtp_plan *p) {
    const struct dtp_model *m = &w->model;
    const struct dtp_framework *f = &w->framework;
    int stages = p->pp * p->vpp, ranks = p->dp * p->cp, etp = p->etp > 0 ? p->etp : p->tp;
    bool ok = p->tp * p->pp * p->dp * p->cp == w->problem.gpus;
    ok = ok && divides(p->microbatch_size * p->dp, p->global_batch_size);
    ok = ok && (p->zero_stage == 0 || ranks > 1) && (f->can.zero_stages & 1 << p->zero_stage);
    ok = ok && (p->zero_stage == 0 || p->pp == 1 || (f->can.zero_stages_pp & 1 << p->zero_stage));
    ok = ok && (p->zero_stage == 0 || p->tp == 1 || (f->can.zero_stages_tp & 1 << p->zero_stage));
    ok = ok && (f->can.recompute_modes & 1 << p->recompute);
    if (m->nconvs > 0)
        return ok && p->tp == 1 && p->cp == 1 && p->ep == 1 && etp == 1 && stages == 1 &&
               !p->sequence_parallel && p->recompute == 0 && p->schedule == DTP_SCHED_1F1B;
    ok = ok && divides(p->tp, m->heads) && divides(p->tp, m->ffn) && divides(p->tp, m->hidden);
    ok = ok && (divides(p->tp, m->kv_heads) || divides(m->kv_heads, p->tp));
    ok = ok && (m->moe.experts == 0 ||
                (f->can.has_ep && divides(etp, m->moe.ffn) && divides(etp * p->ep, p->tp * ranks)));
    ok = ok && (m->moe.experts == 0 || p->tp == 1 || p->sequence_parallel ||
                !f->can.has_sequence_parallel);
    ok = ok && (etp == p->tp || m->moe.experts > 0);
    ok = ok &&
         (p->ep == 1 || (f->can.has_ep && m->moe.experts > 0 && divides(p->ep, m->moe.experts)));
    ok = ok && (!p->sequence_parallel || (f->can.has_sequence_parallel && p->tp > 1 &&
                                          divides(p->tp * p->cp, w->problem.seq)));
    ok = ok && (p->cp == 1 || (f->can.has_cp && divides(2 * p->cp, w->problem.seq)));
    ok = ok && stages <= m->layers;
    ok = ok && (divides(stages, m->layers) || (f->can.uneven_stages && p->vpp == 1));
    ok = ok && (p->pp > 1 || (p->vpp == 1 && p->schedule == DTP_SCHED_1F1B));
    ok = ok && (p->vpp > 1) == (p->schedule == DTP_SCHED_INTERLEAVED);
    bool listed = p->pp == 1;
    for (int i = 0; f->can.schedules[i]; i++)
        listed = listed || p->schedule == dtp_schedule_find(f->can.schedules[i]);
    return ok && listed &&
           (p->vpp == 1 || divides(p->pp, p->global_batch_size / p->microbatch_size / p->dp));
}

static void grow_moe(struct world *w) {
    w->model.moe.experts = 8;
    w->model.moe.ffn = 48;
    w->framework.can.expert_tp = DTP_EXPERT_TP_ANY;
    w->model.layers = 15;
}
static void grow_limits(struct world *w) {
    w->framework.can.uneven_stages = w->framework.can.has_cp = false;
    w->framework.can.has_sequence_parallel = false;
    w->framework.can.schedules = one_schedule;
    w->framework.can.zero_stages = 3;
    w->framework.can.recompute_modes = 5;
    w->model.layers = 10;
}
static void grow_conv(struct world *w) {
    w->model.nconvs = 3;
    w->model.layers = 0;
}
static void grow_odd(struct world *w) {
    w->problem.gpus = 24;
    w->problem.seq = 60;
    w->model.layers = 16;
}

static const int microbatches[] = {1, 2, 3, 4}, batches[] = {24, 64};

/* All values of the inner fields for fixed degrees; differences are counted. */
static void count_inner(const struct world *w, struct dtp_plan p, int *legal, int *different) {
    for (int i = 0; i < 4 * 2 * 4 * 3 * 4 * 2; i++) {
        int k = i;
        p.zero_stage = k % 4;
        k /= 4;
        p.sequence_parallel = k % 2;
        k /= 2;
        p.schedule = k % 4;
        k /= 4;
        p.recompute = (enum dtp_recompute)(k % 3);
        k /= 3;
        p.microbatch_size = microbatches[k % 4];
        k /= 4;
        p.global_batch_size = batches[k];
        bool plain = plainly_legal(w, &p);
        *legal += plain;
        *different += plain != (dtp_plan_check(&w->problem, &p) == DTP_LEGAL);
    }
}

/* All ep, etp and vpp of one (tp, pp, cp); dp follows. */
static void count_degrees(const struct world *w, const int degrees[3], int *legal, int *different) {
    struct dtp_plan p = dtp_plan_default();
    p.tp = degrees[0];
    p.pp = degrees[1];
    p.cp = degrees[2];
    if (!divides(p.tp * p.pp * p.cp, w->problem.gpus))
        return;
    p.dp = w->problem.gpus / (p.tp * p.pp * p.cp);
    for (int k = 0; k < 36; k++) {
        p.ep = 1 << k / 3 % 3;
        p.etp = (1 << k / 9) / 2; /* 0, 1, 2, 4 */
        p.vpp = 1 + k % 3;
        count_inner(w, p, legal, different);
    }
}

static void count_world(void (*grow)(struct world *w), int at_least) {
    struct world w;
    int legal = 0, different = 0;
    world_init(&w);
    if (grow)
        grow(&w);
    for (int tp = 1; tp <= 16; tp++)
        for (int pp = 1; pp <= 16; pp++)
            for (int cp = 1; cp <= 8; cp *= 2)
                count_degrees(&w, (const int[]){tp, pp, cp}, &legal, &different);
    CU_ASSERT(different == 0);
    CU_ASSERT(legal >= at_least);
}

static void test_count(void) {
    count_world(NULL, 1000);
    count_world(grow_moe, 1000);
    count_world(grow_limits, 50);
    count_world(grow_conv, 10);
    count_world(grow_odd, 1000);
}

int main(void) {
    CU_TestInfo tests[] = {{"legality by an independent count", test_count}, CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"plan count", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
