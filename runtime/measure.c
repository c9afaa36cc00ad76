#include "runtime/measure.h"

#include <string.h>

#include "runtime/launch.h"
#include "runtime/os_linux.h"

struct dtp_measure_options dtp_measure_default(void) {
    return (struct dtp_measure_options){
        .backend = "cpu", .nranks = 4, .rounds = 3, .largest = 1024};
}

/* The first call warms up and tells how many fill target_s. */
double dtp_measure_least_s(void (*run)(void *context, int i), void *context, double target_s) {
    enum { LEAST = 4, MOST = 400 };
    run(context, 0);
    double least_s = INFINITY, sum_s = 0;
    for (int i = 0; i < MOST && (i < LEAST || sum_s < target_s); i++) {
        int64_t start_ns = dtp_os_now_ns();
        run(context, i + 1);
        double t = (double)(dtp_os_now_ns() - start_ns) / (double)DTP_NS_PER_S;
        least_s = t < least_s ? t : least_s;
        sum_s += t;
    }
    return least_s;
}

enum dtp_status dtp_measure(struct dtp_arena *a, const struct dtp_measure_options *o,
                            struct dtp_measured *out, struct dtp_err *err) {
    if (strcmp(o->backend, "cpu") != 0)
        return dtp_fail(err, DTP_EUNSUPPORTED, "the %s backend is not measured from here",
                        o->backend);
    int64_t start_ns = dtp_os_now_ns();
    *out = (struct dtp_measured){.ncores = dtp_os_num_cores()};
    DTP_TRY(dtp_measure_kernels(a, o, out, err));
    DTP_TRY(dtp_measure_collectives(a, o, out, err));
    out->seconds = (double)(dtp_os_now_ns() - start_ns) / (double)DTP_NS_PER_S;
    return DTP_OK;
}
