#include "planner/report.h"

#include <string.h>

#include "sim/base/text.h"
#include "sim/base/units.h"

enum { MOST_STAGES_SHOWN = 8, MEMORY_COLUMNS = 64, NSEGMENTS = 6 };

static const struct segment {
    const char *name, *mark;
    enum dtp_style style;
} segments[NSEGMENTS] = {
    {"weights", "█", DTP_BLUE},           {"gradients", "▓", DTP_CYAN},
    {"optimizer", "▒", DTP_GREEN},        {"activations", "░", DTP_YELLOW},
    {"logits and buffers", "▪", DTP_RED}, {"rest: reserve and context", "·", DTP_DIM}};

static void segment_bytes(const struct dtp_stage_memory *m, double *out) {
    out[0] = (double)m->weights_bytes;
    out[1] = (double)m->gradients_bytes;
    out[2] = (double)m->optimizer_bytes;
    out[3] = (double)m->activations_bytes;
    out[4] = (double)(m->logits_bytes + m->buffers_bytes);
    out[5] = (double)(m->device_bytes - m->peak_bytes);
}

static void stacked_bar(const struct dtp_term *t, const double *bytes, double full, int width) {
    double sum = 0;
    int drawn = 0;
    for (int i = 0; i < NSEGMENTS; i++) {
        sum += bytes[i];
        int end = (int)(sum / full * width + 0.5);
        for (; drawn < end && drawn < width; drawn++)
            dtp_term_print(t, segments[i].style, "%s", segments[i].mark);
    }
    fprintf(t->file, "%*s", width - drawn, "");
}

/* Which stages are shown: all, or the first, the last, the worst and some between. */
static bool is_shown(int stage, int nstages, int worst) {
    if (nstages <= MOST_STAGES_SHOWN || stage == worst || stage == nstages - 1)
        return true;
    int every = (nstages + MOST_STAGES_SHOWN - 2) / (MOST_STAGES_SHOWN - 1);
    return stage % every == 0;
}

static void zero_stages(struct dtp_arena *a, const struct dtp_term *t, const struct dtp_problem *p,
                        const struct dtp_result *best) {
    char text[32];
    struct dtp_str s = {.a = a};
    dtp_str_add(&s, "With ZeRO");
    for (int z = 0; z < 4; z++) {
        uint64_t bytes = best->by_zero_stage[z];
        dtp_str_printf(&s, "%s%d: %s%s", z ? ",  " : " ", z,
                       bytes == 0 ? "refused" : dtp_fmt_bytes_gib((double)bytes, text, sizeof text),
                       bytes > p->memory_limit_bytes ? " (too much)" : "");
    }
    fputs("  ", t->file);
    dtp_term_wrap(t, DTP_PLAIN, 2, 4, s.at);
}

static void offloaded(struct dtp_arena *a, const struct dtp_term *t, const struct dtp_problem *p,
                      const struct dtp_plan *plan) {
    const struct dtp_node *node = &p->cluster->node;
    bool nvme = plan->offload_to == DTP_OFFLOAD_NVME;
    char bytes[32], room[32];
    if (plan->offload == DTP_OFFLOAD_NONE)
        return;
    dtp_fmt_bytes_gib(dtp_plan_offloaded_bytes(p, plan), bytes, sizeof bytes);
    dtp_fmt_bytes_gib(nvme ? node->nvme_bytes : (double)node->host_memory_bytes, room, sizeof room);
    fputs("  ", t->file);
    dtp_term_wrap(t, DTP_PLAIN, 2, 4,
                  dtp_arena_printf(a,
                                   "%s of a node: %s of %s, without what loading a checkpoint and "
                                   "pinned buffers take",
                                   nvme ? "On the NVMe" : "In the host's memory", bytes, room));
}

static void legend(const struct dtp_term *t) {
    int column = 0;
    for (int i = 0; i < NSEGMENTS; i++) {
        bool wraps = column > 0 && column + 4 + (int)strlen(segments[i].name) > t->width;
        fputs(wraps ? "\n  " : "  ", t->file);
        column = wraps ? 2 : column + 2;
        column += dtp_term_print(t, segments[i].style, "%s", segments[i].mark);
        column += dtp_term_print(t, DTP_DIM, " %s", segments[i].name);
    }
    putc('\n', t->file);
}

void dtp_report_memory(struct dtp_arena *a, const struct dtp_term *t, const struct dtp_problem *p,
                       const struct dtp_result *best) {
    char text[64], limit[32];
    snprintf(text, sizeof text, "GiB; a full bar is the limit of %s",
             dtp_fmt_bytes_gib((double)p->memory_limit_bytes, limit, sizeof limit));
    dtp_term_title(t, best->nstages > 1 ? "Memory of a GPU, by pipeline stage" : "Memory of a GPU",
                   text);
    int width = t->width - MEMORY_COLUMNS;
    double bytes[NSEGMENTS], full = (double)p->memory_limit_bytes;
    int worst = 0;
    for (int s = 1; s < best->nstages; s++)
        if (best->stages[s].device_bytes > best->stages[worst].device_bytes)
            worst = s;
    dtp_term_print(t, DTP_DIM, "  stage %*s %6s%8s%8s%8s%8s%8s%8s\n", width, "", "sum", "weights",
                   "grads", "optim", "activ.", "logits", "rest");
    for (int s = 0; s < best->nstages; s++) {
        if (!is_shown(s, best->nstages, worst))
            continue;
        const struct dtp_stage_memory *m = &best->stages[s];
        segment_bytes(m, bytes);
        fprintf(t->file, "  %5d ", s);
        stacked_bar(t, bytes, full, width);
        dtp_term_print(t, m->device_bytes > p->memory_limit_bytes ? DTP_RED : DTP_BOLD, " %6.1f",
                       (double)m->device_bytes / DTP_GIB);
        for (int i = 0; i < NSEGMENTS; i++)
            fprintf(t->file, "%8.1f", bytes[i] / DTP_GIB);
        putc('\n', t->file);
    }
    legend(t);
    zero_stages(a, t, p, best);
    offloaded(a, t, p, &best->plan);
}
