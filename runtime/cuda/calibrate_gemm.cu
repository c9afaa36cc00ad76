/* The GEMM blocks time one matrix product of cuBLASLt, over the shapes of transformer layers. */
#include "runtime/cuda/calibrate_cuda.cuh"

#include <dlfcn.h>

#include <map>
#include <memory>

#include <cublasLt.h>

namespace cal {

#define LT_FUNCTIONS(X)                                                                            \
    X(cublasLtCreate)                                                                              \
    X(cublasLtGetVersion)                                                                          \
    X(cublasLtMatmul)                                                                              \
    X(cublasLtMatmulDescCreate)                                                                    \
    X(cublasLtMatmulDescDestroy)                                                                   \
    X(cublasLtMatmulDescSetAttribute)                                                              \
    X(cublasLtMatrixLayoutCreate)                                                                  \
    X(cublasLtMatrixLayoutDestroy)                                                                 \
    X(cublasLtMatrixLayoutSetAttribute)                                                            \
    X(cublasLtMatmulPreferenceCreate)                                                              \
    X(cublasLtMatmulPreferenceDestroy)                                                             \
    X(cublasLtMatmulPreferenceSetAttribute)                                                        \
    X(cublasLtMatmulAlgoGetHeuristic)

struct Lt {
#define LT_MEMBER(f) decltype(&::f) f;
    LT_FUNCTIONS(LT_MEMBER)
};

static const size_t workspace_bytes = size_t{32} << 20; /* frameworks give it as much on Hopper */

static const Lt &lt() {
    static Lt table;
    static bool opened;

    if (opened)
        return table;
    void *so = dlopen("libcublasLt.so.13", RTLD_NOW);
    if (!so)
        so = dlopen("libcublasLt.so.12", RTLD_NOW);
    if (!so)
        throw Failure(text("cuBLASLt: %s", dlerror()));
#define LT_LOAD(f)                                                                                 \
    table.f = reinterpret_cast<decltype(table.f)>(dlsym(so, #f));                                  \
    if (!table.f)                                                                                  \
        throw Failure("cuBLASLt: no " #f);
    LT_FUNCTIONS(LT_LOAD)
    opened = true;
    return table;
}

static void lt_check(cublasStatus_t s, const char *what) {
    if (s != CUBLAS_STATUS_SUCCESS)
        throw Failure(text("%s: cuBLAS status %d", what, static_cast<int>(s)));
}
#define CAL_LT(f, ...) lt_check(lt().f(__VA_ARGS__), #f)

std::string gemm_version() {
    return std::to_string(lt().cublasLtGetVersion());
}

/* Each GPU has one handle and one workspace. */
struct Handle {
    cublasLtHandle_t lt;
    void *workspace;
};
static Handle &handle() {
    static std::map<int, Handle> handles;
    int device;

    CAL_CUDA(cudaGetDevice(&device));
    auto found = handles.find(device);
    if (found != handles.end())
        return found->second;
    Handle h{};
    CAL_LT(cublasLtCreate, &h.lt);
    CAL_CUDA(cudaMalloc(&h.workspace, workspace_bytes));
    return handles.emplace(device, h).first->second;
}

struct GemmPlan {
    Shape shape;
    size_t a, b, c, footprint; /* offsets of the operands */
    cublasLtMatmulDesc_t desc = nullptr;
    cublasLtMatrixLayout_t la = nullptr, lb = nullptr, lc = nullptr;
    cublasLtMatmulAlgo_t algo;
    ~GemmPlan() {
        if (desc)
            lt().cublasLtMatmulDescDestroy(desc);
        for (cublasLtMatrixLayout_t l : {la, lb, lc})
            if (l)
                lt().cublasLtMatrixLayoutDestroy(l);
    }
};

static size_t round_up(size_t n) {
    return (n + 511) & ~size_t{511};
}
static size_t product(long a, long b, long batch) {
    return static_cast<size_t>(a) * static_cast<size_t>(b) * static_cast<size_t>(batch);
}
static size_t c_bytes(const Shape &s) {
    bool wide = s.accumulate || s.type == Type::f32 || s.type == Type::tf32;
    return product(s.m, s.n, s.batch) * (wide ? 4 : 2);
}
size_t gemm_bytes(const Shape &s) {
    size_t e = type_bytes(s.type);
    return round_up(product(s.m, s.k, s.batch) * e) + round_up(product(s.k, s.n, s.batch) * e) +
           round_up(c_bytes(s));
}

static cudaDataType_t data_type(Type t) {
    switch (t) {
    case Type::f32:
    case Type::tf32:
        return CUDA_R_32F;
    case Type::f16:
        return CUDA_R_16F;
    case Type::bf16:
        return CUDA_R_16BF;
    case Type::fp8:
        return CUDA_R_8F_E4M3;
    }
    return CUDA_R_32F;
}

static cublasLtMatrixLayout_t layout(cudaDataType_t type, long rows, long cols, const Shape &s) {
    cublasLtMatrixLayout_t l;
    int64_t stride = static_cast<int64_t>(rows) * cols;
    int32_t batch = static_cast<int32_t>(s.batch);

    CAL_LT(cublasLtMatrixLayoutCreate, &l, type, static_cast<uint64_t>(rows),
           static_cast<uint64_t>(cols), rows);
    if (s.batch > 1) {
        CAL_LT(cublasLtMatrixLayoutSetAttribute, l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
               sizeof batch);
        CAL_LT(cublasLtMatrixLayoutSetAttribute, l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
               &stride, sizeof stride);
    }
    return l;
}

/* Row-major C[m,n] = A[m,k] B[k,n] is column-major C'[n,m] = B' A'. A linear layer stores them so:
 *   forward  y = x W^T    W [n,k], x [m,k]     -> T, N
 *   dgrad    dx = dy W    W [k,n], dy [m,k]    -> N, N
 *   wgrad    dW += dy^T x x [k,n], dy [k,m]    -> N, T
 * FP8 products exist as T, N only, so that frameworks keep transposed copies. */
static void describe(GemmPlan &p) {
    const Shape &s = p.shape;
    bool tn = s.pass == Pass::forward || s.type == Type::fp8;
    cublasOperation_t ta = tn ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t tb = !tn && s.pass == Pass::wgrad ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasComputeType_t compute =
        s.type == Type::tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    cudaDataType_t in = data_type(s.type);
    cudaDataType_t out = s.accumulate ? CUDA_R_32F : s.type == Type::fp8 ? CUDA_R_16BF : in;

    CAL_LT(cublasLtMatmulDescCreate, &p.desc, compute, CUDA_R_32F);
    CAL_LT(cublasLtMatmulDescSetAttribute, p.desc, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta);
    CAL_LT(cublasLtMatmulDescSetAttribute, p.desc, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb);
    if (s.type == Type::fp8) {
        int8_t fast = s.pass == Pass::forward;
        CAL_LT(cublasLtMatmulDescSetAttribute, p.desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast,
               sizeof fast);
    }
    p.la = ta == CUBLAS_OP_T ? layout(in, s.k, s.n, s) : layout(in, s.n, s.k, s);
    p.lb = tb == CUBLAS_OP_T ? layout(in, s.m, s.k, s) : layout(in, s.k, s.m, s);
    p.lc = layout(out, s.n, s.m, s);
}

GemmPlan *gemm_open(const Shape &s) {
    auto p = std::make_unique<GemmPlan>();
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t result;
    size_t e = type_bytes(s.type);
    int found = 0;

    p->shape = s;
    p->a = 0;
    p->b = round_up(product(s.k, s.n, s.batch) * e);
    p->c = p->b + round_up(product(s.m, s.k, s.batch) * e);
    p->footprint = gemm_bytes(s);
    describe(*p);
    CAL_LT(cublasLtMatmulPreferenceCreate, &preference);
    cublasStatus_t status = lt().cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
        sizeof workspace_bytes);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = lt().cublasLtMatmulAlgoGetHeuristic(handle().lt, p->desc, p->la, p->lb, p->lc,
                                                     p->lc, preference, 1, &result, &found);
    lt().cublasLtMatmulPreferenceDestroy(preference);
    lt_check(status, "cublasLtMatmulAlgoGetHeuristic");
    if (!found)
        throw Failure("cuBLASLt has no algorithm");
    p->algo = result.algo;
    return p.release();
}

void gemm_close(GemmPlan *p) {
    delete p;
}

void gemm_run(GemmPlan *p, Bench &bench, int i) {
    float one = 1, zero = 0;
    void *c = bench.at(p->footprint, i, p->c);

    CAL_LT(cublasLtMatmul, handle().lt, p->desc, &one, bench.at(p->footprint, i, p->a), p->la,
           bench.at(p->footprint, i, p->b), p->lb, p->shape.accumulate ? &one : &zero, c, p->lc, c,
           p->lc, &p->algo, handle().workspace, workspace_bytes, bench.stream);
}

/* ---- grids ---- */

/* Adds the four products of a layer with hidden size h on t tensor-parallel ranks. */
static void add_layer(std::vector<Shape> &out, Shape s, long h, long tokens, long t) {
    const long nk[][2] = {{3 * h / t, h}, {h, h / t}, {4 * h / t, h}, {h, 4 * h / t}};

    for (const auto &x : nk) {
        if (s.pass == Pass::forward)
            s.m = tokens, s.n = x[0], s.k = x[1];
        else if (s.pass == Pass::dgrad)
            s.m = tokens, s.n = x[1], s.k = x[0];
        else
            s.m = x[0], s.n = x[1], s.k = tokens;
        out.push_back(s);
    }
}

static std::vector<Shape> grid16() {
    const long hidden[] = {768, 1024, 1600, 2048, 2560, 4096, 5120, 6144, 8192, 12288, 20480};
    std::vector<Shape> out;

    for (long tokens = 512; tokens <= 32768; tokens *= 2)
        for (long h : hidden)
            for (long t = 1; t <= 8; t *= 2) {
                if (h / t < 256 || h * tokens > 12288l * 32768)
                    continue;
                add_layer(out, {Pass::forward, Type::bf16, 0, 0, 0, 1, false}, h, tokens, t);
                add_layer(out, {Pass::dgrad, Type::bf16, 0, 0, 0, 1, false}, h, tokens, t);
                add_layer(out, {Pass::wgrad, Type::bf16, 0, 0, 0, 1, true}, h, tokens, t);
                if (t == 1)
                    add_layer(out, {Pass::wgrad, Type::bf16, 0, 0, 0, 1, false}, h, tokens, t);
            }
    for (long tokens : {2048l, 8192l}) /* LM heads */
        for (long vocab : {32000l, 50304l, 128256l})
            for (long h : {2048l, 4096l, 8192l}) {
                out.push_back({Pass::forward, Type::bf16, tokens, vocab, h, 1, false});
                out.push_back({Pass::dgrad, Type::bf16, tokens, h, vocab, 1, false});
                out.push_back({Pass::wgrad, Type::bf16, vocab, h, tokens, 1, true});
            }
    return out;
}

static std::vector<Shape> grid_small(Type type, bool accumulate) {
    const double most_flops = type == Type::f32 ? 5e11 : 2e13; /* 10 to 40 ms */
    std::vector<Shape> out, kept;

    for (long tokens : {1024l, 2048l, 4096l, 8192l, 16384l})
        for (long h : {1024l, 2048l, 4096l, 8192l, 12288l})
            for (long t : {1l, 4l}) {
                add_layer(out, {Pass::forward, type, 0, 0, 0, 1, false}, h, tokens, t);
                add_layer(out, {Pass::dgrad, type, 0, 0, 0, 1, false}, h, tokens, t);
                add_layer(out, {Pass::wgrad, type, 0, 0, 0, 1, accumulate}, h, tokens, t);
            }
    for (const Shape &s : out)
        if (2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k) <
            most_flops)
            kept.push_back(s);
    return kept;
}

/* Lists scores and context of unfused attention, with forward and both backward forms of each. */
static std::vector<Shape> grid_bmm() {
    std::vector<Shape> out;

    for (Type type : {Type::bf16, Type::f16})
        for (long s : {1024l, 2048l, 4096l})
            for (long hd : {64l, 80l, 96l, 128l})
                for (long batch : {8l, 32l, 96l}) {
                    if (s * s * batch > 4096l * 4096 * 48)
                        continue;
                    out.push_back({Pass::forward, type, s, s, hd, batch, false});
                    out.push_back({Pass::dgrad, type, s, hd, s, batch, false});
                    out.push_back({Pass::wgrad, type, s, hd, s, batch, false});
                }
    return out;
}

/* ---- blocks ---- */

static void measure_shape(Context &c, const Shape &s, const char *op) {
    Bench &b = *c.benches[0];
    std::unique_ptr<GemmPlan> plan(gemm_open(s));
    int n = b.prepare(s.type, plan->footprint);
    Timing t = b.measure([&](int i) { gemm_run(plan.get(), b, i); }, n);
    std::string batch = s.batch > 1 ? text(",\"batch\":%ld", s.batch) : "";
    const char *note = s.accumulate ? ",\"note\":\"adds to fp32\"" : "";

    c.report.row(text("{\"op\":\"%s\",\"dtype\":\"%s\",\"m\":%ld,\"n\":%ld,\"k\":%ld%s,"
                      "\"time_s\":%.4g,\"clock_mhz\":%.0f%s}",
                      op, type_name(s.type), s.m, s.n, s.k, batch.c_str(), t.time_s, t.clock_mhz,
                      note));
}

static void measure_grid(Context &c, const std::vector<Shape> &grid, bool bmm) {
    static const char *const ops[] = {"gemm_fwd", "gemm_dgrad", "gemm_wgrad"};
    size_t skipped = 0;
    std::string why;

    c.benches[0]->use();
    for (size_t i : spread(grid.size())) {
        if (c.out_of_time())
            break;
        try {
            measure_shape(c, grid[i], bmm ? "bmm" : ops[static_cast<int>(grid[i].pass)]);
        } catch (const Failure &f) {
            cudaError_t sticky = cudaGetLastError();
            if (sticky != cudaSuccess || ++skipped > 20)
                throw;
            why = f.what();
        }
    }
    if (skipped)
        c.report.failed("gemm", text("%zu shapes: %s", skipped, why.c_str()));
}

static void run_bf16(Context &c) {
    measure_grid(c, grid16(), false);
}
static size_t plan_bf16() {
    return grid16().size();
}
static void run_fp16(Context &c) {
    measure_grid(c, grid_small(Type::f16, false), false);
}
static void run_fp8(Context &c) {
    measure_grid(c, grid_small(Type::fp8, true), false);
}
static void run_tf32(Context &c) {
    measure_grid(c, grid_small(Type::tf32, false), false);
}
static void run_fp32(Context &c) {
    measure_grid(c, grid_small(Type::f32, false), false);
}
static size_t plan_small() {
    return grid_small(Type::f32, false).size();
}
static void run_bmm(Context &c) {
    measure_grid(c, grid_bmm(), true);
}
static size_t plan_bmm() {
    return grid_bmm().size();
}

/* clang-format off */
const Block gemm_blocks[] = {
    {"gemm_bf16", 26, 1, run_bf16, plan_bf16},
    {"gemm_fp8", 8, 1, run_fp8, plan_small},
    {"gemm_fp16", 4, 1, run_fp16, plan_small},
    {"gemm_tf32", 4, 1, run_tf32, plan_small},
    {"gemm_fp32", 4, 1, run_fp32, plan_small},
    {"bmm", 8, 1, run_bmm, plan_bmm},
    {nullptr, 0, 0, nullptr, nullptr}};
/* clang-format on */

} // namespace cal
