/* The replay of the fixtures and of the samples of ../shared/traces: they come out as measured, edited ones as the what-if, and
 * what-ifs go the right way. */
#include <CUnit/Basic.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "sim/base/units.h"
#include "tests/facts_case.h"
#include "tests/suites.h"
#include "traces/replay/replay.h"

#define US 1e-6

static struct dtp_arena *arena;

struct sample {
    const char *name, *file[2];
};

static const struct sample samples[] = {
    {"an invented job of 2 ranks", {"job_rank0.json", "job_rank1.json"}},
    {"DLRM on 8 ranks", {"kineto-dlrm-8rank/dlrm_kineto.tar.gz", NULL}},
    {"FSDP2 on 2 ranks",
     {"kineto-h200-2rank/k_fsdp2_rank0.json.gz", "kineto-h200-2rank/k_fsdp2_rank1.json.gz"}},
    {"a pipeline on 2 ranks",
     {"kineto-h200-2rank/k_pp_rank0.json.gz", "kineto-h200-2rank/k_pp_rank1.json.gz"}}};
enum { FIXTURE, DLRM, FSDP, PIPELINE, NSAMPLES };

static bool load_sample(const struct sample *s, struct dtp_trace *t) {
    const char *paths[2] = {NULL, NULL};
    struct dtp_err err = {0};
    size_t n = s->file[1] ? 2 : 1;
    for (size_t i = 0; i < n; i++)
        paths[i] = s == &samples[FIXTURE]
                       ? fixture_path(arena, dtp_arena_printf(arena, "traces/%s", s->file[i]))
                       : shared_file(arena, dtp_arena_printf(arena, "traces/%s", s->file[i]));
    if (!paths[0])
        return false;
    CU_ASSERT_EQUAL_FATAL(dtp_trace_load(arena, paths, n, NULL, t, &err), DTP_OK);
    return true;
}

static void check_sample(const struct sample *s) {
    struct dtp_trace t;
    struct dtp_replay r;
    struct dtp_err err = {0};
    if (!load_sample(s, &t))
        return;
    CU_ASSERT_EQUAL_FATAL(dtp_replay(arena, &t, &DTP_REPLAY_AS_MEASURED, &r, &err), DTP_OK);
    double worst_step = 0, worst_end_us = 0;
    for (size_t i = 0; i < r.nranks; i++) {
        for (size_t k = 0; k < r.rank[i].nsteps; k++) {
            const struct dtp_replayed_step *step = &r.rank[i].step[k];
            worst_step = fmax(worst_step, fabs(step->replayed_s / step->measured_s - 1));
        }
        for (size_t k = 0; k < r.rank[i].ncomms; k++) {
            double off_us = fabs(r.rank[i].comm[k].replayed_end_s - r.rank[i].comm[k].end_s) / US;
            worst_end_us = fmax(worst_end_us, off_us);
        }
    }
    printf("\n    %s: steps within %.3f %%, ends within %.1f us, explained %.2f %%", s->name,
           100 * worst_step, worst_end_us, r.explained_pct);
    CU_ASSERT(worst_step < 0.01);
    CU_ASSERT(worst_end_us < 10);
    CU_ASSERT(r.explained_pct >= 95);
}

static void replay_samples(void) {
    for (size_t i = 0; i < NSAMPLES; i++)
        check_sample(&samples[i]);
}

static void check_halves(struct dtp_trace *t) {
    struct dtp_matches m;
    int64_t worst_ns = 0;
    for (int half = DTP_ALIGN_EVEN; half <= DTP_ALIGN_ODD; half++) {
        dtp_trace_match(arena, t, (enum dtp_align)half, &m);
        CU_ASSERT(m.n >= 8);
        for (size_t i = 0; i < m.n; i++)
            for (size_t k = m.at[i].first; k < m.at[i].first + m.at[i].n; k++) {
                const struct dtp_match_member *o = &m.member[k];
                const struct dtp_trace_event *e = dtp_trace_event(&t->rank[o->rank], o->event);
                int64_t end_ns = dtp_trace_at_ns(&m, &t->rank[o->rank], dtp_trace_end_ns(e));
                int64_t off_ns = llabs(end_ns - o->tail_ns - m.at[i].end_ns);
                if (!o->ahead && off_ns > worst_ns)
                    worst_ns = off_ns;
            }
    }
    printf("\n    ends agree within %.1f us ", (double)worst_ns / 1000);
    CU_ASSERT(worst_ns <= DTP_MATCH_SKEW_NS);
}

/* Clocks set on every other collective: the ends of the others agree. */
static void half_of_the_clocks(void) {
    for (size_t i = 0; i < NSAMPLES; i++) {
        struct dtp_trace t;
        if (load_sample(&samples[i], &t))
            check_halves(&t);
    }
}

static double worst_apart_us(const struct dtp_replay *x, const struct dtp_replay *y) {
    double worst_us = 0;
    for (size_t i = 0; i < x->nranks; i++) {
        worst_us = fmax(worst_us, fabs(x->rank[i].replayed_end_s - y->rank[i].replayed_end_s) / US);
        for (size_t k = 0; k < x->rank[i].ncomms; k++)
            worst_us = fmax(
                worst_us,
                fabs(x->rank[i].comm[k].replayed_end_s - y->rank[i].comm[k].replayed_end_s) / US);
    }
    return worst_us;
}

/* Durations edited in a measured trace give what the same what-if gives on the trace as it was. */
static void edited_kernels(const struct sample *sample, int rank) {
    struct dtp_trace t;
    struct dtp_replay wanted, found;
    struct dtp_err err = {0};
    struct dtp_replay_options o = DTP_REPLAY_AS_MEASURED;
    if (!load_sample(sample, &t))
        return;
    o.slow_rank = rank;
    o.slow_by = 1.5;
    CU_ASSERT_EQUAL_FATAL(dtp_replay(arena, &t, &o, &wanted, &err), DTP_OK);
    for (size_t i = 0; i < t.rank[rank].nevents; i++) {
        struct dtp_trace_event *e = dtp_trace_event(&t.rank[rank], i);
        if (e->kind == DTP_TRACE_KERNEL && e->class == DTP_CLASS_COMPUTE)
            e->dur_ns = e->dur_ns * 3 / 2;
    }
    CU_ASSERT_EQUAL_FATAL(dtp_replay(arena, &t, &DTP_REPLAY_AS_MEASURED, &found, &err), DTP_OK);
    double apart_us = worst_apart_us(&wanted, &found);
    printf("\n    %s, kernels of rank %d: ends within %.1f us", sample->name, rank, apart_us);
    CU_ASSERT(apart_us < 100);
}

static void edited_collective(const struct sample *sample, int number) {
    struct dtp_trace t;
    struct dtp_replay wanted, found;
    struct dtp_err err = {0};
    struct dtp_replay_options o = DTP_REPLAY_AS_MEASURED;
    if (!load_sample(sample, &t))
        return;
    o.slow_collective = number;
    o.slow_collective_by = 3;
    CU_ASSERT_EQUAL_FATAL(dtp_replay(arena, &t, &o, &wanted, &err), DTP_OK);
    const struct dtp_match *m = &wanted.matches.at[number];
    for (size_t k = m->first; k < m->first + m->n; k++) {
        const struct dtp_match_member *member = &wanted.matches.member[k];
        dtp_trace_event(&t.rank[member->rank], member->event)->dur_ns *= 3;
    }
    CU_ASSERT_EQUAL_FATAL(dtp_replay(arena, &t, &DTP_REPLAY_AS_MEASURED, &found, &err), DTP_OK);
    double apart_us = 0;
    for (size_t i = 0; i < found.nranks; i++)
        apart_us =
            fmax(apart_us, fabs(found.rank[i].replayed_end_s - wanted.rank[i].replayed_end_s) / US);
    printf("\n    collective %d three times as long: the end within %.1f us", number, apart_us);
    CU_ASSERT(apart_us < 20);
}

static void edited_samples(void) {
    for (size_t i = 0; i < NSAMPLES; i++)
        for (int rank = 0; rank < 2 && i != DLRM; rank++)
            edited_kernels(&samples[i], rank);
    edited_collective(&samples[FSDP], 10);
    edited_collective(&samples[FSDP], 20);
}

/* Bounds: what-ifs of a sample go the right way and stop at the ideal network. */
static void check_bounds(const struct sample *sample) {
    struct dtp_trace t;
    struct dtp_replay as_is, ideal, half;
    struct dtp_err err = {0};
    struct dtp_replay_options o = DTP_REPLAY_AS_MEASURED;
    if (!load_sample(sample, &t))
        return;
    CU_ASSERT_EQUAL_FATAL(dtp_replay(arena, &t, &o, &as_is, &err), DTP_OK);
    o.network_bandwidth = 0.5;
    CU_ASSERT_EQUAL_FATAL(dtp_replay(arena, &t, &o, &half, &err), DTP_OK);
    o.network_bandwidth = (double)INFINITY;
    o.network_latency = 0;
    CU_ASSERT_EQUAL_FATAL(dtp_replay(arena, &t, &o, &ideal, &err), DTP_OK);
    for (size_t i = 0; i < as_is.nranks; i++) {
        CU_ASSERT(ideal.rank[i].replayed_end_s <= as_is.rank[i].replayed_end_s);
        CU_ASSERT(as_is.rank[i].replayed_end_s <= half.rank[i].replayed_end_s);
    }
}

/* The ranks still have their work to do when none of them is slower than the median. */
static void without_straggler(void) {
    struct dtp_trace t;
    struct dtp_replay as_is, even;
    struct dtp_trace_times times;
    struct dtp_err err = {0};
    struct dtp_replay_options o = DTP_REPLAY_AS_MEASURED;
    if (!load_sample(&samples[FSDP], &t))
        return;
    CU_ASSERT_EQUAL_FATAL(dtp_replay(arena, &t, &o, &as_is, &err), DTP_OK);
    o.remove_straggler = true;
    CU_ASSERT_EQUAL_FATAL(dtp_replay(arena, &t, &o, &even, &err), DTP_OK);
    dtp_trace_times_all(&t.rank[0], &times);
    CU_ASSERT(even.critical.span_s < as_is.critical.span_s);
    CU_ASSERT(even.critical.span_s > (double)times.compute_ns * DTP_NANO);
    for (size_t k = 0; k < even.rank[0].nsteps; k++)
        CU_ASSERT(even.rank[0].step[k].replayed_s > 0.25 * (double)times.compute_ns * DTP_NANO);
}

static void bounds(void) {
    check_bounds(&samples[FIXTURE]);
    check_bounds(&samples[FSDP]);
    without_straggler();
}

int main(void) {
    CU_TestInfo tests[] = {{"samples", replay_samples},
                           {"clocks set on half of the collectives", half_of_the_clocks},
                           {"edited durations of samples", edited_samples},
                           {"bounds of what-ifs", bounds},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"replay of samples", NULL, NULL, NULL, NULL, tests},
                             CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
