#include "traces/formats/topology.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/json.h"
#include "sim/base/units.h"
#include "traces/formats/format.h"
#include "sim/base/text.h"
#include "traces/catalog.h"

/* One nvlink element, before all GPUs are known. */
struct topology_link {
    int gpu, count;
    const char *target, *class;
};

#define MANAGEMENT_SHARE 0.25   /* share of the fastest NIC */
#define SWITCH_CLASS "0x068000" /* PCI class "bridge, other": an NVSwitch */

static bool is_topology(const struct dtp_format_head *h) {
    size_t n;
    const unsigned char *head = dtp_head_bytes(h, &n);
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

/* ---- writing ---- */

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

#ifndef DTP_HAVE_EXPAT

enum dtp_status dtp_topology_read(struct dtp_arena *a, struct dtp_source *source,
                                  struct dtp_topology *out, struct dtp_err *err) {
    (void)a;
    (void)out;
    return dtp_fail(err, DTP_EUNSUPPORTED,
                    "%s: a topology of NCCL; dtplan was built without expat: install libexpat1-dev "
                    "and build again",
                    dtp_source_name(source));
}

#else

#include <expat.h>

/* ---- what kind of GPU: PCI device ids of NVIDIA ---- */

static const struct {
    const char *device, *gpu;
} devices[] = {{"0x1db1", "v100-16"},      {"0x1db4", "v100-16"},      {"0x1db5", "v100-32"},
               {"0x1db6", "v100-32"},      {"0x1db8", "v100-sxm3-32"}, {"0x20b0", "a100-40"},
               {"0x20b2", "a100-80"},      {"0x20b3", "a100-80"},      {"0x20b5", "a100-pcie-80"},
               {"0x20f1", "a100-pcie-40"}, {"0x20f3", "a800-80"},      {"0x2330", "h100-sxm"},
               {"0x2335", "h200"},         {"0x2324", "h800-80"},      {"0x2901", "b200"},
               {"0x2941", "gb200"}};

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

static void set_links(struct dtp_topology *t, const struct topology_link *link, size_t n) {
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

static void sort(struct dtp_topology *t) {
    qsort(t->gpu, (size_t)t->ngpus, sizeof *t->gpu, by_dev);
}

static enum dtp_status finish(struct dtp_topology *t, const char *file, struct dtp_err *err) {
    if (t->ngpus == 0)
        return dtp_fail(err, DTP_EINPUT, "%s: no GPU in it", file);
    classify(t);
    find_nics(t);
    t->fabric = fabric_of(t);
    t->gpus_a_switch = gpus_a_switch(t);
    return find_gpu(t, file, err);
}

enum { CHUNK_BYTES = 1 << 16, MOST_LINKS = 1 << 14, MOST_COUNT = 1 << 10, MOST_ATTRIBUTE = 4096 };
#define ENCODING_8B10B 0.8 /* PCIe 1 and 2 */
#define ENCODING_128B130B (128.0 / 130.0)
#define GT_OF_PCIE_2 5.0

struct reader {
    struct dtp_topology *t;
    struct dtp_arena *a;
    XML_Parser parser;
    struct dtp_topology_path path;
    int next_element, depth;
    struct topology_link *link;
    size_t nlinks, links_capacity;
    const char *bus_id[DTP_TOPOLOGY_DEPTH], *device[DTP_TOPOLOGY_DEPTH]; /* ids of the pci above */
    double pcie_bytes_per_s[DTP_TOPOLOGY_DEPTH];
    int open_gpu; /* nvlinks belong to it, -1: none */
    const char *problem;
};

static void stop(struct reader *r, const char *problem) {
    r->problem = problem;
    XML_StopParser(r->parser, XML_FALSE);
}

static const char *attribute(const char *const *attr, const char *name) {
    for (; attr[0]; attr += 2)
        if (strcmp(attr[0], name) == 0)
            return strlen(attr[1]) <= MOST_ATTRIBUTE ? attr[1] : "";
    return "";
}

static int whole(const char *text, int most, int none) {
    char *end;
    long v = strtol(text, &end, 0);
    return end == text || v < 0 || v > most ? none : (int)v;
}

/* "16.0 GT/s PCIe" by 16 lanes, in bytes/s and one direction; 0 where the machine does not say (VMs). */
static double pcie_rate(const char *const *attr) {
    double gt = strtod(attribute(attr, "link_speed"), NULL);
    int width = whole(attribute(attr, "link_width"), 64, 0);
    if (!(gt > 0) || gt > 1000)
        return 0;
    double coding = gt > GT_OF_PCIE_2 ? ENCODING_128B130B : ENCODING_8B10B;
    return gt * DTP_GIGA * coding * width / DTP_BITS_PER_BYTE;
}

/* Bits set in "00000000,0000ffff". */
static int threads_of(const char *mask) {
    int n = 0;
    if (strspn(mask, "0123456789abcdefABCDEF,") != strlen(mask))
        return 0;
    for (; *mask; mask++) {
        char digit[2] = {*mask, '\0'};
        for (long v = strtol(digit, NULL, 16); v > 0; v >>= 1)
            n += (int)(v & 1);
    }
    return n;
}

static void add_gpu(struct reader *r, const char *const *attr) {
    struct dtp_topology *t = r->t;
    if (t->ngpus == DTP_TOPOLOGY_GPUS) {
        stop(r, "more than 128 GPUs");
        return;
    }
    int dev = whole(attribute(attr, "dev"), MOST_LINKS, t->ngpus);
    for (int i = 0; i < t->ngpus; i++)
        if (t->gpu[i].dev == dev) {
            stop(r, "two GPUs have the same dev");
            return;
        }
    int above = r->depth > 0 ? r->depth - 1 : 0;
    const char *bus_id = r->bus_id[above], *device = r->device[above];
    t->gpu[t->ngpus] = (struct dtp_topology_gpu){.bus_id = bus_id ? bus_id : "",
                                                 .device_id = device ? device : "",
                                                 .dev = dev,
                                                 .sm = whole(attribute(attr, "sm"), 1000, 0),
                                                 .nic = -1,
                                                 .pcie_bytes_per_s = r->pcie_bytes_per_s[above],
                                                 .path = r->path};
    r->open_gpu = dev;
    t->ngpus++;
}

static void add_link(struct reader *r, const char *const *attr) {
    if (r->open_gpu < 0)
        return;
    if (r->nlinks == MOST_LINKS) {
        stop(r, "too many NVLinks");
        return;
    }
    r->link = dtp_arena_room(r->a, r->link, sizeof *r->link, r->nlinks, &r->links_capacity);
    r->link[r->nlinks++] =
        (struct topology_link){.gpu = r->open_gpu,
                               .count = whole(attribute(attr, "count"), MOST_COUNT, 1),
                               .target = dtp_arena_strdup(r->a, attribute(attr, "target")),
                               .class = dtp_arena_strdup(r->a, attribute(attr, "tclass"))};
}

static void add_net(struct reader *r, const char *const *attr) {
    struct dtp_topology *t = r->t;
    if (t->nnets == DTP_TOPOLOGY_NETS) {
        stop(r, "more than 1024 NICs");
        return;
    }
    double mbit = strtod(attribute(attr, "speed"), NULL);
    t->net[t->nnets++] = (struct dtp_topology_net){
        .name = dtp_arena_strdup(r->a, attribute(attr, "name")),
        .bytes_per_s = mbit > 0 && mbit < DTP_TERA ? mbit * DTP_MEGA / DTP_BITS_PER_BYTE : 0,
        .path = r->path};
}

static void open_element(void *ctx, const char *name, const char **attributes) {
    struct reader *r = ctx;
    const char *const *attr = attributes;
    if (r->depth == DTP_TOPOLOGY_DEPTH) {
        stop(r, "elements nested more than 32 deep");
        return;
    }
    r->path.element[r->depth] = r->next_element++;
    r->path.n = r->depth + 1;
    r->bus_id[r->depth] = r->device[r->depth] = NULL;
    r->pcie_bytes_per_s[r->depth] = 0;
    if (r->depth == 0 && strcmp(name, "system") != 0) {
        stop(r, "the root is no <system>");
        return;
    }
    if (strcmp(name, "pci") == 0) {
        r->bus_id[r->depth] = dtp_arena_strdup(r->a, attribute(attr, "busid"));
        r->device[r->depth] = dtp_arena_strdup(r->a, attribute(attr, "device"));
        r->pcie_bytes_per_s[r->depth] = pcie_rate(attr);
    } else if (strcmp(name, "cpu") == 0) {
        r->t->ncpus++;
        r->t->cores += threads_of(attribute(attr, "affinity"));
    } else if (strcmp(name, "gpu") == 0) {
        add_gpu(r, attr);
    } else if (strcmp(name, "nvlink") == 0) {
        add_link(r, attr);
    } else if (strcmp(name, "net") == 0) {
        add_net(r, attr);
    }
    r->depth++;
}

static void close_element(void *ctx, const char *name) {
    struct reader *r = ctx;
    r->depth -= r->depth > 0;
    r->path.n = r->depth;
    if (strcmp(name, "gpu") == 0)
        r->open_gpu = -1;
}

/* dev numbers of the links become indices of the sorted GPUs. */
static void resolve(struct reader *r) {
    sort(r->t);
    for (size_t k = 0; k < r->nlinks; k++)
        for (int i = 0; i < r->t->ngpus; i++)
            if (r->t->gpu[i].dev == r->link[k].gpu) {
                r->link[k].gpu = i;
                break;
            }
    set_links(r->t, r->link, r->nlinks);
}

static enum dtp_status no_memory(struct dtp_source *source, struct dtp_err *err) {
    return dtp_fail(err, DTP_ENOMEM, "%s: no memory for expat", dtp_source_name(source));
}

static enum dtp_status parse(struct reader *r, struct dtp_source *source, struct dtp_err *err) {
    char *buf = DTP_NEW(r->a, char, CHUNK_BYTES);
    for (size_t n = 1; n > 0;) {
        DTP_TRY(dtp_source_read(source, buf, CHUNK_BYTES, &n, err));
        if (XML_Parse(r->parser, buf, (int)n, n == 0) == XML_STATUS_OK)
            continue;
        if (XML_GetErrorCode(r->parser) == XML_ERROR_NO_MEMORY)
            return no_memory(source, err);
        return dtp_fail(err, DTP_EINPUT, "%s:%lu: %s", dtp_source_name(source),
                        (unsigned long)XML_GetCurrentLineNumber(r->parser),
                        r->problem ? r->problem : XML_ErrorString(XML_GetErrorCode(r->parser)));
    }
    return DTP_OK;
}

enum dtp_status dtp_topology_read(struct dtp_arena *a, struct dtp_source *source,
                                  struct dtp_topology *out, struct dtp_err *err) {
    struct reader r = {.t = out, .a = a, .open_gpu = -1};
    memset(out, 0, sizeof *out);
    r.parser = XML_ParserCreate(NULL);
    if (!r.parser)
        return no_memory(source, err);
    XML_SetUserData(r.parser, &r);
    XML_SetElementHandler(r.parser, open_element, close_element);
    enum dtp_status status = parse(&r, source, err);
    XML_ParserFree(r.parser);
    DTP_TRY(status);
    resolve(&r);
    return finish(out, dtp_source_name(source), err);
}

#endif

/* ---- the row of the format ---- */

static enum dtp_status read_item(struct dtp_arena *a, const struct dtp_visited *v,
                                 const struct dtp_format_options *o, void **content,
                                 struct dtp_err *err) {
    (void)o;
    struct dtp_topology *t = *content = DTP_NEW(a, struct dtp_topology, 1);
    return dtp_topology_read(a, v->source, t, err);
}

static void print_item(struct dtp_arena *a, FILE *f, const struct dtp_item *item,
                       const struct dtp_format_options *o) {
    (void)a;
    (void)o;
    const struct dtp_topology *t = item->content;
    char rate[32];
    fprintf(f, "  %d x %s%s, %s, %d sockets\n", t->ngpus, t->gpu_name,
            t->gpu_guessed ? " (a guess by compute capability)" : "", t->intra, t->ncpus);
    for (int i = 0; i < t->nnets; i++)
        fprintf(f, "    NIC %-12s %s%s\n", t->net[i].name,
                dtp_fmt_rate(t->net[i].bytes_per_s, rate, sizeof rate),
                t->net[i].used ? "" : ", not for training");
    for (int i = 0; i < t->ngpus; i++)
        fprintf(f, "    GPU %-2d %s: %d NVLinks, %d of them to switches, NIC %d\n", t->gpu[i].dev,
                t->gpu[i].bus_id, t->gpu[i].nvlinks, t->gpu[i].switch_links, t->gpu[i].nic);
    fprintf(f,
            "  as a cluster:  dtplan trace %s --write-cluster my.json; dtplan --cluster my.json "
            "...\n",
            item->name);
}

static void write_item(struct dtp_arena *a, struct dtp_json_out *w, const struct dtp_item *item,
                       const struct dtp_format_options *o) {
    (void)a;
    (void)o;
    const struct dtp_topology *t = item->content;
    dtp_json_kv_string(w, "gpu", t->gpu_name);
    dtp_json_kv_bool(w, "gpu_guessed", t->gpu_guessed);
    dtp_json_kv_int(w, "gpus", t->ngpus);
    dtp_json_kv_int(w, "nics", t->nused);
    dtp_json_kv_string(w, "intra", t->intra);
    dtp_json_kv_string(w, "fabric", t->fabric);
}

const struct dtp_format dtp_format_nccl_topology = {.name = "nccl-topology",
                                                    .title = "NCCL topology, XML",
                                                    .told = "root element system",
                                                    .kind = DTP_KIND_TOPOLOGY,
                                                    .detect = is_topology,
                                                    .read = read_item,
                                                    .print = print_item,
                                                    .json = write_item};
