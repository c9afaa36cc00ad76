#include <stddef.h>

#include "models/schedule/schedule.h"
#include "planner/cli/listing.h"
#include "planner/cli/verbs.h"
#include "sim/base/text.h"

struct own {
    struct dtp_listing listing;
    int pp, vpp, microbatches;
};

static const struct dtp_option own_options[] = {
    {"names", DTP_OPT_FLAG, 0, offsetof(struct own, listing.names), .help = "names only"},
    {"pp", DTP_OPT_INT, 0, offsetof(struct own, pp), .value = "N", .min = 1, .max = 64,
     .help = "pipeline stages of the example (default 4)"},
    {"vpp", DTP_OPT_INT, 0, offsetof(struct own, vpp), .value = "N", .min = 1, .max = 64,
     .help = "virtual stages of the example (default: 2 where the schedule has chunks)"},
    {"microbatches", DTP_OPT_INT, 0, offsetof(struct own, microbatches), .value = "N", .min = 1,
     .max = 4096, .help = "microbatches of the example (default 8)"},
    {0}};

static void defaults(void *own) {
    struct own *o = own;
    o->pp = 4;
    o->microbatches = 8;
}

/* Writes for each rank its actions, as dtp_schedule_print() does. */
static void put_ranks(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    const struct dtp_schedule *s = at;
    char action[32];
    (void)f;
    dtp_json_array(w);
    for (int rank = 0; rank < s->pp; rank++) {
        dtp_json_array(w);
        for (uint32_t i = s->begin[rank]; i < s->begin[rank + 1]; i++) {
            snprintf(action, sizeof action, "%u%s%u", (unsigned)s->action[i].chunk,
                     dtp_action_names[s->action[i].kind], (unsigned)s->action[i].microbatch);
            dtp_json_put_string(w, action);
        }
        dtp_json_end(w);
    }
    dtp_json_end(w);
}

struct document {
    struct dtp_schedule schedule;
    const char *name, *title, *source;
};

/* clang-format off */
#define AT(member) offsetof(struct document, member)
static const struct dtp_field document_fields[] = {
    {"name", DTP_FIELD_STRING, AT(name), .help = "name of the schedule"},
    {"title", DTP_FIELD_STRING, AT(title), .help = "one line about it"},
    {"source", DTP_FIELD_STRING, AT(source), .unset = DTP_UNSET_NULL, .help = "the paper; null: none"},
    {"pp", DTP_FIELD_INT, AT(schedule.pp), .help = "pipeline stages of the example"},
    {"vpp", DTP_FIELD_INT, AT(schedule.vpp), .help = "virtual stages of each"},
    {"microbatches", DTP_FIELD_INT, AT(schedule.m), .help = "microbatches of the example"},
    {"ranks", DTP_FIELD_PUT, AT(schedule), .put = put_ranks, .inner = "[][]",
     .help = "for each stage its actions in their order: chunk, kind, microbatch, such as 0F3"},
    {0}};
/* clang-format on */
static const struct dtp_form document = {"schedules NAME", "The order of actions.",
                                         document_fields};
static const struct dtp_form *const documents[] = {&document, NULL};

static enum dtp_status details(struct dtp_cli *cli, const char *name, struct dtp_err *err) {
    const struct own *own = cli->own;
    int kind = dtp_schedule_find(name);
    if (kind < 0)
        return dtp_unknown_name(err, DTP_EUSAGE, "schedule", name, dtp_schedule_names,
                                DTP_NSCHEDULES, NULL);
    const struct dtp_schedule_kind *k = &dtp_schedule_kinds[kind];
    int vpp = own->vpp > 0 ? own->vpp : k->chunked ? 2 : 1;
    struct dtp_schedule s;
    DTP_TRY(dtp_schedule_make(cli->a, kind, own->pp, vpp, own->microbatches, &s, err));
    FILE *f = cli->out.file;
    if (cli->args.json) {
        const struct document d = {s, k->name, k->title, k->source};
        dtp_form_write(f, 2, &document, &d);
        return DTP_OK;
    }
    dtp_term_print(&cli->out, DTP_BOLD, "%s", k->name);
    fprintf(f, "  %s\n  source: %s\n", k->title, k->source ? k->source : "-");
    fprintf(f, "\n%d stages, %d virtual each, %d microbatches; chunk, kind, microbatch:\n", own->pp,
            vpp, own->microbatches);
    dtp_schedule_print(f, &s);
    return DTP_OK;
}

static enum dtp_status list(struct dtp_arena *a, const char *const **names, size_t *n,
                            struct dtp_err *err) {
    (void)a;
    (void)err;
    *names = dtp_schedule_names;
    *n = DTP_NSCHEDULES;
    return DTP_OK;
}

static enum dtp_status row(struct dtp_cli *cli, const char *name, int width, struct dtp_err *err) {
    (void)err;
    dtp_listing_row(&cli->out, name, width, dtp_schedule_kinds[dtp_schedule_find(name)].title);
    return DTP_OK;
}

static enum dtp_status run(struct dtp_cli *cli, struct dtp_err *err) {
    static const struct dtp_listing_verb verb = {list, row, details};
    return dtp_listing_run(cli, &verb, err);
}

const struct dtp_verb dtp_verb_schedules = {
    .name = "schedules",
    .summary = "the pipeline schedules, or the order of actions of one",
    .synopsis = "schedules [NAME [--pp N] [--vpp N] [--microbatches N]]",
    .description = "Lists the pipeline schedules, or prints for one the order of forward (F) and "
                   "backward (B, or I and W) actions of each rank.",
    .groups = DTP_GROUP_OUTPUT,
    .documents = documents,
    .options = own_options,
    .own_size = sizeof(struct own),
    .defaults = defaults,
    .max_args = 1,
    .run = run};
