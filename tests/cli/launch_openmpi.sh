#!/usr/bin/env bash
# Open MPI's mpirun starts a run; two jobs at a time do not meet each other.
mpirun --version 2>/dev/null | grep -q 'Open MPI' || { echo "skipped: no Open MPI here" >&2; exit 77; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
losses() { grep -o 'step  *[12]  loss [0-9.]*'; }
run=(run --model gpt-check --dp 2 --batch 2 --steps 2 --timeout 30)
"$dtplan" "${run[@]}" | losses >expected
[ "$(wc -l <expected)" = 2 ] && echo "two losses"
for seed in 1 2; do
    mpirun --oversubscribe -n 2 "$dtplan" "${run[@]}" --seed $seed | losses >found.$seed &
done
wait
"$dtplan" "${run[@]}" --seed 1 | losses | cmp - found.1 && echo "the same under mpirun"
"$dtplan" "${run[@]}" --seed 2 | losses | cmp - found.2 && echo "the same in a second job at that time"
SECONDS=0
mpirun --oversubscribe -n 2 bash -c "$dtplan ${run[*]} \$([ \$OMPI_COMM_WORLD_RANK = 1 ] && echo --data /nowhere/x)" \
    >/dev/null 2>errors && echo "no failure"
grep -q 'rank 1 cannot start: .*/nowhere/x' errors && echo "rank 0 says why"
[ $SECONDS -lt 20 ] && echo "soon"
