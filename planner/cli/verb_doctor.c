/* doctor: is my number normal? */
#include <string.h>

#include "planner/cli/cli.h"
#include "planner/doctor.h"
#include "planner/report.h"
#include "sim/base/text.h"

struct own {
    const char *measured;
};

static const struct dtp_option own_options[] = {
    {"measured", DTP_OPT_STRING, 0, offsetof(struct own, measured), .value = "VALUE",
     .help =
         "what you see: 3.2s a step, \"1.2 it/s\", 152TF (TFLOP/s per GPU), \"45% MFU\", "
         "\"190k tok/s\", \"3k tok/s/GPU\", \"12 samples/s\", 61GiB or OOM; several with commas; "
         "or a line of a log"},
    {0}};

/* Trainers count attention in full or under its mask, with recomputation or without; a tenth for the rest. */
static bool counts_otherwise(const struct dtp_diagnosis *d, const struct dtp_measured *m,
                             const struct dtp_problem *p) {
    const double near = 1.1;
    double most = dtp_step_flops(p) / p->gpus / m->step_s;
    double least = most * d->expected.causal_mfu / d->expected.mfu;
    most *= d->expected.hfu / d->expected.mfu;
    return m->flops_per_gpu > most * near || m->flops_per_gpu < least / near;
}

static void print_range(const struct dtp_term *t, const struct dtp_diagnosis *d,
                        const struct dtp_measured *m, const struct dtp_problem *p) {
    char text[5][32];
    double flops = dtp_step_flops(p) / p->gpus;
    fprintf(t->file, "  expected step    %s   normal range %s to %s\n",
            dtp_fmt_time(d->expected.step_s, text[0], sizeof text[0]),
            dtp_fmt_time(d->low_s, text[1], sizeof text[1]),
            dtp_fmt_time(d->high_s, text[2], sizeof text[2]));
    fprintf(t->file, "  per GPU          %s   normal range %s to %s\n",
            dtp_fmt_flops(flops / d->expected.step_s, text[0], sizeof text[0]),
            dtp_fmt_flops(flops / d->high_s, text[1], sizeof text[1]),
            dtp_fmt_flops(flops / d->low_s, text[2], sizeof text[2]));
    dtp_fmt_bytes_gib((double)d->expected.device_bytes, text[3], sizeof text[3]);
    fprintf(t->file, "  memory           %s on the fullest GPU, ", text[3]);
    if (m->out_of_memory)
        fprintf(t->file, "of %s that it has\n",
                dtp_fmt_bytes_gib((double)p->cluster->gpu.memory_bytes, text[4], sizeof text[4]));
    else if (d->fits)
        fprintf(t->file, "normal up to %s\n",
                dtp_fmt_bytes_gib(d->high_bytes, text[4], sizeof text[4]));
    else
        dtp_term_print(
            t, DTP_RED, "which has %s: something else ran\n",
            dtp_fmt_bytes_gib((double)p->cluster->gpu.memory_bytes, text[4], sizeof text[4]));
    const struct dtp_accuracy *x = &d->accuracy;
    dtp_fmt_percent(x->p90, text[0], sizeof text[0]);
    if (*x->framework)
        fprintf(
            t->file,
            "                   range: 90 %% of %d validated runs of %s on %s%s err by less than "
            "%s\n",
            x->rows, x->framework, x->gpu, x->experts ? " with experts" : "", text[0]);
    else
        fprintf(t->file,
                "                   range: %s; in 3 of 4 stacks, 90 %% err by less than %s\n",
                p->model->moe.experts > 0 ? "too few validated runs of models with experts"
                                          : "too few validated runs of this stack",
                text[0]);
    if (m->step_s > 0)
        fprintf(t->file, "  measured step    %s, %s: %.2f x the expected\n",
                dtp_fmt_time(m->step_s, text[0], sizeof text[0]),
                dtp_fmt_flops(flops / m->step_s, text[1], sizeof text[1]),
                m->step_s / d->expected.step_s);
    if (m->step_s > 0 && m->flops_per_gpu > 0 && counts_otherwise(d, m, p))
        fprintf(
            t->file,
            "                   the line itself says %s: it counts another model, seq, batch or "
            "number of GPUs\n",
            dtp_fmt_flops(m->flops_per_gpu, text[0], sizeof text[0]));
    if (m->peak_bytes > 0)
        fprintf(t->file, "  measured memory  %s: %.2f x the expected\n",
                dtp_fmt_bytes_gib(m->peak_bytes, text[0], sizeof text[0]),
                m->peak_bytes / (double)d->expected.device_bytes);
}

static const char *verdict(const struct dtp_measured *m, const struct dtp_diagnosis *d,
                           double has_bytes) {
    if (m->out_of_memory)
        return (double)d->expected.device_bytes > has_bytes ? "It has to run out of memory."
               : d->may_run_out ? "It may run out of memory: the error of the prediction decides."
                                : "It should fit. If memory is reserved but not allocated, set "
                                  "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.";
    if (d->step_normal && d->peak_normal)
        return "This is normal.";
    if (!d->step_normal && m->step_s < d->low_s)
        return "This is faster than expected: is the configuration what you think?";
    return d->step_normal ? "The memory is not what it should be."
                          : "This is slower than it should be.";
}

static const char *suspects_title(const struct dtp_measured *m, const struct dtp_diagnosis *d,
                                  double has_bytes) {
    if (m->out_of_memory)
        return (double)d->expected.device_bytes > has_bytes
                   ? "What would change it, what fits first"
                   : "Suspects, what does not fit first";
    return m->step_s > 0 || m->peak_bytes > 0 ? "Suspects, the best explanation first"
                                              : "What would change the numbers";
}

/* Whether the suspect would have moved the step away from the measured time, so that the report leaves it out. */
static bool points_away(const struct dtp_diagnosis *d, const struct dtp_measured *m,
                        const struct dtp_suspect *s) {
    const double seen = 0.01;
    double to = s->step_s / d->expected.step_s - 1;
    if (m->step_s <= 0 || d->step_normal || m->peak_bytes > 0)
        return false;
    return m->step_s < d->low_s ? to > seen : to < -seen;
}

static void print_suspects(const struct dtp_term *t, const struct dtp_diagnosis *d,
                           const struct dtp_measured *m, double has_bytes) {
    char time[32], memory[32];
    fprintf(t->file, "\n");
    dtp_term_print(t, DTP_BOLD, "%s", suspects_title(m, d, has_bytes));
    dtp_term_print(t, DTP_DIM, "   each alone, predicted\n");
    for (int i = 0; i < d->n; i++) {
        const struct dtp_suspect *s = &d->suspect[i];
        char explains[32] = "";
        if (points_away(d, m, s))
            continue;
        bool off = m->step_s > 0 ? !d->step_normal : !d->peak_normal;
        if (m->out_of_memory)
            snprintf(explains, sizeof explains, "%s",
                     s->peak_bytes <= has_bytes ? "fits" : "does not fit");
        else if (!s->fits)
            snprintf(explains, sizeof explains, "does not fit");
        else if (off && s->explained > 0.05)
            snprintf(explains, sizeof explains, "explains %3.0f %%", 100 * s->explained);
        fprintf(t->file, "  %9s  %+6.1f %%  %9s  %-14s %s\n",
                dtp_fmt_time(s->step_s, time, sizeof time),
                100 * (s->step_s / d->expected.step_s - 1),
                dtp_fmt_bytes_gib(s->peak_bytes, memory, sizeof memory), explains, s->what);
    }
}

/* ---- JSON ---- */

struct document {
    double expected_s, low_s, high_s, expected_bytes, measured_s, measured_bytes;
    bool fits, out_of_memory, normal;
    const char *reading;
    struct dtp_list suspects;
};

/* clang-format off */
#define AT(member) offsetof(struct dtp_suspect, member)
static const struct dtp_field suspect_fields[] = {
    {"what", DTP_FIELD_STRING, AT(what), .help = "what may be different from what was said"},
    {"step_s", DTP_FIELD_DOUBLE, AT(step_s), .help = "time of a step then"},
    {"peak_bytes", DTP_FIELD_DOUBLE, AT(peak_bytes), .help = "device memory then"},
    {"explained", DTP_FIELD_DOUBLE, AT(explained), .help = "share of the gap that it explains"},
    {"fits", DTP_FIELD_BOOL, AT(fits), .help = "whether peak_bytes fit, as the fits above"},
    {0}};
#undef AT
#define AT(member) offsetof(struct document, member)
static const struct dtp_field document_fields[] = {
    DTP_FIELD_SCHEMA_VERSION, DTP_FIELD_SOURCE("dtplan doctor: predicted; measured_ as given"),
    {"expected_s", DTP_FIELD_DOUBLE, AT(expected_s), .help = "time of a step"},
    {"low_s", DTP_FIELD_DOUBLE, AT(low_s), .help = "least time that is normal"},
    {"high_s", DTP_FIELD_DOUBLE, AT(high_s), .help = "most time that is normal"},
    {"expected_bytes", DTP_FIELD_DOUBLE, AT(expected_bytes), .help = "predicted device memory"},
    {"fits", DTP_FIELD_BOOL, AT(fits),
     .help = "the device holds expected_bytes, or lacks no more than the error of the prediction"},
    {"measured_s", DTP_FIELD_DOUBLE, AT(measured_s), .help = "time that was given; 0: none"},
    {"measured_bytes", DTP_FIELD_DOUBLE, AT(measured_bytes), .help = "memory that was given; 0: none"},
    {"out_of_memory", DTP_FIELD_BOOL, AT(out_of_memory), .help = "the run ended for want of memory"},
    {"normal", DTP_FIELD_BOOL, AT(normal),
     .help = "what was measured is in the range; a run that ended for want of memory had to or may"},
    {"reading", DTP_FIELD_STRING, AT(reading), .unset = DTP_UNSET_NULL,
     .help = "another way to read the number, in which it is normal; null: none"},
    {"suspects", DTP_FIELD_PUT, AT(suspects), .put = dtp_put_list, .fields = suspect_fields},
    {0}};
/* clang-format on */
static const struct dtp_form document = {"doctor", "A measured number beside what is normal.",
                                         document_fields};
static const struct dtp_form *const documents[] = {&document, NULL};

static void print_json(struct dtp_cli *cli, const struct dtp_diagnosis *d,
                       const struct dtp_measured *m) {
    const struct document x = {.expected_s = d->expected.step_s,
                               .low_s = d->low_s,
                               .high_s = d->high_s,
                               .expected_bytes = (double)d->expected.device_bytes,
                               .measured_s = m->step_s > 0 ? m->step_s : 0,
                               .measured_bytes = m->peak_bytes,
                               .fits = d->fits,
                               .out_of_memory = m->out_of_memory,
                               .normal = d->step_normal && d->peak_normal,
                               .reading = d->reading,
                               .suspects = DTP_LIST(d->suspect, d->n)};
    dtp_form_write(cli->out.file, 2, &document, &x);
}

static enum dtp_status run(struct dtp_cli *cli, struct dtp_err *err) {
    const struct own *own = cli->own;
    struct dtp_setup *setup = DTP_NEW(cli->a, struct dtp_setup, 1);
    struct dtp_plan plan;
    struct dtp_measured measured = {0};
    struct dtp_diagnosis d;
    DTP_TRY(dtp_cli_plan(cli, setup, &plan, err));
    if (own->measured)
        DTP_TRY(dtp_measured_parse(own->measured, &setup->problem, &measured, err));
    if (measured.batch > 0 && measured.batch != setup->problem.global_batch)
        return dtp_fail(
            err, DTP_EUSAGE, "--measured: the line has a global batch of %d sequences, the %s %d%s",
            measured.batch, cli->args.plan ? "plan" : "problem", setup->problem.global_batch,
            cli->args.plan ? "" : dtp_arena_printf(cli->a, ": give --batch %d", measured.batch));
    DTP_TRY(dtp_doctor(cli->a, setup, &plan, &measured, &d, err));
    bool normal = d.step_normal && d.peak_normal;
    if (cli->args.json) {
        print_json(cli, &d, &measured);
        return normal ? DTP_OK : DTP_ENO;
    }
    const struct dtp_term *t = &cli->out;
    double has_bytes = (double)setup->cluster.gpu.memory_bytes;
    struct dtp_report report = {.setup = setup};
    dtp_report_header(cli->a, t, &report);
    dtp_term_wrap(t, DTP_GREEN, 2, 2, dtp_plan_words(cli->a, &plan));
    fprintf(t->file, "\n");
    print_range(t, &d, &measured, &setup->problem);
    if (own->measured)
        dtp_term_print(t, normal ? DTP_GREEN : DTP_RED, "  %s\n",
                       verdict(&measured, &d, has_bytes));
    if (d.reading)
        fprintf(t->file, "  But %s.\n", d.reading);
    if (d.above_peak && !d.reading)
        dtp_term_print(
            t, DTP_RED,
            "  It is above the peak of the GPUs: FLOPs or tokens are counted that were not "
            "run, or another model ran.\n");
    print_suspects(t, &d, &measured, has_bytes);
    return normal ? DTP_OK : DTP_ENO;
}

const struct dtp_verb dtp_verb_doctor = {
    .name = "doctor",
    .summary = "is my number normal, and if not, what may be behind it",
    .synopsis = "doctor --measured VALUE --plan FILE | --model M --gpus N --tp T ...",
    .description =
        "Predicts the configuration, gives the range that the validated error of its stack allows, "
        "and "
        "says whether what you measured lies inside. Below stand suspects, each predicted alone, "
        "with the step time and memory that they would give; the ones that explain the gap come "
        "first. Exit status 1 when the number is not normal.",
    .groups = DTP_GROUP_PROBLEM | DTP_GROUP_PLAN | DTP_GROUP_LAYOUT | DTP_GROUP_OUTPUT,
    .documents = documents,
    .options = own_options,
    .own_size = sizeof(struct own),
    .run = run};
