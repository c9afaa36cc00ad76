#!/usr/bin/env bash
# Two builds of the program beside each other: same_answers.sh OLD NEW [RUNS_CSV...]
# Asks both the same, in turns, and says whether they answer the same bytes (their own time aside) and what processor
# time the new one takes of the old one's: ask, old_s, new_s, ratio, "same" or "differs". Exit status 1 when some answer
# differs. For a change that is to make the program faster and to change nothing.
set -uo pipefail
old=${1:?usage: same_answers.sh OLD NEW [RUNS_CSV...]}
new=${2:?usage: same_answers.sh OLD NEW [RUNS_CSV...]}
shift 2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
TIMEFORMAT='%U %S'

answer() { # file, program and arguments: what it prints without its own time; its processor time on stdout
    local file=$1
    shift
    { time "$@" >"$file.raw" 2>&1; } 2>&1 | awk '{ print $1 + $2 }'
    sed -E 's/^( *"seconds": ).*/\1/' "$file.raw" >"$file"
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
[ $# = 0 ] || ask validate "$@"
exit $status
