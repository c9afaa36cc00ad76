/* trace_config.c: the configuration of a run as commands of dtplan. */
#include <stdlib.h>
#include <string.h>

#include "planner/cli/trace.h"
#include "sim/base/text.h"

/* Whether the library's model has the shape that the configuration says. */
static bool has_shape(const struct dtp_model *m, const struct dtp_run_config *c) {
    const struct {
        long said;
        int is;
    } numbers[] = {{c->layers, m->layers},
                   {c->hidden, m->hidden},
                   {c->heads, m->heads},
                   {c->kv_heads, m->kv_heads},
                   {c->experts, m->moe.experts}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].said > 0 && numbers[i].said != numbers[i].is)
            return false;
    return c->layers > 0 && c->hidden > 0 && (c->experts > 0 || m->moe.experts == 0);
}

/* By its name, else the one of its shape with the nearest vocabulary; NULL: neither. */
const char *dtp_trace_config_model(struct dtp_arena *a, const struct dtp_run_config *c) {
    const char *const *names, *found = NULL;
    struct dtp_model m;
    size_t n;
    long least_off = 0;
    if (*c->model && dtp_model_load(a, c->model, &m, NULL) == DTP_OK)
        return dtp_arena_strdup(a, m.name);
    if (dtp_model_list(a, &names, &n, NULL) != DTP_OK)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        if (dtp_model_load(a, names[i], &m, NULL) != DTP_OK || !has_shape(&m, c))
            continue;
        long off = c->vocab > 0 ? labs(m.vocab - c->vocab) : 0;
        if (!found || off < least_off) {
            found = names[i];
            least_off = off;
        }
    }
    return found;
}

/* What of the batch it says is of a GPU. */
static bool asks_batch(const struct dtp_run_config *c) {
    return dtp_config_batch(c) == 0 && c->microbatch > 0;
}

static const char *command(struct dtp_arena *a, const struct dtp_run_config *c, bool simulate) {
    const char *model = dtp_trace_config_model(a, c);
    struct dtp_str s = {.a = a};
    dtp_str_printf(&s, "dtplan %s--model ", simulate ? "simulate " : "");
    if (model || *c->model)
        dtp_str_add_word(&s, model ? model : c->model);
    else
        dtp_str_add(&s, "NAME|FILE");
    if (dtp_config_gpus(c) > 0)
        dtp_str_printf(&s, " --gpus %ld", dtp_config_gpus(c));
    else
        dtp_str_add(&s, " --gpus N");
    dtp_str_add(&s, " --cluster C");
    if (c->framework)
        dtp_str_printf(&s, " --framework %s", c->framework);
    if (asks_batch(c))
        dtp_str_add(&s, " --batch B");
    if (simulate) {
        dtp_trace_add_layout(&s, c);
        return s.at;
    }
    if (dtp_config_batch(c) > 0)
        dtp_str_printf(&s, " --batch %ld", dtp_config_batch(c));
    if (c->seq > 0)
        dtp_str_printf(&s, " --seq %ld", c->seq);
    return s.at;
}

void dtp_trace_print_config(struct dtp_arena *a, FILE *f, const struct dtp_run_config *c) {
    const char *model = dtp_trace_config_model(a, c);
    if (model)
        fprintf(f, "  model: %s of the library%s\n", model, *c->model ? "" : ", by its shape");
    else
        fprintf(f, "  model: %s\n",
                *c->model       ? c->model
                : c->layers > 0 ? "none of the library has this shape (models/README.md)"
                                : "not said");
    if (c->adapters)
        fputs(
            "  it trains adapters (LoRA), which are not modelled: below all weights are trained\n",
            f);
    fputs("  cluster: it names no GPUs; C is one of `dtplan clusters` or a file of your own\n", f);
    if (asks_batch(c))
        fprintf(f, "  batch: B is %ld for each data-parallel rank\n",
                c->microbatch * (c->accumulation > 0 ? c->accumulation : 1));
    if (c->zero_file && c->zero_stage == 0)
        fprintf(f, "  ZeRO: Z is the stage in %s\n", c->zero_file);
    fprintf(f, "  what to expect   %s\n", command(a, c, true));
    fprintf(f, "  what is better   %s\n", command(a, c, false));
}

void dtp_trace_write_config(struct dtp_arena *a, struct dtp_json_out *w,
                            const struct dtp_run_config *c) {
    const char *model = dtp_trace_config_model(a, c);
    dtp_json_kv_string(w, "model", model ? model : *c->model ? c->model : NULL);
    dtp_json_kv_bool(w, "adapters", c->adapters);
    dtp_json_kv_string(w, "simulate", command(a, c, true));
    dtp_json_kv_string(w, "plan", command(a, c, false));
}
