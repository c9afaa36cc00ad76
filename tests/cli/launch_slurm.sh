#!/usr/bin/env bash
# Slurm's srun starts a run, where a Slurm answers.
timeout 10 srun -n 2 true 2>/dev/null || { echo "skipped: no Slurm answers here" >&2; exit 77; }
losses() { grep -o 'step  *[12]  loss [0-9.]*'; }
run=(run --model gpt-check --dp 2 --batch 2 --steps 2 --timeout 30)
"$dtplan" "${run[@]}" | losses >expected
[ "$(wc -l <expected)" = 2 ] && echo "two losses"
srun -n 2 "$dtplan" "${run[@]}" | losses | cmp expected - && echo "the same under srun"
