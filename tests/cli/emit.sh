# The scripts of --emit are the best plan's, and what they start is a command that dtplan accepts.
for kind in slurm torchrun; do
    "$dtplan" --model gpt2 --gpus 16 --batch 64 --tp 2 --pp 2 --schedule 1f1b --microbatch-size 4 \
        --zero 1 --sp off --recompute none --emit $kind >$kind.sh
    bash -n $kind.sh || echo "$kind: no shell script"
    cat $kind.sh
done
# A last node that is not full holds the rest.
for kind in slurm torchrun; do
    "$dtplan" --model gpt2 --gpus 12 --batch 48 --emit $kind >$kind.rest
    bash -n $kind.rest || echo "$kind: no shell script"
    grep -oe '^#SBATCH --[nd][ti].*' -e '--nproc.* --node' $kind.rest
done
for node in 0 1; do
    NODE_RANK=$node bash -c "$(sed -n 's/.*nproc_per_node=\(.*\) --node.*/echo \1/p' torchrun.rest)"
done
"$dtplan" --model gpt2 --gpus 16 --emit slurm --json 2>&1
echo "status $?"
arguments=$(sed -n 's/^srun dtplan run --backend cuda //p' slurm.sh)
# shellcheck disable=SC2086
"$dtplan" simulate --gpus 16 $arguments --json | head -c 1
# The settings of other stacks, of plans made for them.
fixed="--model llama3-8b --gpus 64 --batch 128 --tp 2 --microbatch-size 1 --recompute none"
# shellcheck disable=SC2086
{
    "$dtplan" $fixed --pp 2 --vpp 2 --sp on --zero 1 --emit megatron
    "$dtplan" $fixed --pp 1 --framework torchtitan --zero 3 --sp on --emit torchtitan
    "$dtplan" $fixed --pp 2 --schedule 1f1b --framework torchtitan --zero 2 --sp on --emit torchtitan |
        grep -e data_parallel -e reshard
    "$dtplan" $fixed --pp 4 --vpp 3 --framework torchtitan --zero 2 --sp on --emit torchtitan |
        grep -o 'module_fqns.*layers.3"\|pipeline.*schedule.*'
    "$dtplan" $fixed --pp 2 --framework nanotron --sp on --zero 1 --emit nanotron
    "$dtplan" --model llama3-405b --gpus 1024 --cluster h100 --batch 128 --tp 8 --pp 16 --vpp 8 \
        --ends on --emit megatron | grep account
    "$dtplan" --model mixtral-8x7b --gpus 16 --cluster h100 --batch 64 --tp 4 --pp 1 --ep 8 --etp 1 \
        --emit megatron | grep -e expert- -e model-par
    "$dtplan" $fixed --pp 1 --framework megatron-bridge --cluster h100 --zero 3 --sp on --dtype fp8 \
        --emit megatron | grep -e optim -e fsdp -e fp8
    "$dtplan" --model llama4-maverick --gpus 256 --cluster h200 --batch 256 --pp 1 --emit megatron 2>note |
        grep freq | cut -c 1-40
    cut -c 1-50 note
    "$dtplan" --model deepseek-v3 --gpus 1024 --cluster h100 --emit megatron |
        grep -e freq -e latent -e lora -e head-dim -e layernorm -e router
    "$dtplan" $fixed --pp 1 --framework nanotron --emit megatron 2>&1
    echo "status $?"
}
# Layers that do not divide are laid out stage by stage: Megatron-LM takes no others.
"$dtplan" --model gpt3-13b --gpus 16 --batch 32 --tp 1 --pp 16 --microbatch-size 1 --emit megatron |
    grep layout
# The framework follows from what is emitted; what a plan rests on is switched on there.
small="--model llama3-8b --gpus 16 --cluster h100 --batch 64"
# shellcheck disable=SC2086
{
    "$dtplan" $small --emit torchtitan --tp 1 --recompute selective | grep -e option -e enable
    "$dtplan" $small --framework torchtitan-async-tp --tp 2 --pp 1 --emit torchtitan | grep async
    "$dtplan" $small --emit nanotron --tp 2 --pp 1 | grep tp:
    "$dtplan" $small --emit deepspeed | grep -o '"stage"'
    # what was simulated: no overlap but in stage 3; one replica offloads by stage 2
    "$dtplan" $small --emit deepspeed --zero-stage 1 | grep overlap
    "$dtplan" $small --emit deepspeed --zero-stage 3 | grep overlap
    "$dtplan" --model llama3-8b --gpus 1 --cluster h100 --batch 64 --emit deepspeed --offload optimizer \
        2>/dev/null | grep '"stage"'
    # recomputation is no setting of DeepSpeed's, groups of ZeRO are MiCS
    "$dtplan" $small --emit deepspeed --recompute full 2>note >/dev/null
    cut -c 1-60 note
    "$dtplan" --model llama3.2-1b --gpus 16 --cluster h100 --batch 64 --emit deepspeed --zero-stage 3 --zero-group 8 2>/dev/null |
        grep mics
    "$dtplan" $small --framework megatron-core-overlap --tp 2 --sp on --emit megatron | grep overlap
    "$dtplan" $small --offload optimizer --emit megatron | grep -e offload -e aware
}
# What a shell would take apart is quoted.
"$dtplan" --model deepseek-v3 --gpus 1024 --cluster h100 --emit megatron | xargs printf '%s\n' |
    grep -A 1 -e layout -e layer-freq | grep -v -e -- | cut -c 1-9
# Every option of torchtitan's is one that its job_config.py (v0.2.2) has.
options="training: local_batch_size global_batch_size seq_len
parallelism: data_parallel_shard_degree data_parallel_replicate_degree tensor_parallel_degree
 context_parallel_degree pipeline_parallel_degree fsdp_reshard_after_forward
 pipeline_parallel_schedule pipeline_parallel_microbatch_size pipeline_parallel_layers_per_stage
 pipeline_parallel_first_stage_less_layers pipeline_parallel_last_stage_less_layers
 module_fqns_per_model_part expert_parallel_degree expert_tensor_parallel_degree
 expert_parallel_comm_backend enable_async_tensor_parallel
activation_checkpoint: mode selective_ac_option
compile: enable"
titan="--gpus 64 --cluster h100 --batch 128 --emit torchtitan"
# shellcheck disable=SC2086
{
    "$dtplan" --model llama3-8b $titan --framework torchtitan-eager --pp 4 --schedule zb-v --last-stage-less 0
    "$dtplan" --model llama3-8b $titan --framework torchtitan-async-tp --tp 2 --pp 4 --vpp 3 --last-stage-less 0
    "$dtplan" --model mixtral-8x7b $titan --pp 1 --tp 2 --sp on --ep 8 --etp 2 --ep-per-node 1
    "$dtplan" --model mixtral-8x7b $titan --pp 1 --tp 1 --ep 8 --recompute selective
} | awk -v options="$options" '
    BEGIN {
        n = split(options, word, /[ \n]+/)
        for (i = 1; i <= n; i++)
            if (sub(":$", "", word[i])) table = word[i]
            else known[table, word[i]] = 1
    }
    /^\[/ { table = substr($1, 2, length($1) - 2) }
    / = / && !((table, $1) in known) { print "no option of torchtitan:", table, $1 }
    / = / { seen[table, $1] = 1 }
    /ZBV|deepep/
    END { for (k in known) if (!(k in seen)) { split(k, at, SUBSEP); print "not seen:", at[1], at[2] } }'
