#include "planner/cli/listing.h"

#include <string.h>

#include "sim/base/text.h"

const struct dtp_option dtp_listing_options[] = {
    {"names", DTP_OPT_FLAG, 0, offsetof(struct dtp_listing, names), .help = "names only"}, {0}};

static int width_of(const char *const *names, size_t n) {
    size_t widest = 0;
    for (size_t i = 0; i < n; i++)
        if (strlen(names[i]) > widest)
            widest = strlen(names[i]);
    return (int)widest;
}

void dtp_listing_row(const struct dtp_term *t, const char *name, int name_width,
                     const char *title) {
    dtp_term_print(t, DTP_BOLD, "%-*s", name_width, name);
    int room = t->width - name_width - 2;
    if (t->file && (int)strlen(title) > room && room > 3)
        fprintf(t->file, "  %.*s...\n", room - 3, title);
    else
        fprintf(t->file, "  %s\n", title);
}

void dtp_listing_json(struct dtp_cli *cli, const struct dtp_json *file) {
    struct dtp_json_out w;
    dtp_json_begin(&w, cli->out.file, 2);
    dtp_json_put_json(&w, file);
}

const char *dtp_listing_value(const struct dtp_field *field, const void *in, char *buf,
                              size_t size) {
    const void *at = (const char *)in + field->offset;
    const char *text;
    buf[0] = '\0';
    switch (field->kind) {
    case DTP_FIELD_BOOL:
        snprintf(buf, size, "%s", *(const bool *)at ? "true" : "false");
        break;
    case DTP_FIELD_INT:
        snprintf(buf, size, "%d", *(const int *)at);
        break;
    case DTP_FIELD_U64:
        snprintf(buf, size, "%llu", (unsigned long long)*(const uint64_t *)at);
        break;
    case DTP_FIELD_DOUBLE:
        dtp_double_text(*(const double *)at, buf, size);
        break;
    case DTP_FIELD_STRING:
        text = *(const char *const *)at;
        snprintf(buf, size, "%s", text ? text : "-");
        break;
    case DTP_FIELD_ENUM:
        snprintf(buf, size, "%s", field->names[*(const int *)at]);
        break;
    case DTP_FIELD_SET:
        dtp_set_text(field->names, *(const int *)at, buf, size);
        break;
    case DTP_FIELD_INTS:
    case DTP_FIELD_DOUBLES:
    case DTP_FIELD_OBJECT:
    case DTP_FIELD_JSON:
    case DTP_FIELD_PUT:
        break;
    }
    return buf;
}

static const struct dtp_field names_fields[] = {{"[]", DTP_FIELD_STRING, 0, .help = "a name"}, {0}};
static const struct dtp_form names_form = {
    "models, clusters, frameworks, schedules, collectives",
    "The names. With a NAME the entry itself: MODEL, CLUSTER, FRAMEWORK, or one of the next two.",
    names_fields};
const struct dtp_form *const dtp_names_documents[] = {&names_form, NULL};

enum dtp_status dtp_listing_run(struct dtp_cli *cli, const struct dtp_listing_verb *verb,
                                struct dtp_err *err) {
    const struct dtp_listing *own = cli->own;
    if (cli->nargs == 1)
        return verb->details(cli, cli->arg[0], err);
    const char *const *names;
    size_t n;
    DTP_TRY(verb->list(cli->a, &names, &n, err));
    if (cli->args.json) {
        struct dtp_json_out w;
        dtp_json_begin(&w, cli->out.file, 2);
        dtp_json_array(&w);
        for (size_t i = 0; i < n; i++)
            dtp_json_put_string(&w, names[i]);
        dtp_json_end(&w);
        return DTP_OK;
    }
    int width = width_of(names, n);
    for (size_t i = 0; i < n; i++) {
        if (own->names)
            fprintf(cli->out.file, "%s\n", names[i]);
        else
            DTP_TRY(verb->row(cli, names[i], width, err));
    }
    return DTP_OK;
}
