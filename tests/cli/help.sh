# Every command has help, a page of the manual and completion; the manual is clean.
"$dtplan" --help | head -n 2
for verb in $("$dtplan" --help | sed -n '/^Commands/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
    "$dtplan" help "$verb" | head -n 1 | grep -q "^Usage: dtplan " || echo "no help on $verb"
    "$dtplan" "$verb" --help | cmp -s - <("$dtplan" help "$verb") || echo "two helps on $verb"
    "$dtplan" --man | grep -q "^\.SS $verb$" || echo "$verb is not in the manual"
done
"$dtplan" --completions=bash | bash -n && echo "bash: parses"
"$dtplan" --completions=zsh | head -n 1
if command -v mandoc >/dev/null; then
    "$dtplan" --man | mandoc -T lint
    "$dtplan" --man-formats | mandoc -T lint
fi
# The page of the JSON files has every key of the files that come with dtplan, but for those that only say
# how well a calibration fits.
fit='all|used|nominal|gemm_(rate|shape)|(median|p90|rows)(_of_layers)?'
"$dtplan" --man-formats | sed -n 's/^\\fB\(.*\)\\fR$/\1/p' | sed 's/.*\.//' | tr '|' '\n' | sort -u >keys
for folder in models/library models/frameworks hw/cluster hw/gpu; do
    grep -ho '^ *"[a-z0-9_]*":' "$root/$folder"/*.json | tr -d ' ":' | sort -u >used
    comm -13 keys used | grep -vxE "source|notes|$fit" | grep -c . | sed "s|^|$folder: keys that are not in the manual: |"
done
"$dtplan" help plann 2>&1
exit $?
