# The same bytes at any number of threads, wall clock aside; no colours and no progress in a pipe.
for jobs in 1 3; do
    "$dtplan" --model gpt22b --gpus 128 --jobs $jobs --json 2>err | grep -v '"seconds"' >$jobs.json
    [ ! -s err ] || echo "wrote to standard error"
done
cmp 1.json 3.json && echo same
"$dtplan" --model gpt22b --gpus 128 | grep -c $'\033'
"$dtplan" --model gpt22b --gpus 128 --color always | grep -q $'\033' && echo colours
true
