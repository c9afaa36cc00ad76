/* Compares every timed kernel with double precision on the host, at a small size with fresh numbers. */
#include <cmath>
#include <random>

#include "runtime/cuda/calibrate_kernels.cuh"

namespace cal {

namespace {

/* A buffer exists on host and device; the host's values are those that the device's type can hold. */
template <class T> class Both {
  public:
    Both(size_t n, unsigned seed, double least = -1e30) : host(n), n(n) {
        std::mt19937 random(seed);
        std::normal_distribution<double> normal;
        std::vector<T> typed(n);

        for (size_t i = 0; i < n; i++) {
            double v = seed ? normal(random) : 777; /* seed 0 fills the buffer with a wrong value */
            typed[i] = T(static_cast<float>(v < least ? -v : v));
            host[i] = static_cast<double>(static_cast<float>(typed[i]));
        }
        CAL_CUDA(cudaMalloc(&device, n * sizeof(T)));
        CAL_CUDA(cudaMemcpy(device, typed.data(), n * sizeof(T), cudaMemcpyHostToDevice));
    }
    ~Both() {
        cudaFree(device);
    }
    Both(const Both &) = delete;
    Both &operator=(const Both &) = delete;
    /* returns |device - want| / |want| */
    double error(const std::vector<double> &want) const {
        std::vector<T> got(n);
        double off = 0, norm = 0;

        CAL_CUDA(cudaMemcpy(got.data(), device, n * sizeof(T), cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < n; i++) {
            double d = static_cast<double>(static_cast<float>(got[i])) - want[i];
            off += d * d;
            norm += want[i] * want[i];
        }
        return std::sqrt(off / norm);
    }
    /* returns the same for what was added to each element */
    double change_error(const std::vector<double> &change) const {
        std::vector<T> got(n);
        double off = 0, norm = 0;

        CAL_CUDA(cudaMemcpy(got.data(), device, n * sizeof(T), cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < n; i++) {
            double d = static_cast<double>(static_cast<float>(got[i])) - host[i] - change[i];
            off += d * d;
            norm += change[i] * change[i];
        }
        return std::sqrt(off / norm);
    }
    std::vector<double> host;
    T *device = nullptr;
    size_t n;
};

struct Checker {
    Bench &b;
    void expect(const char *kernel, double error) const {
        if (!(error < 1e-2)) /* results are bf16; a NaN fails */
            throw Failure(text("%s is wrong: relative error %g", kernel, error));
    }
    template <class T>
    void done(const char *kernel, const Both<T> &out, const std::vector<double> &want) const {
        CAL_CUDA(cudaGetLastError());
        CAL_CUDA(cudaStreamSynchronize(b.stream));
        expect(kernel, out.error(want));
    }
};

double gelu_of(double x) {
    return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

void check_flat(const Checker &k) {
    const size_t n = 4096;
    Both<bf16> a(n, 1), b(n, 2), c(n, 3), y(n, 0), z(n, 0);
    Both<float> f(n, 4), g(n, 0);
    std::vector<double> want(n), second(n);
    cudaStream_t s = k.b.stream;

    add_bf16(a.device, b.device, y.device, n, s);
    for (size_t i = 0; i < n; i++)
        want[i] = a.host[i] + b.host[i];
    k.done("add", y, want);
    add_mixed(f.device, b.device, g.device, n, s);
    for (size_t i = 0; i < n; i++)
        want[i] = f.host[i] + b.host[i];
    k.done("mixed add", g, want);
    copy_bf16(a.device, y.device, n, s);
    k.done("copy", y, a.host);
    cast_f32_bf16(f.device, y.device, n, s);
    k.done("cast to bf16", y, f.host);
    cast_bf16_f32(a.device, g.device, n, s);
    k.done("cast to fp32", g, a.host);
    gelu(a.device, y.device, n, s);
    for (size_t i = 0; i < n; i++)
        want[i] = gelu_of(a.host[i]);
    k.done("gelu", y, want);
    gelu_backward(a.device, b.device, y.device, n, s);
    for (size_t i = 0; i < n; i++)
        want[i] = b.host[i] * (gelu_of(a.host[i] + 1e-5) - gelu_of(a.host[i] - 1e-5)) / 2e-5;
    k.done("gelu backward", y, want);
    swiglu(a.device, b.device, y.device, n, s);
    for (size_t i = 0; i < n; i++)
        want[i] = a.host[i] / (1 + std::exp(-a.host[i])) * b.host[i];
    k.done("swiglu", y, want);
    swiglu_backward(a.device, b.device, c.device, y.device, z.device, n, s);
    for (size_t i = 0; i < n; i++) {
        double sig = 1 / (1 + std::exp(-a.host[i]));
        second[i] = c.host[i] * a.host[i] * sig;
        want[i] = c.host[i] * b.host[i] * sig * (1 + a.host[i] * (1 - sig));
    }
    k.done("swiglu backward, gate", y, want);
    k.done("swiglu backward, up", z, second);
}

/* Checks that kept elements are scaled, that the others are zero, that the mask says which, and the kept share. */
void check_dropout(const Checker &k) {
    const size_t n = 1024 * 1024;
    Both<bf16> x(n, 5), y(n, 0);
    uint8_t *mask;
    std::vector<uint8_t> kept(n);
    std::vector<double> want(n);
    size_t count = 0;

    CAL_CUDA(cudaMalloc(&mask, n));
    dropout(x.device, y.device, mask, n, k.b.stream);
    CAL_CUDA(cudaStreamSynchronize(k.b.stream));
    CAL_CUDA(cudaMemcpy(kept.data(), mask, n, cudaMemcpyDeviceToHost));
    cudaFree(mask);
    for (size_t i = 0; i < n; i++) {
        count += kept[i];
        want[i] = kept[i] ? x.host[i] / static_cast<double>(0.9f) : 0;
    }
    k.done("dropout", y, want);
    k.expect("dropout's share",
             std::fabs(static_cast<double>(count) / static_cast<double>(n) - 0.9));
}

void check_moves(const Checker &k) {
    const size_t rows = 128, cols = 512, heads = 4, d = 128;
    Both<bf16> x(rows * cols, 6), y(rows * cols, 0), x2(rows * cols, 7), both(2 * rows * cols, 0);
    Both<float> sums(cols, 0), partial(64 * cols, 0);
    std::vector<double> want(rows * cols), joined(2 * rows * cols), total(cols);
    cudaStream_t s = k.b.stream;

    swap_axes(x.device, y.device, rows, heads, d, s);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++)
            want[(c / d * rows + r) * d + c % d] = x.host[r * cols + c];
    k.done("swapped axes", y, want);
    transpose(x.device, y.device, rows, cols, s);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++)
            want[c * rows + r] = x.host[r * cols + c];
    k.done("transpose", y, want);
    cat(x.device, x2.device, both.device, rows, cols, cols, s);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++) {
            joined[r * 2 * cols + c] = x.host[r * cols + c];
            joined[r * 2 * cols + cols + c] = x2.host[r * cols + c];
        }
    k.done("cat", both, joined);
    column_sums(x.device, sums.device, partial.device, rows, cols, s);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++)
            total[c] += x.host[r * cols + c];
    k.done("column sums", sums, total);
}

void check_rope(const Checker &k) {
    const size_t rows = 32, heads = 2, half = 64, n = rows * heads * 2 * half;
    Both<bf16> x(n, 8);
    Both<float> c(rows * half, 9), s(rows * half, 10);
    std::vector<double> want(n);

    rope(x.device, c.device, s.device, rows, heads, 2 * half, k.b.stream);
    for (size_t r = 0; r < rows * heads; r++)
        for (size_t i = 0; i < half; i++) {
            double a = x.host[r * 2 * half + i], b = x.host[r * 2 * half + half + i];
            double co = c.host[r / heads * half + i], si = s.host[r / heads * half + i];
            want[r * 2 * half + i] = a * co - b * si;
            want[r * 2 * half + half + i] = a * si + b * co;
        }
    k.done("rope", x, want);
}

void check_norm(const Checker &k, bool rms) {
    const size_t rows = 64, cols = 1024, grid = 16;
    Both<bf16> x(rows * cols, 11), w(cols, 12), bias(cols, 13), y(rows * cols, 0),
        dy(rows * cols, 14), dx(rows * cols, 0);
    Both<float> saved(2 * rows, 0), dw(cols, 0), db(cols, 0), partial(2 * grid * cols, 0);
    std::vector<double> want(rows * cols), want_dx(rows * cols), want_dw(cols), want_db(cols);
    NormArgs n{};

    n.rms = rms, n.rows = rows, n.cols = cols, n.x = x.device, n.weight = w.device;
    n.bias = bias.device, n.y = y.device, n.saved = reinterpret_cast<float2 *>(saved.device);
    n.dy = dy.device, n.dx = dx.device, n.dweight = dw.device, n.dbias = db.device;
    n.partial = partial.device, n.grid = grid;
    norm_forward(n, k.b.stream);
    norm_backward(n, k.b.stream);
    for (size_t r = 0; r < rows; r++) {
        const double *in = &x.host[r * cols], *g = &dy.host[r * cols];
        double mean = 0, square = 0, a = 0, b = 0;
        for (size_t c = 0; c < cols && !rms; c++)
            mean += in[c] / static_cast<double>(cols);
        for (size_t c = 0; c < cols; c++)
            square += (in[c] - mean) * (in[c] - mean);
        double scale = 1 / std::sqrt(square / static_cast<double>(cols) + 1e-5);
        for (size_t c = 0; c < cols; c++) {
            double xhat = (in[c] - mean) * scale;
            want[r * cols + c] = xhat * w.host[c] + (rms ? 0 : bias.host[c]);
            want_dw[c] += g[c] * xhat;
            want_db[c] += g[c];
            a += rms ? 0 : g[c] * w.host[c] / static_cast<double>(cols);
            b += g[c] * w.host[c] * xhat / static_cast<double>(cols);
        }
        for (size_t c = 0; c < cols; c++)
            want_dx[r * cols + c] = scale * (g[c] * w.host[c] - a - (in[c] - mean) * scale * b);
    }
    k.done("norm", y, want);
    k.done("norm backward", dx, want_dx);
    k.done("norm backward, weight", dw, want_dw);
    if (!rms)
        k.done("norm backward, bias", db, want_db);
}

void check_softmax(const Checker &k) {
    const size_t rows = 32, cols = 2048;
    Both<bf16> x(rows * cols, 15), y(rows * cols, 0), dy(rows * cols, 16), dx(rows * cols, 0);
    std::vector<double> want(rows * cols), back(rows * cols);

    softmax(x.device, y.device, rows, cols, k.b.stream);
    softmax_backward(x.device, dy.device, dx.device, rows, cols, k.b.stream);
    for (size_t r = 0; r < rows; r++) {
        double sum = 0, dot = 0;
        for (size_t c = r * cols; c < (r + 1) * cols; c++) {
            sum += std::exp(x.host[c]);
            dot += x.host[c] * dy.host[c];
        }
        for (size_t c = r * cols; c < (r + 1) * cols; c++) {
            want[c] = std::exp(x.host[c]) / sum;
            back[c] = x.host[c] * (dy.host[c] - dot);
        }
    }
    k.done("softmax", y, want);
    k.done("softmax backward", dx, back);
}

void check_tables(const Checker &k) {
    const size_t rows = 64, cols = 1024, vocab = 100;
    Both<bf16> table(vocab * cols, 17), out(rows * cols, 0), dout(rows * cols, 18),
        logits(rows * cols, 19);
    Both<float> grad(vocab * cols, 20), sums(2 * rows, 0);
    std::vector<int> ids(rows);
    std::vector<double> want(rows * cols), added = grad.host, loss(rows * cols);
    int *device_ids;
    cudaStream_t s = k.b.stream;

    for (size_t r = 0; r < rows; r++)
        ids[r] = static_cast<int>(r * 37 % 50);
    CAL_CUDA(cudaMalloc(&device_ids, rows * sizeof(int)));
    CAL_CUDA(cudaMemcpy(device_ids, ids.data(), rows * sizeof(int), cudaMemcpyHostToDevice));
    gather(table.device, device_ids, out.device, rows, cols, s);
    scatter_add(dout.device, device_ids, grad.device, rows, cols, s);
    loss_sum(logits.device, reinterpret_cast<float2 *>(sums.device), rows, cols, s);
    loss_grad(logits.device, reinterpret_cast<float2 *>(sums.device), device_ids, rows, cols, s);
    for (size_t r = 0; r < rows; r++) {
        double sum = 0;
        for (size_t c = 0; c < cols; c++) {
            size_t id = static_cast<size_t>(ids[r]);
            want[r * cols + c] = table.host[id * cols + c];
            added[id * cols + c] += dout.host[r * cols + c];
            sum += std::exp(logits.host[r * cols + c]);
        }
        for (size_t c = 0; c < cols; c++)
            loss[r * cols + c] = (std::exp(logits.host[r * cols + c]) / sum -
                                  (static_cast<size_t>(ids[r]) == c ? 1 : 0)) /
                                 static_cast<double>(rows);
    }
    k.done("gather", out, want);
    k.done("scatter-add", grad, added);
    k.done("cross-entropy", logits, loss);
    cudaFree(device_ids);
}

void check_adamw(const Checker &k) {
    const size_t n = 4096;
    Both<float> p(n, 21), m(n, 22), v(n, 23, 0), g(n, 24);
    Both<bf16> low(n, 0);
    std::vector<double> want(n), change(n), want_m(n), want_v(n);
    AdamChunk chunks[2] = {{0, 1024}, {1024, n - 1024}}, *device;

    CAL_CUDA(cudaMalloc(&device, sizeof chunks));
    CAL_CUDA(cudaMemcpy(device, chunks, sizeof chunks, cudaMemcpyHostToDevice));
    for (size_t i = 0; i < n; i++) {
        double a = want_m[i] = 0.9 * m.host[i] + 0.1 * g.host[i];
        double b = want_v[i] = 0.95 * v.host[i] + 0.05 * g.host[i] * g.host[i];
        change[i] = -1e-4 * (a / 0.1 / (std::sqrt(b / 0.05) + 1e-8) + 0.1 * p.host[i]);
        want[i] = p.host[i] + change[i];
    }
    adamw(device, 2,
          AdamTensors<bf16, float, float>{low.device, p.device, m.device, v.device, g.device},
          k.b.stream);
    k.done("adamw", low, want);
    k.done("adamw, first moment", m, want_m);
    k.done("adamw, second moment", v, want_v);
    k.expect("adamw, update", p.change_error(change));
    cudaFree(device);
}

} // namespace

void check_kernels(Bench &b, Report &report) {
    static const struct {
        const char *name;
        void (*run)(const Checker &k);
    } checks[] = {{"flat", check_flat},
                  {"dropout", check_dropout},
                  {"moves", check_moves},
                  {"rope", check_rope},
                  {"layer norm", [](const Checker &k) { check_norm(k, false); }},
                  {"rms norm", [](const Checker &k) { check_norm(k, true); }},
                  {"softmax", check_softmax},
                  {"tables", check_tables},
                  {"adamw", check_adamw}};
    Checker k{b};

    b.use();
    for (const auto &c : checks)
        try {
            c.run(k);
        } catch (const Failure &f) {
            report.failed(text("check of %s", c.name), f.what());
        }
}

} // namespace cal
