# The scripts of --emit are the best plan's, and what they start is a command that dtplan accepts.
for kind in slurm torchrun; do
    "$dtplan" --model gpt2 --gpus 16 --batch 64 --tp 2 --pp 2 --schedule 1f1b --microbatch-size 4 \
        --zero 1 --sp off --recompute none --emit $kind >$kind.sh
    bash -n $kind.sh || echo "$kind: no shell script"
    cat $kind.sh
done
"$dtplan" --model gpt2 --gpus 16 --emit slurm --json 2>&1
echo "status $?"
arguments=$(sed -n 's/^srun dtplan run --backend cuda //p' slurm.sh)
# shellcheck disable=SC2086
"$dtplan" simulate --gpus 16 $arguments --json | head -c 1
