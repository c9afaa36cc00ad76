#include "models/plan/plan.h"

#include <stddef.h>
#include <string.h>

#include "models/schedule/schedule.h"
#include "sim/base/text.h"

const char *const dtp_recompute_names[] = {"none", "selective", "full", NULL};
const char *const dtp_offload_names[] = {"none", "optimizer", "parameters", NULL};
const char *const dtp_offload_to_names[] = {"host", "nvme", NULL};

const char *const dtp_reasons[] = {
#define X(name, text) [name] = text,
    DTP_REASON_LIST(X)
#undef X
        [DTP_NREASONS] = NULL};

enum { MOST_DEGREE = 1000000, MOST_BATCH = 1000000000 };

#define AT(field) offsetof(struct dtp_plan, field)
#define DEGREE(field, text)                                                                        \
    { #field, DTP_FIELD_INT, AT(field), .min = 1, .max = MOST_DEGREE, .help = text }
#define CHOICE(field, text)                                                                        \
    { #field, DTP_FIELD_INT, AT(field), .min = -1, .max = 1, .help = text }
#define NAMED(field, list, text)                                                                   \
    { #field, DTP_FIELD_ENUM, AT(field), .names = list, .help = text }

const struct dtp_field dtp_plan_fields[] = {
    DEGREE(tp, "tensor parallel degree"),
    DEGREE(pp, "pipeline stages"),
    DEGREE(dp, "data parallel replicas; tp x cp x pp x dp = GPUs"),
    DEGREE(cp, "context parallel degree"),
    DEGREE(ep, "expert parallel degree, divides dp x cp (with etp: tp x cp x dp / etp)"),
    {"etp", DTP_FIELD_INT, AT(etp), .max = MOST_DEGREE,
     .help = "tensor parallel degree of the experts alone; 0: tp"},
    DEGREE(vpp, "chunks of the model per pipeline rank (virtual stages)"),
    {"zero_stage", DTP_FIELD_INT, AT(zero_stage), .max = 3,
     .help = "what dp x cp divides: 1 optimizer state, 2 also gradients, 3 also weights"},
    {"zero_group", DTP_FIELD_INT, AT(zero_group), .max = MOST_DEGREE,
     .help = "ZeRO: ranks of dp x cp that share one copy of what is divided; 0: all"},
    {"sequence_parallel", DTP_FIELD_BOOL, AT(sequence_parallel),
     .help = "norms and dropouts divide the sequence by tp (Korthikanti 2022)"},
    NAMED(recompute, dtp_recompute_names, "activations computed again in the backward"),
    {"recompute_modules", DTP_FIELD_SET, AT(recompute_modules), .names = dtp_module_names,
     .help = "selective recomputation of these parts of a layer; none given: attention's core"},
    {"recompute_layers", DTP_FIELD_INT, AT(recompute_layers), .max = DTP_MAX_STAGES * 16,
     .help = "full recomputation of only the first so many layers of a chunk; 0: all"},
    NAMED(schedule, dtp_schedule_names, "order of forwards and backwards"),
    {"microbatch_size", DTP_FIELD_INT, AT(microbatch_size), .min = 1, .max = MOST_BATCH,
     .help = "sequences per microbatch and replica"},
    {"global_batch_size", DTP_FIELD_INT, AT(global_batch_size), .min = 1, .max = MOST_BATCH,
     .help = "sequences per step"},
    {"account_for_ends", DTP_FIELD_BOOL, AT(account_for_ends),
     .help = "embedding and head count as one layer each when layers are divided into stages"},
    {"last_stage_less", DTP_FIELD_INT, AT(last_stage_less), .max = MOST_DEGREE,
     .help = "layers that the last virtual stage leaves to the others, for its head"},
    {"layers_per_stage", DTP_FIELD_INTS, AT(layers_per_stage), .max = MOST_DEGREE,
     .help = "layers of each virtual stage, first to last; without it as even as it goes"},
    NAMED(tp_algo, dtp_algo_names, "collective algorithm of tp"),
    NAMED(dp_algo, dtp_algo_names, "collective algorithm of dp"),
    CHOICE(tp_overlap, "tp collectives behind compute: 0, 1, or -1 as the framework does"),
    CHOICE(dp_overlap, "gradient reduction behind the backward: 0, 1, or -1 as the framework does"),
    CHOICE(p2p_overlap, "pipeline transfers behind compute: 0, 1, or -1 as the framework does"),
    {"ep_overlap", DTP_FIELD_INT, AT(ep_overlap), .max = 1,
     .help = "rows of experts travel behind the compute of another microbatch: 0 or 1"},
    {"ep_per_node", DTP_FIELD_INT, AT(ep_per_node), .max = 1,
     .help = "tokens go once to each node that holds experts of theirs: 0 or 1"},
    NAMED(offload, dtp_offload_names, "state kept outside the GPU"),
    NAMED(offload_to, dtp_offload_to_names, "where offloaded state lives"),
    NAMED(dtype, dtp_dtype_names, "type of the matrix products"),
    {.name = NULL},
};

struct dtp_plan dtp_plan_default(void) {
    return (struct dtp_plan){
        .tp = 1,
        .pp = 1,
        .dp = 1,
        .cp = 1,
        .ep = 1,
        .vpp = 1,
        .schedule = dtp_schedule_usual(1),
        .microbatch_size = 1,
        .global_batch_size = 1,
        .tp_overlap = -1,
        .dp_overlap = -1,
        .p2p_overlap = -1,
        .dtype = DTP_BF16,
    };
}

static int compare_ints(const struct dtp_ints *a, const struct dtp_ints *b) {
    size_t na = a->at ? a->n : 0, nb = b->at ? b->n : 0;
    if (na != nb)
        return na < nb ? -1 : 1;
    for (size_t i = 0; i < na; i++)
        if (a->at[i] != b->at[i])
            return a->at[i] < b->at[i] ? -1 : 1;
    return 0;
}

/* One field of two plans. Plans have fields of these kinds only; enums are stored as int. */
static int compare_field(const struct dtp_field *f, const struct dtp_plan *a,
                         const struct dtp_plan *b) {
    const char *pa = (const char *)a + f->offset, *pb = (const char *)b + f->offset;
    if (f->kind == DTP_FIELD_INTS)
        return compare_ints((const struct dtp_ints *)(const void *)pa,
                            (const struct dtp_ints *)(const void *)pb);
    int va = f->kind == DTP_FIELD_BOOL ? *(const bool *)pa : *(const int *)(const void *)pa;
    int vb = f->kind == DTP_FIELD_BOOL ? *(const bool *)pb : *(const int *)(const void *)pb;
    return (va > vb) - (va < vb);
}

int dtp_plan_compare(const struct dtp_plan *a, const struct dtp_plan *b) {
    for (const struct dtp_field *f = dtp_plan_fields; f->name; f++) {
        int order = compare_field(f, a, b);
        if (order != 0)
            return order;
    }
    return 0;
}

enum dtp_status dtp_plan_place(const struct dtp_plan *p, const struct dtp_cluster *c,
                               const struct dtp_framework *f, struct dtp_placement *out,
                               struct dtp_err *err) {
    const struct dtp_sizes sizes = {p->tp, p->cp, p->dp, p->pp, p->ep, p->etp};
    DTP_TRY(dtp_placement_init(out, c, &sizes, f->wire.rank_order, err));
    out->zero_group = p->zero_group;
    return DTP_OK;
}

/* Stages but the last share `rest` layers as evenly as it goes, what is left over one each from the end. */
struct split {
    int last, each, first_more; /* from which stage on one more */
};

/* With multi-token prediction the last stage, which holds it, counts its loss as a layer and each depth as two,
 * for its own layer and loss: Megatron-Bridge's DeepSeek-V3 has 4 x 15 and 1 layers, 8 x 7 and 5, 16 x 3 and 13
 * (recipes/deepseek/h100/deepseek_v3.py, 16, 8 and 4 stages). */
static struct split split_of(const struct dtp_model *m, int n, int less) {
    int ends = m->mtp_layers > 0 && n > 1 ? 1 + 2 * m->mtp_layers : 0;
    int last = (m->layers + ends) / n - ends;
    last = last > less ? last - less : 0;
    int rest = m->layers - last, others = n > 1 ? n - 1 : 1;
    return (struct split){last, rest / others, others - rest % others};
}

static int span(const struct dtp_cut *p, const struct dtp_model *m, int vs, int *first) {
    int n = p->pp * p->vpp;
    if (p->layers_per_stage) {
        *first = 0;
        for (int i = 0; i < vs; i++)
            *first += p->layers_per_stage[i];
        return p->layers_per_stage[vs];
    }
    if (p->account_for_ends) {
        int each = (m->layers + 2) / n;
        *first = each * vs - (vs > 0);
        return each - (vs == 0) - (vs == n - 1);
    }
    struct split s = split_of(m, n, p->last_stage_less);
    *first = s.each * vs + (vs > s.first_more ? vs - s.first_more : 0);
    return vs == n - 1 ? s.last : s.each + (vs >= s.first_more);
}

/* Returns the layers of a virtual stage and its first one. */
static int plan_span(const struct dtp_plan *p, const struct dtp_model *m, int vs, int *first) {
    const struct dtp_cut cut = dtp_plan_cut(p);
    return span(&cut, m, vs, first);
}

int dtp_cut_layers(const struct dtp_cut *cut, const struct dtp_model *m, int vs) {
    int first;
    return span(cut, m, vs, &first);
}

int dtp_plan_layers(const struct dtp_plan *p, const struct dtp_model *m, int vs) {
    int first;
    return plan_span(p, m, vs, &first);
}

int dtp_plan_most_layers(const struct dtp_plan *p, const struct dtp_model *m) {
    int n = p->pp * p->vpp, most = 0;
    for (size_t i = 0; p->layers_per_stage.at && i < p->layers_per_stage.n; i++)
        most = p->layers_per_stage.at[i] > most ? p->layers_per_stage.at[i] : most;
    if (p->layers_per_stage.at)
        return most;
    if (p->account_for_ends)
        return (m->layers + 2) / n - (n == 1) - (n <= 2);
    struct split s = split_of(m, n, p->last_stage_less);
    most = s.each + (s.first_more < n - 1);
    return n == 1 || s.last > most ? s.last : most;
}

int dtp_plan_first_layer(const struct dtp_plan *p, const struct dtp_model *m, int vs) {
    int first;
    plan_span(p, m, vs, &first);
    return first;
}

/* ---- what a virtual stage holds ---- */

int dtp_stage_layers(const struct dtp_model *m, const struct dtp_plan *plan, int vs) {
    return dtp_plan_layers(plan, m, vs) + (vs + 1 == plan->pp * plan->vpp ? m->mtp_layers : 0);
}

static void count(const struct dtp_model *m, const struct dtp_cut *cut, int vs,
                  int n[DTP_NLAYER_KINDS]) {
    for (int k = 0; k < DTP_NLAYER_KINDS; k++)
        n[k] = 0;
    if (m->nconvs > 0) {
        n[DTP_LAYER_CONV] = 1;
        return;
    }
    int from, layers = span(cut, m, vs, &from), last = vs + 1 == cut->pp * cut->vpp;
    dtp_model_count_kinds(m, from, from + layers + (last ? m->mtp_layers : 0), n);
    n[DTP_LAYER_EMBEDDING] = vs == 0;
    n[DTP_LAYER_HEAD] = last;
    n[DTP_LAYER_MTP] = last ? m->mtp_layers : 0;
}

void dtp_stage_count(const struct dtp_model *m, const struct dtp_plan *plan, int vs,
                     int n[DTP_NLAYER_KINDS]) {
    const struct dtp_cut cut = dtp_plan_cut(plan);
    count(m, &cut, vs, n);
}

void dtp_stage_of(const struct dtp_model *m, const struct dtp_param_counts *counts,
                  const struct dtp_cut *cut, int vs, struct dtp_stage *out) {
    int of[DTP_NLAYER_KINDS];
    double expert_ranks = (double)cut->etp * cut->ep;
    count(m, cut, vs, of);
    int moe = of[DTP_LAYER_MOE] + of[DTP_LAYER_MOE_WINDOW];
    int n = m->nconvs > 0 ? m->layers : moe + of[DTP_LAYER_DENSE] + of[DTP_LAYER_DENSE_WINDOW];
    *out = (struct dtp_stage){
        .layers = n, .moe_layers = moe, .first = vs == 0, .last = vs == cut->pp * cut->vpp - 1};
    double experts = (double)counts->moe_layer_experts,
           shared = (double)counts->moe_layer - experts;
    double layers = (n - moe) * (double)counts->dense_layer + moe * shared, root = 0;
    if (m->nconvs > 0) {
        root = (double)counts->total;
        layers = 0;
    } else {
        if (out->first)
            root += (double)counts->embedding;
        if (out->last)
            root += (double)counts->final_norm + (double)counts->head;
        /* the copy that computes the logits, or that looks up the next tokens of the prediction after next */
        if (out->last && !out->first && (m->tied_embeddings || m->mtp_layers > 0))
            root += (double)m->vocab * m->hidden;
        root += of[DTP_LAYER_MTP] * (double)counts->mtp;
    }
    out->root_params = root / cut->tp;
    out->dense_params = layers / cut->tp + out->root_params;
    out->expert_params = moe * experts / expert_ranks;
    double dense_layer = n > moe ? (double)counts->dense_layer / cut->tp : 0;
    double moe_layer = moe > 0 ? shared / cut->tp + experts / expert_ranks : 0;
    out->largest_layer_params = dense_layer > moe_layer ? dense_layer : moe_layer;
}

/* ---- text ---- */

static void add_value(struct dtp_str *s, const struct dtp_field *f, const struct dtp_plan *p) {
    const char *slot = (const char *)p + f->offset;
    if (f->kind == DTP_FIELD_INTS) {
        const struct dtp_ints *list = (const struct dtp_ints *)(const void *)slot;
        for (size_t i = 0; i < list->n; i++)
            dtp_str_printf(s, "%s%d", i ? "," : "", list->at[i]);
        return;
    }
    char set[128];
    if (f->kind == DTP_FIELD_SET)
        dtp_str_add(s, dtp_set_text(f->names, *(const int *)(const void *)slot, set, sizeof set));
    else if (f->kind == DTP_FIELD_BOOL)
        dtp_str_add(s, *(const bool *)slot ? "true" : "false");
    else if (f->kind == DTP_FIELD_ENUM)
        dtp_str_add(s, f->names[*(const int *)(const void *)slot]);
    else
        dtp_str_printf(s, "%d", *(const int *)(const void *)slot);
}

static bool always_printed(size_t offset) {
    return offset == AT(tp) || offset == AT(pp) || offset == AT(dp) || offset == AT(schedule) ||
           offset == AT(microbatch_size) || offset == AT(global_batch_size);
}

const char *dtp_plan_flags(struct dtp_arena *a, const struct dtp_plan *p) {
    struct dtp_plan standard = dtp_plan_default();
    struct dtp_str s = {.a = a};
    for (const struct dtp_field *f = dtp_plan_fields; f->name; f++) {
        if (compare_field(f, p, &standard) == 0 && !always_printed(f->offset))
            continue;
        size_t option = s.n + (s.n ? 1 : 0);
        const char *name = f->offset == AT(global_batch_size) ? "batch" : f->name;
        dtp_str_printf(&s, "%s--%s ", s.n ? " " : "", name);
        for (char *c = s.at + option; *c; c++)
            *c = *c == '_' ? '-' : *c;
        add_value(&s, f, p);
    }
    return s.at;
}

enum dtp_status dtp_plan_read(struct dtp_arena *a, const struct dtp_json *j, struct dtp_plan *out,
                              struct dtp_err *err) {
    DTP_TRY(dtp_fields_read(a, j, dtp_plan_fields, out, err));
    const struct dtp_json *list = dtp_json_get(j, "layers_per_stage");
    if (list && (long long)out->layers_per_stage.n != (long long)out->pp * out->vpp)
        return dtp_json_expected(list, "one number of layers for each of the pp x vpp stages", err);
    return DTP_OK;
}

void dtp_plan_write(struct dtp_json_out *w, const struct dtp_plan *p) {
    dtp_json_object(w);
    dtp_fields_write(w, dtp_plan_fields, p);
    dtp_json_end(w);
}

/* ---- Megatron-Core's --pipeline-model-parallel-layout ---- */

enum { MOST_LETTERS = 1 << 16 };

/* "(tt|)*3" and "t*3" unrolled; false: not of this form. */
static bool unroll(const char *at, const char *end, struct dtp_str *out) {
    while (at < end) {
        bool group = *at == '(';
        const char *item = at + group;
        const char *item_end = group ? memchr(item, ')', (size_t)(end - item)) : at + 1;
        if (!item_end)
            return false;
        at = item_end + group;
        bool several = at < end && *at == '*';
        int times = several ? 0 : 1;
        for (at += several; several && at < end && *at >= '0' && *at <= '9'; at++)
            times = times < MOST_LETTERS ? 10 * times + (*at - '0') : times;
        for (int i = 0; i < times; i++) {
            if (out->n > MOST_LETTERS)
                return false;
            if (!group)
                dtp_str_printf(out, "%c", *item);
            else if (!unroll(item, item_end, out))
                return false;
        }
        if (times == 0)
            return false;
    }
    return true;
}

const char *dtp_plan_layers_of_layout(struct dtp_arena *a, const char *text) {
    struct dtp_str all = {.a = a}, layers = {.a = a};
    int n = 0, stages = 0;
    dtp_str_add(&all, "");
    if (!unroll(text, text + strlen(text), &all))
        return NULL;
    for (const char *p = all.at;; p++) {
        if (*p == 't') {
            n++;
        } else if (*p == '|' || *p == '\0') {
            dtp_str_printf(&layers, "%s%d", stages > 0 ? "," : "", n);
            stages++;
            n = 0;
        } else if (!strchr("EmL,", *p)) {
            return NULL;
        }
        if (*p == '\0')
            return stages > 1 || strchr(all.at, 't') ? layers.at : NULL;
    }
}
