#include "traces/formats/config.h"

#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/json.h"
#include "traces/formats/lines.h"

enum { KEY_BYTES = 96, VALUE_BYTES = 96, GPT_FFN = 4 };

static const struct {
    const char *words;
    size_t offset;
} fields[] = {
#define X(field, words) {words, offsetof(struct dtp_run_config, field)},
    DTP_CONFIG_FIELDS(X)
#undef X
};

/* Whether key is one of the words. */
static bool one_of(const char *words, const char *key) {
    size_t n = strlen(key);
    for (const char *at = words; *at;) {
        size_t length = strcspn(at, " ");
        if (length == n && memcmp(at, key, n) == 0)
            return true;
        at += length + strspn(at + length, " ");
    }
    return false;
}

static bool is_true(const char *value) {
    return *value == '\0' || strcmp(value, "true") == 0 || strcmp(value, "True") == 0 ||
           strcmp(value, "1") == 0;
}

static void set_flags(struct dtp_run_config *c, const char *key, const char *value) {
    bool on = is_true(value);
    if (strcmp(key, "swiglu") == 0)
        c->gated |= on;
    else if (strcmp(key, "untie_embeddings_and_output_weights") == 0)
        c->untied |= on;
    else if (strcmp(key, "tie_word_embeddings") == 0)
        c->untied = !on;
    else if (strcmp(key, "hidden_act") == 0)
        c->gated |= strstr(value, "silu") != NULL;
    else if (strcmp(key, "recompute_granularity") == 0)
        c->recompute_full = strcmp(value, "full") == 0;
    else if (strcmp(key, "use_distributed_optimizer") == 0)
        c->distributed_optimizer |= on;
    else if (strcmp(key, "sequence_parallel") == 0)
        c->sequence_parallel |= on;
}

static void set(struct dtp_run_config *c, const char *key, const char *value) {
    char *end;
    long v = strtol(value, &end, 10);
    bool number = end != value && (*end == '\0' || *end == ' ') && v > 0 && v < INT_MAX;
    for (size_t i = 0; i < sizeof fields / sizeof *fields && number; i++) {
        long *to = (long *)(void *)((char *)c + fields[i].offset);
        if (one_of(fields[i].words, key)) {
            c->found += *to == 0;
            *to = v;
        }
    }
    set_flags(c, key, value);
}

/* The next key and value at *at, which moves behind them; several may stand on a command line. */
static bool take_pair(const char **at, char *key, char *value) {
    const char *p = *at + strspn(*at, " \t-\"'{,");
    size_t n = 0;
    for (; isalnum((unsigned char)*p) || *p == '_' || *p == '-'; p++)
        if (n < KEY_BYTES - 1)
            key[n++] = *p == '-' ? '_' : *p;
    key[n] = '\0';
    if (n == 0)
        return false;
    p += strspn(p, "\"'");
    p += strspn(p, " \t");
    p += *p == ':' || *p == '=';
    p += strspn(p, " \t\"'");
    n = 0;
    if (strncmp(p, "--", 2) != 0)
        for (; *p && !strchr(" \t\"',}#\\", *p); p++)
            if (n < VALUE_BYTES - 1)
                value[n++] = *p;
    value[n] = '\0';
    *at = p;
    return true;
}

enum dtp_status dtp_config_read(struct dtp_arena *a, struct dtp_source *source,
                                struct dtp_run_config *out, struct dtp_err *err) {
    struct dtp_lines l;
    char *line, key[KEY_BYTES], value[VALUE_BYTES];
    *out = (struct dtp_run_config){0};
    dtp_lines_init(&l, a, source);
    for (;;) {
        DTP_TRY(dtp_lines_next(&l, &line, err));
        if (!line)
            break;
        const char *at = line;
        while (take_pair(&at, key, value)) {
            set(out, key, value);
            const char *next = strstr(at, "--"); /* more of a command line */
            if (!next)
                break;
            at = next;
        }
    }
    if (out->found == 0)
        return dtp_fail(err, DTP_EINPUT, "%s: no line of it says anything of a model or a layout",
                        dtp_source_name(source));
    return DTP_OK;
}

long dtp_config_batch(const struct dtp_run_config *c) {
    if (c->global_batch > 0)
        return c->global_batch;
    long long v = (long long)c->microbatch * c->accumulation;
    return c->dp > 0 && v > 0 && v < INT_MAX / c->dp ? (long)v * c->dp : 0;
}

bool dtp_config_write_model(FILE *f, const struct dtp_run_config *c) {
    struct dtp_json_out w;
    if (c->layers == 0 || c->hidden == 0 || c->heads == 0 || c->vocab == 0 || c->seq == 0)
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
