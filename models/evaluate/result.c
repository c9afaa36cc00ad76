#include "models/evaluate/result.h"

#include "models/evaluate/evaluate.h"
#include "sim/base/units.h"

static void write_stage(struct dtp_json_out *w, int stage, const struct dtp_stage_memory *m) {
    dtp_json_object(w);
    dtp_json_kv_int(w, "stage", stage);
    dtp_json_kv_u64(w, "peak_bytes", m->peak_bytes);
    dtp_json_kv_u64(w, "weights_bytes", m->weights_bytes);
    dtp_json_kv_u64(w, "gradients_bytes", m->gradients_bytes);
    dtp_json_kv_u64(w, "optimizer_bytes", m->optimizer_bytes);
    dtp_json_kv_u64(w, "activations_bytes", m->activations_bytes);
    dtp_json_kv_u64(w, "logits_bytes", m->logits_bytes);
    dtp_json_kv_u64(w, "buffers_bytes", m->buffers_bytes);
    dtp_json_kv_u64(w, "reserved_bytes", m->reserved_bytes);
    dtp_json_kv_u64(w, "device_bytes", m->device_bytes);
    dtp_json_kv_u64(w, "params", m->params);
    dtp_json_kv_string(w, "moment", m->moment);
    dtp_json_end(w);
}

static void write_memory(struct dtp_json_out *w, const struct dtp_problem *problem,
                         const struct dtp_result *r) {
    static const char *const zero[] = {"0", "1", "2", "3"};
    dtp_json_kv_u64(w, "peak_bytes", r->peak_bytes);
    dtp_json_kv_u64(w, "allocated_bytes", r->peak_bytes);
    dtp_json_kv_u64(w, "reserved_bytes", r->reserved_bytes);
    dtp_json_kv_u64(w, "device_bytes", r->device_bytes);
    dtp_json_kv_u64(w, "memory_limit_bytes", problem->memory_limit_bytes);
    dtp_json_kv_bool(w, "fits", r->fits);
    dtp_json_put_key(w, "stages");
    dtp_json_array(w);
    for (int s = 0; s < r->nstages; s++)
        write_stage(w, s, &r->stages[s]);
    dtp_json_end(w);
    dtp_json_put_key(w, "memory_by_zero_stage");
    dtp_json_object(w);
    for (int z = 0; z < 4; z++) {
        dtp_json_put_key(w, zero[z]);
        if (r->by_zero_stage[z])
            dtp_json_put_u64(w, r->by_zero_stage[z]);
        else
            dtp_json_put_null(w);
    }
    dtp_json_end(w);
}

static void write_bubble(struct dtp_json_out *w, const struct dtp_bubble *b) {
    dtp_json_kv_double(w, "bubble_fraction", b->fraction);
    dtp_json_kv_double(w, "bubble_over_ideal", b->over_ideal);
    dtp_json_put_key(w, "bubble");
    dtp_json_object(w);
    dtp_json_kv_double(w, "warmup", b->warmup);
    dtp_json_kv_double(w, "drain", b->drain);
    dtp_json_kv_double(w, "imbalance", b->imbalance);
    dtp_json_end(w);
}

void dtp_result_write(struct dtp_json_out *w, const struct dtp_problem *problem,
                      const struct dtp_result *r) {
    dtp_json_object(w);
    dtp_json_put_key(w, "plan");
    dtp_plan_write(w, &r->plan);
    dtp_json_kv_double(w, "step_s", r->step_s);
    dtp_json_kv_double(w, "estimate_s", r->estimate_s);
    dtp_json_kv_double(w, "bound_s", r->bound_s);
    dtp_json_kv_double(w, "tokens_per_s", r->tokens_per_s);
    dtp_json_kv_double(w, "tflops_per_gpu", r->flops_per_gpu_per_s / DTP_TERA);
    dtp_json_kv_double(w, "mfu", r->mfu);
    dtp_json_kv_double(w, "hfu", r->hfu);
    dtp_json_kv_double(w, "causal_mfu", r->causal_mfu);
    write_bubble(w, &r->bubble);
    write_memory(w, problem, r);
    dtp_json_put_key(w, "breakdown_s");
    dtp_json_object(w);
#define X(field, key, ...) dtp_json_kv_double(w, key, r->breakdown.field);
    DTP_BREAKDOWN_LIST(X)
#undef X
    dtp_json_end(w);
    dtp_json_kv_bool(w, "extrapolated", r->extrapolated);
    if (r->why_not)
        dtp_json_kv_string(w, "why_not", r->why_not);
    dtp_json_end(w);
}
