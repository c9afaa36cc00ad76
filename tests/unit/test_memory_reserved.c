/* The memory that PyTorch's caching allocator reserves is compared with a replay of it, and with the rules of
 * memory_reserved.c. */
#include "tests/memory_case.h"

/* The 1B model of the Ultra-Scale Playbook, on cards with room. */
static void setup_playbook(struct fixture *x) {
    setup(x, "llama2-7b", "nanotron");
    x->model.layers = 16;
    x->model.hidden = 2048;
    x->model.heads = x->model.kv_heads = 32;
    x->model.head_dim = 64;
    x->model.ffn = 8192;
    x->model.vocab = 131072;
    x->model.tied_embeddings = true;
    x->problem.seq = 4096;
    x->problem.memory_limit_bytes = (uint64_t)1 << 40;
    x->plan.dtype = x->problem.dtype = DTP_BF16;
}

static double reserved_of(const struct fixture *x) {
    struct dtp_stage_memory s[DTP_MAX_STAGES];
    dtp_memory(dtp_memory_memo_create(arena, &x->problem), &x->plan, s);
    return (double)s[0].reserved_bytes;
}

/* What a replay of the allocator had reserved. */
struct replay {
    int zero_stage, dp, microbatch, m;
    double reserved_gib;
};

static void replayed(struct fixture *x, const struct replay *r, double tolerance) {
    x->plan.zero_stage = r->zero_stage;
    x->plan.dp = r->dp;
    x->plan.microbatch_size = r->microbatch;
    x->plan.global_batch_size = r->dp * r->microbatch * r->m;
    double gib = reserved_of(x) / DTP_GIB;
    bool near = fabs(gib / r->reserved_gib - 1) < tolerance;
    if (!near)
        printf("\n  ZeRO-%d, dp %d, microbatch %d: %.2f GiB instead of %.1f\n", r->zero_stage,
               r->dp, r->microbatch, gib, r->reserved_gib);
    CU_ASSERT(near);
}

/* The prediction is compared with the GiB that a replay of PyTorch's caching allocator reserved (2 and 20 MiB
 * segments, best fit, splitting and merging, 32 MiB of cuBLAS workspace for each thread) over all tensors that
 * nanotron's models/llama.py makes in three steps. */
static void test_replay(void) {
    static const struct replay replay[] = {
        {0, 8, 1, 32, 36.7},  {0, 256, 1, 1, 36.7}, {0, 128, 2, 1, 48.3},
        {0, 8, 2, 16, 50.2},  {1, 8, 1, 32, 24.2},  {1, 64, 1, 4, 23.8},
        {1, 256, 1, 1, 21.7}, {1, 16, 2, 8, 35.0},  {1, 64, 2, 2, 34.8}};
    struct fixture x;
    setup_playbook(&x);
    for (size_t i = 0; i < sizeof replay / sizeof *replay; i++)
        replayed(&x, &replay[i], 0.025);
}

/* H = 2 s b h bytes of a reduce-scatter's input; two for each layer whose forward is in the queue. */
static void test_deferred(void) {
    struct fixture x;
    setup_playbook(&x);
    x.plan.tp = 8;
    x.plan.sequence_parallel = true;
    x.framework.quirks.allocator_replay.logits_split_bytes = 0;
    x.framework.quirks.allocator_replay.host_lead = 1; /* the queue is always full */
    double H = 2.0 * 4096 * 2048, queue = x.framework.quirks.allocator_replay.queue_layers;
    x.framework.quirks.allocator_replay.queue_layers = 0;
    double none = reserved_of(&x);
    x.framework.quirks.allocator_replay.queue_layers = queue;
    equal(reserved_of(&x) - none, 2 * 16 * H); /* the step's only forward */
    x.plan.global_batch_size = 8;
    double several = reserved_of(&x) - none; /* and the backward before */
    CU_ASSERT(several > 2 * 16 * H && several < 4 * 16 * H);
    x.framework.host.checked_collectives = true;
    equal(reserved_of(&x), none); /* the host does not run ahead ... */
    x.plan.pp = 4;
    x.framework.quirks.allocator_replay.queue_layers = 0;
    none = reserved_of(&x);
    x.framework.quirks.allocator_replay.queue_layers = queue;
    /* ... but in the warm-up: pp - 2 forwards of four layers and the embedding */
    equal(reserved_of(&x) - none, 2 * (2 * 4 + 1) * H);
    x.plan.microbatch_size = 64; /* layers that take the GPU longer than the host */
    x.plan.global_batch_size = 16 * 64;
    CU_ASSERT(reserved_of(&x) > none + 2 * 64 * 20 * H);
    x.framework.host.checked_transfers = true;
    x.framework.quirks.polled_checks.check_poll_s = 0;
    x.framework.quirks.allocator_replay.queue_layers = 0;
    none = reserved_of(&x);
    x.framework.quirks.allocator_replay.queue_layers = queue;
    equal(reserved_of(&x), none);
    x.framework.host.checked_transfers = x.framework.host.checked_collectives = false;
    x.problem.memory_limit_bytes = 0; /* a full card gives all back */
    CU_ASSERT(reserved_of(&x) <= none);
}

/* The part of the split logits that the moments (8 P bytes over dp) do not take holds deferred inputs. */
static void test_deferred_in_logits(void) {
    struct fixture x;
    setup_playbook(&x);
    x.plan.tp = 8;
    x.plan.sequence_parallel = true;
    x.plan.zero_stage = 1;
    x.plan.dp = 256;
    x.plan.global_batch_size = 512;
    x.framework.quirks.allocator_replay.host_lead = 1;
    double queue = x.framework.quirks.allocator_replay.queue_layers, more[2];
    for (int i = 0; i < 2; i++) {
        x.framework.quirks.allocator_replay.logits_split_bytes = i == 0 ? 0 : 4;
        more[i] = reserved_of(&x);
        x.framework.quirks.allocator_replay.queue_layers = 0;
        more[i] -= reserved_of(&x);
        x.framework.quirks.allocator_replay.queue_layers = queue;
    }
    struct dtp_stage_memory s;
    dtp_memory(dtp_memory_memo_create(arena, &x.problem), &x.plan, &s);
    double left = 4.0 * 4096 * 131072 / 8 - 8.0 * (double)s.params / 256;
    CU_ASSERT(left > 0 && fabs(more[0] - more[1] - left) < 8); /* up to whole bytes */
}

/* Returns the bytes that the split logits take in addition to all else. */
static double split_logits(struct fixture *x, int tp, int microbatch) {
    x->plan.tp = tp;
    x->plan.microbatch_size = microbatch;
    x->plan.global_batch_size = 2 * microbatch * x->plan.dp;
    double all = reserved_of(x);
    x->framework.quirks.allocator_replay.logits_split_bytes = 0;
    double more = all - reserved_of(x);
    x->framework.quirks.allocator_replay.logits_split_bytes = 4;
    return more;
}

/* The workspace of 32 MiB takes a freed sum of 128 where checks keep the host busy, but not one of 32 next to the
 * last norm's output, none where the GPU is busier and has not freed them, none larger than the logits, and without
 * tp there is none. */
static void test_workspace_in_sum(void) {
    struct fixture x;
    setup_playbook(&x);
    x.plan.sequence_parallel = true;
    x.plan.zero_stage = 1;
    x.plan.dp = 256;
    x.framework.host.checked_collectives = true;
    x.framework.quirks.whole_gradients.flat_gather_bytes = 0;
    x.framework.quirks.allocator_replay.queue_layers =
        1; /* deferred inputs fill little of what is left */
    CU_ASSERT(split_logits(&x, 16, 8) == 0);
    CU_ASSERT(split_logits(&x, 16, 2) > 0);
    CU_ASSERT(split_logits(&x, 4, 32) > 0);
    x.model.vocab = 15000; /* 4 v / tp bytes a token of the logits, 2 h (1 - 1 / tp) of the sum */
    CU_ASSERT(split_logits(&x, 16, 8) > 0);
    x.model.vocab = 16000;
    CU_ASSERT(split_logits(&x, 16, 8) == 0);
    x.model.vocab = 131072;
    x.plan.sequence_parallel = false;
    CU_ASSERT(split_logits(&x, 1, 32) > 0);
}

/* Bytes that deferred inputs of reduce-scatters take, in those of one. */
static double deferred_inputs(struct fixture *x) {
    double H = 2.0 * 4096 * 2048 * x->plan.microbatch_size,
           queue = x->framework.quirks.allocator_replay.queue_layers;
    x->plan.global_batch_size = x->plan.microbatch_size * x->plan.global_batch_size;
    double all = reserved_of(x);
    x->framework.quirks.allocator_replay.queue_layers = 0;
    double more = (all - reserved_of(x)) / H;
    x->framework.quirks.allocator_replay.queue_layers = queue;
    x->plan.global_batch_size /= x->plan.microbatch_size;
    return more;
}

/* A step's only forward: of 16 layers the GPU has done all but host_lead where they keep the host busier, all but
 * 1 - host / GPU where they keep the GPU busier; of many microbatches the queue is full in both. */
static void test_host_lead(void) {
    struct fixture x;
    setup_playbook(&x);
    x.plan.tp = 8;
    x.plan.sequence_parallel = true;
    x.framework.quirks.allocator_replay.logits_split_bytes = 0;
    x.framework.quirks.allocator_replay.host_lead = 0.02;
    CU_ASSERT(fabs(deferred_inputs(&x) - 2 * 16 * 0.02) < 1e-6);
    x.plan.global_batch_size = 256;
    double full = deferred_inputs(&x);
    CU_ASSERT(full > 2 * 16);
    x.plan.microbatch_size = 16;
    CU_ASSERT(fabs(deferred_inputs(&x) - full) < 1e-6);
    x.plan.global_batch_size = 1;
    double some = deferred_inputs(&x);
    x.plan.microbatch_size = 64;
    CU_ASSERT(2 * 16 * 0.5 < some && some < deferred_inputs(&x) && deferred_inputs(&x) < 2 * 16);
}

/* A first stage of four layers whose transfers are polled: while it waits for a gradient up to a tenth of a second its
 * host launches so many layers of the backward, of 1.95 ms and some launches and checks each; longer, all and the next forward
 * with its embedding. The one gradient of a step without accumulation is waited for a quarter as long in the mean,
 * a forward does not follow. Two stages wait in turn. */
static void test_polled_gradients(void) {
    struct fixture x;
    setup_playbook(&x);
    x.plan.tp = 8;
    x.plan.pp = 4;
    x.plan.sequence_parallel = true;
    x.framework.host.checked_collectives = x.framework.host.checked_transfers = true;
    double few[2], long_poll = 10;
    x.framework.quirks.polled_checks.check_poll_s = 0.04;
    x.plan.global_batch_size = 4;
    few[0] = deferred_inputs(&x);
    x.plan.global_batch_size = 256;
    few[1] = deferred_inputs(&x);
    CU_ASSERT(few[0] > 0 && few[1] > 3.8 * few[0] && few[1] < 4 * few[0]);
    x.framework.quirks.polled_checks.check_poll_s = long_poll;
    equal(deferred_inputs(&x), 2 * 4 + 2 * 4 + 1);
    x.plan.global_batch_size = 4;
    equal(deferred_inputs(&x), 2 * 4);
    x.plan.pp = 2;
    equal(deferred_inputs(&x), 0);
}

/* If the queue's inputs find no room, the allocator waits for them and gives back what is free; then the
 * backward fills the queue, with fewer of its longer layers than of forwards. */
static void test_deferred_without_room(void) {
    struct fixture x;
    setup_playbook(&x);
    x.plan.tp = 8;
    x.plan.sequence_parallel = true;
    x.plan.microbatch_size = 64;
    x.plan.global_batch_size = 64;
    struct dtp_stage_memory s, card;
    dtp_memory(dtp_memory_memo_create(arena, &x.problem), &x.plan, &s);
    x.problem.memory_limit_bytes = s.wanted_bytes;
    dtp_memory(dtp_memory_memo_create(arena, &x.problem), &x.plan, &card);
    CU_ASSERT(card.wanted_bytes == s.wanted_bytes && card.device_bytes == s.device_bytes);
    double gone = (double)(s.reserved_bytes - card.reserved_bytes) / (2.0 * 4096 * 2048 * 64);
    CU_ASSERT(gone > 16 / 2 && gone < 2 * 16);
}

/* ZeRO-1 of DeepSpeed copies P parameters in 16 bit to reduce them and again to gather them, all at once: 4 P
 * bytes; where launches are blocked a piece of each, of 5e8 and of P / 2. Freed logits of 8 sequences hold all, of
 * 3 (V s = 1.03e8 each, in 16 bit and twice in fp32) two pieces of 1e9 bytes to reduce and none to gather. */
static void test_pieces(void) {
    struct fixture x;
    setup(&x, "gpt3-1.3b", "megatron-deepspeed-2021");
    x.problem.memory_limit_bytes = (uint64_t)1 << 40;
    x.plan.zero_stage = 1;
    x.plan.dp = 8;
    double all = 24 * (12.0 * 2048 * 2048 + 13 * 2048) + (50257 + 2048 + 2) * 2048.0;
    const double want[] = {4 * all, 2 * 5e8 + all, 0, 4 * all - 2 * 1e9};
    const int microbatch[] = {1, 1, 8, 3};
    for (int i = 0; i < 4; i++) {
        x.framework.host.launch_blocking = i == 1;
        x.plan.microbatch_size = microbatch[i];
        x.plan.global_batch_size = 8 * microbatch[i];
        x.framework.quirks.allocator_replay.piece_params = 5e8;
        double with = reserved_of(&x);
        x.framework.quirks.allocator_replay.piece_params = 0;
        equal(with - reserved_of(&x), want[i]);
    }
}

/* With two microbatches in two stages no forward follows a backward, so that one forward is in the queue; with
 * more of them two, and a backward. */
static void test_deferred_in_pipeline(void) {
    struct fixture x;
    setup_playbook(&x);
    x.plan.tp = 8;
    x.plan.pp = 2;
    x.plan.sequence_parallel = true;
    x.framework.quirks.allocator_replay.host_lead = 1;
    double H = 2.0 * 4096 * 2048, queue = x.framework.quirks.allocator_replay.queue_layers;
    for (int m = 1; m <= 4; m++) {
        x.plan.global_batch_size = m;
        x.framework.quirks.allocator_replay.queue_layers = 0;
        double none = reserved_of(&x);
        x.framework.quirks.allocator_replay.queue_layers = queue;
        double more = (reserved_of(&x) - none) / H;
        CU_ASSERT(m <= 2 ? fabs(more - (2 * 8 + 1)) < 1e-6 : more > 2 * (2 * 8 + 1));
    }
}

/* First stages of the playbook's pipelines are compared with a replay as above that also makes the copies
 * of ZeRO-1's gather (for each rank's piece and all in one) after the first step's backward, and the moments before
 * them. */
static void test_replay_of_pipelines(void) {
    static const struct {
        int hidden, layers;
        struct replay row;
    } replay[] = {{2048, 10, {1, 16, 1, 16, 16.1}}, {2048, 10, {1, 32, 2, 4, 24.3}},
                  {2048, 10, {1, 64, 4, 1, 24.1}},  {2048, 10, {1, 4, 4, 16, 41.4}},
                  {2048, 10, {0, 32, 1, 8, 26.4}},  {4096, 18, {1, 128, 1, 2, 65.5}},
                  {4096, 18, {1, 256, 1, 1, 52.0}}, {4096, 18, {1, 16, 1, 16, 75.7}},
                  {4096, 18, {1, 4, 1, 64, 81.4}}};
    for (size_t i = 0; i < sizeof replay / sizeof *replay; i++) {
        struct fixture x;
        setup_playbook(&x);
        bool large = replay[i].hidden == 4096;
        x.model.hidden = replay[i].hidden;
        x.model.head_dim = large ? 128 : 64;
        x.model.ffn = large ? 14336 : 8192;
        x.model.layers = large ? 32 : 16;
        x.model.tied_embeddings = !large;
        int layers[] = {replay[i].layers, x.model.layers - replay[i].layers};
        x.plan.layers_per_stage = (struct dtp_ints){.at = layers, .n = 2};
        x.plan.pp = 2;
        replayed(&x, &replay[i].row, 0.04);
    }
}

/* If the gather's copies find no room, the allocator gives back all that is free: what is left is the step's peak
 * and the gradient of the embedding, which no freed block holds. What was wanted is still told. */
static void test_gather_without_room(void) {
    struct fixture x;
    struct dtp_stage_memory endless[2], card[2];
    setup_playbook(&x);
    x.plan.pp = 2;
    x.plan.zero_stage = 1;
    x.plan.dp = 4;
    x.plan.global_batch_size = 16;
    dtp_memory(dtp_memory_memo_create(arena, &x.problem), &x.plan, endless);
    CU_ASSERT(endless[0].wanted_bytes == endless[0].reserved_bytes);
    double needed = round((double)endless[0].peak_bytes * x.framework.keeps.allocator_factor);
    uint64_t room = endless[0].wanted_bytes + endless[0].device_bytes - (uint64_t)needed;
    for (int i = 0; i < 2; i++) {
        x.problem.memory_limit_bytes = room - (i == 0 ? 0 : 4096);
        dtp_memory(dtp_memory_memo_create(arena, &x.problem), &x.plan, card);
        CU_ASSERT(card[0].wanted_bytes == endless[0].wanted_bytes);
        CU_ASSERT(card[0].device_bytes == endless[0].device_bytes);
        if (i == 0)
            CU_ASSERT(card[0].reserved_bytes == endless[0].reserved_bytes);
    }
    equal((double)card[0].reserved_bytes,
          needed + x.framework.quirks.allocator_replay.table_gradient_bytes * 131072 * 2048);
}

/* Sums of a step's last forward and of the backward before it, two a layer of H bytes; where they have no room the queue
 * is filled again by backwards alone. */
static void test_deferred_of_one_stage(void) {
    struct fixture x;
    struct dtp_stage_memory s;
    setup_playbook(&x);
    x.plan.tp = 8;
    x.plan.global_batch_size = 8;
    x.plan.sequence_parallel = true;
    x.framework.quirks.allocator_replay.logits_split_bytes = 0;
    x.framework.quirks.allocator_replay.host_lead = 1;
    double H = 2.0 * 4096 * 2048;
    x.framework.quirks.allocator_replay.queue_layers = 0;
    double none = reserved_of(&x);
    x.framework.quirks.allocator_replay.queue_layers = 1000;
    equal(reserved_of(&x) - none, (2 + 2) * 16 * H);
    dtp_memory(dtp_memory_memo_create(arena, &x.problem), &x.plan, &s);
    double needed = round((double)s.peak_bytes * x.framework.keeps.allocator_factor);
    x.problem.memory_limit_bytes = s.wanted_bytes + s.device_bytes - (uint64_t)needed - 4096;
    equal(reserved_of(&x) - none, 2 * 16 * H);
}

/* Pieces too large for any freed block are newly allocated: one for each of 4 ranks and the rank's own, each a
 * quarter of the flat tensor, and the flat tensor itself. */
static void test_pieces_anew(void) {
    struct fixture x;
    struct dtp_stage_memory s[2];
    double wanted[2];
    setup_playbook(&x);
    x.plan.pp = 2;
    x.plan.zero_stage = 1;
    x.plan.dp = 4;
    x.plan.global_batch_size = 16;
    x.framework.keeps.allocator_factor = 1;
    for (int i = 0; i < 2; i++) {
        x.framework.quirks.whole_gradients.flat_gather_bytes = 1000 * (i + 1);
        dtp_memory(dtp_memory_memo_create(arena, &x.problem), &x.plan, s);
        wanted[i] = (double)s[0].wanted_bytes;
    }
    double flat = 1000 * (double)s[0].params;
    CU_ASSERT_DOUBLE_EQUAL(wanted[1] - wanted[0], flat + (4 + 1) * flat / 4, 16);
}

int main(void) {
    CU_TestInfo tests[] = {{"replay of the allocator", test_replay},
                           {"deferred frees", test_deferred},
                           {"deferred beside logits", test_deferred_in_logits},
                           {"workspace in a freed sum", test_workspace_in_sum},
                           {"lead of the host", test_host_lead},
                           {"polled gradients", test_polled_gradients},
                           {"deferred without room", test_deferred_without_room},
                           {"pieces of ZeRO-1", test_pieces},
                           {"deferred frees in pipelines", test_deferred_in_pipeline},
                           {"replay of pipelines", test_replay_of_pipelines},
                           {"deferred without room, filled", test_deferred_of_one_stage},
                           {"gather without room", test_gather_without_room},
                           {"pieces asked for anew", test_pieces_anew},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"memory_reserved", NULL, NULL, NULL, NULL, tests},
                             CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
