/* Placement against brute force: all orders, random sizes, every axis and rank. */
#include <CUnit/Basic.h>
#include <stdlib.h>
#include <string.h>

#include "hw/placement.h"
#include "sim/base/rng.h"
#include "tests/suites.h"

static struct dtp_arena *a;
static struct dtp_cluster a100;

static int setup(void) {
    struct dtp_err err = {0};
    a = dtp_arena_create("test_placement");
    return dtp_cluster_load(a, "a100", &a100, &err) != DTP_OK;
}

static int teardown(void) {
    dtp_arena_destroy(a);
    return 0;
}

static const char *const orders[] = {
    "tp-cp-dp-pp", "tp-cp-pp-dp", "tp-dp-cp-pp", "tp-dp-pp-cp", "tp-pp-cp-dp", "tp-pp-dp-cp",
    "cp-tp-dp-pp", "cp-tp-pp-dp", "cp-dp-tp-pp", "cp-dp-pp-tp", "cp-pp-tp-dp", "cp-pp-dp-tp",
    "dp-tp-cp-pp", "dp-tp-pp-cp", "dp-cp-tp-pp", "dp-cp-pp-tp", "dp-pp-tp-cp", "dp-pp-cp-tp",
    "pp-tp-cp-dp", "pp-tp-dp-cp", "pp-cp-tp-dp", "pp-cp-dp-tp", "pp-dp-tp-cp", "pp-dp-cp-tp"};

static const char *const axes[] = {"tp", "cp", "dp", "pp",
                                   NULL}; /* in the order of enum dtp_axis */

/* Coordinates by counting through the nested loops of the order, innermost first. */
static void brute_coords(const char *order, const int size[4], int rank, int at[4]) {
    char text[16];
    strcpy(text, order);
    char *rest = NULL;
    for (char *name = strtok_r(text, "-", &rest); name; name = strtok_r(NULL, "-", &rest)) {
        int axis = dtp_name_index(axes, name);
        at[axis] = rank % size[axis];
        rank /= size[axis];
    }
}

/* Same group of experts where etp is not tp: the ranks of a stage, counted, are parts of an expert, then sets
 * of experts, then replicas. */
static bool brute_same_folded(const struct dtp_placement *p, enum dtp_axis axis, int x, int y) {
    int stage = p->tp * p->cp * p->dp, of = p->etp * p->ep; /* pp is outermost */
    bool part = x % p->etp == y % p->etp, set = x / p->etp % p->ep == y / p->etp % p->ep,
         replica = x % stage / of == y % stage / of;
    return x / stage == y / stage && (part || axis == DTP_AXIS_ETP) &&
           (set || axis == DTP_AXIS_EP) && (replica || axis == DTP_AXIS_EDP);
}

/* Same group of an axis: all other coordinates agree; for ep and edp by the index along dp x cp. */
static bool brute_same(const struct dtp_placement *p, const char *order, enum dtp_axis axis, int x,
                       int y) {
    const int size[4] = {p->tp, p->cp, p->dp, p->pp};
    int cx[4], cy[4];
    bool experts = axis == DTP_AXIS_EP || axis == DTP_AXIS_ETP || axis == DTP_AXIS_EDP;
    if (experts && p->etp != p->tp)
        return brute_same_folded(p, axis, x, y);
    if (axis == DTP_AXIS_ETP)
        axis = DTP_AXIS_TP;
    brute_coords(order, size, x, cx);
    brute_coords(order, size, y, cy);
    bool fixed[4] = {true, true, true, true};
    if (axis <= DTP_AXIS_PP)
        fixed[axis] = false;
    else
        fixed[DTP_AXIS_CP] = fixed[DTP_AXIS_DP] = false;
    for (int i = 0; i < 4; i++)
        if (fixed[i] && cx[i] != cy[i])
            return false;
    bool cp_inner = strstr(order, "cp") < strstr(order, "dp");
    int ix = cp_inner ? cx[1] + p->cp * cx[2] : cx[2] + p->dp * cx[1];
    int iy = cp_inner ? cy[1] + p->cp * cy[2] : cy[2] + p->dp * cy[1];
    if (axis == DTP_AXIS_EP)
        return ix / p->ep == iy / p->ep;
    if (axis == DTP_AXIS_EDP)
        return ix % p->ep == iy % p->ep;
    int group = p->zero_group > 0 ? p->zero_group : p->dp * p->cp;
    if (axis == DTP_AXIS_ZERO)
        return ix / group == iy / group;
    if (axis == DTP_AXIS_REPLICA)
        return ix % group == iy % group;
    return true;
}

static int stage_of(const struct dtp_placement *p, int rank) {
    int t, c, d, s;
    dtp_placement_coords(p, rank, &t, &c, &d, &s);
    return s;
}

/* Groups of the axis, of the stage of `rank`, with a member on that NIC of that node. */
static int brute_sharers(const struct dtp_placement *p, const char *order, enum dtp_axis axis,
                         int rank, int node, int nic) {
    int G = a100.node.gpus, found[DTP_MAX_GPUS_PER_NODE], n = 0;
    for (int r = node * G; r < (node + 1) * G && r < p->ngpus; r++) {
        if (a100.node.nic_of_gpu[r % G] != nic ||
            (axis != DTP_AXIS_PP && stage_of(p, r) != stage_of(p, rank)))
            continue;
        int k = 0;
        while (k < n && !brute_same(p, order, axis, found[k], r))
            k++;
        if (k == n)
            found[n++] = r;
    }
    return n;
}

static void check_shape(const struct dtp_placement *p, const char *order, enum dtp_axis axis,
                        int rank) {
    int G = a100.node.gpus, on[512] = {0}, nodes = 0, most = 0, nics = 0, siblings = 1, first = -1;
    int last = 0, size = 0;
    for (int r = 0; r < p->ngpus; r++) {
        if (!brute_same(p, order, axis, rank, r))
            continue;
        size++;
        nodes += on[r / G]++ == 0;
        first = first < 0 ? r / G : first;
        last = r / G;
    }
    for (int node = first; node <= last; node++) {
        bool used[DTP_MAX_GPUS_PER_NODE] = {false};
        int here = 0;
        for (int r = node * G; r < (node + 1) * G && r < p->ngpus; r++) {
            int nic = a100.node.nic_of_gpu[r % G];
            if (!brute_same(p, order, axis, rank, r) || used[nic])
                continue;
            used[nic] = true;
            here++;
            int sharers = brute_sharers(p, order, axis, rank, node, nic);
            siblings = sharers > siblings && nodes > 1 ? sharers : siblings;
        }
        if (on[node] > most) {
            most = on[node];
            nics = here;
        }
    }
    int tier = nodes > 1 ? 0 : -1;
    while (tier >= 0 && tier + 1 < a100.ntiers &&
           first / a100.tier[tier].nodes != last / a100.tier[tier].nodes)
        tier++;
    struct dtp_group_shape s = dtp_placement_shape(p, &a100, axis, rank);
    CU_ASSERT_EQUAL(s.size, size);
    CU_ASSERT_EQUAL(s.nodes, nodes);
    CU_ASSERT_EQUAL(s.per_node, most);
    CU_ASSERT_EQUAL(s.nics, nodes > 1 ? nics : 0);
    CU_ASSERT_EQUAL(s.siblings, siblings);
    CU_ASSERT_EQUAL(s.tier, tier);
}

static void check_groups(const struct dtp_placement *p, const char *order, enum dtp_axis axis) {
    for (int rank = 0; rank < p->ngpus; rank++) {
        struct dtp_group g = dtp_placement_group(p, axis, rank);
        int members = 0;
        for (int r = 0; r < p->ngpus; r++) {
            bool in =
                r >= g.first && (r - g.first) % g.stride == 0 && (r - g.first) / g.stride < g.size;
            CU_ASSERT_EQUAL(in, brute_same(p, order, axis, rank, r));
            members += in;
        }
        CU_ASSERT_EQUAL(members, g.size);
    }
}

static void test_brute_force(void) {
    struct dtp_rng rng = dtp_rng_stream(7, 0);
    for (int trial = 0; trial < 400; trial++) {
        const char *order = orders[(unsigned)trial % 24];
        int n[5];
        for (int i = 0; i < 4; i++)
            n[i] = 1 + (int)dtp_rng_below(&rng, 4);
        n[4] = n[1] * n[2] % 2 == 0 && dtp_rng_below(&rng, 2) ? 2 : 1;
        const int nics[] = {8, 4, 2, 1, 3};
        a100.node.nics = nics[dtp_rng_below(&rng, 5)];
        for (int i = 0; i < 8; i++)
            a100.node.nic_of_gpu[i] = trial % 5 == 4
                                          ? (int)dtp_rng_below(&rng, (uint64_t)a100.node.nics)
                                          : i * a100.node.nics / 8;
        a100.tier[0].nodes = 2;
        a100.tier[1].nodes = 8;
        struct dtp_placement p;
        struct dtp_err err = {0};
        bool pp_last = order[strlen(order) - 2] == 'p' && order[strlen(order) - 1] == 'p';
        int ranks = n[0] * n[1] * n[2], etp = 1 + (int)dtp_rng_below(&rng, 4);
        bool folds = pp_last && ranks % etp == 0 && dtp_rng_below(&rng, 2);
        if (folds)
            n[4] = ranks / etp % 4 == 0 ? 4 : 1;
        enum dtp_status status = dtp_placement_init(
            &p, &a100, &(struct dtp_sizes){n[0], n[1], n[2], n[3], n[4], folds ? etp : 0}, order,
            &err);
        if (folds && etp == n[0] && n[1] * n[2] % n[4] != 0)
            continue;
        if (status != DTP_OK) { /* cp and dp apart */
            CU_ASSERT(strstr(order, "cp-dp") == NULL && strstr(order, "dp-cp") == NULL);
            CU_ASSERT(n[1] > 1 && n[2] > 1);
            continue;
        }
        int half = n[1] * n[2] % 2 == 0 ? n[1] * n[2] / 2 : 1;
        p.zero_group = dtp_rng_below(&rng, 2) ? half : 0;
        for (int axis = 0; axis < DTP_NAXES; axis++) {
            check_groups(&p, order, (enum dtp_axis)axis);
            for (int r = 0; r < p.ngpus; r += 1 + p.ngpus / 16)
                check_shape(&p, order, (enum dtp_axis)axis, r);
        }
    }
}

static void test_round_trip(void) {
    struct dtp_placement p;
    struct dtp_err err = {0};
    for (int o = 0; o < 24; o++) {
        if (dtp_placement_init(&p, &a100, &(struct dtp_sizes){2, 3, 1, 5, 1}, orders[o], &err) !=
            DTP_OK)
            continue;
        for (int r = 0; r < p.ngpus; r++) {
            int t, c, d, s;
            dtp_placement_coords(&p, r, &t, &c, &d, &s);
            CU_ASSERT_EQUAL(dtp_placement_rank(&p, t, c, d, s), r);
        }
    }
}

/* Megatron's order on 64 GPUs: tp 8 fills a node, dp 4 strides nodes with all 8 NICs in use. */
static void test_megatron(void) {
    struct dtp_placement p;
    struct dtp_cluster c;
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL_FATAL(dtp_cluster_load(a, "a100", &c, &err), DTP_OK);
    CU_ASSERT_EQUAL(
        dtp_placement_init(&p, &c, &(struct dtp_sizes){8, 1, 4, 2, 1}, "tp-cp-dp-pp", &err),
        DTP_OK);
    struct dtp_group_shape s = dtp_placement_shape(&p, &c, DTP_AXIS_DP, 3);
    CU_ASSERT(s.nodes == 4 && s.per_node == 1 && s.nics == 1 && s.siblings == 1);
    CU_ASSERT_EQUAL(dtp_cluster_set_nics(&c, "4x100", &err), DTP_OK);
    CU_ASSERT_EQUAL(dtp_placement_shape(&p, &c, DTP_AXIS_DP, 3).siblings, 2);
    s = dtp_placement_shape(&p, &c, DTP_AXIS_TP, 3);
    CU_ASSERT(s.nodes == 1 && s.per_node == 8 && s.tier == -1);
    CU_ASSERT(dtp_placement_symmetric(&p, &c));
    /* tp 3 straddles nodes of 8: the groups differ */
    CU_ASSERT_EQUAL(
        dtp_placement_init(&p, &c, &(struct dtp_sizes){3, 1, 8, 1, 1}, "tp-cp-dp-pp", &err),
        DTP_OK);
    CU_ASSERT(!dtp_placement_symmetric(&p, &c));
}

static void test_errors(void) {
    struct dtp_placement p;
    struct dtp_err err = {0};
    static const char *const bad[] = {"tp-cp-dp", "tp-cp-dp-pp-", "tp-tp-dp-pp", "tp,cp,dp,pp", ""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CU_ASSERT_EQUAL(
            dtp_placement_init(&p, &a100, &(struct dtp_sizes){1, 1, 1, 1, 1}, bad[i], &err),
            DTP_EINPUT);
    CU_ASSERT_EQUAL(
        dtp_placement_init(&p, &a100, &(struct dtp_sizes){2, 1, 4, 1, 3}, "tp-cp-dp-pp", &err),
        DTP_EINPUT);
    CU_ASSERT_EQUAL(
        dtp_placement_init(&p, &a100, &(struct dtp_sizes){0, 1, 1, 1, 1}, "tp-cp-dp-pp", &err),
        DTP_EINPUT);
    CU_ASSERT_EQUAL(
        dtp_placement_init(&p, &a100, &(struct dtp_sizes){4, 1, 4, 1, 4, 8}, "tp-cp-dp-pp", &err),
        DTP_EINPUT);
    CU_ASSERT_EQUAL(
        dtp_placement_init(&p, &a100, &(struct dtp_sizes){4, 1, 4, 2, 4, 1}, "tp-cp-pp-dp", &err),
        DTP_EINPUT);
    CU_ASSERT(strstr(err.msg, "pp outermost") != NULL);
    CU_ASSERT_EQUAL(dtp_placement_init(&p, &a100, &(struct dtp_sizes){1 << 15, 1 << 15, 8, 1, 1},
                                       "tp-cp-dp-pp", &err),
                    DTP_EINPUT);
}

int main(void) {
    CU_TestInfo tests[] = {{"groups and shapes against brute force", test_brute_force},
                           {"rank to coordinates and back", test_round_trip},
                           {"Megatron's order on DGX A100", test_megatron},
                           {"bad orders and sizes", test_errors},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"placement", setup, teardown, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
