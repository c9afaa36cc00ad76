#include "traces/replay/whatif.h"

#include <math.h>
#include <string.h>

#include "hw/collective.h"
#include "sim/base/units.h"
#include "traces/tasks/diff.h"

enum dtp_status dtp_whatif_machine(struct dtp_arena *a, const char *device, struct dtp_cluster *out,
                                   struct dtp_err *err) {
    double memory_gb = strstr(device, "40GB") ? 40 : 0;
    enum dtp_status status = dtp_cluster_for_gpu(a, device, memory_gb, 0, out, err);
    if (status != DTP_EUNSUPPORTED)
        return status;
    return dtp_fail(err, DTP_EUNSUPPORTED,
                    "the trace is of \"%s\", a GPU without a file: --from names the machine",
                    *device ? device : "an unnamed device");
}

/* ---- kernels ---- */

/* Time of work of a size on a GPU. */
typedef double work_s(const struct dtp_gpu *g, const char *name, double size);

static bool has(const char *name, const char *part) {
    return strstr(name, part) != NULL;
}

static enum dtp_dtype type_of(const struct dtp_gpu *g, const char *name) {
    enum dtp_dtype wanted = has(name, "sgemm") || has(name, "f32f32_f32f32") ? DTP_FP32
                            : has(name, "tf32")                              ? DTP_TF32
                            : has(name, "e4m3") || has(name, "fp8")          ? DTP_FP8
                                                                             : DTP_BF16;
    const enum dtp_dtype order[] = {wanted, DTP_BF16, DTP_FP16, DTP_FP32};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (g->gemm[order[i]].sm_flops_per_s > 0)
            return order[i];
    return DTP_FP16;
}

static double product_s(const struct dtp_gpu *g, const char *name, double size) {
    int64_t n = (int64_t)size;
    struct dtp_gemm s = {.dtype = type_of(g, name), .m = n, .n = n, .k = n, .batch = 1};
    return dtp_device_gemm_s(g, &s);
}

static double attention_s(const struct dtp_gpu *g, const char *name, double size) {
    static const enum dtp_attention order[] = {DTP_ATTN_CUDNN, DTP_ATTN_FLASH3, DTP_ATTN_FLASH2,
                                               DTP_ATTN_FLASH1, DTP_ATTN_TRITON};
    enum { NORDER = sizeof order / sizeof *order };
    int at = has(name, "cudnn") ? 0 : has(name, "triton") || has(name, "attn_fwd") ? 4 : 2;
    for (int i = 0; i < NORDER && g->attention[order[at]].flops_per_s <= 0; i++)
        at = i;
    int64_t seq = (int64_t)size;
    struct dtp_attention_shape s = {.dtype = type_of(g, "bf16"),
                                    .impl = order[at],
                                    .causal = true,
                                    .backward = has(name, "bwd") || has(name, "bprop") ||
                                                has(name, "cutlassB"),
                                    .batch = 1,
                                    .heads = 32,
                                    .kv_heads = 32,
                                    .seq_q = seq,
                                    .seq_kv = seq,
                                    .head_dim = 128};
    return g->attention[order[at]].flops_per_s > 0 ? dtp_device_attention_s(g, &s)
                                                   : product_s(g, "bf16", sqrt(size) * 128);
}

static double stream_s(const struct dtp_gpu *g, const char *name, double size) {
    const char *kind = dtp_diff_kernel_kind(name);
    enum dtp_kernel k = strcmp(kind, "optimizer") == 0                 ? DTP_K_OPTIMIZER
                        : strcmp(kind, "norm") == 0                    ? DTP_K_NORM
                        : strcmp(kind, "norm backward") == 0           ? DTP_K_NORM_BACKWARD
                        : has(name, "softmax") || has(name, "SoftMax") ? DTP_K_SOFTMAX
                                                                       : DTP_K_ELEMENTWISE;
    return dtp_device_kernel_s(g, k, size, size / 4);
}

/* The size that takes time_s, in [1, most]; halving a range of logarithms. */
static double size_that_takes(double (*time)(const void *ctx, double size), const void *ctx,
                              double most, double time_s) {
    double low = 1, high = most;
    for (int i = 0; i < 80 && high / low > 1 + 1e-9; i++) {
        double mid = sqrt(low * high);
        if (time(ctx, mid) < time_s)
            low = mid;
        else
            high = mid;
    }
    return high;
}

/* A kernel of a name on a GPU, without its size. */
struct kernel {
    work_s *time;
    const struct dtp_gpu *gpu;
    const char *name;
};

static double kernel_s(const void *ctx, double size) {
    const struct kernel *k = ctx;
    return k->time(k->gpu, k->name, size);
}

double dtp_whatif_kernel_s(const struct dtp_whatif *w, const char *name, double dur_s) {
    static const double most_side = 128 * DTP_KIB, most_seq = DTP_MIB;
    if (w->removed && has(name, w->removed))
        return 0;
    if (!w->from || !w->to || dur_s <= 0)
        return dur_s;
    const struct dtp_gpu *from = &w->from->gpu, *to = &w->to->gpu;
    const char *kind = dtp_diff_kernel_kind(name);
    work_s *time = stream_s;
    double most = DTP_TERA;
    if (strcmp(kind, "product") == 0) {
        time = product_s;
        most = most_side;
    } else if (strncmp(kind, "attention", 9) == 0) {
        time = attention_s;
        most = most_seq;
    }
    struct kernel was = {time, from, name};
    double size = size_that_takes(kernel_s, &was, most, dur_s), was_s = time(from, name, size);
    return was_s > 0 ? dur_s * time(to, name, size) / was_s : dur_s;
}

double dtp_whatif_copy_s(const struct dtp_whatif *w, double dur_s) {
    if (!w->from || !w->to || w->from->gpu.pcie_bytes_per_s <= 0 ||
        w->to->gpu.pcie_bytes_per_s <= 0)
        return dur_s;
    return dur_s * w->from->gpu.pcie_bytes_per_s / w->to->gpu.pcie_bytes_per_s;
}

/* ---- collectives ---- */

struct span { /* a collective without its bytes */
    const struct dtp_cluster *c;
    enum dtp_collective kind;
    int size, stride;
};

static struct dtp_coll_cost cost_of(const struct span *x, double bytes) {
    struct dtp_placement p;
    struct dtp_coll_cost cost = {0};
    if (x->kind == DTP_SEND_RECV) {
        dtp_p2p_cost(x->c, 0, x->stride, 1, bytes, &cost);
        return cost;
    }
    /* groups of this stride lie as those of dp with as many ranks of tp inside */
    if (dtp_placement_init(&p, x->c, &(struct dtp_sizes){x->stride, 1, x->size, 1, 1},
                           "tp-cp-dp-pp", NULL) != DTP_OK)
        return cost;
    struct dtp_group_shape shape = dtp_placement_shape(&p, x->c, DTP_AXIS_DP, 0);
    dtp_coll_cost(x->c, x->kind, DTP_ALGO_AUTO, &shape, bytes, &cost);
    return cost;
}

static double collective_s(const void *ctx, double bytes) {
    return cost_of(ctx, bytes).time_s;
}

static double whole_bytes(const struct dtp_whatif_transfer *x) {
    bool gathers = dtp_comm_collective(x->op) == DTP_ALL_GATHER;
    return (double)x->bytes * (gathers ? x->group_size : 1);
}

double dtp_whatif_latency_s(const struct dtp_cluster *c, const struct dtp_whatif_transfer *x) {
    struct span on = {c, dtp_comm_collective(x->op), x->group_size, x->stride > 0 ? x->stride : 1};
    double bytes = whole_bytes(x);
    if (x->group_size < 2)
        return 0;
    if (bytes <= 0)
        bytes = size_that_takes(collective_s, &on, DTP_TERA, x->transfer_s);
    return cost_of(&on, bytes).latency_s;
}

double dtp_whatif_transfer_s(const struct dtp_whatif *w, const struct dtp_whatif_transfer *x) {
    int times = w->times_ranks > 1 && x->group_size == x->world ? w->times_ranks : 1;
    if (!w->from || x->group_size < 2 || (times == 1 && (!w->to || w->same_network)))
        return x->transfer_s;
    struct span from = {w->from, dtp_comm_collective(x->op), x->group_size,
                        x->stride > 0 ? x->stride : 1};
    struct span to = from;
    to.c = w->to && !w->same_network ? w->to : w->from;
    to.size *= times;
    double bytes = whole_bytes(x);
    if (bytes <= 0)
        bytes = size_that_takes(collective_s, &from, DTP_TERA, x->transfer_s);
    double was_s = collective_s(&from, bytes), is_s = collective_s(&to, bytes);
    return was_s > 0 && is_s > 0 ? x->transfer_s * is_s / was_s : x->transfer_s;
}
