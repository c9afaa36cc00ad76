/* trainers.h: the options of trainers, as their parsers and configuration classes have them, and what each means for
 * time and memory: tables in traces/trainers, one for each trainer.
 *
 * A table has a row for each option: its path, its default, its use and a note. Uses: "used" (dtplan has something of
 * the same meaning, which the note names), "none" (no effect on time or memory), "matters" (not modelled), "unknown".
 */
#ifndef DTP_TRACES_FORMATS_TRAINERS_H
#define DTP_TRACES_FORMATS_TRAINERS_H

#include <stdio.h>

#include "sim/base/json.h"
#include "sim/base/status.h"
#include "traces/formats/settings.h"

/* Gives each setting that nobody has read its use, by the table that knows most of the settings, else by any. A value
 * that is the default or switches something off is without effect. */
enum dtp_status dtp_trainers_judge(struct dtp_settings *s, struct dtp_err *err);

/* How many settings may cost time or memory that the answer does not have. */
size_t dtp_settings_left_out(const struct dtp_settings *s);
/* The four lists. */
void dtp_settings_print(FILE *f, const struct dtp_settings *s);
void dtp_settings_write(struct dtp_json_out *w, const struct dtp_settings *s);

#endif
