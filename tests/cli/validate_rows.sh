# validate: rows of an unknown GPU are counted, of an unknown framework predicted as a relative; a file of
# another kind is one line and status 3.
head='id,framework,gpu,gpu_mem_gb,gpus,gpus_per_node,model,layers,hidden,heads,kv_heads,ffn,gated_ffn,vocab,seq,tp,pp,vpp,cp,dp,zero_stage,microbatch,global_batch,dtype,recompute,sequence_parallel,flash_attention,schedule,step_s,step_s_from,peak_mem,peak_mem_unit,source'
{
    echo "$head"
    echo 'a,megatron-2022,A100,80,8,8,GPT 22B,48,6144,64,64,24576,0,51200,2048,8,1,1,1,1,0,4,4,fp16,full,0,0,1f1b,1.42,measured,,,x'
    echo 'b,nobody-knows,TPUv4,32,8,8,GPT 22B,48,6144,64,64,24576,0,51200,2048,8,1,1,1,1,0,4,4,fp16,full,0,0,1f1b,1.42,measured,,,x'
} >runs.csv
"$dtplan" validate runs.csv --rows rows.csv >out || echo "status $?"
grep -c . rows.csv
cut -d, -f1,2,6 rows.csv
sed -n 's/^  runs.csv  *\([0-9]*\) .* \([0-9]*\)$/\1 predicted, \2 unsupported/p' out
# A run on more GPUs than its cluster is known to have is predicted, and says so.
{
    echo "$head"
    echo 'c,megatron-2021,A100,80,5120,8,GPT 1T,128,25600,160,160,102400,0,51200,2048,8,64,1,1,10,0,1,5120,fp16,full,0,0,1f1b,90,measured,,,x'
} >large.csv
"$dtplan" validate large.csv --rows rows.csv >out || echo "status $?"
grep -o 'more GPUs than the cluster is known to have' rows.csv
# A peak that no card holds is no peak of a card.
{
    echo "$head"
    echo 'd,megatron-2022,A100,80,8,8,GPT 22B,48,6144,64,64,24576,0,51200,2048,8,1,1,1,1,0,4,4,fp16,full,0,0,1f1b,1.42,measured,60,GiB,x'
    echo 'e,megatron-2022,A100,80,8,8,GPT 22B,48,6144,64,64,24576,0,51200,2048,8,1,1,1,1,0,4,4,fp16,full,0,0,1f1b,1.42,measured,90,GiB,x'
} >peak.csv
"$dtplan" validate peak.csv --rows rows.csv >out || echo "status $?"
cut -d, -f1,9 rows.csv
grep -o 'peak_mem is more than a card has' rows.csv
# A table as people write it: other names of columns, shape and length from the library; what cannot be
# predicted says why.
cat >own.csv <<'EOF'
ID,Framework,GPU,GPUs,model,TP,PP,DP,micro_batch_size,global batch size,step_s
ours,megatron-core,H100,64,Llama-3-8B,2,1,32,1,512,3.2
unknown,megatron-core,H100,64,gpt9000,2,1,32,1,512,3.2
odd,megatron-core,H100,64,llama3-8b,3,1,32,1,512,3.2
late,megatron-core,H100,64,llama3-8b,2,1,32,1,512,soon
EOF
"$dtplan" validate own.csv --rows rows.csv | sed -n '/^not predicted/,/^$/p'
awk -F, '$1 == "ours" && $7 > 0 { print "predicted" }' rows.csv
# Names that may mean two things are asked about, unless the rest of the table says which.
for names in mbs,batch,step_ms dp,batch,step_s mbs,gbs,step_time; do
    printf 'id,framework,gpu,gpus,model,tp,%s\na,megatron-core,h100,64,llama3-8b,2,32,512,3200\n' "$names"
done | split -l 2 - names.
for table in names.aa names.ab names.ac; do
    { "$dtplan" validate $table --rows $table.rows >out; } 2>&1
done
sed -i 's/3200/3.2s/' names.ac
"$dtplan" validate names.ac --rows names.ac.rows >out
cut -d, -f1,6 names.aa.rows names.ac.rows
# Names of a GPU differ in case only: one group.
{
    echo 'id,framework,gpu,gpus,model,tp,pp,dp,microbatch,global_batch,step_s'
    for gpu in h100 H100 'NVIDIA H100'; do echo "$gpu,megatron-core,$gpu,64,llama3-8b,2,1,32,1,512,3.2"; done
} >case.csv
"$dtplan" validate case.csv --rows rows.csv | sed -n 's/^  \(H100  *[0-9]*\) .*/\1/Ip'
cut -d, -f3 rows.csv
printf 'x,y\n1,2\n' >other.csv
"$dtplan" validate other.csv 2>message
status=$?
wc -l <message
exit $status
