# What infer counts and what it refuses, on small traces: one event a line, made here.
# kernel NAME CORRELATION START: a kernel, launched 1 us before its start unless the correlation is 0
kernel() {
    [ "$2" = 0 ] || printf '{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":%d,"dur":1,"args":{"correlation":%d}},\n' $(($3 - 1)) "$2"
    printf '{"ph":"X","cat":"kernel","name":"%s","pid":0,"tid":7,"ts":%d,"dur":2,"args":{"stream":7,"device":0,"correlation":%d,"grid":[8,2,16],"block":[128,1,1]}},\n' "$1" "$3" $(($2 + 900 * ($2 == 0)))
}
step() { printf '{"ph":"X","cat":"user_annotation","name":"ProfilerStep#%d","pid":1,"tid":1,"ts":%d,"dur":100},\n' "$1" "$2"; }
trace() { # DEVICE MEMORY, events from standard input
    printf '{"schemaVersion":1,"deviceProperties":[{"name":"%s","totalGlobalMem":%s}],"traceEvents":[\n' "$1" "$2"
    cat
    printf '{"ph":"M","name":"end","pid":1,"tid":1,"ts":0}]}\n'
}
forward='void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128>>'
backward='void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<64>'
gather='void vectorized_gather_kernel<16>'
loss='nll_loss_forward_reduce_cuda_kernel_2d'

# Two steps of two layers; three attentions of an earlier step lie on the device before them.
{
    for at in 2 5 8; do kernel "$forward" 0 $at; done
    for s in 1 2; do
        step $s $((100 * s))
        at=$((100 * s + 2))
        kernel "$gather" $((10 * s)) $at
        kernel "$forward" $((10 * s + 1)) $((at + 10))
        kernel "$forward" $((10 * s + 2)) $((at + 20))
        kernel "$loss" $((10 * s + 3)) $((at + 30))
        kernel "$backward" $((10 * s + 4)) $((at + 40))
        kernel "$backward" $((10 * s + 5)) $((at + 50))
    done
} | trace "NVIDIA A100-SXM4-80GB" 85100000000 >training.json
"$dtplan" infer training.json 2>/dev/null | grep -e '^layers' -e '^backward' -e '^cluster'

# The forward alone is inference; no plan of a training comes out.
{
    kernel "$gather" 1 10
    kernel "$forward" 2 20
    kernel "$forward" 3 30
} | trace "NVIDIA A100-SXM4-40GB" 42500000000 >inference.json
"$dtplan" infer inference.json --out plan.json 2>&1 | grep -e '^layers' -e '^cluster' -e '^dtplan'
[ -e plan.json ] && echo "a plan was written"

# Convolutions beside attention, as in a diffusion model: its text encoder is not the model.
{
    for at in 10 20 30; do kernel sm80_xmma_fprop_implicit_gemm_bf16 $at $at; done
    kernel "$forward" 4 40
} | trace "NVIDIA H100 80GB HBM3" 85000000000 >diffusion.json
"$dtplan" infer diffusion.json 2>&1 | grep -e '^layers' -e '^head' -e '^dtplan'

# Nothing that attends.
{
    kernel ampere_sgemm_128x64_tn 1 10
} | trace "NVIDIA A100-PG509-200" 42505273344 >products.json
"$dtplan" infer products.json 2>&1 | grep -e '^cluster' -e '^dtplan'
