#!/usr/bin/env bash
# Factors between units stand in sim/base/units.h only; comments and strings may name them.
find sim hw models traces planner runtime \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) ! -path sim/base/units.h -print0 2>/dev/null |
    sort -z | xargs -0 awk "$(cat tests/lint/code.awk)"'
{
    line = $0
    if (line ~ /(MAX|MOST|LARGEST|LIMIT)[A-Z0-9_]* =? *1/) next # nor is a limit
    gsub(/\.(min|max) = [0-9.e+-]+/, "", line) # a bound is no factor
    line = code(line)
    if (line ~ /(^|[^A-Za-z0-9_.])1(\.0*)?[eE]\+?0*(3|6|9|12|15)([^0-9]|$)/ ||
        line ~ /(^|[^A-Za-z0-9_.])(1000000|1000000000|1000000000000|1048576|1073741824)([^0-9]|$)/ ||
        line ~ /(^|[^A-Za-z0-9_.])1[uUlL]* *<< *(10|20|30|40)([^0-9]|$)/) {
        printf "%s:%d: a bare factor, use sim/base/units.h: %s\n", FILENAME, FNR, $0
        bad = 1
    }
}
END { exit bad }'
