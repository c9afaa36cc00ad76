/* json_range.h: private to json_*.c: which numbers and names a field accepts, and how to say so. */
#ifndef DTP_SIM_BASE_JSON_RANGE_H
#define DTP_SIM_BASE_JSON_RANGE_H

#include "sim/base/json.h"

/* v is in min..max, fits the C type, and is whole where the field is. */
bool dtp_field_fits(const struct dtp_field *f, double v);
/* "an integer from 1 to 1024", "a number of 0 or more"; 96 bytes are enough. Returns buf. */
const char *dtp_field_range_text(const struct dtp_field *f, char *buf, size_t size);
/* Error for a text that is none of an enum's names. */
enum dtp_status dtp_field_unknown_value(const struct dtp_field *f, const char *text,
                                        const char *place, struct dtp_err *err);

#endif
