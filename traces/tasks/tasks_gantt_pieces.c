/* The parts of a long step that a Gantt chart shows. */
#include <string.h>

#include "traces/tasks/tasks_private.h"

/* Narrower than LEAST_PX a task cannot be read; FEW of them stand around each turn, twice as many in the middle.
 * Kernels of a trace have no turns: their pattern over the whole is what can be seen. */
enum { LEAST_PX = 5, FEW = 6, BREAK_PX = 34 };
static const double most_shown = 0.6;

/* Mean duration on the row that is busy for longest. */
static double typical_s(struct dtp_arena *a, const struct dtp_tasks *t,
                        const struct tasks_lanes *lanes) {
    double *sum_s = DTP_NEW(a, double, lanes->n + 1), longest_s = 0;
    uint32_t *n = DTP_NEW(a, uint32_t, lanes->n + 1), at = 0;
    for (uint32_t i = 0; i < t->ntasks; i++) {
        sum_s[lanes->of[i]] += t->task[i].end_s - t->task[i].start_s;
        n[lanes->of[i]]++;
    }
    for (uint32_t i = 0; i < lanes->n; i++)
        if (sum_s[i] > longest_s) {
            longest_s = sum_s[i];
            at = i;
        }
    return n[at] > 0 ? sum_s[at] / n[at] : 0;
}

static bool is(const struct dtp_tasks_task *k, const char *category) {
    return k->category && strcmp(k->category, category) == 0;
}

struct turns {
    double warm_s, drain_s; /* every rank has begun a backward; a rank has ended its last forward */
    bool known;
};

static struct turns find_turns(struct dtp_arena *a, const struct dtp_tasks *t) {
    double *first_s = DTP_NEW(a, double, t->nranks + 1),
           *last_s = DTP_NEW(a, double, t->nranks + 1);
    struct turns out = {0, dtp_tasks_end_s(t), false};
    for (size_t r = 0; r < t->nranks; r++)
        first_s[r] = last_s[r] = -1;
    size_t r = 0;
    for (uint32_t i = 0; i < t->ntasks; i++) {
        const struct dtp_tasks_task *k = &t->task[i];
        for (size_t tried = 0; tried < t->nranks && t->rank[r].rank != k->rank; tried++)
            r = (r + 1) % t->nranks;
        if ((is(k, "B") || is(k, "I")) && (first_s[r] < 0 || k->start_s < first_s[r]))
            first_s[r] = k->start_s;
        if (is(k, "F") && k->end_s > last_s[r])
            last_s[r] = k->end_s;
    }
    for (r = 0; r < t->nranks; r++) {
        if (first_s[r] < 0 || last_s[r] < 0)
            return out;
        out.warm_s = first_s[r] > out.warm_s ? first_s[r] : out.warm_s;
        out.drain_s = last_s[r] < out.drain_s ? last_s[r] : out.drain_s;
    }
    out.known = t->nranks > 0;
    return out;
}

int tasks_gantt_pieces(struct dtp_arena *a, const struct dtp_tasks *t,
                       const struct tasks_lanes *lanes, struct tasks_piece out[TASKS_PIECES]) {
    struct tasks_piece whole = out[0];
    double span_s = whole.to_s - whole.from_s, task_s = typical_s(a, t, lanes);
    if (task_s * whole.width >= LEAST_PX * span_s || t->nranks == 0)
        return 1;
    struct turns turns = find_turns(a, t);
    double first_s = turns.warm_s - whole.from_s + FEW * task_s, middle_s = 2 * FEW * task_s;
    double last_s = whole.to_s - turns.drain_s + FEW * task_s;
    double shown_s = first_s + middle_s + last_s;
    if (!turns.known || shown_s > most_shown * span_s)
        return 1;
    double px = (whole.width - 2 * BREAK_PX) / shown_s, x = whole.x;
    double middle = (whole.from_s + first_s + whole.to_s - last_s) / 2;
    out[0].to_s = whole.from_s + first_s;
    out[1].from_s = middle - middle_s / 2;
    out[1].to_s = middle + middle_s / 2;
    out[2].from_s = whole.to_s - last_s;
    out[2].to_s = whole.to_s;
    for (int i = 0; i < TASKS_PIECES; i++) {
        out[i].x = x;
        out[i].width = px * (out[i].to_s - out[i].from_s);
        x += out[i].width + BREAK_PX;
    }
    return TASKS_PIECES;
}
