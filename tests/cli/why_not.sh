# --why-not: what became of the plans with these fields; the nearest where there are none.
"$dtplan" --model gpt175b --gpus 1024 --why-not tp=8,pp=5 | sed -n 's/^\(tp [^:]*\):.*/\1/p'
"$dtplan" --model gpt175b --gpus 1024 --why-not tp=8,pp=5 | grep -c 'does not divide 1024 GPUs'
"$dtplan" --model gpt175b --gpus 1024 --why-not tp=1,pp=2 | grep -c 'over the memory limit'
"$dtplan" --model gpt175b --gpus 1024 --why-not tp=64 | grep -o 'illegal: tp does not divide.*'
# the fields of the best plan: the best plan of all
best=$("$dtplan" --model gpt2-xl --gpus 16 --json |
    sed -n '/"best"/,/global_batch/s/^ *"\(tp\|pp\|dp\|vpp\|zero_stage\|microbatch_size\)": \([0-9]*\).*/\1=\2/p' |
    paste -sd,)
"$dtplan" --model gpt2-xl --gpus 16 --why-not "$best" | grep -o 'the best plan of all'
# degrees of experts of a model that has none: refused, as by --etp
"$dtplan" --model gpt175b --gpus 1024 --why-not etp=2 2>&1 | tail -n 2
# fields that this framework refuses: those that have them, and how fast they are
"$dtplan" --model gpt175b --gpus 1024 --why-not zero_stage=3 |
    sed -n '/frameworks that have/,$p' | sed 's/: [0-9.]* m*s$/: TIME/' | grep -v '^      '
"$dtplan" --model gpt175b --gpus 1024 --why-not schedule=zb-v | sed -n 's/--framework \(torch[a-z-]*\):.*/\1/p'
# a text-book's stack alone has it; no stack has what the model rules out
"$dtplan" --model gpt175b --gpus 1024 --why-not schedule=breadth-first | sed -n 's/: [0-9.]* m*s$/: TIME/p'
"$dtplan" --model gpt175b --gpus 1024 --why-not tp=64 | tail -n 1
# all degrees given, and they make other GPUs
"$dtplan" --model gpt175b --gpus 1024 --why-not tp=8,pp=4,dp=16,cp=1 | grep 'no such plan'
# contradictions and what is no searched field
"$dtplan" --model gpt175b --gpus 1024 --why-not tp=8,pp=2,tp=4 2>&1 | head -n 1
"$dtplan" --model gpt175b --gpus 1024 --why-not offload=1 2>&1 | head -n 1
