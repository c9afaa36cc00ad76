/* The manual page of the JSON files, dtplan(5), from the tables that their readers use. */
#include <string.h>

#include "hw/cluster.h"
#include "models/framework/framework.h"
#include "planner/cli/output_traces.h"
#include "planner/cli/verbs.h"
#include "planner/document.h"

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
