#include <string.h>

#include "models/schedule.h"
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

static enum dtp_status details(struct dtp_cli *cli, const char *name, struct dtp_err *err) {
    enum { MOST = 64 };
    const struct own *own = cli->own;
    const char *names[MOST];
    size_t n = 0;
    for (; n < MOST && dtp_schedule_kinds[n].name; n++)
        names[n] = dtp_schedule_kinds[n].name;
    int kind = dtp_schedule_find(name);
    if (kind < 0)
        return dtp_unknown_name(err, DTP_EUSAGE, "schedule", name, names, n, NULL);
    const struct dtp_schedule_kind *k = &dtp_schedule_kinds[kind];
    int vpp = own->vpp > 0 ? own->vpp : k->chunked ? 2 : 1;
    struct dtp_schedule s;
    DTP_TRY(dtp_schedule_make(cli->a, kind, own->pp, vpp, own->microbatches, &s, err));
    FILE *f = cli->out.file;
    dtp_term_print(&cli->out, DTP_BOLD, "%s", k->name);
    fprintf(f, "  %s\n  source: %s\n", k->title, k->source ? k->source : "-");
    fprintf(f, "\n%d stages, %d virtual each, %d microbatches; chunk, kind, microbatch:\n", own->pp,
            vpp, own->microbatches);
    dtp_schedule_print(f, &s);
    return DTP_OK;
}

static enum dtp_status run(struct dtp_cli *cli, struct dtp_err *err) {
    const struct own *own = cli->own;
    if (cli->nargs == 1)
        return details(cli, cli->arg[0], err);
    int width = 0;
    for (int i = 0; dtp_schedule_kinds[i].name; i++)
        if ((int)strlen(dtp_schedule_kinds[i].name) > width)
            width = (int)strlen(dtp_schedule_kinds[i].name);
    for (int i = 0; dtp_schedule_kinds[i].name; i++) {
        if (own->listing.names)
            fprintf(cli->out.file, "%s\n", dtp_schedule_kinds[i].name);
        else
            dtp_listing_row(&cli->out, dtp_schedule_kinds[i].name, width,
                            dtp_schedule_kinds[i].title);
    }
    return DTP_OK;
}

const struct dtp_verb dtp_verb_schedules = {
    .name = "schedules",
    .summary = "the pipeline schedules, or the order of actions of one",
    .synopsis = "schedules [NAME [--pp N] [--vpp N] [--microbatches N]]",
    .description = "Lists the pipeline schedules, or prints for one the order of forward (F) and "
                   "backward (B, or I and W) actions of each rank.",
    .options = own_options,
    .own_size = sizeof(struct own),
    .defaults = defaults,
    .max_args = 1,
    .run = run};
