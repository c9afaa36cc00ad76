/* Layers of stages as Megatron-Core's --pipeline-model-parallel-layout has them. */
#include <string.h>

#include "models/plan/plan.h"
#include "sim/base/text.h"

enum { MOST_LETTERS = 1 << 16 };

/* "(tt|)*3" and "t*3" unrolled; false: not of this form. */
static bool unroll(const char *at, const char *end, struct dtp_str *out) {
    while (at < end) {
        bool group = *at == '(';
        const char *item = at + group;
        const char *item_end = group ? memchr(item, ')', (size_t)(end - item)) : at + 1;
        if (!item_end)
            return false;
        at = item_end + group;
        bool several = at < end && *at == '*';
        int times = several ? 0 : 1;
        for (at += several; several && at < end && *at >= '0' && *at <= '9'; at++)
            times = times < MOST_LETTERS ? 10 * times + (*at - '0') : times;
        for (int i = 0; i < times; i++) {
            if (out->n > MOST_LETTERS)
                return false;
            if (!group)
                dtp_str_printf(out, "%c", *item);
            else if (!unroll(item, item_end, out))
                return false;
        }
        if (times == 0)
            return false;
    }
    return true;
}

const char *dtp_plan_layers_of_layout(struct dtp_arena *a, const char *text) {
    struct dtp_str all = {.a = a}, layers = {.a = a};
    int n = 0, stages = 0;
    dtp_str_add(&all, "");
    if (!unroll(text, text + strlen(text), &all))
        return NULL;
    for (const char *p = all.at;; p++) {
        if (*p == 't') {
            n++;
        } else if (*p == '|' || *p == '\0') {
            dtp_str_printf(&layers, "%s%d", stages > 0 ? "," : "", n);
            stages++;
            n = 0;
        } else if (!strchr("EmL,", *p)) {
            return NULL;
        }
        if (*p == '\0')
            return stages > 1 || strchr(all.at, 't') ? layers.at : NULL;
    }
}
