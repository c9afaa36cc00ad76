#!/usr/bin/env bash
# same_answers.sh [--all] OLD NEW [RUNS_CSV...]: asks two builds of the program the same questions in turns, and says
# whether they answer the same bytes (the seconds that a search took aside) and how the processor time of the new one
# compares: ask, old_s, new_s, ratio, "same" or "differs". Exit status 1 if an answer differs. With --all every model,
# cluster and framework of the repository is asked for, and every other verb that predicts; each RUNS_CSV of measured
# runs is validated row by row. For a change that is to make the program faster or simpler and to change no answer.
set -uo pipefail
usage="usage: same_answers.sh [--all] OLD NEW [RUNS_CSV...]"
all=
[ "${1:-}" != --all ] || { all=yes; shift; }
old=$(readlink -f "${1:?$usage}")
new=$(readlink -f "${2:?$usage}")
shift 2
root=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../.." && pwd -P)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
TIMEFORMAT='%U %S'

answer() { # file, program and arguments: what it prints without its own time; its processor time on stdout
    local file=$1
    shift
    { time "$@" >"$file.raw" 2>&1; } 2>&1 | awk '{ print $1 + $2 }'
    sed -E 's/"seconds": [0-9.e-]+/"seconds":/; s/in [0-9.]+ s: /in X s: /' "$file.raw" >"$file"
}

status=0
ask() {
    local old_s new_s same=same
    old_s=$(answer "$folder/old" "$old" "$@")
    new_s=$(answer "$folder/new" "$new" "$@")
    cmp -s "$folder/old" "$folder/new" || { same=differs status=1; }
    awk -v o="$old_s" -v n="$new_s" -v same="$same" -v ask="${*:1:12}" 'BEGIN {
        printf "%s,%.2f,%.2f,%.2f,%s\n", ask, o, n, (o > 0 ? n / o : 1), same }'
}

echo "ask,old_s,new_s,ratio,answer"
while read -r -a line; do
    ask "${line[@]}" --json
done <<'ASKS'
--model gpt175b --gpus 1024
--model gpt175b --gpus 131072
--model gpt175b --gpus 1024 --cluster dgx-h100 --framework dtplan
--model gpt175b --gpus 16
--model gpt1t --gpus 3072 --batch 32768
--model llama3.1-405b --gpus 128 --cluster dgx-h100
--model llama3.1-405b --gpus 16384 --cluster dgx-h100
--model llama3.1-405b --gpus 512 --cluster dgx-h100 --seq 131072
--model llama3-70b --gpus 64 --cluster dgx-h100 --framework torchtitan
--model llama3-70b --gpus 64 --cluster dgx-h100 --framework nanotron
--model llama3-70b --gpus 64 --cluster dgx-h100 --framework torch-fsdp2
--model llama3-70b --gpus 64 --cluster dgx-h100 --framework deepspeed
--model llama3-8b --gpus 8 --cluster aws-p4d
--model llama2-70b --gpus 64 --cluster dgx-b200 --dtype fp8
--model mixtral-8x7b --gpus 64 --cluster dgx-h100
--model deepseek-v2-lite --gpus 16 --cluster dgx-h100
--model deepseek-v3 --gpus 2048 --cluster dgx-h100
--model qwen3-235b-a22b --gpus 256 --cluster gb200-nvl72
--model bloom176b --gpus 384 --cluster jeanzay-a100 --framework megatron-deepspeed
--model gpt530b --gpus 2240 --cluster selene --framework megatron-2021
--model gemma2-27b --gpus 32 --cluster gcp-a3-mega
--model resnet50 --gpus 64 --framework torch-ddp
--model bert-large --gpus 64
--model gpt175b --gpus 512 --tp 8 --pp 8 --no-fold
sweep --model llama3-70b --gpus 64..256 --cluster hgx-h100,dgx-b200
ASKS
ask --model llama3-70b --gpus 64 --cluster dgx-h100 --framework torchtitan --csv
for runs in "$@"; do
    ask validate "$runs" --json --rows /dev/stdout
done
[ -n "$all" ] || exit $status

names() { find "$root/$1" -name '*.json' -exec basename -s .json {} + | sort; }

for model in $(names models/library); do
    for gpus in 8 64; do
        ask --model "$model" --gpus $gpus --cluster dgx-h100 --json
    done
done
for cluster in $(names hw/cluster); do
    ask --model llama3-8b --gpus 32 --cluster "$cluster" --json
done
for framework in $(names models/frameworks); do
    for model in llama3-8b gpt3-13b mixtral-8x7b; do
        ask --model $model --gpus 32 --cluster dgx-h100 --framework "$framework" --json
        ask --model $model --gpus 64 --cluster dgx-a100-80 --framework "$framework"
    done
done
while read -r -a line; do
    ask "${line[@]}"
done <<'ASKS'
simulate --model gpt175b --gpus 512 --tp 8 --pp 8 --no-fold --json
simulate --model gpt175b --gpus 64 --tp 8 --pp 8 --detail op --json
simulate --model gpt175b --gpus 64 --tp 8 --pp 8 --detail step --json
simulate --model gpt3-13b --gpus 64 --tp 4 --pp 4 --schedule gpipe --json
simulate --model gpt3-13b --gpus 64 --tp 4 --pp 4 --schedule 1f1b --timeline /dev/stdout
simulate --model gpt3-13b --gpus 64 --tp 4 --pp 4 --schedule interleaved --vpp 2 --json
simulate --model llama3-8b --gpus 64 --tp 4 --pp 4 --schedule zb-h1 --framework torchtitan --json
explain --model gpt175b --gpus 512 --tp 8 --pp 8
explain --model mixtral-8x7b --gpus 64 --tp 2 --ep 8 --cluster dgx-h100
doctor --measured 110TF --model gpt175b --gpus 512 --tp 8 --pp 8
collective all_reduce --bytes 1GB --gpus 64
collective all_to_all --bytes 100MB --gpus 128 --cluster dgx-h100
--model llama3-70b --gpus 64 --cluster h100 --tp 8 --pp 1..4
--model llama3-70b --gpus 64 --cluster h100 --emit megatron
--model llama3-8b --gpus 16 --cluster h100 --framework torchtitan --emit torchtitan
--why-not tp=8,pp=5 --model gpt175b --gpus 1024
schedules
collectives
ASKS
exit $status
