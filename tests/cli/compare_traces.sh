# A timeline beside itself; beside the same plan with another microbatch; beside its plan document.
simulate() { "$dtplan" simulate --model gpt3-125m --gpus 4 --pp 2 --dp 2 --batch 8 "$@"; }
simulate --json >plan.json
simulate --no-fold --timeline a.json >/dev/null
simulate --no-fold --microbatch-size 2 --timeline b.svg.json >/dev/null
"$dtplan" compare a.json a.json | head -4
"$dtplan" compare a.json b.svg.json | head -4
"$dtplan" compare a.json plan.json --json | grep -e '"ranks"' -e aligned
"$dtplan" compare plan.json plan.json a.json 2>&1
echo "exit $?"
