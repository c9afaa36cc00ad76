#include "traces/formats/trace.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/text.h"

const char *const dtp_comm_op_name[DTP_NCOMM_OPS] = {"all_reduce", "all_gather", "reduce_scatter",
                                                     "all_to_all", "broadcast",  "reduce",
                                                     "send_recv",  "barrier",    "unknown"};

const char *const dtp_trace_warning_text[DTP_NTRACE_WARNINGS] = {
#define X(name, text) text,
    DTP_TRACE_WARNINGS(X)
#undef X
};

/* ---- a rank ---- */

void dtp_trace_rank_init(struct dtp_trace_rank *r, struct dtp_arena *a, const char *file) {
    *r = (struct dtp_trace_rank){.a = a, .file = file, .rank = -1, .world_size = -1};
    r->backend = r->device = r->time_unit = "";
    r->names = dtp_intern_create(a);
    r->categories = dtp_intern_create(a);
    r->category_count = DTP_NEW(a, uint64_t, 256);
}

struct dtp_trace_event *dtp_trace_add(struct dtp_trace_rank *r) {
    if (r->nevents == r->nblocks * DTP_TRACE_BLOCK) {
        r->block = dtp_arena_room(r->a, r->block, sizeof(struct dtp_trace_event *), r->nblocks,
                                  &r->blocks_capacity);
        r->block[r->nblocks++] = DTP_NEW(r->a, struct dtp_trace_event, DTP_TRACE_BLOCK);
    }
    struct dtp_trace_event *e = dtp_trace_event(r, r->nevents++);
    e->comm = e->launch = e->shape = DTP_TRACE_NONE;
    return e;
}

uint32_t dtp_trace_intern(struct dtp_trace_rank *r, const char *s, size_t n) {
    return dtp_intern_add(r->names, s, n);
}

uint8_t dtp_trace_intern_category(struct dtp_trace_rank *r, const char *s, size_t n) {
    if (r->categories->n >= 255)
        return 255;
    return (uint8_t)dtp_intern_add(r->categories, s, n);
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
    r->lane = dtp_arena_room(r->a, r->lane, sizeof *r->lane, r->nlanes, &r->lanes_capacity);
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
    r->comm = dtp_arena_room(r->a, r->comm, sizeof *r->comm, r->ncomms, &r->comms_capacity);
    r->comm[r->ncomms] = *comm;
    return r->ncomms++;
}

void dtp_trace_add_step(struct dtp_trace_rank *r, int64_t number, const struct dtp_trace_event *e) {
    r->step = dtp_arena_room(r->a, r->step, sizeof *r->step, r->nsteps, &r->steps_capacity);
    r->step[r->nsteps++] =
        (struct dtp_trace_step){number, e->start_ns, e->dur_ns, dtp_trace_name(r, e->name)};
}

void dtp_trace_warn(struct dtp_trace_rank *r, enum dtp_trace_warning w, uint64_t byte) {
    if (r->warned[w].count++ == 0)
        r->warned[w].first_byte = byte;
}

void dtp_trace_print_warnings(FILE *f, const struct dtp_trace_rank *r) {
    for (int w = 0; w < DTP_NTRACE_WARNINGS; w++) {
        const struct dtp_trace_warned *at = &r->warned[w];
        if (at->count == 0)
            continue;
        fprintf(f, "%s: warning: %llu %s", r->file, (unsigned long long)at->count,
                dtp_trace_warning_text[w]);
        if (at->first_byte > 0)
            fprintf(f, ", the first at byte %llu", (unsigned long long)at->first_byte);
        fputc('\n', f);
    }
}

/* ---- meanings of names ---- */

static enum dtp_trace_class dtp_trace_classify(const char *name, enum dtp_trace_kind kind) {
    if (kind == DTP_TRACE_MEMCPY || kind == DTP_TRACE_MEMSET || strncmp(name, "Mem", 3) == 0)
        return DTP_CLASS_MEMORY;
    return dtp_text_has(name, "nccl") ? DTP_CLASS_COMM : DTP_CLASS_COMPUTE;
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
        if (dtp_text_has(name, words[i].word))
            return words[i].op;
    return DTP_COMM_UNKNOWN;
}

enum dtp_collective dtp_comm_collective(enum dtp_comm_op op) {
    static const enum dtp_collective kinds[DTP_NCOMM_OPS] = {[DTP_COMM_ALL_REDUCE] = DTP_ALL_REDUCE,
                                                             [DTP_COMM_ALL_GATHER] = DTP_ALL_GATHER,
                                                             [DTP_COMM_REDUCE_SCATTER] =
                                                                 DTP_REDUCE_SCATTER,
                                                             [DTP_COMM_ALL_TO_ALL] = DTP_ALL_TO_ALL,
                                                             [DTP_COMM_BROADCAST] = DTP_BROADCAST,
                                                             [DTP_COMM_REDUCE] = DTP_REDUCE,
                                                             [DTP_COMM_SEND_RECV] = DTP_SEND_RECV,
                                                             [DTP_COMM_BARRIER] = DTP_ALL_REDUCE,
                                                             [DTP_COMM_UNKNOWN] = DTP_ALL_REDUCE};
    return kinds[op];
}

struct key {
    uint64_t link;
    int64_t start_ns;
    uint32_t event;
};

static int by_link(const void *x, const void *y) {
    const struct key *p = x, *q = y;
    if (p->link != q->link)
        return p->link < q->link ? -1 : 1;
    if (p->start_ns != q->start_ns)
        return p->start_ns < q->start_ns ? -1 : 1;
    return p->event < q->event ? -1 : p->event > q->event;
}

static int by_time(const void *x, const void *y) {
    const struct key *p = x, *q = y;
    if (p->link != q->link) /* here: the lane */
        return p->link < q->link ? -1 : 1;
    if (p->start_ns != q->start_ns)
        return p->start_ns < q->start_ns ? -1 : 1;
    return p->event < q->event ? -1 : p->event > q->event;
}

static int by_step_time(const void *x, const void *y) {
    const struct dtp_trace_step *p = x, *q = y;
    return p->start_ns < q->start_ns ? -1 : p->start_ns > q->start_ns;
}

/* The last launch with this link that starts no later; the first of all if none does. */
static size_t find_launch(const struct key *key, size_t n, uint64_t link, int64_t start_ns,
                          size_t *out_same) {
    size_t low = 0, high = n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (key[mid].link < link)
            low = mid + 1;
        else
            high = mid;
    }
    size_t found = low;
    *out_same = 0;
    for (size_t i = low; i < n && key[i].link == link; i++) {
        if (key[i].start_ns <= start_ns)
            found = i;
        ++*out_same;
    }
    return found;
}

static void link_launches(struct dtp_trace_rank *r, struct key *key) {
    size_t n = 0;
    for (size_t i = 0; i < r->nevents; i++) {
        const struct dtp_trace_event *e = dtp_trace_event(r, i);
        if (e->kind == DTP_TRACE_CALL && e->link)
            key[n++] = (struct key){e->link, e->start_ns, (uint32_t)i};
    }
    qsort(key, n, sizeof *key, by_link);
    for (size_t i = 0; i < r->nevents; i++) {
        struct dtp_trace_event *e = dtp_trace_event(r, i);
        size_t same = 0;
        if (!dtp_trace_is_work(e) && e->kind != DTP_TRACE_SYNC)
            continue;
        size_t at = e->link ? find_launch(key, n, e->link, e->start_ns, &same) : 0;
        if (same > 0)
            e->launch = key[at].event;
        if (!dtp_trace_is_work(e))
            continue;
        if (same == 0)
            dtp_trace_warn(r, DTP_WARN_NO_LAUNCH, 0);
        else if (key[at].start_ns > e->start_ns)
            dtp_trace_warn(r, DTP_WARN_BEFORE_LAUNCH, 0);
        if (same > 1)
            dtp_trace_warn(r, DTP_WARN_AMBIGUOUS_LINK, 0);
    }
}

static void count_overlaps(struct dtp_trace_rank *r, struct key *key) {
    size_t n = 0;
    for (size_t i = 0; i < r->nevents; i++) {
        const struct dtp_trace_event *e = dtp_trace_event(r, i);
        if (dtp_trace_is_work(e)) {
            key[n++] = (struct key){e->lane, e->start_ns, (uint32_t)i};
            r->lane[e->lane].nwork++;
        }
    }
    qsort(key, n, sizeof *key, by_time);
    for (size_t i = 1; i < n; i++)
        if (key[i].link == key[i - 1].link &&
            key[i].start_ns < dtp_trace_end_ns(dtp_trace_event(r, key[i - 1].event)))
            dtp_trace_warn(r, DTP_WARN_OVERLAP, 0);
}

void dtp_trace_finish(struct dtp_trace_rank *r) {
    struct dtp_arena *scratch = dtp_arena_create("trace links");
    struct key *key = DTP_NEW(scratch, struct key, r->nevents + 1);
    /* long C++ names: each is looked at once */
    unsigned char *class = DTP_NEW(scratch, unsigned char, dtp_trace_nnames(r) + 1);
    for (size_t i = 0; i < r->nevents; i++) {
        struct dtp_trace_event *e = dtp_trace_event(r, i);
        if (!dtp_trace_is_work(e))
            continue;
        if (class[e->name] == 0)
            class[e->name] = (unsigned char)(1 + dtp_trace_classify(dtp_trace_name(r, e->name),
                                                                    (enum dtp_trace_kind)e->kind));
        e->class = (uint8_t)(class[e->name] - 1);
    }
    link_launches(r, key);
    count_overlaps(r, key);
    if (r->nsteps > 1)
        qsort(r->step, r->nsteps, sizeof *r->step, by_step_time);
    dtp_arena_destroy(scratch);
}
