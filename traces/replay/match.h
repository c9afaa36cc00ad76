/* match.h: the same collective on several ranks, and clocks that agree.
 *
 * Ranks of a process group issue its collectives in one order, so the k-th that a rank launches (or the
 * one of the same sequence number, where it is recorded) is the k-th of every other rank. A group is
 * known by its name and ranks; a trace that names none has one group, the job: that is certain where all
 * ranks of the job took part, else assumed. A gather's tensors tell the size of its group: the ratio of
 * what comes out to what goes in. Point-to-point
 * kernels without a group are matched in a job of two ranks only.
 *
 * A collective ends on all ranks together, so the ends give the clocks: the offset of a rank is the
 * median of the differences of its ends to those of a rank already placed. Then
 *
 *     transfer_ns = median end - last start      what the network took
 *     waiting     = last start - own start       what a rank waited for the others
 *
 * Measured ends agree within DTP_MATCH_SKEW_NS (8 ranks of DLRM: 1 to 7 us). A rank that ends later has a
 * tail: some of its blocks were held up by other kernels on its device (FSDP2 on H200: 16 us in two of 42
 * collectives, the ones that began while a kernel filled the device).
 *
 * A send may end before its receive starts, the data being in buffers: it is `ahead`, takes part neither
 * in the clocks nor in the common end, and the receive cannot end before it.
 *
 * (Measured durations are mostly waiting: 10 us to 7.6 ms for one 24 kB all-to-all.)
 */
#ifndef DTP_TRACES_REPLAY_MATCH_H
#define DTP_TRACES_REPLAY_MATCH_H

#include "traces/formats/trace.h"

enum { DTP_MATCH_SKEW_NS = 7000 };

struct dtp_match_member {
    uint32_t rank, event; /* indices, not the number of the rank */
    bool ahead;           /* a send into buffers that ended before its partner began */
    int64_t tail_ns;      /* its own end after the common end; 0 within DTP_MATCH_SKEW_NS */
};

struct dtp_match {
    enum dtp_comm_op op;
    const char *group; /* "" where the trace names none */
    int group_size;
    bool group_assumed; /* nothing says which ranks: it is taken as the job's */
    uint64_t bytes;     /* in, per rank; 0: unknown */
    size_t first, n;    /* into member[] */
    int64_t last_start_ns, end_ns, transfer_ns; /* since origin_ns, clocks aligned */
};

struct dtp_matches {
    struct dtp_match *at; /* by end */
    size_t n;
    struct dtp_match_member *member;
    int64_t origin_ns; /* the absolute time of the first event of all ranks */
};

/* Clocks are set by all collectives, or by those of one parity, to test on the others. */
enum dtp_align { DTP_ALIGN_ALL, DTP_ALIGN_EVEN, DTP_ALIGN_ODD, DTP_ALIGN_NONE };

/* Sets offset_ns of the ranks. Counts what has no partner as a warning. */
void dtp_trace_match(struct dtp_arena *a, struct dtp_trace *t, enum dtp_align align,
                     struct dtp_matches *out);
/* Time of an event's start since the origin, clocks aligned. */
int64_t dtp_trace_at_ns(const struct dtp_matches *m, const struct dtp_trace_rank *r,
                        int64_t start_ns);

/* A kernel's record, or the host record around its launch, says this of the collective. */
struct dtp_comm_info {
    enum dtp_comm_op op;
    const struct dtp_trace_comm *comm; /* or NULL */
    int group_size; /* as recorded, else that of its process group or of its tensors; 0: unknown */
};
/* Infos of all communication kernels of a rank: [n], in order of launch. */
struct dtp_comm_kernel {
    uint32_t event;
    int64_t order_ns; /* start of the launch */
    struct dtp_comm_info info;
};
void dtp_trace_comm_kernels(struct dtp_arena *a, const struct dtp_trace_rank *r,
                            struct dtp_comm_kernel **out, size_t *out_n);

#endif
