#include "traces/formats/topology.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/json.h"
#include "sim/base/units.h"
#include "traces/formats/topology_private.h"

#define MANAGEMENT_SHARE 0.25   /* of the fastest NIC */
#define SWITCH_CLASS "0x068000" /* PCI class "bridge, other": an NVSwitch */

bool dtp_topology_detect(const unsigned char *head, size_t n) {
    static const char tag[] = "<system";
    size_t i = 0;
    while (i < n && isspace(head[i]))
        i++;
    if (i == n || head[i] != '<')
        return false;
    for (; i + sizeof tag - 1 < n; i++)
        if (memcmp(head + i, tag, sizeof tag - 1) == 0 &&
            strchr(" >\t\r\n", head[i + sizeof tag - 1]))
            return true;
    return false;
}

/* ---- what kind of GPU: PCI device ids of NVIDIA ---- */

static const struct {
    const char *device, *gpu;
} devices[] = {{"0x1db1", "v100-16"},      {"0x1db4", "v100-16"},      {"0x1db5", "v100-32"},
               {"0x1db6", "v100-32"},      {"0x1db8", "v100-sxm3-32"}, {"0x20b0", "a100-40"},
               {"0x20b2", "a100-80"},      {"0x20b3", "a100-80"},      {"0x20b5", "a100-pcie-80"},
               {"0x20f1", "a100-pcie-40"}, {"0x20f3", "a800-80"},      {"0x2330", "h100-sxm"},
               {"0x2335", "h200"},         {"0x2324", "h800-80"},      {"0x2901", "b200"},
               {"0x2941", "gb200"}};

/* By compute capability, and per NVLink and direction (data sheets). */
static const struct {
    int sm;
    const char *gpu;
    double link_bytes_per_s;
} capabilities[] = {{70, "v100-32", 25 * DTP_GIGA},
                    {80, "a100-80", 25 * DTP_GIGA},
                    {90, "h100-sxm", 25 * DTP_GIGA},
                    {100, "b200", 50 * DTP_GIGA},
                    {103, "gb300", 50 * DTP_GIGA}};
enum { NCAPABILITIES = sizeof capabilities / sizeof *capabilities };

static int capability_of(int sm) {
    for (int i = 0; i < NCAPABILITIES; i++)
        if (capabilities[i].sm == sm)
            return i;
    return -1;
}

static enum dtp_status find_gpu(struct dtp_topology *t, const char *file, struct dtp_err *err) {
    const struct dtp_topology_gpu *gpu = &t->gpu[0];
    int capability = capability_of(gpu->sm);
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        if (strcmp(devices[i].device, gpu->device_id) == 0) {
            t->gpu_name = devices[i].gpu;
            return DTP_OK;
        }
    if (capability < 0)
        return dtp_fail(err, DTP_EUNSUPPORTED,
                        "%s: GPUs of device id \"%s\" and compute capability %d are not known",
                        file, gpu->device_id, gpu->sm);
    t->gpu_name = capabilities[capability].gpu;
    t->gpu_guessed = true;
    return DTP_OK;
}

/* ---- links ---- */

void topology_set_links(struct dtp_topology *t, const struct topology_link *link, size_t n) {
    for (size_t k = 0; k < n; k++) {
        struct dtp_topology_gpu *from = &t->gpu[link[k].gpu];
        int to = -1;
        for (int j = 0; j < t->ngpus; j++)
            if (strcmp(t->gpu[j].bus_id, link[k].target) == 0)
                to = j;
        from->nvlinks += link[k].count;
        if (to < 0 || strcmp(link[k].class, SWITCH_CLASS) == 0)
            from->switch_links += link[k].count;
        else
            t->link[link[k].gpu][to] += link[k].count;
    }
}

static void classify(struct dtp_topology *t) {
    int links = 0, switched = 0;
    for (int i = 0; i < t->ngpus; i++) {
        links += t->gpu[i].nvlinks;
        switched += t->gpu[i].switch_links;
    }
    t->intra = links == 0 ? "pcie" : switched > 0 ? "nvswitch" : "mesh";
    for (int i = 0; i < t->ngpus;
         i++) /* a link is one in both directions: the matrix is symmetric */
        for (int j = 0; j < i; j++) {
            int most = t->link[i][j] > t->link[j][i] ? t->link[i][j] : t->link[j][i];
            t->link[i][j] = t->link[j][i] = most;
        }
}

/* ---- NICs ---- */

static int common(const struct dtp_topology_path *p, const struct dtp_topology_path *q) {
    int n = 0;
    while (n < p->n && n < q->n && p->element[n] == q->element[n])
        n++;
    return n;
}

static void find_nics(struct dtp_topology *t) {
    int users[DTP_TOPOLOGY_NETS] = {0}, index[DTP_TOPOLOGY_NETS] = {0};
    double fastest = 0;
    for (int i = 0; i < t->nnets; i++)
        if (t->net[i].bytes_per_s > fastest)
            fastest = t->net[i].bytes_per_s;
    for (int i = 0; i < t->nnets; i++) {
        t->net[i].used = fastest > 0 && t->net[i].bytes_per_s >= MANAGEMENT_SHARE * fastest;
        index[i] = t->net[i].used ? t->nused++ : -1;
    }
    for (int g = 0; g < t->ngpus; g++) {
        int best = -1, near = -1;
        for (int i = 0; i < t->nnets; i++) {
            int n = common(&t->gpu[g].path, &t->net[i].path);
            if (t->net[i].used && (n > near || (n == near && users[i] < users[best]))) {
                best = i;
                near = n;
            }
        }
        t->gpu[g].nic = best < 0 ? -1 : index[best];
        if (best >= 0)
            users[best]++;
    }
}

static const char *fabric_of(const struct dtp_topology *t) {
    static const struct {
        const char *prefix, *fabric;
    } names[] = {{"mlx", "infiniband"}, {"hsn", "slingshot"}, {"cxi", "slingshot"},
                 {"rdmap", "efa"},      {"efa", "efa"},       {"hfi", "omnipath"},
                 {"opa", "omnipath"}};
    for (int i = 0; i < t->nnets; i++)
        for (size_t k = 0; k < sizeof names / sizeof *names && t->net[i].used; k++)
            if (strncmp(t->net[i].name, names[k].prefix, strlen(names[k].prefix)) == 0)
                return names[k].fabric;
    return t->nused > 0 ? "ethernet" : "none";
}

/* GPUs that share the PCIe bridge two levels above them (the one right above is the GPU's own port). */
static int gpus_a_switch(const struct dtp_topology *t) {
    int most = 1;
    for (int i = 0; i < t->ngpus; i++) {
        int n = 0;
        for (int j = 0; j < t->ngpus; j++)
            n += common(&t->gpu[i].path, &t->gpu[j].path) >= t->gpu[i].path.n - 2 &&
                 t->gpu[i].path.n > 3;
        most = n > most ? n : most;
    }
    return most;
}

static int by_dev(const void *x, const void *y) {
    const struct dtp_topology_gpu *p = x, *q = y;
    return p->dev < q->dev ? -1 : p->dev > q->dev;
}

void topology_sort(struct dtp_topology *t) {
    qsort(t->gpu, (size_t)t->ngpus, sizeof *t->gpu, by_dev);
}

enum dtp_status topology_finish(struct dtp_topology *t, const char *file, struct dtp_err *err) {
    if (t->ngpus == 0)
        return dtp_fail(err, DTP_EINPUT, "%s: no GPU in it", file);
    classify(t);
    find_nics(t);
    t->fabric = fabric_of(t);
    t->gpus_a_switch = gpus_a_switch(t);
    return find_gpu(t, file, err);
}

/* ---- writing ---- */

static void write_links(struct dtp_json_out *w, const struct dtp_topology *t) {
    int capability = capability_of(t->gpu[0].sm), most = 0;
    if (capability < 0 || strcmp(t->intra, "pcie") == 0)
        return;
    double link = capabilities[capability].link_bytes_per_s;
    for (int i = 0; i < t->ngpus; i++)
        most = t->gpu[i].nvlinks > most ? t->gpu[i].nvlinks : most;
    if (strcmp(t->intra, "mesh") == 0)
        dtp_json_kv_double(w, "mesh_link_bytes_per_s", link);
    else
        dtp_json_kv_double(w, "gpu_link_bytes_per_s", link * most);
}

static void write_node(struct dtp_json_out *w, const struct dtp_topology *t) {
    double nic = 0, pcie = t->gpu[0].pcie_bytes_per_s;
    for (int i = 0; i < t->nnets; i++) /* the slowest used: a ring is as fast as that */
        if (t->net[i].used && (nic <= 0 || t->net[i].bytes_per_s < nic))
            nic = t->net[i].bytes_per_s;
    dtp_json_put_key(w, "node");
    dtp_json_object(w);
    dtp_json_kv_int(w, "gpus", t->ngpus);
    dtp_json_kv_string(w, "intra", t->intra);
    write_links(w, t);
    if (pcie > 0 && strcmp(t->intra, "pcie") == 0)
        dtp_json_kv_double(w, "gpu_link_bytes_per_s", pcie);
    if (pcie > 0)
        dtp_json_kv_double(w, "host_link_bytes_per_s", pcie);
    if (strcmp(t->intra, "pcie") == 0)
        dtp_json_kv_int(w, "pcie_gpus_per_switch", t->gpus_a_switch);
    dtp_json_kv_int(w, "sockets", t->ncpus > 1 ? 2 : 1);
    dtp_json_kv_int(w, "nics", t->nused);
    if (nic > 0)
        dtp_json_kv_double(w, "nic_bytes_per_s", nic);
    if (t->cores > 0)
        dtp_json_kv_int(w, "cores", t->cores);
    dtp_json_end(w);
}

void dtp_topology_write_cluster(FILE *f, const struct dtp_topology *t, const char *source) {
    struct dtp_json_out w;
    char title[160];
    snprintf(title, sizeof title, "%d x %s, %s, %d NICs, from NCCL's topology", t->ngpus,
             t->gpu_name, t->intra, t->nused);
    dtp_json_begin(&w, f, 2);
    dtp_json_object(&w);
    dtp_json_kv_string(&w, "title", title);
    dtp_json_kv_string(&w, "gpu", t->gpu_name);
    write_node(&w, t);
    if (strcmp(t->intra, "mesh") == 0) {
        dtp_json_put_key(&w, "mesh_links");
        dtp_json_array(&w);
        for (int i = 0; i < t->ngpus; i++) {
            dtp_json_array(&w);
            for (int j = 0; j < t->ngpus; j++)
                dtp_json_put_int(&w, t->link[i][j]);
            dtp_json_end(&w);
        }
        dtp_json_end(&w);
    }
    if (t->nused > 0) {
        dtp_json_put_key(&w, "nic_of_gpu");
        dtp_json_array(&w);
        for (int i = 0; i < t->ngpus; i++)
            dtp_json_put_int(&w, t->gpu[i].nic);
        dtp_json_end(&w);
    }
    dtp_json_kv_string(&w, "fabric", t->fabric);
    dtp_json_kv_string(&w, "source", source);
    dtp_json_end(&w);
}
