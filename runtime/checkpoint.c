/* Checkpoints: DIR/step-N holds one file per rank and a manifest; DIR/latest names the newest step.
 *
 * A file is a row of records: a fixed header (magic, name, block, range, checksum) and fp32 values, in
 * the byte order of the machine (the magic tells). A record is a run of elements begin .. begin + n - 1
 * of a block [rows, cols] at (row0, col0) of a global tensor: that is what one rank of any layout holds,
 * so that any other layout finds its elements again. Each element is written by one rank.
 * Step folders appear whole: written under another name, synced, renamed after a barrier. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "runtime/rank.h"
#include "sim/base/text.h"

enum { MAGIC = 0x64747063, NAME_BYTES = 88, PIECE_BYTES = 1 << 28 };
enum state { STATE_WEIGHT, STATE_M, STATE_V, NSTATES };

struct record {
    uint32_t magic, checksum; /* CRC-32 of the header (this field 0) and the values */
    uint32_t state, step;
    char name[NAME_BYTES];
    int64_t row0, col0, rows, cols, begin, n;
};

static uint32_t checksum(const struct record *rec, const float *values) {
    struct record h = *rec;
    h.checksum = 0;
    uLong crc = crc32(0L, (const Bytef *)&h, (uInt)sizeof h);
    const char *at = (const char *)values;
    for (uint64_t left = (uint64_t)rec->n * sizeof *values; left > 0;) {
        uInt piece = left > PIECE_BYTES ? PIECE_BYTES : (uInt)left;
        crc = crc32(crc, (const Bytef *)at, piece);
        at += piece;
        left -= piece;
    }
    return (uint32_t)crc;
}

/* Host copy of a state of owned elements begin .. of a unit. */
static enum dtp_status fetch(struct dtp_rank *r, struct dtp_unit *u, enum state state, int64_t at,
                             int64_t n, float *out) {
    const struct dtp_owned x = dtp_unit_owned(r, u);
    const float *from = state == STATE_M ? u->m : state == STATE_V ? u->v : u->master;
    if (!from) /* fp32 weights are their own master */
        from = x.weights;
    r->ops->copy_out(r->dev, out, from + at, (uint64_t)n * sizeof *out);
    return r->ops->check(r->dev, r->err);
}

/* Whether this rank writes the parameter: one of those that hold it. */
static bool writes(const struct dtp_rank *r, const struct dtp_unit *u, const struct dtp_param *p) {
    if (u->tied_copy || r->layout.tp_rank % p->tp_copies != 0)
        return false;
    return r->plan->zero_stage > 0 || r->layout.dp_rank == 0;
}

static enum dtp_status write_param(struct dtp_rank *r, struct dtp_unit *u, int id, FILE *f,
                                   int step) {
    const struct dtp_param *p = &u->param[id];
    const struct dtp_owned x = dtp_unit_owned(r, u);
    int64_t begin, n;
    enum dtp_status status = DTP_OK;
    if (!dtp_param_owned(p, &x, &begin, &n) || !writes(r, u, p))
        return DTP_OK;
    struct dtp_arena *a = dtp_arena_create("checkpoint");
    float *values = DTP_NEW(a, float, (size_t)n);
    for (int state = 0; state < NSTATES && status == DTP_OK; state++) {
        struct record rec = {.magic = MAGIC,
                             .state = (uint32_t)state,
                             .step = (uint32_t)step,
                             .row0 = p->row0,
                             .col0 = p->col0,
                             .rows = p->rows,
                             .cols = p->cols,
                             .begin = begin - p->at,
                             .n = n};
        snprintf(rec.name, sizeof rec.name, "%s", p->name);
        status = fetch(r, u, (enum state)state, begin - x.begin, n, values);
        rec.checksum = checksum(&rec, values);
        if (status == DTP_OK && (fwrite(&rec, sizeof rec, 1, f) != 1 ||
                                 fwrite(values, sizeof *values, (size_t)n, f) != (size_t)n))
            status = dtp_fail(r->err, DTP_ENO, "writing a checkpoint: %s", strerror(errno));
    }
    dtp_arena_destroy(a);
    return status;
}

static enum dtp_status write_file(struct dtp_rank *r, const char *path, int step) {
    FILE *f = fopen(path, "wb");
    if (!f)
        return dtp_fail(r->err, DTP_ENO, "%s: %s", path, strerror(errno));
    enum dtp_status status = DTP_OK;
    DTP_EACH_UNIT(r, u)
    for (int id = 0; id < DTP_NLAYER_PARAMS && status == DTP_OK; id++)
        status = write_param(r, u, id, f, step);
    bool good = fflush(f) == 0 && fsync(fileno(f)) == 0;
    good = fclose(f) == 0 && good;
    if (status == DTP_OK && !good)
        status = dtp_fail(r->err, DTP_ENO, "%s: %s", path, strerror(errno));
    return status;
}

static enum dtp_status make_folder(const char *path, struct dtp_err *err) {
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return dtp_fail(err, DTP_EINPUT, "%s: %s", path, strerror(errno));
    return DTP_OK;
}

enum dtp_status dtp_checkpoint_prepare(struct dtp_rank *r) {
    const char *folder = r->o->save;
    if (!folder || r->rank != 0)
        return DTP_OK;
    DTP_TRY(make_folder(folder, r->err));
    if (access(dtp_arena_printf(r->arena, "%s/.", folder), W_OK | X_OK) != 0)
        return dtp_fail(r->err, DTP_EINPUT, "%s: %s", folder, strerror(errno));
    return DTP_OK;
}

static enum dtp_status write_text(struct dtp_arena *a, const char *path, const char *text,
                                  struct dtp_err *err) {
    struct dtp_file_out out;
    DTP_TRY(dtp_file_out_open(a, path, &out, err));
    fputs(text, out.f);
    return dtp_file_out_commit(&out, err);
}

static const char *rank_file(struct dtp_arena *a, const char *folder, int rank) {
    return dtp_arena_printf(a, "%s/rank-%05d.bin", folder, rank);
}

/* Removes a folder of ours that an earlier save left, of however many ranks: files *.bin and manifest. */
static void remove_folder(struct dtp_arena *a, const char *folder) {
    const char *const *names;
    size_t n;
    if (dtp_dir_list(a, folder, ".bin", &names, &n, NULL) != DTP_OK)
        return;
    for (size_t i = 0; i < n; i++)
        (void)unlink(dtp_arena_printf(a, "%s/%s.bin", folder, names[i]));
    (void)unlink(dtp_arena_printf(a, "%s/manifest", folder));
    (void)rmdir(folder);
}

static enum dtp_status publish(struct dtp_arena *a, struct dtp_rank *r, const char *temporary,
                               int step) {
    const struct dtp_loss_scale *s = &r->loss_scale;
    const char *name = dtp_arena_printf(a, "step-%06d", step);
    const char *final = dtp_arena_printf(a, "%s/%s", r->o->save, name);
    const char *manifest =
        dtp_arena_printf(a,
                         "dtplan-checkpoint 1\nstep %d\nranks %d\nseed %" PRIu64
                         "\nupdates %d\nloss scale %.17g after %d clean steps\n",
                         step, r->size, r->o->seed, s->updates, s->scale, s->clean);
    DTP_TRY(write_text(a, dtp_arena_printf(a, "%s/manifest", temporary), manifest, r->err));
    remove_folder(a, final);
    if (rename(temporary, final) != 0)
        return dtp_fail(r->err, DTP_ENO, "%s: %s", final, strerror(errno));
    return write_text(a, dtp_arena_printf(a, "%s/latest", r->o->save),
                      dtp_arena_printf(a, "%s\n", name), r->err);
}

static enum dtp_status save(struct dtp_arena *a, struct dtp_rank *r, int step) {
    const struct dtp_comm_ops *h = r->host->ops;
    const char *folder = dtp_arena_printf(a, "%s/.step-%06d.tmp", r->o->save, step);
    if (r->rank == 0) {
        remove_folder(a, folder);
        DTP_TRY(make_folder(folder, r->err));
    }
    DTP_TRY(h->barrier(r->host_world, r->err));
    DTP_TRY(write_file(r, rank_file(a, folder, r->rank), step));
    DTP_TRY(h->barrier(r->host_world, r->err));
    if (r->rank == 0)
        DTP_TRY(publish(a, r, folder, step));
    return h->barrier(r->host_world, r->err);
}

enum dtp_status dtp_checkpoint_save(struct dtp_rank *r, int step) {
    struct dtp_arena *a = dtp_arena_create("save");
    r->host->ops->doing(r->host, "saving a checkpoint");
    enum dtp_status status = save(a, r, step);
    dtp_arena_destroy(a);
    return status;
}

/* ---- loading ---- */

struct loader {
    struct dtp_rank *r;
    struct dtp_arena *a; /* for the values of one record */
    const char *path;
    int step;
    uint64_t found; /* elements of own parameters, all states */
    float **values; /* [units * NSTATES] of each unit, of its shard where ZeRO has one */
};

/* Elements of a record that fall into our block, row by row; at: the unit's first own element. */
struct target {
    const struct dtp_param *p;
    int64_t begin, n; /* own elements of the unit */
    float *values;    /* of the first of them */
};

static uint64_t copy_overlap(const struct record *rec, const float *from, const struct target *t) {
    const struct dtp_param *p = t->p;
    uint64_t copied = 0;
    for (int64_t i = 0; i < rec->n;) {
        int64_t at = rec->begin + i, row = rec->row0 + at / rec->cols, col0 = at % rec->cols;
        int64_t left = rec->cols - col0 < rec->n - i ? rec->cols - col0 : rec->n - i;
        int64_t own_row = row - p->row0, from_col = rec->col0 + col0;
        int64_t lo = from_col > p->col0 ? from_col : p->col0;
        int64_t hi = from_col + left < p->col0 + p->cols ? from_col + left : p->col0 + p->cols;
        int64_t base = p->at + own_row * p->cols - p->col0; /* + column = element of the unit */
        if (own_row < 0 || own_row >= p->valid_rows)
            hi = lo;
        lo = base + lo > t->begin ? lo : t->begin - base;
        hi = base + hi < t->begin + t->n ? hi : t->begin + t->n - base;
        if (lo < hi) {
            memcpy(t->values + (base + lo - t->begin), from + i + (lo - from_col),
                   (size_t)(hi - lo) * sizeof *from);
            copied += (uint64_t)(hi - lo);
        }
        i += left;
    }
    return copied;
}

static void use_in_unit(struct loader *l, int index, const struct record *rec,
                        const float *values) {
    struct dtp_rank *r = l->r;
    struct dtp_unit *u = r->unit[index];
    struct dtp_owned x = dtp_unit_owned(r, u);
    if (rec->state == STATE_WEIGHT && r->plan->zero_stage < 3) /* all of it, not the shard */
        x = (struct dtp_owned){.begin = 0, .n = u->n};
    float *to = l->values[NSTATES * index + (int)rec->state];
    for (int id = 0; id < DTP_NLAYER_PARAMS; id++)
        if (u->param[id].name && strcmp(u->param[id].name, rec->name) == 0)
            l->found +=
                copy_overlap(rec, values, &(struct target){&u->param[id], x.begin, x.n, to});
}

static void use_record(struct loader *l, const struct record *rec, const float *values) {
    for (int i = 0; i < l->r->nunits; i++)
        use_in_unit(l, i, rec, values);
}

static enum dtp_status bad_file(struct loader *l, const char *what) {
    return dtp_fail(l->r->err, DTP_EINPUT, "%s: %s", l->path, what);
}

/* Its run lies in its block, and the block is one that an address space holds. */
static bool is_record(const struct record *rec) {
    const int64_t most = INT32_MAX;
    return rec->magic == MAGIC && rec->state < NSTATES && rec->row0 >= 0 && rec->row0 <= most &&
           rec->col0 >= 0 && rec->col0 <= most && rec->rows >= 1 && rec->rows <= most &&
           rec->cols >= 1 && rec->cols <= most && rec->begin >= 0 && rec->n >= 1 &&
           rec->begin < rec->rows * rec->cols && rec->n <= rec->rows * rec->cols - rec->begin;
}

static enum dtp_status read_records(struct loader *l, FILE *f) {
    struct record rec;
    struct stat st;
    if (fstat(fileno(f), &st) != 0)
        return bad_file(l, strerror(errno));
    int64_t left_bytes = st.st_size;
    for (; fread(&rec, sizeof rec, 1, f) == 1;) {
        rec.name[NAME_BYTES - 1] = '\0';
        left_bytes -= (int64_t)sizeof rec;
        if (!is_record(&rec))
            return bad_file(l, "not a checkpoint of dtplan, or damaged");
        dtp_arena_reset(l->a);
        size_t n = (size_t)rec.n;
        float *values =
            rec.n <= left_bytes / (int64_t)sizeof *values ? DTP_NEW(l->a, float, n) : NULL;
        if (!values || fread(values, sizeof *values, n, f) != n)
            return bad_file(l, "cut short");
        if (checksum(&rec, values) != rec.checksum)
            return bad_file(l, "the checksum is wrong, the file is damaged");
        left_bytes -= rec.n * (int64_t)sizeof *values;
        use_record(l, &rec, values);
    }
    return DTP_OK;
}

static enum dtp_status read_file(struct loader *l) {
    FILE *f = fopen(l->path, "rb");
    if (!f)
        return bad_file(l, strerror(errno));
    enum dtp_status status = read_records(l, f);
    fclose(f);
    return status;
}

/* What must have been found: our parameters without padding, three times. */
static uint64_t expected_elements(struct dtp_rank *r) {
    uint64_t sum = 0;
    DTP_EACH_UNIT(r, u)
    for (int id = 0; id < DTP_NLAYER_PARAMS; id++) {
        const struct dtp_param *p = &u->param[id];
        struct dtp_owned x = dtp_unit_owned(r, u), all = {.n = u->n};
        struct dtp_param valid = *p;
        int64_t begin, n;
        valid.n = p->valid_rows * p->cols;
        if (dtp_param_owned(&valid, r->plan->zero_stage < 3 ? &all : &x, &begin, &n))
            sum += (uint64_t)n;
        if (dtp_param_owned(&valid, &x, &begin, &n))
            sum += 2 * (uint64_t)n;
    }
    return sum;
}

static enum dtp_status install(struct loader *l) {
    struct dtp_rank *r = l->r;
    for (int i = 0; i < r->nunits; i++) {
        struct dtp_unit *u = r->unit[i];
        float **x = &l->values[NSTATES * i];
        uint64_t bytes = (uint64_t)dtp_unit_owned(r, u).n * sizeof(float);
        DTP_TRY(dtp_unit_set(r, u, x[STATE_WEIGHT]));
        r->ops->copy_in(r->dev, u->m, x[STATE_M], bytes);
        r->ops->copy_in(r->dev, u->v, x[STATE_V], bytes);
    }
    r->ops->sync(r->dev);
    return DTP_OK;
}

static enum dtp_status read_all(struct loader *l, struct dtp_arena *a, const char *folder,
                                int nranks) {
    struct dtp_rank *r = l->r;
    l->values = DTP_NEW(a, float *, NSTATES *(size_t)r->nunits);
    for (int i = 0; i < NSTATES * r->nunits; i++) {
        const struct dtp_unit *u = r->unit[i / NSTATES];
        bool whole =
            i % NSTATES == STATE_WEIGHT ? r->plan->zero_stage < 3 : r->plan->zero_stage < 1;
        l->values[i] = DTP_NEW(a, float, (size_t)(whole ? u->n : u->shard_n));
    }
    for (int i = 0; i < nranks; i++) {
        l->path = rank_file(a, folder, i);
        DTP_TRY(read_file(l));
    }
    uint64_t expected = expected_elements(r);
    if (l->found != expected)
        return dtp_fail(r->err, DTP_EINPUT,
                        "%s does not hold this model: %" PRIu64 " of %" PRIu64 " values of rank %d",
                        folder, l->found, expected, r->rank);
    return install(l);
}

/* Optimizer updates and loss scale; manifests of earlier versions have neither: no step was skipped. */
static enum dtp_status resume_scale(struct dtp_rank *r, const char *path, int step,
                                    const char *text) {
    struct dtp_loss_scale *s = &r->loss_scale;
    const char *at = strstr(text, "\nupdates ");
    double scale = 1;
    int updates = step, clean = 0;
    if (at &&
        (sscanf(at, "\nupdates %d\nloss scale %lg after %d clean", &updates, &scale, &clean) != 3 ||
         updates < 0 || updates > step || !(scale > 0) || clean < 0))
        return dtp_fail(r->err, DTP_EINPUT, "%s: not a manifest of a checkpoint", path);
    s->updates = updates;
    if (at && s->dynamic) {
        s->scale = scale;
        s->clean = clean;
    }
    return DTP_OK;
}

enum dtp_status dtp_checkpoint_load(struct dtp_rank *r, int *step) {
    const char *text;
    size_t n;
    int nranks = 0;
    uint64_t seed;
    r->host->ops->doing(r->host, "loading a checkpoint");
    const char *path = dtp_arena_printf(r->arena, "%s/latest", r->o->resume);
    DTP_TRY(dtp_file_read(r->arena, path, 0, &text, &n, r->err));
    const char *folder =
        dtp_arena_printf(r->arena, "%s/%.*s", r->o->resume, (int)strcspn(text, "\n"), text);
    path = dtp_arena_printf(r->arena, "%s/manifest", folder);
    DTP_TRY(dtp_file_read(r->arena, path, 0, &text, &n, r->err));
    if (sscanf(text, "dtplan-checkpoint 1 step %d ranks %d seed %" SCNu64, step, &nranks, &seed) !=
            3 ||
        nranks < 1)
        return dtp_fail(r->err, DTP_EINPUT, "%s: not a manifest of a checkpoint", path);
    if (seed != r->o->seed) /* other data and dropout behind the step */
        return dtp_fail(r->err, DTP_EINPUT,
                        "%s: saved by a run with seed %" PRIu64 ", this one has seed %" PRIu64,
                        path, seed, r->o->seed);
    DTP_TRY(resume_scale(r, path, *step, text));
    struct dtp_arena *a = dtp_arena_create("resume");
    struct loader l = {.r = r, .a = dtp_arena_create("record"), .step = *step};
    enum dtp_status status = read_all(&l, a, folder, nranks);
    dtp_arena_destroy(l.a);
    dtp_arena_destroy(a);
    return status;
}
