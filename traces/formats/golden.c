/* golden.c: the scalars that Megatron's functional tests compare with. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "traces/formats/pull.h"
#include "traces/formats/scalars.h"
#include "traces/formats/logs.h"
#include "traces/catalog.h"

/* A number, or the words that stand for none ("nan" in quotes, or bare). */
static bool number_of(const struct dtp_text *t, double *out) {
    char text[64], *end;
    if (t->n == 0 || t->n >= sizeof text)
        return false;
    memcpy(text, t->at, t->n);
    text[t->n] = '\0';
    *out = strtod(text, &end);
    return end != text && *end == '\0';
}

static enum dtp_status take_values(struct dtp_pull *p, struct dtp_scalars *out, const char *tag,
                                   struct dtp_err *err) {
    struct dtp_text t;
    enum dtp_status status;
    DTP_TRY(dtp_pull_open(p, '{', err));
    while (dtp_pull_member(p, &t, &status, err)) {
        int64_t step;
        double v;
        if (!dtp_text_i64(&t, &step))
            return dtp_pull_fail(p, err, "found a step that is no whole number");
        DTP_TRY(dtp_pull_text(p, &t, err));
        if (!number_of(&t, &v))
            return dtp_pull_fail(p, err, "found a value that is no number");
        dtp_scalars_add(out, tag, step, v);
    }
    return status;
}

static enum dtp_status take_tag(struct dtp_pull *p, struct dtp_scalars *out, const char *tag,
                                bool *values, struct dtp_err *err) {
    struct dtp_text key;
    enum dtp_status status;
    DTP_TRY(dtp_pull_open(p, '{', err));
    while (dtp_pull_member(p, &key, &status, err)) {
        bool is_values = dtp_text_is(&key, "values");
        *values |= is_values;
        DTP_TRY(is_values ? take_values(p, out, tag, err) : dtp_pull_skip(p, err));
    }
    return status;
}

enum dtp_status dtp_golden_read(struct dtp_arena *a, struct dtp_source *source,
                                struct dtp_scalars *out, struct dtp_err *err) {
    struct dtp_pull p;
    struct dtp_text key;
    bool values = false;
    enum dtp_status status;
    char c;
    dtp_scalars_init(a, out);
    dtp_pull_init(&p, a, source);
    DTP_TRY(dtp_pull_open(&p, '{', err));
    while (dtp_pull_member(&p, &key, &status, err))
        DTP_TRY(take_tag(&p, out, dtp_arena_strndup(a, key.at, key.n), &values, err));
    DTP_TRY(status);
    DTP_TRY(dtp_pull_peek(&p, &c, err));
    if (c)
        return dtp_pull_fail(&p, err, "found text after the object");
    if (!values)
        return dtp_fail(err, DTP_EINPUT, "%s: no tag with values in it", dtp_source_name(source));
    return DTP_OK;
}

/* ---- the row of the format ---- */

static bool is_golden(const struct dtp_format_head *h) {
    return dtp_head_json(h) == '{' && dtp_head_has_key(h, 2, "start_step") &&
           (dtp_head_has_key(h, 2, "values") || dtp_head_has_key(h, 2, "end_step"));
}

static enum dtp_status read_item(struct dtp_arena *a, const struct dtp_visited *v,
                                 const struct dtp_format_options *o, void **content,
                                 struct dtp_err *err) {
    (void)o;
    struct dtp_log *log = *content = DTP_NEW(a, struct dtp_log, 1);
    log->dialect = DTP_LOG_MEGATRON;
    return dtp_golden_read(a, v->source, &log->scalars, err);
}

const struct dtp_format dtp_format_golden = {.name = "golden",
                                             .title = "Megatron golden values, JSON",
                                             .told = "keys start_step, values below a tag",
                                             .kind = DTP_KIND_LOG,
                                             .detect = is_golden,
                                             .read = read_item,
                                             .print = dtp_log_print,
                                             .json = dtp_log_json};
