"""Times PyTorch's own kernels alone, for `dtplan calibrate --from`: fused attention (cuDNN and flash,
forward and backward apart) and the eager memory-bound kernels of a training step.

    python3 calibrate_torch.py --out FILE [--seconds N]

The rules are those of calibrate_cuda.cuh: CUDA graphs, normal random numbers, operands that rotate through
three times the L2 cache (not for attention, whose operands were just written in a training step), the
median of five replays. What fails is recorded under "failures" and skipped; the file is written anew
every few seconds.
"""
import argparse
import datetime
import json
import os
import random
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

BF16, F32 = torch.bfloat16, torch.float32
aten = torch.ops.aten


class Report:
    def __init__(self, path):
        self.path, self.written = path, 0.0
        p = torch.cuda.get_device_properties(0)
        self.data = {"gpu": p.name, "impl": "torch", "date": str(datetime.date.today()),
                     "torch": torch.__version__, "cuda": torch.version.cuda,
                     "cudnn": torch.backends.cudnn.version(),
                     "rows": [], "other": [], "clocks": [], "failures": []}

    def add(self, row, kind="rows"):
        if "time_s" in row:
            row["time_s"] = float(f"{row['time_s']:.4g}")
        self.data[kind].append(row)
        if time.monotonic() > self.written + 5:
            self.flush()

    def flush(self):
        def lines(v):
            return "[" + ",".join("\n" + json.dumps(r, separators=(",", ":")) for r in v) + "]"
        text = ",\n".join(f'"{k}": {lines(v) if isinstance(v, list) else json.dumps(v)}'
                          for k, v in self.data.items())
        with open(self.path + ".part", "w") as f:
            f.write("{" + text + "}\n")
        os.replace(self.path + ".part", self.path)
        self.written = time.monotonic()


def median(v):
    return sorted(v)[len(v) // 2]


def events_s(call):
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    stop.record()
    stop.synchronize()
    return start.elapsed_time(stop) * 1e-3


def measure(launch, rotations=1, target_s=4e-3, replays=5):
    """Seconds of one launch(i) in a graph of several."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for i in range(3):
            launch(i % rotations)
        side.synchronize()
        guess = events_s(lambda: [launch(i % rotations) for i in range(5)]) / 5
    n = max(1, min(100, int(target_s / guess)))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        for i in range(n):
            launch(i % rotations)
    events_s(graph.replay)
    return median([events_s(graph.replay) for _ in range(replays)]) / n


# ---- attention ----

def attention_cases():
    cases = []
    for s in (512, 1024, 2048, 4096, 8192, 16384):
        for hd in (64, 80, 96, 128):
            for tokens, heads in ((4096, 8), (8192, 16), (16384, 16), (16384, 32)):
                if tokens >= s and not (s == 16384 and heads == 32):
                    cases.append((tokens // s, heads, heads, s, hd, True))
    for s in (1024, 4096, 8192):
        for hd in (64, 128):
            cases.append((8192 // s, 32, 8, s, hd, True))  # grouped queries
            cases.append((8192 // s, 16, 16, s, hd, False))
            cases.append((1, 4, 4, s, hd, True))  # too few blocks for the SMs
    random.Random(7).shuffle(cases)
    return cases


def attention_rows(report, backend, case):
    b, a, kv, s, hd, causal = case
    which = SDPBackend.CUDNN_ATTENTION if backend == "cudnn" else SDPBackend.FLASH_ATTENTION

    def tensor(heads):
        x = torch.randn(b, s, heads, hd, device="cuda", dtype=BF16)
        return x.transpose(1, 2).requires_grad_()
    q, k, v = tensor(a), tensor(kv), tensor(kv)
    dout = torch.randn(b, s, a, hd, device="cuda", dtype=BF16).transpose(1, 2)

    def forward(_=0):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=kv != a)
    side = torch.cuda.Stream()
    with sdpa_kernel(which):
        with torch.no_grad():
            row = dict(backend=backend, b=b, a=a, s=s, hd=hd, causal=causal)
            if kv != a:
                row["kv_heads"] = kv
            report.add({"op": "attn_fwd", **row, "time_s": measure(forward)})
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            out = forward()
            backward = lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)
            backward()
            side.synchronize()
            n = max(1, min(20, int(4e-3 / events_s(backward))))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):
            for _ in range(n):
                backward()
        events_s(graph.replay)
        t = median([events_s(graph.replay) for _ in range(5)]) / n
        report.add({"op": "attn_bwd", **row, "time_s": t})


# ---- memory-bound kernels ----

def rotated(make, footprint):
    """Copies of make()'s operands that are three times the L2 cache together."""
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    return [make() for _ in range(max(1, min(64, int(3 * l2 / footprint) + 1)))]


def flat_cases(n):
    """op, note, bytes an element, operands, launch"""
    def r(dtype=BF16):
        return torch.randn(n, device="cuda", dtype=dtype)
    ffn = (n // 8192, 8192)
    return [
        ("elementwise", "add", 6, lambda: (r(), r(), r()), lambda a, b, c: torch.add(a, b, out=c)),
        ("elementwise", "add_ fp32 += bf16", 10, lambda: (r(F32), r()), lambda a, b: a.add_(b)),
        ("elementwise", "add bf16 + fp32 -> fp32", 10, lambda: (r(), r(F32)), torch.add),
        ("elementwise", "mul by a number", 4, lambda: (r(),), lambda a: a * 0.5),
        ("elementwise", "pow fp32", 8, lambda: (r(F32),), lambda a: torch.pow(a, 3.0)),
        ("elementwise", "tanh fp32", 8, lambda: (r(F32),), torch.tanh),
        ("copy", "bf16", 4, lambda: (r(), r()), lambda a, b: b.copy_(a)),
        ("copy", "fp32 to bf16", 6, lambda: (r(F32),), lambda a: a.to(BF16)),
        ("copy", "bf16 to fp32", 6, lambda: (r(),), lambda a: a.to(F32)),
        ("activation", "gelu tanh", 4, lambda: (r(),), lambda a: F.gelu(a, approximate="tanh")),
        ("activation", "silu", 4, lambda: (r(),), F.silu),
        ("activation_backward", "gelu tanh", 6, lambda: (r(), r()),
         lambda a, g: aten.gelu_backward(g, a, approximate="tanh")),
        ("activation_backward", "silu", 6, lambda: (r(), r()), lambda a, g: aten.silu_backward(g, a)),
        ("dropout", "native", 5, lambda: (r(),), lambda a: aten.native_dropout(a, 0.1, True)),
        ("dropout", "backward", 5, lambda: (r(), r() > 0),
         lambda g, m: aten.native_dropout_backward(g, m, 1 / 0.9)),
        ("strided", "broadcast add of a row", 4,
         lambda: (r().view(ffn), torch.randn(8192, device="cuda", dtype=BF16)), torch.add),
        ("strided", "halves of columns apart", 4, lambda: (r().view(n // 8192, 2, 4096),),
         lambda a: a.transpose(0, 1).contiguous()),
        ("strided", "transpose", 4, lambda: (r().view(ffn),), lambda a: a.t().contiguous()),
        ("strided", "rotate half", 4, lambda: (r().view(-1, 2, 64),), lambda a: a.flip(1)),
        ("cat", "columns", 4, lambda: (r().view(2, -1, 4096),),
         lambda a: torch.cat((a[0], a[1]), dim=1)),
        ("cat", "rotate half", 4, lambda: (r().view(-1, 128),),
         lambda a: torch.cat((-a[:, 64:], a[:, :64]), dim=1)),
    ]


def matrix_cases(m, h):
    def r(dtype=BF16, *shape):
        return torch.randn(*(shape or (m, h)), device="cuda", dtype=dtype)
    w, bias = r(BF16, h), r(BF16, h)
    ids = torch.randint(0, 50304, (m,), device="cuda")

    def norm_operands(dtype=BF16):
        x = r(dtype)
        _, mean, rstd = aten.native_layer_norm(x, [h], w.to(dtype), bias.to(dtype), 1e-5)
        return x, r(dtype), mean, rstd
    wf, bf = w.float(), bias.float()
    return [
        ("norm", "layer", 4, lambda: (r(),), lambda x: aten.native_layer_norm(x, [h], w, bias, 1e-5)),
        ("norm", "layer fp32", 8, lambda: (r(F32),),
         lambda x: aten.native_layer_norm(x, [h], wf, bf, 1e-5)),
        ("norm", "rms", 4, lambda: (r(),), lambda x: F.rms_norm(x, [h], w, 1e-5)),
        ("norm_backward", "layer", 6, norm_operands,
         lambda x, g, mean, rstd: aten.native_layer_norm_backward(
             g, x, [h], mean, rstd, w, bias, [True, True, True])),
        ("norm_backward", "layer fp32", 12, lambda: norm_operands(F32),
         lambda x, g, mean, rstd: aten.native_layer_norm_backward(
             g, x, [h], mean, rstd, wf, bf, [True, True, True])),
        ("softmax", "rows", 4, lambda: (r(),), lambda x: torch.softmax(x, -1)),
        ("softmax", "rows, bf16 to fp32", 6, lambda: (r(),), lambda x: torch.softmax(x, -1, dtype=F32)),
        ("softmax_backward", "rows", 6, lambda: (r(), r()),
         lambda y, g: aten._softmax_backward_data(g, y, -1, BF16)),
        ("reduce", "bias gradient", 2, lambda: (r(),), lambda x: x.sum(0)),
        ("embedding", "gather", 4, lambda: (r(BF16, 50304, h),), lambda t: F.embedding(ids, t)),
        ("embedding", "scatter-add, whole gradient", 4 + 4 * 50304 / m, lambda: (r(),),
         lambda g: aten.embedding_dense_backward(g, ids, 50304, -1, False)),
    ]


def loss_cases(m, v):
    ids = torch.randint(0, v, (m,), device="cuda")

    def r(dtype=BF16):
        return torch.randn(m, v, device="cuda", dtype=dtype)

    def grad_operands():
        y = torch.log_softmax(r(F32), -1)
        return y, r(F32)
    return [
        ("cross_entropy", "log_softmax fp32", 8, lambda: (r(F32),), lambda x: torch.log_softmax(x, -1)),
        ("cross_entropy", "log_softmax backward fp32", 12, grad_operands,
         lambda y, g: aten._log_softmax_backward_data(g, y, -1, F32)),
    ]


def optimizer_rows(report, n):
    sizes, total = [], 0
    while total < n:
        sizes.append(min((4096 * 4096, 4096, 4096 * 11008, 8192)[len(sizes) % 4], n - total))
        total += sizes[-1]
    for note, dtype, per in (("fused adamw fp32", F32, 28), ("fused adamw bf16", BF16, 14)):
        def many():
            return [torch.rand(k, device="cuda", dtype=dtype) for k in sizes]
        p, g, m, v = many(), many(), many(), many()
        steps = [torch.ones((), device="cuda") for _ in sizes]
        kw = dict(lr=1e-4, beta1=0.9, beta2=0.95, weight_decay=0.1, eps=1e-8, amsgrad=False,
                  maximize=False)
        t = measure(lambda _: torch._fused_adamw_(p, g, m, v, [], steps, **kw))
        report.add({"op": "optimizer", "note": note, "bytes": per * n, "elements": n, "time_s": t})
        t = measure(lambda _: torch._foreach_norm(g))
        report.add({"op": "foreach_norm", "note": note, "bytes": g[0].element_size() * n,
                    "time_s": t}, "other")


def case_rows(report, cases, elements, shape=None):
    for op, note, per, make, launch in cases:
        try:
            operands = rotated(make, per * elements)
            with torch.no_grad():
                t = measure(lambda i: launch(*operands[i]), len(operands))
            row = {"op": op, "note": note, "bytes": round(per * elements), "elements": elements}
            report.add({**row, **({"shape": shape} if shape else {}), "time_s": t})
            del operands
        except Exception as e:  # one kernel that this version lacks costs its row only
            report.add({"block": f"{op} {note}", "why": str(e)[:200]}, "failures")
            torch.cuda.synchronize()


# ---- host ----

def host_rows(report):
    """Host time of an eager operation while the queue is not full."""
    x = torch.randn(1024, device="cuda", dtype=BF16)
    layer = torch.nn.Linear(1024, 1024, device="cuda", dtype=BF16)
    y = torch.randn(8, 1024, device="cuda", dtype=BF16, requires_grad=True)
    calls = {"add_": lambda: x.add_(1), "add": lambda: x + x, "linear": lambda: layer(y),
             "layer_norm": lambda: F.layer_norm(y, [1024])}
    for name, call in calls.items():
        times = []
        for _ in range(15):
            torch.cuda.synchronize()
            begin = time.monotonic()
            for _ in range(200):
                call()
            times.append((time.monotonic() - begin) / 200)
        report.add({"op": "eager_call", "note": name, "time_s": median(times)}, "other")


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--out", required=True)
    args.add_argument("--seconds", type=float, default=120)
    args = args.parse_args()
    begin = time.monotonic()
    torch.manual_seed(1)
    report = Report(args.out)

    def guarded(name, call):
        try:
            call()
        except Exception as e:
            report.add({"block": name, "why": str(e)[:200]}, "failures")
    guarded("host", lambda: host_rows(report))
    for n in (1 << 26, 1 << 22, 1 << 28):
        case_rows(report, flat_cases(n), n)
        torch.cuda.empty_cache()
    for m, h in ((16384, 4096), (4096, 2048), (16384, 1024), (8192, 8192), (2048, 4096)):
        case_rows(report, matrix_cases(m, h), m * h, f"{m}x{h}")
        torch.cuda.empty_cache()
    for m, v in ((8192, 50304), (4096, 128256), (2048, 32000)):
        case_rows(report, loss_cases(m, v), m * v, f"{m}x{v}")
        torch.cuda.empty_cache()
    for n in (1 << 26, 1 << 28, 1 << 23):
        guarded("optimizer", lambda: optimizer_rows(report, n))
        torch.cuda.empty_cache()
    for case in attention_cases():
        if time.monotonic() > begin + args.seconds:
            break
        for backend in ("cudnn", "flash"):
            guarded(f"attention {backend} {case}", lambda: attention_rows(report, backend, case))
    report.flush()
    print(f"torch: {len(report.data['rows'])} rows, {len(report.data['failures'])} failures, "
          f"{time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
