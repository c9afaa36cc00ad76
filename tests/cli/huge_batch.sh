# A batch beyond all reason is answered within seconds: a plan, or one line that says what is in the way.
try() {
    timeout 30 "$dtplan" "$@" >out 2>message
    echo "exit $?, $(wc -l <message) lines"
    grep -o 'more than 16,384 microbatches a step' out message | sort | uniq -c | sed 's/^ *//'
}
for batch in 16777216 1073741824; do
    try --model gpt2 --gpus 9 --cluster a100 --batch $batch
done
try --model gpt2 --gpus 8 --cluster a100 --batch 1073741824 --microbatch 1
try --model mixtral-8x7b --gpus 16 --cluster h100 --batch 1000000
try simulate --model gpt2 --gpus 8 --cluster a100 --batch 1048576 --tp 1 --pp 1 --dp 8 --microbatch 1
# As many as that are simulated.
try simulate --model gpt2 --gpus 8 --cluster a100 --batch 131072 --tp 1 --pp 1 --dp 8 --microbatch 1
try run --model gpt-check --pp 2 -n 2 --steps 1 --batch 100000000
# What takes more bytes than 64 bits count fits nowhere.
"$dtplan" --model gpt1t --gpus 131072 --seq 1073741824 --batch 1073741824 2>&1 | grep -o 'gpt1t does not fit'
"$dtplan" simulate --model mixtral-8x7b --gpus 1 --batch 65536 --seq 1073741824 --microbatch 65536 2>&1 | grep -o 'the plan does not fit'
