/* The runtime needs this from Linux beyond POSIX: cores, pinning, memory, futexes, parent death. */
#define _GNU_SOURCE /* sched_setaffinity, syscall */
#include "runtime/os_linux.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "runtime/launch.h"

int dtp_os_num_cores(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    int n = CPU_COUNT(&set);
    return n > 0 ? n : 1;
}

void dtp_os_pin(int index) {
    cpu_set_t set, one;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return;
    int n = CPU_COUNT(&set), at = index % (n > 0 ? n : 1);
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET((size_t)core, &set) || at-- != 0)
            continue;
        CPU_ZERO(&one);
        CPU_SET((size_t)core, &one);
        (void)sched_setaffinity(0, sizeof one, &one);
        return;
    }
}

int64_t dtp_os_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * (int64_t)DTP_NS_PER_S + t.tv_nsec;
}

void dtp_os_futex_wait(const atomic_uint *word, unsigned while_value, int64_t timeout_ns) {
    struct timespec t = {.tv_sec = (time_t)(timeout_ns / DTP_NS_PER_S),
                         .tv_nsec = (long)(timeout_ns % DTP_NS_PER_S)};
    (void)syscall(SYS_futex, word, FUTEX_WAIT, while_value, &t, NULL, 0);
}

void dtp_os_futex_wake(const atomic_uint *word) {
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void dtp_os_die_with_parent(int parent) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != (pid_t)parent) /* it died before the call */
        _exit(1);
}

void *dtp_os_map(uint64_t bytes, bool shared) {
    int flags = MAP_ANONYMOUS | MAP_NORESERVE | (shared ? MAP_SHARED : MAP_PRIVATE);
    void *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void *map_file(int fd, uint64_t bytes) {
    void *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    return p == MAP_FAILED ? NULL : p;
}

void *dtp_os_memory_create(uint64_t bytes, int *fd) {
    *fd = memfd_create("dtplan", MFD_CLOEXEC);
    if (*fd < 0)
        return NULL;
    void *p = ftruncate(*fd, (off_t)bytes) == 0 ? map_file(*fd, bytes) : NULL;
    if (!p) {
        close(*fd);
        *fd = -1;
    }
    return p;
}

void *dtp_os_memory_attach(int process, int fd, uint64_t bytes) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", process, fd);
    int own = open(path, O_RDWR | O_CLOEXEC);
    if (own < 0)
        return NULL;
    void *p = map_file(own, bytes);
    close(own);
    return p;
}

void dtp_os_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

void dtp_os_yield(void) {
    (void)sched_yield();
}

void dtp_os_cpu_name(char *out, size_t size) {
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    snprintf(out, size, "?");
    while (f && fgets(line, sizeof line, f)) {
        const char *at = strstr(line, ": ");
        if (strncmp(line, "model name", strlen("model name")) != 0 || !at)
            continue;
        at += strlen(": ");
        snprintf(out, size, "%.*s", (int)strcspn(at, "\n"), at);
        break;
    }
    if (f)
        (void)fclose(f);
}
