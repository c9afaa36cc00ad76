#include "runtime/device/backend.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/comm/comm.h"
#include "sim/base/text.h"

const char *const dtp_stream_names[] = {
    [DTP_STREAM_COMPUTE] = "compute", [DTP_STREAM_TP] = "tp",
    [DTP_STREAM_DP] = "dp",           [DTP_STREAM_SEND_F] = "send F",
    [DTP_STREAM_RECV_F] = "recv F",   [DTP_STREAM_SEND_B] = "send B",
    [DTP_STREAM_RECV_B] = "recv B",   [DTP_NSTREAMS] = NULL,
};

/* Opens $DTPLAN_CUDA, else the module in the program's folder, else the installed one, else the one that the loader
 * finds. */
static void *open_module(void) {
    static const char name[] = "libdtplan_cuda.so";
    static const char *const folders[] = {"", "/../lib", NULL};
    const char *given = getenv("DTPLAN_CUDA");
    void *module = NULL;
    bool found = false;
    if (given && *given)
        return dlopen(given, RTLD_NOW | RTLD_LOCAL);
    struct dtp_arena *a = dtp_arena_create("module");
    const char *own = dtp_program_folder(a);
    for (int i = 0; own && folders[i] && !found; i++) {
        const char *path = dtp_arena_printf(a, "%s%s/%s", own, folders[i], name);
        found = access(path, R_OK) == 0;
        module = found ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    }
    dtp_arena_destroy(a);
    return found ? module : dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

/* The driver's devices, under Linux and under Windows' subsystem for it. */
static bool has_gpu(void) {
    return access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0;
}

/* Gets a table that the CUDA module exports. The module stays open. */
static enum dtp_status module_table(const char *symbol, const void **out, struct dtp_err *err) {
    const char *given = getenv("DTPLAN_CUDA");
    if (!(given && *given) && !has_gpu())
        return dtp_fail(err, DTP_EUNSUPPORTED,
                        "backend cuda is not available here: this machine has no NVIDIA GPU "
                        "(there is no /dev/nvidiactl)");
    void *module = open_module();
    if (!module)
        return dtp_fail(err, DTP_EUNSUPPORTED,
                        "backend cuda is not available here: %s (it is built where nvcc is found; "
                        "DTPLAN_CUDA names the file)",
                        dlerror());
    const uint64_t *layout = dlsym(module, "dtp_cuda_table_bytes");
    if (!layout || *layout != DTP_TABLE_BYTES)
        return dtp_fail(err, DTP_EUNSUPPORTED,
                        "backend cuda: libdtplan_cuda.so was built from another version");
    const void *(*table)(void) = NULL;
    void *found = dlsym(module, symbol);
    if (!found)
        return dtp_fail(err, DTP_EUNSUPPORTED, "backend cuda: libdtplan_cuda.so lacks %s", symbol);
    memcpy(&table, &found, sizeof table); /* ISO C has no cast between the two kinds of pointer */
    *out = table();
    return DTP_OK;
}

enum dtp_status dtp_dev_find(const char *backend, const struct dtp_dev_ops **out,
                             struct dtp_err *err) {
    if (strcmp(backend, "cpu") == 0)
        return dtp_cpu_dev_find(out, err);
    if (strcmp(backend, "cuda") != 0)
        return dtp_fail(err, DTP_EUSAGE, "unknown backend \"%s\", there are cpu and cuda", backend);
    const void *table;
    DTP_TRY(module_table("dtp_cuda_dev_ops", &table, err));
    *out = table;
    return DTP_OK;
}

enum dtp_status dtp_comm_find(const char *name, const struct dtp_comm_ops **out,
                              struct dtp_err *err) {
    if (strcmp(name, "shm") == 0 || strcmp(name, "tcp") == 0) {
        *out = name[0] == 's' ? dtp_shm_comm_ops() : dtp_tcp_comm_ops();
        return DTP_OK;
    }
    if (strcmp(name, "shadow") == 0) {
        *out = dtp_shadow_comm_ops();
        return DTP_OK;
    }
    const void *table;
    DTP_TRY(module_table("dtp_cuda_comm_ops", &table, err));
    *out = table;
    return DTP_OK;
}
