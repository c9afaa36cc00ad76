/* The constants of one version of NCCL, read from hw/nccl/VERSION.json. */
#include <stddef.h>
#include <string.h>

#include "hw/nccl.h"
#include "sim/base/text.h"

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
    double net_overhead_s;
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
    memcpy(n->correction, t.correction, sizeof n->correction);
    *out = n;
    return DTP_OK;
}
