#!/usr/bin/env bash
# A folder includes only itself and those before it in
#   sim/base <- sim <- hw <- models <- traces <- {planner, runtime} <- planner/cli
# and includes are relative to the root.
find sim hw models traces planner runtime \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) -print0 2>/dev/null |
    sort -z | xargs -0 awk '
function layer(path) {
    if (path ~ /^sim\/base\//) return "base"
    if (path ~ /^planner\/cli\//) return "cli"
    sub(/\/.*/, "", path)
    return path
}
BEGIN {
    n = split("base sim hw models traces", chain, " ")
    for (i = 1; i <= n; i++) {
        for (k = i; k <= n; k++) allowed[chain[k], chain[i]] = 1
        allowed["planner", chain[i]] = allowed["runtime", chain[i]] = allowed["cli", chain[i]] = 1
    }
    allowed["planner", "planner"] = allowed["runtime", "runtime"] = 1
    allowed["cli", "cli"] = allowed["cli", "planner"] = allowed["cli", "runtime"] = 1
}
/^[ \t]*#[ \t]*include[ \t]*"/ {
    split($0, part, "\"")
    if (!((layer(FILENAME), layer(part[2])) in allowed)) {
        printf "%s:%d: %s may not include \"%s\"\n", FILENAME, FNR, layer(FILENAME), part[2]
        bad = 1
    }
}
END { exit bad }'
