#include "hw/device_table.h"

#include <stddef.h>

#include "hw/device.h"

const char *const dtp_table_names[] = {"gemm_forward",
                                       "gemm_dgrad",
                                       "gemm_wgrad",
                                       "attention_forward",
                                       "attention_backward",
                                       "attention_dropout_forward",
                                       "attention_dropout_backward",
                                       "gemm_forward_gelu",
                                       "gemm_dgrad_gelu",
#define NAME(name, key) key,
                                       DTP_KERNELS(NAME)
#undef NAME
                                           NULL};

/* Grid cell of x and the weight of its upper end; beyond the grid the nearest point and what its time is
 * multiplied by. */
struct spot {
    size_t low, high;
    double weight, factor;
};

static struct spot find(const struct dtp_doubles *axis, double x) {
    size_t last = axis->n - 1, i = 0;
    if (x >= axis->at[last])
        return (struct spot){last, last, 0, x / axis->at[last]};
    if (x <= axis->at[0])
        return (struct spot){0, 0, 0, x / axis->at[0]};
    while (axis->at[i + 1] < x)
        i++;
    double width = axis->at[i + 1] - axis->at[i];
    return (struct spot){i, i + 1, (x - axis->at[i]) / width, 1};
}

/* One of the eight points around: its weight, its place in the lists, its time, where it is. */
struct corner {
    double weight, time_s, at[3];
    size_t index;
};

static struct corner corner_of(const struct dtp_time_table *t, const struct spot s[3], int which) {
    struct corner c = {.weight = 1};
    for (int d = 0; d < 3; d++) {
        bool high = which >> d & 1;
        size_t i = high ? s[d].high : s[d].low;
        c.weight *= high ? s[d].weight : 1 - s[d].weight;
        c.at[d] = t->axis[d].at[i];
        c.index = c.index * t->axis[d].n + i;
    }
    c.time_s = t->time_s.at[c.index];
    return c;
}

enum { CORNERS = 8 };

bool dtp_table_covers(const struct dtp_time_table *t, const double at[3]) {
    bool inside = true;
    for (int i = 0; i < 3; i++)
        inside &= at[i] >= t->axis[i].at[0] && at[i] <= t->axis[i].at[t->axis[i].n - 1];
    return inside;
}

double dtp_table_time_s(const struct dtp_time_table *t, const double at[3]) {
    struct spot s[3];
    double sum_s = 0;
    for (int d = 0; d < 3; d++)
        s[d] = find(&t->axis[d], at[d]);
    for (int i = 0; i < CORNERS; i++) {
        struct corner c = corner_of(t, s, i);
        if (c.weight > 0)
            sum_s += c.weight * c.time_s;
    }
    return sum_s * s[0].factor * s[1].factor * s[2].factor;
}

double dtp_table_clock(const struct dtp_time_table *t, const double at[3]) {
    struct spot s[3];
    double sum = 0;
    if (t->clock.n == 0)
        return 1;
    for (int d = 0; d < 3; d++)
        s[d] = find(&t->axis[d], at[d]);
    for (int i = 0; i < CORNERS; i++) {
        struct corner c = corner_of(t, s, i);
        if (c.weight > 0)
            sum += c.weight * t->clock.at[c.index];
    }
    return sum;
}

double dtp_table_ratio(const struct dtp_time_table *t, const double at[3],
                       double (*formula_s)(const void *context, const double point[3]),
                       const void *context) {
    struct spot s[3];
    double sum = 0;
    for (int d = 0; d < 3; d++)
        s[d] = find(&t->axis[d], at[d]);
    for (int i = 0; i < CORNERS; i++) {
        struct corner c = corner_of(t, s, i);
        double formula = c.weight > 0 ? formula_s(context, c.at) : 0;
        if (formula > 0)
            sum += c.weight * c.time_s / formula;
    }
    return sum;
}

/* ---- JSON ---- */

struct table_file {
    int kernel;
    struct dtp_time_table table;
};

#define IN(member) offsetof(struct table_file, member)
const struct dtp_field dtp_time_table_fields[] = {
    {"kernel", DTP_FIELD_ENUM, IN(kernel), .names = dtp_table_names, .required = true,
     .help = "which"},
    {"dtype", DTP_FIELD_ENUM, IN(table.dtype), .names = dtp_dtype_names, .help = "of the operands"},
    {"relative", DTP_FIELD_BOOL, IN(table.relative),
     .help = "between the points the ratio to a formula is linear"},
    {"x", DTP_FIELD_DOUBLES, IN(table.axis[0]), .min = 1, .max = 1e9, .required = true,
     .help = "rows, m, or sequence length; ascending"},
    {"y", DTP_FIELD_DOUBLES, IN(table.axis[1]), .min = 1, .max = 1e9, .required = true,
     .help = "columns, n, or head_dim"},
    {"z", DTP_FIELD_DOUBLES, IN(table.axis[2]), .min = 1, .max = 1e9, .required = true,
     .help = "inner dimension k, or 1"},
    {"time_s", DTP_FIELD_DOUBLES, IN(table.time_s), .min = 0, .max = 1e6, .required = true,
     .help = "seconds at each point, x outermost"},
    {"clock", DTP_FIELD_DOUBLES, IN(table.clock), .min = 0.1, .max = 1,
     .help = "of a product, alone: share of the highest, at which the times are"},
    {0}};

enum dtp_status dtp_tables_read(struct dtp_arena *a, const struct dtp_json *j,
                                struct dtp_time_table *tables, struct dtp_err *err) {
    if (dtp_json_type(j) != DTP_JSON_ARRAY)
        return dtp_json_expected(j, "a list of tables", err);
    for (size_t i = 0; i < dtp_json_size(j); i++) {
        struct table_file in = {0};
        const struct dtp_json *row = dtp_json_at(j, i);
        DTP_TRY(dtp_fields_read(a, row, dtp_time_table_fields, &in, err));
        size_t n = 1;
        for (int d = 0; d < 3; d++) {
            if (!dtp_doubles_ascend(&in.table.axis[d]))
                return dtp_json_expected(row, "axes x, y, z in ascending order", err);
            n *= in.table.axis[d].n;
        }
        if (in.table.time_s.n != n)
            return dtp_json_expected(dtp_json_get(row, "time_s"), "a time for each point", err);
        if (in.table.clock.n != n && in.table.clock.n > 0)
            return dtp_json_expected(dtp_json_get(row, "clock"), "a clock for each point", err);
        tables[in.kernel] = in.table;
    }
    return DTP_OK;
}

void dtp_table_write(struct dtp_json_out *w, enum dtp_table which, const struct dtp_time_table *t) {
    static const char *const keys[] = {"x", "y", "z"};
    size_t nz = t->axis[2].n;
    if (t->time_s.n == 0)
        return;
    dtp_json_object(w);
    dtp_json_kv_string(w, "kernel", dtp_table_names[which]);
    dtp_json_kv_string(w, "dtype", dtp_dtype_names[t->dtype]);
    if (t->relative)
        dtp_json_kv_bool(w, "relative", true);
    for (int d = 0; d < 3; d++) {
        dtp_json_put_key(w, keys[d]);
        dtp_json_put_doubles(w, &t->axis[d], 0);
    }
    dtp_json_put_key(w, "time_s");
    dtp_json_put_doubles(w, &t->time_s, nz);
    if (t->clock.n > 0) {
        dtp_json_put_key(w, "clock");
        dtp_json_put_doubles(w, &t->clock, nz);
    }
    dtp_json_end(w);
}
