#include "traces/formats/format.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "traces/jobs/jobs.h"
#include "traces/formats/nsys.h"
#include "traces/formats/protobuf.h"
#include "traces/formats/scalars.h"
#include "traces/formats/topology.h"

enum { MOST_KEYS = 48, MOST_INNER = 24, KEY_BYTES = 48, TEXT_SAMPLE = 4096, WORKLOAD_FIELDS = 12 };

const char *const dtp_format_kind_name[DTP_NKINDS] = {"ranks",    "graph",      "operators",
                                                      "workload", "log",        "topology",
                                                      "jobs",     "iterations", "configuration"};

struct dtp_format_head {
    const unsigned char *at;
    size_t n;
    char json; /* { or [, else 0 */
    char key[MOST_KEYS][KEY_BYTES];
    unsigned char depth[MOST_KEYS]; /* 1: of the outermost object; of what an array holds: 2 */
    int nkeys, ninner;              /* inner: of depth 2 */
    bool is_text;
};

/* ---- keys of JSON: a string that a colon follows, with the number of braces around it ---- */

struct scan {
    struct dtp_format_head *h;
    size_t i;
    int depth;
};

static void take_string(struct scan *s) {
    struct dtp_format_head *h = s->h;
    size_t from = ++s->i, to;
    while (s->i < h->n && h->at[s->i] != '"')
        s->i += h->at[s->i] == '\\' ? 2 : 1;
    if (s->i >= h->n)
        return;
    to = s->i;
    size_t after = to + 1;
    while (after < h->n && isspace(h->at[after]))
        after++;
    if (after >= h->n || h->at[after] != ':' || h->nkeys == MOST_KEYS || s->depth > 2 ||
        (s->depth == 2 && h->ninner == MOST_INNER))
        return;
    h->ninner += s->depth == 2;
    size_t n = to - from < KEY_BYTES - 1 ? to - from : KEY_BYTES - 1;
    memcpy(h->key[h->nkeys], h->at + from, n);
    h->key[h->nkeys][n] = '\0';
    h->depth[h->nkeys++] = (unsigned char)s->depth;
}

static void scan_keys(struct dtp_format_head *h) {
    struct scan s = {.h = h};
    for (; s.i < h->n && h->nkeys < MOST_KEYS; s.i++) {
        unsigned char c = h->at[s.i];
        if (c == '{' || c == '[')
            s.depth++;
        else if (c == '}' || c == ']')
            s.depth--;
        else if (c == '"')
            take_string(&s);
    }
}

static bool has_key(const struct dtp_format_head *h, int depth, const char *key) {
    for (int i = 0; i < h->nkeys; i++)
        if (h->depth[i] == depth && strcmp(h->key[i], key) == 0)
            return true;
    return false;
}

static void look(struct dtp_format_head *h) {
    size_t i = 0, sample = h->n < TEXT_SAMPLE ? h->n : TEXT_SAMPLE;
    h->is_text = true;
    for (size_t k = 0; k < sample; k++)
        h->is_text &= h->at[k] >= ' ' || strchr("\t\n\r\f\033", h->at[k]);
    while (i < h->n && isspace(h->at[i]))
        i++;
    size_t inner = i + 1;
    while (inner < h->n && isspace(h->at[inner]))
        inner++;
    /* "[2024-03-01 ...]" begins a line of a log, and "[rank0 ~ rank7]" a table */
    bool array = inner < h->n && h->at[i] == '[' && strchr("{[]\"", h->at[inner]);
    if (i < h->n && (h->at[i] == '{' || array)) {
        h->json = (char)h->at[i];
        scan_keys(h);
    }
}

/* ---- lines of text ---- */

/* The k-th line that is not blank, from 0, cut to size. */
static bool line_of(const struct dtp_format_head *h, int k, char *out, size_t size) {
    for (size_t i = 0; i < h->n;) {
        size_t from = i, n = 0;
        bool blank = true;
        for (; i < h->n && h->at[i] != '\n'; i++)
            blank &= isspace(h->at[i]) != 0;
        if (!blank && k-- == 0) {
            for (; from < i && n < size - 1; from++)
                out[n++] = (char)h->at[from];
            out[n] = '\0';
            return true;
        }
        i++;
    }
    return false;
}

/* ---- the formats ---- */

static bool is_dtplan(const struct dtp_format_head *h) {
    static const char head[] = "{\"dtplan\"";
    return h->n >= sizeof head - 1 && memcmp(h->at, head, sizeof head - 1) == 0;
}

static bool is_kineto(const struct dtp_format_head *h) {
    static const char *const keys[] = {"traceEvents",     "schemaVersion",       "deviceProperties",
                                       "distributedInfo", "baseTimeNanoseconds", "displayTimeUnit",
                                       "traceName"};
    if (h->json == '[')
        return has_key(h, 2, "ph");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (h->json && has_key(h, 1, keys[i]))
            return true;
    return false;
}

static bool is_nsys(const struct dtp_format_head *h) {
    return dtp_nsys_detect(h->at, h->n);
}

/* A length, and so many bytes that are fields 1 (a string) or 2 (an attribute); or none, and a node. */
static bool is_chakra(const struct dtp_format_head *h) {
    struct dtp_bytes b = {h->at, h->at + h->n};
    uint64_t n;
    if (h->n < 2 || h->json || !dtp_proto_varint(&b, &n) || b.at == b.end)
        return false;
    if (n == 0)
        return dtp_proto_varint(&b, &n) && n > 0 && b.at < b.end &&
               (*b.at == 0x08 || *b.at == 0x12);
    if (*b.at != 0x0a && *b.at != 0x12)
        return false;
    struct dtp_proto_field f;
    bool whole = n <= (uint64_t)(b.end - b.at);
    if (whole)
        b.end = b.at + n;
    while (b.at < b.end && dtp_proto_next(&b, &f))
        if (f.number > 2 || f.wire != DTP_WIRE_BYTES)
            return false;
    return !whole || b.at == b.end;
}

static bool is_chakra_json(const struct dtp_format_head *h) {
    return h->json == '{' && (has_key(h, 1, "workload_graph") ||
                              (has_key(h, 1, "workload_name") && has_key(h, 1, "ngpus")));
}

static bool is_et(const struct dtp_format_head *h) {
    return h->json == '{' && (has_key(h, 1, "nodes") || has_key(h, 1, "start_ts")) &&
           (has_key(h, 1, "schema") || has_key(h, 1, "pid"));
}

static bool is_golden(const struct dtp_format_head *h) {
    return h->json == '{' && has_key(h, 2, "start_step") &&
           (has_key(h, 2, "values") || has_key(h, 2, "end_step"));
}

static bool is_tensorboard(const struct dtp_format_head *h) {
    return dtp_events_detect(h->at, h->n);
}

static bool is_topology(const struct dtp_format_head *h) {
    return dtp_topology_detect(h->at, h->n);
}

static bool is_philly(const struct dtp_format_head *h) {
    return h->json == '[' && (has_key(h, 2, "jobid") || has_key(h, 2, "attempts"));
}

static bool is_jobs_csv(const struct dtp_format_head *h) {
    char line[1024];
    return h->is_text && !h->json && line_of(h, 0, line, sizeof line) && dtp_jobs_detect(line);
}

static bool is_aicb(const struct dtp_format_head *h) {
    static const char header[] = "comm_type,comm_group,";
    char line[256];
    for (int k = 0; k < 2; k++)
        if (line_of(h, k, line, sizeof line) && strncmp(line, header, sizeof header - 1) == 0)
            return true;
    return false;
}

static bool is_pai_iterations(const struct dtp_format_head *h) {
    char line[256];
    return h->is_text && line_of(h, 0, line, sizeof line) &&
           strstr(line, "worker,gpu,time,batch_time_norm");
}

/* A word, a line with nothing but a number, and rows of twelve fields. */
static bool is_workload(const struct dtp_format_head *h) {
    char line[1024], *save;
    int n = 0;
    if (!h->is_text || h->json || !line_of(h, 0, line, sizeof line) ||
        !isupper((unsigned char)line[0]) || !line_of(h, 1, line, sizeof line) ||
        !isdigit((unsigned char)line[0]))
        return false;
    size_t digits = strspn(line, "0123456789");
    if (line[digits + strspn(line + digits, " \t\r")])
        return false;
    if (!line_of(h, 2, line, sizeof line))
        return true;
    for (char *f = strtok_r(line, " \t\r", &save); f; f = strtok_r(NULL, " \t\r", &save))
        n++;
    return n >= WORKLOAD_FIELDS - 2;
}

static bool is_log(const struct dtp_format_head *h) {
    return h->is_text && !h->json;
}

/* A text is taken for a log first. */
static bool is_config(const struct dtp_format_head *h) {
    static const char *const keys[] = {"num_hidden_layers", "zero_optimization",
                                       "train_micro_batch_size_per_gpu", "train_batch_size",
                                       "n_layers"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (h->json == '{' && has_key(h, 1, keys[i]))
            return true;
    return false;
}

const struct dtp_format_row dtp_formats[DTP_NFORMATS] = {
    [DTP_FORMAT_KINETO] = {"kineto", "PyTorch Kineto trace (CUDA, ROCm), JSON",
                           "keys traceEvents, schemaVersion, distributedInfo, ...; or an array of "
                           "events",
                           DTP_KIND_RANKS, is_kineto},
    [DTP_FORMAT_DTPLAN] = {"dtplan", "timeline that dtplan wrote, JSON", "first key dtplan",
                           DTP_KIND_RANKS, is_dtplan},
    [DTP_FORMAT_NSYS] = {"nsys", "Nsight Systems report, SQLite", "magic of SQLite", DTP_KIND_RANKS,
                         is_nsys},
    [DTP_FORMAT_CHAKRA] = {"chakra", "Chakra graph, protobuf (.et)",
                           "first message is a GlobalMetadata", DTP_KIND_GRAPH, is_chakra},
    [DTP_FORMAT_CHAKRA_JSON] = {"chakra-json", "Chakra graph, JSON", "key workload_graph",
                                DTP_KIND_GRAPH, is_chakra_json},
    [DTP_FORMAT_PYTORCH_ET] = {"pytorch-et", "PyTorch execution trace, JSON",
                               "keys schema, pid, nodes", DTP_KIND_OPS, is_et},
    [DTP_FORMAT_WORKLOAD] = {"workload", "ASTRA-sim 1 or SimAI workload, text",
                             "a policy, a number of layers, rows of 12 fields", DTP_KIND_WORKLOAD,
                             is_workload},
    [DTP_FORMAT_AICB] = {"aicb", "AICB workload, CSV", "header comm_type,comm_group,...",
                         DTP_KIND_WORKLOAD, is_aicb},
    [DTP_FORMAT_GOLDEN] = {"golden", "Megatron golden values, JSON",
                           "keys start_step, values below a tag", DTP_KIND_LOG, is_golden},
    [DTP_FORMAT_TENSORBOARD] = {"tensorboard", "TensorBoard event file",
                                "checksum of the first length", DTP_KIND_LOG, is_tensorboard},
    [DTP_FORMAT_TOPOLOGY] = {"nccl-topology", "NCCL topology, XML", "root element system",
                             DTP_KIND_TOPOLOGY, is_topology},
    [DTP_FORMAT_PHILLY] = {"philly", "Philly job log, JSON", "an array with jobid, attempts",
                           DTP_KIND_JOBS, is_philly},
    [DTP_FORMAT_JOBS_CSV] = {"jobs", "Helios, Acme or PAI jobs, CSV",
                             "header job_id or job_name, ..., or PAI's rows", DTP_KIND_JOBS,
                             is_jobs_csv},
    [DTP_FORMAT_PAI_ITERATIONS] = {"pai-iterations", "PAI iteration times by worker, CSV",
                                   "header worker,gpu,time,batch_time_norm", DTP_KIND_SERIES,
                                   is_pai_iterations},
    [DTP_FORMAT_LOG] = {"log", "log of nccl-tests, Megatron, nanotron, torchtitan or DeepSpeed",
                        "text; lines are looked at one by one", DTP_KIND_LOG, is_log},
    [DTP_FORMAT_CONFIG] = {
        "config", "configuration of a run: launch script, YAML, TOML, JSON, ...",
        "text or JSON with settings of a model or a layout, and no line of a log", DTP_KIND_CONFIG,
        is_config}};

/* What was seen, for the message. */
static void describe(const struct dtp_format_head *h, char *out, size_t size) {
    if (h->json) {
        size_t n = (size_t)snprintf(out, size, "JSON with the keys");
        for (int i = 0; i < h->nkeys && i < 4 && n < size; i++)
            n += (size_t)snprintf(out + n, size - n, " \"%s\"", h->key[i]);
        return;
    }
    snprintf(out, size, "%s", h->is_text ? "text" : "binary data");
}

enum dtp_status dtp_format_detect(struct dtp_source *source, enum dtp_format *out,
                                  struct dtp_err *err) {
    struct dtp_format_head h = {0};
    char seen[256];
    DTP_TRY(dtp_source_peek(source, &h.at, &h.n, err));
    if (h.n == 0)
        return dtp_fail(err, DTP_EINPUT, "%s: an empty file", dtp_source_name(source));
    look(&h);
    for (int f = 0; f < DTP_NFORMATS; f++)
        if (dtp_formats[f].detect(&h)) {
            *out = (enum dtp_format)f;
            return DTP_OK;
        }
    if (h.json == '{' && h.n == DTP_SOURCE_AHEAD) { /* metadata of any length may come first */
        *out = DTP_FORMAT_KINETO;
        return DTP_OK;
    }
    describe(&h, seen, sizeof seen);
    return dtp_fail(err, DTP_EINPUT,
                    "%s: %s, of no format that is known (`dtplan trace --format list`)",
                    dtp_source_name(source), seen);
}
