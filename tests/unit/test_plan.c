/* Plans: order, layers, text and JSON. */
#include <CUnit/Basic.h>
#include <stdlib.h>
#include <string.h>

#include "models/schedule/schedule.h"
#include "models/plan/plan.h"
#include "sim/base/rng.h"
#include "sim/base/text.h"
#include "tests/plan_world.h"
#include "tests/suites.h"

static struct dtp_arena *arena;

static struct dtp_plan random_plan(struct dtp_rng *r) {
    struct dtp_plan p = dtp_plan_default();
    p.tp = 1 << dtp_rng_below(r, 3);
    p.pp = 1 + (int)dtp_rng_below(r, 3);
    p.dp = 1 + (int)dtp_rng_below(r, 2);
    p.cp = 1 + (int)dtp_rng_below(r, 2);
    p.ep = 1 + (int)dtp_rng_below(r, 2);
    p.vpp = 1 + (int)dtp_rng_below(r, 2);
    p.zero_stage = (int)dtp_rng_below(r, 4);
    p.zero_group = (int)dtp_rng_below(r, 3);
    p.sequence_parallel = dtp_rng_below(r, 2) == 1;
    p.recompute = (enum dtp_recompute)dtp_rng_below(r, 3);
    p.recompute_modules = (int)dtp_rng_below(r, 1 << DTP_NMODULES);
    p.recompute_layers = (int)dtp_rng_below(r, 2);
    p.schedule = (int)dtp_rng_below(r, DTP_NSCHEDULES);
    p.account_for_ends = dtp_rng_below(r, 2) == 1;
    p.last_stage_less = (int)dtp_rng_below(r, 3);
    p.microbatch_size = 1 + (int)dtp_rng_below(r, 3);
    p.global_batch_size = 1 + (int)dtp_rng_below(r, 100);
    p.tp_algo = (enum dtp_algo)dtp_rng_below(r, DTP_NALGOS);
    p.dp_algo = (enum dtp_algo)dtp_rng_below(r, DTP_NALGOS);
    p.tp_overlap = (int)dtp_rng_below(r, 3) - 1;
    p.dp_overlap = (int)dtp_rng_below(r, 3) - 1;
    p.p2p_overlap = (int)dtp_rng_below(r, 3) - 1;
    p.ep_overlap = (int)dtp_rng_below(r, 2);
    p.ep_per_node = (int)dtp_rng_below(r, 2);
    p.offload = (enum dtp_offload)dtp_rng_below(r, 3);
    p.offload_to = (enum dtp_offload_to)dtp_rng_below(r, 2);
    p.dtype = (enum dtp_dtype)dtp_rng_below(r, DTP_NDTYPES);
    if (dtp_rng_below(r, 2)) {
        p.layers_per_stage.n = (size_t)p.pp * (size_t)p.vpp;
        p.layers_per_stage.at = DTP_NEW(arena, int, p.layers_per_stage.n);
        for (size_t i = 0; i < p.layers_per_stage.n; i++)
            p.layers_per_stage.at[i] = 1 + (int)dtp_rng_below(r, 3);
    }
    return p;
}

/* ---- Megatron's layouts ---- */

static void test_layouts(void) {
    static const struct {
        const char *text, *layers;
    } cases[] = {{"Ettt|(tt|)*3,m|L", "3,2,2,2,0,0"},
                 {"Et*2|(tt|)*2t|(tt|)*2mL", "2,2,2,1,2,2,0"},
                 {"(ab)*2", NULL},
                 {"(t|)*2t*3", "1,1,3"},
                 {"(t*2|)*2tL", "2,2,1"},
                 {"Et|(tt|*3L", NULL},
                 {"t*0|t", NULL},
                 {"t*99999999|t", NULL},
                 {"12,13,13,10", NULL},
                 {"", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *found = dtp_plan_layers_of_layout(arena, cases[i].text);
        CU_ASSERT(cases[i].layers ? found && strcmp(found, cases[i].layers) == 0 : !found);
    }
}

/* ---- order ---- */

static int sign(int v) {
    return (v > 0) - (v < 0);
}

static void test_order(void) {
    struct dtp_rng r = dtp_rng_stream(1, 0);
    for (int trial = 0; trial < 20000; trial++) {
        struct dtp_plan a = random_plan(&r), b = random_plan(&r), c = random_plan(&r);
        int ab = sign(dtp_plan_compare(&a, &b)), bc = sign(dtp_plan_compare(&b, &c));
        if (dtp_plan_compare(&a, &a) != 0 || ab != -sign(dtp_plan_compare(&b, &a)))
            CU_FAIL("not antisymmetric");
        if (ab == bc && ab != 0 && sign(dtp_plan_compare(&a, &c)) != ab)
            CU_FAIL("not transitive");
    }
    struct dtp_plan a = base_plan(), b = base_plan();
    CU_ASSERT(dtp_plan_compare(&a, &b) == 0);
    b.p2p_overlap = 0;
    CU_ASSERT(dtp_plan_compare(&a, &b) < 0);
    a.tp = 4; /* tp weighs more than overlap */
    CU_ASSERT(dtp_plan_compare(&a, &b) > 0);
    int even[] = {6, 6};
    a = b = base_plan();
    b.layers_per_stage = (struct dtp_ints){even, 2};
    CU_ASSERT(dtp_plan_compare(&a, &b) < 0);
}

/* ---- layers ---- */

static void one_split(const struct dtp_model *m, const struct dtp_plan *p) {
    int n = p->pp * p->vpp, next = 0, low = m->layers / n, extra = m->layers % n;
    bool ok = true;
    for (int vs = 0; vs < n; vs++) {
        int layers = dtp_plan_layers(p, m, vs);
        ok &= dtp_plan_first_layer(p, m, vs) == next && (layers == low || layers == low + 1);
        next += layers;
    }
    ok &= next == m->layers;
    ok &= n == 1 || dtp_plan_layers(p, m, n - 1) == low; /* the head's stage never has more */
    ok &= extra == 0 || extra == n - 1 || dtp_plan_layers(p, m, 0) == low;
    ok &= extra == 0 || dtp_plan_layers(p, m, n - 2) == low + 1;
    if (!ok)
        printf("\n  %d layers over %d stages\n", m->layers, n);
    CU_ASSERT(ok);
}

static void test_layers(void) {
    struct dtp_model m = {0};
    for (m.layers = 1; m.layers <= 130; m.layers++) {
        for (int pp = 1; pp <= 24 && pp <= m.layers; pp++) {
            for (int vpp = 1; vpp <= 3 && pp * vpp <= m.layers; vpp++) {
                struct dtp_plan p = dtp_plan_default();
                p.pp = pp;
                p.vpp = vpp;
                one_split(&m, &p);
            }
        }
    }
    /* 10 layers over 4 stages: 2 3 3 2; over 4 as the user says */
    int given[] = {1, 4, 3, 2}, want[] = {2, 3, 3, 2};
    struct dtp_plan p = dtp_plan_default();
    m.layers = 10;
    p.pp = 4;
    for (int vs = 0; vs < 4; vs++)
        CU_ASSERT(dtp_plan_layers(&p, &m, vs) == want[vs]);
    p.layers_per_stage = (struct dtp_ints){given, 4};
    CU_ASSERT(dtp_plan_layers(&p, &m, 1) == 4 && dtp_plan_first_layer(&p, &m, 3) == 8);
}

/* DeepSeek-V3 as Megatron-Bridge cuts it (recipes/deepseek/h100/deepseek_v3.py); of 32 stages the last has no
 * layer of the model. Stages follow each other and hold all layers, whatever the depth. */
static void test_multi_token(void) {
    static const int stages[] = {4, 8, 16, 32}, each[] = {16, 8, 4, 2}, last[] = {13, 5, 1, 0};
    struct dtp_model m = {.layers = 61, .mtp_layers = 1};
    struct dtp_plan p = dtp_plan_default();
    CU_ASSERT(dtp_plan_layers(&p, &m, 0) == 61 && dtp_stage_layers(&m, &p, 0) == 62);
    for (int i = 0; i < 4; i++) {
        p.pp = stages[i];
        CU_ASSERT(dtp_plan_layers(&p, &m, p.pp - 2) == each[i]);
        CU_ASSERT(dtp_plan_layers(&p, &m, p.pp - 1) == last[i]);
        CU_ASSERT(dtp_stage_layers(&m, &p, p.pp - 1) == last[i] + 1);
    }
    for (m.layers = 1; m.layers <= 70; m.layers++)
        for (p.pp = 1; p.pp <= m.layers; p.pp++)
            for (m.mtp_layers = 1; m.mtp_layers <= 3; m.mtp_layers++) {
                int next = 0;
                bool ok = true;
                for (int vs = 0; vs < p.pp; vs++) {
                    ok &= dtp_plan_first_layer(&p, &m, vs) == next;
                    next += dtp_plan_layers(&p, &m, vs);
                }
                CU_ASSERT(ok && next == m.layers);
            }
}

/* Llama 3 405B: 126 layers on 16 ranks of 8 chunks; the ends hold embedding and head alone. */
static void test_ends(void) {
    struct dtp_model m = {.layers = 126};
    struct dtp_plan p = dtp_plan_default();
    p.account_for_ends = true;
    p.pp = 16;
    for (p.vpp = 1; p.vpp <= 8; p.vpp *= 2) {
        int n = p.pp * p.vpp, per = 128 / n, next = 0;
        for (int vs = 0; vs < n; vs++) {
            int ends = (vs == 0) + (vs == n - 1);
            CU_ASSERT(dtp_plan_first_layer(&p, &m, vs) == next);
            CU_ASSERT(dtp_plan_layers(&p, &m, vs) == per - ends);
            next += per - ends;
        }
        CU_ASSERT(next == 126);
    }
}

/* ---- text and JSON ---- */

/* Reads a line of flags as a command line does. */
static void read_flags(const char *flags, struct dtp_plan *out) {
    char *copy = dtp_arena_strdup(arena, flags), *save = NULL;
    *out = dtp_plan_default();
    for (char *t = strtok_r(copy, " ", &save); t; t = strtok_r(NULL, " ", &save)) {
        CU_ASSERT_FATAL(strncmp(t, "--", 2) == 0);
        char name[64];
        snprintf(name, sizeof name, "%s", strcmp(t, "--batch") ? t + 2 : "global_batch_size");
        for (char *c = name; *c; c++)
            *c = *c == '-' ? '_' : *c;
        const struct dtp_field *f = dtp_field_find(dtp_plan_fields, name);
        char *value = strtok_r(NULL, " ", &save);
        CU_ASSERT_FATAL(f != NULL && value != NULL);
        CU_ASSERT(dtp_field_parse(arena, f, value, t, out, NULL) == DTP_OK);
    }
}

static const char *json_of(const struct dtp_plan *p) {
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    struct dtp_json_out w;
    CU_ASSERT_FATAL(f != NULL);
    dtp_json_begin(&w, f, 0);
    dtp_plan_write(&w, p);
    fclose(f);
    const char *copy = dtp_arena_strdup(arena, text);
    free(text);
    return copy;
}

static enum dtp_status read_json(const char *text, struct dtp_plan *out, struct dtp_err *err) {
    const struct dtp_json *j;
    DTP_TRY(dtp_json_parse(arena, "plan.json", text, strlen(text), &j, err));
    *out = dtp_plan_default();
    return dtp_plan_read(arena, j, out, err);
}

static void test_text(void) {
    struct dtp_plan p = base_plan(), back;
    CU_ASSERT_STRING_EQUAL(dtp_plan_flags(arena, &p),
                           "--tp 2 --pp 2 --dp 4 --schedule 1f1b --microbatch-size 1 --batch 64");
    p.sequence_parallel = true;
    p.zero_stage = 1;
    p.recompute = DTP_RECOMPUTE_SELECTIVE;
    int layers[] = {5, 7};
    p.layers_per_stage = (struct dtp_ints){layers, 2};
    CU_ASSERT_STRING_EQUAL(dtp_plan_flags(arena, &p),
                           "--tp 2 --pp 2 --dp 4 --zero-stage 1 --sequence-parallel true "
                           "--recompute selective --schedule 1f1b --microbatch-size 1 --batch 64 "
                           "--layers-per-stage 5,7");
    struct dtp_rng r = dtp_rng_stream(2, 0);
    for (int trial = 0; trial < 500; trial++) {
        p = random_plan(&r);
        read_flags(dtp_plan_flags(arena, &p), &back);
        CU_ASSERT(dtp_plan_compare(&p, &back) == 0);
        struct dtp_err err = {0};
        CU_ASSERT(read_json(json_of(&p), &back, &err) == DTP_OK);
        CU_ASSERT(dtp_plan_compare(&p, &back) == 0);
    }
}

static void json_says(const char *text, const char *want) {
    struct dtp_plan p;
    struct dtp_err err = {0};
    CU_ASSERT(read_json(text, &p, &err) == DTP_EINPUT);
    if (!strstr(err.msg, want))
        printf("\n  found \"%s\", expected \"%s\"\n", err.msg, want);
    CU_ASSERT(strstr(err.msg, want) != NULL);
}

static void test_json_errors(void) {
    json_says("{\"tp\": 0}", "plan.json: $.tp");
    json_says("{\"zero_stage\": 4}", "plan.json: $.zero_stage");
    json_says("{\"microbatch\": 4}", "did you mean \"microbatch_size\"");
    json_says("{\"schedule\": \"1f1c\"}", "1f1b");
    json_says("{\"pp\": 2, \"layers_per_stage\": [12]}", "plan.json: $.layers_per_stage");
}

/* Transfers stop both neighbours where the stack says so, but not between chunks where it hides those, unless
 * the plan says otherwise. */
static void test_transfers(void) {
    struct dtp_framework f = {.wire.p2p_blocking = true,
                              .quirks.chunk_transfers.p2p_chunks_overlap = true};
    struct dtp_plan p = dtp_plan_default();
    p.pp = 4;
    CU_ASSERT(dtp_plan_p2p_blocks(&p, &f));
    p.vpp = 2;
    CU_ASSERT(!dtp_plan_p2p_blocks(&p, &f));
    p.p2p_overlap = 0;
    CU_ASSERT(dtp_plan_p2p_blocks(&p, &f));
    p.p2p_overlap = -1;
    f.quirks.chunk_transfers.p2p_chunks_overlap = false;
    CU_ASSERT(dtp_plan_p2p_blocks(&p, &f));
    p.p2p_overlap = 1;
    CU_ASSERT(!dtp_plan_p2p_blocks(&p, &f));
}

int main(void) {
    CU_TestInfo tests[] = {{"layouts of Megatron", test_layouts},
                           {"total order", test_order},
                           {"layers per stage", test_layers},
                           {"embedding and head as layers", test_ends},
                           {"multi-token prediction", test_multi_token},
                           {"transfers that block", test_transfers},
                           {"flags and JSON read back", test_text},
                           {"JSON errors", test_json_errors},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"plan", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
