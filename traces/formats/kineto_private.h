/* kineto_private.h: shared by kineto*.c: the record being read, before its kind is known. */
#ifndef DTP_TRACES_FORMATS_KINETO_PRIVATE_H
#define DTP_TRACES_FORMATS_KINETO_PRIVATE_H

#include "traces/formats/pull.h"
#include "traces/formats/trace.h"

enum { KINETO_ID_BYTES = 48, KINETO_INPUTS = 64, KINETO_SHAPE_BYTES = 256 };

/* A name or id of the record: copied, since the window moves. */
struct kineto_copy {
    char *at;
    size_t n, capacity;
};

struct kineto_args {
    bool has_stream, has_device, has_comm;
    int64_t stream, device;
    uint64_t correlation, bytes;
    bool big_correlation;
    struct dtp_trace_comm comm;
    uint64_t input_elements[KINETO_INPUTS], input_bytes[KINETO_INPUTS];
    int ninputs, ntypes;
    char shape[KINETO_SHAPE_BYTES]; /* text of arrays; what does not fit is left out whole */
    size_t nshape;
    bool shape_cut;
    int64_t grid[3], block[3];
};

struct kineto_record {
    char phase;
    char pid[KINETO_ID_BYTES], tid[KINETO_ID_BYTES];
    struct kineto_copy name;
    uint8_t category;
    bool has_category, has_ts, bad_time, has_name;
    int64_t ts_ns, dur_ns;
    uint64_t id;
    bool has_id;
    struct kineto_args args;
};

/* What the categories seen so far mean, by their number. */
struct kineto_reader {
    struct dtp_pull pull;
    struct dtp_trace_rank *r;
    const struct dtp_trace_options *options;
    struct kineto_record rec;
    unsigned char meaning[256]; /* 0: not looked up yet, else enum kineto_meaning + 1 */
    struct kineto_flow *flow;
    size_t nflows, flows_capacity;
    struct dtp_arena *scratch;
    uint64_t next_progress;
};

struct kineto_flow {
    uint64_t id;
    int64_t ts_ns;
    uint8_t category, end, on_device;
};

/* Fills k->rec from the object that follows. */
enum dtp_status kineto_read_record(struct kineto_reader *k, struct dtp_err *err);
enum dtp_status kineto_read_args(struct kineto_reader *k, struct dtp_err *err);
enum dtp_status kineto_read_metadata(struct kineto_reader *k, const struct dtp_text *key,
                                     struct dtp_err *err);
/* Bytes of an element of a type word (Float, c10::BFloat16, long int, ...), 0: not known. */
int kineto_type_bytes(const struct dtp_text *t);
/* Text that lives as long as the trace; equal texts are one. */
const char *kineto_keep(struct kineto_reader *k, const struct dtp_text *t);

#endif
