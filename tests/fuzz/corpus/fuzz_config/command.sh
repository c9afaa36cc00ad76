torchrun --nproc_per_node=8 pretrain_gpt.py --num-layers 24 --hidden-size 2048 \
  --num-attention-heads=16 --swiglu --sequence-parallel --tensor-model-parallel-size 2
