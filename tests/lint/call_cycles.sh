#!/usr/bin/env bash
# call_cycles.sh [BUILD]: prints each circle of calls between the files of a build (.build/release) and ends with
# status 1 if there is one. The symbols that the objects of the static libraries define and need say who calls whom.
# It becomes a check_*.sh, which every run of the tests asks, when the tree has none.
build=${1:-.build/release}
symbols() { nm -A "$@" "$build"/libdtp_*.a 2>/dev/null | awk 'split($1, part, ":") > 2 { print part[2], $NF }'; }
circles=$(awk 'NR == FNR { owner[$2] = $1; next }
    ($2 in owner) && owner[$2] != $1 && !seen[$1, owner[$2]]++ { print $1, owner[$2] }' \
    <(symbols -g --defined-only) <(symbols -u) | tsort 2>&1 >/dev/null |
    sed 's/^tsort: //' | awk '/input contains a loop/ { printf "%s", n++ ? "\n" : ""; next } { printf "%s ", $0 } END { if (n) print "" }')
[ -z "$circles" ] && exit 0
echo "$circles"
exit 1
