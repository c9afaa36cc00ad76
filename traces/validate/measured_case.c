/* From a row to a problem and a plan. */
#include <ctype.h>
#include <limits.h>
#include <string.h>

#include "traces/validate/measured_private.h"
#include "traces/validate/tune.h"

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
        dtp_run_note(a, c, dtp_arena_printf(a, "%s is outside the calibration", run->dtype));
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
        dtp_run_note(a, c, dtp_arena_printf(a, "%s assumed", dtp_dtype_names[*dtype]));
}

static void set_attention(struct dtp_arena *a, const struct cluster_fact *fact,
                          const struct dtp_run *run, struct dtp_run_case *c) {
    enum dtp_attention usual = dtp_framework_on(&c->framework, &c->cluster.gpu).attention;
    c->problem.attention = DTP_UNKNOWN;
    c->problem.document_tokens = fact ? fact->document_tokens : 0;
    if (c->problem.document_tokens > 0)
        dtp_run_note(
            a, c, dtp_arena_printf(a, "packed from documents of %d tokens", fact->document_tokens));
    if (fact && fact->attention) {
        c->problem.attention = dtp_name_index(dtp_attention_names, fact->attention);
        dtp_run_note(a, c, dtp_arena_printf(a, "run with %s attention", fact->attention));
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
        dtp_run_note(a, c,
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
    dtp_run_note(a, c, "embedding and head taken as layers");
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
            dtp_run_note(a, c, "no recomputation assumed");
    }
    int real = fact && fact->recompute ? dtp_name_index(dtp_recompute_names, fact->recompute) : -1;
    if (real >= 0 && real != recompute) {
        recompute = real;
        dtp_run_note(a, c, dtp_arena_printf(a, "run with recomputation %s", fact->recompute));
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
        dtp_run_note(a, c, dtp_arena_printf(a, "dp %d by the number of GPUs", p->dp));
}

/* A stack may divide more than the row says (a column that was left at ZeRO-1 beside FSDP), and what it
 * calls ZeRO-3 may keep its parameters gathered over the microbatches of a pipeline. */
static void set_zero(struct dtp_arena *a, const struct cluster_fact *fact,
                     const struct dtp_run *run, struct dtp_run_case *c) {
    struct dtp_plan *p = &c->plan;
    unsigned has = (unsigned)c->framework.can.zero_stages;
    p->zero_stage = run->zero_stage > 0 ? run->zero_stage : 0;
    if (run->zero_stage < 0 && fact && p->dp * p->cp > 1)
        p->zero_stage = fact->zero_stage;
    else if (run->zero_stage < 0 && p->dp * p->cp > 1 && (has & 1))
        dtp_run_note(a, c, "ZeRO 0 assumed");
    int least = 1, most = 3;
    while (least < 3 && !(has >> least & 1))
        least++;
    while (most > 0 && !(has >> most & 1))
        most--;
    bool lacks_none = run->zero_stage < 0 && !(has & 1); /* such as FSDP, where the row is silent */
    if (most > 0 && ((p->zero_stage > 0 && p->zero_stage < least) || lacks_none)) {
        p->zero_stage = most;
        dtp_run_note(
            a, c,
            dtp_arena_printf(a, "ZeRO %d taken, as %s has it", p->zero_stage, c->framework.name));
    }
    if (p->pp > 1 && p->zero_stage == 3 && !(c->framework.can.zero_stages_pp >> 3 & 1) &&
        (c->framework.can.zero_stages_pp >> 2 & 1)) {
        p->zero_stage = 2;
        dtp_run_note(a, c, "parameters stay gathered over the microbatches");
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
        dtp_run_note(a, c,
                     dtp_arena_printf(a, "run with %d microbatches a replica", ran->microbatches));
        return;
    }
    int64_t rounds = run->global_batch > 0 ? (run->global_batch + round - 1) / round : 1;
    p->global_batch_size = round * rounds <= INT_MAX ? (int)(round * rounds) : run->global_batch;
    if (p->global_batch_size != run->global_batch)
        dtp_run_note(a, c,
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
        dtp_run_note(a, c, "sequence parallelism assumed");
    }
    set_recompute(a, fact, run, c);
    dtp_run_set_schedule(a, run, c);
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
    dtp_run_take_shape(library, &filled);
    if (run->gpus <= 0 || run->layers <= 0 || run->hidden <= 0 || run->seq <= 0) {
        out->unsupported = missing(a, run);
        return;
    }
    if (!dtp_run_set_framework(a, library, run, out) ||
        !dtp_run_set_cluster(a, library, run, out) || !dtp_run_set_model(a, library, run, out))
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
        dtp_run_note(a, out,
                     dtp_arena_printf(a, "outside the framework's rules: %s", dtp_reasons[reason]));
    if (out->unsupported)
        return;
    set_checks(a, library, run, out);
    struct dtp_unsaid unsaid = {.microbatch = run->microbatch <= 0,
                                .vpp =
                                    run->vpp <= 0 && (strstr(run->schedule, "nterleaved") != NULL),
                                .recompute = !*run->recompute};
    const char *taken = dtp_run_tune(a, out, unsaid);
    if (taken)
        dtp_run_note(a, out, taken);
    else if (unsaid.microbatch)
        dtp_run_note(a, out, "microbatch 1 assumed");
}
