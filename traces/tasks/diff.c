#include "traces/tasks/diff.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const dtp_diff_mode_words[] = {"by name", "by kind of kernel",
                                           "by compute and collectives"};

double dtp_diff_cost_s(const struct dtp_tasks_task *k) {
    double cost_s = k->end_s - k->start_s - k->wait_s;
    return cost_s > 0 ? cost_s : 0;
}

/* ---- what a task is ---- */

static bool has(const char *s, const char *part) {
    return strstr(s, part) != NULL;
}

const char *dtp_diff_kernel_kind(const char *name) {
    static const struct {
        const char *part, *kind;
    } kinds[] = {{"flash_bprop", "attention backward"},
                 {"flash_bwd", "attention backward"},
                 {"attn_bwd", "attention backward"},
                 {"dot_do_o", "attention backward"},
                 {"convert_dq", "attention backward"},
                 {"fmha_cutlassB", "attention backward"},
                 {"flash_fprop", "attention"},
                 {"flash_fwd", "attention"},
                 {"attn_fwd", "attention"},
                 {"fmha", "attention"},
                 {"multi_tensor_apply", "optimizer"},
                 {"Adam", "optimizer"},
                 {"layer_norm_grad", "norm backward"},
                 {"GammaBetaBackward", "norm backward"},
                 {"layer_norm", "norm"},
                 {"rms_norm", "norm"},
                 {"nvjet", "product"},
                 {"gemm", "product"},
                 {"Cijk_", "product"},
                 {"cutlass", "product"}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (has(name, kinds[i].part))
            return kinds[i].kind;
    return "elementwise";
}

static const char *operation_kind(const struct dtp_tasks_task *k) {
    bool backward = has(k->name, " dX") || has(k->name, " dW") || has(k->name, "backward");
    if (strcmp(k->category, "gemm") == 0 || strcmp(k->category, "bmm") == 0)
        return "product";
    if (strcmp(k->category, "attention") == 0)
        return backward ? "attention backward" : "attention";
    if (strncmp(k->name, "norm", 4) == 0 || has(k->name, "final norm"))
        return backward ? "norm backward" : "norm";
    return "elementwise";
}

static bool is_operation(const struct dtp_tasks_task *k) {
    static const char *const kinds[] = {"gemm", "bmm", "attention", "kernel"};
    for (size_t i = 0; k->category && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(k->category, kinds[i]) == 0)
            return true;
    return false;
}

static bool is_optimizer(const struct dtp_tasks_task *k) {
    return k->category && (strcmp(k->category, "optimizer") == 0 || strcmp(k->category, "O") == 0);
}

/* Returns the kind that a task is summed under; NULL if it is not compared (waiting, the host, parts of an action). */
static const char *kind_of(const struct dtp_tasks_task *k, enum dtp_diff_mode mode,
                           bool of_kernels) {
    if (k->class == DTP_CLASS_HOST)
        return NULL;
    if (k->class == DTP_CLASS_MEMORY)
        return "copies";
    if (k->class == DTP_CLASS_COMM) {
        bool receives = k->category && k->category[0] == 'R' && k->op == DTP_COMM_SEND_RECV;
        bool inside = k->category && strcmp(k->category, "tp") == 0;
        return receives || inside ? NULL : dtp_comm_op_name[k->op];
    }
    if (is_optimizer(k))
        return "optimizer";
    if (of_kernels) {
        const char *kind = dtp_diff_kernel_kind(k->name);
        return mode == DTP_DIFF_COARSE && strcmp(kind, "optimizer") != 0 ? "compute" : kind;
    }
    if (mode == DTP_DIFF_NAMES)
        return is_operation(k) || !k->category ? k->name : k->category;
    return mode == DTP_DIFF_COARSE ? "compute" : operation_kind(k);
}

/* Tells whether the two sides must have it in one order. */
static bool is_ordered(const char *kind, const struct dtp_tasks_task *k, enum dtp_diff_mode mode) {
    if (mode == DTP_DIFF_NAMES || k->class == DTP_CLASS_COMM)
        return true;
    return mode == DTP_DIFF_KINDS &&
           (strcmp(kind, "product") == 0 || strncmp(kind, "attention", 9) == 0);
}

static const char *label_of(const char *kind, const struct dtp_tasks_task *k,
                            enum dtp_diff_mode mode) {
    bool comm = k->class == DTP_CLASS_COMM && k->op != DTP_COMM_SEND_RECV;
    return mode == DTP_DIFF_NAMES && !comm && !is_optimizer(k) ? k->name : kind;
}

/* ---- one side ---- */

struct entry {
    const struct dtp_tasks_task *k;
    const char *kind, *label;
    int class;
};
struct side {
    struct entry *at;
    size_t n;
    double first_s, last_s, waiting_s, busy_s;
};

static int by_time(const void *x, const void *y) {
    const struct entry *p = x, *q = y;
    if (p->class != q->class)
        return p->class < q->class ? -1 : 1;
    if (p->k->start_s != q->k->start_s)
        return p->k->start_s < q->k->start_s ? -1 : 1;
    return p->k < q->k ? -1 : p->k > q->k;
}

static bool is_kernels(const struct dtp_tasks *t) {
    return strcmp(t->from, "replay") == 0;
}

static int last_step(const struct dtp_tasks *t) {
    int step = 0;
    for (uint32_t i = 0; i < t->ntasks; i++)
        step =
            t->task[i].class != DTP_CLASS_HOST && t->task[i].step > step ? t->task[i].step : step;
    return step;
}

struct compare {
    struct dtp_arena *a;
    const struct dtp_tasks *const *t;
    int step[2];
    struct dtp_diff *out;
    size_t kinds_capacity;
};

/* Returns the time covered by compute; tasks are in order of class, then start. */
static double busy_s(const struct side *s) {
    double end_s = -INFINITY, sum_s = 0;
    for (size_t i = 0; i < s->n; i++) {
        const struct dtp_tasks_task *k = s->at[i].k;
        if (k->class != DTP_CLASS_COMPUTE)
            continue;
        double from_s = k->start_s > end_s ? k->start_s : end_s;
        sum_s += k->end_s > from_s ? k->end_s - from_s - k->wait_s : 0;
        end_s = k->end_s > end_s ? k->end_s : end_s;
    }
    return sum_s;
}

static struct side take_side(struct compare *c, int which, int rank) {
    const struct dtp_tasks *t = c->t[which];
    struct side s = {.first_s = INFINITY, .last_s = -INFINITY};
    s.at = DTP_NEW(c->a, struct entry, (size_t)t->ntasks + 1);
    for (uint32_t i = 0; i < t->ntasks; i++) {
        const struct dtp_tasks_task *k = &t->task[i];
        if (k->rank != rank || k->step != c->step[which] || k->class == DTP_CLASS_HOST)
            continue;
        s.first_s = k->start_s < s.first_s ? k->start_s : s.first_s;
        s.last_s = k->end_s > s.last_s ? k->end_s : s.last_s;
        s.waiting_s += k->class == DTP_CLASS_COMM ? k->wait_s : 0;
        const char *kind = kind_of(k, c->out->mode, is_kernels(t));
        if (kind && k->end_s > k->start_s)
            s.at[s.n++] = (struct entry){k, kind, label_of(kind, k, c->out->mode), k->class};
    }
    if (s.n > 1)
        qsort(s.at, s.n, sizeof *s.at, by_time);
    s.busy_s = busy_s(&s);
    return s;
}

static struct dtp_diff_kind *find_kind(struct compare *c, const char *kind, int class) {
    struct dtp_diff *d = c->out;
    for (size_t i = 0; i < d->nkinds; i++)
        if (strcmp(d->kind[i].kind, kind) == 0)
            return &d->kind[i];
    d->kind = dtp_arena_room(c->a, d->kind, sizeof *d->kind, d->nkinds, &c->kinds_capacity);
    d->kind[d->nkinds] = (struct dtp_diff_kind){.kind = kind, .class = class};
    return &d->kind[d->nkinds++];
}

/* ---- alignment ---- */

static void keep_pair(struct dtp_diff *d, struct dtp_diff_pair p) {
    size_t at = d->npairs;
    while (at > 0 && fabs(d->pair[at - 1].less_s) < fabs(p.less_s))
        at--;
    if (at == DTP_DIFF_PAIRS)
        return;
    size_t n = d->npairs < DTP_DIFF_PAIRS ? d->npairs : DTP_DIFF_PAIRS - 1;
    memmove(&d->pair[at + 1], &d->pair[at], (n - at) * sizeof p);
    d->pair[at] = p;
    d->npairs = n + 1;
}

static void take_pair(struct compare *c, int rank, uint32_t index, const struct entry *x,
                      const struct entry *y) {
    double a_s = dtp_diff_cost_s(x->k), b_s = dtp_diff_cost_s(y->k), less_s = b_s - a_s;
    double larger_s = a_s > b_s ? a_s : b_s;
    c->out->npaired++;
    keep_pair(c->out, (struct dtp_diff_pair){rank, {x->k, y->k}, less_s});
    if (fabs(less_s) > DTP_DIFF_SHARE * larger_s && fabs(less_s) > DTP_DIFF_LEAST_S &&
        (!c->out->time.found || x->k->start_s < c->out->time.task[0]->start_s))
        c->out->time = (struct dtp_diff_place){true, rank, index, {x->k, y->k}};
}

static void part(struct compare *c, int rank, uint32_t index, const struct entry *x,
                 const struct entry *y) {
    const struct dtp_diff_place *o = &c->out->order;
    double at_s = x ? x->k->start_s : (double)INFINITY;
    bool earlier = !o->found || (o->task[0] ? at_s < o->task[0]->start_s : x != NULL);
    if (earlier)
        c->out->order =
            (struct dtp_diff_place){true, rank, index, {x ? x->k : NULL, y ? y->k : NULL}};
}

static size_t find_label(const struct entry *v, size_t from, size_t to, const char *label) {
    enum { AHEAD = 256 };
    for (size_t i = from; i < to && i < from + AHEAD; i++)
        if (strcmp(v[i].label, label) == 0)
            return i;
    return SIZE_MAX;
}

/* The ordered tasks of a rank and class on both sides. */
static void align(struct compare *c, int rank, const struct side *x, const struct side *y) {
    size_t i = 0, j = 0;
    while (i < x->n || j < y->n) {
        const struct entry *p = i < x->n ? &x->at[i] : NULL, *q = j < y->n ? &y->at[j] : NULL;
        if (p && q && strcmp(p->label, q->label) == 0) {
            take_pair(c, rank, (uint32_t)i, p, q);
            i++;
            j++;
            continue;
        }
        part(c, rank, (uint32_t)i, p, q);
        size_t in_y = p ? find_label(y->at, j, y->n, p->label) : SIZE_MAX;
        size_t in_x = q ? find_label(x->at, i, x->n, q->label) : SIZE_MAX;
        bool skip_y = !p || (q && in_y != SIZE_MAX && (in_x == SIZE_MAX || in_y - j < in_x - i));
        bool skip_x = !q || (p && !skip_y && (in_x != SIZE_MAX || in_y == SIZE_MAX));
        c->out->nonly[skip_x ? 0 : 1]++;
        if (skip_x)
            i++;
        else
            j++;
    }
}

/* Returns the tasks of one class that must keep their order. */
static struct side ordered(struct compare *c, const struct side *s, int class) {
    struct side out = {.at = DTP_NEW(c->a, struct entry, s->n + 1)};
    for (size_t i = 0; i < s->n; i++)
        if (s->at[i].class == class && is_ordered(s->at[i].kind, s->at[i].k, c->out->mode))
            out.at[out.n++] = s->at[i];
    return out;
}

static bool has_rank(const struct dtp_tasks *t, int rank) {
    for (size_t r = 0; r < t->nranks; r++)
        if (t->rank[r].rank == rank)
            return true;
    return false;
}

static void compare_rank(struct compare *c, int rank) {
    struct side side[2];
    for (int w = 0; w < 2; w++) {
        side[w] = take_side(c, w, rank);
        struct side *s = &side[w];
        double length_s = s->last_s > s->first_s ? s->last_s - s->first_s : 0;
        c->out->step_s[w] = length_s > c->out->step_s[w] ? length_s : c->out->step_s[w];
        c->out->idle_s[w] += length_s - s->busy_s;
        c->out->waiting_s[w] += s->waiting_s;
        for (size_t i = 0; i < s->n; i++) {
            struct dtp_diff_kind *k = find_kind(c, s->at[i].kind, s->at[i].class);
            k->n[w]++;
            k->sum_s[w] += dtp_diff_cost_s(s->at[i].k);
        }
    }
    for (int class = 0; class < DTP_NCLASSES; class ++) {
        struct side x = ordered(c, &side[0], class), y = ordered(c, &side[1], class);
        align(c, rank, &x, &y);
    }
}

static int by_difference(const void *x, const void *y) {
    const struct dtp_diff_kind *p = x, *q = y;
    double a = fabs(p->sum_s[1] - p->sum_s[0]), b = fabs(q->sum_s[1] - q->sum_s[0]);
    return a > b ? -1 : a < b ? 1 : strcmp(p->kind, q->kind);
}

/* Kernels against operations, or against actions; else names. */
static enum dtp_diff_mode mode_of(const struct dtp_tasks *const side[2]) {
    if (is_kernels(side[0]) == is_kernels(side[1]))
        return is_kernels(side[0]) ? DTP_DIFF_KINDS : DTP_DIFF_NAMES;
    const struct dtp_tasks *own = is_kernels(side[0]) ? side[1] : side[0];
    double operations_s = 0, actions_s = 0;
    for (uint32_t i = 0; i < own->ntasks; i++) {
        const struct dtp_tasks_task *k = &own->task[i];
        if (k->class != DTP_CLASS_COMPUTE || is_optimizer(k))
            continue;
        *(is_operation(k) ? &operations_s : &actions_s) += k->end_s - k->start_s;
    }
    return operations_s > 10 * actions_s ? DTP_DIFF_KINDS : DTP_DIFF_COARSE;
}

enum dtp_status dtp_diff(struct dtp_arena *a, const struct dtp_tasks *const side[2],
                         const int step[2], struct dtp_diff *out, struct dtp_err *err) {
    struct compare c = {.a = a, .t = side, .out = out};
    *out = (struct dtp_diff){.mode = mode_of(side)};
    out->pair = DTP_NEW(a, struct dtp_diff_pair, DTP_DIFF_PAIRS + 1);
    for (int w = 0; w < 2; w++)
        c.step[w] = step[w] >= 0 ? step[w] : last_step(side[w]);
    for (size_t r = 0; r < side[0]->nranks; r++) {
        int rank = side[0]->rank[r].rank;
        if (!has_rank(side[1], rank))
            continue;
        out->nranks++;
        compare_rank(&c, rank);
    }
    if (out->nranks == 0)
        return dtp_fail(err, DTP_ENO, "no rank is on both sides");
    for (int w = 0; w < 2; w++) {
        out->idle_s[w] /= out->nranks;
        out->waiting_s[w] /= out->nranks;
        for (size_t i = 0; i < out->nkinds; i++) {
            out->kind[i].n[w] /= out->nranks;
            out->kind[i].sum_s[w] /= out->nranks;
        }
    }
    if (out->nkinds > 1)
        qsort(out->kind, out->nkinds, sizeof *out->kind, by_difference);
    return DTP_OK;
}
