/* The bar: the whole search for gpt175b on 1,024 A100, from loading the files to the winner, in less than
 * 3 s on two cores, on 131,072 GPUs too; the same for our own runtime, whose memory is walked, in 2 s.
 * Prints what it did; exit status 1 when one took longer. Other searches are for the record. */
#include <stdio.h>
#include <time.h>

#include "planner/search.h"
#include "planner/setup.h"
#include "sim/base/units.h"

static const double BAR_S = 3, NATIVE_BAR_S = 2;

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * DTP_NANO;
}

struct job {
    const char *model, *cluster, *framework;
    int gpus;
    double bar_s; /* 0: none */
    int batch;    /* 0: the model's */
};

/* False when it failed or took longer than its bar. */
static bool measure(const struct job *job) {
    double start_s = now_s();
    struct dtp_arena *a = dtp_arena_create("bench");
    struct dtp_setup *s = DTP_NEW(a, struct dtp_setup, 1);
    struct dtp_search f;
    struct dtp_err err = {0};
    struct dtp_ask ask = {.model = job->model,
                          .cluster = job->cluster,
                          .framework = job->framework,
                          .gpus = job->gpus,
                          .batch = job->batch,
                          .dtype = -1,
                          .attention = -1};
    if (dtp_setup_init(a, &ask, s, &err) != DTP_OK ||
        dtp_search(a, &s->problem, NULL, NULL, &f, &err) != DTP_OK) {
        printf("%s: %s\n", job->model, err.msg);
        dtp_arena_destroy(a);
        return false;
    }
    double took_s = now_s() - start_s;
    printf("%-14s %6d x %-9s %9llu plans  %7llu legal  %5llu estimated  %3llu simulated  %6.3f s  "
           "%.2fM plans/s\n",
           job->model, job->gpus, s->cluster.gpu.name, (unsigned long long)f.counts.candidates,
           (unsigned long long)(f.counts.candidates - f.counts.illegal),
           (unsigned long long)f.counts.estimated, (unsigned long long)f.counts.simulated, took_s,
           (double)f.counts.candidates / took_s / DTP_MEGA);
    dtp_arena_destroy(a);
    return job->bar_s == 0 || took_s < job->bar_s;
}

int main(void) {
    const struct job jobs[] = {{"gpt175b", NULL, NULL, 1024, BAR_S, 0},
                               {"gpt175b", "dgx-h100", "dtplan", 1024, NATIVE_BAR_S, 0},
                               {"gpt1t", NULL, NULL, 3072, 0, 0},
                               {"llama3.1-405b", "dgx-h100", NULL, 16384, 0, 0},
                               {"gpt175b", NULL, NULL, 131072, BAR_S, 0},
                               {"gpt1t", NULL, NULL, 131072, BAR_S, 0},
                               {"llama3.1-405b", "dgx-h100", NULL, 131072, BAR_S, 0},
                               {"deepseek-v3", "dgx-h100", NULL, 2048, 0, 0},
                               /* thousands of microbatches a step: the simulations count */
                               {"llama3.1-405b", "dgx-h100", NULL, 128, 0, 0},
                               {"gpt1t", NULL, NULL, 3072, 0, 131072}};
    bool ok = true;
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
        ok = measure(&jobs[i]) && ok;
    return ok ? 0 : 1;
}
