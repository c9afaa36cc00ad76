# The answer does not depend on the number of threads: the same bytes, but for the one field of
# wall-clock time. Nor, which is the same, on what a thread has timed before: of models with experts
# the clock at the power limit depends on how these are divided.
try() {
    for jobs in 1 4; do
        "$dtplan" "$@" --jobs $jobs --json | sed '/"seconds"/d' >json.$jobs
        "$dtplan" "$@" --jobs $jobs --csv >csv.$jobs
    done
    [ -s json.1 ] && cmp json.1 json.4 && cmp csv.1 csv.4 && echo same
}
try --model gpt2-1.5b --gpus 16
try --model mixtral-8x7b --gpus 32 --cluster b200 --batch 128
