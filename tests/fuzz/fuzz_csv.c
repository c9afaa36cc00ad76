/* Any bytes are read or refused with a message; the rows, written and read again, are the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/csv.c" /* a text need not be a file here */
#include "tests/fuzz/fuzz.h"

static char *write_text(const struct dtp_csv *csv, size_t *length_bytes) {
    char *text = NULL;
    FILE *f = open_memstream(&text, length_bytes);
    if (!f)
        abort();
    for (size_t i = 0; i < csv->ncols; i++)
        dtp_csv_put(f, csv->header[i], i + 1 == csv->ncols);
    for (size_t row = 0; row < csv->nrows; row++)
        for (size_t i = 0; i < csv->ncols; i++)
            dtp_csv_put(f, dtp_csv_get(csv, row, (int)i), i + 1 == csv->ncols);
    fclose(f);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct dtp_arena *a = dtp_arena_create("fuzz");
    struct dtp_err err = {0};
    struct dtp_csv first, second;
    if (parse_csv(a, "fuzz", (const char *)data, size, &first, &err) == DTP_OK) {
        size_t n = 0;
        char *text = write_text(&first, &n);
        if (parse_csv(a, "again", text, n, &second, &err) != DTP_OK ||
            second.ncols != first.ncols || second.nrows != first.nrows)
            abort();
        for (size_t i = 0; i < first.nrows * first.ncols; i++)
            if (strcmp(first.cell[i], second.cell[i]) != 0)
                abort();
        free(text);
    } else if (err.msg[0] == '\0' || err.status != DTP_EINPUT) {
        abort();
    }
    dtp_arena_destroy(a);
    return 0;
}
