# Measured runs: tables, pictures, JSON, accuracy file, and one run explained.
cat >runs.csv <<'ROWS'
id,framework,gpu,gpu_mem_gb,gpus,gpus_per_node,model,layers,hidden,heads,ffn,gated_ffn,vocab,seq,tp,pp,vpp,cp,dp,zero_stage,microbatch,global_batch,dtype,recompute,sequence_parallel,flash_attention,schedule,step_s,peak_mem,peak_mem_unit,source
a,megatron-2022,A100,80,8,8,GPT,48,6144,64,24576,0,51200,2048,8,1,1,1,1,0,4,4,fp16,full,0,0,,1.42,60,GiB,made for this test
b,megatron-2022,A100,80,8,8,GPT,48,6144,64,24576,0,51200,2048,8,1,1,1,1,0,4,4,fp16,selective,1,0,,1.1,,,made for this test
c,megatron-2022,A100,80,8,8,GPT,48,6144,64,24576,0,51200,2048,8,1,1,1,1,0,2,4,fp16,selective,1,0,,1.2,,,made for this test
d,megatron-2022,A100,80,8,8,GPT,48,6144,64,24576,0,51200,2048,8,1,1,1,1,0,1,4,fp16,selective,1,0,,1.4,,,made for this test
e,megatron-2022,A100,80,8,8,GPT,48,6144,64,24576,0,51200,2048,4,2,1,1,1,0,1,4,fp16,full,0,0,1F1B,1.9,,,made for this test
f,megatron-2022,Z100,80,8,8,GPT,48,6144,64,24576,0,51200,2048,4,2,1,1,1,0,1,4,fp16,full,0,0,1F1B,1.9,,,made for this test
g,megatron-core,H100,80,8,8,Llama 8B,32,4096,32,14336,1,128256,8192,1,1,1,1,8,1,,128,bf16,,,1,,10,,,made for this test
ROWS
"$dtplan" validate runs.csv --by-plan --worst 2 --rows rows.csv --scatter s.svg --histogram h.svg \
    --accuracy a.json | grep -E "^by |^ranking|^worst|verdicts" | cut -c1-16
cut -d, -f1 rows.csv
tail -n 1 s.svg h.svg a.json | grep -c -E "</svg>|}"
"$dtplan" validate runs.csv --json | sed -n 's/^ "\(rows\|unsupported\)": \(.*\),/\1 \2/p'
"$dtplan" explain --row e runs.csv | grep -E "measured|source" | cut -c1-22
"$dtplan" explain --row e runs.csv --json | grep -c '"operations"'
"$dtplan" explain --row z runs.csv 2>&1 | head -n 1 | cut -c1-24
"$dtplan" explain --row f runs.csv
echo "status $?"
