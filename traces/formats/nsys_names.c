/* What needs no SQLite: the mark of a report; names of calls, copies and steps. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "traces/formats/nsys.h"
#include "traces/formats/nsys_private.h"

static const char magic[] = "SQLite format 3";

bool dtp_nsys_detect(const unsigned char *head, size_t n) {
    return n >= sizeof magic && memcmp(head, magic, sizeof magic) == 0;
}

size_t nsys_without_version(const char *name, size_t n) {
    size_t at = n;
    while (at > 0 && isdigit((unsigned char)name[at - 1]))
        at--;
    return at < n && at >= 2 && name[at - 1] == 'v' && name[at - 2] == '_' ? at - 2 : n;
}

const char *nsys_copy_name(int64_t kind) {
    static const char *const names[] = {"Memcpy",      "Memcpy HtoD", "Memcpy DtoH", "Memcpy HtoA",
                                        "Memcpy AtoH", "Memcpy AtoA", "Memcpy AtoD", "Memcpy DtoA",
                                        "Memcpy DtoD", "Memcpy HtoH", "Memcpy PtoP"};
    return kind > 0 && kind < (int64_t)(sizeof names / sizeof *names) ? names[kind] : names[0];
}

bool nsys_step_number(const char *name, int64_t *out) {
    static const char *const prefixes[] = {"ProfilerStep#", "step",       "iteration",
                                           "iter",          "train_step", "training_step"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        size_t n = strlen(prefixes[i]);
        char *end;
        if (strncasecmp(name, prefixes[i], n) != 0)
            continue;
        const char *at = name + n + strspn(name + n, " _#:");
        if (!isdigit((unsigned char)*at))
            continue;
        *out = strtoll(at, &end, 10);
        if (*end == '\0')
            return true;
    }
    return false;
}
