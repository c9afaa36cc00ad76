#include "runtime/measure/measure.h"

#include <string.h>

#include "runtime/launch.h"
#include "runtime/os_linux.h"
#include "sim/base/stats.h"

struct dtp_measure_options dtp_measure_default(void) {
    return (struct dtp_measure_options){
        .backend = "cpu", .nranks = 4, .rounds = 3, .largest = 1024};
}

double dtp_measure_typical_s(void (*run)(void *context, int i), void *context, double target_s) {
    enum { LEAST = 5, MOST = 400 };
    double sample_s[MOST], sum_s = 0;
    int n = 0;
    run(context, 0); /* warms up */
    for (; n < MOST && (n < LEAST || sum_s < target_s); n++) {
        int64_t start_ns = dtp_os_now_ns();
        run(context, n + 1);
        sample_s[n] = (double)(dtp_os_now_ns() - start_ns) / (double)DTP_NS_PER_S;
        sum_s += sample_s[n];
    }
    return dtp_median_high(sample_s, (size_t)n);
}

enum dtp_status dtp_measure(struct dtp_arena *a, const struct dtp_measure_options *o,
                            struct dtp_measured *out, struct dtp_err *err) {
    if (strcmp(o->backend, "cpu") != 0)
        return dtp_fail(err, DTP_EUNSUPPORTED, "the %s backend is not measured from here",
                        o->backend);
    const struct dtp_dev_ops *device;
    DTP_TRY(
        dtp_dev_find(o->backend, &device, err)); /* before processes fork that could not say it */
    int64_t start_ns = dtp_os_now_ns();
    *out = (struct dtp_measured){.ncores = dtp_os_num_cores()};
    DTP_TRY(dtp_measure_kernels(a, o, out, err));
    DTP_TRY(dtp_measure_collectives(a, o, out, err));
    out->seconds = (double)(dtp_os_now_ns() - start_ns) / (double)DTP_NS_PER_S;
    return DTP_OK;
}
