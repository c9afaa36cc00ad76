/* setup.h: from names to a problem: loads model, cluster and framework, applies the defaults.
 *
 * Defaults (CLI.md): cluster dgx-a100-80, framework megatron-core, seq and global batch from the
 * model file, the dtype bf16 where the GPU has it and fp16 elsewhere, the memory limit
 * dtp_problem_default_limit(), the attention kernel the framework's or, where the GPU has no calibration
 * of it, the unfused one. A table of learned positions grows to seq. Every report begins with what was not asked for.
 *
 *     struct dtp_ask ask = {.model = "gpt175b", .gpus = 1024, .dtype = -1, .attention = -1};
 *     struct dtp_setup setup;
 *     DTP_TRY(dtp_setup_init(a, &ask, &setup, err));
 *     ... &setup.problem ...
 *
 * A setup is large and holds pointers into itself: initialise it in place, do not copy it.
 */
#ifndef DTP_PLANNER_SETUP_H
#define DTP_PLANNER_SETUP_H

#include "models/evaluate/evaluate.h"

struct dtp_ask {
    const char *model, *cluster, *framework; /* names or paths; NULL: the default */
    const struct dtp_json *model_json, *cluster_json, *framework_json; /* embedded ones win */
    const char *nic;                                                   /* "4x100", or NULL */
    /* dtp_dropout_parse(); NULL: the model's, where the framework has dropout */
    const char *dropout;
    const char *optimizer; /* name, or NULL: adamw */
    const char *own_times; /* file of hw/own_times.h for our own runtime; NULL: that of the GPU */
    int gpus;              /* 0: not given, an error */
    int seq, batch;        /* 0: the model's */
    int dtype;             /* enum dtp_dtype, -1: the default */
    int attention;         /* enum dtp_attention, -1: the framework's */
    uint64_t memory_limit_bytes; /* 0: the default */
};

struct dtp_setup {
    struct dtp_model model;
    struct dtp_cluster cluster;
    struct dtp_framework framework;
    struct dtp_problem problem;
    struct dtp_ask ask;    /* what was asked, for the report and for documents */
    int learned_positions; /* the model's, if seq is longer; 0: it is not */
    bool without_mtp;      /* the framework trains the model without its multi-token prediction */
};

#define DTP_MOST_GPUS 131072 /* above it a simulation takes more memory than computers have */
#define DTP_DEFAULT_CLUSTER "dgx-a100-80"
#define DTP_DEFAULT_FRAMEWORK "megatron-core"

/* "0.1" of hidden states and of attention's probabilities alike, "0.1,0" one after the other. */
enum dtp_status dtp_dropout_parse(const char *text, double out[2], struct dtp_err *err);

/* A model "-" becomes what standard input says, which can be read once: before several setups. */
enum dtp_status dtp_ask_read(struct dtp_arena *a, struct dtp_ask *ask, struct dtp_err *err);
/* All of it, defaults filled in. DTP_EUSAGE: an option that is missing or cannot be; DTP_EINPUT: a name or file;
 * DTP_EUNSUPPORTED: what the GPU has no times for. */
enum dtp_status dtp_setup_init(struct dtp_arena *a, const struct dtp_ask *ask,
                               struct dtp_setup *out, struct dtp_err *err);
/* Model, cluster and framework only, for commands that need no number of GPUs. */
enum dtp_status dtp_setup_load(struct dtp_arena *a, const struct dtp_ask *ask,
                               struct dtp_setup *out, struct dtp_err *err);

#endif
