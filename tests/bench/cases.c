#include "tests/bench/cases.h"

enum { GPUS_PER_NODE = 8, GPUS_PER_LEAF = 128, NSPINES = 16, MAX_RING = 64 };

static const double LOAD_SHARE = 0.1, NIC_PER_S = 25e9, SPINE_PER_S = 100e9, HOP_S = 2.5e-6;
static const double FORWARD_S = 0.0409, BACKWARD_S = 0.1226, P2P_BYTES = 6291456,
                    CHUNK_BYTES = 342e6;

/* The hash that the published times were made with (a multiplicative mix). */
static uint32_t hash2(uint32_t a, uint32_t b) {
    uint32_t x = a * 2654435761u ^ (b * 2246822519u + 0x9e3779b9u);
    x ^= x >> 15;
    x *= 2654435761u;
    return x ^ x >> 13;
}

static double jittered(const struct case_graph *c, uint32_t a, uint32_t b) {
    return c->jitter ? 1 + 0.02 * (hash2(a, b) % 100000) / 100000.0 : 1.0;
}

void case_init(struct case_graph *c, struct dtp_arena *a) {
    *c = (struct case_graph){.a = a};
    dtp_platform_init(&c->p, a);
    dtp_graph_init(&c->g, a);
}

static dtp_id add_links(struct case_graph *c, uint32_t n, double capacity_per_s) {
    dtp_id first = c->p.nlinks;
    for (uint32_t i = 0; i < n; i++)
        dtp_platform_link(&c->p, capacity_per_s, NULL);
    return first;
}

static void build_cluster(struct case_graph *c, uint32_t ngpus) {
    uint32_t nleaf = (ngpus + GPUS_PER_LEAF - 1) / GPUS_PER_LEAF;
    c->up = add_links(c, ngpus, NIC_PER_S);
    c->down = add_links(c, ngpus, NIC_PER_S);
    c->leaf_up = add_links(c, nleaf * NSPINES, SPINE_PER_S);
    c->leaf_down = add_links(c, nleaf * NSPINES, SPINE_PER_S);
}

static dtp_id flow(struct case_graph *c, uint32_t from, uint32_t to, double bytes) {
    struct dtp_use uses[6] = {{c->up + from, DTP_USE_LINK, 1}, {c->down + to, DTP_USE_LINK, 1}};
    uint32_t n = 2, leaf = from / GPUS_PER_LEAF, other = to / GPUS_PER_LEAF;
    if (leaf != other) {
        uint32_t spine = hash2(from, to) % NSPINES;
        uses[n++] = (struct dtp_use){c->leaf_up + leaf * NSPINES + spine, DTP_USE_LINK, 1};
        uses[n++] = (struct dtp_use){c->leaf_down + other * NSPINES + spine, DTP_USE_LINK, 1};
    }
    if (c->loads && bytes == CHUNK_BYTES) {
        uses[n++] = (struct dtp_use){from, DTP_USE_LOAD, LOAD_SHARE};
        uses[n++] = (struct dtp_use){to, DTP_USE_LOAD, LOAD_SHARE};
    }
    return dtp_graph_add(&c->g, &(struct dtp_task){.latency_s = 2 * HOP_S,
                                                   .work = bytes,
                                                   .rate_cap = DTP_UNCAPPED,
                                                   .uses = uses,
                                                   .nuses = n,
                                                   .device = DTP_NONE,
                                                   .stream = DTP_NONE});
}

static dtp_id compute(struct case_graph *c, double work_s, dtp_id gpu) {
    return dtp_graph_add(&c->g, &(struct dtp_task){.work = work_s,
                                                   .rate_cap = 1,
                                                   .device = c->loads ? gpu : DTP_NONE,
                                                   .stream = DTP_NONE});
}

static void shuffle(struct case_graph *c, int n) {
    uint64_t x = 12345;
    c->permutation = DTP_NEW(c->a, int, (size_t)n);
    for (int i = 0; i < n; i++)
        c->permutation[i] = i;
    for (int i = n - 1; i > 0; i--) {
        x = x * 6364136223846793005ull + 1442695040888963407ull;
        int k = (int)((x >> 33) % (uint64_t)(i + 1)), t = c->permutation[i];
        c->permutation[i] = c->permutation[k];
        c->permutation[k] = t;
    }
}

static uint32_t gpu_of(struct case_graph *c, int t, int d, int p) {
    int rank = c->map == CASE_PACKED ? (p * c->dp + d) * c->tp + t : (d * c->pp + p) * c->tp + t;
    if (c->map == CASE_SHUFFLED) {
        if (!c->permutation)
            shuffle(c, c->tp * c->dp * c->pp);
        rank = c->permutation[rank];
    }
    return (uint32_t)rank;
}

/* Chains side by side that fork and join: a task waits for its own chain and for the one to its
 * left. */
void case_chain_fork(struct case_graph *c, const int *arg) {
    uint32_t width = (uint32_t)arg[0], length = (uint32_t)arg[1];
    dtp_graph_reserve(&c->g, width * length, 2 * width * length, 0);
    for (uint32_t k = 0; k < length; k++)
        for (uint32_t i = 0; i < width; i++) {
            dtp_id x = compute(c, 0.04 * (1 + 0.02 * (hash2(i, k) % 1000) / 1000.0), DTP_NONE);
            if (k > 0)
                dtp_graph_dep(&c->g, x - width, x);
            if (k > 0 && i > 0)
                dtp_graph_dep(&c->g, x - width - 1, x);
        }
}

/* 1F1B: stage s runs min(stages - 1 - s, m) forwards, then one forward, one backward, ... Counts the
 * action and says whether it is a backward. */
static int next_action(int stage, int nstages, int m, int *nforward, int *nbackward) {
    int warm = nstages - 1 - stage < m ? nstages - 1 - stage : m;
    int backward = *nforward == m || *nforward - *nbackward > warm;
    ++*(backward ? nbackward : nforward);
    return backward;
}

void case_pipeline(struct case_graph *c, const int *arg) {
    uint32_t nstages = (uint32_t)arg[0], m = (uint32_t)arg[1];
    for (uint32_t s = 0; s < nstages; s++)
        for (uint32_t i = 0; i < m; i++) {
            compute(c, 0.040 * (1 + 0.02 * (hash2(s, i) % 1000) / 1000.0), DTP_NONE);
            compute(c, 0.080 * (1 + 0.02 * (hash2(s, i + m) % 1000) / 1000.0), DTP_NONE);
        }
    for (uint32_t s = 0; s < nstages; s++) {
        int nf = 0, nb = 0;
        dtp_id previous = DTP_NONE;
        for (uint32_t k = 0; k < 2 * m; k++) {
            int backward = next_action((int)s, arg[0], arg[1], &nf, &nb);
            uint32_t i = (uint32_t)(backward ? nb : nf) - 1;
            dtp_id x = 2 * (s * m + i) + (uint32_t)backward;
            if (previous != DTP_NONE)
                dtp_graph_dep(&c->g, previous, x);
            if (!backward && s > 0)
                dtp_graph_dep(&c->g, x - 2 * m, x);
            if (backward && s < nstages - 1)
                dtp_graph_dep(&c->g, x + 2 * m, x);
            previous = x;
        }
    }
}

/* One ring all-reduce of 2 (dp - 1) steps over the dp ranks of (t, p), after `last` of each rank. */
static void add_ring(struct case_graph *c, int t, int p, const dtp_id *last) {
    int n = c->dp;
    dtp_id previous[MAX_RING], current[MAX_RING];
    for (int k = 0; n > 1 && k < 2 * (n - 1); k++) {
        for (int i = 0; i < n; i++) {
            uint32_t from = gpu_of(c, t, i, p), to = gpu_of(c, t, (i + 1) % n, p);
            double bytes = CHUNK_BYTES;
            if (!last) /* whole bytes: the published jittered times have them */
                bytes = (double)(uint64_t)(CHUNK_BYTES * jittered(c, from, (uint32_t)k));
            current[i] = flow(c, from, to, bytes);
            if (k > 0) {
                dtp_graph_dep(&c->g, previous[i], current[i]);
                dtp_graph_dep(&c->g, previous[(i + n - 1) % n], current[i]);
            } else if (last) {
                dtp_graph_dep(&c->g, last[from], current[i]);
            }
        }
        for (int i = 0; i < n; i++)
            previous[i] = current[i];
    }
}

void case_rings(struct case_graph *c, const int *arg) {
    c->tp = c->dp = 8;
    c->pp = arg[0] / c->dp;
    c->map = (enum case_map)arg[1];
    c->jitter = arg[2];
    build_cluster(c, (uint32_t)(arg[0] * GPUS_PER_NODE));
    for (int p = 0; p < c->pp; p++)
        for (int t = 0; t < c->tp; t++)
            add_ring(c, t, p, NULL);
}

/* The pipeline of one (t, d): compute tasks by (stage, microbatch, kind), then the p2p flows. */
static void add_pipeline(struct case_graph *c, int t, int d, int m, dtp_id *last) {
    dtp_id first = c->g.ntasks;
    for (int p = 0; p < c->pp; p++)
        for (uint32_t i = 0; i < (uint32_t)m; i++) {
            uint32_t gpu = gpu_of(c, t, d, p);
            compute(c, FORWARD_S * jittered(c, gpu, i), gpu);
            compute(c, BACKWARD_S * jittered(c, gpu, i + (uint32_t)m), gpu);
        }
    for (int p = 0; p < c->pp; p++) {
        int nf = 0, nb = 0;
        uint32_t gpu = gpu_of(c, t, d, p);
        dtp_id previous = DTP_NONE;
        for (int k = 0; k < 2 * m; k++) {
            int backward = next_action(p, c->pp, m, &nf, &nb), q = backward ? p + 1 : p - 1;
            uint32_t i = (uint32_t)(backward ? nb : nf) - 1, kind = (uint32_t)backward;
            dtp_id x = first + 2 * ((uint32_t)(p * m) + i) + kind;
            if (previous != DTP_NONE)
                dtp_graph_dep(&c->g, previous, x);
            if (q >= 0 && q < c->pp) {
                dtp_id f = flow(c, gpu_of(c, t, d, q), gpu, P2P_BYTES);
                dtp_graph_dep(&c->g, first + 2 * ((uint32_t)(q * m) + i) + kind, f);
                dtp_graph_dep(&c->g, f, x);
            }
            previous = x;
        }
        last[gpu] = previous;
    }
}

void case_step(struct case_graph *c, const int *arg) {
    c->tp = arg[0];
    c->pp = arg[1];
    c->dp = arg[2];
    c->jitter = arg[4];
    c->map = (enum case_map)arg[5];
    uint32_t n = (uint32_t)(c->tp * c->pp * c->dp), m = (uint32_t)arg[3];
    uint32_t ncompute = 2 * m * n, np2p = 2 * m * (n - n / (uint32_t)c->pp),
             nring = 2 * n * (uint32_t)(c->dp - 1);
    build_cluster(c, n);
    dtp_graph_reserve(&c->g, ncompute + np2p + nring, ncompute + 2 * np2p + 2 * nring,
                      4 * (np2p + nring));
    dtp_id *last = DTP_NEW(c->a, dtp_id, n);
    for (int t = 0; t < c->tp; t++)
        for (int d = 0; d < c->dp; d++)
            add_pipeline(c, t, d, arg[3], last);
    for (int p = 0; p < c->pp; p++)
        for (int t = 0; t < c->tp; t++)
            add_ring(c, t, p, last);
}

void case_step_loads(struct case_graph *c, const int *arg) {
    c->loads = 1;
    for (int i = 0; i < arg[0] * arg[1] * arg[2]; i++)
        dtp_platform_device(&c->p);
    case_step(c, arg);
}

void case_all_to_all(struct case_graph *c, const int *arg) {
    uint32_t n = (uint32_t)(arg[0] * GPUS_PER_NODE);
    c->jitter = arg[1];
    build_cluster(c, n);
    for (uint32_t from = 0; from < n; from++)
        for (uint32_t k = 1; k < n; k++) {
            uint32_t to = (from + k) % n;
            flow(c, from, to, CHUNK_BYTES * jittered(c, from, to));
        }
}
