# Files of many formats, told by content; names say nothing. A topology becomes a cluster; what is broken.
corpus=$root/tests/fuzz/corpus
"$dtplan" trace --format list
cp "$corpus/fuzz_logs/megatron.log" a
cp "$corpus/fuzz_config/megatron.yaml" config
gzip -c "$corpus/fuzz_jobs/acme.csv" >b
cp "$corpus/fuzz_workload/two.txt" c
cp "$corpus/fuzz_et/attrs.json" d
cp "$corpus/fuzz_aicb/good.csv" e
mkdir folder && cp "$corpus"/fuzz_events/titan.tfevents folder/1 && cp folder/1 folder/2
tar cf archive c d
echo "no format" >folder/readme
"$dtplan" trace a --config config --write-model model.json
"$dtplan" trace b
"$dtplan" trace archive --time-unit us
"$dtplan" trace e folder --json
"$dtplan" replay e
"$dtplan" models model.json | head -n 3
# a launch script is no trace, but says what to ask
cp "$corpus/fuzz_config/launch.txt" launch
"$dtplan" trace launch
# recomputation in units of 4 layers is of all of them; what a shell would read otherwise is in quotes
full() { printf '%s\n' "model_name_or_path: my/\$model" "--num-layers 32 --recompute-granularity full --recompute-num-layers 4 $*" >full; }
printf '%s\n' "[training]" "local_batch_size = 8" "[parallelism]" "pipeline_parallel_degree = 2" "data_parallel_shard_degree = 4" >titan
"$dtplan" trace titan | grep -o 'microbatch-size.*'
full --recompute-method uniform --pipeline-model-parallel-size 2 --account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split
"$dtplan" trace full | grep '^  what'
full --recompute-method block
"$dtplan" trace full | grep -o 'recompute .*'
# several launches are listed, and one is chosen; of two models with its shape the one whose vocabulary is nearer
printf '%s\n' "train.py --tensor-model-parallel-size 2 --num-layers 8" "train.py --tensor-model-parallel-size 4 --num-layers 8" >two
"$dtplan" trace two | grep -e '^  launch' -e '^  it says'
"$dtplan" trace two --launch 2 | grep -e '^  launch' -e '^  it says'
"$dtplan" trace two --launch 3 2>&1
echo "exit $?"
printf '%s\n' "model:" "  d_model: 4096" "  n_heads: 32" "  n_layers: 32" "  vocab_size: 50368" >mpt
"$dtplan" trace mpt | grep '^  model'
echo "{}" >unknown
for bad in unknown missing; do
    "$dtplan" trace $bad 2>&1
    echo "exit $?"
done
"$dtplan" trace a --format kinteo 2>&1
echo "exit $?"
"$dtplan" trace a --format chakra 2>&1
echo "exit $?"
# Workloads and graphs on a cluster; a machine's topology as a cluster.
printf 'HYBRID_TRANSFORMER model_parallel_NPU_group: 8 all_gpus: 16\n1\nlayer -1 1000 ALLREDUCE 1048576 1000 NONE 0 1000 ALLREDUCE 8388608 10\n' >w
"$dtplan" trace w --cluster dgx-h100 --time-unit us --timeline w.json
"$dtplan" replay w.json | grep -e replayed
"$dtplan" trace w --cluster dgx-h100 2>&1
echo "exit $?"
"$dtplan" simulate --model gpt1.7b --gpus 8 --cluster dgx-h100 --tp 2 --pp 2 --batch 8 --timeline x.et --json |
    awk '$1 == "\"step_s\":" { print $2 + 0; exit }' >simulated
"$dtplan" trace x.*.et --cluster dgx-h100 --json |
    awk '$1 == "\"step_s\":" { print $2 + 0; exit }' >graphs
paste simulated graphs | awk '{ print "the graphs of a simulated step take as long:", ($2 / $1 > 0.99 && $2 / $1 < 1.01 ? "yes" : "no, " $0) }'
if "$dtplan" trace "$corpus/fuzz_topology/mesh.xml" --write-cluster my.json 2>no; then
    "$dtplan" collective all_reduce --bytes 1MB --gpus 4 --cluster ./my.json | head -n 1
else
    grep -q expat no && echo "all_reduce of 1.0 MB over 4 GPUs on ./my.json (1 node, 1 group at once)"
fi
# A configuration on standard input is seen for one as it is in a file; a long one has to be named.
config="--tensor-model-parallel-size 2 --num-layers 24 --hidden-size 2048 --num-attention-heads 16"
echo "$config" | "$dtplan" trace - | grep -e says -e expect
{ echo "$config" && seq -f "# %.0f" 4000; } >long.sh
"$dtplan" trace - <long.sh 2>&1
"$dtplan" trace - --format config <long.sh | grep says
# A section of another job does not count; mappings in braces, anchors and merge keys do; a comment makes no log.
cat >run.yaml <<'END'
base: &base {dp: 6, pp: 1, tp: 2}
model: {hidden_size: 2048, intermediate_size: 11008, num_attention_heads: 16, num_hidden_layers: 36, hidden_act: silu}
parallelism: {<<: *base, dp: 96, tp_mode: REDUCE_SCATTER} # peak_tflops: 989
tokens:
    micro_batch_size: 3
    sequence_length: 4096
    batch_accumulation_per_replica: 2
lighteval:
    parallelism: {dp: 4, pp: 1, tp: 8}
peft: {dim: 64}
END
"$dtplan" trace run.yaml 2>&1
echo "exit $?"
# Each setting is in one of four lists: by the table of the trainer that has most of the keys.
printf '%s\n' "model_name_or_path: llama3-8b" "finetuning_type: full" "cutoff_len: 2048" "use_galore: true" \
    "galore_rank: 128" "optim: adamw_8bit" "seed: 7" "cutof_len: 4096" "use_unsloth: false" >tune.yaml
"$dtplan" trace tune.yaml 2>&1
echo "exit $?"
"$dtplan" trace tune.yaml --json 2>/dev/null | sed -n '/"not_modelled"/,/]/p'
printf '%s\n' "model_name_or_path: llama3-8b" "cutoff_len: 2048" "per_device_train_batch_size: 2" >good.yaml
"$dtplan" trace good.yaml | grep -e used -e effect
# A script: defaults, arrays, branches on what is known and what is not, a document, arithmetic, variables before a launcher.
cat >train.sh <<'END'
#!/bin/bash
#SBATCH --nodes=2
SIZE=${1:-8B}
GPUS=${GPUS:-8}
case $SIZE in
    8B) SHAPE="--num-layers 32 --hidden-size 4096" ;;
    *) SHAPE="--num-layers 80 --hidden-size 8192" ;;
esac
if [ $PRECISION = fp8 ]; then
    MORE="--fp8-format hybrid"
elif [[ "$PRECISION" == bf16 ]]; then
    MORE="--bf16"
fi
if [ "$OFFLOAD" != false ]; then EXTRA="--optimizer-cpu-offload"; fi
ARGS=(
    $SHAPE --num-attention-heads 32 # heads
    --global-batch-size $((GPUS * 2 * 16))
)
cat >ds.json <<EOF
{"zero_optimization": {"stage": 1}, "wall_clock_breakdown": true}
EOF
mkdir -p out
if [ $SIZE = 70B ]
then
    torchrun --nproc_per_node 1 eval.py --num-layers 2
fi
srun --ntasks-per-node=1 bash -c "torchrun --nproc_per_node $GPUS train.py ${ARGS[*]} $MORE $EXTRA \
    --tensor-model-parallel-size 2 --micro-batch-size 1 --seed 1"
OPTIMIZER_OFFLOAD=1 TP=4 MBS=2 bash launch.sh --recompute-granularity full
END
"$dtplan" trace train.sh 2>&1
"$dtplan" trace train.sh --launch 2 2>/dev/null | grep -e expect -e used
# The training part of an RL job, whose generation has a layout of its own.
cat >rl.sh <<'END'
ROLLOUT=(a.rollout.tensor_model_parallel_size=${TP:-8})
python3 -m verl "${ROLLOUT[@]}" data.max_prompt_length=512 \
  data.max_response_length=1536 actor.model.path=llama3-8b actor.fsdp_config.param_offload=True trainer.n_gpus_per_node=8
END
"$dtplan" trace rl.sh 2>/dev/null | grep -v -e cluster: -e better
# GPT-NeoX and a slice of MaxText
printf '%s\n' '{"pipe-parallel-size": 2, "model-parallel-size": 4, "num-layers": 44, "checkpoint-activations": true,' \
    '"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1}}' >neox.yml
"$dtplan" trace neox.yml | grep expect
printf '%s\n' 'model_name: llama3.1-405b' 'dcn_fsdp_parallelism: 128' 'ici_fsdp_parallelism: 8' 'per_device_batch_size: 1.0' >max.yml
"$dtplan" trace max.yml | grep expect
# Of a hybrid no GPT is written.
echo "torchrun train.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 --vocab-size 512 --seq-length 64 --hybrid-override-pattern M-M*" >hybrid
"$dtplan" trace a --config hybrid --write-model hybrid.json >/dev/null 2>&1
echo "exit $?"
