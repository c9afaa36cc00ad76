/* settings.h: the settings of a configuration or a launch script, one by one and in order, whatever the syntax. The
 * readers fill the list and config.h gives the settings their meaning, so that each ends in one of the lists that
 * `dtplan trace` prints.
 *
 * A path names the sections around a key: "parallelism.dp", "data_stages[].data.seed". The key is the last part,
 * without leading dashes and with underscores for dashes.
 *
 *     struct dtp_settings s = {.a = arena};
 *     if (dtp_settings_read_yaml(&s, text, n))
 *         for (size_t i = 0; i < s.n; i++)
 *             ... s.at[i].path, s.at[i].value
 */
#ifndef DTP_TRACES_FORMATS_SETTINGS_H
#define DTP_TRACES_FORMATS_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/base/arena.h"

/* X(name in C, name in JSON, heading in text) */
#define DTP_SETTING_USES(X)                                                                        \
    X(USED, "used", "used")                                                                        \
    X(NONE, "without_effect", "without effect on time or memory")                                  \
    X(LEFT_OUT, "not_modelled", "not modelled")                                                    \
    X(UNKNOWN, "unknown", "unknown")

enum dtp_setting_use {
#define X(name, json, text) DTP_SETTING_##name,
    DTP_SETTING_USES(X)
#undef X
        DTP_SETTING_NUSES
};

struct dtp_setting {
    const char *path, *section, *key;
    const char *value; /* NULL: empty or null, which means the trainer's default */
    bool opens;        /* a section begins; it has no value of its own */
    enum dtp_setting_use use;
    const char *why; /* what its list says of it, or NULL */
};

struct dtp_settings {
    struct dtp_arena *a;
    struct dtp_setting *at;
    size_t n, capacity;
};

/* Appends one; its use is UNKNOWN until somebody reads it. The path and the value are copied. */
struct dtp_setting *dtp_settings_add(struct dtp_settings *s, const char *path, const char *value);
/* The value of a path, of which the last counts; NULL: there is none. */
const char *dtp_settings_value(const struct dtp_settings *s, const char *path);

/* YAML or JSON whose outermost value is a mapping: flow style, anchors, merge keys and lists. A list of scalars is one
 * setting whose words have a blank between two. False, with nothing added, where the text is anything else. */
bool dtp_settings_read_yaml(struct dtp_settings *s, const char *text, size_t n);

#endif
