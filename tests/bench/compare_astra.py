"""ASTRA-sim beside dtplan on measured all-reduces of DGX H100: compare_astra.py CHECKOUT COLLECTIVES.csv

CHECKOUT is a built checkout of ASTRA-sim 2 (build/astra_analytical); the sweeps are those of
hw/NOTES.md. ASTRA-sim gets its own validated settings of an HGX H100 (a switch of 400 GB/s and 936 ns,
two of four chunks at a time) and a second switch of one 400 Gb/s card a GPU for the nodes; of its
algorithms, of one chunk or four, and of latencies of the second switch the best of each line
counts. dtplan's own figures are in-sample for these sweeps: its curves come from them (hw/NOTES.md
has the errors with a curve held out). Then both on one 1 GB all-reduce of 64 to 1,024 GPUs, from
process start.
"""
import csv
import glob
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time

import peer_rows

BINARY = "AstraSim_Analytical_Congestion_Unaware"
SWEEPS = {"NVLink4 NVLS": "Azure", "DGX H100 8x400Gb NDR IB": "2411.13055"}
ALGORITHMS = ("ring", "halvingDoubling", "doubleBinaryTree")
LATENCIES = (1000.0, 2500.0, 5000.0)  # ns, second switch


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out + bytes([n]))


def field(number, payload):
    """One field of a protobuf message: bytes, text or an integer."""
    if isinstance(payload, int):
        return varint(number << 3) + varint(payload)
    payload = payload.encode() if isinstance(payload, str) else payload
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def graph(size, ndims):
    """A Chakra graph of one all-reduce over all dimensions: metadata, then a node of type 7
    (collective)."""
    attributes = (field(1, "is_cpu_op") + field(27, 0), field(1, "comm_type") + field(9, 0),
                  field(1, "comm_size") + field(9, size),
                  field(1, "involved_dim") + field(28, field(1, bytes([1] * ndims))))
    node = (field(1, 1) + field(2, "all_reduce") + field(3, 7)
            + b"".join(field(10, a) for a in attributes))
    return b"".join(varint(len(m)) + m for m in (field(1, "0.0.4"), node))


class Astra:
    def __init__(self, checkout):
        self.binary = glob.glob(os.path.join(checkout, "**", "bin", BINARY), recursive=True)[0]
        self.memory = os.path.join(checkout,
                                   "inputs/remote_memory/analytical/no_memory_expansion.json")

    def run(self, folder, gpus, size, algorithm="ring", latency=2500.0, splits=4):
        """Seconds that the slowest rank takes, None where it gives up."""
        dims = [8, gpus // 8] if gpus > 8 else [8]
        names = {k: [algorithm] * len(dims) for k in (
            "all-reduce-implementation", "all-gather-implementation",
            "reduce-scatter-implementation")}
        system = {"scheduling-policy": "LIFO", "endpoint-delay": 10,
                  "active-chunks-per-dimension": min(2, splits), "preferred-dataset-splits": splits,
                  **names, "all-to-all-implementation": ["ring"] * len(dims),
                  "collective-optimization": "localBWAware", "local-mem-bw": 3350, "boost-mode": 0}
        with open(os.path.join(folder, "system.json"), "w") as f:
            json.dump(system, f)
        with open(os.path.join(folder, "network.yml"), "w") as f:
            f.write(f"topology: [ {', '.join(['Switch'] * len(dims))} ]\nnpus_count: {dims}\n"
                    f"bandwidth: {[400.0, 50.0][:len(dims)]}\nlatency: {[936.25, latency][:len(dims)]}\n")
        for rank in range(gpus):
            with open(os.path.join(folder, f"w.{rank}.et"), "wb") as f:
                f.write(graph(size, len(dims)))
        start = time.perf_counter()
        out = subprocess.run([self.binary, f"--workload-configuration={folder}/w",
                              f"--system-configuration={folder}/system.json",
                              f"--network-configuration={folder}/network.yml",
                              f"--remote-memory-configuration={self.memory}"],
                             capture_output=True, text=True, cwd=folder).stdout
        self.seconds = time.perf_counter() - start
        cycles = [int(line.split()[2]) for line in out.splitlines() if "finished" in line]
        return max(cycles) * 1e-9 if len(cycles) == gpus else None


def dtplan(gpus, size):
    """(seconds of the collective, seconds that the process took)"""
    start = time.perf_counter()
    out = subprocess.run([peer_rows.DTPLAN, "collective", "all_reduce", "--bytes", str(size),
                          "--gpus", str(gpus), "--cluster", "dgx-h100", "--json"],
                         capture_output=True, text=True, check=True).stdout
    return json.loads(out)["time_s"], time.perf_counter() - start


def sweep(path):
    """{GPUs: [(bytes, seconds)]} of the measured points from 1 MiB on, to 256 GPUs."""
    found = {}
    with open(path, newline="") as f:
        for r in csv.DictReader(f):
            source = SWEEPS.get(r["interconnect"])
            if source and source in r["source"] and r["collective"] == "all_reduce" \
                    and r["gpu"] == "H100-SXM" and int(r["bytes"]) >= 1 << 20 \
                    and int(r["gpus"]) <= 256:
                size, gpus = int(r["bytes"]), int(r["gpus"])
                seconds = float(r["time_us"]) * 1e-6 if r["time_us"] else \
                    2 * (gpus - 1) / gpus * size / (float(r["busbw"]) * 1e9)
                found.setdefault(gpus, []).append((size, seconds))
    return found


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: compare_astra.py CHECKOUT COLLECTIVES.csv")
    checkout = sys.argv[1]
    if not glob.glob(os.path.join(checkout, "**", "bin", BINARY), recursive=True):
        print(f"skipped: no built {BINARY} under {checkout}")
        sys.exit(peer_rows.SKIPPED)
    astra = Astra(checkout)
    print(f"ASTRA-sim {peer_rows.version(checkout)}, analytical network: all-reduces of DGX H100 from "
          "1 MiB on, errors in percent")
    print("  GPUs  points  ASTRA-sim   bias   dtplan   bias  settings of ASTRA-sim")
    with tempfile.TemporaryDirectory() as folder:
        for gpus, points in sorted(sweep(sys.argv[2]).items()):
            tried = []
            for settings in itertools.product(ALGORITHMS, LATENCIES if gpus > 8 else (0.0,), (1, 4)):
                pairs = [(s, astra.run(folder, gpus, b, *settings)) for b, s in points]
                if all(p for _, p in pairs):
                    tried.append((*peer_rows.mape(pairs), settings))
            error, bias, (algorithm, latency, splits) = min(tried)
            own, own_bias = peer_rows.mape([(s, dtplan(gpus, b)[0]) for b, s in points])
            print(f"{gpus:6d} {len(points):7d} {error:10.1f} {bias:+6.1f} {own:8.1f} {own_bias:+6.1f}  "
                  f"{algorithm}, {splits} chunks, {latency * 1e-3:.1f} us")
        print("one 1 GB all-reduce, from process start:")
        for gpus in (64, 256, 1024):
            took = astra.run(folder, gpus, 10**9)
            own, own_s = dtplan(gpus, 10**9)
            print(f"{gpus:6d} GPUs: ASTRA-sim {1e3 * took:.1f} ms in {astra.seconds:.2f} s; dtplan "
                  f"{1e3 * own:.1f} ms in {own_s:.3f} s")


main()
