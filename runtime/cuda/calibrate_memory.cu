/* This block times memory-bound kernels. */
#include <algorithm>
#include <random>

#include "runtime/cuda/calibrate_kernels.cuh"

namespace cal {

/* The footprint of a case is filled in operand by operand. */
struct Operands {
    Bench &b;
    size_t footprint = 0;

    size_t add(size_t bytes) {
        size_t at = footprint;
        footprint += (bytes + 511) & ~size_t{511};
        return at;
    }
    template <class T> T *at(int i, size_t slot) const {
        return static_cast<T *>(b.at(footprint, i, slot));
    }
};

/* This device memory needs no rotation: token ids, sums. */
template <class T> class Device {
  public:
    explicit Device(size_t n) {
        CAL_CUDA(cudaMalloc(&p, n * sizeof(T)));
    }
    explicit Device(const std::vector<T> &v) : Device(v.size()) {
        CAL_CUDA(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
    }
    ~Device() {
        cudaFree(p);
    }
    Device(const Device &) = delete;
    Device &operator=(const Device &) = delete;
    T *get() const {
        return p;
    }

  private:
    T *p = nullptr;
};

struct Row {
    const char *op, *note;
    double bytes, elements;
    std::string shape;
};

static void put(Context &c, const Row &r, const Timing &t) {
    std::string shape = r.shape.empty() ? "" : text(",\"shape\":\"%s\"", r.shape.c_str());

    c.report.row(text("{\"op\":\"%s\",\"note\":\"%s\",\"bytes\":%.0f,\"elements\":%.0f%s,"
                      "\"time_s\":%.4g,\"clock_mhz\":%.0f}",
                      r.op, r.note, r.bytes, r.elements, shape.c_str(), t.time_s, t.clock_mhz));
}

/* ---- elementwise classes: by number of elements ---- */

using Flat = void (*)(const Operands &o, int i, const size_t *slot, size_t n, cudaStream_t s);
struct FlatCase {
    const char *op, *note;
    Type fill;
    size_t operand[5]; /* bytes an element; 0: no more */
    Flat launch;
};

/* clang-format off */
#define AT(T, i) o.at<T>(r, slot[i])
#define FLAT [](const Operands &o, int r, const size_t *slot, size_t n, cudaStream_t s)
static const FlatCase flat_cases[] = {
    {"elementwise", "add", Type::bf16, {2, 2, 2}, FLAT { add_bf16(AT(bf16, 0), AT(bf16, 1), AT(bf16, 2), n, s); }},
    {"elementwise", "add fp32 + bf16", Type::f32, {4, 2, 4}, FLAT { add_mixed(AT(float, 0), AT(bf16, 1), AT(float, 2), n, s); }},
    {"copy", "bf16", Type::bf16, {2, 2}, FLAT { copy_bf16(AT(bf16, 0), AT(bf16, 1), n, s); }},
    {"copy", "fp32 to bf16", Type::f32, {4, 2}, FLAT { cast_f32_bf16(AT(float, 0), AT(bf16, 1), n, s); }},
    {"copy", "bf16 to fp32", Type::bf16, {2, 4}, FLAT { cast_bf16_f32(AT(bf16, 0), AT(float, 1), n, s); }},
    {"activation", "gelu", Type::bf16, {2, 2}, FLAT { gelu(AT(bf16, 0), AT(bf16, 1), n, s); }},
    {"activation_backward", "gelu", Type::bf16, {2, 2, 2}, FLAT { gelu_backward(AT(bf16, 0), AT(bf16, 1), AT(bf16, 2), n, s); }},
    {"activation", "swiglu", Type::bf16, {2, 2, 2}, FLAT { swiglu(AT(bf16, 0), AT(bf16, 1), AT(bf16, 2), n, s); }},
    {"activation_backward", "swiglu", Type::bf16, {2, 2, 2, 2, 2}, FLAT { swiglu_backward(AT(bf16, 0), AT(bf16, 1), AT(bf16, 2), AT(bf16, 3), AT(bf16, 4), n, s); }},
    {"dropout", "byte mask", Type::bf16, {2, 2, 1}, FLAT { dropout(AT(bf16, 0), AT(bf16, 1), AT(uint8_t, 2), n, s); }},
};
/* clang-format on */

static void run_flat(Context &c, const FlatCase &f, size_t n) {
    Operands o{*c.benches[0]};
    size_t slot[5] = {0}, bytes = 0;

    for (int i = 0; i < 5 && f.operand[i]; i++) {
        slot[i] = o.add(n * f.operand[i]);
        bytes += f.operand[i];
    }
    int rotations = o.b.prepare(f.fill, o.footprint);
    Timing t = o.b.measure([&](int r) { f.launch(o, r, slot, n, o.b.stream); }, rotations);
    put(c, {f.op, f.note, static_cast<double>(bytes * n), static_cast<double>(n), ""}, t);
}

/* ---- kernels over matrices ---- */

using Matrix = void (*)(Context &c, size_t rows, size_t cols);

static std::string by(size_t rows, size_t cols) {
    return text("%zux%zu", rows, cols);
}

static void run_norm(Context &c, size_t rows, size_t cols, bool rms) {
    Operands o{*c.benches[0]};
    size_t z = rows * cols * 2, x = o.add(z), y = o.add(z), dy = o.add(z);
    size_t weight = o.add(2 * cols), bias = o.add(2 * cols), threads = (cols / 16 + 31) / 32 * 32;
    size_t grid = std::min(rows, static_cast<size_t>(o.b.num_sms) *
                                     std::max<size_t>(1, 1024 / std::max<size_t>(threads, 64)));
    Device<float> partial(2 * grid * cols), dweight(cols), dbias(cols);
    Device<float2> saved(rows);
    double e = static_cast<double>(rows * cols);
    int rotations = o.b.prepare(Type::bf16, o.footprint);
    auto args = [&](int i) {
        NormArgs n{};
        n.rms = rms, n.rows = rows, n.cols = cols, n.grid = grid, n.saved = saved.get();
        n.x = o.at<bf16>(i, x), n.weight = o.at<bf16>(i, weight), n.bias = o.at<bf16>(i, bias);
        n.y = n.dx = o.at<bf16>(i, y), n.dy = o.at<bf16>(i, dy), n.partial = partial.get();
        n.dweight = dweight.get(), n.dbias = dbias.get();
        return n;
    };
    Timing f = o.b.measure([&](int i) { norm_forward(args(i), o.b.stream); }, rotations);
    put(c, {"norm", rms ? "rms" : "layer", 4 * e, e, by(rows, cols)}, f);
    Timing b = o.b.measure([&](int i) { norm_backward(args(i), o.b.stream); }, rotations);
    put(c, {"norm_backward", rms ? "rms" : "layer", 6 * e, e, by(rows, cols)}, b);
}
static void run_layer_norm(Context &c, size_t rows, size_t cols) {
    run_norm(c, rows, cols, false);
}
static void run_rms_norm(Context &c, size_t rows, size_t cols) {
    run_norm(c, rows, cols, true);
}

static void run_softmax(Context &c, size_t rows, size_t cols) {
    Operands o{*c.benches[0]};
    size_t z = rows * cols * 2, x = o.add(z), y = o.add(z), dx = o.add(z);
    double e = static_cast<double>(rows * cols);
    int n = o.b.prepare(Type::bf16, o.footprint);
    Timing f = o.b.measure(
        [&](int i) { softmax(o.at<bf16>(i, x), o.at<bf16>(i, y), rows, cols, o.b.stream); }, n);
    put(c, {"softmax", "rows", 4 * e, e, by(rows, cols)}, f);
    Timing b = o.b.measure(
        [&](int i) {
            softmax_backward(o.at<bf16>(i, y), o.at<bf16>(i, x), o.at<bf16>(i, dx), rows, cols,
                             o.b.stream);
        },
        n);
    put(c, {"softmax_backward", "rows", 6 * e, e, by(rows, cols)}, b);
}

static void run_strided(Context &c, size_t rows, size_t cols) {
    Operands o{*c.benches[0]};
    size_t z = rows * cols * 2, x = o.add(z), y = o.add(z), heads = cols / 128;
    double e = static_cast<double>(rows * cols);
    int n = o.b.prepare(Type::bf16, o.footprint);
    cudaStream_t s = o.b.stream;
    Timing t = o.b.measure(
        [&](int i) { swap_axes(o.at<bf16>(i, x), o.at<bf16>(i, y), rows, heads, 128, s); }, n);
    put(c, {"strided", "head axis swapped", 4 * e, e, by(rows, cols)}, t);
    t = o.b.measure([&](int i) { transpose(o.at<bf16>(i, x), o.at<bf16>(i, y), rows, cols, s); },
                    n);
    put(c, {"strided", "transpose", 4 * e, e, by(rows, cols)}, t);
    t = o.b.measure(
        [&](int i) {
            cat(o.at<bf16>(i, x), o.at<bf16>(i, x) + rows * cols / 2, o.at<bf16>(i, y), rows,
                cols / 2, cols / 2, s);
        },
        n);
    put(c, {"cat", "columns", 4 * e, e, by(rows, cols)}, t);
}

static void run_reduce(Context &c, size_t rows, size_t cols) {
    Operands o{*c.benches[0]};
    size_t x = o.add(rows * cols * 2);
    Device<float> out(cols), partial(64 * cols);
    double e = static_cast<double>(rows * cols);
    int n = o.b.prepare(Type::bf16, o.footprint);
    Timing t = o.b.measure(
        [&](int i) {
            column_sums(o.at<bf16>(i, x), out.get(), partial.get(), rows, cols, o.b.stream);
        },
        n);
    put(c, {"reduce", "bias gradient", 2 * e, e, by(rows, cols)}, t);
}

static void run_rope(Context &c, size_t rows, size_t cols) {
    Operands o{*c.benches[0]};
    size_t x = o.add(rows * cols * 2);
    Device<float> angles(rows * 64);
    double e = static_cast<double>(rows * cols);
    int n = o.b.prepare(Type::bf16, o.footprint);
    CAL_CUDA(cudaMemset(angles.get(), 0x3e, rows * 64 * sizeof(float))); /* 0.186: stays bounded */
    Timing t = o.b.measure(
        [&](int i) {
            rope(o.at<bf16>(i, x), angles.get(), angles.get(), rows, static_cast<int>(cols / 128),
                 128, o.b.stream);
        },
        n);
    put(c, {"rope", "in place", 4 * e, e, by(rows, cols)}, t);
}

static std::vector<int> random_ids(size_t n, size_t below) {
    std::mt19937 random(5);
    std::vector<int> ids(n);

    for (int &id : ids)
        id = static_cast<int>(random() % below);
    return ids;
}

static void run_embedding(Context &c, size_t rows, size_t cols) {
    const size_t vocab = 50304;
    Operands o{*c.benches[0]};
    size_t table = o.add(vocab * cols * 4), out = o.add(rows * cols * 2);
    Device<int> ids(random_ids(rows, vocab));
    double e = static_cast<double>(rows * cols);
    int n = o.b.prepare(Type::bf16, o.footprint);
    cudaStream_t s = o.b.stream;
    Timing t = o.b.measure(
        [&](int i) { gather(o.at<bf16>(i, table), ids.get(), o.at<bf16>(i, out), rows, cols, s); },
        n);
    put(c, {"embedding", "gather", 4 * e, e, by(rows, cols)}, t);
    t = o.b.measure(
        [&](int i) {
            scatter_add(o.at<bf16>(i, out), ids.get(), o.at<float>(i, table), rows, cols, s);
        },
        n);
    put(c, {"embedding", "scatter-add to fp32", 10 * e, e, by(rows, cols)}, t);
}

static void run_loss(Context &c, size_t rows, size_t cols) {
    Operands o{*c.benches[0]};
    size_t x = o.add(rows * cols * 2);
    Device<int> targets(random_ids(rows, cols));
    Device<float2> sums(rows);
    double e = static_cast<double>(rows * cols);
    int n = o.b.prepare(Type::bf16, o.footprint);
    Timing t = o.b.measure(
        [&](int i) { loss_sum(o.at<bf16>(i, x), sums.get(), rows, cols, o.b.stream); }, n);
    put(c, {"cross_entropy", "maximum and sum", 2 * e, e, by(rows, cols)}, t);
    t = o.b.measure(
        [&](int i) {
            loss_grad(o.at<bf16>(i, x), sums.get(), targets.get(), rows, cols, o.b.stream);
        },
        n);
    put(c, {"cross_entropy", "gradient in place", 4 * e, e, by(rows, cols)}, t);
}

/* ---- optimizer: by number of parameters, in tensors of different sizes ---- */

static std::vector<AdamChunk> chunks_of(size_t n) {
    const size_t tensor[] = {4096 * 4096, 4096, 4096 * 11008, 8192}, chunk = 16384;
    std::vector<AdamChunk> out;

    for (size_t first = 0, t = 0; first < n; t++) {
        size_t end = std::min(n, first + tensor[t % 4]);
        for (; first < end; first = std::min(end, first + chunk))
            out.push_back({first, std::min(chunk, end - first)});
    }
    return out;
}

static void run_optimizer(Context &c, size_t n) {
    Operands o{*c.benches[0]};
    size_t p = o.add(4 * n), m = o.add(4 * n), v = o.add(4 * n), g = o.add(4 * n),
           low = o.add(2 * n);
    std::vector<AdamChunk> list = chunks_of(n);
    Device<AdamChunk> chunks(list);
    double e = static_cast<double>(n);
    cudaStream_t s = o.b.stream;
    size_t k = list.size();
    int r = o.b.prepare(Type::f32, o.footprint, true);
    auto f = [&](int i, size_t slot) { return o.at<float>(i, slot); };
    auto h = [&](int i, size_t slot) { return o.at<bf16>(i, slot); };
    auto time = [&](const char *what, double bytes, auto tensors) {
        Timing t = o.b.measure([&](int i) { adamw(chunks.get(), k, tensors(i), s); }, r);
        put(c, {"optimizer", what, bytes * e, e, ""}, t);
    };
    time("adamw fp32", 28, [&](int i) {
        return AdamTensors<float, float, float>{f(i, p), nullptr, f(i, m), f(i, v), f(i, g)};
    });
    time("adamw master, bf16 gradient", 28, [&](int i) {
        return AdamTensors<bf16, bf16, float>{h(i, low), f(i, p), f(i, m), f(i, v), h(i, g)};
    });
    time("adamw master, fp32 gradient", 30, [&](int i) {
        return AdamTensors<bf16, float, float>{h(i, low), f(i, p), f(i, m), f(i, v), f(i, g)};
    });
    r = o.b.prepare(Type::bf16, o.footprint, true);
    time("adamw bf16", 14, [&](int i) {
        return AdamTensors<bf16, bf16, bf16>{h(i, p), nullptr, h(i, m), h(i, v), h(i, g)};
    });
}

/* ---- the blocks ---- */

struct MatrixCase {
    Matrix run;
    size_t rows, cols;
};

static std::vector<MatrixCase> matrix_cases() {
    std::vector<MatrixCase> out;

    for (size_t cols : {1024, 2048, 4096, 8192})
        for (size_t rows : {1024, 4096, 16384, 65536}) {
            if (rows * cols > 16384 * 8192)
                continue;
            for (Matrix m :
                 {run_layer_norm, run_rms_norm, run_softmax, run_strided, run_reduce, run_rope})
                out.push_back({m, rows, cols});
        }
    for (size_t cols : {1024, 4096, 8192})
        for (size_t rows : {2048, 8192, 32768})
            out.push_back({run_embedding, rows, cols});
    for (size_t cols : {32000, 50304, 128256})
        for (size_t rows : {1024, 4096, 8192})
            out.push_back({run_loss, rows, cols});
    return out;
}

static void run_memory(Context &c) {
    std::vector<MatrixCase> matrices = matrix_cases();
    const size_t flat = sizeof flat_cases / sizeof *flat_cases;

    check_kernels(*c.benches[0], c.report);
    for (size_t n : {size_t{1} << 26, size_t{1} << 28, size_t{1} << 24, size_t{1} << 22,
                     size_t{1} << 20, size_t{1} << 18})
        for (size_t i = 0; i < flat && !c.out_of_time(); i++)
            run_flat(c, flat_cases[i], n);
    for (size_t n : {size_t{1} << 26, size_t{1} << 28, size_t{1} << 22, size_t{1} << 24})
        if (!c.out_of_time())
            run_optimizer(c, n);
    for (size_t i : spread(matrices.size()))
        if (!c.out_of_time())
            matrices[i].run(c, matrices[i].rows, matrices[i].cols);
}
static size_t plan_memory() {
    return 6 * sizeof flat_cases / sizeof *flat_cases + 16 + matrix_cases().size() * 2;
}

/* clang-format off */
const Block kernel_blocks[] = {
    {"memory", 20, 1, run_memory, plan_memory},
    {nullptr, 0, 0, nullptr, nullptr}};
/* clang-format on */

} // namespace cal
