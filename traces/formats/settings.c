#include "traces/formats/settings.h"

#include <string.h>
#include <yaml.h>

#include "sim/base/text.h"

struct dtp_setting *dtp_settings_add(struct dtp_settings *s, const char *path, const char *value) {
    const char *dot = strrchr(path, '.'), *key = dot ? dot + 1 : path;
    char *name = dtp_arena_strdup(s->a, key + strspn(key, "-+")), *before;
    for (char *p = name; *p; p++)
        *p = *p == '-' ? '_' : *p;
    before = dtp_arena_strdup(s->a, path);
    before[dot ? dot - path : 0] = '\0';
    char *section = strrchr(before, '.') ? strrchr(before, '.') + 1 : before;
    section[strcspn(section, "[")] = '\0';
    s->at = dtp_arena_room(s->a, s->at, sizeof *s->at, s->n, &s->capacity);
    s->at[s->n] = (struct dtp_setting){.path = dtp_arena_strdup(s->a, path),
                                       .section = section,
                                       .key = name,
                                       .value = value ? dtp_arena_strdup(s->a, value) : NULL,
                                       .use = DTP_SETTING_UNKNOWN};
    return &s->at[s->n++];
}

const char *dtp_settings_value(const struct dtp_settings *s, const char *path) {
    for (size_t i = s->n; i-- > 0;)
        if (strcmp(s->at[i].path, path) == 0 && s->at[i].value)
            return s->at[i].value;
    return NULL;
}

/* ---- YAML ---- */

/* Aliases may repeat what they name without end. */
enum { MOST_DEPTH = 40, MOST_VISITS = 200000 };

struct walk {
    struct dtp_settings *to;
    yaml_document_t *document;
    int visits;
};

static const char *scalar_of(const yaml_node_t *node) {
    return node && node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : NULL;
}

static bool is_null(const yaml_node_t *node) {
    return node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           dtp_one_of("~ null Null NULL None", scalar_of(node));
}

static void walk_node(struct walk *w, const char *path, int id, int depth);

static void walk_mapping(struct walk *w, const char *path, const yaml_node_t *node, int depth) {
    for (yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top;
         p++) {
        const char *key = scalar_of(yaml_document_get_node(w->document, p->key));
        if (!key || !*key)
            continue;
        if (strcmp(key, "<<") == 0)
            walk_node(w, path, p->value, depth + 1);
        else
            walk_node(w, *path ? dtp_arena_printf(w->to->a, "%s.%s", path, key) : key, p->value,
                      depth + 1);
    }
}

static void walk_sequence(struct walk *w, const char *path, const yaml_node_t *node, int depth) {
    struct dtp_str words = {.a = w->to->a};
    dtp_str_add(&words, "");
    for (yaml_node_item_t *i = node->data.sequence.items.start;
         i < node->data.sequence.items.top && w->visits < MOST_VISITS; i++) {
        const char *word = scalar_of(yaml_document_get_node(w->document, *i));
        w->visits++;
        if (word)
            dtp_str_printf(&words, "%s%s", words.n > 0 ? " " : "", word);
        else
            walk_node(w, dtp_arena_printf(w->to->a, "%s[]", path), *i, depth + 1);
    }
    if (words.n > 0 || node->data.sequence.items.start == node->data.sequence.items.top)
        dtp_settings_add(w->to, path, words.n > 0 ? words.at : NULL);
}

static void walk_node(struct walk *w, const char *path, int id, int depth) {
    const yaml_node_t *node = yaml_document_get_node(w->document, id);
    if (!node || depth > MOST_DEPTH || ++w->visits > MOST_VISITS)
        return;
    if (node->type == YAML_SCALAR_NODE) {
        const char *value = (const char *)node->data.scalar.value;
        dtp_settings_add(w->to, path, *value && !is_null(node) ? value : NULL);
        return;
    }
    if (node->type == YAML_SEQUENCE_NODE) {
        walk_sequence(w, path, node, depth);
        return;
    }
    if (*path && path[strlen(path) - 1] != ']')
        dtp_settings_add(w->to, path, NULL)->opens = true;
    walk_mapping(w, path, node, depth);
}

bool dtp_settings_read_yaml(struct dtp_settings *s, const char *text, size_t n) {
    yaml_parser_t parser;
    yaml_document_t document;
    size_t before = s->n;
    if (!yaml_parser_initialize(&parser))
        return false;
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, n);
    if (yaml_parser_load(&parser, &document)) {
        struct walk w = {.to = s, .document = &document};
        const yaml_node_t *root = yaml_document_get_root_node(&document);
        if (root && root->type == YAML_MAPPING_NODE)
            walk_mapping(&w, "", root, 0);
        yaml_document_delete(&document);
    }
    yaml_parser_delete(&parser);
    return s->n > before;
}
