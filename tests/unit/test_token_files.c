/* The same tokens as text, as .npy and as Megatron's .bin with .idx give the same sequences. */
#include <CUnit/Basic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rank.h"
#include "tests/suites.h"

static struct dtp_arena *arena;
static char folder[] = "/tmp/dtplan-tokens-XXXXXX";
static const char text[] = "Der Mond ist aufgegangen, die goldnen Sternlein prangen am Himmel.";
enum { TOKENS = sizeof text - 1, SEQ = 12 };

static const char *in_folder(const char *name) {
    return dtp_arena_printf(arena, "%s/%s", folder, name);
}

static void write_file(const char *name, const void *x, size_t bytes) {
    FILE *f = fopen(in_folder(name), "wb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    CU_ASSERT_EQUAL(fwrite(x, 1, bytes, f), bytes);
    fclose(f);
}

static size_t put(unsigned char *to, size_t at, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++)
        to[at + (size_t)i] = (unsigned char)(v >> (8 * i));
    return at + (size_t)bytes;
}

/* A header of version 1 for `n` values of the type; returns the bytes of the file. */
static void write_npy(const char *name, const char *type, int bytes, const char *shape) {
    unsigned char file[2048] = "\x93NUMPY\x01";
    char dictionary[128];
    int length = snprintf(dictionary, sizeof dictionary,
                          "{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n", type, shape);
    size_t at = put(file, 8, (uint64_t)length, 2);
    memcpy(file + at, dictionary, (size_t)length);
    at += (size_t)length;
    for (int i = 0; i < TOKENS; i++)
        at = put(file, at, (unsigned char)text[i], bytes);
    write_file(name, file, at);
}

/* Two documents: the first 20 tokens, and the rest. */
static void write_megatron(uint64_t code, int bytes, uint64_t second_at) {
    unsigned char idx[256] = "MMIDIDX\0", bin[2048];
    size_t n = put(idx, 9, 1, 8), at = 0;
    n = put(idx, n, code, 1);
    n = put(idx, n, 2, 8);
    n = put(idx, n, 3, 8);
    n = put(idx, n, 20, 4);
    n = put(idx, n, TOKENS - 20, 4);
    n = put(idx, n, 0, 8);
    n = put(idx, n, second_at, 8);
    for (uint64_t i = 0; i < 3; i++)
        n = put(idx, n, i, 8);
    for (int i = 0; i < TOKENS; i++)
        at = put(bin, at, (unsigned char)text[i], bytes);
    write_file("m.idx", idx, n);
    write_file("m.bin", bin, at);
}

static enum dtp_status open_data(const char *name, int vocab, struct dtp_data *out,
                                 struct dtp_err *err) {
    *out = (struct dtp_data){.seed = 7, .vocab = vocab, .seq = SEQ};
    return dtp_data_open(arena, in_folder(name), out, err);
}

static void check_same(const char *name) {
    struct dtp_data as_text, d;
    struct dtp_err err = {0};
    int32_t x[SEQ + 1], y[SEQ + 1];
    CU_ASSERT_EQUAL_FATAL(open_data("text", 300, &as_text, &err), DTP_OK);
    if (open_data(name, 300, &d, &err) != DTP_OK)
        printf("\n  %s\n", err.msg);
    CU_ASSERT_EQUAL_FATAL(err.status, DTP_OK);
    for (uint64_t i = 0; i < 50; i++) {
        dtp_data_sequence(&as_text, i, x);
        dtp_data_sequence(&d, i, y);
        CU_ASSERT_EQUAL(memcmp(x, y, sizeof x), 0);
        CU_ASSERT_PTR_NOT_NULL(strchr(text, y[0]));
    }
}

static void test_formats_agree(void) {
    const struct {
        const char *type;
        int bytes;
    } types[] = {{"|u1", 1}, {"<u2", 2}, {"<i2", 2}, {"<u4", 4},
                 {"<i4", 4}, {"<u8", 8}, {"<i8", 8}};
    write_file("text", text, TOKENS);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        write_npy("a.npy", types[i].type, types[i].bytes, i % 2 ? "(2, 33)" : "(66,)");
        check_same("a.npy");
    }
    write_megatron(8, 2, 40);
    check_same("m.bin");
    check_same("m");
    write_megatron(4, 4, 80);
    check_same("m.idx");
}

static void check_bad(const char *name, int vocab, const char *says) {
    struct dtp_data d;
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL(open_data(name, vocab, &d, &err), DTP_EINPUT);
    if (!strstr(err.msg, says))
        printf("\n  found \"%s\", expected \"%s\"\n", err.msg, says);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, says));
}

static void test_bad_files(void) {
    write_npy("a.npy", "<u2", 2, "(66,)");
    check_bad("a.npy", 64, "token 0 is 68, expected 0 to 63");
    write_npy("a.npy", "<u2", 2, "(67,)");
    check_bad("a.npy", 300, "132 bytes of values, expected 67 tokens of 2 bytes");
    write_npy("a.npy", "<f4", 4, "(66,)");
    check_bad("a.npy", 300, "type '<f4'");
    write_npy("a.npy", "<u2", 2, "66");
    check_bad("a.npy", 300, "no shape");
    write_file("a.npy", "\x93NUMPY\x01\x00\xff", 9);
    check_bad("a.npy", 300, "cut short");
    write_megatron(7, 4, 80);
    check_bad("m", 300, "type 7");
    write_megatron(4, 4, 84);
    check_bad("m", 300, "sequence 1 begins at byte 84, expected 80");
    write_megatron(4, 2, 80);
    check_bad("m", 300, "its sequences have 264 bytes, the .bin has 132");
    write_file("m.idx", "MMIDIDX", 8);
    check_bad("m", 300, "not an index");
}

/* -1 in two bytes is a token outside the vocabulary, not 65535. */
static void test_signs(void) {
    const unsigned char all[] = {0xff, 0xff, 3, 0};
    struct dtp_data d = {.text = all, .length_bytes = 4, .token_bytes = 2, .token_signed = true};
    CU_ASSERT_EQUAL(dtp_data_token(&d, 0), -1);
    CU_ASSERT_EQUAL(dtp_data_token(&d, 1), 3);
    d.token_signed = false;
    CU_ASSERT_EQUAL(dtp_data_token(&d, 0), 65535);
}

int main(void) {
    CU_TestInfo tests[] = {{"formats agree", test_formats_agree},
                           {"bad files", test_bad_files},
                           {"signs", test_signs},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"token files", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    if (!mkdtemp(folder))
        return 1;
    int status = run_suites(suites);
    char command[80];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    status |= system(command) != 0;
    dtp_arena_destroy(arena);
    return status;
}
