# check --backend cuda without a GPU: a module that computes on the CPU stands for four H200. The card is
# found, its cluster and times are taken, a cover is run in one set of processes, results are written.
export DTPLAN_CUDA=${dtplan%/*}/libdtplan_fake.so
"$dtplan" check --backend cuda --model gpt-check --dtype fp32 --layouts 6 --steps 1 --microbatch-size 1 \
    --tp 1,2 --vpp 1 --recompute none --results gpus.json >table
echo "exit $?, $(grep -c '^ [12] ' table) layouts, $(grep -o ', [0-9]* failed' table)"
grep -o '"machine": "[^"]*"\|"gpus": [0-9]\|"framework": "[a-z-]*"' gpus.json
echo "$(grep -c '"plan"' gpus.json) rows, $(grep -c '"plan"' dtplan-check.json) predicted before"
# the rest of the same list, in another call
rows() { grep -E '"(tp|pp|dp|zero_stage|schedule|microbatch_size)":' gpus.json; }
rows >all
"$dtplan" check --backend cuda --model gpt-check --dtype fp32 --layouts 6 --steps 1 --microbatch-size 1 \
    --tp 1,2 --vpp 1 --recompute none --results gpus.json --skip 4 >/dev/null
rows | diff - <(tail -n +25 all) && echo "the rest is the same"
"$dtplan" check --backend cuda --model gpt-check --dtype fp32 --tp 1,2 --recompute none --skip 1000 2>&1 | sed 's/of [0-9]*/of N/'
