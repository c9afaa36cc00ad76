/* Reads the GPU's sensors: the clock of its SMs over a stretch of the stream, energy and limits. */
#include "runtime/cuda/kernels.cuh"

#include <dlfcn.h>

#include <algorithm>

#include "sim/base/units.h"

namespace dtp {

/* ---- the clock: cycles of each SM against the global timer ---- */

enum { THREADS = 1024 };

struct Tick {
    unsigned long long cycles, ns;
};

/* A block of all threads that an SM takes twice: one of these at least runs on every idle SM. */
__global__ void __launch_bounds__(THREADS) note_clock(Tick *out) {
    unsigned sm;
    Tick now;
    if (threadIdx.x != 0)
        return;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now.ns));
    now.cycles = static_cast<unsigned long long>(clock64());
    if (sm < DTP_CUDA_MAX_SMS)
        reinterpret_cast<ulonglong2 *>(out)[sm] = make_ulonglong2(now.cycles, now.ns);
}

extern "C" void dtp_cuda_tick(struct dtp_dev *d, int end) {
    struct dtp_cuda *c = dtp_cuda_of(d);
    Tick *ticks = static_cast<Tick *>(c->ticks) + (end ? DTP_CUDA_MAX_SMS : 0);
    note_clock<<<static_cast<unsigned>(2 * c->num_sms), THREADS, 0, stream_of(d)>>>(ticks);
}

/* Median over the SMs; 0 where nothing was noted. */
extern "C" double dtp_cuda_clock_hz(struct dtp_dev *d) {
    const struct dtp_cuda *c = dtp_cuda_of(d);
    Tick all[2 * DTP_CUDA_MAX_SMS];
    double hz[DTP_CUDA_MAX_SMS];
    int n = 0;
    if (cudaMemcpy(all, c->ticks, sizeof all, cudaMemcpyDeviceToHost) != cudaSuccess)
        return 0;
    for (int sm = 0; sm < DTP_CUDA_MAX_SMS; sm++) {
        const Tick &from = all[sm], &to = all[DTP_CUDA_MAX_SMS + sm];
        if (from.ns && to.ns > from.ns && to.cycles > from.cycles)
            hz[n++] = static_cast<double>(to.cycles - from.cycles) /
                      (DTP_NANO * static_cast<double>(to.ns - from.ns));
    }
    if (n == 0)
        return 0;
    std::nth_element(hz, hz + n / 2, hz + n);
    return hz[n / 2];
}

/* ---- NVML, opened at run time; signatures from its documentation ---- */

struct Nvml {
    void *gpu; /* NULL: there is no NVML */
    int (*init)();
    int (*handle)(const char *, void **);
    int (*energy)(void *, unsigned long long *);
    int (*limit)(void *, unsigned *);
    int (*most)(void *, int, unsigned *);
};

template <class F> static bool load_name(void *so, const char *name, F *f) {
    *f = reinterpret_cast<F>(dlsym(so, name));
    return *f != nullptr;
}

static void open_nvml(const struct dtp_cuda *c, Nvml *n) {
    char bus[32];
    void *so = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    bool ready = so && cudaDeviceGetPCIBusId(bus, sizeof bus, c->index) == cudaSuccess &&
                 load_name(so, "nvmlInit_v2", &n->init) &&
                 load_name(so, "nvmlDeviceGetHandleByPciBusId_v2", &n->handle) &&
                 load_name(so, "nvmlDeviceGetTotalEnergyConsumption", &n->energy) &&
                 load_name(so, "nvmlDeviceGetEnforcedPowerLimit", &n->limit) &&
                 load_name(so, "nvmlDeviceGetMaxClockInfo", &n->most) && n->init() == 0 &&
                 n->handle(bus, &n->gpu) == 0;
    if (!ready)
        n->gpu = nullptr;
}

extern "C" void dtp_cuda_sensors_open(struct dtp_arena *a, struct dtp_cuda *c) {
    const size_t bytes = 2 * DTP_CUDA_MAX_SMS * sizeof(Tick);
    c->nvml = static_cast<Nvml *>(dtp_arena_alloc(a, sizeof(Nvml), 1));
    open_nvml(c, static_cast<Nvml *>(c->nvml));
    (void)cudaMalloc(&c->ticks, bytes);
    (void)cudaMemset(c->ticks, 0, bytes);
}

extern "C" void dtp_cuda_load(struct dtp_dev *d, struct dtp_dev_load *out) {
    enum { CLOCK_SM = 1 };
    struct dtp_cuda *c = dtp_cuda_of(d);
    const Nvml *n = static_cast<const Nvml *>(c->nvml);
    unsigned long long mj = 0;
    unsigned mw = 0, mhz = 0;
    *out = dtp_dev_load{};
    if (!n->gpu)
        return;
    if (n->energy(n->gpu, &mj) == 0)
        out->energy_j = DTP_MILLI * static_cast<double>(mj);
    if (n->limit(n->gpu, &mw) == 0)
        out->power_limit_w = DTP_MILLI * mw;
    if (n->most(n->gpu, CLOCK_SM, &mhz) == 0)
        out->most_clock_hz = DTP_MEGA * mhz;
}

} // namespace dtp
