/* Weights in safetensors with the names of Hugging Face's models.
 *
 * A file is: length of the header u64, the header in JSON {"name": {"dtype", "shape", "data_offsets": [begin, end]}},
 * the values, little-endian and row by row. Large models have several files, and an index that says which tensor is in
 * which. Names are those of Llama (Mistral, Qwen2 and others have the same) or of GPT-2, whose matrices are stored
 * [in, out] and whose queries, keys and values are one tensor. The file is mapped: a rank reads the blocks that it holds,
 * and when weights are written each rank of the host stores its own elements. */
#include "runtime/weights.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/rank.h"
#include "sim/base/text.h"

/* ---- names ---- */

struct name {
    const char *own, *llama, *gpt2; /* after "layers.N.", "model.layers.N." and "h.N." in a layer */
    int part, parts;                /* in GPT-2's tensor */
    bool transposed;
};

static const struct name layer_names[] = {
    {"norm1.weight", "input_layernorm.weight", "ln_1.weight", 0, 1, false},
    {"norm1.bias", "input_layernorm.bias", "ln_1.bias", 0, 1, false},
    {"attention.q.weight", "self_attn.q_proj.weight", "attn.c_attn.weight", 0, 3, true},
    {"attention.k.weight", "self_attn.k_proj.weight", "attn.c_attn.weight", 1, 3, true},
    {"attention.v.weight", "self_attn.v_proj.weight", "attn.c_attn.weight", 2, 3, true},
    {"attention.q.bias", "self_attn.q_proj.bias", "attn.c_attn.bias", 0, 3, false},
    {"attention.k.bias", "self_attn.k_proj.bias", "attn.c_attn.bias", 1, 3, false},
    {"attention.v.bias", "self_attn.v_proj.bias", "attn.c_attn.bias", 2, 3, false},
    {"attention.out.weight", "self_attn.o_proj.weight", "attn.c_proj.weight", 0, 1, true},
    {"attention.out.bias", "self_attn.o_proj.bias", "attn.c_proj.bias", 0, 1, false},
    {"norm2.weight", "post_attention_layernorm.weight", "ln_2.weight", 0, 1, false},
    {"norm2.bias", "post_attention_layernorm.bias", "ln_2.bias", 0, 1, false},
    {"mlp.gate.weight", "mlp.gate_proj.weight", NULL, 0, 1, false},
    {"mlp.gate.bias", "mlp.gate_proj.bias", NULL, 0, 1, false},
    {"mlp.up.weight", "mlp.up_proj.weight", "mlp.c_fc.weight", 0, 1, true},
    {"mlp.up.bias", "mlp.up_proj.bias", "mlp.c_fc.bias", 0, 1, false},
    {"mlp.down.weight", "mlp.down_proj.weight", "mlp.c_proj.weight", 0, 1, true},
    {"mlp.down.bias", "mlp.down_proj.bias", "mlp.c_proj.bias", 0, 1, false},
};
static const struct name end_names[] = {
    {"tokens.weight", "model.embed_tokens.weight", "wte.weight", 0, 1, false},
    {"positions.weight", NULL, "wpe.weight", 0, 1, false},
    {"norm.weight", "model.norm.weight", "ln_f.weight", 0, 1, false},
    {"norm.bias", "model.norm.bias", "ln_f.bias", 0, 1, false},
    {"head.weight", "lm_head.weight", "lm_head.weight", 0, 1, false},
};
enum { NAMES_LAYER = sizeof layer_names / sizeof *layer_names };
enum { NAMES_END = sizeof end_names / sizeof *end_names };
static const char gpt2_prefix[] = "transformer.";

static bool is_gpt2(const struct dtp_model *m) {
    return m->position == DTP_POS_LEARNED;
}

/* Place of a parameter in its tensor. */
struct place {
    const char *name; /* NULL: this family has no name for it */
    int64_t shape[2];
    int ndims, part;
    bool transposed;
};

static struct place place_of(struct dtp_arena *a, const struct dtp_model *m,
                             const struct dtp_param *p) {
    bool gpt2 = is_gpt2(m), of_layer = strncmp(p->name, "layers.", strlen("layers.")) == 0;
    const char *number = p->name + strlen("layers.");
    int digits = of_layer ? (int)strcspn(number, ".") : 0;
    const char *own = of_layer ? number + digits + 1 : p->name;
    const struct name *all = of_layer ? layer_names : end_names, *x = NULL;
    for (int i = 0; i < (of_layer ? (int)NAMES_LAYER : (int)NAMES_END); i++)
        if (strcmp(all[i].own, own) == 0)
            x = &all[i];
    const char *name = !x ? NULL : gpt2 ? x->gpt2 : x->llama;
    if (!name)
        return (struct place){0};
    bool matrix = strstr(own, ".weight") && !strstr(own, "norm");
    struct place out = {.name = name, .ndims = matrix ? 2 : 1};
    if (of_layer)
        out.name =
            dtp_arena_printf(a, "%s.%.*s.%s", gpt2 ? "h" : "model.layers", digits, number, name);
    int64_t rows = p->global_rows * (gpt2 ? x->parts : 1), cols = p->global_cols;
    out.part = gpt2 ? x->part : 0;
    out.transposed = gpt2 && x->transposed;
    out.shape[0] = out.transposed ? cols : rows;
    out.shape[1] = out.transposed ? rows : cols;
    return out;
}

/* Element of the tensor for row and column of the block. */
static uint64_t element(const struct place *x, const struct dtp_param *p, int64_t row,
                        int64_t col) {
    int64_t r = x->part * p->global_rows + p->row0 + row, c = p->col0 + col;
    return (uint64_t)(x->transposed ? c * x->shape[1] + r : r * p->global_cols + c);
}

/* ---- types ---- */

enum type { F32, F16, BF16, F64, NTYPES };
static const char *const type_names[] = {"F32", "F16", "BF16", "F64", NULL};
static const size_t type_bytes[NTYPES] = {4, 2, 2, 8};

static float from_half(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3ff;
    uint32_t bits = sign | (exponent + 112) << 23 | fraction << 13;
    float value;
    if (exponent == 0) {
        value = (float)fraction / 16777216.0F; /* 2^-24 each */
        return sign ? -value : value;
    }
    if (exponent == 31)
        bits = sign | 0x7f800000U | fraction << 13;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float value_at(const unsigned char *values, enum type type, uint64_t i) {
    const unsigned char *at = values + i * type_bytes[type];
    uint16_t half;
    uint32_t bits = 0;
    double wide;
    float value;
    memcpy(&half, at, sizeof half);
    switch (type) {
    case F16:
        return from_half(half);
    case BF16:
        bits = (uint32_t)half << 16;
        break;
    case F64:
        memcpy(&wide, at, sizeof wide);
        return (float)wide;
    case F32:
    case NTYPES:
        memcpy(&bits, at, sizeof bits);
        break;
    }
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* ---- reading ---- */

struct file {
    const char *path;
    unsigned char *map;
    size_t bytes;
    const unsigned char *values;
    uint64_t nvalue_bytes;
    const struct dtp_json *header;
};

struct dtp_weights {
    struct dtp_arena *a;
    const struct dtp_model *model;
    struct file *file;
    size_t nfiles;
    const char *prefix; /* "transformer." or "" */
};

static enum dtp_status open_file(struct dtp_arena *a, const char *path, struct file *out,
                                 struct dtp_err *err) {
    enum { LENGTH_BYTES = 8 };
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        enum dtp_status status = dtp_fail(err, DTP_EINPUT, "%s: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return status;
    }
    void *map = st.st_size > LENGTH_BYTES
                    ? mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0)
                    : MAP_FAILED;
    close(fd);
    if (map == MAP_FAILED)
        return dtp_fail(err, DTP_EINPUT, "%s: not a file of safetensors", path);
    *out = (struct file){.path = path, .map = map, .bytes = (size_t)st.st_size};
    uint64_t length = 0;
    for (int i = 0; i < LENGTH_BYTES; i++)
        length |= (uint64_t)out->map[i] << (8 * i);
    if (length > out->bytes - LENGTH_BYTES)
        return dtp_fail(err, DTP_EINPUT, "%s: not a file of safetensors, or cut short", path);
    out->values = out->map + LENGTH_BYTES + length;
    out->nvalue_bytes = out->bytes - LENGTH_BYTES - length;
    DTP_TRY(dtp_json_parse(a, path, (const char *)out->map + LENGTH_BYTES, (size_t)length,
                           &out->header, err));
    return dtp_json_type(out->header) == DTP_JSON_OBJECT
               ? DTP_OK
               : dtp_json_expected(out->header, "an object of tensors", err);
}

struct tensor {
    const struct file *file;
    const unsigned char *values;
    enum type type;
};

static const struct dtp_json *find(const struct dtp_weights *w, const char *name,
                                   const struct file **file) {
    const struct dtp_json *j = NULL;
    for (size_t i = 0; i < w->nfiles && !j; i++) {
        *file = &w->file[i];
        j = dtp_json_get(w->file[i].header, dtp_arena_printf(w->a, "%s%s", w->prefix, name));
        j = j ? j : dtp_json_get(w->file[i].header, name); /* the head has no prefix */
    }
    return j;
}

static bool has_shape(const struct dtp_json *shape, const struct place *x) {
    if (!shape || dtp_json_type(shape) != DTP_JSON_ARRAY ||
        dtp_json_size(shape) != (size_t)x->ndims)
        return false;
    for (int i = 0; i < x->ndims; i++) {
        const struct dtp_json *n = dtp_json_at(shape, (size_t)i);
        if (dtp_json_type(n) != DTP_JSON_NUMBER || dtp_json_number(n) != (double)x->shape[i])
            return false;
    }
    return true;
}

static enum dtp_status find_tensor(const struct dtp_weights *w, const struct place *x,
                                   struct tensor *out, struct dtp_err *err) {
    const struct dtp_json *j = find(w, x->name, &out->file);
    char wanted[64];
    if (!j || dtp_json_type(j) != DTP_JSON_OBJECT)
        return dtp_fail(err, DTP_EINPUT, "%s: there is no tensor \"%s\"", w->file[0].path, x->name);
    snprintf(wanted, sizeof wanted, x->ndims == 2 ? "[%" PRId64 ", %" PRId64 "]" : "[%" PRId64 "]",
             x->shape[0], x->shape[1]);
    if (!has_shape(dtp_json_get(j, "shape"), x))
        return dtp_json_expected(j, dtp_arena_printf(w->a, "shape %s", wanted), err);
    const struct dtp_json *type = dtp_json_get(j, "dtype"), *at = dtp_json_get(j, "data_offsets");
    int index = type && dtp_json_type(type) == DTP_JSON_STRING
                    ? dtp_name_index(type_names, dtp_json_string(type))
                    : -1;
    if (index < 0)
        return dtp_json_expected(type ? type : j, "dtype F32, F16, BF16 or F64", err);
    out->type = (enum type)index;
    uint64_t bytes = (uint64_t)x->shape[0] * (uint64_t)x->shape[1] * type_bytes[index];
    bool pair = at && dtp_json_type(at) == DTP_JSON_ARRAY && dtp_json_size(at) == 2 &&
                dtp_json_type(dtp_json_at(at, 0)) == DTP_JSON_NUMBER &&
                dtp_json_type(dtp_json_at(at, 1)) == DTP_JSON_NUMBER;
    double begin = pair ? dtp_json_number(dtp_json_at(at, 0)) : -1;
    double end = pair ? dtp_json_number(dtp_json_at(at, 1)) : -1;
    if (!(begin >= 0 && end <= (double)out->file->nvalue_bytes) || end - begin != (double)bytes)
        return dtp_json_expected(at ? at : j, "data_offsets of its values within the file", err);
    out->values = out->file->values + (uint64_t)begin;
    return DTP_OK;
}

enum dtp_status dtp_weights_read(const struct dtp_weights *w, const struct dtp_param *p,
                                 int64_t begin, int64_t n, float *out, struct dtp_err *err) {
    struct place x = place_of(w->a, w->model, p);
    struct tensor t = {0};
    if (!x.name)
        return dtp_fail(err, DTP_EUNSUPPORTED, "no model of Hugging Face names \"%s\"", p->name);
    DTP_TRY(find_tensor(w, &x, &t, err));
    for (int64_t i = begin; i < begin + n; i++) {
        int64_t row = i / p->cols, col = i % p->cols;
        out[i - begin] =
            row < p->valid_rows ? value_at(t.values, t.type, element(&x, p, row, col)) : 0;
    }
    return DTP_OK;
}

/* ---- what belongs to the model ---- */

/* Calls `each` for every parameter of the whole model. */
typedef enum dtp_status each_fn(void *context, const struct dtp_param *p, struct dtp_err *err);
static enum dtp_status each_param(struct dtp_arena *a, const struct dtp_model *m, int seq,
                                  each_fn *each, void *context, struct dtp_err *err) {
    struct dtp_plan alone = dtp_plan_default();
    struct dtp_layout layout;
    dtp_layout_make(a, m, &alone, seq, 0, &layout);
    const struct dtp_chunk *c = &layout.chunk[0];
    for (int i = 0; i < c->nunits; i++)
        for (int id = 0; id < DTP_NLAYER_PARAMS; id++)
            if (c->unit[i].param[id].name)
                DTP_TRY(each(context, &c->unit[i].param[id], err));
    return DTP_OK;
}

struct known {
    const struct dtp_weights *w;
    bool **used; /* [nfiles][tensors] */
};

static enum dtp_status mark_used(void *context, const struct dtp_param *p, struct dtp_err *err) {
    const struct known *k = context;
    const struct place x = place_of(k->w->a, k->w->model, p);
    const struct file *f = NULL;
    struct tensor t;
    if (!x.name)
        return dtp_fail(err, DTP_EUNSUPPORTED, "no model of Hugging Face names \"%s\"", p->name);
    DTP_TRY(find_tensor(k->w, &x, &t, err));
    const struct dtp_json *j = find(k->w, x.name, &f);
    for (size_t n = 0; n < k->w->nfiles; n++)
        for (size_t i = 0; &k->w->file[n] == f && i < dtp_json_size(k->w->file[n].header); i++)
            k->used[n][i] |= dtp_json_at(k->w->file[n].header, i) == j;
    return DTP_OK;
}

/* A tensor that no parameter takes would be left out of the model. Masks and tables of angles are no parameters. */
static enum dtp_status check_all_used(struct dtp_weights *w, int seq, struct dtp_err *err) {
    static const char *const constants[] = {"attn.bias", "attn.masked_bias", "rotary_emb.inv_freq",
                                            "__metadata__"};
    struct known k = {.w = w, .used = DTP_NEW(w->a, bool *, w->nfiles)};
    for (size_t f = 0; f < w->nfiles; f++)
        k.used[f] = DTP_NEW(w->a, bool, dtp_json_size(w->file[f].header) + 1);
    DTP_TRY(each_param(w->a, w->model, seq, mark_used, &k, err));
    for (size_t f = 0; f < w->nfiles; f++)
        for (size_t i = 0; i < dtp_json_size(w->file[f].header); i++) {
            const char *name = dtp_json_key(dtp_json_at(w->file[f].header, i));
            bool good =
                k.used[f][i] || (w->model->tied_embeddings && strcmp(name, "lm_head.weight") == 0);
            for (size_t c = 0; c < sizeof constants / sizeof *constants; c++) {
                size_t n = strlen(name), end = strlen(constants[c]);
                good |= n >= end && strcmp(name + n - end, constants[c]) == 0;
            }
            if (!good)
                return dtp_fail(err, DTP_EINPUT, "%s: the model has no parameter for \"%s\"",
                                w->file[f].path, name);
        }
    return DTP_OK;
}

/* ---- opening ---- */

static enum dtp_status open_files(struct dtp_weights *w, const char *folder, struct dtp_err *err) {
    const char *const *names;
    size_t n;
    DTP_TRY(dtp_dir_list(w->a, folder, ".safetensors", &names, &n, err));
    if (n == 0)
        return dtp_fail(err, DTP_EINPUT, "%s: no .safetensors in this folder", folder);
    w->file = DTP_NEW(w->a, struct file, n);
    for (w->nfiles = 0; w->nfiles < n; w->nfiles++) {
        const char *path = dtp_arena_printf(w->a, "%s/%s.safetensors", folder, names[w->nfiles]);
        struct file *f = &w->file[w->nfiles];
        enum dtp_status status = open_file(w->a, path, f, err);
        if (status != DTP_OK) {
            w->nfiles += f->map ? 1 : 0;
            return status;
        }
    }
    return DTP_OK;
}

/* What a config.json says besides the shapes must be what the model says, or the loss would be another's. */
static enum dtp_status check_config(const struct dtp_weights *w, const char *folder,
                                    struct dtp_err *err) {
    const char *path = dtp_arena_printf(w->a, "%s/config.json", folder), *kind = "default";
    const struct dtp_json *j, *scaling;
    struct dtp_model m;
    if (access(path, F_OK) != 0)
        return DTP_OK;
    DTP_TRY(dtp_json_read_file(w->a, path, &j, err));
    DTP_TRY(dtp_model_read(w->a, j, &m, err));
    scaling = dtp_json_get(j, "rope_scaling");
    scaling =
        scaling ? scaling : dtp_json_get(j, "rope_parameters"); /* version 5 of transformers */
    if (scaling && dtp_json_type(scaling) == DTP_JSON_OBJECT) {
        const struct dtp_json *type = dtp_json_get(scaling, "rope_type");
        type = type ? type : dtp_json_get(scaling, "type");
        kind = type && dtp_json_type(type) == DTP_JSON_STRING ? dtp_json_string(type) : "?";
    }
    if (strcmp(kind, "default") != 0)
        return dtp_fail(err, DTP_EUNSUPPORTED,
                        "%s: the runtime does not have RoPE that is scaled (%s)", path, kind);
    if (m.norm_epsilon != w->model->norm_epsilon || m.rope_theta != w->model->rope_theta)
        return dtp_fail(err, DTP_EINPUT,
                        "%s: epsilon %g and RoPE base %g, the model has %g and %g (0: the usual): "
                        "give --model %s",
                        path, m.norm_epsilon, m.rope_theta, w->model->norm_epsilon,
                        w->model->rope_theta, folder);
    return DTP_OK;
}

enum dtp_status dtp_weights_open(struct dtp_arena *a, const char *path, const struct dtp_model *m,
                                 int seq, struct dtp_weights **out, struct dtp_err *err) {
    struct stat st;
    struct dtp_weights *w = *out = DTP_NEW(a, struct dtp_weights, 1);
    *w = (struct dtp_weights){.a = a, .model = m, .prefix = ""};
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        DTP_TRY(check_config(w, path, err));
        DTP_TRY(open_files(w, path, err));
    } else {
        w->file = DTP_NEW(a, struct file, 1);
        enum dtp_status status = open_file(a, path, w->file, err);
        w->nfiles = w->file->map ? 1 : 0;
        DTP_TRY(status);
    }
    const struct file *f;
    if (is_gpt2(m) && !find(w, "wte.weight", &f))
        w->prefix = gpt2_prefix;
    return check_all_used(w, seq, err);
}

void dtp_weights_close(struct dtp_weights *w) {
    for (size_t i = 0; w && i < w->nfiles; i++)
        munmap(w->file[i].map, w->file[i].bytes);
}

/* ---- writing ---- */

struct entry {
    struct place place;
    uint64_t at; /* first value, in values of the file */
};

struct listing {
    struct dtp_arena *a;
    const struct dtp_model *model;
    struct entry *entry;
    size_t n, capacity;
    uint64_t nvalues;
};

static struct entry *entry_of(const struct listing *l, const char *name) {
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->entry[i].place.name, name) == 0)
            return &l->entry[i];
    return NULL;
}

static enum dtp_status add_entry(void *context, const struct dtp_param *p, struct dtp_err *err) {
    struct listing *l = context;
    const struct place x = place_of(l->a, l->model, p);
    if (!x.name)
        return dtp_fail(err, DTP_EUNSUPPORTED, "no model of Hugging Face names \"%s\"", p->name);
    if (entry_of(l, x.name)) /* a part of GPT-2's one tensor */
        return DTP_OK;
    l->entry = dtp_arena_room(l->a, l->entry, sizeof *l->entry, l->n, &l->capacity);
    l->entry[l->n++] = (struct entry){.place = x, .at = l->nvalues};
    l->nvalues += (uint64_t)x.shape[0] * (uint64_t)x.shape[1];
    return DTP_OK;
}

/* The length and the header, which blanks fill so that the values are aligned. */
static struct dtp_str head_of(const struct listing *l) {
    enum { LENGTH_BYTES = 8 };
    struct dtp_str s = {.a = l->a};
    dtp_str_addn(&s, "        ", LENGTH_BYTES);
    dtp_str_add(&s, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = 0; i < l->n; i++) {
        const struct place *x = &l->entry[i].place;
        uint64_t begin = l->entry[i].at * sizeof(float);
        uint64_t bytes = (uint64_t)x->shape[0] * (uint64_t)x->shape[1] * sizeof(float);
        dtp_str_printf(&s, ",\"%s\":{\"dtype\":\"F32\",\"shape\":[%" PRId64, x->name, x->shape[0]);
        if (x->ndims > 1)
            dtp_str_printf(&s, ",%" PRId64, x->shape[1]);
        dtp_str_printf(&s, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin, begin + bytes);
    }
    dtp_str_add(&s, "}");
    while (s.n % LENGTH_BYTES != 0)
        dtp_str_add(&s, " ");
    for (int i = 0; i < LENGTH_BYTES; i++)
        s.at[i] = (char)((s.n - LENGTH_BYTES) >> (8 * i) & 0xff);
    return s;
}

static const char *temporary_of(struct dtp_arena *a, const struct dtp_rank *r) {
    return dtp_arena_printf(a, "%s.part", r->o->save_weights);
}

enum dtp_status dtp_weights_save_begin(struct dtp_rank *r) {
    const char *path = r->o->save_weights;
    if (!path)
        return DTP_OK;
    if (r->local_size < r->size)
        return dtp_fail(r->err, DTP_EUNSUPPORTED,
                        "%s: the ranks of several hosts cannot write one file of weights: save a "
                        "checkpoint, and go on from it on one host",
                        path);
    if (r->rank != 0)
        return DTP_OK;
    int fd = open(temporary_of(r->arena, r), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return dtp_fail(r->err, DTP_EINPUT, "%s: %s", path, strerror(errno));
    close(fd);
    return DTP_OK;
}

/* What this rank writes of a parameter. */
static enum dtp_status store_param(struct dtp_rank *r, const struct listing *l, struct dtp_unit *u,
                                   const struct dtp_param *p, unsigned char *values) {
    const struct dtp_owned own = dtp_unit_owned(r, u);
    int64_t begin, n;
    if (!p->name || !dtp_param_owned(p, &own, &begin, &n) || !dtp_param_writes(r, u, p))
        return DTP_OK;
    struct dtp_arena *a = dtp_arena_create("weights");
    float *from = DTP_NEW(a, float, (size_t)n);
    const struct place x = place_of(a, r->model, p);
    const struct entry *e = x.name ? entry_of(l, x.name) : NULL;
    enum dtp_status status = dtp_unit_master(r, u, begin - own.begin, n, from);
    for (int64_t i = 0; e && status == DTP_OK && i < n; i++) {
        int64_t row = (begin - p->at + i) / p->cols, col = (begin - p->at + i) % p->cols;
        if (row < p->valid_rows)
            memcpy(values + (e->at + element(&x, p, row, col)) * sizeof *from, &from[i],
                   sizeof *from);
    }
    dtp_arena_destroy(a);
    return status;
}

static enum dtp_status store(struct dtp_rank *r, const struct listing *l, const char *path,
                             const struct dtp_str *head) {
    size_t bytes = head->n + l->nvalues * sizeof(float);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    int why = fd < 0 ? errno : r->rank == 0 ? posix_fallocate(fd, 0, (off_t)bytes) : 0;
    enum dtp_status status =
        why == 0 ? DTP_OK : dtp_fail(r->err, DTP_ENO, "%s: %s", path, strerror(why));
    if (status == DTP_OK) /* the file has its length */
        status = r->host->ops->barrier(r->host_world, r->err);
    unsigned char *map = status == DTP_OK
                             ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                             : MAP_FAILED;
    if (status == DTP_OK && map == MAP_FAILED)
        status = dtp_fail(r->err, DTP_ENO, "%s: %s", path, strerror(errno));
    if (status == DTP_OK && r->rank == 0)
        memcpy(map, head->at, head->n);
    DTP_EACH_UNIT(r, u)
    for (int id = 0; id < DTP_NLAYER_PARAMS && status == DTP_OK; id++)
        status = store_param(r, l, u, &u->param[id], map + head->n);
    if (map != MAP_FAILED && msync(map, bytes, MS_SYNC) != 0 && status == DTP_OK)
        status = dtp_fail(r->err, DTP_ENO, "%s: %s", path, strerror(errno));
    if (map != MAP_FAILED)
        munmap(map, bytes);
    if (fd >= 0)
        close(fd);
    return status;
}

static enum dtp_status save(struct dtp_arena *a, struct dtp_rank *r) {
    struct listing l = {.a = a, .model = r->model};
    const char *path = temporary_of(a, r);
    DTP_TRY(each_param(a, r->model, r->o->seq, add_entry, &l, r->err));
    const struct dtp_str head = head_of(&l);
    DTP_TRY(store(r, &l, path, &head));
    DTP_TRY(r->host->ops->barrier(r->host_world, r->err));
    if (r->rank == 0 && rename(path, r->o->save_weights) != 0)
        return dtp_fail(r->err, DTP_ENO, "%s: %s", r->o->save_weights, strerror(errno));
    return DTP_OK;
}

enum dtp_status dtp_weights_save(struct dtp_rank *r) {
    if (!r->o->save_weights)
        return DTP_OK;
    struct dtp_arena *a = dtp_arena_create("weights");
    r->host->ops->doing(r->host, "writing its weights");
    enum dtp_status status = save(a, r);
    dtp_arena_destroy(a);
    return status;
}
