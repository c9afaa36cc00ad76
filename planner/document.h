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
    const char *version;           /* of the dtplan that wrote it, or NULL */
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
/* "model": ..., "cluster": ..., "framework": ..., "gpus", "seq" and what is not default, as members
 * of the open object: by name where the name can be loaded again, else the whole object. */
void dtp_document_write_problem(struct dtp_json_out *w, const struct dtp_setup *setup);
/* Status DTP_ENO with the reason and the numbers, when the plan is not legal. */
enum dtp_status dtp_plan_require(const struct dtp_problem *problem, const struct dtp_plan *plan,
                                 struct dtp_err *err);

#endif
