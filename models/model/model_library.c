#include "models/model/model_internal.h"

#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim/base/text.h"

/* A model is found by what people type: a path, a file of models/library/, or an alias in one of them. */

struct entry {
    const char *name,
        *file; /* a name or an alias, and the file (without .json) that it stands for */
};

struct dtp_model_names {
    struct entry *at;
    size_t n, capacity;
};

/* Returns "Meta-Llama-3-70B" for "meta-llama/Meta-Llama-3-70B". */
static const char *without_owner(const char *name) {
    const char *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

static bool is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Returns a file's own name; for .../gpt2/config.json it is the folder's. */
static const char *name_of_path(struct dtp_arena *a, const char *path) {
    size_t n = strlen(path);
    n -= dtp_ends_with(path, ".json") ? strlen(".json") : 0;
    char *stem = dtp_arena_strndup(a, path, n), *slash = strrchr(stem, '/');
    if (slash && strcmp(slash, "/config") == 0) {
        *slash = '\0';
        slash = strrchr(stem, '/');
    }
    return slash && slash[1] ? slash + 1 : stem;
}

enum dtp_status dtp_model_read(struct dtp_arena *a, const struct dtp_json *j, struct dtp_model *out,
                               struct dtp_err *err) {
    struct dtp_model m = {0};
    char place[512];
    if (dtp_json_type(j) != DTP_JSON_OBJECT)
        return dtp_json_expected(j, "an object that describes a model", err);
    if (dtp_model_is_hf(j))
        DTP_TRY(dtp_model_read_hf(j, &m, err));
    else
        DTP_TRY(dtp_model_read_own(a, j, &m, err));
    enum dtp_status status = dtp_model_finish(&m, err);
    if (status != DTP_OK) {
        dtp_err_prefix(err, dtp_json_place(j, place, sizeof place));
        return status;
    }
    *out = m;
    return DTP_OK;
}

static enum dtp_status load_file(struct dtp_arena *a, const char *path, const char *name,
                                 struct dtp_model *out, struct dtp_err *err) {
    const struct dtp_json *j;
    DTP_TRY(dtp_json_read_file(a, path, &j, err));
    DTP_TRY(dtp_model_read(a, j, out, err));
    if (!out->name[0])
        out->name = name;
    if (!out->title[0])
        out->title = out->name;
    out->user_file = path;
    return DTP_OK;
}

static const char *library_path(struct dtp_arena *a, const char *file) {
    return dtp_data_path(a, dtp_arena_printf(a, "models/library/%s.json", file));
}

static enum dtp_status load_library(struct dtp_arena *a, const char *name, struct dtp_model *out,
                                    struct dtp_err *err) {
    DTP_TRY(load_file(a, library_path(a, name), name, out, err));
    out->user_file = NULL;
    return DTP_OK;
}

static void add(struct dtp_arena *a, struct dtp_model_names *l, const char *name,
                const char *file) {
    l->at = dtp_arena_room(a, l->at, sizeof *l->at, l->n, &l->capacity);
    l->at[l->n++] = (struct entry){name, file};
}

static enum dtp_status read_names(struct dtp_arena *a, struct dtp_model_names **out,
                                  struct dtp_err *err) {
    struct dtp_model_names *l = DTP_NEW(a, struct dtp_model_names, 1);
    const char *const *files;
    size_t n;
    DTP_TRY(dtp_model_list(a, &files, &n, err));
    for (size_t i = 0; i < n; i++) {
        const struct dtp_json *j, *aliases;
        DTP_TRY(dtp_json_read_file(a, library_path(a, files[i]), &j, err));
        add(a, l, files[i], files[i]);
        aliases = dtp_model_aliases(j);
        for (size_t k = 0; aliases && k < dtp_json_size(aliases); k++)
            if (dtp_json_type(dtp_json_at(aliases, k)) == DTP_JSON_STRING)
                add(a, l, dtp_json_string(dtp_json_at(aliases, k)), files[i]);
    }
    *out = l;
    return DTP_OK;
}

/* Says whether a word is the date of a release: 2507 (year and month) or 0324 (month and day). */
static bool is_date(const char *word) {
    if (strspn(word, "0123456789") != 4 || word[4])
        return false;
    int high = (word[0] - '0') * 10 + word[1] - '0', low = (word[2] - '0') * 10 + word[3] - '0';
    return (high >= 23 && high <= 29 && low >= 1 && low <= 12) ||
           (high >= 1 && high <= 12 && low >= 1 && low <= 31);
}

/* Cuts off the last word that says how a model was trained further, when, or how it was saved
 * ("Llama-2-70b-chat-hf", "Qwen3-4B-Instruct-2507-FP8"); NULL where there is none. A version stands here only where
 * the sizes did not change with it: Mistral's v0.3 has another vocabulary, and is no such word. */
static const char *without_variant(struct dtp_arena *a, const char *name) {
    static const char *const variants[] = {"instruct", "chat", "base", "it",   "pt",   "thinking",
                                           "sft",      "dpo",  "hf",   "fp8",  "bf16", "fp16",
                                           "int4",     "int8", "awq",  "gptq", "gguf", "nvfp4",
                                           "mxfp4",    "bnb",  "4bit", "8bit", "mlx",  "dynamic",
                                           "unsloth",  "v0.1", "v0.2", "v1.0", NULL};
    size_t n = strlen(name);
    while (n > 0 && !strchr("-_ ", name[n - 1]))
        n--;
    if (n < 2)
        return NULL;
    bool cut = is_date(name + n);
    for (const char *const *v = variants; *v && !cut; v++)
        cut = strcasecmp(name + n, *v) == 0;
    return cut ? dtp_arena_strndup(a, name, n - 1) : NULL;
}

/* Returns the name without its owner and all that without_variant() cuts off. */
static const char *plain_name(struct dtp_arena *a, const char *name) {
    const char *plain = without_owner(name), *shorter = plain;
    for (; shorter; shorter = without_variant(a, shorter))
        plain = shorter;
    return plain;
}

static enum dtp_status load_named(struct dtp_arena *a, const struct dtp_model_names *l,
                                  const char *name, struct dtp_model *out, struct dtp_err *err) {
    for (const char *plain = name; plain; plain = without_variant(a, plain))
        for (size_t i = 0; i < l->n; i++)
            if (dtp_same_name(without_owner(l->at[i].name), without_owner(plain)))
                return load_library(a, l->at[i].file, out, err);
    const char *config = dtp_arena_printf(a, "%s/config.json", name);
    if (access(config, R_OK) == 0) /* a checkpoint's folder that is called like no model */
        return load_file(a, config, name_of_path(a, config), out, err);
    const char **names = DTP_NEW(a, const char *, l->n);
    for (size_t i = 0; i < l->n; i++)
        names[i] = l->at[i].name;
    if (dtp_nearest_name(name, names, l->n) >= 0)
        return dtp_unknown_name(err, DTP_EINPUT, "model", name, names, l->n, NULL);
    int nearest = dtp_nearest_name(plain_name(a, name), names, l->n);
    if (nearest >= 0)
        return dtp_fail(err, DTP_EINPUT, "unknown model \"%s\", did you mean \"%s\"?", name,
                        names[nearest]);
    return dtp_fail(err, DTP_EINPUT,
                    "unknown model \"%s\"; `dtplan models` lists them, and --model FILE reads a "
                    "config.json of Hugging Face or a file of your own",
                    name);
}

enum dtp_status dtp_model_load(struct dtp_arena *a, const char *name, struct dtp_model *out,
                               struct dtp_err *err) {
    struct dtp_model_names *names = NULL;
    return dtp_model_load_by(a, &names, name, out, err);
}

enum dtp_status dtp_model_load_by(struct dtp_arena *a, struct dtp_model_names **names,
                                  const char *name, struct dtp_model *out, struct dtp_err *err) {
    if (strcmp(name, "-") == 0)
        return load_file(a, name, "stdin", out, err);
    if (strchr(name, '/') && is_folder(name)) {
        const char *path = dtp_arena_printf(a, "%s/config.json", name);
        return load_file(a, path, name_of_path(a, path), out, err);
    }
    if (dtp_ends_with(name, ".json") || (strchr(name, '/') && access(name, R_OK) == 0))
        return load_file(a, name, name_of_path(a, name), out, err);
    if (!strchr(name, '/') && name[0] && access(library_path(a, name), R_OK) == 0)
        return load_library(a, name, out, err);
    if (!*names)
        DTP_TRY(read_names(a, names, err));
    return load_named(a, *names, name, out, err);
}

enum dtp_status dtp_model_list(struct dtp_arena *a, const char *const **out_names, size_t *out_n,
                               struct dtp_err *err) {
    return dtp_dir_list(a, dtp_data_path(a, "models/library"), ".json", out_names, out_n, err);
}
