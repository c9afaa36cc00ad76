/* check_sources.c FOLDER...: every number in a JSON file of these folders has a source: a "source"
 * string or object in its own object or one that encloses it. schema_version is no measured number.
 * Each string of a "source" has at most 300 characters where the long form stands in a NOTES.md: in hw and in
 * traces/measured. Prints each number without a source and each source that is too long; exit status 1 if there is
 * any. */
#define _XOPEN_SOURCE 700 /* nftw */
#include <ftw.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/json.h"
#include "sim/base/text.h"

/* nftw passes no context */
static struct dtp_arena *arena;
static int nbad, nfiles;
static bool short_sources; /* in this file */
enum { MOST_CHARACTERS = 300 };

static bool has_source(const struct dtp_json *object) {
    const struct dtp_json *source = dtp_json_get(object, "source");
    if (!source)
        return false;
    if (dtp_json_type(source) == DTP_JSON_STRING)
        return dtp_json_string(source)[0] != 0;
    return dtp_json_type(source) == DTP_JSON_OBJECT && dtp_json_size(source) > 0;
}

/* Characters of UTF-8, not bytes. */
static int length_of(const char *text) {
    int n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

static void check_length(const struct dtp_json *j) {
    enum dtp_json_type type = dtp_json_type(j);
    int length = type == DTP_JSON_STRING ? length_of(dtp_json_string(j)) : 0;
    if (length > MOST_CHARACTERS) {
        char place[512];
        printf("%s: a source of %d characters, at most %d and the rest in NOTES.md\n",
               dtp_json_place(j, place, sizeof place), length, MOST_CHARACTERS);
        nbad++;
    }
    for (size_t i = 0; type == DTP_JSON_OBJECT && i < dtp_json_size(j); i++)
        check_length(dtp_json_at(j, i));
}

static void check(const struct dtp_json *j, bool covered) {
    enum dtp_json_type type = dtp_json_type(j);
    if (type == DTP_JSON_NUMBER && !covered && strcmp(dtp_json_key(j), "schema_version") != 0) {
        char place[512];
        printf("%s: a number without a source\n", dtp_json_place(j, place, sizeof place));
        nbad++;
    }
    if (type != DTP_JSON_OBJECT && type != DTP_JSON_ARRAY)
        return;
    if (type == DTP_JSON_OBJECT && has_source(j)) {
        covered = true;
        if (short_sources)
            check_length(dtp_json_get(j, "source"));
    }
    for (size_t i = 0; i < dtp_json_size(j); i++)
        check(dtp_json_at(j, i), covered);
}

static int visit(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st;
    (void)at;
    size_t n = strlen(path);
    if (kind != FTW_F || n < 5 || strcmp(path + n - 5, ".json") != 0)
        return 0;
    const struct dtp_json *root;
    struct dtp_err err;
    nfiles++;
    short_sources = strncmp(path, "hw/", 3) == 0 || strncmp(path, "traces/measured/", 16) == 0;
    if (dtp_json_read_file(arena, path, &root, &err) != DTP_OK) {
        printf("%s\n", err.msg);
        nbad++;
    } else {
        check(root, false);
    }
    dtp_arena_reset(arena);
    return 0;
}

int main(int argc, char **argv) {
    arena = dtp_arena_create("check_sources");
    for (int i = 1; i < argc; i++)
        if (nftw(argv[i], visit, 16, FTW_PHYS) != 0) {
            printf("%s: cannot walk the folder\n", argv[i]);
            nbad++;
        }
    dtp_arena_destroy(arena);
    printf("%d JSON files, %d findings\n", nfiles, nbad);
    return nbad > 0;
}
