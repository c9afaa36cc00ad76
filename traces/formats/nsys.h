/* nsys.h: Nsight Systems reports exported to SQLite, as ranks of a trace: one for each process that used
 * a GPU, by device.
 *
 * Tables are made only where there is something to hold, and columns vary by version: both are looked
 * up first. Read: CUPTI_ACTIVITY_KIND_KERNEL, _MEMCPY, _MEMSET, _SYNCHRONIZATION, _RUNTIME, NVTX_EVENTS
 * (ranges; those without an end are dropped), StringIds, TARGET_INFO_GPU and
 * TARGET_INFO_SESSION_START_TIME (so that clocks of hosts agree). NVTX ranges named "step N",
 * "iteration N" or "ProfilerStep#N" become steps. The reports carry no sizes of collectives.
 * https://docs.nvidia.com/nsight-systems/, "SQLite schema reference".
 *
 * Needs libsqlite3 at build time; without it everything here is DTP_EUNSUPPORTED.
 */
#ifndef DTP_TRACES_FORMATS_NSYS_H
#define DTP_TRACES_FORMATS_NSYS_H

#include "traces/formats/source.h"
#include "traces/formats/trace.h"

/* path: of the file itself, which is read in place; NULL where the source is packed: it is then read
 * into memory, up to 512 MiB. *out: ranks, their number -1, finished. */
enum dtp_status dtp_nsys_read(struct dtp_arena *a, struct dtp_source *source, const char *path,
                              struct dtp_trace_rank **out, size_t *out_n, struct dtp_err *err);

#endif
