#include "traces/formats/nsys.h"

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#ifndef DTP_HAVE_SQLITE

enum dtp_status dtp_nsys_read(struct dtp_arena *a, struct dtp_source *source, const char *path,
                              struct dtp_trace_rank **out, size_t *out_n, struct dtp_err *err) {
    (void)a;
    (void)path;
    *out = NULL;
    *out_n = 0;
    return dtp_fail(err, DTP_EUNSUPPORTED,
                    "%s: a report of Nsight Systems; dtplan was built without SQLite: install "
                    "libsqlite3-dev and build again",
                    dtp_source_name(source));
}

#else

#include <sqlite3.h>

static size_t without_version(const char *name, size_t n) {
    size_t at = n;
    while (at > 0 && isdigit((unsigned char)name[at - 1]))
        at--;
    return at < n && at >= 2 && name[at - 1] == 'v' && name[at - 2] == '_' ? at - 2 : n;
}

static const char *copy_name(int64_t kind) {
    static const char *const names[] = {"Memcpy",      "Memcpy HtoD", "Memcpy DtoH", "Memcpy HtoA",
                                        "Memcpy AtoH", "Memcpy AtoA", "Memcpy AtoD", "Memcpy DtoA",
                                        "Memcpy DtoD", "Memcpy HtoH", "Memcpy PtoP"};
    return kind > 0 && kind < (int64_t)(sizeof names / sizeof *names) ? names[kind] : names[0];
}

static bool step_number(const char *name, int64_t *out) {
    static const char *const prefixes[] = {"ProfilerStep#", "step",       "iteration",
                                           "iter",          "train_step", "training_step"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        size_t n = strlen(prefixes[i]);
        char *end;
        if (strncasecmp(name, prefixes[i], n) != 0)
            continue;
        const char *at = name + n + strspn(name + n, " _#:");
        if (!isdigit((unsigned char)*at))
            continue;
        *out = strtoll(at, &end, 10);
        if (*end == '\0')
            return true;
    }
    return false;
}

#define PROCESS_MASK (~(int64_t)0xffffff) /* the low bits of a global thread id are the thread */
#define LATEST_NS (INT64_MAX / 4)

enum {
    MOST_PROCESSES = 4096,
    SQL_BYTES = 1024,
    OPS_A_BYTE = 64,
    FREE_OPS = 4000000,
    OPS_A_CALL = 1000
};
static const size_t most_memory_bytes = (size_t)1 << 29;

struct process {
    int64_t global_pid, device;
};

struct reader {
    sqlite3 *db;
    struct dtp_arena *a;
    const char *file;
    struct process *process;
    struct dtp_trace_rank *rank; /* [nprocesses] */
    size_t nprocesses;
    uint64_t ops, most_ops;
    bool out_of_memory; /* some question of what is there was not answered */
};

static enum dtp_status fail(const struct reader *r, struct dtp_err *err) {
    if (r->out_of_memory || sqlite3_errcode(r->db) == SQLITE_NOMEM)
        return dtp_fail(err, DTP_ENOMEM, "%s: no memory for SQLite", r->file);
    return dtp_fail(err, DTP_EINPUT, "%s: SQLite: %s", r->file, sqlite3_errmsg(r->db));
}

/* A damaged file may lead the engine around in circles: its work is bounded by the size of the file. */
static int too_long(void *ctx) {
    struct reader *r = ctx;
    r->ops += OPS_A_CALL;
    return r->ops > r->most_ops;
}

/* ---- what is there ---- */

static bool goes(struct reader *r, int rc) {
    r->out_of_memory |= rc == SQLITE_NOMEM;
    return rc == SQLITE_OK || rc == SQLITE_ROW;
}

static bool has(struct reader *r, const char *table, const char *column) {
    sqlite3_stmt *s;
    bool found = false;
    const char *sql = column ? "SELECT 1 FROM sqlite_master m, pragma_table_info(m.name) c WHERE "
                               "m.type = 'table' AND m.name = ?1 AND c.name = ?2"
                             : "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1";
    if (goes(r, sqlite3_prepare_v2(r->db, sql, -1, &s, NULL))) {
        sqlite3_bind_text(s, 1, table, -1, SQLITE_STATIC);
        if (column)
            sqlite3_bind_text(s, 2, column, -1, SQLITE_STATIC);
        found = goes(r, sqlite3_step(s));
    }
    sqlite3_finalize(s);
    return found;
}

/* ---- tables of events ---- */

enum column { START, END, DEVICE, STREAM, CORRELATION, GLOBAL_ID, NAME_ID, TEXT, DETAIL, NCOLUMNS };

static const struct table {
    const char *table, *category;
    enum dtp_trace_kind kind;
    const char *column[NCOLUMNS]; /* NULL: none */
    const char *other_name;       /* used if the table lacks NAME_ID's column */
} tables[] = {
    {"CUPTI_ACTIVITY_KIND_KERNEL",
     "kernel",
     DTP_TRACE_KERNEL,
     {"start", "end", "deviceId", "streamId", "correlationId", "globalPid", "demangledName", NULL,
      NULL},
     "shortName"},
    {"CUPTI_ACTIVITY_KIND_MEMCPY",
     "gpu_memcpy",
     DTP_TRACE_MEMCPY,
     {"start", "end", "deviceId", "streamId", "correlationId", "globalPid", NULL, NULL, "copyKind"},
     NULL},
    {"CUPTI_ACTIVITY_KIND_MEMSET",
     "gpu_memset",
     DTP_TRACE_MEMSET,
     {"start", "end", "deviceId", "streamId", "correlationId", "globalPid", NULL, NULL, NULL},
     NULL},
    {"CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
     "cuda_sync",
     DTP_TRACE_SYNC,
     {"start", "end", "deviceId", "streamId", "correlationId", "globalPid", NULL, NULL, NULL},
     NULL},
    {"CUPTI_ACTIVITY_KIND_RUNTIME",
     "cuda_runtime",
     DTP_TRACE_CALL,
     {"start", "end", NULL, NULL, "correlationId", "globalTid", "nameId", NULL, NULL},
     NULL},
    {"NVTX_EVENTS",
     "user_annotation",
     DTP_TRACE_ANNOTATION,
     {"start", "end", NULL, NULL, NULL, "globalTid", "textId", "text", "eventType"},
     NULL}};

/* SELECT of a table's columns, NULL for those that it lacks, and the name by its id. */
static void select_of(struct reader *r, const struct table *t, char *sql) {
    size_t n = 0;
    const char *name_id = NULL;
    n += (size_t)snprintf(sql + n, SQL_BYTES - n, "SELECT ");
    for (int c = 0; c < NCOLUMNS; c++) {
        const char *column = t->column[c];
        bool there = column && has(r, t->table, column);
        if (c == NAME_ID) {
            name_id = there                                              ? column
                      : t->other_name && has(r, t->table, t->other_name) ? t->other_name
                                                                         : NULL;
            there = name_id && has(r, "StringIds", "value");
            n += (size_t)snprintf(sql + n, SQL_BYTES - n, "%s, ", there ? "s.value" : "NULL");
            name_id = there ? name_id : NULL;
            continue;
        }
        n += (size_t)snprintf(sql + n, SQL_BYTES - n, "%s%s%s", there ? "e." : "",
                              there ? column : "NULL", c + 1 < NCOLUMNS ? ", " : "");
    }
    n += (size_t)snprintf(sql + n, SQL_BYTES - n, " FROM %s e", t->table);
    if (name_id)
        n += (size_t)snprintf(sql + n, SQL_BYTES - n, " LEFT JOIN StringIds s ON s.id = e.%s",
                              name_id);
    snprintf(sql + n, SQL_BYTES - n, " ORDER BY e.start");
}

static struct dtp_trace_rank *rank_of(struct reader *r, int64_t global_id) {
    int64_t pid = global_id & PROCESS_MASK;
    for (size_t i = 0; i < r->nprocesses; i++)
        if (r->process[i].global_pid == pid)
            return &r->rank[i];
    return r->nprocesses == 1 && global_id == 0 ? &r->rank[0] : NULL;
}

static uint32_t name_of(struct dtp_trace_rank *rank, const struct table *t, sqlite3_stmt *s) {
    const char *text = (const char *)sqlite3_column_text(s, TEXT);
    if (!text)
        text = (const char *)sqlite3_column_text(s, NAME_ID);
    if (t->kind == DTP_TRACE_MEMCPY)
        text = copy_name(sqlite3_column_int64(s, DETAIL));
    else if (t->kind == DTP_TRACE_MEMSET)
        text = "Memset";
    else if (t->kind == DTP_TRACE_SYNC)
        text = "Synchronize";
    text = text ? text : "";
    size_t n = strlen(text);
    return dtp_trace_intern(rank, text, t->kind == DTP_TRACE_CALL ? without_version(text, n) : n);
}

static uint32_t lane_of(struct dtp_trace_rank *rank, const struct table *t, sqlite3_stmt *s) {
    char pid[32], tid[32];
    if (t->kind != DTP_TRACE_CALL && t->kind != DTP_TRACE_ANNOTATION)
        return dtp_trace_device_lane(rank, sqlite3_column_int64(s, DEVICE),
                                     sqlite3_column_int64(s, STREAM));
    int64_t id = sqlite3_column_int64(s, GLOBAL_ID);
    snprintf(pid, sizeof pid, "%lld", (long long)(id >> 24 & 0xffffff));
    snprintf(tid, sizeof tid, "%lld", (long long)(id & 0xffffff));
    return dtp_trace_host_lane(rank, pid, tid);
}

static void take_row(struct reader *r, const struct table *t, sqlite3_stmt *s) {
    struct dtp_trace_rank *rank = rank_of(r, sqlite3_column_int64(s, GLOBAL_ID));
    if (!rank)
        return; /* the process has no GPU */
    int64_t start_ns = sqlite3_column_int64(s, START), end_ns = sqlite3_column_int64(s, END), step;
    rank->nrecords++;
    if (sqlite3_column_type(s, START) != SQLITE_INTEGER || start_ns < -LATEST_NS ||
        start_ns > LATEST_NS || end_ns < -LATEST_NS || end_ns > LATEST_NS) {
        dtp_trace_warn(rank, DTP_WARN_BAD_TIME, 0);
        return;
    }
    if (sqlite3_column_type(s, END) != SQLITE_INTEGER) {
        if (t->kind == DTP_TRACE_ANNOTATION) /* a mark, or a range that was never closed */
            return;
        end_ns = start_ns;
    }
    if (end_ns < start_ns) {
        dtp_trace_warn(rank, DTP_WARN_NEGATIVE_DURATION, 0);
        end_ns = start_ns;
    }
    uint32_t name = name_of(rank, t, s), lane = lane_of(rank, t, s);
    struct dtp_trace_event *e = dtp_trace_add(rank);
    e->start_ns = start_ns;
    e->dur_ns = end_ns - start_ns;
    e->name = name;
    e->lane = lane;
    e->kind = (uint8_t)t->kind;
    e->category = dtp_trace_intern_category(rank, t->category, strlen(t->category));
    rank->category_count[e->category]++;
    e->link = (uint64_t)sqlite3_column_int64(s, CORRELATION);
    e->on_stream = rank->lane[lane].is_device;
    if (t->kind == DTP_TRACE_ANNOTATION && step_number(dtp_trace_name(rank, name), &step))
        dtp_trace_add_step(rank, step, e);
}

static enum dtp_status take_table(struct reader *r, const struct table *t, struct dtp_err *err) {
    char sql[SQL_BYTES];
    sqlite3_stmt *s;
    int rc;
    if (!has(r, t->table, "start"))
        return DTP_OK;
    select_of(r, t, sql);
    if (sqlite3_prepare_v2(r->db, sql, -1, &s, NULL) != SQLITE_OK)
        return fail(r, err);
    while ((rc = sqlite3_step(s)) == SQLITE_ROW)
        take_row(r, t, s);
    enum dtp_status status = rc == SQLITE_DONE ? DTP_OK : fail(r, err);
    sqlite3_finalize(s);
    return status;
}

/* ---- processes ---- */

static int by_device(const void *x, const void *y) {
    const struct process *p = x, *q = y;
    if (p->device != q->device)
        return p->device < q->device ? -1 : 1;
    return p->global_pid < q->global_pid ? -1 : p->global_pid > q->global_pid;
}

static void add_process(struct reader *r, int64_t pid, int64_t device) {
    for (size_t i = 0; i < r->nprocesses; i++)
        if (r->process[i].global_pid == pid) {
            if (device < r->process[i].device)
                r->process[i].device = device;
            return;
        }
    if (r->nprocesses < MOST_PROCESSES)
        r->process[r->nprocesses++] = (struct process){pid, device};
}

/* Processes that ran kernels or copies; of a report without any, those with calls or ranges. */
static enum dtp_status find_processes(struct reader *r, struct dtp_err *err) {
    r->process = DTP_NEW(r->a, struct process, MOST_PROCESSES);
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        const struct table *t = &tables[i];
        const char *id = t->column[GLOBAL_ID], *device = t->column[DEVICE];
        char sql[SQL_BYTES];
        sqlite3_stmt *s;
        int rc;
        bool host = t->kind == DTP_TRACE_CALL || t->kind == DTP_TRACE_ANNOTATION;
        if (!has(r, t->table, "start") || (host && r->nprocesses > 0))
            continue;
        bool has_id = has(r, t->table, id), has_device = device && has(r, t->table, device);
        snprintf(sql, sizeof sql, "SELECT DISTINCT %s, %s FROM %s", has_id ? id : "0",
                 has_device ? device : "0", t->table);
        if (sqlite3_prepare_v2(r->db, sql, -1, &s, NULL) != SQLITE_OK)
            return fail(r, err);
        while ((rc = sqlite3_step(s)) == SQLITE_ROW)
            add_process(r, sqlite3_column_int64(s, 0) & PROCESS_MASK, sqlite3_column_int64(s, 1));
        sqlite3_finalize(s);
        if (rc != SQLITE_DONE)
            return fail(r, err);
    }
    if (r->out_of_memory)
        return fail(r, err);
    if (r->nprocesses == 0)
        return dtp_fail(err, DTP_EINPUT,
                        "%s: a database without events of Nsight Systems (no kernels, calls or "
                        "NVTX ranges)",
                        r->file);
    qsort(r->process, r->nprocesses, sizeof *r->process, by_device);
    return DTP_OK;
}

static int64_t single_number(struct reader *r, const char *table, const char *column) {
    char sql[SQL_BYTES];
    sqlite3_stmt *s;
    int64_t v = 0;
    if (!has(r, table, column))
        return 0;
    snprintf(sql, sizeof sql, "SELECT %s FROM %s LIMIT 1", column, table);
    if (goes(r, sqlite3_prepare_v2(r->db, sql, -1, &s, NULL)) && goes(r, sqlite3_step(s)))
        v = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    return v;
}

static const char *gpu_name(struct reader *r) {
    sqlite3_stmt *s;
    const char *name = "";
    if (has(r, "TARGET_INFO_GPU", "name") &&
        goes(r,
             sqlite3_prepare_v2(r->db, "SELECT name FROM TARGET_INFO_GPU LIMIT 1", -1, &s, NULL))) {
        const char *text =
            goes(r, sqlite3_step(s)) ? (const char *)sqlite3_column_text(s, 0) : NULL;
        r->out_of_memory |= !text && sqlite3_errcode(r->db) == SQLITE_NOMEM;
        name = dtp_arena_strdup(r->a, text ? text : "");
        sqlite3_finalize(s);
    }
    return name;
}

static enum dtp_status read_all(struct reader *r, struct dtp_err *err) {
    DTP_TRY(find_processes(r, err));
    r->rank = DTP_NEW(r->a, struct dtp_trace_rank, r->nprocesses);
    int64_t base_ns = single_number(r, "TARGET_INFO_SESSION_START_TIME", "utcEpochNs");
    const char *device = gpu_name(r);
    for (size_t i = 0; i < r->nprocesses; i++) {
        const char *file =
            r->nprocesses == 1
                ? r->file
                : dtp_arena_printf(r->a, "%s:process %lld", r->file,
                                   (long long)(r->process[i].global_pid >> 24 & 0xffffff));
        dtp_trace_rank_init(&r->rank[i], r->a, file);
        r->rank[i].base_ns = base_ns > 0 ? base_ns : 0;
        r->rank[i].has_base = base_ns > 0;
        r->rank[i].device = device;
        r->rank[i].time_unit = "ns";
    }
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        DTP_TRY(take_table(r, &tables[i], err));
    for (size_t i = 0; i < r->nprocesses; i++)
        dtp_trace_finish(&r->rank[i]);
    return r->out_of_memory ? fail(r, err) : DTP_OK;
}

/* ---- opening ---- */

static enum dtp_status read_packed(struct reader *r, struct dtp_source *source, uint64_t *out_bytes,
                                   struct dtp_err *err) {
    unsigned char *buf = NULL;
    size_t capacity = 0, n = 0, got = 1;
    while (got > 0) {
        if (n == capacity) {
            size_t more = capacity ? capacity * 2 : (size_t)1 << 16;
            buf = dtp_arena_grow(r->a, buf, 1, capacity, more);
            capacity = more;
        }
        DTP_TRY(dtp_source_read(source, buf + n, capacity - n, &got, err));
        n += got;
        if (n > most_memory_bytes)
            return dtp_fail(err, DTP_EUNSUPPORTED,
                            "%s: a packed database beyond 512 MiB: unpack the file first", r->file);
    }
    *out_bytes = n;
    if (sqlite3_open_v2(":memory:", &r->db, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK ||
        sqlite3_deserialize(r->db, "main", buf, (sqlite3_int64)n, (sqlite3_int64)n,
                            SQLITE_DESERIALIZE_READONLY) != SQLITE_OK)
        return fail(r, err);
    return DTP_OK;
}

static enum dtp_status open_database(struct reader *r, struct dtp_source *source, const char *path,
                                     struct dtp_err *err) {
    uint64_t bytes = most_memory_bytes * 128;
    if (!path)
        DTP_TRY(read_packed(r, source, &bytes, err));
    else if (sqlite3_open_v2(path, &r->db, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK)
        return fail(r, err);
    r->most_ops = FREE_OPS + bytes * OPS_A_BYTE;
    sqlite3_progress_handler(r->db, OPS_A_CALL, too_long, r);
    sqlite3_db_config(r->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(r->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    return DTP_OK;
}

enum dtp_status dtp_nsys_read(struct dtp_arena *a, struct dtp_source *source, const char *path,
                              struct dtp_trace_rank **out, size_t *out_n, struct dtp_err *err) {
    struct reader r = {.a = a, .file = dtp_source_name(source)};
    *out = NULL;
    *out_n = 0;
    enum dtp_status status = open_database(&r, source, path, err);
    if (status == DTP_OK)
        status = read_all(&r, err);
    sqlite3_close(r.db);
    if (status == DTP_OK) {
        *out = r.rank;
        *out_n = r.nprocesses;
    }
    return status;
}

#endif
