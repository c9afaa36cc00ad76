/* facts.h: says what a run trains in one line of JSON, for checkpoints and for the rendezvous of ranks.
 *
 *   {"training": {"model": {...}, "seq", "batch", "seed", "data", "optimizer": {...}, "dropout": {...}},
 *    "job": {"version", "backend", "dtype", "steps", "rates": {...}, "plan": {...}}}
 *
 * A run resumes from a checkpoint only if "training" is the same; "job" may change between runs, but not between
 * the ranks of one. Names and sources of a model are left out, since only its architecture counts. Data is
 * identified by its length and CRC-32, since hosts may keep it under different paths.
 */
#ifndef DTP_RUNTIME_FACTS_H
#define DTP_RUNTIME_FACTS_H

#include "runtime/run.h"
#include "sim/base/json.h"

struct dtp_data;

#define DTP_FACTS_MOST_BYTES (1 << 18) /* length of a text that is accepted from outside */

enum dtp_status dtp_facts_text(struct dtp_arena *a, const struct dtp_run_options *o,
                               const struct dtp_data *data, const char **out, struct dtp_err *err);

#endif
