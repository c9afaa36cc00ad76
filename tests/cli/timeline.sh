# Timelines by the end of the file's name, parts of them, and a real run's; what cannot be written is said before.
simulate() { "$dtplan" simulate --model gpt3-125m --gpus 4 --pp 2 --dp 2 --batch 4 --no-fold "$@" 2>&1 | grep dtplan:; }
simulate --timeline all.csv
simulate --timeline some.csv --timeline-ranks 1..2 --timeline-streams compute
cut -d, -f2 all.csv | sort -u | tr '\n' ' '
cut -d, -f2,3 some.csv | sort -u | tr '\n' ' '
echo
simulate --timeline step.svg.gz && echo no
gzip -dc step.svg.gz | tail -n 1
simulate --timeline job.et
ls job.*
simulate --timeline step.txt
simulate --timeline step.json --timeline-ranks 9
simulate --timeline step.json --timeline-ranks 1,,2
ls step.*
"$dtplan" run --model gpt-check --pp 2 -n 2 --steps 2 --batch 4 --timeline run.json.gz >/dev/null
"$dtplan" replay run.json.gz --json >run.out
grep -c '"replayed_s"' run.out
"$dtplan" replay run.json.gz --timeline again.csv --timeline-streams "send F" >/dev/null
cut -d, -f4 again.csv | tr '\n' ' '
# A picture is no wider than the window, and a comparison has no row for what sums leave over.
"$dtplan" simulate --model gpt2 --gpus 8 --tp 2 --pp 2 --batch 16 --timeline fit.svg >/dev/null
grep -c 'max-width:100%' fit.svg
"$dtplan" simulate --model llama3-70b --gpus 64 --cluster h100 --tp 4 --pp 8 --sequence-parallel --json >one.json 2>/dev/null
"$dtplan" compare one.json one.json | grep -c '^  other' || true
