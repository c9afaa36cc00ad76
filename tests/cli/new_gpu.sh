# A GPU is one JSON file: --cluster knows it at once. Two files that name each other by "like" are refused.
mkdir data
cp -r "$root/hw" "$root/models" "$root/traces" data/
export DTPLAN_DATA=$PWD/data
gpu() { # NAME LIKE: the B300 under another name
    sed "s/\"name\": \"b300\"/\"name\": \"$1\"/; s/\"family\": \"B300\"/\"family\": \"$1\"/; s/\"like\": \"b200\"/\"like\": \"$2\"/; s/\"usual\": true,//" \
        "$root/hw/gpu/b300.json" >"data/hw/gpu/$1.json"
}
gpu new-gpu b200
"$dtplan" --model llama3-8b --gpus 8 --cluster new-gpu --json | grep -c '"step_s"' | sed 's/^[1-9].*/planned/'
gpu ring-a ring-b
gpu ring-b ring-a
echo '{"base": "dgx-b200", "gpu": "ring-a"}' >ring.json
"$dtplan" --model llama3-8b --gpus 8 --cluster ring.json 2>&1 | sed "s#$PWD/data/##"; echo
