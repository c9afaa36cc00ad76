/* Memo of costs: open addressing by three-word keys. */
#include <string.h>

#include "models/cost_private.h"
#include "sim/base/mix.h"

static void table_init(struct memo_table *t, struct dtp_arena *a) {
    t->capacity = 64;
    t->entry = DTP_NEW(a, struct memo_entry, t->capacity);
}

struct memo_entry *dtp_cost_table_slot(const struct memo_table *t, const uint64_t key[3]) {
    uint64_t hash = dtp_mix(key[0] ^ dtp_mix(key[1] ^ dtp_mix(key[2])));
    size_t i = (size_t)hash & (t->capacity - 1);
    while (t->entry[i].value && memcmp(t->entry[i].key, key, sizeof t->entry[i].key) != 0)
        i = (i + 1) & (t->capacity - 1);
    return &t->entry[i];
}

void dtp_cost_table_put(struct memo_table *t, struct dtp_arena *a, const uint64_t key[3],
                        const void *value) {
    if (++t->n * 2 > t->capacity) {
        struct memo_table bigger = {DTP_NEW(a, struct memo_entry, t->capacity * 2), t->n,
                                    t->capacity * 2};
        for (size_t i = 0; i < t->capacity; i++)
            if (t->entry[i].value)
                *dtp_cost_table_slot(&bigger, t->entry[i].key) = t->entry[i];
        *t = bigger;
    }
    *dtp_cost_table_slot(t, key) = (struct memo_entry){{key[0], key[1], key[2]}, value};
}

struct dtp_cost_memo *dtp_cost_memo_create(struct dtp_arena *a, const struct dtp_problem *problem) {
    struct dtp_cost_memo *memo = DTP_NEW(a, struct dtp_cost_memo, 1);
    memo->a = a;
    memo->scratch = dtp_arena_create_in(a, "kernels");
    memo->problem = problem;
    table_init(&memo->kernels, a);
    table_init(&memo->layers, a);
    table_init(&memo->tails, a);
    table_init(&memo->transfers, a);
    dtp_model_params(problem->model, problem->model->vocab, &memo->params);
    struct dtp_plan whole = dtp_plan_default();
    dtp_stage_count(problem->model, &whole, 0, memo->kinds);
    memo->forward_flops = dtp_model_forward_flops(problem->model, problem->seq);
    memo->tp_innermost = strncmp(problem->framework->rank_order, "tp-cp", 5) == 0;
    return memo;
}
