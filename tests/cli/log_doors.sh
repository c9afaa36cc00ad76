# Logs of many trainers, each a few lines made here, and what is told of files that are no logs.
show() { "$dtplan" trace "$1" 2>&1 | sed -n -e 's/  *is that.*//' -e '/median, min/d' -e '/ first /d' -e '/./p' | cut -c1-130; }
cat >titan.log <<'X'
[rank0]:2025-01-10 20:33:11,213 - root - INFO - [31mstep: 10  [32mloss:  9.8  [33mmemory: 47.33GiB(59.82%)  [34mtps: 7,123[39m
[rank0]:2025-01-10 20:33:31,213 - root - INFO - [31mstep: 20  [32mloss:  8.8  [33mmemory: 47.33GiB(59.82%)  [34mtps: 7,223[39m
X
show titan.log
echo 'I 03-04 perf_metrics_utils:56] train_step_timing in s: [11.5, 2.5, 2.5, 2.0]' >nemo.log
show nemo.log
{
    printf 'Loading checkpoint shards: 100%%|##########| 4/4 [00:03<00:00,  1.20it/s]\n'
    printf '  0%%|          | 1/712 [00:08<1:36:00,  8.00s/it]\r  0%%|          | 2/712 [00:16<1:36:00,  4.00it/s]\n'
    printf "{'loss': 1.25, 'grad_norm': 2.0, 'learning_rate': 1e-05, 'epoch': 0.01}\n"
} >trainer.log
show trainer.log
echo "{'loss': 1.5, 'learning_rate': 1e-05, 'memory(GiB)': 60.5, 'train_speed(iter/s)': 0.25, 'epoch': 0.1, 'global_step/max_steps': '10/90'}" >swift.log
show swift.log
cat >maxtext.log <<'X'
completed step: 4, seconds: 1.500, TFLOP/s/device: 400.0, Tokens/s/device: 5461.3, total_weights: 65536, loss: 9.5
completed step: 5, seconds: -3.000, TFLOP/s/device: 400.0, Tokens/s/device: 5461.3, total_weights: 65536, loss: 9.4
completed step: 6, seconds: 1.250, TFLOP/s/device: 480.0, Tokens/s/device: 6553.6, total_weights: 65536, loss: 9.3
X
show maxtext.log
cat >deepspeed.log <<'X'
[2024-05-01 10:00:00,500] [INFO] [timer.py:215:stop] epoch=0/micro_step=10/global_step=10, RunningAvgSamplesPerSec=64.0, CurrSamplesPerSec=64.0
[2024-05-01 10:00:20,500] [INFO] [timer.py:215:stop] epoch=0/micro_step=20/global_step=20, RunningAvgSamplesPerSec=64.0, CurrSamplesPerSec=64.0
X
show deepspeed.log
echo "-- no logs"
say() { "$dtplan" trace "$1" 2>&1 | cut -c1-110; }
echo 'host:1:2 [0] NCCL INFO Channel 00/02 : 0 1 2 3' >nccl.log
say nccl.log
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 4\n' >pointer.json
say pointer.json
printf '\377\376{\0}\0' >wide.json
say wide.json
printf 'PK\003\004\024\0\0\0\0\0' >model.pt
say model.pt
echo "-- compare reads what trace reads: 70 kB of metadata before the first event"
{
    printf '{"about":"%070000d","traceEvents":[' 0
    printf '{"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":1,"dur":5,"args":{"stream":7,"device":0}}]}\n'
} >long.json
"$dtplan" compare long.json long.json 2>/dev/null | head -1
