/* realpath is in POSIX, but glibc shows it only with the XSI extension */
#define _XOPEN_SOURCE 700
#include "sim/base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum dtp_status dtp_file_errno(void) {
    return errno == ENOMEM ? DTP_ENOMEM : DTP_EINPUT;
}

static enum dtp_status fail_errno(struct dtp_err *err, const char *path, const char *what) {
    return dtp_fail(err, dtp_file_errno(), "%s: cannot %s: %s", path, what, strerror(errno));
}

/* ---- reading ---- */

static bool is_beyond(size_t bytes, size_t limit_bytes, struct dtp_err *err) {
    if (limit_bytes == 0 || bytes <= limit_bytes)
        return false;
    (void)dtp_fail(err, DTP_EINPUT, "larger than the limit of %zu bytes", limit_bytes);
    return true;
}

/* A file is read in pieces and joined: a string that doubles leaves its old blocks behind, of an endless stream four
 * times the limit. */
struct piece {
    struct piece *next;
    size_t n;
    char at[1 << 16];
};

static enum dtp_status read_pieces(struct dtp_arena *scratch, FILE *f, size_t limit_bytes,
                                   struct piece **out, size_t *out_n, struct dtp_err *err) {
    struct stat st;
    *out_n = 0;
    if (fstat(fileno(f), &st) == 0 && S_ISREG(st.st_mode) &&
        is_beyond((size_t)st.st_size, limit_bytes, err))
        return DTP_EINPUT;
    for (struct piece **end = out;; end = &(*end)->next) {
        struct piece *p = *end = DTP_NEW(scratch, struct piece, 1);
        p->n = fread(p->at, 1, sizeof p->at, f);
        *out_n += p->n;
        if (is_beyond(*out_n, limit_bytes, err))
            return DTP_EINPUT;
        if (ferror(f))
            return dtp_fail(err, dtp_file_errno(), "cannot read: %s", strerror(errno));
        if (p->n < sizeof p->at)
            return DTP_OK;
    }
}

static char *join(struct dtp_arena *a, const struct piece *p, size_t n) {
    char *text = dtp_arena_alloc(a, 1, n + 1), *to = text;
    for (; p; to += p->n, p = p->next)
        memcpy(to, p->at, p->n);
    return text;
}

enum dtp_status dtp_file_read(struct dtp_arena *a, const char *path, size_t limit_bytes,
                              const char **out, size_t *out_length_bytes, struct dtp_err *err) {
    bool standard = strcmp(path, "-") == 0;
    FILE *f = standard ? stdin : fopen(path, "rb");
    if (!f)
        return fail_errno(err, path, "open");
    struct dtp_arena *scratch = dtp_arena_create("reading a file");
    struct piece *first;
    enum dtp_status status = read_pieces(scratch, f, limit_bytes, &first, out_length_bytes, err);
    if (!standard)
        fclose(f);
    if (status == DTP_OK)
        *out = join(a, first, *out_length_bytes);
    else
        dtp_err_prefix(err, standard ? "<stdin>" : path);
    dtp_arena_destroy(scratch);
    return status;
}

/* ---- writing ---- */

/* Temporaries that are being written, for the handler of signals: it may take no lock and no memory, and a fork
 * has those of its parent too. What finds no place stays behind if it is interrupted. */
static struct unfinished {
    atomic_int state;
    pid_t process;
    char path[PATH_MAX];
} unfinished[16];
enum { NUNFINISHED = sizeof unfinished / sizeof *unfinished, FREE = 0, CLAIMED, IN_USE };

static void note_unfinished(const char *path) {
    size_t n = strlen(path) + 1;
    for (int i = 0; i < NUNFINISHED && n <= PATH_MAX; i++) {
        int state = FREE;
        if (!atomic_compare_exchange_strong(&unfinished[i].state, &state, CLAIMED))
            continue;
        unfinished[i].process = getpid();
        memcpy(unfinished[i].path, path, n);
        atomic_store(&unfinished[i].state, IN_USE);
        return;
    }
}

static void forget_unfinished(const char *path) {
    for (int i = 0; i < NUNFINISHED; i++)
        if (atomic_load(&unfinished[i].state) == IN_USE && strcmp(unfinished[i].path, path) == 0)
            atomic_store(&unfinished[i].state, FREE);
}

static void remove_unfinished(int number) {
    for (int i = 0; i < NUNFINISHED; i++)
        if (atomic_load(&unfinished[i].state) == IN_USE && unfinished[i].process == getpid())
            (void)unlink(unfinished[i].path);
    (void)raise(number); /* by default now: the parent sees what ended us */
}

void dtp_file_out_guard(void) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction ours = {.sa_handler = remove_unfinished, .sa_flags = (int)SA_RESETHAND}, was;
    (void)sigemptyset(&ours.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (sigaction(numbers[i], NULL, &was) == 0 &&
            was.sa_handler == SIG_DFL) /* nohup: ignored */
            (void)sigaction(numbers[i], &ours, NULL);
}

/* A pipe or a device cannot be replaced by a rename: it is written as it stands. */
static bool is_special(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode);
}

static enum dtp_status open_beside(struct dtp_arena *a, struct dtp_file_out *out,
                                   struct dtp_err *err) {
    for (int attempt = 0; attempt < 100; attempt++) {
        out->temporary = dtp_arena_printf(a, "%s.%ld.%d.tmp", out->final, (long)getpid(), attempt);
        int fd = open(out->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno == EEXIST)
            continue;
        if (fd < 0)
            break;
        out->f = fdopen(fd, "wb");
        if (out->f) {
            note_unfinished(out->temporary);
            return DTP_OK;
        }
        close(fd);
        unlink(out->temporary);
        break;
    }
    out->temporary = NULL;
    return fail_errno(err, out->final, "create");
}

enum dtp_status dtp_file_out_open(struct dtp_arena *a, const char *path, struct dtp_file_out *out,
                                  struct dtp_err *err) {
    *out = (struct dtp_file_out){.final = dtp_arena_strdup(a, path)};
    if (strcmp(path, "-") == 0) {
        out->f = stdout;
        return DTP_OK;
    }
    if (is_special(path)) {
        out->f = fopen(path, "wb");
        return out->f ? DTP_OK : fail_errno(err, path, "open");
    }
    char *target = realpath(path, NULL); /* a symlink stays, what it points to is replaced */
    if (!target && errno == ENOMEM)
        return fail_errno(err, path, "open");
    if (target)
        out->final = dtp_arena_strdup(a, target);
    free(target);
    return open_beside(a, out, err);
}

enum dtp_status dtp_file_out_commit(struct dtp_file_out *out, struct dtp_err *err) {
    FILE *f = out->f;
    bool ok = fflush(f) == 0 && !ferror(f);
    if (ok && out->temporary)
        ok = fsync(fileno(f)) == 0;
    int saved = errno;
    if (f != stdout && fclose(f) != 0 && ok) {
        ok = false;
        saved = errno;
    }
    out->f = NULL;
    if (ok && out->temporary && rename(out->temporary, out->final) != 0) {
        ok = false;
        saved = errno;
    }
    if (!ok && out->temporary)
        unlink(out->temporary);
    if (out->temporary)
        forget_unfinished(out->temporary);
    if (ok)
        return DTP_OK;
    errno = saved;
    return fail_errno(err, strcmp(out->final, "-") == 0 ? "<stdout>" : out->final, "write");
}

void dtp_file_out_abort(struct dtp_file_out *out) {
    if (out->f && out->f != stdout)
        fclose(out->f);
    if (out->temporary) {
        unlink(out->temporary);
        forget_unfinished(out->temporary);
    }
    out->f = NULL;
    out->temporary = NULL;
}

enum dtp_status dtp_file_write(struct dtp_arena *a, const char *path, dtp_file_write_fn *write,
                               const void *what, struct dtp_err *err) {
    struct dtp_file_out out;
    DTP_TRY(dtp_file_out_open(a, path, &out, err));
    write(out.f, what);
    return dtp_file_out_commit(&out, err);
}

/* ---- data files ---- */

static bool is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

const char *dtp_program_folder(struct dtp_arena *a) {
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0)
        return NULL;
    path[n] = '\0';
    char *slash = strrchr(path, '/');
    if (!slash)
        return NULL;
    return dtp_arena_strndup(a, path, (size_t)(slash - path));
}

const char *dtp_data_path(struct dtp_arena *a, const char *relative) {
    const char *root = getenv("DTPLAN_DATA");
    if (root && *root)
        return dtp_arena_printf(a, "%s/%s", root, relative);
    const char *bin = dtp_program_folder(a);
    const char *installed = bin ? dtp_arena_printf(a, "%s/../share/dtplan", bin) : NULL;
    if (installed && is_folder(installed))
        return dtp_arena_printf(a, "%s/%s", installed, relative);
    return dtp_arena_printf(a, "%s/%s", DTP_SOURCE_DIR, relative);
}

static int compare_names(const void *x, const void *y) {
    const char *const *a = x, *const *b = y;
    return strcmp(*a, *b);
}

static bool is_wanted(struct dtp_arena *a, const char *path, const char *name, const char *suffix) {
    struct stat st;
    return name[0] != '.' && dtp_ends_with(name, suffix) &&
           stat(dtp_arena_printf(a, "%s/%s", path, name), &st) == 0 && S_ISREG(st.st_mode);
}

enum dtp_status dtp_dir_list(struct dtp_arena *a, const char *path, const char *suffix,
                             const char *const **out_names, size_t *out_n, struct dtp_err *err) {
    DIR *dir = opendir(path);
    if (!dir)
        return fail_errno(err, path, "open the folder");
    const char **names = NULL;
    size_t n = 0, capacity = 0;
    for (const struct dirent *entry; (entry = readdir(dir));) {
        if (!is_wanted(a, path, entry->d_name, suffix))
            continue;
        if (n + 1 >= capacity) { /* a NULL ends the list */
            size_t more = capacity ? 2 * capacity : 32;
            names = dtp_arena_grow(a, names, sizeof *names, capacity, more);
            capacity = more;
        }
        names[n++] = dtp_arena_strndup(a, entry->d_name, strlen(entry->d_name) - strlen(suffix));
    }
    closedir(dir);
    if (n > 0)
        qsort(names, n, sizeof *names, compare_names);
    *out_names = names;
    *out_n = n;
    return DTP_OK;
}
