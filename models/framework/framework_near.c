/* Other frameworks that have what one does not. */
#include <stdlib.h>

#include "models/framework/framework_private.h"
#include "sim/base/text.h"

enum { MOST_NAMED = 3 };

struct other {
    struct dtp_framework framework;
    int distance;
    size_t number; /* among equals the order of the list */
};

static const void *at(const void *of, const struct dtp_field *f) {
    return (const char *)of + f->offset;
}

/* How many switches, names and numbers of the table are not the same. */
static int distance(const struct dtp_field *fields, const void *x, const void *y) {
    int n = 0;
    for (const struct dtp_field *f = fields; f->name; f++) {
        const void *p = at(x, f), *q = at(y, f);
        if (f->kind == DTP_FIELD_OBJECT)
            n += distance(f->fields, p, q);
        else if (f->kind == DTP_FIELD_BOOL)
            n += *(const bool *)p != *(const bool *)q;
        else if (f->kind == DTP_FIELD_INT || f->kind == DTP_FIELD_ENUM)
            n += *(const int *)p != *(const int *)q;
        else if (f->kind == DTP_FIELD_DOUBLE)
            n += *(const double *)p != *(const double *)q;
    }
    return n;
}

static int compare(const void *x, const void *y) {
    const struct other *p = x, *q = y;
    if (p->distance != q->distance)
        return p->distance < q->distance ? -1 : 1;
    return p->number < q->number ? -1 : p->number > q->number;
}

const char *const *dtp_frameworks_that(struct dtp_arena *a, const struct dtp_framework *from,
                                       dtp_framework_fn *holds, const void *context) {
    const char *const *names;
    const char **out = DTP_NEW(a, const char *, MOST_NAMED + 1);
    size_t n, nothers = 0;
    if (dtp_framework_list(a, &names, &n, NULL) != DTP_OK)
        return out;
    struct other *other = DTP_NEW(a, struct other, n);
    for (size_t i = 0; i < n; i++) {
        struct other *o = &other[nothers];
        if (dtp_framework_load(a, names[i], &o->framework, NULL) != DTP_OK ||
            o->framework.kernels.native)
            continue;
        o->number = i;
        o->distance = distance(dtp_framework_fields, from, &o->framework);
        nothers++;
    }
    qsort(other, nothers, sizeof *other, compare);
    int named = 0;
    for (size_t i = 0; i < nothers && named < MOST_NAMED; i++)
        if (holds(&other[i].framework, context))
            out[named++] = other[i].framework.name;
    return out;
}

const char *dtp_frameworks_text(struct dtp_arena *a, const struct dtp_framework *from,
                                dtp_framework_fn *holds, const void *context) {
    struct dtp_str s = {.a = a};
    for (const char *const *name = dtp_frameworks_that(a, from, holds, context); *name; name++)
        dtp_str_printf(&s, "%s%s", s.n > 0 ? ", " : "", *name);
    return s.at;
}
