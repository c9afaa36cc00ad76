#include "traces/formats/kineto.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "traces/formats/kineto_private.h"

enum { PROGRESS_BYTES = 1 << 23 };

enum kineto_meaning { MEANS_EVENT, MEANS_FLOW = DTP_TRACE_OTHER + 1, MEANS_NOTHING };

static const struct {
    const char *category;
    int meaning;
} meanings[] = {{"kernel", DTP_TRACE_KERNEL},
                {"Kernel", DTP_TRACE_KERNEL},
                {"mtia_ccp_events", DTP_TRACE_KERNEL},
                {"gpu_memcpy", DTP_TRACE_MEMCPY},
                {"Memcpy", DTP_TRACE_MEMCPY},
                {"gpu_memset", DTP_TRACE_MEMSET},
                {"Memset", DTP_TRACE_MEMSET},
                {"cuda_runtime", DTP_TRACE_CALL},
                {"cuda_driver", DTP_TRACE_CALL},
                {"Runtime", DTP_TRACE_CALL},
                {"runtime", DTP_TRACE_CALL},
                {"mtia_runtime", DTP_TRACE_CALL},
                {"xpu_runtime", DTP_TRACE_CALL},
                {"cpu_op", DTP_TRACE_OP},
                {"Operator", DTP_TRACE_OP},
                {"user_annotation", DTP_TRACE_ANNOTATION},
                {"gpu_user_annotation", DTP_TRACE_GPU_ANNOTATION},
                {"cuda_sync", DTP_TRACE_SYNC},
                {"python_function", MEANS_NOTHING},
                {"ac2g", MEANS_FLOW},
                {"async_gpu", MEANS_FLOW},
                {"async_cpu_to_gpu", MEANS_FLOW},
                {"fwdbwd", MEANS_FLOW}};

static int meaning_of(struct kineto_reader *k, uint8_t category) {
    if (k->meaning[category])
        return k->meaning[category] - 1;
    const char *name = dtp_trace_category(k->r, category);
    int found = DTP_TRACE_OTHER;
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++)
        if (strcmp(meanings[i].category, name) == 0)
            found = meanings[i].meaning;
    k->meaning[category] = (unsigned char)(found + 1);
    return found;
}

const char *kineto_keep(struct kineto_reader *k, const struct dtp_text *t) {
    return dtp_trace_name(k->r, dtp_trace_intern(k->r, t->at, t->n));
}

/* "stream 7" or "7", for files whose args lack the stream. */
static int64_t trailing_number(const char *s) {
    const char *digits = s + strcspn(s, "0123456789");
    int64_t v = 0;
    return dtp_text_i64(&(struct dtp_text){digits, strlen(digits), DTP_TOKEN_STRING}, &v) ? v : 0;
}

static uint32_t lane_of(struct kineto_reader *k, bool on_device) {
    const struct kineto_record *rec = &k->rec;
    const struct kineto_args *args = &rec->args;
    if (!on_device)
        return dtp_trace_host_lane(k->r, rec->pid, rec->tid);
    return dtp_trace_device_lane(k->r, args->has_device ? args->device : trailing_number(rec->pid),
                                 args->has_stream ? args->stream : trailing_number(rec->tid));
}

static void add_step(struct dtp_trace_rank *r, const struct dtp_trace_event *e) {
    static const char prefix[] = "ProfilerStep#";
    const char *name = dtp_trace_name(r, e->name), *number = name + sizeof prefix - 1;
    int64_t n;
    if (strncmp(name, prefix, sizeof prefix - 1) != 0 ||
        !dtp_text_i64(&(struct dtp_text){number, strlen(number), DTP_TOKEN_STRING}, &n))
        return;
    dtp_trace_add_step(r, n, e);
}

static uint32_t shape_of(struct kineto_reader *k, int kind) {
    const struct kineto_args *args = &k->rec.args;
    char text[160];
    if (kind == DTP_TRACE_KERNEL && args->grid[0] > 0) {
        int n =
            snprintf(text, sizeof text,
                     "[%" PRId64 ",%" PRId64 ",%" PRId64 "][%" PRId64 ",%" PRId64 ",%" PRId64 "]",
                     args->grid[0], args->grid[1], args->grid[2], args->block[0], args->block[1],
                     args->block[2]);
        return dtp_trace_intern(k->r, text, (size_t)n);
    }
    if (kind != DTP_TRACE_OP || args->nshape == 0 || args->shape_cut)
        return DTP_TRACE_NONE;
    return dtp_trace_intern(k->r, args->shape, args->nshape);
}

/* A whole event that passed: keeps it. */
static void keep_event(struct kineto_reader *k, int kind) {
    struct dtp_trace_rank *r = k->r;
    struct kineto_record *rec = &k->rec;
    bool on_device =
        kind <= DTP_TRACE_MEMSET || kind == DTP_TRACE_GPU_ANNOTATION || kind == DTP_TRACE_SYNC;
    struct dtp_trace_event *e = dtp_trace_add(r);
    e->start_ns = rec->ts_ns;
    e->dur_ns = rec->dur_ns;
    e->kind = (uint8_t)kind;
    e->category = rec->category;
    e->link = rec->args.correlation;
    e->on_stream = rec->args.has_stream && rec->args.stream >= 0;
    e->name = dtp_trace_intern(r, rec->name.at ? rec->name.at : "", rec->name.n);
    e->lane = lane_of(k, on_device);
    e->shape = shape_of(k, kind);
    if (rec->args.big_correlation)
        dtp_trace_warn(r, DTP_WARN_BIG_ID, dtp_pull_offset(&k->pull));
    if (rec->args.has_comm || rec->args.ntypes > 0) {
        const char *name = dtp_trace_name(r, e->name);
        bool of_interest = rec->args.has_comm || strncmp(name, "nccl:", 5) == 0 ||
                           strncmp(name, "gloo:", 5) == 0 || strncmp(name, "c10d::", 6) == 0;
        if (of_interest)
            e->comm = dtp_trace_add_comm(r, &rec->args.comm);
    }
    if (kind == DTP_TRACE_ANNOTATION || kind == DTP_TRACE_OP)
        add_step(r, e);
}

static void take_event(struct kineto_reader *k, int kind) {
    struct kineto_record *rec = &k->rec;
    uint64_t byte = dtp_pull_offset(&k->pull);
    if (rec->bad_time || !rec->has_ts) {
        dtp_trace_warn(k->r, DTP_WARN_BAD_TIME, byte);
        return;
    }
    if (kind <= DTP_TRACE_MEMSET && rec->ts_ns == 0 && !k->r->has_base) {
        dtp_trace_warn(k->r, DTP_WARN_ZERO_TIME, byte);
        return;
    }
    if (rec->dur_ns < 0) {
        dtp_trace_warn(k->r, DTP_WARN_NEGATIVE_DURATION, byte);
        rec->dur_ns = 0;
    }
    if (INT64_MAX - rec->dur_ns < rec->ts_ns) {
        dtp_trace_warn(k->r, DTP_WARN_BAD_TIME, byte);
        return;
    }
    keep_event(k, kind);
}

static void take_flow(struct kineto_reader *k) {
    const struct kineto_record *rec = &k->rec;
    k->flow = dtp_arena_room(k->scratch, k->flow, sizeof *k->flow, k->nflows, &k->flows_capacity);
    k->flow[k->nflows++] = (struct kineto_flow){rec->id, rec->ts_ns, rec->category,
                                                rec->phase == 'f', strlen(rec->pid) < 4};
}

static void take_record(struct kineto_reader *k) {
    struct kineto_record *rec = &k->rec;
    k->r->nrecords++;
    k->r->phase_count[(unsigned char)rec->phase]++;
    if (!rec->has_category)
        rec->category = dtp_trace_intern_category(k->r, "None", 4);
    k->r->category_count[rec->category]++;
    int meaning = meaning_of(k, rec->category);
    if (rec->phase == 's' || rec->phase == 'f') {
        if (rec->has_id)
            take_flow(k);
        return;
    }
    if (rec->phase == 'X' && meaning <= DTP_TRACE_OTHER)
        take_event(k, meaning);
}

/* ---- flows ---- */

static int by_flow(const void *x, const void *y) {
    const struct kineto_flow *p = x, *q = y;
    if (p->category != q->category)
        return p->category < q->category ? -1 : 1;
    if (p->id != q->id)
        return p->id < q->id ? -1 : 1;
    return (int)p->end - (int)q->end;
}

static void count_flows(struct kineto_reader *k) {
    struct dtp_trace_rank *r = k->r;
    if (k->nflows > 1)
        qsort(k->flow, k->nflows, sizeof *k->flow, by_flow);
    for (size_t i = 0, j; i < k->nflows; i = j) {
        bool start = false, end = false, device = false;
        for (j = i; j < k->nflows && k->flow[j].category == k->flow[i].category &&
                    k->flow[j].id == k->flow[i].id;
             j++) {
            start |= !k->flow[j].end;
            end |= k->flow[j].end;
            device |= k->flow[j].end && k->flow[j].on_device;
        }
        r->nflows++;
        r->nflows_paired += start && end;
        r->nflows_start_only += start && !end;
        r->nflows_end_only += end && !start;
        if (end && !start && device)
            dtp_trace_warn(r, DTP_WARN_ORPHAN_FLOW, 0);
    }
}

/* ---- the document ---- */

/* A bare array may stay open: the file may end after an event, with or without a comma. */
static enum dtp_status at_open_end(struct dtp_pull *p, bool *out_end, struct dtp_err *err) {
    char c;
    DTP_TRY(dtp_pull_peek(p, &c, err));
    if (!p->opened && c == ',') {
        p->at++;
        p->opened = true;
        DTP_TRY(dtp_pull_peek(p, &c, err));
    }
    *out_end = c == '\0';
    return DTP_OK;
}

static enum dtp_status read_events(struct kineto_reader *k, bool may_stay_open,
                                   struct dtp_err *err) {
    struct dtp_pull *p = &k->pull;
    bool end = false;
    enum dtp_status status = DTP_OK;
    DTP_TRY(dtp_pull_open(p, '[', err));
    for (;;) {
        if (may_stay_open)
            DTP_TRY(at_open_end(p, &end, err));
        if (end || !dtp_pull_element(p, &status, err))
            return status;
        DTP_TRY(kineto_read_record(k, err));
        take_record(k);
        if (k->options && k->options->progress && dtp_pull_offset(p) >= k->next_progress) {
            k->next_progress = dtp_pull_offset(p) + PROGRESS_BYTES;
            k->options->progress(k->options->progress_ctx, k->r->file, dtp_pull_offset(p));
        }
    }
}

static bool is_first_key(struct dtp_trace_rank *r, const struct dtp_text *key) {
    for (size_t i = 0; i < r->ntop_keys; i++)
        if (dtp_text_is(key, r->top_key[i]))
            return false;
    r->top_key =
        dtp_arena_grow(r->a, r->top_key, sizeof *r->top_key, r->ntop_keys, r->ntop_keys + 1);
    r->top_key[r->ntop_keys++] = dtp_arena_strndup(r->a, key->at, key->n);
    return true;
}

static enum dtp_status read_object(struct kineto_reader *k, struct dtp_err *err) {
    struct dtp_pull *p = &k->pull;
    struct dtp_text key;
    bool any = false;
    enum dtp_status status;
    DTP_TRY(dtp_pull_open(p, '{', err));
    while (dtp_pull_member(p, &key, &status, err)) {
        if (!is_first_key(k->r, &key))
            dtp_trace_warn(k->r, DTP_WARN_DUPLICATE_KEY, dtp_pull_offset(p));
        if (dtp_text_is(&key, "traceEvents")) {
            any = true;
            DTP_TRY(read_events(k, false, err));
        } else {
            DTP_TRY(kineto_read_metadata(k, &key, err));
        }
    }
    DTP_TRY(status);
    if (!any)
        return dtp_pull_fail(p, err, "an object without traceEvents: not a Kineto trace");
    char c;
    DTP_TRY(dtp_pull_peek(p, &c, err));
    return c == '\0' ? DTP_OK : dtp_pull_fail(p, err, "text after the end of the document");
}

static enum dtp_status read_document(struct kineto_reader *k, struct dtp_err *err) {
    char c;
    DTP_TRY(dtp_pull_peek(&k->pull, &c, err));
    if (c == '\0')
        return dtp_pull_fail(&k->pull, err, "an empty file");
    if (c == '[')
        return read_events(k, true, err);
    return read_object(k, err);
}

static void count_repairs(struct kineto_reader *k) {
    const struct dtp_pull *p = &k->pull;
    k->r->warned[DTP_WARN_NOT_FINITE].count += p->not_finite;
    k->r->warned[DTP_WARN_BAD_ESCAPE].count += p->bad_escapes;
    k->r->warned[DTP_WARN_BAD_NAME].count += p->bad_utf8 + p->raw_controls;
}

enum dtp_status dtp_kineto_read(struct dtp_source *source, const struct dtp_trace_options *options,
                                struct dtp_trace_rank *r, struct dtp_err *err) {
    struct dtp_arena *scratch = dtp_arena_create("reading a trace");
    struct kineto_reader *k = DTP_NEW(scratch, struct kineto_reader, 1);
    k->r = r;
    k->options = options;
    k->scratch = scratch;
    dtp_pull_init(&k->pull, scratch, source);
    enum dtp_status status = read_document(k, err);
    if (status == DTP_OK) {
        r->raw_bytes = dtp_pull_offset(&k->pull);
        count_repairs(k);
        count_flows(k);
        dtp_trace_finish(r);
    }
    dtp_arena_destroy(scratch);
    return status;
}
