# The doctor: a normal number is exit 0, a far one exit 1 with suspects; text and JSON.
plan=(--model gpt3-6.7b --gpus 16 --tp 2 --dp 8 --zero-stage 1 --sequence-parallel)
"$dtplan" doctor "${plan[@]}" --json >expected.json
echo "status $?"
sed -n 's/.*"normal": //p' expected.json
"$dtplan" doctor "${plan[@]}" --measured 60TF | grep -E "This is|explains" | sed 's/.*explains.*/a suspect/' | sort -u
"$dtplan" doctor "${plan[@]}" --measured 1TF >/dev/null
echo "status $?"
"$dtplan" doctor "${plan[@]}" --measured "300TF, 1GiB" | grep -c "measured memory"
"$dtplan" doctor "${plan[@]}" --measured soon 2>message
echo "status $?"
head -n 1 message | cut -c1-40
