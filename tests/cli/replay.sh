# A job of two ranks, replayed as measured and with kernels twice as fast; a broken trace; a bad option.
rank() { # rank NUMBER LENGTH_OF_A START_OF_REDUCE
    cat <<EOF
{"distributedInfo":{"rank":$1,"world_size":2},"traceEvents":[
{"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","pid":1,"tid":1,"ts":1000,"dur":300},
{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":1000,"dur":5,"args":{"correlation":1}},
{"ph":"X","cat":"cuda_runtime","name":"cudaStreamWaitEvent","pid":1,"tid":1,"ts":1030,"dur":1,"args":{"correlation":3}},
{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":1040,"dur":5,"args":{"correlation":4}},
{"ph":"X","cat":"cuda_runtime","name":"cudaStreamWaitEvent","pid":1,"tid":1,"ts":1050,"dur":1,"args":{"correlation":5}},
{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":1060,"dur":5,"args":{"correlation":6}},
{"ph":"X","cat":"cuda_runtime","name":"cudaDeviceSynchronize","pid":1,"tid":1,"ts":1070,"dur":230,"args":{"correlation":7}},
{"ph":"X","cat":"kernel","name":"gemm_a","pid":0,"tid":7,"ts":1010,"dur":$2,"args":{"device":0,"stream":7,"correlation":1}},
{"ph":"X","cat":"kernel","name":"ncclDevKernel_AllReduce_Sum_f32_RING_LL","pid":0,"tid":20,"ts":$3,"dur":$((1262 - $3)),
 "args":{"device":0,"stream":20,"correlation":4,"Collective name":"allreduce","In msg nelems":1048576,"Group size":2,"dtype":"Float"}},
{"ph":"X","cat":"kernel","name":"gemm_b","pid":0,"tid":7,"ts":1264,"dur":30,"args":{"device":0,"stream":7,"correlation":6}}]}
EOF
}
rank 0 100 1112 >rank0.json
rank 1 200 1212 >rank1.json
"$dtplan" replay rank0.json rank1.json
tar cf ranks.tar rank1.json rank0.json
"$dtplan" replay ranks.tar --kernel-speed 2 | grep -e measured
"$dtplan" replay rank0.json rank1.json --json --delay-rank 1=30us | grep -e what_if_s -e explained
head -c 300 rank0.json >cut.json
"$dtplan" replay cut.json 2>&1
echo "exit $?"
"$dtplan" replay rank0.json --faster gemm 2>&1
echo "exit $?"
for bad in "--remove zzz" "--fuse zzz" "--faster zzz=2" "--slow-rank 9=2" "--delay-rank 9=2ms" \
    "--slow-collective 7=2" "--slow-collective 0=1e300" "--delay-rank 0=1e30s" "--from dgx-h100"; do
    # shellcheck disable=SC2086 # an option and its value
    "$dtplan" replay rank0.json rank1.json $bad 2>&1 | head -1
done
"$dtplan" replay rank0.json rank1.json --remove all_reduce | grep -e measured
