#include "hw/cluster_internal.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "hw/nccl.h"
#include "sim/base/text.h"
#include "sim/base/units.h"

/* A file is read into a spec: first its base, then its own keys over it; then what nobody gave is derived. 0 means
 * "derive". */

/* Keys of one file that are read by hand; reset for each file of the chain. */
struct spec_json {
    const struct dtp_json *gpu, *tiers, *curves, *mesh_links, *affinity;
};
struct defaults;
struct spec {
    struct dtp_cluster c;
    struct spec_json json;
    const struct dtp_json *gpu, *curves; /* as the last file that has them gives them */
    struct dtp_ints affinity;
    const char *base;
    struct dtp_cluster measured; /* as the file that gave the curves describes it */
    const struct defaults *defaults;
};

/* ---- keys of a file, and what follows from them ---- */

const char *const dtp_intra_names[] = {"nvswitch", "mesh", "pcie", "shm", NULL};
static const char *const fabric_names[] = {"infiniband", "ethernet", "omnipath", "slingshot",
                                           "efa",        "none",     NULL};

#define NODE(field) offsetof(struct dtp_node, field)
/* clang-format off */
static const struct dtp_field node_fields[] = {
    {"gpus", DTP_FIELD_INT, NODE(gpus), .min = 1, .max = DTP_MAX_GPUS_PER_NODE, .help = "GPUs in a node, 8"},
    {"intra", DTP_FIELD_ENUM, NODE(intra), .names = dtp_intra_names, .help = "what links them: nvswitch, mesh, pcie, shm"},
    {"gpu_link_bytes_per_s", DTP_FIELD_DOUBLE, NODE(gpu_link_bytes_per_s), .min = 1e6, .max = 1e15, .help = "all NVLinks of a GPU (or PCIe), one direction; from the GPU's architecture"},
    {"gpu_link_efficiency", DTP_FIELD_DOUBLE, NODE(gpu_link_efficiency), .min = 0.01, .max = 1, .help = "achieved / nominal; from the architecture"},
    {"gpu_link_latency_s", DTP_FIELD_DOUBLE, NODE(gpu_link_latency_s), .min = 0, .max = 1, .help = "one step between GPUs of a node"},
    {"mesh_link_bytes_per_s", DTP_FIELD_DOUBLE, NODE(mesh_link_bytes_per_s), .min = 1e6, .max = 1e15, .help = "one NVLink of a mesh, one direction"},
    {"host_link_bytes_per_s", DTP_FIELD_DOUBLE, NODE(host_link_bytes_per_s), .min = 1e6, .max = 1e15, .help = "GPU (or PCIe switch) to host, one direction; the GPU's PCIe"},
    {"socket_link_bytes_per_s", DTP_FIELD_DOUBLE, NODE(socket_link_bytes_per_s), .min = 1e6, .max = 1e15, .help = "between the two sockets, one direction"},
    {"sockets", DTP_FIELD_INT, NODE(sockets), .min = 1, .max = 2, .help = "CPU sockets, 2"},
    {"pcie_gpus_per_switch", DTP_FIELD_INT, NODE(pcie_gpus_per_switch), .min = 1, .max = DTP_MAX_GPUS_PER_NODE, .help = "GPUs under one PCIe switch, 2"},
    {"nics", DTP_FIELD_INT, NODE(nics), .min = 0, .max = 1024, .help = "NICs for training; more than GPUs are bundled"},
    {"nic_bytes_per_s", DTP_FIELD_DOUBLE, NODE(nic_bytes_per_s), .min = 1e6, .max = 1e15, .help = "one NIC, one direction, nominal; 200 Gbit/s are 25e9"},
    {"nic_efficiency", DTP_FIELD_DOUBLE, NODE(nic_efficiency), .min = 0.01, .max = 1, .help = "achieved / nominal, collectives"},
    {"nic_latency_s", DTP_FIELD_DOUBLE, NODE(nic_latency_s), .min = 0, .max = 1, .help = "one step between nodes"},
    {"far_nic_bytes_per_s", DTP_FIELD_DOUBLE, NODE(far_nic_bytes_per_s), .min = 0, .max = 1e15, .help = "all rings of a node whose last GPU is not next to the NIC they leave by, 0: as others"},
    {"p2p_efficiency", DTP_FIELD_DOUBLE, NODE(p2p_efficiency), .min = 0.01, .max = 1, .help = "achieved / nominal, one send and receive"},
    {"p2p_latency_s", DTP_FIELD_DOUBLE, NODE(p2p_latency_s), .min = 0, .max = 1, .help = "a send and receive between nodes, 0 bytes"},
    {"p2p_intra_latency_s", DTP_FIELD_DOUBLE, NODE(p2p_intra_latency_s), .min = 0, .max = 1, .help = "the same inside the node"},
    {"host_memory_bytes", DTP_FIELD_U64, NODE(host_memory_bytes), .help = "host memory of a node"},
    {"host_stream_bytes_per_s", DTP_FIELD_DOUBLE, NODE(host_stream_bytes_per_s), .min = 1, .max = 1e15, .help = "that the CPUs reach on host memory together"},
    {"host_gpu_bytes_per_s", DTP_FIELD_DOUBLE, NODE(host_gpu_bytes_per_s), .min = 0, .max = 1e15, .help = "host to all GPUs at once; 0: each as if alone"},
    {"nvme_bytes_per_s", DTP_FIELD_DOUBLE, NODE(nvme_bytes_per_s), .min = 0, .max = 1e15, .help = "local disks, read"},
    {"nvme_bytes", DTP_FIELD_DOUBLE, NODE(nvme_bytes), .min = 0, .max = 1e18, .help = "local disks, size"},
    {"cores", DTP_FIELD_INT, NODE(cores), .min = 0, .max = 65536, .help = "CPU cores"},
    {0}};

#define SPEC(field) offsetof(struct spec, field)

const struct dtp_field dtp_cluster_fields[] = {
    {"title", DTP_FIELD_STRING, SPEC(c.title), .help = "one line"},
    {"base", DTP_FIELD_STRING, SPEC(base), .help = "cluster to start from"},
    {"gpu", DTP_FIELD_JSON, SPEC(json.gpu), .help = "name of hw/gpu, or an object of that form"},
    {"node", DTP_FIELD_OBJECT, SPEC(c.node), .fields = node_fields, .help = "one node"},
    {"mesh_links", DTP_FIELD_JSON, SPEC(json.mesh_links), .help = "matrix: NVLinks between GPU i and j"},
    {"nic_of_gpu", DTP_FIELD_JSON, SPEC(json.affinity), .help = "list: NIC of each GPU; evenly by default"},
    {"fabric", DTP_FIELD_STRING, SPEC(c.fabric), .help = "infiniband, ethernet, omnipath, slingshot, efa, none"},
    {"tiers", DTP_FIELD_JSON, SPEC(json.tiers), .help = "list of {name, nodes, oversubscription, latency_s}, leaf first"},
    {"rail_optimised", DTP_FIELD_BOOL, SPEC(c.rail_optimised), .help = "NIC i of all nodes of a leaf group on one leaf"},
    {"max_gpus", DTP_FIELD_INT, SPEC(c.max_gpus), .min = 0, .max = 1e9, .help = "0: no limit"},
    {"nccl", DTP_FIELD_STRING, SPEC(c.nccl), .help = "version of NCCL"},
    {"nvls", DTP_FIELD_BOOL, SPEC(c.nvls), .help = "in-switch reduction"},
    {"simple_only", DTP_FIELD_BOOL, SPEC(c.simple_only), .help = "fabric where only NCCL's Simple protocol is used"},
    {"intra_busbw_bytes_per_s", DTP_FIELD_DOUBLE, SPEC(c.intra_busbw_bytes_per_s), .min = 1, .max = 1e15, .help = "ring asymptote inside the node; link x efficiency"},
    {"curves", DTP_FIELD_JSON, SPEC(json.curves), .help = "list of files of hw/curves, best first, or of curves themselves"},
    {0}};

const struct dtp_field dtp_tier_fields[] = {
    {"name", DTP_FIELD_STRING, offsetof(struct dtp_tier, name), .required = true, .help = "leaf, spine, core"},
    {"nodes", DTP_FIELD_INT, offsetof(struct dtp_tier, nodes), .min = 1, .max = 1e9, .required = true, .help = "nodes under one switch group"},
    {"oversubscription", DTP_FIELD_DOUBLE, offsetof(struct dtp_tier, oversubscription), .min = 1, .max = 1000, .help = "of its up-links, 1"},
    {"latency_s", DTP_FIELD_DOUBLE, offsetof(struct dtp_tier, latency_s), .min = 0, .max = 1, .help = "added to a message that crosses it"},
    {0}};

/* hw/defaults.json: what holds of a machine whose file says nothing of it. */
struct links {
    const char *arch; /* GPUs of it; NULL: all others */
    double bytes_per_s, efficiency, ring_share;
};
struct defaults {
    const struct dtp_json *cluster, *nvlink;
    struct links pcie, others;
};
#define LINKS(field) offsetof(struct links, field)
static const struct dtp_field links_fields[] = {
    {"arch", DTP_FIELD_STRING, LINKS(arch), .help = "of the GPU, sm_90"},
    {"bytes_per_s", DTP_FIELD_DOUBLE, LINKS(bytes_per_s), .min = 1e6, .max = 1e15, .help = "all links of a GPU, one direction, nominal"},
    {"efficiency", DTP_FIELD_DOUBLE, LINKS(efficiency), .min = 0.01, .max = 1, .required = true, .help = "achieved / nominal"},
    {"ring_share", DTP_FIELD_DOUBLE, LINKS(ring_share), .min = 0.01, .max = 1, .required = true, .help = "that a ring of NCCL reaches / nominal"},
    {0}};

#define DEFAULTS(field) offsetof(struct defaults, field)
static const struct dtp_field defaults_fields[] = {
    {"cluster", DTP_FIELD_JSON, DEFAULTS(cluster), .required = true, .help = "keys of a cluster file"},
    {"nvlink", DTP_FIELD_JSON, DEFAULTS(nvlink), .required = true, .help = "list of links by the architecture of the GPU"},
    {"pcie", DTP_FIELD_OBJECT, DEFAULTS(pcie), .fields = links_fields, .required = true, .help = "where intra is pcie"},
    {"others", DTP_FIELD_OBJECT, DEFAULTS(others), .fields = links_fields, .required = true, .help = "links of other architectures"},
    {0}};
/* clang-format on */

static enum dtp_status read_defaults(struct dtp_arena *a, struct spec *spec, struct defaults *out,
                                     struct dtp_err *err) {
    const struct dtp_json *root = NULL;
    *out = (struct defaults){0};
    DTP_TRY(dtp_json_read_file(a, dtp_data_path(a, "hw/defaults.json"), &root, err));
    DTP_TRY(dtp_fields_read(a, root, defaults_fields, out, err));
    if (dtp_json_type(out->nvlink) != DTP_JSON_ARRAY)
        return dtp_json_expected(out->nvlink, "a list of links", err);
    spec->defaults = out;
    return dtp_fields_read(a, out->cluster, dtp_cluster_fields, spec, err);
}

/* Finds what links inside a node reach if the machine's file does not say it. */
static enum dtp_status links_of(struct dtp_arena *a, const struct spec *spec, struct links *out,
                                struct dtp_err *err) {
    const struct dtp_json *nvlink = spec->defaults->nvlink;
    *out = spec->defaults->others;
    for (size_t i = 0; i < dtp_json_size(nvlink) && spec->c.gpu.arch; i++) {
        struct links l = {0};
        DTP_TRY(dtp_fields_read(a, dtp_json_at(nvlink, i), links_fields, &l, err));
        if (l.arch && strcmp(l.arch, spec->c.gpu.arch) == 0)
            *out = l;
    }
    return DTP_OK;
}

/* ---- parts that tables cannot read ---- */

static enum dtp_status read_tiers(struct dtp_arena *a, const struct dtp_json *j,
                                  struct dtp_cluster *c, struct dtp_err *err) {
    if (dtp_json_type(j) != DTP_JSON_ARRAY || dtp_json_size(j) > DTP_MAX_TIERS)
        return dtp_json_expected(j, "a list of at most four tiers", err);
    c->ntiers = 0;
    for (size_t i = 0; i < dtp_json_size(j); i++) {
        struct dtp_tier *t = &c->tier[i];
        *t = (struct dtp_tier){.oversubscription = 1};
        DTP_TRY(dtp_fields_read(a, dtp_json_at(j, i), dtp_tier_fields, t, err));
        if (i > 0 && t->nodes % c->tier[i - 1].nodes != 0)
            return dtp_json_expected(dtp_json_get(dtp_json_at(j, i), "nodes"),
                                     "a multiple of the nodes of the tier below", err);
        c->ntiers++;
    }
    return DTP_OK;
}

static enum dtp_status read_row(struct dtp_arena *a, const struct dtp_json *j, double max,
                                struct dtp_ints *out, struct dtp_err *err) {
    if (dtp_json_type(j) != DTP_JSON_ARRAY)
        return dtp_json_expected(j, "an array of numbers", err);
    *out = (struct dtp_ints){DTP_NEW(a, int, dtp_json_size(j)), dtp_json_size(j)};
    for (size_t i = 0; i < out->n; i++) {
        const struct dtp_json *v = dtp_json_at(j, i);
        double x = dtp_json_type(v) == DTP_JSON_NUMBER ? dtp_json_number(v) : -1;
        if (!(x >= 0 && x <= max) || x != (double)(int)x)
            return dtp_json_expected(v, "a small whole number", err);
        out->at[i] = (int)x;
    }
    return DTP_OK;
}

static enum dtp_status read_mesh(struct dtp_arena *a, const struct dtp_json *j,
                                 struct dtp_node *node, struct dtp_err *err) {
    size_t n = (size_t)node->gpus;
    if (node->gpus > DTP_MAX_MESH || dtp_json_type(j) != DTP_JSON_ARRAY || dtp_json_size(j) != n)
        return dtp_json_expected(j, "a matrix with a row for each GPU, at most 16", err);
    for (size_t r = 0; r < n; r++) {
        struct dtp_ints row = {0};
        DTP_TRY(read_row(a, dtp_json_at(j, r), 64, &row, err));
        if (row.n != n)
            return dtp_json_expected(dtp_json_at(j, r), "a number for each GPU", err);
        memcpy(node->mesh_links[r], row.at, n * sizeof(int));
    }
    for (size_t r = 0; r < n; r++)
        for (size_t k = 0; k < n; k++)
            if (node->mesh_links[r][k] != node->mesh_links[k][r] || node->mesh_links[r][r] != 0)
                return dtp_json_expected(dtp_json_at(j, r), "a symmetric matrix, zero diagonal",
                                         err);
    return DTP_OK;
}

static enum dtp_status read_parts(struct dtp_arena *a, const struct dtp_json *j, struct spec *spec,
                                  struct dtp_err *err) {
    struct dtp_cluster *c = &spec->c;
    if (spec->json.gpu)
        spec->gpu = spec->json.gpu;
    if (spec->json.tiers)
        DTP_TRY(read_tiers(a, spec->json.tiers, c, err));
    if (spec->json.mesh_links)
        DTP_TRY(read_mesh(a, spec->json.mesh_links, &c->node, err));
    if (spec->json.curves) {
        spec->curves = spec->json.curves;
        spec->measured = spec->c;
    }
    if (spec->json.affinity)
        DTP_TRY(read_row(a, spec->json.affinity, 1023, &spec->affinity, err));
    size_t n = 0;
    while (fabric_names[n])
        n++;
    if (dtp_name_index(fabric_names, c->fabric) >= 0)
        return DTP_OK;
    char place[512];
    const struct dtp_json *at = dtp_json_get(j, "fabric");
    enum dtp_status status =
        dtp_unknown_name(err, DTP_EINPUT, "fabric", c->fabric, fabric_names, n, NULL);
    dtp_err_prefix(err, dtp_json_place(at ? at : j, place, sizeof place));
    return status;
}

/* ---- what follows from the rest ---- */

/* If there are more NICs than GPUs, the rails of a GPU carry its messages together (32x100 EFA on 8 GPUs). */
static void bundle_nics(struct dtp_node *node) {
    if (node->nics <= node->gpus)
        return;
    node->nic_bytes_per_s = node->nic_bytes_per_s * node->nics / node->gpus;
    node->nics = node->gpus;
}

static void spread_nics(struct dtp_node *node) {
    for (int i = 0; i < node->gpus; i++)
        node->nic_of_gpu[i] = node->nics ? i * node->nics / node->gpus : 0;
}

static enum dtp_status derive_nics(const struct dtp_json *j, struct spec *spec,
                                   struct dtp_err *err) {
    struct dtp_node *node = &spec->c.node;
    if (node->nics > 0 && node->nic_bytes_per_s <= 0)
        return dtp_json_expected(j, "node.nic_bytes_per_s, as node.nics is given", err);
    bundle_nics(node);
    spread_nics(node);
    if (spec->affinity.n > 0) {
        if (spec->affinity.n != (size_t)node->gpus)
            return dtp_json_expected(j, "in nic_of_gpu a NIC for each GPU", err);
        for (int i = 0; i < node->gpus; i++) {
            if (spec->affinity.at[i] >= node->nics)
                return dtp_json_expected(j, "in nic_of_gpu only NICs that exist", err);
            node->nic_of_gpu[i] = spec->affinity.at[i];
        }
    }
    if (node->nics == 0 && (spec->c.max_gpus == 0 || spec->c.max_gpus > node->gpus))
        spec->c.max_gpus = node->gpus;
    return DTP_OK;
}

/* Parses "2.18" or "2.18.3". */
static bool read_version(const char *text, int *major, int *minor) {
    char *end = NULL;
    *major = (int)strtol(text, &end, 10);
    if (end == text || *end != '.')
        return false;
    text = end + 1;
    *minor = (int)strtol(text, &end, 10);
    return end != text && (*end == '\0' || *end == '.');
}

static enum dtp_status derive(struct dtp_arena *a, const struct dtp_json *j, struct spec *spec,
                              struct dtp_err *err) {
    struct dtp_cluster *c = &spec->c;
    struct dtp_node *node = &c->node;
    const struct defaults *given = spec->defaults;
    double ring_share = given->others.ring_share;
    struct links links;
    DTP_TRY(links_of(a, spec, &links, err));
    if (node->intra == DTP_INTRA_PCIE) {
        if (node->gpu_link_bytes_per_s <= 0)
            node->gpu_link_bytes_per_s = c->gpu.pcie_bytes_per_s;
        if (node->gpu_link_efficiency <= 0)
            node->gpu_link_efficiency = given->pcie.efficiency;
        ring_share = given->pcie.ring_share;
    }
    if (node->gpu_link_bytes_per_s <= 0)
        node->gpu_link_bytes_per_s = links.bytes_per_s;
    if (node->gpu_link_efficiency <= 0) {
        node->gpu_link_efficiency = links.efficiency;
        ring_share = links.ring_share;
    }
    if (node->gpu_link_bytes_per_s <= 0)
        return dtp_json_expected(j, "node.gpu_link_bytes_per_s, as the GPU has no NVLink", err);
    if (node->host_link_bytes_per_s <= 0)
        node->host_link_bytes_per_s =
            c->gpu.pcie_bytes_per_s > 0 ? c->gpu.pcie_bytes_per_s : node->gpu_link_bytes_per_s;
    if (c->intra_busbw_bytes_per_s <= 0)
        c->intra_busbw_bytes_per_s =
            node->gpu_link_bytes_per_s *
            (ring_share < node->gpu_link_efficiency ? ring_share : node->gpu_link_efficiency);
    DTP_TRY(derive_nics(j, spec, err));
    if (node->intra == DTP_INTRA_MESH) {
        if (node->mesh_link_bytes_per_s <= 0)
            return dtp_json_expected(j, "mesh_links and node.mesh_link_bytes_per_s", err);
        dtp_node_mesh(node);
    }
    /* in-switch sums: from NCCL 2.17 on */
    int major = 0, minor = 0;
    if (!read_version(c->nccl, &major, &minor))
        return dtp_json_expected(j, "in nccl a version such as 2.18", err);
    c->nvls = c->nvls && (major > 2 || minor >= 17);
    if (c->ntiers == 0) {
        c->tier[0] = (struct dtp_tier){"fabric", INT32_MAX, 1, 0};
        c->ntiers = 1;
    }
    return dtp_nccl_load(a, "2.30", &c->nccl_model, err);
}

/* ---- curves ---- */

#define CURVE(field) offsetof(struct dtp_curve, field)
/* clang-format off */
const struct dtp_field dtp_curve_fields[] = {
    {"collective", DTP_FIELD_ENUM, CURVE(collective), .names = dtp_collective_names, .required = true, .help = "which"},
    {"gpus", DTP_FIELD_INT, CURVE(gpus), .min = 2, .max = 1e9, .required = true, .help = "size of the group"},
    {"nodes", DTP_FIELD_INT, CURVE(nodes), .min = 1, .max = 1e9, .required = true, .help = "nodes that it spans"},
    {"a_s", DTP_FIELD_DOUBLE, CURVE(a_s), .min = 0, .max = 1e3, .required = true, .help = "t = a + b sqrt(s) + c s"},
    {"b_s_per_sqrt_byte", DTP_FIELD_DOUBLE, CURVE(b_s_per_sqrt_byte), .min = 0, .max = 1, .required = true, .help = "b"},
    {"c_s_per_byte", DTP_FIELD_DOUBLE, CURVE(c_s_per_byte), .min = 0, .max = 1, .required = true, .help = "c"},
    {"min_bytes", DTP_FIELD_DOUBLE, CURVE(min_bytes), .min = 0, .max = 1e18, .required = true, .help = "smallest measured"},
    {"max_bytes", DTP_FIELD_DOUBLE, CURVE(max_bytes), .min = 1, .max = 1e18, .required = true, .help = "largest measured"},
    {"points", DTP_FIELD_INT, CURVE(points), .min = 1, .max = 1e9, .help = "measured points"},
    {"mean_error", DTP_FIELD_DOUBLE, CURVE(mean_error), .min = 0, .max = 10, .help = "of the fit, relative"},
    {"bytes", DTP_FIELD_DOUBLES, CURVE(at_bytes), .min = 1, .max = 1e18, .help = "of each point, ascending"},
    {"time_s", DTP_FIELD_DOUBLES, CURVE(time_s), .min = 0, .max = 1e6, .help = "of each point; goes before the fit"},
    {0}};
/* clang-format on */

struct curve_file {
    const struct dtp_json *curves;
};
static const struct dtp_field curve_file_fields[] = {{"curves", DTP_FIELD_JSON,
                                                      offsetof(struct curve_file, curves),
                                                      .required = true, .help = "list of fits"},
                                                     {0}};

static bool other_links(const struct dtp_node *x, const struct dtp_node *y, bool inter) {
    double net[2] = {x->nics * x->nic_bytes_per_s, y->nics * y->nic_bytes_per_s};
    if (inter)
        return net[0] < net[1] || net[0] > net[1] || x->nics != y->nics;
    return x->gpu_link_bytes_per_s < y->gpu_link_bytes_per_s ||
           x->gpu_link_bytes_per_s > y->gpu_link_bytes_per_s || x->intra != y->intra;
}

static enum dtp_status add_curves(struct dtp_arena *a, const struct dtp_json *curves,
                                  const char *name, const struct dtp_cluster *measured,
                                  struct dtp_cluster *out, struct dtp_err *err) {
    size_t old = (size_t)out->ncurves, n = dtp_json_size(curves);
    out->curve = dtp_arena_grow(a, out->curve, sizeof *out->curve, old, old + n);
    for (size_t i = 0; i < n; i++) {
        const struct dtp_json *row = dtp_json_at(curves, i);
        struct dtp_curve *c = &out->curve[old + i];
        *c = (struct dtp_curve){0};
        DTP_TRY(dtp_fields_read(a, row, dtp_curve_fields, c, err));
        if (c->time_s.n != c->at_bytes.n || (c->time_s.n > 0 && !dtp_doubles_ascend(&c->at_bytes)))
            return dtp_json_expected(row, "bytes in ascending order, a time for each", err);
        const struct dtp_json *source = dtp_json_get(row, "source");
        c->source =
            source && dtp_json_type(source) == DTP_JSON_STRING ? dtp_json_string(source) : name;
        c->foreign = other_links(&measured->node, &out->node, c->nodes > 1);
        dtp_curve_terms(measured, c);
    }
    out->ncurves = (int)(old + n);
    return DTP_OK;
}

static enum dtp_status add_file(struct dtp_arena *a, const char *name,
                                const struct dtp_cluster *measured, struct dtp_cluster *out,
                                struct dtp_err *err) {
    const struct dtp_json *root = NULL;
    struct curve_file file = {0};
    const char *path = dtp_data_path(a, dtp_arena_printf(a, "hw/curves/%s.json", name));
    DTP_TRY(dtp_json_read_file(a, path, &root, err));
    DTP_TRY(dtp_fields_read(a, root, curve_file_fields, &file, err));
    if (dtp_json_type(file.curves) != DTP_JSON_ARRAY)
        return dtp_json_expected(file.curves, "a list of curves", err);
    return add_curves(a, file.curves, name, measured, out, err);
}

enum dtp_status dtp_cluster_load_curves(struct dtp_arena *a, const struct dtp_json *names,
                                        const struct dtp_cluster *measured, struct dtp_cluster *out,
                                        struct dtp_err *err) {
    if (!names)
        return DTP_OK;
    if (dtp_json_type(names) != DTP_JSON_ARRAY)
        return dtp_json_expected(names, "a list of names of hw/curves, or of curves", err);
    if (dtp_json_size(names) > 0 && dtp_json_type(dtp_json_at(names, 0)) == DTP_JSON_OBJECT)
        return add_curves(a, names, "given", measured, out, err);
    for (size_t i = 0; i < dtp_json_size(names); i++) {
        const struct dtp_json *name = dtp_json_at(names, i);
        if (dtp_json_type(name) != DTP_JSON_STRING)
            return dtp_json_expected(name, "a name of hw/curves", err);
        DTP_TRY(add_file(a, dtp_json_string(name), measured, out, err));
    }
    return DTP_OK;
}

/* ---- machines by name ---- */

/* hw/names.json: what people type for a machine, and the usual machines of a card of which nothing else is known. */
struct names {
    const struct dtp_json *aliases, *usual;
};
/* The cards of a family stand in this cluster; memory_bytes 0: any, gpus 0: any other number per node. */
struct usual {
    const char *family, *cluster;
    double memory_bytes;
    int gpus;
};
#define NAMES(field) offsetof(struct names, field)
#define USUAL(field) offsetof(struct usual, field)
/* clang-format off */
static const struct dtp_field names_fields[] = {
    {"aliases", DTP_FIELD_JSON, NAMES(aliases), .required = true, .help = "object: a name, and the cluster it stands for"},
    {"usual_clusters", DTP_FIELD_JSON, NAMES(usual), .required = true, .help = "list of {family, memory_bytes, gpus, cluster}; the first that fits counts"},
    {0}};
static const struct dtp_field usual_fields[] = {
    {"family", DTP_FIELD_STRING, USUAL(family), .required = true, .help = "of cards, A100"},
    {"memory_bytes", DTP_FIELD_DOUBLE, USUAL(memory_bytes), .min = 0, .max = 1e15, .help = "only cards with so much"},
    {"gpus", DTP_FIELD_INT, USUAL(gpus), .min = 0, .max = DTP_MAX_GPUS_PER_NODE, .help = "only nodes of so many"},
    {"cluster", DTP_FIELD_STRING, USUAL(cluster), .required = true, .help = "name of hw/cluster"},
    {0}};
/* clang-format on */

static enum dtp_status read_names(struct dtp_arena *a, struct names *out, struct dtp_err *err) {
    const struct dtp_json *root = NULL;
    *out = (struct names){0};
    DTP_TRY(dtp_json_read_file(a, dtp_data_path(a, "hw/names.json"), &root, err));
    DTP_TRY(dtp_fields_read(a, root, names_fields, out, err));
    if (dtp_json_type(out->aliases) != DTP_JSON_OBJECT)
        return dtp_json_expected(out->aliases, "an object of names", err);
    for (size_t i = 0; i < dtp_json_size(out->aliases); i++)
        if (dtp_json_type(dtp_json_at(out->aliases, i)) != DTP_JSON_STRING)
            return dtp_json_expected(dtp_json_at(out->aliases, i), "the name of a cluster", err);
    return dtp_json_type(out->usual) == DTP_JSON_ARRAY
               ? DTP_OK
               : dtp_json_expected(out->usual, "a list of clusters", err);
}

enum { BASE_DEPTH = 4 };

/* Returns the name without the words that makers and clouds put before it. */
static const char *bare_name(const char *name) {
    static const char *const before[] = {"nvidia", "geforce", "tesla", "standard", NULL};
    for (const char *const *b = before; *b; b++) {
        size_t n = strlen(*b);
        if (strncasecmp(name, *b, n) == 0 && name[n] != '\0' && strchr("-_ ", name[n]))
            name += n + 1;
    }
    return name;
}

static const char *alias_target(const struct names *n, const char *name) {
    name = bare_name(name);
    for (size_t i = 0; i < dtp_json_size(n->aliases); i++)
        if (dtp_same_name(dtp_json_key(dtp_json_at(n->aliases, i)), name))
            return dtp_json_string(dtp_json_at(n->aliases, i));
    return name;
}

static enum dtp_status read_spec(struct dtp_arena *a, const struct dtp_json *j, int depth,
                                 struct spec *spec, struct dtp_err *err);

/* A GPU of hw/gpu that is "like" another one and that no machine is named after stands in the usual machine of that
 * one; *out stays NULL for another name. */
static enum dtp_status gpu_as_cluster(struct dtp_arena *a, const struct names *known,
                                      const char *name, const struct dtp_json **out,
                                      const char **out_name, struct dtp_err *err) {
    const char *const *names = NULL;
    size_t n = 0;
    DTP_TRY(dtp_gpu_list(a, &names, &n, err));
    for (size_t i = 0; i < n; i++) {
        if (!dtp_same_name(names[i], bare_name(name)))
            continue;
        const char *file = dtp_arena_printf(a, "hw/gpu/%s.json", names[i]);
        const struct dtp_json *j = NULL;
        DTP_TRY(dtp_json_read_file(a, dtp_data_path(a, file), &j, err));
        const struct dtp_json *calibration = dtp_json_get(j, "calibration");
        const struct dtp_json *like = calibration ? dtp_json_get(calibration, "like") : NULL;
        if (!like || dtp_json_type(like) != DTP_JSON_STRING)
            return DTP_OK;
        const char *base = alias_target(known, dtp_json_string(like));
        const char *text = dtp_arena_printf(
            a, "{\"base\": \"%s\", \"gpu\": \"%s\", \"title\": \"%s in nodes of %s\"}", base,
            names[i], names[i], base);
        *out_name = names[i];
        return dtp_json_parse(a, file, text, strlen(text), out, err);
    }
    return DTP_OK;
}

enum dtp_status dtp_cluster_file(struct dtp_arena *a, const char *name, const struct dtp_json **out,
                                 const char **out_name, struct dtp_err *err) {
    if (dtp_ends_with(name, ".json")) {
        const char *bare = dtp_base_name(name);
        *out_name = dtp_arena_strndup(a, bare, strlen(bare) - 5);
        return dtp_json_read_file(a, name, out, err);
    }
    const char *const *names = NULL;
    size_t n = 0;
    struct names typed;
    DTP_TRY(read_names(a, &typed, err));
    DTP_TRY(dtp_cluster_list(a, &names, &n, err));
    const char *target = alias_target(&typed, name);
    for (size_t i = 0; i < n; i++)
        if (dtp_same_name(names[i], target)) {
            *out_name = names[i];
            const char *file = dtp_arena_printf(a, "hw/cluster/%s.json", names[i]);
            return dtp_json_read_file(a, dtp_data_path(a, file), out, err);
        }
    *out = NULL;
    DTP_TRY(gpu_as_cluster(a, &typed, name, out, out_name, err));
    if (*out)
        return DTP_OK;
    size_t extra = dtp_json_size(typed.aliases);
    const char **known = DTP_NEW(a, const char *, n + extra);
    memcpy(known, names, n * sizeof *known);
    for (size_t i = 0; i < extra; i++)
        known[n + i] = dtp_json_key(dtp_json_at(typed.aliases, i));
    return dtp_unknown_name(err, DTP_EINPUT, "cluster", name, known, n + extra, "dtplan clusters");
}

static enum dtp_status read_base(struct dtp_arena *a, const struct dtp_json *j, int depth,
                                 struct spec *spec, struct dtp_err *err) {
    const struct dtp_json *base = dtp_json_get(j, "base"), *root = NULL;
    if (!base)
        return DTP_OK;
    if (dtp_json_type(base) != DTP_JSON_STRING)
        return dtp_json_expected(base, "the name of a cluster", err);
    if (depth >= BASE_DEPTH)
        return dtp_json_expected(base, "a chain of at most four bases", err);
    const char *name = NULL;
    enum dtp_status status = dtp_cluster_file(a, dtp_json_string(base), &root, &name, err);
    if (status != DTP_OK) {
        char place[512];
        dtp_err_prefix(err, dtp_json_place(base, place, sizeof place));
        return status;
    }
    return read_spec(a, root, depth + 1, spec, err);
}

static enum dtp_status read_gpu(struct dtp_arena *a, const struct dtp_json *j, struct dtp_gpu *out,
                                struct dtp_err *err) {
    if (dtp_json_type(j) == DTP_JSON_OBJECT)
        return dtp_gpu_read(a, j, out, err);
    if (dtp_json_type(j) != DTP_JSON_STRING)
        return dtp_json_expected(j, "the name of a GPU or an object that describes one", err);
    enum dtp_status status = dtp_gpu_load(a, dtp_json_string(j), out, err);
    if (status != DTP_OK) {
        char place[512];
        dtp_err_prefix(err, dtp_json_place(j, place, sizeof place));
    }
    return status;
}

static enum dtp_status read_spec(struct dtp_arena *a, const struct dtp_json *j, int depth,
                                 struct spec *spec, struct dtp_err *err) {
    if (dtp_json_type(j) != DTP_JSON_OBJECT)
        return dtp_json_expected(j, "an object that describes a cluster", err);
    DTP_TRY(read_base(a, j, depth, spec, err));
    int nics = spec->c.node.nics, gpus = spec->c.node.gpus;
    spec->json = (struct spec_json){0};
    DTP_TRY(dtp_fields_read(a, j, dtp_cluster_fields, spec, err));
    if ((spec->c.node.nics != nics || spec->c.node.gpus != gpus) && !spec->json.affinity)
        spec->affinity.n = 0; /* the base's map is of other GPUs and NICs */
    return read_parts(a, j, spec, err);
}

static enum dtp_status finish(struct dtp_arena *a, const struct dtp_json *j, struct spec *spec,
                              struct dtp_cluster *out, struct dtp_err *err) {
    if (!spec->gpu)
        return dtp_json_expected(j, "\"gpu\", or \"base\" with the machine to start from", err);
    DTP_TRY(read_gpu(a, spec->gpu, &spec->c.gpu, err));
    DTP_TRY(derive(a, j, spec, err));
    const char *name = out->name;
    *out = spec->c;
    out->name = name;
    if (!out->title)
        out->title = name;
    if (!spec->curves)
        return DTP_OK;
    struct spec measured = *spec;
    measured.c = spec->measured;
    measured.c.name = name;
    measured.c.gpu = spec->c.gpu;
    measured.affinity.n = 0;
    DTP_TRY(derive(a, j, &measured, err));
    return dtp_cluster_load_curves(a, spec->curves, &measured.c, out, err);
}

enum dtp_status dtp_cluster_read(struct dtp_arena *a, const struct dtp_json *j,
                                 struct dtp_cluster *out, struct dtp_err *err) {
    struct spec spec = {.c.name = out->name};
    *out = (struct dtp_cluster){.name = spec.c.name ? spec.c.name : "(given)"};
    struct defaults defaults;
    DTP_TRY(read_defaults(a, &spec, &defaults, err));
    DTP_TRY(read_spec(a, j, 0, &spec, err));
    return finish(a, j, &spec, out, err);
}

enum dtp_status dtp_cluster_load(struct dtp_arena *a, const char *name, struct dtp_cluster *out,
                                 struct dtp_err *err) {
    const struct dtp_json *root = NULL;
    *out = (struct dtp_cluster){0};
    DTP_TRY(dtp_cluster_file(a, name, &root, &out->name, err));
    return dtp_cluster_read(a, root, out, err);
}

enum dtp_status dtp_cluster_list(struct dtp_arena *a, const char *const **out_names, size_t *out_n,
                                 struct dtp_err *err) {
    return dtp_dir_list(a, dtp_data_path(a, "hw/cluster"), ".json", out_names, out_n, err);
}

enum dtp_status dtp_cluster_set_nics(struct dtp_cluster *c, const char *text, struct dtp_err *err) {
    char count[16] = "";
    const char *cross = strchr(text, 'x');
    long nics = 0;
    double gbit_per_s = 0;
    if (!cross || cross == text || (size_t)(cross - text) >= sizeof count)
        return dtp_fail(err, DTP_EUSAGE,
                        "--nic: found \"%s\", expected COUNTxGBITS such as 4x100 or 8x200", text);
    memcpy(count, text, (size_t)(cross - text));
    bool read = dtp_parse_long(count, "--nic", 1, 1024, &nics, err) == DTP_OK &&
                dtp_parse_double(cross + 1, "--nic", &gbit_per_s, err) == DTP_OK;
    if (!read || !(gbit_per_s > 0))
        return dtp_fail(
            err, DTP_EUSAGE,
            "--nic: found \"%s\", expected 1 to 1024 cards and a rate above 0 in Gbit/s, "
            "such as 4x100",
            text);
    c->node.nics = (int)nics;
    c->node.nic_bytes_per_s = gbit_per_s * DTP_GIGA / DTP_BITS_PER_BYTE;
    bundle_nics(&c->node);
    spread_nics(&c->node);
    if (c->max_gpus == c->node.gpus)
        c->max_gpus = 0; /* a single node becomes a cluster */
    for (int i = 0; i < c->ncurves; i++)
        c->curve[i].foreign |= c->curve[i].nodes > 1;
    return DTP_OK;
}

/* "A100-SXM4-80GB", "NVIDIA H100 80GB HBM3" and "h100" are cards of a family, "RTX 4090" one of RTX-4090;
 * "H1000" is none. */
static bool is_of_family(const char *card, const char *family) {
    card = bare_name(card);
    for (; *family; family++) {
        if (!isalnum((unsigned char)*family))
            continue;
        while (*card && !isalnum((unsigned char)*card))
            card++;
        if (tolower((unsigned char)*card) != tolower((unsigned char)*family))
            return false;
        card++;
    }
    return !isalnum((unsigned char)*card);
}

enum dtp_status dtp_card_families(struct dtp_arena *a, const char *const **out,
                                  struct dtp_err *err) {
    struct names n;
    DTP_TRY(read_names(a, &n, err));
    const char **families = DTP_NEW(a, const char *, dtp_json_size(n.usual) + 1);
    for (size_t i = 0; i < dtp_json_size(n.usual); i++) {
        struct usual u = {0};
        DTP_TRY(dtp_fields_read(a, dtp_json_at(n.usual, i), usual_fields, &u, err));
        families[i] = u.family;
    }
    *out = families;
    return DTP_OK;
}

const char *dtp_card_name(const char *const *families, const char *card) {
    for (; *families; families++)
        if (dtp_same_name(bare_name(card), *families))
            return *families;
    return card;
}

/* The first usual cluster of such cards in such nodes; DTP_EUNSUPPORTED where there is none. */
static enum dtp_status usual_cluster(struct dtp_arena *a, const char *card, double memory_gb,
                                     int gpus_per_node, struct usual *out, struct dtp_err *err) {
    struct names n;
    DTP_TRY(read_names(a, &n, err));
    for (size_t i = 0; i < dtp_json_size(n.usual); i++) {
        *out = (struct usual){0};
        DTP_TRY(dtp_fields_read(a, dtp_json_at(n.usual, i), usual_fields, out, err));
        if (is_of_family(card, out->family) &&
            (out->memory_bytes <= 0 || out->memory_bytes == memory_gb * DTP_GIGA) &&
            (out->gpus == 0 || out->gpus == gpus_per_node))
            return DTP_OK;
    }
    return dtp_fail(err, DTP_EUNSUPPORTED, "no cluster for GPU \"%s\"", card);
}

enum dtp_status dtp_cluster_for_gpu(struct dtp_arena *a, const char *card, double memory_gb,
                                    int gpus_per_node, struct dtp_cluster *out,
                                    struct dtp_err *err) {
    struct usual u;
    DTP_TRY(usual_cluster(a, card, memory_gb, gpus_per_node, &u, err));
    DTP_TRY(dtp_cluster_load(a, u.cluster, out, err));
    if (memory_gb > 0)
        DTP_TRY(dtp_gpu_find(a, u.family, memory_gb, &out->gpu, err));
    struct dtp_node *node = &out->node;
    if (gpus_per_node <= 0 || gpus_per_node == node->gpus || node->gpus == 72)
        return DTP_OK;
    if (gpus_per_node > DTP_MAX_GPUS_PER_NODE)
        return dtp_fail(err, DTP_EINPUT, "%d GPUs per node, at most %d", gpus_per_node,
                        DTP_MAX_GPUS_PER_NODE);
    int nics = node->nics * gpus_per_node / node->gpus;
    node->nics = nics > 0 ? nics : 1;
    node->gpus = gpus_per_node;
    for (int i = 0; i < out->ncurves; i++)
        out->curve[i].foreign |= out->curve[i].nodes > 1;
    if (node->intra == DTP_INTRA_MESH)
        node->intra = DTP_INTRA_SWITCH; /* the mesh of another number of GPUs is not known */
    spread_nics(node);
    return DTP_OK;
}
