#!/usr/bin/env bash
# Shell scripts are clean for shellcheck, or at least parse.
mapfile -t scripts < <(find dtplan .ci tests -type f -not -name '*.*' -o -type f -name '*.sh' | sort)
shell=()
for script in "${scripts[@]}"; do
    read -r first <"$script"
    case $first in '#!'*bash | '# '*) shell+=("$script") ;; esac
done
if command -v shellcheck >/dev/null; then
    # 2154: a golden test gets $dtplan and $root from its runner; 2016: awk programs
    exec shellcheck -x -s bash -e SC2154,SC2016 "${shell[@]}"
fi
bad=0
for script in "${shell[@]}"; do
    bash -n "$script" || bad=1
done
exit $bad
