# Traces that cannot be true, and traces that are not of one job, are refused by name. All are made here.
# trace RANK WORLD START_US EVENT...: "ts dur name" each, a launch 1 us before; RANK - leaves the rank out
trace() {
    [ "$1" = - ] || printf '{"distributedInfo":{"rank":%d,"world_size":%d},' "$1" "$2"
    [ "$1" != - ] || printf '{"schemaVersion":1,'
    printf '"traceEvents":[\n'
    local start=$3 n=0 ts dur name
    shift 3
    for event; do
        read -r ts dur name <<<"$event"
        n=$((n + 1))
        printf '{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":%s,"dur":1,"args":{"correlation":%d}},\n' $((start + ts - 1)) $n
        printf '{"ph":"X","cat":"kernel","name":"%s","pid":0,"tid":7,"ts":%s%s,"args":{"stream":7,"device":0,"correlation":%d}},\n' "$name" $((start + ts)) "${dur:+,\"dur\":$dur}" $n
    done
    printf '{"ph":"M","name":"end","pid":1,"tid":1,"ts":0}]}\n'
}
now=1700000000000000
say() { "$dtplan" "$@" 2>&1 | grep '^dtplan:'; }

echo "-- no time"
trace 0 1 $now "10 0 gemm" "20 0 gemm" >still.json
say replay still.json
trace 0 1 10 "10 1700000000000000 gemm" "20 1700000000000010 gemm" >swapped.json
say replay swapped.json

echo "-- not one job"
trace 0 2 $now "10 5 gemm" "20 5 ncclDevKernel_AllReduce" >rank0.json
trace 1 2 $((now + 3600000000)) "10 5 gemm" "20 5 ncclDevKernel_AllReduce" >rank1.json
say replay rank0.json rank1.json
say infer rank0.json rank1.json
trace 1 2 $now "10 5 gemm" "20 5 ncclDevKernel_AllGather" >other1.json
say replay rank0.json other1.json
trace - 0 $now "10 5 gemm" >first.json
trace - 0 $now "10 5 gemm" >second.json
say replay first.json second.json

echo "-- a folder of traces that are no job: one by one"
mkdir folder
cp first.json second.json folder
"$dtplan" trace folder 2>/dev/null | grep -e '^folder' -e rank

echo "-- rank 0 of a world of 8: nothing says which ranks take part"
trace 0 8 $now "10 50 ncclDevKernel_AllReduce_Sum_f32_RING_LL" >one.json
"$dtplan" replay one.json 2>/dev/null | grep all_reduce
