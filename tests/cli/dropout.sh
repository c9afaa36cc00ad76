# Dropout: the same losses in any layout, exact bytes, kernels of its own; a plan takes it along.
losses() {
    "$dtplan" run --model gpt-check --batch 4 --steps 3 --dropout 0.2,0.1 --json "$@" |
        sed 's/.*"losses": *\[\([^]]*\)\].*/\1/' | tr , '\n' | awk 'NF { printf "%.3f\n", $1 }'
}
losses --microbatch-size 4 >serial
losses --tp 2 --sequence-parallel on --recompute full --microbatch-size 2 | cmp - serial && echo same
losses --pp 2 --schedule zb-h1 --microbatch-size 1 | cmp - serial && echo same
"$dtplan" run --model gpt-check --batch 4 --steps 3 --json | grep -c "$(head -n 1 serial)"
"$dtplan" check --gpus 2 --calibration cpu --steps 1 --cover --layouts 3 --dropout 0.1 --json |
    grep -o '"worst_peak_pct": [0-9.]*\|"failed": [0-9]*'
"$dtplan" --model gpt-check --gpus 2 --cluster cpu --framework dtplan --dropout 0.1 --json >best.json
grep '"dropout"' best.json
"$dtplan" explain --plan best.json --json | grep '"name".*dropout' | sort | uniq -c | sed 's/^ *//'
"$dtplan" explain --plan best.json --dropout 0 --json | grep -c '"name".*dropout'
"$dtplan" run --plan best.json --dropout 1.5
echo "exit $?"
