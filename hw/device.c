#include "hw/device.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>

/* ---- measured times at the points of a grid ---- */

const char *const dtp_table_names[] = {"gemm_forward",
                                       "gemm_dgrad",
                                       "gemm_wgrad",
                                       "attention_forward",
                                       "attention_backward",
                                       "attention_dropout_forward",
                                       "attention_dropout_backward",
                                       "gemm_forward_gelu",
                                       "gemm_dgrad_gelu",
#define NAME(name, key) key,
                                       DTP_KERNELS(NAME)
#undef NAME
                                           NULL};

/* Grid cell of x and the weight of its upper end; beyond the grid the nearest point and what its time is
 * multiplied by. */
struct spot {
    size_t low, high;
    double weight, factor;
};

static struct spot find(const struct dtp_doubles *axis, double x) {
    size_t last = axis->n - 1, i = 0;
    if (x >= axis->at[last])
        return (struct spot){last, last, 0, x / axis->at[last]};
    if (x <= axis->at[0])
        return (struct spot){0, 0, 0, x / axis->at[0]};
    while (axis->at[i + 1] < x)
        i++;
    double width = axis->at[i + 1] - axis->at[i];
    return (struct spot){i, i + 1, (x - axis->at[i]) / width, 1};
}

/* One of the eight points around: its weight, its place in the lists, its time, where it is. */
struct corner {
    double weight, time_s, at[3];
    size_t index;
};

static struct corner corner_of(const struct dtp_time_table *t, const struct spot s[3], int which) {
    struct corner c = {.weight = 1};
    for (int d = 0; d < 3; d++) {
        bool high = which >> d & 1;
        size_t i = high ? s[d].high : s[d].low;
        c.weight *= high ? s[d].weight : 1 - s[d].weight;
        c.at[d] = t->axis[d].at[i];
        c.index = c.index * t->axis[d].n + i;
    }
    c.time_s = t->time_s.at[c.index];
    return c;
}

enum { CORNERS = 8 };

/* Returns whether the point is inside the grid. */
static bool table_covers(const struct dtp_time_table *t, const double at[3]) {
    bool inside = true;
    for (int i = 0; i < 3; i++)
        inside &= at[i] >= t->axis[i].at[0] && at[i] <= t->axis[i].at[t->axis[i].n - 1];
    return inside;
}

double dtp_table_time_s(const struct dtp_time_table *t, const double at[3]) {
    struct spot s[3];
    double sum_s = 0;
    for (int d = 0; d < 3; d++)
        s[d] = find(&t->axis[d], at[d]);
    for (int i = 0; i < CORNERS; i++) {
        struct corner c = corner_of(t, s, i);
        if (c.weight > 0)
            sum_s += c.weight * c.time_s;
    }
    return sum_s * s[0].factor * s[1].factor * s[2].factor;
}

double dtp_table_clock(const struct dtp_time_table *t, const double at[3]) {
    struct spot s[3];
    double sum = 0;
    if (t->clock.n == 0)
        return 1;
    for (int d = 0; d < 3; d++)
        s[d] = find(&t->axis[d], at[d]);
    for (int i = 0; i < CORNERS; i++) {
        struct corner c = corner_of(t, s, i);
        if (c.weight > 0)
            sum += c.weight * t->clock.at[c.index];
    }
    return sum;
}

/* Returns the factor of a relative table on the formula's time at `at`. formula_s: the formula's time at a point. */
static double table_ratio(const struct dtp_time_table *t, const double at[3],
                          double (*formula_s)(const void *context, const double point[3]),
                          const void *context) {
    struct spot s[3];
    double sum = 0;
    for (int d = 0; d < 3; d++)
        s[d] = find(&t->axis[d], at[d]);
    for (int i = 0; i < CORNERS; i++) {
        struct corner c = corner_of(t, s, i);
        double formula = c.weight > 0 ? formula_s(context, c.at) : 0;
        if (formula > 0)
            sum += c.weight * c.time_s / formula;
    }
    return sum;
}

/* ---- JSON ---- */

struct table_file {
    int kernel;
    struct dtp_time_table table;
};

#define IN(member) offsetof(struct table_file, member)
const struct dtp_field dtp_time_table_fields[] = {
    {"kernel", DTP_FIELD_ENUM, IN(kernel), .names = dtp_table_names, .required = true,
     .help = "which"},
    {"dtype", DTP_FIELD_ENUM, IN(table.dtype), .names = dtp_dtype_names, .help = "of the operands"},
    {"relative", DTP_FIELD_BOOL, IN(table.relative),
     .help = "between the points the ratio to a formula is linear"},
    {"x", DTP_FIELD_DOUBLES, IN(table.axis[0]), .min = 1, .max = 1e9, .required = true,
     .help = "rows, m, or sequence length; ascending"},
    {"y", DTP_FIELD_DOUBLES, IN(table.axis[1]), .min = 1, .max = 1e9, .required = true,
     .help = "columns, n, or head_dim"},
    {"z", DTP_FIELD_DOUBLES, IN(table.axis[2]), .min = 1, .max = 1e9, .required = true,
     .help = "inner dimension k, or 1"},
    {"time_s", DTP_FIELD_DOUBLES, IN(table.time_s), .min = 0, .max = 1e6, .required = true,
     .help = "seconds at each point, x outermost"},
    {"clock", DTP_FIELD_DOUBLES, IN(table.clock), .min = 0.1, .max = 1,
     .help = "of a product, alone: share of the highest, at which the times are"},
    {0}};

enum dtp_status dtp_tables_read(struct dtp_arena *a, const struct dtp_json *j,
                                struct dtp_time_table *tables, struct dtp_err *err) {
    if (dtp_json_type(j) != DTP_JSON_ARRAY)
        return dtp_json_expected(j, "a list of tables", err);
    for (size_t i = 0; i < dtp_json_size(j); i++) {
        struct table_file in = {0};
        const struct dtp_json *row = dtp_json_at(j, i);
        DTP_TRY(dtp_fields_read(a, row, dtp_time_table_fields, &in, err));
        size_t n = 1;
        for (int d = 0; d < 3; d++) {
            if (!dtp_doubles_ascend(&in.table.axis[d]))
                return dtp_json_expected(row, "axes x, y, z in ascending order", err);
            n *= in.table.axis[d].n;
        }
        if (in.table.time_s.n != n)
            return dtp_json_expected(dtp_json_get(row, "time_s"), "a time for each point", err);
        if (in.table.clock.n != n && in.table.clock.n > 0)
            return dtp_json_expected(dtp_json_get(row, "clock"), "a clock for each point", err);
        tables[in.kernel] = in.table;
    }
    return DTP_OK;
}

void dtp_table_write(struct dtp_json_out *w, enum dtp_table which, const struct dtp_time_table *t) {
    static const char *const keys[] = {"x", "y", "z"};
    size_t nz = t->axis[2].n;
    if (t->time_s.n == 0)
        return;
    dtp_json_object(w);
    dtp_json_kv_string(w, "kernel", dtp_table_names[which]);
    dtp_json_kv_string(w, "dtype", dtp_dtype_names[t->dtype]);
    if (t->relative)
        dtp_json_kv_bool(w, "relative", true);
    for (int d = 0; d < 3; d++) {
        dtp_json_put_key(w, keys[d]);
        dtp_json_put_doubles(w, &t->axis[d], 0);
    }
    dtp_json_put_key(w, "time_s");
    dtp_json_put_doubles(w, &t->time_s, nz);
    if (t->clock.n > 0) {
        dtp_json_put_key(w, "clock");
        dtp_json_put_doubles(w, &t->clock, nz);
    }
    dtp_json_end(w);
}

/* ---- formulas ---- */

const char *const dtp_dtype_names[] = {"fp32", "tf32", "fp16", "bf16", "fp8", "fp4", NULL};
#define NAME(name, key) key,
const char *const dtp_kernel_names[] = {DTP_KERNELS(NAME) NULL};
#undef NAME
const char *const dtp_attention_names[] = {"unfused",   "flash1", "flash2", "flash3", "cudnn",
                                           "cudnn_9_3", "triton", "heads",  "own",    NULL};

/* An operand of FP4 and its scales have 0.56 bytes an element; whole bytes will do for what a product reads. */
static const int dtype_bytes[DTP_NDTYPES] = {4, 4, 2, 2, 1, 1};

int dtp_dtype_bytes(enum dtp_dtype dtype) {
    return dtype_bytes[dtype];
}

/* Tile shapes of the library's kernels, in units of TILE_UNIT rows and columns. */
enum { TILE_UNIT = 64, MAX_UNITS = 5, MAX_SPLIT_WAVES = 2, QUERY_BLOCK = 128 };
/* slow: sqrt(area of 256 x 128 / area) - 1 of the smaller ones. */
/* clang-format off */
static const struct { int m, n; double slow; } tiles[] = {
    {2, 4, 0}, {4, 2, 0}, {3, 3, 0}, {5, 2, 0}, {2, 2, 0.41421356}, {4, 1, 0.41421356},
    {1, 4, 0.41421356}, {2, 1, 1}, {1, 2, 1}, {1, 1, 1.82842712}};
/* clang-format on */
static const int splits[] = {1, 2, 4};

/* ceil(n / unit) for unit = 1..MAX_UNITS tiles of 64; constant divisors become multiplications. */
static void tile_counts(int64_t n, int64_t out[MAX_UNITS + 1]) {
    int64_t units = (n + TILE_UNIT - 1) / TILE_UNIT;

    out[1] = units;
    out[2] = (units + 1) / 2;
    out[3] = (units + 2) / 3;
    out[4] = (units + 3) / 4;
    out[5] = (units + 4) / 5;
}

/* Waves that n tiles take on d SMs. The last one ends early for most SMs and other kernels or the
 * next tiles fill in: only `tail` of it is lost when it holds a single tile. */
static double wave_count(int64_t n, int64_t d, double reciprocal, double tail) {
    int64_t whole = (int64_t)((double)n * reciprocal);

    if (n <= d)
        return 1;
    while ((whole + 1) * d <= n)
        whole++;
    while (whole * d > n)
        whole--;
    if (whole * d == n)
        return (double)whole;
    return (double)whole + tail + (1 - tail) * (double)(n - whole * d) * reciprocal;
}

/* The best tile and split: each term grows with m, n and k, and a split is only ever taken away when
 * the number of tiles grows, so the minimum is monotone in every dimension. */
static double tile_time_s(const struct dtp_gpu *g, const struct dtp_gemm_cal *c,
                          const struct dtp_gemm *s) {
    int64_t rows[MAX_UNITS + 1], columns[MAX_UNITS + 1];
    double per_sm = 1.0 / g->num_sms, best_s = 0;
    double unit_s = 2.0 * TILE_UNIT * TILE_UNIT * (double)s->k / c->sm_flops_per_s;
    double tail = s->whole_waves ? 1 : c->tail;

    tile_counts(s->m, rows);
    tile_counts(s->n, columns);
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
        int64_t n = rows[tiles[i].m] * columns[tiles[i].n] * s->batch;
        double wave_s = unit_s * (tiles[i].m * tiles[i].n) * (1 + c->small_tile * tiles[i].slow);

        for (size_t j = 0; j < sizeof splits / sizeof *splits; j++) {
            double waves = wave_count(n * splits[j], g->num_sms, per_sm, tail);
            double t_s = waves * (wave_s / splits[j] + c->tile_s);

            if (splits[j] > 1 && waves > MAX_SPLIT_WAVES)
                break;
            if (best_s <= 0 || t_s < best_s)
                best_s = t_s;
        }
    }
    return best_s;
}

static double operand_bytes(const struct dtp_gemm *s) {
    double m = (double)s->m, n = (double)s->n, k = (double)s->k;

    return (m * k + k * n + m * n) * (double)s->batch * dtype_bytes[s->dtype];
}

static double gemm_formula_s(const struct dtp_gpu *g, const struct dtp_gemm *s) {
    const struct dtp_gemm_cal *c = &g->gemm[s->dtype];
    double t_s, floor_s;

    t_s = tile_time_s(g, c, s);
    if (s->pass == DTP_GEMM_WGRAD)
        t_s *= c->wgrad_factor;
    else if (s->pass == DTP_GEMM_DGRAD)
        t_s *= c->dgrad_factor;
    if (s->unaligned)
        t_s *= c->unaligned_factor;
    t_s *= g->sustained;
    floor_s = operand_bytes(s) / g->stream_bytes_per_s;
    return t_s > floor_s ? t_s : floor_s;
}

struct gemm_context {
    const struct dtp_gpu *g;
    const struct dtp_gemm *s;
};

static double gemm_at_s(const void *context, const double point[3]) {
    const struct gemm_context *x = context;
    struct dtp_gemm s = *x->s;

    s.m = (int64_t)point[0];
    s.n = (int64_t)point[1];
    s.k = (int64_t)point[2];
    s.batch = 1;
    s.unaligned = false; /* as the points were measured */
    return gemm_formula_s(x->g, &s);
}

bool dtp_device_knows_gelu(const struct dtp_gpu *g) {
    return g->table[DTP_TABLE_GEMM_FORWARD_GELU].time_s.n > 0 &&
           g->table[DTP_TABLE_GEMM_DGRAD_GELU].time_s.n > 0;
}

static const struct dtp_time_table *gemm_table(const struct dtp_gpu *g, const struct dtp_gemm *s) {
    if (!s->gelu || s->pass == DTP_GEMM_WGRAD || !dtp_device_knows_gelu(g))
        return &g->table[s->pass];
    return &g->table[s->pass == DTP_GEMM_FORWARD ? DTP_TABLE_GEMM_FORWARD_GELU
                                                 : DTP_TABLE_GEMM_DGRAD_GELU];
}

double dtp_device_gemm_s(const struct dtp_gpu *g, const struct dtp_gemm *s) {
    const struct dtp_time_table *t = gemm_table(g, s);
    const double at[3] = {(double)s->m, (double)s->n, (double)s->k};

    assert(g->gemm[s->dtype].sm_flops_per_s > 0);
    if (s->m <= 0 || s->n <= 0 || s->k <= 0 || s->batch <= 0)
        return 0;
    if (t->time_s.n == 0 || t->dtype != (int)s->dtype)
        return gemm_formula_s(g, s);
    if (!t->relative)
        return (double)s->batch * dtp_table_time_s(t, at);
    return gemm_formula_s(g, s) * table_ratio(t, at, gemm_at_s, &(struct gemm_context){g, s});
}

double dtp_device_gemm_clock(const struct dtp_gpu *g, const struct dtp_gemm *s) {
    const struct dtp_time_table *t = gemm_table(g, s);
    const double at[3] = {(double)s->m, (double)s->n, (double)s->k};

    return t->dtype == (int)s->dtype ? dtp_table_clock(t, at) : 1;
}

static double padded(int64_t n) {
    return (double)((n + TILE_UNIT - 1) / TILE_UNIT * TILE_UNIT);
}

double dtp_device_bmm_s(const struct dtp_gpu *g, const struct dtp_gemm *s) {
    const struct dtp_gemm_cal *c = &g->bmm[s->dtype];
    double flops, memory_s, compute_s, hidden_s;

    assert(c->sm_flops_per_s > 0);
    if (s->m <= 0 || s->n <= 0 || s->k <= 0 || s->batch <= 0)
        return 0;
    flops = 2.0 * padded(s->m) * padded(s->n) * padded(s->k) * (double)s->batch;
    if (s->unaligned)
        flops *= c->unaligned_factor;
    memory_s = operand_bytes(s) / g->stream_bytes_per_s;
    compute_s = g->sustained * flops / (c->sm_flops_per_s * g->num_sms);
    hidden_s = c->tail * (memory_s < compute_s ? memory_s : compute_s);
    return memory_s + compute_s - hidden_s + c->tile_s;
}

/* Returns the mean keys of a query. Under a causal mask query i sees min(i, w) keys: s/2, or w (1 - w / 2s). */
static double seen_keys(const struct dtp_attention_shape *s) {
    double keys = (double)s->seq_kv, window = (double)s->window;

    if (window <= 0 || window >= keys)
        return s->causal ? keys / 2 : keys;
    return s->causal ? window * (1 - window / (2 * keys)) : window;
}

double dtp_attention_flops(const struct dtp_attention_shape *s) {
    double flops = 4.0 * (double)s->batch * (double)s->heads * (double)s->seq_q * seen_keys(s) *
                   (double)s->head_dim;

    return s->backward ? 2.5 * flops : flops;
}

/* Multiples of head_dim that the kernels exist for: on H100 head_dim 80 and 96 of flash take three
 * quarters of the time of 128, of cuDNN the whole (h100_torch.json). */
static const int64_t head_dim_unit[DTP_NATTN] = {
    [DTP_ATTN_UNFUSED] = 64, [DTP_ATTN_FLASH1] = 32, [DTP_ATTN_FLASH2] = 32,
    [DTP_ATTN_FLASH3] = 64,  [DTP_ATTN_CUDNN] = 64,  [DTP_ATTN_CUDNN_9_3] = 64,
    [DTP_ATTN_TRITON] = 64,  [DTP_ATTN_HEADS] = 1,   [DTP_ATTN_OWN] = 1};

/* The axes are sequence, head_dim, heads x sequences. */
static double attention_at_s(const void *context, const double point[3]) {
    (void)context;
    return point[0] * point[0] * point[1] * point[2];
}

/* Times the fused kernels of runtime/cuda. attention_at_s() gives FLOPs: only the ratio to them matters. */
static double own_attention_s(const struct dtp_time_table *t, const struct dtp_attention_shape *s) {
    double heads = (double)(s->batch * s->heads), group = (double)(s->heads / s->kv_heads);
    double most = t->axis[2].at[t->axis[2].n - 1];
    double at[3] = {(double)s->seq_kv, (double)s->head_dim, heads};

    if (!t->relative) {
        at[2] = group < most ? group : most;
        return heads * dtp_table_time_s(t, at);
    }
    return attention_at_s(NULL, at) * table_ratio(t, at, attention_at_s, NULL);
}

/* Kernels without dropout stand in if those with dropout were not measured. */
static const struct dtp_time_table *attention_table(const struct dtp_gpu *g,
                                                    const struct dtp_attention_shape *s) {
    int plain = s->backward ? DTP_TABLE_ATTENTION_BACKWARD : DTP_TABLE_ATTENTION_FORWARD;
    int drops =
        s->backward ? DTP_TABLE_ATTENTION_DROPOUT_BACKWARD : DTP_TABLE_ATTENTION_DROPOUT_FORWARD;
    return &g->table[s->dropout && g->table[drops].time_s.n > 0 ? drops : plain];
}

enum dtp_attention dtp_device_attention(const struct dtp_gpu *g, enum dtp_attention wanted) {
    static const enum dtp_attention nearest[] = {DTP_ATTN_FLASH2, DTP_ATTN_FLASH1,
                                                 DTP_ATTN_UNFUSED};
    for (int i = 0; wanted != DTP_ATTN_UNFUSED && g->attention[wanted].flops_per_s <= 0; i++)
        wanted = nearest[i];
    return wanted;
}

static bool has_own_attention(const struct dtp_time_table *t, const struct dtp_attention_shape *s) {
    return (s->impl == DTP_ATTN_HEADS || s->impl == DTP_ATTN_OWN) && t->time_s.n > 0;
}

double dtp_device_attention_clock(const struct dtp_gpu *g, const struct dtp_attention_shape *s) {
    const struct dtp_time_table *t = attention_table(g, s);
    const double at[3] = {(double)s->seq_kv, (double)s->head_dim, (double)(s->batch * s->heads)};

    return has_own_attention(t, s) ? dtp_table_clock(t, at) : 1;
}

double dtp_device_attention_s(const struct dtp_gpu *g, const struct dtp_attention_shape *s) {
    const struct dtp_attention_cal *c = &g->attention[s->impl];
    int64_t unit = head_dim_unit[s->impl], head_dim = (s->head_dim + unit - 1) / unit * unit;
    double rate = c->flops_per_s, keys = (double)s->seq_kv, flops, scores_s, block_s;
    double half_seq = s->backward && c->half_seq_backward > 0 ? c->half_seq_backward : c->half_seq;

    assert(rate > 0);
    if (s->head_dim <= 0 || s->seq_q <= 0 || s->seq_kv <= 0)
        return 0;
    const struct dtp_time_table *t = attention_table(g, s);
    if (has_own_attention(t, s))
        return own_attention_s(t, s);
    if (head_dim < TILE_UNIT)
        head_dim = TILE_UNIT; /* no kernel is faster on a smaller one */
    if (head_dim <= TILE_UNIT)
        rate *= c->head_dim_factor_64;
    if (s->causal)
        rate *= c->causal_factor;
    if (s->backward)
        rate *= c->backward_factor;
    flops = dtp_attention_flops(s) * (double)head_dim / (double)s->head_dim;
    if (s->window > 0 && s->window + QUERY_BLOCK < s->seq_kv)
        keys = (double)(s->window + QUERY_BLOCK); /* that a block of queries sees */
    scores_s = flops / rate * (1 + half_seq / seen_keys(s));
    block_s =
        (s->backward ? 2.5 : 1) * 4.0 * QUERY_BLOCK * keys * (double)head_dim * g->num_sms / rate;
    double drops = s->backward ? c->dropout_backward_factor : c->dropout_factor;
    double slower = s->dropout && drops > 0 ? drops : 1;
    return (scores_s + c->tail_blocks * block_s) * slower * g->sustained;
}

double dtp_device_kernel_s(const struct dtp_gpu *g, enum dtp_kernel k, double bytes,
                           double elements) {
    const struct dtp_kernel_cal *c = &g->kernel[k];
    double t_s = bytes / c->bytes_per_s;

    if (c->elements_per_s > 0 && elements / c->elements_per_s > t_s)
        t_s = elements / c->elements_per_s;
    return t_s > 0 ? t_s + c->latency_s : 0;
}

double dtp_device_rows_s(const struct dtp_gpu *g, enum dtp_kernel k, double rows, double cols) {
    const struct dtp_time_table *t = &g->table[DTP_TABLE_KERNEL + (int)k];
    return t->time_s.n > 0 && rows > 0 && cols > 0
               ? dtp_table_time_s(t, (const double[3]){rows, cols, 1})
               : 0;
}

bool dtp_device_gemm_covered(const struct dtp_gpu *g, const struct dtp_gemm *s) {
    const struct dtp_gemm_cal *c = &g->gemm[s->dtype];
    const struct dtp_time_table *t = &g->table[s->pass];
    double flops = 2.0 * (double)s->m * (double)s->n * (double)s->k * (double)s->batch;

    if (t->time_s.n > 0 && t->dtype == (int)s->dtype)
        return table_covers(t, (const double[]){(double)s->m, (double)s->n, (double)s->k});
    return c->sm_flops_per_s > 0 && flops >= c->min_flops && flops <= c->max_flops;
}

/* Expected largest of 2^i standard normal draws: the integral of x n phi(x) Phi(x)^(n-1), by quadrature. The search
 * asks for it at every size of a group, so that the integrals stand here. */
/* clang-format off */
static const double largest_normal[] = {0.0000, 0.5642, 1.0294, 1.4236, 1.7660, 2.0697,
                                        2.3437, 2.5946, 2.8269, 3.0439, 3.2482, 3.4418,
                                        3.6261, 3.8023, 3.9714, 4.1341, 4.2911, 4.4430};
/* clang-format on */
enum { NLARGEST = sizeof largest_normal / sizeof *largest_normal, NODE_LOG2 = 3 };

double dtp_device_slowest(const struct dtp_gpu *g, int n) {
    int i = NODE_LOG2;

    while (i < NLARGEST - 2 && 2 << i < n)
        i++;
    double between = (n - (1 << i)) / (double)(1 << i);
    between = between < 0 ? 0 : between > 1 ? 1 : between;
    double largest = (1 - between) * largest_normal[i] + between * largest_normal[i + 1];
    return 1 + g->chip_spread * (largest - largest_normal[NODE_LOG2]);
}

/* ---- clock at the power limit ---- */

/* Predictions take + - * / and sqrt alone, whose last bit is the same on every CPU. */

/* x^e of 0 < x, e >= 0: whole powers by products, the rest bit by bit by roots. */
static double raised(double x, double e) {
    enum { BITS = 16 };
    double y = 1, root = x;
    for (; e >= 1; e--)
        y *= x;
    for (int i = 0; i < BITS && e > 0; i++) {
        root = sqrt(root);
        e *= 2;
        if (e >= 1) {
            y *= root;
            e--;
        }
    }
    return y;
}

/* Returns e^-u for u >= 0 as (1 + u / n)^-n, n = 2^20. */
static double decayed(double u) {
    enum { SQUARINGS = 20 };
    double y = 1 / (1 + u / (1 << SQUARINGS));
    for (int i = 0; i < SQUARINGS; i++)
        y *= y;
    return y;
}

/* Watts that a stretch of work may take on the mean: the limit, and what the rest before it left, as far
 * back as the chip looks; no more than it takes in a burst. */
static double allowed_w(const struct dtp_gpu *g, const struct dtp_load_mix *m, double time_s) {
    const struct dtp_power_cal *p = &g->power;
    double left_s =
        p->memory_s > 0 ? p->memory_s * (1 - decayed(m->rest * time_s / p->memory_s)) / time_s : 0;
    double w = g->power_w + (g->power_w - p->idle_w) * left_s;
    return p->burst_w > 0 && w > p->burst_w ? p->burst_w : w;
}

/* Energy of the mix at x times the highest clock less what is allowed; grows with x. */
static double excess_j(const struct dtp_gpu *g, const struct dtp_load_mix *m, double x) {
    double time_s = m->product_s / x + m->other_s;
    return g->power.idle_w * time_s + m->product_j * raised(x, g->power.exponent) + m->other_j -
           allowed_w(g, m, time_s) * time_s;
}

bool dtp_device_has_clock(const struct dtp_gpu *g, enum dtp_dtype dtype) {
    const struct dtp_time_table *table = &g->table[DTP_TABLE_GEMM_FORWARD];
    return g->power.idle_w > 0 && (table->time_s.n == 0 || table->dtype == (int)dtype);
}

/* The root by false position, where an end that stays loses half of its value (the Illinois rule; Dowell and
 * Jarratt 1971). GSL's solvers are not used: the search calls this for every layer that it times, they allocate, and the
 * module that tests open as CUDA has this file without GSL. */
double dtp_power_slowdown(const struct dtp_gpu *g, const struct dtp_load_mix *m) {
    enum { STEPS = 40 };
    double low = 0.2, high = 1; /* no chip goes below a fifth of its clock */
    if (!(g->power.idle_w > 0) || !(m->product_s > 0))
        return 1;
    double above = excess_j(g, m, high), below = excess_j(g, m, low);
    if (above <= 0)
        return 1;
    if (below >= 0)
        return 1 / low;
    double x = low;
    int side = 0;
    for (int i = 0; i < STEPS && high - low > 1e-9; i++) {
        x = (low * above - high * below) / (above - below);
        double f = excess_j(g, m, x);
        if (f > 0) {
            high = x;
            above = f;
            below = side > 0 ? below / 2 : below;
            side = 1;
        } else if (f < 0) {
            low = x;
            below = f;
            above = side < 0 ? above / 2 : above;
            side = -1;
        } else {
            break;
        }
        if (f * f < 1e-24 * g->power_w * g->power_w * m->product_s * m->product_s)
            break;
    }
    return 1 / x;
}
