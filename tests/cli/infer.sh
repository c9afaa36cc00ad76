# A simulated step becomes a plan again, and the plan simulates to the same step.
"$dtplan" simulate --model llama2-7b --gpus 16 --tp 2 --pp 4 --seq 2048 --batch 32 --zero-stage 1 --schedule interleaved \
    --vpp 2 --recompute full --detail op --timeline step.json.gz --json >simulated.json
"$dtplan" infer step.json.gz --out plan.json | cut -c1-75
"$dtplan" simulate --plan plan.json --detail op --json >again.json
for f in simulated.json again.json; do grep -m1 '"step_s"' $f; done | uniq | wc -l
"$dtplan" simulate --model gpt3-125m --gpus 2 --pp 2 --batch 4 --timeline step.json >/dev/null
"$dtplan" infer step.json 2>&1 | grep -e schedule -e layers
