/* doctor.h: is a measured number normal for this configuration, and if not, what may be behind it?
 *
 * The expected range is the prediction times 1 +- the 90th percentile of the error that was validated for
 * the stack (traces/validate/accuracy.h). A suspect is one change of the configuration (recomputation on, attention
 * not fused, half of the NICs, ...); it is predicted like any other, and the suspects are ranked by how
 * much of the gap between measured and predicted they explain:
 *     explained = 1 - |measured - suspect| / |measured - predicted|, at most 1
 * Those that the device cannot hold come last. Where the run ended out of memory, what would fit comes first, the
 * fastest before others; where it should have fit, what would not.
 */
#ifndef DTP_PLANNER_DOCTOR_H
#define DTP_PLANNER_DOCTOR_H

#include "planner/setup.h"
#include "traces/validate/accuracy.h"

/* What was measured, as people state it: one of them is set. */
struct dtp_measured {
    double step_s;     /* 0: not given */
    double peak_bytes; /* 0: not given */
    bool out_of_memory;
    const char *text;     /* as typed */
    int batch;            /* sequences of a step that a line of a log names; 0: none */
    double flops_per_gpu; /* FLOP/s that a line of a log says itself; 0: none */
    bool tokens, mfu;     /* step_s was given as tokens/s of all GPUs, as MFU */
};

/* "3.2s" "820 ms/step" a step, "1.2 it/s", "152TF" TFLOP/s per GPU, "45% MFU", "190k tok/s", "3k tok/s/GPU",
 * "12 samples/s", "61GiB", "OOM" or "out of memory", as people and logs write them ("tps: 5,762", labels.h of
 * traces/formats), several with commas, or lines of a log (logs.h there), of which a step's time counts before rates.
 * Times and rates become step_s with the model's FLOPs and the batch. Status DTP_EUSAGE. */
enum dtp_status dtp_measured_parse(const char *text, const struct dtp_problem *problem,
                                   struct dtp_measured *out, struct dtp_err *err);

/* FLOPs of a step as the MFU counts them. */
double dtp_step_flops(const struct dtp_problem *p);

struct dtp_suspect {
    const char *what; /* "full recomputation is on" */
    double step_s;    /* predicted with it */
    double peak_bytes;
    double explained; /* share of the step's gap, else memory's, <= 1; 0: nothing measured */
    bool fits;        /* into the device, or over by less than the error of its memory */
};

enum { DTP_MOST_SUSPECTS = 24 };
struct dtp_diagnosis {
    struct dtp_result expected;
    struct dtp_accuracy accuracy;
    double low_s, high_s, low_bytes, high_bytes;
    bool step_normal, peak_normal; /* true where nothing was measured */
    bool fits;                     /* as a suspect does; if not, another configuration ran */
    bool may_run_out;              /* the error of its memory allows it; peak_normal if it did */
    bool above_peak;     /* more model FLOPs a second than the GPUs have: no run does that */
    const char *reading; /* another way to read the number, in which it is normal; or NULL */
    int n;
    struct dtp_suspect suspect[DTP_MOST_SUSPECTS]; /* the best explanation first */
};

/* Simulates the plan and each suspect that applies to it. Fails as dtp_evaluate() of the plan itself does. */
enum dtp_status dtp_doctor(struct dtp_arena *a, const struct dtp_setup *setup,
                           const struct dtp_plan *plan, const struct dtp_measured *measured,
                           struct dtp_diagnosis *out, struct dtp_err *err);

#endif
