# A model from a Hugging Face config.json, a cluster written by hand: both count as known ones do.
cat >config.json <<'J'
{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32,
 "num_hidden_layers": 32, "num_key_value_heads": 32, "vocab_size": 32000,
 "max_position_embeddings": 4096, "tie_word_embeddings": false}
J
"$dtplan" models config.json | grep parameters | head -n 1
"$dtplan" models llama2-7b | grep parameters | head -n 1
"$dtplan" --model config.json --gpus 8 --nic 4x100 --cluster dgx-a100-80 | grep -o '4 x 100 Gb/s'
# The folder of a checkpoint, with or without a slash.
mkdir my-model && cp config.json my-model/
"$dtplan" models my-model | grep parameters | head -n 1
"$dtplan" models my-model/ | grep parameters | head -n 1
# A document has the folder's model in it.
"$dtplan" --model my-model --gpus 8 --batch 64 --json >best.json
mkdir elsewhere && cd elsewhere && "$dtplan" simulate --plan ../best.json | grep -o '6.74B parameters'
