/* document.h: plan documents: a plan with the problem that it answers, in one JSON file.
 *
 *     {"schema_version": 1, "model": "gpt175b", "cluster": "dgx-a100-80", "framework":
 * "megatron-core", "gpus": 1024, "seq": 2048, "plan": {"tp": 8, "pp": 16, "dp": 8, ...}}
 *
 * model, cluster and framework are names or whole objects; "nic", "attention" and
 * "memory_limit_bytes" are optional. The whole output of `dtplan --json` is a document too: its
 * "best" is the plan. A plan that lacks fields takes those of dtp_plan_default(); one without dp
 * takes gpus / (tp cp pp); one without global_batch_size the model's.
 */
#ifndef DTP_PLANNER_DOCUMENT_H
#define DTP_PLANNER_DOCUMENT_H

#include "planner/setup.h"

#define DTP_SCHEMA_VERSION 1

struct dtp_document {
    struct dtp_ask ask;
    const struct dtp_json *plan;   /* object; read with dtp_document_plan() */
    const struct dtp_json *result; /* "best" of an output, or NULL */
    const char *version;           /* dtplan that wrote it, or NULL */
};

extern const struct dtp_field
    dtp_document_fields[]; /* its keys: for the reader and for the manual */

/* path "-" reads standard input. */
enum dtp_status dtp_document_read(struct dtp_arena *a, const char *path, struct dtp_document *out,
                                  struct dtp_err *err);
/* The plan of the document for a problem that was set up from document->ask; checks that it is
 * legal and gives the reason when it is not. */
enum dtp_status dtp_document_plan(struct dtp_arena *a, const struct dtp_document *d,
                                  const struct dtp_problem *problem, struct dtp_plan *out,
                                  struct dtp_err *err);

/* ---- what documents that dtplan writes have in common ---- */

/* Writes the problem of a struct dtp_setup, by name if the name can be loaded, else by whole objects. */
extern const struct dtp_form dtp_problem_form;
extern const struct dtp_form dtp_plan_form; /* writes a struct dtp_plan, for dtp_put_plan() */
dtp_field_put dtp_put_plan, dtp_put_schema_version;
/* These expect a pointer to a struct dtp_problem. */
dtp_field_put dtp_put_model_name, dtp_put_cluster_name, dtp_put_framework_name, dtp_put_gpus;

#define DTP_FIELD_SCHEMA_VERSION                                                                   \
    {                                                                                              \
        .name = "schema_version", .kind = DTP_FIELD_PUT, .put = dtp_put_schema_version,            \
        .help = "version of this form"                                                             \
    }
#define DTP_FIELD_SOURCE(text)                                                                     \
    {                                                                                              \
        .name = "source", .kind = DTP_FIELD_PUT, .put = dtp_put_constant,                          \
        .names = (const char *const[]){text, NULL}, .help = "where the numbers are from"           \
    }
#define DTP_FIELD_VERSION                                                                          \
    {                                                                                              \
        .name = "version", .kind = DTP_FIELD_PUT, .put = dtp_put_constant,                         \
        .names = (const char *const[]){DTP_VERSION, NULL}, .help = "version of dtplan"             \
    }
#define DTP_FIELD_PLAN_AT(at)                                                                      \
    {                                                                                              \
        .name = "plan", .kind = DTP_FIELD_PUT, .offset = at, .put = dtp_put_plan,                  \
        .form = &dtp_plan_form, .help = "the layout"                                               \
    }
/* Status DTP_ENO with the reason and the numbers, when the plan is not legal. */
enum dtp_status dtp_plan_require(const struct dtp_problem *problem, const struct dtp_plan *plan,
                                 struct dtp_err *err);

#endif
