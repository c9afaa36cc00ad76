/* measured_internal.h: private to measured*.c; holds what is known of rows in addition to their columns. */
#ifndef DTP_TRACES_VALIDATE_MEASURED_INTERNAL_H
#define DTP_TRACES_VALIDATE_MEASURED_INTERNAL_H

#include <string.h>

#include "traces/validate/measured.h"

struct cluster_fact {
    const char *framework, *gpu, *source_contains, *cluster;
    const char *stack; /* the framework where the row's is another or "other"; NULL: the row's */
    const char *recompute;     /* the run's where the row's cannot be; NULL: the row's */
    const char *peak_mem_unit; /* what a unit of the row means; NULL: what it says */
    int tied_below_ffn;        /* head and token table are one matrix where the ffn is smaller */
    bool peak_of_first_stage;  /* peak_mem is rank 0's, not the largest */
    bool launch_blocking;      /* run with CUDA_LAUNCH_BLOCKING=1 */
    bool checked_collectives, checked_transfers; /* as of the framework */
    /* only for runs of such a size (0: of any), ZeRO stage and recomputation (NULL: any) */
    int gpus_above, gpus_below, tp_above, tp_below, pp_above, dp_above, dp_below, microbatch_above,
        microbatch_below, hidden_below;
    const char *only_zero, *only_recompute;
    double checked_above_bytes; /* runs that would reserve more were checked too; 0: never */
    double memory_limit_bytes;  /* limit of runs without slow transfers; 0: the card's */
    bool dropout;               /* on, though the model's family has none */
    bool no_attention_dropout;  /* off, though the model's family has it */
    bool whole_sequences;       /* no sequence parallelism where the row does not say */
    int zero_stage;             /* used if the row does not say */
    bool weighs_rows;           /* experts' rows weighted by a kernel of their own */
    const char *norm;           /* "fused" or "operators", where it was not the stack's */
    int recompute_layers;       /* full recomputation of so many layers of a stage; 0: of all */
    int gpu_mem_below;          /* only for runs on cards of fewer GB; 0: on any */
    double capacity_factor;     /* the experts', whatever the model's file says; 0: the file's */
    const char *model_contains; /* part of the row's model; NULL: any */
    int batch_below;            /* only for runs of a smaller global batch; 0: of any */
    const char *family;         /* its model's, whatever the name; NULL: as named */
    const char *attention;  /* kernel of the run where it was not the stack's; NULL: the stack's */
    int vpp;                /* used if the row does not say; 0: not known */
    double optimizer_bytes; /* state per parameter, if not the stack's; 0: the stack's */
    int offloaded_layers;   /* layers whose activations its recipe moved to the host */
    const char *dtype_contains; /* part of the row's dtype; NULL: any */
    int document_tokens;        /* its sequences were packed from documents of so many; 0: whole */
};

/* A row's framework stands for the stack `use` of ours if the row's other columns match (NULL: anything does). */
struct stack_fact {
    const char *framework, *source_contains, *dtype_contains, *schedule_contains,
        *recompute_contains, *use;
};

/* A stack without a file of its own: the file whose kernels, sharding and host are its in kind. */
struct stack_relative {
    const char *begins; /* a word of its name, whatever the case */
    const char *use;
};

/* A row whose source says how many microbatches a replica ran, and not as many as its batch makes. */
struct batch_fact {
    const char *id;
    int microbatches;
    bool checked_collectives; /* as of the framework */
};

/* A library keeps what it has loaded, by key, since rows share their few clusters and models. */
struct kept_cluster {
    const char *key;
    struct dtp_cluster cluster;
};
struct kept_model {
    const char *key;
    bool known;
    struct dtp_model model;
};

struct dtp_run_library {
    struct dtp_arena *a;
    struct kept_cluster *cluster;
    struct kept_model *model;
    struct dtp_model_names *model_names;
    size_t nclusters, nmodels;
    struct stack_fact *stack;
    size_t nstacks;
    struct stack_relative *relative;
    size_t nrelatives;
    struct batch_fact *batch;
    size_t nbatches;
    struct cluster_fact *fact;
    size_t nfacts;
    struct dtp_framework *framework;
    size_t nframeworks;
};

/* Tells whether a cell holds the part that an entry asks for; NULL asks for none. */
static inline bool dtp_run_says(const char *cell, const char *part) {
    return !part || strstr(cell, part);
}

/* By name or alias; NULL: none. */
const struct dtp_framework *dtp_run_framework(const struct dtp_run_library *l, const char *name);
/* The first fact that holds for the row; NULL: none. */
const struct cluster_fact *dtp_run_fact(const struct dtp_run_library *l, const struct dtp_run *run);
/* NULL: the row's batch is that of the run. */
const struct batch_fact *dtp_run_batch(const struct dtp_run_library *l, const struct dtp_run *run);
/* The named entry of hw/cluster, or with name NULL the usual nodes of the row's GPU. */
enum dtp_status dtp_run_cluster(struct dtp_run_library *l, const struct dtp_run *run,
                                const char *name, struct dtp_cluster *out, struct dtp_err *err);
/* A model of models/library/NAME.json, if there is one. */
bool dtp_run_model(struct dtp_run_library *l, const char *name, struct dtp_model *out);

#endif
