/* et_private.h: shared by et*.c: the node being read, before its kind is known. */
#ifndef DTP_TRACES_FORMATS_ET_PRIVATE_H
#define DTP_TRACES_FORMATS_ET_PRIVATE_H

#include "traces/formats/et.h"
#include "traces/formats/pull.h"

/* What the inputs (or outputs) of a node say of a collective. */
struct et_values {
    uint64_t elements, bytes, element_bytes; /* of the tensors in the first value */
    const char *text;                        /* the first string, or "" */
    const int64_t *split[2];                 /* the lists of integers behind it */
    size_t nsplit[2], nsplits;
};

struct et_reader {
    struct dtp_pull p;
    struct dtp_arena *a, *scratch;
    struct dtp_et *et;
    int64_t *ints; /* a stack: numbers of the lists that are open */
    size_t nints, ints_capacity;
    /* the node being read */
    struct dtp_et_node node;
    struct dtp_et_comm comm;
    struct et_values in, out;
    bool has_id, has_name, is_comm, stated;
    /* the attribute being read */
    char key[64];
    char *value;
    size_t value_capacity;
};

/* The array of values at the current place; taken apart only where it may be of use. */
enum dtp_status et_take_values(struct et_reader *r, struct et_values *out, struct dtp_err *err);
enum dtp_status et_take_attrs(struct et_reader *r, struct dtp_err *err);

#endif
