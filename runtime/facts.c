/* Writes as JSON what a run trains. */
#include "runtime/facts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "runtime/rank.h"
#include "sim/base/text.h"

static const char *data_text(struct dtp_arena *a, const struct dtp_data *d) {
    if (!d->text)
        return "synthetic";
    uLong crc = crc32_z(0L, d->text, (z_size_t)d->length_bytes);
    if (d->token_bytes > 1)
        return dtp_arena_printf(a, "%llu tokens of %d bytes, CRC-32 %08lx",
                                (unsigned long long)d->length_bytes / (unsigned)d->token_bytes,
                                d->token_bytes, crc);
    return dtp_arena_printf(a, "%llu bytes, CRC-32 %08lx", (unsigned long long)d->length_bytes,
                            crc);
}

/* Writes the model without what does not change a value: names, defaults of a run, published numbers. */
static void put_model(struct dtp_json_out *w, const struct dtp_model *model) {
    struct dtp_model m = *model;
    m.name = m.title = m.source = NULL;
    m.seq = m.global_batch = 0;
    m.train_tokens = m.published_params = m.dropout = m.attention_dropout = 0;
    dtp_json_put_key(w, "model");
    dtp_model_write(w, &m);
}

static void put_training(struct dtp_json_out *w, const struct dtp_run_options *o,
                         const char *data) {
    char seed[24];
    snprintf(seed, sizeof seed, "%" PRIu64, o->seed);
    dtp_json_put_key(w, "training");
    dtp_json_object(w);
    put_model(w, o->model);
    dtp_json_kv_int(w, "seq", o->seq);
    dtp_json_kv_int(w, "batch", o->plan.global_batch_size);
    dtp_json_kv_string(w, "seed", seed); /* a JSON number has only 53 bits */
    dtp_json_kv_string(w, "data", data);
    dtp_json_put_key(w, "optimizer");
    dtp_json_object(w);
    dtp_json_kv_string(w, "name", "adamw");
    dtp_json_kv_double(w, "beta1", o->beta1);
    dtp_json_kv_double(w, "beta2", o->beta2);
    dtp_json_kv_double(w, "epsilon", o->epsilon);
    dtp_json_kv_double(w, "weight_decay", o->weight_decay);
    dtp_json_kv_double(w, "clip_norm", o->clip_norm);
    dtp_json_end(w);
    dtp_json_put_key(w, "dropout");
    dtp_json_object(w);
    dtp_json_kv_double(w, "hidden", o->dropout);
    dtp_json_kv_double(w, "attention", o->attention_dropout);
    dtp_json_end(w);
    dtp_json_end(w);
}

static void put_job(struct dtp_json_out *w, const struct dtp_run_options *o) {
    dtp_json_put_key(w, "job");
    dtp_json_object(w);
    dtp_json_kv_string(w, "version", DTP_VERSION);
    dtp_json_kv_string(w, "backend", o->backend);
    dtp_json_kv_string(w, "dtype", dtp_dtype_names[o->plan.dtype]);
    dtp_json_kv_int(w, "steps", o->steps);
    dtp_json_put_key(w, "rates");
    dtp_json_object(w);
    dtp_json_kv_double(w, "lr", o->lr);
    dtp_json_kv_double(w, "min_lr", o->min_lr);
    dtp_json_kv_int(w, "warmup_steps", o->warmup_steps);
    dtp_json_kv_int(w, "decay_steps", o->decay_steps);
    dtp_json_kv_double(w, "loss_scale", o->loss_scale);
    dtp_json_end(w);
    dtp_json_kv_bool(w, "reads weights", o->weights != NULL);
    dtp_json_kv_bool(w, "saves weights", o->save_weights != NULL);
    dtp_json_kv_bool(w, "saves", o->save != NULL);
    dtp_json_kv_int(w, "save_every", o->save_every);
    dtp_json_kv_bool(w, "resumes", o->resume != NULL);
    dtp_json_put_key(w, "plan");
    dtp_plan_write(w, &o->plan);
    dtp_json_end(w);
}

enum dtp_status dtp_facts_text(struct dtp_arena *a, const struct dtp_run_options *o,
                               const struct dtp_data *data, const char **out, struct dtp_err *err) {
    char *text = dtp_arena_alloc(a, 1, DTP_FACTS_MOST_BYTES);
    FILE *f = fmemopen(text, DTP_FACTS_MOST_BYTES, "w");
    if (!f)
        return dtp_fail(err, DTP_ENOMEM, "no memory for the facts of a run");
    struct dtp_json_out w;
    dtp_json_begin(&w, f, 0);
    dtp_json_object(&w);
    put_training(&w, o, data_text(a, data));
    put_job(&w, o);
    dtp_json_end(&w);
    if (fclose(f) != 0 || strlen(text) + 1 >= DTP_FACTS_MOST_BYTES)
        return dtp_fail(err, DTP_EINPUT, "this plan is too long to be told to other ranks");
    text[strcspn(text, "\n")] = '\0';
    *out = text;
    return DTP_OK;
}
