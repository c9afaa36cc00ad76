# What the search prints, `simulate --plan` takes: its step time is the one the search found.
"$dtplan" --model gpt2-1.5b --gpus 16 --json >best.json || exit
step() { sed -n 's/.*"step_s": \([^,]*\),*/\1/p' "$1" | head -n 1; }
"$dtplan" simulate --plan best.json --json >simulated.json || exit
[ -n "$(step best.json)" ] && [ "$(step best.json)" = "$(step simulated.json)" ] && echo same
# What stands beside a plan changes it or is refused; nothing is passed over.
"$dtplan" --model llama3-8b --gpus 8 --cluster h100 --batch 64 --tp 2 --pp 2 --recompute none --vpp 1 --json >given.json
step() { "$dtplan" simulate --plan given.json "$@" --json | sed -n 's/^ *"step_s": //p' | head -n 1; }
for option in "--layers-per-stage 18,14" "--dtype fp8" "--offload optimizer" "--tp-algo tree" "--dp-overlap 0"; do
    # shellcheck disable=SC2086
    [ "$(step)" != "$(step $option)" ] || echo "without effect: $option"
done
for option in "--tp 4" "--batch 8" "--model gpt2" "--recompute-layers 2" "--layers-per-stage 18,18" "--ep-overlap 1"; do
    # shellcheck disable=SC2086
    "$dtplan" simulate --plan given.json $option 2>&1 >/dev/null | head -n 1
done
"$dtplan" run --plan given.json --tp 4 2>&1 | head -n 1
"$dtplan" check --plan given.json --model gpt2 2>&1 | grep names
# A row of a table is a plan in options, for a model without experts, too.
for model in llama3-8b mixtral-8x7b; do
    "$dtplan" --model $model --gpus 16 --cluster h100 --batch 64 --csv >plans.csv
    awk -F, 'NR == 1 { n = split($0, name) }
        NR == 2 { for (i = 1; i <= n && name[i] != "verdict"; i++) if ($i != "") printf "--%s %s ", name[i], $i }' plans.csv |
        tr _ - >options
    # shellcheck disable=SC2046
    "$dtplan" simulate --model $model --gpus 16 --cluster h100 --batch 64 $(cat options) --json >row.json
    [ "$(sed -n 's/^ *"step_s": \(.*\),$/\1/p' row.json | head -n 1)" = "$(awk -F, 'NR == 2 { print $NF }' plans.csv)" ] &&
        echo "$model: the row's time"
done
