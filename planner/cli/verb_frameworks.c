#include "planner/cli/listing.h"
#include "planner/cli/verbs.h"
#include "sim/base/text.h"

/* One line a field with its meaning; nested objects as "memory.weight_bytes". */
static void print_fields(const struct dtp_term *t, const struct dtp_field *fields, const void *in,
                         const char *prefix) {
    char value[128], name[96];
    for (const struct dtp_field *f = fields; f->name; f++) {
        snprintf(name, sizeof name, "%s%s", prefix, f->name);
        if (f->kind == DTP_FIELD_OBJECT) {
            snprintf(name, sizeof name, "%s%s.", prefix, f->name);
            print_fields(t, f->fields, (const char *)in + f->offset, name);
            continue;
        }
        dtp_listing_value(f, in, value, sizeof value);
        if (!value[0])
            continue;
        fprintf(t->file, "  %-32s ", name);
        dtp_term_print(t, DTP_BOLD, "%s", value);
        putc('\n', t->file);
        if (f->help)
            dtp_term_print(t, DTP_DIM, "      %s\n", f->help);
    }
}

static void print_names(FILE *f, const char *what, const char *const *names) {
    if (!names || !names[0])
        return;
    fprintf(f, "  %-32s", what);
    for (int i = 0; names[i]; i++)
        fprintf(f, "%s%s", i ? ", " : " ", names[i]);
    putc('\n', f);
}

static enum dtp_status details(struct dtp_cli *cli, const char *name, struct dtp_err *err) {
    struct dtp_framework fw;
    const struct dtp_json *file;
    DTP_TRY(dtp_framework_file(cli->a, name, &fw, &file, err));
    if (cli->args.json) {
        dtp_listing_json(cli, file);
        return DTP_OK;
    }
    FILE *f = cli->out.file;
    dtp_term_print(&cli->out, DTP_BOLD, "%s", fw.name);
    fprintf(f, "  %s\n", fw.title ? fw.title : "");
    print_names(f, "aliases", fw.aliases);
    print_names(f, "schedules", fw.can.schedules);
    print_names(f, "fitted", fw.fitted);
    print_fields(&cli->out, dtp_framework_fields, &fw, "");
    return DTP_OK;
}

static enum dtp_status row(struct dtp_cli *cli, const char *name, int width, struct dtp_err *err) {
    struct dtp_framework fw;
    DTP_TRY(dtp_framework_load(cli->a, name, &fw, err));
    dtp_listing_row(&cli->out, name, width, fw.title ? fw.title : "");
    return DTP_OK;
}

static enum dtp_status run(struct dtp_cli *cli, struct dtp_err *err) {
    static const struct dtp_listing_verb verb = {dtp_framework_list, row, details};
    return dtp_listing_run(cli, &verb, err);
}

const struct dtp_verb dtp_verb_frameworks = {
    .name = "frameworks",
    .summary = "the software stacks that are known, or one in detail",
    .synopsis = "frameworks [NAME|FILE]",
    .description = "Lists the training frameworks, or shows one with every field and its meaning; "
                   "with --json its file is printed, or the list of names.",
    .groups = DTP_GROUP_OUTPUT,
    .options = dtp_listing_options,
    .own_size = sizeof(struct dtp_listing),
    .max_args = 1,
    .run = run};
