/* corpus_main.c FOLDER: runs a fuzz target over each file of a corpus, and over damaged copies of it:
 * cut at every place up to 4,096, and with one byte changed there. Fails on an empty corpus. */
#define _XOPEN_SOURCE 700
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "sim/base/text.h"
#include "tests/fuzz/fuzz.h"

static void run_damaged(const char *text, size_t n) {
    /* exactly n bytes on the heap, so that a sanitizer sees a read beyond them */
    char *copy = malloc(n ? n : 1);
    if (!copy)
        exit(5);
    memcpy(copy, text, n);
    LLVMFuzzerTestOneInput((const uint8_t *)copy, n);
    for (size_t i = 0; i < n && i < 4096; i++) {
        static const char damage[] = "\"{[,\\\n\0\xff"
                                     "9";
        copy[i] = damage[i % (sizeof damage - 1)];
        LLVMFuzzerTestOneInput((const uint8_t *)copy, n);
        copy[i] = text[i];
    }
    free(copy);
    for (size_t cut = 0; cut < n && cut < 4096; cut++) {
        char *part = malloc(cut ? cut : 1);
        if (!part)
            exit(5);
        memcpy(part, text, cut);
        LLVMFuzzerTestOneInput((const uint8_t *)part, cut);
        free(part);
    }
}

int main(int argc, char **argv) {
    DIR *dir = argc == 2 ? opendir(argv[1]) : NULL;
    if (!dir) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    struct dtp_arena *a = dtp_arena_create("replay");
    int nfiles = 0;
    for (const struct dirent *entry; (entry = readdir(dir));) {
        struct dtp_err err;
        const char *text;
        size_t n;
        if (entry->d_name[0] == '.')
            continue;
        const char *path = dtp_arena_printf(a, "%s/%s", argv[1], entry->d_name);
        if (dtp_file_read(a, path, 0, &text, &n, &err) != DTP_OK) {
            fprintf(stderr, "%s\n", err.msg);
            return 1;
        }
        run_damaged(text, n);
        nfiles++;
    }
    closedir(dir);
    dtp_arena_destroy(a);
    printf("%d files\n", nfiles);
    return nfiles == 0;
}
