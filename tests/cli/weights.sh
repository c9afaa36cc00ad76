# run --save-weights and --weights on a tiny model in a folder of Hugging Face's form: names and shapes of Qwen2's biases,
# the same losses from the weights as from the checkpoint's values, and a folder of another model is refused.
mkdir qwen other
config() { # config THETA SCALING
    printf '{"model_type": "qwen2", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 67, "max_position_embeddings": 16,
        "rms_norm_eps": 1e-06, "rope_theta": %s, "rope_scaling": %s, "tie_word_embeddings": false, "hidden_act": "silu"}' "$1" "$2"
}
config 1000000.0 null >qwen/config.json
run() {
    "$dtplan" run --seq 16 --batch 4 --steps 2 --no-pin --json "$@"
}
losses() {
    tr -d ' \n' | grep -o '"losses":\[[^]]*\]' | tr ',' '\n' | sed 's/[^0-9.]//g' | cut -c1-5 | tr '\n' ' '
}
run --model qwen --lr 0 --min-lr 0 --save-weights qwen/model.safetensors | losses >drawn
run --model qwen --lr 0 --min-lr 0 --weights qwen --tp 2 --ranks 2 | losses >loaded
cmp drawn loaded && echo "the same losses: $(wc -w <loaded)"
echo "biases of queries, keys and values: $(head -c 6000 qwen/model.safetensors | grep -ao 'layers.[01].self_attn.[qkv]_proj.bias":{"dtype":"F32"' | wc -l)"
config 10000.0 null >other/config.json
run --model other --weights qwen 2>&1 >/dev/null | sed 's/.*config/config/'
cp qwen/model.safetensors other
config 1000000.0 '{"rope_type": "llama3", "factor": 8.0}' >other/config.json
run --model qwen --weights other 2>&1 >/dev/null | sed 's/.*config/config/'
