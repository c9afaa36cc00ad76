# A value that no machine, run or price has is refused with a line that says what is possible.
try() {
    (ulimit -t 20 && "$dtplan" "$@" >out 2>err)
    echo "$? dtplan $*"
    head -n 1 err
    [ ! -s out ] || echo "wrote to standard output"
}
try --model gpt2 --gpus 8 --memory-limit 1e-320
try --model gpt2 --gpus 8 --memory-limit 1000B
try sweep --model gpt2 --gpus 8 --tokens 1T --price 1e308
try sweep --model gpt2 --gpus 8 --tokens 1T --deadline 1e300s
try --model gpt2 --gpus 8 --restart 1e300s --checkpoint-write 1e300s
try doctor --model gpt2 --gpus 8 --measured 1e40TF
try doctor --model gpt2 --gpus 8 --measured 1e17%MFU
try doctor --model gpt2 --gpus 8 --measured "1e300 tok/s"
try doctor --model gpt2 --gpus 8 --measured 1e-300s
try doctor --model gpt2 --gpus 8 --measured 1e300s
# The peak of a GPU and its calibration are of one chip.
{ echo '{"base": "dgx-h100", "gpu":'; sed 's/"bf16": [0-9][0-9.e+]*/"bf16": 1/' "$root/hw/gpu/h100-sxm.json"; echo '}'; } >peak.json
try --model gpt2 --gpus 8 --cluster peak.json
# Buckets of a few bytes and models of tens of thousands of layers have more messages and plans than can be counted.
sed 's/"dp_bucket_bytes": [0-9]*/"dp_bucket_bytes": 16/' "$root/models/frameworks/torch-ddp.json" >tiny_buckets.json
try --model gpt2 --gpus 8 --framework tiny_buckets.json
sed 's/"dp_bucket_params_per_rank": [0-9.e]*/"dp_bucket_params_per_rank": 0.001/' "$root/models/frameworks/megatron-core.json" >tiny_ranks.json
try --model gpt2 --gpus 8 --framework tiny_ranks.json
printf '{"family": "llama", "layers": 65536, "hidden": 1024, "heads": 16, "ffn": 4096, "vocab": 32000, "seq": 2048,' >deep.json
printf '"global_batch": 64, "moe": {"experts": 8, "top_k": 2, "ffn": 512}}' >>deep.json
try --model deep.json --gpus 8
# An endless file ends at the limit, with little more memory than the limit has (a sanitizer needs more addresses).
(ulimit -v 1500000 && "$dtplan" --version) >/dev/null 2>&1 && ulimit -v 1500000
try simulate --plan /dev/zero
try trace /dev/zero
