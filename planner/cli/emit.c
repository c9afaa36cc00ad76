#include "planner/cli/emit.h"

#include <string.h>

#include "sim/base/text.h"

/* Where ranks run: full nodes, the last with what is left, as the simulation places them. */
struct ranks {
    int nodes, per_node, on_last;
};

static void write_slurm(FILE *f, const struct ranks *r, const char *note, const char *command) {
    fprintf(f,
            "#!/bin/bash\n"
            "%s"
            "#SBATCH --job-name=dtplan\n"
            "#SBATCH --nodes=%d\n"
            "#SBATCH --ntasks-per-node=%d\n"
            "#SBATCH --gpus-per-node=%d\n"
            "#SBATCH --exclusive\n",
            note, r->nodes, r->per_node, r->per_node);
    if (r->on_last < r->per_node)
        fprintf(f, "#SBATCH --ntasks=%d\n#SBATCH --distribution=plane=%d\n",
                (r->nodes - 1) * r->per_node + r->on_last, r->per_node);
    fprintf(f,
            "export MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n"
            "export MASTER_PORT=29511\n"
            "srun %s\n",
            command);
}

static void write_torchrun(FILE *f, const struct ranks *r, const char *note, const char *command) {
    char each[64];
    if (r->on_last < r->per_node)
        snprintf(each, sizeof each, "$((${NODE_RANK:-0} < %d ? %d : %d))", r->nodes - 1,
                 r->per_node, r->on_last);
    else
        snprintf(each, sizeof each, "%d", r->per_node);
    fprintf(f,
            "#!/bin/bash\n"
            "%s"
            "# on every node, with MASTER_ADDR the first one's name and NODE_RANK 0 .. %d\n"
            "torchrun --nnodes=%d --nproc-per-node=%s --node-rank=\"${NODE_RANK:-0}\" \\\n"
            "    --master-addr=\"${MASTER_ADDR:-127.0.0.1}\" --master-port=29511 --no-python \\\n"
            "    %s\n",
            note, r->nodes - 1, r->nodes, each, command);
}

const char *const dtp_emit_names[] = {"none",       "slurm",    "torchrun",  "megatron",
                                      "torchtitan", "nanotron", "deepspeed", NULL};

/* A row for each name: a script around `dtplan run`, or the settings of the frameworks whose name
 * begins so. */
static const struct {
    void (*script)(FILE *f, const struct ranks *r, const char *note, const char *command);
    const char *framework[3];
    void (*settings)(FILE *f, const struct dtp_problem *p, const struct dtp_plan *plan);
    /* of model and plan, what has no setting; or NULL */
    const char *(*lacks)(const struct dtp_model *m, const struct dtp_plan *plan);
} kinds[] = {{0},
             {.script = write_slurm},
             {.script = write_torchrun},
             {.framework = {"megatron", "nemo"},
              .settings = dtp_emit_megatron,
              .lacks = dtp_emit_megatron_lacks},
             {.framework = {"torchtitan"}, .settings = dtp_emit_torchtitan},
             {.framework = {"nanotron"}, .settings = dtp_emit_nanotron},
             {.framework = {"deepspeed"},
              .settings = dtp_emit_deepspeed,
              .lacks = dtp_emit_deepspeed_lacks}};

const char *dtp_emit_framework(int kind) {
    return kinds[kind].framework[0];
}

static enum dtp_status emit_script(struct dtp_arena *a, FILE *f, int kind,
                                   const struct dtp_setup *setup, const struct dtp_plan *plan,
                                   struct dtp_err *err) {
    const struct dtp_problem *p = &setup->problem;
    struct ranks ranks = {.per_node =
                              p->cluster->node.gpus < p->gpus ? p->cluster->node.gpus : p->gpus};
    ranks.nodes = (p->gpus + ranks.per_node - 1) / ranks.per_node;
    ranks.on_last = p->gpus - (ranks.nodes - 1) * ranks.per_node;
    if (!setup->ask.model)
        return dtp_fail(err, DTP_EUNSUPPORTED,
                        "--emit: a script can only name its model, and this "
                        "one is embedded in the plan document");
    struct dtp_str command = {.a = a};
    dtp_str_add(&command, "dtplan run --backend cuda --model ");
    dtp_str_add_word(&command, setup->ask.model);
    dtp_str_printf(&command, " --seq %d --dtype %s %s", p->seq, dtp_dtype_names[plan->dtype],
                   dtp_plan_flags(a, plan));
    const char *note =
        p->framework->kernels.native
            ? ""
            : dtp_arena_printf(a,
                               "# dtplan's own runtime trains the plan that was found for %s; for "
                               "the settings of that: --emit megatron, torchtitan, ...\n",
                               p->framework->name);
    kinds[kind].script(f, &ranks, note, command.at);
    return DTP_OK;
}

enum dtp_status dtp_emit_script(struct dtp_arena *a, FILE *f, int kind,
                                const struct dtp_setup *setup, const struct dtp_plan *plan,
                                struct dtp_err *err) {
    if (kinds[kind].script)
        return emit_script(a, f, kind, setup, plan, err);
    const char *name = setup->problem.framework->name;
    bool known = false;
    for (int i = 0; kinds[kind].framework[i]; i++)
        known |= strncmp(name, kinds[kind].framework[i], strlen(kinds[kind].framework[i])) == 0;
    if (!known)
        return dtp_fail(err, DTP_EUNSUPPORTED,
                        "--emit %s: found a plan of framework \"%s\", say --framework %s",
                        dtp_emit_names[kind], name, kinds[kind].framework[0]);
    if (setup->problem.model->nconvs > 0 || setup->problem.model->patch > 0)
        return dtp_fail(err, DTP_EUNSUPPORTED, "--emit %s: \"%s\" is no language model",
                        dtp_emit_names[kind], setup->problem.model->name);
    const char *lacks = kinds[kind].lacks ? kinds[kind].lacks(setup->problem.model, plan) : NULL;
    if (lacks)
        fprintf(stderr, "dtplan: --emit %s: %s\n", dtp_emit_names[kind], lacks);
    kinds[kind].settings(f, &setup->problem, plan);
    return DTP_OK;
}
