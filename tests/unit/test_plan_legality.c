/* Legality of plans: each reason by a case. */
#include <CUnit/Basic.h>
#include <stdio.h>

#include "models/schedule/schedule.h"
#include "tests/plan_world.h"
#include "tests/suites.h"

struct reason_case {
    enum dtp_reason want;
    void (*change)(struct world *w, struct dtp_plan *p);
};

#define CHANGE(name, ...)                                                                          \
    static void name(struct world *w, struct dtp_plan *p) {                                        \
        (void)w, (void)p;                                                                          \
        __VA_ARGS__                                                                                \
    }
CHANGE(same, )
CHANGE(dp_too_large, p->dp = 8;)
CHANGE(no_degree, p->cp = 0;)
CHANGE(size_cp, p->tp = p->pp = p->dp = 1; w->problem.gpus = p->cp = DTP_MAX_DEGREE + 1;
       w->problem.seq = 2 * p->cp;)
CHANGE(size_etp, p->etp = DTP_MAX_DEGREE + 1;)
CHANGE(size_most, p->microbatch_size = DTP_MAX_MICROBATCH;
       p->global_batch_size = 4 * p->microbatch_size;)
CHANGE(size_microbatch, p->microbatch_size = DTP_MAX_MICROBATCH + 1;
       p->global_batch_size = 4 * p->microbatch_size;)
CHANGE(heads, w->model.heads = 9;)
CHANGE(kv_heads, w->model.kv_heads = 3;)
CHANGE(kv_heads_shared, w->model.kv_heads = 1;)
CHANGE(ffn, w->model.ffn = 385;)
CHANGE(expert_ffn, w->model.moe.experts = 4; w->model.moe.ffn = 33;)
CHANGE(hidden, w->model.hidden = 97;)
CHANGE(few_layers, w->model.layers = 1;)
/* The loss of 12 layers with a head of 8 of them comes to the seventh or eighth stage of 12. */
CHANGE(last_stage, w->framework.quirks.cut_by_cost.stages_by_cost = true; p->dp = 1; p->pp = 12;
       p->tp = 1; w->problem.gpus = 12; w->model.vocab = 1 << 20;)
CHANGE(uneven, w->model.layers = 13; w->framework.can.uneven_stages = false;)
CHANGE(uneven_allowed, w->model.layers = 13;)
#define UNEVEN_CHUNKS                                                                              \
    w->model.layers = 14;                                                                          \
    p->vpp = 2;                                                                                    \
    p->schedule = DTP_SCHED_INTERLEAVED
CHANGE(uneven_chunks, UNEVEN_CHUNKS;)
CHANGE(uneven_chunks_allowed, UNEVEN_CHUNKS; w->framework.can.uneven_chunks = true;)
static int ends_given_list[2];
CHANGE(ends, w->model.layers = 6; p->vpp = 4; p->schedule = DTP_SCHED_INTERLEAVED;
       p->account_for_ends = w->framework.can.accounts_for_ends = true;)
CHANGE(ends_none, ends(w, p); w->framework.can.accounts_for_ends = false;)
CHANGE(ends_odd, ends(w, p); w->model.layers = 7;)
CHANGE(ends_given, ends_given_list[0] = ends_given_list[1] = 3; w->model.layers = 6;
       p->account_for_ends = w->framework.can.accounts_for_ends = true;
       p->layers_per_stage.at = ends_given_list; p->layers_per_stage.n = 2;)
static int list_of_two[2], list_of_four[4];
CHANGE(given, list_of_two[0] = 5; list_of_two[1] = 7; p->layers_per_stage.at = list_of_two;
       p->layers_per_stage.n = 2;)
CHANGE(given_refused, given(w, p); w->framework.can.uneven_stages = false;)
CHANGE(given_even, given(w, p); list_of_two[0] = 6; list_of_two[1] = 6;
       w->framework.can.uneven_stages = false;)
CHANGE(given_short, given(w, p); list_of_two[1] = 6;)
CHANGE(given_empty, given(w, p); list_of_two[0] = 0; list_of_two[1] = 12;)
CHANGE(given_mtp, given(w, p); list_of_two[0] = 12; list_of_two[1] = 0; w->model.mtp_layers = 1;)
CHANGE(given_no_mtp, given_mtp(w, p); w->model.mtp_layers = 0;)
CHANGE(given_one, given(w, p); p->layers_per_stage.n = 1;)
CHANGE(given_chunks, list_of_four[0] = 2; list_of_four[1] = 4; list_of_four[2] = 4;
       list_of_four[3] = 2; p->layers_per_stage.at = list_of_four; p->layers_per_stage.n = 4;
       p->vpp = 2; p->schedule = DTP_SCHED_INTERLEAVED;)
CHANGE(batch_most, p->global_batch_size = DTP_MAX_MICROBATCHES * p->microbatch_size * p->dp;)
CHANGE(batch_more, p->global_batch_size = (DTP_MAX_MICROBATCHES + 1) * p->microbatch_size * p->dp;)
CHANGE(batch, p->global_batch_size = 63;)
CHANGE(batch_small, p->global_batch_size = 2;)
CHANGE(batch_zero, p->microbatch_size = 0;)
CHANGE(sp, p->sequence_parallel = true;)
CHANGE(sp_seq, p->sequence_parallel = true; w->problem.seq = 63;)
CHANGE(sp_cp_seq, p->sequence_parallel = true; p->cp = 2; p->dp = 2; w->problem.seq = 4;)
CHANGE(sp_cp_seq_odd, p->sequence_parallel = true; p->tp = 4; p->cp = 2; p->dp = 1;
       w->problem.seq = 12;)
CHANGE(cp_seq, p->cp = 2; p->dp = 2; w->problem.seq = 62;)
CHANGE(sp_tp1, p->sequence_parallel = true; p->tp = 1; p->dp = 8;)
CHANGE(sp_none, p->sequence_parallel = true; w->framework.can.has_sequence_parallel = false;)
CHANGE(cp, p->cp = 2; p->dp = 2;)
CHANGE(cp_none, p->cp = 2; p->dp = 2; w->framework.can.has_cp = false;)
CHANGE(ep_dense, p->ep = 2;)
CHANGE(ep_dense_hidden, p->ep_overlap = 1; w->framework.can.has_ep_overlap = true;)
CHANGE(ep_dense_once, p->ep_per_node = 1; w->framework.can.has_ep_per_node = true;)
CHANGE(ep, p->ep = 4; p->sequence_parallel = true; w->model.moe.experts = 8; w->model.moe.ffn = 96;)
CHANGE(ep_over_cp, ep(w, p); p->cp = 2; p->dp = 2;)
CHANGE(ep_experts, ep(w, p); w->model.moe.experts = 6;)
CHANGE(ep_ranks, ep(w, p); p->ep = 8;)
CHANGE(ep_here, ep(w, p); w->framework.can.max_ep = 2;)
CHANGE(ep_hidden, ep(w, p); p->ep_overlap = 1; p->vpp = 2; p->schedule = DTP_SCHED_INTERLEAVED;
       w->framework.can.has_ep_overlap = true;)
CHANGE(ep_once, ep(w, p); p->ep_per_node = 1; w->framework.can.has_ep_per_node = true;)
CHANGE(ep_once_none, ep_once(w, p); w->framework.can.has_ep_per_node = false;)
CHANGE(ep_hidden_flat, ep_hidden(w, p); p->vpp = 1; p->schedule = DTP_SCHED_1F1B;)
CHANGE(ep_hidden_full, ep_hidden(w, p); p->recompute = DTP_RECOMPUTE_FULL;)
CHANGE(ep_hidden_none, ep_hidden(w, p); w->framework.can.has_ep_overlap = false;)
CHANGE(sp_experts, ep(w, p); p->sequence_parallel = false;)
CHANGE(folded, ep(w, p); p->etp = 1; p->ep = 8; w->framework.can.expert_tp = DTP_EXPERT_TP_ANY;)
CHANGE(folded_one, folded(w, p); w->framework.can.expert_tp = DTP_EXPERT_TP_ONE;)
CHANGE(folded_wide, folded(w, p); p->etp = 4; p->ep = 2;)
CHANGE(folded_same, ep(w, p); p->etp = p->tp;)
CHANGE(folded_dense, p->etp = 1; w->framework.can.expert_tp = DTP_EXPERT_TP_ANY;)
CHANGE(folded_other, folded_wide(w, p); w->framework.can.expert_tp = DTP_EXPERT_TP_ONE;)
CHANGE(folded_ranks, folded_wide(w, p); p->ep = 4;)
CHANGE(folded_ffn, folded_wide(w, p); w->model.moe.ffn = 98;)
CHANGE(folded_zero_group, folded(w, p); p->ep = 1; p->zero_stage = 1; p->zero_group = 2;)
CHANGE(shared_ffn, folded(w, p); w->model.moe.ffn = 97; w->model.moe.shared_experts = 1;)
CHANGE(ep_none, ep(w, p); w->framework.can.has_ep = false;)
CHANGE(experts_none, ep_none(w, p); p->ep = 1;)
CHANGE(vpp_1f1b, p->vpp = 2;)
CHANGE(vpp_one, p->schedule = DTP_SCHED_INTERLEAVED;)
CHANGE(vpp, p->vpp = 2; p->schedule = DTP_SCHED_INTERLEAVED;)
CHANGE(vpp_pp1, p->vpp = 2; p->schedule = DTP_SCHED_INTERLEAVED; p->pp = 1; p->dp = 8;)
CHANGE(groups, p->vpp = 2; p->schedule = DTP_SCHED_INTERLEAVED; p->global_batch_size = 12;)
CHANGE(gpipe_pp1, p->schedule = DTP_SCHED_GPIPE; p->pp = 1; p->dp = 8;)
CHANGE(schedule_none, p->schedule = DTP_SCHED_ZB_H1;)
CHANGE(schedule_few, p->schedule = DTP_SCHED_ZB_V; p->vpp = 2; p->global_batch_size = 8;)
CHANGE(schedule_v, p->schedule = DTP_SCHED_ZB_V; p->vpp = 2; p->global_batch_size = 12;
       w->framework.can.schedules = dtp_schedule_names;)
CHANGE(schedule_v_selective, schedule_v(w, p); p->recompute = DTP_RECOMPUTE_SELECTIVE;
       w->framework.can.recompute_modes = 7;)
CHANGE(schedule_v_operators, schedule_v_selective(w, p);
       w->framework.kernels.selective_alternate_products = true;)
CHANGE(schedule_v3, p->schedule = DTP_SCHED_ZB_V; p->vpp = 3;)
CHANGE(schedule_user, p->schedule = DTP_SCHED_USER;)
CHANGE(schedule_pp1, p->pp = 1; p->dp = 8; w->framework.can.schedules = NULL;)
CHANGE(zero_1, p->zero_stage = 1;)
CHANGE(zero_none, p->zero_stage = 1; w->framework.can.zero_stages = 1;)
CHANGE(zero_4, p->zero_stage = 4;)
CHANGE(zero_pp, p->zero_stage = 2;)
CHANGE(zero_dp1, p->zero_stage = 1; p->dp = 1; p->tp = 4; w->problem.gpus = 8;)
CHANGE(zero_dp1_offload, p->tp = p->pp = p->dp = 1; p->sequence_parallel = false; p->zero_stage = 3;
       p->offload = DTP_OFFLOAD_PARAMETERS; p->global_batch_size = p->microbatch_size = 1;
       w->framework.can.zero_stages = 0xf; w->framework.can.offload = true; w->problem.gpus = 1;)
CHANGE(zero_dp1_always, zero_dp1(w, p); w->framework.can.zero_stages = 0xe;)
CHANGE(zero_cp, p->zero_stage = 1; p->dp = 1; p->cp = 4;)
CHANGE(zero_group, p->zero_stage = 1; p->zero_group = 2;)
CHANGE(zero_group_odd, p->zero_stage = 1; p->zero_group = 3;)
CHANGE(zero_group_alone, p->zero_group = 2;)
CHANGE(zero_tp, p->zero_stage = 3; p->pp = 1; p->dp = 8;)
CHANGE(recompute, p->recompute = DTP_RECOMPUTE_FULL; w->framework.can.recompute_modes = 3;)
CHANGE(recompute_some, p->recompute = DTP_RECOMPUTE_FULL; p->recompute_layers = 6;)
CHANGE(recompute_more, p->recompute = DTP_RECOMPUTE_FULL; p->recompute_layers = 7;)
CHANGE(recompute_what, p->recompute_layers = 1;)
CHANGE(modules, p->recompute = DTP_RECOMPUTE_SELECTIVE; p->recompute_modules = DTP_BIT_MLP;
       w->framework.can.recompute_modules = DTP_BIT_CORE_ATTN | DTP_BIT_MLP | DTP_BIT_MOE_ACT |
                                            DTP_BIT_MOE;
       w->framework.can.recompute_modes = 7;)
CHANGE(modules_none, modules(w, p); w->framework.can.recompute_modules = 0;)
CHANGE(modules_full, modules(w, p); p->recompute = DTP_RECOMPUTE_FULL;)
CHANGE(modules_dense, modules(w, p); p->recompute_modules = DTP_BIT_MLP | DTP_BIT_MOE_ACT;)
CHANGE(modules_experts, modules(w, p); ep(w, p); p->recompute_modules = DTP_BIT_MOE_ACT;)
CHANGE(modules_fp8, modules_experts(w, p); p->dtype = DTP_FP8;
       w->framework.can.dtypes |= 1 << DTP_FP8;
       w->cluster.gpu.peak_flops_per_s[DTP_FP8] = w->cluster.gpu.gemm[DTP_FP8].sm_flops_per_s = 1;)
CHANGE(modules_fp8_current, modules_fp8(w, p); w->framework.kernels.fp8_recipe = DTP_FP8_CURRENT;)
CHANGE(modules_hidden, modules_experts(w, p); ep_hidden(w, p);)
CHANGE(modules_hidden_moe, modules_hidden(w, p); p->recompute_modules = DTP_BIT_MOE;)
CHANGE(recompute_all_alone, recompute_some(w, p); p->recompute_layers = 3;
       w->framework.can.recompute_layers = DTP_RECOMPUTE_ALL;)
CHANGE(recompute_all, recompute_all_alone(w, p); p->recompute_layers = 6;)
CHANGE(recompute_nth, recompute_some(w, p); p->recompute_layers = 3;
       w->framework.can.recompute_layers = DTP_RECOMPUTE_NTH;)
CHANGE(recompute_no_nth, recompute_nth(w, p); p->recompute_layers = 4;)
CHANGE(last_less, p->last_stage_less = 2; w->framework.can.uneven_chunks = true;)
CHANGE(last_less_native, last_less(w, p); w->framework.can.uneven_chunks = false;
       w->framework.kernels.ops = DTP_OPS_OWN;)
CHANGE(last_less_here, last_less(w, p); w->framework.can.uneven_chunks = false;)
CHANGE(last_less_all, last_less(w, p); p->last_stage_less = 6;)
CHANGE(last_less_pp1, last_less(w, p); p->pp = 1; p->dp = 8;)
CHANGE(last_less_ends, last_less(w, p); w->model.layers = 14; p->account_for_ends = true;
       w->framework.can.accounts_for_ends = true;)
CHANGE(last_less_mtp, last_less(w, p); w->model.mtp_layers = 1;)
CHANGE(tp_limit, w->framework.can.max_tp = 1;)
CHANGE(pp_limit, w->framework.can.max_pp = 1;)
CHANGE(offload, p->offload = DTP_OFFLOAD_OPTIMIZER; p->zero_stage = 1;)
CHANGE(offload_whole, p->offload = DTP_OFFLOAD_OPTIMIZER;)
CHANGE(offload_none, offload(w, p); w->framework.can.offload = false;)
CHANGE(offload_parameters, p->offload = DTP_OFFLOAD_PARAMETERS;)
CHANGE(offload_room, offload(w, p); w->cluster.node.host_memory_bytes = 1000;)
CHANGE(offload_nvme, offload(w, p); p->offload_to = DTP_OFFLOAD_NVME;)
CHANGE(dtype, p->dtype = DTP_FP8;)
CHANGE(dtype_here, w->framework.can.dtypes = 1 << DTP_FP16;)
CHANGE(dtype_uncalibrated, p->dtype = DTP_FP16;)
#define CONV                                                                                       \
    w->model.nconvs = 1;                                                                           \
    w->model.layers = 0;                                                                           \
    w->model.heads = 0
#define ALONE                                                                                      \
    p->tp = p->pp = 1;                                                                             \
    p->dp = 16
CHANGE(conv, CONV; ALONE;)
CHANGE(conv_tp, CONV; p->pp = 1; p->dp = 8;)
CHANGE(conv_pp, CONV; p->tp = 1; p->dp = 8;)
CHANGE(conv_cp, CONV; ALONE; p->dp = 8; p->cp = 2;)
CHANGE(conv_ep, CONV; ALONE; p->ep = 2;)
CHANGE(conv_sp, CONV; ALONE; p->sequence_parallel = true;)
CHANGE(conv_recompute, CONV; ALONE; p->recompute = DTP_RECOMPUTE_SELECTIVE;)
CHANGE(conv_zero, CONV; ALONE; p->zero_stage = 2;)

static const struct reason_case reason_cases[] = {
    {DTP_LEGAL, same},
    {DTP_WHY_GPUS, dp_too_large},
    {DTP_WHY_GPUS, no_degree},
    {DTP_WHY_SIZE, size_cp},
    {DTP_WHY_SIZE, size_etp},
    {DTP_LEGAL, size_most},
    {DTP_WHY_SIZE, size_microbatch},
    {DTP_WHY_HEADS, heads},
    {DTP_WHY_KV_HEADS, kv_heads},
    {DTP_LEGAL, kv_heads_shared},
    {DTP_WHY_FFN, ffn},
    {DTP_WHY_FFN, expert_ffn},
    {DTP_WHY_HIDDEN, hidden},
    {DTP_WHY_LAYERS, few_layers},
    {DTP_WHY_LAST_STAGE, last_stage},
    {DTP_WHY_UNEVEN, uneven},
    {DTP_LEGAL, uneven_allowed},
    {DTP_WHY_UNEVEN, uneven_chunks},
    {DTP_LEGAL, uneven_chunks_allowed},
    {DTP_LEGAL, ends},
    {DTP_WHY_ENDS, ends_none},
    {DTP_WHY_ENDS, ends_odd},
    {DTP_WHY_ENDS, ends_given},
    {DTP_LEGAL, given},
    {DTP_WHY_UNEVEN, given_refused},
    {DTP_LEGAL, given_even},
    {DTP_WHY_LAYER_SUM, given_short},
    {DTP_WHY_LAYER_SUM, given_empty},
    {DTP_LEGAL, given_mtp},
    {DTP_WHY_LAYER_SUM, given_no_mtp},
    {DTP_WHY_LAYER_SUM, given_one},
    {DTP_LEGAL, given_chunks},
    {DTP_WHY_BATCH, batch},
    {DTP_WHY_BATCH, batch_small},
    {DTP_WHY_BATCH, batch_zero},
    {DTP_LEGAL, batch_most},
    {DTP_WHY_MICROBATCHES, batch_more},
    {DTP_LEGAL, sp},
    {DTP_WHY_SEQ_TP, sp_seq},
    {DTP_LEGAL, sp_cp_seq},
    {DTP_WHY_SEQ_TP, sp_cp_seq_odd},
    {DTP_WHY_SEQ_CP, cp_seq},
    {DTP_WHY_SP_TP1, sp_tp1},
    {DTP_WHY_SP, sp_none},
    {DTP_LEGAL, cp},
    {DTP_WHY_CP, cp_none},
    {DTP_WHY_EP, ep_dense},
    {DTP_WHY_EP_DENSE, ep_dense_hidden},
    {DTP_WHY_EP_DENSE, ep_dense_once},
    {DTP_LEGAL, ep},
    {DTP_LEGAL, ep_over_cp},
    {DTP_WHY_EP, ep_experts},
    {DTP_WHY_EP, ep_ranks},
    {DTP_WHY_EP_HERE, ep_here},
    {DTP_LEGAL, ep_hidden},
    {DTP_LEGAL, ep_once},
    {DTP_WHY_EP_PER_NODE, ep_once_none},
    {DTP_WHY_EP_OVERLAP, ep_hidden_flat},
    {DTP_WHY_EP_OVERLAP, ep_hidden_full},
    {DTP_WHY_EP_OVERLAP, ep_hidden_none},
    {DTP_WHY_EXPERTS_SP, sp_experts},
    {DTP_LEGAL, folded},
    {DTP_LEGAL, folded_one},
    {DTP_LEGAL, folded_wide},
    {DTP_LEGAL, folded_same},
    {DTP_WHY_ETP, folded_dense},
    {DTP_WHY_ETP, folded_other},
    {DTP_WHY_EP, folded_ranks},
    {DTP_WHY_ETP, folded_ffn},
    {DTP_WHY_ZERO_GROUP, folded_zero_group},
    {DTP_WHY_FFN, shared_ffn},
    {DTP_WHY_EXPERTS, ep_none},
    {DTP_WHY_EXPERTS, experts_none},
    {DTP_WHY_VPP, vpp_1f1b},
    {DTP_WHY_VPP, vpp_one},
    {DTP_LEGAL, vpp},
    {DTP_WHY_VPP, vpp_pp1},
    {DTP_WHY_INTERLEAVE, groups},
    {DTP_WHY_PP1, gpipe_pp1},
    {DTP_WHY_SCHEDULE, schedule_none},
    {DTP_WHY_FEW_MICROBATCHES, schedule_few},
    {DTP_LEGAL, schedule_v},
    {DTP_LEGAL, schedule_v_selective},
    {DTP_WHY_RECOMPUTE, schedule_v_operators},
    {DTP_WHY_VPP, schedule_v3},
    {DTP_WHY_SCHEDULE, schedule_user},
    {DTP_LEGAL, schedule_pp1},
    {DTP_LEGAL, zero_1},
    {DTP_WHY_ZERO, zero_none},
    {DTP_WHY_ZERO, zero_4},
    {DTP_WHY_ZERO_PP, zero_pp},
    {DTP_WHY_ZERO_DP1, zero_dp1},
    {DTP_LEGAL, zero_dp1_offload},
    {DTP_LEGAL, zero_dp1_always},
    {DTP_LEGAL, zero_group},
    {DTP_WHY_ZERO_GROUP, zero_group_odd},
    {DTP_WHY_ZERO_GROUP, zero_group_alone},
    {DTP_LEGAL, zero_cp},
    {DTP_WHY_ZERO_TP, zero_tp},
    {DTP_WHY_RECOMPUTE, recompute},
    {DTP_LEGAL, recompute_some},
    {DTP_WHY_RECOMPUTE, recompute_more},
    {DTP_WHY_RECOMPUTE, recompute_what},
    {DTP_LEGAL, modules},
    {DTP_WHY_MODULES, modules_none},
    {DTP_WHY_MODULES, modules_full},
    {DTP_WHY_MODULES, modules_dense},
    {DTP_LEGAL, modules_experts},
    {DTP_WHY_MODULES, modules_fp8},
    {DTP_LEGAL, modules_fp8_current},
    {DTP_LEGAL, modules_hidden},
    {DTP_WHY_EP_OVERLAP, modules_hidden_moe},
    {DTP_WHY_RECOMPUTE, recompute_all_alone},
    {DTP_LEGAL, recompute_all},
    {DTP_LEGAL, recompute_nth},
    {DTP_WHY_RECOMPUTE, recompute_no_nth},
    {DTP_LEGAL, last_less},
    {DTP_LEGAL, last_less_native},
    {DTP_WHY_LAST_LESS, last_less_here},
    {DTP_WHY_LAST_LESS, last_less_all},
    {DTP_WHY_LAST_LESS, last_less_pp1},
    {DTP_WHY_ENDS, last_less_ends},
    {DTP_WHY_LAST_LESS, last_less_mtp},
    {DTP_WHY_TP, tp_limit},
    {DTP_WHY_PP, pp_limit},
    {DTP_LEGAL, offload},
    {DTP_WHY_OFFLOAD_ZERO, offload_whole},
    {DTP_WHY_OFFLOAD, offload_none},
    {DTP_WHY_OFFLOAD_ZERO, offload_parameters},
    {DTP_WHY_OFFLOAD_ROOM, offload_room},
    {DTP_WHY_OFFLOAD_ROOM, offload_nvme},
    {DTP_WHY_DTYPE, dtype},
    {DTP_WHY_DTYPE, dtype_uncalibrated},
    {DTP_WHY_DTYPE_HERE, dtype_here},
    {DTP_LEGAL, conv},
    {DTP_WHY_TP, conv_tp},
    {DTP_WHY_PP, conv_pp},
    {DTP_WHY_CP, conv_cp},
    {DTP_WHY_EP, conv_ep},
    {DTP_WHY_SP_TP1, conv_sp},
    {DTP_WHY_RECOMPUTE, conv_recompute},
    {DTP_LEGAL, conv_zero},
};

static void test_reasons(void) {
    bool seen[DTP_NREASONS] = {false};
    for (size_t i = 0; i < sizeof reason_cases / sizeof reason_cases[0]; i++) {
        struct world w;
        struct dtp_plan p = base_plan();
        world_init(&w);
        reason_cases[i].change(&w, &p);
        enum dtp_reason why = dtp_plan_check(&w.problem, &p);
        if (why != reason_cases[i].want)
            printf("\n  case %zu: found \"%s\", expected \"%s\"\n", i, dtp_reasons[why],
                   dtp_reasons[reason_cases[i].want]);
        CU_ASSERT(why == reason_cases[i].want);
        seen[why] = true;
    }
    for (int why = 0; why < DTP_NREASONS; why++)
        CU_ASSERT(seen[why] || why == DTP_WHY_CONSTRAINT);
}

int main(void) {
    CU_TestInfo tests[] = {{"each reason", test_reasons}, CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"plan legality", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
