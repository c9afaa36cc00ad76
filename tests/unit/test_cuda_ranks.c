/* Layouts of 2, 4 and 8 ranks, on however many GPUs there are: those in which every pair of settings of tp, pp
 * with schedule and chunks, dp, ZeRO, sequence parallelism, recomputation and microbatch appears (planner/cover.h).
 * Each one's losses are those of the CPU, and each rank's peak of memory is the predicted one, to the byte. GPT, Llama
 * and GPT with dropout take turns; in fp32 and in bf16. Ranks share GPUs where there are fewer. Without a GPU it says so
 * and skips.
 *
 *     test_cuda_ranks [RANKS DTYPE FIRST N]...    only these: of RANKS ranks in DTYPE, N from the FIRST on (0: all) */
#include <math.h>

#include "models/ops/op_native.h"
#include "planner/cli/check_internal.h"
#include "planner/space.h"
#include "runtime/launch.h"
#include "tests/cuda_runs.h"

enum { FEW_STEPS = 5, TOKENS = 64, BATCH = 8, NKINDS = 3, MOST_ASKED = 16, MOST_MICROBATCHES = 2 };

static struct kind {
    const char *name, *dropout, *json;
    const struct dtp_json *model;
    double *loss; /* on the CPU */
} kinds[NKINDS] = {
    {.name = "GPT",
     .json = "{\"family\": \"gpt\", \"source\": \"a test\", \"layers\": 8, \"hidden\": 512,"
             " \"heads\": 8, \"ffn\": 512, \"vocab\": 128, \"seq\": 64, \"global_batch\": 8}"},
    {.name = "Llama",
     .json = "{\"family\": \"llama\", \"source\": \"a test\", \"layers\": 8, \"hidden\": 512,"
             " \"heads\": 8, \"kv_heads\": 4, \"ffn\": 512, \"vocab\": 128, \"seq\": 64,"
             " \"global_batch\": 8}"},
    {.name = "GPT, dropout", .dropout = "0.1"},
};

/* Losses may differ by this share from those on the CPU; 1.4e-6 and 8.1e-3 were measured. */
static double within(enum dtp_dtype dtype) {
    return dtype == DTP_FP32 ? 1e-5 : 2e-2;
}

/* ---- what runs, and what is expected of it ---- */

static struct asked {
    int ranks;
    enum dtp_dtype dtype;
    size_t first, n; /* n 0: all */
} asked[MOST_ASKED] = {{2, DTP_FP32, 0, 0}, {4, DTP_FP32, 0, 0}, {8, DTP_FP32, 0, 0},
                       {2, DTP_BF16, 0, 0}, {4, DTP_BF16, 0, 0}, {8, DTP_BF16, 0, 0}};
static size_t nasked = 6;

/* Layouts of one number of ranks and dtype. */
struct cover {
    struct dtp_setup *setup[NKINDS];
    struct dtp_run_options *o;
    size_t first, n;
    double within, worst;
    int failed;
};

static int kind_of(const struct cover *c, size_t i) {
    int k = 0;
    while (c->o[i].model != &c->setup[k]->model)
        k++;
    return k;
}

static struct dtp_setup *set_up(int kind, int ranks, enum dtp_dtype dtype) {
    struct dtp_setup *s = DTP_NEW(arena, struct dtp_setup, 1);
    struct dtp_err err = {0};
    const struct dtp_ask ask = {.model_json = kinds[kind].model,
                                .cluster = "hgx-h200",
                                .framework = "dtplan",
                                .dropout = kinds[kind].dropout ? kinds[kind].dropout : "0",
                                .gpus = ranks,
                                .dtype = (int)dtype,
                                .attention = -1};
    if (dtp_setup_init(arena, &ask, s, &err) != DTP_OK)
        printf("%s\n", err.msg);
    return s;
}

static struct dtp_run_options few_steps(const struct dtp_setup *s, const char *backend) {
    struct dtp_run_options o = options(&s->model, backend, s->problem.dtype);
    o.seq = TOKENS;
    o.steps = FEW_STEPS;
    o.lr = 0.0003;
    o.dropout = s->framework.kernels.dropout ? s->model.dropout : 0;
    o.attention_dropout = s->framework.kernels.dropout ? s->model.attention_dropout : 0;
    o.plan.global_batch_size = BATCH;
    o.timeout_s = 10;
    return o;
}

/* Few microbatches a stage: an exchange of processes that share a GPU takes milliseconds. */
static size_t legal_plans(const struct dtp_setup *s, struct dtp_plan **out) {
    struct dtp_limits limits = dtp_limits_none();
    struct dtp_run_options o = few_steps(s, "cuda");
    struct dtp_space space;
    size_t n = 0;
    limits.fixed.dtype = s->problem.dtype;
    dtp_space_init(arena, &s->problem, &limits, &space);
    *out = DTP_NEW(arena, struct dtp_plan, space.ncandidates);
    for (uint64_t i = 0; i < space.ncandidates; i++) {
        dtp_space_candidate(&space, i, &o.plan);
        o.plan = dtp_check_resolved(&o.plan, &s->framework);
        if (dtp_plan_num_microbatches(&o.plan) <= MOST_MICROBATCHES * o.plan.pp &&
            dtp_plan_check(&s->problem, &o.plan) == DTP_LEGAL && dtp_run_check(&o, NULL) == DTP_OK)
            (*out)[n++] = o.plan;
    }
    return n;
}

/* GPT's layouts, which Llama has too: of every three that follow each other one is of each kind. */
static void make_cover(const struct asked *x, struct cover *out) {
    struct dtp_plan *plan;
    *out = (struct cover){.first = x->first, .within = within(x->dtype)};
    for (int k = 0; k < NKINDS; k++)
        out->setup[k] = set_up(k, x->ranks, x->dtype);
    size_t n = legal_plans(out->setup[0], &plan), *index = DTP_NEW(arena, size_t, n);
    size_t all = dtp_plan_cover(arena, plan, n, 0, index);
    out->o = DTP_NEW(arena, struct dtp_run_options, all);
    for (size_t i = x->first; i < all && (x->n == 0 || out->n < x->n); i++) {
        struct dtp_run_options o = few_steps(out->setup[i % NKINDS], "cuda");
        o.plan = plan[index[i]];
        out->o[out->n++] = o;
    }
    printf("\n     %d ranks, %s: %zu legal layouts, %zu in the cover, %zu to run\n", x->ranks,
           dtp_dtype_names[x->dtype], n, all, out->n);
}

/* The worst difference of a rank's peak from the one that its stage is to have, in bytes. */
static double peak_error(const struct dtp_setup *s, const struct dtp_plan *p,
                         const struct dtp_run_result *r) {
    struct dtp_stage_memory *stages = DTP_NEW(arena, struct dtp_stage_memory, (size_t)p->pp);
    double worst_bytes = 0;
    dtp_memory_native(arena, &s->problem, p, stages);
    for (int i = 0; i < r->nranks; i++) {
        double is = (double)stages[i / (p->tp * p->dp)].peak_bytes;
        double off = (double)r->peak_bytes[i] - is;
        worst_bytes = fabs(off) > fabs(worst_bytes) ? off : worst_bytes;
    }
    return worst_bytes;
}

static void compare(void *context, size_t i, const struct dtp_run_result *r,
                    const struct dtp_err *failure) {
    struct cover *c = context;
    const struct dtp_run_options *o = &c->o[i];
    int kind = kind_of(c, i);
    double worst = r ? 0 : (double)INFINITY, off_bytes = 0;
    for (int k = 0; r && k < FEW_STEPS; k++)
        worst = fmax(worst, fabs(r->loss[k] - kinds[kind].loss[k]));
    if (r)
        off_bytes = peak_error(c->setup[kind], &o->plan, r);
    bool good = worst <= c->within && off_bytes == 0;
    c->worst = fmax(c->worst, worst);
    c->failed += !good;
    printf("%s %3zu %-12s losses %.1e, peak %+.0f, open %.1f s, step %.0f ms, graphs %.2f: %s %s\n",
           good ? "    " : "FAIL", c->first + i, kinds[kind].name, worst, off_bytes,
           r ? r->open_s : 0, r ? r->step_s * 1e3 : 0, r ? r->graph_share : 0,
           dtp_plan_flags(arena, &o->plan), failure ? failure->msg : "");
    fflush(stdout);
    CU_ASSERT(good);
}

/* ---- the tests ---- */

static void test_layouts(void) {
    for (size_t i = 0; i < nasked; i++) {
        struct dtp_err err = {0};
        struct cover c;
        share_gpus(asked[i].ranks);
        make_cover(&asked[i], &c);
        const struct dtp_run_series s = {.options = c.o, .n = c.n, .done = compare, .context = &c};
        CU_ASSERT_EQUAL(dtp_run_series(arena, &s, &err), DTP_OK);
        printf("     %zu layouts, %d failed, losses within %.1e (of %.0e)\n", c.n, c.failed,
               c.worst, c.within);
    }
}

/* Losses on the CPU, of a rank for each core: those of the serial run (tests/property/test_runtime_layouts.c). They
 * have to move, or equal ones would mean little. */
static bool references(void) {
    struct dtp_err err = {0};
    kinds[2].json = kinds[0].json;
    for (int k = 0; k < NKINDS; k++) {
        struct dtp_run_result r;
        if (dtp_json_parse(arena, "test", kinds[k].json, strlen(kinds[k].json), &kinds[k].model,
                           &err) != DTP_OK)
            return false;
        struct dtp_run_options o = few_steps(set_up(k, 1, DTP_FP32), "cpu");
        o.plan.microbatch_size = 1;
        while (o.plan.dp < BATCH && 2 * o.plan.dp <= dtp_os_num_cores())
            o.plan.dp *= 2;
        if (dtp_run(arena, &o, &r, &err) != DTP_OK) {
            printf("%s\n", err.msg);
            return false;
        }
        kinds[k].loss = r.loss;
        printf("     %-12s on the CPU, losses %.4f to %.4f in %d steps\n", kinds[k].name, r.loss[0],
               r.loss[FEW_STEPS - 1], (int)FEW_STEPS);
        if (r.loss[0] - r.loss[FEW_STEPS - 1] < 0.05)
            return false;
    }
    return true;
}

static bool read_arguments(int argc, char **argv) {
    enum { EACH = 4 };
    nasked = argc > 1 ? 0 : nasked;
    for (; argc > EACH && nasked < MOST_ASKED; argc -= EACH, argv += EACH)
        asked[nasked++] = (struct asked){
            atoi(argv[1]), strcmp(argv[2], dtp_dtype_names[DTP_BF16]) == 0 ? DTP_BF16 : DTP_FP32,
            (size_t)atoi(argv[3]), (size_t)atoi(argv[4])};
    return argc == 1;
}

int main(int argc, char **argv) {
    CU_TestInfo tests[] = {{"layouts", test_layouts}, CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"ranks on cuda", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    struct dtp_err err = {0};
    setenv("DTPLAN_CUDA_TUNE", "0", 0); /* times mean nothing here */
    if (!read_arguments(argc, argv) || read_models(&err) != DTP_OK) {
        printf("expected [RANKS DTYPE FIRST N]...\n");
        return 1;
    }
    int status = no_cuda() ? SKIP : references() ? run_suites(suites) : 1;
    dtp_arena_destroy(arena);
    return status;
}
