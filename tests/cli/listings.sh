# Each list names what everything else relies on, one a line, and has details for one entry.
has() { # has VERB NAME...
    local verb=$1 name
    shift
    "$dtplan" "$verb" >list || echo "$verb: status $?"
    for name in "$@"; do
        grep -q "^$name " list || echo "$verb: no $name"
        "$dtplan" "$verb" "$name" >detail || echo "$verb $name: status $?"
        [ "$(wc -l <detail)" -ge 3 ] || echo "$verb $name: no details"
    done
}
has models gpt175b gpt530b gpt1t bloom176b llama2-70b llama3.1-405b bert-large mixtral-8x7b resnet50
has clusters dgx-a100-80
has frameworks megatron-2021 megatron-2022 megatron-core
has schedules gpipe 1f1b interleaved
"$dtplan" collectives | grep -A 2 '^all_reduce'
"$dtplan" collective all_reduce --bytes 1GB --gpus 16 | awk '{ print $1 }' | grep -xE 'ring|tree|double_tree' | sort
"$dtplan" models gpt175c 2>&1
