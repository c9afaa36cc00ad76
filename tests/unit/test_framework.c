/* Framework files: every one loads, aliases and errors, what the fields mean for legality. */
#include <CUnit/Basic.h>
#include <string.h>

#include "models/framework/framework.h"
#include "models/schedule/schedule.h"
#include "tests/suites.h"

static struct dtp_arena *arena;

/* "host.launch_s": the fields of each part lead to the next. */
static bool is_field(const char *path) {
    const struct dtp_field *fields = dtp_framework_fields;
    for (;;) {
        const char *dot = strchr(path, '.');
        size_t n = dot ? (size_t)(dot - path) : strlen(path);
        const struct dtp_field *f =
            fields ? dtp_field_find(fields, dtp_arena_strndup(arena, path, n)) : NULL;
        if (!f || !dot)
            return f != NULL;
        fields = f->fields;
        path = dot + 1;
    }
}

static void test_all(void) {
    const char *const *names;
    size_t n;
    CU_ASSERT_FATAL(dtp_framework_list(arena, &names, &n, NULL) == DTP_OK && n >= 10);
    for (size_t i = 0; i < n; i++) {
        struct dtp_framework f;
        struct dtp_err err = {0};
        if (dtp_framework_load(arena, names[i], &f, &err) != DTP_OK) {
            printf("\n  %s\n", err.msg);
            CU_FAIL_FATAL("dtp_framework_load");
        }
        CU_ASSERT_STRING_EQUAL(f.name, names[i]);
        CU_ASSERT(f.title && *f.title && f.source && *f.source);
        CU_ASSERT(f.keeps.weight_bytes > 0 && f.keeps.allocator_factor >= 1);
        CU_ASSERT(f.can.zero_stages != 0 && f.can.recompute_modes != 0);
        CU_ASSERT((f.can.zero_stages_pp & ~f.can.zero_stages) == 0);
        int fitted = 0;
        while (f.fitted && f.fitted[fitted]) {
            CU_ASSERT(is_field(f.fitted[fitted]));
            fitted++;
        }
        for (size_t s = 0; f.can.schedules && f.can.schedules[s]; s++)
            CU_ASSERT(dtp_schedule_find(f.can.schedules[s]) >= 0);
        for (size_t k = 0; f.aliases && f.aliases[k]; k++) {
            struct dtp_framework again;
            CU_ASSERT(dtp_framework_load(arena, f.aliases[k], &again, NULL) == DTP_OK);
            CU_ASSERT_STRING_EQUAL(again.name, f.name);
        }
    }
}

static enum dtp_status read(const char *text, struct dtp_framework *f, struct dtp_err *err) {
    const struct dtp_json *j;
    DTP_TRY(dtp_json_parse(arena, "test.json", text, strlen(text), &j, err));
    return dtp_framework_read(arena, j, f, err);
}

static void test_read(void) {
    struct dtp_framework f;
    struct dtp_err err;
    CU_ASSERT(read("{\"name\": \"x\", \"title\": \"t\", \"can\": {\"zero_stages\": [0, 1, 3], "
                   "\"zero_stages_pp\": [0], \"recompute\": [\"none\", \"full\"]}, "
                   "\"aliases\": [\"y\"], \"source\": \"s\"}",
                   &f, &err) == DTP_OK);
    CU_ASSERT(f.can.zero_stages == 11 && f.can.zero_stages_pp == 1 && f.can.zero_stages_tp == 11);
    CU_ASSERT(f.can.recompute_modes == 5);
    CU_ASSERT(f.can.dtypes == (1 << DTP_FP32 | 1 << DTP_TF32 | 1 << DTP_FP16 | 1 << DTP_BF16));
    CU_ASSERT_STRING_EQUAL(f.name, "x");
    CU_ASSERT_STRING_EQUAL(f.aliases[0], "y");
    CU_ASSERT(
        read("{\"name\": \"x\", \"title\": \"t\", \"can\": {\"dtypes\": [\"bf16\", \"fp8\"]}}", &f,
             &err) == DTP_OK);
    CU_ASSERT(f.can.dtypes == (1 << DTP_BF16 | 1 << DTP_FP8));
    CU_ASSERT(read("{\"name\": \"x\", \"title\": \"t\", \"can\": {\"dtypes\": [\"fp7\"]}}", &f,
                   &err) == DTP_EINPUT);
    CU_ASSERT(read("{\"name\": \"x\", \"title\": \"t\", \"kernels\": {\"fused_nrm\": true}}", &f,
                   &err) == DTP_EINPUT);
    CU_ASSERT(strstr(err.msg, "fused_nrm") && strstr(err.msg, "fused_norm"));
    CU_ASSERT(read("{\"name\": \"x\", \"title\": \"t\", \"can\": {\"zero_stages\": [4]}}", &f,
                   &err) == DTP_EINPUT);
    CU_ASSERT(read("{\"name\": \"x\", \"title\": \"t\", \"can\": {\"recompute\": [\"ful\"]}}", &f,
                   &err) == DTP_EINPUT);
    CU_ASSERT(strstr(err.msg, "full") != NULL);
    CU_ASSERT(read("{\"title\": \"t\"}", &f, &err) == DTP_EINPUT);
    CU_ASSERT(read("{\"name\": \"x\", \"title\": \"t\", \"launch_s\": 1e-6}", &f, &err) ==
              DTP_EINPUT);
    CU_ASSERT(strstr(err.msg, "host.launch_s") != NULL);
    CU_ASSERT(read("{\"name\": \"x\", \"base\": \"megatron-cor\"}", &f, &err) == DTP_EINPUT);
    CU_ASSERT(strstr(err.msg, "megatron-core") != NULL);
}

static void test_unknown(void) {
    struct dtp_framework f;
    struct dtp_err err;
    CU_ASSERT(dtp_framework_load(arena, "megatron-2201", &f, &err) == DTP_EINPUT);
    CU_ASSERT(strstr(err.msg, "megatron-2021") != NULL);
}

/* Megatron pads to a multiple of 128 tp: 50257 becomes 50304 at tp 1, 51200 at tp 8. */
static void test_vocabulary(void) {
    struct dtp_framework f = {.kernels.vocab_multiple = 128,
                              .quirks.traced_gaps.vocab_padded = true};
    CU_ASSERT(dtp_framework_padded_vocab(&f, 50257, 1) == 50304);
    CU_ASSERT(dtp_framework_padded_vocab(&f, 50257, 8) == 51200);
    f.kernels.vocab_multiple = 1;
    CU_ASSERT(dtp_framework_padded_vocab(&f, 50257, 1) == 50257);
    CU_ASSERT(dtp_framework_padded_vocab(&f, 50257, 4) == 50260);
}

/* Without mixed precision Adam takes 4 + 4 + 8 bytes a parameter, whatever the 16-bit recipe took. */
static void test_fp32(void) {
    struct dtp_framework f;
    CU_ASSERT_FATAL(dtp_framework_load(arena, "megatron-core", &f, NULL) == DTP_OK);
    CU_ASSERT_EQUAL(f.keeps.weight_bytes, 2);
    for (int twice = 0; twice < 2; twice++) {
        dtp_framework_to_fp32(&f);
        CU_ASSERT_EQUAL(f.keeps.weight_bytes, 4);
        CU_ASSERT_EQUAL(f.keeps.gradient_bytes, 4);
        CU_ASSERT_EQUAL(f.keeps.optimizer_bytes, 8);
        CU_ASSERT_EQUAL(f.wire.reduce_bytes, 4);
    }
    CU_ASSERT_FATAL(dtp_framework_load(arena, "torch-ddp", &f, NULL) == DTP_OK);
    struct dtp_framework_keeps before = f.keeps;
    dtp_framework_to_fp32(&f);
    CU_ASSERT_EQUAL(f.keeps.optimizer_bytes, before.optimizer_bytes);
}

/* nanotron's cut of the Ultra-Scale Playbook's 1B model, whose halves and quarters are whole layers: the head
 * weighs four. */
static void test_cut_by_cost(void) {
    static const int reached[] = {5, 5, 5, 1}, passed[] = {6, 5, 5, 0};
    struct dtp_framework f;
    struct dtp_model m;
    int layers[4];
    CU_ASSERT_FATAL(dtp_framework_load(arena, "nanotron", &f, NULL) == DTP_OK);
    CU_ASSERT_FATAL(dtp_model_load(arena, "llama2-7b", &m, NULL) == DTP_OK);
    m.layers = 16;
    m.hidden = 2048;
    m.head_dim = 64;
    m.ffn = 8192;
    m.vocab = 131072;
    CU_ASSERT_FATAL(dtp_framework_stage_layers(&f, &m, 2, layers));
    CU_ASSERT(layers[0] == 10 && layers[1] == 6);
    dtp_framework_stage_layers(&f, &m, 4, layers);
    CU_ASSERT(memcmp(layers, reached, sizeof layers) == 0);
    f.host.checked_transfers = true;
    dtp_framework_stage_layers(&f, &m, 2, layers);
    CU_ASSERT(layers[0] == 11 && layers[1] == 5);
    dtp_framework_stage_layers(&f, &m, 4, layers);
    CU_ASSERT(memcmp(layers, passed, sizeof layers) == 0);
    /* the loss is on the last of 8 stages, but on the last but one of 16: one of 66 such runs gave a time */
    CU_ASSERT(dtp_framework_reaches_last(&f, &m, 1) && dtp_framework_reaches_last(&f, &m, 8));
    CU_ASSERT(!dtp_framework_reaches_last(&f, &m, 16));
}

/* What a cast to a narrow type moves, by recipe; an own figure of the framework counts before it. */
static void test_casts(void) {
    struct dtp_framework f;
    CU_ASSERT_FATAL(dtp_framework_load(arena, "megatron-bridge", &f, NULL) == DTP_OK);
    CU_ASSERT(f.kernels.fp8_recipe == DTP_FP8_CURRENT &&
              dtp_framework_cast_bytes(&f, DTP_FP8) == 6);
    CU_ASSERT(dtp_framework_gathered_bytes(&f, DTP_FP8) == 1);
    CU_ASSERT(dtp_framework_gathered_bytes(&f, DTP_BF16) == 2);
    CU_ASSERT(dtp_framework_cast_bytes(&f, DTP_FP4) == 7.125);
    f.kernels.fp8_recipe = DTP_FP8_DELAYED;
    CU_ASSERT(dtp_framework_cast_bytes(&f, DTP_FP8) == 4);
    f.kernels.fp8_cast_bytes = 14;
    CU_ASSERT(dtp_framework_cast_bytes(&f, DTP_FP8) == 14);
}

static size_t size_of(const struct dtp_field *field) {
    return field->kind == DTP_FIELD_BOOL     ? sizeof(bool)
           : field->kind == DTP_FIELD_DOUBLE ? sizeof(double)
           : field->kind == DTP_FIELD_STRING ? sizeof(char *)
                                             : sizeof(int);
}

/* Frameworks in which the field is not what a file without it has; lists count as used. */
static int users_of(const struct dtp_field *field, const struct dtp_framework *plain,
                    const struct dtp_framework *all, size_t n) {
    int users = 0;
    if (field->kind == DTP_FIELD_JSON)
        return (int)n;
    for (size_t i = 0; i < n; i++)
        users += memcmp((const char *)&all[i] + field->offset, (const char *)plain + field->offset,
                        size_of(field)) != 0;
    return users;
}

/* A field that one or two frameworks alone need is a quirk. Exceptions, each with its reason. */
static void test_few_users(void) {
    static const char *const exceptions[] = {
        "inline_communication", "p2p_bytes",
        "step_host_s",        /* a term of the step: any stack may have it */
        "bucket_bytes",       /* a buffer that any stack may have; DeepSpeed's two files */
        "kernel_time_factor", /* the one constant that a calibration of a stack may set */
        "launch_blocking",      "checked_collectives",
        "checked_transfers", /* settings of a run */
        "stream_hop_s",      /* written by calibrate for the machine at hand */
        "comm_time_factor",     "backward_launch_factor",
        "rank_order",           NULL};
    struct dtp_framework plain, *all;
    const char *const *names;
    size_t n;
    CU_ASSERT_FATAL(dtp_framework_list(arena, &names, &n, NULL) == DTP_OK);
    CU_ASSERT_FATAL(read("{\"name\": \"x\", \"title\": \"t\", \"source\": \"s\"}", &plain, NULL) ==
                    DTP_OK);
    all = DTP_NEW(arena, struct dtp_framework, n);
    for (size_t i = 0; i < n; i++)
        CU_ASSERT_FATAL(dtp_framework_load(arena, names[i], &all[i], NULL) == DTP_OK);
    for (const struct dtp_field *group = dtp_framework_fields; group->name; group++)
        for (const struct dtp_field *f = group->fields;
             f && f->name && strcmp(group->name, "quirks") != 0; f++)
            if (users_of(f, &plain, all, n) < 3 && dtp_name_index(exceptions, f->name) < 0) {
                printf("\n  %s.%s: fewer than three frameworks set it: a quirk", group->name,
                       f->name);
                CU_FAIL("a field with few users");
            }
}

int main(void) {
    CU_TestInfo tests[] = {{"every file", test_all},
                           {"fields with few users", test_few_users},
                           {"reading", test_read},
                           {"unknown names", test_unknown},
                           {"padded vocabulary", test_vocabulary},
                           {"without mixed precision", test_fp32},
                           {"stages cut by cost", test_cut_by_cost},
                           {"casts to narrow types", test_casts},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"framework", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
