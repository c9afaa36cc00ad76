#include "planner/cli/emit.h"

#include <math.h>
#include <string.h>

#include "models/schedule/schedule.h"
#include "sim/base/text.h"

/* ---- the settings of other stacks. Names as in Megatron-LM's arguments.py (core 0.13), torchtitan's job_config.py
 * (v0.2.2), nanotron's config classes (0.4) and DeepSpeed's JSON reference. ---- */

static bool is_interleaved(const struct dtp_plan *plan) {
    return plan->pp > 1 && plan->vpp > 1;
}

static int dense_ffn(const struct dtp_model *m) {
    return m->ffn > 0 ? m->ffn : m->moe.ffn;
}

static void megatron_experts(FILE *f, const struct dtp_model *m, const struct dtp_plan *plan) {
    if (m->moe.experts == 0)
        return;
    fprintf(f,
            "--expert-model-parallel-size %d\n--num-experts %d\n--moe-router-topk %d\n"
            "--moe-ffn-hidden-size %d\n--moe-token-dispatcher-type %s\n--moe-grouped-gemm\n",
            plan->ep, m->moe.experts, m->moe.top_k, m->moe.ffn,
            plan->ep_per_node ? "flex\n--moe-flex-dispatcher-backend deepep" : "alltoall");
    if (dtp_plan_hides_experts(plan))
        fputs("--overlap-moe-expert-parallel-comm\n", f);
    if (dtp_plan_etp(plan) != plan->tp)
        fprintf(f, "--expert-tensor-parallel-size %d\n", plan->etp);
    if (m->moe.shared_experts > 0)
        fprintf(f, "--moe-shared-expert-intermediate-size %d\n",
                m->moe.shared_experts * m->moe.ffn);
    if (m->moe.router_bias)
        fputs("--moe-router-score-function sigmoid\n--moe-router-enable-expert-bias\n", f);
    if (m->moe.dense_layers_first == 0 && m->moe.layer_step == 1)
        return;
    fputs("--moe-layer-freq '(", f); /* runs of layers alike: [0]*1+[1]*60 */
    for (int first = 0, end; first < m->layers; first = end) {
        bool moe = dtp_model_layer_is_moe(m, first);
        for (end = first + 1; end < m->layers && dtp_model_layer_is_moe(m, end) == moe;)
            end++;
        fprintf(f, "%s[%d]*%d", first > 0 ? "+" : "", moe, end - first);
    }
    fputs(")'\n", f);
}

static void megatron_attention(FILE *f, const struct dtp_model *m) {
    fprintf(f, "--num-attention-heads %d\n", m->heads);
    if (m->mla.kv_lora_rank > 0) {
        fputs("--multi-latent-attention\n", f);
        if (m->mla.q_lora_rank > 0)
            fprintf(f, "--q-lora-rank %d\n", m->mla.q_lora_rank);
        fprintf(f,
                "--kv-lora-rank %d\n--qk-head-dim %d\n--qk-pos-emb-head-dim %d\n--v-head-dim %d\n",
                m->mla.kv_lora_rank, m->mla.nope_head_dim, m->mla.rope_head_dim, m->mla.v_head_dim);
    } else if (m->heads > 0 && m->head_dim * m->heads != m->hidden) {
        fprintf(f, "--kv-channels %d\n", m->head_dim);
    }
    if (m->kv_heads > 0 && m->kv_heads < m->heads)
        fprintf(f, "--group-query-attention\n--num-query-groups %d\n", m->kv_heads);
    if (m->sliding_window > 0 && !m->chunked_attention)
        fprintf(f, "--window-size %d,0\n", m->sliding_window);
    if (m->full_attention_step > 0 && !m->chunked_attention)
        fprintf(f, "--window-attn-skip-freq %d\n", m->full_attention_step);
    if (m->mtp_layers > 0)
        fprintf(f, "--mtp-num-layers %d\n", m->mtp_layers);
    if (m->qk_norm || m->mla.kv_lora_rank > 0) /* norms of MLA's latents, too */
        fputs("--qk-layernorm\n", f);
}

static const char *megatron_lacks(const struct dtp_model *m, const struct dtp_plan *plan) {
    (void)plan;
    return m->sliding_window > 0 && m->chunked_attention
               ? "arguments.py has nothing for attention in chunks (Megatron-Bridge's layers do): "
                 "all layers attend in full"
               : NULL;
}

static void megatron_model(FILE *f, const struct dtp_problem *p) {
    const struct dtp_model *m = p->model;
    int rows = m->max_positions > p->seq ? m->max_positions : p->seq;
    fprintf(f, "--num-layers %d\n--hidden-size %d\n--ffn-hidden-size %d\n", m->layers, m->hidden,
            dense_ffn(m));
    megatron_attention(f, m);
    fprintf(f, "--vocab-size %d\n--seq-length %d\n--max-position-embeddings %d\n", m->vocab, p->seq,
            rows);
    if (m->position == DTP_POS_ROPE)
        fputs("--position-embedding-type rope\n", f);
    if (m->norm == DTP_NORM_RMS)
        fputs("--normalization RMSNorm\n", f);
    if (m->gated_ffn && m->activation == DTP_ACT_SILU)
        fputs("--swiglu\n", f);
    if (m->activation == DTP_ACT_SQUARED_RELU)
        fputs("--squared-relu\n", f);
    if (!m->mlp_bias)
        fputs("--disable-bias-linear\n", f);
    if (m->qkv_bias && !m->attention_bias)
        fputs("--add-qkv-bias\n", f);
    if (!m->tied_embeddings)
        fputs("--untie-embeddings-and-output-weights\n", f);
    const double usual = 0.1, close = 1e-12; /* Megatron's default, of both */
    if (fabs(m->dropout - usual) > close || fabs(m->attention_dropout - usual) > close)
        fprintf(f, "--hidden-dropout %g\n--attention-dropout %g\n", m->dropout,
                m->attention_dropout);
}

static void megatron_recompute(FILE *f, const struct dtp_problem *p, const struct dtp_plan *plan) {
    if (plan->recompute == DTP_RECOMPUTE_SELECTIVE)
        fputs("--recompute-granularity selective\n", f);
    for (int i = 0, n = 0; i < DTP_NMODULES; i++)
        if (plan->recompute_modules & 1 << i)
            fprintf(f, "%s%s", n++ ? " " : "--recompute-modules ", dtp_module_names[i]);
    if (plan->recompute_modules)
        putc('\n', f);
    if (plan->recompute != DTP_RECOMPUTE_FULL)
        return;
    int most = dtp_plan_most_layers(plan, p->model);
    if (plan->recompute_layers > 0 && plan->recompute_layers < most)
        fprintf(f, "--recompute-granularity full\n--recompute-method block\n");
    else
        fprintf(f, "--recompute-granularity full\n--recompute-method uniform\n");
    fprintf(f, "--recompute-num-layers %d\n",
            plan->recompute_layers > 0 && plan->recompute_layers < most ? plan->recompute_layers
                                                                        : 1);
}

/* ZeRO 1 is the distributed optimizer; more is Megatron-FSDP, with the flags that its guide requires. */
static void megatron_sharding(FILE *f, const struct dtp_plan *plan) {
    static const char *const strategies[] = {[2] = "optim_grads", [3] = "optim_grads_params"};
    if (plan->zero_stage > 0)
        fputs("--use-distributed-optimizer\n", f);
    if (plan->zero_stage > 1)
        fprintf(f,
                "--use-megatron-fsdp\n--data-parallel-sharding-strategy %s\n"
                "--no-gradient-accumulation-fusion\n--ckpt-format fsdp_dtensor\n",
                strategies[plan->zero_stage]);
}

/* Communication and state that leave the compute stream or the GPU. */
static void megatron_overlap(FILE *f, const struct dtp_framework *framework,
                             const struct dtp_plan *plan) {
    bool overlap = dtp_framework_dp_overlaps(framework, plan->dp_overlap, plan->zero_stage);
    if (overlap && plan->dp * plan->cp > 1)
        fputs("--overlap-grad-reduce\n", f);
    if (overlap && plan->zero_stage > 0 && framework->wire.param_gather_overlap)
        fputs("--overlap-param-gather\n", f);
    if (framework->wire.tp_overlap_forward && plan->tp_overlap != 0 && plan->sequence_parallel)
        fputs("--tp-comm-overlap\n", f);
    if (plan->offload == DTP_OFFLOAD_OPTIMIZER)
        fputs("--optimizer-cpu-offload\n--optimizer-offload-fraction 1.0\n"
              "--use-precision-aware-optimizer\n",
              f);
}

static void megatron_dtype(FILE *f, const struct dtp_framework *framework, enum dtp_dtype dtype) {
    static const char *const recipes[] = {[DTP_FP8_DELAYED] = "delayed",
                                          [DTP_FP8_CURRENT] = "tensorwise",
                                          [DTP_FP8_BLOCK] = "blockwise"};
    fputs(dtype == DTP_FP16 ? "--fp16\n" : "--bf16\n", f);
    if (dtype == DTP_FP8)
        fprintf(f, "--fp8-format hybrid\n--fp8-recipe %s\n",
                recipes[framework->kernels.fp8_recipe]);
    if (dtype == DTP_FP4)
        fputs("--fp4-format e2m1\n", f);
}

/* Virtual stages hold equal numbers of layers, or would if embedding and head were layers. */
static bool is_even(const struct dtp_model *m, const struct dtp_plan *plan) {
    bool even = true;
    for (int vs = 1; vs < plan->pp * plan->vpp; vs++)
        even &= dtp_plan_layers(plan, m, vs) == dtp_plan_layers(plan, m, 0);
    return even || plan->account_for_ends;
}

/* Writes the layers of each virtual stage if they are not equal: 'Et*2|t*3|t*2L', quoted for shells. Stages and chunks
 * follow from it, so that --num-virtual-stages-per-pipeline-rank is not given as well. */
static bool megatron_layout(FILE *f, const struct dtp_model *m, const struct dtp_plan *plan) {
    int n = plan->pp * plan->vpp;
    if (is_even(m, plan))
        return false;
    fputs("--pipeline-model-parallel-layout 'E", f);
    for (int vs = 0; vs < n; vs++) {
        int layers = dtp_plan_layers(plan, m, vs);
        fputs(vs > 0 ? "|" : "", f);
        if (layers > 0) /* the last may have multi-token prediction alone */
            fprintf(f, "t*%d", layers);
    }
    for (int k = 0; k < m->mtp_layers; k++)
        fputs("m", f);
    fputs("L'\n", f);
    return true;
}

static void emit_megatron(FILE *f, const struct dtp_problem *p, const struct dtp_plan *plan) {
    fprintf(f, "--tensor-model-parallel-size %d\n--pipeline-model-parallel-size %d\n", plan->tp,
            plan->pp);
    if (!megatron_layout(f, p->model, plan) && is_interleaved(plan))
        fprintf(f, "--num-virtual-stages-per-pipeline-rank %d\n", plan->vpp);
    if (plan->account_for_ends)
        fputs("--account-for-embedding-in-pipeline-split\n"
              "--account-for-loss-in-pipeline-split\n",
              f);
    fprintf(f, "--context-parallel-size %d\n", plan->cp);
    if (plan->sequence_parallel)
        fputs("--sequence-parallel\n", f);
    megatron_sharding(f, plan);
    megatron_overlap(f, p->framework, plan);
    fprintf(f, "--micro-batch-size %d\n--global-batch-size %d\n", plan->microbatch_size,
            plan->global_batch_size);
    megatron_recompute(f, p, plan);
    megatron_experts(f, p->model, plan);
    megatron_model(f, p);
    megatron_dtype(f, p->framework, plan->dtype);
}

/* The framework's name of the plan's schedule, or ours where it has none. */
static const char *schedule_name(const char *theirs, const struct dtp_plan *plan) {
    return theirs ? theirs : dtp_schedule_names[plan->schedule];
}

/* Returns the dp ranks that share one copy, in addition to the cp ranks, which always do. torchtitan shards for ZeRO-2
 * as well, but keeps what it gathered. */
static int shards(const struct dtp_plan *plan) {
    int ranks = plan->zero_stage < 2   ? 1
                : plan->zero_group > 0 ? plan->zero_group / plan->cp
                                       : plan->dp;
    return ranks < 1 ? 1 : ranks < plan->dp ? ranks : plan->dp;
}

/* torchtitan by default counts embedding and head as a layer each: the first and the last stage may have fewer
 * layers than the others, which have equal numbers; any other division is written module by module. */
static void titan_stages(FILE *f, const struct dtp_model *m, const struct dtp_plan *plan) {
    int n = plan->pp * plan->vpp, each = dtp_plan_most_layers(plan, m);
    bool equal = true;
    for (int vs = 1; vs + 1 < n; vs++)
        equal &= dtp_plan_layers(plan, m, vs) == each;
    if (equal) {
        fprintf(f,
                "pipeline_parallel_layers_per_stage = %d\n"
                "pipeline_parallel_first_stage_less_layers = %d\n"
                "pipeline_parallel_last_stage_less_layers = %d\n",
                each, each - dtp_plan_layers(plan, m, 0), each - dtp_plan_layers(plan, m, n - 1));
        return;
    }
    fputs("module_fqns_per_model_part = [", f);
    for (int vs = 0, layer = 0; vs < n; vs++) {
        int layers = dtp_plan_layers(plan, m, vs);
        fputs(vs > 0 ? ", [" : "[\"tok_embeddings\"", f);
        for (int l = 0; l < layers; l++, layer++)
            fprintf(f, "%s\"layers.%d\"", vs == 0 || l > 0 ? ", " : "", layer);
        fputs(vs + 1 == n ? ", \"norm\", \"output\"]" : "]", f);
    }
    fputs("]\n", f);
}

/* Recomputes every n-th layer if the plan recomputes some of a part's layers. */
static void titan_recompute(FILE *f, const struct dtp_model *m, const struct dtp_plan *plan) {
    int most = dtp_plan_most_layers(plan, m), some = plan->recompute_layers;
    bool part = some > 0 && some < most;
    fprintf(f, "\n[activation_checkpoint]\nmode = \"%s\"\n",
            dtp_recompute_names[part ? DTP_RECOMPUTE_SELECTIVE : plan->recompute]);
    if (part)
        fprintf(f, "selective_ac_option = \"%d\"\n", most / some);
    else if (plan->recompute == DTP_RECOMPUTE_SELECTIVE)
        fputs("selective_ac_option = \"op\"\n", f);
}

static void emit_torchtitan(FILE *f, const struct dtp_problem *p, const struct dtp_plan *plan) {
    int m = dtp_plan_num_microbatches(plan);
    int local = plan->pp > 1 ? plan->microbatch_size * m : plan->microbatch_size;
    fprintf(f,
            "# torchtitan v0.2, --job.config_file; later releases are configured in Python\n"
            "[training]\nlocal_batch_size = %d\nglobal_batch_size = %d\nseq_len = %d\n",
            local, plan->global_batch_size, p->seq);
    fprintf(f,
            "\n[parallelism]\ndata_parallel_shard_degree = %d\ndata_parallel_replicate_degree = "
            "%d\ntensor_parallel_degree = %d\ncontext_parallel_degree = %d\n"
            "pipeline_parallel_degree = %d\nfsdp_reshard_after_forward = \"%s\"\n",
            shards(plan), plan->dp / shards(plan), plan->tp, plan->cp, plan->pp,
            plan->zero_stage == 3 ? "always" : "never");
    if (plan->pp > 1) {
        fprintf(f, "pipeline_parallel_schedule = \"%s\"\npipeline_parallel_microbatch_size = %d\n",
                schedule_name(dtp_schedule_kinds[plan->schedule].torch, plan),
                plan->microbatch_size);
        titan_stages(f, p->model, plan);
    }
    if (plan->ep > 1)
        fprintf(f, "expert_parallel_degree = %d\n", plan->ep);
    if (plan->ep > 1 && dtp_plan_etp(plan) > 1) /* 1 by default; later releases have no other */
        fprintf(f, "expert_tensor_parallel_degree = %d\n", dtp_plan_etp(plan));
    if (plan->ep > 1 && plan->ep_per_node)
        fputs("expert_parallel_comm_backend = \"deepep\"\n", f);
    if (p->framework->wire.tp_overlap && plan->tp_overlap != 0 && plan->tp > 1)
        fputs("enable_async_tensor_parallel = true\n", f);
    titan_recompute(f, p->model, plan);
    fprintf(f, "\n[compile]\nenable = %s\n",
            p->framework->kernels.ops == DTP_OPS_EAGER ? "false" : "true");
    if (dtp_dtype_narrow(plan->dtype))
        fprintf(f, "\n# %s: add its converter to model.converters (torchtitan's docs/float8.md)\n",
                dtp_dtype_names[plan->dtype]);
}

static void emit_nanotron(FILE *f, const struct dtp_problem *p, const struct dtp_plan *plan) {
    fprintf(f,
            "parallelism:\n  dp: %d\n  tp: %d\n  pp: %d\n  expert_parallel_size: %d\n"
            "  pp_engine: %s\n  tp_mode: %s\n  tp_linear_async_communication: %s\n"
            "  recompute_layer: %s\n",
            plan->dp, plan->tp, plan->pp, plan->ep,
            schedule_name(dtp_schedule_kinds[plan->schedule].nanotron, plan),
            plan->sequence_parallel ? "REDUCE_SCATTER" : "ALL_REDUCE",
            plan->sequence_parallel ? "true" : "false",
            plan->recompute == DTP_RECOMPUTE_FULL ? "true" : "false");
    fprintf(f,
            "tokens:\n  micro_batch_size: %d\n  batch_accumulation_per_replica: %d\n"
            "  sequence_length: %d\n",
            plan->microbatch_size, dtp_plan_num_microbatches(plan), p->seq);
    fprintf(f, "optimizer:\n  zero_stage: %d\n", plan->zero_stage);
}

static const char *deepspeed_lacks(const struct dtp_model *m, const struct dtp_plan *plan) {
    (void)m;
    return plan->recompute == DTP_RECOMPUTE_NONE
               ? NULL
               : "the plan recomputes layers, which the model's code switches on "
                 "(gradient_checkpointing of transformers), not this file";
}

static void emit_deepspeed(FILE *f, const struct dtp_problem *p, const struct dtp_plan *plan) {
    struct dtp_json_out w;
    bool overlap = dtp_framework_dp_overlaps(p->framework, plan->dp_overlap, plan->zero_stage);
    dtp_json_begin(&w, f, 2);
    dtp_json_object(&w);
    dtp_json_kv_int(&w, "train_batch_size", plan->global_batch_size);
    dtp_json_kv_int(&w, "train_micro_batch_size_per_gpu", plan->microbatch_size);
    dtp_json_kv_int(&w, "gradient_accumulation_steps", dtp_plan_num_microbatches(plan));
    dtp_json_put_key(&w, plan->dtype == DTP_FP16 ? "fp16" : "bf16");
    dtp_json_object(&w);
    dtp_json_kv_bool(&w, "enabled", plan->dtype == DTP_FP16 || plan->dtype == DTP_BF16);
    dtp_json_end(&w);
    dtp_json_put_key(&w, "zero_optimization");
    dtp_json_object(&w);
    /* the optimizer leaves the GPU with ZeRO alone: ZeRO-Offload on one replica is stage 2 of one rank */
    int stage = plan->zero_stage == 0 && plan->offload != DTP_OFFLOAD_NONE ? 2 : plan->zero_stage;
    dtp_json_kv_int(&w, "stage", stage);
    dtp_json_kv_bool(&w, "overlap_comm", overlap);
    dtp_json_kv_bool(&w, "contiguous_gradients", true);
    if (plan->zero_group > 0)
        dtp_json_kv_int(&w, "mics_shard_size", plan->zero_group);
    if (plan->offload != DTP_OFFLOAD_NONE) {
        dtp_json_put_key(&w, plan->offload == DTP_OFFLOAD_PARAMETERS ? "offload_param"
                                                                     : "offload_optimizer");
        dtp_json_object(&w);
        dtp_json_kv_string(&w, "device", plan->offload_to == DTP_OFFLOAD_NVME ? "nvme" : "cpu");
        dtp_json_end(&w);
    }
    dtp_json_end(&w);
    if (p->model->moe.experts > 0 &&
        p->framework->quirks.expert_loop.moe_capacity <= 0) { /* AutoEP */
        dtp_json_put_key(&w, "expert_parallel");
        dtp_json_object(&w);
        dtp_json_kv_bool(&w, "enabled", true);
        dtp_json_kv_int(&w, "autoep_size", plan->ep);
        dtp_json_end(&w);
    }
    dtp_json_end(&w);
}

/* Ranks fill whole nodes, the last node has the rest, as the simulation places them. */
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
            "torchrun --nnodes=%d --nproc_per_node=%s --node_rank=\"${NODE_RANK:-0}\" \\\n"
            "    --master_addr=\"${MASTER_ADDR:-127.0.0.1}\" --master_port=29511 --no_python \\\n"
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
    /* names what of model and plan has no setting, or NULL */
    const char *(*lacks)(const struct dtp_model *m, const struct dtp_plan *plan);
} kinds[] = {
    {0},
    {.script = write_slurm},
    {.script = write_torchrun},
    {.framework = {"megatron", "nemo"}, .settings = emit_megatron, .lacks = megatron_lacks},
    {.framework = {"torchtitan"}, .settings = emit_torchtitan},
    {.framework = {"nanotron"}, .settings = emit_nanotron},
    {.framework = {"deepspeed"}, .settings = emit_deepspeed, .lacks = deepspeed_lacks}};

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
        p->framework->kernels.ops == DTP_OPS_OWN
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
