#include <string.h>

#include "planner/cli/verbs.h"
#include "sim/base/text.h"

static const char intro[] =
    "Finds the fastest layout that fits for training a model on a cluster,\n"
    "says how fast and why.";

void dtp_help_all(FILE *f, int width) {
    fprintf(f, "%s\n\n", intro);
    fputs("  dtplan --model gpt175b --gpus 1024           the best plan, and why\n"
          "  dtplan --model gpt175b --gpus 1024 --json > best.json\n"
          "  dtplan simulate --plan best.json --timeline step.json\n\nCommands:\n",
          f);
    for (int i = 0; dtp_verbs[i]; i++)
        fprintf(f, "  %-12s %s\n", dtp_verbs[i]->name, dtp_verbs[i]->summary);
    fputs(
        "\n`dtplan help COMMAND` or `dtplan COMMAND --help` has its options; `dtplan --man` prints "
        "the manual.\nExit status: 0 found, 1 ran but the answer is no, 2 usage, 3 bad input, 4 "
        "not supported here,\n5 out of memory.\n",
        f);
    (void)width;
}

void dtp_help_verb(FILE *f, const struct dtp_verb *verb, int width) {
    struct dtp_term t = {.file = f, .width = width};
    fprintf(f, "Usage: dtplan %s\n\n", verb->synopsis);
    dtp_term_wrap(&t, DTP_PLAIN, 0, 0, verb->description);
    struct dtp_option_set sets[DTP_MOST_SETS];
    size_t n = dtp_verb_sets(verb, NULL, NULL, sets);
    for (size_t i = 0; i < n; i++)
        dtp_options_help(f, &sets[i], width);
}

/* ---- the manual ---- */

static void man_commands(FILE *f) {
    for (int i = 0; dtp_verbs[i]; i++) {
        fputs(".SS ", f);
        dtp_man_text(f, dtp_verbs[i]->name);
        fputs("\n.B dtplan\n", f);
        dtp_man_text(f, dtp_verbs[i]->synopsis);
        fputs("\n.PP\n", f);
        dtp_man_text(f, dtp_verbs[i]->description);
        putc('\n', f);
        if (dtp_verbs[i]->options) {
            struct dtp_option_set own = {.options = dtp_verbs[i]->options};
            dtp_options_man(f, &own);
        }
    }
}

void dtp_help_man(FILE *f) {
    fprintf(
        f,
        ".TH DTPLAN 1 2026-11-28 \"dtplan %s\" \"User Commands\"\n.SH NAME\ndtplan \\- plan and "
        "simulate distributed training\n.SH SYNOPSIS\n.B dtplan\n[\\fIcommand\\fR] "
        "[\\fIoptions\\fR]\n.SH DESCRIPTION\n%s\nThe command may be left out: it is then "
        "\\fBplan\\fR.\n.SH COMMANDS\n",
        DTP_VERSION, intro);
    man_commands(f);
    fputs(".SH OPTIONS\nOptions that several commands share;\n\\fBdtplan help\\fR \\fIcommand\\fR "
          "says which it takes.\n",
          f);
    static const struct dtp_verb every = {
        .groups = DTP_GROUP_PROBLEM | DTP_GROUP_LAYOUT | DTP_GROUP_SIMULATE | DTP_GROUP_PLAN |
                  DTP_GROUP_FAILURES | DTP_GROUP_OUTPUT | DTP_GROUP_SEARCH | DTP_GROUP_TIMELINE};
    struct dtp_option_set sets[DTP_MOST_SETS];
    size_t n = dtp_verb_sets(&every, NULL, NULL, sets);
    for (size_t i = 0; i < n; i++) {
        fputs(".SS ", f);
        dtp_man_text(f, sets[i].title);
        putc('\n', f);
        dtp_options_man(f, &sets[i]);
    }
    fputs(
        ".SH EXIT STATUS\n0 found; 1 ran, and the answer is no (nothing fits, out of tolerance);\n"
        "2 wrong use: an option or its value cannot be read or is out of range;\n"
        "3 bad input: a file cannot be read or is wrong, a name is not known;\n"
        "4 not supported here; 5 out of memory.\n"
        ".SH ENVIRONMENT\n.TP\n.B NO_COLOR\nno colours when set.\n.TP\n.B DTPLAN_DATA\nfolder "
        "of the data files.\n.SH EXAMPLES\n.nf\ndtplan \\-\\-model gpt175b \\-\\-gpus 1024\n"
        "dtplan \\-\\-model llama2\\-70b \\-\\-gpus 64 \\-\\-cluster dgx\\-h100 \\-\\-tp 8 "
        "\\-\\-pp 1..4\ndtplan simulate \\-\\-plan best.json \\-\\-timeline step.json\n.fi\n"
        ".SH SEE ALSO\n.BR dtplan (5),\nthe JSON files\n",
        f);
}

/* ---- completion ---- */

static const char *lister(enum dtp_complete complete) {
    switch (complete) {
    case DTP_COMPLETE_MODELS:
        return "models";
    case DTP_COMPLETE_CLUSTERS:
        return "clusters";
    case DTP_COMPLETE_FRAMEWORKS:
        return "frameworks";
    case DTP_COMPLETE_NONE:
    case DTP_COMPLETE_FILE:
        break;
    }
    return NULL;
}

static void bash_values(FILE *f, const struct dtp_option_set *set) {
    for (const struct dtp_option *o = set->options; o && o->name; o++) {
        const char *list = lister(o->complete);
        if (!list && !o->names && o->complete != DTP_COMPLETE_FILE)
            continue;
        fprintf(f, "    --%s) ", o->name);
        if (list)
            fprintf(f, "COMPREPLY=($(compgen -W \"$(dtplan %s --names 2>/dev/null)\" -- \"$cur\"))",
                    list);
        else if (o->names) {
            fputs("COMPREPLY=($(compgen -W \"", f);
            for (size_t i = 0; o->names[i]; i++)
                fprintf(f, "%s%s", i ? " " : "", o->names[i]);
            fputs("\" -- \"$cur\"))", f);
        } else
            fputs("COMPREPLY=($(compgen -f -- \"$cur\"))", f);
        fputs("; return ;;\n", f);
    }
}

static void bash_options(FILE *f, const struct dtp_verb *verb) {
    struct dtp_option_set sets[DTP_MOST_SETS];
    size_t n = dtp_verb_sets(verb, NULL, NULL, sets);
    for (size_t s = 0; s < n; s++)
        for (const struct dtp_option *o = sets[s].options; o && o->name; o++)
            fprintf(f, " --%s", o->name);
}

static void bash(FILE *f) {
    fputs("# bash completion of dtplan; made by dtplan --completions=bash\n_dtplan() {\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb=plan w\n"
          "    for w in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n        case $w in\n        ",
          f);
    for (int i = 0; dtp_verbs[i]; i++)
        fprintf(f, "%s%s", i ? "|" : "", dtp_verbs[i]->name);
    fputs(") verb=$w; break ;;\n        esac\n    done\n    case $prev in\n", f);
    struct dtp_option_set sets[DTP_MOST_SETS];
    size_t n = dtp_verb_sets(&(struct dtp_verb){.groups = ~0U}, NULL, NULL, sets);
    for (size_t i = 0; i < n; i++)
        bash_values(f, &sets[i]);
    fputs("    esac\n    local options=\n    case $verb in\n", f);
    for (int i = 0; dtp_verbs[i]; i++) {
        fprintf(f, "    %s) options=\"", dtp_verbs[i]->name);
        bash_options(f, dtp_verbs[i]);
        fputs("\" ;;\n", f);
    }
    fputs("    esac\n    if [[ $cur == -* ]]; then\n"
          "        COMPREPLY=($(compgen -W \"$options\" -- \"$cur\"))\n"
          "    elif [[ $COMP_CWORD == 1 ]]; then\n        COMPREPLY=($(compgen -W \"",
          f);
    for (int i = 0; dtp_verbs[i]; i++)
        fprintf(f, "%s%s", i ? " " : "", dtp_verbs[i]->name);
    fputs("\" -- \"$cur\"))\n    else\n        COMPREPLY=($(compgen -f -- \"$cur\"))\n    fi\n}\n"
          "complete -F _dtplan dtplan\n",
          f);
}

enum dtp_status dtp_help_completions(FILE *f, const char *shell, struct dtp_err *err) {
    static const char *const shells[] = {"bash", "zsh"};
    if (strcmp(shell, "bash") == 0) {
        bash(f);
        return DTP_OK;
    }
    if (strcmp(shell, "zsh") == 0) {
        fputs("#compdef dtplan\nautoload -U +X bashcompinit && bashcompinit\n", f);
        bash(f);
        return DTP_OK;
    }
    return dtp_unknown_name(err, DTP_EUSAGE, "shell", shell, shells, 2, NULL);
}

static enum dtp_status help_run(struct dtp_cli *cli, struct dtp_err *err) {
    enum { MOST = 64 };
    const char *names[MOST];
    size_t n = 0;
    if (cli->nargs == 0) {
        dtp_help_all(cli->out.file, cli->out.width);
        return DTP_OK;
    }
    const struct dtp_verb *verb = dtp_verb_find(cli->arg[0]);
    for (; n < MOST && dtp_verbs[n]; n++)
        names[n] = dtp_verbs[n]->name;
    if (!verb)
        return dtp_unknown_name(err, DTP_EUSAGE, "command", cli->arg[0], names, n, NULL);
    dtp_help_verb(cli->out.file, verb, cli->out.width);
    return DTP_OK;
}

const struct dtp_verb dtp_verb_help = {.name = "help",
                                       .summary = "what a command does and which options it takes",
                                       .synopsis = "help [COMMAND]",
                                       .description =
                                           "Prints the help of a command, or the list of commands.",
                                       .max_args = 1,
                                       .run = help_run};
