/* verb_help.c: the table of verbs; help, manual pages and completions, from it and from the tables that readers use. */
#include <string.h>

#include "hw/cluster.h"
#include "models/framework/framework.h"
#include "planner/cli/output_traces.h"
#include "planner/cli/cli.h"
#include "planner/document.h"
#include "sim/base/text.h"

/* ---- the table of verbs, which help lists ---- */

/* clang-format off */
const struct dtp_verb *const dtp_verbs[] = {
    &dtp_verb_plan,
    &dtp_verb_sweep,
    &dtp_verb_simulate,
    &dtp_verb_explain,
    &dtp_verb_compare,
    &dtp_verb_validate,
    &dtp_verb_trace,
    &dtp_verb_replay,
    &dtp_verb_infer,
    &dtp_verb_jobs,
    &dtp_verb_calibrate,
    &dtp_verb_doctor,
    &dtp_verb_run,
    &dtp_verb_check,
    &dtp_verb_models,
    &dtp_verb_clusters,
    &dtp_verb_frameworks,
    &dtp_verb_schedules,
    &dtp_verb_collectives,
    &dtp_verb_collective,
    &dtp_verb_help,
    NULL};
/* clang-format on */

const struct dtp_verb *dtp_verb_find(const char *name) {
    for (int i = 0; dtp_verbs[i]; i++)
        if (strcmp(dtp_verbs[i]->name, name) == 0)
            return dtp_verbs[i];
    return NULL;
}

static const struct page {
    bool file; /* a kind of file; else a part of the one before */
    const char *title, *text;
    const struct dtp_field *fields;
} pages[] = {
    {true, "PLAN",
     "A plan with the problem that it answers, for --plan; the whole output of dtplan --json is "
     "one, too.",
     dtp_document_fields},
    {false, "\"plan\"", "What is left out is 1, off, or as even as it goes.", dtp_plan_fields},
    {true, "MODEL", "What is trained, for --model. A config.json of Hugging Face is taken as well.",
     dtp_model_fields},
    {false, "A member of \"convs\"", "", dtp_conv_fields},
    {true, "CLUSTER", "GPUs, nodes and network, for --cluster.", dtp_cluster_fields},
    {false, "A member of \"tiers\"", "", dtp_tier_fields},
    {false, "A member of \"curves\"", "A fit of measured times of a collective.", dtp_curve_fields},
    {true, "GPU", "The \"gpu\" of a cluster.", dtp_gpu_fields},
    {false, "\"calibration\"", "Achieved rates, as dtplan calibrate writes them.",
     dtp_gpu_calibration_fields},
    {false, "\"calibration\", beside the rates", "", dtp_gpu_calibration_file_fields},
    {false, "A member of \"calibration.tables\"", "", dtp_time_table_fields},
    {true, "FRAMEWORK", "A software stack, for --framework.", dtp_framework_fields},
    {false, "A member of \"by_gpu\"", "", dtp_framework_gpu_fields},
};

static void entry(FILE *f, const char *prefix, const char *name, const struct dtp_field *field) {
    char values[512], text[1024];
    fputs(".TP\n\\fB", f);
    dtp_man_text(f, prefix);
    dtp_man_text(f, name);
    fputs("\\fR\n", f);
    dtp_field_values(field, values, sizeof values);
    snprintf(text, sizeof text, "%s%s%s%s.\n", field->help ? field->help : field->name,
             values[0] ? "; " : "", values, field->required ? "; required" : "");
    dtp_man_text(f, text);
}

/* Members that stand side by side with one table, such as those by dtype, are written once: a|b. */
static const struct dtp_field *alike(const struct dtp_field *field, char *names, size_t size) {
    size_t n = (size_t)snprintf(names, size, "%s", field->name);
    while (field->kind == DTP_FIELD_OBJECT && field->fields && field[1].name &&
           field[1].kind == DTP_FIELD_OBJECT && field[1].fields == field->fields && n < size)
        n += (size_t)snprintf(names + n, size - n, "|%s", (++field)->name);
    return field;
}

static void entries(FILE *f, const char *prefix, const struct dtp_field *fields) {
    char names[512], inner[640];
    enum { SHORT = 24 };
    for (const struct dtp_field *field = fields; field->name; field++) {
        if (field->kind != DTP_FIELD_OBJECT) {
            entry(f, prefix, field->name, field);
            continue;
        }
        field = alike(field, names, sizeof names);
        entry(f, prefix, names, field);
        snprintf(inner, sizeof inner, "%s%s.", prefix, strlen(names) < SHORT ? names : "*");
        entries(f, inner, field->fields);
    }
}

/* ---- what --json prints ---- */

enum { MOST_FORMS = 64 };

/* Parts that documents have, in the order in which they are met. */
struct parts {
    const struct dtp_form *at[MOST_FORMS];
    size_t n;
};

/* Notes a part that has a page of its own below; those of files have theirs above. */
static void need(struct parts *parts, const struct dtp_form *form) {
    for (size_t i = 0; i < parts->n; i++)
        if (strcmp(parts->at[i]->title, form->title) == 0)
            return;
    if (form->fields && parts->n < MOST_FORMS)
        parts->at[parts->n++] = form;
}

static void output(FILE *f, const char *path, bool among, const char *help, const char *form) {
    fputs(".TP\n\\fB", f);
    dtp_man_text(f, path);
    fputs("\\fR\n", f);
    char text[1024];
    snprintf(text, sizeof text, "%s%s%s%s.\n", help ? help : "", help && form ? "; " : "",
             !form   ? ""
             : among ? "the keys of "
                     : "of the form of ",
             form ? form : "");
    dtp_man_text(f, text);
}

/* "[]" behind a list. */
static const char *inner_of(const struct dtp_field *field) {
    return field->inner ? field->inner : field->put == dtp_put_list ? "[]" : "";
}

static void outputs(FILE *f, const char *prefix, const struct dtp_field *fields,
                    struct parts *parts) {
    char names[256], path[512];
    for (const struct dtp_field *field = fields; field->name; field++) {
        bool among = field->flat && !field->inner;
        field = alike(field, names, sizeof names);
        const struct dtp_form *form = field->form;
        snprintf(path, sizeof path, "%s%s%s", prefix, names, inner_of(field));
        if (form)
            need(parts, form);
        if (among && form) {
            int outer = (int)strlen(prefix) - 1; /* without the dot */
            snprintf(path, sizeof path, "%.*s", outer > 0 ? outer : 3, outer > 0 ? prefix : "...");
            output(f, path, true, field->help, form->title);
        }
        if (!among && (field->help || form || !field->fields))
            output(f, path, false, field->help ? field->help : names, form ? form->title : NULL);
        snprintf(path, sizeof path, "%s%s%s.", prefix, names, inner_of(field));
        if (field->fields)
            outputs(f, among ? prefix : path, field->fields, parts);
    }
}

static void output_title(FILE *f, const struct dtp_form *form) {
    fputs(".SS ", f);
    dtp_man_text(f, form->title);
    putc('\n', f);
    dtp_man_text(f, form->text);
    putc('\n', f);
}

static void output_page(FILE *f, const struct dtp_form *form, struct parts *parts) {
    output_title(f, form);
    outputs(f, "", form->fields, parts);
}

static void output_pages(FILE *f) {
    struct parts parts = {.n = 0};
    fputs(".SH OUTPUT\n", f);
    dtp_man_text(f,
                 "What the commands write with --json, one document each. a[] is a member of the "
                 "list a, a.* one of any name, a|b stands for either; keys in capitals are parts "
                 "of several, further below.\n");
    for (size_t v = 0; dtp_verbs[v]; v++)
        for (const struct dtp_form *const *d = dtp_verbs[v]->documents; d && *d; d++)
            output_page(f, *d, &parts);
    for (size_t i = 0; i < parts.n; i++) /* each may name more */
        output_page(f, parts.at[i], &parts);
    for (const struct dtp_output_page *p = dtp_output_pages; p->title; p++) {
        const struct dtp_form form = {p->title, p->text, NULL};
        output_title(f, &form);
        for (const struct dtp_output_key *k = p->keys; k->path; k++)
            output(f, k->path, false, k->help, k->form);
    }
}

void dtp_help_man_formats(FILE *f) {
    fprintf(
        f,
        ".TH DTPLAN 5 2026-11-28 \"dtplan %s\" \"File Formats\"\n.SH NAME\ndtplan \\- JSON files "
        "of plans, models, clusters, GPUs and frameworks\n.SH DESCRIPTION\n",
        DTP_VERSION);
    dtp_man_text(f, "Files are strict JSON in UTF-8; a byte order mark in front is passed over. An "
                    "unknown key is an error that names the nearest one. The end of a name is its "
                    "unit: bytes, seconds (_s), FLOP/s, bytes/s. A key that is left out keeps its "
                    "default. Any object may hold \"source\" (a string, or an object of key to "
                    "string) and \"notes\" (a string). Below, a.b is the member b of the object a, "
                    "and a|b stands for either.");
    putc('\n', f);
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++) {
        fputs(pages[i].file ? ".SH " : ".SS ", f);
        dtp_man_text(f, pages[i].title);
        putc('\n', f);
        dtp_man_text(f, pages[i].text);
        fputs(pages[i].text[0] ? "\n" : "", f);
        entries(f, "", pages[i].fields);
    }
    output_pages(f);
    fputs(".SH EXAMPLES\n.nf\n", f);
    static const char *const examples[] = {
        "{\"schema_version\": 1, \"model\": \"gpt175b\", \"cluster\": \"dgx-a100-80\",",
        " \"gpus\": 1024,",
        " \"plan\": {\"tp\": 8, \"pp\": 16, \"schedule\": \"1f1b\", \"microbatch_size\": 1}}",
        "",
        "{\"family\": \"gpt\", \"layers\": 24, \"hidden\": 2304, \"heads\": 24, \"vocab\": 51200,",
        " \"seq\": 2048, \"global_batch\": 512}",
        "",
        "{\"base\": \"dgx-h100\", \"node\": {\"nics\": 4}}"};
    for (size_t i = 0; i < sizeof examples / sizeof examples[0]; i++) {
        dtp_man_text(f, examples[i]);
        putc('\n', f);
    }
    fputs(".fi\n.SH SEE ALSO\n.BR dtplan (1)\n", f);
}

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
    size_t n = 0;
    if (cli->nargs == 0) {
        dtp_help_all(cli->out.file, cli->out.width);
        return DTP_OK;
    }
    const struct dtp_verb *verb = dtp_verb_find(cli->arg[0]);
    while (dtp_verbs[n])
        n++;
    const char **names = DTP_NEW(cli->a, const char *, n);
    for (size_t i = 0; i < n; i++)
        names[i] = dtp_verbs[i]->name;
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
