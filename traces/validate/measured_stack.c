/* The stack and the machine of a measured row. */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "traces/validate/measured_private.h"

void dtp_run_note(struct dtp_arena *a, struct dtp_run_case *c, const char *text) {
    c->note = *c->note ? dtp_arena_printf(a, "%s; %s", c->note, text) : text;
}

/* A word begins at the start, behind what is no letter or digit, and at a capital: "My-FSDP", "LLMFoundry". */
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

bool dtp_run_set_framework(struct dtp_arena *a, const struct dtp_run_library *l,
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
            dtp_run_note(a, c, dtp_arena_printf(a, "framework taken as %s", f->name));
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

bool dtp_run_set_cluster(struct dtp_arena *a, struct dtp_run_library *l, const struct dtp_run *run,
                         struct dtp_run_case *c) {
    struct dtp_err err;
    const struct cluster_fact *f = dtp_run_fact(l, run);
    if (!f && run->gpus_per_node <= 0)
        dtp_run_note(a, c, "8 GPUs per node assumed");
    if (dtp_run_cluster(l, run, f ? f->cluster : NULL, &c->cluster, &err) != DTP_OK) {
        c->unsupported = dtp_arena_strdup(a, err.msg);
        return false;
    }
    if (c->cluster.gpu.other_memory)
        dtp_run_note(a, c,
                     dtp_arena_printf(a, "%g GB taken for the memory of %s",
                                      (double)run->gpu_mem_gb, c->cluster.gpu.name));
    if (c->cluster.max_gpus > 0 && run->gpus > c->cluster.max_gpus) {
        dtp_run_note(a, c, "more GPUs than the cluster is known to have");
        c->cluster.max_gpus = run->gpus;
    }
    return true;
}
