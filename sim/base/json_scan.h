/* json_scan.h: private to json_*.c: the grammar check that runs before cJSON sees a text.
 *
 * cJSON accepts trailing bytes, raw control characters, bad UTF-8, lone surrogates, numbers that
 * overflow, and says nothing of where. This pass accepts exactly RFC 8259 in UTF-8 with depth at
 * most DTP_JSON_DEPTH, finite numbers, and integers at most 2^53 in size (those a double holds).
 * Errors of syntax name line and column, errors of value the JSON path.
 */
#ifndef DTP_SIM_BASE_JSON_SCAN_H
#define DTP_SIM_BASE_JSON_SCAN_H

#include <stddef.h>

#include "sim/base/status.h"

enum { DTP_JSON_DEPTH = 64 };

enum dtp_status dtp_json_scan(const char *name, const char *text, size_t length_bytes,
                              struct dtp_err *err);

#endif
