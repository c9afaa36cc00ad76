# What the search prints, `simulate --plan` takes: its step time is the one the search found.
"$dtplan" --model gpt2-1.5b --gpus 16 --json >best.json || exit
step() { sed -n 's/.*"step_s": \([^,]*\),*/\1/p' "$1" | head -n 1; }
"$dtplan" simulate --plan best.json --json >simulated.json || exit
[ -n "$(step best.json)" ] && [ "$(step best.json)" = "$(step simulated.json)" ] && echo same
