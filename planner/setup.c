#include "planner/setup.h"

#include <stdio.h>
#include <string.h>

#include "hw/own_times.h"
#include "models/framework/optimizer.h"
#include "sim/base/text.h"

/* Embeds what came from a file of the user, so that documents need no other file. */
static enum dtp_status embed(struct dtp_arena *a, const char *name, const struct dtp_json **out,
                             struct dtp_err *err) {
    if (*out || !name || !dtp_ends_with(name, ".json"))
        return DTP_OK;
    return dtp_json_read_file(a, name, out, err);
}

/* A model of a document or of standard input has no file to be called after. */
static enum dtp_status read_given_model(struct dtp_arena *a, const struct dtp_json *j,
                                        struct dtp_model *out, struct dtp_err *err) {
    DTP_TRY(dtp_model_read(a, j, out, err));
    out->user_file = NULL;
    if (!out->name[0])
        out->name = out->title[0] ? out->title : "(given)";
    return DTP_OK;
}

static bool on_cpu(const struct dtp_cluster *c) {
    return strcmp(c->gpu.arch, "cpu") == 0;
}

/* Users see our runtime as one framework; on GPUs it has other dtypes, streams and kernels, and its times come
 * from a separate file. */
static enum dtp_status load_framework(struct dtp_arena *a, const struct dtp_ask *ask,
                                      struct dtp_setup *out, struct dtp_err *err) {
    const char *name = ask->framework ? ask->framework : DTP_DEFAULT_FRAMEWORK;
    struct dtp_framework *f = &out->framework;
    struct dtp_own_times times;
    if (ask->framework_json)
        DTP_TRY(dtp_framework_read(a, ask->framework_json, f, err));
    else
        DTP_TRY(dtp_framework_load(a, name, f, err));
    if (f->kernels.ops != DTP_OPS_OWN || on_cpu(&out->cluster))
        return DTP_OK;
    if (f->wire.inline_communication)
        DTP_TRY(dtp_framework_load(a, "dtplan-cuda", f, err));
    const char *path =
        ask->own_times ? ask->own_times : dtp_own_times_path(a, out->cluster.gpu.name);
    if (!path)
        return DTP_OK;
    DTP_TRY(dtp_own_times_read(a, path, &times, err));
    DTP_TRY(dtp_own_times_apply(a, &times, &out->cluster, err));
    f->host.launch_s = times.launch_s;
    f->host.stream_hop_s = times.stream_hop_s;
    f->quirks.traced_gaps.kernel_gap_s += ask->gpus > 1 ? times.peer_gap_s : 0;
    return DTP_OK;
}

enum dtp_status dtp_dropout_parse(const char *text, double out[2], struct dtp_err *err) {
    char first[32];
    const char *comma = strchr(text, ',');
    size_t n = comma ? (size_t)(comma - text) : strlen(text);
    out[0] = 0;
    bool read = n < sizeof first && snprintf(first, sizeof first, "%.*s", (int)n, text) > 0 &&
                dtp_parse_double(first, "--dropout", &out[0], NULL) == DTP_OK;
    out[1] = out[0];
    if (read && comma)
        read = dtp_parse_double(comma + 1, "--dropout", &out[1], NULL) == DTP_OK;
    if (read && out[0] >= 0 && out[0] < 1 && out[1] >= 0 && out[1] < 1)
        return DTP_OK;
    return dtp_fail(err, DTP_EUSAGE,
                    "--dropout: found \"%s\", expected one or two probabilities below 1, such as "
                    "0.1 or 0.1,0",
                    text);
}

/* The dropout that is asked for overrides the model's, in any framework. If our runtime's kernels were not measured
 * with dropout, their times without it stand in. */
static enum dtp_status set_dropout(struct dtp_setup *s, struct dtp_err *err) {
    struct dtp_model *m = &s->model;
    struct dtp_framework *f = &s->framework;
    struct dtp_gpu *gpu = &s->cluster.gpu;
    double p[2];
    if (s->ask.dropout) {
        DTP_TRY(dtp_dropout_parse(s->ask.dropout, p, err));
        m->dropout = p[0];
        m->attention_dropout = p[1];
        f->kernels.dropout = true;
    }
    if (f->kernels.ops == DTP_OPS_OWN && f->kernels.dropout &&
        (m->dropout > 0 || m->attention_dropout > 0) &&
        gpu->table[DTP_TABLE_ATTENTION_DROPOUT_FORWARD].time_s.n == 0)
        gpu->not_calibrated = true;
    return DTP_OK;
}

enum dtp_status dtp_ask_read(struct dtp_arena *a, struct dtp_ask *ask, struct dtp_err *err) {
    if (!ask->model || strcmp(ask->model, "-") != 0)
        return DTP_OK;
    DTP_TRY(dtp_json_read_file(a, ask->model, &ask->model_json, err));
    ask->model = NULL;
    return DTP_OK;
}

enum dtp_status dtp_setup_load(struct dtp_arena *a, const struct dtp_ask *ask,
                               struct dtp_setup *out, struct dtp_err *err) {
    *out = (struct dtp_setup){.ask = *ask};
    if (!ask->model && !ask->model_json)
        return dtp_fail(err, DTP_EUSAGE,
                        "--model is missing, such as --model gpt175b; `dtplan models` lists them");
    const char *cluster = ask->cluster ? ask->cluster : DTP_DEFAULT_CLUSTER;
    DTP_TRY(dtp_ask_read(a, &out->ask, err));
    ask = &out->ask;
    if (ask->model_json)
        DTP_TRY(read_given_model(a, ask->model_json, &out->model, err));
    else
        DTP_TRY(dtp_model_load(a, ask->model, &out->model, err));
    if (ask->cluster_json) {
        DTP_TRY(dtp_cluster_read(a, ask->cluster_json, &out->cluster, err));
        out->cluster.name = out->cluster.title;
    } else {
        DTP_TRY(dtp_cluster_load(a, cluster, &out->cluster, err));
    }
    if (ask->nic)
        DTP_TRY(dtp_cluster_set_nics(&out->cluster, ask->nic, err));
    DTP_TRY(load_framework(a, ask, out, err));
    DTP_TRY(dtp_framework_set_optimizer(&out->framework, ask->optimizer, err));
    DTP_TRY(set_dropout(out, err));
    out->without_mtp = out->model.mtp_layers > 0 && !out->framework.can.has_mtp;
    if (out->without_mtp)
        out->model.mtp_layers = 0;
    DTP_TRY(embed(a, out->model.user_file, &out->ask.model_json, err));
    DTP_TRY(embed(a, ask->cluster, &out->ask.cluster_json, err));
    return embed(a, ask->framework, &out->ask.framework_json, err);
}

static enum dtp_dtype default_dtype(const struct dtp_gpu *gpu) {
    if (gpu->peak_flops_per_s[DTP_BF16] > 0)
        return DTP_BF16;
    return gpu->peak_flops_per_s[DTP_FP16] > 0 ? DTP_FP16 : DTP_FP32;
}

/* Reports here, once, what the GPU cannot do, instead of refusing every plan. If the GPU does not have the
 * framework's attention kernel, the nearest one replaces it, on V100 the unfused one. */
static enum dtp_status check_gpu(struct dtp_problem *p, struct dtp_err *err) {
    const struct dtp_gpu *gpu = &p->cluster->gpu;
    if (gpu->peak_flops_per_s[p->dtype] <= 0 || gpu->gemm[p->dtype].sm_flops_per_s <= 0)
        return dtp_fail(err, DTP_EUNSUPPORTED,
                        "%s has no %s that is calibrated; give another --dtype", gpu->name,
                        dtp_dtype_names[p->dtype]);
    const struct dtp_framework_gpu stack = dtp_framework_on(p->framework, gpu);
    enum dtp_attention attention =
        p->attention >= 0 ? (enum dtp_attention)p->attention : stack.attention;
    if (p->model->nconvs > 0 || attention == DTP_ATTN_UNFUSED ||
        gpu->attention[attention].flops_per_s > 0)
        return DTP_OK;
    if (p->framework->kernels.ops == DTP_OPS_OWN)
        return dtp_fail(err, DTP_EUNSUPPORTED,
                        "framework %s: there are no measured times of its kernels on %s; "
                        "`dtplan calibrate --backend cuda --framework dtplan` measures them, and "
                        "--cluster cpu has those of CPU ranks",
                        p->framework->name, gpu->name);
    if (p->attention < 0) {
        p->attention = (int)dtp_device_attention(gpu, attention);
        return DTP_OK;
    }
    char has[128] = "unfused";
    for (int i = DTP_ATTN_UNFUSED + 1; i < DTP_NATTN; i++)
        if (gpu->attention[i].flops_per_s > 0)
            snprintf(has + strlen(has), sizeof has - strlen(has), ", %s", dtp_attention_names[i]);
    return dtp_fail(err, DTP_EUNSUPPORTED,
                    "%s has no %s attention that is calibrated; --attention may be: %s", gpu->name,
                    dtp_attention_names[attention], has);
}

static enum dtp_status set_problem(struct dtp_setup *out, struct dtp_err *err) {
    const struct dtp_ask *ask = &out->ask;
    const struct dtp_model *m = &out->model;
    if (ask->gpus < 1)
        return dtp_fail(err, DTP_EUSAGE, "--gpus is missing, such as --gpus 1024");
    if (ask->gpus > DTP_MOST_GPUS)
        return dtp_fail(err, DTP_EUSAGE, "--gpus: found %d, expected at most %d", ask->gpus,
                        DTP_MOST_GPUS);
    if (out->cluster.max_gpus > 0 && ask->gpus > out->cluster.max_gpus &&
        out->cluster.node.nics == 0)
        return dtp_fail(
            err, DTP_ENO,
            "cluster %s is one node of %d GPUs without network cards, %d were asked for; "
            "--nic 4x100 gives it some",
            out->cluster.name, out->cluster.max_gpus, ask->gpus);
    if (out->cluster.max_gpus > 0 && ask->gpus > out->cluster.max_gpus)
        return dtp_fail(err, DTP_ENO, "cluster %s has %d GPUs, %d were asked for",
                        out->cluster.name, out->cluster.max_gpus, ask->gpus);
    int per_node = out->cluster.node.gpus;
    if (ask->gpus > per_node && ask->gpus % per_node != 0 && out->cluster.node.nics == 0)
        return dtp_fail(err, DTP_ENO, "cluster %s has nodes of %d GPUs and no network",
                        out->cluster.name, per_node);
    out->problem = (struct dtp_problem){
        .model = m,
        .cluster = &out->cluster,
        .framework = &out->framework,
        .gpus = ask->gpus,
        .seq = ask->seq > 0 ? ask->seq : m->seq,
        .global_batch = ask->batch > 0 ? ask->batch : m->global_batch,
        .attention = ask->attention,
        .dtype = ask->dtype >= 0 ? (enum dtp_dtype)ask->dtype : default_dtype(&out->cluster.gpu)};
    if (out->problem.global_batch < 1)
        return dtp_fail(err, DTP_EUSAGE, "model %s has no default batch: give --batch SEQUENCES",
                        m->name);
    if (out->problem.seq < 1)
        return dtp_fail(err, DTP_EUSAGE, "model %s has no default length: give --seq TOKENS",
                        m->name);
    if (m->position == DTP_POS_LEARNED && m->max_positions < out->problem.seq)
        out->learned_positions = m->max_positions; /* and a longer table is trained */
    if (out->learned_positions > 0)
        out->model.max_positions = out->problem.seq;
    if (out->problem.dtype == DTP_FP32 || out->problem.dtype == DTP_TF32)
        dtp_framework_to_fp32(&out->framework);
    out->problem.memory_limit_bytes = ask->memory_limit_bytes > 0
                                          ? ask->memory_limit_bytes
                                          : dtp_problem_default_limit(&out->problem);
    return check_gpu(&out->problem, err);
}

static bool has_dtype(const struct dtp_framework *f, const void *dtype) {
    return f->can.dtypes >> *(const enum dtp_dtype *)dtype & 1;
}

static enum dtp_status check_dtype(struct dtp_arena *a, const struct dtp_problem *p,
                                   struct dtp_err *err) {
    if (has_dtype(p->framework, &p->dtype))
        return DTP_OK;
    const char *others = dtp_frameworks_text(a, p->framework, has_dtype, &p->dtype);
    return dtp_fail(err, DTP_EUNSUPPORTED, "framework %s has no %s; these have it: %s",
                    p->framework->name, dtp_dtype_names[p->dtype], others ? others : "none");
}

enum dtp_status dtp_setup_init(struct dtp_arena *a, const struct dtp_ask *ask,
                               struct dtp_setup *out, struct dtp_err *err) {
    DTP_TRY(dtp_setup_load(a, ask, out, err));
    DTP_TRY(set_problem(out, err));
    return check_dtype(a, &out->problem, err);
}
