#!/usr/bin/env bash
# No leftover marks, no path of one machine, no tab or blank at the end of a line, in our text.
bad=0
find . -type f ! -path './.git/*' ! -path './.build/*' ! -path './build/*' ! -path './tests/lint/*' ! -path './.carry/*' ! -path './tests/fuzz/corpus/*' \
    \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.py' -o -name '*.sh' -o -name '*.md' -o -name '*.json' \
    -o -name '*.cmake' -o -name CMakeLists.txt -o -path ./dtplan -o -path ./tests/run \
    -o -path './.ci/*' \) -print0 >"${TMPDIR:-/tmp}/dtp_lint.$$"
trap 'rm -f "${TMPDIR:-/tmp}/dtp_lint.$$"' EXIT
search() { # search WHAT PATTERN
    if xargs -0 grep -nHE -- "$2" <"${TMPDIR:-/tmp}/dtp_lint.$$"; then
        echo "^ $1"
        bad=1
    fi
}
search "a mark of unfinished work" '\b(TODO|FIXME|XXX|HACK)\b'
search "a path of one machine" '(^|[^A-Za-z0-9_.])/(home|root|work|Users|mnt|scratch)/[A-Za-z0-9]'
search "blanks at the end of a line" '[ 	]+$'
exit $bad
