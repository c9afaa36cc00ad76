# The transcript in the README is what the program prints, but for the seconds of the search.
timeless() { sed 's/ in [0-9.]* s:/ in T s:/'; }
awk '/^\$ \.\/dtplan --model gpt175b --gpus 1024$/ { on = 1; next } /^```$/ { on = 0 } on' \
    "$root/README.md" | timeless >want
"$dtplan" --model gpt175b --gpus 1024 | timeless >got
[ -s want ] && diff want got && echo same
