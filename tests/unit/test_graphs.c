/* Pieces of a step as CUDA graphs (runtime/graphs.h), on devices that compute on the CPU and keep what they
 * record: what is enqueued once, recorded, replayed; and whole runs, whose losses must be those without
 * graphs, bit by bit. */
#include "runtime/device/graphs.h"
#include "tests/fake/recorder.h"
#include "tests/runtime_cases.h"
#include "tests/suites.h"

static struct dtp_arena *arena;
static struct dtp_dev_ops recording;

/* ---- pieces ---- */

enum { N = 16 };

/* Adds to[] += from[], n times: a piece of n operations. */
static void add_times(const struct dtp_dev_ops *ops, struct dtp_dev *d, float *const x[2], int n) {
    for (int i = 0; i < n; i++)
        ops->add(d, x[0], x[1], N, true);
}

struct bench {
    struct dtp_dev *d;
    const struct dtp_dev_ops *ops;
    float *x[2];
};

static struct bench open_bench(void) {
    const struct dtp_dev_config config = {.memory_bytes = 1 << 20};
    struct dtp_err err = {0};
    struct bench b = {0};
    recording = *dtp_cpu_dev_ops();
    recorder_table(&recording);
    memset(&recorder, 0, sizeof recorder);
    CU_ASSERT_EQUAL_FATAL(recording.open(arena, &config, &b.d, &err), DTP_OK);
    b.d->ops = &recording;
    b.ops = dtp_graphs_open(arena, b.d);
    for (int i = 0; i < 2; i++) {
        b.x[i] = dtp_heap_alloc(b.d->heap, DTP_MEM_BUFFERS, "x", N * sizeof(float));
        b.ops->zero(b.d, b.x[i], N * sizeof(float));
    }
    b.ops->sync(b.d);
    *b.x[1] = 1;
    return b;
}

static void end_steps(const struct bench *b, int n) {
    for (int i = 0; i < n; i++)
        dtp_graphs_next_step(b->d);
}

static void close_bench(const struct bench *b) {
    b->ops->close(b->d);
}

/* The first time one by one, the second recorded and replayed, then replayed. */
static void test_piece(void) {
    struct bench b = open_bench();
    struct dtp_graphs_stats s;
    end_steps(&b, 2);
    for (int i = 1; i <= 4; i++) {
        add_times(b.ops, b.d, b.x, 5);
        CU_ASSERT_EQUAL(*b.x[0], 5 * (float)(i - 1)); /* nothing has run yet */
        b.ops->event_record(b.d, DTP_STREAM_TP, 0);   /* another stream ends nothing */
        CU_ASSERT_EQUAL(*b.x[0], 5 * (float)(i - 1));
        b.ops->event_record(b.d, DTP_STREAM_COMPUTE, 1);
        CU_ASSERT_EQUAL(*b.x[0], 5 * (float)i);
        CU_ASSERT_EQUAL(recorder.replays, i - 1);
        CU_ASSERT_EQUAL(recorder.ran, 2 + 5);
    }
    dtp_graphs_stats(b.d, &s);
    CU_ASSERT_EQUAL(s.graphs, 1);
    CU_ASSERT_EQUAL(s.kernels, 5);
    close_bench(&b);
}

/* Other arguments, or more of the same, are another piece. */
static void test_change(void) {
    struct bench b = open_bench();
    float *const turned[2] = {b.x[1], b.x[0]};
    end_steps(&b, 2);
    for (int i = 0; i < 2; i++) {
        add_times(b.ops, b.d, b.x, 5);
        b.ops->sync(b.d);
        add_times(b.ops, b.d, turned, 5);
        b.ops->sync(b.d);
        add_times(b.ops, b.d, b.x, 6);
        b.ops->sync(b.d);
        CU_ASSERT_EQUAL(recorder.replays, 3 * i);
    }
    float expected[2] = {0, 1};
    for (int i = 0; i < 2; i++) {
        expected[0] += 5 * expected[1];
        for (int k = 0; k < 5; k++)
            expected[1] += expected[0];
        for (int k = 0; k < 6; k++)
            expected[0] += expected[1];
    }
    CU_ASSERT_EQUAL(*b.x[0], expected[0]);
    CU_ASSERT_EQUAL(*b.x[1], expected[1]);
    close_bench(&b);
}

/* Every call that looks at the compute stream sees what was enqueued before it. */
static void test_ends(void) {
    struct bench b = open_bench();
    float seen = 0, two = 2;
    end_steps(&b, 2);
    add_times(b.ops, b.d, b.x, 1);
    b.ops->copy_out(b.d, &seen, b.x[0], sizeof seen);
    CU_ASSERT_EQUAL(seen, 1);
    add_times(b.ops, b.d, b.x, 1);
    b.ops->copy_in(b.d, b.x[1], &two, sizeof two);
    CU_ASSERT_EQUAL(*b.x[0], 2);
    add_times(b.ops, b.d, b.x, 1);
    CU_ASSERT_EQUAL(b.ops->check(b.d, NULL), DTP_OK);
    CU_ASSERT_EQUAL(*b.x[0], 4);
    add_times(b.ops, b.d, b.x, 1);
    b.ops->mark(b.d, DTP_STREAM_COMPUTE, 0);
    CU_ASSERT_EQUAL(*b.x[0], 6);
    add_times(b.ops, b.d, b.x, 1);
    b.ops->event_wait(b.d, DTP_STREAM_COMPUTE, 0);
    CU_ASSERT_EQUAL(*b.x[0], 8);
    close_bench(&b);
}

/* ---- collectives ---- */

/* Doubles its elements, so that its order among additions shows. With 0 elements it fails. */
static enum dtp_status doubled(struct dtp_comm_group *g, enum dtp_stream stream, void *x, int64_t n,
                               enum dtp_dtype dtype, enum dtp_reduce_op op, struct dtp_err *err) {
    float *value = x;
    (void)g, (void)dtype, (void)op;
    CU_ASSERT_EQUAL(stream, DTP_STREAM_COMPUTE);
    *value *= 2;
    return n > 0 ? DTP_OK : dtp_fail(err, DTP_ENO, "nobody came");
}

static void test_collectives(void) {
    struct bench b = open_bench();
    const struct dtp_comm_ops ops = {.all_reduce = doubled};
    struct dtp_comm comm = {.ops = &ops};
    struct dtp_comm_group group = {.comm = &comm};
    struct dtp_collective_args x = {
        .group = &group, .out = b.x[0], .in = b.x[0], .n = N, .kind = DTP_ALL_REDUCE};
    struct dtp_err err = {0};
    add_times(b.ops, b.d, b.x, 1);
    CU_ASSERT_EQUAL(dtp_graphs_collective(b.d, &x, true, &err), DTP_OK);
    add_times(b.ops, b.d, b.x, 1);
    CU_ASSERT_EQUAL(*b.x[0], 0); /* kept with the others */
    b.ops->sync(b.d);
    CU_ASSERT_EQUAL(*b.x[0], 3);
    add_times(b.ops, b.d, b.x, 1);
    CU_ASSERT_EQUAL(dtp_graphs_collective(b.d, &x, false, &err), DTP_OK); /* behind, and at once */
    CU_ASSERT_EQUAL(*b.x[0], 8);
    x.n = 0;
    CU_ASSERT_EQUAL(dtp_graphs_collective(b.d, &x, true, &err), DTP_OK);
    CU_ASSERT_EQUAL(b.ops->check(b.d, &err), DTP_ENO);
    CU_ASSERT_STRING_EQUAL(err.msg, "nobody came");
    dtp_graphs_forget(b.d); /* the next plan is not to blame */
    CU_ASSERT_EQUAL(b.ops->check(b.d, &err), DTP_OK);
    close_bench(&b);
}

/* When the memory is handed out again, what was recorded is gone. */
static void test_forget(void) {
    struct bench b = open_bench();
    struct dtp_graphs_stats s;
    end_steps(&b, 2);
    for (int i = 0; i < 3; i++) {
        add_times(b.ops, b.d, b.x, 5);
        b.ops->sync(b.d);
    }
    dtp_graphs_forget(b.d);
    dtp_graphs_stats(b.d, &s);
    CU_ASSERT_EQUAL(s.graphs, 0);
    for (int i = 0; i < 2; i++) { /* one more step to learn in */
        add_times(b.ops, b.d, b.x, 5);
        b.ops->sync(b.d);
        end_steps(&b, 1);
        CU_ASSERT_EQUAL(recorder.replays, 2 + i);
    }
    CU_ASSERT_EQUAL(*b.x[0], 25);
    close_bench(&b);
}

/* What was learned in one step is recorded in the second; the share is that of all operations of a step. */
static void test_steps(void) {
    struct bench b = open_bench();
    for (int step = 0; step < 4; step++) {
        struct dtp_graphs_stats s;
        add_times(b.ops, b.d, b.x, 5);
        b.ops->sync(b.d);
        add_times(b.ops, b.d, b.x, 1); /* too few for a graph */
        b.ops->sync(b.d);
        dtp_graphs_next_step(b.d);
        dtp_graphs_stats(b.d, &s);
        CU_ASSERT_EQUAL(recorder.replays, step);
        CU_ASSERT(s.ops == (step == 0 ? 8 : 6) && s.replayed == (step < 1 ? 0 : 5));
    }
    CU_ASSERT_EQUAL(*b.x[0], 24);
    close_bench(&b);
}

static void test_cpu_has_none(void) {
    const struct dtp_dev_config config = {.memory_bytes = 1 << 20};
    struct dtp_dev *d;
    CU_ASSERT_EQUAL_FATAL(dtp_cpu_dev_ops()->open(arena, &config, &d, NULL), DTP_OK);
    CU_ASSERT_PTR_EQUAL(dtp_graphs_open(arena, d), d->ops);
    CU_ASSERT(!dtp_graphs_keep(d));
    d->ops->close(d);
}

/* ---- runs ---- */

static struct dtp_run_result train(const struct dtp_run_options *o, bool graphs) {
    struct dtp_run_result r = {0};
    struct dtp_err err = {0};
    if (!graphs)
        setenv("DTPLAN_CUDA_GRAPHS", "0", 1);
    enum dtp_status status = dtp_run(arena, o, &r, &err);
    unsetenv("DTPLAN_CUDA_GRAPHS");
    if (status != DTP_OK)
        printf("%s\n", err.msg);
    CU_ASSERT_EQUAL_FATAL(status, DTP_OK);
    return r;
}

static void test_runs(void) {
    static const struct {
        int tp, pp, dp, vpp, zero_stage;
        bool sequence_parallel;
        int schedule, recompute;
        double least; /* share of the operations that are in graphs */
    } cases[] = {
        {1, 1, 1, 1, 0, false, DTP_SCHED_1F1B, 0, 0.99},
        {1, 1, 1, 1, 0, false, DTP_SCHED_1F1B, 2, 0.99},
        {2, 1, 1, 1, 0, false, DTP_SCHED_1F1B, 0, 0.95},
        {2, 1, 1, 1, 0, true, DTP_SCHED_1F1B, 1, 0.7},
        {1, 2, 1, 1, 0, false, DTP_SCHED_1F1B, 0, 0.99},
        {1, 2, 1, 2, 0, false, DTP_SCHED_INTERLEAVED, 0, 0.99},
        {1, 2, 1, 1, 0, false, DTP_SCHED_ZB_H1, 2, 0.99},
        {1, 2, 1, 1, 0, false, DTP_SCHED_GPIPE, 2, 0.99},
        {1, 4, 1, 1, 0, false, DTP_SCHED_1F1B, 2, 0.99},
        {1, 2, 1, 2, 0, false, DTP_SCHED_BREADTH_FIRST, 2, 0.99},
        {1, 1, 2, 1, 1, false, DTP_SCHED_1F1B, 0, 0.9},
        {1, 1, 2, 1, 3, false, DTP_SCHED_1F1B, 0, 0.9},
    };
    const struct dtp_model gpt = tiny_model("gpt"), llama = tiny_model("llama");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dtp_run_options o = tiny_options(i % 2 ? &llama : &gpt);
        o.backend = "cuda";
        o.steps = 6;
        o.memory_bytes = UINT64_C(64) << 20;
        o.plan = with_degrees(o.plan, cases[i].tp, cases[i].pp, cases[i].dp);
        o.plan.vpp = cases[i].vpp;
        o.plan.zero_stage = cases[i].zero_stage;
        o.plan.sequence_parallel = cases[i].sequence_parallel;
        o.plan.schedule = cases[i].schedule;
        o.plan.recompute = (enum dtp_recompute)cases[i].recompute;
        const struct dtp_run_result without = train(&o, false), with = train(&o, true);
        printf("     case %zu: %d graphs, %.2f of the operations\n", i, with.graphs,
               with.graph_share);
        CU_ASSERT_EQUAL(memcmp(without.loss, with.loss, 6 * sizeof *with.loss), 0);
        o.backend =
            "cpu"; /* sends of a CPU are done at once, so that the peaks are those of the schedule */
        const struct dtp_run_result cpu = train(&o, true);
        size_t peaks_bytes = (size_t)cpu.nranks * sizeof *cpu.peak_bytes;
        CU_ASSERT_EQUAL(memcmp(cpu.peak_bytes, without.peak_bytes, peaks_bytes), 0);
        CU_ASSERT_EQUAL(memcmp(cpu.peak_bytes, with.peak_bytes, peaks_bytes), 0);
        CU_ASSERT_EQUAL(without.graphs, 0);
        CU_ASSERT(with.graph_share >= cases[i].least);
        o.backend = "cuda";
        o.steps = dtp_run_warm_up(&o); /* nothing is left to be recorded in steps that count */
        CU_ASSERT_EQUAL(train(&o, true).graphs, with.graphs);
    }
}

static struct dtp_run_options tensor_parallel(const struct dtp_model *m) {
    struct dtp_run_options o = tiny_options(m);
    o.backend = "cuda";
    o.steps = 6;
    o.memory_bytes = UINT64_C(64) << 20;
    o.plan = with_degrees(o.plan, 2, 1, 1);
    o.plan.sequence_parallel = true;
    return o;
}

/* Collectives meet, in the order of the actions, also where one rank replays and the other enqueues. */
static void test_one_rank_without(void) {
    const struct dtp_model llama = tiny_model("llama");
    const struct dtp_run_options o = tensor_parallel(&llama);
    const struct dtp_run_result without = train(&o, false);
    for (int rank = 0; rank < 2; rank++) {
        setenv("DTPLAN_FAKE_NO_GRAPHS", rank == 0 ? "0" : "1", 1);
        const struct dtp_run_result one = train(&o, true);
        unsetenv("DTPLAN_FAKE_NO_GRAPHS");
        CU_ASSERT_EQUAL(memcmp(without.loss, one.loss, 6 * sizeof *one.loss), 0);
        CU_ASSERT_EQUAL(one.graphs > 0, rank == 1); /* rank 0's graphs */
    }
}

/* A rank that waits within a graph for one that does not come: the job ends and names it and its action. */
static void test_failures(void) {
    static const struct {
        enum dtp_fault fault;
        const char *says;
    } cases[] = {{DTP_FAULT_KILL, "rank 1 died in 0F1 of step 4"},
                 {DTP_FAULT_HANG, "rank 1 hangs in 0F1 of step 4"}};
    const struct dtp_model llama = tiny_model("llama");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dtp_run_options o = tensor_parallel(&llama);
        struct dtp_run_result r;
        struct dtp_err err = {0};
        o.fault = cases[i].fault;
        o.fault_rank = 1;
        o.fault_step = 4;
        o.fault_action = 2;
        o.timeout_s = 1;
        CU_ASSERT_NOT_EQUAL(dtp_run(arena, &o, &r, &err), DTP_OK);
        CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, cases[i].says));
        printf("     %s\n", err.msg);
    }
}

/* A mask is another in each step, of the same graphs. */
static void test_dropout(void) {
    const struct dtp_model gpt = tiny_model("gpt");
    struct dtp_run_options o = tiny_options(&gpt);
    o.backend = "cuda";
    o.steps = 4;
    o.memory_bytes = UINT64_C(64) << 20;
    o.dropout = o.attention_dropout = 0.1;
    o.plan.global_batch_size = 8;
    const struct dtp_run_result without = train(&o, false), with = train(&o, true);
    CU_ASSERT_EQUAL(memcmp(without.loss, with.loss, 4 * sizeof *with.loss), 0);
    CU_ASSERT(with.graph_share > 0.99);
}

int main(void) {
    CU_TestInfo pieces[] = {{"a piece", test_piece},          {"changes", test_change},
                            {"what ends a piece", test_ends}, {"collectives", test_collectives},
                            {"forgetting", test_forget},      {"steps", test_steps},
                            {"the CPU", test_cpu_has_none},   CU_TEST_INFO_NULL};
    CU_TestInfo runs[] = {{"layouts", test_runs},
                          {"one rank without", test_one_rank_without},
                          {"failures", test_failures},
                          {"with dropout", test_dropout},
                          CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"pieces", NULL, NULL, NULL, NULL, pieces},
                             {"runs", NULL, NULL, NULL, NULL, runs},
                             CU_SUITE_INFO_NULL};
    take_fake_module();
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
