/* Any text is read as a schedule or refused with a message. What the checker passes can be completed,
 * passes again with its transfers, and reads back from its own print. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/schedule/schedule.h"
#include "tests/fuzz/fuzz.h"

static char *print_text(const struct dtp_schedule *s) {
    char *text = NULL;
    size_t length_bytes = 0;
    FILE *f = open_memstream(&text, &length_bytes);
    if (!f)
        abort();
    dtp_schedule_print(f, s);
    fclose(f);
    return text;
}

static void reads_back(struct dtp_arena *a, const struct dtp_schedule *s) {
    struct dtp_schedule back;
    char *text = print_text(s), *again = NULL;
    if (dtp_schedule_parse(a, "again", text, 0, &back, NULL) != DTP_OK)
        abort();
    again = print_text(&back);
    if (strcmp(text, again) != 0)
        abort();
    free(text);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct dtp_arena *a = dtp_arena_create("fuzz");
    struct dtp_err err = {0};
    struct dtp_schedule s, full;
    struct dtp_schedule_passes passes = {
        .p2p = true, .recompute = true, .zero_stage = 3, .reduce = true, .optim = true};
    const char *text = dtp_arena_strndup(a, (const char *)data, size);
    enum dtp_status status = dtp_schedule_parse(a, "fuzz", text, 0, &s, &err);
    if (status == DTP_OK)
        status = dtp_schedule_check(a, &s, &err);
    if (status != DTP_OK && (err.msg[0] == '\0' || err.status != DTP_EINPUT))
        abort();
    if (status == DTP_OK && dtp_schedule_complete(a, &s, &passes, &full, NULL) == DTP_OK) {
        if (dtp_schedule_check(a, &full, NULL) != DTP_OK)
            abort();
        reads_back(a, &full);
    }
    dtp_arena_destroy(a);
    return 0;
}
