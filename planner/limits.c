#include "planner/limits.h"

#include <ctype.h>
#include <limits.h>
#include <string.h>

#include "models/schedule/schedule.h"
#include "sim/base/text.h"

#define ROW(limit, field, option, flag)                                                            \
    [limit] = {#field, option, limit##_ALIASES, offsetof(struct dtp_plan, field), flag}
const struct dtp_limit_field dtp_limit_fields[DTP_NLIMITS + 1] = {
    ROW(DTP_LIMIT_TP, tp, "tp", false),
    ROW(DTP_LIMIT_PP, pp, "pp", false),
    ROW(DTP_LIMIT_CP, cp, "cp", false),
    ROW(DTP_LIMIT_DP, dp, "dp", false),
    ROW(DTP_LIMIT_EP, ep, "ep", false),
    ROW(DTP_LIMIT_ETP, etp, "etp", false),
    ROW(DTP_LIMIT_EP_OVERLAP, ep_overlap, "ep-overlap", false),
    ROW(DTP_LIMIT_EP_PER_NODE, ep_per_node, "ep-per-node", false),
    ROW(DTP_LIMIT_ENDS, account_for_ends, "account-for-ends", true),
    ROW(DTP_LIMIT_LAST_LESS, last_stage_less, "last-stage-less", false),
    ROW(DTP_LIMIT_VPP, vpp, "vpp", false),
    ROW(DTP_LIMIT_SCHEDULE, schedule, "schedule", false),
    ROW(DTP_LIMIT_MICROBATCH, microbatch_size, "microbatch-size", false),
    ROW(DTP_LIMIT_ZERO, zero_stage, "zero-stage", false),
    ROW(DTP_LIMIT_ZERO_GROUP, zero_group, "zero-group", false),
    ROW(DTP_LIMIT_SP, sequence_parallel, "sequence-parallel", true),
    ROW(DTP_LIMIT_RECOMPUTE, recompute, "recompute", false),
    ROW(DTP_LIMIT_RECOMPUTE_LAYERS, recompute_layers, "recompute-layers", false),
    [DTP_NLIMITS] = {0}};
#undef ROW

/* pairs: even places mean off, odd ones on */
static const char *const switch_names[] = {"off", "on", "false", "true", "no", "yes", "0", "1"};
enum { NUM_SWITCH_NAMES = sizeof switch_names / sizeof *switch_names, MOST_SCHEDULES = 64 };

struct dtp_limits dtp_limits_none(void) {
    struct dtp_limits l = {.fixed = dtp_plan_default()};
    return l;
}

void dtp_limits_relax(struct dtp_limits *l, enum dtp_limit field) {
    l->field[field] = (struct dtp_select){0};
    if (field == DTP_LIMIT_VPP)
        l->field[field] = (struct dtp_select){.n = 1, .lo = {1}, .hi = {DTP_SCHEDULE_MAX_VPP}};
    if (field == DTP_LIMIT_LAST_LESS || field == DTP_LIMIT_RECOMPUTE_LAYERS)
        l->field[field] = (struct dtp_select){.n = 1, .lo = {0}, .hi = {INT_MAX}};
}

int dtp_limit_find(const char *name) {
    for (int i = 0; i < DTP_NLIMITS; i++) {
        const struct dtp_limit_field *f = &dtp_limit_fields[i];
        if (strcmp(name, f->name) == 0 || strcmp(name, f->option) == 0 ||
            dtp_one_of(f->aliases, name))
            return i;
    }
    return -1;
}

int dtp_limit_get(const struct dtp_plan *p, enum dtp_limit limit) {
    const void *at = (const char *)p + dtp_limit_fields[limit].offset;
    if (limit == DTP_LIMIT_ETP)
        return dtp_plan_etp(p);
    return dtp_limit_fields[limit].flag ? *(const bool *)at : *(const int *)at;
}

void dtp_limit_set(struct dtp_plan *p, enum dtp_limit limit, int value) {
    void *at = (char *)p + dtp_limit_fields[limit].offset;
    if (dtp_limit_fields[limit].flag)
        *(bool *)at = value != 0;
    else
        *(int *)at = value;
}

const char *dtp_limit_text(enum dtp_limit limit, int value, char *buf, size_t size) {
    if (limit == DTP_LIMIT_SCHEDULE)
        snprintf(buf, size, "%s", dtp_schedule_kinds[value].name);
    else if (limit == DTP_LIMIT_RECOMPUTE)
        snprintf(buf, size, "%s", dtp_recompute_names[value]);
    else if (dtp_limit_fields[limit].flag)
        snprintf(buf, size, "%s", value ? "on" : "off");
    else
        snprintf(buf, size, "%d", value);
    return buf;
}

/* ---- parsing ---- */

static enum dtp_status parse_name(enum dtp_limit limit, const char *text, const char *place,
                                  int *out, struct dtp_err *err) {
    const char *names[MOST_SCHEDULES];
    const char *const *from = names;
    size_t n = 0;
    if (limit == DTP_LIMIT_SCHEDULE) {
        for (; n < MOST_SCHEDULES && dtp_schedule_kinds[n].name; n++)
            names[n] = dtp_schedule_kinds[n].name;
        *out = dtp_schedule_find(text);
    } else if (limit == DTP_LIMIT_RECOMPUTE) {
        from = dtp_recompute_names;
        for (; dtp_recompute_names[n];)
            n++;
        *out = -1;
        for (size_t i = 0; i < n; i++)
            if (dtp_same_name(text, dtp_recompute_names[i]))
                *out = (int)i;
    } else {
        from = switch_names;
        n = NUM_SWITCH_NAMES;
        *out = -1;
        for (size_t i = 0; i < n; i++)
            if (dtp_same_name(text, switch_names[i]))
                *out = (int)(i & 1);
        n = 2; /* on and off are what a message offers */
    }
    if (*out >= 0)
        return DTP_OK;
    return dtp_unknown_name(err, DTP_EUSAGE, place, text, from, n, NULL);
}

static bool is_named(enum dtp_limit limit) {
    return limit == DTP_LIMIT_SCHEDULE || limit == DTP_LIMIT_RECOMPUTE ||
           dtp_limit_fields[limit].flag;
}

static int least_value(enum dtp_limit limit) {
    return limit == DTP_LIMIT_ZERO || limit == DTP_LIMIT_ZERO_GROUP ||
                   limit == DTP_LIMIT_LAST_LESS || limit == DTP_LIMIT_RECOMPUTE_LAYERS ||
                   limit == DTP_LIMIT_EP_OVERLAP || limit == DTP_LIMIT_EP_PER_NODE
               ? 0
               : 1;
}

static enum dtp_status parse_number(enum dtp_limit limit, const char *text, const char *place,
                                    int *out, struct dtp_err *err) {
    bool once = limit == DTP_LIMIT_EP_OVERLAP || limit == DTP_LIMIT_EP_PER_NODE;
    long value, most = limit == DTP_LIMIT_ZERO ? 3 : once ? 1 : INT_MAX;
    DTP_TRY(dtp_parse_long(text, place, least_value(limit), most, &value, err));
    *out = (int)value;
    return DTP_OK;
}

/* One item of a list: "8", "4..16", "4..", "..16" or a name. */
static enum dtp_status parse_item(enum dtp_limit limit, char *item, const char *place, int *lo,
                                  int *hi, struct dtp_err *err) {
    if (is_named(limit)) {
        DTP_TRY(parse_name(limit, item, place, lo, err));
        *hi = *lo;
        return DTP_OK;
    }
    char *dots = strstr(item, "..");
    if (!dots) {
        DTP_TRY(parse_number(limit, item, place, lo, err));
        *hi = *lo;
        return DTP_OK;
    }
    *dots = '\0';
    *lo = least_value(limit);
    *hi = INT_MAX;
    if (item[0])
        DTP_TRY(parse_number(limit, item, place, lo, err));
    if (dots[2])
        DTP_TRY(parse_number(limit, dots + 2, place, hi, err));
    if (*lo > *hi)
        return dtp_fail(err, DTP_EUSAGE, "%s: the range %s..%s is empty", place, item, dots + 2);
    return DTP_OK;
}

enum dtp_status dtp_select_parse(enum dtp_limit limit, const char *text, const char *place,
                                 struct dtp_select *out, struct dtp_err *err) {
    struct dtp_select s = {0};
    char item[64];
    for (const char *at = text;;) {
        size_t n = strcspn(at, ",");
        if (n == 0 || n >= sizeof item)
            return dtp_fail(err, DTP_EUSAGE,
                            "%s: \"%s\" is no list; write 8, 1,2,4 or a range 4..16", place, text);
        if (s.n == DTP_MOST_RANGES)
            return dtp_fail(err, DTP_EUSAGE, "%s: more than %d items", place, DTP_MOST_RANGES);
        memcpy(item, at, n);
        item[n] = '\0';
        DTP_TRY(parse_item(limit, item, place, &s.lo[s.n], &s.hi[s.n], err));
        s.n++;
        if (at[n] == '\0')
            break;
        at += n + 1;
    }
    *out = s;
    return DTP_OK;
}

/* The first comma after which NAME= stands, or the end. */
static size_t field_length(const char *text) {
    for (size_t i = 0; text[i]; i++) {
        if (text[i] != ',')
            continue;
        size_t j = i + 1;
        while (isalpha((unsigned char)text[j]) || text[j] == '_' || text[j] == '-')
            j++;
        if (j > i + 1 && text[j] == '=')
            return i;
    }
    return strlen(text);
}

enum dtp_status dtp_limits_parse(struct dtp_arena *a, const char *text, const char *place,
                                 struct dtp_limits *out, struct dtp_err *err) {
    bool seen[DTP_NLIMITS] = {false};
    while (*text) {
        size_t n = field_length(text);
        char *field = dtp_arena_strndup(a, text, n);
        char *equals = strchr(field, '=');
        if (!equals)
            return dtp_fail(err, DTP_EUSAGE, "%s: found \"%s\", expected fields such as tp=8,pp=5",
                            place, field);
        *equals = '\0';
        int limit = dtp_limit_find(field);
        if (limit < 0) {
            const char *names[DTP_NLIMITS];
            for (int i = 0; i < DTP_NLIMITS; i++)
                names[i] = dtp_limit_fields[i].name;
            char kind[96];
            snprintf(kind, sizeof kind, "field in %s:", place);
            return dtp_unknown_name(err, DTP_EUSAGE, kind, field, names, DTP_NLIMITS, NULL);
        }
        if (seen[limit])
            return dtp_fail(err, DTP_EUSAGE, "%s: %s is there twice; several values are %s=4,8",
                            place, field, field);
        seen[limit] = true;
        char where[96];
        snprintf(where, sizeof where, "%s: %s", place, field);
        DTP_TRY(
            dtp_select_parse((enum dtp_limit)limit, equals + 1, where, &out->field[limit], err));
        text += n + (text[n] == ',');
    }
    return DTP_OK;
}
