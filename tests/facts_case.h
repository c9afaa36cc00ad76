/* facts_case.h: what a reader must find in the samples of ../shared/traces: facts.json. */
#ifndef DTP_TESTS_FACTS_CASE_H
#define DTP_TESTS_FACTS_CASE_H

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/text.h"
#include "tests/suites.h"

static inline const char *facts_path(struct dtp_arena *a, const char *file) {
    return dtp_arena_printf(a, "%s/../shared/traces/%s", DTP_SOURCE_DIR, file);
}

/* For cJSON_Delete(); NULL, and said so, where the folder is missing. NaN (where HTA divides by no
 * communication) is null. */
static inline cJSON *facts_load(struct dtp_arena *a) {
    const char *text;
    size_t n;
    if (dtp_file_read(a, facts_path(a, "facts.json"), 0, &text, &n, NULL) != DTP_OK) {
        printf("skipped: the samples of ../shared/traces, which are missing\n");
        return NULL;
    }
    char *copy = dtp_arena_strndup(a, text, n);
    for (char *at = copy; (at = strstr(at, ": NaN"));)
        memcpy(at, ":null", 5);
    return cJSON_Parse(copy);
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
