/* The one table of what is calibrated of a GPU. */
#include <stddef.h>

#include "hw/device.h"

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
