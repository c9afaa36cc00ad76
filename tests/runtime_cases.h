/* Small models and options that the tests of the runtime share. */
#ifndef DTP_TESTS_RUNTIME_CASES_H
#define DTP_TESTS_RUNTIME_CASES_H

#include <CUnit/Basic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "models/schedule/schedule.h"
#include "runtime/launch.h"
#include "runtime/run.h"

/* 8 layers, so that 8 virtual stages exist; 67 tokens, so that the vocabulary is padded. */
static inline struct dtp_model tiny_model(const char *family) {
    struct dtp_model m;
    struct dtp_err err = {0};
    if (dtp_model_family(family, &m, &err) != DTP_OK)
        abort();
    m.name = family;
    m.layers = 8;
    m.hidden = 32;
    m.heads = 4;
    m.vocab = 67;
    m.seq = 16;
    m.max_positions = 16;
    if (strcmp(family, "llama") == 0) {
        m.kv_heads = 2;
        m.ffn = 48;
    }
    if (dtp_model_finish(&m, &err) != DTP_OK)
        abort();
    return m;
}

/* An epsilon above the noise of gradients that are 0 in exact arithmetic (the bias of the keys: the
 * softmax does not see it), which Adam would otherwise blow up to full steps. */
static inline struct dtp_run_options tiny_options(const struct dtp_model *m) {
    struct dtp_run_options o = dtp_run_options_default();
    o.model = m;
    o.seq = 16;
    o.steps = 20;
    o.decay_steps = 20;
    o.seed = 1;
    o.lr = 0.004;
    o.epsilon = 1e-5;
    o.timeout_s = 60;
    o.plan.dtype = DTP_FP32;
    o.plan.global_batch_size = 8;
    return o;
}

static inline struct dtp_plan with_degrees(struct dtp_plan p, int tp, int pp, int dp) {
    p.tp = tp;
    p.pp = pp;
    p.dp = dp;
    return p;
}

/* The run fails so, soon, and leaves no process. */
static inline void check_failure(struct dtp_arena *a, struct dtp_run_options *o,
                                 enum dtp_status status, const char *says, double within_s) {
    struct dtp_run_result r;
    struct dtp_err err = {0};
    int64_t start_ns = dtp_os_now_ns();
    CU_ASSERT_EQUAL(dtp_run(a, o, &r, &err), status);
    if (!strstr(err.msg, says))
        printf("\n    found \"%s\", expected \"%s\"\n", err.msg, says);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, says));
    CU_ASSERT((double)(dtp_os_now_ns() - start_ns) * 1e-9 < within_s);
    CU_ASSERT_EQUAL(waitpid(-1, NULL, WNOHANG), -1); /* nobody is left */
}

static inline void remove_tree(const char *path) {
    char command[1200];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    CU_ASSERT_EQUAL(system(command), 0);
}

/* "CUDA" runs on the CPU: the fake module lies in this program's folder. */
static inline void take_fake_module(void) {
    char path[600];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 64);
    path[n > 0 ? n : 0] = '\0';
    char *end = strrchr(path, '/');
    strcpy(end ? end + 1 : path, "libdtplan_fake.so");
    setenv("DTPLAN_CUDA", path, 1);
}

#endif
