/* The peak of memory is what runtime/NOTES.md says, to the byte: its tables are walked here, tensor by
 * tensor, for one pipeline stage under every ZeRO stage, recomputation and tensor parallelism. */
#include <CUnit/Basic.h>
#include <stdio.h>

#include "runtime/device/tensor_heap.h"
#include "tests/runtime_cases.h"
#include "tests/suites.h"

enum { E = 4 }; /* bytes of an element */

struct walk {
    const struct dtp_model *m;
    struct dtp_plan p;
    int64_t live, peak;
    int64_t T, H, HF, q, kv, u, f, V, probs; /* symbols of the README; H, HF, probs in bytes */
    int nunits, norm, head, first_layer;     /* indices of units */
    int64_t n[32];
    bool gathered[32], grads[32], drops;
};

static void take(struct walk *w, int64_t bytes) {
    w->live += (bytes + DTP_HEAP_ALIGN_BYTES - 1) / DTP_HEAP_ALIGN_BYTES * DTP_HEAP_ALIGN_BYTES;
    w->peak = w->live > w->peak ? w->live : w->peak;
}

static void give(struct walk *w, int64_t bytes) {
    w->live -= (bytes + DTP_HEAP_ALIGN_BYTES - 1) / DTP_HEAP_ALIGN_BYTES * DTP_HEAP_ALIGN_BYTES;
}

static void add_unit(struct walk *w, int64_t n) {
    w->n[w->nunits++] = (n + w->p.dp - 1) / w->p.dp * w->p.dp;
}

static void begin(struct walk *w, const struct dtp_model *m, const struct dtp_plan *p, int seq) {
    bool gpt = m->position == DTP_POS_LEARNED;
    int64_t h = m->hidden, t = p->tp;
    *w = (struct walk){.m = m, .p = *p, .T = (int64_t)p->microbatch_size * seq};
    w->HF = E * w->T * h;
    w->H = p->sequence_parallel ? w->HF / t : w->HF;
    w->q = m->heads / t * m->head_dim;
    w->kv = (m->kv_heads > t ? m->kv_heads / t : 1) * m->head_dim;
    w->f = m->ffn / t;
    w->u = m->gated_ffn ? 2 * w->f : w->f;
    w->V = (m->vocab + t - 1) / t;
    w->probs = E * p->microbatch_size * (m->heads / t) * (int64_t)seq * seq;
    int64_t layer = 2 * h + (w->q + 2 * w->kv) * h + h * w->q + w->u * h + w->f * h;
    if (gpt)
        layer += 2 * h + w->q + 2 * w->kv + h + w->f + h;
    add_unit(w, w->V * h);
    if (gpt)
        add_unit(w, (int64_t)m->max_positions * h);
    w->first_layer = w->nunits;
    for (int i = 0; i < m->layers; i++)
        add_unit(w, layer);
    w->norm = w->nunits;
    add_unit(w, gpt ? 2 * h : h);
    w->head = gpt ? 0 : w->nunits;
    if (!gpt)
        add_unit(w, w->V * h);
    take(w, E * (int64_t)seq * seq);
    take(w, 256);
    for (int i = 0; i < w->nunits; i++) {
        int64_t n = E * w->n[i], shard = n / w->p.dp, owned = p->zero_stage >= 1 ? shard : n;
        take(w, p->zero_stage >= 3 ? shard : n);
        take(w, p->zero_stage >= 2 ? shard : n);
        take(w, owned);
        take(w, owned);
    }
}

/* ---- ZeRO-2 and -3 ---- */

static void gather(struct walk *w, int unit) {
    if (w->p.zero_stage < 3 || w->gathered[unit])
        return;
    w->gathered[unit] = true;
    take(w, E * w->n[unit]);
}

static void need(struct walk *w, int unit, int direction) {
    int next = unit + direction;
    gather(w, unit);
    bool layer = next >= w->first_layer && next < w->norm;
    if (next < w->nunits && (direction > 0 || layer))
        gather(w, next);
}

static void used(struct walk *w, int unit) {
    if (w->gathered[unit])
        give(w, E * w->n[unit]);
    w->gathered[unit] = false;
}

static void reshard(struct walk *w) {
    for (int i = 0; i < w->nunits; i++)
        used(w, i);
}

static void need_grads(struct walk *w, int unit) {
    if (w->p.zero_stage >= 2 && !w->grads[unit])
        take(w, E * w->n[unit]);
    w->grads[unit] = true;
}

static void done(struct walk *w, int unit) {
    if (w->p.zero_stage < 2)
        return;
    take(w, E * w->n[unit] / w->p.dp);
    give(w, E * w->n[unit] / w->p.dp);
    give(w, E * w->n[unit]);
    w->grads[unit] = false;
}

/* ---- a layer ---- */

static void gathered_input(struct walk *w, bool there) {
    if (!w->p.sequence_parallel)
        return;
    if (there)
        take(w, w->HF);
    else
        give(w, w->HF);
}

/* Partial sums to this rank's part. */
static void reduced(struct walk *w) {
    if (!w->p.sequence_parallel)
        return;
    take(w, w->H);
    give(w, w->HF);
}

static int64_t stats(const struct walk *w) {
    return 2 * E * w->H / E / w->m->hidden;
}

static void layer_forward(struct walk *w, bool keep_all) {
    take(w, stats(w));
    take(w, w->H);
    gathered_input(w, true);
    take(w, E * w->T * (w->q + 2 * w->kv));
    gathered_input(w, false);
    take(w, w->probs);
    take(w, E * w->T * w->q);
    if (!keep_all && w->p.recompute == DTP_RECOMPUTE_SELECTIVE)
        give(w, w->probs);
    take(w, w->HF);
    reduced(w);
    take(w, stats(w));
    take(w, w->H);
    gathered_input(w, true);
    take(w, E * w->T * w->u);
    if (w->m->gated_ffn)
        gathered_input(w, false);
    take(w, E * w->T * w->f);
    if (!w->m->gated_ffn) /* GELU, the end of the GEMM */
        gathered_input(w, false);
    take(w, w->HF);
    reduced(w);
    if (keep_all || w->p.recompute != DTP_RECOMPUTE_FULL)
        return;
    const int64_t all[] = {stats(w),
                           w->H,
                           E * w->T * (w->q + 2 * w->kv),
                           w->probs,
                           E * w->T * w->q,
                           w->H,
                           stats(w),
                           w->H,
                           E * w->T * w->u,
                           E * w->T * w->f};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        give(w, all[i]);
}

/* The gradient that went through a dropout is a copy also without sequence parallelism. */
static void dropped(struct walk *w, bool there) {
    bool copy = w->drops, gathers = w->p.sequence_parallel;
    if (copy && there)
        take(w, w->H);
    gathered_input(w, there);
    if (copy && (there ? gathers : !gathers))
        give(w, w->H);
}

static void mlp_backward(struct walk *w) {
    dropped(w, true);
    give(w, E * w->T * w->f); /* after activation */
    take(w, E * w->T * w->f); /* its gradient */
    dropped(w, false);
    if (w->m->gated_ffn) {
        take(w, E * w->T * w->u);
        give(w, E * w->T * w->f);
    }
    give(w, E * w->T * w->u);
    gathered_input(w, true);
    gathered_input(w, false);
    give(w, w->H); /* norm 2 */
    take(w, w->HF);
    reduced(w);
    take(w, w->H); /* dx1 */
    give(w, w->H);
    give(w, E * w->T * w->u);
    give(w, w->H);
    give(w, stats(w));
    give(w, w->H); /* dout */
}

static void attention_backward(struct walk *w) {
    int64_t qkv = E * w->T * (w->q + 2 * w->kv);
    if (w->p.recompute == DTP_RECOMPUTE_SELECTIVE)
        take(w, w->probs);
    dropped(w, true);
    take(w, E * w->T * w->q);
    dropped(w, false);
    take(w, qkv);
    give(w, E * w->T * w->q);
    give(w, w->probs);
    give(w, qkv);
    give(w, E * w->T * w->q);
    gathered_input(w, true);
    gathered_input(w, false);
    give(w, w->H); /* norm 1 */
    take(w, w->HF);
    reduced(w);
    take(w, w->H); /* dx */
    give(w, w->H);
    give(w, qkv);
    give(w, w->H);
    give(w, stats(w));
    give(w, w->H); /* dx1 */
}

/* ---- a microbatch ---- */

static void forward(struct walk *w) {
    take(w, E * w->T);
    take(w, E * w->T);
    need(w, 0, 1);
    take(w, w->HF);
    used(w, 0);
    reduced(w);
    if (w->first_layer > 1) {
        need(w, 1, 1);
        used(w, 1);
    }
    for (int i = w->first_layer; i < w->norm; i++) {
        need(w, i, 1);
        layer_forward(w, false);
        used(w, i);
    }
    need(w, w->norm, 1);
    take(w, stats(w));
    take(w, w->H);
    used(w, w->norm);
    need(w, w->head, 1);
    gathered_input(w, true);
    take(w, E * w->T * w->V);
    gathered_input(w, false);
    used(w, w->head);
    take(w, 3 * E * w->T);
    reshard(w);
}

static void head_backward(struct walk *w) {
    need(w, w->head, -1);
    give(w, 3 * E * w->T);
    give(w, E * w->T);
    take(w, w->HF);
    used(w, w->head);
    need_grads(w, w->head);
    gathered_input(w, true);
    gathered_input(w, false);
    give(w, E * w->T * w->V);
    give(w, w->H);
    reduced(w);
    need(w, w->norm, -1);
    need_grads(w, w->norm);
    take(w, w->H);
    used(w, w->norm);
    give(w, w->H);
    give(w, w->H);
    give(w, stats(w));
    done(w, w->norm);
    if (w->head != 0)
        done(w, w->head);
}

static void backward(struct walk *w) {
    head_backward(w);
    for (int i = w->norm - 1; i >= w->first_layer; i--) {
        need(w, i, -1);
        need_grads(w, i);
        if (w->p.recompute == DTP_RECOMPUTE_FULL) {
            layer_forward(w, true);
            give(w, w->H);
        }
        mlp_backward(w);
        attention_backward(w);
        used(w, i);
        done(w, i);
    }
    need_grads(w, 0);
    gathered_input(w, true);
    gathered_input(w, false);
    if (w->first_layer > 1)
        need_grads(w, 1);
    give(w, w->H);
    give(w, E * w->T);
    for (int i = 0; i < w->first_layer; i++)
        done(w, i);
    reshard(w);
}

/* ---- against the runtime ---- */

static int check(const struct dtp_model *m, const struct dtp_plan *plan, double dropout) {
    struct dtp_arena *a = dtp_arena_create("test");
    struct dtp_run_options o = tiny_options(m);
    struct dtp_run_result r;
    struct dtp_err err = {0};
    struct walk w;
    o.plan = *plan;
    o.steps = 1;
    o.dropout = o.attention_dropout = dropout;
    if (dtp_run_check(&o, NULL) != DTP_OK) {
        dtp_arena_destroy(a);
        return 0;
    }
    begin(&w, m, plan, o.seq);
    w.drops = dropout > 0;
    int64_t live = w.live;
    forward(&w);
    backward(&w);
    CU_ASSERT_EQUAL(w.live, live); /* nothing is left */
    CU_ASSERT_EQUAL_FATAL(dtp_run(a, &o, &r, &err), DTP_OK);
    for (int rank = 0; rank < r.nranks; rank++)
        CU_ASSERT_EQUAL(r.peak_bytes[rank], (uint64_t)w.peak);
    if (r.peak_bytes[0] != (uint64_t)w.peak)
        printf("\n    %s %s: %llu, by the README %lld\n", m->name, dtp_plan_flags(a, plan),
               (unsigned long long)r.peak_bytes[0], (long long)w.peak);
    dtp_arena_destroy(a);
    return 1;
}

static void check_family(const char *family) {
    struct dtp_model m = tiny_model(family);
    int ran = 0;
    for (int variant = 0; variant < 4 * 3 * 3 * 2; variant++) {
        struct dtp_plan p = tiny_options(&m).plan;
        int how = variant / 12 % 3; /* no tp, tp, tp with sequence parallelism */
        p.zero_stage = variant % 4;
        p.recompute = (enum dtp_recompute)(variant / 4 % 3);
        p.microbatch_size = variant / 36 ? 4 : 1;
        p.tp = how ? 2 : 1;
        p.sequence_parallel = how == 2;
        p.dp = p.zero_stage > 0 ? 2 : 1;
        ran += check(&m, &p, variant % 5 == 0 ? 0.1 : 0); /* 5 meets all settings in turn */
    }
    CU_ASSERT_EQUAL(ran, 72);
}

static void test_gpt(void) {
    check_family("gpt");
}

static void test_llama(void) {
    check_family("llama");
}

int main(void) {
    CU_TestInfo tests[] = {{"GPT", test_gpt}, {"Llama", test_llama}, CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"memory", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
