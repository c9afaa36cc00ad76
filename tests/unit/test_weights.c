/* Weights of Hugging Face's models: the drawn initial values, written as safetensors with names and layout of
 * transformers' LlamaForCausalLM and GPT2LMHeadModel, give the losses of PyTorch in tests/golden/runtime. */
#include <CUnit/Basic.h>
#include <math.h>

#include "runtime/parameters.h"
#include "sim/base/json.h"
#include "tests/runtime_cases.h"
#include "tests/suites.h"

static char folder[] = "/tmp/dtplan-weights-XXXXXX";
static char path[64], written[64];
/* fp32 sums in another order; the file of losses has 6 decimals. */
static const double tolerance = 1e-5;

/* ---- a file, written by rules of its own ---- */

enum { MOST_TENSORS = 200 };
struct out {
    char name[80];
    int64_t shape[2]; /* second 0: one dimension */
    float *at;
};
static struct out tensors[MOST_TENSORS];
static int ntensors;

static struct out *tensor(const char *name, int64_t rows, int64_t cols) {
    struct out *t = &tensors[ntensors++];
    snprintf(t->name, sizeof t->name, "%s", name);
    t->shape[0] = rows;
    t->shape[1] = cols;
    t->at = calloc((size_t)(rows * (cols ? cols : 1)), sizeof *t->at);
    return t;
}

static const struct dtp_param *param_of(const struct dtp_unit *u, int id, float **values) {
    const struct dtp_param *p = &u->param[id];
    *values = calloc((size_t)p->n, sizeof **values);
    dtp_param_init(p, 1, 0, p->n, *values);
    return p;
}

/* One parameter as it is. */
static void plain(const struct dtp_unit *u, int id, const char *name, bool matrix) {
    float *v;
    const struct dtp_param *p = param_of(u, id, &v);
    struct out *t = tensor(name, p->global_rows, matrix ? p->global_cols : 0);
    memcpy(t->at, v, (size_t)(p->global_rows * p->global_cols) * sizeof *v);
    free(v);
}

/* GPT-2's Conv1D [in, sum of out] from n linear layers [out, in] one after another. */
static void conv(const struct dtp_unit *u, int first, int n, const char *name) {
    int64_t width = 0, column = 0;
    for (int i = 0; i < n; i++)
        width += u->param[first + i].global_rows;
    struct out *t = tensor(name, u->param[first].global_cols, width);
    for (int i = 0; i < n; i++) {
        float *v;
        const struct dtp_param *p = param_of(u, first + i, &v);
        for (int64_t r = 0; r < p->rows; r++)
            for (int64_t c = 0; c < p->cols; c++)
                t->at[c * width + column + r] = v[r * p->cols + c];
        column += p->rows;
        free(v);
    }
}

static void gpt2_layer(const struct dtp_unit *u) {
    char name[80];
    const struct {
        int id, n;
        const char *name;
    } row[] = {{DTP_P_NORM1, 0, "ln_1.weight"},         {DTP_P_NORM1_BIAS, 0, "ln_1.bias"},
               {DTP_P_Q, 3, "attn.c_attn.weight"},      {DTP_P_OUT, 1, "attn.c_proj.weight"},
               {DTP_P_OUT_BIAS, 0, "attn.c_proj.bias"}, {DTP_P_NORM2, 0, "ln_2.weight"},
               {DTP_P_NORM2_BIAS, 0, "ln_2.bias"},      {DTP_P_UP, 1, "mlp.c_fc.weight"},
               {DTP_P_UP_BIAS, 0, "mlp.c_fc.bias"},     {DTP_P_DOWN, 1, "mlp.c_proj.weight"},
               {DTP_P_DOWN_BIAS, 0, "mlp.c_proj.bias"}};
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        snprintf(name, sizeof name, "transformer.h.%d.%s", u->layer, row[i].name);
        if (row[i].n > 0)
            conv(u, row[i].id, row[i].n, name);
        else
            plain(u, row[i].id, name, false);
    }
    snprintf(name, sizeof name, "transformer.h.%d.attn.c_attn.bias", u->layer);
    tensor(name, 3 * u->param[DTP_P_Q_BIAS].rows, 0); /* biases begin as 0 */
    snprintf(name, sizeof name, "transformer.h.%d.attn.bias", u->layer);
    tensor(name, 1, 0); /* the causal mask, no parameter */
}

static void llama_layer(const struct dtp_unit *u) {
    char name[80];
    const struct {
        int id;
        bool matrix;
        const char *name;
    } row[] = {
        {DTP_P_NORM1, false, "input_layernorm"}, {DTP_P_Q, true, "self_attn.q_proj"},
        {DTP_P_K, true, "self_attn.k_proj"},     {DTP_P_V, true, "self_attn.v_proj"},
        {DTP_P_OUT, true, "self_attn.o_proj"},   {DTP_P_NORM2, false, "post_attention_layernorm"},
        {DTP_P_GATE, true, "mlp.gate_proj"},     {DTP_P_UP, true, "mlp.up_proj"},
        {DTP_P_DOWN, true, "mlp.down_proj"}};
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        snprintf(name, sizeof name, "model.layers.%d.%s.weight", u->layer, row[i].name);
        plain(u, row[i].id, name, row[i].matrix);
    }
}

static void list_tensors(struct dtp_arena *a, const struct dtp_model *m, bool gpt) {
    struct dtp_plan plan = dtp_plan_default();
    struct dtp_layout l;
    plan.dtype = DTP_FP32;
    dtp_layout_make(a, m, &plan, m->seq, 0, &l);
    const struct dtp_chunk *c = &l.chunk[0];
    ntensors = 0;
    plain(c->tokens, DTP_P_TABLE, gpt ? "transformer.wte.weight" : "model.embed_tokens.weight",
          true);
    if (gpt)
        plain(c->positions, DTP_P_TABLE, "transformer.wpe.weight", true);
    for (int i = 0; i < c->nlayers; i++)
        (gpt ? gpt2_layer : llama_layer)(&c->layer[i]);
    plain(c->norm, DTP_P_NORM, gpt ? "transformer.ln_f.weight" : "model.norm.weight", false);
    if (gpt)
        plain(c->norm, DTP_P_NORM_BIAS, "transformer.ln_f.bias", false);
    if (!m->tied_embeddings)
        plain(c->head, DTP_P_TABLE, "lm_head.weight", true);
}

static uint64_t bytes_of(const struct out *t, int word) {
    return (uint64_t)t->shape[0] * (uint64_t)(t->shape[1] ? t->shape[1] : 1) * (uint64_t)word;
}

static void put_values(FILE *f, const struct out *t, bool bf16) {
    uint64_t n = bytes_of(t, 1);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &t->at[i], sizeof bits);
        const unsigned char byte[] = {(unsigned char)bits, (unsigned char)(bits >> 8),
                                      (unsigned char)(bits >> 16), (unsigned char)(bits >> 24)};
        fwrite(bf16 ? byte + 2 : byte, bf16 ? 2 : 4, 1, f);
    }
}

static void write_file(bool bf16) {
    static char header[200 * MOST_TENSORS];
    size_t n = 0;
    uint64_t at = 0;
    n += (size_t)snprintf(header, sizeof header, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int i = 0; i < ntensors; i++) {
        const struct out *t = &tensors[i];
        char second[24] = "";
        if (t->shape[1])
            snprintf(second, sizeof second, ",%lld", (long long)t->shape[1]);
        uint64_t end = at + bytes_of(t, bf16 ? 2 : 4);
        n += (size_t)snprintf(
            header + n, sizeof header - n,
            ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%lld%s],\"data_offsets\":[%llu,%llu]}", t->name,
            bf16 ? "BF16" : "F32", (long long)t->shape[0], second, (unsigned long long)at,
            (unsigned long long)end);
        at = end;
    }
    n += (size_t)snprintf(header + n, sizeof header - n, "}");
    FILE *f = fopen(path, "wb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    for (int i = 0; i < 8; i++)
        fputc((int)(n >> (8 * i) & 0xff), f);
    fwrite(header, n, 1, f);
    for (int i = 0; i < ntensors; i++)
        put_values(f, &tensors[i], bf16);
    fclose(f);
}

static void free_tensors(void) {
    for (int i = 0; i < ntensors; i++)
        free(tensors[i].at);
}

/* ---- tests ---- */

static void check_losses(struct dtp_arena *a, const char *family, const struct dtp_run_options *o) {
    const struct dtp_json *root;
    struct dtp_err err = {0};
    struct dtp_run_result r;
    CU_ASSERT_EQUAL_FATAL(
        dtp_json_read_file(a, DTP_SOURCE_DIR "/tests/golden/runtime/torch_losses.json", &root,
                           &err),
        DTP_OK);
    if (dtp_run(a, o, &r, &err) != DTP_OK)
        printf("\n  %s\n", err.msg);
    CU_ASSERT_EQUAL_FATAL(err.status, DTP_OK);
    for (int i = 0; i < r.steps; i++) {
        const struct dtp_json *loss = dtp_json_at(dtp_json_get(root, family), (size_t)i);
        CU_ASSERT(fabs(r.loss[i] - dtp_json_number(loss)) < tolerance);
    }
}

/* The head is all zeros, so that every token is equally likely: the loss is ln 67, and shows that the file was read. */
static void check_zero_head(struct dtp_arena *a, struct dtp_run_options *o, const char *head) {
    struct dtp_err err = {0};
    struct dtp_run_result r;
    for (int i = 0; i < ntensors; i++)
        if (strcmp(tensors[i].name, head) == 0)
            memset(tensors[i].at, 0, bytes_of(&tensors[i], 4));
    write_file(true);
    o->steps = 1;
    CU_ASSERT_EQUAL_FATAL(dtp_run(a, o, &r, &err), DTP_OK);
    CU_ASSERT_DOUBLE_EQUAL(r.loss[0], log(67), 1e-6);
}

static void check_family(const char *family, bool gpt) {
    struct dtp_arena *a = dtp_arena_create("test");
    struct dtp_model m = tiny_model(family);
    struct dtp_run_options o = tiny_options(&m);
    list_tensors(a, &m, gpt);
    write_file(false);
    o.weights = path;
    check_losses(a, family, &o);
    o.weights = folder;
    o.plan = with_degrees(o.plan, 2, 2, 1); /* every rank takes its blocks */
    check_losses(a, family, &o);
    o.plan = with_degrees(o.plan, 1, 1, 4);
    o.plan.zero_stage = 3;
    check_losses(a, family, &o);
    check_zero_head(a, &o, m.tied_embeddings ? tensors[0].name : "lm_head.weight");
    free_tensors();
    dtp_arena_destroy(a);
}

/* Steps of length 0 change nothing, so that what is written gives the same losses once more. */
static void check_written(const char *family, bool gpt) {
    struct dtp_arena *a = dtp_arena_create("test");
    struct dtp_model m = tiny_model(family);
    struct dtp_err err = {0};
    struct dtp_run_result r;
    list_tensors(a, &m, gpt);
    write_file(false);
    for (int i = 0; i < 3; i++) {
        struct dtp_run_options o = tiny_options(&m);
        o.plan = i == 0 ? o.plan : with_degrees(o.plan, i == 1 ? 2 : 1, i == 1 ? 2 : 1, 2);
        o.plan.zero_stage = i == 2 ? 3 : 0;
        o.weights = path;
        o.save_weights = written;
        o.lr = o.min_lr = 0;
        o.steps = 2;
        CU_ASSERT_EQUAL_FATAL(dtp_run(a, &o, &r, &err), DTP_OK);
        o = tiny_options(&m);
        o.weights = written;
        check_losses(a, family, &o);
        CU_ASSERT_EQUAL(unlink(written), 0);
    }
    free_tensors();
    dtp_arena_destroy(a);
}

static void test_written(void) {
    check_written("gpt", true);
    check_written("llama", false);
}

static void test_gpt2(void) {
    check_family("gpt", true);
}

static void test_llama(void) {
    check_family("llama", false);
}

static void test_what_does_not_fit(void) {
    struct dtp_arena *a = dtp_arena_create("test");
    struct dtp_model m = tiny_model("llama"), wide = m, biased = m;
    struct dtp_run_options o = tiny_options(&m);
    list_tensors(a, &m, false);
    tensor("model.layers.0.self_attn.q_norm.weight", 8, 0);
    write_file(false);
    o.weights = path;
    check_failure(a, &o, DTP_EINPUT, "no parameter for \"model.layers.0.self_attn.q_norm", 10);
    free(tensors[--ntensors].at);
    write_file(false);
    wide.ffn = 64;
    o.model = &wide;
    check_failure(a, &o, DTP_EINPUT, "shape [64, 32]", 10);
    biased.mlp_bias = true;
    o.model = &biased;
    check_failure(a, &o, DTP_EINPUT, "there is no tensor \"model.layers.0.mlp.gate_proj.bias\"",
                  10);
    o.model = &m;
    CU_ASSERT_EQUAL(truncate(path, 20000), 0);
    check_failure(a, &o, DTP_EINPUT, "data_offsets", 10);
    CU_ASSERT_EQUAL(truncate(path, 900), 0);
    check_failure(a, &o, DTP_EINPUT, "cut short", 10);
    free_tensors();
    dtp_arena_destroy(a);
}

int main(void) {
    CU_TestInfo tests[] = {{"GPT-2", test_gpt2},
                           {"Llama", test_llama},
                           {"written", test_written},
                           {"what does not fit", test_what_does_not_fit},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"weights", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    if (!mkdtemp(folder))
        return 1;
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    snprintf(written, sizeof written, "%s/written", folder);
    int status = run_suites(suites);
    (void)unlink(path);
    return rmdir(folder) == 0 ? status : 1;
}
