#include "hw/cluster.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "hw/cluster_parts.h"
#include "sim/base/text.h"
#include "sim/base/units.h"

/* What people type for the usual machine of a GPU. */
static const struct {
    const char *alias, *name;
} aliases[] = {
    {"a100", "dgx-a100-80"},
    {"dgx-a100", "dgx-a100-80"},
    {"h100", "hgx-h100"},
    {"h200", "hgx-h200"},
    {"v100", "dgx-1v"},
    {"b200", "dgx-b200"},
    {"gb200", "gb200-nvl72"},
    {"a800", "a800-box"},
    {"h800", "h800-box"},
    {"polaris", "alcf-polaris"},
    {"sophia", "alcf-sophia"},
    {"a100-80", "dgx-a100-80"},
    {"a100-40", "dgx-a100-40"},
    {"v100-32", "dgx-1v"},
    {"h100-80", "hgx-h100"},
    {"a800-80", "a800-box"},
    {"h800-80", "h800-box"},
    {"h200-141", "hgx-h200"},
    {"gb300", "gb300-nvl72"},
    {"b300", "hgx-b300"},
    {"h20", "h20-box"},
    {"l40s", "aws-g6e"},
    {"l4", "aws-g6"},
    {"a10g", "aws-g5"},
    {"a40", "a40-box"},
    {"a6000", "rtx-a6000-box"},
    {"rtx-a6000", "rtx-a6000-box"},
    {"rtx-6000-ada", "rtx-6000-ada-box"},
    {"rtx4090", "rtx4090-box"},
    {"rtx3090", "rtx3090-box"},
    /* as their makers and PyTorch call the GPUs, as clouds call the machines */
    {"a100-80gb", "dgx-a100-80"},
    {"a100-40gb", "dgx-a100-40"},
    {"a100-sxm", "dgx-a100-80"},
    {"a100-sxm4", "dgx-a100-80"},
    {"a100-sxm4-80gb", "dgx-a100-80"},
    {"a100-sxm4-40gb", "dgx-a100-40"},
    {"h100-80gb", "hgx-h100"},
    {"h100-sxm", "hgx-h100"},
    {"h100-sxm5", "hgx-h100"},
    {"h100-80gb-hbm3", "hgx-h100"},
    {"h200-sxm", "hgx-h200"},
    {"v100-32gb", "dgx-1v"},
    {"p3dn.24xlarge", "aws-p3dn"},
    {"p4d.24xlarge", "aws-p4d"},
    {"p4de.24xlarge", "aws-p4de"},
    {"p5.48xlarge", "aws-p5"},
    {"p5en.48xlarge", "aws-p5en"},
    {"p6-b200.48xlarge", "aws-p6-b200"},
    {"nd40rs-v2", "azure-ndv2"},
    {"nd96amsr-a100-v4", "azure-nd-a100-v4"},
    {"nd96isr-h100-v5", "azure-nd-h100-v5"},
    {"a2-highgpu-8g", "gcp-a2"},
    {"a3-highgpu-8g", "gcp-a3-high"},
    {"a3-megagpu-8g", "gcp-a3-mega"},
    {"a3-ultragpu-8g", "gcp-a3-ultra"},
    {"g5.48xlarge", "aws-g5"},
    {"g6.48xlarge", "aws-g6"},
    {"g6e.48xlarge", "aws-g6e"},
};

/* Nodes of a measured row of which only the GPU is known. gpus 0: any other number per node. */
static const struct {
    const char *family;
    double memory_gb; /* 0: any */
    int gpus;
    const char *cluster;
} usual[] = {
    {"V100", 0, 4, "jeanzay-v100"},
    {"V100", 0, 6, "summit"},
    {"V100", 0, 16, "dgx-2"},
    {"V100", 0, 0, "dgx-1v"},
    {"A100", 40, 0, "dgx-a100-40"},
    {"A100", 0, 0, "dgx-a100-80"},
    {"A800", 0, 0, "a800-box"},
    {"H100", 0, 0, "hgx-h100"},
    {"H800", 0, 0, "h800-box"},
    {"H200", 0, 0, "hgx-h200"},
    {"B200", 0, 0, "dgx-b200"},
    {"GB200", 0, 0, "gb200-nvl72"},
    {"GB300", 0, 0, "gb300-nvl72"},
    {"B300", 0, 0, "hgx-b300"},
    {"H20", 0, 0, "h20-box"},
    {"L40S", 0, 0, "aws-g6e"},
    {"L4", 0, 0, "aws-g6"},
    {"A10G", 0, 0, "aws-g5"},
    {"A40", 0, 0, "a40-box"},
    {"RTX-A6000", 0, 0, "rtx-a6000-box"},
    {"RTX-6000-Ada", 0, 0, "rtx-6000-ada-box"},
    {"RTX-4090", 0, 0, "rtx4090-box"},
    {"RTX-3090", 0, 0, "rtx3090-box"},
};

enum { BASE_DEPTH = 4 };

/* Without what makers and clouds put before a name. */
static const char *bare_name(const char *name) {
    static const char *const before[] = {"nvidia", "geforce", "tesla", "standard", NULL};
    for (const char *const *b = before; *b; b++) {
        size_t n = strlen(*b);
        if (strncasecmp(name, *b, n) == 0 && name[n] != '\0' && strchr("-_ ", name[n]))
            name += n + 1;
    }
    return name;
}

static const char *alias_target(const char *name) {
    name = bare_name(name);
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (dtp_same_name(aliases[i].alias, name))
            return aliases[i].name;
    return name;
}

static enum dtp_status read_spec(struct dtp_arena *a, const struct dtp_json *j, int depth,
                                 struct dtp_cluster_spec *spec, struct dtp_err *err);

/* A GPU of hw/gpu that is "like" another one and that no machine is named after stands in the usual machine of that
 * one; *out stays NULL for another name. */
static enum dtp_status gpu_as_cluster(struct dtp_arena *a, const char *name,
                                      const struct dtp_json **out, const char **out_name,
                                      struct dtp_err *err) {
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
        const char *base = alias_target(dtp_json_string(like));
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
    size_t length = strlen(name);
    if (length > 5 && strcmp(name + length - 5, ".json") == 0) {
        const char *slash = strrchr(name, '/');
        const char *bare = slash ? slash + 1 : name;
        *out_name = dtp_arena_strndup(a, bare, strlen(bare) - 5);
        return dtp_json_read_file(a, name, out, err);
    }
    const char *const *names = NULL;
    size_t n = 0;
    DTP_TRY(dtp_cluster_list(a, &names, &n, err));
    const char *target = alias_target(name);
    for (size_t i = 0; i < n; i++)
        if (dtp_same_name(names[i], target)) {
            *out_name = names[i];
            const char *file = dtp_arena_printf(a, "hw/cluster/%s.json", names[i]);
            return dtp_json_read_file(a, dtp_data_path(a, file), out, err);
        }
    *out = NULL;
    DTP_TRY(gpu_as_cluster(a, name, out, out_name, err));
    if (*out)
        return DTP_OK;
    size_t extra = sizeof aliases / sizeof *aliases;
    const char **known = DTP_NEW(a, const char *, n + extra);
    memcpy(known, names, n * sizeof *known);
    for (size_t i = 0; i < extra; i++)
        known[n + i] = aliases[i].alias;
    return dtp_unknown_name(err, DTP_EINPUT, "cluster", name, known, n + extra, "dtplan clusters");
}

static enum dtp_status read_base(struct dtp_arena *a, const struct dtp_json *j, int depth,
                                 struct dtp_cluster_spec *spec, struct dtp_err *err) {
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
                                 struct dtp_cluster_spec *spec, struct dtp_err *err) {
    if (dtp_json_type(j) != DTP_JSON_OBJECT)
        return dtp_json_expected(j, "an object that describes a cluster", err);
    DTP_TRY(read_base(a, j, depth, spec, err));
    int nics = spec->c.node.nics, gpus = spec->c.node.gpus;
    spec->json = (struct dtp_cluster_json){0};
    DTP_TRY(dtp_fields_read(a, j, dtp_cluster_fields, spec, err));
    if ((spec->c.node.nics != nics || spec->c.node.gpus != gpus) && !spec->json.affinity)
        spec->affinity.n = 0; /* the base's map is of other GPUs and NICs */
    return dtp_cluster_spec_parts(a, j, spec, err);
}

static enum dtp_status finish(struct dtp_arena *a, const struct dtp_json *j,
                              struct dtp_cluster_spec *spec, struct dtp_cluster *out,
                              struct dtp_err *err) {
    if (!spec->gpu)
        return dtp_json_expected(j, "\"gpu\", or \"base\" with the machine to start from", err);
    DTP_TRY(read_gpu(a, spec->gpu, &spec->c.gpu, err));
    DTP_TRY(dtp_cluster_spec_finish(a, j, spec, err));
    const char *name = out->name;
    *out = spec->c;
    out->name = name;
    if (!out->title)
        out->title = name;
    if (!spec->curves)
        return DTP_OK;
    struct dtp_cluster_spec measured = *spec;
    measured.c = spec->measured;
    measured.c.name = name;
    measured.c.gpu = spec->c.gpu;
    measured.affinity.n = 0;
    DTP_TRY(dtp_cluster_spec_finish(a, j, &measured, err));
    return dtp_cluster_load_curves(a, spec->curves, &measured.c, out, err);
}

enum dtp_status dtp_cluster_read(struct dtp_arena *a, const struct dtp_json *j,
                                 struct dtp_cluster *out, struct dtp_err *err) {
    struct dtp_cluster_spec spec = {.c.name = out->name};
    *out = (struct dtp_cluster){.name = spec.c.name ? spec.c.name : "(given)"};
    dtp_cluster_spec_defaults(&spec);
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
    dtp_node_bundle_nics(&c->node);
    dtp_node_spread_nics(&c->node);
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

const char *dtp_card_name(const char *card) {
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (dtp_same_name(bare_name(card), usual[i].family))
            return usual[i].family;
    return card;
}

enum dtp_status dtp_cluster_for_gpu(struct dtp_arena *a, const char *card, double memory_gb,
                                    int gpus_per_node, struct dtp_cluster *out,
                                    struct dtp_err *err) {
    const char *name = NULL, *found = NULL;
    for (size_t i = 0; i < sizeof usual / sizeof *usual && !name; i++)
        if (is_of_family(card, usual[i].family) &&
            (usual[i].memory_gb <= 0 || usual[i].memory_gb == memory_gb) &&
            (usual[i].gpus == 0 || usual[i].gpus == gpus_per_node)) {
            name = usual[i].cluster;
            found = usual[i].family;
        }
    if (!name)
        return dtp_fail(err, DTP_EUNSUPPORTED, "no cluster for GPU \"%s\"", card);
    DTP_TRY(dtp_cluster_load(a, name, out, err));
    if (memory_gb > 0)
        DTP_TRY(dtp_gpu_find(a, found, memory_gb, &out->gpu, err));
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
    dtp_node_spread_nics(node);
    return DTP_OK;
}
