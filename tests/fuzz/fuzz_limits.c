/* Any bytes as limits on a plan ("tp=8,pp=4..16"): what is accepted holds values in order, and the text
 * of a value that it holds is accepted as the same value. */
#include <stdlib.h>

#include "planner/limits.h"
#include "tests/fuzz/fuzz.h"

static void check(enum dtp_limit limit, const struct dtp_select *s) {
    for (int i = 0; i < s->n; i++) {
        char text[32];
        struct dtp_select one;
        if (s->lo[i] > s->hi[i] || !dtp_select_has(s, s->lo[i]) || !dtp_select_has(s, s->hi[i]))
            abort();
        dtp_limit_text(limit, s->lo[i], text, sizeof text);
        if (dtp_select_parse(limit, text, "fuzz", &one, NULL) != DTP_OK || one.lo[0] != s->lo[i])
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct dtp_arena *a = dtp_arena_create("fuzz");
    struct dtp_err err = {0};
    struct dtp_limits limits = dtp_limits_none();
    const char *text = dtp_arena_strndup(a, (const char *)data, size);
    if (dtp_limits_parse(a, text, "fuzz", &limits, &err) == DTP_OK)
        for (int k = 0; k < DTP_NLIMITS; k++)
            check((enum dtp_limit)k, &limits.field[k]);
    dtp_arena_destroy(a);
    return 0;
}
