#!/usr/bin/env bash
# The layout is clang-format's.
if ! command -v clang-format >/dev/null; then
    echo "skipped: clang-format is not installed"
    exit 77
fi
find sim hw models traces planner runtime tests -name '*.[ch]' -print0 | sort -z |
    xargs -0 clang-format --dry-run -Werror 2>&1 | grep -E ': (error|warning)' |
    awk -F: '{ n[$1]++; if (n[$1] <= 3) print } END { exit NR > 0 }'
