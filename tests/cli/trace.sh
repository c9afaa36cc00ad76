# Files of many formats, told by content; names say nothing. A topology becomes a cluster; what is broken.
corpus=$root/tests/fuzz/corpus
"$dtplan" trace --format list
cp "$corpus/fuzz_logs/megatron.log" a
cp "$corpus/fuzz_config/megatron.yaml" config
gzip -c "$corpus/fuzz_jobs/acme.csv" >b
cp "$corpus/fuzz_workload/two.txt" c
cp "$corpus/fuzz_et/attrs.json" d
cp "$corpus/fuzz_aicb/good.csv" e
mkdir folder && cp "$corpus"/fuzz_events/titan.tfevents folder/1 && cp folder/1 folder/2
tar cf archive c d
echo "no format" >folder/readme
"$dtplan" trace a --config config --write-model model.json
"$dtplan" trace b
"$dtplan" trace archive --time-unit us
"$dtplan" trace e folder --json
"$dtplan" replay e
"$dtplan" models model.json | head -n 3
echo "{}" >unknown
for bad in unknown missing; do
    "$dtplan" trace $bad 2>&1
    echo "exit $?"
done
"$dtplan" trace a --format kinteo 2>&1
echo "exit $?"
"$dtplan" trace a --format chakra 2>&1
echo "exit $?"
