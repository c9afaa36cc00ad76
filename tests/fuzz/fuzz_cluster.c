/* Any bytes as a cluster file: what is accepted has routes between its GPUs over links with finite
 * capacities, and collectives that take a finite time. */
#include <math.h>
#include <stdlib.h>

#include "hw/collective.h"
#include "sim/base/json.h"
#include "tests/fuzz/fuzz.h"

static void check_routes(const struct dtp_cluster *c) {
    int ngpus = c->max_gpus > 0 && c->max_gpus < 20 ? c->max_gpus : 20;
    uint32_t nlinks = dtp_cluster_nlinks(c, ngpus);
    for (uint32_t l = 0; l < nlinks; l++)
        if (!(dtp_cluster_link_capacity(c, ngpus, l) > 0) ||
            !isfinite(dtp_cluster_link_capacity(c, ngpus, l)))
            abort();
    for (int src = 0; src < ngpus; src++)
        for (int dst = 0; dst < ngpus; dst++) {
            struct dtp_route r = {0};
            if (src == dst)
                continue;
            dtp_cluster_route(c, ngpus, src, dst, &r);
            if (r.n < 0 || r.n > DTP_MAX_ROUTE || !(r.latency_s >= 0))
                abort();
            for (int i = 0; i < r.n; i++)
                if (r.link[i] >= nlinks)
                    abort();
        }
}

static void check_costs(const struct dtp_cluster *c) {
    struct dtp_placement p;
    struct dtp_sizes sizes = {1, 1, c->max_gpus > 0 ? c->node.gpus : 3 * c->node.gpus, 1, 1};
    if (dtp_placement_init(&p, c, &sizes, "tp-cp-dp-pp", NULL) != DTP_OK)
        return;
    struct dtp_group_shape s = dtp_placement_shape(&p, c, DTP_AXIS_DP, 0);
    for (int kind = 0; kind < DTP_NCOLLECTIVES; kind++)
        for (int algo = 0; algo < DTP_NALGOS; algo++) {
            struct dtp_coll_cost k;
            dtp_coll_cost(c, (enum dtp_collective)kind, (enum dtp_algo)algo, &s, 1e7, &k);
            if (!isfinite(k.time_s) || k.time_s < 0 || !(k.latency_s <= k.time_s))
                abort();
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct dtp_arena *a = dtp_arena_create("fuzz");
    struct dtp_err err = {0};
    const struct dtp_json *j;
    struct dtp_cluster c = {0};
    if (dtp_json_parse(a, "fuzz", (const char *)data, size, &j, &err) == DTP_OK &&
        dtp_cluster_read(a, j, &c, &err) == DTP_OK) {
        check_routes(&c);
        check_costs(&c);
    } else if (err.msg[0] == '\0')
        abort();
    dtp_arena_destroy(a);
    return 0;
}
