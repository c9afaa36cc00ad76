/* kineto.h: PyTorch's Kineto traces (Chrome JSON), old and new, of CUDA and ROCm, as a stream.
 *
 * Understood: an object with traceEvents or a bare array (whose ] may be absent); metadata before or
 * after the events; whole and decimal microseconds; baseTimeNanoseconds; the categories before 2022
 * (Kernel, Runtime, Memcpy, "stream 7"). Calls of python_function are counted and not kept. A file
 * that is not whole, or is no JSON, is DTP_EINPUT with the byte; what can be repaired is a warning.
 */
#ifndef DTP_TRACES_FORMATS_KINETO_H
#define DTP_TRACES_FORMATS_KINETO_H

#include "traces/formats/pull.h"
#include "traces/formats/source.h"
#include "traces/formats/trace.h"

/* r: from dtp_trace_rank_init(). Calls dtp_trace_finish(). progress: may be NULL. */
enum dtp_status dtp_kineto_read(struct dtp_source *source, const struct dtp_trace_options *options,
                                struct dtp_trace_rank *r, struct dtp_err *err);
/* Returns the bytes of an element of a type word (Float, c10::BFloat16, long int, ...), 0: not known. */
int dtp_kineto_type_bytes(const struct dtp_text *t);

#endif
