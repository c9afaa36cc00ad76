#!/usr/bin/env bash
# The layout is clang-format's.
if ! command -v clang-format >/dev/null; then
    echo "skipped: clang-format is not installed"
    exit 77
fi
find sim hw models traces planner runtime tests \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) -print0 2>/dev/null | sort -z |
    xargs -0 clang-format --dry-run -Werror 2>&1 | grep -E ': (error|warning)' |
    awk -F: '
    !($1 in n) { file[++nfiles] = $1; line[$1] = $2 }
    { n[$1]++ }
    END {
        for (i = 1; i <= nfiles; i++)
            printf "%s:%d: clang-format would change %d places\n", file[i], line[file[i]], n[file[i]]
        exit nfiles > 0
    }'
