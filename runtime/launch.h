/* launch.h: starts the ranks of a job, or joins them if a launcher started them.
 *
 * Either this process forks them (dtp_launch_fork: one process per rank, pinned to cores in turn, a
 * child dies with its parent), or a launcher started this process as one rank and says so in the
 * environment. These variables are read, and the first launcher that matches wins:
 *   torchrun   RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT
 *   Open MPI   OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE
 *   MPICH      PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS
 *   Slurm      SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, SLURM_NTASKS_PER_NODE (a job step)
 * MASTER_ADDR and MASTER_PORT serve all of them; the defaults are 127.0.0.1 (under Slurm the first node of
 * SLURM_STEP_NODELIST) and 29511.
 *
 * In the rendezvous rank 0 listens at the first free one of DTP_MASTER_PORTS ports, from MASTER_PORT on (under
 * torchrun from MASTER_PORT + 1 on, since its agent listens at MASTER_PORT). Each rank tries the ports in turn,
 * repeatedly until the time-out, and sends {job, size, rank, host, blob} and what it trains (facts.h).
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
    int master_port; /* the first port that is tried */
    uint64_t job;    /* number that the ranks of one job share */
    double timeout_s;
    const char *facts; /* what this rank trains, JSON; NULL: nothing to compare */
    bool *met;         /* set by dtp_rendezvous(), however it ends; may be NULL */
};
#define DTP_MASTER_PORTS 8

/* Sets *found to false, and leaves *out untouched, if there is no launcher. A launcher whose variables make no sense
 * is an error. */
enum dtp_status dtp_launch_environment(struct dtp_arena *a, bool *found, struct dtp_endpoint *out,
                                       struct dtp_err *err);

/* Tells the others, who wait in the rendezvous, that this rank cannot come: they end at once with the reason. */
void dtp_rendezvous_fail(const struct dtp_endpoint *e, const struct dtp_err *why);
/* Does the same for a process that may or may not have been started by a launcher. */
void dtp_launch_cannot_start(double timeout_s, const struct dtp_err *why);

#define DTP_BLOB_BYTES 192
struct dtp_caller {
    char host[64];
    unsigned char blob[DTP_BLOB_BYTES];
};
/* All ranks call it; peers[size] is indexed by rank. */
enum dtp_status dtp_rendezvous(const struct dtp_endpoint *e, const unsigned char *blob,
                               struct dtp_caller *peers, struct dtp_err *err);

/* A forked rank runs this function; the return value is the rank's exit status. */
typedef enum dtp_status dtp_rank_fn(void *context, int rank, struct dtp_err *err);
struct dtp_fork {
    int nranks;
    dtp_rank_fn *run;
    void *context;
    void *shared;                /* the communicator's mapping (comm.h): aborts travel through it */
    double grace_s;              /* time from the first failure until the rest is killed */
    void (*poll)(void *context); /* called repeatedly meanwhile; NULL: not */
};
/* Forks the ranks, waits for all, and leaves none running. Returns DTP_OK only if every rank did; else the first
 * failure, with rank, action and reason. */
enum dtp_status dtp_launch_fork(const struct dtp_fork *f, struct dtp_err *err);

/* ---- the operating system ---- */

int dtp_os_num_cores(void);  /* cores that this process may use */
void dtp_os_pin(int index);  /* pins to the index-th (modulo) of them; errors do not matter */
int64_t dtp_os_now_ns(void); /* from a monotonic clock */

#endif
