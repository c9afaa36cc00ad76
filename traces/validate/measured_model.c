/* The model of a measured row. */
#include <ctype.h>
#include <string.h>

#include "traces/validate/measured_private.h"

/* Name of the model without what stands in parentheses: "GPT 175B (MegaScale)". */
static const char *bare_name(struct dtp_arena *a, const char *name) {
    const char *paren = strchr(name, '(');
    size_t n = paren ? (size_t)(paren - name) : strlen(name);
    while (n > 0 && name[n - 1] == ' ')
        n--;
    char *bare = dtp_arena_strndup(a, name, n);
    for (char *p = bare; *p; p++)
        if (*p == ' ')
            *p = '-';
    return bare;
}

/* The family whose flags a row's model has, by the start of its name. */
static const char *family_of(const struct dtp_run *run) {
    static const struct {
        const char *start, *family;
    } families[] = {{"mpt", "mpt"},   {"bloom", "bloom"},       {"gpt", "gpt"},
                    {"opt", "opt"},   {"nemotron", "nemotron"}, {"falcon", "falcon"},
                    {"bert", "bert"}, {"mt-nlg", "gpt"},        {"llama", "llama"}};
    char lower[16] = "";
    for (size_t i = 0; i + 1 < sizeof lower && run->model[i]; i++)
        lower[i] = (char)tolower((unsigned char)run->model[i]);
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (strncmp(lower, families[i].start, strlen(families[i].start)) == 0)
            return families[i].family;
    return run->gated_ffn == 1 ? "llama" : "gpt";
}

bool dtp_run_set_model(struct dtp_arena *a, struct dtp_run_library *l, const struct dtp_run *run,
                       struct dtp_run_case *c) {
    struct dtp_err err;
    struct dtp_model *m = &c->model;
    const struct cluster_fact *fact = dtp_run_fact(l, run);
    const char *family = fact && fact->family ? fact->family : family_of(run);
    bool known = !(fact && fact->family) && dtp_run_model(l, bare_name(l->a, run->model), m) &&
                 m->layers == run->layers && m->hidden == run->hidden;
    if (!known && dtp_model_family(family, m, &err) != DTP_OK) {
        c->unsupported = dtp_arena_strdup(a, err.msg);
        return false;
    }
    m->name = run->model;
    m->layers = run->layers;
    m->hidden = run->hidden;
    if (!known || (run->heads > 0 && run->heads != m->heads))
        m->head_dim = 0;
    m->heads = run->heads > 0 ? run->heads : m->heads;
    m->kv_heads = run->kv_heads > 0 ? run->kv_heads : m->kv_heads;
    m->ffn = run->ffn > 0 ? run->ffn : m->ffn;
    if (run->gated_ffn >= 0)
        m->gated_ffn = run->gated_ffn;
    m->vocab = run->vocab > 0 ? run->vocab : m->vocab;
    if (m->vocab == 0) {
        m->vocab = 50257;
        dtp_run_note(a, c, "vocabulary of 50257 assumed");
    }
    if (fact && run->ffn > 0 && run->ffn < fact->tied_below_ffn)
        m->tied_embeddings = true;
    if (fact && fact->capacity_factor > 0)
        m->moe.capacity_factor = fact->capacity_factor;
    if (fact && fact->dropout)
        m->dropout = m->attention_dropout = 0.1;
    if (fact && fact->no_attention_dropout)
        m->attention_dropout = 0;
    m->seq = run->seq;
    m->max_positions = m->position == DTP_POS_LEARNED ? run->seq : m->max_positions;
    if (dtp_model_finish(m, &err) == DTP_OK)
        return true;
    c->unsupported = dtp_arena_strdup(a, err.msg);
    return false;
}

void dtp_run_take_shape(struct dtp_run_library *l, struct dtp_run *run) {
    struct dtp_model m;
    if ((run->layers > 0 && run->hidden > 0 && run->seq > 0) ||
        !dtp_run_model(l, bare_name(l->a, run->model), &m))
        return;
    run->layers = run->layers > 0 ? run->layers : m.layers;
    run->hidden = run->hidden > 0 ? run->hidden : m.hidden;
    run->seq = run->seq > 0 ? run->seq : m.seq;
}
