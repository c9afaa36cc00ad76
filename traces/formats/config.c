#include "traces/formats/config.h"

#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "models/modules.h"
#include "models/plan.h"
#include "sim/base/json.h"
#include "sim/base/text.h"
#include "traces/formats/lines.h"

enum { KEY_BYTES = 96, VALUE_BYTES = DTP_CONFIG_TEXT, GPT_FFN = 4, NAME_PART = 40 };

static const struct {
    const char *words;
    size_t offset;
} fields[] = {
#define X(field, words) {words, offsetof(struct dtp_run_config, field)},
    DTP_CONFIG_FIELDS(X)
#undef X
};

/* Whether key is one of the words. */
static bool one_of(const char *words, const char *key) {
    size_t n = strlen(key);
    for (const char *at = words; *at;) {
        size_t length = strcspn(at, " ");
        if (length == n && memcmp(at, key, n) == 0)
            return true;
        at += length + strspn(at + length, " ");
    }
    return false;
}

/* Settings that only some stacks have, the surest first. */
static const struct {
    const char *key, *framework;
} marks[] = {{"use_megatron_fsdp", "megatron-bridge"},
             {"grad_reduce_in_bf16", "megatron-bridge"}, /* whose file has 16-bit gradients */
             {"tensor_parallelism", "nemo"},
             {"data_parallel_shard_degree", "torchtitan"},
             {"tensor_parallel_degree", "torchtitan"},
             {"tp_mode", "nanotron"},
             {"pp_engine", "nanotron"},
             {"tensor_model_parallel_size", "megatron-core"},
             {"_component_", "torchtune"},
             {"zero_optimization", "deepspeed"},
             {"deepspeed", "deepspeed"},
             {"sharding_strategy", "torch-fsdp1"},
             {"fsdp_config", "torch-fsdp2"}};
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
    int mark;
};

static bool is_true(const char *value) {
    return *value == '\0' || strcmp(value, "true") == 0 || strcmp(value, "True") == 0 ||
           strcmp(value, "1") == 0;
}

static void set_flags(struct dtp_run_config *c, const char *key, const char *value) {
    bool on = is_true(value);
    if (strcmp(key, "swiglu") == 0)
        c->gated |= on;
    else if (strcmp(key, "untie_embeddings_and_output_weights") == 0)
        c->untied |= on;
    else if (strcmp(key, "tie_word_embeddings") == 0)
        c->untied = !on;
    else if (strcmp(key, "hidden_act") == 0)
        c->gated |= strstr(value, "silu") != NULL;
    else if (one_of("recompute_granularity mode", key)) {
        c->recompute_full = strcmp(value, "full") == 0;
        c->recompute_selective = strcmp(value, "selective") == 0;
    } else if (strcmp(key, "recompute_method") == 0) /* uniform: layers of a unit, all recomputed */
        c->recompute_block = strcmp(value, "block") == 0;
    else if (strcmp(key, "recompute_activations") == 0)
        c->recompute_selective |= on;
    else if (one_of("activation_checkpointing gradient_checkpointing use_gradient_checkpointing "
                    "enable_activation_checkpointing",
                    key))
        c->recompute_full |= on;
    else if (strcmp(key, "use_distributed_optimizer") == 0)
        c->distributed_optimizer |= on;
    else if (one_of("sequence_parallel sequence_parallelism", key))
        c->sequence_parallel |= on;
    else if (strcmp(key, "account_for_embedding_in_pipeline_split") == 0)
        c->embedding_counts |= on;
    else if (strcmp(key, "account_for_loss_in_pipeline_split") == 0)
        c->loss_counts |= on;
    else if (one_of("fp8 fp8_format", key))
        c->fp8 |= strcmp(value, "false") != 0 && strcmp(value, "null") != 0;
    else if (strcmp(key, "fp16") == 0)
        c->fp16 |= on;
    else if (one_of("lora_r lora_rank lora_alpha", key) ||
             (one_of("adapter finetuning_type peft peft_scheme", key) && *value &&
              !one_of("full none None null", value)))
        c->adapters = true;
    else if (strcmp(value, "optim_grads_params") == 0) /* Megatron-FSDP */
        c->zero_stage = 3;
}

/* Names: of the model, or as torchtitan has it, a name and then a flavor. */
static void set_names(struct reading *r, const char *key, const char *value) {
    struct dtp_run_config *c = r->out;
    for (int i = 0; i < r->mark; i++)
        if (strcmp(marks[i].key, key) == 0) {
            r->mark = i;
            c->framework = marks[i].framework;
        }
    if (one_of("base_model model_name_or_path pretrained_model_name_or_path MODEL", key) && *value)
        snprintf(c->model, sizeof c->model, "%s", value);
    if (strcmp(key, "flavor") == 0 && !*c->model)
        snprintf(c->model, sizeof c->model, "%.*s-%.*s", NAME_PART, r->name, NAME_PART, value);
    const char *last = strrchr(value, '.'); /* model: torchtune.models.llama3.llama3_70b */
    if (strcmp(key, "_component_") == 0 && strcmp(r->section, "model") == 0 && last)
        snprintf(c->model, sizeof c->model, "%s", last + 1);
    if (!*value)
        snprintf(r->section, sizeof r->section, "%s", key);
    if (strcmp(key, "pipeline_model_parallel_layout") == 0 && *value &&
        strlen(value) < VALUE_BYTES - 1) /* else it may have been cut */
        c->layout = dtp_plan_layers_of_layout(r->a, value);
    if (strcmp(key, "name") == 0)
        snprintf(r->name, sizeof r->name, "%s", value);
    if (strcmp(key, "deepspeed") == 0 && c->zero_stage == 0) /* .../zero3.json, ds_z3_config.json */
        for (const char *p = value; *p; p++)
            if ((*p == 'o' || *p == 'z') && (p[1] >= '1' && p[1] <= '3'))
                c->zero_stage = p[1] - '0';
}

static void set(struct reading *r, const char *key, const char *value) {
    struct dtp_run_config *c = r->out;
    char *end;
    long v = strtol(value, &end, 10);
    bool number = end != value && (*end == '\0' || *end == ' ') && v > 0 && v < INT_MAX;
    if (strcmp(key, "batch_size") == 0 && c->framework && strcmp(c->framework, "torchtune") == 0)
        key = "micro_batch_size";
    for (size_t i = 0; i < sizeof fields / sizeof *fields && number; i++) {
        long *to = (long *)(void *)((char *)c + fields[i].offset);
        if (one_of(fields[i].words, key)) {
            c->found += *to == 0;
            *to = v;
        }
    }
    set_flags(c, key, value);
    set_names(r, key, value);
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

/* The next key and value at *at, which moves behind them; several may stand on a command line. Of "a.b.key" the
 * last counts. assigned: NAME=value without blanks, a variable of a script. */
static bool take_pair(const char **at, char *key, char *value, bool *assigned) {
    const char *p = *at + strspn(*at, " \t-\"'{,");
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
    p += *p == ':' || *p == '=';
    p += strspn(p, " \t\"'");
    n = 0;
    if (strncmp(p, "--", 2) != 0)
        for (; *p; p++) {
            bool quoted = n > 1 && value[n - 2] == ':' && value[n - 1] == '-' && strchr("\"'", *p);
            if (!quoted && strchr(" \t\"',}#\\", *p)) /* of ${A:-"b"} b is a part */
                break;
            if (!quoted && n < VALUE_BYTES - 1 && !iscntrl((unsigned char)*p))
                value[n++] = *p;
        }
    value[n] = '\0';
    *at = p;
    return true;
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
    bool assigned;
    const char *at = line + strspn(line, " \t");
    if (strncmp(at, sbatch, sizeof sbatch - 1) == 0)
        at += sizeof sbatch - 1;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(at, prefixes[i], strlen(prefixes[i])) == 0)
            at += strlen(prefixes[i]);
    while (take_pair(&at, key, value, &assigned)) {
        const char *meant = value_of(r, value);
        set(r, key, meant);
        if (assigned) {
            struct variable *v = DTP_NEW(r->a, struct variable, 1);
            *v = (struct variable){dtp_arena_strdup(r->a, key), dtp_arena_strdup(r->a, meant),
                                   r->last};
            r->last = v;
        }
        if (strcmp(key, "recompute_modules") == 0)
            take_modules(r->out, value, at);
        const char *next = strstr(at, "--"), *word = at + strspn(at, " \t}\"'");
        size_t n = strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
        if (assigned && n > 0 && word[n] == '=') /* A=1 B=2 command */
            next = word;
        if (line[0] == '{' && !next) /* JSON in one line */
            next = value[0] == '{' ? at : strpbrk(at, ",{");
        if (!next) /* no more of a command line */
            break;
        at = next;
    }
}

enum dtp_status dtp_config_read(struct dtp_arena *a, struct dtp_source *source,
                                struct dtp_run_config *out, struct dtp_err *err) {
    struct dtp_lines l;
    struct reading r = {.a = a, .out = out, .mark = NUM_MARKS};
    enum dtp_status status;
    char *line;
    *out = (struct dtp_run_config){0};
    dtp_lines_init(&l, a, source);
    while (dtp_lines_next(&l, &line, &status, err)) {
        take_line(&r, line);
    }
    DTP_TRY(status);
    if (out->found == 0)
        return dtp_fail(err, DTP_EINPUT, "%s: no line of it says anything of a model or a layout",
                        dtp_source_name(source));
    return DTP_OK;
}

/* Their product, INT_MAX where it is more; what is not said is 1. */
static long product(const long *of, size_t n) {
    long out = 1;
    for (size_t i = 0; i < n; i++) {
        long v = of[i] > 0 ? of[i] : 1;
        out = v < INT_MAX / out ? out * v : INT_MAX;
    }
    return out;
}

long dtp_config_gpus(const struct dtp_run_config *c) {
    long dp = c->dp > 0 ? c->dp : product((long[]){c->shards, c->replicas}, 2);
    long dense = product((long[]){c->tp, c->cp}, 2), experts = product((long[]){c->ep, c->etp}, 2);
    long least = product((long[]){dense > experts ? dense : experts, c->pp}, 2);
    long said = c->gpus > 0        ? c->gpus
                : c->node_gpus > 0 ? product((long[]){c->nodes, c->node_gpus}, 2)
                                   : 0;
    if (said == 0 && (c->dp > 0 || c->shards > 0))
        said = product((long[]){dp, dense, c->pp}, 3);
    return said > 0 && said < least ? least : said;
}

long dtp_config_batch(const struct dtp_run_config *c) {
    bool titan = c->dp == 0 && c->shards > 0; /* no accumulation unless it says a batch */
    long accumulation = titan ? 1 : c->accumulation;
    long dp = titan ? product((long[]){c->shards, c->replicas}, 2) : c->dp;
    if (c->global_batch > 0)
        return c->global_batch;
    long batch = product((long[]){c->microbatch, accumulation, dp}, 3);
    return c->microbatch > 0 && accumulation > 0 && dp > 0 && batch < INT_MAX ? batch : 0;
}

bool dtp_config_write_model(FILE *f, const struct dtp_run_config *c) {
    struct dtp_json_out w;
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
