# Hybrid sharding: legal where the framework has it, with its traffic; refused elsewhere.
of() { "$dtplan" simulate --model llama2-7b --gpus 64 --tp 1 --pp 1 --dp 64 --batch 64 --zero-stage 3 "$@"; }
of --framework torch-fsdp1 --zero-group 8 | grep -o 'ZeRO 3.*'
of --framework deepspeed | grep -o 'ZeRO 3.*'
of --framework torch-fsdp1 --zero-group 24 2>&1 | grep -o 'zero_group must divide dp x cp'
of --framework megatron-core --zero-group 8 2>&1 | grep -o 'ZeRO-1, 2 or hybrid 3'
