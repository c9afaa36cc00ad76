#!/usr/bin/env bash
# Runs the engine's benchmark beside SimGrid on this machine: compare_simgrid.sh BUILD_FOLDER SG_CPP
# SG_CPP is the source of a SimGrid driver that knows the modes aact, bact and cact. One line a case:
# name, SimGrid seconds (its run alone), ours, the ratio, how far the simulated times are apart.
# (c4096 is apart by 2e-5: SimGrid's default lazy update misses some changes of rate there; with
# --cfg=network/optim:Full, ten times slower, it gives our time, see tests/unit/test_engine.c.)
# Prints why and exits 77 where SimGrid or the driver is missing.
set -euo pipefail
build=${1:?usage: compare_simgrid.sh BUILD_FOLDER SG_CPP}
driver=${2:-}
bench="$build/bench_engine"
[ -x "$bench" ] || { echo "compare_simgrid: no $bench: build first" >&2; exit 2; }
[ -f "$driver" ] || { echo "skipped: no SimGrid driver given"; exit 77; }
echo '#include <simgrid/s4u.hpp>' | g++ -x c++ -std=c++17 -fsyntax-only - 2>/dev/null ||
    { echo "skipped: SimGrid (libsimgrid-dev) is not installed"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
g++ -O2 -std=c++17 "$driver" -o "$folder/sg" -lsimgrid

# plain max-min without TCP's corrections, what the engine computes
options=(--cfg=network/model:CM02 --cfg=network/crosstraffic:0 --cfg=network/latency-factor:1
    --cfg=network/bandwidth-factor:1 --cfg=network/weight-S:0 --cfg=network/TCP-gamma:0)

compare() { # name, repeats, mode and arguments
    local name=$1 repeats=$2 ours theirs
    shift 2
    ours=$("$bench" "$name" | tail -1)
    theirs=$(for ((i = 0; i < repeats; i++)); do
        "$folder/sg" "$@" "${options[@]}" 2>/dev/null
    done | awk -F, '!n++ || $7 < best { best = $7; clock = $NF } END { print best "," clock }')
    echo "$ours,$theirs" | awk -F, -v OFS=, '{
        print $1, $8, $3, sprintf("%.1f", $8 / $3), sprintf("%.1e", $7 / $9 - 1) }'
}

echo "name,simgrid_s,engine_s,ratio,simulated_time_apart"
compare a_m512 5 aact 16 512
compare a_m8192 3 aact 16 8192
compare b1024_packed 5 bact 128 1 0 0
compare b1024_spread 5 bact 128 1 1 0
compare b1024_shuffled 3 bact 128 1 2 0
compare b1024_spread_jitter 3 bact 128 1 1 1
compare b1024_shuffled_jitter 3 bact 128 1 2 1
compare b4096_spread_jitter 1 bact 512 1 1 1
compare b4096_shuffled_jitter 1 bact 512 1 2 1
compare c1024_spread 2 cact 8 16 8 192 0 1
compare c1024_packed_jitter 2 cact 8 16 8 192 1 0
compare c1024_spread_jitter 2 cact 8 16 8 192 1 1
compare c1024_shuffled_jitter 2 cact 8 16 8 192 1 2
compare c4096_spread_jitter 1 cact 8 16 32 192 1 1
