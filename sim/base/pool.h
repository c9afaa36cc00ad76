/* pool.h: run n independent items on a few threads.
 *
 * Items are handed out in order, each to one thread; results go to slots by item index and are
 * reduced by the caller in index order after the join, so that any number of threads gives the same
 * bytes. thread is 0 .. nthreads-1, for per-thread arenas. The calling thread takes part.
 */
#ifndef DTP_SIM_BASE_POOL_H
#define DTP_SIM_BASE_POOL_H

#include <stddef.h>

typedef void dtp_pool_fn(void *ctx, size_t item, int thread);

/* nthreads < 1: the number of processors this process may use. Returns after all items ran. */
void dtp_pool_run(int nthreads, size_t nitems, dtp_pool_fn *fn, void *ctx);
int dtp_pool_default_threads(void);

#endif
