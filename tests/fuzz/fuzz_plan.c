/* Any bytes as a plan or a framework: a plan that is accepted is written and read back equal. */
#include <stdio.h>
#include <stdlib.h>

#include "models/framework/framework.h"
#include "models/plan/plan.h"
#include "sim/base/json.h"
#include "tests/fuzz/fuzz.h"

static void check_plan(struct dtp_arena *a, const struct dtp_plan *plan) {
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (!f)
        abort();
    struct dtp_json_out w;
    dtp_json_begin(&w, f, 0);
    dtp_json_object(&w);
    dtp_json_put_key(&w, "plan");
    dtp_plan_write(&w, plan);
    dtp_json_end(&w);
    fclose(f);
    const struct dtp_json *j;
    struct dtp_plan back = *plan;
    if (dtp_json_parse(a, "written", text, n, &j, NULL) != DTP_OK ||
        dtp_plan_read(a, dtp_json_get(j, "plan"), &back, NULL) != DTP_OK ||
        dtp_plan_compare(plan, &back) != 0)
        abort();
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct dtp_arena *a = dtp_arena_create("fuzz");
    struct dtp_err err = {0};
    const struct dtp_json *j;
    struct dtp_framework framework = {0};
    struct dtp_plan plan = dtp_plan_default();
    if (dtp_json_parse(a, "fuzz", (const char *)data, size, &j, &err) == DTP_OK) {
        if (dtp_plan_read(a, j, &plan, &err) == DTP_OK)
            check_plan(a, &plan);
        else if (dtp_framework_read(a, j, &framework, &err) == DTP_OK)
            (void)dtp_framework_padded_vocab(&framework, 50257, 8);
    }
    dtp_arena_destroy(a);
    return 0;
}
