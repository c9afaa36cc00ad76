#include "traces/formats/visit.h"

#include <string.h>
#include <sys/stat.h>

#include "sim/base/text.h"

struct visit {
    struct dtp_arena *a;
    dtp_visit_fn *fn;
    void *ctx;
    const char *given;
};

/* Returns true for files that packers of other systems leave between the members. */
static bool is_litter(const char *name) {
    return strstr(name, "__MACOSX") || strstr(name, "/._") || strstr(name, ":._");
}

static enum dtp_status visit_archive(struct visit *v, struct dtp_source *tar, struct dtp_err *err) {
    for (;;) {
        struct dtp_source *member;
        DTP_TRY(dtp_source_tar_next(v->a, tar, &member, err));
        if (!member)
            return DTP_OK;
        enum dtp_status status = DTP_OK;
        if (!is_litter(dtp_source_name(member)))
            status = v->fn(v->ctx, &(struct dtp_visited){.source = member, .given = v->given}, err);
        dtp_source_close(member);
        DTP_TRY(status);
    }
}

static enum dtp_status visit_file(struct visit *v, const char *path, bool named,
                                  struct dtp_err *err) {
    struct dtp_source *s;
    DTP_TRY(dtp_source_open(v->a, path, &s, err));
    struct dtp_visited one = {.source = s,
                              .path = dtp_source_is_packed(s) ? NULL : path,
                              .named = named,
                              .given = v->given};
    enum dtp_status status =
        dtp_source_is_tar(s) ? visit_archive(v, s, err) : v->fn(v->ctx, &one, err);
    dtp_source_close(s);
    return status;
}

enum dtp_status dtp_visit(struct dtp_arena *a, const char *path, dtp_visit_fn *fn, void *ctx,
                          struct dtp_err *err) {
    struct visit v = {a, fn, ctx, path};
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return visit_file(&v, path, true, err);
    const char *const *name;
    size_t n;
    DTP_TRY(dtp_dir_list(a, path, "", &name, &n, err));
    if (n == 0)
        return dtp_fail(err, DTP_EINPUT, "%s: no file in this folder", path);
    for (size_t i = 0; i < n; i++)
        if (name[i][0] != '.')
            DTP_TRY(visit_file(&v, dtp_arena_printf(a, "%s/%s", path, name[i]), false, err));
    return DTP_OK;
}
