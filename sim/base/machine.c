#include "sim/base/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, KIB = 1024 };

/* The two versions of control groups: how /proc/self/cgroup names the one with memory, and its files. */
static const struct hierarchy {
    const char *controllers, *mount, *limit, *usage, *idle;
} hierarchies[] = {{"", "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"},
                   {"memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                    "memory.usage_in_bytes", "total_inactive_file"}};

/* The number in a file, or behind the key at the start of a line; `none` where there is none ("max"). */
static uint64_t number_in(const char *path, const char *key, uint64_t none) {
    char line[256];
    uint64_t found = none;
    size_t n = strlen(key);
    FILE *f = fopen(path, "r");
    if (!f)
        return none;
    while (found == none && fgets(line, sizeof line, f)) {
        char *end = line;
        unsigned long long v = strncmp(line, key, n) == 0 ? strtoull(line + n, &end, 10) : 0;
        if (end > line + n)
            found = v;
    }
    fclose(f);
    return found;
}

static uint64_t group_file(const char *group, const char *name, const char *key, uint64_t none) {
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", group, name);
    return number_in(path, key, none);
}

static uint64_t less(uint64_t x, uint64_t y) {
    return x < y ? x : y;
}

/* A group and all around it, up to where they are mounted. A container may not see the upper part of its own
 * path; what is mounted then is its group. */
static void limit_by_groups(const struct hierarchy *h, const char *root, const char *path,
                            struct dtp_machine_memory *m) {
    char group[PATH_BYTES];
    size_t mount = strlen(root) + strlen(h->mount);
    int n = snprintf(group, sizeof group, "%s%s%s", root, h->mount, path);
    if (n < 0 || (size_t)n >= sizeof group)
        return;
    for (;;) {
        uint64_t limit = group_file(group, h->limit, "", UINT64_MAX);
        uint64_t usage = group_file(group, h->usage, "", 0);
        uint64_t idle = less(group_file(group, "memory.stat", h->idle, 0), usage);
        m->total_bytes = less(m->total_bytes, limit);
        if (limit < UINT64_MAX)
            m->free_bytes = less(m->free_bytes, limit - less(usage - idle, limit));
        char *slash = strrchr(group, '/');
        if (strlen(group) <= mount || !slash || (size_t)(slash - group) < mount)
            return;
        *slash = '\0';
    }
}

/* A line of /proc/self/cgroup is "4:memory:/path", in version 2 "0::/path". */
static void limit_by_line(char *line, const char *root, struct dtp_machine_memory *m) {
    char *controllers = strchr(line, ':');
    char *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path)
        return;
    *path++ = '\0';
    path[strcspn(path, "\n")] = '\0';
    for (size_t i = 0; i < sizeof hierarchies / sizeof *hierarchies; i++)
        if (strcmp(controllers + 1, hierarchies[i].controllers) == 0)
            limit_by_groups(&hierarchies[i], root, path, m);
}

struct dtp_machine_memory dtp_machine_memory(const char *root) {
    char path[PATH_BYTES], line[PATH_BYTES];
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    struct dtp_machine_memory m = {.total_bytes = pages > 0 && page_bytes > 0
                                                      ? (uint64_t)pages * (uint64_t)page_bytes
                                                      : UINT64_MAX};
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    uint64_t kib = number_in(path, "MemAvailable:", UINT64_MAX);
    m.free_bytes = kib < UINT64_MAX / KIB ? kib * KIB : UINT64_MAX;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        limit_by_line(line, root, &m);
    if (f)
        fclose(f);
    return m;
}
