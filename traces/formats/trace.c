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

enum dtp_trace_class dtp_trace_classify(const char *name, enum dtp_trace_kind kind) {
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
