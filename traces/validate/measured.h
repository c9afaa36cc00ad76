/* measured.h: measured training runs: CSV rows in, problem and plan out.
 *
 * One schema (traces/README.md lists the columns). An empty cell is unknown: the framework's default is
 * taken and `note` says so. A framework without a file is predicted as its nearest relative, a number that
 * cannot be (a batch that does not divide) as the nearest that can, and `note` says that, too; a GPU that
 * dtplan does not know is unsupported. Which cluster a published run used is a fact of its source and stands in
 * traces/measured/clusters.json; a source that is not listed gets the usual nodes of its GPU.
 */
#ifndef DTP_TRACES_VALIDATE_MEASURED_H
#define DTP_TRACES_VALIDATE_MEASURED_H

#include "models/evaluate/evaluate.h"
#include "sim/base/text.h"

#define DTP_UNKNOWN (-1)

/* As in the file; numbers that are empty are DTP_UNKNOWN, text that is empty is "". */
struct dtp_run {
    const char *id, *framework, *gpu, *model, *dtype, *recompute, *schedule, *step_s_from,
        *peak_mem_unit, *source;
    const char *attention, *cluster, *nic, *optimizer; /* as the options of simulate */
    const char *loss; /* plain, or of a kind that is not modelled */
    int lora;         /* rank of adapters, which are not modelled; 0 or DTP_UNKNOWN: none */
    double gpu_mem_gb, step_s, peak_mem;
    int gpus, gpus_per_node, layers, hidden, heads, kv_heads, ffn, gated_ffn, vocab, seq;
    int tp, pp, vpp, cp, dp, ep, etp, zero_stage, microbatch, global_batch, sequence_parallel,
        flash_attention;
    int peak_mem_kind; /* allocated, reserved, driver; DTP_UNKNOWN: as the unit says */
    const char *file;  /* name of the file, without folders */
    int line;
    const char *broken; /* NULL, or the message of a cell that cannot be read */
};

struct dtp_runs {
    struct dtp_run *at;
    size_t n;
};

/* Appends the rows of a file. Another schema is DTP_EINPUT with one line. */
enum dtp_status dtp_runs_read(struct dtp_arena *a, const char *path, struct dtp_runs *out,
                              struct dtp_err *err);

/* A case holds what a row asks; the arena owns it. */
struct dtp_run_case {
    struct dtp_problem problem;
    struct dtp_model model;
    struct dtp_cluster cluster;
    struct dtp_framework framework;
    struct dtp_plan plan;
    bool peak_of_first_stage;  /* the measured peak is rank 0's, not the largest */
    const char *peak_mem_unit; /* the row's, or what it means by a fact of the source */
    double batches;   /* the row's batch over that of its step, where they differ; else 1 */
    bool outside;     /* a number format that no calibration covers (FP4, MX) */
    const char *note; /* "" or what was assumed */
    const char *unknown_schedule; /* NULL, or what was made of it, which is in the note as well */
    const char *unsupported;      /* NULL, or why the row cannot be predicted */
};

struct dtp_run_library; /* frameworks, clusters and facts, loaded once */
enum dtp_status dtp_run_library_create(struct dtp_arena *a, struct dtp_run_library **out,
                                       struct dtp_err *err);
/* A row that cannot be predicted sets `unsupported`. */
void dtp_run_case_make(struct dtp_arena *a, struct dtp_run_library *library,
                       const struct dtp_run *run, struct dtp_run_case *out);

/* Returns the bytes of peak_mem, and sets what it means: "allocated", "reserved" or "device"; 0 when unknown. */
double dtp_run_peak_bytes(const struct dtp_run *run, const char **out_meaning);

#endif
