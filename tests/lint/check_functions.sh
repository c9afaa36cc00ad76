#!/usr/bin/env bash
# Predictions take + - * / and sqrt alone: of exp, log, pow and their like the C library has a variant for each kind
# of CPU, whose last bits differ. Fits and calibrations may.
find sim hw models planner -name '*.c' ! -path 'hw/calibrate*' ! -path 'hw/fit*' ! -name calibration.c -print0 2>/dev/null |
    sort -z | xargs -0 awk "$(cat tests/lint/code.awk)"'
{
    line = code($0)
    if (line ~ /(^|[^A-Za-z0-9_])(a?(sin|cos|tan)h?|atan2|exp(2|10|m1)?|log(2|10|1p|b)?|pow|cbrt|hypot|erfc?|[lt]gamma|fma)[fl]?\(/) {
        printf "%s:%d: not the same on every CPU: %s\n", FILENAME, FNR, $0
        bad = 1
    }
}
END { exit bad }'
