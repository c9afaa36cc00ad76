# The answer does not depend on the number of threads: the same bytes, but for the one field of
# wall-clock time.
for jobs in 1 4; do
    "$dtplan" --model gpt2-1.5b --gpus 16 --jobs $jobs --json | sed '/"seconds"/d' >json.$jobs
    "$dtplan" --model gpt2-1.5b --gpus 16 --jobs $jobs --csv >csv.$jobs
done
[ -s json.1 ] && cmp json.1 json.4 && cmp csv.1 csv.4 && echo same
