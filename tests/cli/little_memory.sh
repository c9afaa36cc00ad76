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
# From the addresses with which the program starts at all, every verb ends with status 5 and a line that says memory,
# until it has what it needs: in steps of 20 kB where files are opened and parsed, then of 1 MB.
low=1000 high=150000
while [ $((high - low)) -gt 20 ]; do
    middle=$(((low + high) / 2))
    if (ulimit -v $middle && "$dtplan" --version) >/dev/null 2>&1; then high=$middle; else low=$middle; fi
done
steps() {
    local more seen=" " status
    for more in $(seq 0 20 600) $(seq 1000 1000 12000) 40000; do
        (ulimit -v $((high + more)) && timeout 10 "$dtplan" "$@" >out 2>err)
        status=$?
        [ $status != 5 ] || grep -q memory err || status="5-in-silence"
        [[ $seen == *" $status "* ]] || seen="$seen$status "
        [ $status != 0 ] || break
    done
    echo "$seen$1"
}
steps plan --model gpt-1.3b --gpus 8 --jobs 2
steps clusters dgx-h100
steps replay "$root/tests/fixtures/traces/job_rank0.json" "$root/tests/fixtures/traces/job_rank1.json"
steps calibrate --from "$root/tests/fixtures/hw/h200_gemm_times.json" --gpu h200 --out gpu.json
gzip -c "$root/tests/fixtures/traces/job_rank0.json" >rank0.json.gz
steps trace rank0.json.gz
steps trace "$root/tests/fuzz/corpus/fuzz_topology/switch.xml"
"$dtplan" trace "$root/tests/fuzz/corpus/fuzz_nsys/mini_nsys.sqlite" >/dev/null 2>&1 || { echo "skipped: built without SQLite" >&2; exit 77; }
steps trace "$root/tests/fuzz/corpus/fuzz_nsys/mini_nsys.sqlite"
