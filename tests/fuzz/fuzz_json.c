/* Any bytes are read or refused with a message; what is read, written and read again is the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/json.h"
#include "tests/fuzz/fuzz.h"

static char *write_text(const struct dtp_json *j, size_t *length_bytes) {
    char *text = NULL;
    FILE *f = open_memstream(&text, length_bytes);
    if (!f)
        abort();
    struct dtp_json_out w;
    dtp_json_begin(&w, f, 0);
    dtp_json_put_json(&w, j);
    fclose(f);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct dtp_arena *a = dtp_arena_create("fuzz");
    struct dtp_err err = {0};
    const struct dtp_json *first, *second;
    if (dtp_json_parse(a, "fuzz", (const char *)data, size, &first, &err) == DTP_OK) {
        size_t n1 = 0, n2 = 0;
        char *text1 = write_text(first, &n1);
        if (dtp_json_parse(a, "again", text1, n1, &second, &err) != DTP_OK)
            abort();
        char *text2 = write_text(second, &n2);
        if (n1 != n2 || memcmp(text1, text2, n1) != 0)
            abort();
        free(text1);
        free(text2);
    } else if (err.msg[0] == '\0' || err.status != DTP_EINPUT) {
        abort();
    }
    dtp_arena_destroy(a);
    return 0;
}
