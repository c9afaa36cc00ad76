/* sweep: one model on several numbers of GPUs, clusters and frameworks: the best plan of each, and what it
 * costs.
 *
 *     days      = tokens / (tokens/s) / 86400 / the part of the time that trains (traces/jobs/failures.h)
 *     GPU-hours = GPUs x hours,  cost = GPU-hours x price of the cluster
 *     scaling   = tokens/s per GPU over that of the first row of its cluster and framework that fits
 *
 * A row is on the front where no other is at least as fast and as cheap, and better in one of the two. Without
 * prices GPU-hours stand for the cost. Everything lives in the arena of the program.
 */
#include <stddef.h>
#include <string.h>

#include "planner/advise.h"
#include "planner/cli/cli.h"
#include "planner/report.h"
#include "sim/base/text.h"
#include "sim/base/units.h"

struct sweep_row {
    const char *cluster, *framework; /* as asked */
    int gpus;
    double price;                  /* a GPU-hour; 0: not given */
    const struct dtp_setup *setup; /* NULL: the cluster or the framework cannot have it */
    const struct dtp_result *best; /* NULL: nothing fits */
    const char *reason;            /* why best is NULL */
    double days, gpu_hours, cost;  /* 0: without tokens, without a price */
    double scaling;
    bool front;
};

struct sweep {
    const char *model; /* as asked */
    struct sweep_row *row;
    int n;
    double tokens, deadline_s;    /* 0: none */
    struct dtp_failures failures; /* zero: none */
    bool priced;
    int fastest, cheapest,
        within; /* rows; -1: none. within: the cheapest that meets the deadline */
};

static const char *money(double v, char *buf, size_t size) {
    char text[32];
    snprintf(buf, size, "$%s", dtp_fmt_count(v, text, sizeof text));
    return buf;
}

/* ---- text ---- */

struct columns {
    bool cp, ep;
};

static void print_row(const struct dtp_term *t, const struct columns *show, const struct sweep *s,
                      const struct sweep_row *row) {
    char text[32];
    fprintf(t->file, "  %7s", dtp_fmt_count(row->gpus, text, sizeof text));
    if (!row->best) {
        fputs("  ", t->file);
        dtp_term_wrap(t, DTP_YELLOW, 11, 11, row->reason);
        return;
    }
    const struct dtp_result *b = row->best;
    fprintf(t->file, " %4d %3d %4d", b->plan.tp, b->plan.pp, b->plan.dp);
    if (show->cp)
        fprintf(t->file, " %3d", b->plan.cp);
    if (show->ep)
        fprintf(t->file, " %3d", b->plan.ep);
    fprintf(t->file, " %3d %9s", b->plan.microbatch_size,
            dtp_fmt_time(b->step_s, text, sizeof text));
    fprintf(t->file, " %11s %5.1f %% %5.1f %%", dtp_fmt_count(b->tokens_per_s, text, sizeof text),
            b->mfu * 100, row->scaling * 100);
    if (s->tokens > 0)
        fprintf(t->file, " %8.1f %9s", row->days, dtp_fmt_count(row->gpu_hours, text, sizeof text));
    if (s->tokens > 0 && s->priced)
        fprintf(t->file, " %9s", money(row->cost, text, sizeof text));
    if (row->front)
        dtp_term_print(t, DTP_GREEN, " *");
    putc('\n', t->file);
}

static void table(const struct dtp_term *t, const struct sweep *s) {
    struct columns show = {0};
    for (int i = 0; i < s->n; i++)
        if (s->row[i].best) {
            show.cp |= s->row[i].best->plan.cp > 1;
            show.ep |= s->row[i].best->plan.ep > 1;
        }
    dtp_term_print(
        t, DTP_DIM, "     GPUs   tp  pp   dp%s%s  mb      step    tokens/s     MFU scaling%s%s\n",
        show.cp ? "  cp" : "", show.ep ? "  ep" : "", s->tokens > 0 ? "     days GPU-hours" : "",
        s->tokens > 0 && s->priced ? "      cost" : "");
    for (int i = 0; i < s->n; i++) {
        const struct sweep_row *row = &s->row[i], *last = i > 0 ? row - 1 : NULL;
        if (!last || last->cluster != row->cluster || last->framework != row->framework) {
            dtp_term_print(t, DTP_BOLD, "%s, %s", row->cluster, row->framework);
            if (row->price > 0)
                fprintf(t->file, ", $%.2f a GPU-hour", row->price);
            putc('\n', t->file);
        }
        print_row(t, &show, s, row);
    }
}

static void name_row(const struct dtp_term *t, const struct sweep *s, const char *label, int i) {
    char text[32];
    if (i < 0)
        return;
    const struct sweep_row *row = &s->row[i];
    fprintf(t->file, "  %-18s %s GPUs of %s, %s: ", label,
            dtp_fmt_count(row->gpus, text, sizeof text), row->cluster, row->framework);
    if (s->tokens > 0)
        fprintf(t->file, "%.1f days", row->days);
    else
        fprintf(t->file, "%s a step", dtp_fmt_time(row->best->step_s, text, sizeof text));
    if (s->tokens > 0 && s->priced)
        fprintf(t->file, ", %s", money(row->cost, text, sizeof text));
    putc('\n', t->file);
}

static void print_text(struct dtp_cli *cli, const struct sweep *s) {
    const struct dtp_term *t = &cli->out;
    const struct dtp_setup *setup = NULL;
    char text[32];
    for (int i = 0; i < s->n && !setup; i++)
        setup = s->row[i].setup;
    if (setup) {
        const struct dtp_problem *p = &setup->problem;
        dtp_term_print(t, DTP_BOLD, "%s, seq %d, batch %d", p->model->name, p->seq,
                       p->global_batch);
        if (s->tokens > 0)
            fprintf(t->file, ", %s tokens", dtp_fmt_count(s->tokens, text, sizeof text));
        fputs("\n\n", t->file);
    }
    table(t, s);
    if (s->fastest < 0)
        return;
    fputs("  * ", t->file);
    dtp_term_wrap(t, DTP_DIM, 4, 4,
                  s->priced ? "no other row is both faster and cheaper"
                            : "no other row is both faster and takes fewer GPU-hours");
    if (s->tokens > 0 && s->failures.gpu_hours_per_failure > 0)
        dtp_term_print(t, DTP_DIM, "    days are with failures, one in %s GPU-hours\n",
                       dtp_fmt_count(s->failures.gpu_hours_per_failure, text, sizeof text));
    putc('\n', t->file);
    name_row(t, s, "fastest", s->fastest);
    name_row(t, s, s->priced ? "cheapest" : "fewest GPU-hours", s->cheapest);
    if (s->within >= 0)
        name_row(t, s, "meets the deadline", s->within);
    const struct sweep_row *shown = &s->row[s->within >= 0 ? s->within : s->fastest];
    dtp_term_print(t, DTP_DIM, "  dtplan simulate %s\n",
                   dtp_report_flags(cli->a, shown->setup, &shown->best->plan));
}

/* ---- for programs ---- */

static void put_index(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    int i = *(const int *)at;
    (void)f;
    if (i >= 0)
        dtp_json_put_int(w, i);
    else
        dtp_json_put_null(w);
}

static void put_rows(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    const struct sweep *s = at;
    const struct dtp_list rows = DTP_LIST(s->row, s->n);
    dtp_put_list(w, f, &rows);
}

/* clang-format off */
#define AT(member) offsetof(struct sweep_row, member)
#define POSITIVE(key) #key, DTP_FIELD_DOUBLE, AT(key), .unset = DTP_UNSET_NULL
static const struct dtp_field row_fields[] = {
    {"cluster", DTP_FIELD_STRING, AT(cluster), .help = "name of the cluster"},
    {"framework", DTP_FIELD_STRING, AT(framework), .help = "name of the framework"},
    {"gpus", DTP_FIELD_INT, AT(gpus), .help = "GPUs in all"},
    {"price_per_gpu_hour", DTP_FIELD_DOUBLE, AT(price), .unset = DTP_UNSET_NULL, .help = "price that was given; null: none"},
    {POSITIVE(days), .help = "days to train, with interruptions; null: the tokens are not known"},
    {POSITIVE(gpu_hours), .help = "the same in GPU-hours"},
    {POSITIVE(cost), .help = "the same in the currency of the price"},
    {POSITIVE(scaling),
     .help = "tokens a second and GPU over those of the first row of its cluster and framework that fits"},
    {"front", DTP_FIELD_BOOL, AT(front), .help = "no other row is at least as fast and as cheap, and better in one of the two"},
    {"best", DTP_FIELD_PUT, AT(best), .put = dtp_put_pointer, .form = &dtp_result_form, .help = "the plan; null: none fits"},
    {"reason", DTP_FIELD_STRING, AT(reason), .help = "why no plan is there"},
    {0}};
#undef AT
#define AT(member) offsetof(struct sweep, member)
static const struct dtp_field sweep_fields[] = {
    DTP_FIELD_SCHEMA_VERSION, DTP_FIELD_VERSION, DTP_FIELD_SOURCE("dtplan: predicted"),
    {"model", DTP_FIELD_STRING, AT(model), .help = "name of the model"},
    {POSITIVE(tokens), .help = "tokens to train on; null: not known"},
    {POSITIVE(deadline_s), .help = "deadline that was given; null: none"},
    {"rows", DTP_FIELD_PUT, 0, .put = put_rows, .inner = "[]", .fields = row_fields},
    {"fastest", DTP_FIELD_PUT, AT(fastest), .put = put_index, .help = "index of the fastest row"},
    {"cheapest", DTP_FIELD_PUT, AT(cheapest), .put = put_index, .help = "index of the cheapest row"},
    {"within_deadline", DTP_FIELD_PUT, AT(within), .put = put_index,
     .help = "index of the cheapest row within the deadline"},
    {0}};
/* clang-format on */
static const struct dtp_form sweep_form = {"sweep", "The best plan on each size and cluster.",
                                           sweep_fields};

static void csv_number(FILE *f, double v) {
    char text[32];
    fprintf(f, "%s,", v > 0 ? dtp_double_text(v, text, sizeof text) : "");
}

static void print_csv(FILE *f, const struct sweep *s) {
    fputs("cluster,framework,gpus,", f);
    dtp_plan_csv_head(f);
    fputs("step_s,tokens_per_s,mfu,device_bytes,scaling,days,gpu_hours,cost,front,reason\n", f);
    for (int i = 0; i < s->n; i++) {
        const struct sweep_row *row = &s->row[i];
        const struct dtp_result *b = row->best;
        dtp_csv_put(f, row->cluster, false);
        dtp_csv_put(f, row->framework, false);
        fprintf(f, "%d,", row->gpus);
        dtp_plan_csv(f, b ? &b->plan : NULL);
        if (!b) {
            fputs(",,,,,,,,0,", f);
            dtp_csv_put(f, row->reason, true);
            continue;
        }
        const double numbers[] = {
            b->step_s,    b->tokens_per_s, b->mfu,         (double)b->device_bytes,
            row->scaling, row->days,       row->gpu_hours, row->cost};
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
            csv_number(f, numbers[k]);
        fprintf(f, "%d,\n", row->front);
    }
}

enum { MOST_ITEMS = 64, MOST_ROWS = 512, MOST_PRICE = 1000000 };

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
        if (!(l->price[i] > 0 && l->price[i] <= MOST_PRICE))
            return dtp_fail(err, DTP_EUSAGE,
                            "--price: found \"%s\", expected more than 0, %d at most", item[i],
                            MOST_PRICE);
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
static bool expenses(struct sweep_row *row, const struct dtp_report *r) {
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
static enum dtp_status fill(struct dtp_cli *cli, struct sweep_row *row, struct sweep *s,
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
static double duration(const struct sweep_row *row) {
    return row->days > 0 ? row->days : row->best->step_s;
}

static double expense(const struct sweep_row *row) {
    return duration(row) * row->gpus * (row->price > 0 ? row->price : 1);
}

static bool beats(const struct sweep_row *x, const struct sweep_row *y) {
    double cx = expense(x), cy = expense(y), tx = duration(x), ty = duration(y);
    return tx <= ty && cx <= cy && (tx < ty || cx < cy);
}

static void rank(struct sweep *s) {
    s->fastest = s->cheapest = s->within = -1;
    for (int i = 0; i < s->n; i++) {
        struct sweep_row *row = &s->row[i];
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

static double per_gpu(const struct sweep_row *row) {
    return row->best->tokens_per_s / row->gpus;
}

/* Fills all rows, those of one cluster and framework one after the other. */
static enum dtp_status fill_all(struct dtp_cli *cli, const struct lists *l, struct sweep *s,
                                struct dtp_err *err) {
    int total = l->nclusters * l->nframeworks * l->ngpus;
    s->row = DTP_NEW(cli->a, struct sweep_row, (size_t)total);
    for (int i = 0; i < total; i++) {
        int group = i / l->ngpus, first = group * l->ngpus, c = group / l->nframeworks;
        struct sweep_row *row = &s->row[s->n++];
        *row = (struct sweep_row){.cluster = l->cluster[c],
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
    struct sweep s = {0};
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
        print_csv(cli->out.file, &s);
    else if (cli->args.json)
        dtp_form_write(cli->out.file, 2, &sweep_form, &s);
    else
        print_text(cli, &s);
    if (s.fastest < 0)
        return dtp_fail(err, DTP_ENO, "no row has a plan that fits");
    if (s.deadline_s > 0 && s.within < 0) {
        char text[2][32];
        const struct sweep_row *row = &s.row[s.fastest];
        return dtp_fail(
            err, DTP_ENO, "none meets the deadline of %s; the fastest, %d GPUs of %s, takes %s",
            dtp_fmt_time(s.deadline_s, text[0], sizeof text[0]), row->gpus, row->cluster,
            dtp_fmt_time(row->days * DTP_S_PER_DAY, text[1], sizeof text[1]));
    }
    return DTP_OK;
}

static const struct dtp_form *const documents[] = {&sweep_form, NULL};

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
