#!/usr/bin/env bash
# The top level is fixed; what a build or an editor leaves there must be ignored by git.
allowed=" .ci .clang-format .cmake .gitignore CMakeLists.txt LICENSE README.md dtplan hw models
planner runtime sim tests traces "
if ! git rev-parse --git-dir >/dev/null 2>&1; then
    echo "skipped: not a git checkout"
    exit 77
fi
bad=0
while IFS= read -r entry; do
    case " ${allowed//$'\n'/ } " in
    *" $entry "*) ;;
    *)
        echo "$entry: not an entry of the top level"
        bad=1
        ;;
    esac
done < <({ git ls-files; git ls-files --others --exclude-standard; } | sed 's,/.*,,' | sort -u)
exit $bad
