/* plan_world.h: a small model, cluster and framework with nothing read from files, for tests of plans. */
#ifndef DTP_TESTS_PLAN_WORLD_H
#define DTP_TESTS_PLAN_WORLD_H

#include <string.h>

#include "models/evaluate/evaluate.h"

struct world {
    struct dtp_model model;
    struct dtp_cluster cluster;
    struct dtp_framework framework;
    struct dtp_problem problem;
};

/* 12 layers, h = 96, 12 heads, 4 key-value heads, ffn 384; everything supported but ZeRO-2 and 3 with
 * pp > 1, ZeRO-3 with tp > 1, and ZB-H1. */
static inline void world_init(struct world *w) {
    static const char *const schedules[] = {"gpipe", "1f1b", "interleaved", NULL};
    memset(w, 0, sizeof *w);
    w->model = (struct dtp_model){.layers = 12,
                                  .hidden = 96,
                                  .heads = 12,
                                  .kv_heads = 4,
                                  .head_dim = 8,
                                  .ffn = 384,
                                  .vocab = 1000,
                                  .seq = 64};
    w->cluster.gpu.peak_flops_per_s[DTP_BF16] = 1e14;
    w->cluster.gpu.gemm[DTP_BF16].sm_flops_per_s = 1e12;
    w->cluster.gpu.peak_flops_per_s[DTP_FP16] = 1e14;
    w->cluster.node.gpus = 8;
    w->cluster.node.host_memory_bytes = (uint64_t)1 << 40;
    w->framework.keeps = (struct dtp_framework_keeps){.weight_bytes = 2, .optimizer_bytes = 12};
    w->framework.can.has_sequence_parallel = w->framework.can.has_cp = w->framework.can.has_ep =
        true;
    w->framework.can.uneven_stages = w->framework.can.offload = true;
    w->framework.can.schedules = schedules;
    w->framework.can.zero_stages = 15;
    w->framework.can.dtypes = 1 << DTP_BF16 | 1 << DTP_FP16;
    w->framework.can.zero_stages_pp = 3;
    w->framework.can.zero_stages_tp = 7;
    w->framework.can.recompute_modes = 7;
    w->framework.can.recompute_layers = DTP_RECOMPUTE_ANY;
    w->problem = (struct dtp_problem){.model = &w->model,
                                      .cluster = &w->cluster,
                                      .framework = &w->framework,
                                      .gpus = 16,
                                      .seq = 64,
                                      .global_batch = 64,
                                      .attention = -1,
                                      .dtype = DTP_BF16};
}

/* tp 2, pp 2, dp 4 on 16 GPUs: legal there. */
static inline struct dtp_plan base_plan(void) {
    struct dtp_plan p = dtp_plan_default();
    p.tp = 2;
    p.pp = 2;
    p.dp = 4;
    p.global_batch_size = 64;
    return p;
}

#endif
