/* cuda_runs.h: models and options of the runs on GPUs that tests make. Ranks are forked, so such a program makes
 * no CUDA call itself. */
#ifndef DTP_TESTS_CUDA_RUNS_H
#define DTP_TESTS_CUDA_RUNS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/measure/measure.h"
#include "runtime/run.h"
#include "tests/suites.h"

enum { SKIP = 77, STEPS = 20, SEQ = 128 };

static struct dtp_arena *arena;
static struct dtp_model gpt, llama;

static const char gpt_json[] =
    "{\"family\": \"gpt\", \"source\": \"a test\", \"layers\": 4, \"hidden\": 256, \"heads\": 4,"
    " \"vocab\": 512, \"seq\": 128, \"global_batch\": 8}";
static const char llama_json[] =
    "{\"family\": \"llama\", \"source\": \"a test\", \"layers\": 4, \"hidden\": 256, \"heads\": 4,"
    " \"kv_heads\": 2, \"ffn\": 512, \"vocab\": 512, \"seq\": 128, \"global_batch\": 8}";

static inline enum dtp_status read_model(const char *text, struct dtp_model *out,
                                         struct dtp_err *err) {
    const struct dtp_json *j;
    DTP_TRY(dtp_json_parse(arena, "test", text, strlen(text), &j, err));
    return dtp_model_read(arena, j, out, err);
}

static inline struct dtp_run_options options(const struct dtp_model *m, const char *backend,
                                             enum dtp_dtype dtype) {
    struct dtp_run_options o = dtp_run_options_default();
    o.model = m;
    o.backend = backend;
    o.seq = SEQ;
    o.steps = STEPS;
    o.memory_bytes = UINT64_C(1) << 30;
    o.plan.dtype = dtype;
    o.plan.global_batch_size = 8;
    o.plan.microbatch_size = 2;
    return o;
}

static inline enum dtp_status read_models(struct dtp_err *err) {
    arena = dtp_arena_create("test");
    DTP_TRY(read_model(gpt_json, &gpt, err));
    return read_model(llama_json, &llama, err);
}

/* True, and says why, where nothing can be trained on CUDA. */
static inline bool no_cuda(void) {
    struct dtp_err err = {0};
    struct dtp_run_options o = options(&gpt, "cuda", DTP_FP32);
    struct dtp_run_result r;
    o.steps = 1;
    bool none = dtp_run(arena, &o, &r, &err) == DTP_EUNSUPPORTED;
    if (none)
        printf("skipped: %s\n", err.msg);
    return none;
}

/* The stand-in for NCCL of ranks that share a GPU lies in this program's folder; $DTPLAN_NCCL names another. */
static inline void take_one_device_nccl(void) {
    char path[600];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 64);
    path[n > 0 ? n : 0] = '\0';
    char *end = strrchr(path, '/');
    strcpy(end ? end + 1 : path, "libone_device_nccl.so");
    setenv("DTPLAN_NCCL", path, 0);
}

/* So that this many ranks run where there are fewer GPUs: several share one (runtime/cuda/sharing.h). */
static inline void share_gpus(int nranks) {
    static struct dtp_dev_about about; /* asked once: it takes seconds */
    struct dtp_err err = {0};
    char text[16];
    if (about.ndevices < 1 && dtp_measure_about("cuda", &about, &err) != DTP_OK)
        return;
    int ngpus = about.ndevices < 1 ? 1 : about.ndevices;
    snprintf(text, sizeof text, "%d", (nranks + ngpus - 1) / ngpus);
    setenv("DTPLAN_CUDA_RANKS_PER_GPU", text, 1);
    if (nranks > ngpus)
        take_one_device_nccl();
}

/* True where they cannot, for want of an NCCL that lets them. */
static inline bool cannot_share(const struct dtp_err *failure) {
    return strstr(failure->msg, "ranks on a GPU need NCCL") != NULL;
}

#endif
