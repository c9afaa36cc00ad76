# The listing commands: a line each; names only for scripts; details of one.
for verb in models clusters frameworks schedules; do
    n=$("$dtplan" "$verb" --names | wc -l)
    [ "$n" = "$("$dtplan" "$verb" | wc -l)" ] && [ "$n" -ge 3 ] && echo "$verb: a line each"
    for name in $("$dtplan" "$verb" --names); do
        "$dtplan" "$verb" "$name" >out 2>err || { echo "$verb $name"; head -n 1 err; }
    done
done
"$dtplan" models gpt175b | head -n 2
"$dtplan" models gpt175b --json >own.json && "$dtplan" models ./own.json | grep 'one layer'
"$dtplan" schedules 1f1b --pp 2 --microbatches 3 | tail -n 2
"$dtplan" collectives | grep -c '^  ring'
for kind in $("$dtplan" collectives --names); do "$dtplan" collectives "$kind" --json; done | grep null
"$dtplan" collective all_reduce --bytes 64MB --gpus 8 | awk 'NR == 3 { print $1 }'
# What --json says of a cluster and a framework describes the same ones; of a schedule the same actions.
"$dtplan" clusters h100 --json >cluster.json && "$dtplan" frameworks nanotron --json >framework.json &&
    for where in "h100 --framework nanotron" "cluster.json --framework framework.json"; do
        # shellcheck disable=SC2086
        "$dtplan" simulate --model gpt2 --gpus 16 --batch 64 --json --cluster $where | grep -m 1 '"step_s"'
    done | uniq -c | awk '{ print $1, "alike" }'
"$dtplan" schedules 1f1b --pp 2 --microbatches 3 --json | tr -d ' \n' | grep -o '"ranks.*'
for verb in models clusters frameworks schedules collectives; do
    [ "$("$dtplan" "$verb" --json | grep -c '^  "')" = "$("$dtplan" "$verb" --names | wc -l)" ] || echo "$verb: another number"
done
"$dtplan" models --json | tr -d ' \n' | head -c 14
echo
"$dtplan" collectives broadcast --json | tr -d ' \n' | grep -o '"algorithms":\[{"algo":"ring","steps":\[{[^}]*}\]'
"$dtplan" collective AllReduce --bytes 64MB --gpus 8 | head -n 1
# No line of a detail is wider than the text of a report.
{
    "$dtplan" clusters h100
    "$dtplan" models llama3-8b
    "$dtplan" explain --model llama3-8b --gpus 8 --cluster h100 --tp 2
} | awk 'length($0) > 124'
"$dtplan" simulate --model gpt2 --gpus 1 --batch 8 --memory-limit 800GB | grep -o 'the memory limit is .*'
