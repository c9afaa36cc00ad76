/* topology_read.c: the XML itself, with expat. */
#include <stdlib.h>
#include <string.h>

#include "sim/base/units.h"
#include "traces/formats/topology_private.h"

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
    const char *bus_id[DTP_TOPOLOGY_DEPTH], *device[DTP_TOPOLOGY_DEPTH]; /* of the pci above */
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
    topology_sort(r->t);
    for (size_t k = 0; k < r->nlinks; k++)
        for (int i = 0; i < r->t->ngpus; i++)
            if (r->t->gpu[i].dev == r->link[k].gpu) {
                r->link[k].gpu = i;
                break;
            }
    topology_set_links(r->t, r->link, r->nlinks);
}

static enum dtp_status parse(struct reader *r, struct dtp_source *source, struct dtp_err *err) {
    char *buf = DTP_NEW(r->a, char, CHUNK_BYTES);
    for (size_t n = 1; n > 0;) {
        DTP_TRY(dtp_source_read(source, buf, CHUNK_BYTES, &n, err));
        if (XML_Parse(r->parser, buf, (int)n, n == 0) != XML_STATUS_OK)
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
        return dtp_fail(err, DTP_ENOMEM, "%s: no memory for expat", dtp_source_name(source));
    XML_SetUserData(r.parser, &r);
    XML_SetElementHandler(r.parser, open_element, close_element);
    enum dtp_status status = parse(&r, source, err);
    XML_ParserFree(r.parser);
    DTP_TRY(status);
    resolve(&r);
    return topology_finish(out, dtp_source_name(source), err);
}

#endif
