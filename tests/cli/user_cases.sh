# Questions that people asked in public, with what they saw: does it fit, and which is faster.
fits() {
    "$dtplan" simulate "$@" >/dev/null 2>&1
    case $? in 0) echo fits ;; 1) echo "too much" ;; *) echo error ;; esac
}
step() { "$dtplan" simulate "$@" --json | sed -n 's/^ *"step_s": \([0-9.e-]*\).*/\1/p' | head -n 1; }
# GPT-NeoX 20B: eight A100 of 80 GB hold it, four do not; of 40 GB, three nodes as tp 4 x pp 6, of 44 layers.
fits --model gpt-neox-20b --gpus 4 --cluster a100 --tp 2 --pp 2 --microbatch-size 1 --batch 16
fits --model gpt-neox-20b --gpus 8 --cluster a100 --tp 2 --pp 4 --microbatch-size 1 --batch 16
fits --model gpt-neox-20b --gpus 24 --cluster a100-40 --tp 4 --pp 6 --microbatch-size 1 --batch 24
# GPT-2 774M at four sequences with scores in memory overflows a V100 of 32 GB.
fits --model gpt2-large --gpus 1 --cluster v100 --framework megatron-2021 --recompute none --microbatch-size 4 --batch 4
# 7B at 64 tokens on eight A100 of 40 GB: states alone are too much, with the optimizer divided, too.
fits --model llama2-7b --gpus 8 --cluster a100-40 --seq 64 --dp 8 --batch 8 --microbatch-size 1 --zero-stage 0
fits --model llama2-7b --gpus 8 --cluster a100-40 --seq 64 --dp 8 --batch 8 --microbatch-size 1 --zero-stage 1
# Qwen2.5 32B at 20,000 tokens: not on eight H100.
fits --model qwen2.5-32b --gpus 8 --cluster h100 --framework torch-fsdp2 --dp 8 --zero-stage 3 --seq 20000 \
    --microbatch-size 1 --batch 8 --recompute full
# BLOOM 560M on two cards: DeepSpeed's ZeRO-3 is slower than ZeRO-1 (its hooks), and needs no less memory.
small=(--model bloom-560m --gpus 2 --cluster v100 --framework deepspeed --dp 2 --seq 512 --microbatch-size 1 --batch 2)
awk -v one="$(step "${small[@]}" --zero-stage 1)" -v three="$(step "${small[@]}" --zero-stage 3)" \
    'BEGIN { print (three > one ? "ZeRO-3 is slower" : "ZeRO-3 is faster: " three " " one) }'
# 100B on 64 V100 with ZeRO-3 and weights on the host: about 220 GB of a node's memory were seen, 226 are predicted.
printf '{"model_type": "gpt2", "n_layer": 124, "n_embd": 8192, "n_head": 64, "vocab_size": 50304, "n_positions": 1024}' >100b.json
"$dtplan" simulate --model 100b.json --gpus 64 --cluster v100 --framework deepspeed --dp 64 --zero-stage 3 \
    --offload parameters --recompute full --batch 64 --microbatch-size 1 | grep -o "host's memory of a node: [0-9.]* GiB"
