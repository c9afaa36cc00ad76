#include <string.h>

#include "models/lower/lower_build.h"
#include "models/plan/plan.h"

/* Operations of an action, in the order a rank launches them. Their times alone are scaled so that
 * they add up to the action: gaps between kernels and host time are spread over those that compute,
 * what overlap hides over all. */

struct dtp_op_list {
    int n;
    size_t capacity;
    struct dtp_op_time *at;
    double sum_s;
};

static bool same_work(const struct dtp_op *x, const struct dtp_op *y) {
    return x->kind == y->kind && x->pass == y->pass && x->gemm.m == y->gemm.m &&
           x->gemm.n == y->gemm.n && x->gemm.k == y->gemm.k && x->bytes == y->bytes &&
           x->collective == y->collective;
}

static int op_name(struct dtp_lowering *w, const char *name, const struct dtp_op *op) {
    enum { MOST_NAMES = 255 };
    struct dtp_lowered *out = w->out;
    if (!out->op_name) {
        out->op_name = DTP_NEW(w->a, const char *, MOST_NAMES);
        out->op = DTP_NEW(w->a, const struct dtp_op *, MOST_NAMES);
    }
    for (int i = 0; i < out->nop_names; i++)
        if (strcmp(out->op_name[i], name) == 0 &&
            (!op || (out->op[i] && same_work(out->op[i], op))))
            return i;
    if (out->nop_names == MOST_NAMES) {
        out->op[MOST_NAMES - 1] = NULL;
        return MOST_NAMES - 1;
    }
    out->op[out->nop_names] = op;
    out->op_name[out->nop_names] = name;
    return out->nop_names++;
}

static void add_pass(struct dtp_lowering *w, struct dtp_op_list *list, enum dtp_layer_kind kind,
                     enum dtp_pass pass, bool repeated_only) {
    struct dtp_ops *ops = DTP_NEW(w->a, struct dtp_ops, 1);
    dtp_ops_layer(w->problem, w->plan, kind, ops);
    for (int i = 0; i < ops->n; i++) {
        const struct dtp_op *op = &ops->at[i];
        double time_s = op->pass == pass && (!repeated_only || op->repeated)
                            ? dtp_op_time_s(w->problem, w->plan, op)
                            : 0;
        if (!(time_s > 0))
            continue;
        list->at =
            dtp_arena_room(w->a, list->at, sizeof *list->at, (size_t)list->n, &list->capacity);
        list->at[list->n++] = (struct dtp_op_time){time_s, op_name(w, op->name, op)};
        list->sum_s += time_s;
    }
}

static void add_recompute(struct dtp_lowering *w, struct dtp_op_list *list,
                          enum dtp_layer_kind kind, int layer_of_chunk) {
    const struct dtp_plan *p = w->plan;
    if (p->recompute_layers == 0 || layer_of_chunk < p->recompute_layers)
        add_pass(w, list, kind, DTP_PASS_F, true);
}

/* One layer of the action: forward, or what of the backward the action holds. */
static void add_layer(struct dtp_lowering *w, struct dtp_op_list *list, enum dtp_layer_kind kind,
                      int action, int layer_of_chunk) {
    if (action == DTP_A_F)
        add_pass(w, list, kind, DTP_PASS_F, false);
    if ((action == DTP_A_B || action == DTP_A_I) && layer_of_chunk >= 0)
        add_recompute(w, list, kind, layer_of_chunk);
    if (action == DTP_A_B || action == DTP_A_I)
        add_pass(w, list, kind, DTP_PASS_I, false);
    if (action == DTP_A_B || action == DTP_A_W)
        add_pass(w, list, kind, DTP_PASS_W, false);
}

static void make_list(struct dtp_lowering *w, struct dtp_op_list *list, int vs, int action) {
    const struct dtp_model *m = w->problem->model;
    if (m->nconvs > 0) {
        add_layer(w, list, DTP_LAYER_CONV, action, 0);
        return;
    }
    int first = dtp_plan_first_layer(w->plan, m, vs), n = dtp_stage_layers(m, w->plan, vs);
    bool forward = action == DTP_A_F, last = vs + 1 == w->l.nstages;
    if (vs == 0 && forward)
        add_layer(w, list, DTP_LAYER_EMBEDDING, action, -1);
    if (last && !forward)
        add_layer(w, list, DTP_LAYER_HEAD, action, -1);
    for (int k = 0; last && !forward && k < m->mtp_layers; k++)
        add_layer(w, list, DTP_LAYER_MTP, action, -1);
    for (int k = 0; k < n; k++) {
        int i = forward ? k : n - 1 - k;
        add_layer(w, list, dtp_model_layer_kind(m, first + i), action, i);
    }
    if (vs == 0 && !forward)
        add_layer(w, list, DTP_LAYER_EMBEDDING, action, -1);
    for (int k = 0; last && forward && k < m->mtp_layers; k++)
        add_layer(w, list, DTP_LAYER_MTP, action, -1);
    if (last && forward)
        add_layer(w, list, DTP_LAYER_HEAD, action, -1);
}

static bool is_collective(const struct dtp_lowering *w, const struct dtp_op_time *t) {
    const struct dtp_op *op = w->out->op[t->name];
    return op && op->kind == DTP_OP_COLLECTIVE;
}

/* Gaps and host time go to what computes; where collectives are hidden, all shrink alike. */
static void stretch(const struct dtp_lowering *w, struct dtp_op_list *list, double dur_s) {
    double collectives_s = 0;
    for (int i = 0; i < list->n; i++)
        collectives_s += is_collective(w, &list->at[i]) ? list->at[i].time_s : 0;
    double computes_s = list->sum_s - collectives_s;
    bool more = computes_s > 0 && dur_s >= list->sum_s;
    double factor = more ? (dur_s - collectives_s) / computes_s : dur_s / list->sum_s;
    for (int i = 0; i < list->n; i++)
        if (!more || !is_collective(w, &list->at[i]))
            list->at[i].time_s *= factor;
}

int dtp_detail_ops(struct dtp_lowering *w, int vs, int row, double dur_s,
                   const struct dtp_op_time **out) {
    if (!w->ops)
        w->ops = DTP_NEW(w->a, struct dtp_op_list, DTP_LAYOUT_ROWS * (size_t)w->l.nstages);
    struct dtp_op_list *list = &w->ops[row * w->l.nstages + vs];
    if (list->n == 0) {
        make_list(w, list, vs, row % DTP_LAYOUT_KINDS);
        stretch(w, list, dur_s);
        if (list->n == 0) { /* an action without operations is one of its length */
            list->at = DTP_NEW(w->a, struct dtp_op_time, 1);
            list->at[list->n++] = (struct dtp_op_time){dur_s, op_name(w, "action", NULL)};
        }
    }
    *out = list->at;
    return list->n;
}
