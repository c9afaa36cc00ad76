# A framework file from the traces of a job: the step it predicts is the measured one; the file loads.
traces=$root/../shared/traces/kineto-h200-2rank
[ -d "$traces" ] || { echo "no ../shared/traces" >&2; exit 77; }
within() { awk -v name="$1" -v most="$2" '/^step:/ { v = $7; gsub(/[(+%)]/, "", v); v += 0; print name, (v < most && v > -most) ? "within" : v, most " %" }'; }
"$dtplan" calibrate --from-trace "$traces"/k_fsdp2_rank*.json.gz --out fsdp.json | within fsdp2 4
"$dtplan" calibrate --from-trace "$traces"/k_pp_rank*.json.gz --out pp.json | within 1f1b 10
"$dtplan" calibrate --from-trace "$traces"/k_pp_rank1.json.gz --out one.json 2>&1
echo "exit $?"
"$dtplan" frameworks ./fsdp.json | grep -c launch_s
"$dtplan" simulate --model gpt3-350m --gpus 2 --cluster dgx-h200 --framework ./fsdp.json --batch 8 --zero-stage 3 --json | grep -c '"step_s"'
"$dtplan" simulate --model gpt3-125m --gpus 2 --pp 2 --batch 4 --timeline own.json >/dev/null
"$dtplan" calibrate --from-trace own.json 2>&1
echo "exit $?"
