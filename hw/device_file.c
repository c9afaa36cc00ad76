#include "hw/device.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "sim/base/text.h"

/* ---- the table of what is calibrated of a GPU ---- */

#define MEMBER(type, member, text)                                                                 \
    {                                                                                              \
#member, DTP_FIELD_DOUBLE, offsetof(struct type, member), .min = 0, .max = 1e18,           \
                                                                  .help = text                     \
    }

static const struct dtp_field gemm_fields[] = {
    MEMBER(dtp_gemm_cal, sm_flops_per_s, "one SM at full efficiency, FLOP/s"),
    MEMBER(dtp_gemm_cal, tile_s, "per wave, s"),
    MEMBER(dtp_gemm_cal, tail, "share of a wave that its first tile costs"),
    MEMBER(dtp_gemm_cal, small_tile, "slowness of tiles below 256 x 128"),
    MEMBER(dtp_gemm_cal, wgrad_factor, "time factor of weight gradients"),
    MEMBER(dtp_gemm_cal, dgrad_factor, "time factor of input gradients"),
    MEMBER(dtp_gemm_cal, unaligned_factor, "time factor of rows that are no multiple of 16 bytes"),
    MEMBER(dtp_gemm_cal, min_flops, "smallest GEMM measured"),
    MEMBER(dtp_gemm_cal, max_flops, "largest GEMM measured"),
    {0}};
static const struct dtp_field kernel_fields[] = {
    MEMBER(dtp_kernel_cal, bytes_per_s, "achieved bandwidth"),
    MEMBER(dtp_kernel_cal, elements_per_s, "limit of elements; 0: none"),
    MEMBER(dtp_kernel_cal, gated_factor,
           "of an activation: SwiGLU's time over GELU's; 0: by bytes"),
    MEMBER(dtp_kernel_cal, latency_s, "beside both, s"),
    MEMBER(dtp_kernel_cal, power_w, "above idle, while it runs"),
    {0}};
static const struct dtp_field attention_fields[] = {
    MEMBER(dtp_attention_cal, flops_per_s, "forward, long sequences, head_dim 128"),
    MEMBER(dtp_attention_cal, half_seq, "sequence of half that rate"),
    MEMBER(dtp_attention_cal, backward_factor, "rate of backward over forward"),
    MEMBER(dtp_attention_cal, head_dim_factor_64, "rate at head_dim 64 over 128"),
    MEMBER(dtp_attention_cal, causal_factor, "rate with a causal mask over without"),
    MEMBER(dtp_attention_cal, tail_blocks, "blocks that run on SMs that are not full"),
    MEMBER(dtp_attention_cal, half_seq_backward, "half_seq of the backward; 0: the same"),
    MEMBER(dtp_attention_cal, dropout_factor, "time with dropout over without; 0: the same"),
    MEMBER(dtp_attention_cal, dropout_backward_factor, "the same of the backward"),
    {0}};

const struct dtp_field dtp_power_fields[] = {
    MEMBER(dtp_power_cal, idle_w, "clocks run, no kernel does anything"),
    MEMBER(dtp_power_cal, gemm_j_per_flop, "of a GEMM at the highest clock, beside its bytes"),
    MEMBER(dtp_power_cal, attention_j_per_flop, "of fused attention"),
    MEMBER(dtp_power_cal, attention_backward_j_per_flop, "of its backward"),
    MEMBER(dtp_power_cal, attention_dropout_j_per_flop,
           "of fused attention with dropout; 0: as without"),
    MEMBER(dtp_power_cal, attention_dropout_backward_j_per_flop, "of its backward"),
    MEMBER(dtp_power_cal, j_per_byte, "of a byte that a product reads from memory or writes"),
    {"exponent", DTP_FIELD_DOUBLE, offsetof(struct dtp_power_cal, exponent), .min = 0, .max = 8,
     .help = "energy of a FLOP goes with the clock to this power"},
    MEMBER(dtp_power_cal, comm_w, "above idle, while a collective runs"),
    MEMBER(dtp_power_cal, burst_w, "most that is taken even for milliseconds"),
    MEMBER(dtp_power_cal, memory_s, "time over which power_w is a mean"),
    MEMBER(dtp_power_cal, fp8_energy, "of an FP8 FLOP over one of 16 bit; 0: the same"),
    MEMBER(dtp_power_cal, fp4_energy, "of an FP4 FLOP over one of 16 bit; 0: the same"),
    {0}};

#define ENTRY(key, type, table, i)                                                                 \
    {                                                                                              \
        key, DTP_FIELD_OBJECT, sizeof(struct type) * (size_t)(i), .fields = table,                 \
                                                                  .help = "see the members"        \
    }
#define GEMM(key, i) ENTRY(key, dtp_gemm_cal, gemm_fields, i)
#define KERNEL(name, key) ENTRY(key, dtp_kernel_cal, kernel_fields, DTP_K_##name),
#define ATTENTION(key, i) ENTRY(key, dtp_attention_cal, attention_fields, i)

static const struct dtp_field gemms_fields[] = {GEMM("fp32", DTP_FP32),
                                                GEMM("tf32", DTP_TF32),
                                                GEMM("fp16", DTP_FP16),
                                                GEMM("bf16", DTP_BF16),
                                                GEMM("fp8", DTP_FP8),
                                                GEMM("fp4", DTP_FP4),
                                                {0}};
static const struct dtp_field kernels_fields[] = {DTP_KERNELS(KERNEL){0}};
static const struct dtp_field attentions_fields[] = {ATTENTION("flash1", DTP_ATTN_FLASH1),
                                                     ATTENTION("flash2", DTP_ATTN_FLASH2),
                                                     ATTENTION("flash3", DTP_ATTN_FLASH3),
                                                     ATTENTION("cudnn", DTP_ATTN_CUDNN),
                                                     ATTENTION("cudnn_9_3", DTP_ATTN_CUDNN_9_3),
                                                     ATTENTION("triton", DTP_ATTN_TRITON),
                                                     ATTENTION("heads", DTP_ATTN_HEADS),
                                                     ATTENTION("own", DTP_ATTN_OWN),
                                                     {0}};

#define IN_GPU(member) offsetof(struct dtp_gpu, member)

const struct dtp_field dtp_gpu_calibration_fields[] = {
    {"summary", DTP_FIELD_STRING, IN_GPU(calibration), .help = "from what, with what error"},
    {"not_calibrated", DTP_FIELD_BOOL, IN_GPU(not_calibrated),
     .help = "scaled from another GPU by nominal figures"},
    MEMBER(dtp_gpu, stream_bytes_per_s, "achieved memory bandwidth of a large kernel"),
    {"gemm", DTP_FIELD_OBJECT, IN_GPU(gemm), .fields = gemms_fields, .help = "by dtype"},
    {"bmm", DTP_FIELD_OBJECT, IN_GPU(bmm), .fields = gemms_fields,
     .help = "batched GEMM of unfused attention, by dtype"},
    {"kernel", DTP_FIELD_OBJECT, IN_GPU(kernel), .fields = kernels_fields,
     .help = "memory-bound kernels by class"},
    {"attention", DTP_FIELD_OBJECT, IN_GPU(attention), .fields = attentions_fields,
     .help = "fused attention by implementation"},
    {"power", DTP_FIELD_OBJECT, IN_GPU(power), .fields = dtp_power_fields,
     .help = "what lowers the clock"},
    {"sustained", DTP_FIELD_DOUBLE, IN_GPU(sustained), .min = 1, .max = 10,
     .help = "time factor under long load"},
    {"chip_spread", DTP_FIELD_DOUBLE, IN_GPU(chip_spread), .min = 0, .max = 0.2,
     .help = "standard deviation of the time of products among chips of the type, over the mean"},
    MEMBER(dtp_gpu, kernel_gap_s, "between dependent kernels, s"),
    {"comm_slowdown", DTP_FIELD_DOUBLE, IN_GPU(comm_slowdown), .min = 0, .max = 0.99,
     .help = "share of a kernel's rate lost beside a collective"},
    {"comm_wait_kernels", DTP_FIELD_DOUBLE, IN_GPU(comm_wait_kernels), .min = 0, .max = 10,
     .help = "durations of the kernel beside it that a collective waits for room on the SMs"},
    MEMBER(dtp_gpu, comm_wait_s, "most that it waits, s"),
    {"comm_memory_rate", DTP_FIELD_DOUBLE, IN_GPU(comm_memory_rate), .min = 0, .max = 1,
     .help =
         "share of its bandwidth that a collective in a node keeps beside memory-bound kernels"},
    {"comm_memory_slowdown", DTP_FIELD_DOUBLE, IN_GPU(comm_memory_slowdown), .min = 0, .max = 0.99,
     .help = "as comm_slowdown, of memory-bound kernels; left out: the same"},
    {"index_add_elements", DTP_FIELD_DOUBLE, IN_GPU(index_add_elements), .min = 0, .max = 100,
     .help = "strided elements that one of PyTorch's index_add_ is worth; 0: one"},
    {"scatter_add_elements", DTP_FIELD_DOUBLE, IN_GPU(scatter_add_elements), .min = 0, .max = 100,
     .help = "the same of scatter_add_"},
    MEMBER(dtp_gpu, offload_bytes_per_s, "pinned host memory, achieved"),
    {0}};

/* ---- files ---- */

/* What a file holds in addition to struct dtp_gpu. */
struct gpu_file {
    struct dtp_gpu gpu;
    const struct dtp_json *aliases, *sweep_names, *same_chip, *calibration;
    double memory_gb;
    bool usual;
};

#define GPU(member) offsetof(struct gpu_file, gpu.member)
#define PEAK(name, dtype)                                                                          \
    {                                                                                              \
        name, DTP_FIELD_DOUBLE, sizeof(double) * (dtype), .min = 0, .max = 1e17,                   \
                                                          .help = "dense, FLOP/s"                  \
    }

static const struct dtp_field peak_fields[] = {PEAK("fp32", DTP_FP32),
                                               PEAK("tf32", DTP_TF32),
                                               PEAK("fp16", DTP_FP16),
                                               PEAK("bf16", DTP_BF16),
                                               PEAK("fp8", DTP_FP8),
                                               PEAK("fp4", DTP_FP4),
                                               {0}};

const struct dtp_field dtp_gpu_fields[] = {
    {"name", DTP_FIELD_STRING, GPU(name), .required = true, .help = "as on the command line"},
    {"title", DTP_FIELD_STRING, GPU(title), .required = true, .help = "vendor's name"},
    {"arch", DTP_FIELD_STRING, GPU(arch), .required = true, .help = "sm_80"},
    {"family", DTP_FIELD_STRING, GPU(family), .required = true, .help = "name in measured rows"},
    {"aliases", DTP_FIELD_JSON, offsetof(struct gpu_file, aliases), .help = "other names"},
    {"memory_gb", DTP_FIELD_DOUBLE, offsetof(struct gpu_file, memory_gb), .min = 1, .max = 1e5,
     .help = "as measured rows write it"},
    {"usual", DTP_FIELD_BOOL, offsetof(struct gpu_file, usual),
     .help = "stands for its family where a row gives no memory"},
    {"num_sms", DTP_FIELD_INT, GPU(num_sms), .min = 1, .max = 1e5, .required = true,
     .help = "streaming multiprocessors"},
    {"memory_bytes", DTP_FIELD_U64, GPU(memory_bytes), .min = 1, .max = 1e15, .required = true,
     .help = "usable, as the driver reports"},
    {"l2_bytes", DTP_FIELD_U64, GPU(l2_bytes), .max = 1e12, .help = "second-level cache"},
    {"hbm_bytes_per_s", DTP_FIELD_DOUBLE, GPU(hbm_bytes_per_s), .min = 1, .max = 1e15,
     .required = true, .help = "nominal"},
    {"peak_flops_per_s", DTP_FIELD_OBJECT, GPU(peak_flops_per_s), .required = true,
     .fields = peak_fields, .help = "dense peak by dtype"},
    {"pcie_bytes_per_s", DTP_FIELD_DOUBLE, GPU(pcie_bytes_per_s), .min = 0, .max = 1e13,
     .help = "per direction, nominal"},
    {"power_w", DTP_FIELD_DOUBLE, GPU(power_w), .min = 0, .max = 1e5, .help = "limit"},
    {"sweep_names", DTP_FIELD_JSON, offsetof(struct gpu_file, sweep_names),
     .help = "this part in the rows that hw/calibrate reads"},
    {"same_chip", DTP_FIELD_JSON, offsetof(struct gpu_file, same_chip),
     .help = "other parts whose rows give the shape constants but not the rate"},
    {"calibration", DTP_FIELD_JSON, offsetof(struct gpu_file, calibration), .required = true,
     .help = "achieved rates"},
    {0}};

/* The calibration object with the keys that the model itself does not use. The offsets of the shared
 * table are those of struct dtp_gpu, which therefore comes first. */
struct calibration_file {
    struct dtp_gpu gpu;
    const char *like;
    const struct dtp_json *fit, *fixed, *tables;
    bool rows_unloaded;
};

#define IN_FILE(member) offsetof(struct calibration_file, member)

const struct dtp_field dtp_gpu_calibration_file_fields[] = {
    {"like", DTP_FIELD_STRING, IN_FILE(like), .help = "start from the calibration of this GPU"},
    {"fit", DTP_FIELD_JSON, IN_FILE(fit),
     .help = "rows, ranges and errors of the fit, written by hw/calibrate"},
    {"fixed", DTP_FIELD_JSON, IN_FILE(fixed), .help = "constants that hw/calibrate must keep"},
    {"rows_unloaded", DTP_FIELD_BOOL, IN_FILE(rows_unloaded),
     .help = "the sweep is of a chip that was not under load"},
    {"tables", DTP_FIELD_JSON, IN_FILE(tables), .help = "measured times on grids, hw/device.h"},
    {0}};

/* Scales the constants of `from` to a GPU with other nominal figures. */
static void scale(struct dtp_gpu *g, const struct dtp_gpu *from) {
    double memory = g->hbm_bytes_per_s / from->hbm_bytes_per_s;
    const double *peak = g->peak_flops_per_s, *from_peak = from->peak_flops_per_s;

    g->stream_bytes_per_s *= memory;
    for (int i = 0; i < DTP_NKERNELS; i++) {
        g->kernel[i].bytes_per_s *= memory;
        g->kernel[i].power_w *= memory;
    }
    for (int i = 0; i < DTP_NDTYPES; i++) {
        double rate = from_peak[i] > 0 ? peak[i] / from_peak[i] : 0;

        g->gemm[i].sm_flops_per_s *= rate * from->num_sms / g->num_sms;
        g->bmm[i].sm_flops_per_s *= rate * from->num_sms / g->num_sms;
    }
    if (from_peak[DTP_FP16] > 0)
        for (int i = 0; i < DTP_NATTN; i++)
            g->attention[i].flops_per_s *= peak[DTP_FP16] / from_peak[DTP_FP16];
}

enum { MOST_LIKES = 8 }; /* files of a chain of "like"; more are a circle */

static enum dtp_status load_gpu(struct dtp_arena *a, const char *name, int depth,
                                struct dtp_gpu *out, struct dtp_err *err);

/* Takes the calibration of the GPU named by "like", if there is one; `depth` files came here by theirs. */
static enum dtp_status inherit(struct dtp_arena *a, const struct dtp_json *j, int depth,
                               struct dtp_gpu *g, struct dtp_err *err) {
    const struct dtp_json *like = dtp_json_get(j, "like");
    struct dtp_gpu from = {0};

    if (!like)
        return DTP_OK;
    if (dtp_json_type(like) != DTP_JSON_STRING)
        return dtp_json_expected(like, "the name of a GPU", err);
    if (dtp_same_name(dtp_json_string(like), g->name))
        return dtp_json_expected(like, "the name of another GPU", err);
    if (depth >= MOST_LIKES)
        return dtp_json_expected(like, "a GPU whose \"like\" does not lead back here", err);
    DTP_TRY(load_gpu(a, dtp_json_string(like), depth + 1, &from, err));
    g->like_family = from.like_family ? from.like_family : from.family;
    g->stream_bytes_per_s = from.stream_bytes_per_s;
    memcpy(g->gemm, from.gemm, sizeof g->gemm);
    g->gemm[DTP_FP4] = (struct dtp_gemm_cal){0}; /* follows the FP8 of this GPU */
    memcpy(g->bmm, from.bmm, sizeof g->bmm);
    memcpy(g->kernel, from.kernel, sizeof g->kernel);
    memcpy(g->attention, from.attention, sizeof g->attention);
    g->sustained = from.sustained;
    g->power = from.power;
    g->chip_spread = from.chip_spread;
    g->kernel_gap_s = from.kernel_gap_s;
    g->comm_slowdown = from.comm_slowdown;
    g->comm_wait_kernels = from.comm_wait_kernels;
    g->comm_wait_s = from.comm_wait_s;
    g->comm_memory_rate = from.comm_memory_rate;
    g->comm_memory_slowdown = from.comm_memory_slowdown;
    g->index_add_elements = from.index_add_elements;
    g->scatter_add_elements = from.scatter_add_elements;
    g->offload_bytes_per_s = from.offload_bytes_per_s;
    scale(g, &from);
    return DTP_OK;
}

static void share_16_bit(struct dtp_gemm_cal *gemm, const double *peak) {
    if (gemm[DTP_BF16].sm_flops_per_s <= 0 && peak[DTP_BF16] > 0)
        gemm[DTP_BF16] = gemm[DTP_FP16];
    if (gemm[DTP_FP16].sm_flops_per_s <= 0 && peak[DTP_FP16] > 0)
        gemm[DTP_FP16] = gemm[DTP_BF16];
}

/* FP4 without constants takes the shapes of FP8 at the nominal ratio of the two. */
static void take_fp8(struct dtp_gemm_cal *gemm, const double *peak) {
    if (gemm[DTP_FP4].sm_flops_per_s > 0 || !(peak[DTP_FP4] > 0) || !(peak[DTP_FP8] > 0))
        return;
    gemm[DTP_FP4] = gemm[DTP_FP8];
    gemm[DTP_FP4].sm_flops_per_s *= peak[DTP_FP4] / peak[DTP_FP8];
}

static void fill_factors(struct dtp_gemm_cal *gemm) {
    for (int i = 0; i < DTP_NDTYPES; i++) {
        if (gemm[i].wgrad_factor <= 0)
            gemm[i].wgrad_factor = 1;
        if (gemm[i].dgrad_factor <= 0)
            gemm[i].dgrad_factor = 1;
        if (gemm[i].unaligned_factor < 1)
            gemm[i].unaligned_factor = 1;
    }
}

/* No chip sustains more than its peak; the clocks of some are up to 8 % above those of the data sheet. */
static enum dtp_status check_peaks(const struct dtp_json *j, const struct dtp_gpu *g,
                                   struct dtp_err *err) {
    static const double most_of_peak = 2;
    for (int i = 0; i < DTP_NDTYPES; i++) {
        double gemm = g->gemm[i].sm_flops_per_s, bmm = g->bmm[i].sm_flops_per_s;
        double flops_per_s = (gemm > bmm ? gemm : bmm) * g->num_sms / g->sustained;
        char place[256];
        if (g->peak_flops_per_s[i] > 0 && flops_per_s > most_of_peak * g->peak_flops_per_s[i])
            return dtp_fail(err, DTP_EINPUT,
                            "%s: its products reach %.3g FLOP/s in %s, more than twice the GPU's "
                            "peak_flops_per_s.%s of %.3g",
                            dtp_json_place(j, place, sizeof place), flops_per_s, dtp_dtype_names[i],
                            dtp_dtype_names[i], g->peak_flops_per_s[i]);
    }
    return DTP_OK;
}

static enum dtp_status complete(const struct dtp_json *j, struct dtp_gpu *g, struct dtp_err *err) {
    if (g->stream_bytes_per_s <= 0)
        return dtp_json_expected(j, "stream_bytes_per_s above 0", err);
    if (g->sustained <= 0)
        g->sustained = 1;
    if (g->index_add_elements <= 0)
        g->index_add_elements = 1;
    if (g->scatter_add_elements <= 0)
        g->scatter_add_elements = 1;
    share_16_bit(g->gemm, g->peak_flops_per_s);
    share_16_bit(g->bmm, g->peak_flops_per_s);
    take_fp8(g->gemm, g->peak_flops_per_s);
    fill_factors(g->gemm);
    fill_factors(g->bmm);
    for (int i = 0; i < DTP_NKERNELS; i++)
        if (g->kernel[i].bytes_per_s <= 0)
            g->kernel[i].bytes_per_s = g->stream_bytes_per_s;
    return check_peaks(j, g, err);
}

static enum dtp_status read_calibration(struct dtp_arena *a, const struct dtp_json *j, int depth,
                                        struct dtp_gpu *g, struct dtp_err *err) {
    struct calibration_file in = {.gpu = *g};
    struct dtp_field fields[32];
    size_t n = 0;

    if (dtp_json_type(j) != DTP_JSON_OBJECT)
        return dtp_json_expected(j, "an object", err);
    DTP_TRY(inherit(a, j, depth, &in.gpu, err));
    for (; dtp_gpu_calibration_fields[n].name; n++)
        fields[n] = dtp_gpu_calibration_fields[n];
    for (size_t i = 0; dtp_gpu_calibration_file_fields[i].name; i++)
        fields[n++] = dtp_gpu_calibration_file_fields[i];
    assert(n < sizeof fields / sizeof *fields);
    fields[n] = (struct dtp_field){0};
    DTP_TRY(dtp_fields_read(a, j, fields, &in, err));
    *g = in.gpu;
    if (in.tables)
        DTP_TRY(dtp_tables_read(a, in.tables, g->table, err));
    return complete(j, g, err);
}

enum dtp_status dtp_gpu_calibrate(struct dtp_arena *a, const struct dtp_json *calibration,
                                  struct dtp_gpu *g, struct dtp_err *err) {
    if (dtp_json_get(calibration, "like"))
        return dtp_json_expected(dtp_json_get(calibration, "like"), "no such key here", err);
    return read_calibration(a, calibration, 0, g, err);
}

static enum dtp_status read_file(struct dtp_arena *a, const struct dtp_json *j,
                                 struct gpu_file *out, struct dtp_err *err) {
    *out = (struct gpu_file){0};
    return dtp_fields_read(a, j, dtp_gpu_fields, out, err);
}

static enum dtp_status read_gpu(struct dtp_arena *a, const struct dtp_json *j, int depth,
                                struct dtp_gpu *out, struct dtp_err *err) {
    struct gpu_file file;

    DTP_TRY(read_file(a, j, &file, err));
    DTP_TRY(read_calibration(a, file.calibration, depth, &file.gpu, err));
    *out = file.gpu;
    return DTP_OK;
}

enum dtp_status dtp_gpu_read(struct dtp_arena *a, const struct dtp_json *j, struct dtp_gpu *out,
                             struct dtp_err *err) {
    return read_gpu(a, j, 0, out, err);
}

enum dtp_status dtp_gpu_list(struct dtp_arena *a, const char *const **out_names, size_t *out_n,
                             struct dtp_err *err) {
    return dtp_dir_list(a, dtp_data_path(a, "hw/gpu"), ".json", out_names, out_n, err);
}

static enum dtp_status open_json(struct dtp_arena *a, const char *name, const struct dtp_json **out,
                                 struct dtp_err *err) {
    return dtp_json_read_file(a, dtp_data_path(a, dtp_arena_printf(a, "hw/gpu/%s.json", name)), out,
                              err);
}

static enum dtp_status open_file(struct dtp_arena *a, const char *name, const struct dtp_json **j,
                                 struct gpu_file *out, struct dtp_err *err) {
    DTP_TRY(open_json(a, name, j, err));
    return read_file(a, *j, out, err);
}

static bool has_alias(const struct dtp_json *aliases, const char *name) {
    for (size_t i = 0; aliases && name && i < dtp_json_size(aliases); i++) {
        const struct dtp_json *alias = dtp_json_at(aliases, i);

        if (dtp_json_type(alias) == DTP_JSON_STRING && dtp_same_name(dtp_json_string(alias), name))
            return true;
    }
    return false;
}

static enum dtp_status load_gpu(struct dtp_arena *a, const char *name, int depth,
                                struct dtp_gpu *out, struct dtp_err *err) {
    const char *const *names;
    const struct dtp_json *j;
    struct gpu_file file;
    size_t n;

    DTP_TRY(dtp_gpu_list(a, &names, &n, err));
    for (size_t i = 0; i < n; i++)
        if (dtp_same_name(names[i], name)) {
            DTP_TRY(open_json(a, names[i], &j, err));
            return read_gpu(a, j, depth, out, err);
        }
    for (size_t i = 0; i < n; i++) {
        DTP_TRY(open_file(a, names[i], &j, &file, err));
        if (has_alias(file.aliases, name))
            return read_gpu(a, j, depth, out, err);
    }
    return dtp_unknown_name(err, DTP_EINPUT, "GPU", name, names, n, "dtplan clusters");
}

enum dtp_status dtp_gpu_load(struct dtp_arena *a, const char *name, struct dtp_gpu *out,
                             struct dtp_err *err) {
    return load_gpu(a, name, 0, out, err);
}

enum dtp_status dtp_gpu_find(struct dtp_arena *a, const char *family, double memory_gb,
                             struct dtp_gpu *out, struct dtp_err *err) {
    const char *const *names;
    const struct dtp_json *j;
    const struct dtp_json *nearest = NULL;
    struct gpu_file file;
    double nearest_gb = 0;
    size_t n;

    DTP_TRY(dtp_gpu_list(a, &names, &n, err));
    for (size_t i = 0; i < n; i++) {
        DTP_TRY(open_file(a, names[i], &j, &file, err));
        if (!dtp_same_name(file.gpu.family, family))
            continue;
        if (memory_gb > 0 ? file.memory_gb == memory_gb : file.usual)
            return dtp_gpu_read(a, j, out, err);
        if (!nearest || fabs(file.memory_gb - memory_gb) < fabs(nearest_gb - memory_gb)) {
            nearest = j;
            nearest_gb = file.memory_gb;
        }
    }
    if (!nearest)
        return dtp_fail(err, DTP_EUNSUPPORTED, "no GPU file for %s with %g GB", family, memory_gb);
    DTP_TRY(dtp_gpu_read(a, nearest, out, err));
    if (memory_gb > 0 && nearest_gb > 0) {
        out->memory_bytes = (uint64_t)((double)out->memory_bytes * memory_gb / nearest_gb);
        out->other_memory = true;
    }
    return DTP_OK;
}

enum dtp_status dtp_gpu_of_card(struct dtp_arena *a, const char *card, const char **out,
                                struct dtp_err *err) {
    const char *const *names;
    const struct dtp_json *j;
    struct gpu_file file;
    size_t n;

    DTP_TRY(dtp_gpu_list(a, &names, &n, err));
    for (size_t i = 0; i < n; i++) {
        DTP_TRY(open_file(a, names[i], &j, &file, err));
        if (has_alias(file.sweep_names, card)) {
            *out = names[i];
            return DTP_OK;
        }
    }
    return dtp_fail(err, DTP_EUNSUPPORTED,
                    "no file of hw/gpu has \"%s\" among its sweep_names; name one with --gpu",
                    card ? card : "");
}
