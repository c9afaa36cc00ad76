"""Rows of measured runs beside what dtplan predicts for them, for the scripts compare_*.py.

Each script takes the path of a checkout of another tool and files that `dtplan validate` reads. It
downloads nothing; without the checkout it says so and ends with status 77. DTPLAN names another
binary than that of the release build.
"""
import csv
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DTPLAN = os.environ.get("DTPLAN", os.path.join(ROOT, ".build/release/dtplan"))
SKIPPED = 77


def arguments(*needed):
    """(checkout, files, which of `needed` the checkout holds) of the command line."""
    if len(sys.argv) < 3:
        sys.exit(f"usage: {os.path.basename(sys.argv[0])} CHECKOUT FILE.csv...")
    checkout = sys.argv[1]
    found = next((p for p in needed if os.path.exists(os.path.join(checkout, p))), None)
    if not found:
        print(f"skipped: no {' or '.join(needed)} in {checkout}")
        sys.exit(SKIPPED)
    return checkout, sys.argv[2:], found


def version(checkout):
    """Commit and date of a checkout, or "unknown"."""
    out = subprocess.run(["git", "-C", checkout, "log", "-1", "--format=%h of %cs"],
                         capture_output=True, text=True)
    return out.stdout.strip() or "unknown"


def integer(text, default=0):
    return int(text) if text.isdigit() else default


def read(path):
    """The rows of a file, each a dict of its columns; "predicted" is the line dtplan wrote for it."""
    with tempfile.TemporaryDirectory() as folder:
        rows = os.path.join(folder, "rows.csv")
        subprocess.run([DTPLAN, "validate", path, "--rows", rows],
                       stdout=subprocess.DEVNULL, check=True)
        with open(rows, newline="") as f:
            predicted = {r["id"]: r for r in csv.DictReader(f)}
    with open(path, newline="") as f:
        return [dict(r, predicted=predicted[r["id"]]) for r in csv.DictReader(f)
                if r["id"] in predicted]


def parameters(r):
    """(of a layer, of the embedding): weights of a row's model, biases and norms included."""
    h, heads, kv = int(r["hidden"]), int(r["heads"]), integer(r["kv_heads"]) or int(r["heads"])
    gated = r["gated_ffn"] == "1"
    attention = h * h * (2 + 2 * kv / heads)
    mlp = int(r["ffn"]) * h * (3 if gated else 2)
    return attention + mlp + (2 * h if gated else 9 * h + int(r["ffn"])), h * int(r["vocab"])


def mape(pairs):
    """Mean absolute error in percent and mean error, of (measured, predicted)."""
    errors = [100 * (p / m - 1) for m, p in pairs]
    return statistics.mean(abs(e) for e in errors), statistics.mean(errors)


def _ranks(values):
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    i = 0
    while i < len(order):
        j = i
        while j + 1 < len(order) and values[order[j + 1]] == values[order[i]]:
            j += 1
        for k in order[i:j + 1]:
            ranks[k] = (i + j) / 2
        i = j + 1
    return ranks


def spearman(pairs):
    """Rank correlation of (measured, predicted), None where one of the two is constant."""
    a, b = (_ranks(column) for column in zip(*pairs))
    mean = (len(a) - 1) / 2
    variance = [sum((x - mean) ** 2 for x in c) for c in (a, b)]
    if not all(variance):
        return None
    return sum((x - mean) * (y - mean) for x, y in zip(a, b)) / (variance[0] * variance[1]) ** 0.5


def cells(rows, least=5):
    """Lists of `least` rows or more of one cell, as `dtplan validate` has them."""
    found = {}
    for r in rows:
        key = tuple(r[k] for k in ("model", "layers", "hidden", "seq", "gpu", "gpus"))
        found.setdefault(key, []).append(r)
    return [c for c in found.values() if len(c) >= least]
