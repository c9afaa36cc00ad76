# Each wrong command says what is wrong and what is near, on standard error, with its exit status.
try() {
    "$dtplan" "$@" >out 2>err
    echo "$? dtplan $*"
    head -n 1 err
    [ ! -s out ] || echo "wrote to standard output"
}
try
try --model gpt175b
try --gpus 8
try --model gpt175b --gpus 0
try --model gpt175b --gpus many
try --model gpt175b --gpsu 8
try --model gpt175 --gpus 8
try --model gpt175b --gpus 8 --cluster dgx-a100-8
try --model gpt175b --gpus 8 --framework megatron-cor
try --model gpt175b --gpus 8 --nic fast
try --model gpt175b --gpus 8 --zero-stage 4
try --model gpt175b --gpus 8 --recompute ful
try --model gpt175b --gpus 8 --schedule 1f1c
try --model gpt175b --gpus 8 --tp 8..4
try --model gpt175b --gpus 8 --dtype bf61
try --model gpt175b --gpus 8 --dtype fp8
try --model gpt175b --gpus 8 --attention flash3
try --model gpt175b --gpus 1024 --why-not tq=8
try --model gpt175b --gpus 1024 extra
try --model gpt175b --gpus 1024 --layers-per-stage 40,40
try simulate --model gpt175b --gpus 1024 --tp 4,8
try --model gpt175b --gpus 1024 --etp 1
try --model gpt175b --gpus 1024 --ep-overlap 1
try --model mixtral-8x7b --gpus 64 --framework torchtitan --ep-overlap 1
try simulate --model mixtral-8x7b --gpus 64 --ep-per-node 1
try simulate --model gpt175b --gpus 1024 --tp 8 --pp 7
try simulate --model gpt175b --gpus 1024 --tp 8 --pp 8 --schedule interleaved
try simulate --model gpt175b --gpus 1024 --tp 8 --pp 8 --schedule zb-v --vpp 3
try simulate --model gpt175b --gpus 1024 --tp 8 --pp 8 --schedule zb-h2
try simulate --plan missing.json
try simulate --plan /dev/null
try compare one.json
try collective all_reduc --bytes 1MB --gpus 8
try collective all_reduce --gpus 8
try schedules 1f1c
try models gtp2
try --completions fish
try --model gpt2 --gpus 8 --micro-batch-sizes 4
try --model gpt2 --gpus 8 --fsdp
try --model gpt2 --gpus 8 --memory-limit 80
try --model gpt2 --gpu 64
try --model gpt2 --gpus 8 --price 2.5
try --model gpt2 --gpus 8 --ep 2
try --model gpt2 --gpus 8 --data-parallel-shard-degree 8
try --model gpt2 --gpus 8 --virtual-pipeline-model-parallel-size 0
try --model jamba-large --gpus 8
try simulate --model gpt2 --gpus 1 --zero-stage 1
# An option's value that cannot be read or is out of range is wrong use, whichever command parses it.
: >jobs.csv
try jobs jobs.csv --nodes 4 --restart soon
try jobs jobs.csv --nodes 4 --checkpoint-write 5s
try --model gpt22b --gpus 8 --gpu-hours-per-failure 0
try doctor --measured fastTF --model gpt2 --gpus 8
try simulate --model gpt2 --gpus 8 --offload everything
try simulate --model gpt2 --gpus 8 --recompute-layers many
# What chooses parts of a timeline needs one; folded, one rank stands for its replicas.
try simulate --model gpt2 --gpus 8 --timeline-ranks 0
try simulate --model gpt2 --gpus 8 --batch 64 --timeline t.json --timeline-ranks 3
"$dtplan" simulate --model gpt2 --gpus 8 --batch 64 --timeline t.json --timeline-ranks 3 --no-fold >out
echo "$? with --no-fold"
# What the framework lacks: those that have it, the most alike first.
try simulate --model llama3-8b --gpus 64 --cluster b200 --framework nanotron --dtype fp4
try simulate --model llama3-70b --gpus 64 --cluster h100 --framework nemo --zero-stage 3
try simulate --model mixtral-8x7b --gpus 64 --cluster h100 --tp 2 --ep 8
# Files that people write: a config without its type or of a type that is not modelled, rates in Gbit/s, a
# machine without a network, a table that is no log.
printf '{"model_type": "mamba", "hidden_size": 2560, "num_hidden_layers": 64}' >mamba.json
printf '{"hidden_size": 4096, "num_hidden_layers": 32}' >typeless.json
printf '{"gpu": "h100", "node": {"nics": 4, "nic_bytes_per_s": 200}}' >gbit.json
printf '{"gpu": "h100"}' >alone.json
printf '{"title": "mine"}' >nothing.json
printf '{"gpu": "h100", "fabric": "infinband"}' >fabric.json
printf '   8  4 32 24 3 1 on interleaved none 16.1 s +0.0\n' >table.txt
try models mamba.json
printf '{"model_type": "qwen3_next", "hidden_size": 2048, "num_hidden_layers": 48}' >next.json
try models next.json
try models typeless.json
try --model gpt2 --gpus 8 --cluster gbit.json
try --model gpt2 --gpus 16 --cluster alone.json
try --model gpt2 --gpus 8 --cluster nothing.json
try --model gpt2 --gpus 8 --cluster fabric.json
try trace table.txt
try collective allreduce --bytes 1MB
# A batch in tokens.
try --model gpt2 --gpus 8 --batch 4M
# Lists, where one is wanted.
try --model gpt2 --gpus 8,16
try --model gpt2 --gpus 8 --cluster a100,h100
try simulate --model gpt2 --gpus 8 --framework megatron,nemo
# Output that cannot be written; where it is closed, no socket of ranks takes its place.
{ "$dtplan" run --model gpt-check --steps 1 -n 1 >&-; } 2>&1
echo "exit $?"
# shellcheck disable=SC2069
{ "$dtplan" doctor --measured 9s --model gpt2 --gpus 8 --tp 2 >/dev/full; } 2>&1
echo "exit $?"
