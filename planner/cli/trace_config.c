/* trace_config.c: the commands that ask about what a configuration or a log says. */
#include <stdlib.h>
#include <string.h>

#include "models/schedule/schedule.h"
#include "planner/cli/emit.h"
#include "planner/cli/trace_internal.h"
#include "sim/base/text.h"
#include "sim/base/units.h"

/* ---- the layout that it says, as options of dtplan: what `--emit` writes, read back ---- */

static bool is_stack(const struct dtp_run_config *c, const char *begin) {
    return c->framework && strncmp(c->framework, begin, strlen(begin)) == 0;
}

static bool is_titan(const struct dtp_run_config *c) {
    return is_stack(c, "torchtitan");
}

/* torchtitan's pipeline cuts the local batch, by default into single sequences. */
static long microbatch_of(const struct dtp_run_config *c) {
    if (!is_titan(c) || c->pp < 2)
        return c->microbatch;
    return c->pipeline_microbatch > 0 ? c->pipeline_microbatch : 1;
}

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
    if (c->ffn > 0 && (c->gated != m->gated_ffn || (c->experts == 0 && c->ffn != m->ffn)))
        return false;
    if (c->ffn > 0 && c->vocab > 0 && c->untied == m->tied_embeddings)
        return false;
    return c->layers > 0 && c->hidden > 0 && (c->experts > 0 || m->moe.experts == 0);
}

/* Vocabularies are padded to what the tensor-parallel size divides; more rows are another tokenizer's. */
static bool has_vocab(const struct dtp_model *m, const struct dtp_run_config *c) {
    enum { PADDING = 1024 };
    return c->vocab == 0 || labs(m->vocab - c->vocab) <= PADDING;
}

/* Finds it by its name, else the one of its shape with the nearest vocabulary, and of those one with the same
 * gating; NULL: neither. */
static const char *model_of(struct dtp_arena *a, const struct dtp_run_config *c) {
    const char *const *names, *found = NULL;
    struct dtp_model m, of;
    size_t n;
    long least_off = 0;
    if (*c->model && dtp_model_load(a, c->model, &m, NULL) == DTP_OK)
        return dtp_arena_strdup(a, m.name);
    if (dtp_model_list(a, &names, &n, NULL) != DTP_OK)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        if (dtp_model_load(a, names[i], &m, NULL) != DTP_OK || !has_shape(&m, c) ||
            !has_vocab(&m, c))
            continue;
        if (*c->tokenizer && dtp_model_load(a, c->tokenizer, &of, NULL) == DTP_OK &&
            strcmp(of.name, m.name) == 0)
            return names[i];
        long off = 2 * (c->vocab > 0 ? labs(m.vocab - c->vocab) : 0) + (m.gated_ffn != c->gated);
        if (!found || off < least_off) {
            found = names[i];
            least_off = off;
        }
    }
    return found;
}

/* Returns the layers of the whole model; 0: the log gives neither them nor a known model. */
static long layers_of(struct dtp_arena *a, const struct dtp_run_config *c) {
    struct dtp_model m;
    const char *name = c->layers > 0 ? NULL : model_of(a, c);
    return name && dtp_model_load(a, name, &m, NULL) == DTP_OK ? m.layers : c->layers;
}

static bool is_name(const char *name, const char *said) {
    return name && said && strcmp(name, said) == 0;
}

/* Index of the schedule by the names of torchtitan and nanotron; -1: the run has none that is modelled, or does not
 * say. */
static int schedule_of(const struct dtp_run_config *c) {
    for (int k = 0; k < DTP_NSCHEDULES; k++)
        if (is_name(dtp_schedule_kinds[k].torch, c->schedule) ||
            is_name(dtp_schedule_kinds[k].nanotron, c->schedule))
            return k;
    return -1;
}

/* torchtitan's division (distributed/pipeline.py, v0.2): embedding and head count as so many layers, one each
 * unless said; what does not divide goes to the first stages. */
struct division {
    long stages, layers, first_less, last_less;
};

static long layers_of_stage(const struct division *d, long stage) {
    long all = d->layers + d->first_less + d->last_less;
    return all / d->stages + (stage < all % d->stages) - (stage == 0 ? d->first_less : 0) -
           (stage == d->stages - 1 ? d->last_less : 0);
}

/* False: what it says leaves the number of virtual stages open. */
static bool divide(struct dtp_arena *a, const struct dtp_run_config *c, struct division *out) {
    int k = schedule_of(c);
    bool chunked = k >= 0 && dtp_schedule_kinds[k].chunked;
    *out = (struct division){c->pp, layers_of(a, c),
                             c->first_less > 0 || c->first_whole ? c->first_less : 1,
                             c->last_less > 0 || c->last_whole ? c->last_less : 1};
    long ends = out->first_less + out->last_less;
    if (c->layers_a_stage > 0 && !chunked && out->layers == 0)
        out->layers = c->layers_a_stage * c->pp - ends;
    if (out->layers <= 0)
        return false;
    if (chunked) /* two a rank unless said */
        out->stages = c->layers_a_stage > 0
                          ? (out->layers + ends + c->layers_a_stage - 1) / c->layers_a_stage
                          : 2 * c->pp;
    return out->stages <= out->layers + ends && out->stages <= DTP_MAX_STAGES;
}

static void add_titan_stages(struct dtp_str *s, const struct dtp_run_config *c) {
    struct division d;
    int k = schedule_of(c);
    bool known = divide(s->a, c, &d), chunked = k >= 0 && dtp_schedule_kinds[k].chunked;
    if (chunked && known)
        dtp_str_printf(s, " --vpp %ld", d.stages / c->pp);
    else if (chunked)
        dtp_str_add(s, " --vpp V");
    if (!known)
        return;
    if (d.first_less == 1 && d.last_less == 1 && (d.layers + 2) % d.stages == 0) {
        dtp_str_add(s, " --account-for-ends true");
        return;
    }
    dtp_str_add(s, " --layers-per-stage ");
    for (long i = 0; i < d.stages; i++)
        dtp_str_printf(s, "%s%ld", i > 0 ? "," : "", layers_of_stage(&d, i));
}

static void add_pipeline(struct dtp_str *s, const struct dtp_run_config *c) {
    int k = schedule_of(c);
    long per_rank = c->layers_a_chunk > 0 ? layers_of(s->a, c) / c->pp / c->layers_a_chunk : 0;
    long vpp = c->vpp > 1 ? c->vpp : per_rank;
    if (c->layout)
        dtp_str_printf(s, " --layers-per-stage %s", c->layout);
    else if (is_titan(c))
        add_titan_stages(s, c);
    if (c->embedding_counts && c->loss_counts)
        dtp_str_add(s, " --account-for-ends true");
    if (vpp > 1)
        dtp_str_printf(s, " --vpp %ld", vpp);
    if (k >= 0 || vpp > 1)
        dtp_str_printf(s, " --schedule %s",
                       dtp_schedule_names[k >= 0 ? k : dtp_schedule_usual((int)vpp)]);
}

/* FSDP divides all; torchtitan keeps gathered weights in a pipeline. One replica that offloads its optimizer has no
 * stage, whatever DeepSpeed calls it. */
static long zero_of(const struct dtp_run_config *c) {
    bool alone = dtp_config_gpus(c) == 1 && is_stack(c, "deepspeed");
    if (alone && c->offloads_optimizer && !c->offloads_parameters)
        return 0;
    if (c->zero_stage > 0 && c->zero_stage <= 3)
        return c->zero_stage;
    if (is_titan(c))
        return c->pp > 1 ? 2 : 3;
    return is_stack(c, "torch-fsdp") ? 3 : c->distributed_optimizer;
}

static void add_sharding(struct dtp_str *s, const struct dtp_run_config *c) {
    long zero = zero_of(c), cp = c->cp > 0 ? c->cp : 1;
    if (zero > 0)
        dtp_str_printf(s, " --zero-stage %ld", zero);
    else if (c->zero_file && c->zero_stage == 0)
        dtp_str_add(s, " --zero-stage Z");
    if (c->shards > 0 && c->replicas > 1)
        dtp_str_printf(s, " --zero-group %ld", c->shards * cp);
    if (c->offloads_parameters || c->offloads_optimizer)
        dtp_str_printf(s, " --offload %s%s", c->offloads_parameters ? "parameters" : "optimizer",
                       c->offloads_to_nvme ? " --offload-to nvme" : "");
    /* torchtitan's tp has it always; Megatron-Core wants it with experts */
    if ((c->sequence_parallel || c->ep > 1 || is_titan(c)) && c->tp > 1)
        dtp_str_add(s, " --sequence-parallel true");
}

/* Returns the layers of the largest chunk; 0: not known. */
static long most_layers(struct dtp_arena *a, const struct dtp_run_config *c) {
    struct division d = {1, layers_of(a, c), 0, 0};
    long most = 0, n = 0;
    if (c->pp > 1 && c->layout) {
        for (const char *p = c->layout; *p; p++) {
            n = *p == ',' ? 0 : 10 * n + *p - '0';
            most = n > most ? n : most;
        }
        return most;
    }
    if (c->pp > 1 && !divide(a, c, &d))
        return c->layers_a_stage;
    for (long i = 0; i < d.stages; i++)
        most = layers_of_stage(&d, i) > most ? layers_of_stage(&d, i) : most;
    return most;
}

static void add_recompute(struct dtp_str *s, const struct dtp_run_config *c) {
    char names[128];
    if (c->recompute_selective && c->recompute_every > 0) { /* every n-th layer of a part */
        long layers = most_layers(s->a, c) / c->recompute_every;
        dtp_str_add(s, " --recompute full --recompute-layers ");
        if (layers > 0)
            dtp_str_printf(s, "%ld", layers);
        else
            dtp_str_add(s, "R");
    } else if (c->recompute_full) {
        dtp_str_add(s, " --recompute full");
        if (c->recompute_block && c->recompute_layers > 0)
            dtp_str_printf(s, " --recompute-layers %ld", c->recompute_layers);
    } else if (c->recompute_selective) {
        dtp_str_add(s, " --recompute selective");
        if (c->modules)
            dtp_str_printf(s, " --recompute-modules %s",
                           dtp_set_text(dtp_module_names, c->modules, names, sizeof names));
    }
}

void dtp_trace_add_layout(struct dtp_str *s, const struct dtp_run_config *c) {
    /* torchtitan's experts are whole unless said */
    long etp = c->etp > 0 || !is_titan(c) || c->tp < 2 ? c->etp : 1;
    const struct {
        const char *option;
        long value;
    } options[] = {{"tp", c->tp},
                   {"pp", c->pp},
                   {"cp", c->cp > 1 ? c->cp : 0},
                   {"ep", c->ep > 1 ? c->ep : 0},
                   {"etp", c->ep > 1 || (c->experts > 0 && !is_titan(c)) ? etp : 0},
                   {"microbatch-size", microbatch_of(c)},
                   {"batch", dtp_config_batch(c)},
                   {"seq", c->seq}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].value > 0)
            dtp_str_printf(s, " --%s %ld", options[i].option, options[i].value);
    if (c->pp > 1)
        add_pipeline(s, c);
    add_sharding(s, c);
    add_recompute(s, c);
    if (c->ep > 1 && c->ep_overlap)
        dtp_str_add(s, " --ep-overlap 1");
    if (c->ep > 1 && c->ep_per_node)
        dtp_str_add(s, " --ep-per-node 1");
    if (c->fp4 || c->fp8 || c->fp16)
        dtp_str_printf(s, " --dtype %s", c->fp4 ? "fp4" : c->fp8 ? "fp8" : "fp16");
}

/* ---- a configuration ---- */

/* Returns true if the configuration gives only the microbatch of a GPU, so that the reader has to
 * give the global batch. */
static bool asks_batch(const struct dtp_run_config *c) {
    return dtp_config_batch(c) == 0 && c->microbatch > 0;
}

static const char *command(struct dtp_arena *a, const struct dtp_run_config *c, bool simulate) {
    const char *model = model_of(a, c);
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
    const char *model = model_of(a, c);
    struct dtp_model m;
    struct dtp_err err = {0};
    bool known = *c->model && dtp_model_load(a, c->model, &m, &err) == DTP_OK;
    if (model)
        fprintf(f, "  model: %s of the library%s\n", model, known ? "" : ", by its shape");
    else
        fprintf(f, "  model: %s\n",
                *c->model       ? err.msg
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
    const char *model = model_of(a, c);
    dtp_json_kv_string(w, "model", model ? model : *c->model ? c->model : NULL);
    dtp_json_kv_bool(w, "adapters", c->adapters);
    dtp_json_kv_string(w, "simulate", command(a, c, true));
    dtp_json_kv_string(w, "plan", command(a, c, false));
}

/* ---- a log ---- */

static const char *framework_of(const struct dtp_log *log) {
    switch (log->dialect) {
    case DTP_LOG_MEGATRON:
        return "megatron-core";
    case DTP_LOG_NANOTRON:
        return "nanotron";
    case DTP_LOG_TORCHTITAN:
        return "torchtitan";
    case DTP_LOG_DEEPSPEED:
        return "deepspeed";
    case DTP_LOG_NCCL_TESTS:
    case DTP_LOG_OTHER:
    case DTP_NLOG_DIALECTS:
        break;
    }
    return dtp_scalars_tag(&log->scalars, "iteration-time") ? "megatron-core" : NULL;
}

/* "1.15s,60.7GB" of what the log has; "3.2s" to be filled in where it has no step time. */
static void add_measured(struct dtp_str *s, const struct dtp_scalars *scalars) {
    const struct dtp_series *step = dtp_scalars_find(scalars, DTP_QUANTITY_STEP_S),
                            *flops = dtp_scalars_find(scalars, DTP_QUANTITY_FLOPS_PER_GPU),
                            *peak = dtp_scalars_find(scalars, DTP_QUANTITY_PEAK_BYTES);
    struct dtp_series_stats t;
    if (step) {
        dtp_series_stats(step, &t);
        dtp_str_printf(s, " --measured %.6gs", t.median);
    } else if (flops) {
        dtp_series_stats(flops, &t);
        dtp_str_printf(s, " --measured %.5gTF", t.median / DTP_TERA);
    } else {
        dtp_str_add(s, " --measured TIME");
    }
    if (peak) {
        dtp_series_stats(peak, &t);
        dtp_str_printf(s, ",%.5gGB", t.max / DTP_GIGA);
    }
}

const char *dtp_trace_doctor(struct dtp_arena *a, const struct dtp_trace_files *files,
                             const struct dtp_log *log) {
    struct dtp_str s = {.a = a};
    const struct dtp_run_config *c = files->config;
    dtp_str_add(&s, "dtplan doctor");
    add_measured(&s, &log->scalars);
    dtp_str_add(&s, " --model ");
    if (files->model_file)
        dtp_str_add_word(&s, files->model_file);
    else
        dtp_str_add(&s, "NAME|FILE");
    if (c && dtp_config_gpus(c) > 0)
        dtp_str_printf(&s, " --gpus %ld", dtp_config_gpus(c));
    else
        dtp_str_add(&s, " --gpus N");
    dtp_str_add(&s, " --cluster C");
    const char *framework = framework_of(log);
    if (framework)
        dtp_str_printf(&s, " --framework %s", framework);
    if (c) {
        dtp_trace_add_layout(&s, c);
        return s.at;
    }
    const struct dtp_series *batch = dtp_scalars_find(&log->scalars, DTP_QUANTITY_SEQUENCES);
    dtp_str_add(&s, " --tp T --pp P --microbatch-size M");
    if (batch && batch->n > 0)
        dtp_str_printf(&s, " --batch %.0f", batch->at[batch->n - 1].value);
    return s.at;
}
