/* options.h: one table of options makes parsing, --help, the man page and shell completion.
 *
 * An option is a row: name, how its text becomes a value, where the value goes (offset into a
 * struct of the caller), and one line of help. Options stand in groups with a title; a verb takes
 * some of the common groups (cli.h) and may have rows of its own.
 *
 *     --name VALUE   --name=VALUE   -n VALUE   --flag   --no-flag   --   (ends the options)
 *
 * A name may be cut short as long as it stays unique, and '_' stands for '-'. Errors are usage errors
 * (exit 2) and name the nearest option or value; what other tools have and dtplan says otherwise
 * is answered with what to say.
 *
 *     static const struct dtp_option own[] = {
 *         {"bytes", .kind = DTP_OPT_BYTES, .offset = offsetof(struct mine, bytes), .value = "B",
 *          .help = "size of the buffer"},
 *         {0}};
 */
#ifndef DTP_PLANNER_CLI_OPTIONS_H
#define DTP_PLANNER_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "sim/base/arena.h"
#include "sim/base/status.h"

enum dtp_option_kind {
    DTP_OPT_FLAG = 1, /* bool; --name sets it, --no-name clears it */
    DTP_OPT_SWITCH,   /* const char *: "on" or "off"; --name, --no-name, --name off */
    DTP_OPT_STRING,   /* const char * */
    DTP_OPT_INT,      /* int, min..max */
    DTP_OPT_BYTES,    /* uint64_t: 80GB, 74.5GiB */
    DTP_OPT_COUNT,    /* double: 300B, 1.5T; at most max */
    DTP_OPT_DOUBLE,   /* double */
    DTP_OPT_CHOICE    /* int: index into names */
};

/* What a shell offers after the option: a fixed list (names), files, or the names that a verb
 * lists. */
enum dtp_complete {
    DTP_COMPLETE_NONE,
    DTP_COMPLETE_FILE,
    DTP_COMPLETE_MODELS,
    DTP_COMPLETE_CLUSTERS,
    DTP_COMPLETE_FRAMEWORKS
};

struct dtp_option {
    const char *name; /* without dashes; NULL ends a table */
    enum dtp_option_kind kind;
    char letter; /* 0: none */
    size_t offset;
    const char *value;        /* what help calls the value: "N", "FILE" */
    const char *const *names; /* CHOICE, and completion of a STRING; NULL-terminated */
    double min, max;          /* INT; COUNT: max; BYTES: less than min needs a unit */
    const char *aliases;      /* other names, a blank between two; accepted and not advertised */
    enum dtp_complete complete;
    const char *help; /* one line, no full stop */
    bool several;     /* STRING: more of its names may follow as words: --name a b is --name a,b */
    const char *many; /* the command that takes a list of them, or NULL */
    const char *scaled;      /* INT: what to say to 4M, or NULL */
    const char *number;      /* STRING: what to say to a number, or NULL */
    const char *const *same; /* CHOICE: a second spelling of each of the names, or NULL */
};

/* A table and the struct that its offsets refer to. */
struct dtp_option_set {
    const char *title;
    const struct dtp_option *options;
    void *out; /* NULL where the set is only printed */
};

/* Parses argv[0 .. argc-1] (no program name, no verb). What is no option goes to out_args (room for
 * argc pointers). Values are copied into `a`. */
enum dtp_status dtp_options_parse(struct dtp_arena *a, const struct dtp_option_set *sets,
                                  size_t nsets, int argc, char **argv, const char **out_args,
                                  int *out_nargs, struct dtp_err *err);

/* Returns what to use instead of an option of another tool (without dashes), or NULL. */
const char *dtp_option_elsewhere(const char *name);
/* Returns the same for a command. */
const char *dtp_command_elsewhere(const char *name);

/* "  --tp LIST        tensor-parallel degree", wrapped to width columns. */
void dtp_options_help(FILE *f, const struct dtp_option_set *set, int width);
/* Writes roff with one .TP paragraph per option. */
void dtp_options_man(FILE *f, const struct dtp_option_set *set);
/* Writes text to f with the characters that roff treats specially escaped. */
void dtp_man_text(FILE *f, const char *text);

#endif
