# Every layout within the limits on 2 ranks is predicted, then trained; bytes are predicted exactly. The
# predictions are written before the runs; both timelines have the same actions.
"$dtplan" check --gpus 2 --calibration cpu --steps 2 --zero-stage 1,3 --recompute full --tp 1 --pp 1 \
    --svg check.svg --timeline both.json --json >check.json
echo "exit $?"
grep -o '"mape_peak_pct": [0-9.]*\|"failed": [0-9]*\|"zero_stage": [0-9]' check.json
grep -o '"name": "[a-z]*"' check.json | sort | uniq -c | sed 's/^ *//'
grep -c '"measured_s": [0-9.e-]*,' check.json
grep '"predicted_s"' check.json | tr -d ", " >after
grep '"predicted_s"' dtplan-check.json | tr -d ", " >before
cmp before after && echo "predicted as written down before"
grep -c measured_s dtplan-check.json
grep -o '"name": "0[FB][0-9]*"' both.json | sort | uniq -c | sed 's/^ *//'
head -c 4 check.svg && echo
"$dtplan" check --gpus 2 --calibration nothing.json 2>&1 | grep -v "note:" | cut -c1-23
"$dtplan" check --backend tpu --gpus 2
echo "exit $?"
"$dtplan" check --gpus 2 --calibration cpu --steps 1 --cover --layouts 3 --tp 1 --pp 1 --json >cover.json
echo "cover of $(grep -c '"plan"' cover.json)"

# Options that nothing would come of.
"$dtplan" --model gpt-check --gpus 2 --dtype fp32 --cluster cpu --framework dtplan --json >plan.json
"$dtplan" check --gpus 2 --layouts 3 2>&1 | head -n 1
"$dtplan" check --plan plan.json --skip 1 2>&1 | head -n 1
"$dtplan" check --shadow --cover 2>&1 | head -n 1
