/* Token files: NumPy's .npy (NEP 1: magic, version, length of a Python dictionary, the dictionary, values) and Megatron's
 * indexed dataset (Megatron-LM, core/datasets/indexed_dataset.py): NAME.bin holds the tokens of all documents one after
 * another, NAME.idx says their type and lengths:
 *
 *     "MMIDIDX\0\0"  version u64 = 1  type u8  sequences u64  documents u64
 *     length of each sequence i32    its first byte in .bin i64    first sequence of each document i64
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/rank.h"
#include "sim/base/text.h"

static uint64_t little_endian(const char *at, int bytes) {
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++)
        v |= (uint64_t)(unsigned char)at[i] << (8 * i);
    return v;
}

/* ---- .npy ---- */

/* Returns what follows the key of the dictionary, or "". */
static const char *value_of(const char *dictionary, const char *key) {
    const char *at = strstr(dictionary, key);
    at = at ? strchr(at + strlen(key), ':') : NULL;
    return at ? at + 1 + strspn(at + 1, " ") : "";
}

static enum dtp_status npy_type(const char *path, const char *dictionary, struct dtp_data *out,
                                struct dtp_err *err) {
    const struct {
        const char *name;
        int bytes;
        bool is_signed;
    } types[] = {{"'|u1'", 1, false}, {"'<u2'", 2, false}, {"'<i2'", 2, true}, {"'<u4'", 4, false},
                 {"'<i4'", 4, true},  {"'<u8'", 8, false}, {"'<i8'", 8, true}};
    const char *type = value_of(dictionary, "'descr'");
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strncmp(type, types[i].name, strlen(types[i].name)) == 0) {
            out->token_bytes = types[i].bytes;
            out->token_signed = types[i].is_signed;
            return DTP_OK;
        }
    return dtp_fail(err, DTP_EINPUT,
                    "%s: type %.*s, expected integers: |u1, <u2, <i2, <u4, <i4, <u8 or <i8", path,
                    (int)strcspn(type, ",}"), type);
}

/* Returns the product of the sizes "(3, 5)", in *tokens; false for other text or more than 2^40 tokens. */
static bool npy_shape(const char *shape, uint64_t *tokens) {
    const uint64_t most = UINT64_C(1) << 40;
    *tokens = 1;
    if (*shape++ != '(')
        return false;
    for (shape += strspn(shape, " "); *shape != ')'; shape += strspn(shape, ", ")) {
        size_t digits = strspn(shape, "0123456789");
        uint64_t size = 0;
        if (digits == 0 || digits > 12)
            return false;
        for (; digits > 0; digits--)
            size = size * 10 + (uint64_t)(*shape++ - '0');
        if (size > most || *tokens * size > most || (*shape != ',' && *shape != ')'))
            return false;
        *tokens *= size;
    }
    return true;
}

static enum dtp_status npy_read(struct dtp_arena *a, const char *path, struct dtp_data *out,
                                struct dtp_err *err) {
    enum { START = 8, SHORT = 2, LONG = 4 };
    const char *file;
    size_t n;
    uint64_t tokens;
    DTP_TRY(dtp_file_read(a, path, 0, &file, &n, err));
    int width = n > START && file[6] == 1 ? SHORT : LONG;
    size_t at = START + (size_t)width;
    uint64_t length = n >= at ? little_endian(file + START, width) : n;
    if (n < at || length > n - at)
        return dtp_fail(err, DTP_EINPUT, "%s: cut short in the header of .npy", path);
    const char *dictionary = dtp_arena_strndup(a, file + at, (size_t)length);
    at += (size_t)length;
    DTP_TRY(npy_type(path, dictionary, out, err));
    if (strncmp(value_of(dictionary, "'fortran_order'"), "False", strlen("False")) != 0)
        return dtp_fail(err, DTP_EINPUT, "%s: its array is in Fortran's order, expected C's", path);
    if (!npy_shape(value_of(dictionary, "'shape'"), &tokens))
        return dtp_fail(err, DTP_EINPUT, "%s: no shape that can be read in the header of .npy",
                        path);
    out->text = (const unsigned char *)file + at;
    out->length_bytes = n - at;
    if (tokens * (uint64_t)out->token_bytes != out->length_bytes)
        return dtp_fail(
            err, DTP_EINPUT, "%s: %llu bytes of values, expected %llu tokens of %d bytes", path,
            (unsigned long long)out->length_bytes, (unsigned long long)tokens, out->token_bytes);
    return DTP_OK;
}

/* ---- Megatron ---- */

enum { MAGIC_BYTES = 9, HEAD_BYTES = MAGIC_BYTES + 8 + 1 + 8 + 8 };

/* Bytes of a token by the type's code; 0: not an integer. */
static int megatron_type(int code, bool *is_signed) {
    const int bytes[] = {0, 1, 1, 2, 4, 8, 0, 0, 2};
    bool known = code >= 0 && (size_t)code < sizeof bytes / sizeof bytes[0];
    *is_signed = code >= 2 && code <= 5;
    return known ? bytes[code] : 0;
}

/* The sequences must fill the .bin one after another, since training reads it as one row of tokens. */
static enum dtp_status check_sequences(const char *path, const char *idx, uint64_t n,
                                       const struct dtp_data *d, struct dtp_err *err) {
    uint64_t at_bytes = 0;
    const char *lengths = idx + HEAD_BYTES, *firsts = lengths + 4 * n;
    for (uint64_t i = 0; i < n; i++) {
        if (little_endian(firsts + 8 * i, 8) != at_bytes)
            return dtp_fail(err, DTP_EINPUT, "%s: sequence %llu begins at byte %llu, expected %llu",
                            path, (unsigned long long)i,
                            (unsigned long long)little_endian(firsts + 8 * i, 8),
                            (unsigned long long)at_bytes);
        at_bytes += little_endian(lengths + 4 * i, 4) * (uint64_t)d->token_bytes;
    }
    if (at_bytes != d->length_bytes)
        return dtp_fail(err, DTP_EINPUT, "%s: its sequences have %llu bytes, the .bin has %llu",
                        path, (unsigned long long)at_bytes, (unsigned long long)d->length_bytes);
    return DTP_OK;
}

static enum dtp_status megatron_read(struct dtp_arena *a, const char *stem, struct dtp_data *out,
                                     struct dtp_err *err) {
    const char *path = dtp_arena_printf(a, "%s.idx", stem), *idx, *bin;
    size_t n, bin_bytes;
    DTP_TRY(dtp_file_read(a, path, 0, &idx, &n, err));
    if (n < HEAD_BYTES || memcmp(idx, "MMIDIDX\0", MAGIC_BYTES) != 0 ||
        little_endian(idx + MAGIC_BYTES, 8) != 1)
        return dtp_fail(err, DTP_EINPUT, "%s: not an index of Megatron, version 1", path);
    int code = (unsigned char)idx[MAGIC_BYTES + 8];
    uint64_t sequences = little_endian(idx + MAGIC_BYTES + 9, 8);
    uint64_t documents = little_endian(idx + MAGIC_BYTES + 17, 8);
    out->token_bytes = megatron_type(code, &out->token_signed);
    if (out->token_bytes == 0)
        return dtp_fail(err, DTP_EINPUT, "%s: type %d of tokens, expected an integer's (1-5, 8)",
                        path, code);
    if (sequences > n || documents > n || HEAD_BYTES + 12 * sequences + 8 * documents > n)
        return dtp_fail(err, DTP_EINPUT, "%s: cut short, it lists %llu sequences", path,
                        (unsigned long long)sequences);
    DTP_TRY(dtp_file_read(a, dtp_arena_printf(a, "%s.bin", stem), 0, &bin, &bin_bytes, err));
    out->text = (const unsigned char *)bin;
    out->length_bytes = bin_bytes;
    return check_sequences(path, idx, sequences, out, err);
}

/* ---- which ---- */

static bool begins_as_npy(const char *path) {
    char magic[6] = {0};
    FILE *f = fopen(path, "rb");
    if (!f)
        return false;
    bool whole = fread(magic, sizeof magic, 1, f) == 1;
    fclose(f);
    return whole && memcmp(magic, "\x93NUMPY", sizeof magic) == 0;
}

enum dtp_status dtp_token_file_read(struct dtp_arena *a, const char *path, struct dtp_data *out,
                                    bool *known, struct dtp_err *err) {
    size_t n = strlen(path);
    bool ends = n > 4 && (strcmp(path + n - 4, ".bin") == 0 || strcmp(path + n - 4, ".idx") == 0);
    const char *stem = ends ? dtp_arena_strndup(a, path, n - 4) : path;
    *known = true;
    if (access(dtp_arena_printf(a, "%s.idx", stem), F_OK) == 0 && (ends || access(path, F_OK) != 0))
        return megatron_read(a, stem, out, err);
    if (strcmp(path, "-") != 0 && begins_as_npy(path))
        return npy_read(a, path, out, err);
    *known = false;
    return DTP_OK;
}
