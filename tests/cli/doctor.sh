# The doctor: a normal number is exit 0, a far one exit 1 with suspects; text and JSON.
plan=(--model gpt3-6.7b --gpus 16 --tp 2 --dp 8 --zero-stage 1 --sequence-parallel)
"$dtplan" doctor "${plan[@]}" --json >expected.json
echo "status $?"
sed -n 's/.*"normal": //p' expected.json
"$dtplan" doctor "${plan[@]}" --measured 60TF | grep -E "This is|explains" | sed 's/.*explains.*/a suspect/' | sort -u
"$dtplan" doctor "${plan[@]}" --measured 1TF >/dev/null
echo "status $?"
"$dtplan" doctor "${plan[@]}" --measured 400TF | grep "peak of the GPUs"
"$dtplan" doctor "${plan[@]}" --measured "300TF, 1GiB" | grep -c "measured memory"
"$dtplan" doctor "${plan[@]}" --measured soon 2>message
echo "status $?"
head -n 1 message | cut -c1-40
# Tokens/s of one GPU, the peak with sparsity; memory is explained by what divides it.
plan=(--model llama2-7b --gpus 8 --framework fms-fsdp --zero-stage 3 --microbatch-size 2 --batch 16)
"$dtplan" doctor "${plan[@]}" --measured "4.2k tok/s" | grep "But"
"$dtplan" doctor "${plan[@]}" --measured "4.2k tok/s/GPU" | grep "This is"
"$dtplan" doctor "${plan[@]}" --measured "33%" | grep "But"
plan=(--model llama2-7b --gpus 8 --cluster h100-80 --pp 2 --dp 4 --microbatch-size 2 --batch 2048)
"$dtplan" doctor "${plan[@]}" --measured 60GiB | grep explains | grep -o "(ZeRO 1.*"
# Products that were to be in FP4 and run in 16 bit.
"$dtplan" doctor --model llama3-8b --gpus 8 --cluster b300 --dtype fp4 --dp 8 --zero-stage 1 --measured 100s |
    grep -o "explains .* run in 16 bit.*" | sed 's/ *[0-9]* %//'
# A configuration that the card cannot hold did not run, and explains nothing: not as given, not as a suspect.
plan=(--model llama3.1-8b --gpus 8 --cluster h100 --tp 2 --dp 4)
"$dtplan" doctor "${plan[@]}" --measured 410TF | grep -o "something else ran\|does not fit .*recomputation"
"$dtplan" doctor "${plan[@]}" --zero-stage 1 --measured 410TF | grep -o "explains.*recomputation\|fit   attention.*\|normal up to [0-9]*"
# A line of a log that has another batch is not compared.
line=" iteration 9/ 99 | elapsed time per iteration (ms): 5123.4 | global batch size:   512 | lm loss: 7.1E+00 |"
"$dtplan" doctor --model llama3-8b --gpus 64 --cluster h100 --dp 32 --tp 2 --zero-stage 1 --measured "$line" 2>&1 | head -n 1
"$dtplan" --model gpt2 --gpus 8 --batch 64 --json >plan.json && "$dtplan" doctor --plan plan.json --measured "$line" 2>&1 | head -n 1
"$dtplan" doctor --model llama3-8b --gpus 64 --cluster h100 --dp 32 --tp 2 --zero-stage 1 --batch 512 --measured "$line" |
    grep -o 'measured step *5.12 s'
# FLOPs that the line counts itself and that its time cannot have been: attention in full is 7 % more than under its mask
for rate in 700 300; do
    "$dtplan" doctor --model llama3-8b --gpus 64 --cluster h100 --dp 32 --tp 2 --zero-stage 1 --batch 512 --measured \
        "${line/| global/| throughput per GPU (TFLOP\/s\/GPU): $rate.0 | global}" | grep -c 'the line itself says 300.0'
done
# what only slows a step is no suspect of one that was faster
for time in 3s 9s; do
    "$dtplan" doctor --model llama3-8b --gpus 64 --cluster h100 --dp 32 --tp 2 --zero-stage 1 --batch 512 --measured $time |
        grep -c 'of their clock'
done
# a run that ended out of memory: what has room
"$dtplan" doctor --model llama3-70b --gpus 32 --cluster h100 --tp 4 --pp 8 --measured "CUDA out of memory. Tried to allocate" | grep -o "It has to.*\| fits  .*"
echo "exit ${PIPESTATUS[0]}"
"$dtplan" doctor --model gpt2 --gpus 8 --measured OOM | grep -o "It should fit"
