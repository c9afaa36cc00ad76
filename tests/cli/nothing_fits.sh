# A model that fits nowhere ends with status 1 and says what the leanest plan needs.
"$dtplan" --model gpt175b --gpus 8 2>message
status=$?
grep -o 'gpt175b does not fit on 8 GPUs' message
exit $status
