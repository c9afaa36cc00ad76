# Bad input ends with status 3 and one line that names the file, the place and what was expected.
try() { printf '%s' "$1" >bad.json; "$dtplan" simulate --plan bad.json 2>&1 >/dev/null | head -n 1; }
try '{"schema_version": 1, "plan": {"tp": 1,}}'
try '{"schema_version": 1, "model": "gpt2-1.5b", "gpus": 9007199254740993}'
try '[[1, 2], "unfinished'
"$dtplan" --model no/such/file.json --gpus 8 2>&1 >/dev/null | head -n 1
printf '{"a": 1, "a": 2}' >twice.json
"$dtplan" --model twice.json --gpus 8
