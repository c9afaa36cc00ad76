/* config_use.c: what follows from the settings of a configuration. */
#include <limits.h>

#include "sim/base/json.h"
#include "traces/formats/config.h"

enum { GPT_FFN = 4 };

/* Their product, INT_MAX where it is more; what is not said is 1. */
static long product(const long *of, size_t n) {
    long out = 1;
    for (size_t i = 0; i < n; i++) {
        long v = of[i] > 0 ? of[i] : 1;
        out = v < INT_MAX / out ? out * v : INT_MAX;
    }
    return out;
}

/* Data parallel ranks that it says or implies, as DeepSpeed's batch = microbatch x accumulation x ranks; 0: neither. */
static long replicas_of(const struct dtp_run_config *c) {
    long each = product((long[]){c->microbatch, c->accumulation}, 2);
    if (c->dp > 0 || c->shards > 0)
        return c->dp > 0 ? c->dp : product((long[]){c->shards, c->replicas}, 2);
    return c->microbatch > 0 && c->accumulation > 0 ? c->global_batch / each : 0;
}

static long gpus_said(const struct dtp_run_config *c) {
    return c->gpus > 0        ? c->gpus
           : c->node_gpus > 0 ? product((long[]){c->nodes, c->node_gpus}, 2)
                              : 0;
}

long dtp_config_gpus(const struct dtp_run_config *c) {
    long dp = replicas_of(c);
    long dense = product((long[]){c->tp, c->cp}, 2), experts = product((long[]){c->ep, c->etp}, 2);
    long least = product((long[]){dense > experts ? dense : experts, c->pp}, 2);
    long said = gpus_said(c);
    if (said == 0 && dp > 0)
        said = product((long[]){dp, dense, c->pp}, 3);
    return said > 0 && said < least ? least : said;
}

long dtp_config_batch(const struct dtp_run_config *c) {
    bool titan = c->dp == 0 && c->shards > 0; /* no accumulation unless it says a batch */
    long accumulation = titan ? 1 : c->accumulation;
    long dp = titan       ? product((long[]){c->shards, c->replicas}, 2)
              : c->dp > 0 ? c->dp
                          : gpus_said(c) / product((long[]){c->tp, c->cp, c->pp}, 3);
    if (c->global_batch > 0)
        return c->global_batch;
    long batch = product((long[]){c->microbatch, accumulation, dp}, 3);
    return c->microbatch > 0 && accumulation > 0 && dp > 0 && batch < INT_MAX ? batch : 0;
}

bool dtp_config_write_model(FILE *f, const struct dtp_run_config *c) {
    struct dtp_json_out w;
    if (c->layers == 0 || c->hidden == 0 || c->heads == 0 || c->vocab == 0 || c->seq == 0 ||
        c->experts > 0)
        return false;
    dtp_json_begin(&w, f, 2);
    dtp_json_object(&w);
    dtp_json_kv_string(&w, "title", "from a training configuration");
    dtp_json_kv_string(&w, "family", c->gated ? "llama" : "gpt");
    dtp_json_kv_int(&w, "layers", c->layers);
    dtp_json_kv_int(&w, "hidden", c->hidden);
    dtp_json_kv_int(&w, "heads", c->heads);
    if (c->kv_heads > 0)
        dtp_json_kv_int(&w, "kv_heads", c->kv_heads);
    dtp_json_kv_int(&w, "ffn", c->ffn > 0 ? c->ffn : GPT_FFN * c->hidden);
    dtp_json_kv_int(&w, "vocab", c->vocab);
    dtp_json_kv_int(&w, "seq", c->seq);
    dtp_json_kv_bool(&w, "tied_embeddings", !c->untied);
    dtp_json_kv_string(&w, "source", "the configuration of the run");
    dtp_json_end(&w);
    return true;
}
