# What-ifs on traces that are made here, whose answers are known: a job of two ranks with a 1 ms kernel and a 1 ms
# all-reduce in turn, of one size or of two.
trace() { # trace RANK SIZES: 3 steps of 4 pairs; SIZES 2: every other all-reduce has a tenth of the bytes and takes 190 us
    awk -v rank="$1" -v sizes="$2" 'BEGIN {
        printf "{\"deviceProperties\":[{\"id\":0,\"name\":\"NVIDIA H100 80GB HBM3\"}],\"distributedInfo\":{\"backend\":\"nccl\",\"rank\":%d,\"world_size\":2},\"traceEvents\":[\n", rank
        device = 1020
        for (step = 0; step < 3; step++) {
            begin = host = device - 20
            for (i = 0; i < 8; i++) {
                comm = i % 2; small = sizes == 2 && i % 4 == 3; dur = small ? 190 : 1000
                printf "{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"cudaLaunchKernel\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":4,\"args\":{\"correlation\":%d}},\n", host, ++n
                printf "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"%s\",\"pid\":0,\"tid\":7,\"ts\":%d,\"dur\":%d,\"args\":{\"device\":0,\"stream\":7,\"correlation\":%d%s}},\n", \
                    comm ? "ncclDevKernel_AllReduce_Sum_bf16_RING_LL" : "gemm", device, dur, n, \
                    comm ? sprintf(",\"Collective name\":\"allreduce\",\"In msg nelems\":%d,\"Group size\":2,\"dtype\":\"BFloat16\",\"Process Group Name\":\"0\",\"Process Group Ranks\":\"[0, 1]\"", small ? 838860 : 8388608) : ""
                host += 5; device += dur + 2
            }
            printf "{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"cudaDeviceSynchronize\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":%d,\"args\":{\"correlation\":%d}},\n", host, device - host + 3, ++n
            printf "{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#%d\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":%d}%s\n", step, begin, device + 4 - begin, step < 2 ? "," : "]}"
            device += 30
        }
    }'
}
for sizes in 1 2; do
    for rank in 0 1; do trace $rank $sizes >"rank$rank.json"; done
    echo "== all-reduces of $sizes sizes"
    for what in "--network-bandwidth 2" "--network-bandwidth 0.02" "--network-latency 0" \
        "--network-latency 0 --from dgx-a100"; do
        # shellcheck disable=SC2086 # an option and its value
        "$dtplan" replay rank0.json rank1.json $what 2>&1 | grep -e '^job' -e '^latency of' | sort -u
    done
done
# The host runs ahead of a device that is busy all the time: the step is the device's.
awk 'BEGIN {
    print "{\"traceEvents\":["
    host = 1000; device = 1200
    for (step = 0; step < 4; step++) {
        printf "{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#%d\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":99},\n", step, host
        for (i = 0; i < 10; i++) {
            printf "{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"cudaLaunchKernel\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":4,\"args\":{\"correlation\":%d}},\n", host, ++n
            printf "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"gemm\",\"pid\":0,\"tid\":7,\"ts\":%d,\"dur\":400,\"args\":{\"device\":0,\"stream\":7,\"correlation\":%d}},\n", device, n
            host += 10; device += 402
        }
    }
    printf "{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"cudaDeviceSynchronize\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":%d,\"args\":{\"correlation\":%d}}]}\n", host, device - host, ++n
}' >ahead.json
echo "== the host runs ahead"
"$dtplan" replay ahead.json --kernel-speed 0.5 2>/dev/null | grep -e '^job' -e '^  ProfilerStep'
# Of 2 ms one is a kernel's start for which nothing in the trace gives a reason: it stays as it is, the replay as
# measured ends when the trace does, and the exit status says that a what-if is a guess.
late() { # late WAIT: microseconds
    cat <<END
{"traceEvents":[
{"ph":"X","cat":"user_annotation","name":"ProfilerStep#0","pid":1,"tid":1,"ts":1000,"dur":$((1020 + $1))},
{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":1000,"dur":4,"args":{"correlation":1}},
{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":1005,"dur":4,"args":{"correlation":2}},
{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":1010,"dur":4,"args":{"correlation":3}},
{"ph":"X","cat":"cuda_runtime","name":"cudaDeviceSynchronize","pid":1,"tid":1,"ts":1015,"dur":$((1000 + $1)),"args":{"correlation":4}},
{"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":1010,"dur":300,"args":{"device":0,"stream":7,"correlation":1}},
{"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":1312,"dur":300,"args":{"device":0,"stream":7,"correlation":2}},
{"ph":"X","cat":"kernel","name":"other","pid":0,"tid":7,"ts":$((1614 + $1)),"dur":398,"args":{"device":0,"stream":7,"correlation":3}}]}
END
}
for wait in 0 1000; do
    late $wait >late.json
    echo "== a start that is $wait us late"
    "$dtplan" replay late.json --kernel-speed 2 >late 2>/dev/null
    echo "exit $?"
    grep -e '^job' -e '^warning' -e unexplained -e '^explained' late
done
echo '{"traceEvents":[{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":2}]}' >host.json
"$dtplan" replay host.json 2>/dev/null | grep -e '^warning' -e '^explained'
