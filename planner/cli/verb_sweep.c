#include "planner/cli/verb_sweep.h"

#include <string.h>

#include "planner/advise.h"
#include "planner/cli/verbs.h"
#include "sim/base/text.h"
#include "sim/base/units.h"

enum { MOST_ITEMS = 64, MOST_ROWS = 512 };

struct own {
    const char *gpus, *clusters, *nic, *frameworks, *prices, *deadline;
    bool csv;
};

static const struct dtp_option own_options[] = {
    {"gpus", DTP_OPT_STRING, 'g', offsetof(struct own, gpus), .value = "LIST",
     .help = "numbers of GPUs: 64,96,128, or 64..1024, which doubles from 64 on"},
    {"cluster", DTP_OPT_STRING, 'c', offsetof(struct own, clusters), .value = "LIST",
     .aliases = "clusters gpu", .complete = DTP_COMPLETE_CLUSTERS,
     .help = "names or files with commas between them (default " DTP_DEFAULT_CLUSTER ")"},
    {"nic", DTP_OPT_STRING, 0, offsetof(struct own, nic), .value = "NxG",
     .help = "network cards of a node of each of them, such as 4x100"},
    {"framework", DTP_OPT_STRING, 'f', offsetof(struct own, frameworks), .value = "LIST",
     .aliases = "frameworks", .complete = DTP_COMPLETE_FRAMEWORKS,
     .help = "names or files with commas between them (default " DTP_DEFAULT_FRAMEWORK ")"},
    {"price", DTP_OPT_STRING, 0, offsetof(struct own, prices), .value = "LIST",
     .aliases = "prices price-per-gpu-hour",
     .help = "price of a GPU-hour: one for all, or one for each cluster in order"},
    {"deadline", DTP_OPT_STRING, 0, offsetof(struct own, deadline), .value = "TIME",
     .help = "name the cheapest that trains the tokens in this time, such as 30d; exit status 1 "
             "when none does"},
    {"csv", DTP_OPT_FLAG, 0, offsetof(struct own, csv), .help = "the table as CSV"},
    {0}};

struct lists {
    int gpus[MOST_ITEMS], ngpus;
    const char *cluster[MOST_ITEMS], *framework[MOST_ITEMS];
    int nclusters, nframeworks;
    double price[MOST_ITEMS];
    int nprices;
};

/* Cuts "a,b,c"; the items are copies. */
static enum dtp_status cut(struct dtp_arena *a, const char *text, const char *place,
                           const char **out, int *out_n, struct dtp_err *err) {
    *out_n = 0;
    for (const char *at = text;; at++) {
        size_t n = strcspn(at, ",");
        if (n == 0)
            return dtp_fail(err, DTP_EUSAGE, "%s: \"%s\" has an empty item", place, text);
        if (*out_n == MOST_ITEMS)
            return dtp_fail(err, DTP_EUSAGE, "%s: more than %d items", place, MOST_ITEMS);
        out[(*out_n)++] = dtp_arena_strndup(a, at, n);
        at += n;
        if (!*at)
            return DTP_OK;
    }
}

static enum dtp_status add_gpus(struct lists *l, const char *item, struct dtp_err *err) {
    char first[32];
    const char *dots = strstr(item, "..");
    size_t n = dots ? (size_t)(dots - item) : strlen(item);
    long low = 0, high = 0;
    snprintf(first, sizeof first, "%.*s", (int)n, item);
    DTP_TRY(dtp_parse_long(first, "--gpus", 1, DTP_MOST_GPUS, &low, err));
    high = low;
    if (dots)
        DTP_TRY(dtp_parse_long(dots + 2, "--gpus", 1, DTP_MOST_GPUS, &high, err));
    if (low > high)
        return dtp_fail(err, DTP_EUSAGE, "--gpus: the range %s is empty", item);
    for (long v = low;; v = 2 * v < high ? 2 * v : high) {
        if (l->ngpus == MOST_ITEMS)
            return dtp_fail(err, DTP_EUSAGE, "--gpus: more than %d numbers", MOST_ITEMS);
        l->gpus[l->ngpus++] = (int)v;
        if (v == high)
            return DTP_OK;
    }
}

static enum dtp_status add_prices(struct dtp_arena *a, const char *text, struct lists *l,
                                  struct dtp_err *err) {
    const char *item[MOST_ITEMS];
    DTP_TRY(cut(a, text, "--price", item, &l->nprices, err));
    if (l->nprices != 1 && l->nprices != l->nclusters)
        return dtp_fail(err, DTP_EUSAGE,
                        "--price: %d prices for %d cluster%s; one for all, or one each", l->nprices,
                        l->nclusters, l->nclusters == 1 ? "" : "s");
    for (int i = 0; i < l->nprices; i++) {
        DTP_TRY(dtp_parse_double(item[i] + (item[i][0] == '$'), "--price", &l->price[i], err));
        if (!(l->price[i] > 0))
            return dtp_fail(err, DTP_EUSAGE, "--price: found \"%s\", expected more than 0",
                            item[i]);
    }
    return DTP_OK;
}

static enum dtp_status read_lists(struct dtp_cli *cli, struct lists *l, struct dtp_err *err) {
    const struct own *own = cli->own;
    const char *item[MOST_ITEMS];
    int n = 0;
    *l = (struct lists){.cluster = {DTP_DEFAULT_CLUSTER}, .framework = {DTP_DEFAULT_FRAMEWORK}};
    l->nclusters = l->nframeworks = 1;
    if (!own->gpus)
        return dtp_fail(err, DTP_EUSAGE, "--gpus is missing, such as --gpus 64..1024");
    DTP_TRY(cut(cli->a, own->gpus, "--gpus", item, &n, err));
    for (int i = 0; i < n; i++)
        DTP_TRY(add_gpus(l, item[i], err));
    if (own->clusters)
        DTP_TRY(cut(cli->a, own->clusters, "--cluster", l->cluster, &l->nclusters, err));
    if (own->frameworks)
        DTP_TRY(cut(cli->a, own->frameworks, "--framework", l->framework, &l->nframeworks, err));
    if (l->ngpus * l->nclusters * l->nframeworks > MOST_ROWS)
        return dtp_fail(err, DTP_EUSAGE, "%d rows are asked for, at most %d can be",
                        l->ngpus * l->nclusters * l->nframeworks, MOST_ROWS);
    return own->prices ? add_prices(cli->a, own->prices, l, err) : DTP_OK;
}

/* False: the run would never end. */
static bool expenses(struct dtp_sweep_row *row, const struct dtp_report *r) {
    struct dtp_training t = dtp_report_training(r, row->best);
    row->days = t.days_with_failures;
    row->gpu_hours = row->days * DTP_S_PER_DAY / DTP_S_PER_HOUR * row->gpus;
    row->cost = row->gpu_hours * row->price;
    return t.days <= 0 || row->days > 0;
}

static const char *too_large(struct dtp_arena *a, const struct dtp_search *s,
                             const struct dtp_problem *p) {
    char least[32], limit[32];
    return dtp_arena_printf(
        a, "does not fit: the leanest plan needs %s, the limit is %s",
        dtp_fmt_bytes_gib((double)s->leanest->device_bytes, least, sizeof least),
        dtp_fmt_bytes_gib((double)p->memory_limit_bytes, limit, sizeof limit));
}

/* The best plan of a row. That nothing fits, or that the hardware lacks something, is an answer; a name that
 * is not known is an error. */
static enum dtp_status fill(struct dtp_cli *cli, struct dtp_sweep_row *row, struct dtp_sweep *s,
                            struct dtp_err *err) {
    struct dtp_ask ask = cli->args.ask;
    struct dtp_setup *setup = DTP_NEW(cli->a, struct dtp_setup, 1);
    struct dtp_search *search = DTP_NEW(cli->a, struct dtp_search, 1);
    struct dtp_limits limits;
    struct dtp_err no = {.status = DTP_OK};
    ask.gpus = row->gpus;
    ask.cluster = row->cluster;
    ask.framework = row->framework;
    ask.nic = ((const struct own *)cli->own)->nic;
    enum dtp_status status = dtp_setup_init(cli->a, &ask, setup, &no);
    if (status == DTP_ENO || status == DTP_EUNSUPPORTED) {
        row->reason = dtp_arena_strdup(cli->a, no.msg);
        return DTP_OK;
    }
    if (status != DTP_OK)
        return dtp_fail(err, status, "%s", no.msg);
    row->setup = setup;
    s->tokens = cli->args.tokens > 0 ? cli->args.tokens : setup->model.train_tokens;
    if (s->deadline_s > 0 && s->tokens <= 0)
        return dtp_fail(err, DTP_EUSAGE, "--deadline: how many tokens? say --tokens 1T");
    DTP_TRY(dtp_cli_limits(cli, &setup->problem, &limits, err));
    struct dtp_search_options options = {.jobs = cli->args.jobs,
                                         .layouts = -1,
                                         .no_fold = cli->args.no_fold,
                                         .detail = (enum dtp_detail)cli->args.detail};
    DTP_TRY(dtp_search(cli->a, &setup->problem, &limits, &options, search, err));
    struct dtp_report report = {.setup = setup,
                                .search = search,
                                .limits = &limits,
                                .tokens = s->tokens,
                                .failures = s->failures};
    if (search->nresults == 0) {
        row->reason = search->leanest ? too_large(cli->a, search, &setup->problem)
                                      : dtp_advise(cli->a, &report);
        return DTP_OK;
    }
    row->best = &search->result[0];
    if (!expenses(row, &report)) {
        row->best = NULL;
        row->reason = "makes no progress between failures";
    }
    return DTP_OK;
}

/* Days, or without tokens the seconds of a step; all rows have the same tokens a step. */
static double duration(const struct dtp_sweep_row *row) {
    return row->days > 0 ? row->days : row->best->step_s;
}

static double expense(const struct dtp_sweep_row *row) {
    return duration(row) * row->gpus * (row->price > 0 ? row->price : 1);
}

static bool beats(const struct dtp_sweep_row *x, const struct dtp_sweep_row *y) {
    double cx = expense(x), cy = expense(y), tx = duration(x), ty = duration(y);
    return tx <= ty && cx <= cy && (tx < ty || cx < cy);
}

static void rank(struct dtp_sweep *s) {
    s->fastest = s->cheapest = s->within = -1;
    for (int i = 0; i < s->n; i++) {
        struct dtp_sweep_row *row = &s->row[i];
        if (!row->best)
            continue;
        row->front = true;
        for (int k = 0; k < s->n; k++)
            row->front &= !(s->row[k].best && beats(&s->row[k], row));
        if (s->fastest < 0 || duration(row) < duration(&s->row[s->fastest]))
            s->fastest = i;
        if (s->cheapest < 0 || expense(row) < expense(&s->row[s->cheapest]))
            s->cheapest = i;
        bool in_time = s->deadline_s > 0 && row->days * DTP_S_PER_DAY <= s->deadline_s;
        if (in_time && (s->within < 0 || expense(row) < expense(&s->row[s->within])))
            s->within = i;
    }
}

static double per_gpu(const struct dtp_sweep_row *row) {
    return row->best->tokens_per_s / row->gpus;
}

/* All rows, those of one cluster and framework one after the other. */
static enum dtp_status fill_all(struct dtp_cli *cli, const struct lists *l, struct dtp_sweep *s,
                                struct dtp_err *err) {
    int total = l->nclusters * l->nframeworks * l->ngpus;
    s->row = DTP_NEW(cli->a, struct dtp_sweep_row, (size_t)total);
    for (int i = 0; i < total; i++) {
        int group = i / l->ngpus, first = group * l->ngpus, c = group / l->nframeworks;
        struct dtp_sweep_row *row = &s->row[s->n++];
        *row =
            (struct dtp_sweep_row){.cluster = l->cluster[c],
                                   .framework = l->framework[group % l->nframeworks],
                                   .gpus = l->gpus[i % l->ngpus],
                                   .price = l->nprices > 0 ? l->price[l->nprices > 1 ? c : 0] : 0};
        if (cli->progress)
            dtp_cli_progress("searching %d of %d", i + 1, total);
        DTP_TRY(fill(cli, row, s, err));
        while (first < i && !s->row[first].best)
            first++;
        if (row->best)
            row->scaling = per_gpu(row) / per_gpu(&s->row[first]);
    }
    if (cli->progress)
        dtp_cli_progress(NULL);
    rank(s);
    return DTP_OK;
}

static enum dtp_status run(struct dtp_cli *cli, struct dtp_err *err) {
    const struct own *own = cli->own;
    struct lists l;
    struct dtp_sweep s = {0};
    if (own->csv && cli->args.json)
        return dtp_fail(err, DTP_EUSAGE, "--csv and --json exclude each other");
    DTP_TRY(read_lists(cli, &l, err));
    s.priced = l.nprices > 0;
    s.model = cli->args.ask.model ? cli->args.ask.model : "-";
    if (own->deadline) {
        DTP_TRY(dtp_parse_time(own->deadline, "--deadline", &s.deadline_s, err));
        if (!(s.deadline_s > 0))
            return dtp_fail(err, DTP_EUSAGE, "--deadline: found \"%s\", expected more than 0",
                            own->deadline);
    }
    DTP_TRY(dtp_cli_failures(cli, true, &s.failures, err));
    DTP_TRY(dtp_ask_read(cli->a, &cli->args.ask, err));
    DTP_TRY(fill_all(cli, &l, &s, err));
    if (own->csv)
        dtp_sweep_csv(cli->out.file, &s);
    else if (cli->args.json)
        dtp_form_write(cli->out.file, 2, &dtp_sweep_form, &s);
    else
        dtp_sweep_text(cli, &s);
    if (s.fastest < 0)
        return dtp_fail(err, DTP_ENO, "no row has a plan that fits");
    if (s.deadline_s > 0 && s.within < 0) {
        char text[2][32];
        const struct dtp_sweep_row *row = &s.row[s.fastest];
        return dtp_fail(
            err, DTP_ENO, "none meets the deadline of %s; the fastest, %d GPUs of %s, takes %s",
            dtp_fmt_time(s.deadline_s, text[0], sizeof text[0]), row->gpus, row->cluster,
            dtp_fmt_time(row->days * DTP_S_PER_DAY, text[1], sizeof text[1]));
    }
    return DTP_OK;
}

static const struct dtp_form *const documents[] = {&dtp_sweep_form, NULL};

const struct dtp_verb dtp_verb_sweep = {
    .name = "sweep",
    .summary = "the best plan on each of several numbers of GPUs and clusters, with days and cost",
    .synopsis = "sweep --model M --gpus LIST [--cluster LIST] [--framework LIST] [--price LIST] "
                "[--deadline TIME] [limits] [--json | --csv]",
    .description =
        "Searches each combination as `dtplan plan` does and prints one line for each: layout, "
        "step "
        "time, MFU, how throughput scales, days and GPU-hours for the tokens (with the "
        "interruptions of a long run, or --no-failures), and with --price the "
        "cost. Rows that no other beats in both time and cost are marked. Batch and limits on the "
        "layout are the same in all rows.",
    .groups = DTP_GROUP_TRAINING | DTP_GROUP_LAYOUT | DTP_GROUP_OUTPUT | DTP_GROUP_SEARCH |
              DTP_GROUP_SIMULATE | DTP_GROUP_FAILURES,
    .documents = documents,
    .options = own_options,
    .own_size = sizeof(struct own),
    .run = run};
