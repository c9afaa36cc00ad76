/* listings.c: the verbs that list what there is: models, clusters, frameworks, schedules, collectives. */
#include <limits.h>
#include <stddef.h>
#include <string.h>

#include "models/schedule/schedule.h"
#include "planner/cli/cli.h"
#include "sim/base/text.h"
#include "sim/base/units.h"

struct listing {
    bool names; /* names alone, for scripts and completion */
};

static const struct dtp_option names_options[] = {
    {"names", DTP_OPT_FLAG, 0, offsetof(struct listing, names), .help = "names only"}, {0}};

static int width_of(const char *const *names, size_t n) {
    size_t widest = 0;
    for (size_t i = 0; i < n; i++)
        if (strlen(names[i]) > widest)
            widest = strlen(names[i]);
    return (int)widest;
}

/* "name   title" with the title cut to the width. */
static void print_row(const struct dtp_term *t, const char *name, int name_width,
                      const char *title) {
    dtp_term_print(t, DTP_BOLD, "%-*s", name_width, name);
    int room = t->width - name_width - 2;
    if (t->file && (int)strlen(title) > room && room > 3)
        fprintf(t->file, "  %.*s...\n", room - 3, title);
    else
        fprintf(t->file, "  %s\n", title);
}

/* --json NAME: what stands in its file, in the form that a plan document may embed. */
static void write_json(struct dtp_cli *cli, const struct dtp_json *file) {
    struct dtp_json_out w;
    dtp_json_begin(&w, cli->out.file, 2);
    dtp_json_put_json(&w, file);
}

/* The value of one field as text, into buf; for "dtplan frameworks NAME". */
static const char *value_text(const struct dtp_field *field, const void *in, char *buf,
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
static const struct dtp_form *const names_documents[] = {&names_form, NULL};

/* ---- models ---- */

static enum dtp_status model_row(struct dtp_cli *cli, const char *name, int width,
                                 struct dtp_err *err) {
    struct dtp_model m;
    struct dtp_param_counts c;
    char params[32], active[48] = "", line[256], one[32];
    DTP_TRY(dtp_model_load(cli->a, name, &m, err));
    dtp_model_params(&m, m.vocab, &c);
    if (c.active < c.total)
        snprintf(active, sizeof active, " (%s active)",
                 dtp_fmt_count((double)c.active, one, sizeof one));
    snprintf(line, sizeof line, "%8s%s  %3d layers, hidden %5d, seq %d, batch %d  %s",
             dtp_fmt_count((double)c.total, params, sizeof params), active, m.layers, m.hidden,
             m.seq, m.global_batch, m.title ? m.title : "");
    print_row(&cli->out, name, width, line);
    return DTP_OK;
}

static void count_line(FILE *f, const char *what, double n, const char *note) {
    char text[32];
    fprintf(f, "  %-26s %s%s\n", what, dtp_fmt_count(n, text, sizeof text), note);
}

static void architecture(FILE *f, const struct dtp_model *m) {
    fprintf(f, "  %-26s %d layers, hidden %d, %d heads of %d", "architecture", m->layers, m->hidden,
            m->heads, m->head_dim);
    if (m->kv_heads != m->heads)
        fprintf(f, ", %d key-value heads", m->kv_heads);
    if (m->mla.kv_lora_rank > 0)
        fprintf(f, ", latent attention of rank %d", m->mla.kv_lora_rank);
    fprintf(f, "\n  %-26s %d%s, %s; %s norm; %s positions\n", "MLP", m->ffn,
            m->gated_ffn ? " gated" : "", dtp_activation_names[m->activation],
            dtp_norm_names[m->norm], dtp_position_names[m->position]);
    if (m->moe.experts > 0)
        fprintf(f, "  %-26s %d experts of %d, %d a token, %d shared\n", "mixture", m->moe.experts,
                m->moe.ffn, m->moe.top_k, m->moe.shared_experts);
    if (m->vocab > 0)
        fprintf(f, "  %-26s %d%s\n", "vocabulary", m->vocab,
                m->tied_embeddings ? ", head tied to the embedding" : "");
}

static enum dtp_status model_details(struct dtp_cli *cli, const char *name, struct dtp_err *err) {
    struct dtp_model m;
    struct dtp_param_counts c;
    DTP_TRY(dtp_model_load(cli->a, name, &m, err));
    dtp_model_params(&m, m.vocab, &c);
    if (cli->args.json) {
        struct dtp_json_out w;
        dtp_json_begin(&w, cli->out.file, 2);
        dtp_model_write(&w, &m);
        return DTP_OK;
    }
    FILE *f = cli->out.file;
    dtp_term_print(&cli->out, DTP_BOLD, "%s", name);
    fprintf(f, "  %s\n", m.title ? m.title : "");
    architecture(f, &m);
    count_line(f, "parameters", (double)c.total, "");
    if (m.published_params > 0)
        count_line(f, "  published", m.published_params,
                   dtp_model_published_gap(&m) != 0 ? ": not what the file describes" : "");
    if (c.active < c.total)
        count_line(f, "  used by a token", (double)c.active, "");
    count_line(f, "  embedding", (double)c.embedding, "");
    if (c.dense_layers > 0)
        count_line(f, c.moe_layers > 0 ? "  one dense layer" : "  one layer", (double)c.dense_layer,
                   "");
    if (c.moe_layers > 0)
        count_line(f, c.dense_layers > 0 ? "  one layer of experts" : "  one layer",
                   (double)c.moe_layer, "");
    count_line(f, "  head", (double)c.head, "");
    count_line(f, "FLOPs of a forward pass", dtp_model_forward_flops(&m, m.seq),
               " a sequence, attention in full, head included");
    fprintf(f, "  %-26s sequences of %d, batch %d\n", "defaults", m.seq, m.global_batch);
    if (m.train_tokens > 0)
        count_line(f, "tokens trained on", m.train_tokens, "");
    fprintf(f, "  %-26s ", "source");
    dtp_term_wrap(&cli->out, DTP_PLAIN, 29, 29, m.source ? m.source : "-");
    return DTP_OK;
}

/* ---- clusters ---- */

static const char *nics(const struct dtp_cluster *c, char *buf, size_t size) {
    if (c->node.nics == 0)
        snprintf(buf, size, "no network");
    else
        snprintf(buf, size, "%d x %.0f Gb/s", c->node.nics,
                 c->node.nic_bytes_per_s * DTP_BITS_PER_BYTE / DTP_GIGA);
    return buf;
}

static enum dtp_status cluster_row(struct dtp_cli *cli, const char *name, int width,
                                   struct dtp_err *err) {
    struct dtp_cluster c;
    DTP_TRY(dtp_cluster_load(cli->a, name, &c, err));
    print_row(&cli->out, name, width, c.title ? c.title : "");
    return DTP_OK;
}

static void gpu_lines(const struct dtp_term *t, const struct dtp_gpu *g) {
    FILE *f = t->file;
    char text[32];
    fprintf(f, "  %-22s %s, %s, %d SMs\n", "GPU", g->title ? g->title : g->name, g->arch,
            g->num_sms);
    fprintf(f, "  %-22s %s at %s\n", "memory",
            dtp_fmt_bytes_gib((double)g->memory_bytes, text, sizeof text),
            dtp_fmt_rate(g->hbm_bytes_per_s, (char[32]){0}, 32));
    fprintf(f, "  %-21s", "dense peak");
    for (int d = 0; d < DTP_NDTYPES; d++)
        if (g->peak_flops_per_s[d] > 0)
            fprintf(f, "  %s %s", dtp_dtype_names[d],
                    dtp_fmt_flops(g->peak_flops_per_s[d], text, sizeof text));
    if (g->power_w > 0)
        fprintf(f, "\n  %-22s %.0f W", "power limit", g->power_w);
    fprintf(f, "\n  %-22s ", "calibration");
    dtp_term_wrap(t, DTP_PLAIN, 25, 25, g->calibration ? g->calibration : "none");
}

static enum dtp_status cluster_details(struct dtp_cli *cli, const char *name, struct dtp_err *err) {
    struct dtp_cluster c;
    char text[64];
    DTP_TRY(dtp_cluster_load(cli->a, name, &c, err));
    if (cli->args.json) {
        const struct dtp_json *file;
        DTP_TRY(dtp_cluster_file(cli->a, name, &file, &name, err));
        write_json(cli, file);
        return DTP_OK;
    }
    FILE *f = cli->out.file;
    dtp_term_print(&cli->out, DTP_BOLD, "%s", name);
    fprintf(f, "  %s\n", c.title ? c.title : "");
    gpu_lines(&cli->out, &c.gpu);
    fprintf(f, "  %-22s %d GPUs, %s, %s per GPU and direction\n", "node", c.node.gpus,
            dtp_intra_names[c.node.intra], dtp_fmt_rate(c.node.gpu_link_bytes_per_s, text, 32));
    fprintf(f, "  %-22s %s, %s\n", "network cards", nics(&c, text, sizeof text),
            c.fabric ? c.fabric : "none");
    for (int i = 0; i < c.ntiers; i++) {
        fprintf(f, "  %-22s %s, ", i ? "" : "fabric", c.tier[i].name);
        if (c.tier[i].nodes > 0 && c.tier[i].nodes < INT_MAX) /* that: all there are */
            fprintf(f, "groups of %d nodes, ", c.tier[i].nodes);
        if (c.tier[i].oversubscription <= 1)
            fputs("full bandwidth upwards\n", f);
        else
            fprintf(f, "oversubscribed %.3g : 1\n", c.tier[i].oversubscription);
    }
    fprintf(f, "  %-22s %s\n", "rails", c.rail_optimised ? "rail-optimised" : "no");
    if (c.node.host_memory_bytes > 0)
        fprintf(f, "  %-22s %s, %d cores\n", "host memory",
                dtp_fmt_bytes_gib((double)c.node.host_memory_bytes, text, 32), c.node.cores);
    if (c.max_gpus > 0)
        fprintf(f, "  %-22s %d GPUs\n", "size", c.max_gpus);
    fprintf(f, "  %-22s %d\n", "measured curves", c.ncurves);
    return DTP_OK;
}

/* ---- frameworks ---- */

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
        value_text(f, in, value, sizeof value);
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

static enum dtp_status framework_details(struct dtp_cli *cli, const char *name,
                                         struct dtp_err *err) {
    struct dtp_framework fw;
    const struct dtp_json *file;
    DTP_TRY(dtp_framework_file(cli->a, name, &fw, &file, err));
    if (cli->args.json) {
        write_json(cli, file);
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

static enum dtp_status framework_row(struct dtp_cli *cli, const char *name, int width,
                                     struct dtp_err *err) {
    struct dtp_framework fw;
    DTP_TRY(dtp_framework_load(cli->a, name, &fw, err));
    print_row(&cli->out, name, width, fw.title ? fw.title : "");
    return DTP_OK;
}

/* ---- schedules ---- */

struct schedule_own {
    struct listing listing;
    int pp, vpp, microbatches;
};

static const struct dtp_option schedule_options[] = {
    {"names", DTP_OPT_FLAG, 0, offsetof(struct schedule_own, listing.names), .help = "names only"},
    {"pp", DTP_OPT_INT, 0, offsetof(struct schedule_own, pp), .value = "N", .min = 1, .max = 64,
     .help = "pipeline stages of the example (default 4)"},
    {"vpp", DTP_OPT_INT, 0, offsetof(struct schedule_own, vpp), .value = "N", .min = 1, .max = 64,
     .help = "virtual stages of the example (default: 2 where the schedule has chunks)"},
    {"microbatches", DTP_OPT_INT, 0, offsetof(struct schedule_own, microbatches), .value = "N",
     .min = 1, .max = 4096, .help = "microbatches of the example (default 8)"},
    {0}};

static void schedule_defaults(void *own) {
    struct schedule_own *o = own;
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

struct schedule_document {
    struct dtp_schedule schedule;
    const char *name, *title, *source;
};

/* clang-format off */
#define AT(member) offsetof(struct schedule_document, member)
static const struct dtp_field schedule_fields[] = {
    {"name", DTP_FIELD_STRING, AT(name), .help = "name of the schedule"},
    {"title", DTP_FIELD_STRING, AT(title), .help = "one line about it"},
    {"source", DTP_FIELD_STRING, AT(source), .unset = DTP_UNSET_NULL, .help = "the paper; null: none"},
    {"pp", DTP_FIELD_INT, AT(schedule.pp), .help = "pipeline stages of the example"},
    {"vpp", DTP_FIELD_INT, AT(schedule.vpp), .help = "virtual stages of each"},
    {"microbatches", DTP_FIELD_INT, AT(schedule.m), .help = "microbatches of the example"},
    {"ranks", DTP_FIELD_PUT, AT(schedule), .put = put_ranks, .inner = "[][]",
     .help = "for each stage its actions in their order: chunk, kind, microbatch, such as 0F3"},
    {0}};
#undef AT
/* clang-format on */
static const struct dtp_form schedule_form = {"schedules NAME", "The order of actions.",
                                              schedule_fields};
static const struct dtp_form *const schedule_documents[] = {&schedule_form, NULL};

static enum dtp_status schedule_details(struct dtp_cli *cli, const char *name,
                                        struct dtp_err *err) {
    const struct schedule_own *own = cli->own;
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
        const struct schedule_document d = {s, k->name, k->title, k->source};
        dtp_form_write(f, 2, &schedule_form, &d);
        return DTP_OK;
    }
    dtp_term_print(&cli->out, DTP_BOLD, "%s", k->name);
    fprintf(f, "  %s\n  source: %s\n", k->title, k->source ? k->source : "-");
    fprintf(f, "\n%d stages, %d virtual each, %d microbatches; chunk, kind, microbatch:\n", own->pp,
            vpp, own->microbatches);
    dtp_schedule_print(f, &s);
    return DTP_OK;
}

static enum dtp_status schedule_row(struct dtp_cli *cli, const char *name, int width,
                                    struct dtp_err *err) {
    (void)err;
    print_row(&cli->out, name, width, dtp_schedule_kinds[dtp_schedule_find(name)].title);
    return DTP_OK;
}

/* ---- collectives ---- */

enum { EXAMPLE_RANKS = 16, EXAMPLE_PER_NODE = 8, MOST_STEPS = 128 };

static const char *const peers[] = {[DTP_PEER_NEXT] = "next",
                                    [DTP_PEER_CHAIN] = "along the chain",
                                    [DTP_PEER_CHAIN_BACK] = "back along the chain",
                                    [DTP_PEER_XOR] = "xor",
                                    [DTP_PEER_FOLD_IN] = "into the power of two",
                                    [DTP_PEER_FOLD_OUT] = "out of the power of two",
                                    [DTP_PEER_TO_ROOT] = "to root",
                                    [DTP_PEER_FROM_ROOT] = "from root",
                                    [DTP_PEER_ALL] = "all",
                                    [DTP_PEER_TREE_UP] = "up the tree",
                                    [DTP_PEER_TREE_DOWN] = "down the tree",
                                    [DTP_PEER_TREES_UP] = "up two trees",
                                    [DTP_PEER_TREES_DOWN] = "down two trees",
                                    [DTP_PEER_SWITCH] = "switch"};
static const char *const tiers[] = {"all ranks", "inside the node", "across nodes"};

/* Steps of the example; < 0: the algorithm does not apply. */
static int example(int algo, int kind, struct dtp_step *steps) {
    return dtp_coll_steps((enum dtp_algo)algo, (enum dtp_collective)kind, EXAMPLE_RANKS,
                          EXAMPLE_PER_NODE, steps, MOST_STEPS);
}

/* "7 x next 0.125 inside the node" of each step, joined. Returns buf. */
static const char *steps_text(const struct dtp_step *steps, int n, char *buf, size_t size) {
    size_t used = 0;
    buf[0] = '\0';
    for (int i = 0; i < n && used < size; i++)
        used += (size_t)snprintf(buf + used, size - used, "%s%d x %s %.4g%s%s", i ? ", " : "",
                                 steps[i].repeat, peers[steps[i].peer], steps[i].fraction,
                                 steps[i].tier > 0 ? " " : "",
                                 steps[i].tier > 0 ? tiers[steps[i].tier] : "");
    return buf;
}

static void print_algorithms(const struct dtp_term *t, int kind) {
    struct dtp_step steps[MOST_STEPS];
    char text[512];
    dtp_term_print(t, DTP_BOLD, "%s\n", dtp_collective_names[kind]);
    for (int algo = DTP_ALGO_AUTO + 1; algo < DTP_NALGOS; algo++) {
        int n = example(algo, kind, steps);
        if (n < 0)
            continue;
        fputs("  ", t->file);
        print_row(t, dtp_algo_names[algo], 20, steps_text(steps, n, text, sizeof text));
    }
}

struct collective_document {
    int kind, ranks, ranks_per_node;
};

/* An algorithm that applies, with the steps of the example. */
struct algorithm {
    int algo;
    struct dtp_list steps;
};

static void put_algorithms(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    const struct collective_document *d = at;
    struct dtp_step steps[MOST_STEPS];
    dtp_json_array(w);
    for (int algo = DTP_ALGO_AUTO + 1; algo < DTP_NALGOS; algo++) {
        int n = example(algo, d->kind, steps);
        if (n < 0)
            continue;
        const struct algorithm x = {algo, DTP_LIST(steps, n)};
        dtp_put_object(w, f, &x);
    }
    dtp_json_end(w);
}

/* clang-format off */
#define AT(member) offsetof(struct dtp_step, member)
static const struct dtp_field step_fields[] = {
    {"repeat", DTP_FIELD_INT, AT(repeat), .help = "how often"},
    {"peer", DTP_FIELD_ENUM, AT(peer), .names = peers, .help = "to whom a rank sends"},
    {"fraction", DTP_FIELD_DOUBLE, AT(fraction), .help = "part of the buffer"},
    {"among", DTP_FIELD_ENUM, AT(tier), .names = tiers, .help = "all ranks, or those inside the node, or across nodes"},
    {0}};
#undef AT
static const struct dtp_field algorithm_fields[] = {
    {"algo", DTP_FIELD_ENUM, offsetof(struct algorithm, algo), .names = dtp_algo_names, .help = "each algorithm that applies"},
    {"steps", DTP_FIELD_PUT, offsetof(struct algorithm, steps), .put = dtp_put_list, .fields = step_fields},
    {0}};
#define AT(member) offsetof(struct collective_document, member)
static const struct dtp_field collective_fields[] = {
    {"name", DTP_FIELD_ENUM, AT(kind), .names = dtp_collective_names, .help = "name of the collective"},
    {"ranks", DTP_FIELD_INT, AT(ranks), .help = "ranks of the example"},
    {"ranks_per_node", DTP_FIELD_INT, AT(ranks_per_node), .help = "ranks of a node of the example"},
    {"algorithms", DTP_FIELD_PUT, 0, .put = put_algorithms, .inner = "[]", .fields = algorithm_fields},
    {0}};
/* clang-format on */
static const struct dtp_form collective_form = {"collectives KIND", "The steps of its algorithms.",
                                                collective_fields};
static const struct dtp_form *const collective_documents[] = {&collective_form, NULL};

static void heading(FILE *f) {
    fprintf(f,
            "Steps of each algorithm for %d ranks, %d a node: repeats x peer, part of the "
            "buffer\n",
            EXAMPLE_RANKS, EXAMPLE_PER_NODE);
}

static enum dtp_status collective_details(struct dtp_cli *cli, const char *name,
                                          struct dtp_err *err) {
    int kind = dtp_name_index(dtp_collective_names, name);
    if (kind < 0)
        return dtp_unknown_name(err, DTP_EUSAGE, "collective", name, dtp_collective_names,
                                DTP_NCOLLECTIVES, NULL);
    if (cli->args.json) {
        const struct collective_document d = {kind, EXAMPLE_RANKS, EXAMPLE_PER_NODE};
        dtp_form_write(cli->out.file, 2, &collective_form, &d);
        return DTP_OK;
    }
    heading(cli->out.file);
    print_algorithms(&cli->out, kind);
    return DTP_OK;
}

static enum dtp_status collective_row(struct dtp_cli *cli, const char *name, int width,
                                      struct dtp_err *err) {
    int kind = dtp_name_index(dtp_collective_names, name);
    (void)width;
    (void)err;
    if (kind == 0)
        heading(cli->out.file);
    print_algorithms(&cli->out, kind);
    return DTP_OK;
}

/* ---- the verbs ---- */

/* NAME shows the details, else a row for each name, or --names. */
static const struct kind {
    const struct dtp_verb *verb;
    enum dtp_status (*list)(struct dtp_arena *a, const char *const **names, size_t *n,
                            struct dtp_err *err); /* NULL: names, so many */
    const char *const *names;
    size_t n;
    enum dtp_status (*row)(struct dtp_cli *cli, const char *name, int width, struct dtp_err *err);
    enum dtp_status (*details)(struct dtp_cli *cli, const char *name, struct dtp_err *err);
} kinds[] = {
    {&dtp_verb_models, dtp_model_list, NULL, 0, model_row, model_details},
    {&dtp_verb_clusters, dtp_cluster_list, NULL, 0, cluster_row, cluster_details},
    {&dtp_verb_frameworks, dtp_framework_list, NULL, 0, framework_row, framework_details},
    {&dtp_verb_schedules, NULL, dtp_schedule_names, DTP_NSCHEDULES, schedule_row, schedule_details},
    {&dtp_verb_collectives, NULL, dtp_collective_names, DTP_NCOLLECTIVES, collective_row,
     collective_details}};

static enum dtp_status run(struct dtp_cli *cli, struct dtp_err *err) {
    const struct listing *own = cli->own;
    const struct kind *kind = kinds;
    while (kind->verb != cli->verb)
        kind++;
    if (cli->nargs == 1)
        return kind->details(cli, cli->arg[0], err);
    const char *const *names = kind->names;
    size_t n = kind->n;
    if (kind->list)
        DTP_TRY(kind->list(cli->a, &names, &n, err));
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
            DTP_TRY(kind->row(cli, names[i], width, err));
    }
    return DTP_OK;
}

const struct dtp_verb dtp_verb_models = {
    .name = "models",
    .summary = "the models that are known, or one in detail",
    .synopsis = "models [NAME|FILE]",
    .description =
        "Lists the models with their parameters and defaults, or shows one. A FILE is an "
        "own model in JSON or a Hugging Face config.json; with --json the model is "
        "printed in the form that a plan document may embed, or the list of names.",
    .groups = DTP_GROUP_OUTPUT,
    .documents = names_documents,
    .options = names_options,
    .own_size = sizeof(struct listing),
    .max_args = 1,
    .run = run};

const struct dtp_verb dtp_verb_clusters = {
    .name = "clusters",
    .summary = "the clusters that are known, or one in detail",
    .synopsis = "clusters [NAME|FILE]",
    .description = "Lists the clusters (GPUs of a node, network cards), or shows one with its GPU, "
                   "links and fabric. A FILE has the form of the files in hw/cluster; "
                   "with --json that is printed, or the list of names.",
    .groups = DTP_GROUP_OUTPUT,
    .options = names_options,
    .own_size = sizeof(struct listing),
    .max_args = 1,
    .run = run};

const struct dtp_verb dtp_verb_frameworks = {
    .name = "frameworks",
    .summary = "the software stacks that are known, or one in detail",
    .synopsis = "frameworks [NAME|FILE]",
    .description = "Lists the training frameworks, or shows one with every field and its meaning; "
                   "with --json its file is printed, or the list of names.",
    .groups = DTP_GROUP_OUTPUT,
    .options = names_options,
    .own_size = sizeof(struct listing),
    .max_args = 1,
    .run = run};

const struct dtp_verb dtp_verb_schedules = {
    .name = "schedules",
    .summary = "the pipeline schedules, or the order of actions of one",
    .synopsis = "schedules [NAME [--pp N] [--vpp N] [--microbatches N]]",
    .description = "Lists the pipeline schedules, or prints for one the order of forward (F) and "
                   "backward (B, or I and W) actions of each rank.",
    .groups = DTP_GROUP_OUTPUT,
    .documents = schedule_documents,
    .options = schedule_options,
    .own_size = sizeof(struct schedule_own),
    .defaults = schedule_defaults,
    .max_args = 1,
    .run = run};

const struct dtp_verb dtp_verb_collectives = {
    .name = "collectives",
    .summary = "the collectives and their algorithms as steps",
    .synopsis = "collectives [KIND]",
    .description = "Lists the collectives with the algorithms that apply to each. A step is: how "
                   "often, to whom, which part of the buffer.",
    .groups = DTP_GROUP_OUTPUT,
    .documents = collective_documents,
    .options = names_options,
    .own_size = sizeof(struct listing),
    .max_args = 1,
    .run = run};
