/* Checkpoints: DIR/step-N holds one file per rank and a manifest; DIR/latest names the newest step.
 *
 * A file is a row of records: a fixed header (magic, name, block, range, checksum) and fp32 values, in
 * the byte order of the machine (the magic tells). A record is a run of elements begin .. begin + n - 1
 * of a block [rows, cols] at (row0, col0) of a global tensor: that is what one rank of any layout holds,
 * so that any other layout finds its elements again. Each element is written by one rank.
 * Step folders appear whole: written under another name, synced, renamed after a barrier; DIR/latest is
 * replaced before an older folder of the same step is removed, so that there is a newest step at any time.
 *
 * A file begins with what it is: {"step", "ranks", "sequences" drawn so far, "training", "job"}, the last two
 * from facts.h. The manifest is that document with "rank files" (length and checksum of each), "updates",
 * "scale" and "clean" of the loss scale; a second line is its own checksum. What a file says of itself must be
 * what the manifest says, and "training" what the run that resumes has.
 * DIR/lock is locked by the run that saves there. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "runtime/facts.h"
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

/* The manifest holds for each file its length, and the CRC-32 of its head and of the headers, each of which
 * holds the checksum of its values. */
struct file_sum {
    uint64_t bytes;
    uint32_t crc, unused;
};

static void add_to_sum(struct file_sum *sum, const void *x, size_t bytes, size_t value_bytes) {
    sum->crc = (uint32_t)crc32_z(sum->crc, x, bytes);
    sum->bytes += bytes + value_bytes;
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

enum dtp_status dtp_unit_master(struct dtp_rank *r, struct dtp_unit *u, int64_t at, int64_t n,
                                float *out) {
    return fetch(r, u, STATE_WEIGHT, at, n, out);
}

bool dtp_param_writes(const struct dtp_rank *r, const struct dtp_unit *u,
                      const struct dtp_param *p) {
    if (u->tied_copy || r->layout.tp_rank % p->tp_copies != 0)
        return false;
    return r->plan->zero_stage > 0 || r->layout.dp_rank == 0;
}

static enum dtp_status write_param(struct dtp_rank *r, struct dtp_unit *u, int id, FILE *f,
                                   int step, struct file_sum *sum) {
    const struct dtp_param *p = &u->param[id];
    const struct dtp_owned x = dtp_unit_owned(r, u);
    int64_t begin, n;
    enum dtp_status status = DTP_OK;
    if (!dtp_param_owned(p, &x, &begin, &n) || !dtp_param_writes(r, u, p))
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
        add_to_sum(sum, &rec, sizeof rec, (size_t)n * sizeof *values);
        if (status == DTP_OK && (fwrite(&rec, sizeof rec, 1, f) != 1 ||
                                 fwrite(values, sizeof *values, (size_t)n, f) != (size_t)n))
            status = dtp_fail(r->err, DTP_ENO, "writing a checkpoint: %s", strerror(errno));
    }
    dtp_arena_destroy(a);
    return status;
}

/* A file begins with it; the text that says what the file is follows. */
struct file_head {
    uint32_t magic, text_bytes;
};

/* Describes the step in a line of JSON without its closing brace, since the manifest goes on from there. */
static enum dtp_status describe(struct dtp_arena *a, struct dtp_rank *r, int step,
                                const char **out) {
    const char *facts;
    DTP_TRY(dtp_facts_text(a, r->o, r->data, &facts, r->err));
    *out = dtp_arena_printf(a, "{\"step\": %d, \"ranks\": %d, \"sequences\": %" PRId64 ", %.*s",
                            step, r->size, (int64_t)step * r->plan->global_batch_size,
                            (int)strlen(facts) - 2, facts + 1);
    return DTP_OK;
}

static enum dtp_status write_file(struct dtp_rank *r, const char *path, int step,
                                  const char *description, struct file_sum *sum) {
    const struct file_head head = {MAGIC, (uint32_t)strlen(description)};
    FILE *f = fopen(path, "wb");
    if (!f)
        return dtp_fail(r->err, DTP_ENO, "%s: %s", path, strerror(errno));
    enum dtp_status status = DTP_OK;
    add_to_sum(sum, &head, sizeof head, 0);
    add_to_sum(sum, description, head.text_bytes, 0);
    if (fwrite(&head, sizeof head, 1, f) != 1 || fwrite(description, head.text_bytes, 1, f) != 1)
        status = dtp_fail(r->err, DTP_ENO, "%s: %s", path, strerror(errno));
    DTP_EACH_UNIT(r, u)
    for (int id = 0; id < DTP_NLAYER_PARAMS && status == DTP_OK; id++)
        status = write_param(r, u, id, f, step, sum);
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

/* A folder keeps its names after a crash. Some file systems cannot sync one. */
static enum dtp_status sync_folder(const char *path, struct dtp_err *err) {
    int fd = open(path, O_RDONLY | O_DIRECTORY);
    bool good = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL);
    int saved = errno;
    if (fd >= 0)
        close(fd);
    return good ? DTP_OK : dtp_fail(err, DTP_ENO, "%s: %s", path, strerror(saved));
}

static int compare_descending(const void *x, const void *y) {
    const char *const *a = x, *const *b = y;
    return strcmp(*b, *a);
}

/* Names in a folder that begin so, the last of the alphabet first. */
static size_t list_names(struct dtp_arena *a, const char *folder, const char *prefix,
                         const char ***out) {
    size_t n = 0, capacity = 0;
    const char **names = NULL;
    DIR *dir = opendir(folder);
    for (const struct dirent *entry; dir && (entry = readdir(dir));) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
            continue;
        names = dtp_arena_room(a, names, sizeof *names, n, &capacity);
        names[n++] = dtp_arena_strdup(a, entry->d_name);
    }
    if (dir)
        closedir(dir);
    if (n > 0)
        qsort(names, n, sizeof *names, compare_descending);
    *out = names;
    return n;
}

static void put_text(FILE *f, const void *text) {
    fputs(text, f);
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

/* The lock ends with the process, however it ends. */
static enum dtp_status lock_folder(struct dtp_rank *r, const char *folder) {
    const char *path = dtp_arena_printf(r->arena, "%s/lock", folder);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return dtp_fail(r->err, DTP_EINPUT, "%s: %s", path, strerror(errno));
    r->save_lock = fd;
    if (fcntl(fd, F_SETLK, &lock) == 0)
        return DTP_OK;
    if (errno != EACCES && errno != EAGAIN)
        return dtp_fail(r->err, DTP_EINPUT, "%s: cannot lock it: %s", path, strerror(errno));
    long holder = fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK ? (long)lock.l_pid : 0;
    return dtp_fail(r->err, DTP_EINPUT,
                    "%s: another run saves its checkpoints here (process %ld): give another folder "
                    "or wait for its end",
                    folder, holder);
}

enum dtp_status dtp_checkpoint_prepare(struct dtp_rank *r) {
    const char *folder = r->o->save;
    const char **names;
    if (!folder || r->rank != 0)
        return DTP_OK;
    DTP_TRY(make_folder(folder, r->err));
    if (access(dtp_arena_printf(r->arena, "%s/.", folder), W_OK | X_OK) != 0)
        return dtp_fail(r->err, DTP_EINPUT, "%s: %s", folder, strerror(errno));
    DTP_TRY(lock_folder(r, folder));
    size_t n = list_names(r->arena, folder, ".step-", &names);
    for (size_t i = 0; i < n; i++) /* runs that died while they saved left these */
        remove_folder(r->arena, dtp_arena_printf(r->arena, "%s/%s", folder, names[i]));
    return sync_folder(dtp_arena_printf(r->arena, "%s/..", folder), r->err);
}

void dtp_checkpoint_release(struct dtp_rank *r) {
    if (r->save_lock > 0)
        close(r->save_lock);
    r->save_lock = 0;
}

/* Gives the step its final name, with a number after it if that name is taken by a folder that may be the newest. */
static enum dtp_status rename_step(struct dtp_arena *a, struct dtp_rank *r, const char *temporary,
                                   const char *name, const char **out) {
    const char *final = *out = name;
    for (int i = 2;; i++) {
        final = dtp_arena_printf(a, "%s/%s", r->o->save, *out);
        if (access(final, F_OK) != 0)
            break;
        *out = dtp_arena_printf(a, "%s-%d", name, i);
    }
    if (rename(temporary, final) != 0)
        return dtp_fail(r->err, DTP_ENO, "%s: %s", final, strerror(errno));
    return sync_folder(r->o->save, r->err);
}

static const char *manifest_text(struct dtp_arena *a, const struct dtp_rank *r,
                                 const char *description, const struct file_sum *sums) {
    const struct dtp_loss_scale *s = &r->loss_scale;
    struct dtp_str text = {.a = a};
    char scale[32];
    dtp_str_printf(&text, "%s, \"updates\": %d, \"scale\": %s, \"clean\": %d, \"rank files\": [",
                   description, s->updates, dtp_double_text(s->scale, scale, sizeof scale),
                   s->clean);
    for (int i = 0; i < r->size; i++)
        dtp_str_printf(&text, "%s[%" PRIu64 ", %" PRIu32 "]", i > 0 ? ", " : "", sums[i].bytes,
                       sums[i].crc);
    dtp_str_add(&text, "]}\n");
    uint32_t crc = (uint32_t)crc32_z(0L, (const Bytef *)text.at, text.n);
    dtp_str_printf(&text, "%" PRIu32 "\n", crc);
    return text.at;
}

static enum dtp_status publish(struct dtp_arena *a, struct dtp_rank *r, const char *temporary,
                               const char *manifest, int step) {
    const char *name = dtp_arena_printf(a, "step-%06d", step), *chosen, **same;
    DTP_TRY(dtp_file_write(a, dtp_arena_printf(a, "%s/manifest", temporary), put_text, manifest,
                           r->err));
    DTP_TRY(sync_folder(temporary, r->err));
    DTP_TRY(rename_step(a, r, temporary, name, &chosen));
    DTP_TRY(dtp_file_write(a, dtp_arena_printf(a, "%s/latest", r->o->save), put_text,
                           dtp_arena_printf(a, "%s\n", chosen), r->err));
    DTP_TRY(sync_folder(r->o->save, r->err));
    size_t n = list_names(a, r->o->save, name, &same);
    for (size_t i = 0; i < n; i++) {
        char behind = same[i][strlen(name)];
        if (strcmp(same[i], chosen) != 0 && (behind == '\0' || behind == '-'))
            remove_folder(a, dtp_arena_printf(a, "%s/%s", r->o->save, same[i]));
    }
    return DTP_OK;
}

static enum dtp_status save(struct dtp_arena *a, struct dtp_rank *r, int step) {
    const struct dtp_comm_ops *h = r->host->ops;
    const char *folder = dtp_arena_printf(a, "%s/.step-%06d.tmp", r->o->save, step), *description;
    struct file_sum sum = {0}, *sums = DTP_NEW(a, struct file_sum, (size_t)r->size);
    DTP_TRY(describe(a, r, step, &description));
    if (r->rank == 0) {
        remove_folder(a, folder);
        DTP_TRY(make_folder(folder, r->err));
    }
    DTP_TRY(h->barrier(r->host_world, r->err));
    DTP_TRY(write_file(r, rank_file(a, folder, r->rank), step, description, &sum));
    DTP_TRY(h->all_gather(r->host_world, DTP_STREAM_COMPUTE, sums, &sum,
                          (int64_t)(sizeof sum / sizeof(float)), DTP_FP32, r->err));
    if (r->rank == 0)
        DTP_TRY(publish(a, r, folder, manifest_text(a, r, description, sums), step));
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
    const struct dtp_json *manifest;
    int step, nranks;
    bool damaged;   /* the checkpoint is; not merely that of another run */
    uint64_t found; /* elements of own parameters, all states */
    float **
        values; /* [units * NSTATES] of each unit, of its shard where ZeRO has one; NULL: only look */
};

/* Elements of a record that fall into our block, row by row; at: the unit's first own element. */
struct target {
    const struct dtp_param *p;
    int64_t begin, n; /* own elements of the unit */
    float *values;    /* value of the first of them */
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
    for (int i = 0; l->values && i < l->r->nunits; i++)
        use_in_unit(l, i, rec, values);
}

static enum dtp_status bad_file(struct loader *l, const char *what) {
    l->damaged = true;
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

/* Reads the head of the file, which must agree with the manifest; *left_bytes is the rest of the file. */
static enum dtp_status read_head(struct loader *l, FILE *f, int64_t *left_bytes,
                                 struct file_sum *sum) {
    struct file_head head;
    const struct dtp_json *j;
    if (fread(&head, sizeof head, 1, f) != 1 || head.magic != MAGIC ||
        head.text_bytes >= DTP_FACTS_MOST_BYTES)
        return bad_file(l, "not a checkpoint of dtplan, or damaged");
    char *text = dtp_arena_alloc(l->a, 1, head.text_bytes + 2);
    if (fread(text, 1, head.text_bytes, f) != head.text_bytes)
        return bad_file(l, "cut short");
    add_to_sum(sum, &head, sizeof head, 0);
    add_to_sum(sum, text, head.text_bytes, 0);
    text[head.text_bytes] = '}';
    *left_bytes -= (int64_t)(sizeof head + head.text_bytes);
    if (dtp_json_parse(l->a, l->path, text, head.text_bytes + 1, &j, NULL) != DTP_OK ||
        dtp_json_type(j) != DTP_JSON_OBJECT)
        return bad_file(l, "not a checkpoint of dtplan, or damaged");
    for (size_t i = 0; i < dtp_json_size(j); i++) {
        const struct dtp_json *own = dtp_json_at(j, i);
        const struct dtp_json *listed = dtp_json_get(l->manifest, dtp_json_key(own));
        const struct dtp_json_difference *d = dtp_json_differ(l->a, own, listed);
        if (d)
            return bad_file(l, dtp_arena_printf(l->a,
                                                "it is of another run or step: %s%s%s is %s, the "
                                                "manifest says %s",
                                                dtp_json_key(own), d->path[0] ? "." : "", d->path,
                                                d->x, d->y));
    }
    return DTP_OK;
}

static enum dtp_status read_records(struct loader *l, FILE *f, struct file_sum *sum) {
    struct record rec;
    struct stat st;
    if (fstat(fileno(f), &st) != 0)
        return bad_file(l, strerror(errno));
    int64_t left_bytes = st.st_size;
    DTP_TRY(read_head(l, f, &left_bytes, sum));
    for (; fread(&rec, sizeof rec, 1, f) == 1;) {
        left_bytes -= (int64_t)sizeof rec;
        if (!is_record(&rec) || rec.step != (uint32_t)l->step || rec.name[NAME_BYTES - 1] != '\0')
            return bad_file(l, "not a checkpoint of dtplan, or damaged");
        dtp_arena_reset(l->a);
        size_t n = (size_t)rec.n;
        float *values =
            rec.n <= left_bytes / (int64_t)sizeof *values ? DTP_NEW(l->a, float, n) : NULL;
        if (!values || fread(values, sizeof *values, n, f) != n)
            return bad_file(l, "cut short");
        if (checksum(&rec, values) != rec.checksum)
            return bad_file(l, "the checksum is wrong, the file is damaged");
        add_to_sum(sum, &rec, sizeof rec, n * sizeof *values);
        left_bytes -= rec.n * (int64_t)sizeof *values;
        use_record(l, &rec, values);
    }
    return left_bytes == 0 ? DTP_OK : bad_file(l, "cut short");
}

/* Reads it, and compares with the file that the manifest lists at `i`. */
static enum dtp_status read_file(struct loader *l, int i) {
    const struct dtp_json *listed = dtp_json_at(dtp_json_get(l->manifest, "rank files"), (size_t)i);
    struct file_sum sum = {0};
    FILE *f = fopen(l->path, "rb");
    if (!f)
        return bad_file(l, strerror(errno));
    enum dtp_status status = read_records(l, f, &sum);
    fclose(f);
    DTP_TRY(status);
    if ((double)sum.bytes != dtp_json_number(dtp_json_at(listed, 0)) ||
        (double)sum.crc != dtp_json_number(dtp_json_at(listed, 1)))
        return bad_file(l, "it is not the file that the manifest lists (length or checksum)");
    return DTP_OK;
}

/* Returns how many elements must have been found: our parameters without padding, three times. */
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

static enum dtp_status read_files(struct loader *l, struct dtp_arena *a, const char *folder) {
    for (int i = 0; i < l->nranks; i++) {
        l->path = rank_file(a, folder, i);
        DTP_TRY(read_file(l, i));
    }
    return DTP_OK;
}

static enum dtp_status read_all(struct loader *l, struct dtp_arena *a, const char *folder) {
    struct dtp_rank *r = l->r;
    l->values = DTP_NEW(a, float *, NSTATES *(size_t)r->nunits);
    for (int i = 0; i < NSTATES * r->nunits; i++) {
        const struct dtp_unit *u = r->unit[i / NSTATES];
        bool whole =
            i % NSTATES == STATE_WEIGHT ? r->plan->zero_stage < 3 : r->plan->zero_stage < 1;
        l->values[i] = DTP_NEW(a, float, (size_t)(whole ? u->n : u->shard_n));
    }
    DTP_TRY(read_files(l, a, folder));
    uint64_t expected = expected_elements(r);
    if (l->found != expected)
        return dtp_fail(r->err, DTP_EINPUT,
                        "%s does not hold this model: %" PRIu64 " of %" PRIu64 " values of rank %d",
                        folder, l->found, expected, r->rank);
    return install(l);
}

/* An integer of the manifest, or -1. */
static int64_t integer(const struct dtp_json *j) {
    double v = j && dtp_json_type(j) == DTP_JSON_NUMBER ? dtp_json_number(j) : -1;
    return v >= 0 && v <= DTP_LARGEST_INTEGER && (double)(int64_t)v == v ? (int64_t)v : -1;
}

static bool are_files(const struct dtp_json *j, int n) {
    if (!j || dtp_json_type(j) != DTP_JSON_ARRAY || dtp_json_size(j) != (size_t)n)
        return false;
    for (size_t i = 0; i < dtp_json_size(j); i++) {
        const struct dtp_json *at = dtp_json_at(j, i);
        if (dtp_json_type(at) != DTP_JSON_ARRAY || dtp_json_size(at) != 2 ||
            integer(dtp_json_at(at, 0)) < 0 || integer(dtp_json_at(at, 1)) < 0)
            return false;
    }
    return true;
}

/* The manifest of a step folder, its numbers within their bounds. */
static enum dtp_status read_manifest(struct loader *l, struct dtp_arena *a, const char *folder) {
    const char *text;
    size_t n;
    long crc;
    enum { MOST_RANKS = 1 << 20 };
    l->path = dtp_arena_printf(a, "%s/manifest", folder);
    l->damaged = true;
    DTP_TRY(dtp_file_read(a, l->path, 0, &text, &n, l->r->err));
    const char *end = strchr(text, '\n');
    if (strncmp(text, "dtplan-checkpoint 1\n", strlen("dtplan-checkpoint 1\n")) == 0)
        return bad_file(l,
                        "of an earlier version of dtplan, whose files do not tell what they are");
    if (!end || end[1] == '\0' || n != strlen(text) || text[n - 1] != '\n')
        return bad_file(l, "not a manifest of a checkpoint");
    const char *sum = dtp_arena_strndup(a, end + 1, (size_t)(text + n - end - 2));
    if (dtp_parse_long(sum, l->path, 0, UINT32_MAX, &crc, NULL) != DTP_OK ||
        (uint32_t)crc32_z(0L, (const Bytef *)text, (z_size_t)(end + 1 - text)) != (uint32_t)crc)
        return bad_file(l, "the checksum is wrong, the manifest is damaged");
    DTP_TRY(dtp_json_parse(a, l->path, text, (size_t)(end - text), &l->manifest, l->r->err));
    const struct dtp_json *j = l->manifest, *scale = dtp_json_get(j, "scale");
    int64_t step = integer(dtp_json_get(j, "step")), ranks = integer(dtp_json_get(j, "ranks"));
    int64_t updates = integer(dtp_json_get(j, "updates")),
            clean = integer(dtp_json_get(j, "clean"));
    if (step < 0 || step > INT32_MAX || ranks < 1 || ranks > MOST_RANKS || updates < 0 ||
        updates > step || clean < 0 || clean > step || !scale ||
        dtp_json_type(scale) != DTP_JSON_NUMBER || !(dtp_json_number(scale) > 0) ||
        !are_files(dtp_json_get(j, "rank files"), (int)ranks))
        return bad_file(l, "not a manifest of a checkpoint");
    l->step = (int)step;
    l->nranks = (int)ranks;
    l->damaged = false;
    return DTP_OK;
}

/* The run that resumes trains what the manifest says, from the sequence at which that ended. */
static enum dtp_status check_training(struct loader *l, struct dtp_arena *a) {
    struct dtp_rank *r = l->r;
    const char *text;
    const struct dtp_json *mine;
    DTP_TRY(dtp_facts_text(a, r->o, r->data, &text, r->err));
    DTP_TRY(dtp_json_parse(a, "this run", text, strlen(text), &mine, r->err));
    const struct dtp_json_difference *d =
        dtp_json_differ(a, dtp_json_get(l->manifest, "training"), dtp_json_get(mine, "training"));
    if (d)
        return dtp_fail(r->err, DTP_EINPUT, "%s: saved by a run with %s %s, this one has %s %s",
                        l->path, d->path, d->x, d->path, d->y);
    if (integer(dtp_json_get(l->manifest, "sequences")) !=
        (int64_t)l->step * r->plan->global_batch_size)
        return bad_file(l, "its place in the data is not that of its step and batch");
    return DTP_OK;
}

static void resume_scale(struct dtp_rank *r, const struct dtp_json *manifest) {
    struct dtp_loss_scale *s = &r->loss_scale;
    s->updates = (int)integer(dtp_json_get(manifest, "updates"));
    if (s->dynamic) {
        s->scale = dtp_json_number(dtp_json_get(manifest, "scale"));
        s->clean = (int)integer(dtp_json_get(manifest, "clean"));
    }
}

static enum dtp_status load_folder(struct loader *l, struct dtp_arena *a, const char *folder) {
    DTP_TRY(read_manifest(l, a, folder));
    DTP_TRY(check_training(l, a));
    DTP_TRY(read_all(l, a, folder));
    resume_scale(l->r, l->manifest);
    return DTP_OK;
}

/* The folder of the newest step; `resume` itself where it is one of a step. */
static enum dtp_status newest(struct loader *l, struct dtp_arena *a, const char **out) {
    const char *resume = l->r->o->resume, *text, *step = "step-";
    size_t n;
    *out = resume;
    if (access(dtp_arena_printf(a, "%s/manifest", resume), F_OK) == 0)
        return DTP_OK;
    l->path = dtp_arena_printf(a, "%s/latest", resume);
    l->damaged = true;
    DTP_TRY(dtp_file_read(a, l->path, 0, &text, &n, l->r->err));
    size_t length = strcspn(text, "\n/");
    if (strncmp(text, step, strlen(step)) != 0 || text[length] != '\n' || length + 1 != n)
        return bad_file(l, "it does not name a step");
    *out = dtp_arena_printf(a, "%s/%.*s", resume, (int)length, text);
    return DTP_OK;
}

/* Adds to the error which other step can be taken: the newest that is whole, and how. */
static void suggest(const struct loader *bad, struct dtp_arena *a, const char *folder) {
    struct dtp_rank *r = bad->r, quiet = *r;
    struct dtp_err ignored = {0}, first = *r->err;
    const char **names, *resume = r->o->resume;
    size_t n = list_names(a, resume, "step-", &names);
    quiet.err = &ignored;
    for (size_t i = 0; i < n; i++) {
        struct loader l = {.r = &quiet, .a = bad->a};
        const char *other = dtp_arena_printf(a, "%s/%s", resume, names[i]);
        if (strcmp(other, folder) == 0 || read_manifest(&l, a, other) != DTP_OK ||
            check_training(&l, a) != DTP_OK || read_files(&l, a, other) != DTP_OK)
            continue;
        (void)dtp_fail(r->err, first.status, "%s; step %d is whole: go on from it with --resume %s",
                       first.msg, l.step, other);
        return;
    }
}

enum dtp_status dtp_checkpoint_load(struct dtp_rank *r, int *step) {
    struct dtp_arena *a = dtp_arena_create("resume");
    struct loader l = {.r = r, .a = dtp_arena_create("record")};
    const char *folder;
    r->host->ops->doing(r->host, "loading a checkpoint");
    enum dtp_status status = newest(&l, a, &folder);
    if (status == DTP_OK)
        status = load_folder(&l, a, folder);
    if (status != DTP_OK && l.damaged)
        suggest(&l, a, folder);
    *step = l.step;
    dtp_arena_destroy(l.a);
    dtp_arena_destroy(a);
    return status;
}
