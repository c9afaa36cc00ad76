/* What --emit writes, dtplan trace reads back: a plan of the space, its settings, the options that trace prints of
 * them, and the plan that simulate makes of those is the same. What settings cannot say is forgotten by name. The
 * settings say nothing of the hardware, which is given again, and those of torchtitan, nanotron and DeepSpeed nothing of
 * the model. */
#include <CUnit/Basic.h>
#include <stdlib.h>
#include <string.h>

#include "planner/cli/cli.h"
#include "planner/cli/emit.h"
#include "planner/cli/trace_internal.h"
#include "planner/space.h"
#include "sim/base/rng.h"
#include "sim/base/text.h"
#include "tests/planner_case.h"
#include "tests/suites.h"

/* ---- what settings cannot say ---- */

/* arguments.py chooses no order of microbatches but 1F1B, interleaved where there are chunks. */
static void forget_megatron(struct dtp_plan *p) {
    if (p->schedule == DTP_SCHED_GPIPE)
        p->schedule = DTP_SCHED_1F1B;
}

/* torchtitan's tp always divides the sequence, and without expert parallelism the experts. */
static void forget_torchtitan(struct dtp_plan *p) {
    p->sequence_parallel = p->tp > 1;
    if (p->ep == 1)
        p->etp = 0;
}

static void forget_nothing(struct dtp_plan *p) {
    (void)p;
}

/* Checkpointing is the model's (gradient_checkpointing_enable() of Transformers), groups of ZeRO are hpZ's alone. */
static void forget_deepspeed(struct dtp_plan *p) {
    p->recompute = DTP_RECOMPUTE_NONE;
    p->recompute_layers = 0;
    p->zero_group = 0;
}

static const struct emitted {
    struct planner_case of;
    const char *kind;
    void (*forget)(struct dtp_plan *p);
    enum dtp_dtype dtype;
    int model_unsaid; /* 1: the settings do not name it */
} cases[] = {{{"llama3-8b", "hgx-h100", "megatron-core", 32, 64, 0, 0, NULL},
              "megatron",
              forget_megatron,
              DTP_BF16,
              0},
             {{"llama3-8b", "hgx-h100", "megatron-core", 32, 64, 0, 0, "cp=1,2,4,vpp=1.."},
              "megatron",
              forget_megatron,
              DTP_FP16,
              0},
             {{"llama3.1-405b", "hgx-h100", "megatron-core", 128, 128, 0, 0, "pp=8.."},
              "megatron",
              forget_megatron,
              DTP_FP8,
              0},
             {{"mixtral-8x7b", "hgx-h100", "megatron-core", 32, 64, 0, 0, NULL},
              "megatron",
              forget_megatron,
              DTP_BF16,
              0},
             {{"mixtral-8x7b", "hgx-h100", "megatron-bridge", 32, 64, 0, 0, NULL},
              "megatron",
              forget_megatron,
              DTP_FP8,
              0},
             {{"deepseek-v3", "hgx-h100", "megatron-core", 256, 256, 0, 0, "pp=4.."},
              "megatron",
              forget_megatron,
              DTP_BF16,
              0},
             {{"llama3-8b", "hgx-h100", "torchtitan", 32, 64, 0, 0, "cp=1,2"},
              "torchtitan",
              forget_torchtitan,
              DTP_BF16,
              1},
             {{"llama3-70b", "hgx-h100", "torchtitan-eager", 32, 64, 0, 0, "pp=2.."},
              "torchtitan",
              forget_torchtitan,
              DTP_BF16,
              1},
             {{"llama3-8b", "hgx-h100", "torchtitan-async-tp", 32, 64, 0, 0, "tp=2..,vpp=1.."},
              "torchtitan",
              forget_torchtitan,
              DTP_BF16,
              1},
             {{"mixtral-8x7b", "hgx-h100", "torchtitan", 32, 64, 0, 0, NULL},
              "torchtitan",
              forget_torchtitan,
              DTP_BF16,
              1},
             {{"llama3-8b", "hgx-h100", "nanotron", 32, 64, 0, 0, NULL},
              "nanotron",
              forget_nothing,
              DTP_BF16,
              1},
             {{"llama3-8b", "hgx-h100", "deepspeed", 16, 64, 0, 0, NULL},
              "deepspeed",
              forget_deepspeed,
              DTP_BF16,
              1},
             {{"llama3-8b", "hgx-h100", "deepspeed", 16, 64, 0, 0, NULL},
              "deepspeed",
              forget_deepspeed,
              DTP_FP16,
              1},
             {{"mixtral-8x7b", "hgx-h100", "deepspeed", 16, 64, 0, 0, NULL},
              "deepspeed",
              forget_deepspeed,
              DTP_BF16,
              1}};
enum { NCASES = sizeof cases / sizeof *cases };

/* ---- emit, trace, simulate ---- */

static void read_back(struct dtp_arena *a, const struct dtp_setup *setup, const struct emitted *e,
                      const struct dtp_plan *plan, struct dtp_run_config *out, char **text) {
    struct dtp_source *source;
    struct dtp_err err = {0};
    size_t n = 0;
    int kind = dtp_name_index(dtp_emit_names, e->kind);
    FILE *f = open_memstream(text, &n);
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    CU_ASSERT_EQUAL_FATAL(dtp_emit_script(a, f, kind, setup, plan, &err), DTP_OK);
    fclose(f);
    CU_ASSERT_EQUAL_FATAL(dtp_source_memory(a, "settings", *text, n, &source, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(dtp_config_read(a, source, out, &err), DTP_OK);
    dtp_source_close(source);
}

/* The plan of `dtplan simulate` with these options. */
static enum dtp_status plan_of(struct dtp_arena *a, const char *line, struct dtp_setup *setup,
                               struct dtp_plan *out, struct dtp_err *err) {
    enum { MOST = 128 };
    char *argv[MOST], *copy = dtp_arena_strdup(a, line);
    int argc = 0;
    for (char *word = strtok(copy, " "); word && argc < MOST; word = strtok(NULL, " "))
        argv[argc++] = word;
    struct dtp_cli cli = {.a = a, .verb = dtp_verb_find("simulate")};
    struct dtp_option_set sets[DTP_MOST_SETS];
    cli.args.ask.dtype = cli.args.ask.attention = -1;
    cli.own = dtp_arena_alloc(a, 1, cli.verb->own_size + 1);
    cli.arg = DTP_NEW(a, const char *, MOST);
    size_t n = dtp_verb_sets(cli.verb, &cli.args, cli.own, sets);
    DTP_TRY(dtp_options_parse(a, sets, n, argc, argv, cli.arg, &cli.nargs, err));
    return dtp_cli_plan(&cli, setup, out, err);
}

/* One way of saying what there are several of: of layers as even as it goes and given, of all and the default. */
static void normalise(struct dtp_plan *p, const struct dtp_plan *like, const struct dtp_model *m) {
    bool same = p->pp * p->vpp == like->pp * like->vpp;
    for (int vs = 0; same && vs < p->pp * p->vpp; vs++)
        same = dtp_plan_layers(p, m, vs) == dtp_plan_layers(like, m, vs);
    if (p->recompute_layers >= dtp_plan_most_layers(p, m))
        p->recompute_layers = 0;
    if (p->zero_group == p->dp * p->cp)
        p->zero_group = 0;
    if (p->etp == p->tp)
        p->etp = 0;
    if (same) {
        p->account_for_ends = false;
        p->last_stage_less = 0;
        p->layers_per_stage = (struct dtp_ints){0};
    }
}

static bool check_plan(struct dtp_arena *a, const struct emitted *e, const struct dtp_setup *setup,
                       const struct dtp_plan *plan) {
    struct dtp_run_config c;
    struct dtp_plan back, meant = *plan;
    struct dtp_setup *again = DTP_NEW(a, struct dtp_setup, 1);
    struct dtp_err err = {0};
    struct dtp_str s = {.a = a};
    char *text;
    read_back(a, setup, e, plan, &c, &text);
    c.layers = e->model_unsaid ? setup->problem.model->layers : c.layers;
    dtp_str_printf(&s, "--model %s --gpus %d --cluster %s --framework %s", e->of.model, e->of.gpus,
                   e->of.cluster, c.framework ? c.framework : "none");
    dtp_trace_add_layout(&s, &c);
    bool same = plan_of(a, s.at, again, &back, &err) == DTP_OK;
    if (same) {
        e->forget(&meant);
        struct dtp_plan unchanged = meant;
        normalise(&meant, &back, setup->problem.model);
        normalise(&back, &unchanged, setup->problem.model);
        same = dtp_plan_compare(&meant, &back) == 0 && strcmp(c.framework, e->of.framework) == 0;
    }
    if (!same)
        printf("\n  %s, %s:\n    plan %s\n    read %s\n    %s\n%s\n", e->of.model, e->of.framework,
               dtp_plan_flags(a, plan), s.at, err.msg, text);
    free(text);
    return same;
}

/* Some number of layers for the fewest that fit, which memory alone decides; now and then what is not searched. */
static void draw_rest(struct dtp_rng *r, const struct dtp_problem *p, struct dtp_plan *plan) {
    int most = dtp_plan_most_layers(plan, p->model);
    if (plan->recompute_layers == DTP_FEWEST_LAYERS)
        plan->recompute_layers = 1 + (int)dtp_rng_below(r, (uint64_t)most);
    if (plan->recompute == DTP_RECOMPUTE_SELECTIVE && dtp_rng_below(r, 2))
        plan->recompute_modules = (int)dtp_rng_below(r, 1 << DTP_NMODULES);
    plan->ep_overlap = plan->ep > 1 && p->framework->can.has_ep_overlap && dtp_rng_below(r, 2);
    plan->ep_per_node = plan->ep > 1 && p->framework->can.has_ep_per_node && dtp_rng_below(r, 2);
    if (p->framework->can.offload && dtp_rng_below(r, 4) == 0)
        plan->offload = DTP_OFFLOAD_OPTIMIZER;
    if (plan->offload && strcmp(p->framework->name, "deepspeed") == 0) {
        plan->offload = dtp_rng_below(r, 2) ? DTP_OFFLOAD_OPTIMIZER : DTP_OFFLOAD_PARAMETERS;
        plan->offload_to = dtp_rng_below(r, 2) ? DTP_OFFLOAD_HOST : DTP_OFFLOAD_NVME;
    }
}

static void test_case(int k, int wanted) {
    enum { DRAWS = 200000 };
    struct dtp_arena *a = dtp_arena_create("space"), *one = dtp_arena_create("plan");
    struct dtp_rng r = dtp_rng_stream(57, (uint64_t)k);
    struct dtp_setup *setup = case_setup(a, &cases[k].of);
    setup->problem.dtype = cases[k].dtype;
    struct dtp_limits limits = case_limits(a, &cases[k].of, setup);
    struct dtp_space space;
    int legal = 0, differ = 0;
    dtp_space_init(a, &setup->problem, &limits, &space);
    for (int i = 0; i < DRAWS && legal < wanted && differ < 2; i++) {
        struct dtp_plan plan;
        dtp_space_candidate(&space, dtp_rng_below(&r, space.ncandidates), &plan);
        draw_rest(&r, &setup->problem, &plan);
        if (dtp_plan_check(&setup->problem, &plan) != DTP_LEGAL)
            continue;
        legal++;
        differ += !check_plan(one, &cases[k], setup, &plan);
        dtp_arena_reset(one);
    }
    CU_ASSERT_EQUAL(legal, wanted);
    CU_ASSERT_EQUAL(differ, 0);
    dtp_arena_destroy(one);
    dtp_arena_destroy(a);
}

static void test_read_back(void) {
    for (int k = 0; k < NCASES; k++)
        test_case(k, 40);
}

int main(void) {
    CU_TestInfo tests[] = {{"emit, trace, the same plan", test_read_back}, CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"emitted settings", NULL, NULL, NULL, NULL, tests},
                             CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
