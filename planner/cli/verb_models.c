#include "planner/cli/listing.h"
#include "planner/cli/verbs.h"
#include "sim/base/text.h"

static enum dtp_status row(struct dtp_cli *cli, const char *name, int width, struct dtp_err *err) {
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
    dtp_listing_row(&cli->out, name, width, line);
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

static enum dtp_status details(struct dtp_cli *cli, const char *name, struct dtp_err *err) {
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

static enum dtp_status run(struct dtp_cli *cli, struct dtp_err *err) {
    static const struct dtp_listing_verb verb = {dtp_model_list, row, details};
    return dtp_listing_run(cli, &verb, err);
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
    .documents = dtp_names_documents,
    .options = dtp_listing_options,
    .own_size = sizeof(struct dtp_listing),
    .max_args = 1,
    .run = run};
