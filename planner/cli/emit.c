#include "planner/cli/emit.h"

const char *const dtp_emit_names[] = {"none", "slurm", "torchrun", NULL};

static void write_slurm(FILE *f, int nodes, int per_node, const char *command) {
    fprintf(f,
            "#!/bin/bash\n"
            "#SBATCH --job-name=dtplan\n"
            "#SBATCH --nodes=%d\n"
            "#SBATCH --ntasks-per-node=%d\n"
            "#SBATCH --gpus-per-node=%d\n"
            "#SBATCH --exclusive\n"
            "export MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n"
            "export MASTER_PORT=29511\n"
            "srun %s\n",
            nodes, per_node, per_node, command);
}

static void write_torchrun(FILE *f, int nodes, int per_node, const char *command) {
    fprintf(f,
            "#!/bin/bash\n"
            "# on every node, with MASTER_ADDR the first one's name and NODE_RANK 0 .. %d\n"
            "torchrun --nnodes=%d --nproc-per-node=%d --node-rank=\"${NODE_RANK:-0}\" \\\n"
            "    --master-addr=\"${MASTER_ADDR:-127.0.0.1}\" --master-port=29511 --no-python \\\n"
            "    %s\n",
            nodes - 1, nodes, per_node, command);
}

enum dtp_status dtp_emit_script(struct dtp_arena *a, FILE *f, enum dtp_emit kind,
                                const struct dtp_setup *setup, const struct dtp_plan *plan,
                                struct dtp_err *err) {
    const struct dtp_problem *p = &setup->problem;
    int per_node = p->cluster->node.gpus < p->gpus ? p->cluster->node.gpus : p->gpus;
    int nodes = (p->gpus + per_node - 1) / per_node;
    if (!setup->ask.model)
        return dtp_fail(err, DTP_EUNSUPPORTED,
                        "--emit: a script can only name its model, and this "
                        "one is embedded in the plan document");
    const char *command = dtp_arena_printf(
        a, "dtplan run --backend cuda --model %s --seq %d --dtype %s %s", setup->ask.model, p->seq,
        dtp_dtype_names[plan->dtype], dtp_plan_flags(a, plan));
    switch (kind) {
    case DTP_EMIT_NONE:
        break;
    case DTP_EMIT_SLURM:
        write_slurm(f, nodes, per_node, command);
        break;
    case DTP_EMIT_TORCHRUN:
        write_torchrun(f, nodes, per_node, command);
        break;
    }
    return DTP_OK;
}
