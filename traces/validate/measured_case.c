/* measured_case.c: from a row to a problem and a plan: its stack and machine, its schedule, its model. */
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "models/schedule/schedule.h"
#include "sim/base/text.h"
#include "traces/validate/measured.h"
#include "models/framework/optimizer.h"
#include "traces/validate/measured_internal.h"

/* ---- what a run leaves unsaid, taken as its author would have tuned it ---- */

/* Microbatch, chunks per stage and recomputation that a row leaves empty become the combination with the least ESTIMATE
 * among those that fit: microbatch 1, 2, 4, 8, ... dividing the batch; where the schedule is interleaved, chunks
 * dividing the layers of a stage; recomputation none, selective, full as far as the framework has them. Recomputation
 * alone is not searched: if a row states a microbatch only, there is none. If nothing fits, what needs up to 5 % more
 * counts, too: the run did fit; then ZeRO-3 where ZeRO-2 was stated. If nothing is left, the plan stays as it was. */
struct unsaid {
    bool microbatch, vpp, recompute;
};

/* The run did fit: the memory model may be off by this much. */
static const double memory_slack = 1.05;

/* The best so far. */
struct best {
    struct dtp_plan plan;
    double time_s; /* infinite: none */
    double most_bytes;
};

static void try_plan(struct dtp_evaluator *ev, const struct dtp_plan *plan, struct best *best) {
    const struct dtp_problem *problem = dtp_evaluator_problem(ev);
    if (dtp_plan_check(problem, plan) != DTP_LEGAL ||
        (double)dtp_evaluate_memory(ev, plan) > best->most_bytes)
        return;
    double time_s = dtp_evaluate_estimate(ev, plan);
    if (time_s > 0 && time_s < best->time_s)
        *best = (struct best){*plan, time_s, best->most_bytes};
}

static void try_recompute(struct dtp_evaluator *ev, struct dtp_plan plan, bool search,
                          struct best *best) {
    if (!search) {
        try_plan(ev, &plan, best);
        return;
    }
    for (int r = DTP_RECOMPUTE_NONE; r <= DTP_RECOMPUTE_FULL; r++) {
        plan.recompute = (enum dtp_recompute)r;
        try_plan(ev, &plan, best);
    }
}

static void try_chunks(struct dtp_evaluator *ev, struct dtp_plan plan, struct unsaid unsaid,
                       struct best *best) {
    const struct dtp_model *m = dtp_evaluator_problem(ev)->model;
    try_recompute(ev, plan, unsaid.recompute, best);
    if (!unsaid.vpp || plan.pp == 1)
        return;
    for (int vpp = 2; vpp <= m->layers / plan.pp && vpp <= DTP_SCHEDULE_MAX_VPP; vpp++) {
        if (m->layers % (plan.pp * vpp) != 0)
            continue;
        plan.vpp = vpp;
        plan.schedule = dtp_schedule_usual(vpp);
        try_recompute(ev, plan, unsaid.recompute, best);
    }
}

static void try_all(struct dtp_evaluator *ev, struct dtp_plan plan, struct unsaid unsaid,
                    struct best *best) {
    int most = plan.global_batch_size / plan.dp;
    int from = unsaid.microbatch ? 1 : plan.microbatch_size;
    for (int b = from; b <= (unsaid.microbatch ? most : from); b *= 2) {
        plan.microbatch_size = b;
        try_chunks(ev, plan, unsaid, best);
    }
}

/* Changes c->plan; returns what was taken, or NULL. */
static const char *tune(struct dtp_arena *a, struct dtp_run_case *c, struct unsaid unsaid) {
    struct dtp_arena *scratch = dtp_arena_create_in(a, "tune");
    const char *taken = NULL;
    int stated = c->plan.zero_stage;
    unsaid.recompute &= unsaid.microbatch || unsaid.vpp;
    if (unsaid.microbatch || unsaid.vpp) {
        struct dtp_evaluator *ev = dtp_evaluator_create(scratch, &c->problem);
        double limit_bytes = (double)c->problem.memory_limit_bytes;
        struct best best = {.time_s = INFINITY, .most_bytes = limit_bytes};
        try_all(ev, c->plan, unsaid, &best);
        best.most_bytes = memory_slack * limit_bytes;
        if (!isfinite(best.time_s))
            try_all(ev, c->plan, unsaid, &best);
        struct dtp_plan divided = c->plan; /* ZeRO-2 holds all weights, and the run did fit */
        divided.zero_stage = 3;
        if (!isfinite(best.time_s) && c->plan.zero_stage == 2)
            try_all(ev, divided, unsaid, &best);
        if (isfinite(best.time_s)) {
            c->plan = best.plan;
            taken = dtp_arena_printf(
                a, "taken as the fastest that fits: %smicrobatch %d, vpp %d, %s",
                best.plan.zero_stage != stated ? "ZeRO 3, " : "", c->plan.microbatch_size,
                c->plan.vpp,
                c->plan.recompute == DTP_RECOMPUTE_NONE ? "no recomputation"
                                                        : dtp_recompute_names[c->plan.recompute]);
        }
    }
    dtp_arena_destroy(scratch);
    return taken;
}

/* ---- stacks ---- */

/* Adds to what was assumed. */
static void add_note(struct dtp_arena *a, struct dtp_run_case *c, const char *text) {
    c->note = *c->note ? dtp_arena_printf(a, "%s; %s", c->note, text) : text;
}

/* A word begins at the start, after what is no letter or digit, and at a capital: "My-FSDP", "LLMFoundry". */
static bool begins_word(const char *name, const char *at) {
    if (at == name || !isalnum((unsigned char)at[-1]))
        return true;
    return isupper((unsigned char)*at) &&
           (islower((unsigned char)at[-1]) || islower((unsigned char)at[1]));
}

static bool has_word(const char *name, const char *begins) {
    for (const char *at = name; *at; at++)
        if (begins_word(name, at) && strncasecmp(at, begins, strlen(begins)) == 0)
            return true;
    return false;
}

/* A stack that has no file: by its name, else by the row's other columns. */
static const struct dtp_framework *nearest_framework(const struct dtp_run_library *l,
                                                     const struct dtp_run *run) {
    for (size_t i = 0; i < l->nrelatives; i++)
        if (has_word(run->framework, l->relative[i].begins))
            return dtp_run_framework(l, l->relative[i].use);
    bool model_parallel = run->tp > 1 || run->pp > 1;
    return dtp_run_framework(l, strstr(run->schedule, "DeepSpeed") ? "megatron-deepspeed"
                                : model_parallel                   ? "megatron-core"
                                : run->zero_stage >= 2             ? "torch-fsdp2"
                                                                   : "torch-ddp");
}

/* Each sets what it names and its notes; false: c->unsupported says why. */
static bool set_framework(struct dtp_arena *a, const struct dtp_run_library *l,
                          const struct dtp_run *run, struct dtp_run_case *c) {
    const char *name = run->framework;
    for (size_t i = l->nstacks; i-- > 0;) /* the first that matches counts */
        if (strcmp(l->stack[i].framework, run->framework) == 0 &&
            dtp_run_says(run->source, l->stack[i].source_contains) &&
            dtp_run_says(run->dtype, l->stack[i].dtype_contains) &&
            dtp_run_says(run->schedule, l->stack[i].schedule_contains) &&
            dtp_run_says(run->recompute, l->stack[i].recompute_contains))
            name = l->stack[i].use;
    const struct dtp_framework *f = dtp_run_framework(l, name);
    if (!f) {
        f = nearest_framework(l, run);
        if (f)
            add_note(a, c, dtp_arena_printf(a, "framework taken as %s", f->name));
    }
    if (f) {
        const struct cluster_fact *fact = dtp_run_fact(l, run);
        c->framework = *f;
        c->peak_of_first_stage = fact && fact->peak_of_first_stage;
        if (fact && fact->peak_mem_unit)
            c->peak_mem_unit = fact->peak_mem_unit;
        if (fact && fact->optimizer_bytes > 0)
            c->framework.keeps.optimizer_bytes = fact->optimizer_bytes;
        c->framework.host.launch_blocking |= fact && fact->launch_blocking;
        c->framework.quirks.weighed_rows.moe_weighs_rows |= fact && fact->weighs_rows;
        if (fact && fact->norm)
            c->framework.kernels.fused_norm = strcmp(fact->norm, "fused") == 0;
        c->framework.host.checked_collectives |= fact && fact->checked_collectives;
        c->framework.host.checked_transfers |= fact && fact->checked_transfers;
    } else
        c->unsupported = dtp_arena_printf(a, "framework %s", run->framework);
    return f != NULL;
}

/* What is trained, and by what. */
static bool set_training(struct dtp_arena *a, const struct dtp_run *run, struct dtp_run_case *c) {
    struct dtp_err err;
    if (run->lora > 0)
        c->unsupported = "LoRA is not modelled";
    else if (*run->loss && strcmp(run->loss, "plain") != 0)
        c->unsupported = dtp_arena_printf(a, "loss \"%s\" is not modelled", run->loss);
    else if (*run->optimizer &&
             dtp_framework_set_optimizer(&c->framework, run->optimizer, &err) != DTP_OK)
        c->unsupported = dtp_arena_strdup(a, err.msg);
    return c->unsupported == NULL;
}

/* "4x100" as in --nic; sources write "16 x 400 Gb/s EFA". */
static const char *nics_of(struct dtp_arena *a, const struct dtp_run *run) {
    int n = 0;
    double gbit_per_s = 0;
    return sscanf(run->nic, "%d x %lf Gb/s", &n, &gbit_per_s) == 2
               ? dtp_arena_printf(a, "%dx%g", n, gbit_per_s)
               : run->nic;
}

static bool set_cluster(struct dtp_arena *a, struct dtp_run_library *l, const struct dtp_run *run,
                        struct dtp_run_case *c) {
    struct dtp_err err;
    const struct cluster_fact *f = dtp_run_fact(l, run);
    if (!f && run->gpus_per_node <= 0)
        add_note(a, c, "8 GPUs per node assumed");
    const char *name = *run->cluster ? run->cluster : f ? f->cluster : NULL;
    if (dtp_run_cluster(l, run, name, &c->cluster, &err) != DTP_OK ||
        (*run->nic && dtp_cluster_set_nics(&c->cluster, nics_of(a, run), &err) != DTP_OK)) {
        c->unsupported = dtp_arena_strdup(a, err.msg);
        return false;
    }
    if (c->cluster.gpu.other_memory)
        add_note(a, c,
                 dtp_arena_printf(a, "%g GB taken for the memory of %s", (double)run->gpu_mem_gb,
                                  c->cluster.gpu.name));
    if (c->cluster.max_gpus > 0 && run->gpus > c->cluster.max_gpus) {
        add_note(a, c, "more GPUs than the cluster is known to have");
        c->cluster.max_gpus = run->gpus;
    }
    return true;
}

/* ---- schedules ---- */

/* A text that names no schedule is one of 1F1B, and says so. */
static int find_schedule(struct dtp_arena *a, const struct dtp_run *run, struct dtp_run_case *c) {
    int kind = dtp_schedule_find(run->schedule), n = 0;
    if (kind >= 0 || !*run->schedule)
        return kind >= 0 ? kind : dtp_schedule_usual(1);
    if (strstr(run->schedule, "nterleaved"))
        return dtp_schedule_usual(2);
    if (c->plan.pp > 1) {
        while (dtp_schedule_names[n])
            n++;
        int near = dtp_nearest_name(run->schedule, dtp_schedule_names, (size_t)n);
        const char *hint =
            near < 0 ? "" : dtp_arena_printf(a, " (near: %s)", dtp_schedule_names[near]);
        c->unknown_schedule = dtp_arena_printf(a, "schedule \"%s\" is not known%s: taken as 1f1b",
                                               run->schedule, hint);
        add_note(a, c, c->unknown_schedule);
    }
    return dtp_schedule_usual(1);
}

/* The schedule with chunks that it takes: more than one without a schedule that has them are interleaved. */
static void set_schedule(struct dtp_arena *a, const struct dtp_run *run, struct dtp_run_case *c) {
    struct dtp_plan *p = &c->plan;
    p->schedule = find_schedule(a, run, c);
    bool chunked = dtp_schedule_kinds[p->schedule].chunked;
    if (p->pp > 1 && p->vpp > 1 && !chunked)
        p->schedule = dtp_schedule_usual(p->vpp);
    if (p->pp > 1 && chunked && run->vpp <= 0) {
        p->vpp = 2;
        add_note(a, c, "2 virtual stages assumed");
    }
    if (!dtp_schedule_kinds[p->schedule].chunked || (p->vpp == 1 || p->pp == 1)) {
        p->vpp = 1;
        p->schedule = dtp_schedule_kinds[p->schedule].chunked ? dtp_schedule_usual(1) : p->schedule;
    }
    const char *why =
        dtp_schedule_applies(p->schedule, p->pp, p->vpp, dtp_plan_num_microbatches(p));
    if (why && p->pp > 1) {
        p->vpp = 1;
        p->schedule = dtp_schedule_usual(1);
        add_note(a, c, dtp_arena_printf(a, "1F1B taken: %s", why));
    }
}

/* ---- models ---- */

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

static bool set_model(struct dtp_arena *a, struct dtp_run_library *l, const struct dtp_run *run,
                      struct dtp_run_case *c) {
    struct dtp_err err;
    struct dtp_model *m = &c->model;
    const struct cluster_fact *fact = dtp_run_fact(l, run);
    const char *family = fact && fact->family ? fact->family : family_of(run);
    /* A row may cut or lengthen a model of the library; another width is another model. */
    bool known = !(fact && fact->family) && dtp_run_model(l, bare_name(l->a, run->model), m) &&
                 m->hidden == run->hidden;
    if (!known && (run->ep > 1 || strstr(run->model, "moe"))) {
        c->unsupported =
            dtp_arena_printf(a, "model \"%s\" has experts and is not in the library", run->model);
        return false;
    }
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
        add_note(a, c, "vocabulary of 50257 assumed");
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

/* A row may leave to the library what its model has there. */
static void take_shape(struct dtp_run_library *l, struct dtp_run *run) {
    struct dtp_model m;
    if ((run->layers > 0 && run->hidden > 0 && run->seq > 0) ||
        !dtp_run_model(l, bare_name(l->a, run->model), &m))
        return;
    run->layers = run->layers > 0 ? run->layers : m.layers;
    run->hidden = run->hidden > 0 ? run->hidden : m.hidden;
    run->seq = run->seq > 0 ? run->seq : m.seq;
}

/* ---- cases ---- */

/* "FP8-CS", "MXFP8", "FP8 (delayed)"; -1: the text says nothing of scales. */
static int recipe_of(const char *lower) {
    return strstr(lower, "mx") || strstr(lower, "block")      ? DTP_FP8_BLOCK
           : strstr(lower, "-cs") || strstr(lower, "current") ? DTP_FP8_CURRENT
           : strstr(lower, "-ds") || strstr(lower, "delayed") ? DTP_FP8_DELAYED
                                                              : DTP_UNKNOWN;
}

/* The type of the products, whatever else the text says of weights and sums; the first that occurs counts. FP4
 * and MX products have no calibration. */
static void set_dtype(struct dtp_arena *a, const struct dtp_run *run, struct dtp_run_case *c) {
    static const struct {
        const char *part;
        enum dtp_dtype dtype;
        bool outside;
    } types[] = {
        {"fp4", DTP_FP4, true},        {"mx", DTP_FP8, true},        {"fp8", DTP_FP8, false},
        {"float8", DTP_FP8, false},    {"fp16", DTP_FP16, false},    {"bf16", DTP_BF16, false},
        {"bfloat16", DTP_BF16, false}, {"float16", DTP_FP16, false}, {"amp", DTP_BF16, false},
        {"fp32", DTP_TF32, false},     {"float32", DTP_TF32, false}, {"tf32", DTP_TF32, false}};
    char *lower = dtp_arena_strdup(a, run->dtype);
    for (char *p = lower; *p; p++)
        *p = (char)tolower((unsigned char)*p);
    size_t n = sizeof types / sizeof types[0], i = 0;
    while (i < n && !strstr(lower, types[i].part))
        i++;
    enum dtp_dtype *dtype = &c->plan.dtype;
    *dtype = i < n ? types[i].dtype : DTP_BF16;
    c->outside = i < n && types[i].outside;
    if (c->outside)
        add_note(a, c, dtp_arena_printf(a, "%s is outside the calibration", run->dtype));
    if (*dtype == DTP_FP4 && !(c->cluster.gpu.peak_flops_per_s[DTP_FP4] > 0))
        *dtype = DTP_FP8;
    if (i < n && dtp_dtype_narrow(*dtype) && recipe_of(lower) >= 0)
        c->framework.kernels.fp8_recipe = (enum dtp_fp8_recipe)recipe_of(lower);
    bool has = c->cluster.gpu.peak_flops_per_s[*dtype] > 0;
    if (!has && *dtype == DTP_BF16)
        *dtype = DTP_FP16;
    if (!has && *dtype == DTP_TF32)
        *dtype = DTP_FP32;
    if (!(c->cluster.gpu.peak_flops_per_s[*dtype] > 0))
        c->unsupported = dtp_reasons[DTP_WHY_DTYPE];
    if (i == n || (!has && *dtype == DTP_FP16))
        add_note(a, c, dtp_arena_printf(a, "%s assumed", dtp_dtype_names[*dtype]));
}

static void set_attention(struct dtp_arena *a, const struct cluster_fact *fact,
                          const struct dtp_run *run, struct dtp_run_case *c) {
    enum dtp_attention usual = dtp_framework_on(&c->framework, &c->cluster.gpu).attention;
    c->problem.attention = DTP_UNKNOWN;
    c->problem.document_tokens = fact ? fact->document_tokens : 0;
    if (c->problem.document_tokens > 0)
        add_note(a, c,
                 dtp_arena_printf(a, "packed from documents of %d tokens", fact->document_tokens));
    if (*run->attention) {
        c->problem.attention = dtp_name_index(dtp_attention_names, run->attention);
        if (c->problem.attention < 0)
            add_note(a, c,
                     dtp_arena_printf(a, "attention \"%s\" is taken as the framework's",
                                      run->attention));
        return;
    }
    if (fact && fact->attention) {
        c->problem.attention = dtp_name_index(dtp_attention_names, fact->attention);
        add_note(a, c, dtp_arena_printf(a, "run with %s attention", fact->attention));
        return;
    }
    if (run->flash_attention == 0)
        c->problem.attention = DTP_ATTN_UNFUSED;
    if (run->flash_attention == 1)
        c->problem.attention = usual == DTP_ATTN_UNFUSED ? DTP_ATTN_FLASH2 : (int)usual;
}

static void set_offload(struct dtp_arena *a, const struct cluster_fact *fact,
                        struct dtp_run_case *c) {
    c->problem.offloaded_layers = fact ? fact->offloaded_layers : 0;
    if (c->problem.offloaded_layers > 0)
        add_note(a, c,
                 dtp_arena_printf(a, "activations of %d layers on the host",
                                  c->problem.offloaded_layers));
}

static int or_one(int v) {
    return v > 0 ? v : 1;
}

/* The cut of the framework, where it has its own. */
static void set_stage_layers(struct dtp_arena *a, struct dtp_run_case *c) {
    int *layers = DTP_NEW(a, int, (size_t)c->plan.pp);
    if (c->plan.vpp == 1 && c->plan.pp <= DTP_MAX_STAGES &&
        dtp_framework_stage_layers(&c->framework, &c->model, c->plan.pp, layers))
        c->plan.layers_per_stage = (struct dtp_ints){.at = layers, .n = (size_t)c->plan.pp};
}

/* A stack that takes only equal stages ran stages that the layers alone do not fill evenly: embedding
 * and head counted as layers. */
static void set_ends(struct dtp_arena *a, struct dtp_run_case *c) {
    struct dtp_plan *p = &c->plan;
    int64_t n = (int64_t)p->pp * p->vpp;
    if (p->pp == 1 || !c->framework.can.accounts_for_ends || c->model.layers % n == 0 ||
        (c->model.layers + 2) % n != 0)
        return;
    p->account_for_ends = true;
    add_note(a, c, "embedding and head taken as layers");
}

/* "ZeRO-1 over 8 (intra-node groups)", "ZeRO-1 in 8-GPU groups"; 0: nothing of the kind. */
static int stated_zero_group(const char *schedule, int replicas) {
    const char *at = strstr(schedule, "ZeRO-1 over ");
    int n = 0;
    if (!at)
        at = strstr(schedule, "ZeRO-1 in ");
    if (!at)
        return 0;
    at += strcspn(at + 6, " ") + 6; /* past "ZeRO-1" */
    while (*at && !isdigit((unsigned char)*at))
        at++;
    while (isdigit((unsigned char)*at) && n < DTP_MAX_STAGES)
        n = 10 * n + (*at++ - '0');
    return n < replicas ? n : 0;
}

static void set_recompute(struct dtp_arena *a, const struct cluster_fact *fact,
                          const struct dtp_run *run, struct dtp_run_case *c) {
    int recompute = dtp_name_index(dtp_recompute_names, run->recompute);
    if (recompute < 0) {
        bool selective = strstr(run->recompute, "selective") != NULL;
        recompute = selective ? DTP_RECOMPUTE_SELECTIVE : DTP_RECOMPUTE_NONE;
        if (!selective)
            add_note(a, c, "no recomputation assumed");
    }
    int real = fact && fact->recompute ? dtp_name_index(dtp_recompute_names, fact->recompute) : -1;
    if (real >= 0 && real != recompute) {
        recompute = real;
        add_note(a, c, dtp_arena_printf(a, "run with recomputation %s", fact->recompute));
    }
    c->plan.recompute = (enum dtp_recompute)recompute;
    if (fact)
        c->plan.recompute_layers = fact->recompute_layers;
}

/* dp by the GPUs, where the row says none or one that makes another number of them. */
static void set_replicas(struct dtp_arena *a, const struct dtp_run *run, struct dtp_run_case *c) {
    struct dtp_plan *p = &c->plan;
    int64_t ranks = (int64_t)p->tp * p->pp * p->cp;
    p->dp = or_one(run->dp);
    if (ranks > run->gpus || (run->dp > 0 && ranks * run->dp == run->gpus))
        return;
    p->dp = run->gpus / (int)ranks;
    if (run->dp > 0)
        add_note(a, c, dtp_arena_printf(a, "dp %d by the number of GPUs", p->dp));
}

/* A stack may divide more than the row says (a column that was left at ZeRO-1 for a run with FSDP), and what it
 * calls ZeRO-3 may keep its parameters gathered over the microbatches of a pipeline. */
static void set_zero(struct dtp_arena *a, const struct cluster_fact *fact,
                     const struct dtp_run *run, struct dtp_run_case *c) {
    struct dtp_plan *p = &c->plan;
    unsigned has = (unsigned)c->framework.can.zero_stages;
    p->zero_stage = run->zero_stage > 0 ? run->zero_stage : 0;
    if (run->zero_stage < 0 && fact && p->dp * p->cp > 1)
        p->zero_stage = fact->zero_stage;
    else if (run->zero_stage < 0 && p->dp * p->cp > 1 && (has & 1))
        add_note(a, c, "ZeRO 0 assumed");
    int least = 1, most = 3;
    while (least < 3 && !(has >> least & 1))
        least++;
    while (most > 0 && !(has >> most & 1))
        most--;
    bool lacks_none = run->zero_stage < 0 && !(has & 1); /* such as FSDP, where the row is silent */
    if (most > 0 && ((p->zero_stage > 0 && p->zero_stage < least) || lacks_none)) {
        p->zero_stage = most;
        add_note(
            a, c,
            dtp_arena_printf(a, "ZeRO %d taken, as %s has it", p->zero_stage, c->framework.name));
    }
    if (p->pp > 1 && p->zero_stage == 3 && c->framework.can.pp_keeps_gathered) {
        p->zero_stage = 2;
        add_note(a, c, "parameters stay gathered over the microbatches");
    }
}

/* Whole microbatches on every replica. */
static void set_batch(struct dtp_arena *a, const struct dtp_run_library *l,
                      const struct dtp_run *run, struct dtp_run_case *c) {
    struct dtp_plan *p = &c->plan;
    p->microbatch_size = or_one(run->microbatch);
    int64_t round = (int64_t)p->microbatch_size * or_one(p->dp);
    const struct batch_fact *ran = dtp_run_batch(l, run);
    if (ran && run->global_batch > 0 && round * ran->microbatches <= INT_MAX) {
        p->global_batch_size = (int)(round * ran->microbatches);
        c->batches = (double)run->global_batch / p->global_batch_size;
        c->framework.host.checked_collectives |= ran->checked_collectives;
        add_note(a, c,
                 dtp_arena_printf(a, "run with %d microbatches a replica", ran->microbatches));
        return;
    }
    int64_t rounds = run->global_batch > 0 ? (run->global_batch + round - 1) / round : 1;
    p->global_batch_size = round * rounds <= INT_MAX ? (int)(round * rounds) : run->global_batch;
    if (p->global_batch_size != run->global_batch)
        add_note(a, c,
                 dtp_arena_printf(a, "a batch of %d taken, %s", p->global_batch_size,
                                  run->global_batch > 0 ? "of whole microbatches"
                                                        : "one microbatch a replica"));
}

static void set_plan(struct dtp_arena *a, const struct dtp_run_library *l,
                     const struct dtp_run *run, struct dtp_run_case *c) {
    struct dtp_plan *p = &c->plan;
    *p = dtp_plan_default();
    p->tp = or_one(run->tp);
    p->pp = or_one(run->pp);
    p->cp = or_one(run->cp);
    p->vpp = or_one(run->vpp);
    p->ep = or_one(run->ep);
    p->etp = run->etp > 0 && run->etp != p->tp ? run->etp : 0;
    set_replicas(a, run, c);
    const struct cluster_fact *fact = dtp_run_fact(l, run);
    set_zero(a, fact, run, c);
    p->zero_group = stated_zero_group(run->schedule, p->dp * p->cp);
    set_batch(a, l, run, c);
    p->sequence_parallel = run->sequence_parallel == 1 && p->tp > 1;
    bool whole = fact && fact->whole_sequences;
    if (run->sequence_parallel < 0 && p->tp > 1 && c->framework.can.has_sequence_parallel &&
        !whole) {
        p->sequence_parallel = true;
        add_note(a, c, "sequence parallelism assumed");
    }
    set_recompute(a, fact, run, c);
    set_schedule(a, run, c);
    set_dtype(a, run, c);
    set_stage_layers(a, c);
    set_ends(a, c);
}

/* Runs that a source made with checks because they did not fit at first. */
static void set_checks(struct dtp_arena *a, const struct dtp_run_library *l,
                       const struct dtp_run *run, struct dtp_run_case *c) {
    const struct cluster_fact *fact = dtp_run_fact(l, run);
    if (!fact || fact->checked_above_bytes <= 0 || c->plan.pp > DTP_MAX_STAGES)
        return;
    struct dtp_stage_memory *stages = DTP_NEW(a, struct dtp_stage_memory, (size_t)c->plan.pp);
    dtp_memory(dtp_memory_memo_create(a, &c->problem), &c->plan, stages);
    if ((double)stages[0].wanted_bytes > fact->checked_above_bytes) {
        c->framework.host.checked_collectives = c->framework.host.checked_transfers = true;
        set_stage_layers(a, c); /* by the rule of that version */
    } else if (!c->framework.host.checked_transfers && fact->memory_limit_bytes > 0)
        c->problem.memory_limit_bytes = (uint64_t)fact->memory_limit_bytes;
}

static const char *missing(struct dtp_arena *a, const struct dtp_run *run) {
    const char *what = run->gpus <= 0                       ? "gpus"
                       : run->layers > 0 && run->hidden > 0 ? "seq"
                                                            : "layers or hidden";
    if (run->gpus <= 0 || !*run->model)
        return dtp_arena_printf(a, "%s is missing", what);
    return dtp_arena_printf(a, "%s is missing, and \"%s\" is no model of the library", what,
                            run->model);
}

void dtp_run_case_make(struct dtp_arena *a, struct dtp_run_library *library,
                       const struct dtp_run *given, struct dtp_run_case *out) {
    const struct cluster_fact *told = dtp_run_fact(library, given);
    struct dtp_run filled = *given;
    const struct dtp_run *run = &filled;
    if (told && told->vpp > 0 && given->vpp <= 0)
        filled.vpp = told->vpp;

    memset(out, 0, sizeof *out);
    out->note = "";
    out->batches = 1;
    out->peak_mem_unit = run->peak_mem_unit;
    if (run->broken) {
        out->unsupported = run->broken;
        return;
    }
    take_shape(library, &filled);
    if (run->gpus <= 0 || run->layers <= 0 || run->hidden <= 0 || run->seq <= 0) {
        out->unsupported = missing(a, run);
        return;
    }
    if (!set_framework(a, library, run, out) || !set_training(a, run, out) ||
        !set_cluster(a, library, run, out) || !set_model(a, library, run, out))
        return;
    set_plan(a, library, run, out);
    if (out->unsupported)
        return;
    if (out->plan.dtype == DTP_FP32 || out->plan.dtype == DTP_TF32)
        dtp_framework_to_fp32(&out->framework);
    out->problem = (struct dtp_problem){.model = &out->model,
                                        .cluster = &out->cluster,
                                        .framework = &out->framework,
                                        .gpus = run->gpus,
                                        .seq = run->seq,
                                        .global_batch = out->plan.global_batch_size,
                                        .memory_limit_bytes = out->cluster.gpu.memory_bytes,
                                        .dtype = out->plan.dtype};
    set_attention(a, dtp_run_fact(library, run), run, out);
    set_offload(a, dtp_run_fact(library, run), out);
    enum dtp_reason reason = dtp_plan_check(&out->problem, &out->plan);
    /* A run that was made is legal; only what makes no layout at all is refused here, and what failed for
     * another reason than memory. */
    bool failed = reason == DTP_WHY_LAST_STAGE && !(run->step_s > 0);
    if (failed || reason == DTP_WHY_GPUS || reason == DTP_WHY_BATCH || reason == DTP_WHY_LAYERS ||
        reason == DTP_WHY_DTYPE)
        out->unsupported = dtp_reasons[reason];
    else if (reason != DTP_LEGAL)
        add_note(a, out,
                 dtp_arena_printf(a, "outside the framework's rules: %s", dtp_reasons[reason]));
    if (out->unsupported)
        return;
    set_checks(a, library, run, out);
    struct unsaid unsaid = {.microbatch = run->microbatch <= 0,
                            .vpp = run->vpp <= 0 && (strstr(run->schedule, "nterleaved") != NULL),
                            .recompute = !*run->recompute};
    const char *taken = tune(a, out, unsaid);
    if (taken)
        add_note(a, out, taken);
    else if (unsaid.microbatch)
        add_note(a, out, "microbatch 1 assumed");
}
