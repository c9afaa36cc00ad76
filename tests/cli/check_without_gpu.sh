# check and run --backend cuda say at once that there is no GPU, before anything is compiled or measured.
if [ -e /dev/nvidiactl ] || [ -e /dev/dxg ]; then
    echo "skipped: this machine has a GPU" >&2
    exit 77
fi
unset DTPLAN_CUDA
for verb in check "run --model gpt-check"; do
    # shellcheck disable=SC2086
    "$dtplan" $verb --backend cuda 2>message
    echo "status $?: $(cat message)"
done
