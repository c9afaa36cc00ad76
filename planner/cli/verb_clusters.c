#include <limits.h>
#include <string.h>

#include "planner/cli/listing.h"
#include "planner/cli/verbs.h"
#include "sim/base/text.h"
#include "sim/base/units.h"

static const char *nics(const struct dtp_cluster *c, char *buf, size_t size) {
    if (c->node.nics == 0)
        snprintf(buf, size, "no network");
    else
        snprintf(buf, size, "%d x %.0f Gb/s", c->node.nics,
                 c->node.nic_bytes_per_s * DTP_BITS_PER_BYTE / DTP_GIGA);
    return buf;
}

static enum dtp_status row(struct dtp_cli *cli, const char *name, int width, struct dtp_err *err) {
    struct dtp_cluster c;
    DTP_TRY(dtp_cluster_load(cli->a, name, &c, err));
    dtp_listing_row(&cli->out, name, width, c.title ? c.title : "");
    return DTP_OK;
}

static void gpu_lines(const struct dtp_term *t, const struct dtp_gpu *g) {
    FILE *f = t->file;
    char text[32];
    fprintf(f, "  %-22s %s, %s, %d SMs\n", "GPU", g->title ? g->title : g->name, g->arch,
            g->num_sms);
    fprintf(f, "  %-22s %s at %s\n", "memory",
            dtp_fmt_bytes_gib((double)g->memory_bytes, text, sizeof text),
            dtp_fmt_rate(g->hbm_bytes_per_s, (char[32]){0}, 32));
    fprintf(f, "  %-21s", "dense peak");
    for (int d = 0; d < DTP_NDTYPES; d++)
        if (g->peak_flops_per_s[d] > 0)
            fprintf(f, "  %s %s", dtp_dtype_names[d],
                    dtp_fmt_flops(g->peak_flops_per_s[d], text, sizeof text));
    if (g->power_w > 0)
        fprintf(f, "\n  %-22s %.0f W", "power limit", g->power_w);
    fprintf(f, "\n  %-22s ", "calibration");
    dtp_term_wrap(t, DTP_PLAIN, 25, 25, g->calibration ? g->calibration : "none");
}

static enum dtp_status details(struct dtp_cli *cli, const char *name, struct dtp_err *err) {
    struct dtp_cluster c;
    char text[64];
    DTP_TRY(dtp_cluster_load(cli->a, name, &c, err));
    if (cli->args.json) {
        const struct dtp_json *file;
        DTP_TRY(dtp_cluster_file(cli->a, name, &file, &name, err));
        dtp_listing_json(cli, file);
        return DTP_OK;
    }
    FILE *f = cli->out.file;
    dtp_term_print(&cli->out, DTP_BOLD, "%s", name);
    fprintf(f, "  %s\n", c.title ? c.title : "");
    gpu_lines(&cli->out, &c.gpu);
    fprintf(f, "  %-22s %d GPUs, %s, %s per GPU and direction\n", "node", c.node.gpus,
            dtp_intra_names[c.node.intra], dtp_fmt_rate(c.node.gpu_link_bytes_per_s, text, 32));
    fprintf(f, "  %-22s %s, %s\n", "network cards", nics(&c, text, sizeof text),
            c.fabric ? c.fabric : "none");
    for (int i = 0; i < c.ntiers; i++) {
        fprintf(f, "  %-22s %s, ", i ? "" : "fabric", c.tier[i].name);
        if (c.tier[i].nodes > 0 && c.tier[i].nodes < INT_MAX) /* that: all there are */
            fprintf(f, "groups of %d nodes, ", c.tier[i].nodes);
        if (c.tier[i].oversubscription <= 1)
            fputs("full bandwidth upwards\n", f);
        else
            fprintf(f, "oversubscribed %.3g : 1\n", c.tier[i].oversubscription);
    }
    fprintf(f, "  %-22s %s\n", "rails", c.rail_optimised ? "rail-optimised" : "no");
    if (c.node.host_memory_bytes > 0)
        fprintf(f, "  %-22s %s, %d cores\n", "host memory",
                dtp_fmt_bytes_gib((double)c.node.host_memory_bytes, text, 32), c.node.cores);
    if (c.max_gpus > 0)
        fprintf(f, "  %-22s %d GPUs\n", "size", c.max_gpus);
    fprintf(f, "  %-22s %d\n", "measured curves", c.ncurves);
    return DTP_OK;
}

static enum dtp_status run(struct dtp_cli *cli, struct dtp_err *err) {
    static const struct dtp_listing_verb verb = {dtp_cluster_list, row, details};
    return dtp_listing_run(cli, &verb, err);
}

const struct dtp_verb dtp_verb_clusters = {
    .name = "clusters",
    .summary = "the clusters that are known, or one in detail",
    .synopsis = "clusters [NAME|FILE]",
    .description = "Lists the clusters (GPUs of a node, network cards), or shows one with its GPU, "
                   "links and fabric. A FILE has the form of the files in hw/cluster; "
                   "with --json that is printed, or the list of names.",
    .groups = DTP_GROUP_OUTPUT,
    .options = dtp_listing_options,
    .own_size = sizeof(struct dtp_listing),
    .max_args = 1,
    .run = run};
