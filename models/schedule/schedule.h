/* schedule.h: which rank does what in which order.
 *
 * A schedule kind is one row of dtp_schedule_kinds and one function. The row holds everything that depends on the
 * kind: names here and in other tools, which (pp, vpp, m) it takes, how chunks map to virtual stages, what its order
 * asks of transfers, and how much it holds; the function writes the compute order of each rank. No code outside
 * models/schedule tests a kind. Passes then add what the plan needs (SEND/RECV, RECOMPUTE, UNSHARD, RESHARD,
 * REDUCE_GRAD, OFFLOAD, FETCH, OPTIM): the runtime executes the complete list; the simulator lowers the same list
 * to tasks.
 *
 * Virtual stage vs = 0 .. pp*vpp-1 in order of the model; kind->stage(pp, vpp, rank, chunk) gives it.
 * Dependencies follow from the key: F(vs,m) after F(vs-1,m); B(vs,m) after B(vs+1,m), on the last
 * virtual stage after F(vs,m); with a split backward B is I (input gradient) then W (weight gradient):
 * I follows I, W(vs,m) after I(vs,m).
 *
 * Text form, one line a rank: "0: 0F0 0F1 0B0 ..." = chunk, kind, microbatch; communication as 0SF1
 * (send forward of microbatch 1), 0RF1, 0SB1, 0RB1, and C U R G D H O for RECOMPUTE UNSHARD RESHARD
 * REDUCE_GRAD OFFLOAD (device to host) FETCH (host to device) OPTIM. '#' starts a comment; a first
 * comment "# zb-h1" names the kind, so that a text reads back as what it was; without it the order is
 * a user's (DTP_SCHED_USER, chunk c of rank r is virtual stage c pp + r).
 *
 * What an executor may assume of a complete list (dtp_schedule_complete), and a checker proves:
 *   - it runs the actions of its rank strictly in order; a send never blocks (buffered, or posted and
 *     waited for at the end of the step), a receive blocks until its message is there. Then no order
 *     deadlocks. Fusing a send with the receive next to it, as Megatron's send_forward_recv_backward
 *     does, only starts the receive earlier and stays safe.
 *   - RECV stands right before the action that needs it (UNSHARD and RECOMPUTE may come between), SEND
 *     right after the one that made the data; between virtual stages of one rank there is neither.
 *   - in one direction (forward or backward) between two ranks, built-in kinds send and receive in the
 *     same order, so that an untagged channel per direction is enough. A user's order need not: match
 *     by (direction, virtual stage, microbatch).
 *
 * Sources: naive and GPipe (Huang 2019, figure 2), 1F1B (PipeDream-flush, Narayanan 2021, 2.2.1), interleaved (2.2.2 and
 * Megatron-LM's warm-up count), ZB-H1, ZB-H2 and ZB-V (Qi 2023, 2 and 6), breadth-first (Lamy-Poirier 2022), eager 1F1B
 * (Zhuang 2023; the order that DAPPLE, Fan 2021, calls PB).
 */
#ifndef DTP_MODELS_SCHEDULE_H
#define DTP_MODELS_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "sim/base/arena.h"
#include "sim/base/status.h"

enum dtp_action_kind {
    DTP_A_F,      /* forward of a chunk and a microbatch */
    DTP_A_B,      /* whole backward */
    DTP_A_I,      /* input gradient */
    DTP_A_W,      /* weight gradient */
    DTP_A_SEND_F, /* activations to virtual stage vs + 1 */
    DTP_A_RECV_F,
    DTP_A_SEND_B, /* gradients to vs - 1 */
    DTP_A_RECV_B,
    DTP_A_RECOMPUTE, /* repeats the forward before B (or I) */
    DTP_A_UNSHARD,   /* all-gather of a chunk's parameters (ZeRO-3) */
    DTP_A_RESHARD,
    DTP_A_REDUCE_GRAD, /* gradients of a chunk: once, or per microbatch */
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
    bool split;      /* some backward is an I */
    uint32_t *begin; /* [pp + 1] into action[] */
    struct dtp_action *action;
};

/* X(index, name): the kinds that can be generated. The order breaks ties between plans, so a new one goes last. */
#define DTP_SCHEDULE_LIST(X)                                                                       \
    X(GPIPE, "gpipe")                                                                              \
    X(1F1B, "1f1b")                                                                                \
    X(INTERLEAVED, "interleaved")                                                                  \
    X(ZB_H1, "zb-h1")                                                                              \
    X(BREADTH_FIRST, "breadth-first")                                                              \
    X(ZB_V, "zb-v")                                                                                \
    X(EAGER_1F1B, "eager-1f1b")                                                                    \
    X(ZB_H2, "zb-h2")                                                                              \
    X(NAIVE, "naive")
enum {
#define X(index, name) DTP_SCHED_##index,
    DTP_SCHEDULE_LIST(X)
#undef X
        DTP_NSCHEDULES,
    DTP_SCHED_USER /* read from a text; a valid index, but behind the end that a loop finds */
};

struct dtp_schedule_kind {
    const char *name, *title, *source;
    /* Other names: lower case, letters and digits only, with blanks between them. */
    const char *aliases;
    /* What torch.distributed.pipelining (and torchtitan) and nanotron call it; NULL: they do not have it. */
    const char *torch, *nanotron;
    bool usual;          /* what a plan has that names none, with its number of chunks */
    bool split_backward; /* I and W instead of B */
    bool chunked;        /* vpp > 1 */
    bool phases;         /* all forwards, then all backwards, of one chunk */
    bool whole_groups;   /* pp must divide m */
    bool fills_twice;    /* m >= 2 pp - 1 */
    bool serial;         /* a microbatch passes all stages and returns before the next one starts */
    int most_vpp;        /* 0: no limit; chunked kinds only */
    /* Neighbours send and receive between the same two actions, so that a transfer that blocks can wait for both
     * ends. In other orders a sender that waited for its receiver would stall on work that comes in between, and
     * the transfer holds the sender alone. */
    bool rendezvous;
    /* Virtual stage that a rank's chunk is. */
    int (*stage)(int pp, int vpp, int rank, int chunk);
    /* Writes the compute order of one rank into out (room for dtp_schedule_max_actions()); returns the
     * number of actions. NULL: cannot be generated (DTP_SCHED_USER). */
    int (*generate)(int pp, int vpp, int m, int rank, struct dtp_action *out);
    /* returns the most microbatches whose activations a rank holds at once, summed over its chunks; a split backward
     * holds them until W. It equals the peak that dtp_schedule_in_flight() counts. */
    int (*in_flight)(int pp, int vpp, int m, int rank);
    /* dtp_schedule_sends_held(); NULL: 1. */
    int (*sends_held)(int pp, int m);
    /* Time slot of the k-th action of a rank where the stack runs the order in slots, with one batch of transfers
     * after each (struct dtp_costs, p2p_slots). NULL: no stack does. */
    uint32_t (*time_slot)(int pp, int vpp, int m, int rank, uint32_t k);
};
extern const struct dtp_schedule_kind dtp_schedule_kinds[]; /* ends with name NULL */
extern const char *const dtp_schedule_names[];              /* the same names, ends with NULL */
#define DTP_SCHEDULE_MAX_VPP 1024
#define DTP_SCHEDULE_MAX_PP 65535

/* Index, or -1. Letter case, blanks, '-' and '_', and anything from a '(' on do not count; aliases are
 * known: "interleaved 1F1B", "1F1B (DeepSpeed)", "Interleaved", "PipeDream-flush". */
int dtp_schedule_find(const char *name);
/* The kind of a plan that names none: 1f1b, or interleaved where a rank has more than one chunk. */
int dtp_schedule_usual(int vpp);
/* NULL when the kind can be generated for these, else why not (static text). */
const char *dtp_schedule_applies(int kind, int pp, int vpp, int m);
/* Room for the compute actions of one rank. */
size_t dtp_schedule_max_actions(int vpp, int m);
/* Rank that holds a virtual stage and the chunk it is there. */
void dtp_schedule_holder(int kind, int pp, int vpp, int vs, int *rank, int *chunk);

/* Makes the compute actions of all ranks. */
enum dtp_status dtp_schedule_make(struct dtp_arena *a, int kind, int pp, int vpp, int m,
                                  struct dtp_schedule *out, struct dtp_err *err);

struct dtp_schedule_passes {
    bool p2p;       /* pp > 1 */
    bool recompute; /* a RECOMPUTE before each B or I */
    int zero_stage; /* 3: UNSHARD and RESHARD */
    /* ZeRO-3: RESHARD after F, UNSHARD before B; else a chunk stays unsharded from its first F until none of its
     * microbatches is in flight. */
    bool regather_backward;
    bool reduce;                /* dp x cp > 1 */
    bool reduce_per_microbatch; /* else once, after the chunk's last B or W */
    bool offload;               /* FETCH of each chunk before OPTIM, OFFLOAD after it */
    bool optim;                 /* one OPTIM, last */
};
/* The complete list: what the executor walks. compute: F, B, I, W only. */
enum dtp_status dtp_schedule_complete(struct dtp_arena *a, const struct dtp_schedule *compute,
                                      const struct dtp_schedule_passes *passes,
                                      struct dtp_schedule *out, struct dtp_err *err);
/* What one compute action becomes in the complete list of its rank, for chunk 0 and without the reductions
 * and what ends the step: with regather_backward the same wherever it stands. Returns its length. Of the shape only
 * kind, pp and vpp are read. */
#define DTP_SCHEDULE_MOST_AROUND 8
int dtp_schedule_complete_one(const struct dtp_schedule *shape, int rank,
                              const struct dtp_schedule_passes *passes, struct dtp_action x,
                              struct dtp_action out[DTP_SCHEDULE_MOST_AROUND]);
/* No order deadlocks, each action stands exactly once, sends pair with receives. Names the first actions
 * that wait for each other. Lists without any SEND or RECV are taken as compute actions whose data
 * arrive by themselves. DTP_EINPUT when not. */
enum dtp_status dtp_schedule_check(struct dtp_arena *a, const struct dtp_schedule *s,
                                   struct dtp_err *err);
/* Finds the most microbatch activations that a rank holds at once, per chunk: in_flight[pp * vpp], by rank * vpp +
 * chunk; a split backward holds its microbatch until W ran (Qi 2023, table 1: what W needs is 32 of
 * the 34 s b h). peak[rank]: the largest sum over chunks and, in peak_chunk[rank * vpp + chunk], the
 * sum's terms at the first such moment. Any may be NULL. */
void dtp_schedule_in_flight(const struct dtp_schedule *s, int *in_flight, int *peak,
                            int *peak_chunk);
/* Some rank holds more activations with m microbatches than with fewer of them: the order with fewer does not
 * stand for the whole step. */
bool dtp_schedule_holds_more(int kind, int pp, int vpp, int m, int fewer);
/* Fewest sent messages of a direction that a rank must be able to hold: when a send waits until the one that
 * many before it was received, the order runs to its end. Chunks that turn round (ZB-V) or that are whole phases
 * (breadth-first) are received late. */
int dtp_schedule_sends_held(int kind, int pp, int m);

/* Neighbours of a chunk along the model: the ranks that hold the virtual stages before and after
 * (-1: none); far: another rank, so that data is sent. */
struct dtp_chunk_links {
    int stage, before, after;
    bool far_before, far_after;
};
/* links[vpp] of a rank. */
void dtp_schedule_links(const struct dtp_schedule *s, int rank, struct dtp_chunk_links *links);
/* All ranks, with the comment that names the kind. */
void dtp_schedule_print(FILE *f, const struct dtp_schedule *s);
/* name: what messages call the text. vpp 0: as many as the chunks that occur. The result is not
 * checked: call dtp_schedule_check(). */
enum dtp_status dtp_schedule_parse(struct dtp_arena *a, const char *name, const char *text, int vpp,
                                   struct dtp_schedule *out, struct dtp_err *err);

#endif
