#include "traces/jobs/failures.h"

#include <math.h>
#include <stddef.h>

#include "sim/base/json.h"
#include "sim/base/text.h"
#include "sim/base/units.h"

#define AT(field) offsetof(struct dtp_failures, field)
static const struct dtp_field failure_fields[] = {
    {"gpu_hours_per_failure", DTP_FIELD_DOUBLE, AT(gpu_hours_per_failure), .min = 1,
     .max = DTP_TERA, .required = true, .help = "mean GPU-hours between interruptions"},
    {"restart_s", DTP_FIELD_DOUBLE, AT(restart_s), .max = DTP_GIGA, .required = true,
     .help = "time that each takes to find and restart"},
    {"checkpoint_s", DTP_FIELD_DOUBLE, AT(checkpoint_s), .max = DTP_GIGA, .required = true,
     .help = "time between checkpoints of the jobs of a cluster"},
    {"checkpoint_bytes_per_parameter", DTP_FIELD_DOUBLE, AT(checkpoint_bytes_per_parameter),
     .max = DTP_KILO, .required = true, .help = "weights and state of the optimizer"},
    {"write_bytes_per_s_per_gpu", DTP_FIELD_DOUBLE, AT(write_bytes_per_s_per_gpu), .min = 1,
     .max = DTP_TERA, .required = true, .help = "to the storage, while training stops"},
    {0}};

enum dtp_status dtp_failures_load(struct dtp_arena *a, struct dtp_failures *out,
                                  struct dtp_err *err) {
    const struct dtp_json *json;
    *out = (struct dtp_failures){.write_s = -1};
    DTP_TRY(dtp_json_read_file(a, dtp_data_path(a, "traces/measured/failures.json"), &json, err));
    return dtp_fields_read(a, json, failure_fields, out, err);
}

double dtp_growth(double x) {
    enum { TERMS = 18 };
    int halvings = 0;
    for (; x > 0.5 && halvings < 64; halvings++)
        x /= 2;
    double term = x, sum = x;
    for (int i = 2; i < TERMS; i++) {
        term *= x / i;
        sum += term;
    }
    while (halvings-- > 0)
        sum *= sum + 2; /* e^2x - 1 = (e^x - 1)(e^x + 1) */
    return sum;
}

static double best_interval_s(double failure_s, double write_s) {
    double half = write_s / (2 * failure_s);
    if (half >= 1)
        return failure_s;
    return sqrt(2 * write_s * failure_s) * (1 + sqrt(half) / 3 + half / 9) - write_s;
}

struct dtp_goodput dtp_goodput(const struct dtp_failures *f, double parameters, int gpus) {
    struct dtp_goodput g = {.failure_s = f->gpu_hours_per_failure * DTP_S_PER_HOUR / gpus,
                            .write_s = f->write_s};
    if (f->write_s < 0) {
        g.checkpoint_bytes = f->checkpoint_bytes_per_parameter * parameters;
        g.write_s = g.checkpoint_bytes / (f->write_bytes_per_s_per_gpu * gpus);
    }
    g.checkpoint_s =
        f->checkpoint_s > 0 ? f->checkpoint_s : best_interval_s(g.failure_s, g.write_s);
    double cycle = (g.checkpoint_s + g.write_s) / g.failure_s;
    /* T / (M (e^cycle - 1)); checkpoints that take no time and are always written lose nothing */
    double kept = cycle > 0 ? g.checkpoint_s / g.failure_s / dtp_growth(cycle) : 1;
    g.fraction = kept / (1 + dtp_growth(f->restart_s / g.failure_s));
    return g;
}
