/* schedule.h: which rank does what in which order.
 *
 * A schedule kind is one row of dtp_schedule_kinds: name, whether it applies to (pp, vpp, m), how chunks
 * map to virtual stages, and a generator of the compute order of each rank. Passes then add what the
 * plan needs (SEND/RECV, RECOMPUTE, UNSHARD, RESHARD, REDUCE_GRAD, OFFLOAD, FETCH, OPTIM): the
 * runtime executes the complete list; the simulator lowers the same list to tasks.
 *
 * Virtual stage vs = 0 .. pp*vpp-1 in order of the model; kind->stage(pp, vpp, rank, chunk) gives it.
 * Dependencies follow from the key: F(vs,m) after F(vs-1,m); B(vs,m) after B(vs+1,m), on the last
 * virtual stage after F(vs,m); with a split backward B is I (input gradient) then W (weight gradient):
 * I follows I, W(vs,m) after I(vs,m).
 *
 * Text form, one line a rank: "0: 0F0 0F1 0B0 ..." = chunk, kind, microbatch; communication as 0SF1
 * (send forward of microbatch 1), 0RF1, 0SB1, 0RB1, and U R G O C for UNSHARD RESHARD REDUCE_GRAD OPTIM
 * RECOMPUTE. Sources: GPipe (Huang 2019), 1F1B (PipeDream-flush, Narayanan 2021, 2.2.1), interleaved
 * (2.2.2), ZB-H1 (Qi 2023).
 */
#ifndef DTP_MODELS_SCHEDULE_H
#define DTP_MODELS_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "sim/base/arena.h"
#include "sim/base/status.h"

enum dtp_action_kind {
    DTP_A_F,         /* forward of a chunk and a microbatch */
    DTP_A_B,         /* whole backward */
    DTP_A_I,         /* input gradient */
    DTP_A_W,         /* weight gradient */
    DTP_A_SEND_F,    /* activations to virtual stage vs + 1 */
    DTP_A_RECV_F,
    DTP_A_SEND_B,    /* gradients to vs - 1 */
    DTP_A_RECV_B,
    DTP_A_RECOMPUTE, /* forward again before B (or I) */
    DTP_A_UNSHARD,   /* all-gather of a chunk's parameters (ZeRO-3) */
    DTP_A_RESHARD,
    DTP_A_REDUCE_GRAD, /* of a chunk: once, or per microbatch */
    DTP_A_OFFLOAD,
    DTP_A_FETCH,
    DTP_A_OPTIM,
    DTP_NACTIONS
};
extern const char *const dtp_action_names[]; /* "F", "B", "I", "W", "SF", ... */

struct dtp_action {
    uint8_t kind; /* enum dtp_action_kind */
    uint16_t chunk;
    uint32_t microbatch;
};

struct dtp_schedule {
    int kind; /* index into dtp_schedule_kinds */
    int pp, vpp, m;
    uint32_t *begin;          /* [pp + 1] into action[] */
    struct dtp_action *action;
};

struct dtp_schedule_kind {
    const char *name, *title, *source;
    bool flushes;         /* all microbatches of a step end before the optimizer */
    bool split_backward;  /* I and W instead of B */
    bool chunked;         /* vpp > 1 */
    /* NULL when it applies, else why not (static text). */
    const char *(*applies)(int pp, int vpp, int m);
    int (*stage)(int pp, int vpp, int rank, int chunk); /* virtual stage */
    /* Writes the compute order of one rank into out (room for dtp_schedule_max_actions()); returns the
     * number of actions. */
    int (*generate)(int pp, int vpp, int m, int rank, struct dtp_action *out);
};
extern const struct dtp_schedule_kind dtp_schedule_kinds[]; /* ends with name NULL */
enum { DTP_SCHED_GPIPE, DTP_SCHED_1F1B, DTP_SCHED_INTERLEAVED, DTP_SCHED_ZB_H1, DTP_NSCHEDULES };

int dtp_schedule_find(const char *name); /* index, aliases included ("interleaved 1F1B"), or -1 */
int dtp_schedule_max_actions(int vpp, int m);
/* Rank that holds a virtual stage and the chunk it is there. */
void dtp_schedule_holder(int kind, int pp, int vpp, int vs, int *rank, int *chunk);

/* Compute actions of all ranks. */
enum dtp_status dtp_schedule_make(struct dtp_arena *a, int kind, int pp, int vpp, int m,
                                  struct dtp_schedule *out, struct dtp_err *err);

struct dtp_schedule_passes {
    bool p2p;                  /* pp > 1 */
    bool recompute;            /* a RECOMPUTE before each B or I */
    int zero_stage;            /* 3: UNSHARD and RESHARD */
    bool regather_backward;    /* ZeRO-3: RESHARD after F, UNSHARD again before B */
    bool reduce;               /* dp x cp > 1 */
    bool reduce_per_microbatch;
    bool offload;
    bool optim;
};
/* The complete list: what the executor walks. */
enum dtp_status dtp_schedule_complete(struct dtp_arena *a, const struct dtp_schedule *compute,
                                      const struct dtp_schedule_passes *passes,
                                      struct dtp_schedule *out, struct dtp_err *err);
/* No order deadlocks, each action stands exactly once, sends pair with receives. Names the first actions
 * that wait for each other. */
enum dtp_status dtp_schedule_check(struct dtp_arena *a, const struct dtp_schedule *s,
                                   struct dtp_err *err);
/* Most microbatch-activations held at once by a rank, per chunk: in_flight[pp * vpp], by rank * vpp +
 * chunk; W of a split backward holds its share until it ran. peak[rank]: the largest sum over chunks
 * and, in peak_chunk[rank * vpp + chunk], the sum's terms at that moment. Any may be NULL. */
void dtp_schedule_in_flight(const struct dtp_schedule *s, int *in_flight, int *peak,
                            int *peak_chunk);
void dtp_schedule_print(FILE *f, const struct dtp_schedule *s);
enum dtp_status dtp_schedule_parse(struct dtp_arena *a, const char *name, const char *text,
                                   int vpp, struct dtp_schedule *out, struct dtp_err *err);

#endif
