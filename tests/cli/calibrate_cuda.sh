# dtplan calibrate --backend cuda: what is missing is said with status 4; a sweep ends as a GPU file. The
# program that measures is replaced by scripts.
export DTPLAN_CALIBRATE_CUDA=$PWD/measure
"$dtplan" calibrate --backend cuda 2>message
echo "no program: $?, $(grep -c 'measure: No such file' message)"
printf '#!/bin/sh\nexit 4\n' >measure && chmod +x measure
"$dtplan" calibrate --backend cuda 2>message
echo "no GPU: $?, $(grep -o 'no NVIDIA GPU' message)"
sweep=$root/traces/measured/calibration/h100_memory.json
printf '#!/bin/sh\ncp "%s" "$4"\n' "$sweep" >measure # --seconds N --out FILE
"$dtplan" calibrate --backend cuda --out new.json >report
echo "measured: $?, $(grep -c '^kernel' report) classes, $(grep -c '"calibration"' new.json) file"
cmp "$sweep" new.json.sweep.json && "$dtplan" calibrate --from new.json.sweep.json --gpu h100-sxm --out again.json >/dev/null
cmp new.json again.json && echo "the same from the sweep that it kept"
