# Every command that the help names has a help of its own; the manual and the completions exist.
"$dtplan" --help >help || exit
sed -n '/^Commands:/,/^$/p' help | awk '/^  [a-z]/ { print $1 }' | while read -r verb; do
    [ "$verb" = help ] && continue
    "$dtplan" "$verb" --help >"$verb.txt" 2>&1 || echo "$verb --help: status $?"
    "$dtplan" help "$verb" 2>&1 | cmp - "$verb.txt" || echo "help $verb differs"
    head -n 1 "$verb.txt" | grep -q "^Usage: dtplan " || echo "$verb: no usage line"
    grep -q "^\.SS* .*$verb\|fB$verb" <("$dtplan" --man) || echo "$verb is not in the manual"
done
"$dtplan" --completions=bash | bash -n && echo bash
"$dtplan" --completions=zsh | head -n 1 | cut -c 1-8
