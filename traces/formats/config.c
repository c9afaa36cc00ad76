#include "traces/formats/config.h"

#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "models/model/modules.h"
#include "models/plan/plan.h"
#include "sim/base/json.h"
#include "sim/base/text.h"
#include "traces/formats/lines.h"
#include "traces/formats/trainers.h"
#include "traces/formats/format.h"
#include "traces/catalog.h"

enum { KEY_BYTES = 96, VALUE_BYTES = 4096, NAME_PART = 40 };

static const struct {
    const char *name, *words;
    size_t offset;
} fields[] = {
#define X(field, words) {#field, words, offsetof(struct dtp_run_config, field)},
    DTP_CONFIG_FIELDS(X)
#undef X
};
enum { NUM_FIELDS = sizeof fields / sizeof *fields };

/* Settings that only some stacks have, the surest first. */
static const struct {
    const char *key, *framework;
} marks[] = {{"use_megatron_fsdp", "megatron-bridge"},
             {"grad_reduce_in_bf16", "megatron-bridge"}, /* its file has 16-bit gradients */
             {"tensor_parallelism", "nemo"},
             {"activations_checkpoint_granularity", "nemo"},
             {"data_parallel_shard_degree", "torchtitan"},
             {"tensor_parallel_degree", "torchtitan"},
             {"tp_mode", "nanotron"},
             {"pp_engine", "nanotron"},
             {"batch_accumulation_per_replica", "nanotron"},
             {"pipe_parallel_size", "megatron-deepspeed"},
             {"tensor_model_parallel_size", "megatron-core"},
             {"_component_", "torchtune"},
             {"zero_optimization", "deepspeed"},
             {"deepspeed", "deepspeed"},
             {"deepspeed_config", "deepspeed"},
             {"sharding_strategy", "torch-fsdp1"},
             {"fsdp", "torch-fsdp2"},
             {"fsdp_config", "torch-fsdp2"},
             {"per_device_train_batch_size", "hf"},
             {"sequence_len", "hf"}};
enum { NUM_MARKS = sizeof marks / sizeof *marks };

struct variable {
    const char *name, *value;
    const struct variable *before;
};

struct reading {
    struct dtp_arena *a;
    struct dtp_run_config *out;
    const struct variable *last;
    char name[VALUE_BYTES];  /* the last setting of that name */
    char section[KEY_BYTES]; /* the last key without a value */
    char table[KEY_BYTES];   /* a table of TOML, whose settings follow */
    int mark;
    bool whole; /* it says that no adapters are trained */
};

static bool is_true(const char *value) {
    return *value == '\0' || strcmp(value, "true") == 0 || strcmp(value, "True") == 0 ||
           strcmp(value, "1") == 0;
}

static bool set_flags(struct dtp_run_config *c, const char *key, const char *value) {
    bool on = is_true(value);
    if (strcmp(key, "swiglu") == 0)
        c->gated |= on;
    else if (strcmp(key, "untie_embeddings_and_output_weights") == 0)
        c->untied |= on;
    else if (strcmp(key, "tie_word_embeddings") == 0)
        c->untied = !on;
    else if (strcmp(key, "is_llama_config") == 0)
        c->gated |= on;
    else if (dtp_one_of("hidden_act activation", key))
        c->gated |= strstr(value, "silu") != NULL || strstr(value, "swiglu") != NULL;
    else if (dtp_one_of(
                 "recompute_granularity activations_checkpoint_granularity mode remat_policy",
                 key)) {
        c->recompute_full = strcmp(value, "full") == 0;
        c->recompute_selective = strcmp(value, "selective") == 0;
    } else if (dtp_one_of("recompute_method activations_checkpoint_method",
                          key)) /* uniform: layers of a unit, all recomputed */
        c->recompute_block = strcmp(value, "block") == 0;
    else if (strcmp(key, "recompute_activations") == 0)
        c->recompute_selective |= on;
    else if (dtp_one_of(
                 "activation_checkpointing gradient_checkpointing use_gradient_checkpointing "
                 "enable_activation_checkpointing enable_gradient_checkpointing "
                 "checkpoint_activations fsdp_activation_checkpointing recompute_layer",
                 key))
        c->recompute_full |= on;
    else if (dtp_one_of("sequence_parallel sequence_parallelism", key))
        c->sequence_parallel |= on;
    else if (strcmp(key, "account_for_embedding_in_pipeline_split") == 0)
        c->embedding_counts |= on;
    else if (strcmp(key, "account_for_loss_in_pipeline_split") == 0)
        c->loss_counts |= on;
    else if (dtp_one_of("fp8 fp8_format PR", key))
        c->fp8 |= !dtp_one_of("false False null None", value) &&
                  (strcmp(key, "PR") != 0 || strcmp(value, "fp8") == 0);
    else if (strcmp(key, "fp8_recipe") == 0)
        c->scales_now = strcmp(value, "delayed") != 0;
    else if (strcmp(key, "fp4_format") == 0)
        c->fp4 = true;
    else if (strcmp(key, "fp16") == 0)
        c->fp16 |= on;
    else if (strcmp(key, "tp_mode") == 0) /* nanotron */
        c->sequence_parallel = strcmp(value, "REDUCE_SCATTER") == 0;
    else if (dtp_one_of("overlap_moe_expert_parallel_comm A2A_OVERLAP", key))
        c->ep_overlap |= on;
    else if (strcmp(value, "deepep") == 0)
        c->ep_per_node = true;
    else
        return false;
    return true;
}

/* Adapters, the optimizer and types, of which dtplan has the usual: all weights, Adam, bf16. */
static bool set_usual(struct dtp_run_config *c, const char *key, const char *value) {
    bool adam = strstr(value, "adam") || strstr(value, "Adam");
    if (dtp_one_of("adapter finetuning_type tuner_type train_type peft peft_scheme", key)) {
        bool all = !*value || dtp_one_of("full none None null", value);
        c->adapters |= !all;
        return all;
    }
    if (dtp_one_of("lora_r lora_rank lora_alpha", key)) {
        c->adapters = true;
        return false;
    }
    if (dtp_one_of("optim optimizer", key))
        return adam && !strstr(value, "8bit") && !strstr(value, "paged") &&
               !strstr(value, "galore");
    if (!dtp_one_of("bf16 torch_dtype mixed_precision precision dtype", key))
        return false;
    c->fp16 |= strstr(value, "fp16") != NULL || strstr(value, "float16") == value;
    c->fp8 |= strstr(value, "fp8") != NULL;
    return dtp_one_of("fp16 float16 fp8 bf16 bfloat16 bf16-mixed true True auto 1", value) ||
           !*value;
}

static bool set_sharding(struct dtp_run_config *c, const char *key, const char *value) {
    bool on = is_true(value);
    if (strcmp(key, "use_distributed_optimizer") == 0)
        c->distributed_optimizer |= on;
    else if (dtp_one_of("optimizer_cpu_offload OPTIMIZER_OFFLOAD", key))
        c->offloads_optimizer |= on;
    else if (dtp_one_of("fsdp_offload_params param_offload", key)) /* the states go along */
        c->offloads_optimizer = c->offloads_parameters = on;
    else if (dtp_one_of("sharding_strategy fsdp_sharding_strategy", key)) /* FSDP1, by its names */
        c->zero_stage = strcmp(value, "SHARD_GRAD_OP") == 0 ? 2 : 3;
    else if (strcmp(key, "data_parallel_sharding_strategy") == 0) /* Megatron-FSDP */
        c->zero_stage = strcmp(value, "optim_grads_params") == 0 ? 3
                        : strcmp(value, "optim_grads") == 0      ? 2
                                                                 : c->zero_stage;
    else
        return false;
    return true;
}

static bool set_pipeline(struct reading *r, const char *key, const char *value) {
    struct dtp_run_config *c = r->out;
    if (dtp_one_of("pipeline_parallel_schedule pp_engine", key) && *value)
        c->schedule = dtp_arena_strdup(r->a, value);
    else if (strcmp(key, "pipeline_parallel_first_stage_less_layers") == 0)
        c->first_whole = strcmp(value, "0") == 0;
    else if (strcmp(key, "pipeline_parallel_last_stage_less_layers") == 0)
        c->last_whole = strcmp(value, "0") == 0;
    else if (strcmp(key, "fsdp_reshard_after_forward") == 0 && dtp_one_of("never always", value))
        c->zero_stage = *value == 'n' ? 2 : 3;
    else if (strcmp(key, "strategy") == 0 && strcmp(r->section, "distributed") == 0)
        c->framework = strcmp(value, "fsdp2") == 0           ? "torch-fsdp2"
                       : strcmp(value, "megatron_fsdp") == 0 ? "megatron-bridge"
                       : strcmp(value, "ddp") == 0           ? "torch-ddp"
                                                             : c->framework;
    else if (strcmp(key, "enable_async_tensor_parallel") == 0)
        c->async_tp = is_true(value);
    else if (strcmp(key, "enable") == 0 && strcmp(r->section, "compile") == 0)
        c->eager = !is_true(value);
    else
        return false;
    return true;
}

/* JSON of DeepSpeed: "fp16": {"enabled": true}, "offload_optimizer": {"device": "cpu"}; accelerate's
 * offload_optimizer_device. */
static bool set_section(struct reading *r, const char *key, const char *value) {
    struct dtp_run_config *c = r->out;
    bool flat = dtp_one_of("offload_optimizer_device offload_param_device", key);
    const char *what = flat ? key : r->section;
    bool optimizer = strncmp(what, "offload_optimizer", strlen("offload_optimizer")) == 0;
    if (strcmp(key, "enabled") == 0 && strcmp(r->section, "fp16") == 0) {
        c->fp16 = is_true(value);
        return true;
    }
    if (!(flat || strcmp(key, "device") == 0) || !*value || !dtp_one_of("cpu nvme none", value) ||
        !(optimizer || strncmp(what, "offload_param", strlen("offload_param")) == 0))
        return false;
    if (strcmp(value, "none") == 0)
        return true;
    c->offloads_optimizer |= optimizer;
    c->offloads_parameters |= !optimizer;
    c->offloads_to_nvme |= strcmp(value, "nvme") == 0;
    return true;
}

/* Names: of the model, or as torchtitan has it, a name and then a flavor. */
static bool set_names(struct reading *r, const char *key, const char *value) {
    struct dtp_run_config *c = r->out;
    bool read = false;
    for (int i = 0; i < NUM_MARKS; i++)
        if (strcmp(marks[i].key, key) == 0) {
            r->mark = i < r->mark ? i : r->mark;
            c->framework = marks[r->mark].framework;
            read = true;
        }
    if ((dtp_one_of(
             "base_model model_name_or_path pretrained_model_name_or_path pretrain MODEL model "
             "model_name",
             key) ||
         (strcmp(key, "path") == 0 && strcmp(r->section, "model") == 0)) &&
        *value && *value != '(' && *value != '{') {
        c->found += !*c->model;
        snprintf(c->model, sizeof c->model, "%.*s", DTP_CONFIG_TEXT - 1, value);
        return true;
    }
    if (dtp_one_of("tokenizer_model tokenizer_name_or_path tokenizer_name", key)) {
        snprintf(c->tokenizer, sizeof c->tokenizer, "%.*s", DTP_CONFIG_TEXT - 1, value);
        return true;
    }
    if (strcmp(key, "flavor") == 0 && !*c->model) {
        snprintf(c->model, sizeof c->model, "%.*s-%.*s", NAME_PART, r->name, NAME_PART, value);
        return true;
    }
    const char *last = strrchr(value, '.'); /* model: torchtune.models.llama3.llama3_70b */
    if (strcmp(key, "_component_") == 0 && strcmp(r->section, "model") == 0 && last)
        snprintf(c->model, sizeof c->model, "%.*s", DTP_CONFIG_TEXT - 1, last + 1);
    if (!*value || *value == '{')
        snprintf(r->section, sizeof r->section, "%s", key);
    if (strcmp(key, "pipeline_model_parallel_layout") == 0 && *value &&
        strlen(value) < VALUE_BYTES - 1) { /* else it may have been cut */
        c->layout = dtp_plan_layers_of_layout(r->a, value);
        return true;
    }
    if (strcmp(key, "name") == 0)
        snprintf(r->name, sizeof r->name, "%s", value);
    if (!dtp_one_of("deepspeed deepspeed_config deepspeed_config_file", key))
        return read || (strcmp(key, "name") == 0 && strcmp(r->section, "model") == 0);
    if (c->zero_stage > 0)
        return true;
    if (strstr(value, ".json"))
        c->zero_file = dtp_arena_strdup(r->a, value);
    for (const char *p = value; *p; p++) /* .../zero3.json, ds_z3_config.json */
        if ((*p == 'o' || *p == 'z') && (p[1] >= '1' && p[1] <= '3'))
            c->zero_stage = p[1] - '0';
    return true;
}

/* MaxText's axes within a slice and between slices, which multiply. */
static bool set_mesh(struct dtp_run_config *c, const char *key, long degree) {
    const struct {
        const char *axis;
        long *to;
    } axes[] = {{"fsdp_parallelism", &c->shards}, {"data_parallelism", &c->replicas},
                {"tensor_parallelism", &c->tp},   {"pipeline_parallelism", &c->pp},
                {"context_parallelism", &c->cp},  {"expert_parallelism", &c->ep}};
    if (strncmp(key, "ici_", 4) != 0 && strncmp(key, "dcn_", 4) != 0)
        return false;
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
        if (strcmp(key + 4, axes[i].axis) == 0) {
            long now = *axes[i].to > 0 ? *axes[i].to : 1;
            c->found += *axes[i].to == 0;
            *axes[i].to = degree < INT_MAX / now ? now * degree : INT_MAX;
            return true;
        }
    return false;
}

/* Returns true if something has read it. */
static bool set(struct reading *r, const char *key, const char *value) {
    struct dtp_run_config *c = r->out;
    char *end;
    long v = strtol(value, &end, 10);
    bool read = false, whole = *end == '\0' || *end == ' ' || strcmp(end, ".0") == 0;
    bool number = end != value && whole && v > 0 && v < INT_MAX;
    if (strcmp(key, "batch_size") == 0 && c->framework && strcmp(c->framework, "torchtune") == 0)
        key = "micro_batch_size";
    if (strcmp(key, "batch_size") == 0 && strcmp(r->section, "training") == 0)
        key = "local_batch_size"; /* torchtitan until 0.1 */
    if (dtp_one_of("max_prompt_length max_response_length prompt_max_len generate_max_len", key) &&
        number) {
        c->found += c->seq == 0;
        c->seq += v; /* a sequence has both */
        return true;
    }
    if (strcmp(key, "train_batch_size") == 0 && strcmp(r->section, "data") == 0) {
        c->generates = true; /* prompts of a round, not sequences of a step */
        return true;
    }
    if (set_mesh(c, key, number ? v : 1))
        return true;
    if (strcmp(key, "stage") == 0 && strcmp(r->section, "zero_optimization") == 0)
        key = "zero_stage";
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        long *to = (long *)(void *)((char *)c + fields[i].offset);
        if (!dtp_one_of(fields[i].words, key))
            continue;
        read |= number || (end != value && v <= 0); /* 0 and -1: what dtplan takes unless told */
        if (!number)
            continue;
        c->found += *to == 0;
        c->changed |= (uint64_t)(*to != 0 && *to != v) << i;
        *to = v;
    }
    read |= set_flags(c, key, value);
    read |= set_sharding(c, key, value);
    read |= set_usual(c, key, value);
    read |= set_pipeline(r, key, value);
    read |= set_section(r, key, value);
    return set_names(r, key, value) || read;
}

/* "$TP", "${TP", "${TP:-8" (its end is cut off): the value, else the default; "" where neither is known. */
static const char *value_of(const struct reading *r, const char *text) {
    if (text[0] != '$')
        return text;
    text += 1 + (text[1] == '{');
    size_t n = 0;
    while (isalnum((unsigned char)text[n]) || text[n] == '_')
        n++;
    for (const struct variable *v = r->last; v; v = v->before)
        if (strlen(v->name) == n && strncmp(v->name, text, n) == 0)
            return v->value;
    return strncmp(text + n, ":-", 2) == 0 ? text + n + 2 : "";
}

/* Takes the next key and value at *at, which moves past them; several may stand on a command line. The last part of
 * "a.b.key" counts. assigned: NAME=value without blanks, a variable of a script. */
static bool take_pair(const char **at, char *key, char *value, bool *assigned, bool *option) {
    const char *p = *at + strspn(*at, " \t-\"'{,");
    bool dashes = p - *at > 1 && p[-1] == '-' && p[-2] == '-';
    size_t n = 0;
    for (; isalnum((unsigned char)*p) || strchr("_-.", *p ? *p : ' '); p++) {
        if (*p == '.')
            n = 0;
        else if (n < KEY_BYTES - 1)
            key[n++] = *p == '-' ? '_' : *p;
    }
    key[n] = '\0';
    if (n == 0)
        return false;
    *assigned = *p == '=';
    p += strspn(p, "\"'");
    p += strspn(p, " \t");
    *option = dashes || ((*p == ':' || *p == '=') && !isupper((unsigned char)*key));
    p += *p == ':' || *p == '=';
    p += strspn(p, " \t\"'");
    n = 0;
    if (strncmp(p, "--", 2) != 0)
        for (; *p; p++) {
            bool quoted = n > 1 && value[n - 2] == ':' && value[n - 1] == '-' && strchr("\"'", *p);
            if (!quoted && strchr(" \t\"',}#\\", *p)) /* in ${A:-"b"} b is a part */
                break;
            if (!quoted && n < VALUE_BYTES - 1 && !iscntrl((unsigned char)*p))
                value[n++] = *p;
        }
    value[n] = '\0';
    *at = p;
    return true;
}

/* torchtitan's [["tok_embeddings", "layers.0"], ["layers.1", ...]], in one line. */
static void take_parts(struct reading *r, const char *rest) {
    static const char layer[] = "\"layers.";
    struct dtp_str s = {.a = r->a};
    int n = 0, parts = 0;
    for (const char *p = rest; *p; p++) {
        n += strncmp(p, layer, sizeof layer - 1) == 0;
        if (*p != ']' || p == rest || p[-1] != '"')
            continue;
        dtp_str_printf(&s, "%s%d", parts++ > 0 ? "," : "", n);
        n = 0;
    }
    r->out->layout = s.at;
}

/* Names of modules from `value` on to the next that is none: "mlp moe", "[mlp, moe]". */
static void take_modules(struct dtp_run_config *c, const char *value, const char *rest) {
    char word[VALUE_BYTES];
    for (int i = 0; i < 2; i++)
        for (const char *p = i == 0 ? value : rest; *p;) {
            size_t skip = strspn(p, " \t,[]\"'}"), n = strcspn(p + skip, " \t,[]\"'}");
            snprintf(word, sizeof word, "%.*s", (int)n, p + skip);
            int module = dtp_name_index(dtp_module_names, word);
            if (module < 0)
                break;
            c->modules |= 1 << module;
            p += skip + n;
        }
}

static void take_line(struct reading *r, const char *line) {
    static const char sbatch[] = "#SBATCH", *const prefixes[] = {"export ", "local "};
    char key[KEY_BYTES], value[VALUE_BYTES];
    bool assigned, option;
    const char *at = line + strspn(line, " \t");
    bool json = *at == '{' || *at == '"' || *at == '}';
    const char *table = r->table;
    if (strncmp(at, sbatch, sizeof sbatch - 1) == 0)
        at += sizeof sbatch - 1;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(at, prefixes[i], strlen(prefixes[i])) == 0)
            at += strlen(prefixes[i]);
    if (*at == '[' && isalpha((unsigned char)at[1])) { /* a table of TOML */
        snprintf(r->section, sizeof r->section, "%.*s", (int)strcspn(at + 1, "]\n"), at + 1);
        snprintf(r->table, sizeof r->table, "%s", r->section);
        return;
    }
    if (*at == '#' && at[1] != '!' && strncmp(at, sbatch, sizeof sbatch - 1) != 0)
        return;
    while (take_pair(&at, key, value, &assigned, &option)) {
        const char *meant = value_of(r, value);
        bool used = set(r, key, meant);
        if (option) {
            const char *path = *table ? dtp_arena_printf(r->a, "%s.%s", table, key) : key;
            struct dtp_setting *s =
                dtp_settings_add(&r->out->settings, path, *meant ? meant : value);
            used |= strcmp(key, "recompute_modules") == 0 ||
                    strcmp(key, "module_fqns_per_model_part") == 0;
            s->use = used ? DTP_SETTING_USED : DTP_SETTING_UNKNOWN;
        }
        if (assigned) {
            struct variable *v = DTP_NEW(r->a, struct variable, 1);
            *v = (struct variable){dtp_arena_strdup(r->a, key), dtp_arena_strdup(r->a, meant),
                                   r->last};
            r->last = v;
        }
        if (strcmp(key, "recompute_modules") == 0)
            take_modules(r->out, value, at);
        if (strcmp(key, "module_fqns_per_model_part") == 0)
            take_parts(r, at);
        const char *next = strstr(at, "--"), *word = at + strspn(at, " \t}\"'");
        size_t n = strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
        if (assigned && n > 0 && word[n] == '=') /* A=1 B=2 command */
            next = word;
        if (json && !next) /* several on a line */
            next = value[0] == '{' ? at : strpbrk(at, ",{");
        if (!next) /* no more of a command line */
            break;
        at = next;
    }
}

/* Delayed scales are gone when the backward wants them of what is made again (transformer_config.py refuses it). */
static void name_variant(struct dtp_run_config *c) {
    const char *f = c->framework ? c->framework : "";
    bool early = (c->modules & (DTP_BIT_LAYERNORM | DTP_BIT_MOE_ACT)) != 0;
    if (strcmp(f, "torchtitan") == 0 && (c->async_tp || c->eager))
        c->framework = c->eager ? "torchtitan-eager" : "torchtitan-async-tp";
    if (strcmp(f, "megatron-core") == 0 && c->fp8 && (c->scales_now || early))
        c->framework = "megatron-bridge";
}

/* Parts of a path that belong to something other than the training step. */
static const struct {
    const char *part, *whose;
    enum dtp_setting_use use;
} others[] = {{"lighteval", "of the evaluation, another job", DTP_SETTING_NONE},
              {"evaluation", "of the evaluation", DTP_SETTING_NONE},
              {"validation", "of the evaluation", DTP_SETTING_NONE},
              {"validation_dataset", "of the evaluation", DTP_SETTING_NONE},
              {"rollout", "of the generation, not of the training step", DTP_SETTING_LEFT_OUT},
              {"generation", "of the generation, not of the training step", DTP_SETTING_LEFT_OUT},
              {"teacher", "of the teacher's forward", DTP_SETTING_LEFT_OUT},
              {"critic", "of the critic, a second model", DTP_SETTING_LEFT_OUT},
              {"reward_model", "of the reward model", DTP_SETTING_LEFT_OUT},
              {"ref", "of the reference model's forward", DTP_SETTING_LEFT_OUT}};

static bool has_part(const char *path, const char *part) {
    size_t n = strlen(part);
    for (const char *at = path; at; at = strchr(at, '.')) {
        at += *at == '.';
        if (strncmp(at, part, n) == 0 && (at[n] == '.' || at[n] == '\0'))
            return true;
    }
    return false;
}

static bool is_others(struct dtp_setting *s) {
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (has_part(s->path, others[i].part)) {
            s->use = others[i].use;
            s->why = others[i].whose;
            return true;
        }
    return false;
}

/* A block of text in a setting may be a command. */
static void take_text(struct reading *r, const char *text) {
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, "\n");
        take_line(r, dtp_arena_printf(r->a, "%.*s", (int)n, at));
        at += n + (at[n] == '\n');
    }
}

static void take_setting(struct reading *r, struct dtp_setting *s) {
    const char *value = s->value, *refers;
    r->out->generates |= has_part(s->path, "rollout") || strncmp(s->key, "vllm_", 5) == 0;
    if (is_others(s))
        return;
    if (strcmp(s->section, "fsdp_config") == 0)
        set_names(r, s->section, "{");
    snprintf(r->section, sizeof r->section, "%s", s->section);
    if (dtp_one_of("peft lora", s->opens ? s->key : s->section)) {
        r->out->adapters = true;
        s->use = DTP_SETTING_LEFT_OUT;
        s->why = "adapters: all weights are trained in the answer";
        return;
    }
    if (s->opens) {
        s->use = set_names(r, s->key, "{") ? DTP_SETTING_USED : DTP_SETTING_NONE;
        return;
    }
    if (dtp_one_of("adapter finetuning_type tuner_type train_type", s->key))
        r->whole = !value || dtp_one_of("full none None", value);
    if (!value) {
        s->use = DTP_SETTING_NONE;
        s->why = "empty: the trainer's default";
        return;
    }
    if (strncmp(value, "${", 2) == 0 && value[strlen(value) - 1] == '}') {
        refers = dtp_settings_value(
            &r->out->settings, dtp_arena_printf(r->a, "%.*s", (int)strlen(value) - 3, value + 2));
        value = refers ? refers : value;
    }
    if (strchr(value, '\n') || strstr(value, " --"))
        take_text(r, value);
    else if (set(r, s->key, value))
        s->use = DTP_SETTING_USED;
    if (strcmp(s->key, "recompute_modules") == 0) {
        take_modules(r->out, value, "");
        s->use = DTP_SETTING_USED;
    }
}

static enum dtp_status read_text(struct dtp_arena *a, struct dtp_source *source, struct dtp_str *to,
                                 struct dtp_err *err) {
    enum { MOST_BYTES = 1 << 24 };
    char block[1 << 14];
    size_t n = sizeof block;
    to->a = a;
    dtp_str_add(to, "");
    while (n == sizeof block) {
        DTP_TRY(dtp_source_read(source, block, sizeof block, &n, err));
        dtp_str_addn(to, block, n);
        if (to->n > MOST_BYTES)
            return dtp_fail(err, DTP_EINPUT, "%s: too long for a configuration",
                            dtp_source_name(source));
    }
    return DTP_OK;
}

static enum dtp_status take_lines(struct reading *r, const char *name, const struct dtp_str *text,
                                  struct dtp_err *err) {
    struct dtp_lines l;
    struct dtp_source *again;
    enum dtp_status status;
    char *line;
    DTP_TRY(dtp_source_memory(r->a, name, text->at, text->n, &again, err));
    dtp_lines_init(&l, r->a, again);
    while (dtp_lines_next(&l, &line, &status, err))
        take_line(r, line);
    dtp_source_close(again);
    return status;
}

static void take_settings(struct reading *r) {
    for (size_t i = 0; i < r->out->settings.n; i++)
        take_setting(r, &r->out->settings.at[i]);
    r->out->adapters &= !r->whole;
}

/* Leaves the launches that say something of a model or a layout; false: none does. */
static bool keep_launches(struct dtp_arena *a, struct dtp_script *script) {
    size_t kept = 0;
    for (size_t i = 0; i < script->nlaunches; i++) {
        struct dtp_run_config c = {.settings.a = a};
        struct reading *r = DTP_NEW(a, struct reading, 1);
        *r = (struct reading){.a = a, .out = &c, .mark = NUM_MARKS};
        for (size_t k = 0; k < script->launch[i].settings.n; k++) {
            struct dtp_setting one = script->launch[i].settings.at[k];
            take_setting(r, &one);
        }
        if (c.found > 0)
            script->launch[kept++] = script->launch[i];
    }
    script->nlaunches = kept;
    return kept > 0;
}

/* "[table]" begins a line of TOML only. */
static bool is_toml(const char *text) {
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (*line == '[' && (isalpha((unsigned char)line[1]) || line[1] == '['))
            if (line[1] != '[' || isalpha((unsigned char)line[2]))
                return true;
    return false;
}

static enum dtp_status take_any(struct reading *r, const char *name, const struct dtp_str *text,
                                int launch, struct dtp_err *err) {
    struct dtp_run_config *out = r->out;
    struct dtp_script *script;
    if (dtp_settings_read_yaml(&out->settings, text->at, text->n)) {
        take_settings(r);
        return DTP_OK;
    }
    script = DTP_NEW(r->a, struct dtp_script, 1);
    script->a = r->a;
    if (!is_toml(text->at) && strlen(text->at) == text->n)
        dtp_script_read(script, text->at);
    if (!keep_launches(r->a, script))
        return take_lines(r, name, text, err);
    out->script = script;
    out->launch = launch > 0 && launch <= (int)script->nlaunches ? launch - 1 : 0;
    out->settings = script->launch[out->launch].settings;
    take_settings(r);
    return DTP_OK;
}

enum dtp_status dtp_config_read_launch(struct dtp_arena *a, struct dtp_source *source, int launch,
                                       struct dtp_run_config *out, struct dtp_err *err) {
    struct reading r = {.a = a, .out = out, .mark = NUM_MARKS};
    struct dtp_str text = {.a = a};
    *out = (struct dtp_run_config){.settings.a = a};
    DTP_TRY(read_text(a, source, &text, err));
    DTP_TRY(take_any(&r, dtp_source_name(source), &text, launch, err));
    name_variant(out);
    if (out->found == 0)
        return dtp_fail(err, DTP_EINPUT, "%s: no line of it says anything of a model or a layout",
                        dtp_source_name(source));
    return DTP_OK;
}

enum dtp_status dtp_config_read(struct dtp_arena *a, struct dtp_source *source,
                                struct dtp_run_config *out, struct dtp_err *err) {
    return dtp_config_read_launch(a, source, 0, out, err);
}

enum { GPT_FFN = 4 };

/* Their product, INT_MAX where it is more; what is not said is 1. */
static long product(const long *of, size_t n) {
    long out = 1;
    for (size_t i = 0; i < n; i++) {
        long v = of[i] > 0 ? of[i] : 1;
        out = v < INT_MAX / out ? out * v : INT_MAX;
    }
    return out;
}

/* Data parallel ranks that it says or implies, as DeepSpeed's batch = microbatch x accumulation x ranks; 0: neither. */
static long replicas_of(const struct dtp_run_config *c) {
    long each = product((long[]){c->microbatch, c->accumulation}, 2);
    if (c->dp > 0 || c->shards > 0)
        return c->dp > 0 ? c->dp : product((long[]){c->shards, c->replicas}, 2);
    return c->microbatch > 0 && c->accumulation > 0 ? c->global_batch / each : 0;
}

static long gpus_said(const struct dtp_run_config *c) {
    return c->gpus > 0        ? c->gpus
           : c->node_gpus > 0 ? product((long[]){c->nodes, c->node_gpus}, 2)
                              : 0;
}

long dtp_config_gpus(const struct dtp_run_config *c) {
    long dp = replicas_of(c);
    long dense = product((long[]){c->tp, c->cp}, 2), experts = product((long[]){c->ep, c->etp}, 2);
    long least = product((long[]){dense > experts ? dense : experts, c->pp}, 2);
    long said = gpus_said(c);
    if (said == 0 && dp > 0)
        said = product((long[]){dp, dense, c->pp}, 3);
    return said > 0 && said < least ? least : said;
}

long dtp_config_batch(const struct dtp_run_config *c) {
    bool titan = c->dp == 0 && c->shards > 0; /* no accumulation unless it says a batch */
    long accumulation = titan ? 1 : c->accumulation;
    long dp = titan       ? product((long[]){c->shards, c->replicas}, 2)
              : c->dp > 0 ? c->dp
                          : gpus_said(c) / product((long[]){c->tp, c->cp, c->pp}, 3);
    if (c->global_batch > 0)
        return c->global_batch;
    long batch = product((long[]){c->microbatch, accumulation, dp}, 3);
    return c->microbatch > 0 && accumulation > 0 && dp > 0 && batch < INT_MAX ? batch : 0;
}

bool dtp_config_write_model(FILE *f, const struct dtp_run_config *c) {
    struct dtp_json_out w;
    for (size_t i = 0; i < c->settings.n; i++)
        if (dtp_one_of("hybrid_override_pattern hybrid_layer_pattern", c->settings.at[i].key))
            return false; /* state-space layers among those of attention */
    if (c->layers == 0 || c->hidden == 0 || c->heads == 0 || c->vocab == 0 || c->seq == 0 ||
        c->experts > 0)
        return false;
    dtp_json_begin(&w, f, 2);
    dtp_json_object(&w);
    dtp_json_kv_string(&w, "title", "from a training configuration");
    dtp_json_kv_string(&w, "family", c->gated ? "llama" : "gpt");
    dtp_json_kv_int(&w, "layers", c->layers);
    dtp_json_kv_int(&w, "hidden", c->hidden);
    dtp_json_kv_int(&w, "heads", c->heads);
    if (c->kv_heads > 0)
        dtp_json_kv_int(&w, "kv_heads", c->kv_heads);
    dtp_json_kv_int(&w, "ffn", c->ffn > 0 ? c->ffn : GPT_FFN * c->hidden);
    dtp_json_kv_int(&w, "vocab", c->vocab);
    dtp_json_kv_int(&w, "seq", c->seq);
    dtp_json_kv_bool(&w, "tied_embeddings", !c->untied);
    dtp_json_kv_string(&w, "source", "the configuration of the run");
    dtp_json_end(&w);
    return true;
}

/* ---- the row of the format ---- */

/* A text is taken for a log first. */
static bool is_config(const struct dtp_format_head *h) {
    static const char *const keys[] = {"num_hidden_layers", "zero_optimization",
                                       "train_micro_batch_size_per_gpu", "train_batch_size",
                                       "n_layers"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (dtp_head_json(h) == '{' && dtp_head_has_key(h, 1, keys[i]))
            return true;
    return false;
}

static enum dtp_status read_item(struct dtp_arena *a, const struct dtp_visited *v,
                                 const struct dtp_format_options *o, void **content,
                                 struct dtp_err *err) {
    struct dtp_run_config *c = *content = DTP_NEW(a, struct dtp_run_config, 1);
    DTP_TRY(dtp_config_read_launch(a, v->source, o->launch, c, err));
    return dtp_trainers_judge(&c->settings, err);
}

static long field_of(const struct dtp_run_config *c, int i) {
    return *(const long *)(const void *)((const char *)c + fields[i].offset);
}

static void print_changed(FILE *f, const struct dtp_run_config *c) {
    const char *comma = "  several values, of which the last is taken: ";
    for (int i = 0; i < NUM_FIELDS; i++)
        if (c->changed >> i & 1) {
            fprintf(f, "%s%s", comma, fields[i].name);
            comma = ", ";
        }
    fputs(c->changed ? "\n" : "", f);
}

static void print_script(FILE *f, const struct dtp_run_config *c) {
    const struct dtp_script *s = c->script;
    for (size_t i = 0; s->nlaunches > 1 && i < s->nlaunches; i++)
        fprintf(f, "  launch %zu%s, line %d: %s\n", i + 1, (int)i == c->launch ? " (this one)" : "",
                s->launch[i].line, s->launch[i].command);
    for (size_t i = 0; i < s->nbranches; i++)
        fprintf(f, "%s    line %d %s: %s\n", i == 0 ? "  variants\n" : "", s->branch[i].line,
                s->branch[i].taken ? "taken" : "not taken", s->branch[i].condition);
    for (size_t i = 0; i < s->nunread; i++)
        fprintf(f, "%s%s%s", i == 0 ? "  not read: " : ", ", s->unread[i],
                i + 1 == s->nunread ? "\n" : "");
}

static void write_script(struct dtp_json_out *w, const struct dtp_run_config *c) {
    const struct dtp_script *s = c->script;
    dtp_json_kv_int(w, "launch", c->launch + 1);
    dtp_json_put_key(w, "launches");
    dtp_json_array(w);
    for (size_t i = 0; i < s->nlaunches; i++) {
        dtp_json_object(w);
        dtp_json_kv_int(w, "line", s->launch[i].line);
        dtp_json_kv_string(w, "command", s->launch[i].command);
        dtp_json_end(w);
    }
    dtp_json_end(w);
    dtp_json_put_key(w, "variants");
    dtp_json_array(w);
    for (size_t i = 0; i < s->nbranches; i++) {
        dtp_json_object(w);
        dtp_json_kv_int(w, "line", s->branch[i].line);
        dtp_json_kv_string(w, "condition", s->branch[i].condition);
        dtp_json_kv_bool(w, "taken", s->branch[i].taken);
        dtp_json_end(w);
    }
    dtp_json_end(w);
    dtp_json_put_key(w, "not_read");
    dtp_json_array(w);
    for (size_t i = 0; i < s->nunread; i++)
        dtp_json_put_string(w, s->unread[i]);
    dtp_json_end(w);
}

static void print_heading(FILE *f, const void *content) {
    const char *framework = ((const struct dtp_run_config *)content)->framework;
    const struct dtp_run_config *c = content;
    fprintf(f, "configuration of %s%s", framework ? framework : "a run",
            c->generates ? ", the training part of a job that generates, too (RL)" : "");
}

/* Prints what the file says, and what it says several times; the caller prints commands that ask dtplan about it. */
static void print_item(struct dtp_arena *a, FILE *f, const struct dtp_item *item,
                       const struct dtp_format_options *o) {
    (void)a;
    (void)o;
    const struct dtp_run_config *c = item->content;
    const char *comma = "";
    fputs("  it says ", f);
    for (int i = 0; i < NUM_FIELDS; i++)
        if (field_of(c, i) > 0) {
            fprintf(f, "%s%s %ld", comma, fields[i].name, field_of(c, i));
            comma = ", ";
        }
    fputs("\n", f);
    print_changed(f, c);
    if (c->script)
        print_script(f, c);
    dtp_settings_print(f, &c->settings);
}

static void write_item(struct dtp_arena *a, struct dtp_json_out *w, const struct dtp_item *item,
                       const struct dtp_format_options *o) {
    (void)a;
    (void)o;
    const struct dtp_run_config *c = item->content;
    dtp_json_put_key(w, "config");
    dtp_json_object(w);
    for (int i = 0; i < NUM_FIELDS; i++)
        if (field_of(c, i) > 0)
            dtp_json_kv_int(w, fields[i].name, field_of(c, i));
    dtp_json_end(w);
    dtp_json_put_key(w, "changed");
    dtp_json_array(w);
    for (int i = 0; i < NUM_FIELDS; i++)
        if (c->changed >> i & 1)
            dtp_json_put_string(w, fields[i].name);
    dtp_json_end(w);
    if (c->script)
        write_script(w, c);
    dtp_settings_write(w, &c->settings);
}

const struct dtp_format dtp_format_config = {
    .name = "config",
    .title = "configuration of a run: launch script, YAML, TOML, JSON, ...",
    .told = "text or JSON with settings of a model or a layout, and no line of a log",
    .kind = DTP_KIND_CONFIG,
    .detect = is_config,
    .read = read_item,
    .heading = print_heading,
    .print = print_item,
    .json = write_item};
