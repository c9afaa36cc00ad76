#include "models/evaluate/result.h"

#include <stddef.h>

#include "sim/base/units.h"

/* One stage with its number. */
struct numbered_stage {
    int stage;
    const struct dtp_stage_memory *memory;
};

static void put_stages(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    const struct dtp_result *r = at;
    dtp_json_array(w);
    for (int s = 0; s < r->nstages; s++) {
        const struct numbered_stage stage = {s, &r->stages[s]};
        dtp_put_object(w, f, &stage);
    }
    dtp_json_end(w);
}

static void put_by_zero_stage(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    static const char *const zero[] = {"0", "1", "2", "3"};
    const uint64_t *bytes = at;
    (void)f;
    dtp_json_object(w);
    for (int z = 0; z < 4; z++) {
        dtp_json_put_key(w, zero[z]);
        dtp_json_put_u64(w, bytes[z]);
    }
    dtp_json_end(w);
}

static void put_refused(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    const int *bits = at;
    (void)f;
    dtp_json_array(w);
    for (int z = 0; z < 4; z++)
        if (*bits >> z & 1)
            dtp_json_put_int(w, z);
    dtp_json_end(w);
}

static void put_plan(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    (void)f;
    dtp_plan_write(w, at);
}

static void put_tera(struct dtp_json_out *w, const struct dtp_field *f, const void *at) {
    (void)f;
    dtp_json_put_double(w, *(const double *)at / DTP_TERA);
}

/* clang-format off */
#define AT(member) offsetof(struct dtp_stage_memory, member)
static const struct dtp_field memory_fields[] = {
    {"peak_bytes", DTP_FIELD_U64, AT(peak_bytes), .help = "sum of the items at the moment of the peak"},
    {"weights_bytes", DTP_FIELD_U64, AT(weights_bytes), .help = "parameters"},
    {"gradients_bytes", DTP_FIELD_U64, AT(gradients_bytes), .help = "gradients"},
    {"optimizer_bytes", DTP_FIELD_U64, AT(optimizer_bytes), .help = "state of the optimizer"},
    {"activations_bytes", DTP_FIELD_U64, AT(activations_bytes), .help = "activations kept for the backward passes"},
    {"logits_bytes", DTP_FIELD_U64, AT(logits_bytes), .help = "logits and their gradients, for the loss"},
    {"buffers_bytes", DTP_FIELD_U64, AT(buffers_bytes), .help = "buffers of communication, workspaces"},
    {"reserved_bytes", DTP_FIELD_U64, AT(reserved_bytes), .help = "see reserved_bytes of the plan"},
    {"device_bytes", DTP_FIELD_U64, AT(device_bytes), .help = "with context, NCCL and library workspaces"},
    {"params", DTP_FIELD_U64, AT(params), .help = "parameters of the stage, for each tensor-parallel rank"},
    {"moment", DTP_FIELD_STRING, AT(moment), .help = "when the peak is"},
    {0}};
#undef AT
static const struct dtp_field stage_fields[] = {
    {"stage", DTP_FIELD_INT, offsetof(struct numbered_stage, stage), .help = "pipeline stage"},
    {"memory", DTP_FIELD_PUT, offsetof(struct numbered_stage, memory), .put = dtp_put_part, .flat = true,
     .fields = memory_fields},
    {0}};
#define AT(member) offsetof(struct dtp_bubble, member)
static const struct dtp_field bubble_fields[] = {
    {"warmup", DTP_FIELD_DOUBLE, AT(warmup), .help = "before the first backward"},
    {"drain", DTP_FIELD_DOUBLE, AT(drain), .help = "after the last forward"},
    {"imbalance", DTP_FIELD_DOUBLE, AT(imbalance), .help = "stages that have less to do than the slowest"},
    {0}};
#undef AT
static const struct dtp_field breakdown_fields[] = {
#define X(field, key, ...) {key, DTP_FIELD_DOUBLE, offsetof(struct dtp_breakdown, field)},
    DTP_BREAKDOWN_LIST(X)
#undef X
    {0}};
#define AT(member) offsetof(struct dtp_result, member)
static const struct dtp_form plan_form = {.title = "PLAN"};
static const struct dtp_field result_fields[] = {
    {"plan", DTP_FIELD_PUT, AT(plan), .put = put_plan, .form = &plan_form, .help = "the layout"},
    {"step_s", DTP_FIELD_DOUBLE, AT(step_s), .help = "time of a step, by the highest fidelity that was run"},
    {"estimate_s", DTP_FIELD_DOUBLE, AT(estimate_s), .help = "time of a step without contention"},
    {"bound_s", DTP_FIELD_DOUBLE, AT(bound_s), .help = "time of a step that no schedule of the layout beats"},
    {"tokens_per_s", DTP_FIELD_DOUBLE, AT(tokens_per_s), .help = "throughput of all GPUs"},
    {"tflops_per_gpu", DTP_FIELD_PUT, AT(flops_per_gpu_per_s), .put = put_tera,
     .help = "model FLOPs, attention in full, no recomputation, 1e12 a second"},
    {"mfu", DTP_FIELD_DOUBLE, AT(mfu), .help = "tflops_per_gpu as a share of the dense peak"},
    {"hfu", DTP_FIELD_DOUBLE, AT(hfu), .help = "the share with recomputation"},
    {"causal_mfu", DTP_FIELD_DOUBLE, AT(causal_mfu), .help = "the share without what the causal mask leaves out of attention"},
    {"bubble_fraction", DTP_FIELD_DOUBLE, AT(bubble.fraction), .help = "idle share of the pipeline's time, mean over the stages"},
    {"bubble_over_ideal", DTP_FIELD_DOUBLE, AT(bubble.over_ideal),
     .help = "idle time over compute time, the text-books' (p - 1) / m"},
    {"bubble", DTP_FIELD_OBJECT, AT(bubble), .fields = bubble_fields, .help = "bubble_fraction by cause"},
    {"peak_bytes", DTP_FIELD_U64, AT(peak_bytes), .help = "largest sum at one moment on the worst rank"},
    {"allocated_bytes", DTP_FIELD_U64, AT(peak_bytes), .help = "equal to peak_bytes"},
    {"reserved_bytes", DTP_FIELD_U64, AT(reserved_bytes),
     .help = "with the allocator's rounding and, while there is room, what it keeps idle"},
    {"device_bytes", DTP_FIELD_U64, AT(device_bytes), .help = "with context, NCCL and library workspaces: what must fit"},
    {"memory_limit_bytes", DTP_FIELD_U64, AT(memory_limit_bytes), .help = "what device_bytes may be"},
    {"fits", DTP_FIELD_BOOL, AT(fits), .help = "device_bytes is within the limit"},
    {"stages", DTP_FIELD_PUT, 0, .put = put_stages, .inner = "[]", .fields = stage_fields},
    {"memory_by_zero_stage", DTP_FIELD_PUT, AT(by_zero_stage), .put = put_by_zero_stage, .inner = ".*",
     .help = "device_bytes with each ZeRO stage, as if the framework had it"},
    {"zero_stages_refused", DTP_FIELD_PUT, AT(zero_refused), .put = put_refused, .inner = "[]",
     .help = "ZeRO stages that the framework refuses in this plan"},
    {"breakdown_s", DTP_FIELD_OBJECT, AT(breakdown), .fields = breakdown_fields,
     .help = "seconds of the step on the rank that ends last, by what they go to; they add up to step_s"},
    {"extrapolated", DTP_FIELD_BOOL, AT(extrapolated), .help = "the GPU's constants are scaled from another's"},
    {"why_not", DTP_FIELD_STRING, AT(why_not),
     .help = "why it lost; of a near miss, by how much it would be faster and misses the limit"},
    {0}};
/* clang-format on */

const struct dtp_form dtp_result_form = {"RESULT", "Time and memory of a plan.", result_fields};
