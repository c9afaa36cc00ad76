/* model_equal.h: whether two models are equal in every field that a document has, strings and convolutions by content. */
#ifndef DTP_TESTS_MODEL_EQUAL_H
#define DTP_TESTS_MODEL_EQUAL_H

#include <string.h>

#include "models/model/model.h"

static inline bool same_text(const char *a, const char *b) {
    return strcmp(a ? a : "", b ? b : "") == 0;
}

static inline bool equal_fields(const struct dtp_field *fields, const void *a, const void *b) {
    bool equal = true;
    for (const struct dtp_field *f = fields; f->name && equal; f++) {
        const void *x = (const char *)a + f->offset, *y = (const char *)b + f->offset;
        if (f->kind == DTP_FIELD_OBJECT)
            equal = equal_fields(f->fields, x, y);
        else if (f->kind == DTP_FIELD_STRING)
            equal = same_text(*(const char *const *)x, *(const char *const *)y);
        else
            equal = memcmp(x, y,
                           f->kind == DTP_FIELD_BOOL     ? sizeof(bool)
                           : f->kind == DTP_FIELD_DOUBLE ? sizeof(double)
                                                         : sizeof(int)) == 0;
    }
    return equal;
}

static inline bool model_equal(const struct dtp_model *a, const struct dtp_model *b) {
    /* the rows before the name are of the document only */
    const struct dtp_field *fields = dtp_field_find(dtp_model_fields, "name");
    bool equal =
        equal_fields(fields, a, b) && same_text(a->source, b->source) && a->nconvs == b->nconvs;
    for (int i = 0; i < a->nconvs && equal; i++)
        equal = equal_fields(dtp_conv_fields, &a->conv[i], &b->conv[i]);
    return equal;
}

#endif
