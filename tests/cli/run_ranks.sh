# dtplan run: one serial run and layouts of several ranks give the same losses, to 4 digits; what it
# cannot do it refuses with its own exit status; resuming on another layout goes on where it stopped.
cat >tiny.json <<'EOF'
{"family": "gpt", "title": "tiny", "source": "made for this test", "layers": 4, "hidden": 32,
 "heads": 4, "vocab": 67, "seq": 16, "global_batch": 8}
EOF
losses() { "$dtplan" run --model tiny.json --steps 4 --seed 3 --json "$@" | tail -n 1 |
    sed 's/.*"losses": *\[\([^]]*\)\].*/\1/' | tr ',' '\n' | xargs printf '%.3f ' && echo; }
losses --dp 1
losses --tp 2 --sp on
losses --pp 2 --schedule zb-h1 --microbatch-size 2
losses --dp 2 --zero 3 --recompute full
losses -n 4 --tp 2 --pp 2
"$dtplan" run --model tiny.json --steps 2 --decay-steps 4 --save here --seed 3 --tp 2 --json >/dev/null
losses --dp 2 --zero 1 --resume here --decay-steps 4
"$dtplan" run --model tiny.json --cp 2 2>&1; echo "status $?"
"$dtplan" run --model tiny.json --tp 3 2>&1; echo "status $?"
"$dtplan" run --model mixtral-8x7b 2>&1; echo "status $?"
"$dtplan" run --model tiny.json --memory-limit 300kB 2>&1 | sed 's/rank [0-9]/rank R/; s/memory: .*/memory/'
"$dtplan" run --model tiny.json -n 3 --tp 2 --dp 1 2>&1; echo "status $?"
echo '{"schema_version": 1, "model": "tiny.json", "gpus": 2, "seq": 8, "plan": {"tp": 2, "global_batch_size": 2}}' >plan.json
"$dtplan" run --plan plan.json --steps 1 2>&1 | sed 's/  [0-9.]* [mu]*s$//; s/step time.*/.../'
# a step that more ranks saved before is saved again
for ranks in 2 1; do
    "$dtplan" run --model tiny.json --steps 1 --save again --dp "$ranks" -n "$ranks" --json >/dev/null; echo "status $?"
done
echo again/* again/*/rank-*
# a folder that cannot be is said before the first step, not after the last
"$dtplan" run --model tiny.json --steps 1 --save no/such/folder 2>&1; echo "status $?"
"$dtplan" run --model tiny.json --steps 1 --save tiny.json 2>&1; echo "status $?"
# a parent that ignores the end of its children (some supervisors do) leaves that to those it starts
env --ignore-signal=CHLD timeout 60 "$dtplan" run --model tiny.json --steps 1 --tp 2 --json >/dev/null; echo "status $?"
# a loss that is no number ends the run
"$dtplan" run --model tiny.json --steps 3 --lr 1e30 --warmup-steps 0 --json >failed.json; echo "status $?"
sed 's/.*"failure"/"failure"/' failed.json
