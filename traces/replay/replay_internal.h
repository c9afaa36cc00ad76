/* replay_internal.h: shared by replay*.c: calls and work of a rank with their tasks. */
#ifndef DTP_TRACES_REPLAY_REPLAY_INTERNAL_H
#define DTP_TRACES_REPLAY_REPLAY_INTERNAL_H

#include "sim/base/units.h"
#include "sim/graph.h"
#include "sim/engine.h"
#include "traces/replay/replay.h"

#define REPLAY_SKEW_NS 2000         /* host and device clocks of one machine may differ by it */
#define REPLAY_ROOM_NS 3000         /* a start this late has a reason */
#define REPLAY_PROGRAMMATIC_NS 5000 /* work let in early overlaps the work before it by less */
#define NO_INDEX UINT32_MAX

/* A start follows other work, its launch, or work of another engine (copy after kernel or kernel
 * after copy, which takes some microseconds more). Streams with launched work that is not allowed to
 * start yet hold up the others' starts: on H200 1.7 us after other work with none such, 2.7 us with one,
 * 3.2 us with more (kineto-h200-2rank, thousands of starts each), so these are told apart. */
enum replay_after {
    AFTER_WORK,
    AFTER_WORK_BESIDE_1,
    AFTER_WORK_BESIDE_2,
    AFTER_LAUNCH,
    AFTER_SWITCH,
    NAFTER
};

struct replay_call {
    uint32_t event, lane;
    int64_t start_ns, end_ns; /* since the origin */
    int64_t issue_ns; /* when it hands work to the device: a usual call's time before its end */
    dtp_id before, issue, body; /* tasks: host time before it, up to the issue, the whole call */
    uint32_t handed_by;         /* call of another lane that let it begin, or NO_INDEX */
    uint32_t waits_for;         /* work that it waits for, or NO_INDEX */
};

struct replay_work {
    uint32_t event, lane;
    int64_t start_ns, end_ns, order_ns; /* end: when others saw it end (replay_edited.c), so that a
                                           duration is the event's; order: start of its launch */
    uint32_t call;                      /* call that launched it, or NO_INDEX */
    uint32_t previous;                  /* on its stream, or NO_INDEX */
    uint32_t waits_for;                 /* on another stream, or NO_INDEX */
    uint32_t makes_room;                /* on another stream, whose end frees the device for it */
    uint32_t match;                     /* collective, or NO_INDEX */
    int64_t wait_ns;                    /* later than its dependencies and usual latencies say */
    int64_t tail_ns;                    /* after the common end of its collective */
    uint32_t match_after;               /* collective that waits for its end (sent ahead) */
    bool loose;                         /* nothing waits for it (what-if on overlap) */
    bool early;                         /* it started before its call's usual issue */
    uint8_t beside;    /* other streams with work that was launched and waited then, at most 2 */
    dtp_id start, end; /* tasks: whose end is its start (a collective's), its end */
};

struct replay_lane { /* the work of one stream: [from, to) of work[] */
    uint32_t from, to;
};

struct replay_latency {
    int64_t sum_ns;
    uint32_t n;
};

struct replay_stretch { /* up to a collective */
    int64_t end_ns;
    double speed; /* speed of its host and kernels in a what-if */
};

struct replay_rank {
    const struct dtp_trace_rank *r;
    const struct dtp_matches *m;
    size_t index;             /* among the ranks */
    struct replay_call *call; /* by lane and start; calls inside calls left out */
    uint32_t ncalls;
    struct replay_work *work; /* by lane and start */
    uint32_t nwork;
    struct replay_lane *lane; /* lanes with work, in the order of work[] */
    size_t nlanes;
    uint32_t *call_of, *work_of;              /* [nevents] event to index, or NO_INDEX */
    int64_t latency_ns[DTP_NCLASSES][NAFTER]; /* latency of starts, by enum replay_after */
    struct replay_latency *of_name;           /* [names][NAFTER] the same, of each kernel */
    struct replay_stretch *stretch;
    size_t nstretches;
    int64_t unexplained_ns, first_ns, last_ns;
};

struct replay_state {
    struct dtp_arena *a;
    struct dtp_trace *t;
    const struct dtp_replay_options *options;
    struct dtp_matches *m;
    struct replay_rank *rank;
    struct dtp_graph graph;
    struct dtp_replay_network *network;
    size_t nnetwork;
    uint32_t
        *network_of;  /* [matches] index into network; NULL: latency and bandwidth as measured */
    dtp_id *transfer; /* [matches] task of each collective, of its bucket */
};

/* The tag of a task says what it is in the graph. */
enum replay_part { PART_BEFORE, PART_CALL, PART_START, PART_WORK, PART_TRANSFER, PART_LATENCY };

static inline double replay_seconds(int64_t ns) {
    return (double)ns * DTP_NANO;
}

/* replay_build.c: tasks and dependencies of all that was recovered, under the options */
void replay_build(struct replay_state *s);
dtp_critical_describe replay_describe;
/* replay_host.c */
void replay_find_calls(struct dtp_arena *a, struct replay_rank *q);
void replay_find_issues(struct dtp_arena *a, struct replay_rank *q);
void replay_find_handovers(struct replay_rank *q);
/* replay_work.c */
void replay_find_work(struct dtp_arena *a, struct replay_rank *q);
void replay_find_waits(struct dtp_arena *a, struct replay_rank *q);
void replay_find_previous(struct replay_rank *q);
/* replay_edited.c: ends as they were before durations alone were edited. */
void replay_find_edits(struct dtp_arena *a, struct replay_rank *rank, size_t nranks);
/* How long after its start the work that makes room lets w in. */
int64_t replay_room_ns(const struct replay_rank *q, const struct replay_work *w);
enum replay_after replay_after_work(const struct replay_rank *q, const struct replay_work *w,
                                    uint32_t other);
int64_t replay_latency_ns(const struct replay_rank *q, const struct replay_work *w, int after);
/* When it should have started: after its launch and the work it follows, plus the latency of each;
 * INT64_MIN where neither is known. */
int64_t replay_expected_ns(const struct replay_rank *q, const struct replay_work *w);
void replay_find_latencies(struct dtp_arena *a, struct replay_rank *q);

/* replay_export.c */
struct replay_export_input {
    const struct replay_rank *rank;
    size_t nranks;
    const struct dtp_matches *matches;
    const struct dtp_timeline *line;
    const struct dtp_replayed_rank *replayed;
    double explained_pct;
};

#endif
