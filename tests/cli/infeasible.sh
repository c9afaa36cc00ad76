# When nothing fits or nothing divides: the reason and the nearest that works, exit status 1.
try() {
    "$dtplan" "$@" 2>&1 | sed 's/[0-9.]* [GT]iB/SIZE/g; s/ (tp [^)]*)[^;]*;/;/; s/([0-9]* of [0-9]* plans)/(N of M plans)/g; s/of [0-9]* legal/of N legal/; s/: tp 1 x pp.*/: PLAN/'
    echo "exit ${PIPESTATUS[0]}"
}
try --model gpt175b --gpus 1023
try --model gpt175b --gpus 1024 --tp 5
try --model gpt175b --gpus 1024 --pp 3,5 --tp 8
try --model gpt175b --gpus 8 | sed 's/least [0-9]* GPUs/least N GPUs/'
try --model gpt175b --gpus 1024 --zero-stage 3
# Chunks need not divide the layers where the framework cuts them unevenly.
try --model llama3.1-405b --gpus 1024 --cluster h100 --pp 8 --vpp 23
try --model llama3.1-405b --gpus 1024 --cluster h100 --pp 8 --vpp 23 --framework nanotron
# One GPU holds what the host takes from it.
try --model llama-7b --gpus 1 --cluster a100-40 --framework deepspeed --batch 4
# Numbers that many plans can take, where they are near: not 992 GPUs, by 31 stages, nor a batch of 1025.
try --model llama3-8b --gpus 1000 --cluster h100
try --model llama3-8b --gpus 90 --cluster h100
# Farther away than every number can be tried: multiples of what must divide the batch.
try --model gpt175b --gpus 1024 --framework torch-fsdp2
