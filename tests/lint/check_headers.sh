#!/usr/bin/env bash
# Each header compiles alone and has an include guard. The headers of runtime/cuda include those of CUDA, cuDNN
# and NCCL: they are compiled where all three are installed.
cc=${CC:-$(command -v gcc || command -v clang || command -v cc)}
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
if [ -n "$nvcc" ]; then toolkit=$(dirname "$(dirname "$(readlink -f "$nvcc")")")/include; else toolkit=/usr/include; fi
folders=(sim hw models traces planner runtime)
cuda=0
printf '#include <%s>\n' cuda_runtime_api.h nccl.h cudnn.h |
    "$cc" -isystem "$toolkit" -fsyntax-only -x c - 2>/dev/null && cuda=1
export cc toolkit

compiles_alone() {
    "$cc" -std=c11 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Werror -Wno-unused-function \
        -fsyntax-only -I. -isystem "$toolkit" -include "$1" -x c /dev/null || echo "$1: does not compile alone"
    grep -q '^#ifndef DTP_' "$1" || echo "$1: no include guard DTP_..."
}
export -f compiles_alone

headers() {
    if [ $cuda = 1 ]; then find "${folders[@]}" -name '*.h'; else find "${folders[@]}" -name '*.h' ! -path 'runtime/cuda/*'; fi
}
found=$(headers | sort | xargs -P "$(nproc)" -I{} bash -c 'compiles_alone {}' 2>&1)
[ -z "$found" ] || { echo "$found"; exit 1; }
