# With 150 MB of addresses every verb ends: a planner loads no library of matrix products, and what needs one says so.
try() {
    (ulimit -v 150000 && timeout 10 "$dtplan" "$@" >out 2>err)
    echo "$? dtplan $*"
}
"$dtplan" --version | grep -q . || exit 1
if ! (ulimit -v 150000 && "$dtplan" --version) >/dev/null 2>&1; then
    echo "skipped: sanitizers need more addresses" >&2
    exit 77
fi
for verb in models clusters frameworks schedules collectives help; do
    try $verb
done
try plan --model gpt-1.3b --gpus 8 --jobs 2
try simulate --model gpt-1.3b --gpus 8 --tp 2 --pp 2
try collective all_reduce --bytes 1MiB --gpus 8
try explain --model gpt-1.3b --gpus 8
try doctor --model gpt-1.3b --gpus 8 --tp 8 --measured 100TF
try sweep --model gpt-1.3b --gpus 8..16 --jobs 2
for verb in calibrate "run --model gpt-125m --gpus 1" "check --gpus 2"; do
    # shellcheck disable=SC2086
    try $verb
    head -n 1 err
done
