# What a plan's rarer options do to its step, as relations: what hides more is faster, another algorithm is another
# time, a fidelity below is never above.
step() { "$dtplan" simulate --model gpt18b --gpus 64 --tp 4 --pp 4 --dp 4 --batch 64 --recompute full --zero-stage 1 --json "$@" |
    sed -n 's/^ *"step_s": \([0-9.e+-]*\),$/\1/p' | head -n 1; }
compare() { awk -v x="$2" -v y="$3" -v what="$1" 'BEGIN { print what ": " (x + 0 < y + 0 ? "less" : x + 0 > y + 0 ? "more" : "as much") }'; }
compare "dp hidden, then not" "$(step --dp-overlap 1)" "$(step --dp-overlap 0)"
compare "tp hidden, then not" "$(step --framework megatron-core-overlap --tp-overlap 1)" "$(step --framework megatron-core-overlap --tp-overlap 0)"
compare "transfers hidden, then not" "$(step --p2p-overlap 1)" "$(step --p2p-overlap 0)"
compare "tp sums by a ring, then by a tree" "$(step --tp-algo ring)" "$(step --tp-algo tree)"
compare "dp sums by one after another, then by a ring" "$(step --dp-algo sequential)" "$(step --dp-algo ring)"
"$dtplan" simulate --model gpt18b --gpus 64 --tp 4 --pp 4 --dp 4 --batch 64 --dp-algo snake 2>&1 | head -n 1
# 40 layers and two ends on 6 stages: 7 each, the first and the last 6
"$dtplan" simulate --model gpt18b --gpus 48 --pp 6 --tp 8 --dp 1 --batch 12 --recompute full --account-for-ends true \
    --framework megatron-bridge --json | tr -d ' \n' | grep -o '"account_for_ends":true'
header=id,framework,gpu,gpu_mem_gb,gpus,gpus_per_node,model,layers,hidden,heads,vocab,seq,tp,pp,vpp,dp,zero_stage,microbatch,global_batch,dtype,recompute,step_s
printf '%s\na,megatron-2022,A100,80,64,8,GPT 175B,96,12288,96,51200,2048,8,8,3,1,0,1,64,fp16,selective,13.75\n' "$header" >runs.csv
rows() {
    "$dtplan" validate runs.csv --fidelity "$1" --rows "$1.csv" >"$1.txt"
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "predicted_s") at = i } NR == 2 { print $at }' "$1.csv"
}
compare "bound, then estimate" "$(rows bound)" "$(rows estimate)"
"$dtplan" --model gpt3-1.3b --gpus 16 --top 1 --json | tr -d ' \n' | grep -o '"simulated":[0-9]*' | head -n 1
# cuDNN's attention is not calibrated on A100: FlashAttention 2 stands in; on V100 none does
"$dtplan" simulate --model gpt2 --gpus 8 --framework llm.c --dp 8 --zero-stage 1 | tr -s " \n" " " | grep -o "[a-z0-9]* attention" | head -n 1
"$dtplan" simulate --model gpt2 --gpus 16 --cluster dgx-2 --framework llm.c --dp 16 | tr -s " \n" " " | grep -o "[a-z0-9]* attention" | head -n 1
# Megatron's list of words is a list; what the stack or the model lacks is refused
modules() { "$dtplan" simulate --gpus 8 --cluster h100 --batch 64 --zero-stage 1 "$@" 2>&1; }
modules --model mixtral-8x7b --ep 8 --recompute-granularity selective --recompute-modules moe_act layernorm --json | tr -d ' \n' | grep -o '"recompute_modules":[^]]*]'
modules --model mixtral-8x7b --ep 8 --recompute-modules moe_act | head -n 1
for verb in simulate plan; do # the search says what one plan says
    "$dtplan" $verb --model mixtral-8x7b --gpus 8 --cluster h100 --recompute full --recompute-modules moe_act 2>&1
    echo "status $?"
    "$dtplan" $verb --model mixtral-8x7b --gpus 8 --cluster h100 --recompute selective --recompute-layers 2 2>&1
    echo "status $?"
done
modules --model mixtral-8x7b --ep 8 --recompute selective --recompute-modules mla_up_proj | head -n 1
modules --model gpt2 --recompute selective --recompute-modules core_atn | head -n 1
modules --model gpt2 --framework dtplan --recompute selective --recompute-modules mlp | head -n 1
modules --model gpt2 --recompute selective --recompute-modules mlp --json >modules.json
"$dtplan" simulate --plan modules.json --json | tr -d ' \n' | grep -o '"recompute_modules":[^]]*]'
# a layout of Megatron: 61 layers on 8 x 4 stages, the last holds multi-token prediction alone
modules --model deepseek-v3 --gpus 64 --pp 8 --ep 8 --pipeline-model-parallel-layout "Et|(tt|)*30mL" --json | tr -d ' \n' | grep -o '"vpp":4\|"layers_per_stage":\[1,2,2,\|,2,2,0\]' | sort -u
modules --model gpt2 --layers-per-stage 7,5 | head -n 1
# replicas on nodes of 6 that are not alike are simulated one by one, as with --no-fold
unlike() { "$dtplan" simulate --model gpt3-1.3b --cluster summit --gpus 48 --dtype fp16 --tp 8 --batch 48 --json "$@" | grep -m 1 '"step_s"'; }
[ "$(unlike --pp 3)" = "$(unlike --pp 3 --no-fold)" ] && echo "the same step"
# a list of every plan has its limit
"$dtplan" --model deepseek-v3 --gpus 2048 --cluster h100 --csv 2>&1 | head -n 1
