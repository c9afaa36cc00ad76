"""Calculon beside dtplan on measured runs: compare_calculon.py CHECKOUT FILE.csv...

A100 rows use its systems/a100_80g.json, the one that its own comparison of step times takes, H100
rows its h100_80g_nvl8.json, both also with the run's own network between nodes (NETWORK). What it has no word for is left out (below) or given as the nearest that
it has: a gated feed-forward as one of 1.5 times the width, grouped queries as full attention, fused
attention as attention that is computed again. Its on/off options that a row does not state (fused activations, overlap of gradients, gathering again
under sequence parallelism) are set once a file, to the combination with the least error there.
Needs numpy, pandas and psutil, which Calculon imports.
"""
import itertools
import json
import logging
import os
import statistics
import sys
import time

import peer_rows

SYSTEMS = {"A100": "a100_80g.json", "H100": "h100_80g_nvl8.json"}
RECOMPUTE = {"full": "full", "selective": "attn_only", "none": "none"}
# GB/s a GPU between nodes, where it is not the 25 (A100) and 50 (H100) of its files
NETWORK = {"bloom_prequel": 6.25,  # 4 x 100 Gb/s of Omni-Path for 8 GPUs (Jean Zay)
           "internevo": 6.25,      # 50 GB/s a node (InternEvo's performance page)
           "vtrain_multi": 12.5}   # 800 Gb/s a node (vTrain's configurations)
OPTIONS = ("fused_activation", "data_par_overlap", "seq_par_ag_redo")


def why_not(r):
    """What keeps Calculon from expressing a row, or None."""
    tp, pp, dp, vpp = (peer_rows.integer(r[k], 1) for k in ("tp", "pp", "dp", "vpp"))
    batch, microbatch = (peer_rows.integer(r[k]) for k in ("global_batch", "microbatch"))
    reasons = ((r["gpu"] not in SYSTEMS, "GPU"),
               (peer_rows.integer(r["cp"], 1) > 1, "context parallelism"),
               (peer_rows.integer(r["zero_stage"]) > 1, "ZeRO-2/3"),
               (not r["dtype"].startswith(("fp16", "bf16")) or "fp8" in r["dtype"], "dtype"),
               (r["recompute"] not in ("", *RECOMPUTE), "recomputation"),
               (not microbatch or batch % (dp * max(microbatch, 1)) != 0, "batch"),
               (-(-int(r["layers"]) // pp) % vpp != 0, "chunks"))
    return next((text for held, text in reasons if held), None)


def execution(r, gpus_per_node, options):
    tp, pp, dp, vpp = (peer_rows.integer(r[k], 1) for k in ("tp", "pp", "dp", "vpp"))
    sp = r["sequence_parallel"] == "1" and tp > 1
    recompute = RECOMPUTE[r["recompute"] or "none"]
    if recompute == "none" and r["flash_attention"] == "1":
        recompute = "attn_only"
    return {
        "num_procs": tp * pp * dp, "tensor_par": tp, "pipeline_par": pp, "data_par": dp,
        # the fast network where the group and those inside it fit into a node
        "tensor_par_net": int(tp > gpus_per_node),
        "pipeline_par_net": int(tp * pp > gpus_per_node),
        "data_par_net": int(tp * pp * dp > gpus_per_node),
        "batch_size": int(r["global_batch"]), "microbatch_size": int(r["microbatch"]),
        "datatype": "float16", "attention_type": "multihead", "activation_recompute": recompute,
        "pipeline_interleaving": vpp if pp > 1 else 1,
        "optimizer_sharding": r["zero_stage"] == "1" and dp > 1,
        "tensor_par_comm_type": "rs_ag" if sp else "ar", "tensor_par_overlap": "none",
        "fused_activation": options[0], "data_par_overlap": options[1] and dp > 1,
        "seq_par_ag_redo": options[2] and sp and recompute != "full",
        "weight_offload": False, "activations_offload": False, "optimizer_offload": False,
        "training": True}


class Peer:
    def __init__(self, checkout):
        sys.path.insert(0, checkout)
        try:
            import calculon.llm
        except ImportError as e:
            print(f"skipped: Calculon needs {e.name}")
            sys.exit(peer_rows.SKIPPED)
        self.llm, self.system = calculon.llm.Llm, calculon.System
        self.specs, self.systems, self.node = {}, {}, {}
        for gpu, name in SYSTEMS.items():
            with open(os.path.join(checkout, "systems", name)) as f:
                spec = json.load(f)
            spec["mem1"]["GiB"] = 1e9  # a row that ran is not refused for its memory
            for net in spec["networks"][:1]:
                net["must_be_filled"] = False  # nor for groups that fill no node
                self.node[gpu] = net["size"]
            self.specs[gpu] = spec
        self.log = logging.getLogger("calculon")
        self.log.addHandler(logging.NullHandler())
        self.seconds = []

    def use_network(self, gb_s):
        """Builds the systems with `gb_s` between nodes, None for that of the files."""
        for gpu, spec in self.specs.items():
            spec = json.loads(json.dumps(spec))
            spec["networks"][1]["bandwidth"] = gb_s or spec["networks"][1]["bandwidth"]
            self.systems[gpu] = self.system(spec)

    def predict(self, r, options):
        """(step in seconds, bytes of a GPU), or None where it refuses the row."""
        gated = r["gated_ffn"] == "1"
        app = self.llm.Application({
            "hidden": int(r["hidden"]), "feedforward": int(r["ffn"]) * (3 if gated else 2) // 2,
            "seq_size": int(r["seq"]), "attn_heads": int(r["heads"]),
            "attn_size": int(r["hidden"]) // int(r["heads"]), "num_blocks": int(r["layers"])})
        system = self.systems[r["gpu"]]
        start = time.process_time()
        try:
            model = self.llm(app, self.log)
            model.compile(system,
                          self.llm.Execution.from_json(execution(r, self.node[r["gpu"]], options)))
            model.run(system)
            stats = model.get_stats_json(False)
        except (self.llm.Error, AssertionError):
            return None
        self.seconds.append(time.process_time() - start)
        return stats["total_time"], stats["proc_mem_tier1_cap_req"]


def measured(r):
    return float(r["predicted"]["measured_s"])


def columns(rows, ours, theirs):
    """Error and bias of both, and their rank correlation over the cells (time of a sequence)."""
    out = []
    for values in (theirs, ours):
        error, bias = peer_rows.mape([(measured(r), values[r["id"]]) for r in rows])
        ranks = [peer_rows.spearman([(measured(r) / int(r["global_batch"]),
                                      values[r["id"]] / int(r["global_batch"])) for r in cell])
                 for cell in peer_rows.cells(rows)]
        ranks = [x for x in ranks if x is not None]
        out.append(f"{error:9.1f} {bias:+6.1f} "
                   + (f"{statistics.mean(ranks):5.2f}" if ranks else "    -"))
    return " ".join(out)


def memory(rows, theirs):
    rows = [r for r in rows if r["predicted"]["measured_peak_bytes"]]
    if not rows:
        return "        -        -"
    bytes_ = [(float(r["predicted"]["measured_peak_bytes"]), theirs[r["id"]],
               float(r["predicted"]["predicted_peak_bytes"])) for r in rows]
    peer, own = (peer_rows.mape([(b[0], b[k]) for b in bytes_])[0] for k in (1, 2))
    return f"{peer:9.1f}{own:9.1f}"


def main():
    checkout, files, _ = peer_rows.arguments("calculon/llm/llm.py")
    peer = Peer(checkout)
    print(f"Calculon {peer_rows.version(checkout)}; errors of the step in percent, rank correlation "
          "in cells of five layouts; memory error")
    print(f"{'file':20}{'rows':>5}{'used':>5}  calculon   bias  rank    dtplan   bias  rank"
          f"   mem, c.  dtplan  settings")
    for path in files:
        rows, reasons = peer_rows.read(path), {}
        fit = []
        for r in rows:
            reason = why_not(r)
            reasons[reason] = reasons.get(reason, 0) + 1
            if reason is None:
                fit.append(r)
        name = os.path.basename(path).removesuffix(".csv")
        best = None
        networks = [None, NETWORK[name]] if name in NETWORK else [None]
        for network, *options in itertools.product(networks, *[(True, False)] * len(OPTIONS)):
            peer.use_network(network)
            got = {r["id"]: peer.predict(r, options) for r in fit}
            good = [r for r in fit if got[r["id"]]]
            if not good:
                continue
            error, _ = peer_rows.mape([(measured(r), got[r["id"]][0]) for r in good])
            if best is None or (-len(good), error) < best[0]:
                best = ((-len(good), error), network, options, got, good)
        left = ", ".join(f"{n} {k}" for k, n in reasons.items() if k)
        if best is None:
            print(f"{name:20}{len(rows):5d}    0  cannot be expressed: {left}")
            continue
        _, network, options, got, good = best
        ours = {r["id"]: float(r["predicted"]["predicted_s"]) for r in good}
        theirs = {k: v[0] for k, v in got.items() if v}
        on = [name for name, value in zip(OPTIONS, options) if value]
        on += [f"{network} GB/s"] if network else []
        print(f"{name:20}{len(rows):5d}{len(good):5d} {columns(good, ours, theirs)} "
              f"{memory(good, {k: v[1] for k, v in got.items() if v})}  "
              f"{'+'.join(on) or 'all off'}" + (f"; left out: {left}" if left else ""))
    print(f"one plan: {1e3 * statistics.median(peer.seconds):.2f} ms of processor time (median of {len(peer.seconds)})")


main()
