# All forms of one answer agree: text, JSON, CSV, HTML, timeline, explanation, comparison.
ask=(--model gpt2-medium --gpus 8)
"$dtplan" "${ask[@]}" --html page.html --timeline step.json >text || exit
for title in 'step time' 'tokens/s' 'TFLOP/s' 'MFU' 'bubble' 'Where the step goes' 'Memory of a GPU' 'Searched'; do
    grep -q "$title" text || echo "text: no $title"
done
"$dtplan" "${ask[@]}" --json >best.json || exit
"$dtplan" "${ask[@]}" --csv >all.csv || exit
number() { sed -n "s/.*\"$1\": \([0-9.e+-]*\).*/\1/p" "$2" | head -n 1; }
candidates=$(number candidates best.json)
sum=0
for verdict in illegal over_memory bounded estimated; do sum=$((sum + $(number $verdict best.json))); done
[ "$candidates" = $sum ] || echo "$candidates candidates, $sum verdicts"
[ "$candidates" = $(($(wc -l <all.csv) - 1)) ] || echo "$candidates candidates, $(wc -l <all.csv) lines of CSV"
# The best plan is the first line; plans that fit by time, then by bound, then those over memory, then the refused.
awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    { v = $at["verdict"]; t = $NF; kind = v == "illegal" ? 3 : v == "over_memory" ? 2 : t == "" ? 1 : 0
      key = kind == 3 ? 0 : t == "" ? $(NF - 1) : t
      if (kind < last_kind || (kind == last_kind && key + 0 < last)) print "line", NR, "is not sorted"
      last_kind = kind; last = key + 0 }
    NR == 2 { print "first:", t }' all.csv | sed "s/^first: $(number step_s best.json)\$/first: the best/"
head -n 1 page.html | grep -qi '<!doctype html' || echo "no HTML"
grep -c '</html>' page.html
grep -o '"traceEvents"' step.json
"$dtplan" explain --plan best.json >explained && grep -q 'Operations of a rank' explained || echo "no explanation"
"$dtplan" compare best.json best.json >compared && grep -q 'step' compared || echo "no comparison"
"$dtplan" "${ask[@]}" --why-not tp=8,pp=1 | grep -q 'slower than the best\|is the best' || echo "no reason"
# The page follows the reader's colours and window, each row of its table has the header's columns, and every
# point lies inside the plot.
grep -q 'prefers-color-scheme:dark' page.html && grep -q 'name="viewport"' page.html || echo "one look only"
awk '/<th/ { n = gsub(/<th/, "") } /^<tr><td/ { if (gsub(/<td/, "") != n) print "columns of", $0 }' page.html
sed -n 's/^<circle cx="\([0-9.-]*\)" cy="\([0-9.-]*\)".*/\1 \2/p' page.html |
    awk '{ n++ } $1 < 70 || $1 > 1040 || $2 < 10 || $2 > 330 { print "outside:", $0 } END { print (n > 3 ? "points" : "no points") }'
# Of a long sequence the part of attention that the mask leaves out is told, and few sequences a second are not 0.
"$dtplan" simulate --model llama3.1-8b --gpus 8 --cluster h100 --seq 131072 --batch 4 --tp 8 --sequence-parallel true \
    --recompute full >long || exit
grep -o 'causal mask leaves out\|attention is not in it\| 0 sequences/s' long
grep -c 'causal mask' text || true
# Settings that few use are told of, with the time without them, that of the limits named: fewer layers in the last
# stage, which has the head; recomputation of some layers alone.
for ask in "--gpus 96" "--gpus 8 --framework torch-fsdp2 --batch 64"; do
    # shellcheck disable=SC2086
    "$dtplan" --model llama3-8b --cluster h100 $ask --html unusual.html >unusual || exit
    told=$(tr -s ' \n' ' ' <unusual | sed -n 's/.* unusual \(.*%\) [0-9.]*T tokens .*/\1/p')
    limit=${told#*Without (}
    without=${limit#*): }
    # shellcheck disable=SC2086
    "$dtplan" --model llama3-8b --cluster h100 $ask ${limit%%)*} >usual || exit
    grep -c "step time *${without%,*} " usual
    grep -c unusual usual || true
    # shellcheck disable=SC2046
    "$dtplan" $(sed -n 's/^  dtplan //p' unusual) | grep -c "$(grep 'step time' unusual)"
    grep -c "unusual: $told" unusual.html
    # shellcheck disable=SC2086
    "$dtplan" --model llama3-8b --cluster h100 $ask --json | grep -c "\"unusual\": \"$told\""
done
