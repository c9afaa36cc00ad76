# Comparisons with other tools: without their checkout a clear line and 77; with one (here functions
# that stand for DeepSpeed's estimators) the rows that it can express, its error, and what is left out.
export PYTHONDONTWRITEBYTECODE=1
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }
for tool in calculon estimators astra; do
    python3 "$root/tests/bench/compare_$tool.py" nowhere rows.csv
    echo "status $?"
done
mkdir -p deepspeed/runtime/zero
cat >deepspeed/runtime/zero/stage_1_and_2.py <<'PY'
import torch
def estimate_zero2_model_states_mem_needs(total_params, num_gpus_per_node, num_nodes, cpu_offload):
    return 0, 22 * 1000**3
PY
cat >deepspeed/runtime/zero/stage3.py <<'PY'
import torch
def estimate_zero3_model_states_mem_needs(total, largest, gpus, nodes, offload, offload_params):
    assert total > 6e9 and largest == 32000 * 4096 and gpus == 8
    return 0, 18 * 1000**3, 0
PY
cat >rows.csv <<'CSV'
id,framework,gpu,gpu_mem_gb,gpus,gpus_per_node,model,layers,hidden,heads,kv_heads,ffn,gated_ffn,vocab,seq,tp,pp,vpp,cp,dp,zero_stage,microbatch,global_batch,dtype,recompute,sequence_parallel,flash_attention,schedule,step_s,step_s_from,peak_mem,peak_mem_unit,source
a,torch-fsdp2,A100,80,8,8,Llama 7B,32,4096,32,32,11008,1,32000,2048,1,1,1,1,8,3,1,8,bf16,full,0,1,,1.0,measured,20,GB,made up
b,torch-fsdp2,A100,80,8,8,Llama 7B,32,4096,32,32,11008,1,32000,2048,1,1,1,1,8,2,1,8,bf16,full,0,1,,1.0,measured,20,GB,made up
c,torch-ddp,A100,80,8,8,Llama 7B,32,4096,32,32,11008,1,32000,2048,1,1,1,1,8,0,1,8,bf16,full,0,1,,1.0,measured,20,GB,made up
CSV
DTPLAN="$dtplan" python3 "$root/tests/bench/compare_estimators.py" . rows.csv |
    awk '$1 == "rows" { print $2 " rows, " $3 " used, error " $4 ", bias " $5 } { sub(/.*; /, "") } END { print }'
echo "status ${PIPESTATUS[0]}"
