#include "models/schedule/schedule.h"

#include <ctype.h>
#include <string.h>

#include "models/schedule/schedule_kinds.h"
#include "sim/base/machine.h"
#include "sim/base/text.h"

const char *const dtp_action_names[] = {
    [DTP_A_F] = "F",       [DTP_A_B] = "B",       [DTP_A_I] = "I",
    [DTP_A_W] = "W",       [DTP_A_SEND_F] = "SF", [DTP_A_RECV_F] = "RF",
    [DTP_A_SEND_B] = "SB", [DTP_A_RECV_B] = "RB", [DTP_A_RECOMPUTE] = "C",
    [DTP_A_UNSHARD] = "U", [DTP_A_RESHARD] = "R", [DTP_A_REDUCE_GRAD] = "G",
    [DTP_A_OFFLOAD] = "D", [DTP_A_FETCH] = "H",   [DTP_A_OPTIM] = "O",
    [DTP_NACTIONS] = NULL,
};

/* "Interleaved 1F1B (Paddle)" -> "interleaved1f1b" */
static void plain_name(const char *name, char *out, size_t size) {
    size_t n = 0;
    for (; *name && *name != '(' && n + 1 < size; name++)
        if (isalnum((unsigned char)*name))
            out[n++] = (char)tolower((unsigned char)*name);
    out[n] = '\0';
}

int dtp_schedule_find(const char *name) {
    char plain[64], known[64];
    plain_name(name, plain, sizeof plain);
    for (int k = 0; dtp_schedule_names[k]; k++) {
        plain_name(dtp_schedule_names[k], known, sizeof known);
        if (strcmp(plain, known) == 0)
            return k;
    }
    for (const struct dtp_schedule_alias *alias = dtp_schedule_aliases; alias->name; alias++)
        if (strcmp(plain, alias->name) == 0)
            return alias->kind;
    return -1;
}

const char *dtp_schedule_applies(int kind, int pp, int vpp, int m) {
    const struct dtp_schedule_kind *k = &dtp_schedule_kinds[kind];
    if (!k->generate)
        return "the order is the user's own and cannot be generated";
    if (pp < 1 || vpp < 1 || m < 1 || pp > DTP_SCHED_MAX_PP || vpp > DTP_SCHED_MAX_VPP)
        return "pp, vpp and the number of microbatches must be 1 or more, pp and vpp within limits";
    if (!k->chunked && vpp > 1)
        return "this schedule has one chunk per rank (vpp = 1)";
    if (k->most_vpp == 2 && vpp != 2)
        return "this schedule needs vpp = 2";
    if (k->chunked && vpp < 2)
        return "this schedule needs vpp > 1";
    if (k->chunked && pp < 2)
        return "this schedule needs pp > 1";
    if (k->most_vpp > 0 && vpp > k->most_vpp)
        return "vpp is over what this schedule places";
    if (k->whole_groups && m % pp != 0)
        return "pp must divide the number of microbatches";
    if (k->fills_twice && m < 2 * pp - 1)
        return "this schedule needs at least 2 pp - 1 microbatches";
    return NULL;
}

size_t dtp_schedule_max_actions(int vpp, int m) {
    return 3 * (size_t)vpp * (size_t)m;
}

void dtp_schedule_holder(int kind, int pp, int vpp, int vs, int *rank, int *chunk) {
    /* Every placement so far keeps chunk c within virtual stages c pp .. c pp + pp - 1. */
    int c = vs / pp, r = vs % pp;
    if (dtp_schedule_kinds[kind].stage(pp, vpp, r, c) != vs)
        r = pp - 1 - r;
    *rank = r;
    *chunk = c;
}

/* An action, and when its data are sent and posted (estimate_walk.h). Short schedules are not worth a look at
 * what memory there is. */
static enum dtp_status check_room(int64_t nactions, int m, struct dtp_err *err) {
    static const int64_t few = 1 << 24;
    static const double action_bytes = sizeof(struct dtp_action) + 2 * sizeof(double);
    char actions[32], needs[32], has[32];
    double bytes = (double)nactions * action_bytes;
    double free_bytes = nactions > few ? (double)dtp_machine_memory("").free_bytes : bytes;
    if (bytes <= free_bytes && nactions <= UINT32_MAX)
        return DTP_OK;
    return dtp_fail(err, DTP_EUNSUPPORTED,
                    "%s actions of %d microbatches take about %s of memory, there are %s: fewer or "
                    "larger microbatches take less",
                    dtp_fmt_count((double)nactions, actions, sizeof actions), m,
                    dtp_fmt_bytes_gib(bytes, needs, sizeof needs),
                    dtp_fmt_bytes_gib(free_bytes, has, sizeof has));
}

enum dtp_status dtp_schedule_make(struct dtp_arena *a, int kind, int pp, int vpp, int m,
                                  struct dtp_schedule *out, struct dtp_err *err) {
    const struct dtp_schedule_kind *k = &dtp_schedule_kinds[kind];
    const char *why = dtp_schedule_applies(kind, pp, vpp, m);
    if (why)
        return dtp_fail(err, DTP_EINPUT, "schedule %s with pp %d, vpp %d, %d microbatches: %s",
                        k->name, pp, vpp, m, why);
    int64_t per_rank = (int64_t)(k->split_backward ? 3 : 2) * vpp * m;
    DTP_TRY(check_room(per_rank * pp, m, err));
    *out = (struct dtp_schedule){
        .kind = kind, .pp = pp, .vpp = vpp, .m = m, .split = k->split_backward};
    out->begin = DTP_NEW(a, uint32_t, (size_t)pp + 1);
    out->action = DTP_NEW(a, struct dtp_action, (size_t)(per_rank * pp));
    for (int rank = 0; rank < pp; rank++) {
        int n = k->generate(pp, vpp, m, rank, out->action + out->begin[rank]);
        out->begin[rank + 1] = out->begin[rank] + (uint32_t)n;
    }
    return DTP_OK;
}

int dtp_schedule_sends_held(int kind, int pp, int m) {
    int held = kind == DTP_SCHED_ZB_V ? pp - 1 : kind == DTP_SCHED_BREADTH_FIRST ? m / pp : 1;
    return held > 1 ? held : 1;
}

void dtp_schedule_in_flight(const struct dtp_schedule *s, int *in_flight, int *peak,
                            int *peak_chunk) {
    int held[DTP_SCHED_MAX_VPP];
    size_t row_bytes = (size_t)s->vpp * sizeof held[0];
    for (int rank = 0; rank < s->pp; rank++) {
        int sum = 0, most = 0;
        size_t row = (size_t)rank * (size_t)s->vpp;
        memset(held, 0, row_bytes);
        if (in_flight)
            memset(in_flight + row, 0, row_bytes);
        if (peak_chunk)
            memset(peak_chunk + row, 0, row_bytes);
        for (uint32_t i = s->begin[rank]; i < s->begin[rank + 1]; i++) {
            struct dtp_action x = s->action[i];
            if (x.kind == DTP_A_B || x.kind == DTP_A_W) {
                held[x.chunk]--;
                sum--;
            }
            if (x.kind != DTP_A_F)
                continue;
            held[x.chunk]++;
            if (in_flight && held[x.chunk] > in_flight[row + x.chunk])
                in_flight[row + x.chunk] = held[x.chunk];
            if (++sum <= most)
                continue;
            most = sum;
            if (peak_chunk)
                memcpy(peak_chunk + row, held, row_bytes);
        }
        if (peak)
            peak[rank] = most;
    }
}
