# One row for each number of GPUs, cluster and framework; what no other beats is marked.
"$dtplan" sweep --model gpt175b --gpus 8..256 --csv >sweep.csv || echo "status $?"
cut -d, -f1-3 sweep.csv
sed -n 's/GiB.*//; s/needs .*/needs/; 2s/.*,,0,//p' sweep.csv
# the same as the plan's own search, whatever else is asked
step() { sed -n 's/^.*"step_s": \([0-9.]*\).*/\1/p' | head -n 1; }
[ "$("$dtplan" --model gpt175b --gpus 128 --json | step)" = "$(awk -F, '$3 == 128 { print $23 }' sweep.csv)" ] && echo same
# days, GPU-hours and cost follow from tokens per second
"$dtplan" sweep --model llama3-8b --gpus 16,64 --cluster h100,a100 --price 2,1 --tokens 1T --no-failures --csv |
    awk -F, 'NR > 1 { hours = 1e12 / $24 / 3600; price = $1 == "h100" ? 2 : 1
        print $1, $3, $28 * 24 / hours, $29 / hours / $3, $30 / $29 / price }' | sed 's/1.00000/1/g'
# with failures as `plan` has them; where no row gets on, that is the answer
days=$("$dtplan" --model gpt175b --gpus 128 --tokens 1T --json | sed -n 's/.*"days_with_failures": \([0-9.]*\).*/\1/p')
[ "$("$dtplan" sweep --model gpt175b --gpus 128 --tokens 1T --csv | awk -F, 'NR == 2 { print $28 }')" = "$days" ] && echo same days
"$dtplan" sweep --model llama3-8b --gpus 16 --cluster h100 --tokens 1T --gpu-hours-per-failure 0.001 --csv | cut -d, -f32
# a row has its whole plan, as the plan's own table
"$dtplan" sweep --model llama3-8b --gpus 8 --cluster h100 --framework torch-fsdp2 --batch 64 --csv >row
[ "$("$dtplan" --model llama3-8b --gpus 8 --cluster h100 --framework torch-fsdp2 --batch 64 --csv | sed -n 2p | cut -d, -f1-19)" = "$(sed -n 2p row | cut -d, -f4-22)" ] && cut -d, -f20-21 row
# the deadline
"$dtplan" sweep --model llama3-8b --gpus 64,128,256 --cluster h100 --price 2 --tokens 1T --deadline 12d |
    sed -n 's/^  meets the deadline \(.*\): .*/\1/p'
"$dtplan" sweep --model llama3-8b --gpus 64,128 --cluster h100 --tokens 1T --deadline 1h --json >sweep.json 2>err
echo "status $?"; grep -c '"front"' sweep.json; grep '"within_deadline"' sweep.json; cut -d';' -f1 err
# standard input is read once for all rows
"$dtplan" models llama3-8b --json >model.json
"$dtplan" sweep --model - --gpus 8,16 --csv <model.json | cut -d, -f1-3
# what one cluster cannot have is a row's answer, an unknown name an error
"$dtplan" sweep --model gpt2-xl --gpus 8 --cluster a100,h100 --dtype fp8 --csv | cut -d, -f1,32
refused() {
    "$dtplan" sweep --model gpt2-xl "$@" 2>err
    echo "status $?"
    head -n 1 err
}
refused --gpus 64,,8
refused --gpus 8..4
refused --gpus 8 --price 1,2
refused --gpus 8 --price 0
refused --gpus 8 --cluster nowhere
refused --gpus 8 --deadline soon
refused --gpus 8 --deadline 0s
refused --gpus 8 --deadline 3d
refused --gpus 8 --no-failures --restart 5min
refused --gpus 8 --checkpoint 0s
# the plan takes one number and says who takes several
"$dtplan" --model gpt2-xl --gpus 8..64 2>err
head -n 1 err
# GPU-hours are those of `plan`.
"$dtplan" sweep --model gpt2 --gpus 8 --tokens 10B --csv | tail -n 1 | cut -d , -f 29 | cut -c 1-9 >sweep.hours
"$dtplan" --model gpt2 --gpus 8 --tokens 10B --json | sed -n 's/.*"gpu_hours": \(.\{9\}\).*/\1/p' | diff sweep.hours - &&
    echo "the same GPU-hours"
