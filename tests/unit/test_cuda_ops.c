/* Every operation of the CUDA table but products and attention (test_cuda_products.c) against the CPU's. */
#include "tests/cuda_pair.h"

/* ---- norms ---- */

static void one_norm(bool rms, int64_t rows, int64_t cols) {
    struct pair x = in(rows * cols), w = random_pair(cols, gpu->dtype, 0.5, 1), b = in(cols);
    struct pair y = out(rows * cols), mean = poison(rows, DTP_FP32), rstd = poison(rows, DTP_FP32);
    struct pair dy = in(rows * cols), residual = in(rows * cols), dx = out(rows * cols);
    struct pair dw = gradient(cols), db = gradient(cols);
    struct dtp_norm_args n = {.rms = rms, .rows = rows, .cols = cols, .epsilon = 1e-5};
    char name[64];
    for (int side = 0; side < 2; side++) {
        n.x = SIDE(x);
        n.weight = SIDE(w);
        n.bias = rms ? NULL : SIDE(b);
        n.y = SIDE(y);
        n.mean = rms ? NULL : SIDE(mean);
        n.rstd = SIDE(rstd);
        n.dy = SIDE(dy);
        n.residual = SIDE(residual);
        n.dx = SIDE(dx);
        n.dweight = SIDE(dw);
        n.dbias = rms ? NULL : SIDE(db);
        (side ? gops : cops)->norm_forward(side ? gpu : cpu, &n);
        (side ? gops : cops)->norm_backward(side ? gpu : cpu, &n);
    }
    snprintf(name, sizeof name, "%s norm %lldx%lld", rms ? "rms" : "layer", (long long)rows,
             (long long)cols);
    expect(name, &y);
    expect_within("  rstd", &rstd, 1e-4);
    expect("  dx", &dx);
    expect_within("  dweight", &dw, 1e-3);
    if (!rms) {
        expect_within("  dbias", &db, 1e-4);
        expect_within("  mean", &mean, 1e-4);
    }
    DROP(&x, &w, &b, &y, &mean, &rstd, &dy, &residual, &dx, &dw, &db);
}

static void test_norms(void) {
    static const int64_t cols[] = {45, 64, 768, 2048, 5120, 12288, 20480};
    for (size_t i = 0; i < sizeof cols / sizeof cols[0]; i++) {
        one_norm(false, 301, cols[i]);
        one_norm(true, 301, cols[i]);
    }
    one_norm(false, 3000, 768);
}

/* ---- rotary positions, activations ---- */

static void one_rope(int64_t heads, int64_t dim, int64_t stride, bool inverse) {
    int64_t batch = 3, rows = batch * 70;
    struct pair x = in(rows * stride);
    struct dtp_rope_args r = {.rows = rows,
                              .batch = batch,
                              .heads = heads,
                              .head_dim = dim,
                              .row_stride = stride,
                              .theta = 10000,
                              .inverse = inverse};
    r.x = x.c;
    cops->rope(cpu, &r);
    r.x = x.g;
    gops->rope(gpu, &r);
    expect(inverse ? "rope inverse" : "rope", &x);
    DROP(&x);
}

static void test_rope(void) {
    one_rope(6, 64, 8 * 64, false);
    one_rope(5, 128, 7 * 128, true);
    one_rope(3, 10, 31, false);
}

static void one_act(enum dtp_act fn, int64_t rows, int64_t cols) {
    int64_t wide = fn == DTP_ACT_FN_SWIGLU ? 2 * cols : cols;
    struct pair x = random_pair(rows * wide, gpu->dtype, 4, 0), y = out(rows * cols);
    struct pair dy = in(rows * cols), dx = out(rows * wide);
    struct dtp_act_args a = {.fn = fn, .rows = rows, .cols = cols};
    for (int side = 0; side < 2; side++) {
        a.x = SIDE(x);
        a.y = SIDE(y);
        a.dy = SIDE(dy);
        a.dx = SIDE(dx);
        (side ? gops : cops)->act_forward(side ? gpu : cpu, &a);
        (side ? gops : cops)->act_backward(side ? gpu : cpu, &a);
    }
    expect(fn == DTP_ACT_FN_GELU ? "gelu" : fn == DTP_ACT_FN_RELU ? "relu" : "swiglu", &y);
    expect("  dx", &dx);
    DROP(&x, &y, &dy, &dx);
}

static void test_activations(void) {
    for (int fn = 0; fn <= DTP_ACT_FN_RELU; fn++) {
        one_act((enum dtp_act)fn, 99, 1000);
        one_act((enum dtp_act)fn, 99, 37);
    }
}

/* ---- loss ---- */

static void one_loss(int64_t cols, int64_t valid, int64_t first) {
    int64_t rows = 130;
    struct pair logits = random_pair(rows * cols, gpu->dtype, 8, 0);
    struct pair most = poison(rows, DTP_FP32), sum = poison(rows, DTP_FP32);
    struct pair target = poison(rows, DTP_FP32), loss = random_pair(1, DTP_FP32, 1, 0);
    int32_t *on_gpu, *ids = tokens(rows, 2 * valid, &on_gpu);
    struct dtp_loss_args x = {
        .rows = rows, .cols = cols, .valid = valid, .first = first, .scale = 0.01};
    for (int side = 0; side < 2; side++) {
        struct dtp_dev *d = side ? gpu : cpu;
        const struct dtp_dev_ops *ops = side ? gops : cops;
        x.logits = SIDE(logits);
        x.targets = side ? on_gpu : ids;
        x.max = SIDE(most);
        x.sum = SIDE(sum);
        x.target = SIDE(target);
        x.loss = SIDE(loss);
        ops->loss_max(d, &x);
        ops->loss_sum(d, &x);
        ops->loss_mean(d, &x);
        ops->loss_grad(d, &x);
    }
    expect_within("loss max", &most, 1e-6);
    expect_within("  sum", &sum, 1e-4);
    expect_within("  target", &target, 1e-5);
    expect_within("  loss", &loss, 1e-4);
    expect("  gradient of the logits", &logits);
    dtp_heap_release(cpu->heap, ids);
    dtp_heap_release(gpu->heap, on_gpu);
    DROP(&logits, &most, &sum, &target, &loss);
}

static void test_loss(void) {
    one_loss(1024, 1000, 0);
    one_loss(45, 45, 30);
    one_loss(50304, 50257, 0);
}

/* ---- embeddings ---- */

static void one_embedding(int64_t cols) {
    int64_t batch = 4, rows = batch * 150, valid = 60;
    int32_t *on_gpu, *ids = tokens(rows, 100, &on_gpu);
    struct pair table = in(200 * cols), o = out(rows * cols), dout = in(rows * cols);
    struct pair dtable = gradient(200 * cols), dposition = gradient(200 * cols);
    struct dtp_embedding_args x = {
        .rows = rows, .cols = cols, .valid = valid, .first = 20, .batch = batch};
    for (int side = 0; side < 2; side++) {
        struct dtp_dev *d = side ? gpu : cpu;
        const struct dtp_dev_ops *ops = side ? gops : cops;
        x.ids = side ? on_gpu : ids;
        x.table = SIDE(table);
        x.out = SIDE(o);
        x.dout = SIDE(dout);
        x.dtable = SIDE(dtable);
        ops->embed(d, &x);
        ops->embed_backward(d, &x);
        x.dtable = SIDE(dposition);
        ops->position_add(d, &x);
        ops->position_backward(d, &x);
    }
    expect("embedding + positions", &o);
    expect_within("  dtable", &dtable, 1e-5);
    expect_within("  dpositions", &dposition, 1e-5);
    dtp_heap_release(cpu->heap, ids);
    dtp_heap_release(gpu->heap, on_gpu);
    DROP(&table, &o, &dout, &dtable, &dposition);
}

static void test_embeddings(void) {
    one_embedding(768);
    one_embedding(4096);
    one_embedding(37);
}

/* ---- sums ---- */

/* Rows from the 300th on, of 3 sequences; backward: in place, without bias and residual. The masks are the
 * same to the bit: a single other element would show in the distance. */
static void one_residual(int64_t rows, int64_t cols, double dropout) {
    struct pair x = in(rows * cols), bias = in(cols), r = in(rows * cols), o = out(rows * cols);
    struct pair g = in(rows * cols), zeros = out(rows * cols);
    for (int side = 0; side < 2; side++) {
        struct dtp_dev *d = side ? gpu : cpu;
        const struct dtp_dev_ops *ops = side ? gops : cops;
        struct dtp_residual_args a = {.out = SIDE(o),
                                      .x = SIDE(x),
                                      .bias = SIDE(bias),
                                      .residual = SIDE(r),
                                      .rows = rows,
                                      .cols = cols,
                                      .first_row = 300,
                                      .batch = 3,
                                      .dropout = dtp_dropout_of(dropout, 9, 8, 7, 6)};
        ops->bias_residual(d, &a);
        a.bias = a.residual = NULL;
        a.out = SIDE(zeros);
        ops->bias_residual(d, &a);
        a.x = a.out = SIDE(g);
        ops->bias_residual(d, &a);
    }
    expect(dropout > 0 ? "bias + dropout + residual" : "bias + residual", &o);
    expect("  backward, in place", &g);
    float *seen = malloc((size_t)(rows * cols) * 4);
    int64_t other = 0;
    read_gpu(&zeros, seen);
    for (int64_t i = 0; i < rows * cols; i++)
        other += (seen[i] != 0.0F) != (zeros.c[i] != 0.0F);
    if (other > 0)
        printf("          %lld elements of the mask differ\n", (long long)other);
    CU_ASSERT_EQUAL(other, 0);
    free(seen);
    DROP(&x, &bias, &r, &o, &g, &zeros);
}

static void one_sum(int64_t rows, int64_t cols) {
    const int64_t shape[2] = {rows, cols};
    struct pair x = in(rows * cols), r = in(rows * cols);
    struct pair db = gradient(cols), total = random_pair(1, DTP_FP32, 1, 0);
    struct pair g = gradient(rows * cols), scale = poison(1, DTP_FP32);
    for (int side = 0; side < 2; side++) {
        struct dtp_dev *d = side ? gpu : cpu;
        const struct dtp_dev_ops *ops = side ? gops : cops;
        ops->bias_backward(d, SIDE(db), SIDE(x), shape);
        ops->add(d, SIDE(x), SIDE(r), rows * cols, false);
        const float *at =
            SIDE(g); /* a run with every alignment, one of a single element, a long one */
        const struct dtp_norm2_args norm = {
            .sum = SIDE(total),
            .nruns = 3,
            .run = {{at, 36, 1}, {at + 36, 1, 4}, {at + 37, rows * cols - 37, 0.25}}};
        ops->norm2(d, &norm);
        ops->clip_scale(d, SIDE(scale), SIDE(total),
                        &(struct dtp_clip){.max_norm = 1.5, .loss_scale = 4});
    }
    expect_within("bias gradient", &db, 1e-4);
    expect("  add", &x);
    expect_within("  norm2", &total, 1e-5);
    expect_within("  clip", &scale, 1e-5);
    DROP(&x, &r, &db, &total, &g, &scale);
}

static void test_sums(void) {
    static const int64_t shapes[][2] = {{300, 768}, {2100, 12288}, {33, 37}, {33, 36}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        one_sum(shapes[i][0], shapes[i][1]);
        one_residual(shapes[i][0], shapes[i][1], 0);
        one_residual(shapes[i][0], shapes[i][1], 0.25);
    }
}

/* ---- AdamW ---- */

static void test_adamw(void) {
    static const int64_t sizes[] = {5, 4096, 100000, 1, 16384 * 3 + 8};
    enum { N = 70 };
    struct pair p[N], master[N], m[N], v[N], g[N], scale = random_pair(1, DTP_FP32, 0.1, 0.5);
    struct dtp_adamw_tensor t[2][N];
    struct dtp_adamw_hyper h = {
        .lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .step = 3};
    bool wide = gpu->dtype == DTP_FP32;
    for (int i = 0; i < N; i++) {
        int64_t n = sizes[i % 5];
        p[i] = in(n);
        g[i] = gradient(n);
        m[i] = gradient(n);
        v[i] = random_pair(n, DTP_FP32, 0.5, 0.5);
        master[i] = make(n, DTP_FP32);
        write_gpu(&master[i], p[i].c);
        memcpy(master[i].c, p[i].c, (size_t)n * 4);
        for (int side = 0; side < 2; side++)
            t[side][i] = (struct dtp_adamw_tensor){.param = side ? p[i].g : (void *)master[i].c,
                                                   .m = SIDE(m[i]),
                                                   .v = SIDE(v[i]),
                                                   .master = side && !wide ? master[i].g : NULL,
                                                   .grad = SIDE(g[i]),
                                                   .n = n,
                                                   .decay = i % 2 == 0};
    }
    h.grad_scale = scale.c;
    cops->adamw(cpu, &h, t[0], N);
    h.grad_scale = scale.g;
    gops->adamw(gpu, &h, t[1], N);
    for (int i = 0; i < N; i++) {
        memcpy(p[i].c, master[i].c, (size_t)p[i].n * 4);
        if (i < 5 || i > N - 3) {
            expect("adamw parameter", &p[i]);
            if (!wide)
                expect_within("  master", &master[i], 1e-5);
            expect_within("  m", &m[i], 1e-5);
            expect_within("  v", &v[i], 1e-5);
        }
        CU_ASSERT(distance(&p[i]) < tolerance());
        DROP(&p[i], &master[i], &m[i], &v[i], &g[i]);
    }
    DROP(&scale);
}

/* ---- streams, events, errors ---- */

static void test_streams(void) {
    struct dtp_err err = {0};
    struct pair a = in(1000), b = out(1000);
    gops->mark(gpu, DTP_STREAM_COMPUTE, 0);
    gops->copy(gpu, b.g, a.g, (uint64_t)(1000 * dtp_dtype_bytes(gpu->dtype)));
    gops->mark(gpu, DTP_STREAM_COMPUTE, 1);
    gops->event_record(gpu, DTP_STREAM_COMPUTE, 3);
    gops->event_wait(gpu, DTP_STREAM_TP, 3);
    gops->sync(gpu);
    CU_ASSERT(gops->event_done(gpu, 3));
    CU_ASSERT(gops->mark_ns(gpu, 1) >= gops->mark_ns(gpu, 0));
    memcpy(b.c, a.c, 4000);
    expect_within("copy", &b, 0);
    gops->zero(gpu, b.g, (uint64_t)(1000 * dtp_dtype_bytes(gpu->dtype)));
    memset(b.c, 0, 4000);
    expect_within("zero", &b, 0);
    CU_ASSERT_EQUAL(gops->check(gpu, &err), DTP_OK);
    CU_ASSERT(gops->overhead_bytes(gpu) > 0);
    DROP(&a, &b);
}

/* In a graph small memsets are kernels, of words or of odd bytes, in their place between others. */
static void test_memsets(void) {
    enum { BYTES = 1 << 17 };
    static const struct {
        int at, bytes;
    } zeros[] = {{0, 1000}, {2001, 13}, {4096, 1}, {8192, 1 << 15}, {1 << 16, 1 << 16}};
    unsigned char *expected = malloc(BYTES), *found = malloc(BYTES);
    unsigned char *x = dtp_heap_alloc(gpu->heap, DTP_MEM_BUFFERS, "x", BYTES);
    unsigned char *ones = dtp_heap_alloc(gpu->heap, DTP_MEM_BUFFERS, "ones", BYTES);
    if (!expected || !found)
        abort();
    memset(expected, 1, BYTES);
    gops->copy_in(gpu, ones, expected, BYTES);
    gops->sync(gpu);
    CU_ASSERT_FATAL(gops->record(gpu, 0, true));
    gops->copy(gpu, x, ones, BYTES);
    for (size_t i = 0; i < sizeof zeros / sizeof *zeros; i++) {
        gops->zero(gpu, x + zeros[i].at, (uint64_t)zeros[i].bytes);
        memset(expected + zeros[i].at, 0, (size_t)zeros[i].bytes);
    }
    CU_ASSERT_FATAL(gops->record(gpu, 0, false) > 0);
    for (int i = 0; i < 3; i++)
        gops->replay(gpu, 0);
    gops->copy_out(gpu, found, x, BYTES);
    CU_ASSERT_EQUAL(memcmp(found, expected, BYTES), 0);
    dtp_heap_release(gpu->heap, x);
    dtp_heap_release(gpu->heap, ones);
    free(expected);
    free(found);
}

int main(void) {
    CU_TestInfo tests[] = {{"norms", test_norms},
                           {"rotary positions", test_rope},
                           {"activations", test_activations},
                           {"loss", test_loss},
                           {"embeddings", test_embeddings},
                           {"sums", test_sums},
                           {"AdamW", test_adamw},
                           {"streams and events", test_streams},
                           {"memsets in graphs", test_memsets},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"cuda operations in fp32", open_fp32, close_both, NULL, NULL, tests},
                             {"cuda operations in bf16", open_bf16, close_both, NULL, NULL, tests},
                             {"cuda operations in fp16", open_fp16, close_both, NULL, NULL, tests},
                             CU_SUITE_INFO_NULL};
    if (no_gpu())
        return SKIP;
    return run_suites(suites);
}
