/* Any bytes as what was measured ("45% MFU, 61GiB", lines of a log): what is accepted is a time or bytes that can be,
 * the rest is refused with a message. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/doctor.h"
#include "tests/fuzz/fuzz.h"

/* Read once. */
static const struct dtp_problem *problem(void) {
    static struct dtp_setup setup;
    static struct dtp_arena *a;
    if (!a) {
        const struct dtp_ask ask = {.model = "gpt2-345m", .gpus = 8, .dtype = -1, .attention = -1};
        a = dtp_arena_create("problem");
        if (dtp_setup_init(a, &ask, &setup, NULL) != DTP_OK)
            abort();
    }
    return &setup.problem;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct dtp_err err = {0};
    struct dtp_measured m;
    char *text = malloc(size + 1); /* a copy lets a sanitizer see reads past its end */
    if (!text)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    if (dtp_measured_parse(text, problem(), &m, &err) == DTP_OK) {
        if (!isfinite(m.step_s) || !isfinite(m.peak_bytes) || m.step_s < 0 || m.peak_bytes < 0 ||
            !(m.out_of_memory || m.step_s > 0 || m.peak_bytes > 0) || m.batch < 0)
            abort();
    } else if (err.msg[0] == '\0') {
        abort();
    }
    free(text);
    return 0;
}
