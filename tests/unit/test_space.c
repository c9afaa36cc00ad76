/* The space of plans: its size against an independent count, its order, limits. */
#include <CUnit/Basic.h>
#include <string.h>

#include "models/schedule/schedule.h"
#include "planner/space.h"
#include "tests/plan_world.h"
#include "tests/suites.h"

static struct dtp_arena *arena;

/* ---- limits ---- */

static void test_select(void) {
    const struct {
        enum dtp_limit limit;
        const char *text;
        int in[4], out[4];
    } cases[] = {{DTP_LIMIT_TP, "8", {8, 8, 8, 8}, {1, 4, 7, 9}},
                 {DTP_LIMIT_TP, "1,2,4", {1, 2, 4, 4}, {3, 5, 8, 0}},
                 {DTP_LIMIT_PP, "4..16", {4, 5, 10, 16}, {3, 17, 1, 100}},
                 {DTP_LIMIT_PP, "..4,32..", {1, 4, 32, 999}, {5, 31, 16, 8}},
                 {DTP_LIMIT_ZERO, "0,2..3", {0, 2, 3, 3}, {1, 4, 1, 1}},
                 {DTP_LIMIT_RECOMPUTE, "none,full", {0, 2, 2, 0}, {1, 1, 1, 1}},
                 {DTP_LIMIT_SP, "on", {1, 1, 1, 1}, {0, 0, 0, 0}},
                 {DTP_LIMIT_SP, "false", {0, 0, 0, 0}, {1, 1, 1, 1}},
                 {DTP_LIMIT_SCHEDULE, "gpipe,interleaved", {0, 2, 0, 2}, {1, 3, 1, 3}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dtp_select s;
        struct dtp_err err = {0};
        CU_ASSERT_EQUAL(dtp_select_parse(cases[i].limit, cases[i].text, "--x", &s, &err), DTP_OK);
        for (int k = 0; k < 4; k++) {
            CU_ASSERT(dtp_select_has(&s, cases[i].in[k]));
            CU_ASSERT(!dtp_select_has(&s, cases[i].out[k]));
        }
    }
    struct dtp_select all = {0};
    CU_ASSERT(dtp_select_has(&all, 12345));
}

static void refuse(enum dtp_limit limit, const char *text, const char *says) {
    struct dtp_select s;
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL(dtp_select_parse(limit, text, "--x", &s, &err), DTP_EUSAGE);
    if (!strstr(err.msg, says))
        printf("\n  \"%s\": found \"%s\", expected \"%s\"\n", text, err.msg, says);
    CU_ASSERT(strstr(err.msg, says) != NULL);
    CU_ASSERT_EQUAL(err.status, DTP_EUSAGE);
}

static void test_select_errors(void) {
    refuse(DTP_LIMIT_TP, "", "--x");
    refuse(DTP_LIMIT_TP, "1,,2", "--x");
    refuse(DTP_LIMIT_TP, "1,", "--x");
    refuse(DTP_LIMIT_TP, "0", "integer");
    refuse(DTP_LIMIT_TP, "two", "integer");
    refuse(DTP_LIMIT_TP, "8..4", "empty");
    refuse(DTP_LIMIT_ZERO, "4", "from 0 to 3");
    refuse(DTP_LIMIT_RECOMPUTE, "selectve", "did you mean \"selective\"");
    refuse(DTP_LIMIT_SCHEDULE, "1f1c", "1f1b");
    refuse(DTP_LIMIT_TP, "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", "more than");
}

static void test_fields(void) {
    struct dtp_limits l = dtp_limits_none();
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL(dtp_limits_parse(arena, "tp=8,4,pp=5..6,recompute=full", "--why-not", &l, &err),
                    DTP_OK);
    CU_ASSERT_EQUAL(l.field[DTP_LIMIT_TP].n, 2);
    CU_ASSERT_EQUAL(l.field[DTP_LIMIT_PP].lo[0], 5);
    CU_ASSERT_EQUAL(l.field[DTP_LIMIT_PP].hi[0], 6);
    CU_ASSERT_EQUAL(l.field[DTP_LIMIT_RECOMPUTE].lo[0], DTP_RECOMPUTE_FULL);
    CU_ASSERT_EQUAL(l.field[DTP_LIMIT_DP].n, 0);
    CU_ASSERT_EQUAL(dtp_limits_parse(arena, "zero-stage=1", "--why-not", &l, &err), DTP_OK);
    CU_ASSERT_EQUAL(dtp_limits_parse(arena, "tq=8", "--why-not", &l, &err), DTP_EUSAGE);
    CU_ASSERT(strstr(err.msg, "\"tp\"") != NULL);
    CU_ASSERT_EQUAL(dtp_limits_parse(arena, "tp", "--why-not", &l, &err), DTP_EUSAGE);
}

/* Each searched field is a field of the plan and is set and read back. */
static void test_limit_table(void) {
    for (int k = 0; k < DTP_NLIMITS; k++) {
        enum dtp_limit limit = (enum dtp_limit)k;
        struct dtp_plan p = dtp_plan_default();
        char text[32];
        CU_ASSERT(dtp_field_find(dtp_plan_fields, dtp_limit_fields[k].name) != NULL);
        CU_ASSERT_EQUAL(dtp_limit_find(dtp_limit_fields[k].name), k);
        CU_ASSERT_EQUAL(dtp_limit_find(dtp_limit_fields[k].option), k);
        dtp_limit_set(&p, limit, 1);
        CU_ASSERT_EQUAL(dtp_limit_get(&p, limit), 1);
        struct dtp_select s;
        CU_ASSERT_EQUAL(
            dtp_select_parse(limit, dtp_limit_text(limit, 1, text, sizeof text), "--x", &s, NULL),
            DTP_OK);
        CU_ASSERT(dtp_select_has(&s, 1) && s.n == 1);
    }
    CU_ASSERT_EQUAL(dtp_limit_find("nothing"), -1);
}

/* ---- size and order ---- */

struct shape {
    int tp, pp, vpp, dp;
    int overlaps; /* ways to send the rows of experts where they can be hidden */
};

/* Schedules of the framework with or without chunks; without a pipeline 1F1B alone. */
static uint64_t count_schedules(const struct dtp_problem *p, const struct shape *x) {
    uint64_t n = 0;
    if (x->pp == 1)
        return x->vpp == 1;
    for (int i = 0; p->framework->can.schedules[i]; i++)
        n += (x->vpp > 1) == (strcmp(p->framework->can.schedules[i], "interleaved") == 0);
    return n;
}

/* Candidates that end with these degrees: the microbatch sizes, 4 ZeRO stages, and groups for the third, so many
 * recomputations, sequence parallelism on and off where tp > 1, and the schedules. */
static uint64_t leaves(const struct dtp_problem *p, struct shape x, uint64_t zero_recompute) {
    uint64_t microbatches = 0, schedules = count_schedules(p, &x);
    int batch = p->global_batch, dp = x.dp;
    if (batch % dp != 0)
        microbatches = 1;
    else
        for (int b = 1; b <= batch / dp; b++)
            microbatches += (batch / dp) % b == 0;
    uint64_t overlaps = x.pp == 1 || x.vpp > 1 ? (uint64_t)x.overlaps : 1;
    return microbatches * schedules * zero_recompute * overlaps * (x.tp > 1 ? 2 : 1);
}

/* All of three modes, some layers where the largest chunk has several, and the modules that cost little. */
static uint64_t modes(const struct dtp_problem *p, int largest) {
    uint64_t modules = p->model->moe.experts > 0 && p->framework->can.recompute_modules != 0;
    uint64_t some = largest > 1 && p->framework->can.recompute_layers != DTP_RECOMPUTE_ALL;
    return 3 + some + modules;
}

/* Layers that the last stage may leave: as the head's 1000 x 96 over those of a layer (q and its output 96 x 96, k
 * and v 96 x 32, MLP 2 x 96 x 384) and half as many again. */
static int most_less(const struct dtp_problem *p) {
    double layer = 2.0 * 96 * 96 + 2.0 * 96 * 32 + 2.0 * 96 * 384;
    bool takes = p->framework->can.uneven_chunks || p->framework->kernels.ops == DTP_OPS_OWN;
    return takes && p->model->moe.experts == 0 ? (int)(1.5 * p->model->vocab * 96 / layer) : 0;
}

static uint64_t count_vpp(const struct dtp_problem *p, const struct shape *like, uint64_t zero) {
    uint64_t n = 0;
    int pp = like->pp;
    bool any = p->framework->can.uneven_chunks;
    int layers = p->model->layers;
    /* embedding and head as layers; where stages or chunks may be uneven the layers alone are so divided, too */
    for (int vpp = 1; pp > 1 && vpp <= layers + 2; vpp++)
        if ((layers + 2) % pp == 0 && (layers + 2) / pp % vpp == 0 &&
            ((vpp > 1 && !any) || pp * vpp > layers)) {
            int inside = (layers + 2) / pp / vpp;
            n += leaves(p, (struct shape){like->tp, pp, vpp, like->dp, like->overlaps},
                        zero * modes(p, pp * vpp > 2 ? inside : inside - 1));
        }
    int per_stage = pp > 1 && layers / pp > 1 ? layers / pp : 1;
    for (int less = 0; less == 0 || (pp > 1 && less <= most_less(p)); less++)
        for (int vpp = 1; vpp <= per_stage; vpp++) {
            int last = layers / (pp * vpp) - less, others = pp * vpp - 1;
            if ((per_stage % vpp != 0 && !any) || (less > 0 && last < 1))
                continue;
            int largest =
                others == 0 ? layers : (layers - (last > 0 ? last : 0) + others - 1) / others;
            n += leaves(p, (struct shape){like->tp, pp, vpp, like->dp, like->overlaps},
                        zero * modes(p, largest > last ? largest : last));
        }
    return n;
}

/* Parts of the replicas that are those of 1, 2, 4, ... nodes. */
static uint64_t count_groups(const struct dtp_problem *p, int tp, int replicas) {
    uint64_t n = 0;
    for (int group = 2; group < replicas; group++) {
        bool nodes = false;
        for (int k = 1; k <= 1024; k *= 2)
            nodes |= group == (p->cluster->node.gpus < 2 * tp ? 2 : p->cluster->node.gpus / tp) * k;
        n += nodes && replicas % group == 0;
    }
    return p->framework->can.hybrid_shard ? n : 0;
}

static bool has_etp(const struct dtp_problem *p, int tp, int etp) {
    enum dtp_expert_tp own =
        p->model->moe.experts > 0 ? p->framework->can.expert_tp : DTP_EXPERT_TP_SAME;
    return etp == tp || (own != DTP_EXPERT_TP_SAME && etp == 1);
}

/* A group that is no part of a node of 8, nor all of it. */
static bool leaves_node(int ranks) {
    return ranks != 1 && ranks != 2 && ranks != 4 && ranks != 8;
}

/* Counts all degrees of the experts. */
static uint64_t count_experts(const struct dtp_problem *p, struct shape *x, int cp) {
    uint64_t n = 0;
    int experts = p->model->moe.experts, ranks = x->tp * x->dp * cp;
    for (int etp = 1; etp <= x->tp; etp++)
        for (int ep = 1; has_etp(p, x->tp, etp) && ep <= ranks / etp; ep++) {
            if (ep > 1 && (experts == 0 || experts % ep != 0 || ranks / etp % ep != 0))
                continue;
            uint64_t zero = 4 + (ep > 1 || etp != x->tp ? 0 : count_groups(p, x->tp, x->dp * cp));
            bool once = ep > 1 && p->framework->can.has_ep_per_node && leaves_node(etp * ep);
            x->overlaps = ep > 1 && p->framework->can.has_ep_overlap ? 2 : 1;
            n += (once ? 2 : 1) * count_vpp(p, x, zero);
        }
    return n;
}

/* Every combination of integers, with no arithmetic of the space's own. */
static uint64_t brute_force(const struct dtp_problem *p) {
    uint64_t n = 0;
    int g = p->gpus;
    for (int tp = 1; tp <= g; tp++)
        for (int pp = 1; tp * pp <= g; pp++)
            for (int cp = 1; tp * pp * cp <= g; cp++) {
                bool divides = cp == 1 || (p->framework->can.has_cp && p->seq % (2 * cp) == 0);
                if (g % (tp * pp * cp) == 0 && divides)
                    n += count_experts(
                        p, &(struct shape){.tp = tp, .pp = pp, .dp = g / (tp * pp * cp)}, cp);
            }
    return n;
}

static void test_count(void) {
    const struct {
        int gpus, batch, layers, experts, seq;
    } cases[] = {{1, 1, 1, 0, 64},       {16, 64, 12, 0, 64},      {12, 30, 7, 0, 64},
                 {24, 48, 24, 8, 64},    {64, 96, 32, 4, 64},      {30, 77, 10, 0, 16384},
                 {16, 64, 12, 8, 32768}, {1024, 1536, 96, 0, 2048}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct world w;
        struct dtp_space s;
        world_init(&w);
        w.problem.gpus = cases[i].gpus;
        w.problem.global_batch = cases[i].batch;
        w.problem.seq = cases[i].seq;
        w.model.layers = cases[i].layers;
        w.model.moe.experts = cases[i].experts;
        w.model.moe.layer_step = 1;
        w.framework.can.accounts_for_ends = true;
        w.framework.can.hybrid_shard = i % 2 == 1;
        w.framework.can.expert_tp = (enum dtp_expert_tp)(i % 3);
        w.framework.can.uneven_chunks = i % 4 < 3 && cases[i].experts == 0;
        w.framework.can.recompute_layers = (enum dtp_recompute_some)(i % 3);
        w.framework.can.recompute_modules = i % 2 == 0 ? DTP_BIT_CORE_ATTN | DTP_BIT_MOE_ACT : 0;
        w.framework.can.has_cp = i != 1;
        w.framework.can.has_ep_overlap = i % 2 == 0;
        w.framework.can.has_ep_per_node = i % 4 > 1;
        w.model.vocab = 1000 * (1 + (int)i % 4);
        dtp_space_init(arena, &w.problem, NULL, &s);
        uint64_t expected = brute_force(&w.problem);
        if (s.ncandidates != expected)
            printf("\n  case %zu: found %llu, expected %llu\n", i,
                   (unsigned long long)s.ncandidates, (unsigned long long)expected);
        CU_ASSERT_EQUAL(s.ncandidates, expected);
    }
}

/* The tuple of the searched fields, outermost first, where the microbatch stands before ZeRO. */
static int compare_order(const struct dtp_plan *a, const struct dtp_plan *b) {
    for (int k = 0; k < DTP_NLIMITS; k++) {
        if (k == DTP_LIMIT_DP) /* falls as cp rises */
            continue;
        int x = dtp_limit_get(a, (enum dtp_limit)k), y = dtp_limit_get(b, (enum dtp_limit)k);
        if (x != y)
            return x < y ? -1 : 1;
    }
    return 0;
}

static void test_order(void) {
    struct world w;
    struct dtp_space s;
    world_init(&w);
    w.model.moe.experts = 4;
    w.model.moe.layer_step = 1;
    w.model.layers = 14;
    w.framework.can.accounts_for_ends = w.framework.can.hybrid_shard = true;
    w.framework.can.expert_tp = DTP_EXPERT_TP_ANY;
    w.framework.can.uneven_chunks = true;
    w.framework.can.has_ep_overlap = w.framework.can.has_ep_per_node = true;
    dtp_space_init(arena, &w.problem, NULL, &s);
    struct dtp_plan before, p, again;
    uint64_t number = 0;
    int unordered = 0, differ = 0, wrong = 0;
    for (size_t h = 0; h < s.nshapes; h++)
        for (uint64_t i = 0; i < dtp_space_shape_size(&s, h); i++, number++) {
            dtp_space_plan(&s, h, i, &p);
            dtp_space_candidate(&s, number, &again);
            differ += dtp_plan_compare(&p, &again) != 0;
            unordered += number > 0 && compare_order(&before, &p) >= 0;
            wrong += p.tp * p.pp * p.cp * p.dp != w.problem.gpus || p.global_batch_size != 64;
            before = p;
        }
    CU_ASSERT_EQUAL(number, s.ncandidates);
    CU_ASSERT_EQUAL(unordered, 0);
    CU_ASSERT_EQUAL(differ, 0);
    CU_ASSERT_EQUAL(wrong, 0);
}

/* A limited space = the plans of the whole space that the limits let through, in the same order. */
static void test_limited(void) {
    static const char *const limits[] = {"tp=2,4,pp=2..4",
                                         "zero_stage=1",
                                         "zero_group=0",
                                         "recompute=none,full",
                                         "dp=4",
                                         "vpp=2..",
                                         "schedule=interleaved",
                                         "microbatch_size=3",
                                         "tp=5",
                                         "sequence_parallel=on",
                                         "last_stage_less=0",
                                         "last_stage_less=1..",
                                         "recompute_layers=0",
                                         "account_for_ends=off,vpp=2"};
    struct world w;
    world_init(&w);
    w.model.layers = 14;
    w.model.vocab = 10000; /* more than a stage has to leave */
    w.framework.can.accounts_for_ends = true;
    w.framework.kernels.ops = DTP_OPS_OWN; /* which takes layers per stage */
    w.framework.can.recompute_layers = DTP_RECOMPUTE_NTH;
    struct dtp_space whole, part;
    dtp_space_init(arena, &w.problem, NULL, &whole);
    for (size_t k = 0; k < sizeof limits / sizeof *limits; k++) {
        struct dtp_limits l = dtp_limits_none();
        struct dtp_plan p, q;
        uint64_t n = 0;
        int differ = 0;
        CU_ASSERT_EQUAL(dtp_limits_parse(arena, limits[k], "limits", &l, NULL), DTP_OK);
        dtp_space_init(arena, &w.problem, &l, &part);
        for (uint64_t i = 0; i < whole.ncandidates; i++) {
            bool in = true;
            dtp_space_candidate(&whole, i, &p);
            for (int f = 0; f < DTP_NLIMITS; f++)
                in = in && dtp_select_has(&l.field[f], dtp_limit_get(&p, (enum dtp_limit)f));
            if (!in)
                continue;
            if (n < part.ncandidates) {
                dtp_space_candidate(&part, n, &q);
                differ += dtp_plan_compare(&p, &q) != 0;
            }
            n++;
        }
        CU_ASSERT_EQUAL(part.ncandidates, n);
        CU_ASSERT_EQUAL(differ, 0);
    }
}

static bool same_layers(const struct dtp_plan *p, const struct dtp_plan *q,
                        const struct dtp_model *m) {
    bool same = true;
    for (int vs = 0; vs < p->pp * p->vpp; vs++)
        same &= dtp_plan_layers(p, m, vs) == dtp_plan_layers(q, m, vs);
    return same;
}

/* No plan is there twice, with and without account_for_ends; alone it has the divisions of both. */
static void test_ends_once(void) {
    static const char *const limits[] = {"microbatch_size=1", "microbatch_size=1,vpp=1..",
                                         "microbatch_size=1,ends=on"};
    struct world w;
    world_init(&w);
    w.model.layers = 14;
    w.framework.can.accounts_for_ends = w.framework.can.uneven_chunks = true;
    for (size_t k = 0; k < sizeof limits / sizeof *limits; k++) {
        struct dtp_limits l = dtp_limits_none();
        struct dtp_space s;
        struct dtp_plan p, q;
        int with_ends = 0, alone = 0, twice = 0;
        CU_ASSERT_EQUAL(dtp_limits_parse(arena, limits[k], "limits", &l, NULL), DTP_OK);
        dtp_space_init(arena, &w.problem, &l, &s);
        for (uint64_t i = 0; i < s.ncandidates; i++) {
            dtp_space_candidate(&s, i, &p);
            if (!p.account_for_ends || dtp_plan_check(&w.problem, &p) != DTP_LEGAL)
                continue;
            with_ends++;
            alone += p.vpp == 1 && p.pp < w.model.layers;
            for (uint64_t j = 0; j < s.ncandidates; j++) {
                dtp_space_candidate(&s, j, &q);
                if (q.account_for_ends || dtp_plan_check(&w.problem, &q) != DTP_LEGAL ||
                    !same_layers(&p, &q, &w.model))
                    continue;
                q.account_for_ends = true;
                q.last_stage_less = 0;
                twice += dtp_plan_compare(&p, &q) == 0;
            }
        }
        CU_ASSERT(with_ends > 0);
        CU_ASSERT_EQUAL(twice, 0);
        CU_ASSERT_EQUAL(alone > 0, k == 2);
    }
}

/* Groups that are given: divisors of the replicas for every stage; one plan stands for those that none is. */
static void test_given_groups(void) {
    const struct {
        const char *text;
        int groups[4]; /* ends with -1 */
    } cases[] = {{"zero_group=8", {8, -1}},
                 {"zero_group=2..8", {2, 4, 8, -1}},
                 {"zero_group=0,16", {0, 16, -1}},
                 {"zero_group=24", {24, -1}}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct dtp_limits l = dtp_limits_none();
        struct dtp_space s;
        struct dtp_plan p;
        struct world w;
        world_init(&w);
        CU_ASSERT_EQUAL(dtp_limits_parse(arena,
                                         "tp=1,pp=1,cp=1,microbatch=1,recompute=none,schedule=1f1b",
                                         "limits", &l, NULL),
                        DTP_OK);
        CU_ASSERT_EQUAL(dtp_limits_parse(arena, cases[k].text, "limits", &l, NULL), DTP_OK);
        dtp_space_init(arena, &w.problem, &l, &s);
        uint64_t n = 0;
        for (int stage = 0; stage <= 3; stage++)
            for (const int *group = cases[k].groups; *group >= 0; group++, n++) {
                dtp_space_candidate(&s, n, &p);
                CU_ASSERT(p.zero_stage == stage && p.zero_group == *group);
            }
        CU_ASSERT_EQUAL(s.ncandidates, n);
    }
}

/* With experts the search recomputes norm and activation, once together with attention's core; modules that are
 * given are those of all plans. */
static void test_modules(void) {
    struct world w;
    struct dtp_space s;
    world_init(&w);
    w.problem.gpus = 1;
    w.model.moe.experts = 4;
    w.model.moe.layer_step = 1;
    w.framework.can.recompute_modules = (1 << DTP_NMODULES) - 1;
    for (int given = 0; given < 2; given++) {
        struct dtp_limits l = dtp_limits_none();
        int n[3] = {0}, wanted = DTP_BIT_LAYERNORM | DTP_BIT_MOE_ACT;
        l.fixed.recompute_modules = given ? DTP_BIT_MOE : 0;
        dtp_space_init(arena, &w.problem, &l, &s);
        for (uint64_t i = 0; i < s.ncandidates; i++) {
            struct dtp_plan p;
            dtp_space_candidate(&s, i, &p);
            n[0] += p.recompute == DTP_RECOMPUTE_SELECTIVE;
            n[1] += p.recompute == DTP_RECOMPUTE_SELECTIVE && p.recompute_modules == wanted;
            n[2] += p.recompute_modules == DTP_BIT_MOE;
        }
        CU_ASSERT(n[0] > 0 && n[1] * 2 == (given ? 0 : n[0]));
        CU_ASSERT_EQUAL(n[2], given ? (int)s.ncandidates : 0);
    }
}

/* Numbers of recomputed layers that are given: those of full recomputation that a chunk has. */
static void test_given_layers(void) {
    struct dtp_limits l = dtp_limits_none();
    struct dtp_space s;
    struct dtp_plan p;
    struct world w;
    world_init(&w);
    CU_ASSERT_EQUAL(
        dtp_limits_parse(arena,
                         "tp=1,pp=2,cp=1,zero=1,microbatch=1,schedule=1f1b,vpp=1,ends=off,"
                         "recompute_layers=0..2,5..",
                         "limits", &l, NULL),
        DTP_OK);
    dtp_space_init(arena, &w.problem, &l, &s);
    static const int full[] = {0, 1, 2, 5, 6};
    CU_ASSERT_EQUAL_FATAL(s.ncandidates, 2 + 5);
    for (uint64_t i = 0; i < 7; i++) {
        dtp_space_candidate(&s, i, &p);
        CU_ASSERT_EQUAL(p.recompute, i < 2 ? i : DTP_RECOMPUTE_FULL);
        CU_ASSERT_EQUAL(p.recompute_layers, i < 2 ? 0 : full[i - 2]);
        CU_ASSERT_EQUAL(dtp_plan_check(&w.problem, &p), DTP_LEGAL);
    }
}

static void test_divisors(void) {
    int d[DTP_MOST_DIVISORS];
    for (int n = 1; n <= 2000; n++) {
        int expected = 0, found = dtp_divisors(n, d), bad = 0;
        for (int k = 1; k <= n; k++)
            if (n % k == 0)
                bad += expected >= found || d[expected++] != k;
        CU_ASSERT_EQUAL(found, expected);
        CU_ASSERT_EQUAL(bad, 0);
    }
}

int main(void) {
    CU_TestInfo tests[] = {{"divisors", test_divisors},
                           {"sets of values", test_select},
                           {"sets that are refused", test_select_errors},
                           {"fields of --why-not", test_fields},
                           {"table of searched fields", test_limit_table},
                           {"size = independent count", test_count},
                           {"fixed order, numbers", test_order},
                           {"limits only take away", test_limited},
                           {"ends as layers only where they differ", test_ends_once},
                           {"groups of ZeRO that are given", test_given_groups},
                           {"recomputed layers that are given", test_given_layers},
                           {"recomputed modules", test_modules},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"space", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
