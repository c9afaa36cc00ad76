# Wrong use ends with status 2, nothing on standard output, and the nearest name.
try() { "$dtplan" "$@" 2>&1 >out | head -n 1; cat out; }
try --modle gpt2 --gpus 8
try --model gpt2-1.5b --gpus zero
try --model gpt2-1.5b --gpus 8 --recompute selectve
"$dtplan" --model gpt2-1.5b --gpus 2>message
