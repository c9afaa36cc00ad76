/* Any bytes as a model document: never a crash; what is accepted has finite counts and survives
 * being written and read again. */
#include <math.h>
#include <stdlib.h>

#include "models/model/model.h"
#include "tests/fuzz/fuzz.h"
#include "tests/model_equal.h"

static void check(struct dtp_arena *a, const struct dtp_model *m) {
    struct dtp_param_counts n;
    struct dtp_json_out w;
    struct dtp_model back;
    const struct dtp_json *j;
    char *text = NULL;
    size_t length = 0;
    dtp_model_params(m, m->vocab, &n);
    double flops = dtp_model_forward_flops(m, m->seq);
    FILE *f = open_memstream(&text, &length);
    if (!f)
        return;
    dtp_json_begin(&w, f, 0);
    dtp_model_write(&w, m);
    fclose(f);
    if (!(n.active <= n.total) || !isfinite(flops) || flops < 0 ||
        dtp_json_parse(a, "written", text, length, &j, NULL) != DTP_OK ||
        dtp_model_read(a, j, &back, NULL) != DTP_OK || !model_equal(m, &back))
        abort();
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct dtp_arena *a = dtp_arena_create("fuzz");
    const struct dtp_json *j;
    struct dtp_model m;
    struct dtp_err err;
    if (dtp_json_parse(a, "fuzz", (const char *)data, size, &j, &err) == DTP_OK &&
        dtp_model_read(a, j, &m, &err) == DTP_OK)
        check(a, &m);
    dtp_arena_destroy(a);
    return 0;
}
