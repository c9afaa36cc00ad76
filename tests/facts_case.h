/* facts_case.h: a facts.json says what a reader must find in the traces next to it. One lies with the fixtures, one
 * with the samples of ../shared/traces, which not every checkout has. */
#ifndef DTP_TESTS_FACTS_CASE_H
#define DTP_TESTS_FACTS_CASE_H

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/shared_case.h"
#include "tests/suites.h"

static inline const char *facts_path(struct dtp_arena *a, const char *file) {
    return dtp_arena_printf(a, "%s/../shared/traces/%s", DTP_SOURCE_DIR, file);
}

/* The caller frees it by cJSON_Delete(). NULL if there is no such file. A NaN, which HTA writes where it divides by
 * no communication, is read as null. */
static inline cJSON *facts_read(struct dtp_arena *a, const char *path) {
    const char *text;
    size_t n;
    if (dtp_file_read(a, path, 0, &text, &n, NULL) != DTP_OK)
        return NULL;
    char *copy = dtp_arena_strndup(a, text, n);
    for (char *at = copy; (at = strstr(at, ": NaN"));)
        memcpy(at, ":null", 5);
    return cJSON_Parse(copy);
}

static inline cJSON *facts_load(struct dtp_arena *a) {
    return facts_read(a, facts_path(a, "facts.json"));
}

/* The suites with the arena and the facts that they read: what a main returns. */
static inline int run_facts_suites(CU_SuiteInfo *suites, struct dtp_arena **arena, cJSON **facts) {
    *arena = dtp_arena_create("test");
    *facts = facts_load(*arena);
    int status = run_suites(suites);
    cJSON_Delete(*facts);
    dtp_arena_destroy(*arena);
    return status;
}

static inline const cJSON *item(const cJSON *j, const char *key) {
    return j ? cJSON_GetObjectItemCaseSensitive(j, key) : NULL;
}

static inline double number(const cJSON *j, const char *key) {
    const cJSON *v = item(j, key);
    return v && cJSON_IsNumber(v) ? v->valuedouble : (double)NAN;
}

static inline const char *string(const cJSON *j, const char *key) {
    const cJSON *v = item(j, key);
    return v && cJSON_IsString(v) ? v->valuestring : "";
}

#endif
