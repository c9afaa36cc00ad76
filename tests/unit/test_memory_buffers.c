/* A rank holds more than state and activations, here computed by hand: buffers of reductions, transfers and
 * gathers, copies of weights, and what offload leaves. */
#include "models/memory/memory_internal.h"
#include "tests/memory_case.h"

/* Llama 3 8B: parameters of a layer (Q and output, K and V of 8 of 32 heads, three of the MLP, two norms), of the
 * token table, and of what is outside layers: table, head, norm. */
static const double layer = 2 * 4096.0 * (4096 + 1024) + 3 * 4096.0 * 14336 + 2 * 4096;
static const double table = 128256 * 4096.0, outside = 2 * 128256 * 4096.0 + 4096;
static const double all =
    32 * (2 * 4096.0 * (4096 + 1024) + 3 * 4096.0 * 14336 + 2 * 4096) + 2 * 128256 * 4096.0 + 4096;

static struct dtp_stage_memory first_stage(const struct fixture *x) {
    struct dtp_stage_memory s[DTP_MAX_STAGES];
    dtp_memory(dtp_memory_memo_create(arena, &x->problem), &x->plan, s);
    return s[0];
}

static void setup_llama(struct fixture *x, const char *framework, int dp) {
    setup(x, "llama3-8b", framework);
    x->plan.dp = x->problem.gpus = x->plan.global_batch_size = x->problem.global_batch = dp;
}

/* PyTorch's reducer has all buckets from so many ranks on: 4 bytes of each parameter. */
static void test_reducer(void) {
    for (int dp = 7; dp <= 9; dp++) {
        struct fixture x;
        setup_llama(&x, "megatron-core", dp);
        double without = (double)first_stage(&x).buffers_bytes;
        x.framework.keeps.reducer_bytes = 4;
        x.framework.keeps.reducer_ranks = 8;
        equal((double)first_stage(&x).buffers_bytes, without + (dp >= 8 ? 4 * all : 0));
    }
}

/* A transfer each way, of 2 b s h bytes; or one for each of m microbatches. */
static void test_transfers(void) {
    enum { M = 6 };
    struct fixture x;
    setup_llama(&x, "megatron-core", 1);
    x.framework.quirks.kept_outputs.transfers_kept = false;
    x.plan.pp = x.problem.gpus = 2;
    x.plan.global_batch_size = x.problem.global_batch = M;
    double one = (double)first_stage(&x).buffers_bytes;
    x.framework.quirks.kept_outputs.transfers_kept = true;
    equal((double)first_stage(&x).buffers_bytes,
          one + 2 * (M - 1) * 2.0 * x.problem.seq * x.model.hidden);
}

/* Each depth of multi-token prediction has logits of its own. */
static void test_logits_of_depths(void) {
    struct fixture x;
    double main_bytes = 0;
    setup_llama(&x, "megatron-core", 1);
    x.model.vocab = 2000000; /* so that the loss is the peak */
    for (int depths = 0; depths < 3; depths++) {
        x.model.mtp_layers = depths;
        struct dtp_stage_memory s = first_stage(&x);
        CU_ASSERT_STRING_EQUAL(s.moment, "loss");
        main_bytes = depths == 0 ? (double)s.logits_bytes : main_bytes;
        equal((double)s.logits_bytes, (1 + depths) * main_bytes);
    }
    CU_ASSERT(main_bytes > 0);
}

/* Gradients that are divided are there for a whole layer until they are reduced. */
static void test_gradients_of_a_layer(void) {
    struct fixture x;
    struct dtp_param_counts n;
    setup_llama(&x, "megatron-core", 4);
    dtp_model_params(&x.model, x.model.vocab, &n);
    x.framework.quirks.whole_gradients.flat_gather_bytes = x.framework.keeps.step_copy_bytes = 0;
    x.framework.keeps.gradient_bytes = 6;
    double buffers[3];
    for (int zero = 1; zero <= 2; zero++) {
        x.plan.zero_stage = zero;
        buffers[zero] = (double)first_stage(&x).buffers_bytes;
    }
    equal(buffers[2], buffers[1] + 6 * (double)n.dense_layer);
}

/* When the last backward ends one layer is live, whole: as it was kept, or as it was made again. */
static void test_last_layer(void) {
    struct fixture x;
    double whole[2];
    setup(&x, "gpt3-1.3b", "torch-fsdp2");
    x.problem.seq = 256; /* so that activations are few */
    x.plan.zero_stage = 3;
    x.plan.dp = x.problem.gpus = x.plan.global_batch_size = x.problem.global_batch = 8;
    for (int full = 0; full < 2; full++) {
        x.plan.recompute = full ? DTP_RECOMPUTE_FULL : DTP_RECOMPUTE_NONE;
        struct dtp_stage_memory s = first_stage(&x);
        CU_ASSERT_STRING_EQUAL(s.moment, "end of backward");
        whole[full] = (double)s.activations_bytes;
    }
    CU_ASSERT(whole[0] > 0 && whole[0] == whole[1]);
}

/* Updated parameters of ZeRO-1 arrive in one piece of 100 B each, from which as much again is copied: the peak. */
static void test_flat_gather(void) {
    struct fixture x;
    setup_llama(&x, "megatron-core", 4);
    x.plan.zero_stage = 1;
    x.framework.quirks.whole_gradients.flat_gather_bytes = 0;
    double standing = (double)first_stage(&x).buffers_bytes;
    x.framework.quirks.whole_gradients.flat_gather_bytes = 100;
    struct dtp_stage_memory s = first_stage(&x);
    CU_ASSERT_STRING_EQUAL(s.moment, "parameter gather");
    CU_ASSERT(s.activations_bytes == 0 && s.logits_bytes == 0);
    equal((double)s.buffers_bytes, standing + 2 * 100 * all);
}

/* Autocast keeps 2 B of what products read, which is all but the token table; where layers are recomputed, of the
 * head and what else is outside them. */
static void test_cached_weights(void) {
    struct fixture x;
    setup_llama(&x, "megatron-core", 1);
    for (int full = 0; full < 2; full++) {
        x.plan.recompute = full ? DTP_RECOMPUTE_FULL : DTP_RECOMPUTE_NONE;
        x.framework.quirks.autocast_copies.cached_weight_bytes = 0;
        double without = (double)first_stage(&x).buffers_bytes;
        x.framework.quirks.autocast_copies.cached_weight_bytes = 2;
        equal((double)first_stage(&x).buffers_bytes,
              without + 2 * ((full ? outside : all) - table));
    }
}

/* FSDP, 2 B gathered and 4 B reduced: at the loss the layers gathered ahead, the one in use, and what is outside
 * them. With short sequences the last layer's backward is the peak: its weights and gradients (2 B each) and the
 * copy that is reduced, the weights and gradients outside. */
static void test_unsharded(void) {
    struct fixture x;
    setup_llama(&x, "torch-fsdp2", 8);
    struct dtp_framework_keeps *f = &x.framework.keeps;
    f->fixed_bytes = f->bucket_bytes = 0;
    x.framework.quirks.autocast_copies.cached_weight_bytes = 0;
    f->step_copy_bytes = 0;
    f->gathered_bytes = 2;
    x.framework.wire.reduce_bytes = 4;
    CU_ASSERT_FATAL(f->lazy_gradients && x.framework.quirks.zero_pieces.zero3_unit_params <= 0);
    x.plan.zero_stage = 3;
    for (int ahead = 0; ahead < 3; ahead++) {
        x.framework.wire.zero3_prefetch_layers = ahead;
        x.problem.seq = 65536;
        struct dtp_stage_memory s = first_stage(&x);
        CU_ASSERT_STRING_EQUAL(s.moment, "loss");
        equal((double)s.buffers_bytes, 2 * ((ahead + 1) * layer + outside));
        x.problem.seq = 16;
        s = first_stage(&x);
        CU_ASSERT_STRING_EQUAL(s.moment, "end of backward");
        equal((double)s.buffers_bytes, (2 * 2 + 4) * layer + 2 * 2 * outside);
    }
}

/* Weights that are on the host come layer by layer, 2 B a parameter, the next while one runs. */
static void test_offloaded_weights(void) {
    struct fixture x;
    setup_llama(&x, "deepspeed", 8);
    x.plan.zero_stage = 3;
    x.plan.offload = DTP_OFFLOAD_OPTIMIZER;
    double without = (double)first_stage(&x).buffers_bytes;
    x.plan.offload = DTP_OFFLOAD_PARAMETERS;
    struct dtp_stage_memory s = first_stage(&x);
    CU_ASSERT(s.weights_bytes == 0);
    equal((double)s.buffers_bytes, without + 2 * x.framework.keeps.weight_bytes * layer);
}

/* If the activations of n layers go to the host, two of the layers are on the way or in use, so that their
 * activations stay; no more layers move than there are. */
static void test_moved_layers(void) {
    static const struct {
        int asked, moved;
    } cases[] = {{0, 0}, {1, 0}, {2, 0}, {3, 1}, {10, 8}, {32, 30}, {99, 30}};
    struct fixture x;
    setup_llama(&x, "megatron-bridge", 1);
    x.framework.keeps.step_copy_bytes = 0; /* the update has no activations */
    double whole = (double)first_stage(&x).activations_bytes;
    double one = dtp_memory_layer_activations(&x.problem, &x.plan, DTP_LAYER_DENSE);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        x.problem.offloaded_layers = cases[i].asked;
        equal((double)first_stage(&x).activations_bytes, whole - cases[i].moved * one);
    }
}

/* The clocks of a plan are its own whatever was asked before: by the order of ranks tp spans nodes as dp has it, and
 * copies of gradients are shared by the microbatches. */
static void test_clocks_of_plans(void) {
    struct fixture x;
    for (int copies = 0; copies < 2; copies++) {
        double gpu_s[2];
        setup(&x, "llama2-7b", "nanotron");
        x.framework.wire.rank_order = copies ? "tp-cp-dp-pp" : "dp-cp-tp-pp";
        x.framework.quirks.zero_pieces.zero_copy_bytes = copies ? 8 : 0;
        x.plan.tp = 4;
        x.plan.zero_stage = 1;
        x.plan.global_batch_size = 64;
        struct dtp_memory_memo *memo = dtp_memory_memo_create(arena, &x.problem);
        for (int i = 0; i < 2; i++) {
            x.plan.dp = i == 0 ? 2 : 16;
            gpu_s[i] = dtp_memory_activations(memo, &x.plan)->gpu_s[1];
            struct dtp_memory_memo *fresh = dtp_memory_memo_create(arena, &x.problem);
            CU_ASSERT(gpu_s[i] == dtp_memory_activations(fresh, &x.plan)->gpu_s[1]);
        }
        CU_ASSERT(gpu_s[1] > gpu_s[0]);
    }
}

/* The i-th mixture of what a key leaves blank, and others. */
static void mix_plan(struct dtp_plan *p, int i) {
    p->zero_stage = i & 3;
    p->dp = p->ep = 8;
    p->tp = i & 4 ? 2 : 1;
    p->sequence_parallel = p->tp > 1;
    p->global_batch_size = p->microbatch_size * p->dp * (i & 8 ? 4 : 1);
    p->tp_overlap = p->ep_overlap = p->ep_per_node = (i & 16) != 0;
    p->recompute = i & 32 ? DTP_RECOMPUTE_SELECTIVE : DTP_RECOMPUTE_NONE;
    p->recompute_modules = p->recompute ? DTP_BIT_MLP : 0;
    p->tp_algo = i & 64 ? DTP_ALGO_TREE : DTP_ALGO_AUTO;
}

/* What the key of activations leaves blank does not count, in any framework: all that a layer keeps is what its own
 * key says, whatever was asked before. */
static void test_blank_members(void) {
    static const enum dtp_layer_kind kinds[] = {DTP_LAYER_DENSE, DTP_LAYER_MOE, DTP_LAYER_HEAD};
    const char *const *names;
    size_t n;
    CU_ASSERT_FATAL(dtp_framework_list(arena, &names, &n, NULL) == DTP_OK && n > 10);
    for (size_t f = 0; f < n; f++) {
        struct fixture x;
        setup(&x, "mixtral-8x7b", names[f]);
        if (x.framework.kernels.ops == DTP_OPS_OWN)
            continue;
        struct dtp_memory_memo *memo = dtp_memory_memo_create(arena, &x.problem);
        for (int i = 0; i < 128; i++) {
            mix_plan(&x.plan, i);
            const struct activations *all_kinds = dtp_memory_activations(memo, &x.plan);
            for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
                CU_ASSERT(all_kinds->kept[kinds[k]] ==
                          dtp_memory_layer_activations(&x.problem, &x.plan, kinds[k]));
        }
    }
}

int main(void) {
    CU_TestInfo tests[] = {{"buckets of a reducer", test_reducer},
                           {"logits of each depth", test_logits_of_depths},
                           {"gradients of a layer", test_gradients_of_a_layer},
                           {"the last layer", test_last_layer},
                           {"clocks of plans", test_clocks_of_plans},
                           {"blank members of keys", test_blank_members},
                           {"transfers between stages", test_transfers},
                           {"the piece that is gathered", test_flat_gather},
                           {"weights of autocast", test_cached_weights},
                           {"gathered layers", test_unsharded},
                           {"weights on the host", test_offloaded_weights},
                           {"activations on the host", test_moved_layers},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"buffers", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
