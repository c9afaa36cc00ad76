# --json is a plan document: simulate, compare and the printed flags give the same step time again.
step() { grep -m 1 '"step_s"' "$1"; }
"$dtplan" --model gpt3-6.7b --gpus 64 --json >best.json || exit
"$dtplan" simulate --plan best.json --json >again.json || exit
cmp <(step best.json) <(step again.json) && echo "simulate --plan: same"
flags=$("$dtplan" --model gpt3-6.7b --gpus 64 | sed -n 's/^  dtplan simulate //p')
# shellcheck disable=SC2086
"$dtplan" simulate $flags --json >flags.json || exit
cmp <(step best.json) <(step flags.json) && echo "flags: same"
"$dtplan" simulate --plan - --json <best.json | cmp -s - again.json && echo "standard input: same"
"$dtplan" compare best.json again.json | grep 'step time' | grep -c '+0.0 %'
"$dtplan" simulate --plan best.json --no-fold --json >unfolded.json || exit
"$dtplan" simulate --plan best.json --timeline step.json >/dev/null && head -c 1 step.json && echo
# a model from a file is embedded: the document stands alone
"$dtplan" models gpt2 --json >own.json
"$dtplan" --model own.json --gpus 8 --json >alone.json || exit
rm own.json
"$dtplan" simulate --plan alone.json --json >again.json || exit
cmp <(step alone.json) <(step again.json) && echo "embedded model: same"
# counts of the verdicts sum to the candidates
awk -F'[:,]' '/"search"/ { on = 1 } on && /"(candidates|illegal|over_memory|bounded|estimated)"/ {
    gsub(/[ "]/, "", $1); n[$1] = $2 }
    END { print n["candidates"] == n["illegal"] + n["over_memory"] + n["bounded"] + n["estimated"] }' best.json
"$dtplan" --model gpt3-6.7b --gpus 64 --csv >all.csv
[ "$(($(wc -l <all.csv) - 1))" = "$(sed -n 's/.*"candidates": \([0-9]*\).*/\1/p' best.json)" ] &&
    echo "a line for each candidate"
