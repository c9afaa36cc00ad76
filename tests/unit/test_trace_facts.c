/* Every Kineto trace of the fixtures, and of ../shared/traces, against its facts.json: counts, steps, times, collectives, and
 * the figures that Holistic Trace Analysis itself printed. */
#include <CUnit/Basic.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/comm_sums.h"
#include "tests/facts_case.h"
#include "traces/replay/analyse.h"
#include "traces/formats/source.h"
#include "traces/formats/kineto.h"

#define NS_PER_US 1e3

static struct dtp_arena *arena;
static const char *file; /* under test, for messages */
static int failures;

static void expect(const char *what, double found, double expected, double tolerance) {
    if (fabs(found - expected) <= tolerance)
        return;
    printf("\n  %s: %s: found %.3f, expected %.3f", file, what, found, expected);
    failures++;
}

static void expect_fact(const cJSON *fact, const char *key, double found, double tolerance) {
    const cJSON *j = item(fact, key);
    if (cJSON_IsNumber(j))
        expect(key, found, j->valuedouble, tolerance);
}

static void expect_text(const cJSON *fact, const char *key, const char *found) {
    const cJSON *j = item(fact, key);
    const char *expected = j && cJSON_IsString(j) ? j->valuestring : "";
    if (j && strcmp(found, expected) != 0) {
        printf("\n  %s: %s: found \"%s\", expected \"%s\"", file, key, found, expected);
        failures++;
    }
}

/* facts.json came through doubles: where times are absolute with a fraction, on a grid of 0.25 us. */
static double grid_us(const struct dtp_trace_rank *r) {
    return r->decimal_us && !r->has_base ? 0.3 : 0.0021;
}

static void check_times(const struct dtp_trace_rank *r, const cJSON *fact,
                        const struct dtp_trace_times *t, double grid) {
    static const char *const names[] = {"COMP", "COMM", "MEM"};
    struct {
        const char *key;
        int64_t ns;
    } fields[] = {{"span_us", t->span_ns},
                  {"busy_us", t->busy_ns},
                  {"idle_us", t->idle_ns},
                  {"compute_us", t->compute_ns},
                  {"non_compute_us", t->busy_ns - t->compute_ns},
                  {"comm_us", t->comm_ns},
                  {"comm_exposed_us", t->comm_ns - t->overlap_ns},
                  {"comp_comm_overlap_us", t->overlap_ns},
                  {"mem_us", t->memory_ns}};
    double n = (double)(t->n[0] + t->n[1] + t->n[2]);
    double tolerance = grid * (1 + sqrt(n)) + 1e-4 * n; /* errors of edges: random, and a bias */
    (void)r;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        expect_fact(fact, fields[i].key, (double)fields[i].ns / NS_PER_US, tolerance);
    for (int c = 0; c < DTP_NCLASSES; c++)
        expect_fact(item(fact, "n"), names[c], (double)t->n[c], 0);
    for (int c = 0; c < DTP_NCLASSES; c++)
        expect_fact(item(fact, "sum_kernel_us"), names[c], (double)t->sum_ns[c] / NS_PER_US,
                    tolerance);
    expect_fact(fact, "overlap_pct_of_comm", dtp_trace_overlap_pct(t), 0.0051);
}

static void check_steps(const struct dtp_trace_rank *r, const cJSON *fact) {
    const cJSON *steps = item(fact, "steps");
    expect("steps", (double)r->nsteps, cJSON_GetArraySize(steps), 0);
    for (size_t i = 0; i < r->nsteps && (int)i < cJSON_GetArraySize(steps); i++) {
        const cJSON *s = cJSON_GetArrayItem(steps, (int)i), *gpu = item(s, "gpu");
        expect_fact(s, "step", (double)r->step[i].number, 0);
        expect_fact(s, "start_us", (double)r->step[i].start_ns / NS_PER_US, 0.3);
        expect_fact(s, "wall_us", (double)r->step[i].dur_ns / NS_PER_US, 0.3);
        struct dtp_trace_times t;
        dtp_trace_times_launched(r, r->step[i].start_ns, r->step[i].start_ns + r->step[i].dur_ns,
                                 &t);
        if (cJSON_IsObject(gpu))
            check_times(r, gpu, &t, grid_us(r));
        else
            expect("work in a step without a device", (double)t.busy_ns, 0, 0);
    }
}

static void check_counts(const struct dtp_trace_rank *r, const cJSON *fact) {
    const cJSON *c;
    expect_fact(fact, "raw_bytes", (double)r->raw_bytes, 0);
    expect_fact(fact, "n_events", (double)r->nrecords, 0);
    cJSON_ArrayForEach(c, item(fact, "by_ph"))
        expect(c->string, (double)r->phase_count[(unsigned char)c->string[0]], c->valuedouble, 0);
    cJSON_ArrayForEach(c, item(fact, "by_cat")) {
        double n = 0;
        for (int i = 0; i < 255; i++)
            if (strcmp(dtp_trace_category(r, (uint8_t)i), c->string) == 0)
                n += (double)r->category_count[i];
        expect(c->string, n, c->valuedouble, 0);
    }
    cJSON_ArrayForEach(c, item(fact, "streams")) {
        double n = 0;
        for (uint32_t i = 0; i < r->nlanes; i++)
            if (r->lane[i].is_device && r->lane[i].stream == strtol(c->string, NULL, 10))
                n += (double)r->lane[i].nwork;
        expect(c->string, n, c->valuedouble, 0);
    }
    const cJSON *flows = item(fact, "flows");
    expect_fact(flows, "ids", (double)r->nflows, 0);
    expect_fact(flows, "paired", (double)r->nflows_paired, 0);
    expect_fact(flows, "start_only", (double)r->nflows_start_only, 0);
    expect_fact(flows, "finish_only", (double)r->nflows_end_only, 0);
    double work = 0, launched = 0;
    for (size_t i = 0; i < r->nevents; i++) {
        const struct dtp_trace_event *e = dtp_trace_event(r, i);
        work += dtp_trace_is_work(e);
        launched += dtp_trace_is_work(e) && e->launch != DTP_TRACE_NONE;
    }
    expect_fact(fact, "gpu_events", work, 0);
    expect_fact(fact, "gpu_events_with_launch", launched, 0);
    expect_fact(fact, "negative_dur", (double)r->warned[DTP_WARN_NEGATIVE_DURATION].count, 0);
    expect_fact(fact, "same_stream_overlaps", (double)r->warned[DTP_WARN_OVERLAP].count, 0);
    expect_fact(fact, "trace_span_us", (double)dtp_trace_span_ns(r) / NS_PER_US, 0.3);
}

static void check_metadata(const struct dtp_trace_rank *r, const cJSON *fact) {
    const cJSON *c;
    expect_text(fact, "displayTimeUnit", r->time_unit);
    expect_text(fact, "backend", r->backend);
    expect_text(fact, "device", r->device);
    expect_text(fact, "ts_type", r->decimal_us ? "float_us" : "int_us");
    expect_fact(fact, "n_process_groups", (double)r->ngroups, 0);
    expect_fact(fact, "baseTimeNanoseconds", (double)r->base_ns, 0);
    const cJSON *rank = item(fact, "rank"), *world = item(fact, "world_size");
    expect("rank", r->rank, cJSON_IsNumber(rank) ? rank->valuedouble : -1, 0);
    expect("world_size", r->world_size, cJSON_IsNumber(world) ? world->valuedouble : -1, 0);
    size_t n = 0;
    cJSON_ArrayForEach(c, item(fact, "top_level_keys")) {
        if (strcmp(c->valuestring, "traceEvents") == 0)
            continue;
        bool found = false;
        for (size_t i = 0; i < r->ntop_keys; i++)
            found |= strcmp(r->top_key[i], c->valuestring) == 0;
        n += found;
        expect(c->valuestring, found, 1, 0);
    }
    expect("top-level keys", (double)n + 1, (double)r->ntop_keys, 0);
}

static void check_kernels(const struct dtp_trace_rank *r, const cJSON *fact) {
    const struct dtp_trace_by_name *v;
    size_t n;
    const cJSON *k;
    dtp_trace_kernels(arena, r, &v, &n);
    cJSON_ArrayForEach(k, item(fact, "top_kernels")) {
        const char *name = item(k, "name")->valuestring;
        double count = item(k, "count")->valuedouble, sum_us = item(k, "sum_us")->valuedouble;
        bool found = false; /* facts.json cuts names at 160 bytes */
        for (size_t i = 0; i < n && !found; i++)
            found =
                strncmp(v[i].name, name, strlen(name)) == 0 && (double)v[i].count == count &&
                fabs((double)v[i].sum_ns / NS_PER_US - sum_us) <= grid_us(r) * (1 + sqrt(count));
        expect(name, found, 1, 0);
    }
}

static void check_comms(const struct dtp_trace_rank *r, const cJSON *fact, bool host) {
    const struct comm_sum *v;
    size_t n;
    const cJSON *c;
    comm_sums(arena, r, host, &v, &n);
    double ngroups = 0;
    cJSON_ArrayForEach(c, item(fact, host ? "collectives_host" : "collectives_gpu")) {
        struct comm_sum sum = {0};
        for (size_t i = 0; i < n; i++) {
            if (strcmp(v[i].key, c->string) != 0)
                continue;
            sum.count += v[i].count;
            sum.in_elements += v[i].in_elements;
            sum.in_bytes += v[i].in_bytes;
            sum.out_bytes += v[i].out_bytes;
            sum.dur_ns += v[i].dur_ns;
        }
        expect_fact(c, "count", (double)sum.count, 0);
        expect_fact(c, "in_elems", (double)sum.in_elements, 0);
        expect_fact(c, "in_bytes", (double)sum.in_bytes, 0);
        expect_fact(c, "out_bytes", (double)sum.out_bytes, 0);
        expect_fact(c, host ? "cpu_us" : "dur_us", (double)sum.dur_ns / NS_PER_US,
                    grid_us(r) * (1 + sqrt((double)sum.count)));
        ngroups += (double)sum.count;
    }
    if (!host)
        cJSON_ArrayForEach(c, item(fact, "gpu_collectives_by_pg")) {
            double count = 0;
            for (size_t i = 0; i < n; i++)
                count += strcmp(v[i].group, c->string) == 0 ? (double)v[i].count : 0;
            expect(c->string, count, c->valuedouble, 0);
        }
    (void)ngroups;
}

/* What the HTA package printed; where it gives negative times (its rounding), the facts say null. */
static void check_hta(const struct dtp_trace_rank *r, const cJSON *fact) {
    struct dtp_trace_times t;
    dtp_trace_times_hta(r, &t);
    check_times(r, item(fact, "hta"), &t, 0.51);
    const cJSON *library = item(fact, "hta_library"), *times = item(library, "temporal");
    expect_fact(times, "idle_time(us)", (double)t.idle_ns / NS_PER_US, 1);
    expect_fact(times, "compute_time(us)", (double)t.compute_ns / NS_PER_US, 1);
    expect_fact(times, "non_compute_time(us)", (double)(t.busy_ns - t.compute_ns) / NS_PER_US, 1);
    expect_fact(times, "kernel_time(us)", (double)t.span_ns / NS_PER_US, 1);
    expect_fact(library, "overlap_pctg", dtp_trace_overlap_pct(&t), 0.0051);
}

static void check_rank(const struct dtp_trace_rank *r, const cJSON *fact) {
    struct dtp_trace_times all;
    check_metadata(r, fact);
    check_counts(r, fact);
    check_steps(r, fact);
    dtp_trace_times_all(r, &all);
    if (cJSON_IsObject(item(fact, "gpu_all")))
        check_times(r, item(fact, "gpu_all"), &all, grid_us(r));
    check_kernels(r, fact);
    check_comms(r, fact, false);
    check_comms(r, fact, true);
    if (cJSON_IsObject(item(fact, "hta")))
        check_hta(r, fact);
}

/* "archive.tar.gz:member" or a file. */
static enum dtp_status read_sample(const char *folder, const char *key, struct dtp_trace_rank *r,
                                   struct dtp_err *err) {
    const char *colon = strchr(key, ':');
    size_t n = colon ? (size_t)(colon - key) : strlen(key);
    const char *path = dtp_arena_printf(arena, "%s%.*s", folder, (int)n, key);
    struct dtp_source *s, *member;
    dtp_trace_rank_init(r, arena, key);
    DTP_TRY(dtp_source_open(arena, path, &s, err));
    enum dtp_status status = DTP_OK;
    if (!colon) {
        status = dtp_kineto_read(s, NULL, r, err);
    } else {
        while ((status = dtp_source_tar_next(arena, s, &member, err)) == DTP_OK && member) {
            bool wanted = strstr(dtp_source_name(member), colon + 1) != NULL;
            if (wanted)
                status = dtp_kineto_read(member, NULL, r, err);
            dtp_source_close(member);
            if (wanted || status != DTP_OK)
                break;
        }
    }
    dtp_source_close(s);
    return status;
}

static void check_folder(const char *folder, int traces) {
    const cJSON *fact;
    cJSON *facts = facts_read(arena, dtp_arena_printf(arena, "%sfacts.json", folder));
    int n = 0;
    cJSON_ArrayForEach(fact, item(facts, "kineto")) {
        struct dtp_trace_rank r;
        struct dtp_err err = {0};
        file = fact->string;
        failures = 0;
        if (read_sample(folder, file, &r, &err) != DTP_OK) {
            printf("\n  %s", err.msg);
            CU_FAIL("a sample is not read");
            continue;
        }
        check_rank(&r, fact);
        CU_ASSERT_EQUAL(failures, 0);
        n++;
    }
    CU_ASSERT_EQUAL(n, traces);
    cJSON_Delete(facts);
}

static void fixtures(void) {
    check_folder(fixture_path(arena, "traces/"), 2);
}

static void samples(void) {
    if (shared_file(arena, "traces/facts.json"))
        check_folder(facts_path(arena, ""), 26);
}

int main(void) {
    CU_TestInfo tests[] = {{"fixtures have the facts of their making", fixtures},
                           {"samples reproduce facts.json", samples},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"trace facts", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
