# A host that waits for its device does no work of its own: a copy of ROCm that blocks, and the launch of a graph
# while the one before it runs. Twice the host's speed leaves the wait as long as it is.
# call NAME CORRELATION START_US DUR, work NAME CATEGORY CORRELATION START_US DUR
call() { printf '{"ph":"X","cat":"cuda_runtime","name":"%s","pid":1,"tid":1,"ts":%d,"dur":%d,"args":{"correlation":%d}},\n' "$1" "$3" "$4" "$2"; }
work() { printf '{"ph":"X","cat":"%s","name":"%s","pid":0,"tid":7,"ts":%d,"dur":%d,"args":{"stream":7,"device":0,"correlation":%d}},\n' "$2" "$1" "$4" "$5" "$3"; }
trace() {
    printf '{"schemaVersion":1,"traceEvents":[\n'
    cat
    printf '{"ph":"M","name":"end","pid":1,"tid":1,"ts":0}]}\n'
}
what_if() { "$dtplan" replay "$@" --host-speed 2 2>/dev/null | grep -e '^job' -e '^critical' | sed 's/;.*//'; }

for k in 0 1 2 3; do
    at=$((k * 2100))
    call hipLaunchKernel $((10 * k + 1)) $((at + 10)) 10
    work gemm kernel $((10 * k + 1)) $((at + 20)) 2000
    call hipMemcpyWithStream $((10 * k + 2)) $((at + 30)) 2010
    work CopyDeviceToHost gpu_memcpy $((10 * k + 2)) $((at + 2022)) 10
done | trace >rocm.json
what_if rocm.json

for k in 0 1 2 3; do
    at=$((k * 2400))
    call cudaGraphLaunch $((10 * k + 1)) $((at + 10)) 20
    work gemm kernel $((10 * k + 1)) $((at + 35)) 2000
    call cudaGraphLaunch $((10 * k + 2)) $((at + 40)) 2005
    work gemm kernel $((10 * k + 2)) $((at + 2037)) 50
    call cudaLaunchKernel $((10 * k + 3)) $((at + 2250)) 10
    work gemm kernel $((10 * k + 3)) $((at + 2265)) 100
done | trace >graphs.json
what_if graphs.json
