# Every command has help, a page of the manual and completion; the manual is clean.
"$dtplan" --help | head -n 2
for verb in $("$dtplan" --help | sed -n '/^Commands/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
    "$dtplan" help "$verb" | head -n 1 | grep -q "^Usage: dtplan " || echo "no help on $verb"
    "$dtplan" "$verb" --help | cmp -s - <("$dtplan" help "$verb") || echo "two helps on $verb"
    "$dtplan" --man | grep -q "^\.SS $verb$" || echo "$verb is not in the manual"
done
"$dtplan" --completions=bash | bash -n && echo "bash: parses"
"$dtplan" --completions=zsh | head -n 1
if command -v mandoc >/dev/null; then "$dtplan" --man | mandoc -T lint; fi
"$dtplan" help plann 2>&1
exit $?
