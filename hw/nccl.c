#include "hw/nccl.h"

#include <stddef.h>
#include <string.h>

#include "hw/collective_internal.h"
#include "sim/base/text.h"

/* ---- constants of one version, from hw/nccl/VERSION.json ---- */

static const char *const algo_keys[] = {"tree", "ring", "nvls", "nvls_tree", NULL};
static const char *const arch_keys[] = {"volta", "ampere", "hopper", "blackwell", NULL};

/* A list of exactly n numbers. */
static enum dtp_status read_list(const struct dtp_json *j, size_t n, double *out,
                                 struct dtp_err *err) {
    char what[64];
    snprintf(what, sizeof what, "a list of %zu numbers of 0 or more", n);
    if (dtp_json_type(j) != DTP_JSON_ARRAY || dtp_json_size(j) != n)
        return dtp_json_expected(j, what, err);
    for (size_t i = 0; i < n; i++) {
        const struct dtp_json *v = dtp_json_at(j, i);
        if (dtp_json_type(v) != DTP_JSON_NUMBER || dtp_json_number(v) < 0)
            return dtp_json_expected(v, "a number of 0 or more", err);
        out[i] = dtp_json_number(v);
    }
    return DTP_OK;
}

/* An object with a list under each of the keys. */
static enum dtp_status read_table(const struct dtp_json *j, const char *const *keys, size_t n,
                                  double *out, struct dtp_err *err) {
    if (dtp_json_type(j) != DTP_JSON_OBJECT)
        return dtp_json_expected(j, "an object of lists", err);
    for (size_t i = 0; keys[i]; i++) {
        const struct dtp_json *row = dtp_json_get(j, keys[i]);
        if (!row)
            return dtp_json_expected(j, keys[i], err);
        DTP_TRY(read_list(row, n, out + i * n, err));
    }
    return DTP_OK;
}

static enum dtp_status read_counts(const struct dtp_json *j, int out[DTP_NNCCL_ARCHS],
                                   struct dtp_err *err) {
    double values[DTP_NNCCL_ARCHS] = {0};
    const struct dtp_json *list =
        dtp_json_type(j) == DTP_JSON_OBJECT ? dtp_json_get(j, "values") : j;
    if (!list)
        return dtp_json_expected(j, "values", err);
    DTP_TRY(read_list(list, DTP_NNCCL_ARCHS, values, err));
    for (int i = 0; i < DTP_NNCCL_ARCHS; i++)
        out[i] = (int)values[i];
    return DTP_OK;
}

#define CORRECTION(field) offsetof(struct dtp_nccl_correction, field)
/* clang-format off */
static const struct dtp_field correction_fields[] = {
    {"latency", DTP_FIELD_DOUBLE, CORRECTION(latency), .min = 0, .max = 100, .required = true, .help = "factor of the latency"},
    {"mixed", DTP_FIELD_DOUBLE, CORRECTION(mixed), .min = 0, .max = 100, .required = true, .help = "of sqrt(latency x bandwidth part)"},
    {"bandwidth", DTP_FIELD_DOUBLE, CORRECTION(bandwidth), .min = 0, .max = 100, .required = true, .help = "of the bandwidth part"},
    {"mean_error", DTP_FIELD_DOUBLE, CORRECTION(mean_error), .min = 0, .max = 100, .help = "of the fit, relative"},
    {0}};

static const struct dtp_field corrections_fields[] = {
    {"node", DTP_FIELD_OBJECT, DTP_CORRECTION_NODE * sizeof(struct dtp_nccl_correction), .fields = correction_fields, .required = true, .help = "inside a node"},
    {"fabric", DTP_FIELD_OBJECT, DTP_CORRECTION_FABRIC * sizeof(struct dtp_nccl_correction), .fields = correction_fields, .required = true, .help = "between nodes"},
    {"libfabric", DTP_FIELD_OBJECT, DTP_CORRECTION_LIBFABRIC * sizeof(struct dtp_nccl_correction), .fields = correction_fields, .required = true, .help = "between nodes, Simple protocol only"},
    {"exchange", DTP_FIELD_OBJECT, DTP_CORRECTION_EXCHANGE * sizeof(struct dtp_nccl_correction), .fields = correction_fields, .required = true, .help = "all_to_all between nodes"},
    {0}};

/* The parts of a file that are tables. */
struct tables {
    const char *version;
    const struct dtp_json *base, *nvlink, *pci, *net, *ll_max, *ring_ll128, *tree_ll128,
        *tree_simple, *nvls, *link, *channels, *nvls_min, *tree_correction, *plateau;
    double net_overhead_s, nvls_share;
    struct dtp_nccl_correction correction[DTP_NCORRECTIONS];
};
#define TABLES(field) offsetof(struct tables, field)
static const struct dtp_field file_fields[] = {
    {"version", DTP_FIELD_STRING, TABLES(version), .required = true, .help = "of NCCL"},
    {"base_latency_s", DTP_FIELD_JSON, TABLES(base), .required = true, .help = "by algorithm and protocol"},
    {"nvlink_latency_s", DTP_FIELD_JSON, TABLES(nvlink), .required = true, .help = "of a hop"},
    {"pci_latency_s", DTP_FIELD_JSON, TABLES(pci), .required = true, .help = "of a hop"},
    {"net_latency_s", DTP_FIELD_JSON, TABLES(net), .required = true, .help = "of a hop"},
    {"ll_max_bytes_per_s", DTP_FIELD_JSON, TABLES(ll_max), .required = true, .help = "cap of LL"},
    {"ring_ll128_bytes_per_s", DTP_FIELD_JSON, TABLES(ring_ll128), .required = true, .help = "cap of a channel"},
    {"tree_ll128_bytes_per_s", DTP_FIELD_JSON, TABLES(tree_ll128), .required = true, .help = "cap of a channel"},
    {"tree_simple_bytes_per_s", DTP_FIELD_JSON, TABLES(tree_simple), .required = true, .help = "cap of a channel"},
    {"nvls_efficiency", DTP_FIELD_JSON, TABLES(nvls), .required = true, .help = "by architecture"},
    {"nvls_share", DTP_FIELD_DOUBLE, TABLES(nvls_share), .min = 0.01, .max = 1, .required = true, .help = "that is achieved of nvls_efficiency, at any group size"},
    {"nvls_min_gpus", DTP_FIELD_JSON, TABLES(nvls_min), .required = true, .help = "by architecture"},
    {"nvlink_bytes_per_s", DTP_FIELD_JSON, TABLES(link), .required = true, .help = "by architecture"},
    {"channels", DTP_FIELD_JSON, TABLES(channels), .required = true, .help = "by architecture"},
    {"net_overhead_s", DTP_FIELD_DOUBLE, TABLES(net_overhead_s), .min = 0, .max = 1, .required = true, .help = "of the proxy"},
    {"tree_correction", DTP_FIELD_JSON, TABLES(tree_correction), .required = true, .help = "by size"},
    {"plateau", DTP_FIELD_JSON, TABLES(plateau), .required = true, .help = "latency factor of rings between nodes"},
    {"correction", DTP_FIELD_OBJECT, TABLES(correction), .fields = corrections_fields, .required = true, .help = "fitted over all sweeps"},
    {0}};
/* clang-format on */

static enum dtp_status read_tables(const struct tables *t, struct dtp_nccl *n,
                                   struct dtp_err *err) {
    DTP_TRY(read_table(t->base, algo_keys, DTP_NPROTOS, n->base_s[0], err));
    DTP_TRY(read_table(t->nvlink, algo_keys, DTP_NPROTOS, n->nvlink_s[0], err));
    DTP_TRY(read_table(t->pci, algo_keys, DTP_NPROTOS, n->pci_s[0], err));
    DTP_TRY(read_table(t->net, algo_keys, DTP_NPROTOS, n->net_s[0], err));
    DTP_TRY(read_table(t->ll_max, arch_keys, 3, n->ll_max_bytes_per_s[0], err));
    DTP_TRY(read_table(t->ring_ll128, arch_keys, 3, n->ring_ll128_bytes_per_s[0], err));
    DTP_TRY(read_table(t->tree_ll128, arch_keys, 3, n->tree_ll128_bytes_per_s[0], err));
    DTP_TRY(read_table(t->tree_simple, arch_keys, 3, n->tree_simple_bytes_per_s[0], err));
    DTP_TRY(read_table(t->tree_correction, dtp_proto_names, DTP_NCCL_TREE_SIZES,
                       n->tree_correction[0], err));
    DTP_TRY(read_list(t->nvls, DTP_NNCCL_ARCHS, n->nvls_efficiency, err));
    DTP_TRY(read_list(t->link, DTP_NNCCL_ARCHS, n->nvlink_bytes_per_s, err));
    DTP_TRY(read_list(t->plateau, 2, n->plateau, err));
    DTP_TRY(read_counts(t->channels, n->channels, err));
    return read_counts(t->nvls_min, n->nvls_min_gpus, err);
}

enum dtp_status dtp_nccl_load(struct dtp_arena *a, const char *version, const struct dtp_nccl **out,
                              struct dtp_err *err) {
    const struct dtp_json *root = NULL;
    struct tables t = {0};
    struct dtp_nccl *n = DTP_NEW(a, struct dtp_nccl, 1);
    const char *path = dtp_data_path(a, dtp_arena_printf(a, "hw/nccl/%s.json", version));
    DTP_TRY(dtp_json_read_file(a, path, &root, err));
    DTP_TRY(dtp_fields_read(a, root, file_fields, &t, err));
    DTP_TRY(read_tables(&t, n, err));
    n->version = t.version;
    n->net_overhead_s = t.net_overhead_s;
    n->nvls_share = t.nvls_share;
    memcpy(n->correction, t.correction, sizeof n->correction);
    *out = n;
    return DTP_OK;
}

/* ---- the model ---- */

const char *const dtp_proto_names[] = {"ll", "ll128", "simple", NULL};

static bool tuned(enum dtp_collective kind) {
    return kind <= DTP_REDUCE;
}

const struct dtp_nccl_correction *dtp_nccl_correction_for(const struct dtp_cluster *c,
                                                          enum dtp_collective kind, int nodes,
                                                          bool simple_only) {
    static const struct dtp_nccl_correction plain = {1, 0, 1, 0};
    if (kind == DTP_ALL_TO_ALL && nodes > 1 && !simple_only)
        return &c->nccl_model->correction[DTP_CORRECTION_EXCHANGE];
    if (!tuned(kind))
        return &plain;
    return &c->nccl_model->correction[nodes < 2     ? DTP_CORRECTION_NODE
                                      : simple_only ? DTP_CORRECTION_LIBFABRIC
                                                    : DTP_CORRECTION_FABRIC];
}

static enum dtp_nccl_arch arch_of(const struct dtp_cluster *c) {
    const char *arch = c->gpu.arch ? c->gpu.arch : "";
    if (strncmp(arch, "sm_10", 5) == 0 || strncmp(arch, "sm_12", 5) == 0)
        return DTP_NCCL_BLACKWELL;
    if (strncmp(arch, "sm_9", 4) == 0)
        return DTP_NCCL_HOPPER;
    return strncmp(arch, "sm_8", 4) == 0 ? DTP_NCCL_AMPERE : DTP_NCCL_VOLTA;
}

/* Returns the rate of a ring of p GPUs of one node. */
static double intra_bytes_per_s(const struct dtp_cluster *c, int p) {
    const struct dtp_node *n = &c->node;
    switch (n->intra) {
    case DTP_INTRA_SWITCH:
        break;
    case DTP_INTRA_MESH: {
        int links = p <= DTP_MAX_MESH ? n->mesh_ring[p] : 0;
        if (links > 0)
            return links * n->mesh_link_bytes_per_s * n->gpu_link_efficiency;
        return dtp_lesser(n->host_link_bytes_per_s, n->socket_link_bytes_per_s) *
               n->gpu_link_efficiency;
    }
    case DTP_INTRA_PCIE: {
        double w = c->intra_busbw_bytes_per_s;
        if (p > n->pcie_gpus_per_switch)
            w = dtp_lesser(w, n->host_link_bytes_per_s * n->gpu_link_efficiency);
        if (n->sockets > 1 && p > (n->gpus + 1) / 2)
            w = dtp_lesser(w, n->socket_link_bytes_per_s * n->gpu_link_efficiency);
        return w;
    }
    case DTP_INTRA_SHM:
        return n->gpu_link_bytes_per_s * n->gpu_link_efficiency / p;
    }
    return c->intra_busbw_bytes_per_s;
}

/* Several GPUs of a node, each with another group's GPU at its NIC: a ring leaves by the NIC that it came
 * in by (NCCL_CROSS_NIC), which none but its first GPU is next to. */
static bool far_ring(const struct dtp_group_shape *s) {
    return s->per_node > 1 && s->nics == s->per_node && s->siblings > 1;
}

double dtp_coll_ring_bytes_per_s(const struct dtp_cluster *c, const struct dtp_group_shape *s) {
    double w = s->per_node > 1 ? intra_bytes_per_s(c, s->per_node) : 0;
    if (s->nodes < 2)
        return w;
    const struct dtp_node *n = &c->node;
    double net = n->nic_bytes_per_s * n->nic_efficiency * s->nics / s->siblings;
    for (int t = 0; t < s->tier && t < c->ntiers; t++)
        net /= c->tier[t].oversubscription;
    if (n->far_nic_bytes_per_s > 0 && far_ring(s))
        net = dtp_lesser(net, n->far_nic_bytes_per_s * s->per_node / n->gpus);
    return s->per_node > 1 ? dtp_lesser(w, net) : net;
}

static int node_index(int nodes) {
    return nodes > 2 ? 2 : nodes - 1;
}

static int floor_log2(int n) {
    int l = 0;
    while (n > 1) {
        n /= 2;
        l++;
    }
    return l;
}

int dtp_nccl_channels(const struct dtp_cluster *c, const struct dtp_group_shape *s) {
    enum { A_CARD = 2, MOST = 16 };
    const double one_ring_bytes_per_s =
        25e9; /* a ring that is faster in the node and by its card gets a second one */
    int all = c->nccl_model->channels[arch_of(c)];
    if (s->nodes < 2)
        return all;
    bool twice = c->node.nic_bytes_per_s > one_ring_bytes_per_s &&
                 (s->per_node < 2 || intra_bytes_per_s(c, s->per_node) > one_ring_bytes_per_s);
    int n = s->nics * A_CARD * (twice ? 2 : 1);
    n = n < MOST ? n : MOST;
    return n < all ? n : all;
}

/* What the rules below share for one group. */
struct setting {
    const struct dtp_nccl *n;
    const double (*intra_s)[DTP_NPROTOS];
    enum dtp_nccl_arch arch;
    enum dtp_collective kind;
    const struct dtp_group_shape *shape;
    double w, net_s, link; /* ring bandwidth, the fabric's own latency, NVLink in all */
    int channels;
    bool simple_only, nvls;
};

static struct setting setting(const struct dtp_cluster *c, enum dtp_collective kind,
                              const struct dtp_group_shape *shape) {
    struct setting s = {c->nccl_model,
                        c->nccl_model->nvlink_s,
                        arch_of(c),
                        kind,
                        shape,
                        dtp_coll_ring_bytes_per_s(c, shape),
                        0,
                        c->node.gpu_link_bytes_per_s,
                        0,
                        c->simple_only && shape->nodes > 1,
                        false};
    if (c->node.intra == DTP_INTRA_PCIE)
        s.intra_s = c->nccl_model->pci_s;
    if (shape->nodes > 1) {
        s.net_s = c->node.nic_latency_s;
        for (int t = 0; t <= shape->tier && t < c->ntiers; t++)
            s.net_s += c->tier[t].latency_s;
    }
    s.channels = s.n->channels[s.arch];
    int least = s.n->nvls_min_gpus[s.arch];
    s.nvls = c->nvls && c->node.intra == DTP_INTRA_SWITCH && kind == DTP_ALL_REDUCE && least > 0 &&
             shape->per_node >= least;
    return s;
}

static double net_hop(const struct setting *s, enum dtp_nccl_algo algo, enum dtp_proto proto) {
    /* one GPU per node: the ring's hop costs as much as the tree's (tuning.cc) */
    enum dtp_nccl_algo row =
        s->shape->per_node == 1 && algo == DTP_NCCL_RING ? DTP_NCCL_TREE : algo;
    return s->n->net_s[row][proto] + (proto == DTP_PROTO_SIMPLE ? 2 : 1) * s->net_s;
}

static double latency_s(const struct setting *s, enum dtp_nccl_algo algo, enum dtp_proto proto) {
    int n = s->shape->size, nodes = s->shape->nodes, p = s->shape->per_node;
    double base = s->n->base_s[algo][proto], hop = s->intra_s[algo][proto];
    double net = nodes > 1 ? net_hop(s, algo, proto) : 0;
    if (algo == DTP_NCCL_TREE)
        return base + 2 * ((p - 1) * hop + floor_log2(nodes) * net);
    if (algo == DTP_NCCL_NVLS)
        return hop;
    if (algo == DTP_NCCL_NVLS_TREE)
        return base + hop + 2 * floor_log2(nodes) * net;
    if (s->kind == DTP_BROADCAST || s->kind == DTP_REDUCE)
        return base + (nodes > 1 ? n * hop + nodes * net : n * hop);
    int steps = s->kind == DTP_ALL_REDUCE ? 2 * (n - 1) : n - 1;
    int crossings = nodes < 2 ? 0 : s->kind == DTP_ALL_REDUCE ? 2 * (nodes - 1) : nodes - 1;
    double proxy = nodes < 2 ? 0 : s->n->net_overhead_s * (proto == DTP_PROTO_SIMPLE ? 3 : 1);
    return base + (steps - crossings) * (hop > proxy ? hop : proxy) + crossings * net;
}

/* Returns the algorithm bandwidth: bytes of the buffer per second. */
static double bandwidth(const struct setting *s, enum dtp_nccl_algo algo, enum dtp_proto proto) {
    const struct dtp_nccl *m = s->n;
    int n = s->shape->size, at = node_index(s->shape->nodes), steps = n;
    double w = s->w, ll_max = m->ll_max_bytes_per_s[s->arch][at];
    double in_switch = m->nvls_share * m->nvls_efficiency[s->arch] * s->link;
    switch (algo) {
    case DTP_NCCL_NVLS:
        return proto == DTP_PROTO_SIMPLE ? in_switch : 0;
    case DTP_NCCL_NVLS_TREE: {
        double net = w * (s->shape->nodes == 2 ? 2 : 1) * n / (2.0 * (n - 1));
        return proto == DTP_PROTO_SIMPLE ? dtp_lesser(in_switch, net) : 0;
    }
    case DTP_NCCL_TREE:
        w = dtp_lesser(0.92 * w, s->channels * m->tree_simple_bytes_per_s[s->arch][at]);
        if (proto == DTP_PROTO_LL)
            w = dtp_lesser(w / 3.8, ll_max);
        if (proto == DTP_PROTO_LL128)
            w = dtp_lesser(w * (s->shape->nodes == 1 ? 7.0 / 9 : 120.0 / 128),
                           s->channels * m->tree_ll128_bytes_per_s[s->arch][at]);
        return 0.5 * w;
    case DTP_NCCL_RING:
        if (proto == DTP_PROTO_LL)
            w = dtp_lesser(ll_max, 0.5 * w);
        if (proto == DTP_PROTO_LL128)
            w = dtp_lesser(0.92 * w, s->channels * m->ring_ll128_bytes_per_s[s->arch][at]);
        if (s->kind == DTP_ALL_REDUCE)
            steps = 2 * (n - 1);
        else if (s->kind != DTP_BROADCAST && s->kind != DTP_REDUCE)
            steps = n - 1;
        return w * n / steps;
    case DTP_NNCCL_ALGOS:
        break;
    }
    return 0;
}

static bool allowed(const struct setting *s, enum dtp_nccl_algo algo) {
    switch (algo) {
    case DTP_NCCL_RING:
        return true;
    case DTP_NCCL_TREE:
        return s->kind == DTP_ALL_REDUCE && s->shape->nodes > 1;
    case DTP_NCCL_NVLS:
        return s->nvls && s->shape->nodes == 1;
    case DTP_NCCL_NVLS_TREE:
        return s->nvls && s->shape->nodes > 1;
    case DTP_NNCCL_ALGOS:
        break;
    }
    return false;
}

void dtp_nccl_terms(const struct dtp_cluster *c, enum dtp_collective kind,
                    const struct dtp_group_shape *shape, struct dtp_nccl_terms *out) {
    out->n = 0;
    if (!tuned(kind) || shape->size < 2)
        return;
    struct setting s = setting(c, kind, shape);
    for (int i = 0; i < DTP_NNCCL_ALGOS; i++) {
        enum dtp_nccl_algo algo = (enum dtp_nccl_algo)i;
        if (!allowed(&s, algo))
            continue;
        bool simple = s.simple_only || algo == DTP_NCCL_NVLS || algo == DTP_NCCL_NVLS_TREE;
        out->at[out->n].algo = algo;
        out->at[out->n].lat_s = latency_s(&s, algo, simple ? DTP_PROTO_SIMPLE : DTP_PROTO_LL);
        out->at[out->n++].s_per_byte = 1 / bandwidth(&s, algo, DTP_PROTO_SIMPLE);
    }
}

static double tree_factor(const struct dtp_nccl *n, enum dtp_proto proto, double bytes) {
    int i = 0;
    for (double size = 128; size <= bytes && i < DTP_NCCL_TREE_SIZES - 1; size *= 2)
        i++;
    return n->tree_correction[proto][i];
}

/* NCCL gives up channels while each would get less than its threads can take (enqueue.cc). */
static int channels_for(const struct setting *s, enum dtp_nccl_algo algo, enum dtp_proto proto,
                        double bytes) {
    double threads = proto == DTP_PROTO_LL128 ? 640 : 512, threshold = 8;
    if (proto == DTP_PROTO_SIMPLE)
        threshold = 64;
    else if (proto == DTP_PROTO_LL && algo == DTP_NCCL_RING)
        threshold = 8.0 * s->shape->size;
    double most = bytes / (threads * threshold);
    if (algo == DTP_NCCL_NVLS || algo == DTP_NCCL_NVLS_TREE)
        return s->channels / 2;
    return most < 1 ? 1 : most < s->channels ? (int)most : s->channels;
}

bool dtp_nccl_choose(const struct dtp_cluster *c, enum dtp_collective kind,
                     const struct dtp_group_shape *shape, double bytes,
                     struct dtp_nccl_choice *out) {
    if (!tuned(kind) || shape->size < 2)
        return false;
    struct setting s = setting(c, kind, shape);
    *out = (struct dtp_nccl_choice){.time_s = -1};
    for (int i = 0; i < DTP_NNCCL_ALGOS; i++)
        for (int k = 0; k < DTP_NPROTOS; k++) {
            enum dtp_nccl_algo algo = (enum dtp_nccl_algo)i;
            enum dtp_proto proto = (enum dtp_proto)k;
            double w = allowed(&s, algo) ? bandwidth(&s, algo, proto) : 0;
            if (w <= 0 || (s.simple_only && proto != DTP_PROTO_SIMPLE))
                continue;
            double lat = latency_s(&s, algo, proto);
            if (algo == DTP_NCCL_TREE)
                w *= tree_factor(s.n, proto, bytes);
            if (algo == DTP_NCCL_RING && proto == DTP_PROTO_SIMPLE && shape->nodes > 1 &&
                kind == DTP_ALL_REDUCE && bytes / (s.channels * shape->size) >= 64)
                lat *= s.n->plateau[s.arch != DTP_NCCL_VOLTA];
            double t = lat + bytes / w;
            if (out->time_s < 0 || t < out->time_s)
                *out =
                    (struct dtp_nccl_choice){algo, proto, channels_for(&s, algo, proto, bytes), t};
        }
    return true;
}
