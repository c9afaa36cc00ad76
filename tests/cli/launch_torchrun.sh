#!/usr/bin/env bash
# The real torchrun starts a run, though its agent listens at MASTER_PORT; so does the script that --emit
# writes. $TORCHRUN names another command than torchrun, such as "python3 -m torch.distributed.run".
torchrun=${TORCHRUN:-torchrun}
$torchrun --help >/dev/null 2>&1 || { echo "skipped: no torchrun here" >&2; exit 77; }
losses() { grep -o 'step  *[12]  loss [0-9.]*'; }
run=(run --model gpt-check --dp 2 --batch 2 --steps 2 --timeout 30)
"$dtplan" "${run[@]}" | losses >expected
[ "$(wc -l <expected)" = 2 ] && echo "two losses"
$torchrun --nnodes=1 --nproc_per_node=2 --master_port=29741 --no_python "$dtplan" "${run[@]}" | losses >found
cmp expected found && echo "the same under torchrun"
$torchrun --standalone --nproc_per_node=2 --no_python "$dtplan" "${run[@]}" | losses >found
cmp expected found && echo "the same under torchrun --standalone"
"$dtplan" --model gpt-check --gpus 2 --cluster h100 --tp 1 --pp 1 --dp 2 --batch 2 --emit torchrun >emitted
sed -i "s|^torchrun|$torchrun|; s| dtplan run --backend cuda| $dtplan run --backend cpu --steps 2|" emitted
bash emitted | losses >found
[ "$(wc -l <found)" = 2 ] && echo "two losses from the emitted script"
# a rank that cannot start ends the job, long before the time-out
SECONDS=0
$torchrun --nnodes=1 --nproc_per_node=2 --master_port=29741 --no_python bash -c \
    "$dtplan ${run[*]} \$([ \$RANK = 1 ] && echo --lr 0.5)" >/dev/null 2>errors && echo "no failure"
grep -c 'job.rates.lr is 0.001 on rank 0 and 0.5 on rank 1' errors
[ $SECONDS -lt 20 ] && echo "soon"
