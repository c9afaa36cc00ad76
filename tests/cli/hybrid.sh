# Hybrid sharding: legal where the framework has it, with its traffic; refused elsewhere.
of() { "$dtplan" simulate --model llama2-7b --gpus 64 --tp 1 --pp 1 --dp 64 --batch 64 --zero-stage 3 "$@"; }
of --framework torch-fsdp1 --zero-group 8 | grep -o 'ZeRO 3.*'
of --framework deepspeed | grep -o 'ZeRO 3.*'
of --framework torch-fsdp1 --zero-group 24 2>&1 | grep -o 'zero_group must divide dp x cp'
of --framework megatron-core --zero-group 8 2>&1 | grep -o 'ZeRO-1, 2 or hybrid 3'
of --framework dtplan --cluster cpu --gpus 4 --dp 4 --zero-stage 1 --zero-group 2 2>&1 | grep -o 'not in our own runtime'
# The search tries groups of nodes, which win where a node's network is slow; none with --zero-group 0.
search() { "$dtplan" --model llama3-8b --gpus 256 --cluster gcp-a2 --framework torch-fsdp2 "$@"; }
search --zero-group 0 | grep -c 'zero-group'
search | grep -o 'zero-group [0-9]*'
