# A model that fits nowhere ends with status 1 and says what the leanest plan needs.
"$dtplan" --model gpt175b --gpus 8 2>message
status=$?
grep -o 'gpt175b does not fit on 8 GPUs' message
# Where the batch is what keeps it off more GPUs, that is said.
"$dtplan" --model qwen2.5-32b --framework torch-fsdp2 --gpus 8 --cluster h100 --seq 20000 --batch 8 2>message
grep -o 'GPUs with a batch of [0-9]*, not with 8 on any number' message | sed 's/[0-9]*,/N,/'
exit $status
