/* launch.h: where the ranks of a job come from.
 *
 * Either this process forks them (dtp_launch_fork: one process per rank, pinned to cores in turn, a
 * child dies with its parent), or a launcher started this process as one rank and tells so in the
 * environment. Read, first match wins:
 *   torchrun   RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT
 *   Open MPI   OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE
 *   MPICH      PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS
 *   Slurm      SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, SLURM_NTASKS_PER_NODE (a job step)
 * MASTER_ADDR and MASTER_PORT serve all of them; without: 127.0.0.1 and 29511 (Slurm: the first node
 * of SLURM_STEP_NODELIST).
 *
 * Rendezvous: rank 0 listens at the first free one of DTP_MASTER_PORTS ports, from MASTER_PORT on (under
 * torchrun from the one behind it, since its agent listens at MASTER_PORT). Each rank tries them in turn,
 * again and again until the time-out, and sends {job, size, rank, host, blob} and what it trains (facts.h).
 * A rank of another job is turned away. Rank 0 answers with everybody's host and blob, or with the reason
 * why the job ends: ranks that train different things, or one that cannot start. Blobs are what the
 * communicator needs (a shared-memory name, a TCP port, an NCCL id).
 */
#ifndef DTP_RUNTIME_LAUNCH_H
#define DTP_RUNTIME_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/arena.h"
#include "sim/base/status.h"

struct dtp_endpoint {
    const char *launcher; /* "torchrun", "openmpi", "mpich", "slurm" */
    int rank, size, local_rank, local_size;
    const char *master_host;
    int master_port; /* the first that is tried */
    uint64_t job;    /* ranks of one job have the same */
    double timeout_s;
    const char *facts; /* what this rank trains, JSON; NULL: nothing to compare */
    bool *met;         /* set by dtp_rendezvous(), however it ends; may be NULL */
};
#define DTP_MASTER_PORTS 8

/* False: no launcher; *out is untouched. A launcher whose variables make no sense is an error. */
enum dtp_status dtp_launch_environment(struct dtp_arena *a, bool *found, struct dtp_endpoint *out,
                                       struct dtp_err *err);

/* This rank ends before the rendezvous: the others, who wait there, end at once with the reason. */
void dtp_rendezvous_fail(const struct dtp_endpoint *e, const struct dtp_err *why);
/* The same for a process that may or may not have been started by a launcher. */
void dtp_launch_cannot_start(double timeout_s, const struct dtp_err *why);

#define DTP_BLOB_BYTES 192
struct dtp_caller {
    char host[64];
    unsigned char blob[DTP_BLOB_BYTES];
};
/* All ranks call it; peers[size] by rank. */
enum dtp_status dtp_rendezvous(const struct dtp_endpoint *e, const unsigned char *blob,
                               struct dtp_caller *peers, struct dtp_err *err);

/* What a forked rank runs; its return value is the rank's exit status. */
typedef enum dtp_status dtp_rank_fn(void *context, int rank, struct dtp_err *err);
struct dtp_fork {
    int nranks;
    dtp_rank_fn *run;
    void *context;
    void *shared;                /* the communicator's mapping (comm.h): aborts travel through it */
    double grace_s;              /* after the first failure, before the rest is killed */
    void (*poll)(void *context); /* called again and again meanwhile; NULL: not */
};
/* Forks, waits for all, and leaves none behind. DTP_OK only if every rank ended with it; else the first
 * failure, with rank, action and reason. */
enum dtp_status dtp_launch_fork(const struct dtp_fork *f, struct dtp_err *err);

/* ---- the operating system ---- */

int dtp_os_num_cores(void);  /* that this process may use */
void dtp_os_pin(int index);  /* to the index-th (modulo) of them; errors do not matter */
int64_t dtp_os_now_ns(void); /* monotonic */

#endif
