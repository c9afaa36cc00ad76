#include "traces/trace.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

const char *const dtp_comm_op_name[DTP_NCOMM_OPS] = {"all_reduce", "all_gather", "reduce_scatter",
                                                     "all_to_all", "broadcast",  "reduce",
                                                     "send_recv",  "barrier",    "unknown"};

const char *const dtp_trace_warning_text[DTP_NTRACE_WARNINGS] = {
#define X(name, text) text,
    DTP_TRACE_WARNINGS(X)
#undef X
};

/* ---- interned names: open addressing over ids, at most half full ---- */

struct dtp_trace_names {
    const char **at;
    uint32_t *length, *hash, *slot; /* slot: id + 1, or 0 */
    uint32_t n, capacity, nslots;
};

static uint32_t hash_of(const char *s, size_t n) { /* FNV-1a, eight bytes a round */
    uint64_t h = 1469598103934665603u ^ n, w;
    for (; n >= 8; n -= 8, s += 8) {
        memcpy(&w, s, 8);
        h = (h ^ w) * 1099511628211u;
        h ^= h >> 29;
    }
    for (; n > 0; n--, s++)
        h = (h ^ (unsigned char)*s) * 1099511628211u;
    return (uint32_t)(h ^ h >> 32);
}

static struct dtp_trace_names *names_create(struct dtp_arena *a) {
    struct dtp_trace_names *t = DTP_NEW(a, struct dtp_trace_names, 1);
    t->capacity = 64;
    t->nslots = 128;
    t->at = DTP_NEW(a, const char *, t->capacity);
    t->length = DTP_NEW(a, uint32_t, t->capacity);
    t->hash = DTP_NEW(a, uint32_t, t->capacity);
    t->slot = DTP_NEW(a, uint32_t, t->nslots);
    return t;
}

static void names_grow(struct dtp_arena *a, struct dtp_trace_names *t) {
    uint32_t more = t->capacity * 2;
    t->at = dtp_arena_grow(a, t->at, sizeof *t->at, t->capacity, more);
    t->length = dtp_arena_grow(a, t->length, sizeof *t->length, t->capacity, more);
    t->hash = dtp_arena_grow(a, t->hash, sizeof *t->hash, t->capacity, more);
    t->capacity = more;
    t->nslots = more * 2;
    t->slot = DTP_NEW(a, uint32_t, t->nslots);
    for (uint32_t i = 0; i < t->n; i++) {
        uint32_t at = t->hash[i] & (t->nslots - 1);
        while (t->slot[at])
            at = (at + 1) & (t->nslots - 1);
        t->slot[at] = i + 1;
    }
}

static uint32_t names_intern(struct dtp_arena *a, struct dtp_trace_names *t, const char *s,
                             size_t n) {
    uint32_t h = hash_of(s, n), at = h & (t->nslots - 1);
    for (; t->slot[at]; at = (at + 1) & (t->nslots - 1)) {
        uint32_t id = t->slot[at] - 1;
        if (t->hash[id] == h && t->length[id] == n && memcmp(t->at[id], s, n) == 0)
            return id;
    }
    if (t->n == t->capacity) {
        names_grow(a, t);
        return names_intern(a, t, s, n);
    }
    t->at[t->n] = dtp_arena_strndup(a, s, n);
    t->length[t->n] = (uint32_t)n;
    t->hash[t->n] = h;
    t->slot[at] = ++t->n;
    return t->n - 1;
}

/* ---- a rank ---- */

void dtp_trace_rank_init(struct dtp_trace_rank *r, struct dtp_arena *a, const char *file) {
    *r = (struct dtp_trace_rank){.a = a, .file = file, .rank = -1, .world_size = -1};
    r->backend = r->device = r->time_unit = "";
    r->names = names_create(a);
    r->categories = names_create(a);
    r->category_count = DTP_NEW(a, uint64_t, 256);
}

struct dtp_trace_event *dtp_trace_add(struct dtp_trace_rank *r) {
    if (r->nevents == r->nblocks * DTP_TRACE_BLOCK) {
        if (r->nblocks == r->blocks_capacity) {
            size_t more = r->blocks_capacity ? r->blocks_capacity * 2 : 16;
            r->block = dtp_arena_grow(r->a, r->block, sizeof(struct dtp_trace_event *),
                                      r->blocks_capacity, more);
            r->blocks_capacity = more;
        }
        r->block[r->nblocks++] = DTP_NEW(r->a, struct dtp_trace_event, DTP_TRACE_BLOCK);
    }
    struct dtp_trace_event *e = dtp_trace_event(r, r->nevents++);
    e->comm = e->launch = DTP_TRACE_NONE;
    return e;
}

uint32_t dtp_trace_intern(struct dtp_trace_rank *r, const char *s, size_t n) {
    return names_intern(r->a, r->names, s, n);
}

uint8_t dtp_trace_intern_category(struct dtp_trace_rank *r, const char *s, size_t n) {
    if (r->categories->n >= 255)
        return 255;
    return (uint8_t)names_intern(r->a, r->categories, s, n);
}

const char *dtp_trace_name(const struct dtp_trace_rank *r, uint32_t name) {
    return name < r->names->n ? r->names->at[name] : "";
}

uint32_t dtp_trace_nnames(const struct dtp_trace_rank *r) {
    return r->names->n;
}

const char *dtp_trace_category(const struct dtp_trace_rank *r, uint8_t category) {
    return category < r->categories->n ? r->categories->at[category] : "";
}

static uint32_t add_lane(struct dtp_trace_rank *r, struct dtp_trace_lane lane) {
    if (r->nlanes == r->lanes_capacity) {
        uint32_t more = r->lanes_capacity ? r->lanes_capacity * 2 : 16;
        r->lane = dtp_arena_grow(r->a, r->lane, sizeof *r->lane, r->lanes_capacity, more);
        r->lanes_capacity = more;
    }
    r->lane[r->nlanes] = lane;
    return r->nlanes++;
}

/* Few lanes: searched from the last found, which is nearly always the right one. */
uint32_t dtp_trace_host_lane(struct dtp_trace_rank *r, const char *pid, const char *tid) {
    for (uint32_t i = r->nlanes; i-- > 0;)
        if (!r->lane[i].is_device && strcmp(r->lane[i].tid, tid) == 0 &&
            strcmp(r->lane[i].pid, pid) == 0)
            return i;
    return add_lane(r, (struct dtp_trace_lane){.pid = dtp_arena_strdup(r->a, pid),
                                               .tid = dtp_arena_strdup(r->a, tid)});
}

uint32_t dtp_trace_device_lane(struct dtp_trace_rank *r, int64_t device, int64_t stream) {
    for (uint32_t i = r->nlanes; i-- > 0;)
        if (r->lane[i].is_device && r->lane[i].stream == stream && r->lane[i].device == device)
            return i;
    return add_lane(
        r, (struct dtp_trace_lane){
               .pid = "", .tid = "", .is_device = true, .device = device, .stream = stream});
}

uint32_t dtp_trace_add_comm(struct dtp_trace_rank *r, const struct dtp_trace_comm *comm) {
    if (r->ncomms == r->comms_capacity) {
        uint32_t more = r->comms_capacity ? r->comms_capacity * 2 : 16;
        r->comm = dtp_arena_grow(r->a, r->comm, sizeof *r->comm, r->comms_capacity, more);
        r->comms_capacity = more;
    }
    r->comm[r->ncomms] = *comm;
    return r->ncomms++;
}

void dtp_trace_warn(struct dtp_trace_rank *r, enum dtp_trace_warning w, uint64_t byte) {
    if (r->warned[w].count++ == 0)
        r->warned[w].first_byte = byte;
}

void dtp_trace_print_warnings(FILE *f, const struct dtp_trace_rank *r) {
    for (int w = 0; w < DTP_NTRACE_WARNINGS; w++)
        if (r->warned[w].count > 0)
            fprintf(f, "%s: warning: %llu %s\n", r->file, (unsigned long long)r->warned[w].count,
                    dtp_trace_warning_text[w]);
}

/* ---- meanings of names ---- */

static bool contains(const char *s, const char *word) { /* case-blind; word in lower case */
    size_t n = strlen(word);
    for (; *s; s++) {
        size_t i = 0;
        while (i < n && s[i] && tolower((unsigned char)s[i]) == word[i])
            i++;
        if (i == n)
            return true;
    }
    return false;
}

enum dtp_trace_class dtp_trace_classify(const char *name, enum dtp_trace_kind kind) {
    if (kind == DTP_TRACE_MEMCPY || kind == DTP_TRACE_MEMSET || strncmp(name, "Mem", 3) == 0)
        return DTP_CLASS_MEMORY;
    return contains(name, "nccl") ? DTP_CLASS_COMM : DTP_CLASS_COMPUTE;
}

enum dtp_comm_op dtp_comm_op_of(const char *name) {
    static const struct {
        const char *word;
        enum dtp_comm_op op;
    } words[] = {{"reduce_scatter", DTP_COMM_REDUCE_SCATTER},
                 {"reducescatter", DTP_COMM_REDUCE_SCATTER},
                 {"all_reduce", DTP_COMM_ALL_REDUCE},
                 {"allreduce", DTP_COMM_ALL_REDUCE},
                 {"all_gather", DTP_COMM_ALL_GATHER},
                 {"allgather", DTP_COMM_ALL_GATHER},
                 {"all_to_all", DTP_COMM_ALL_TO_ALL},
                 {"alltoall", DTP_COMM_ALL_TO_ALL},
                 {"broadcast", DTP_COMM_BROADCAST},
                 {"sendrecv", DTP_COMM_SEND_RECV},
                 {"send", DTP_COMM_SEND_RECV},
                 {"recv", DTP_COMM_SEND_RECV},
                 {"coalesced", DTP_COMM_SEND_RECV},
                 {"barrier", DTP_COMM_BARRIER},
                 {"reduce", DTP_COMM_REDUCE}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (contains(name, words[i].word))
            return words[i].op;
    return DTP_COMM_UNKNOWN;
}
