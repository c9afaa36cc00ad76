"""Published recipes beside the plan that the search picks: recipes.py FILE.csv... [--all]

Rows of nemo, megatron-core and torchtitan with 16 GPUs and more (columns as `dtplan validate` reads
them) are searched with the model, GPUs, batch, sequence and dtype of the row and nothing else, and the
recipe is simulated alike: both times are dtplan's own. The gap is the recipe's step over the pick's, less 1;
a pick that is slower than a recipe that fits is a fault of the search (status 1). The rank is the recipe's
place among the plans that the search simulated. --all prints every row, else the summary of each model.
Recipes that do not fit by dtplan's memory, and rows that it refuses, are counted apart.
DTPLAN names another binary than that of the release build.
"""
import csv
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

from peer_rows import DTPLAN, ROOT, integer

FRAMEWORKS = ("nemo", "megatron-core", "torchtitan")
CLUSTERS = {"H100": "dgx-h100", "A100": "dgx-a100-80", "H200": "dgx-h200", "B200": "dgx-b200",
            "GB200": "gb200-nvl72", "GB300": "gb300-nvl72"}
EQUAL = 1e-9  # relative


def stack(row, rules):
    """The entry of models/frameworks that a row's framework stands for."""
    for s in rules:
        if (s["framework"] == row["framework"] and s.get("source_contains", "") in row["source"]
                and s.get("dtype_contains", "") in row["dtype"]
                and s.get("schedule_contains", "") in row["schedule"]):
            return s["use"]
    return row["framework"]


def dtype(row):
    text = row["dtype"].lower().replace("float8", "fp8")
    return next((t for t in ("fp4", "fp8", "fp16", "bf16") if t in text), "bf16")


def model(row, folder):
    keys = {k: int(row[k]) for k in ("layers", "hidden", "heads", "ffn", "vocab", "seq")}
    llama = row["gated_ffn"] == "1"
    keys.update(family="llama" if llama else "gpt", kv_heads=integer(row["kv_heads"]) or keys["heads"],
                global_batch=int(row["global_batch"]), source="the row", title=row["model"])
    path = os.path.join(folder, re.sub(r"\W+", "-", row["model"]) + f"-{row['layers']}.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(keys, f)
    return path


def room(row):
    """An H100 of more than 80 GB has as much more memory."""
    more = row["gpu"] == "H100" and integer(row["gpu_mem_gb"]) > 80
    return ["--memory-limit", f"{0.95 * int(row['gpu_mem_gb']):.0f}GB"] if more else []


def problem(row, folder, rules):
    return ["--model", model(row, folder), "--gpus", row["gpus"], "--batch", row["global_batch"],
            "--cluster", CLUSTERS[row["gpu"]], "--framework", stack(row, rules),
            "--dtype", dtype(row), "--json", *room(row)]


def layout(row):
    vpp, stages = integer(row["vpp"], 1) or 1, integer(row["pp"], 1) * (integer(row["vpp"], 1) or 1)
    out = ["--microbatch-size", row["microbatch"] or "1", "--vpp", str(vpp)]
    for key in ("tp", "pp", "cp", "dp"):
        out += [f"--{key}", row[key] or "1"]
    if row["zero_stage"]:
        out += ["--zero-stage", row["zero_stage"]]
    if integer(row["tp"], 1) > 1:
        out += ["--sequence-parallel", "on" if row["sequence_parallel"] == "1" else "off"]
    if row["recompute"] in ("none", "selective", "full"):
        out += ["--recompute", row["recompute"]]
    layers = int(row["layers"])
    if stages > 1 and layers % stages and (layers + 2) % stages == 0:
        out += ["--account-for-ends", "on"]
    return out


def ask(*arguments):
    out = subprocess.run([DTPLAN, *arguments], capture_output=True, text=True, check=False)
    return json.loads(out.stdout) if out.stdout.startswith("{") else None, out


def compare(row, folder, rules, searches):
    """(verdict, gap, rank, recipe's plan, pick's plan); the verdict is refused, too large or compared."""
    what = problem(row, folder, rules)
    recipe, out = ask("simulate", *what, *layout(row))
    if not recipe:
        return "refused", 0, out.stderr.strip().split("; ")[0], None, None
    if out.returncode == 1:
        return "too large", 0, "", recipe, None
    key = tuple(what)
    if key not in searches:
        searches[key] = ask(*what)[0]
    found = searches[key]
    recipe = recipe.get("best", recipe)
    steps = [found["best"]["step_s"]] + [r["step_s"] for r in found["runners_up"]]
    faster = sum(s < recipe["step_s"] * (1 - EQUAL) for s in steps)
    rank = str(faster + 1) if faster < len(steps) else f">{len(steps)}"
    return "compared", recipe["step_s"] / steps[0] - 1, rank, recipe, found["best"]


def words(plan):
    p = plan["plan"]
    return " ".join(f"{k}{p[k]}" for k in ("tp", "pp", "cp", "dp", "vpp") if p.get(k, 1) != 1) + \
        f" mb{p['microbatch_size']}"


def main():
    files = [a for a in sys.argv[1:] if a != "--all"]
    if not files:
        sys.exit("usage: recipes.py FILE.csv... [--all]")
    with open(os.path.join(ROOT, "traces/measured/clusters.json"), encoding="utf-8") as f:
        rules = json.load(f)["stacks"]
    gaps, apart, searches, slower = {}, {"refused": 0, "too large": 0}, {}, 0
    with tempfile.TemporaryDirectory() as folder:
        for path in files:
            with open(path, newline="", encoding="utf-8") as f:
                rows = [r for r in csv.DictReader(f) if r["framework"] in FRAMEWORKS
                        and integer(r["gpus"]) >= 16 and r["gpu"] in CLUSTERS]
            for row in rows:
                verdict, gap, rank, recipe, pick = compare(row, folder, rules, searches)
                if verdict != "compared":
                    apart[verdict] += 1
                    if "--all" in sys.argv:
                        print(f"{row['id']:28} {verdict} {rank}")
                    continue
                slower += gap < -EQUAL
                name = (os.path.basename(path)[:-4], row["framework"])
                gaps.setdefault(name, []).append((gap, rank))
                if "--all" in sys.argv or gap < -EQUAL:
                    print(f"{row['id']:28} {row['gpus']:>5} {recipe['step_s']:8.3f} s "
                          f"{100 * gap:+6.1f} %  rank {rank:>4}  {words(recipe)}; pick {words(pick)}")
    print("| rows | recipes | first | gap, median | 90th | largest | pick slower |")
    print("|---|---|---|---|---|---|---|")
    for (name, framework), of in gaps.items():
        g = sorted(x for x, _ in of)
        print(f"| {name}, {framework} | {len(g)} | {sum(r == '1' for _, r in of)} | "
              f"{100 * statistics.median(g):.1f} % | {100 * g[int(0.9 * (len(g) - 1))]:.1f} % | "
              f"{100 * g[-1]:.1f} % | {sum(x < -EQUAL for x in g)} |")
    print(f"apart: {apart['too large']} do not fit by dtplan's memory, {apart['refused']} refused")
    return slower > 0


if __name__ == "__main__":
    sys.exit(main())
