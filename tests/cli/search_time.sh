# The full search for gpt175b on 1,024 A100 from process start, within 3 seconds.
start=$(date +%s%N)
"$dtplan" --model gpt175b --gpus 1024 >out || exit
ms=$((($(date +%s%N) - start) / 1000000))
limit=3000
nm "$dtplan" 2>/dev/null | grep -qE '__(asan|tsan|ubsan)_' && limit=60000 # an instrumented build
if [ $ms -lt $limit ]; then echo "in time"; else echo "took $ms ms"; fi
grep -c 'Searched [0-9.,]*M* plans' out
