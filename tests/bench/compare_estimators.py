"""The memory estimators that two frameworks ship, beside dtplan on measured runs:

    compare_estimators.py CHECKOUT FILE.csv...

CHECKOUT of Megatron-LM: its theoretical_memory_usage.py (weights, optimizer state and activations of
the most loaded stage), for rows of any stack under ZeRO-0 or -1; it has no formula for full
recomputation. What a row does not state (embeddings tied or not) and which of its two formulas of
activations counts (its own choice, or that for sequence parallelism wherever tp > 1) are set once a
file, to the least error there. CHECKOUT of DeepSpeed: estimate_zero2/zero3_model_states_mem_needs
(model states alone, as the name says), given the parameters of a tp x pp shard; ZeRO-1 is taken as
stage 2, the nearest that it has. Neither PyTorch nor the packages are needed: only these functions
are read.
"""
import ast
import itertools
import math
import os
import types

import peer_rows

MEGATRON = "megatron/training/theoretical_memory_usage.py"
ZERO2, ZERO3 = "deepspeed/runtime/zero/stage_1_and_2.py", "deepspeed/runtime/zero/stage3.py"


def functions(path, *names):
    """These functions of a source file, without what else it imports or runs."""
    with open(path) as f:
        tree = ast.parse(f.read())
    tree.body = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name in names]
    space = {"math": math}
    exec(compile(tree, path, "exec"), space)
    return [space[n] for n in names]


def degree(r, name):
    return peer_rows.integer(r[name], 1)


class Megatron:
    name, options = "Megatron-LM", ("formula of sequence parallelism", "untied embeddings")

    def __init__(self, checkout):
        self.states, self.sp, self.plain = functions(
            os.path.join(checkout, MEGATRON), "compute_weight_and_optimizer_memory",
            "compute_activation_memory", "compute_activation_memory_without_sp")

    @staticmethod
    def why_not(r):
        reasons = ((degree(r, "cp") > 1, "context parallelism"),
                   (r["recompute"] == "full", "full recomputation"),
                   (peer_rows.integer(r["zero_stage"]) > 1, "ZeRO-2/3"))
        return next((text for held, text in reasons if held), None)

    def predict(self, r, options):
        h, heads, vpp = int(r["hidden"]), int(r["heads"]), degree(r, "vpp")
        tp, pp, dp = (degree(r, k) for k in ("tp", "pp", "dp"))
        kv, gated = peer_rows.integer(r["kv_heads"], heads), r["gated_ffn"] == "1"
        args = types.SimpleNamespace(
            hidden_size=h, num_attention_heads=heads, kv_channels=h // heads,
            group_query_attention=kv != heads, num_query_groups=kv, swiglu=gated,
            normalization="RMSNorm" if gated else "LayerNorm", multi_latent_attention=False,
            num_experts=None, moe_layer_freq=None, moe_shared_expert_intermediate_size=None,
            moe_latent_size=None, moe_ffn_hidden_size=None, mtp_num_layers=None,
            expert_tensor_parallel_size=tp, expert_model_parallel_size=1, add_bias_linear=not gated,
            padded_vocab_size=-(-int(r["vocab"]) // (128 * tp)) * 128 * tp,
            untie_embeddings_and_output_weights=options[1], num_layers=int(r["layers"]),
            ffn_hidden_size=int(r["ffn"]), tensor_model_parallel_size=tp,
            pipeline_model_parallel_size=pp, data_parallel_size=dp, world_size=tp * pp * dp,
            virtual_pipeline_model_parallel_size=vpp if vpp > 1 else None,
            use_distributed_optimizer=r["zero_stage"] == "1", seq_length=int(r["seq"]),
            micro_batch_size=int(r["microbatch"]))
        own = r["sequence_parallel"] == "1" and r["recompute"] == "selective"
        activations = self.sp if own or options[0] and tp > 1 else self.plain
        microbatches = int(r["global_batch"]) // (dp * int(r["microbatch"]))
        return self.states(args) + activations(args, max(microbatches, 1))


class DeepSpeed:
    name, options = "DeepSpeed, model states alone", ()

    def __init__(self, checkout):
        self.zero2, = functions(os.path.join(checkout, ZERO2), "estimate_zero2_model_states_mem_needs")
        self.zero3, = functions(os.path.join(checkout, ZERO3), "estimate_zero3_model_states_mem_needs")

    @staticmethod
    def why_not(r):
        return None if peer_rows.integer(r["zero_stage"]) > 0 else "ZeRO-0"

    def predict(self, r, options):
        layer, embedding = peer_rows.parameters(r)
        shards = degree(r, "tp") * degree(r, "pp")
        weights = int((layer * int(r["layers"]) + embedding) / shards)
        if r["zero_stage"] != "3":
            return self.zero2(weights, degree(r, "dp"), 1, cpu_offload=False)[1]
        largest = max(embedding, int(r["ffn"]) * int(r["hidden"])) // shards
        return self.zero3(weights, largest, degree(r, "dp"), 1, False, False)[1]


def compare(peer, path):
    rows = [r for r in peer_rows.read(path) if r["predicted"]["measured_peak_bytes"]]
    reasons = [peer.why_not(r) for r in rows]
    fit = [r for r, reason in zip(rows, reasons) if reason is None]
    left = ", ".join(f"{reasons.count(k)} {k}" for k in dict.fromkeys(reasons) if k)
    name = os.path.basename(path).removesuffix(".csv")
    if not fit:
        print(f"{name:20}{len(rows):5d}    0  {'cannot be expressed: ' + left if rows else 'no memory'}")
        return
    tried = []
    for options in itertools.product((False, True), repeat=len(peer.options)):
        pairs = [(float(r["predicted"]["measured_peak_bytes"]), peer.predict(r, options))
                 for r in fit]
        tried.append((*peer_rows.mape(pairs), options))
    error, bias, options = min(tried)
    own, own_bias = peer_rows.mape([(float(r["predicted"]["measured_peak_bytes"]),
                                     float(r["predicted"]["predicted_peak_bytes"])) for r in fit])
    on = [text for text, value in zip(peer.options, options) if value]
    print(f"{name:20}{len(rows):5d}{len(fit):5d} {error:8.1f} {bias:+6.1f} {own:9.1f} {own_bias:+6.1f}"
          f"  {', '.join(on)}" + (f"; left out: {left}" if left else ""))


def main():
    checkout, files, found = peer_rows.arguments(MEGATRON, ZERO3)
    peer = Megatron(checkout) if found == MEGATRON else DeepSpeed(checkout)
    print(f"{peer.name}, {peer_rows.version(checkout)}; errors of a GPU's memory in percent")
    print(f"{'file':20}{'rows':>5}{'used':>5}     peer   bias    dtplan   bias  settings")
    for path in files:
        compare(peer, path)


main()
